// Package mem is a link inside one process: a server's end and a client's, with a network between them that can be slow, lossy
// and shuffled, the same way each time. It is for tests and for bots that share a process with the server. It is not a model of
// TCP: no congestion control, no segments; a message is one packet.
//
// The smallest use:
//
//	c := mem.Connect(srv, drumline.Peer{}, mem.Options{Down: mem.Path{Delay: 20 * time.Millisecond}})
//	c.Send(hello)
//	welcome, err := c.Next(ctx)
//
// # The network
//
// In each direction a message goes through four places. The link's own queue holds what the network does not take (Link.Queued);
// the buffer (Options.Buffer) holds what waits for its turn at Path.BytesPerSec; then a packet is under way for Delay plus a
// random part of Jitter; then it lies unread until the client reads it. Bytes under way or unread are limited by Options.Window,
// as they are for a socket: with a paused client the window fills, then the buffer, then the link's queue, and Ready is false.
//
// On the reliable lane, and on the state lane unless Options.Unordered is set, a packet that is lost is sent again after
// [ResendAfter] and holds up what follows. An unordered state packet that is lost is gone; it may arrive twice, or late.
//
// # Time and chance
//
// One goroutine per pair moves packets and calls Receive, Closed and Options.OnMessage, in the order of arrival. It runs on the
// standard timers, so that in a testing/synctest bubble delays are exact and take no time. All chance comes from Options.Seed,
// with one stream per direction: the same messages at the same times meet the same fate. A test should print the pair
// ([Client.String] has the seed) when it fails. The goroutine ends with the link: close or cut each pair.
package mem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
)

// Path is one direction of the network. The zero value delivers everything at once.
type Path struct {
	// Delay is how long each packet is under way; Jitter is the most that chance adds to it.
	Delay, Jitter time.Duration
	// Loss, Duplicate and Reorder are the shares of packets, 0 to 1, that are lost, delivered twice (unordered state only) and
	// held back by ReorderBy. With Loss 1 nothing passes: the peer has vanished without a word.
	Loss, Duplicate, Reorder float64
	// BytesPerSec is what the path carries. 0: no limit.
	BytesPerSec int
}

// Options set up a pair. The zero value of each field means its default.
type Options struct {
	// Seed decides the fate of all packets. 0 is a seed like any other.
	Seed uint64
	// Down is the way to the client, Up the way to the server.
	Down, Up Path
	// Unordered makes the state lane unordered, in both directions.
	Unordered bool
	// MaxState is the largest state message in bytes. Default: no limit; 1,150 if Unordered.
	MaxState int
	// Buffer is the number of bytes that the network takes before it has sent them. A message that is larger is taken alone.
	// Default 16 KiB.
	Buffer int
	// Window is the number of bytes that may be under way or unread. Unordered states do not wait for it, but are dropped
	// where that many bytes lie unread. Default 64 KiB.
	Window int
	// OnMessage, if set, gets the client's messages, on the pair's goroutine. It must not block; msg is valid during the
	// call. Default: they are kept for Next, and a client that does not call it is a client that does not read.
	OnMessage func(msg []byte)
}

const (
	// ResendAfter is how long it takes to notice that an ordered packet was lost.
	ResendAfter = 120 * time.Millisecond
	// ReorderBy is how long a reordered packet is held back.
	ReorderBy = 30 * time.Millisecond

	defaultBuffer    = 16 << 10
	defaultWindow    = 64 << 10
	defaultUnordered = 1150

	// overhead stands for the framing of a message, in bytes.
	overhead = 4
	// peerWait is how long after CloseTimeout a closing link waits for the other end.
	peerWait = time.Second
	codeCut  = 1006
)

// ErrCut is what both ends are told after Cut, or when a close did not get through.
var ErrCut = errors.New("mem: the connection was cut")

// Closed is the error of Client.Next after the server closed the link.
type Closed struct {
	Code   int
	Reason string
}

func (c *Closed) Error() string {
	return fmt.Sprintf("mem: closed by the server: %d %s", c.Code, c.Reason)
}

// Receiver is the engine's end of the link, a *drumline.Conn.
type Receiver interface {
	Receive(msg []byte)
	Closed(err error)
}

