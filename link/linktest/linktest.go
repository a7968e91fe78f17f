// Package linktest checks that an adapter keeps the contract of drumline.Link.
//
// An adapter's test makes connected pairs and hands them over:
//
//	func TestLink(t *testing.T) {
//		linktest.Run(t, func(t *testing.T) linktest.Pair {
//			rec := linktest.NewRecorder(t)
//			link, client := connect(t, rec) // rec receives what the client sends
//			return linktest.Pair{Link: link, Recorder: rec, Client: client}
//		})
//	}
//
// The suite is not a stress test and measures nothing: it waits for conditions, never for a time, and gives up after Patience.
// It must be run with the race detector to be worth its name. [Main] adds a check for goroutines that stay behind.
package linktest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
)

// Patience is how long the suite waits for what must happen before it calls it a failure.
const Patience = 20 * time.Second

// Pair is a link and the client at its other end.
type Pair struct {
	Link     drumline.Link
	Recorder *Recorder // receives what the link's adapter reads
	Client   Client

	// Largest is the largest message in bytes that the link takes from the client. 0: 4096.
	Largest int
}

// Client is the other end. Each method is called by one goroutine at a time. A client that is not in Recv reads nothing: it is
// what the suite takes for a frozen peer.
type Client interface {
	// Send sends a message on the reliable lane.
	Send(msg []byte) error
	// Recv waits for the next message, of either lane. At the end it returns a *Closed if the link said why, any other error
	// if not.
	Recv() ([]byte, error)
	// Close closes cleanly.
	Close(code int, reason string) error
	// Cut breaks the connection without a word.
	Cut()
}

// Closed is what a Client's Recv returns when the server closed the link.
type Closed struct {
	Code   int
	Reason string
}

func (c *Closed) Error() string { return fmt.Sprintf("closed: %d %s", c.Code, c.Reason) }

// Recorder is a receiver that keeps what it gets and fails the test when it is called against the contract.
type Recorder struct {
	t      testing.TB
	inside atomic.Int32

	mu     sync.Mutex
	msgs   [][]byte
	closed int
	err    error
	ended  chan struct{}
}

// NewRecorder returns a receiver for t.
func NewRecorder(t testing.TB) *Recorder { return &Recorder{t: t, ended: make(chan struct{})} }

// Receive implements the receiver that adapters call.
func (r *Recorder) Receive(msg []byte) {
	if r.inside.Add(1) > 1 {
		r.t.Error("Receive is called by two goroutines at a time")
	}
	defer r.inside.Add(-1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed > 0 {
		r.t.Error("Receive is called after Closed")
	}
	r.msgs = append(r.msgs, bytes.Clone(msg))
}

// Closed implements the receiver that adapters call.
func (r *Recorder) Closed(err error) {
	if r.inside.Load() > 0 {
		r.t.Error("Closed is called during Receive")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed++; r.closed > 1 {
		r.t.Error("Closed is called more than once")
		return
	}
	r.err = err
	close(r.ended)
}

// Messages returns what has been received.
func (r *Recorder) Messages() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.msgs
}

// WaitMessages waits for n messages and returns all.
func (r *Recorder) WaitMessages(n int) [][]byte {
	r.t.Helper()
	Eventually(r.t, fmt.Sprintf("%d messages from the client", n), func() bool { return len(r.Messages()) >= n })
	return r.Messages()
}

// Wait waits for Closed and returns its error. It fails the test after Patience.
func (r *Recorder) Wait() error {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(Patience):
		r.t.Fatal("Closed was not called")
	}
	return r.Err()
}

// Ended is closed when Closed is called: for tests in a synctest bubble, where time is no matter of patience.
func (r *Recorder) Ended() <-chan struct{} { return r.ended }

// Err is the error that Closed was called with.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Eventually waits until ok returns true. It fails the test after Patience.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// within fails the test if f does not return: for calls that must never wait.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(Patience):
		t.Fatalf("%s waited", what)
	}
}

