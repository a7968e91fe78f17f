package drumline

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Conn is the engine's end of a link: it reads the client's messages and knows the seat that they are for.
type Conn struct {
	// Set once.
	srv   *Server
	link  Link
	peer  Peer
	timer *time.Timer // hello timeout

	// Owned by the link's reader goroutine (Receive).
	hello  bool
	bucket bucket
	// What it may report, and where that is added up; nil before the first.
	reports bucket
	pages   *pageSum

	// Written by the reader before the room hears of the link.
	verify bool

	room    atomic.Pointer[Room] // where it plays or waits to be let in
	seat    atomic.Pointer[Seat]
	ack     atomic.Uint64 // newest acked packet <<32 | history; written by the reader
	ackAt   atomic.Int64  // clock time at which the newest acked packet was acked; written before ack
	lastSeq atomic.Uint32 // of the packets sent; written by the encoder
	why     atomic.Int32  // 1 + the Reason for which the engine closed the link; 0: it did not
	phase   atomic.Int32  // linkPending until the room lets it in or it ends, whichever comes first
}

const (
	linkPending = iota
	linkJoined  // its end is a close
	linkEnded   // its end was a refusal; a room that has it in its mailbox must not let it in any more
)

// A draining server tells its clients to stay away for drainPause plus a random share of drainSpread, so that they do not come
// back all at once.
const (
	drainPause  = 500 * time.Millisecond
	drainSpread = 2500 * time.Millisecond
)

// Accept takes over a new link. The adapter then calls Receive for each message and Closed at the end.
func (s *Server) Accept(l Link, p Peer) *Conn {
	c := &Conn{srv: s, link: l, peer: p}
	c.bucket.fill(2 * float64(s.opt.MessagesPerSec))
	s.remember(c)
	c.timer = time.AfterFunc(s.opt.HelloTimeout, func() { c.refuse(&Refusal{Reason: ReasonSilent}) })
	if s.draining.Load() {
		c.refuse(&Refusal{Reason: ReasonDraining})
	} else if silent := s.silent.add(c, s.opt.MaxPending); silent != nil {
		silent.refuse(&Refusal{Reason: ReasonSilent})
	}
	return c
}

// Receive takes one message from the client. It is called by one goroutine at a time, never after Closed, and does not
// block; msg is valid during the call. It closes the link by itself when the message breaks the protocol.
func (c *Conn) Receive(msg []byte) {
	if c.why.Load() != 0 {
		return // closing; what still arrives is void
	}
	c.srv.counters.messagesIn.Add(1)
	if !c.bucket.take(time.Now(), float64(c.srv.opt.MessagesPerSec), 2*float64(c.srv.opt.MessagesPerSec)) {
		c.fail(ReasonTooFast)
		return
	}
	if len(msg) == 0 {
		c.fail(ReasonBadMessage)
		return
	}
	if !c.hello {
		if msg[0] != KindHello {
			c.fail(ReasonBadMessage)
			return
		}
		c.hello = true
		c.timer.Stop()
		c.srv.silent.remove(c)
		c.receiveHello(msg[1:])
		return
	}
	s := c.seat.Load()
	if s == nil {
		if msg[0] == KindLeave {
			c.fail(ReasonLeft)
		}
		return // the room has not answered yet; inputs before the welcome mean nothing
	}
	switch msg[0] {
	case KindInput:
		c.receiveInput(s, msg)
	case KindAck:
		if len(msg) != 7 {
			c.fail(ReasonBadMessage)
			return
		}
		c.receiveAck(msg)
	case KindCommand:
		if len(msg)-1 > MaxCommandBytes {
			c.fail(ReasonTooBig)
			return
		}
		s.room.postCommand(s, msg[1:])
	case KindReport:
		c.receiveReport(s, msg)
	case KindLeave:
		c.fail(ReasonLeft)
	default:
		c.fail(ReasonBadMessage)
	}
}

func (c *Conn) receiveHello(body []byte) {
	var h Hello
	if len(body) > MaxHelloBytes || json.Unmarshal(body, &h) != nil || len(h.Cursors) > maxFeeds {
		c.fail(ReasonBadMessage)
		return
	}
	if h.Protocol != ProtocolVersion {
		c.fail(ReasonVersion)
		return
	}
	c.verify = h.Verify && c.srv.opt.Lab
	if r := c.srv.admit(c, h); r != nil {
		c.refuse(r)
	}
}

