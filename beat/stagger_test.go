package beat

import (
	"slices"
	"testing"
	"time"
)

func TestAutoPhaseTakesTheLargestGap(t *testing.T) {
	m := newManual(t)
	c := Config{Hz: 60, SendHz: 20, Phase: Auto, Step: func(uint64, time.Duration) {}}
	const round = 50 * time.Millisecond
	var beats []*Beat
	for len(beats) < 16 {
		beats = append(beats, m.add(t, c))
	}
	want := func(gap time.Duration) {
		t.Helper()
		var p []time.Duration
		for _, b := range beats {
			p = append(p, b.Offset())
		}
		slices.Sort(p)
		var widest time.Duration
		for i := range p {
			next := p[0] + round
			if i+1 < len(p) {
				next = p[i+1]
			}
			widest = max(widest, next-p[i])
		}
		if widest < gap || widest > gap+16 {
			t.Errorf("widest gap among %d beats is %v, want %v", len(p), widest, gap)
		}
	}
	want(round / 16)
	steps := make(map[time.Duration]bool)
	for _, b := range beats {
		steps[b.Offset()%(time.Second/60)/(100*time.Microsecond)] = true
	}
	if len(steps) < 15 {
		t.Errorf("16 beats share %d places on the step's circle", len(steps))
	}

	// A place that becomes free is taken again.
	freed := beats[5].Offset()
	beats[5].Stop()
	beats[5] = m.add(t, c)
	if got := beats[5].Offset(); got < freed-2 || got > freed+2 {
		t.Errorf("the new beat sits at %v, the gap's middle is %v", got, freed)
	}
	// Two neighbours leave: their gap is three times as wide.
	sorted := slices.Clone(beats)
	slices.SortFunc(sorted, func(a, b *Beat) int { return int(a.Offset() - b.Offset()) })
	left, right := sorted[3].Offset(), sorted[6].Offset()
	sorted[4].Stop()
	sorted[5].Stop()
	if got, mid := m.add(t, c).Offset(), (left+right)/2; got < mid-2 || got > mid+2 {
		t.Errorf("the new beat sits at %v, the gap's middle is %v", got, mid)
	}
	// Other rates have a circle of their own.
	if got := m.add(t, Config{Hz: 30, SendHz: 20, Phase: Auto, Step: c.Step}).Offset(); got != 0 {
		t.Errorf("the first beat of its rates sits at %v", got)
	}
}

// TestAutoPhaseKeepsStepsApart: steps come several times a send period, so phases that are far apart may still collide.
func TestAutoPhaseKeepsStepsApart(t *testing.T) {
	for _, r := range []rates{{60, 20}, {60, 30}, {60, 60}, {60, 15}, {40, 20}, {60, 10}, {60, 25}, {1000, 1}} {
		var c circle
		for n := 1; n <= 32; n++ {
			p := c.choose(r)
			if n > 1 {
				if d, ideal := c.stepDistance(p, r.period()), r.period()/time.Duration(n); d < ideal/12 {
					t.Errorf("%v: beat %d's steps are %v from another's; evenly spread they would be %v", r, n, d, ideal)
				}
			}
			c.add(p)
			widest := c.phases[0] + r.sendPeriod() - c.phases[n-1]
			for i := 1; i < n; i++ {
				widest = max(widest, c.phases[i]-c.phases[i-1])
			}
			if ideal := r.sendPeriod() / time.Duration(n); widest > ideal*26/10 {
				t.Errorf("%v: a gap of %v among %d beats; evenly spread it would be %v", r, widest, n, ideal)
			}
		}
	}
}

func TestPhasesHoldAcrossBeats(t *testing.T) {
	m := newManual(t)
	var starts []time.Duration
	for i := range 5 {
		m.runTo(m.clock.Now() + 123456789)
		b := m.add(t, Config{Hz: 60, SendHz: 20, Phase: 7 * time.Millisecond, Step: func(uint64, time.Duration) {}})
		if d := (b.base - m.origin - 7*time.Millisecond) % (50 * time.Millisecond); d != 0 {
			t.Errorf("beat %d is %v off the group's grid", i, d)
		}
		if b.due <= m.clock.Now() || b.due > m.clock.Now()+time.Second/60+maxSleep {
			t.Errorf("beat %d added at %v is first due at %v", i, m.clock.Now(), b.due)
		}
		starts = append(starts, b.due)
	}
	if !slices.IsSorted(starts) {
		t.Error(starts)
	}
}

func TestManyLiveBeatsAreAddedFast(t *testing.T) {
	m := newManual(t)
	for range 2000 {
		m.add(t, Config{Hz: 60, SendHz: 20, Phase: Auto, Step: func(uint64, time.Duration) {}})
	}
	if n := m.Stats().Beats; n != 2000 {
		t.Errorf("%d beats", n)
	}
	m.Close()
	if len(m.circles) != 0 || len(m.beats) != 0 {
		t.Error("Close left beats behind")
	}
}
