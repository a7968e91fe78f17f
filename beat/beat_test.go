package beat

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func nop(uint64, time.Duration) {}

// newGroup makes a group that lives by the bubble's time and closes with the test.
func newGroup(t *testing.T, o Options) *Group {
	t.Helper()
	o.Clock, o.Priority = PortableClock(), PriorityNone
	g, err := NewGroup(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func add(t *testing.T, g *Group, c Config) *Beat {
	t.Helper()
	b, err := g.Add(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRateOverAnHourWithoutDrift(t *testing.T) {
	testRate(t, 3601, []Config{
		{Hz: 60, SendHz: 20, Phase: Auto}, {Hz: 60, SendHz: 20, Phase: 3 * time.Millisecond}, {Hz: 7, Phase: Auto},
	})
	testRate(t, 121, []Config{{Hz: 30}, {Hz: 1}, {Hz: 144, SendHz: 48, Phase: Auto}, {Hz: 1000}, {Hz: 999, SendHz: 1, Phase: Auto}})
}

func testRate(t *testing.T, seconds int, configs []Config) {
	t.Helper()
	m := newManual(t)
	type probe struct {
		b           *Beat
		n           uint64
		first, last time.Duration
	}
	var probes []*probe
	for _, c := range configs {
		p := new(probe)
		c.Step = func(n uint64, scheduled time.Duration) {
			if n != p.n+1 {
				t.Fatalf("step %d follows step %d", n, p.n)
			}
			if now := m.clock.Now(); now != scheduled {
				t.Fatalf("step %d at %v, scheduled at %v", n, now, scheduled)
			}
			if n == 1 {
				p.first = scheduled
			}
			p.n, p.last = n, scheduled
			// The n-th deadline is off the ideal by the rounding of two nanoseconds, whatever n is.
			ideal := float64(n-1) * 1e9 / float64(p.b.Hz())
			if off := float64(scheduled-p.first) - ideal; off > 1 || off < -2 {
				t.Fatalf("step %d at %d Hz is %g ns off", n, p.b.Hz(), off)
			}
		}
		p.b = m.add(t, c)
		probes = append(probes, p)
	}
	m.runTo(time.Duration(seconds) * time.Second)
	for _, p := range probes {
		got, want := p.n, uint64(p.b.Hz()*seconds)
		if got+1 < want || got > want {
			t.Errorf("%d Hz: %d steps in %d s, want %d", p.b.Hz(), got, seconds, want)
		}
		s := p.b.Stats()
		if s.Counters != (Counters{Steps: got}) {
			t.Errorf("%d Hz: %+v", p.b.Hz(), s.Counters)
		}
		if s.Late.Max != 0 || s.Interval.Max-s.Interval.P50 > 500 {
			t.Errorf("%d Hz: %+v", p.b.Hz(), s)
		}
	}
	if h := m.Histograms(); h.Late.Max() != 0 || h.Interval.Max() > time.Second {
		t.Errorf("late %v, interval %v", h.Late.Max(), h.Interval.Max())
	}
}

// stallOnce runs a 60 Hz beat of which step 100 takes d, and returns when each step began.
func stallOnce(t *testing.T, catchUp int, d time.Duration) (b *Beat, begun, scheduled []time.Duration, g *Group) {
	g = newGroup(t, Options{HangAfter: time.Minute})
	clock := g.clock
	b = add(t, g, Config{Hz: 60, CatchUp: catchUp, Step: func(n uint64, s time.Duration) {
		begun, scheduled = append(begun, clock.Now()), append(scheduled, s)
		if n == 100 {
			time.Sleep(d)
		}
	}})
	time.Sleep(d + 10*time.Second)
	b.Stop()
	return b, begun, scheduled, g
}

func TestStall(t *testing.T) {
	const stall = 1500 * time.Millisecond // 90 periods
	synctest.Test(t, func(t *testing.T) {
		b, begun, scheduled, g := stallOnce(t, 0, stall)
		resumed := begun[99] + stall
		onGrid := func(i int, k uint64) {
			t.Helper()
			if want := scheduled[0] + at(k, 60); scheduled[i] < want-1 || scheduled[i] > want+1 {
				t.Errorf("step %d is scheduled at %v, grid point %d is at %v", i+1, scheduled[i], k, want)
			}
		}
		for i := range 100 {
			onGrid(i, uint64(i))
			if begun[i] != scheduled[i] {
				t.Fatalf("step %d began %v late before the stall", i+1, begun[i]-scheduled[i])
			}
		}
		// Three steps at once, the oldest of the debt.
		for i := 100; i < 103; i++ {
			onGrid(i, uint64(i))
			if begun[i] != resumed {
				t.Errorf("catch-up step %d began %v after the stall", i+1, begun[i]-resumed)
			}
		}
		if begun[103] == resumed {
			t.Error("a fourth step was run at once")
		}
		// Then the old grid, on time. How many were due depends on a nanosecond.
		dropped := b.Stats().Dropped
		if dropped != 86 && dropped != 87 {
			t.Errorf("%d steps dropped of a debt of 89 or 90", dropped)
		}
		for i := 103; i < len(begun); i++ {
			onGrid(i, uint64(i)+dropped)
			if begun[i] != scheduled[i] {
				t.Fatalf("step %d began %v late after the stall", i+1, begun[i]-scheduled[i])
			}
		}
		if n := len(begun); n < 600+100-10 || n > 600+3 {
			// 10 s and the stall's length in steps, less the dropped ones.
			if total := uint64(n) + dropped; total < 689 || total > 691 {
				t.Errorf("%d steps run and %d dropped in 11.5 s", n, dropped)
			}
		}
		c := b.Stats().Counters
		if want := (Counters{Steps: uint64(len(begun)), Late: 3, Skipped: 1, Doubled: c.Doubled, Dropped: dropped, Stalls: 1}); c != want {
			t.Errorf("counted %+v, want %+v", c, want)
		}
		// The two that follow another one at once, and the first on time if the stall ended near it.
		if c.Doubled < 2 || c.Doubled > 3 {
			t.Errorf("%d doubled", c.Doubled)
		}
		st := b.Stats()
		if st.Step.Max != stall || (st.Interval.Max-stall).Abs() > 2*ringUnit || st.Late.Max < stall-2*b.period || st.State != Stopped {
			t.Errorf("%+v", st)
		}
		if total := g.Stats().Total; total.Counters != c || total.ThreadStalls != 1 {
			t.Errorf("the group counted %+v", total)
		}
	})
}

func TestCatchUpBounds(t *testing.T) {
	for _, tc := range []struct {
		catchUp, atOnce int
		periods         int
		dropped         uint64
	}{
		{1, 1, 10, 9}, {1, 1, 1, 0}, {3, 2, 2, 0}, {3, 3, 3, 0}, {3, 3, 4, 1}, {5, 5, 50, 45}, {1000, 50, 50, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			// Half a period more, so that the number of due steps is beyond doubt.
			d := time.Duration(tc.periods)*time.Second/60 + time.Second/120
			b, begun, _, _ := stallOnce(t, tc.catchUp, d)
			atOnce := 0
			for _, at := range begun {
				if at == begun[99]+d {
					atOnce++
				}
			}
			if dropped := b.Stats().Dropped; atOnce != tc.atOnce || dropped != tc.dropped {
				t.Errorf("CatchUp %d after %d periods: %d at once, %d dropped; want %d, %d",
					tc.catchUp, tc.periods, atOnce, dropped, tc.atOnce, tc.dropped)
			}
		})
	}
}

// TestOverloadSharesTheThread has one beat that always takes three periods, and one that takes nothing: the second must keep
// being served between the steps of the first.
func TestOverloadSharesTheThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, Options{Threads: 1})
		slow := add(t, g, Config{Hz: 60, Step: func(uint64, time.Duration) { time.Sleep(50 * time.Millisecond) }})
		quick := add(t, g, Config{Hz: 60, Phase: Auto, Step: nop})
		time.Sleep(30 * time.Second)
		s, q := slow.Stats(), quick.Stats()
		if s.Steps < 590 || s.Steps > 601 || s.Steps+s.Dropped < 1780 {
			t.Errorf("the slow one: %+v", s)
		}
		if q.Steps < 1780 || q.Dropped > 0 || q.Interval.Max > 60*time.Millisecond {
			t.Errorf("the quick one: %+v", q)
		}
		if st := g.Stats(); len(st.Threads) != 1 || st.Threads[0].LoadCores < 0.99 || st.Threads[0].LoadCores > 1.01 {
			t.Errorf("%+v", st)
		}
	})
}

func TestThreadsAreSharedEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, Options{Threads: 3})
		if st := g.Stats(); len(st.Threads) != 0 {
			t.Errorf("threads before the first beat: %+v", st)
		}
		var beats []*Beat
		counts := func() (n []int) {
			for _, th := range g.Stats().Threads {
				n = append(n, th.Beats)
			}
			slices.Sort(n)
			return n
		}
		for i, want := range [][]int{{1}, {1, 1}, {1, 1, 1}, {1, 1, 2}, {1, 2, 2}, {2, 2, 2}, {2, 2, 3}} {
			beats = append(beats, add(t, g, Config{Hz: 60, Phase: Auto, Step: nop}))
			if got := counts(); !slices.Equal(got, want) {
				t.Errorf("%d beats: %v on the threads, want %v", i+1, got, want)
			}
		}
		beats[1].Stop()
		beats[4].Stop()
		if got := counts(); !slices.Equal(got, []int{0, 2, 3}) {
			t.Errorf("after two stops: %v", got)
		}
		time.Sleep(5 * time.Second)
		beats = append(beats, add(t, g, Config{Hz: 60, Phase: Auto, Step: nop}))
		if got := counts(); !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("after one more: %v", got)
		}
		added := g.clock.Now()
		time.Sleep(time.Second)
		if s := beats[7].Recent(nil); len(s) < 59 || s[0].Late != 0 || s[0].Scheduled-added > time.Second/60 {
			t.Errorf("the beat on the parked thread began with %+v, added at %v", s[0], added)
		}
		if all := g.Beats(); len(all) != 6 {
			t.Errorf("%d beats run", len(all))
		}
	})
}

