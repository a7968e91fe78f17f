package ws

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
)

// conn is a link over one connection, on the server's side.
//
// Whoever writes owns the write side (busy) from the moment it takes the first frame until nothing waits: a caller of TrySend,
// Send or Close for one write that does not wait, or the drain goroutine that goes on where such a write stopped. Everyone else
// finds busy set and queues, or is refused. So mu is never held during a system call that writes, and a frame is never torn.
type conn struct {
	// Set before run.
	nc   net.Conn
	raw  syscall.RawConn // nil: no write without waiting, see package comment
	set  *settings
	pack bool   // compression was agreed upon
	read reader // owned by the reader's goroutine

	// Atomic.
	queued                  atomic.Int64 // bytes taken and not yet written
	msgsIn, msgsOut         atomic.Uint64
	bytesIn, bytesOut       atomic.Uint64 // of messages as they are outside
	packedIn, packedOut     atomic.Uint64 // messages
	wireIn, wireOut         atomic.Uint64
	stateLane, reliableLane lane // whether compressing pays

	mu sync.Mutex
	// Guarded by mu.
	queue   []chunk       // what follows the frame that is being written
	busy    bool          // somebody owns the write side
	closing bool          // nothing more is taken
	dead    bool          // nothing more is written
	broken  bool          // a write failed while the link was open; what has arrived is still received
	closeBy time.Time     // closing: when the queue must be written
	readBy  time.Time     // closing: when the reader stops to wait for the peer's close frame
	cause   error         // why closing, for Closed
	quiet   chan struct{} // closed when busy ends, if the reader waits for it
}

// chunk is a run of whole frames, or of the rest of one and more.
type chunk struct {
	b      []byte
	pooled bool
}

const (
	chunkSize = 4 << 10
	// maxDirect is the largest frame that a caller writes by itself; a larger one would copy for long, and its rest would not
	// fit into a socket's buffer anyway.
	maxDirect = 64 << 10
	// maxRecord is the most that is written to a connection other than TCP at once: its deadline must be met by the whole
	// write, since a TLS connection is broken by a timeout.
	maxRecord = 16 << 10
)

var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// newConn makes a link of nc; pack: compression was agreed upon.
func newConn(nc net.Conn, s *settings, pack bool) *conn {
	c := &conn{nc: nc, raw: rawConn(nc), set: s, pack: pack}
	tune(nc, s.NotSentLowat, s.UserTimeout)
	return c
}

// run is the reader's goroutine.
func (c *conn) run(accept func(drumline.Link, drumline.Peer) Receiver, p drumline.Peer, early []byte) {
	r := accept(c, p)
	c.readAll(r, early)
	cause := c.finish()
	r.Closed(cause)
}

// Delivery implements drumline.Link.
func (c *conn) Delivery() feed.Delivery { return feed.Ordered }

// MaxState implements drumline.Link.
func (c *conn) MaxState() int { return 0 }

// Queued implements drumline.Link.
func (c *conn) Queued() int { return int(c.queued.Load()) }

// Ready implements drumline.Link.
func (c *conn) Ready() bool {
	if c.queued.Load() > 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closing && !c.busy
}

// Counters implements drumline.Link.
func (c *conn) Counters() drumline.LinkCounters {
	return drumline.LinkCounters{
		MessagesIn: c.msgsIn.Load(), MessagesOut: c.msgsOut.Load(),
		MessageBytesIn: c.bytesIn.Load(), MessageBytesOut: c.bytesOut.Load(),
		CompressedIn: c.packedIn.Load(), CompressedOut: c.packedOut.Load(),
		WireBytesIn: c.wireIn.Load(), WireBytesOut: c.wireOut.Load(),
	}
}

// KernelQueued implements drumline.KernelQueuer, on Linux.
func (c *conn) KernelQueued() (bytes int, ok bool) { return kernelQueued(c.nc) }

// TrySend implements drumline.Link.
func (c *conn) TrySend(msg []byte) bool {
	if c.pack && deflatable(msg) && !c.Ready() {
		return false // before anything is compressed in vain
	}
	m := c.outgoing(msg, &c.stateLane)
	defer m.free()
	c.mu.Lock()
	if c.closing || c.busy {
		c.mu.Unlock()
		return false
	}
	return c.put(m)
}

// outgoing is a frame to be written.
type outgoing struct {
	op      Op
	payload []byte
	size    int // bytes of the message before it was compressed
	with    *deflater
	from    *deflaters
}

func (m *outgoing) free() {
	if m.with != nil {
		m.from.put(m.with)
	}
}