// Run runs the suite; connect makes a new pair for each test and sees to its end in t.Cleanup.
func Run(t *testing.T, connect func(t *testing.T) Pair) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Pair)
	}{
		{"both ways", bothWays},
		{"message boundaries", boundaries},
		{"msg belongs to the caller", reuse},
		{"reliable order", reliableOrder},
		{"fresh link", fresh},
		{"frozen peer", frozen},
		{"backlog", backlog},
		{"close flushes", closeFlushes},
		{"close twice", closeTwice},
		{"close tells", closeTells},
		{"close with a frozen peer", closeFrozen},
		{"after close", afterClose},
		{"peer closes", peerCloses},
		{"peer is cut off", peerCut},
		{"concurrent use", concurrent},
		{"concurrent end", concurrentEnd},
		{"counters", counters},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			p := connect(t)
			if p.Largest == 0 {
				p.Largest = 4096
			}
			c.test(t, p)
			// Whatever a test did, the link must come to an end, once.
			p.Link.Close(1000, "")
			p.Client.Cut()
			_ = p.Recorder.Wait()
			if p.Link.Ready() {
				t.Error("Ready after the end")
			}
			if n := p.Link.Queued(); n != 0 {
				t.Errorf("Queued is %d after the end", n)
			}
		})
	}
}

// pattern is a message of n bytes that tells its number and shows damage.
func pattern(i, n int) []byte {
	b := make([]byte, n)
	for j := range b {
		b[j] = byte(i*31 + j*7)
	}
	if n >= 4 {
		binary.LittleEndian.PutUint32(b, uint32(i))
	}
	return b
}

// noise is a pattern that a link cannot compress, for tests of how many bytes wait.
func noise(i, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(b) // never fails
	binary.LittleEndian.PutUint32(b, uint32(i))
	return b
}

func number(msg []byte) int { return int(binary.LittleEndian.Uint32(msg)) }

func recv(t *testing.T, p Pair) []byte {
	t.Helper()
	var msg []byte
	var err error
	within(t, "Recv", func() { msg, err = p.Client.Recv() })
	if err != nil {
		t.Fatalf("Recv: %v", err)
	}
	return msg
}

func recvEnd(t *testing.T, p Pair) (n int, err error) {
	t.Helper()
	within(t, "Recv", func() {
		for err == nil {
			if _, err = p.Client.Recv(); err == nil {
				n++
			}
		}
	})
	return n, err
}

func send(t *testing.T, p Pair, msg []byte) {
	t.Helper()
	if err := p.Link.Send(msg); err != nil {
		t.Fatalf("Send: %v", err)
	}
}

// clogAfter is how long a link must have been behind to count as clogged. A link that hands its bytes to a writer is behind for
// a moment after each message.
const clogAfter = 300 * time.Millisecond

// clog sends states until the link is behind for good, which an unordered link need never be: it may throw states away. Each
// TrySend must return by itself.
func clog(t *testing.T, p Pair, msg []byte) (taken int) {
	t.Helper()
	within(t, "TrySend with a frozen peer", func() {
		var behind time.Time
		for {
			switch {
			case p.Link.TrySend(msg):
				behind = time.Time{}
				taken++
				if taken >= 20_000 && p.Link.Delivery() == feed.Unordered {
					return
				}
				if taken*len(msg) > 64<<20 {
					t.Error("64 MiB went to a peer that does not read")
					return
				}
			case behind.IsZero():
				behind = time.Now()
			case time.Since(behind) > clogAfter:
				return
			default:
				time.Sleep(100 * time.Microsecond)
			}
		}
	})
	return taken
}