// TestAddWhileThreadSleeps: a new beat must not begin with a late step because its thread was asleep.
func TestAddWhileThreadSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, Options{Threads: 1})
		add(t, g, Config{Hz: 1, Step: nop})
		for range 50 {
			time.Sleep(37 * time.Millisecond)
			added := g.clock.Now()
			b := add(t, g, Config{Hz: 1000, Step: nop})
			time.Sleep(50 * time.Millisecond)
			s := b.Recent(nil)
			if s[0].Late != 0 || s[0].Scheduled > added+maxSleep+time.Millisecond {
				t.Fatalf("added at %v: %+v", added, s[0])
			}
			b.Stop()
		}
	})
}

func TestPanicStopsThatBeatAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, Options{Threads: 1})
		var got any
		var stack string
		var bad *Beat
		calls := 0
		add(t, g, Config{
			Hz:   60,
			Bind: func(b *Beat) { bad = b },
			Step: func(n uint64, _ time.Duration) {
				if calls++; n == 5 {
					panic("five")
				}
			},
			OnPanic: func(v any, s []byte) {
				got, stack = v, string(s)
				bad.Stop() // must not wait for itself
			},
		})
		good := add(t, g, Config{Hz: 60, Phase: Auto, Step: nop})
		time.Sleep(time.Second)
		bad.Stop()
		if got != "five" || !strings.Contains(stack, "TestPanicStopsThatBeatAlone") {
			t.Errorf("OnPanic got %v and\n%s", got, stack)
		}
		if s := bad.Stats(); calls != 5 || s.State != Panicked {
			t.Errorf("%d calls, %+v", calls, s)
		}
		if s := good.Stats(); s.Counters != (Counters{Steps: s.Steps}) || s.Steps < 59 || s.Late.Max != 0 {
			t.Errorf("the other beat: %+v", s)
		}
		if st := g.Stats(); st.Beats != 1 || st.Total.Panics != 1 || st.Total.Moved != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestPanicInOnPanicAndWithoutIt(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(old)
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, Options{Threads: 1})
		boom := func(uint64, time.Duration) { panic("boom") }
		add(t, g, Config{Hz: 60, Step: boom, OnPanic: func(any, []byte) { panic("again") }})
		add(t, g, Config{Hz: 60, Step: boom, Name: "silent"})
		good := add(t, g, Config{Hz: 60, Step: nop})
		time.Sleep(time.Second)
		if st := g.Stats(); st.Total.Panics != 2 || st.Total.HookPanics != 1 || good.Stats().Steps < 59 {
			t.Errorf("%+v", st)
		}
	})
	if !strings.Contains(log.String(), "boom") || !strings.Contains(log.String(), "silent") {
		t.Errorf("logged: %s", &log)
	}
}

func TestGoexitInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, Options{Threads: 1})
		var got any
		bad := add(t, g, Config{
			Hz: 60, Step: func(uint64, time.Duration) { runtime.Goexit() },
			OnPanic: func(v any, _ []byte) { got = v },
		})
		good := add(t, g, Config{Hz: 60, Phase: Auto, Step: nop})
		time.Sleep(time.Second)
		bad.Stop()
		if got != ErrGoexit || bad.Stats().State != Panicked {
			t.Errorf("%v, %+v", got, bad.Stats())
		}
		if s := good.Stats(); s.Steps < 59 || s.Dropped != 0 {
			t.Errorf("the other beat: %+v", s)
		}
		if st := g.Stats(); st.Total.Moved != 1 || len(st.Threads) != 1 || st.Stuck != 0 {
			t.Errorf("%+v", st)
		}
		// The last beat of a thread: no fresh one is needed, and a later beat gets one.
		good.Stop()
		last := add(t, g, Config{Hz: 60, Step: func(uint64, time.Duration) { runtime.Goexit() }, OnPanic: func(any, []byte) {}})
		time.Sleep(time.Second)
		last.Stop()
		if st := g.Stats(); len(st.Threads) != 0 {
			t.Errorf("%+v", st)
		}
		again := add(t, g, Config{Hz: 60, Step: nop})
		time.Sleep(time.Second)
		if s := again.Stats(); s.Steps < 59 {
			t.Errorf("%+v", s)
		}
	})
}

func TestHangMovesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var bad *Beat
		var mu sync.Mutex // guards the next three
		var told []*Beat
		var toldAt, hungAt time.Duration
		var g *Group
		g = newGroup(t, Options{Threads: 1, OnHang: func(b *Beat) {
			mu.Lock()
			told, toldAt = append(told, b), g.clock.Now()
			mu.Unlock()
			b.Stop() // must not wait for the hung step
		}})
		bad = add(t, g, Config{Hz: 60, Name: "bad", Step: func(n uint64, _ time.Duration) {
			if n == 10 {
				mu.Lock()
				hungAt = g.clock.Now()
				mu.Unlock()
				<-release
			}
			if n > 10 {
				t.Error("a hung beat stepped again")
			}
		}})
		var good []*Beat
		for range 5 {
			good = append(good, add(t, g, Config{Hz: 60, Phase: Auto, Step: nop}))
		}
		go func() {
			time.Sleep(400 * time.Millisecond)
			bad.Stop() // waits first, and is released when the hang is found
			mu.Lock()
			defer mu.Unlock()
			if d := g.clock.Now() - hungAt; d != time.Second {
				t.Errorf("Stop returned %v after the step began", d)
			}
		}()
		time.Sleep(3 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(told, []*Beat{bad}) || toldAt-hungAt != time.Second {
			t.Errorf("OnHang for %d beats, %v after the step began", len(told), toldAt-hungAt)
		}
		st := g.Stats()
		if st.Beats != 5 || st.Stuck != 1 || st.Total.Hung != 1 || st.Total.Moved != 5 || len(st.Threads) != 1 || st.Threads[0].Beats != 5 {
			t.Errorf("%+v", st)
		}
		if s := bad.Stats(); s.State != Hung || s.Steps != 10 {
			t.Errorf("%+v", s)
		}
		for _, b := range good {
			s := b.Stats()
			// One second's debt, of which three steps were run; then the rate.
			if s.Dropped < 55 || s.Dropped > 58 || s.Stalls != 1 || s.Steps+s.Dropped < 178 {
				t.Errorf("a moved beat: %+v", s)
			}
			recent := b.Recent(nil)
			if last := recent[len(recent)-1]; last.Late != 0 {
				t.Errorf("a moved beat is still late: %+v", last)
			}
		}
		close(release)
		synctest.Wait()
		if st := g.Stats(); st.Stuck != 0 {
			t.Errorf("the step returned, and %d are stuck", st.Stuck)
		}
		add(t, g, Config{Hz: 60, Step: nop})
		time.Sleep(time.Second)
		if st := g.Stats(); st.Beats != 6 || len(st.Threads) != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestHangAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := newGroup(t, Options{Threads: 1, HangAfter: 100 * time.Millisecond, OnHang: func(*Beat) { panic("hook") }})
		// A step that is nearly too long is none that hangs.
		long := add(t, g, Config{Hz: 1, Step: func(uint64, time.Duration) { time.Sleep(99 * time.Millisecond) }})
		time.Sleep(5 * time.Second)
		if s := long.Stats(); s.State != Running || s.Steps < 4 {
			t.Errorf("%+v", s)
		}
		long.Stop()
		time.Sleep(5 * time.Second) // the watchdog falls idle
		add(t, g, Config{Hz: 60, Step: func(uint64, time.Duration) { <-release; panic("late") }, OnPanic: func(any, []byte) {
			t.Error("a beat that was given up is reported again")
		}})
		time.Sleep(time.Second)
		if st := g.Stats(); st.Total.Hung != 1 || len(st.Threads) != 0 || st.Total.HookPanics != 1 {
			t.Errorf("%+v", st)
		}
		next := add(t, g, Config{Hz: 60, Step: nop})
		time.Sleep(time.Second)
		if s := next.Stats(); s.Steps < 59 {
			t.Errorf("%+v", s)
		}
		close(release)
		synctest.Wait()
		if st := g.Stats(); st.Stuck != 0 || st.Total.Panics != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, Options{Threads: 2})
		var calls atomic.Int64
		began := make(chan struct{}, 1000)
		b := add(t, g, Config{Hz: 60, Step: func(uint64, time.Duration) {
			calls.Add(1)
			began <- struct{}{}
			time.Sleep(100 * time.Millisecond)
		}})
		<-began
		from := g.clock.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(b.Stop)
		}
		wg.Wait()
		if d := g.clock.Now() - from; d != 100*time.Millisecond {
			t.Errorf("Stop returned after %v of a step of 100 ms", d)
		}
		n := calls.Load()
		time.Sleep(time.Second)
		if calls.Load() != n {
			t.Error("a step after Stop")
		}
		b.Stop()
		if st := g.Stats(); st.Beats != 0 || b.Stats().State != Stopped {
			t.Errorf("%+v", st)
		}
	})
}

func TestStopFromInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, Options{Threads: 2})
		var a, b *Beat
		var after atomic.Uint64
		add(t, g, Config{Hz: 60, Bind: func(x *Beat) { a = x }, Step: func(n uint64, _ time.Duration) {
			after.Store(n)
			if n == 3 {
				a.Stop()
				a.Stop()
			}
		}})
		// Another beat's step stops b, which runs on the other thread, in mid-step.
		var bEnded atomic.Bool
		b = add(t, g, Config{Hz: 60, Step: func(uint64, time.Duration) {
			time.Sleep(40 * time.Millisecond)
			bEnded.Store(true)
		}})
		var c *Beat
		add(t, g, Config{Hz: 60, Bind: func(x *Beat) { c = x }, Step: func(n uint64, _ time.Duration) {
			if n == 20 {
				b.Stop()
				if !bEnded.Load() {
					t.Error("Stop did not wait for the other thread's step")
				}
				c.Stop()
			}
		}})
		time.Sleep(2 * time.Second)
		if after.Load() != 3 || a.Stats().State != Stopped || b.Stats().State != Stopped || c.Stats().State != Stopped {
			t.Errorf("%d steps; %v %v %v", after.Load(), a.Stats(), b.Stats(), c.Stats())
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, Options{Threads: 2})
		var running atomic.Int64
		for range 4 {
			add(t, g, Config{Hz: 60, Step: func(uint64, time.Duration) {
				running.Add(1)
				time.Sleep(5 * time.Millisecond)
				running.Add(-1)
			}})
		}
		time.Sleep(time.Second)
		var wg sync.WaitGroup
		wg.Go(g.Close)
		wg.Go(g.Close)
		wg.Wait()
		if running.Load() != 0 {
			t.Error("Close left a step running")
		}
		if _, err := g.Add(Config{Hz: 60, Step: nop}); err != ErrClosed {
			t.Errorf("Add after Close: %v", err)
		}
		for _, b := range g.Beats() {
			t.Errorf("a beat after Close: %+v", b.Stats())
		}
		g.Close()
	})
	synctest.Test(t, func(t *testing.T) { // from inside a step
		g := newGroup(t, Options{Threads: 2})
		var n atomic.Uint64
		add(t, g, Config{Hz: 60, Step: func(i uint64, _ time.Duration) {
			n.Store(i)
			if i == 3 {
				g.Close()
			}
		}})
		add(t, g, Config{Hz: 50, Step: nop})
		time.Sleep(3 * time.Second)
		if st := g.Stats(); n.Load() != 3 || st.Total.Hung != 0 {
			t.Errorf("%d steps, %+v", n.Load(), st)
		}
	})
	synctest.Test(t, func(t *testing.T) { // with a step that hangs, then from OnHang
		release := make(chan struct{})
		var g *Group
		g = newGroup(t, Options{Threads: 2, OnHang: func(*Beat) { g.Close() }})
		add(t, g, Config{Hz: 60, Step: func(uint64, time.Duration) { <-release }})
		add(t, g, Config{Hz: 50, Step: nop})
		time.Sleep(100 * time.Millisecond)
		from := g.clock.Now()
		g.Close()
		if d := g.clock.Now() - from; d > time.Second {
			t.Errorf("Close took %v", d)
		}
		if st := g.Stats(); st.Total.Hung != 1 || st.Stuck != 1 {
			t.Errorf("%+v", st)
		}
		close(release)
	})
	g, err := NewGroup(Options{}) // never used
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
}

