package bots

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	gobwas "github.com/gobwas/ws"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
	"github.com/drumline-engine/drumline/link/mem"
	"github.com/drumline-engine/drumline/link/ws"
)

// nap is how long a loop sleeps between two looks at its sockets.
const nap = time.Millisecond

// goodbye is how long bots wait at the end for the server to close their links.
const goodbye = 500 * time.Millisecond

// target is the server.
type target struct {
	url     *url.URL
	address string
	tls     bool
	deflate bool // offer it
}

// shard is the bots of one loop.
type shard struct {
	// set before the loop runs
	f        *Fleet
	id       int
	portable bool
	bots     []*bot
	showing  []*bot // those of bots that show what they get
	poll     poller

	mu sync.Mutex // guards what follows and the bots

	sends, reads wheel
	blank        []feed.Decoder // of bots that do not decode
	scratch      []byte         // a frame
	message      []byte         // a message
	pairs        []*mem.Client  // of all links in memory
	readers      sync.WaitGroup // portable: one per connection
}

// wheel is a schedule that gives each of n turns once per period, evenly, at absolute times.
type wheel struct {
	start time.Duration
	hz, n int64
	next  int64 // turns given
}

// due returns the next turn and when it was due, if that is not after now.
func (w *wheel) due(now time.Duration) (i int, slot time.Duration, ok bool) {
	if w.n == 0 {
		return 0, 0, false
	}
	slot = w.start + w.at(w.next)
	if slot > now {
		return 0, 0, false
	}
	i = int(w.next % w.n)
	w.next++
	return i, slot, true
}

// at is when turn k is due, without adding up rounding errors.
func (w *wheel) at(k int64) time.Duration {
	rate := w.hz * w.n
	return time.Duration(k/rate*int64(time.Second) + k%rate*int64(time.Second)/rate)
}

// skip drops turns that are more than late behind, whole rounds of them, and returns how many.
func (w *wheel) skip(now, late time.Duration) int64 {
	if w.n == 0 {
		return 0
	}
	behind := now - late - w.start - w.at(w.next)
	if behind <= 0 {
		return 0
	}
	rounds := int64(behind)*w.hz/int64(time.Second) + 1
	w.next += rounds * w.n
	return rounds * w.n
}

// run is the shard's goroutine: until the fleet ends, and then until the links have.
func (s *shard) run() {
	unlock := lockThread(s.portable)
	defer unlock()
	defer s.readers.Wait()
	defer s.closeLoop()
	defer s.closePairs()
	// The loops' schedules interleave.
	phase := time.Duration(s.id) * time.Millisecond / time.Duration(len(s.f.shards))
	n := int64(len(s.bots))
	now := s.f.now()
	s.sends = wheel{start: now + phase, hz: int64(max(s.f.o.InputHz, 2)), n: n}
	if s.f.o.RateBytes > 0 && (!s.portable || s.f.o.Server != nil) {
		s.reads = wheel{start: now + phase, hz: readSlots, n: n}
	}
	for !s.f.closing.Load() {
		s.wait()
		s.pump()
		s.turn()
	}
	s.mu.Lock()
	for _, b := range s.bots {
		if b.link != nil {
			b.leave()
		}
	}
	s.mu.Unlock()
	for until := s.f.now() + goodbye; s.f.now() < until && s.linked() > 0; {
		s.wait()
		s.pump()
	}
	s.mu.Lock()
	for _, b := range s.bots {
		b.end(Reset)
	}
	s.mu.Unlock()
}

// linked is the number of bots whose link has not ended.
func (s *shard) linked() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.bots {
		if b.link != nil && !b.paused {
			n++
		}
	}
	return n
}

// turn does all that is due by the schedules.
func (s *shard) turn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.f.now()
	// Inputs that are a second late are of no use to anyone; count them instead of sending a burst.
	if n := s.sends.skip(now, time.Second); n > 0 {
		for _, b := range s.bots {
			if b.state == live {
				b.n.unsent += uint64(n) / uint64(len(s.bots))
			}
		}
	}
	for _, b := range s.showing {
		b.show(now)
	}
	for {
		i, slot, ok := s.sends.due(now)
		if !ok {
			break
		}
		s.bots[i].beat(slot, now)
	}
	s.reads.skip(now, time.Second)
	for {
		i, _, ok := s.reads.due(now)
		if !ok {
			break
		}
		if b := s.bots[i]; b.state == live && !b.paused {
			if m, ok := b.link.(*memory); ok {
				m.read(b.allowance(now))
			} else {
				s.readSome(b, b.allowance(now))
			}
		}
	}
}

// allowance is how many bytes a rate-limited bot may read now. It saves up for at most a fifth of a second.
func (b *bot) allowance(now time.Duration) int {
	if b.refilled == 0 {
		b.refilled = now
	}
	b.tokens = min(b.tokens+now-b.refilled, time.Second/5)
	b.refilled = now
	n := int64(b.tokens) * int64(b.f.o.RateBytes) / int64(time.Second)
	b.tokens -= time.Duration(n * int64(time.Second) / int64(b.f.o.RateBytes))
	return int(n)
}

// newMask is a frame's masking key. Any will do: there is no proxy to protect.
func newMask() (m [4]byte) {
	binary.LittleEndian.PutUint32(m[:], rand.Uint32())
	return m
}