func bothWays(t *testing.T, p Pair) {
	send(t, p, pattern(1, 100))
	if !p.Link.TrySend(pattern(2, 200)) {
		Eventually(t, "TrySend", func() bool { return p.Link.TrySend(pattern(2, 200)) })
	}
	got := [][]byte{bytes.Clone(recv(t, p)), bytes.Clone(recv(t, p))}
	if p.Link.Delivery() == feed.Unordered && len(got[0]) == 200 {
		got[0], got[1] = got[1], got[0]
	}
	for i, want := range [][]byte{pattern(1, 100), pattern(2, 200)} {
		if !bytes.Equal(got[i], want) {
			t.Errorf("message %d is not what was sent", i)
		}
	}
	for i := range 10 {
		if err := p.Client.Send(pattern(i, 50)); err != nil {
			t.Fatal(err)
		}
	}
	for i, msg := range p.Recorder.WaitMessages(10) {
		if !bytes.Equal(msg, pattern(i, 50)) {
			t.Errorf("message %d from the client is not what was sent", i)
		}
	}
}

// boundaries: sizes around each length form, in both directions.
func boundaries(t *testing.T, p Pair) {
	sizes := []int{0, 1, 4, 124, 125, 126, 127, 128, 511, 512, 513, 4095, 4096, 65535, 65536, 65537, 300_000}
	var up [][]byte
	for i, n := range sizes {
		send(t, p, pattern(i, n))
		if n <= p.Largest {
			up = append(up, pattern(i, n))
		}
	}
	up = append(up, pattern(99, p.Largest), nil, pattern(100, 7))
	for i, n := range sizes {
		if msg := recv(t, p); !bytes.Equal(msg, pattern(i, n)) {
			t.Fatalf("the message of %d bytes arrived with %d bytes, or damaged", n, len(msg))
		}
	}
	for _, msg := range up {
		if err := p.Client.Send(msg); err != nil {
			t.Fatal(err)
		}
	}
	for i, msg := range p.Recorder.WaitMessages(len(up)) {
		if !bytes.Equal(msg, up[i]) {
			t.Fatalf("the client's message of %d bytes arrived with %d bytes, or damaged", len(up[i]), len(msg))
		}
	}
	n := 1000
	if most := p.Link.MaxState(); most > 0 {
		n = most
		if p.Link.TrySend(make([]byte, most+1)) {
			t.Errorf("TrySend took a message over MaxState")
		}
	}
	Eventually(t, "TrySend of a full state", func() bool { return p.Link.TrySend(pattern(7, n)) })
	if msg := recv(t, p); !bytes.Equal(msg, pattern(7, n)) {
		t.Errorf("a state of %d bytes arrived damaged", n)
	}
}

func reuse(t *testing.T, p Pair) {
	msg := make([]byte, 1000)
	const count = 200
	for i := range count {
		copy(msg, pattern(i, len(msg)))
		send(t, p, msg)
		clear(msg)
	}
	for i := range count {
		if got := recv(t, p); !bytes.Equal(got, pattern(i, len(msg))) {
			t.Fatalf("message %d was changed after Send returned", i)
		}
	}
	// The same while the link keeps what the system does not take.
	copy(msg, pattern(count, len(msg)))
	clog(t, p, msg)
	clear(msg)
	for p.Link.Queued() > 0 {
		if got := recv(t, p); !bytes.Equal(got, pattern(count, len(msg))) {
			t.Fatal("a state was changed after TrySend returned")
		}
	}
}

func reliableOrder(t *testing.T, p Pair) {
	const count = 3000
	go func() {
		for i := range count {
			if err := p.Link.Send(pattern(i, 4+i%900)); err != nil {
				t.Errorf("Send: %v", err)
				return
			}
		}
	}()
	for i := range count {
		if msg := recv(t, p); !bytes.Equal(msg, pattern(i, 4+i%900)) {
			t.Fatalf("message %d is not what was sent as number %d", number(msg), i)
		}
	}
}

