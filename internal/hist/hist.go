// Package hist counts durations in a log-linear histogram: small, never blocking, and exact enough to state a p99.
//
// Values from 100 ns to 100 s are kept with a relative error of at most 0.4 %; below 256 ns they are exact to the nanosecond.
// Shorter ones count as what they are, negative ones as 0, and those above 137 s as about 137 s; Max and Mean are exact always.
//
// The smallest use:
//
//	var h hist.Histogram
//	h.Record(time.Since(start))
//	fmt.Println(h.Quantile(0.99))
//
// Not here: names, labels and output formats. The package starts no goroutine.
package hist

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets: row 0 holds 0 … 127 ns in steps of 1 ns; row r ≥ 1 holds the octave [2^(r+6), 2^(r+7)) ns in 128 steps. A bucket is
// then at most 1/128 of its lower bound wide, and its middle at most 1/256 = 0.39 % away from any value in it.
const (
	subBits = 7
	subs    = 1 << subBits
	rows    = 31
	topNs   = int64(1)<<(subBits+rows-1) - 1 // 137.4 s
)

// place returns the row and column of a value.
func place(ns int64) (row, col int) {
	ns = min(max(ns, 0), topNs)
	row = max(bits.Len64(uint64(ns))-subBits, 0)
	if row == 0 {
		return 0, int(ns)
	}
	return row, int(ns>>(row-1)) - subs
}

// middle returns the value that stands for a bucket.
func middle(row, col int) time.Duration {
	if row == 0 {
		return time.Duration(col)
	}
	low := int64(subs+col) << (row - 1)
	return time.Duration(low + (int64(1)<<(row-1))/2)
}

type cells [subs]atomic.Uint64

// Histogram counts durations. The zero value is empty and ready; it must not be copied after first use. An unused one takes
// 264 bytes, each octave that is hit for the first time 1 KiB more.
//
// All methods may be called from any goroutine at any time. Readers see each sample wholly or not at all in the counts; a
// sample recorded during a read may be missing from it.
type Histogram struct {
	row [rows]atomic.Pointer[cells]
	sum atomic.Int64 // ns; good for 292 years in total
	max atomic.Int64
}

// Record counts d. It takes no lock, and allocates only on the first value of an octave.
func (h *Histogram) Record(d time.Duration) {
	ns := max(int64(d), 0)
	r, c := place(ns)
	p := h.row[r].Load()
	if p == nil {
		p = h.open(r)
	}
	p[c].Add(1)
	h.sum.Add(ns)
	for {
		m := h.max.Load()
		if ns <= m || h.max.CompareAndSwap(m, ns) {
			return
		}
	}
}

// open is apart so that Record stays free of allocations in the eyes of the compiler's escape analysis and of its reader.
//
//go:noinline
func (h *Histogram) open(r int) *cells {
	p := new(cells)
	if h.row[r].CompareAndSwap(nil, p) {
		return p
	}
	return h.row[r].Load()
}

// Snapshot returns a copy of the counts, for questions that must fit together.
func (h *Histogram) Snapshot() *Snapshot { return h.read(false) }

// Take returns the counts and sets them to zero. Each sample ends up in exactly one Take, so the sum of all of them and of the
// present counts never loses one; a sample recorded meanwhile may have its count in one and its share of the mean in the other.
func (h *Histogram) Take() *Snapshot { return h.read(true) }

// Reset forgets everything recorded before the call.
func (h *Histogram) Reset() { h.read(true) }

func (h *Histogram) read(clear bool) *Snapshot {
	s := new(Snapshot)
	for r := range h.row {
		p := h.row[r].Load()
		if p == nil {
			continue
		}
		q := new([subs]uint64)
		for c := range p {
			if clear {
				// Most cells are empty, and a load leaves their cache line shared.
				if p[c].Load() != 0 {
					q[c] = p[c].Swap(0)
				}
			} else {
				q[c] = p[c].Load()
			}
			s.count += q[c]
		}
		s.row[r] = q
	}
	if clear {
		s.sum, s.max = h.sum.Swap(0), h.max.Swap(0)
	} else {
		s.sum, s.max = h.sum.Load(), h.max.Load()
	}
	return s
}

// Count returns the number of samples.
func (h *Histogram) Count() uint64 {
	var n uint64
	for r := range h.row {
		if p := h.row[r].Load(); p != nil {
			for c := range p {
				n += p[c].Load()
			}
		}
	}
	return n
}

// Max returns the longest sample exactly, 0 if there is none.
func (h *Histogram) Max() time.Duration { return time.Duration(h.max.Load()) }

// Mean returns the exact mean in whole nanoseconds, 0 if there is no sample.
func (h *Histogram) Mean() time.Duration { return h.Snapshot().Mean() }