// receiveAck notes what the client has received. It returns false after closing the link.
func (c *Conn) receiveAck(msg []byte) bool {
	ack16, history := binary.LittleEndian.Uint16(msg[1:]), binary.LittleEndian.Uint32(msg[3:])
	last := c.lastSeq.Load()
	back := uint16(last) - ack16 // packets since the acked one
	if uint32(back) > last || back > 1<<15 {
		c.fail(ReasonBadAck)
		return false
	}
	ack := last - uint32(back)
	if ack == 0 {
		return true // nothing received yet
	}
	if n := ack - 1; n < 32 && history>>n != 0 {
		c.fail(ReasonBadAck) // acks packets before the first
		return false
	}
	old := c.ack.Load()
	if oldAck := uint32(old >> 32); int32(ack-oldAck) >= 0 { // an overtaken ack says nothing new
		if ack == oldAck {
			history |= uint32(old)
		} else {
			c.ackAt.Store(int64(c.srv.clock.Now()))
		}
		c.ack.Store(uint64(ack)<<32 | uint64(history))
	}
	return true
}

func (c *Conn) receiveInput(s *Seat, msg []byte) {
	size := s.inbox.codec.size
	if len(msg) < inputHeaderBytes {
		c.fail(ReasonBadMessage)
		return
	}
	n := int(msg[7] &^ inputSeenFlag)
	label := binary.LittleEndian.Uint32(msg[8:])
	head, seen := inputHeaderBytes, msg[7]&inputSeenFlag != 0
	if seen {
		head += inputSeenBytes
	}
	if n < 1 || n > MaxInputs || len(msg) != head+n*size || label != 0 && label < uint32(n) || label == 0 && (n > 1 || seen) {
		c.fail(ReasonBadMessage)
		return
	}
	inputs := msg[head:]
	for i := range n {
		if !s.inbox.codec.valid(inputs[i*size:][:size]) {
			c.fail(ReasonBadMessage)
			return
		}
	}
	if !c.receiveAck(msg) {
		return
	}
	r := s.room
	if r.hz == 0 {
		label = 0 // there is no step to be for
	}
	var behind uint16
	if seen {
		var moved bool
		if behind, moved = s.inbox.bound(binary.LittleEndian.Uint16(msg[inputHeaderBytes:])); moved {
			r.counters.dropped[DropInputSeen].Add(1)
			s.dropped[DropInputSeen-firstDropped].Add(1)
		}
	}
	for i := n - 1; i >= 0; i-- { // oldest first
		l := label
		if l != 0 {
			l -= uint32(i)
		}
		if d, dropped := s.inbox.putSeen(l, behind, inputs[i*size:][:size]); dropped {
			r.counters.dropped[d].Add(1)
			s.dropped[d-firstDropped].Add(1)
		}
	}
	if r.hz == 0 {
		r.Wake()
	}
}

// Closed tells the engine that the link has ended; err says why if it was not by Close (io.EOF: the peer closed it cleanly; an
// error that wraps a *Refusal: the adapter closed it for that reason). Called exactly once.
func (c *Conn) Closed(err error) {
	c.timer.Stop()
	s := c.srv
	why := ReasonLinkLost
	var r *Refusal
	switch w := c.why.Load(); {
	case w != 0:
		why = Reason(w - 1)
	case errors.As(err, &r):
		why = r.Reason
	case errors.Is(err, io.EOF):
		why = ReasonLinkLost // a closed tab, a reload: the seat waits
	}
	if c.phase.CompareAndSwap(linkPending, linkEnded) {
		if c.why.Load() == 0 {
			s.Refused(c.peer, why)
		}
	} else {
		s.counters.closed[why].Add(1)
	}
	s.silent.remove(c)
	s.forget(c)
	if seat := c.seat.Load(); seat != nil {
		seat.room.post(func() { seat.room.linkEnded(seat, c, why) })
	}
}

// fail closes the link for a reason.
func (c *Conn) fail(why Reason) { c.end(&Refusal{Reason: why}) }

// refuse is fail for a link that has no seat.
func (c *Conn) refuse(r *Refusal) { c.end(r) }

// end tells the client and closes the link; only the first call counts. Safe from any goroutine.
func (c *Conn) end(r *Refusal) {
	if !c.why.CompareAndSwap(0, 1+int32(r.Reason)) {
		return
	}
	if c.phase.Load() == linkPending {
		c.srv.Refused(c.peer, r.Reason)
	}
	g := Goodbye{Reason: r.Reason.Name(), Code: r.Reason.Code(), Text: r.Text, Retry: r.Reason.Retry().String()}
	if g.Text == "" {
		g.Text = reasons[r.Reason].text
	}
	pause := r.RetryAfter
	if r.Reason == ReasonDraining && pause == 0 {
		pause = drainPause + rand.N(drainSpread)
	}
	g.RetryMs = int(pause.Milliseconds())
	if msg, err := AppendJSON(nil, KindRefuse, g); err == nil {
		c.link.Send(msg) // best effort: the close code says the same
	}
	c.link.Close(r.Reason.Code(), r.Reason.Name())
}
