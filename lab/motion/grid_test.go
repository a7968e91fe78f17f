package motion

import (
	"fmt"
	"testing"
)

// The worst links with a target of each kind meet it. The whole grid is drumline bench --simulate.
func TestGrid(t *testing.T) {
	for _, c := range cells(GridOptions{}) {
		if c.JitterMs != 100 || c.Ordered && c.Loss != 0.05 || !c.Ordered && c.Loss != 0.1 {
			continue
		}
		c.Seconds, c.Shown, c.settleS = 4, 8, 3
		t.Run(fmt.Sprintf("%.0f %%, %.0f ms, %s", 100*c.Loss, c.JitterMs, link(c.Ordered)), func(t *testing.T) {
			f, err := Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if names := c.target().misses(f); names != nil {
				t.Errorf("misses %v: %+v, %.3f %% starved", names, f.Motion, f.StarvedPct)
			}
		})
	}
}

// A second of 32 clients of which 8 show what they get, after one to settle.
func BenchmarkRun(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Run(b.Context(), Cell{Loss: 0.05, DelayMs: gridDelayMs, JitterMs: 60, Seconds: 1, Shown: 8, settleS: 1}); err != nil {
			b.Fatal(err)
		}
	}
}
