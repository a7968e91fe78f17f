package drumline

import (
	"encoding/binary"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drumline-engine/drumline/feed"
)

// A client that never acks goes through the stated stages: quarter rate, keep-alive, close.
func TestStalledClient(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l, good := ts.join("r"), ts.join("r")
		defer keepAcking(good)()
		count := func(l *fakeLink, from, to time.Duration) (n int) {
			ps := l.packets(t)
			for _, p := range ps {
				if d := p.at.Sub(ps[0].at); d >= from && d < to {
					n++
				}
			}
			return n
		}
		pause(40 * time.Second)
		if n := count(l, 0, 990*time.Millisecond); n != 20 {
			t.Errorf("first second: %d packets, want 20", n)
		}
		if n := count(l, 2*time.Second, 10*time.Second); n < 38 || n > 42 {
			t.Errorf("2 to 10 s: %d packets, want 40", n)
		}
		if n := count(l, 11*time.Second, 29*time.Second); n < 16 || n > 20 {
			t.Errorf("11 to 29 s: %d packets, want 18", n)
		}
		ps := l.packets(t)
		if last := ps[len(ps)-1]; last.bodies != 0 {
			t.Error("a keep-alive has a body")
		}
		g, _ := message[Goodbye](l, KindRefuse)
		if g.Reason != "stalled" || g.Retry != "resume" {
			t.Errorf("goodbye %+v", g)
		}
		if n := count(good, 0, 30*time.Second); n < 599 || n > 601 {
			t.Errorf("the other client got %d packets in 30 s, want 600", n)
		}
		st := ts.Stats()
		if st.Closed["stalled"] != 1 || st.Skipped["slow"] == 0 || st.Skipped["quiet"] == 0 {
			t.Errorf("closed %v skipped %v", st.Closed, st.Skipped)
		}
	})
}

func TestBusyAndBackloggedLinks(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l := ts.join("r")
		defer keepAcking(l)()
		pause(time.Second)
		l.mu.Lock()
		l.busy = true
		n := len(l.state)
		l.mu.Unlock()
		pause(500 * time.Millisecond)
		l.mu.Lock()
		l.busy = false
		if len(l.state) != n {
			t.Error("a busy link was sent to")
		}
		l.mu.Unlock()
		pause(500 * time.Millisecond)
		st := ts.Stats()
		if s := st.Skipped["busy"]; s < 9 || s > 11 {
			t.Errorf("skipped %v", st.Skipped)
		}
		ps := l.packets(t)
		if last := ps[len(ps)-1]; len(ps) < n+9 || last.Seq != uint16(len(ps)) {
			t.Errorf("%d packets, %d before, last seq %d", len(ps), n, last.Seq)
		}
		l.mu.Lock()
		l.queued = 3 << 20
		l.mu.Unlock()
		pause(9 * time.Second)
		if l.isClosed() {
			t.Fatal("closed before its time")
		}
		pause(2 * time.Second)
		if g, _ := message[Goodbye](l, KindRefuse); g.Reason != "backlog" {
			t.Errorf("goodbye %+v", g)
		}
	})
}

// On an unordered link each packet's fate is told from the acks and their history.
func TestUnorderedReceipts(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l := ts.connect(feed.Unordered)
		l.sendJSON(KindHello, Hello{Protocol: ProtocolVersion, World: "test", Room: "r"})
		pause(520 * time.Millisecond)
		n := len(l.packets(t))
		l.ack(uint16(n), 0b101) // n, n-1 and n-3 arrived
		pause(60 * time.Millisecond)
		st := ts.world("r").main.streams[0]
		want := []feed.Receipt{feed.Receipt(n - 3), feed.Receipt(n - 1), feed.Receipt(n)}
		if !reflect.DeepEqual(st.delivered, want) || len(st.lost) != 0 {
			t.Fatalf("delivered %v lost %v, want %v", st.delivered, st.lost, want)
		}
		ps := l.packets(t)
		if p := ps[len(ps)-1]; !p.HasAcks || p.Ack != uint16(n) || p.Acks != 0b101 {
			t.Errorf("the echo is %v %d %b", p.HasAcks, p.Ack, p.Acks)
		}
		l.ack(uint16(n), 0b1111) // a later message: more of the same arrived
		pause(60 * time.Millisecond)
		if len(st.delivered) != 5 {
			t.Errorf("delivered %v", st.delivered)
		}
		pause(2 * time.Second)
		for range 3 { // acks far ahead: what is out of the history is lost
			l.ackAll()
			pause(60 * time.Millisecond)
		}
		if len(st.lost) < n-5 || st.lost[0] != 1 {
			t.Errorf("lost %v", st.lost)
		}
		seen := map[feed.Receipt]bool{}
		for _, r := range append(slices.Clone(st.delivered), st.lost...) {
			if seen[r] {
				t.Fatalf("receipt %d was told twice", r)
			}
			seen[r] = true
		}
	})
}

