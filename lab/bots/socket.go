package bots

import (
	"io"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/link/ws"
)

// transport is a bot's link. What arrives it gives to the bot's message, and its end to the bot's end, on the goroutines of the
// shard. Everything happens under the shard's lock, and no method waits for the peer for long.
type transport interface {
	// ready reports whether a message would be taken now.
	ready() bool
	// send takes a whole message or nothing: false. On the state lane a newer message may replace it on the way.
	send(msg []byte, lane feed.Lane) bool
	// pause stops reading, for good.
	pause()
	// bye tells the server a close code, after what was sent before. The server then ends the link.
	bye(code int)
	// drop ends the link; after bye, as soon as that has left.
	drop()
}

// conn is the bytes of a WebSocket. Its methods never wait for the peer for long.
type conn interface {
	// write takes as many bytes as it can at once; fewer than all is no error.
	write(p []byte) (int, error)
	close()
}

// socket is a transport over a WebSocket.
type socket struct {
	b     *bot
	c     conn
	in    ws.FrameReader
	frame func(op ws.Op, p []byte) error
	out   []byte // what the connection did not take
	reads bool   // registered for reading, or not
}

func newSocket(b *bot, c conn, deflated bool) *socket {
	s := &socket{b: b, c: c, in: ws.FrameReader{Limit: maxMessage, Deflate: deflated}}
	s.frame = s.onFrame
	return s
}

// receive takes bytes from the connection.
func (s *socket) receive(p []byte) {
	s.b.n.wire += uint64(len(p))
	if err := s.in.Feed(p, s.frame); err != nil && s.b.state != ended {
		s.b.close(codeProtocol, BadFrame)
	}
	if s.b.state == ended {
		s.in = ws.FrameReader{} // not in drop, which is called while it reads
	}
}

// onFrame is called for each message and control frame. After an error no more is read.
func (s *socket) onFrame(op ws.Op, p []byte) error {
	b := s.b
	var err error
	switch op {
	case ws.OpPing:
		s.write(ws.OpPong, p)
	case ws.OpPong:
	case ws.OpClose:
		reason := Reset
		if code, _, err := ws.ParseClose(p); err == nil && code != codeNone {
			reason = codeName(code)
		}
		b.close(codeNormal, reason)
	case ws.OpBinary:
		err = b.message(p)
	default:
		err = errMessage // the protocol has no text
	}
	if b.state == ended {
		return io.EOF
	}
	return err
}

func (s *socket) send(msg []byte, _ feed.Lane) bool { return s.write(ws.OpBinary, msg) }

// write frames p and gives it to the connection, and keeps what that does not take. It is false if nothing was sent, since there
// is something left from before or the link has ended.
func (s *socket) write(op ws.Op, p []byte) bool {
	if s.b.state == ended || !s.ready() {
		return false
	}
	sh := s.b.s
	sh.scratch = ws.AppendClientFrame(sh.scratch[:0], op, p, newMask())
	n, err := s.c.write(sh.scratch)
	if err != nil {
		s.b.closedBy(err)
		return false
	}
	if n < len(sh.scratch) {
		s.out = append(s.out[:0], sh.scratch[n:]...)
	}
	return true
}

// ready tries to send what the connection did not take before; true: nothing is left.
func (s *socket) ready() bool {
	if len(s.out) == 0 {
		return true
	}
	n, err := s.c.write(s.out)
	if err != nil {
		s.b.closedBy(err)
		return false
	}
	s.out = s.out[:copy(s.out, s.out[n:])]
	return len(s.out) == 0
}

func (s *socket) pause() { s.b.s.watch(s.b) }

func (s *socket) bye(code int) { s.write(ws.OpClose, ws.AppendClose(nil, code, "")) }

func (s *socket) drop() {
	s.b.s.forget(s)
	s.c.close()
	s.out = nil
}

// raw finds the connection of a bot under its socket.
func raw[C conn](b *bot) (s *socket, c C, ok bool) {
	if s, ok = b.link.(*socket); ok {
		c, ok = s.c.(C)
	}
	return s, c, ok
}
