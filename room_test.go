package drumline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drumline-engine/drumline/feed"
)

func TestPanicClosesOneRoom(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, func(w *testWorld) {
		if w.room.Name() == "bad" {
			w.onStep = func(w *testWorld, st *Step[testInput]) {
				if w.steps == 60 {
					panic("a bug in the rules")
				}
			}
		}
	}, func(ts *testServer) {
		good, bad := ts.join("good"), ts.join("bad")
		defer keepAcking(good)()
		pause(5 * time.Second)
		if g, _ := message[Goodbye](bad, KindRefuse); g.Reason != "room_error" {
			t.Errorf("goodbye %+v", g)
		}
		if n := len(good.packets(t)); n < 98 || good.isClosed() {
			t.Errorf("the good room sent %d packets", n)
		}
		st := ts.Stats()
		if st.RoomErrors != 1 || len(st.Rooms) != 1 || len(ts.world("bad").left) != 0 || st.Players != 1 || ts.hub.players != 1 {
			t.Errorf("errors %d, rooms %d, players %d/%d, left %v", st.RoomErrors, len(st.Rooms), st.Players, ts.hub.players, ts.world("bad").left)
		}
		again := ts.join("bad") // the room opens anew
		pause(500 * time.Millisecond)
		if _, ok := message[Welcome](again, KindWelcome); !ok {
			t.Error("the room did not open again")
		}
	})
}

func TestHungRoom(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{BeatThreads: 1}, func(w *testWorld) {
		if w.room.Name() == "bad" {
			w.onStep = func(w *testWorld, st *Step[testInput]) {
				if w.steps == 60 {
					time.Sleep(20 * time.Second)
				}
			}
		}
	}, func(ts *testServer) {
		good, bad := ts.join("good"), ts.join("bad")
		defer keepAcking(good)()
		pause(5 * time.Second)
		if g, _ := message[Goodbye](bad, KindRefuse); g.Reason != "room_hung" {
			t.Errorf("goodbye %+v", g)
		}
		ps := good.packets(t)
		if len(ps) < 50 || time.Since(ps[len(ps)-1].at) > 100*time.Millisecond {
			t.Errorf("the good room does not go on: %d packets", len(ps))
		}
		if st := ts.Stats(); st.RoomHangs != 1 || len(st.Rooms) != 1 || ts.hub.players != 1 || len(ts.hub.tokens) != 1 {
			t.Errorf("hangs %d, rooms %d, reserved %d, tokens %d", st.RoomHangs, len(st.Rooms), ts.hub.players, len(ts.hub.tokens))
		}
		pause(20 * time.Second) // the step returns, and finds its room gone
		if w := ts.world("bad"); w.steps != 60 {
			t.Errorf("the dead room stepped on to %d", w.steps)
		}
	})
}

func TestRoomWithoutBeat(t *testing.T) {
	bubble(t, Spec{Hz: 0, SendHz: 10}, Options{}, func(w *testWorld) {
		w.onStep = func(w *testWorld, st *Step[testInput]) {
			for _, in := range st.Inputs() {
				if in.Pressed.Fire {
					w.main.value++
				}
			}
		}
	}, func(ts *testServer) {
		l := ts.join("r")
		defer keepAcking(l)()
		pause(30 * time.Second)
		if ps := l.packets(t); len(ps) != 1 {
			t.Fatalf("an idle room sent %d packets in 30 s, want the first only", len(ps))
		}
		press := func() {
			l.send(append(AppendInputHeader(nil, 0, 0, 1, 0), 1, 0, 0, 0, 0, 0, 0, 0))
			synctest.Wait()
			l.send(append(AppendInputHeader(nil, 0, 0, 1, 0), 0, 0, 0, 0, 0, 0, 0, 0))
			synctest.Wait()
		}
		start := time.Now()
		press()
		ps := l.packets(t)
		if len(ps) != 2 || ps[1].at != start || ps[1].value != 1 {
			t.Fatalf("the first change came %d packets and %v later", len(ps)-1, ps[len(ps)-1].at.Sub(start))
		}
		for range 20 { // a burst: every press counts, packets come at the rate
			press()
			pause(10 * time.Millisecond)
		}
		pause(time.Second)
		ps = l.packets(t)
		if n := len(ps) - 2; n < 2 || n > 4 {
			t.Errorf("a burst of 200 ms made %d packets, want 2 to 4", n)
		}
		if v := ps[len(ps)-1].value; v != 21 {
			t.Errorf("%d presses counted, want 21", v)
		}
		w := ts.world("r")
		steps := w.steps
		w.room.Wake()
		synctest.Wait()
		if w.steps != steps+1 {
			t.Errorf("Wake made %d steps", w.steps-steps)
		}
	})
}