func TestTwoFeeds(t *testing.T) {
	doc := &counterFeed{lane: feed.Reliable}
	extra := &counterFeed{}
	bubble(t, Spec{Hz: 60}, Options{Lab: true}, func(w *testWorld) {
		w.feeds = []feed.Feed{w.main, doc, extra}
		w.main.value, doc.value, extra.value = 5, 6, 7
	}, func(ts *testServer) {
		l := ts.hello(Hello{Room: "r", Verify: true})
		defer keepAcking(l)()
		pause(time.Second)
		ps := l.packets(t)
		want := uint32(5*7)*16777619 ^ 7*7
		if p := ps[3]; p.bodies != 2 || p.value != 5 || !p.HasHash || p.Hash != want {
			t.Errorf("packet %+v, hash %d want %d", p, p.Hash, want)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		got := 0
		for _, m := range l.other {
			if m[0] == KindReliable {
				got++
				if m[1] != 1 || binary.LittleEndian.Uint32(m[7:]) != 6 {
					t.Errorf("reliable section % x", m)
				}
			}
		}
		if got == 0 {
			t.Error("no reliable section")
		}
	})
}

// blockingLink's TrySend does not return until release is closed: a broken adapter, against the contract.
type blockingLink struct {
	fakeLink
	release chan struct{}
	calls   atomic.Int32
}

func (l *blockingLink) TrySend([]byte) bool { l.calls.Add(1); <-l.release; return false }

// failingLink takes nothing, although it says it is ready.
type failingLink struct {
	fakeLink
	calls atomic.Int32
}

func (l *failingLink) TrySend([]byte) bool { l.calls.Add(1); return false }

// Whatever links do, the step keeps its beat: 200 links, one that blocks its encoder for ever and one that fails every write.
func TestStepIsolation(t *testing.T) {
	bubble(t, Spec{Hz: 60, Seats: 256}, Options{Encoders: 2}, nil, func(ts *testServer) {
		blocking, failing := &blockingLink{release: make(chan struct{})}, &failingLink{}
		attach := func(l Link, f *fakeLink) {
			c := ts.Accept(l, Peer{})
			f.mu.Lock()
			f.conn = c
			f.mu.Unlock()
			f.sendJSON(KindHello, Hello{Protocol: ProtocolVersion, World: "test", Room: "r"})
		}
		attach(failing, &failing.fakeLink) // seat 0, and half of the others: encoder 0
		pause(50 * time.Millisecond)
		attach(blocking, &blocking.fakeLink) // seat 1: encoder 1
		pause(50 * time.Millisecond)
		var links []*fakeLink
		for range 198 {
			l := ts.join("r")
			defer keepAcking(l)()
			links = append(links, l)
		}
		pause(time.Second)
		ts.ResetWindow()
		pause(5 * time.Second)
		if w := ts.Window(); w.Steps != 300 || w.Skipped != 0 || w.Doubled != 0 || w.Dropped != 0 || w.LateMs.Max > 0 || w.StepMs.Max > 0 {
			t.Errorf("the step felt it: %+v", w)
		}
		if blocking.calls.Load() != 1 || failing.calls.Load() < 100 {
			t.Errorf("the blocking link was tried %d times, the failing one %d", blocking.calls.Load(), failing.calls.Load())
		}
		for i, l := range links { // those who share the encoder with the one that fails
			if n := len(l.packets(t)); i%2 == 0 && n < 98 {
				t.Errorf("link %d got %d packets", i, n)
			}
		}
		close(blocking.release)
	})
}
