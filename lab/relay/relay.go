// Package relay is a bad network for datagrams: a UDP relay on this machine that loses, delays, doubles and shuffles what passes
// between clients and a server, the same way each time. It is for measuring transports that bring their own sockets, such as data
// channels; bots that share a process with the server have link/mem.
//
// The smallest use, with the server on 127.0.0.1:4000:
//
//	r, err := relay.Start(relay.Options{Target: netip.MustParseAddrPort("127.0.0.1:4000"), Path: mem.Path{Loss: .05, Delay: 20 * time.Millisecond}})
//	if err != nil { … }
//	defer r.Close()
//	// clients send to r.Addr()
//
// Both ends must be on loopback addresses: it is no relay for anybody else. The server sees each client as a socket of the relay's own, so
// that what comes back finds its way.
//
// # Chance
//
// Each client has two streams of chance, one for each direction, from Options.Seed and the order in which the clients came: the same
// datagrams in the same order meet the same fate. When they arrive is up to the machine's clock.
//
// # Goroutines
//
// Start makes one goroutine that reads from the clients and one that sends what is due; each client adds one that reads the server's
// answers. Close ends them all and waits. Methods may be called from any goroutine.
package relay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/drumline-engine/drumline/link/mem"
)

// Bounds of a relay.
const (
	// MaxQueue is the most datagrams that may be under way.
	MaxQueue = 1 << 16
	// MaxClients is the most clients at once; who has been silent for the longest gives way, after IdleAfter.
	MaxClients = 1024
	// IdleAfter is how long a client must be silent before another may take its place.
	IdleAfter = 10 * time.Second

	defaultQueue = 4096
	maxDatagram  = 64 << 10
)

// Options set up a relay. The zero value of each field means its default; wrong values are errors from Start.
type Options struct {
	// Target is the server's address. Required.
	Target netip.AddrPort
	// Listen is where clients send to. Default: any free port of Target's address.
	Listen netip.AddrPort
	// Seed decides the fate of all datagrams. 0 is a seed like any other.
	Seed uint64
	// Path is the network, the same in both directions; link/mem explains it. A datagram that Path.Reorder chose is held back by
	// mem.ReorderBy. With Path.BytesPerSec each client has that rate to itself, in each direction.
	Path mem.Path
	// Queue is how many datagrams may be under way at once, 1 to MaxQueue; more are dropped. Default 4,096.
	Queue int
}

func (o *Options) fill() error {
	if o.Queue == 0 {
		o.Queue = defaultQueue
	}
	if o.Queue < 1 || o.Queue > MaxQueue {
		return fmt.Errorf("relay: Queue is %d, want 1 to %d", o.Queue, MaxQueue)
	}
	if !o.Target.IsValid() || o.Target.Port() == 0 || !o.Target.Addr().IsLoopback() {
		return fmt.Errorf("relay: Target %v: want an address of this machine, such as 127.0.0.1:4000", o.Target)
	}
	if o.Listen == (netip.AddrPort{}) {
		o.Listen = netip.AddrPortFrom(o.Target.Addr(), 0)
	}
	if !o.Listen.Addr().IsLoopback() {
		return fmt.Errorf("relay: Listen %v: want a loopback address", o.Listen)
	}
	if err := (mem.Options{Down: o.Path}).Check(); err != nil {
		return fmt.Errorf("relay: Path: %w", err)
	}
	return nil
}

// Counts are of datagrams since the start. Whatever came is in exactly one of Lost, Overflowed, Turned and the two of Forwarded, or
// still under way; Doubled ones count as if they had come twice.
type Counts struct {
	// Up came from clients, Down from the server.
	Up, Down uint64
	// Lost, Doubled and Held met that fate by chance; Held ones were held back so that others overtake them.
	Lost, Doubled, Held uint64
	// Overflowed found the queue full.
	Overflowed uint64
	// Turned away: from a client for whom there was no room, or whose socket could not be made.
	Turned uint64
	// ForwardedUp were sent on to the server, ForwardedDown to clients; of both the system refused Refused, such as to a port where
	// nobody listens.
	ForwardedUp, ForwardedDown, Refused uint64
}

