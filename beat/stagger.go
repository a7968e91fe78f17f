package beat

import (
	"slices"
	"time"
)

// circle holds the phases of the beats with the same rates, sorted, inside one send period.
type circle struct{ phases []time.Duration }

// rates names a circle.
type rates struct{ hz, sendHz int }

func (r rates) period() time.Duration     { return time.Second / time.Duration(r.hz) }
func (r rates) sendPeriod() time.Duration { return time.Second / time.Duration(r.sendHz) }

// choose returns the middle of the largest gap. Among gaps of the same size (there are many once the circle has been halved a
// few times) it takes the one whose middle is farthest from the other beats' steps, which come several times a send period.
func (c *circle) choose(r rates) time.Duration {
	n := len(c.phases)
	if n == 0 {
		return 0
	}
	round := r.sendPeriod()
	gap := func(i int) time.Duration {
		if i == n-1 {
			return c.phases[0] + round - c.phases[i]
		}
		return c.phases[i+1] - c.phases[i]
	}
	var widest time.Duration
	for i := range n {
		widest = max(widest, gap(i))
	}
	var best, bestAway time.Duration = 0, -1
	tries := 0
	for i := range n {
		// Halving leaves gaps that differ by the rounding of a nanosecond; they count as the same.
		if gap(i)+16 < widest {
			continue
		}
		mid := (c.phases[i] + gap(i)/2) % round
		if away := c.stepDistance(mid, r.period()); away > bestAway {
			best, bestAway = mid, away
		}
		// The tie-break is a nicety, and must not make a group of thousands slow to grow.
		if tries++; tries == 16 {
			break
		}
	}
	return best
}

// stepDistance is how far a phase is from the nearest step of any other beat.
func (c *circle) stepDistance(phase, period time.Duration) time.Duration {
	nearest := period
	for _, p := range c.phases {
		d := (phase - p) % period
		if d < 0 {
			d += period
		}
		nearest = min(nearest, d, period-d)
	}
	return nearest
}

func (c *circle) add(phase time.Duration) {
	i, _ := slices.BinarySearch(c.phases, phase)
	c.phases = slices.Insert(c.phases, i, phase)
}

func (c *circle) remove(phase time.Duration) {
	if i, found := slices.BinarySearch(c.phases, phase); found {
		c.phases = slices.Delete(c.phases, i, i+1)
	}
}