// TestChurn: what has ended leaves nothing behind.
func TestChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, Options{Threads: 2})
		var steps atomic.Int64
		round := func(beats int) {
			var live []*Beat
			for i := range beats {
				live = append(live, add(t, g, Config{
					Hz: 1 + i*7%200, Phase: Auto, Step: func(uint64, time.Duration) { steps.Add(1) },
				}))
			}
			time.Sleep(30 * time.Millisecond)
			for _, b := range live {
				b.Stop()
			}
		}
		measure := func() (goroutines int, heapBytes uint64) {
			synctest.Wait()
			var ms runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&ms)
			return runtime.NumGoroutine(), ms.HeapAlloc
		}
		round(100)
		goroutines, heapBytes := measure()
		for range 100 {
			round(100)
		}
		goroutines2, heapBytes2 := measure()
		if goroutines2 > goroutines {
			t.Errorf("%d goroutines, %d after the churn", goroutines, goroutines2)
		}
		// 10,000 leaked beats would be 150 MB.
		if heapBytes2 > heapBytes+1<<20 {
			t.Errorf("heap %d bytes, %d after the churn", heapBytes, heapBytes2)
		}
		if len(g.circles) != 0 || len(g.beats) != 0 || steps.Load() < 5_000 {
			t.Errorf("%d circles, %d beats, %d steps", len(g.circles), len(g.beats), steps.Load())
		}
	})
}

// TestChurnInParallel is for the race detector: real time, many goroutines, steps that stop themselves and others that panic.
func TestChurnInParallel(t *testing.T) {
	g, err := NewGroup(Options{Threads: 3, Priority: PriorityNone})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var wg sync.WaitGroup
	var added atomic.Int64
	for w := range 4 {
		wg.Go(func() {
			for i := range 100 {
				var b *Beat
				stepped := make(chan struct{})
				_, err := g.Add(Config{
					Hz: 1000, SendHz: 500, Phase: Auto, Bind: func(x *Beat) { b = x },
					Step: func(n uint64, s time.Duration) {
						if n == 1 {
							defer close(stepped)
						}
						switch b.Slot(s); i % 10 {
						case 1:
							b.Stop()
						case 2:
							panic("planned")
						}
					},
					OnPanic: func(any, []byte) {},
				})
				if err != nil {
					t.Error(err)
					return
				}
				added.Add(1)
				if i%10 != 3 {
					<-stepped
				}
				b.Stats()
				g.Stats()
				b.Recent(nil)
				if i%25 == w {
					g.ResetWindow()
				}
				g.Window()
				g.TotalHistograms()
				b.Stop()
			}
		})
	}
	wg.Wait()
	if st := g.Stats(); st.Beats != 0 || st.Total.Panics != 40 || added.Load() != 400 {
		t.Errorf("%+v", st)
	}
}

func TestWindow(t *testing.T) {
	m := newManual(t)
	b := m.add(t, Config{Hz: 100, Step: func(n uint64, _ time.Duration) {
		m.clock.advance(time.Millisecond)
		if n == 50 {
			m.clock.advance(99 * time.Millisecond)
		}
	}})
	m.runTo(10 * time.Second)
	all := m.Window()
	if all.Counters != b.Stats().Counters || all.Stalls != 1 || all.Length != m.clock.Now() {
		t.Errorf("%+v", all)
	}
	m.ResetWindow()
	if w := m.Window(); w != (Window{}) {
		t.Errorf("a new window holds %+v", w)
	}
	from := m.clock.Now()
	m.runTo(15 * time.Second)
	if w := m.Window(); w.Length != m.clock.Now()-from || w.Counters != (Counters{Steps: 500}) {
		t.Errorf("%+v", w)
	}
	h, total := m.Histograms(), m.TotalHistograms()
	if h.Late.Count() != 500 || h.Late.Max() != 0 || h.Step.Max() != time.Millisecond || h.Interval.Count() != 500 {
		t.Errorf("window: %d steps, late %v, step %v", h.Late.Count(), h.Late.Max(), h.Step.Max())
	}
	steps := b.Stats().Steps
	if total.Step.Count() != steps || total.Interval.Count() != steps-1 || total.Step.Max() != 100*time.Millisecond {
		t.Errorf("total: %d of %d steps, longest %v", total.Step.Count(), steps, total.Step.Max())
	}
	if m.Stats().Total.Steps != steps {
		t.Error("ResetWindow changed the totals")
	}
}