// Without a beat an input holds until the next one: what others do, does not let go of it.
func TestHeldInputWithoutBeat(t *testing.T) {
	presses := 0
	var held, missing bool
	bubble(t, Spec{Hz: 0}, Options{}, func(w *testWorld) {
		w.onStep = func(w *testWorld, st *Step[testInput]) {
			for s, in := range st.Inputs() {
				if s.ID() == 0 {
					held, missing = in.Value.Fire, in.Missing
					if in.Pressed.Fire {
						presses++
					}
				}
			}
		}
	}, func(ts *testServer) {
		a, b := ts.join("r"), ts.join("r")
		pause(time.Second)
		fire := append(AppendInputHeader(nil, 0, 0, 1, 0), 1, 0, 0, 0, 0, 0, 0, 0)
		other := append(AppendInputHeader(nil, 0, 0, 1, 0), 0, 1, 0, 0, 0, 0, 0, 0)
		for range 5 {
			a.send(fire)
			synctest.Wait()
			b.send(other)
			pause(time.Second)
		}
		if presses != 1 || !held || missing {
			t.Errorf("%d presses, held %v, missing %v", presses, held, missing)
		}
		w := ts.world("r")
		steps := w.steps
		pause(10 * time.Second)
		if w.steps != steps {
			t.Errorf("%d steps with nothing to do", w.steps-steps)
		}
		a.drop(io.EOF)
		pause(time.Second)
		if held || !missing {
			t.Errorf("after the link: held %v, missing %v", held, missing)
		}
	})
}

// moreFeed has more to send than fits: n bytes, counted down.
type moreFeed struct {
	counterFeed
	left int
}

type moreStream struct {
	feed.Stream
	f *moreFeed
}

func (f *moreFeed) Join(id feed.SeatID, d feed.Delivery) feed.Stream {
	return &moreStream{f.counterFeed.Join(id, d), f}
}

func (s *moreStream) Dirty(feed.Frame) bool { return s.f.left > 0 }

func (s *moreStream) Append(dst []byte, _ feed.Frame, limit int) ([]byte, feed.Written) {
	n := min(limit, s.f.left)
	s.f.left -= n
	return append(dst, make([]byte, n)...), feed.Written{Receipt: 1, More: s.f.left > 0}
}

// What does not fit into one packet follows at the send rate, also where nothing else happens.
func TestMoreWithoutBeat(t *testing.T) {
	f := &moreFeed{left: 20_000}
	bubble(t, Spec{Hz: 0, SendHz: 20, BudgetBytes: 32 << 10}, Options{}, func(w *testWorld) { w.feeds = []feed.Feed{f} }, func(ts *testServer) {
		l := ts.join("r")
		defer keepAcking(l)()
		pause(900 * time.Millisecond)
		if f.left > 0 {
			t.Errorf("%d bytes of 20,000 are left after 0.9 s at 32 KiB/s", f.left)
		}
		l.mu.Lock()
		n := len(l.state)
		l.mu.Unlock()
		pause(5 * time.Second)
		if l.mu.Lock(); len(l.state) != n {
			t.Errorf("%d more packets with nothing to say", len(l.state)-n)
		}
		l.mu.Unlock()
	})
}