// Relay is a running relay.
type Relay struct {
	// set before any goroutine starts
	o     Options
	front *net.UDPConn
	wake  chan struct{} // capacity 1: the queue has a new head, or the end has come
	wg    sync.WaitGroup

	mu      sync.Mutex // guards what follows
	closed  bool
	clients map[netip.AddrPort]*client
	came    uint64 // clients so far
	queue   queue
	free    [][]byte
	counts  Counts
}

// client is one peer and its socket towards the server.
type client struct {
	at       netip.AddrPort
	back     *net.UDPConn
	up, down way
	heard    time.Time // the last datagram from it; guarded by Relay.mu
}

// way is one direction of one client. Guarded by Relay.mu.
type way struct {
	rng  *rand.Rand
	free time.Time // when what was sent before has left, at Path.BytesPerSec
}

// Start opens the relay's socket and begins to pass datagrams on.
func Start(o Options) (*Relay, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	front, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(o.Listen))
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	r := &Relay{o: o, front: front, wake: make(chan struct{}, 1), clients: map[netip.AddrPort]*client{}}
	r.wg.Go(r.readClients)
	r.wg.Go(r.send)
	return r, nil
}

// Addr is where clients send to.
func (r *Relay) Addr() netip.AddrPort {
	a := r.front.LocalAddr().(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// Counts returns what has passed so far.
func (r *Relay) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// Close ends the relay; what is under way is lost. It is idempotent.
func (r *Relay) Close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		r.front.Close()
		for _, c := range r.clients {
			c.back.Close()
		}
	}
	r.mu.Unlock()
	r.poke()
	r.wg.Wait()
}

func (r *Relay) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Relay) readClients() {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := r.front.ReadFromUDPAddrPort(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // some systems report here that an earlier answer found nobody
		}
		r.mu.Lock()
		r.counts.Up++
		if c := r.client(from); c != nil {
			r.take(c, &c.up, buf[:n])
		} else {
			r.counts.Turned++
		}
		r.mu.Unlock()
	}
}

// client finds or makes the client at an address; nil: there is no room. mu is held.
func (r *Relay) client(at netip.AddrPort) *client {
	now := time.Now()
	if c := r.clients[at]; c != nil {
		c.heard = now
		return c
	}
	if r.closed {
		return nil
	}
	if len(r.clients) >= MaxClients {
		var silent *client
		for _, c := range r.clients {
			if silent == nil || c.heard.Before(silent.heard) {
				silent = c
			}
		}
		if now.Sub(silent.heard) < IdleAfter {
			return nil
		}
		delete(r.clients, silent.at)
		silent.back.Close() // its reader ends
	}
	back, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(r.o.Target))
	if err != nil {
		return nil
	}
	c := &client{at: at, back: back, heard: now}
	c.up.rng = rand.New(rand.NewPCG(r.o.Seed, 2*r.came))
	c.down.rng = rand.New(rand.NewPCG(r.o.Seed, 2*r.came+1))
	r.came++
	r.clients[at] = c
	r.wg.Go(func() { r.readServer(c) })
	return c
}

func (r *Relay) readServer(c *client) {
	buf := make([]byte, maxDatagram)
	for {
		n, err := c.back.Read(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Nobody listens at the target: the system says so once for each datagram, and there may be somebody later.
			continue
		}
		r.mu.Lock()
		r.counts.Down++
		r.take(c, &c.down, buf[:n])
		r.mu.Unlock()
	}
}

