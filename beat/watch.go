package beat

import (
	"slices"
	"time"
)

// watch is the watchdog: it gives up beats whose step runs longer than HangAfter. It sleeps until the first step that runs now
// could be too long, so it finds each hang at its very moment and yet wakes about once in HangAfter.
func (g *Group) watch() {
	defer close(g.watchDone)
	g.mu.Lock()
	g.watchID = goroutineID()
	g.mu.Unlock()
	timer := time.NewTimer(g.opts.HangAfter)
	defer timer.Stop()
	var (
		planned = g.clock.Now() + g.opts.HangAfter
		floor   time.Duration // steps count as begun no earlier than this
		excused bool
	)
	for {
		select {
		case <-g.quit:
			return
		case <-timer.C:
		}
		now := g.clock.Now()
		// A watchdog that comes much too late was itself not run, and the steps it finds were not either: they get as long
		// again. But only once in a row, or a starved machine would hide every hang.
		if late := now - planned; late > g.opts.HangAfter/2 && !excused {
			floor, excused = now, true
		} else {
			excused = false
		}
		hung, wait, idle := g.look(now, floor)
		for _, b := range hung {
			g.tellHung(b)
		}
		if idle {
			select {
			case <-g.quit:
				return
			case <-g.poke:
			}
			wait = g.opts.HangAfter
		}
		planned = g.clock.Now() + wait
		timer.Reset(wait)
	}
}

func (g *Group) tellHung(b *Beat) {
	if g.opts.OnHang == nil {
		return
	}
	defer func() {
		if recover() != nil {
			g.hookPanics.Add(1)
		}
	}()
	g.opts.OnHang(b)
}

// look gives up the steps that run too long, and says how long no other step can be, and whether there is nothing to watch.
func (g *Group) look(now, floor time.Duration) (hung []*Beat, wait time.Duration, idle bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wait, idle = g.opts.HangAfter, true
	for _, t := range slices.Clone(g.threads) {
		if len(t.heap) > 0 {
			idle = false
		}
		since := t.since.Load()
		if since == 0 {
			continue
		}
		idle = false
		left := max(time.Duration(since-1), floor) + g.opts.HangAfter - now
		if left > 0 {
			wait = min(wait, left)
			continue
		}
		t.mu.Lock()
		// Only if it is still the same step.
		if t.since.Load() == since {
			hung = append(hung, t.running)
			g.giveUp(t)
		}
		t.mu.Unlock()
	}
	return hung, wait, idle
}

// giveUp disowns the step that t is stuck in. mu and t's mu are held.
func (g *Group) giveUp(t *thread) {
	b := t.running
	b.end(Hung)
	b.state.Store(int32(Hung))
	b.finish()
	t.hung = true
	close(t.lost)
	g.hung++
	g.stuck.Add(1)
	g.replace(t)
}
