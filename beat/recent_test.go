package beat

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestRecentHoldsTheLastSteps(t *testing.T) {
	deadline := func(k uint64) time.Duration { return time.Duration(k) * time.Millisecond }
	for _, steps := range []int{0, 1, 2, 1199, 1200, 1201, 1215, 1216, 1217, 5000} {
		var r ring
		const skip = 1<<32 - 100 // the low half of the index wraps on the way
		for i := range steps {
			r.push(skip+2*uint64(i), time.Duration(i)*ringUnit, 3*time.Microsecond)
		}
		keep := []Sample{{Scheduled: 42}}
		got := r.appendTo(keep, deadline)
		if got[0] != keep[0] {
			t.Fatal("what dst held is lost")
		}
		got = got[1:]
		if want := min(steps, RecentSteps); len(got) != want {
			t.Fatalf("%d of %d steps, want %d", len(got), steps, want)
		}
		for j, s := range got {
			i := steps - len(got) + j
			want := Sample{Scheduled: deadline(skip + 2*uint64(i)), Late: time.Duration(i) * ringUnit, Step: 3 * time.Microsecond}
			if i > 0 {
				want.Interval = 2*time.Millisecond + ringUnit
			}
			if s != want {
				t.Fatalf("%d steps: step %d is %+v, want %+v", steps, i, s, want)
			}
		}
	}
}

func TestRecentSaturates(t *testing.T) {
	var r ring
	r.push(0, time.Hour, -time.Second)
	s := r.appendTo(nil, func(uint64) time.Duration { return 0 })[0]
	if s.Late != (1<<32-1)*ringUnit || s.Step != 0 {
		t.Errorf("%+v", s)
	}
}

// TestRecentWhileWriting reads under a writer that is thousands of times faster than any beat: nothing torn may come out.
func TestRecentWhileWriting(t *testing.T) {
	var r ring
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for k := uint64(0); !stop.Load(); k++ {
			r.push(k, time.Duration(k%1000)*ringUnit, time.Duration(k%999)*ringUnit)
		}
	})
	for r.head.Load() < 2*RecentSteps {
		runtime.Gosched()
	}
	var buf []Sample
	seen := 0
	for range 500 {
		buf = r.appendTo(buf[:0], func(k uint64) time.Duration { return time.Duration(k) })
		seen += len(buf)
		for i, s := range buf {
			k := uint64(s.Scheduled)
			if s.Late != time.Duration(k%1000)*ringUnit || s.Step != time.Duration(k%999)*ringUnit {
				t.Errorf("torn: %+v", s)
			}
			if i > 0 && s.Scheduled != buf[i-1].Scheduled+1 {
				t.Errorf("step %d follows step %d", s.Scheduled, buf[i-1].Scheduled)
			}
		}
		if t.Failed() {
			break
		}
	}
	stop.Store(true)
	wg.Wait()
	if seen == 0 {
		t.Error("the reader never got a step")
	}
}

func TestQuantiles(t *testing.T) {
	if quantiles(nil) != (Quantiles{}) {
		t.Error("no samples must give zeros")
	}
	var d []time.Duration
	for i := 1000; i > 0; i-- {
		d = append(d, time.Duration(i))
	}
	if got := quantiles(d); got != (Quantiles{Mean: 500, P50: 500, P90: 900, P99: 990, Max: 1000}) {
		t.Errorf("%+v", got)
	}
	if got := quantiles([]time.Duration{7}); got != (Quantiles{7, 7, 7, 7, 7}) {
		t.Errorf("%+v", got)
	}
}
