package beat

import (
	"slices"
	"sync/atomic"
	"time"
)

// RecentSteps is how many of the last steps a beat remembers one by one.
const RecentSteps = 1200

// Sample is one executed step. Late, Interval and Step are exact to about 0.1 µs and saturate at 429 s.
type Sample struct {
	// Scheduled is the step's deadline on the group's clock.
	Scheduled time.Duration
	// Late is by how much the step began after its deadline.
	Late time.Duration
	// Interval is the time since the step before began. 0: it was the beat's first.
	Interval time.Duration
	// Step is how long the step ran.
	Step time.Duration
}

// ring holds the last steps. The beat's thread writes and never waits: a lock here would let a reader that the kernel has put
// aside hold up the beat. A reader copies what it finds and then discards what was overwritten meanwhile; the spare cells are
// there so that this leaves RecentSteps of them. 12 bytes a step, 14.6 KB a beat.
type ring struct {
	head   atomic.Uint64 // number of steps written
	newest atomic.Uint64 // grid index of the newest one
	cell   [RecentSteps + 16]struct {
		k    atomic.Uint32 // low half of the grid index
		late atomic.Uint32 // in ringUnit
		step atomic.Uint32 // in ringUnit
	}
}

const ringUnit = 100 * time.Nanosecond

func toUnit(d time.Duration) uint32 {
	return uint32(min(max((d+ringUnit/2)/ringUnit, 0), 1<<32-1))
}

func (r *ring) push(k uint64, late, step time.Duration) {
	h := r.head.Load()
	c := &r.cell[h%uint64(len(r.cell))]
	c.k.Store(uint32(k))
	c.late.Store(toUnit(late))
	c.step.Store(toUnit(step))
	r.newest.Store(k)
	r.head.Store(h + 1)
}

// appendTo appends the last steps, oldest first.
func (r *ring) appendTo(dst []Sample, deadline func(k uint64) time.Duration) []Sample {
	const size = uint64(len(ring{}.cell))
	first := len(dst)
	for try := 0; ; try++ {
		end := r.head.Load()
		begin := end - min(end, RecentSteps+1) // one more, for the first interval
		for i := begin; i < end; i++ {
			c := &r.cell[i%size]
			dst = append(dst, Sample{
				Scheduled: time.Duration(c.k.Load()),
				Late:      time.Duration(c.late.Load()) * ringUnit,
				Step:      time.Duration(c.step.Load()) * ringUnit,
			})
		}
		newest := r.newest.Load()
		// The cell of step now-size may be in the middle of being overwritten by step now.
		now := r.head.Load()
		lost := 0
		if now >= size {
			lost = int(min(max(now-size+1, begin)-begin, end-begin))
		}
		if lost > 1 && try < 3 {
			// Overtaken by more than the spare cells: this reader was put aside for long. Again, but not for ever: in the
			// end fewer steps are an answer too.
			dst = dst[:first]
			continue
		}
		dst = slices.Delete(dst, first, first+lost)
		begin += uint64(lost)

		for i := first; i < len(dst); i++ {
			s := &dst[i]
			// newest is at most a few steps ahead of any k here, so the low halves tell the whole.
			s.Scheduled = deadline(newest - uint64(uint32(newest)-uint32(s.Scheduled)))
			if i > first {
				s.Interval = max(s.Scheduled+s.Late-dst[i-1].Scheduled-dst[i-1].Late, 0)
			}
		}
		// The oldest one only served for the interval of the next, unless it is the very first step.
		if len(dst) > first && (begin > 0 || len(dst)-first > RecentSteps) {
			dst = slices.Delete(dst, first, first+1)
		}
		return dst
	}
}

// Quantiles of a few samples, exact (nearest rank), and their mean.
type Quantiles struct {
	Mean time.Duration `json:"mean"`
	P50  time.Duration `json:"p50"`
	P90  time.Duration `json:"p90"`
	P99  time.Duration `json:"p99"`
	Max  time.Duration `json:"max"`
}

func quantiles(d []time.Duration) Quantiles {
	if len(d) == 0 {
		return Quantiles{}
	}
	slices.Sort(d)
	rank := func(percent int) time.Duration { return d[(len(d)*percent+99)/100-1] }
	var sum time.Duration
	for _, x := range d {
		sum += x
	}
	return Quantiles{Mean: sum / time.Duration(len(d)), P50: rank(50), P90: rank(90), P99: rank(99), Max: d[len(d)-1]}
}
