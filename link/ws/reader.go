package ws

import (
	"errors"
	"io"
	"os"
	"time"

	gobwas "github.com/gobwas/ws"
)

const (
	// smallRead holds a client's usual message; it is part of the connection's own memory.
	smallRead = 512
	// maxControlRate is how many control frames a second a client may send. A browser sends one per ping and one at the end.
	maxControlRate = 50
	// maxDiscard bounds what is read, unseen, while a closing link waits for the peer.
	maxDiscard = 1 << 20
)

// reader is the state of a connection's reader.
type reader struct {
	d          decoder
	buf        []byte // small, or larger while one message needs it
	from, to   int    // the bytes of buf that are not yet read
	need       int    // bytes that the next frame needs
	heard      time.Time
	controls   int // in the second since controlsAt
	controlsAt time.Time
	small      [smallRead]byte
}

// readAll reads until the connection has ended or nothing more is to be expected of it.
func (c *conn) readAll(rcv Receiver, early []byte) {
	r := &c.read
	r.d = decoder{limit: c.set.ReadLimit, side: gobwas.StateServerSide, deflate: c.pack}
	r.buf = r.small[:]
	if len(early) > len(r.buf) {
		r.buf = early
	} else {
		copy(r.buf, early)
	}
	r.to = len(early)
	c.wireIn.Add(uint64(len(early)))
	r.heard = time.Now()
	c.armRead(r.heard.Add(c.set.PingEvery))
	for {
		if err := c.frames(rcv); err != nil {
			if err == io.EOF { // the peer's close frame was answered
				return
			}
			c.shut(closeCode(err), closeText(err), err)
			break
		}
		r.fit()
		n, err := c.nc.Read(r.buf[r.to:])
		if n > 0 {
			r.to += n
			r.heard = time.Now()
			c.wireIn.Add(uint64(n))
		}
		if err != nil && !c.wake(err) {
			return
		}
	}
	c.discard()
}

// closeText is what the peer is told about an error, at most a close reason long.
func closeText(err error) string {
	if e := (*violation)(nil); errors.As(err, &e) {
		return e.text
	}
	if errors.Is(err, ErrTooBig) {
		return "too big"
	}
	return ""
}

// frames handles the frames that are whole in the buffer. io.EOF: the last one was a close frame.
func (c *conn) frames(rcv Receiver) error {
	r := &c.read
	for {
		ev, used, need, err := r.d.next(r.buf[r.from:r.to])
		if err != nil {
			return err
		}
		if used == 0 {
			r.need = need
			return nil
		}
		r.from += used
		if ev.op.control() {
			if err := c.controlFrame(ev); err != nil {
				return err
			}
		} else if ev.op != 0 {
			if !c.receives() {
				continue
			}
			if err := c.message(rcv, ev); err != nil {
				return err
			}
		}
	}
}

func (c *conn) message(rcv Receiver, ev event) error {
	return ev.unpacked(c.set.ReadLimit, func(payload []byte) error {
		c.msgsIn.Add(1)
		c.bytesIn.Add(uint64(len(payload)))
		if ev.packed {
			c.packedIn.Add(1)
		}
		rcv.Receive(payload)
		return nil
	})
}

func (c *conn) controlFrame(ev event) error {
	r := &c.read
	if now := time.Now(); now.Sub(r.controlsAt) >= time.Second {
		r.controlsAt, r.controls = now, 0
	}
	if r.controls++; r.controls > maxControlRate {
		return &violation{codePolicy, "too many control frames"}
	}
	switch ev.op {
	case OpPing:
		c.control(OpPong, ev.payload)
	case OpClose:
		code, _, err := ParseClose(ev.payload)
		if err != nil {
			return err
		}
		c.peerClosed(code)
		return io.EOF
	}
	return nil
}

// receives reports whether messages still count: not after Close.
func (c *conn) receives() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closing || c.broken
}

// peerClosed answers the peer's close frame with its own code, unless this end closed first.
func (c *conn) peerClosed(code int) {
	c.mu.Lock()
	if c.broken {
		c.cause = io.EOF
	}
	c.mu.Unlock()
	c.shut(code, "", io.EOF)
}

// fit makes room for the next read: the unread bytes go to the front, of the small buffer if they fit. A larger one grows with
// the bytes that arrive, not with those that a header announces.
func (r *reader) fit() {
	left := r.to - r.from
	switch {
	case len(r.buf) > smallRead && left < smallRead && r.need <= smallRead:
		copy(r.small[:], r.buf[r.from:r.to])
		r.buf = r.small[:]
	case left < len(r.buf):
		if r.from > 0 {
			copy(r.buf, r.buf[r.from:r.to])
		}
	default: // full
		bigger := make([]byte, max(min(2*len(r.buf), r.need), left+maxHeader))
		copy(bigger, r.buf[r.from:r.to])
		r.buf = bigger
	}
	r.from, r.to = 0, left
}

// wake handles the error of a read. True: the reader goes on.
func (c *conn) wake(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		c.fail(lost(err))
		return false
	}
	now := time.Now()
	c.mu.Lock()
	closing, readBy := c.closing, c.readBy
	c.mu.Unlock()
	if closing {
		if !now.Before(readBy) {
			return false
		}
		c.armRead(readBy)
		return true
	}
	quiet := now.Sub(c.read.heard)
	if quiet >= c.set.IdleTimeout {
		c.shut(ErrIdle.(*endError).code, "idle", ErrIdle)
		return true // until the peer has answered or peerWait is over
	}
	next := c.read.heard.Add(c.set.PingEvery)
	if quiet >= c.set.PingEvery {
		c.control(OpPing, nil)
		next = now.Add(c.set.PingEvery)
	}
	if end := c.read.heard.Add(c.set.IdleTimeout); next.After(end) {
		next = end
	}
	c.armRead(next)
	return true
}

// armRead sets the reader's next deadline; a closing link has its own.
func (c *conn) armRead(next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		next = c.readBy
	}
	_ = c.nc.SetReadDeadline(next)
}

// discard reads on, after an error that ends the decoding, until the peer closes or the time is over: a connection closed with
// unread bytes is reset, and the reset may overtake the close frame. The peer's own close frame cannot be told from the rest, so
// it is shown the end of the stream instead of being waited for.
func (c *conn) discard() {
	c.mu.Lock()
	c.waitQuiet()
	c.mu.Unlock()
	if w, ok := c.nc.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
	}
	r := &c.read
	r.buf = r.small[:]
	for total := 0; total < maxDiscard; {
		n, err := c.nc.Read(r.buf)
		total += n
		c.wireIn.Add(uint64(n))
		if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || !c.wake(err)) {
			return
		}
	}
}
