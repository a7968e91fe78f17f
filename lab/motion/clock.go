package motion

import (
	"math"
	"slices"
)

// The twin of web/src/clock.ts: the same constants, the same rules, the same names. Whoever changes one changes the other;
// wire/testdata/motion.json holds both to it. Times are milliseconds.
//
// Two clocks over one stream of arrivals: which tick to show now, and which tick an input given now is for.
//
// A packet's offset is its arrival minus its tick's time. The least offset of the last 60 packets is the base: a packet that met no
// delay. Everything above it is jitter. What a packet needs of the render clock is that it has not passed the tick before the packet's
// when the packet comes; the clock stays behind by as much as nearly all packets need, be they late or the ones before them lost.

// window is how many packets the clocks look back over: 3 s at 20 a second.
const window = 60

// Longest buffer in ms. Uncapped, a lossy ordered link drives it to 400 ms for stalls that no buffer hides anyway.
const (
	maxDelayOrdered   = 250
	maxDelayUnordered = 400
)

// pauseMs: what was away for this long was not late, and no buffer is made for it.
const pauseMs = 1000

// arrivals are how late packets come, over the last window of them.
type arrivals struct {
	tickMs float64
	// base is the least arrival − tick time seen. Meaningless while count is 0.
	base float64
	// jitter is the 97th percentile above base.
	jitter  float64
	count   int
	offsets [window]float64
	next    int
}

func (a *arrivals) note(tick, now float64) {
	a.offsets[a.next] = now - tick*a.tickMs
	a.next = (a.next + 1) % window
	a.count = min(a.count+1, window)
	a.base = slices.Min(a.offsets[:a.count])
	a.jitter = high(a.offsets[:a.count]) - a.base
}

// high is the 97th percentile: of 60 the third largest.
func high(of []float64) float64 {
	x, y, z := math.Inf(-1), math.Inf(-1), math.Inf(-1)
	for _, o := range of {
		switch {
		case o > x:
			x, y, z = o, x, y
		case o > y:
			y, z = o, y
		case o > z:
			z = o
		}
	}
	switch {
	case len(of) >= 40:
		return z
	case len(of) >= 20:
		return y
	}
	return x
}

// renderClock turns local time into the tick to show.
type renderClock struct {
	delay  float64
	tick   float64
	jumped bool

	arrivals *arrivals
	periodMs float64
	maxDelay float64
	last     float64
	newest   float64
	needs    [window]float64 // by packet: its arrival − the time of the tick before it, which was the newest until then
	next     int
	count    int
	shown    float64 // ms of server time
}

func newRenderClock(a *arrivals, sendHz float64, ordered bool) *renderClock {
	c := &renderClock{jumped: true, arrivals: a, periodMs: 1000 / max(1, sendHz), last: math.Inf(-1), newest: -1, maxDelay: maxDelayUnordered}
	c.delay = c.periodMs + 10
	if ordered {
		c.maxDelay = maxDelayOrdered
	}
	return c
}

// arrive notes that a packet has come, after arrivals.note.
func (c *renderClock) arrive(tick, now float64) {
	if tick <= c.newest {
		return
	}
	if need := now - c.newest*c.arrivals.tickMs; c.newest >= 0 && need-c.arrivals.base < pauseMs {
		c.needs[c.next] = need
		c.next = (c.next + 1) % window
		c.count = min(c.count+1, window)
	}
	c.newest = tick
	want := min(c.maxDelay, max(c.periodMs, high(c.needs[:c.count])-c.arrivals.base)+10)
	if want > c.delay {
		c.delay += (want - c.delay) * 0.25
	} else {
		c.delay += (want - c.delay) * 0.02
	}
}

func (c *renderClock) advance(now float64) float64 {
	a := c.arrivals
	if a.tickMs == 0 || a.count == 0 {
		c.jumped = math.IsInf(c.last, -1)
		c.last = now
		c.tick = max(0, c.newest)
		return c.tick
	}
	target := now - a.base - c.delay
	dt := now - c.last
	c.last = now
	off := target - c.shown - dt
	if !(dt >= 0 && dt < 500) || math.Abs(off) > 250 {
		c.jumped = true
		c.shown = target
	} else {
		c.jumped = false
		rate := 1.0
		if math.Abs(off) >= 4 {
			rate = 1 + max(-0.05, min(0.05, off/400))
		}
		c.shown += dt * rate
	}
	c.tick = c.shown / a.tickMs
	return c.tick
}

// inputClock says which step an input given now is for.
type inputClock struct {
	lead      float64
	arrivals  *arrivals
	goal      float64
	holdUntil float64
	least     float64
	seen      int
}

func newInputClock(a *arrivals, rttMs, batch float64) *inputClock {
	c := &inputClock{arrivals: a, goal: batch + 1, least: math.Inf(1)}
	if a.tickMs > 0 {
		c.lead = min(rttMs, 100)/a.tickMs + c.goal
	}
	return c
}

func (c *inputClock) label(now float64) float64 {
	a := c.arrivals
	if a.tickMs == 0 || a.count == 0 {
		return 0
	}
	return max(1, math.Floor((now-a.base)/a.tickMs+c.lead))
}

// margin takes what a state packet says: the margin of the newest input that had come by its tick, and that input's label; sent is the
// newest label sent so far.
func (c *inputClock) margin(steps, acked, tick, sent float64) {
	if acked < c.holdUntil {
		return
	}
	// Of inputs that come together after a hold-up, the newest has a good margin. How far it is ahead of the packet's tick shows the hold-up.
	steps = min(steps, acked-tick-1+c.goal-1)
	if steps < c.goal-1 {
		c.change(min(30, c.goal-steps), sent)
		return
	}
	c.least = min(c.least, steps)
	if c.seen++; c.seen < window {
		return
	}
	if over := c.least - c.goal; over > 6 {
		c.change(3-over, sent)
	} else if over > 1 {
		c.change(-over/2, sent)
	}
	c.seen, c.least = 0, math.Inf(1)
}

func (c *inputClock) change(by, sent float64) {
	c.lead = max(0, min(c.lead+by, 1000/c.arrivals.tickMs))
	c.holdUntil = sent + 1
	c.seen, c.least = 0, math.Inf(1)
}