// take decides what becomes of a datagram that comes now. mu is held.
func (r *Relay) take(c *client, w *way, p []byte) {
	if r.closed {
		r.counts.Lost++
		return
	}
	now := time.Now()
	path := &r.o.Path
	if path.BytesPerSec > 0 {
		if w.free.Before(now) {
			w.free = now
		}
		w.free = w.free.Add(time.Duration(float64(len(p)) / float64(path.BytesPerSec) * float64(time.Second)))
		now = w.free
	}
	if chance(w.rng, path.Duplicate) {
		r.counts.Doubled++
		r.fly(c, w, p, now)
	}
	r.fly(c, w, p, now)
}

// fly puts one datagram that leaves at t under way, or loses it. mu is held.
func (r *Relay) fly(c *client, w *way, p []byte, t time.Time) {
	path := &r.o.Path
	if chance(w.rng, path.Loss) {
		r.counts.Lost++
		return
	}
	t = t.Add(path.Delay)
	if path.Jitter > 0 {
		t = t.Add(time.Duration(w.rng.Int64N(int64(path.Jitter) + 1)))
	}
	if chance(w.rng, path.Reorder) {
		r.counts.Held++
		t = t.Add(mem.ReorderBy)
	}
	if len(r.queue.heap) >= r.o.Queue {
		r.counts.Overflowed++
		return
	}
	var b []byte
	if last := len(r.free) - 1; last >= 0 {
		b, r.free = r.free[last], r.free[:last]
	}
	if r.queue.push(datagram{at: t, c: c, up: w == &c.up, b: append(b[:0], p...)}) {
		r.poke()
	}
}

func chance(r *rand.Rand, share float64) bool { return share > 0 && r.Float64() < share }

// send is the goroutine that sends what is due.
func (r *Relay) send() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	r.mu.Lock()
	for !r.closed {
		wait := time.Hour
		if len(r.queue.heap) > 0 {
			wait = time.Until(r.queue.heap[0].at)
		}
		if wait > 0 {
			r.mu.Unlock()
			timer.Reset(wait)
			select {
			case <-r.wake:
			case <-timer.C:
			}
			r.mu.Lock()
			continue
		}
		d := r.queue.pop()
		r.mu.Unlock()
		var err error
		if d.up {
			_, err = d.c.back.Write(d.b)
		} else {
			_, err = r.front.WriteToUDPAddrPort(d.b, d.c.at)
		}
		r.mu.Lock()
		if d.up {
			r.counts.ForwardedUp++
		} else {
			r.counts.ForwardedDown++
		}
		if err != nil {
			r.counts.Refused++
		}
		if len(r.free) < maxFree && cap(d.b) <= maxFreeBytes {
			r.free = append(r.free, d.b)
		}
	}
	r.mu.Unlock()
}

// What a relay keeps for reuse.
const (
	maxFree      = 256
	maxFreeBytes = 2048
)

// datagram is one under way.
type datagram struct {
	at time.Time
	n  uint64 // of those due at the same time the older goes first
	c  *client
	up bool
	b  []byte
}

// queue is a heap, the earliest first.
type queue struct {
	heap []datagram
	n    uint64
}

func (q *queue) less(i, j int) bool {
	a, b := &q.heap[i], &q.heap[j]
	if a.at.Equal(b.at) {
		return a.n < b.n
	}
	return a.at.Before(b.at)
}

// push adds d and reports whether it is the first now.
func (q *queue) push(d datagram) (first bool) {
	d.n = q.n
	q.n++
	q.heap = append(q.heap, d)
	i := len(q.heap) - 1
	for ; i > 0 && q.less(i, (i-1)/2); i = (i - 1) / 2 {
		q.heap[i], q.heap[(i-1)/2] = q.heap[(i-1)/2], q.heap[i]
	}
	return i == 0
}

func (q *queue) pop() datagram {
	first, last := q.heap[0], len(q.heap)-1
	q.heap[0] = q.heap[last]
	q.heap[last] = datagram{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		least := i
		for j := 2*i + 1; j <= 2*i+2 && j < last; j++ {
			if q.less(j, least) {
				least = j
			}
		}
		if least == i {
			return first
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}
