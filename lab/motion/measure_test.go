package motion

import (
	"bytes"
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// straight is a true path at 6 m/s along x.
type straight struct{}

func (straight) where(tick float64) (place, bool) { return place{tick / 10}, tick >= 0 }

func TestMeter(t *testing.T) {
	for _, tt := range []struct {
		name        string
		shown       func(tick float64) float64 // x
		jumps       uint64
		speedPct    float64
		jolt, least float64 // most
	}{
		{"as it is", func(k float64) float64 { return k / 10 }, 0, 0, 1e-9, 0},
		{"elsewhere all the time", func(k float64) float64 { return k/10 + 3 }, 0, 0, 1e-9, 0},
		{"5 % too fast", func(k float64) float64 { return k / 10 * 1.05 }, 0, 5, 1e-9, 0},
		{"it stands and leaps", func(k float64) float64 { return math.Floor(k/2) / 5 }, 85, 100, 0.21, 0.19},
		{"one leap of a metre", func(k float64) float64 { return k/10 + math.Floor(k/60) }, 1, 1000.0 / 85, 1.01, 0.99},
	} {
		m := meter{frameTicks: 1, slack: 0.01, leap: 10}
		w := path{truth: straight{}}
		for k := range 100 {
			m.frame(&w, place{tt.shown(float64(k + 1))}, float64(k+1))
		}
		f := m.motion()
		if f.Frames != 85 || m.jumps != tt.jumps || math.Abs(f.SpeedErrorPct-tt.speedPct) > 0.01 || f.JoltMax > tt.jolt || f.JoltMax < tt.least {
			t.Errorf("%s: %d jumps: %+v", tt.name, m.jumps, f)
		}
	}
}

func TestMeterLeavesOut(t *testing.T) {
	m := meter{frameTicks: 1, slack: 0.01, leap: 10}
	r := recorded{leap: 10}
	w := path{truth: &r}
	// It stands for two seconds, walks for two, is put elsewhere, and walks on for two.
	x := 0.0
	for k := 1; k <= 360; k++ {
		if k > 120 {
			x += 0.1
		}
		if k == 240 {
			x += 500
		}
		r.record(float64(k), place{x})
		if k > 8 {
			at := float64(k - 8)
			p, _ := r.where(at)
			m.frame(&w, p, at)
		}
	}
	// All of the walk but 0.25 s at each start, and 0.2 s before to 0.5 s after the teleport; but the first half second of standing, too.
	if m.jumps != 0 || m.frames < 170 || m.frames > 240 || m.jolts.most > 0.11 {
		t.Errorf("%d frames, %d jumps, jolt %g", m.frames, m.jumps, m.jolts.most)
	}
}

func TestSpread(t *testing.T) {
	var s spread
	for i := range 1000 {
		s.add(float64(i+1) / 1000)
	}
	var o spread
	o.add(0)
	s.merge(&o)
	for share, want := range map[float64]float64{0: 0, 0.5: 0.5, 0.99: 0.99, 1: 1} {
		if got := s.quantile(share); math.Abs(got-want) > 0.012*want {
			t.Errorf("quantile %g is %g, want %g", share, got, want)
		}
	}
	if (&spread{}).quantile(0.5) != 0 {
		t.Error("nothing has a quantile")
	}
}

// A screen that does not know the world measures what the link and the clock do.
func TestHindsight(t *testing.T) {
	f, err := Run(t.Context(), Cell{Loss: 0.05, DelayMs: 40, JitterMs: 60, Seconds: 3, Shown: 4, settleS: 2, hindsight: true})
	if err != nil {
		t.Fatal(err)
	}
	if f.Frames < 1000 || f.JoltRatio < 0.8 || f.JoltRatio > 1.1 || f.SpeedErrorPct > 2 || f.JumpPct > 0.2 || f.OffRMS > 0.01 {
		t.Errorf("%+v", f.Motion)
	}
}

func TestRunIsTheSameAgain(t *testing.T) {
	c := Cell{Loss: 0.1, DelayMs: 10, JitterMs: 30, Seconds: 1, Shown: 1, Seed: 7, settleS: 1}
	a, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%+v, then %+v", a, b)
	}
}

func TestCells(t *testing.T) {
	for _, c := range []Cell{{Loss: 1}, {Loss: math.NaN()}, {DelayMs: -1}, {JitterMs: 3000}, {Seconds: -1}, {Shown: 33}, {InputHz: 61}, {Repeat: 9}} {
		if _, err := Run(t.Context(), c); err == nil {
			t.Errorf("%+v runs", c)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if _, err := Grid(ctx, &out, GridOptions{For: time.Second}); !errors.Is(err, context.Canceled) || !strings.Contains(out.String(), "| loss |") {
		t.Errorf("a grid that was cancelled: %v, %q", err, out.String())
	}
}

func TestNewScreenRefuses(t *testing.T) {
	for _, schema := range []string{"", `{"hz":0}`, `{"hz":60,"types":[{"name":"a","fields":[{"name":"x","kind":"float","ahead":{"by":4}}]}]}`} {
		if _, err := NewScreen([]byte(schema), 20, true, 0); err == nil {
			t.Errorf("%q makes a screen", schema)
		}
	}
}
