package relay

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drumline-engine/drumline/link/mem"
)

// echo answers each datagram with itself until the test ends.
func echo(t *testing.T) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, maxDatagram)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			c.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func start(t *testing.T, o Options) *Relay {
	t.Helper()
	if !o.Target.IsValid() {
		o.Target = echo(t)
	}
	r, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func dial(t *testing.T, r *Relay) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(r.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// until waits for counts.
func until(t *testing.T, r *Relay, ok func(n Counts) bool) Counts {
	t.Helper()
	for range 2000 {
		if n := r.Counts(); ok(n) {
			return n
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("what was waited for never came: %+v", r.Counts())
	return Counts{}
}

// pour sends numbers 0 to n-1, each once the relay has taken those before, and returns which came back, in order of arrival.
func pour(t *testing.T, r *Relay, n int) []int {
	t.Helper()
	c := dial(t, r)
	before := r.Counts()
	for i := range n {
		if _, err := c.Write(binary.LittleEndian.AppendUint32(nil, uint32(i))); err != nil {
			t.Fatal(err)
		}
		until(t, r, func(k Counts) bool { return k.Up == before.Up+uint64(i)+1 })
	}
	// All that came was lost, had no room or was sent on, and the echo of what went up has come down.
	done := until(t, r, func(k Counts) bool {
		return k.Lost+k.Overflowed+k.ForwardedUp+k.ForwardedDown == k.Up+k.Down+k.Doubled && k.Down == k.ForwardedUp
	})
	var got []int
	buf := make([]byte, maxDatagram)
	for range done.ForwardedDown - before.ForwardedDown {
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		k, err := c.Read(buf)
		if err != nil || k != 4 {
			t.Fatalf("%d bytes, %v, after %d datagrams", k, err, len(got))
		}
		got = append(got, int(binary.LittleEndian.Uint32(buf)))
	}
	return got
}

func TestPassesOn(t *testing.T) {
	r := start(t, Options{})
	if got := pour(t, r, 50); len(got) != 50 || !slices.IsSorted(got) {
		t.Errorf("%v", got)
	}
	if n := r.Counts(); n != (Counts{Up: 50, Down: 50, ForwardedUp: 50, ForwardedDown: 50}) {
		t.Errorf("%+v", n)
	}
	// Another client has a socket of its own.
	if got := pour(t, r, 5); len(got) != 5 {
		t.Errorf("%v", got)
	}
	r.Close()
	r.Close()
}

// The same seed loses the same datagrams.
func TestLoss(t *testing.T) {
	run := func(seed uint64) ([]int, Counts) {
		r := start(t, Options{Seed: seed, Path: mem.Path{Loss: .2}})
		return pour(t, r, 100), r.Counts()
	}
	first, n := run(7)
	again, _ := run(7)
	other, _ := run(8)
	if !slices.Equal(first, again) || slices.Equal(first, other) {
		t.Errorf("%v\n%v\n%v", first, again, other)
	}
	if n.Lost < 15 || n.Lost > 60 || len(first) == 100 {
		t.Errorf("%+v", n)
	}
}

func TestDelayDoubleReorder(t *testing.T) {
	r := start(t, Options{Path: mem.Path{Delay: 30 * time.Millisecond}})
	c := dial(t, r)
	begin := time.Now()
	c.Write([]byte("x"))
	c.SetReadDeadline(begin.Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 9)); err != nil || time.Since(begin) < 60*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(begin))
	}

	r = start(t, Options{Path: mem.Path{Duplicate: 1}})
	c = dial(t, r)
	c.Write([]byte("x"))
	if n := until(t, r, func(n Counts) bool { return n.ForwardedDown == 4 }); n != (Counts{Up: 1, Down: 2, Doubled: 3, ForwardedUp: 2, ForwardedDown: 4}) {
		t.Errorf("%+v", n)
	}

	r = start(t, Options{Path: mem.Path{Reorder: .3}})
	got := pour(t, r, 60)
	if n := r.Counts(); len(got) != 60 || slices.IsSorted(got) || n.Held == 0 || n.Lost+n.Doubled+n.Overflowed != 0 {
		t.Errorf("%v, %+v", got, n)
	}
}

// What finds the queue full is dropped and counted.
func TestQueueIsBounded(t *testing.T) {
	r := start(t, Options{Queue: 4, Path: mem.Path{Delay: time.Hour}})
	c := dial(t, r)
	for range 10 {
		c.Write([]byte("x"))
	}
	if n := until(t, r, func(n Counts) bool { return n.Up == 10 }); n != (Counts{Up: 10, Overflowed: 6}) {
		t.Errorf("%+v", n)
	}
}

// A rate spreads what comes at once.
func TestRate(t *testing.T) {
	r := start(t, Options{Path: mem.Path{BytesPerSec: 10_000}})
	c := dial(t, r)
	begin := time.Now()
	for range 10 {
		c.Write(make([]byte, 100))
	}
	until(t, r, func(n Counts) bool { return n.ForwardedDown == 10 })
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("1,000 bytes took %v at 10,000 a second", took)
	}
}