// Check returns an error that names what is wrong with o, or nil.
func (o Options) Check() error {
	var errs []error
	bad := func(ok bool, name string, v any) {
		if !ok {
			errs = append(errs, fmt.Errorf("mem: Options.%s is %v", name, v))
		}
	}
	for _, p := range []struct {
		name string
		Path
	}{{"Down", o.Down}, {"Up", o.Up}} {
		share := func(name string, v float64) { bad(v >= 0 && v <= 1, p.name+"."+name, v) }
		share("Loss", p.Loss)
		share("Duplicate", p.Duplicate)
		share("Reorder", p.Reorder)
		bad(p.Delay >= 0, p.name+".Delay", p.Delay)
		bad(p.Jitter >= 0, p.name+".Jitter", p.Jitter)
		bad(p.BytesPerSec >= 0, p.name+".BytesPerSec", p.BytesPerSec)
	}
	bad(o.MaxState >= 0, "MaxState", o.MaxState)
	bad(o.Buffer >= 0, "Buffer", o.Buffer)
	bad(o.Window >= 0, "Window", o.Window)
	return errors.Join(errs...)
}

// Pair makes the two ends. The network begins to move with Link.Start. It panics if Options.Check fails: the options of a test
// are part of its code.
func Pair(o Options) (*Link, *Client) {
	if err := o.Check(); err != nil {
		panic(err)
	}
	if o.Buffer == 0 {
		o.Buffer = defaultBuffer
	}
	if o.Window == 0 {
		o.Window = defaultWindow
	}
	if o.MaxState == 0 && o.Unordered {
		o.MaxState = defaultUnordered
	}
	p := &pair{opt: o, wake: make(chan struct{}, 1), news: make(chan struct{}, 1), done: make(chan struct{})}
	p.down = way{path: o.Down, rng: rand.New(rand.NewPCG(o.Seed, 1))}
	p.up = way{path: o.Up, rng: rand.New(rand.NewPCG(o.Seed, 2))}
	return &Link{p}, &Client{p}
}

// Connect accepts a new link at srv and returns its client. An empty peer.Transport becomes "mem". It panics like Pair.
func Connect(srv *drumline.Server, peer drumline.Peer, o Options) *Client {
	if peer.Transport == "" {
		peer.Transport = "mem"
	}
	l, c := Pair(o)
	l.Start(srv.Accept(l, peer))
	return c
}

// pair is both ends and the network.
type pair struct {
	opt  Options
	wake chan struct{} // tells the pair's goroutine to look again
	news chan struct{} // tells Next to look again
	done chan struct{} // closed when the goroutine has ended

	mu sync.Mutex
	// Guarded by mu.
	down, up  way
	events    events
	free      [][]byte // buffers of messages that have been read
	paused    bool
	closing   bool // Link.Close was called
	leaving   bool // Client.Close was called
	ended     bool // nothing moves any more
	cause     error
	clientErr error // the client's end, when it has learnt of it
	code      int
	reason    string
	lent      []byte // what Next returned last
	msgsIn    uint64
	msgsOut   uint64
	bytesIn   uint64
	bytesOut  uint64
	wireIn    uint64
	wireOut   uint64
}

// way is one direction.
type way struct {
	path    Path
	rng     *rand.Rand
	waiting fifo // in the link's queue
	buffer  fifo // taken by the network, not yet sent
	sending bool // the first of buffer is being sent
	window  int  // ordered bytes under way or unread
	sent    uint64
	next    uint64   // the ordered packet that arrives next
	early   []packet // ordered packets that arrived before it
	arrived fifo     // unread
}

// packet is one message.
type packet struct {
	b       []byte
	seq     uint64 // ordered packets are numbered from 0
	ordered bool
	close   bool // b is the reason, code its code
	code    int
}

func (k *packet) size() int { return len(k.b) + overhead }

// fifo is a queue that reuses its memory.
type fifo struct {
	items []packet
	head  int
	bytes int
}

func (f *fifo) len() int { return len(f.items) - f.head }

func (f *fifo) first() *packet { return &f.items[f.head] }

func (f *fifo) push(k packet) {
	if f.head > 0 && len(f.items) == cap(f.items) {
		f.items = append(f.items[:0], f.items[f.head:]...)
		f.head = 0
	}
	f.items = append(f.items, k)
	f.bytes += k.size()
}