// outgoing makes a frame of a message, compressed if that was agreed upon and makes it smaller.
func (c *conn) outgoing(msg []byte, l *lane) outgoing {
	m := outgoing{op: OpBinary, payload: msg, size: len(msg)}
	if !c.pack || !deflatable(msg) || !l.due() {
		return m
	}
	if m.with = c.set.deflaters.get(); m.with == nil {
		return m
	}
	m.from = c.set.deflaters
	b := m.with.pack(msg)
	if l.learn(b != nil); b != nil {
		m.op, m.payload = opDeflated, b
	}
	return m
}

// Send implements drumline.Link.
func (c *conn) Send(msg []byte) error {
	m := c.outgoing(msg, &c.reliableLane)
	defer m.free()
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return drumline.ErrLinkClosed
	}
	if c.queued.Load()+int64(frameSize(len(m.payload))) > drumline.MaxBacklog {
		c.mu.Unlock()
		return drumline.ErrBacklog
	}
	if !c.put(m) {
		return drumline.ErrLinkClosed
	}
	return nil
}

// control sends a ping or pong. It is dropped if the link is closing, or so far behind that it would only add to it.
func (c *conn) control(op Op, payload []byte) {
	c.mu.Lock()
	if c.closing || c.queued.Load() > drumline.MaxBacklog {
		c.mu.Unlock()
		return
	}
	c.put(outgoing{op: op, payload: payload})
}

// Close implements drumline.Link.
func (c *conn) Close(code int, reason string) { c.shut(code, reason, nil) }

// shut starts to close: what is queued is written, then a close frame, then the reader waits a little for the peer's. Only the
// first call counts; cause is what Closed is told.
func (c *conn) shut(code int, reason string, cause error) {
	var space [maxControl]byte
	payload := AppendClose(space[:0], code, reason)
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return
	}
	c.closing, c.cause = true, cause
	c.closeBy = time.Now().Add(c.set.CloseTimeout)
	c.readBy = c.closeBy.Add(c.set.peerWait)
	_ = c.nc.SetReadDeadline(c.readBy)
	if c.busy {
		_ = c.nc.SetWriteDeadline(c.closeBy)
	}
	c.put(outgoing{op: OpClose, payload: payload})
}

// put sends one frame: at once if nobody owns the write side and the connection can do it without waiting, else through the
// queue. It is called with mu locked and unlocks it. False: the link broke.
func (c *conn) put(m outgoing) bool {
	size := frameSize(len(m.payload))
	c.queued.Add(int64(size))
	if c.busy || c.raw == nil || size > maxDirect {
		c.push(m.op, m.payload, size)
		if !c.busy {
			c.busy = true
			go c.drain()
		}
		c.mu.Unlock()
		c.count(m)
		return true
	}
	c.busy = true
	c.mu.Unlock()

	s := scratches.Get().(*scratch)
	s.buf = AppendServerFrame(s.buf[:0], m.op, m.payload)
	n, err := s.write(c.raw)
	c.settle(s.buf[n:], n, err)
	scratches.Put(s)
	if err != nil {
		return false
	}
	c.count(m)
	return true
}

func (c *conn) count(m outgoing) {
	switch m.op {
	case opDeflated:
		c.packedOut.Add(1)
		fallthrough
	case OpBinary:
		c.msgsOut.Add(1)
		c.bytesOut.Add(uint64(m.size))
	}
}

// push queues a frame. mu is locked.
func (c *conn) push(op Op, payload []byte, size int) {
	if last := len(c.queue) - 1; last >= 0 {
		if b := &c.queue[last].b; cap(*b)-len(*b) >= size {
			*b = AppendServerFrame(*b, op, payload)
			return
		}
	}
	ch := newChunk(size)
	ch.b = AppendServerFrame(ch.b, op, payload)
	c.queue = append(c.queue, ch)
}

func newChunk(size int) chunk {
	if size <= chunkSize {
		return chunk{chunks.Get().(*[chunkSize]byte)[:0], true}
	}
	return chunk{make([]byte, 0, size), false}
}

func (ch chunk) free() {
	if ch.pooled {
		chunks.Put((*[chunkSize]byte)(ch.b[:chunkSize]))
	}
}

