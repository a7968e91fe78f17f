package drumline

import (
	"encoding/binary"
	"fmt"
	"io"
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

// With Options.Acked an ordered link's packets are settled by acks; what travels in the reliable lane is not.
func TestAckedOrderedLink(t *testing.T) {
	doc := &counterFeed{lane: feed.Reliable}
	bubble(t, Spec{Hz: 60, Grace: time.Minute}, Options{Acked: true}, func(w *testWorld) {
		w.feeds = []feed.Feed{w.main, doc}
	}, func(ts *testServer) {
		l := ts.join("r")
		pause(520 * time.Millisecond)
		w, _ := message[Welcome](l, KindWelcome)
		st, docs := ts.world("r").main.streams[0], doc.streams[0]
		if !w.Ordered || st.d != feed.Unordered || docs.d != feed.Ordered {
			t.Errorf("welcome says ordered %v, streams joined as %d and %d", w.Ordered, st.d, docs.d)
		}
		n := len(l.packets(t))
		if p := l.packets(t)[n-1]; !p.HasAcks || p.Ack != 0 || len(st.delivered) != 0 || len(docs.delivered) < n {
			t.Errorf("before the first ack: acks %v %d, delivered %v and %d documents in %d packets", p.HasAcks, p.Ack, st.delivered, len(docs.delivered), n)
		}
		l.ack(uint16(n), 0b10)
		pause(60 * time.Millisecond)
		if want := []feed.Receipt{feed.Receipt(n - 2), feed.Receipt(n)}; !reflect.DeepEqual(st.delivered, want) {
			t.Errorf("delivered %v, want %v", st.delivered, want)
		}
		if ps := l.packets(t); ps[len(ps)-1].Ack != uint16(n) || ps[len(ps)-1].Acks != 0b10 {
			t.Errorf("the echo is %+v", ps[len(ps)-1])
		}
		for range 4 { // acks far ahead: what is out of the history is lost
			pause(time.Second)
			l.ackAll()
		}
		pause(60 * time.Millisecond)
		if len(st.delivered) != 6 || len(st.lost) < n-2 || st.lost[0] != 1 {
			t.Errorf("delivered %v, lost %v", st.delivered, st.lost)
		}

		l.drop(io.EOF)
		pause(time.Second)
		again := ts.hello(Hello{Token: w.Token})
		defer keepAcking(again)()
		pause(time.Second)
		ps := again.packets(t)
		if len(ps) < 15 || !ps[0].HasAcks || ps[len(ps)-1].Ack < 10 {
			t.Fatalf("%d packets after the resume", len(ps))
		}
		if !reflect.DeepEqual(st.resumedAs, []feed.Delivery{feed.Unordered}) || !reflect.DeepEqual(docs.resumedAs, []feed.Delivery{feed.Ordered}) {
			t.Errorf("resumed as %v and %v", st.resumedAs, docs.resumedAs)
		}
	})
}

// A client that acks nothing for longer than the ring of receipts is told lost what is given up, and the echo never names it again.
func TestAckedGivesUp(t *testing.T) {
	bubble(t, Spec{Hz: 60, SendHz: 60}, Options{Acked: true}, nil, func(ts *testServer) {
		l := ts.join("r")
		pause(2 * time.Second)
		st := ts.world("r").main.streams[0]
		n := len(l.packets(t))
		if len(st.delivered) != 0 || len(st.lost) < n-sentRing || len(st.lost) == 0 {
			t.Fatalf("%d packets: delivered %v, lost %v", n, st.delivered, st.lost)
		}
		gaveUp := st.lost[len(st.lost)-1]
		l.ack(uint16(gaveUp)+4, allBefore(uint16(gaveUp)+4))
		pause(100 * time.Millisecond)
		ps := l.packets(t)
		if p := ps[len(ps)-1]; p.Ack != uint16(gaveUp)+4 || p.Acks != 0b111 || len(st.delivered) != 4 {
			t.Errorf("gave up %d, echo %d %b, delivered %v", gaveUp, p.Ack, p.Acks, st.delivered)
		}
	})
}

// allBefore is the history of a client that has read all packets before seq.
func allBefore(seq uint16) uint32 {
	if seq > 32 {
		return 0xffffffff
	}
	return 1<<(seq-1) - 1
}

// What was given up hides nothing that was told: the echo goes on naming packets on both sides of it.
func TestEchoNamesAllThatWasTold(t *testing.T) {
	bubble(t, Spec{Hz: 60, SendHz: 60}, Options{Acked: true}, nil, func(ts *testServer) {
		l := ts.join("r")
		pause(800 * time.Millisecond)
		if n := len(l.packets(t)); n < 42 {
			t.Fatalf("%d packets", n)
		}
		l.ack(40, 0xffffffff&^(1<<28)) // all but packet 11
		pause(1200 * time.Millisecond)
		if st := ts.world("r").main.streams[0]; len(l.packets(t)) < 75 || !slices.Contains(st.lost, 11) {
			t.Fatalf("%d packets, lost %v", len(l.packets(t)), st.lost)
		}
		l.ack(42, 0xffffffff)
		pause(50 * time.Millisecond)
		ps := l.packets(t)
		if p := ps[len(ps)-1]; p.Ack != 42 || p.Acks != 0xffffffff&^(1<<30) {
			t.Errorf("echo %d %032b", p.Ack, p.Acks)
		}
	})
}

// Where the round trip is longer than what acks can tell apart, packets wait for room instead of being given up.
func TestLongRoundTripWaits(t *testing.T) {
	bubble(t, Spec{Hz: 120, SendHz: 120}, Options{Acked: true}, nil, func(ts *testServer) {
		l := ts.join("r")
		var late []uint16
		for range 200 { // acks come 800 ms late, which is 96 packets
			pause(20 * time.Millisecond)
			ps := l.packets(t)
			if late = append(late, ps[len(ps)-1].Seq); len(late) > 40 {
				l.ack(late[len(late)-41], allBefore(late[len(late)-41]))
			}
		}
		st := ts.world("r").main.streams[0]
		if len(st.lost) > 0 || len(st.delivered) < 40 {
			t.Errorf("%d lost, %d delivered", len(st.lost), len(st.delivered))
		}
	})
}

// Without a beat a packet that was lost is noticed all the same: frames come until the newest is acked.
func TestBeatlessRepairsLoss(t *testing.T) {
	bubble(t, Spec{Hz: 0, SendHz: 10}, Options{}, func(w *testWorld) {
		w.onStep = func(w *testWorld, _ *Step[testInput]) { w.main.value++ }
	}, func(ts *testServer) {
		l := ts.connect(feed.Unordered)
		l.sendJSON(KindHello, Hello{Protocol: ProtocolVersion, World: "test", Room: "r"})
		pause(time.Second)
		l.ackAll()
		pause(time.Second)
		w := ts.world("r")
		before := w.main.frames.Load()
		w.room.Wake()
		pause(time.Second)
		if n := w.main.frames.Load() - before; n < 8 {
			t.Errorf("%d frames in a second since a change that nobody has acked", n)
		}
		l.ackAll()
		pause(time.Second)
		before = w.main.frames.Load()
		pause(5 * time.Second)
		if n := w.main.frames.Load() - before; n > 0 {
			t.Errorf("%d frames at rest", n)
		}
	})
}

// A hash that one feed does not know makes the packet's unknown.
func TestUnknownHash(t *testing.T) {
	extra := &counterFeed{}
	bubble(t, Spec{Hz: 60}, Options{Lab: true}, func(w *testWorld) {
		w.feeds = []feed.Feed{w.main, extra}
		w.main.value, extra.value = 5, 0 // a fake's hash is seven times its value
		w.onStep = func(w *testWorld, _ *Step[testInput]) { extra.value = uint32(w.steps / 30 % 2) }
	}, func(ts *testServer) {
		l := ts.hello(Hello{Room: "r", Verify: true})
		defer keepAcking(l)()
		pause(2 * time.Second)
		seen := map[uint32]int{}
		for _, p := range l.packets(t) {
			seen[p.Hash]++
		}
		if len(seen) != 2 || seen[0] < 15 || seen[uint32(5*7)*16777619^7] < 15 {
			t.Errorf("hashes %v", seen)
		}
	})
}

// Where a hash covers one packet only, a packet without a body has none.
func TestAckedKeepAliveHash(t *testing.T) {
	for _, acked := range []bool{false, true} {
		bubble(t, Spec{Hz: 60}, Options{Lab: true, Acked: acked, QuietAfter: 2 * time.Second}, func(w *testWorld) { w.main.value = 3 }, func(ts *testServer) {
			l := ts.hello(Hello{Room: "r", Verify: true})
			pause(5 * time.Second)
			ps := l.packets(t)
			first, last := ps[0], ps[len(ps)-1]
			if first.Hash != 21 || last.bodies != 0 || !last.HasHash || (last.Hash == 0) != acked {
				t.Errorf("acked %v: hash %d at first, %d with %d bodies at last", acked, first.Hash, last.Hash, last.bodies)
			}
		})
	}
}

// tunedFeed is a counterFeed that writes down when it was tuned and asked.
type tunedFeed struct {
	counterFeed
	calls []string
}

func (f *tunedFeed) Tune(t feed.Tuning) { f.calls = append(f.calls, fmt.Sprint("tune ", t)) }
func (f *tunedFeed) Info() feed.Info    { f.calls = append(f.calls, "info"); return f.counterFeed.Info() }

func TestTuning(t *testing.T) {
	for _, c := range []struct {
		tuning feed.Tuning
		want   []string
	}{
		{feed.Tuning{}, []string{"info"}},
		{feed.Tuning{Whole: true}, []string{"tune {true false false <nil>}", "info"}},
		{feed.Tuning{NoRings: true}, []string{"tune {false false true <nil>}", "info"}},
	} {
		tuned := &tunedFeed{}
		bubble(t, Spec{Hz: 60}, Options{Tuning: c.tuning}, func(w *testWorld) {
			w.feeds = []feed.Feed{w.main, tuned} // the first one cannot be tuned
		}, func(ts *testServer) {
			l := ts.join("r")
			defer keepAcking(l)()
			pause(time.Second)
			if !reflect.DeepEqual(tuned.calls, c.want) || len(l.packets(t)) < 15 {
				t.Errorf("%+v: calls %q, %d packets", c.tuning, tuned.calls, len(l.packets(t)))
			}
		})
	}
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