func fresh(t *testing.T, p Pair) {
	Eventually(t, "Ready of a new link", p.Link.Ready)
	if n := p.Link.Queued(); n != 0 {
		t.Errorf("Queued is %d on a new link", n)
	}
	if !p.Link.TrySend(pattern(0, 100)) {
		t.Error("TrySend was refused on a link that is ready")
	}
	recv(t, p)
}

func frozen(t *testing.T, p Pair) {
	msg := noise(0, 1000)
	taken := clog(t, p, msg)
	if t.Failed() {
		return
	}
	if p.Link.Ready() && p.Link.Delivery() == feed.Ordered {
		t.Error("Ready while TrySend is refused")
	}
	// What was refused must leave no trace; what is behind is less than two messages, however often one tries.
	for range 1000 {
		if p.Link.TrySend(msg) {
			taken++
		}
	}
	if n := p.Link.Queued(); n > 3*len(msg) {
		t.Errorf("Queued is %d bytes: states are queued behind each other", n)
	}
	// A reliable message queues behind and counts.
	before := p.Link.Queued()
	send(t, p, noise(77, 500))
	if p.Link.Delivery() == feed.Ordered {
		if p.Link.TrySend(msg) {
			t.Error("TrySend was taken behind a reliable message")
		}
		if n := p.Link.Queued(); n < before+500 {
			t.Errorf("Queued is %d with %d and 500 reliable bytes waiting", n, before)
		}
	}
	// The client reads on: all that was taken arrives whole, and the link is ready again.
	states := 0
	for done := false; !done; {
		switch got := recv(t, p); {
		case bytes.Equal(got, msg):
			states++
		case bytes.Equal(got, noise(77, 500)):
			done = true
		default:
			t.Fatalf("a damaged message of %d bytes after %d states", len(got), states)
		}
	}
	if p.Link.Delivery() == feed.Ordered && states != taken {
		t.Errorf("%d states arrived, %d were taken", states, taken)
	}
	Eventually(t, "Ready after the peer reads again", p.Link.Ready)
	if n := p.Link.Queued(); n != 0 {
		t.Errorf("Queued is %d on a link that is ready", n)
	}
	last := pattern(78, 300)
	Eventually(t, "TrySend after the peer reads again", func() bool { return p.Link.TrySend(last) })
	for !bytes.Equal(recv(t, p), last) {
		if p.Link.Delivery() == feed.Ordered {
			t.Fatal("something arrived that was not sent")
		}
	}
}

func backlog(t *testing.T, p Pair) {
	msg := noise(0, 60_000)
	sent := 0
	var err error
	within(t, "Send with a frozen peer", func() {
		for err == nil && sent < 64<<20/len(msg) {
			binary.LittleEndian.PutUint32(msg, uint32(sent))
			if err = p.Link.Send(msg); err == nil {
				sent++
			}
		}
	})
	if !errors.Is(err, drumline.ErrBacklog) {
		t.Fatalf("after %d bytes to a frozen peer: %v, want ErrBacklog", sent*len(msg), err)
	}
	if n := p.Link.Queued(); n > drumline.MaxBacklog || n < drumline.MaxBacklog/2 {
		t.Errorf("Queued is %d at ErrBacklog, MaxBacklog is %d", n, drumline.MaxBacklog)
	}
	if err := p.Link.Send(make([]byte, drumline.MaxBacklog+1)); !errors.Is(err, drumline.ErrBacklog) {
		t.Errorf("a message over MaxBacklog: %v, want ErrBacklog", err)
	}
	for i := range sent {
		if got := recv(t, p); len(got) != len(msg) || number(got) != i {
			t.Fatalf("message %d arrived in place of %d", number(got), i)
		}
	}
	Eventually(t, "an empty queue", func() bool { return p.Link.Queued() == 0 })
	send(t, p, pattern(5, 10))
	if got := recv(t, p); !bytes.Equal(got, pattern(5, 10)) {
		t.Error("a message that was refused arrived all the same")
	}
}

