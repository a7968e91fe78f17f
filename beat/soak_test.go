package beat

import (
	"os"
	"testing"
	"time"
)

// TestSoak runs a beat on the real clock and fits a line to the error of its deadlines against package time. With
// DRUMLINE_SOAK=5m it does so for 5 minutes and asks for less than 10 ppm; without, 2 seconds say nothing about ppm, and
// only show that the measure can be taken.
func TestSoak(t *testing.T) {
	length, limit := 2*time.Second, 0.0
	if s := os.Getenv("DRUMLINE_SOAK"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d < 10*time.Second {
			t.Fatalf("DRUMLINE_SOAK is %q, must be a duration of at least 10 s", s)
		}
		length, limit = d, 10
	}
	g, err := NewGroup(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()

	const hz = 60
	type point struct{ x, y float64 } // seconds: ideal, and error of the start
	points := make([]point, 0, int(length/time.Second+1)*hz)
	var start time.Time
	var first time.Duration
	var grid uint64
	offGrid := 0
	done := make(chan struct{}, 1)
	b, err := g.Add(Config{Hz: hz, SendHz: 20, Phase: Auto, Step: func(n uint64, scheduled time.Duration) {
		if n == 1 {
			start, first = time.Now(), scheduled
		}
		elapsed := time.Since(start)
		if elapsed > length {
			notify(done)
			return
		}
		// The grid is worked out anew here, from nothing but the rate.
		for first+time.Duration(grid*uint64(time.Second)/hz) < scheduled-1 {
			grid++
		}
		ideal := float64(grid) / hz
		if off := (scheduled - first).Seconds() - ideal; off > 2e-9 || off < -2e-9 {
			offGrid++
		}
		points = append(points, point{ideal, elapsed.Seconds() - ideal})
	}})
	if err != nil {
		t.Fatal(err)
	}
	<-done
	b.Stop()

	var sx, sy, sxx, sxy float64
	n := float64(len(points))
	for _, p := range points {
		sx, sy, sxx, sxy = sx+p.x, sy+p.y, sxx+p.x*p.x, sxy+p.x*p.y
	}
	ppm := (n*sxy - sx*sy) / (n*sxx - sx*sx) * 1e6
	w, h := g.Window(), g.Histograms()
	t.Logf("%v: slope %.3f ppm over %d steps; lateness p50 %v p99 %v max %v; interval p99 %v; %+v; %+v", length, ppm, len(points),
		h.Late.Quantile(0.5), h.Late.Quantile(0.99), h.Late.Max(), h.Interval.Quantile(0.99), w.Counters, g.Stats().Threads)
	if ppm != ppm || len(points) < hz {
		t.Errorf("slope %g ppm over %d steps", ppm, len(points))
	}
	if offGrid > 0 {
		t.Errorf("%d deadlines lie off the grid", offGrid)
	}
	if limit > 0 && (ppm >= limit || ppm <= -limit) {
		t.Errorf("the beat drifts by %.3f ppm, limit %g", ppm, limit)
	}
}