// settle ends a write that did not wait: n bytes are gone, rest was not taken. The owner of the write side calls it and owns it
// no longer.
func (c *conn) settle(rest []byte, n int, err error) {
	c.wrote(n)
	if err != nil {
		c.writeFailed(lost(err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		c.release()
		return
	}
	if len(rest) > 0 {
		ch := newChunk(len(rest))
		ch.b = append(ch.b, rest...)
		c.queue = append(c.queue, chunk{})
		copy(c.queue[1:], c.queue)
		c.queue[0] = ch
	}
	if len(c.queue) > 0 {
		go c.drain()
		return
	}
	c.release()
}

func (c *conn) wrote(n int) {
	if n > 0 {
		c.wireOut.Add(uint64(n))
		c.queued.Add(-int64(n))
	}
}

// release gives the write side back. mu is locked, and nothing is queued unless the link is dead.
func (c *conn) release() {
	c.busy = false
	if c.dead {
		c.drop()
	} else if c.closing {
		// The close frame was the last in the queue.
		c.readBy = time.Now().Add(c.set.peerWait)
		_ = c.nc.SetReadDeadline(c.readBy)
	}
	if c.quiet != nil {
		close(c.quiet)
		c.quiet = nil
	}
}

// drop forgets what can no longer be written. mu is locked.
func (c *conn) drop() {
	for _, ch := range c.queue {
		ch.free()
	}
	c.queue = nil
	c.queued.Store(0)
}

// drain is the writer: it owns the write side until nothing is queued.
func (c *conn) drain() {
	for {
		c.mu.Lock()
		if c.dead || len(c.queue) == 0 {
			if !c.dead {
				// A write that does not wait fails if an old deadline has passed.
				_ = c.nc.SetWriteDeadline(time.Time{})
				c.queue = nil
			}
			c.release()
			c.mu.Unlock()
			return
		}
		ch := c.queue[0]
		c.queue[0] = chunk{}
		c.queue = c.queue[1:]
		c.mu.Unlock()
		err := c.writeOut(ch.b)
		ch.free()
		if err != nil {
			c.writeFailed(err)
		}
	}
}

// writeOut writes all of b. A peer that takes a little now and then is slow, not stalled: only a deadline that passes without
// one byte ends the link.
func (c *conn) writeOut(b []byte) error {
	for len(b) > 0 {
		if !c.armWrite() {
			return ErrStalled
		}
		piece := b
		if c.raw == nil {
			piece = b[:min(len(b), maxRecord)]
		}
		n, err := c.nc.Write(piece)
		c.wrote(n)
		b = b[n:]
		if err != nil {
			if timeout := errors.Is(err, os.ErrDeadlineExceeded); !timeout {
				return lost(err)
			} else if n == 0 || c.raw == nil {
				return fmt.Errorf("%w: %d of %d bytes in %v", ErrStalled, n, len(piece), c.set.WriteTimeout)
			}
		}
	}
	return nil
}

// armWrite sets the deadline of the next write. False: the time to close is over.
func (c *conn) armWrite() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	by := now.Add(c.set.WriteTimeout)
	if c.closing && by.After(c.closeBy) {
		by = c.closeBy
	}
	if c.dead || !by.After(now) {
		return false
	}
	_ = c.nc.SetWriteDeadline(by)
	return true
}

// writeFailed ends the write side. A client that says goodbye and goes makes the next write fail before the reader has seen the
// goodbye, so the reader gets a moment for what has arrived.
func (c *conn) writeFailed(err error) {
	c.mu.Lock()
	if c.closing || errors.Is(err, ErrStalled) {
		c.mu.Unlock()
		c.fail(err)
		return
	}
	c.closing, c.dead, c.broken, c.cause = true, true, true, err
	c.readBy = time.Now().Add(c.set.peerWait)
	_ = c.nc.SetReadDeadline(c.readBy)
	c.mu.Unlock()
}

// fail ends the link at once, without a close frame. The first cause is kept.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if !c.closing {
		c.closing, c.cause = true, err
	}
	c.dead = true
	c.mu.Unlock()
	// Not c.nc: a TLS connection would try to say goodbye.
	_ = bare(c.nc).Close()
}

// bare is the connection under TLS.
func bare(nc net.Conn) net.Conn {
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return nc
}

// waitQuiet waits until nobody writes. mu is locked before and after.
func (c *conn) waitQuiet() {
	for c.busy {
		if c.quiet == nil {
			c.quiet = make(chan struct{})
		}
		quiet := c.quiet
		c.mu.Unlock()
		<-quiet
		c.mu.Lock()
	}
}

// finish closes the connection once nobody writes to it any more, and returns the cause.
func (c *conn) finish() error {
	c.mu.Lock()
	c.waitQuiet()
	c.closing, c.dead = true, true
	c.drop()
	cause := c.cause
	c.mu.Unlock()
	_ = c.nc.Close()
	return cause
}

// lost is the cause for a connection that ended without a close frame.
func lost(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("ws: connection lost: %w", err)
}