func TestStepDoesNotAllocate(t *testing.T) {
	m := newManual(t)
	for range 10 {
		m.add(t, Config{Hz: 60, SendHz: 20, Phase: Auto, Step: func(uint64, time.Duration) { m.clock.advance(50 * time.Microsecond) }})
	}
	m.runTo(time.Second)
	before := m.Stats().Total.Steps
	if n := testing.AllocsPerRun(10_000, func() { m.turnOnce() }); n != 0 {
		t.Errorf("%g allocations a turn", n)
	}
	if m.Stats().Total.Steps-before < 4000 {
		t.Error("too few of the turns were steps")
	}
}

func TestWrongValues(t *testing.T) {
	for _, o := range []Options{
		{Threads: -1}, {Threads: 1025}, {Priority: "realtime"}, {HangAfter: -1}, {HangAfter: time.Microsecond},
	} {
		if _, err := NewGroup(o); err == nil || !strings.HasPrefix(err.Error(), "beat: ") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	m := newManual(t)
	for _, c := range []Config{
		{Hz: 60}, {Step: nop}, {Hz: -1, Step: nop}, {Hz: 1001, Step: nop}, {Hz: 60, SendHz: 61, Step: nop},
		{Hz: 60, SendHz: -1, Step: nop}, {Hz: 60, Phase: -2, Step: nop}, {Hz: 60, SendHz: 20, Phase: 50 * time.Millisecond, Step: nop},
		{Hz: 60, CatchUp: -1, Step: nop}, {Hz: 60, CatchUp: 1001, Step: nop},
	} {
		if _, err := m.Add(c); err == nil || errors.Is(err, ErrClosed) || !strings.HasPrefix(err.Error(), "beat: ") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if len(m.circles) != 0 || len(m.beats) != 0 {
		t.Error("a refused beat left something behind")
	}
	if o := (Options{}); o.fill() != nil || o.Threads != max(1, runtime.NumCPU()-1) || o.Priority != PriorityNice || o.HangAfter != time.Second {
		t.Errorf("defaults: %+v", o)
	}
	if c := (Config{Hz: 60, Step: nop}); c.fill() != nil || c.SendHz != 60 || c.CatchUp != 3 {
		t.Errorf("defaults: %+v", c)
	}
}

func TestStateText(t *testing.T) {
	for s, want := range map[State]string{Running: "running", Stopped: "stopped", Panicked: "panicked", Hung: "hung", 9: "state 9"} {
		if raw, err := s.MarshalText(); err != nil || string(raw) != want {
			t.Errorf("%d is %q, %v", s, raw, err)
		}
	}
}

// TestWatchdogExcusesItself: when the whole process stood still, no step may be blamed for it at first sight.
func TestWatchdogExcusesItself(t *testing.T) {
	m := newManual(t)
	m.add(t, Config{Hz: 60, Step: nop})
	m.t.running = m.t.heap[0]
	m.t.since.Store(1 + int64(time.Second))
	now := 10 * time.Second
	if hung, wait, _ := m.look(now, now); len(hung) != 0 || wait != time.Second {
		t.Errorf("with an excuse: %d hung, look again in %v", len(hung), wait)
	}
	if hung, _, idle := m.look(now, 0); len(hung) != 1 || idle {
		t.Errorf("without: %d hung", len(hung))
	}
}

// shiftedClock can leap, as the time does for a process that was stopped and goes on.
type shiftedClock struct {
	Clock
	by atomic.Int64
}

func (c *shiftedClock) Now() time.Duration { return c.Clock.Now() + time.Duration(c.by.Load()) }
func (c *shiftedClock) SleepUntil(t time.Duration) {
	c.Clock.SleepUntil(t - time.Duration(c.by.Load()))
}

// TestProcessWasStopped: the leap hits a step, which must not be taken for hanging; a step that does hang is still found.
func TestProcessWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &shiftedClock{Clock: PortableClock()}
		g, err := NewGroup(Options{Threads: 1, Clock: clock, Priority: PriorityNone})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		release := make(chan struct{})
		b := add(t, g, Config{Hz: 2, Phase: 250 * time.Millisecond, Step: func(n uint64, _ time.Duration) {
			switch n {
			case 10:
				// From 4.75 s to 5.65 s; the watchdog, which wakes at whole seconds, looks in the middle of it.
				time.Sleep(100 * time.Millisecond)
				clock.by.Add(int64(time.Minute))
				time.Sleep(800 * time.Millisecond)
			case 20:
				<-release
				runtime.Goexit()
			}
		}})
		for range 600 {
			if b.Stats().Steps >= 15 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if s := b.Stats(); s.State != Running || s.Dropped < 110 || s.Dropped > 125 {
			t.Errorf("after the leap: %+v", s)
		}
		time.Sleep(10 * time.Second)
		if s := b.Stats(); s.State != Hung || s.Steps != 20 {
			t.Errorf("in the end: %+v", s)
		}
		close(release)
		synctest.Wait()
		if st := g.Stats(); st.Stuck != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func BenchmarkStep(b *testing.B) {
	for _, beats := range []int{1, 13, 63, 1000} {
		b.Run(fmt.Sprintf("beats=%d", beats), func(b *testing.B) {
			m := newManual(b)
			for range beats {
				m.add(b, Config{Hz: 60, SendHz: 20, Phase: Auto, Step: nop})
			}
			m.runTo(time.Second)
			b.ReportAllocs()
			b.ResetTimer()
			from := m.Stats().Total.Steps
			for m.Stats().Total.Steps-from < uint64(b.N) {
				// Stats is not part of a step, so ask rarely.
				for range 256 {
					m.turnOnce()
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(m.Stats().Total.Steps-from), "ns/step")
		})
	}
}

// countingClock counts how often anybody looks at it.
type countingClock struct {
	Clock
	looks atomic.Int64
}

func (c *countingClock) Now() time.Duration { c.looks.Add(1); return c.Clock.Now() }

// TestIdleGroupSleeps: without beats neither the threads nor the watchdog wake, ever.
func TestIdleGroupSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &countingClock{Clock: PortableClock()}
		g, err := NewGroup(Options{Threads: 2, Clock: clock, Priority: PriorityNone})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		busy := func(uint64, time.Duration) { time.Sleep(5 * time.Millisecond) }
		a, b := add(t, g, Config{Hz: 60, Step: busy}), add(t, g, Config{Hz: 60, Step: busy})
		time.Sleep(10 * time.Second)
		if st := g.Stats(); st.Threads[0].LoadCores < 0.29 || st.Threads[0].LoadCores > 0.31 {
			t.Errorf("5 ms of 16.7 are a load of 0.3: %+v", st)
		}
		a.Stop()
		b.Stop()
		time.Sleep(10 * time.Second)
		before := clock.looks.Load()
		time.Sleep(24 * time.Hour)
		if n := clock.looks.Load() - before; n != 0 {
			t.Errorf("woke %d times in a day without beats", n)
		}
		if st := g.Stats(); len(st.Threads) != 2 || st.Threads[0].LoadCores != 0 {
			t.Errorf("%+v", st)
		}
		c := add(t, g, Config{Hz: 60, Step: nop})
		time.Sleep(time.Second)
		if s := c.Stats(); s.Steps < 59 || s.Late.Max != 0 {
			t.Errorf("after a day of rest: %+v", s)
		}
	})
}

// TestCloseWhileAdding closes under those who add: each Add either gives a beat that Close has ended, or ErrClosed.
func TestCloseWhileAdding(t *testing.T) {
	for range 20 {
		g, err := NewGroup(Options{Threads: 2, Priority: PriorityNone})
		if err != nil {
			t.Fatal(err)
		}
		var closed atomic.Bool
		stepped := make(chan struct{}, 1)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for {
					b, err := g.Add(Config{Hz: 1000, Phase: Auto, Step: func(uint64, time.Duration) {
						if closed.Load() {
							t.Error("a step after Close")
						}
						notify(stepped)
					}})
					if err != nil {
						if err != ErrClosed {
							t.Error(err)
						}
						return
					}
					if len(g.Beats()) > 50 {
						b.Stop()
					}
				}
			})
		}
		<-stepped
		g.Close()
		closed.Store(true)
		wg.Wait()
		if st := g.Stats(); st.Beats != 0 {
			t.Errorf("%+v", st)
		}
	}
}
