package bots

import (
	"encoding/binary"
	"errors"

	"github.com/gobwas/ws"
)

// maxMessage bounds what a server can make a bot keep.
const maxMessage = 1 << 20

var (
	errFrame    = errors.New("bots: malformed frame")
	errTooBig   = errors.New("bots: a message over 1 MiB")
	errFragment = errors.New("bots: fragments out of order")
)

// frames cuts the bytes of a server into messages and control frames. It keeps no byte longer than it must: a bot between two
// messages holds no buffer.
type frames struct {
	rest []byte    // the beginning of a frame
	msg  []byte    // the fragments of a message so far
	op   ws.OpCode // the kind of that message; OpContinuation: there is none
}

type frameHandler interface {
	// frame takes a whole message or a control frame; p is valid during the call. After an error no more is read.
	frame(op ws.OpCode, p []byte) error
}

// read takes the next bytes and calls h for each frame that they complete.
func (f *frames) read(data []byte, h frameHandler) error {
	if len(f.rest) > 0 {
		f.rest = append(f.rest, data...)
		data = f.rest
	}
	for {
		fin, op, p, n, err := cutFrame(data)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if err := f.take(fin, op, p, h); err != nil {
			return err
		}
		data = data[n:]
	}
	switch {
	case len(data) == 0:
		if cap(f.rest) > 4096 {
			f.rest = nil
		}
		f.rest = f.rest[:0]
	case len(f.rest) > 0: // data is a part of rest
		f.rest = f.rest[:copy(f.rest, data)]
	default:
		f.rest = append(f.rest, data...)
	}
	return nil
}

func (f *frames) take(fin bool, op ws.OpCode, p []byte, h frameHandler) error {
	switch {
	case op.IsControl():
		return h.frame(op, p)
	case op == ws.OpContinuation:
		if f.op == ws.OpContinuation {
			return errFragment
		}
	case f.op != ws.OpContinuation:
		return errFragment
	case fin:
		return h.frame(op, p)
	default:
		f.op = op
	}
	if len(f.msg)+len(p) > maxMessage {
		return errTooBig
	}
	f.msg = append(f.msg, p...)
	if !fin {
		return nil
	}
	err := h.frame(f.op, f.msg)
	f.msg, f.op = nil, ws.OpContinuation
	return err
}

// cutFrame reads one frame of a server from the beginning of b. n is its length; 0: b ends before it does.
func cutFrame(b []byte) (fin bool, op ws.OpCode, payload []byte, n int, err error) {
	if len(b) < 2 {
		return false, 0, nil, 0, nil
	}
	fin, op = b[0]&0x80 != 0, ws.OpCode(b[0]&0x0f)
	size, head := uint64(b[1]&0x7f), 2
	// No extension is agreed on, so the reserved bits are clear; a server masks nothing.
	if b[0]&0x70 != 0 || b[1]&0x80 != 0 || op.IsReserved() || op.IsControl() && (!fin || size > 125) {
		return false, 0, nil, 0, errFrame
	}
	switch size {
	case 126:
		if head = 4; len(b) < head {
			return false, 0, nil, 0, nil
		}
		if size = uint64(binary.BigEndian.Uint16(b[2:])); size < 126 {
			return false, 0, nil, 0, errFrame
		}
	case 127:
		if head = 10; len(b) < head {
			return false, 0, nil, 0, nil
		}
		if size = binary.BigEndian.Uint64(b[2:]); size < 1<<16 {
			return false, 0, nil, 0, errFrame
		}
	}
	if size > maxMessage {
		return false, 0, nil, 0, errTooBig
	}
	n = head + int(size)
	if len(b) < n {
		return false, 0, nil, 0, nil
	}
	return fin, op, b[head:n], n, nil
}

// appendFrame appends a client's frame with payload p, masked. p is up to 64 KiB and not a part of dst.
func appendFrame(dst []byte, op ws.OpCode, mask uint32, p []byte) []byte {
	dst = append(dst, 0x80|byte(op))
	if len(p) < 126 {
		dst = append(dst, 0x80|byte(len(p)))
	} else {
		dst = append(dst, 0x80|126)
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(p)))
	}
	var m [4]byte
	binary.LittleEndian.PutUint32(m[:], mask)
	dst = append(dst, m[:]...)
	at := len(dst)
	dst = append(dst, p...)
	ws.Cipher(dst[at:], m, 0)
	return dst
}
