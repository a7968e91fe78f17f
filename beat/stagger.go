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
// few times) it takes the one whose middle is farthest from the other beats' steps, which come several times a send period. Where
// the rates make middles fall onto those steps (two steps a send period: the very first middle does), it moves off the middle.
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
	try := func(phase time.Duration) {
		phase %= round
		if away := c.stepDistance(phase, r.period()); away > bestAway {
			best, bestAway = phase, away
		}
	}
	// Halving leaves gaps that differ by the rounding of a nanosecond; they count as the same. The choice among them is a
	// nicety, and must not make a group of thousands slow to grow.
	var gaps []int
	for i := 0; i < n && len(gaps) < 16; i++ {
		if gap(i)+16 >= widest {
			gaps = append(gaps, i)
			try(c.phases[i] + gap(i)/2)
		}
	}
	// n steps spread evenly leave period/2n at most.
	if bestAway >= r.period()/time.Duration(4*n+4) {
		return best
	}
	free := c.stepGap(r.period())
	for _, i := range gaps {
		mid := c.phases[i] + gap(i)/2
		shift := (free - mid) % r.period()
		if shift > r.period()/2 {
			shift -= r.period()
		} else if shift < -r.period()/2 {
			shift += r.period()
		}
		if shift.Abs() <= gap(i)/4 {
			try(mid + shift)
		}
		try(mid - gap(i)/8)
		try(mid + gap(i)/8)
	}
	return best
}

// stepGap is the middle of the largest gap between the steps of all beats.
func (c *circle) stepGap(period time.Duration) time.Duration {
	at := make([]time.Duration, len(c.phases))
	for i, p := range c.phases {
		at[i] = p % period
	}
	slices.Sort(at)
	last := at[len(at)-1]
	mid, widest := (last+at[0]+period)/2%period, at[0]+period-last
	for i := 1; i < len(at); i++ {
		if gap := at[i] - at[i-1]; gap > widest {
			mid, widest = at[i-1]+gap/2, gap
		}
	}
	return mid
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