// Nobody listens at the target: nothing comes back, and the relay lives on.
func TestNobodyThere(t *testing.T) {
	gone, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	target := gone.LocalAddr().(*net.UDPAddr).AddrPort()
	gone.Close()
	r := start(t, Options{Target: target})
	c := dial(t, r)
	for i := range uint64(5) {
		c.Write([]byte("x"))
		until(t, r, func(n Counts) bool { return n.ForwardedUp == i+1 })
	}
	if n := r.Counts(); n.Down != 0 {
		t.Errorf("%+v", n)
	}
}

// There is room for so many clients and no more; the one that was silent for the longest gives way, once it was silent for long.
func TestClientsAreBounded(t *testing.T) {
	r := start(t, Options{})
	dialled := dial(t, r)
	dialled.Write([]byte("x"))
	until(t, r, func(n Counts) bool { return n.ForwardedDown == 1 })
	r.mu.Lock()
	var real *client
	for _, c := range r.clients {
		real = c
	}
	fill := func() {
		for i := 0; len(r.clients) < MaxClients; i++ {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), 1)
			r.clients[at] = &client{at: at, back: real.back, heard: time.Now()}
		}
	}
	fill()
	r.mu.Unlock()
	late := dial(t, r)
	late.Write([]byte("x"))
	until(t, r, func(n Counts) bool { return n.Turned == 1 })
	r.mu.Lock()
	real.heard = time.Now().Add(-IdleAfter)
	r.mu.Unlock()
	late.Write([]byte("x"))
	until(t, r, func(n Counts) bool { return n.ForwardedDown == 2 })
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clients[real.at] != nil || len(r.clients) != MaxClients {
		t.Errorf("%d clients", len(r.clients))
	}
}

func TestOptions(t *testing.T) {
	here := netip.MustParseAddrPort("127.0.0.1:4000")
	for want, o := range map[string]Options{
		"Target":          {},
		"Target 192":      {Target: netip.MustParseAddrPort("192.0.2.1:4000")},
		"Target 127":      {Target: netip.MustParseAddrPort("127.0.0.1:0")},
		"Listen 0.0.0.0":  {Target: here, Listen: netip.MustParseAddrPort("0.0.0.0:0")},
		"Queue is -1":     {Target: here, Queue: -1},
		"Queue is 100000": {Target: here, Queue: 100_000},
		"Loss is 1.5":     {Target: here, Path: mem.Path{Loss: 1.5}},
	} {
		if r, err := Start(o); err == nil {
			r.Close()
			t.Errorf("%s: taken", want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	taken := start(t, Options{})
	if r, err := Start(Options{Target: here, Listen: taken.Addr()}); err == nil {
		r.Close()
		t.Error("a port that is taken is taken again")
	}
}

func TestQueueOrder(t *testing.T) {
	var q queue
	rng := rand.New(rand.NewPCG(1, 1))
	begin := time.Now()
	for range 500 {
		q.push(datagram{at: begin.Add(time.Duration(rng.IntN(50)))})
	}
	var last datagram
	for i := range 500 {
		d := q.pop()
		if i > 0 && (d.at.Before(last.at) || d.at.Equal(last.at) && d.n < last.n) {
			t.Fatalf("datagram %d comes too late", i)
		}
		last = d
	}
}