func (f *fifo) pop() packet {
	k := f.items[f.head]
	f.items[f.head] = packet{}
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	f.bytes -= k.size()
	return k
}

// event is something that happens on the network at a time.
type event struct {
	at   time.Time
	n    uint64 // of events at the same time the older comes first
	kind eventKind
	w    *way
	k    packet
}

type eventKind uint8

const (
	evSent   eventKind = iota // the first of w.buffer has been sent
	evArrive                  // k arrives
	evResend                  // k was lost and is sent again
	evGiveUp                  // a close takes too long
)

// events is a heap, the earliest first.
type events struct {
	heap []event
	n    uint64
}

func (e *events) less(i, j int) bool {
	a, b := &e.heap[i], &e.heap[j]
	if a.at.Equal(b.at) {
		return a.n < b.n
	}
	return a.at.Before(b.at)
}

func (e *events) push(ev event) {
	ev.n = e.n
	e.n++
	e.heap = append(e.heap, ev)
	for i := len(e.heap) - 1; i > 0 && e.less(i, (i-1)/2); i = (i - 1) / 2 {
		e.heap[i], e.heap[(i-1)/2] = e.heap[(i-1)/2], e.heap[i]
	}
}

func (e *events) pop() event {
	first, last := e.heap[0], len(e.heap)-1
	e.heap[0] = e.heap[last]
	e.heap[last] = event{}
	e.heap = e.heap[:last]
	for i := 0; ; {
		least := i
		for j := 2*i + 1; j <= 2*i+2 && j < last; j++ {
			if e.less(j, least) {
				least = j
			}
		}
		if least == i {
			return first
		}
		e.heap[i], e.heap[least] = e.heap[least], e.heap[i]
		i = least
	}
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// copyOf copies a message into a buffer of the pair's own. mu is locked.
func (p *pair) copyOf(msg []byte) []byte {
	var b []byte
	if last := len(p.free) - 1; last >= 0 {
		b, p.free = p.free[last], p.free[:last]
	}
	return append(b[:0], msg...)
}

// maxFree bounds what a pair keeps for reuse: buffers, and bytes in each.
const (
	maxFree      = 16
	maxFreeBytes = 16 << 10
)

func (p *pair) reuse(b []byte) {
	if len(p.free) < maxFree && cap(b) > 0 && cap(b) <= maxFreeBytes {
		p.free = append(p.free, b)
	}
}

// submit puts a message on its way. mu is locked.
func (p *pair) submit(w *way, k packet) {
	w.waiting.push(k)
	p.advance(w, time.Now())
	poke(p.wake)
}

// advance moves packets into the buffer and from there onto the path, at time t. mu is locked.
func (p *pair) advance(w *way, t time.Time) {
	for {
		for w.waiting.len() > 0 && (w.buffer.len() == 0 || w.buffer.bytes+w.waiting.first().size() <= p.opt.Buffer) {
			w.buffer.push(w.waiting.pop())
		}
		if w.sending || w.buffer.len() == 0 {
			return
		}
		k := w.buffer.first()
		if k.ordered {
			if w.window > 0 && w.window+k.size() > p.opt.Window {
				return
			}
			w.window += k.size()
		}
		if w.path.BytesPerSec > 0 {
			w.sending = true
			takes := time.Duration(math.Ceil(float64(k.size()) / float64(w.path.BytesPerSec) * float64(time.Second)))
			p.events.push(event{at: t.Add(takes), kind: evSent, w: w})
			return
		}
		p.launch(w, t)
	}
}

// launch sends the first packet of the buffer off. mu is locked.
func (p *pair) launch(w *way, t time.Time) {
	k := w.buffer.pop()
	if w == &p.down {
		p.wireOut += uint64(k.size())
	}
	if k.ordered {
		k.seq = w.sent
		w.sent++
	} else if chance(w.rng, w.path.Duplicate) {
		twin := k
		twin.b = p.copyOf(k.b)
		p.fly(w, t, twin)
	}
	p.fly(w, t, k)
}

// fly decides what becomes of a packet that leaves at t.
func (p *pair) fly(w *way, t time.Time, k packet) {
	if chance(w.rng, w.path.Loss) {
		if k.ordered {
			p.events.push(event{at: t.Add(ResendAfter), kind: evResend, w: w, k: k})
		} else {
			p.reuse(k.b)
		}
		return
	}
	at := t.Add(w.path.Delay)
	if w.path.Jitter > 0 {
		at = at.Add(time.Duration(w.rng.Int64N(int64(w.path.Jitter) + 1)))
	}
	if chance(w.rng, w.path.Reorder) {
		at = at.Add(ReorderBy)
	}
	p.events.push(event{at: at, kind: evArrive, w: w, k: k})
}

func chance(r *rand.Rand, share float64) bool { return share > 0 && r.Float64() < share }

// happen handles all events up to t. mu is locked.
func (p *pair) happen(t time.Time) {
	for !p.ended && len(p.events.heap) > 0 && !p.events.heap[0].at.After(t) {
		ev := p.events.pop()
		switch w := ev.w; ev.kind {
		case evSent:
			w.sending = false
			p.launch(w, ev.at)
			p.advance(w, ev.at)
		case evResend:
			p.fly(w, ev.at, ev.k)
		case evArrive:
			p.arrive(w, ev.k)
		case evGiveUp:
			p.end(ErrCut)
		}
	}
}

func (p *pair) arrive(w *way, k packet) {
	if !k.ordered {
		if w.arrived.bytes+k.size() > p.opt.Window {
			p.reuse(k.b)
			return
		}
		w.arrived.push(k)
	} else {
		w.early = append(w.early, k)
		for i := 0; i < len(w.early); i++ {
			if w.early[i].seq != w.next {
				continue
			}
			w.next++
			w.arrived.push(w.early[i])
			last := len(w.early) - 1
			w.early[i] = w.early[last]
			w.early[last] = packet{}
			w.early = w.early[:last]
			i = -1 // the next one may have been looked at already
		}
	}
	if w == &p.down {
		poke(p.news)
	}
}

// take reads the next packet of a direction, which makes room for others. mu is locked.
func (p *pair) take(w *way) packet {
	k := w.arrived.pop()
	if k.ordered {
		w.window -= k.size()
		if !p.ended && (w.buffer.len() > 0 || w.waiting.len() > 0) {
			p.advance(w, time.Now())
			poke(p.wake)
		}
	}
	return k
}

// end stops the network. cause is what the server is told unless it closed the link. mu is locked.
func (p *pair) end(cause error) {
	if p.ended {
		return
	}
	p.ended = true
	if !p.closing {
		p.cause = cause
	}
	// What has arrived at the client can still be read; everything else is lost.
	p.up = way{}
	p.down = way{arrived: p.down.arrived}
	p.events = events{}
	poke(p.wake)
	poke(p.news)
}

// told is the client reading the server's close. mu is locked.
func (p *pair) told(k packet) {
	if !p.leaving {
		p.code, p.reason = k.code, string(k.b)
		p.clientErr = &Closed{p.code, p.reason}
	}
	p.end(nil)
}

// run is the pair's goroutine.
func (p *pair) run(r Receiver) {
	defer close(p.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	p.mu.Lock()
	for {
		p.happen(time.Now())
		if p.deliver(r) {
			continue
		}
		if p.ended {
			break
		}
		wait := time.Hour
		if len(p.events.heap) > 0 {
			wait = time.Until(p.events.heap[0].at)
		}
		p.mu.Unlock()
		timer.Reset(max(wait, 0))
		select {
		case <-p.wake:
		case <-timer.C:
		}
		p.mu.Lock()
	}
	cause := p.cause
	if p.opt.OnMessage != nil { // paused: it will not be read
		p.down.arrived = fifo{}
	}
	p.mu.Unlock()
	r.Closed(cause)
}

// deliver hands over one message and reports whether there was any. mu is locked, but not during the call.
func (p *pair) deliver(r Receiver) bool {
	if p.up.arrived.len() > 0 {
		k := p.take(&p.up)
		p.wireIn += uint64(k.size())
		switch {
		case k.close:
			p.end(io.EOF)
		case p.closing:
		default:
			p.msgsIn++
			p.bytesIn += uint64(len(k.b))
			p.mu.Unlock()
			r.Receive(k.b)
			p.mu.Lock()
		}
		p.reuse(k.b)
		return true
	}
	if (p.opt.OnMessage != nil && !p.paused || p.leaving) && p.down.arrived.len() > 0 {
		k := p.take(&p.down)
		switch {
		case k.close:
			p.told(k)
		case p.leaving:
		default:
			p.mu.Unlock()
			p.opt.OnMessage(k.b)
			p.mu.Lock()
		}
		p.reuse(k.b)
		return true
	}
	return false
}

// Link is the server's end.
type Link struct{ p *pair }

var (
	_ drumline.Link         = (*Link)(nil)
	_ drumline.KernelQueuer = (*Link)(nil)
)

// Start begins to deliver; r receives. It is called once. The link may be used before.
func (l *Link) Start(r Receiver) { go l.p.run(r) }

// Delivery implements drumline.Link.
func (l *Link) Delivery() feed.Delivery {
	if l.p.opt.Unordered {
		return feed.Unordered
	}
	return feed.Ordered
}

// MaxState implements drumline.Link.
func (l *Link) MaxState() int { return l.p.opt.MaxState }

// Ready implements drumline.Link.
func (l *Link) Ready() bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return !l.p.closing && !l.p.ended && l.p.down.waiting.len() == 0
}

// Queued implements drumline.Link.
func (l *Link) Queued() int {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.p.down.waiting.bytes
}

// KernelQueued implements drumline.KernelQueuer: what the network holds, and what lies unread at the client.
func (l *Link) KernelQueued() (bytes int, ok bool) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	d := &l.p.down
	bytes = d.buffer.bytes + d.window
	if d.sending && d.buffer.first().ordered {
		bytes -= d.buffer.first().size() // counted in both
	}
	return bytes, true
}