func closeFlushes(t *testing.T, p Pair) {
	const count, size = 40, 50_000
	for i := range count {
		send(t, p, pattern(i, size))
	}
	within(t, "Close", func() { p.Link.Close(4010, "full") })
	n, err := recvEnd(t, p)
	if n != count {
		t.Errorf("%d of %d messages arrived before the end", n, count)
	}
	if c := (*Closed)(nil); !errors.As(err, &c) || c.Code != 4010 || c.Reason != "full" {
		t.Errorf("the client's end is %v, want 4010 full", err)
	}
	if err := p.Recorder.Wait(); err != nil {
		t.Errorf("Closed(%v) after Close, want nil", err)
	}
}

func closeTwice(t *testing.T, p Pair) {
	p.Link.Close(4011, "first")
	p.Link.Close(4012, "second")
	_, err := recvEnd(t, p)
	if c := (*Closed)(nil); !errors.As(err, &c) || c.Code != 4011 || c.Reason != "first" {
		t.Errorf("the client's end is %v, want 4011 first", err)
	}
	if err := p.Recorder.Wait(); err != nil {
		t.Errorf("Closed(%v) after Close, want nil", err)
	}
	p.Link.Close(4013, "third")
}

func closeTells(t *testing.T, p Pair) {
	reason := strings.Repeat("é", 70) // 140 bytes: cut to 123, at a whole rune
	p.Link.Close(drumline.ReasonDraining.Code(), reason)
	_, err := recvEnd(t, p)
	c := (*Closed)(nil)
	if !errors.As(err, &c) || c.Code != 1001 || c.Reason != strings.Repeat("é", 61) {
		t.Errorf("the client's end is %v, want 1001 and 61 é", err)
	}
}

func closeFrozen(t *testing.T, p Pair) {
	clog(t, p, pattern(0, 1000))
	send(t, p, pattern(1, 1000))
	within(t, "Close with a frozen peer", func() { p.Link.Close(1000, "") })
	if err := p.Recorder.Wait(); err != nil {
		t.Errorf("Closed(%v) after Close, want nil", err)
	}
}

func afterClose(t *testing.T, p Pair) {
	p.Link.Close(1000, "")
	for range 2 {
		if p.Link.Ready() {
			t.Error("Ready after Close")
		}
		if p.Link.TrySend(pattern(0, 10)) {
			t.Error("TrySend was taken after Close")
		}
		if err := p.Link.Send(pattern(0, 10)); !errors.Is(err, drumline.ErrLinkClosed) {
			t.Errorf("Send after Close: %v, want ErrLinkClosed", err)
		}
		// Once more when it has ended. What the client sends now is received by nobody (Recorder sees to it).
		_ = p.Client.Send(pattern(0, 10))
		_, _ = recvEnd(t, p)
		_ = p.Recorder.Wait()
	}
	if n := len(p.Recorder.Messages()); n != 0 {
		t.Errorf("%d messages were received after Close", n)
	}
}