func TestFlushNow(t *testing.T) {
	var flush atomic.Bool
	bubble(t, Spec{Hz: 60, SendHz: 2}, Options{}, func(w *testWorld) {
		w.onStep = func(w *testWorld, st *Step[testInput]) {
			if flush.Swap(false) {
				w.room.FlushNow(w.joined[0])
			}
		}
	}, func(ts *testServer) {
		a, b := ts.join("r"), ts.join("r")
		defer keepAcking(a)()
		defer keepAcking(b)()
		pause(2100 * time.Millisecond)
		na, nb := len(a.packets(t)), len(b.packets(t))
		flush.Store(true)
		pause(20 * time.Millisecond)
		if da, db := len(a.packets(t))-na, len(b.packets(t))-nb; da != 1 || db != 0 {
			t.Errorf("FlushNow sent %d to its seat and %d to the other", da, db)
		}
	})
}

func TestRoomGoAndAfter(t *testing.T) {
	type result struct {
		work, done, after bool
	}
	var got result
	bubble(t, Spec{Hz: 60}, Options{}, func(w *testWorld) {
		w.onStep = func(w *testWorld, st *Step[testInput]) {
			if w.steps == 30 {
				w.room.Go(func() { got.work = true; time.Sleep(300 * time.Millisecond) }, func() { got.done = true })
				w.room.After(100*time.Millisecond, func() { got.after = true })
			}
		}
	}, func(ts *testServer) {
		l := ts.join("r")
		defer keepAcking(l)()
		pause(2 * time.Second)
		if want := (result{work: true, done: true, after: true}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if n := len(l.packets(t)); n < 38 {
			t.Errorf("only %d packets", n)
		}
	})
}

// A running room takes another world: the epoch rises, sequence, acks and ticks run on, and nobody loses the link over it.
func TestRestoreOnARunningRoom(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l := ts.join("r")
		defer keepAcking(l)()
		pause(time.Second)
		w := ts.world("r")
		w.room.post(func() {
			if err := w.room.Restore([]byte{9, 0, 0, 0}); err != nil {
				t.Error(err)
			}
		})
		pause(40 * time.Second) // longer than StallAfter
		ps := l.packets(t)
		last := ps[len(ps)-1]
		if last.Epoch != 2 || last.value != 9 || len(w.main.streams[0].resumed) != 1 || l.isClosed() {
			t.Fatalf("after Restore: epoch %d value %d, resumed %v, closed %v", last.Epoch, last.value, w.main.streams[0].resumed, l.isClosed())
		}
		for i, p := range ps[1:] {
			if p.Seq != ps[i].Seq+1 || p.Tick16-ps[i].Tick16 != 3 || p.Epoch < ps[i].Epoch || p.Epoch == 2 && p.value != 9 {
				t.Fatalf("packet %+v after %+v", p, ps[i])
			}
		}
		if st := ts.Stats(); st.Skipped["slow"] != 0 || st.Rooms[0].Epoch != 2 {
			t.Errorf("skipped %v, epoch %d", st.Skipped, st.Rooms[0].Epoch)
		}
		w.room.post(func() {
			if err := w.room.Restore([]byte{9}); err == nil {
				t.Error("a bad snapshot was taken")
			}
		})
		pause(time.Second)
		if g, _ := message[Goodbye](l, KindRefuse); g.Reason != "room_error" {
			t.Errorf("%+v", g)
		}
	})
}

