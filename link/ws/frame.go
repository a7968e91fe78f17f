package ws

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	gobwas "github.com/gobwas/ws"

	"github.com/drumline-engine/drumline"
)

// Op is the kind of a frame (RFC 6455, 5.2).
type Op byte

// The kinds of frames that leave this package. Continuations are joined inside.
const (
	OpText   = Op(gobwas.OpText)
	OpBinary = Op(gobwas.OpBinary)
	OpClose  = Op(gobwas.OpClose)
	OpPing   = Op(gobwas.OpPing)
	OpPong   = Op(gobwas.OpPong)
)

func (o Op) control() bool { return o >= OpClose }

// Close codes that this package sends by itself; the others are the engine's (drumline.Reason).
const (
	codeNormal      = 1000
	codeProtocol    = 1002
	codeUnsupported = 1003
	codeNone        = 1005 // never on the wire: a close frame without a code
	codeAbnormal    = 1006 // never on the wire: no close frame
	codeBadUTF8     = 1007
	codePolicy      = 1008
	codeInternal    = 1011
)

const (
	maxControl     = 125 // bytes of a control frame's payload
	maxCloseReason = maxControl - 2
	maxHeader      = 14
)

// endError is why a link ended by this end's decision: a text, a close code, and the engine's name for it.
type endError struct {
	text string
	code int
	why  drumline.Reason
}

func (e *endError) Error() string { return e.text }

// Unwrap tells the engine, which cannot import this package, the reason to count.
func (e *endError) Unwrap() error { return &drumline.Refusal{Reason: e.why} }

// Errors that a Receiver's Closed is told, wrapped. Each wraps a *drumline.Refusal.
var (
	// ErrProtocol is returned when the peer broke RFC 6455, or sent a text message or too many control frames.
	ErrProtocol error = &endError{"ws: protocol error", codeProtocol, drumline.ReasonBadMessage}
	// ErrTooBig is returned when a message was bigger than Options.ReadLimit.
	ErrTooBig error = &endError{"ws: message over the read limit", drumline.ReasonTooBig.Code(), drumline.ReasonTooBig}
	// ErrIdle is returned when nothing was heard for Options.IdleTimeout.
	ErrIdle error = &endError{"ws: nothing heard for too long", drumline.ReasonIdle.Code(), drumline.ReasonIdle}
	// ErrStalled is returned when the peer took not one byte for Options.WriteTimeout.
	ErrStalled error = &endError{"ws: the peer takes no bytes", codeAbnormal, drumline.ReasonStalled}
)

// violation is an ErrProtocol with the close code to answer with.
type violation struct {
	code int
	text string
}

func (e *violation) Error() string { return "ws: protocol error: " + e.text }

// Unwrap names the reason first where it is not that of ErrProtocol.
func (e *violation) Unwrap() []error {
	if e.code == codePolicy {
		return []error{&drumline.Refusal{Reason: drumline.ReasonTooFast}, ErrProtocol}
	}
	return []error{ErrProtocol}
}

func protocolError(text string) error { return &violation{codeProtocol, text} }

// closeCode is the code to tell the peer about an error of the decoder.
func closeCode(err error) int {
	if e := (*violation)(nil); errors.As(err, &e) {
		return e.code
	}
	if e := (*endError)(nil); errors.As(err, &e) {
		return e.code
	}
	return codeInternal
}

// Frame:
//
//	0  u8  fin 0x80, rsv 0x70 (0x40: the message is compressed; the others are always 0), op 0x0f
//	1  u8  masked 0x80, length 0x7f; 126: u16 follows; 127: u64 follows (big-endian, shortest form)
//	.. u32 mask, if masked
//	.. payload, xored with the mask

// frameSize is the size of an unmasked frame with n bytes of payload.
func frameSize(n int) int {
	switch {
	case n <= maxControl:
		return 2 + n
	case n <= math.MaxUint16:
		return 4 + n
	}
	return 10 + n
}

func appendHead(dst []byte, op Op, n int, masked byte) []byte {
	dst = append(dst, 0x80|byte(op))
	switch {
	case n <= maxControl:
		return append(dst, masked|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, masked|126), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, masked|127), uint64(n))
}

// AppendServerFrame appends a whole unmasked frame. The payload of a control frame is at most 125 bytes.
func AppendServerFrame(dst []byte, op Op, payload []byte) []byte {
	return append(appendHead(dst, op, len(payload), 0), payload...)
}