// decoders makes a bot's decoders. Bots that do not decode share a set that never holds anything.
func (s *shard) decoders(b *bot, infos []feed.Info) ([]feed.Decoder, error) {
	decodes := b.decodes
	if !decodes && len(s.blank) == len(infos) {
		return s.blank, nil
	}
	all := make([]feed.Decoder, 0, len(infos))
	for _, info := range infos {
		make, ok := s.f.o.Decoders[info.Kind]
		if !ok {
			return nil, fmt.Errorf("no decoder for feeds of kind %q", info.Kind)
		}
		d, err := make(info.Schema)
		if err != nil {
			return nil, fmt.Errorf("feed %q: %w", info.Kind, err)
		}
		if d, ok := d.(*snap.Decoder); ok && decodes {
			d.OnEvent = func(snap.Event) { b.n.events++ }
		}
		all = append(all, d)
	}
	if !decodes {
		s.blank = all
	}
	return all, nil
}

// dial connects a bot and sends its hello. It is called by a goroutine of its own and takes the lock only at the end.
func (s *shard) dial(b *bot) {
	if s.f.o.Server != nil {
		s.join(b)
		return
	}
	ctx, cancel := context.WithTimeout(s.f.ctx, joinTimeout)
	defer cancel()
	c, early, deflated, err := s.f.target.connect(ctx, b.rcvbuf, b.hello())
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		b.note(err.Error())
		b.end(dialReason(err))
		return
	}
	if s.f.closing.Load() {
		c.Close()
		return
	}
	b.deflated = deflated
	if err := s.adopt(b, c, deflated); err != nil {
		b.note(err.Error())
		b.end(NoConnection)
		return
	}
	if sock, ok := b.link.(*socket); ok && len(early) > 0 {
		sock.receive(early)
	}
}

// dialReason names why a connection could not be made, as far as a client can tell.
func dialReason(err error) string {
	var status gobwas.StatusError
	switch {
	case errors.As(err, &status):
		return fmt.Sprintf("http_%d", int(status))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return NoAnswer
	}
	return NoConnection
}

// connect makes a WebSocket and sends the first message. early is what the server has said already; deflated says that it may
// compress.
func (t *target) connect(ctx context.Context, rcvbuf int, hello []byte) (c net.Conn, early []byte, deflated bool, err error) {
	d := net.Dialer{}
	if rcvbuf > 0 {
		// Before the connection is made, since the window that is offered then follows from it.
		d.Control = func(_, _ string, raw syscall.RawConn) error {
			var err error
			if e := raw.Control(func(fd uintptr) { err = setRcvbuf(fd, rcvbuf) }); e != nil {
				return e
			}
			return err
		}
	}
	if c, err = d.DialContext(ctx, "tcp", t.address); err != nil {
		return nil, nil, false, err
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if t.tls {
		tc := tls.Client(c, &tls.Config{ServerName: t.url.Hostname(), NextProtos: []string{"http/1.1"}})
		if err := tc.HandshakeContext(ctx); err != nil {
			return c, nil, false, err
		}
		c = tc
	}
	if at, ok := ctx.Deadline(); ok {
		c.SetDeadline(at)
	}
	undo := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	var up gobwas.Dialer
	if t.deflate {
		up.Extensions = append(up.Extensions, offer.Option())
	}
	br, hs, err := up.Upgrade(c, t.url)
	if err == nil {
		deflated, err = agreed(hs)
	}
	if err != nil {
		return c, nil, false, err
	}
	if br != nil {
		if n := br.Buffered(); n > 0 {
			p, _ := br.Peek(n)
			early = append(early, p...)
		}
		gobwas.PutReader(br)
	}
	if _, err := c.Write(ws.AppendClientFrame(nil, ws.OpBinary, hello, newMask())); err != nil {
		return c, nil, false, err
	}
	if !undo() {
		return c, nil, false, ctx.Err()
	}
	return c, early, deflated, c.SetDeadline(time.Time{})
}

// netConn is a connection that Go's own poller serves.
type netConn struct{ net.Conn }

// write gives a slow peer a moment; what does not go by then is kept by the bot.
func (c netConn) write(p []byte) (int, error) {
	c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	n, err := c.Conn.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if _, ok := c.Conn.(*tls.Conn); !ok { // after a partial record there is no way on
			err = nil
		}
	}
	return n, err
}

func (c netConn) close() { c.Conn.Close() }

// adoptNet lets a goroutine read for b.
func (s *shard) adoptNet(b *bot, c net.Conn, deflated bool) {
	sock := newSocket(b, netConn{c}, deflated)
	b.begin(sock, s.f.now())
	s.readers.Go(func() { s.readNet(sock, c) })
}

// readNet reads until the link ends.
func (s *shard) readNet(sock *socket, c net.Conn) {
	b := sock.b
	buf := make([]byte, 4096)
	if rate := s.f.o.RateBytes; rate > 0 {
		buf = buf[:min(max(rate/readSlots, 64), len(buf))]
	}
	for {
		n, err := c.Read(buf)
		s.mu.Lock()
		if n > 0 && b.state != ended {
			sock.receive(buf[:n])
		}
		if err != nil {
			b.closedBy(err)
		}
		state, paused := b.state, b.paused
		s.mu.Unlock()
		if state == ended {
			return
		}
		if paused {
			<-s.f.stop
		}
		if rate := s.f.o.RateBytes; rate > 0 && state == live {
			select {
			case <-time.After(time.Duration(n) * time.Second / time.Duration(rate)):
			case <-s.f.stop:
			}
		}
	}
}

// storeMax raises a to v.
func storeMax(a *atomic.Int64, v int64) {
	for {
		old := a.Load()
		if v <= old || a.CompareAndSwap(old, v) {
			return
		}
	}
}