func TestSnapshotAndRestoreRooms(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, func(w *testWorld) { w.main.value = 5 }, func(ts *testServer) {
		l := ts.join("a")
		defer keepAcking(l)()
		pause(time.Second)
		snap, err := ts.Snapshot(context.Background(), "test", "a")
		if err != nil || !bytes.Equal(snap, []byte{5, 0, 0, 0}) {
			t.Fatalf("% x, %v", snap, err)
		}
		if _, err := ts.Snapshot(context.Background(), "test", "nowhere"); !errors.Is(err, ErrClosed) {
			t.Errorf("a room that is not open: %v", err)
		}
		snap[0] = 77
		if err := ts.Restore("test", "b", snap); err != nil {
			t.Fatal(err)
		}
		if err := ts.Restore("test", "a", snap); err == nil {
			t.Error("an open room was opened again")
		}
		if err := ts.Restore("nowhere", "a", snap); err == nil {
			t.Error("an unknown world was opened")
		}
		m := ts.join("b")
		defer keepAcking(m)()
		pause(time.Second)
		if ps := m.packets(t); len(ps) == 0 || ps[0].value != 77 {
			t.Errorf("the restored room shows %v", ps)
		}
		if err := ts.Restore("test", "c", []byte{1}); err != nil {
			t.Fatal(err)
		}
		pause(time.Second)
		if st := ts.Stats(); len(st.Rooms) != 2 || st.RoomErrors != 1 {
			t.Errorf("%d rooms, %d errors after a snapshot that the world does not take", len(st.Rooms), st.RoomErrors)
		}
		rows, err := ts.Account(context.Background(), "test", "a")
		if err != nil || rows[0]["value"].Bits < 32*18 {
			t.Errorf("account %v, %v", rows, err)
		}
	})
}

// Work that never returns, or ends its goroutine, takes neither the others' work nor the process's end.
func TestRoomGoMisused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var ran atomic.Int32
		ts := newTestServer(t, Spec{Hz: 60}, Options{Workers: 1}, func(w *testWorld) {
			w.onStep = func(w *testWorld, st *Step[testInput]) {
				if w.steps == 10 {
					w.room.Go(runtime.Goexit, nil)
					w.room.Go(func() {}, func() { ran.Add(1) })
					w.room.Go(func() { <-release }, nil)
				}
			}
		})
		ts.join("r")
		pause(time.Second)
		if ran.Load() != 1 {
			t.Error("work after a Goexit did not run")
		}
		start := time.Now()
		ts.Close()
		if d := time.Since(start); d < workGrace || d > workGrace+100*time.Millisecond {
			t.Errorf("Close took %v, want %v", d, workGrace)
		}
		close(release)
	})
}

// Sums over all rooms never fall when a room closes.
func TestTotalsNeverFall(t *testing.T) {
	bubble(t, Spec{Hz: 60, LingerEmpty: time.Millisecond}, Options{LiftCaps: true}, nil, func(ts *testServer) {
		var last uint64
		for i := range 60 {
			l := ts.join(fmt.Sprint("r", i%5))
			pause(300 * time.Millisecond)
			l.send([]byte{KindLeave})
			for range 20 {
				if n := ts.Stats().PacketsOut; n < last {
					t.Fatalf("packets fell from %d to %d", last, n)
				} else {
					last = n
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
		if w := ts.Window(); w.PeakMbit > 1 {
			t.Errorf("peak %v Mbit/s", w.PeakMbit)
		}
		if len(ts.open) > 1 {
			t.Errorf("%d rooms in the figures", len(ts.open))
		}
	})
}

// 10,000 rooms opened and closed leave nothing behind (colyseus/colyseus#842).
func TestRoomChurn(t *testing.T) {
	bubble(t, Spec{Hz: 60, LingerEmpty: time.Nanosecond}, Options{LiftCaps: true}, nil, func(ts *testServer) {
		run := func(n int) {
			for i := range n {
				l := ts.join(fmt.Sprintf("r%d", i%500))
				pause(20 * time.Millisecond)
				l.send([]byte{KindLeave})
				if i%100 == 99 {
					pause(200 * time.Millisecond)
					ts.mu.Lock()
					clear(ts.worlds)
					ts.mu.Unlock()
				}
			}
			pause(time.Second)
		}
		run(500)
		before := runtime.NumGoroutine()
		heap := liveHeap()
		run(9500)
		if n := runtime.NumGoroutine(); n > before+5 {
			t.Errorf("%d goroutines, %d before", n, before)
		}
		if h := liveHeap(); h > heap+4<<20 {
			t.Errorf("heap %d kB, %d before", h>>10, heap>>10)
		}
		if st := ts.Stats(); st.RoomsClosed != 10_000 || len(st.Rooms) != 0 || st.Links != 0 {
			t.Errorf("closed %d, open %d, links %d", st.RoomsClosed, len(st.Rooms), st.Links)
		}
	})
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
