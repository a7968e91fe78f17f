package hist

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"
)

func TestEveryValueIsWithinItsError(t *testing.T) {
	check := func(ns int64) {
		r, c := place(ns)
		got := int64(middle(r, c))
		if diff := math.Abs(float64(got - ns)); diff > 0.004*float64(ns) {
			t.Fatalf("%d ns stands in row %d col %d as %d", ns, r, c, got)
		}
		if r2, c2 := place(got); r2 != r || c2 != c {
			t.Fatalf("the middle %d of row %d col %d lies in row %d col %d", got, r, c, r2, c2)
		}
	}
	for ns := int64(0); ns < 70_000; ns++ {
		check(ns)
	}
	for e := 10; e <= 36; e++ {
		for _, d := range []int64{-1, 0, 1} {
			check(int64(1)<<e + d)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 100_000 {
		check(int64(100 * math.Pow(1e9, rng.Float64())))
	}
	check(100e9)
	if r, c := place(math.MaxInt64); r != rows-1 || c != subs-1 {
		t.Fatalf("the longest duration lies in row %d col %d", r, c)
	}
	if r, c := place(-5); r != 0 || c != 0 {
		t.Fatalf("a negative duration lies in row %d col %d", r, c)
	}
}

func TestQuantilesAgainstSortedSamples(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	var h Histogram
	var all []time.Duration
	var sum int64
	for range 20_000 {
		d := time.Duration(math.Exp(rng.NormFloat64()*2 + 12))
		all = append(all, d)
		sum += int64(d)
		h.Record(d)
	}
	slices.Sort(all)
	s := h.Snapshot()
	for _, q := range []float64{0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 0.99999, 1} {
		want := all[max(int(math.Ceil(q*float64(len(all))))-1, 0)]
		got := s.Quantile(q)
		if math.Abs(float64(got-want)) > 0.004*float64(want) {
			t.Errorf("quantile %g: %v, sorted samples say %v", q, got, want)
		}
		if h.Quantile(q) != got {
			t.Errorf("quantile %g differs between histogram and snapshot", q)
		}
	}
	if s.Max() != all[len(all)-1] || h.Max() != s.Max() {
		t.Errorf("max %v, want %v", s.Max(), all[len(all)-1])
	}
	if want := time.Duration(sum / int64(len(all))); s.Mean() != want || h.Mean() != want || int64(s.Sum()) != sum {
		t.Errorf("mean %v, want %v", s.Mean(), want)
	}
	if s.Count() != uint64(len(all)) || h.Count() != s.Count() {
		t.Errorf("count %d, want %d", s.Count(), len(all))
	}
}

func TestEmpty(t *testing.T) {
	var h Histogram
	if h.Count() != 0 || h.Max() != 0 || h.Mean() != 0 || h.Quantile(0.5) != 0 {
		t.Error("an empty histogram must answer 0")
	}
	if h.Summary(time.Second) != (Summary{}) {
		t.Error("an empty summary must be zero")
	}
	if n := unsafe.Sizeof(h); n > 320 {
		t.Errorf("an unused histogram takes %d bytes", n)
	}
	if got := h.Snapshot().Cumulative(nil, []time.Duration{1, time.Second, time.Hour}); !slices.Equal(got, []uint64{0, 0, 0}) {
		t.Errorf("cumulative counts of nothing: %v", got)
	}
	if got := h.Snapshot().Quantile(math.NaN()); got != 0 {
		t.Errorf("NaN quantile of nothing: %v", got)
	}
}

func TestResetTakeMerge(t *testing.T) {
	var a, b Histogram
	for i := range 100 {
		a.Record(time.Duration(i) * time.Millisecond)
		b.Record(time.Duration(i) * time.Second)
	}
	total := a.Take()
	if a.Count() != 0 || a.Max() != 0 || a.Mean() != 0 {
		t.Error("Take must leave nothing")
	}
	total.Merge(b.Snapshot())
	total.Merge(nil)
	if total.Count() != 200 || total.Max() != 99*time.Second || total.Sum() != 4950*(time.Second+time.Millisecond) {
		t.Errorf("merged: %d samples, max %v, sum %v", total.Count(), total.Max(), total.Sum())
	}
	if b.Count() != 100 {
		t.Error("Snapshot must not change the histogram")
	}
	b.Reset()
	b.Record(time.Microsecond)
	if b.Count() != 1 || b.Max() != time.Microsecond {
		t.Errorf("after Reset: %d samples, max %v", b.Count(), b.Max())
	}
}

func TestCumulative(t *testing.T) {
	var h Histogram
	for i := 1; i <= 1000; i++ {
		h.Record(time.Duration(i) * time.Millisecond)
	}
	h.Record(-time.Second)
	h.Record(200 * time.Second)
	bounds := []time.Duration{-1, 0, 100 * time.Microsecond, 100500 * time.Microsecond, 700500 * time.Microsecond, time.Hour}
	got := h.Snapshot().Cumulative(nil, bounds)
	for i, want := range []float64{0, 1, 1, 101, 701, 1002} {
		if math.Abs(float64(got[i])-want) > 0.004*want {
			t.Errorf("at or below %v: %d, want about %g", bounds[i], got[i], want)
		}
	}
	if !slices.IsSorted(got) {
		t.Errorf("cumulative counts fall: %v", got)
	}
	if got[len(got)-1] != h.Count() {
		t.Errorf("the last bound holds %d of %d", got[len(got)-1], h.Count())
	}
}

func TestSummaryJSON(t *testing.T) {
	var h Histogram
	h.Record(128 * time.Nanosecond)
	h.Record(128 * time.Nanosecond)
	raw, err := json.Marshal(h.Summary(0))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"p50":128,"p90":128,"p99":128,"max":128,"mean":128,"count":2}`; string(raw) != want {
		t.Errorf("got %s, want %s", raw, want)
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	var h Histogram
	h.Record(time.Millisecond)
	if n := testing.AllocsPerRun(1000, func() { h.Record(time.Millisecond) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

// TestConcurrent loses no sample, whoever takes and records meanwhile.
func TestConcurrent(t *testing.T) {
	const writers, each = 4, 20_000
	var h Histogram
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				h.Record(time.Duration(w+1) << (i % 30))
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	total := new(Snapshot)
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		total.Merge(h.Take())
	}
	if total.Count() != writers*each {
		t.Errorf("%d of %d samples", total.Count(), writers*each)
	}
	var want time.Duration
	for w := range writers {
		for i := range each {
			want += time.Duration(w+1) << (i % 30)
		}
	}
	if total.Sum() != want {
		t.Errorf("sum %v, want %v", total.Sum(), want)
	}
}

func BenchmarkRecord(b *testing.B) {
	var h Histogram
	b.ReportAllocs()
	for i := range b.N {
		h.Record(time.Duration(i & 0xfffff))
	}
}

func TestSince(t *testing.T) {
	var h Histogram
	for range 100 {
		h.Record(time.Millisecond)
	}
	old := h.Snapshot()
	if d := old.Since(nil); d.Count() != 100 {
		t.Errorf("since nothing: %d", d.Count())
	}
	if d := h.Snapshot().Since(old); d.Count() != 0 || d.Quantile(0.99) != 0 {
		t.Errorf("nothing new: %d, p99 %v", d.Count(), d.Quantile(0.99))
	}
	for range 50 {
		h.Record(30 * time.Microsecond)
	}
	d := h.Snapshot().Since(old)
	if p := d.Quantile(0.99); d.Count() != 50 || p < 29*time.Microsecond || p > 31*time.Microsecond || d.Max() > 31*time.Microsecond || d.Sum() != 1500*time.Microsecond {
		t.Errorf("%d samples, p99 %v, max %v, sum %v", d.Count(), p, d.Max(), d.Sum())
	}
	h.Record(time.Second)
	if d := h.Snapshot().Since(old); d.Count() != 51 || d.Max() != time.Second {
		t.Errorf("%d samples, max %v", d.Count(), d.Max())
	}
	old = h.Snapshot()
	h.Reset()
	h.Record(time.Microsecond)
	if d := h.Snapshot().Since(old); d.Count() != 1 || d.Max() != time.Microsecond {
		t.Errorf("after a reset: %d samples, max %v", d.Count(), d.Max())
	}
}