// TrySend implements drumline.Link.
func (l *Link) TrySend(msg []byte) bool {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing || p.ended || p.down.waiting.len() > 0 || p.opt.MaxState > 0 && len(msg) > p.opt.MaxState {
		return false
	}
	p.msgsOut++
	p.bytesOut += uint64(len(msg))
	p.submit(&p.down, packet{b: p.copyOf(msg), ordered: !p.opt.Unordered})
	return true
}

// Send implements drumline.Link.
func (l *Link) Send(msg []byte) error {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing || p.ended {
		return drumline.ErrLinkClosed
	}
	if p.down.waiting.bytes+len(msg)+overhead > drumline.MaxBacklog {
		return drumline.ErrBacklog
	}
	p.msgsOut++
	p.bytesOut += uint64(len(msg))
	p.submit(&p.down, packet{b: p.copyOf(msg), ordered: true})
	return nil
}

// Close implements drumline.Link. The link has ended when the client has read the close, or a second after CloseTimeout.
func (l *Link) Close(code int, reason string) {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing || p.ended {
		return
	}
	p.closing = true
	p.events.push(event{at: time.Now().Add(drumline.CloseTimeout + peerWait), kind: evGiveUp})
	p.submit(&p.down, packet{b: p.copyOf([]byte(cutReason(reason))), ordered: true, close: true, code: code})
}