// Quantile is [Snapshot.Quantile] of the present counts. For several quantiles take one Snapshot.
func (h *Histogram) Quantile(q float64) time.Duration { return h.Snapshot().Quantile(q) }

// Summary is [Snapshot.Summary] of the present counts.
func (h *Histogram) Summary(unit time.Duration) Summary { return h.Snapshot().Summary(unit) }

// Snapshot is a histogram that no longer changes by itself. The zero value is empty and ready. It is not safe for use by
// several goroutines while one of them calls Merge.
type Snapshot struct {
	row   [rows]*[subs]uint64
	count uint64
	sum   int64
	max   int64
}

// Merge adds the samples of o, which stays as it is. A nil o adds nothing.
func (s *Snapshot) Merge(o *Snapshot) {
	if o == nil {
		return
	}
	for r, p := range o.row {
		if p == nil {
			continue
		}
		if s.row[r] == nil {
			s.row[r] = new([subs]uint64)
		}
		for c, n := range p {
			s.row[r][c] += n
		}
	}
	s.count += o.count
	s.sum += o.sum
	s.max = max(s.max, o.max)
}

// Since returns the samples of s that o, an earlier snapshot of the same histogram, does not have. Their Max is exact only if it is the
// histogram's own, else within 0.4 %. If the histogram was reset in between, which shows by fewer samples in some bucket, or o is nil, they
// are those of s.
func (s *Snapshot) Since(o *Snapshot) *Snapshot {
	if o == nil {
		return s
	}
	d := &Snapshot{sum: s.sum - o.sum}
	for r, p := range s.row {
		was := o.row[r]
		if p == nil {
			if was != nil {
				return s
			}
			continue
		}
		q := *p
		for c := range q {
			if was != nil {
				if was[c] > q[c] {
					return s
				}
				q[c] -= was[c]
			}
			if q[c] > 0 {
				d.count += q[c]
				d.max = int64(middle(r, c))
			}
		}
		d.row[r] = &q
	}
	if s.max > o.max {
		d.max = s.max
	}
	d.max = min(d.max, s.max)
	return d
}

// Count returns the number of samples.
func (s *Snapshot) Count() uint64 { return s.count }

// Max returns the longest sample exactly, 0 if there is none.
func (s *Snapshot) Max() time.Duration { return time.Duration(s.max) }

// Sum returns the exact sum of all samples.
func (s *Snapshot) Sum() time.Duration { return time.Duration(s.sum) }

// Mean returns the exact mean in whole nanoseconds, 0 if there is no sample.
func (s *Snapshot) Mean() time.Duration {
	if s.count == 0 {
		return 0
	}
	return time.Duration(s.sum / int64(s.count))
}

// Quantile returns the value at or below which a share q of the samples lies (nearest rank), within 0.4 %. Quantile(1) is Max;
// a q outside 0 … 1 is taken as the nearer end, and NaN as 1. It is 0 if there is no sample.
func (s *Snapshot) Quantile(q float64) time.Duration {
	if s.count == 0 {
		return 0
	}
	if !(q < 1) {
		return s.Max()
	}
	rank := max(uint64(math.Ceil(q*float64(s.count))), 1)
	if q <= 0 {
		rank = 1
	}
	var seen uint64
	for r, p := range s.row {
		if p == nil {
			continue
		}
		for c, n := range p {
			if seen += n; seen >= rank {
				return min(middle(r, c), s.Max())
			}
		}
	}
	return s.Max()
}

// Cumulative appends, for each bound, the number of samples at or below it, as a Prometheus histogram wants them. The bounds
// must ascend. A sample within 0.4 % of a bound may fall on either side of it.
func (s *Snapshot) Cumulative(dst []uint64, bounds []time.Duration) []uint64 {
	var seen uint64
	r, c := 0, 0
	for _, b := range bounds {
		for r < rows {
			p := s.row[r]
			if p == nil {
				if middle(r, 0) > b {
					break
				}
				r, c = r+1, 0
				continue
			}
			if middle(r, c) > b {
				break
			}
			seen += p[c]
			if c++; c == subs {
				r, c = r+1, 0
			}
		}
		dst = append(dst, seen)
	}
	return dst
}

// Summary is a histogram in six numbers, in the unit that Summary was asked for.
type Summary struct {
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
	Mean  float64 `json:"mean"`
	Count uint64  `json:"count"`
}

// Summary states the samples in multiples of unit, such as time.Millisecond. A unit that is not positive means nanoseconds.
func (s *Snapshot) Summary(unit time.Duration) Summary {
	if unit <= 0 {
		unit = time.Nanosecond
	}
	in := func(d time.Duration) float64 { return float64(d) / float64(unit) }
	return Summary{
		P50: in(s.Quantile(0.50)), P90: in(s.Quantile(0.90)), P99: in(s.Quantile(0.99)),
		Max: in(s.Max()), Mean: in(s.Mean()), Count: s.count,
	}
}
