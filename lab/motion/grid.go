package motion

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
)

// GridOptions choose what Grid runs. The zero value runs all cells for a minute each.
type GridOptions struct {
	// For is how long each cell plays, in its own time. Default one minute.
	For time.Duration
	// Shown is how many of the 32 clients of a cell show what they get. Default 16.
	Shown int
	// Seed makes the world and the chances. Default 1.
	Seed uint64
}

// gridDelayMs is how long a packet takes at least in the grid's cells.
const gridDelayMs = 40

// target is what a cell is to reach: at most these. 0: there is none.
type target struct{ ratio, jumpPct, speedPct, delayMs, starvedPct float64 }

// cells are the grid: losses of 0, 5 and 10 %, jitters of 20, 60 and 100 ms, links that keep the order or not.
func cells(o GridOptions) (all []Cell) {
	for _, ordered := range []bool{false, true} {
		for _, loss := range []float64{0, 0.05, 0.1} {
			for _, jitter := range []float64{20, 60, 100} {
				all = append(all, Cell{Loss: loss, DelayMs: gridDelayMs, JitterMs: jitter, Ordered: ordered, Seconds: int(o.For / time.Second), Shown: o.Shown, Seed: o.Seed})
			}
		}
	}
	return all
}

// target is the cell's, as docs/measuring.md has it.
func (c *Cell) target() target {
	switch {
	case c.Loss == 0 && c.JitterMs <= 20:
		return target{1.1, 0.1, 1.5, 140, 0.1}
	case c.Loss == 0:
		return target{1.1, 0.1, 1.5, 220, 0.1}
	case c.Loss <= 0.05 && !c.Ordered:
		return target{1.15, 0.2, 2, 260, 0.2}
	case !c.Ordered:
		return target{1.2, 0.3, 2, 260, 0.2}
	case c.Loss <= 0.05:
		return target{1.3, 0.3, 4, 320, 0}
	}
	return target{0, 1.5, 8, gridDelayMs + maxDelayOrdered + 50, 0}
}

// misses names what is over the target.
func (t target) misses(f *Figures) (names []string) {
	for _, x := range []struct {
		name        string
		value, most float64
	}{{"jolt ratio", f.JoltRatio, t.ratio}, {"jump frames", f.JumpPct, t.jumpPct}, {"speed error", f.SpeedErrorPct, t.speedPct}, {"delay", f.DelayMs, t.delayMs}, {"starved", f.StarvedPct, t.starvedPct}} {
		if x.most > 0 && !(x.value <= x.most) {
			names = append(names, x.name)
		}
	}
	return names
}

func link(ordered bool) string {
	if ordered {
		return "ordered"
	}
	return "unordered"
}

// outcome is what became of a cell.
type outcome struct {
	f   *Figures
	err error
}

// runAll runs cells, as many at once as there are processors, and tells what became of each, in their order. When stop is called it returns
// once none runs any more.
func runAll(ctx context.Context, all []Cell) (outcomes []chan outcome, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	next := make(chan int, len(all))
	for i := range all {
		outcomes = append(outcomes, make(chan outcome, 1))
		next <- i
	}
	close(next)
	for range min(runtime.GOMAXPROCS(0), len(all)) {
		wg.Go(func() {
			for i := range next {
				f, err := Run(ctx, all[i])
				outcomes[i] <- outcome{f, err}
			}
		})
	}
	return outcomes, func() {
		cancel()
		wg.Wait()
	}
}

// Grid runs the cells and prints two tables to w, in Markdown: what was shown, and what became of the inputs. It returns how many figures
// missed their target. Lengths of the world are taken for metres.
func Grid(ctx context.Context, w io.Writer, o GridOptions) (missed int, err error) {
	fmt.Fprintln(w, "| loss | jitter ms | link | jolt p50 mm | p99 | max | true p99 | ratio | jump frames % | speed error mean % | p99 % | past the newest % | off, rms cm | delay ms | 80 to 160 m: jolt p99 mm, jumps % | 160 to 250 m | misses |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	all := cells(o)
	outcomes, stop := runAll(ctx, all)
	defer stop()
	var got []*Figures
	for i, c := range all {
		r := <-outcomes[i]
		if r.err != nil {
			return missed, r.err
		}
		f := r.f
		got = append(got, f)
		names := c.target().misses(f)
		missed += len(names)
		fmt.Fprintf(w, "| %.0f %% | %.0f | %s | %.2f | %.1f | %.0f | %.1f | %.2f | %.3f | %.2f | %.1f | %.2f | %.2f | %.0f | %.1f, %.2f | %.1f, %.2f | %s |\n", 100*c.Loss, c.JitterMs, link(c.Ordered),
			1000*f.JoltP50, 1000*f.JoltP99, 1000*f.JoltMax, 1000*f.TrueJoltP99, f.JoltRatio, f.JumpPct, f.SpeedErrorPct, f.SpeedErrorP99Pct, f.UnderrunPct(), 100*f.OffRMS, f.DelayMs,
			1000*f.Rings[0].JoltP99, f.Rings[0].JumpPct, 1000*f.Rings[1].JoltP99, f.Rings[1].JumpPct, list(names))
	}
	fmt.Fprintln(w, "\n| loss | jitter ms | link | input messages a second, inputs in each | starved steps % | most in a row | lead ms |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|")
	for i, c := range all {
		if err := c.fill(); err != nil {
			return missed, err
		}
		f := got[i]
		fmt.Fprintf(w, "| %.0f %% | %.0f | %s | %d, %d | %.3f | %d | %.0f |\n", 100*c.Loss, c.JitterMs, link(c.Ordered), c.InputHz, c.Repeat, f.StarvedPct, f.StarvedMax, f.LeadMs)
	}
	kinds := map[string][]Motion{}
	for _, f := range got {
		for name, m := range f.Kinds {
			kinds[name] = append(kinds[name], m)
		}
	}
	fmt.Fprintln(w, "\n| all cells, within 80 m | jolt p99 mm, least and most | true p99 mm | ratio | jump frames % | speed error mean % |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|")
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		span := func(of func(m *Motion) float64) string {
			least, most := math.Inf(1), 0.0
			for i := range kinds[name] {
				v := of(&kinds[name][i])
				least, most = min(least, v), max(most, v)
			}
			return fmt.Sprintf("%.2f to %.2f", least, most)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", name, span(func(m *Motion) float64 { return 1000 * m.JoltP99 }), span(func(m *Motion) float64 { return 1000 * m.TrueJoltP99 }),
			span(func(m *Motion) float64 { return m.JoltRatio }), span(func(m *Motion) float64 { return m.JumpPct }), span(func(m *Motion) float64 { return m.SpeedErrorPct }))
	}
	return missed, nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	s := names[0]
	for _, n := range names[1:] {
		s += ", " + n
	}
	return s
}