func peerCloses(t *testing.T, p Pair) {
	for i := range 5 {
		if err := p.Client.Send(pattern(i, 20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Client.Close(1000, "bye"); err != nil {
		t.Fatal(err)
	}
	if err := p.Recorder.Wait(); !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Closed(%v) after the peer closed, want io.EOF", err)
	}
	if n := len(p.Recorder.Messages()); n != 5 {
		t.Errorf("%d of 5 messages were received before the peer's close", n)
	}
	if err := p.Link.Send(nil); !errors.Is(err, drumline.ErrLinkClosed) {
		t.Errorf("Send after the peer closed: %v, want ErrLinkClosed", err)
	}
}

func peerCut(t *testing.T, p Pair) {
	p.Client.Cut()
	if err := p.Recorder.Wait(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Closed(%v) after the peer was cut off, want an error other than io.EOF", err)
	}
}

// concurrent: all methods at once, from several goroutines; what arrives is whole, and in order per sender.
func concurrent(t *testing.T, p Pair) {
	const senders, count = 4, 300
	var all, busy sync.WaitGroup
	stop := make(chan struct{})
	for s := range senders {
		all.Go(func() {
			for i := range count {
				msg := pattern(i, 40+s)
				msg[4] = byte(s)
				for {
					err := p.Link.Send(msg)
					if err == nil {
						break
					}
					if !errors.Is(err, drumline.ErrBacklog) {
						t.Errorf("Send: %v", err)
						return
					}
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	for range 2 {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Microsecond): // the race detector makes a busy loop expensive for all others
				}
				p.Link.TrySend(pattern(0, 20))
				p.Link.Ready()
				if p.Link.Queued() < 0 {
					t.Error("Queued is negative")
				}
				p.Link.Counters()
				if k, ok := p.Link.(drumline.KernelQueuer); ok {
					k.KernelQueued()
				}
			}
		})
	}
	busy.Go(func() {
		for i := range count {
			if err := p.Client.Send(pattern(i, 30)); err != nil {
				t.Errorf("client: %v", err)
				return
			}
		}
	})
	var next [senders]int
	for got := 0; got < senders*count; {
		msg := recv(t, p)
		if len(msg) == 20 {
			if !bytes.Equal(msg, pattern(0, 20)) {
				t.Fatal("a damaged state")
			}
			continue
		}
		s := len(msg) - 40
		want := pattern(next[max(s, 0)%senders], len(msg))
		if s >= 0 && s < senders {
			want[4] = byte(s)
		}
		if s < 0 || s >= senders || !bytes.Equal(msg, want) {
			t.Fatalf("a message of %d bytes is damaged or out of order", len(msg))
		}
		next[s]++
		got++
	}
	close(stop)
	all.Wait()
	// States may still be on the way, and a sender of states may wait for nobody: read until both have ended.
	within(t, "the senders", busy.Wait)
	for i, msg := range p.Recorder.WaitMessages(count) {
		if !bytes.Equal(msg, pattern(i, 30)) {
			t.Fatalf("the client's message %d is damaged", i)
		}
	}
}

// concurrentEnd: everybody closes at once while others send.
func concurrentEnd(t *testing.T, p Pair) {
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for i := 0; p.Link.Send(pattern(i, 300)) == nil && i < 1000; i++ {
				p.Link.TrySend(pattern(i, 300))
			}
		})
		all.Go(func() { p.Link.Close(1000, "") })
	}
	all.Go(func() { _ = p.Client.Close(1000, "") })
	within(t, "the end of everybody", all.Wait)
	_, _ = recvEnd(t, p)
	_ = p.Recorder.Wait()
}

func counters(t *testing.T, p Pair) {
	const down, up, size = 7, 5, 100
	for i := range down {
		send(t, p, pattern(i, size))
		recv(t, p)
	}
	for i := range up {
		if err := p.Client.Send(pattern(i, size)); err != nil {
			t.Fatal(err)
		}
	}
	p.Recorder.WaitMessages(up)
	c := p.Link.Counters()
	if c.MessagesOut != down || c.MessagesIn != up {
		t.Errorf("counted %d messages out and %d in, want %d and %d", c.MessagesOut, c.MessagesIn, down, up)
	}
	if c.MessageBytesOut != down*size || c.MessageBytesIn != up*size {
		t.Errorf("counted %d bytes of messages out and %d in, want %d and %d", c.MessageBytesOut, c.MessageBytesIn, down*size, up*size)
	}
	if c.WireBytesOut < down*size || c.WireBytesIn < up*size || c.WireBytesOut > down*size*2 || c.WireBytesIn > up*size*2 {
		t.Errorf("counted %d bytes out and %d in for %d and %d of content", c.WireBytesOut, c.WireBytesIn, down*size, up*size)
	}
}