// AppendClientFrame appends a whole frame masked with mask. Clients other than browsers may use any mask, also zero. The
// payload of a control frame is at most 125 bytes.
func AppendClientFrame(dst []byte, op Op, payload []byte, mask [4]byte) []byte {
	dst = append(appendHead(dst, op, len(payload), 0x80), mask[:]...)
	at := len(dst)
	dst = append(dst, payload...)
	if mask != [4]byte{} {
		gobwas.Cipher(dst[at:], mask, 0)
	}
	return dst
}

// AppendClose appends the payload of a close frame. A code that must not stand on the wire, such as 1005 or 1006, gives an
// empty payload; a reason that is too long or not UTF-8 is cut.
func AppendClose(dst []byte, code int, reason string) []byte {
	if !validCloseCode(code) {
		return dst
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(code))
	room := maxCloseReason
	for _, r := range reason { // what is not UTF-8 becomes U+FFFD
		if room -= utf8.RuneLen(r); room < 0 {
			break
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

// ParseClose reads the payload of a close frame; code is 1005 if there is none. The error wraps ErrProtocol.
func ParseClose(payload []byte) (code int, reason string, err error) {
	switch len(payload) {
	case 0:
		return codeNone, "", nil
	case 1:
		return 0, "", protocolError("close frame of one byte")
	}
	code = int(binary.BigEndian.Uint16(payload))
	if !validCloseCode(code) {
		return 0, "", protocolError(fmt.Sprintf("close code %d", code))
	}
	if !utf8.Valid(payload[2:]) {
		return 0, "", &violation{codeBadUTF8, "close reason is not UTF-8"}
	}
	return code, string(payload[2:]), nil
}

// validCloseCode follows the register of close codes: 1004 to 1006 and 1015 are never sent, below 3000 the rest is unassigned.
func validCloseCode(code int) bool {
	return code >= 1000 && code <= 1003 || code >= 1007 && code <= 1014 || code >= 3000 && code <= 4999
}

// decoder turns bytes into messages. It holds no bytes but the fragments of an unfinished message.
type decoder struct {
	limit   int          // of a message as it is sent; compressed ones have packedLimit(limit)
	side    gobwas.State // StateServerSide: frames must be masked
	text    bool         // text messages are allowed
	deflate bool         // compressed messages are allowed

	joined []byte // fragments so far
	op     Op     // of the message that joined belongs to; 0: none
	packed bool   // that message is compressed
	bare   int    // empty fragments of this message
}

// maxKept is the largest buffer that a FrameReader keeps while it holds nothing.
const maxKept = 4096

// maxBare bounds how many fragments without content a message may have: they count against no other limit.
const maxBare = 64

// event is a whole message or control frame. Its payload is valid until the next call.
type event struct {
	op      Op
	payload []byte
	packed  bool // the payload is still compressed
}

// next reads the frame at the start of b, unmasking it in place. used is its size, or 0 if it is not whole yet; then need is
// the size up to which b must grow before another call makes sense. An event with op 0 says that the frame was a fragment of
// a message that goes on. Everything that can be refused by the header alone is refused before the payload is there.
func (d *decoder) next(b []byte) (ev event, used, need int, err error) {
	h, at, err := parseHead(b)
	if err != nil || at <= 0 {
		return event{}, 0, -at, err
	}
	packed := false
	if d.deflate && h.Rsv == rsv1>>4 && (h.OpCode == gobwas.OpBinary || h.OpCode == gobwas.OpText) {
		packed, h.Rsv = true, 0 // on the first frame of a message and nowhere else: RFC 7692, 6
	}
	state := d.side
	if d.op != 0 {
		state = state.Set(gobwas.StateFragmented)
	}
	if err := gobwas.CheckHeader(h, state); err != nil {
		return event{}, 0, 0, protocolError(err.Error())
	}
	op := Op(h.OpCode)
	if op == OpText && !d.text {
		return event{}, 0, 0, &violation{codeUnsupported, "text messages are not taken"}
	}
	limit := d.limit
	if packed || d.packed {
		limit = packedLimit(limit)
	}
	if !op.control() && h.Length > int64(limit-len(d.joined)) {
		return event{}, 0, 0, fmt.Errorf("%w: %d + %d bytes, limit %d", ErrTooBig, len(d.joined), h.Length, limit)
	}
	used = at + int(h.Length)
	if len(b) < used {
		return event{}, 0, used, nil
	}
	payload := b[at:used:used]
	if h.Masked {
		gobwas.Cipher(payload, h.Mask, 0)
	}
	switch {
	case op.control():
		return event{op, payload, false}, used, 0, nil
	case h.Fin && d.op == 0:
		return event{op, payload, packed}, used, 0, nil
	}
	if d.op == 0 {
		d.op, d.packed = op, packed
	}
	if len(payload) == 0 && !h.Fin {
		if d.bare++; d.bare > maxBare {
			return event{}, 0, 0, &violation{codePolicy, "too many empty fragments"}
		}
	}
	d.joined = append(d.joined, payload...)
	if !h.Fin {
		return event{}, used, 0, nil
	}
	// The joined bytes go with the event: a message in fragments is rare, and a buffer kept for it would count for each idle
	// connection.
	ev = event{d.op, d.joined, d.packed}
	d.joined, d.op, d.packed, d.bare = nil, 0, false, 0
	return ev, used, 0, nil
}

// unpacked calls use with the payload, inflated to at most limit bytes if it is compressed. What use gets is valid during the call.
func (ev event) unpacked(limit int, use func(payload []byte) error) error {
	if !ev.packed {
		return use(ev.payload)
	}
	in := inflaters.Get().(*inflater)
	defer in.free()
	var err error
	if in.buf, err = in.inflate(in.buf[:0], ev.payload, limit); err != nil {
		return err
	}
	return use(in.buf)
}

// parseHead reads a header. size is its length, or minus the number of bytes it needs at least.
func parseHead(b []byte) (h gobwas.Header, size int, err error) {
	if len(b) < 2 {
		return h, -2, nil
	}
	h.Fin = b[0]&0x80 != 0
	h.Rsv = b[0] >> 4 & 7
	h.OpCode = gobwas.OpCode(b[0] & 15)
	h.Masked = b[1]&0x80 != 0
	h.Length = int64(b[1] & 0x7f)
	size = 2
	switch h.Length {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	mask := size
	if h.Masked {
		size += 4
	}
	if len(b) < size {
		return h, -size, nil
	}
	switch mask {
	case 4:
		h.Length = int64(binary.BigEndian.Uint16(b[2:]))
		if h.Length < 126 {
			return h, 0, protocolError("length is not in its shortest form")
		}
	case 10:
		n := binary.BigEndian.Uint64(b[2:])
		if n > math.MaxInt64 {
			return h, 0, protocolError("length over 63 bits")
		}
		if n <= math.MaxUint16 {
			return h, 0, protocolError("length is not in its shortest form")
		}
		h.Length = int64(n)
	}
	if h.Masked {
		copy(h.Mask[:], b[mask:])
	}
	return h, size, nil
}

// FrameReader splits what a server sends into messages and control frames, for clients that have their own loop. It does not
// answer pings or closes. The zero value is ready; it is not safe for concurrent use. It allocates only for a frame that comes in
// pieces and is larger than what it has held before, and for messages in fragments; between two frames it keeps at most 4 KiB.
type FrameReader struct {
	// Limit is the largest message in bytes. 0: drumline.MaxBacklog.
	Limit int
	// Deflate says that compression without context takeover by the server was agreed upon (ClientConn.Deflate): compressed
	// messages are inflated.
	Deflate bool

	d    decoder
	held []byte // the start of a frame whose end has not arrived
	need int    // the size that held must reach
	err  error
}

// Feed takes the next bytes and calls each for what they complete. payload is valid during the call; p is not changed and not
// kept. After an error, also one that each returned, the stream cannot go on and Feed returns the same error again.
func (r *FrameReader) Feed(p []byte, each func(op Op, payload []byte) error) error {
	if r.err != nil {
		return r.err
	}
	r.d.limit, r.d.side, r.d.text, r.d.deflate = r.Limit, gobwas.StateClientSide, true, r.Deflate
	if r.d.limit <= 0 {
		r.d.limit = drumline.MaxBacklog
	}
	r.err = r.feed(p, each)
	return r.err
}

func (r *FrameReader) feed(p []byte, each func(op Op, payload []byte) error) error {
	for {
		b := p
		if len(r.held) > 0 {
			// No more than the frame in question: what follows is read from p without a copy.
			n := min(max(r.need-len(r.held), 0), len(p))
			r.held = append(r.held, p[:n]...)
			p, b = p[n:], r.held
		}
		ev, used, need, err := r.d.next(b)
		if err != nil {
			return err
		}
		if used == 0 {
			r.need = need
			if len(r.held) == 0 {
				r.held = append(r.held, p...)
				return nil
			}
			if len(p) == 0 {
				return nil
			}
			continue
		}
		if ev.op != 0 {
			if err := ev.unpacked(r.d.limit, func(payload []byte) error { return each(ev.op, payload) }); err != nil {
				return err
			}
		}
		switch {
		case len(r.held) == 0:
			p = p[used:]
		case cap(r.held) > maxKept:
			r.held = nil // a client of thousands would keep its largest frame for each
		default:
			r.held = r.held[:0]
		}
	}
}