// cutReason cuts a reason to the 123 bytes that a close may carry, at a whole rune.
func cutReason(s string) string {
	end := 123
	if len(s) <= end {
		return s
	}
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// Counters implements drumline.Link. Framing counts as four bytes a message.
func (l *Link) Counters() drumline.LinkCounters {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return drumline.LinkCounters{
		MessagesIn: l.p.msgsIn, MessagesOut: l.p.msgsOut,
		MessageBytesIn: l.p.bytesIn, MessageBytesOut: l.p.bytesOut,
		WireBytesIn: l.p.wireIn, WireBytesOut: l.p.wireOut,
	}
}

// Client is the client's end. Next and TryNext may be called by one goroutine at a time; the other methods by any.
type Client struct{ p *pair }

// Send sends a message on the reliable lane. It does not wait: it returns drumline.ErrBacklog when more than
// drumline.MaxBacklog bytes wait for the network.
func (c *Client) Send(msg []byte) error {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving || p.ended {
		return drumline.ErrLinkClosed
	}
	if p.up.waiting.bytes+len(msg)+overhead > drumline.MaxBacklog {
		return drumline.ErrBacklog
	}
	p.submit(&p.up, packet{b: p.copyOf(msg), ordered: true})
	return nil
}

// SendState sends a message on the state lane, as browsers send inputs. False: the network takes nothing now, or the link has
// ended.
func (c *Client) SendState(msg []byte) bool {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving || p.ended || p.up.waiting.len() > 0 {
		return false
	}
	p.submit(&p.up, packet{b: p.copyOf(msg), ordered: !p.opt.Unordered})
	return true
}

var errOnMessage = errors.New("mem: messages go to Options.OnMessage")

// Next waits for the next message of either lane; it is valid until the next call. At the end, after what had arrived, it
// returns a *Closed if the server closed the link, drumline.ErrLinkClosed after Close, else ErrCut.
func (c *Client) Next(ctx context.Context) ([]byte, error) {
	for {
		msg, ok, err := c.next()
		if ok || err != nil {
			return msg, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.p.news:
		}
	}
}

// TryNext returns the next message if one has arrived. It is valid until the next call.
func (c *Client) TryNext() (msg []byte, ok bool) {
	msg, ok, _ = c.next()
	return msg, ok
}

func (c *Client) next() (msg []byte, ok bool, err error) {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opt.OnMessage != nil {
		return nil, false, errOnMessage
	}
	if p.lent != nil {
		p.reuse(p.lent)
		p.lent = nil
	}
	if !p.paused && !p.leaving && p.down.arrived.len() > 0 {
		k := p.take(&p.down)
		if !k.close {
			p.lent = k.b
			return k.b, true, nil
		}
		p.told(k)
	}
	return nil, false, p.clientEnd()
}

// clientEnd is the client's error once the link has ended for it. A close that has arrived but lies unread is still to come. mu
// is locked.
func (p *pair) clientEnd() error {
	if p.leaving {
		p.clientErr = drumline.ErrLinkClosed
	}
	if p.clientErr == nil && p.ended && p.down.arrived.len() == 0 {
		p.clientErr, p.code = ErrCut, codeCut
	}
	return p.clientErr
}

// Pause stops the client's reading, as a frozen tab does: messages lie unread and the window fills.
func (c *Client) Pause() { c.pause(true) }

// Resume ends a Pause.
func (c *Client) Resume() { c.pause(false) }

func (c *Client) pause(paused bool) {
	c.p.mu.Lock()
	c.p.paused = paused
	c.p.mu.Unlock()
	poke(c.p.wake)
	poke(c.p.news)
}

// SetPath changes the network from now on. What is under way stays as it was. It panics like Pair.
func (c *Client) SetPath(down, up Path) {
	o := c.p.opt
	if o.Down, o.Up = down, up; o.Check() != nil {
		panic(o.Check())
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if !c.p.ended {
		c.p.down.path, c.p.up.path = down, up
	}
}

// Close closes the link from the client's end, cleanly: what was sent before arrives, then the server is told io.EOF. Nothing
// more is received. It does not wait; see Done.
func (c *Client) Close(code int, reason string) {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving || p.ended {
		return
	}
	p.leaving = true
	p.code, p.reason = code, cutReason(reason)
	p.events.push(event{at: time.Now().Add(drumline.CloseTimeout + peerWait), kind: evGiveUp})
	p.submit(&p.up, packet{b: p.copyOf([]byte(p.reason)), ordered: true, close: true, code: code})
	poke(p.news)
}

// Cut breaks the connection at once, without a word. The server is told ErrCut.
func (c *Client) Cut() {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.end(ErrCut)
}

// Done is closed when the link has ended at the server: after the receiver's Closed.
func (c *Client) Done() <-chan struct{} { return c.p.done }

// CloseCode is the code that the client was told, or gave; 1006 if the connection was cut; 0 while it is open. CloseReason is
// the text that came with it.
func (c *Client) CloseCode() int {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	_ = c.p.clientEnd()
	return c.p.code
}

// CloseReason: see CloseCode.
func (c *Client) CloseReason() string {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return c.p.reason
}

// String describes the pair, for the message of a test that failed.
func (c *Client) String() string {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return fmt.Sprintf("mem: seed %d, unordered %v, down %+v, up %+v", c.p.opt.Seed, c.p.opt.Unordered, c.p.opt.Down, c.p.opt.Up)
}
