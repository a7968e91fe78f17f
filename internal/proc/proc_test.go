package proc

import (
	"encoding/json"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestWindowCountsWork(t *testing.T) {
	w := NewWindow()
	n := 0
	for start := CPU(); CPU()-start < 20*time.Millisecond; n++ {
		if n > 1<<30 {
			t.Fatal("CPU time does not advance")
		}
	}
	for range 3 {
		runtime.GC()
	}
	f := w.Figures()
	if f.CPUCores <= 0 || f.Goroutines < 1 {
		t.Errorf("figures %+v", f)
	}
	if f.GCPauseMs.P50 <= 0 || f.GCPauseMs.Max < f.GCPauseMs.P50 {
		t.Errorf("three collections left the pauses %+v", f.GCPauseMs)
	}
	if runtime.GOOS == "linux" {
		if f.RSSMiB < 1 || f.PSSMiB <= 0 || f.PSSMiB > 2*f.RSSMiB {
			t.Errorf("memory %v MiB resident, %v MiB proportional", f.RSSMiB, f.PSSMiB)
		}
	}
	w.Reset()
	if p := w.Figures().GCPauseMs; p != (Quantiles{}) {
		t.Errorf("pauses after a reset: %+v", p)
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"cpu_cores":`, `"rss_mib":`, `"pss_mib":`, `"gc_pause_ms":{"p50":`, `"goroutines":`} {
		if !strings.Contains(string(b), key) {
			t.Errorf("%s lacks %s", b, key)
		}
	}
}

func TestQuantiles(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		name   string
		counts []uint64
		bounds []float64
		want   Quantiles
	}{
		{"none", []uint64{0, 0}, []float64{0, 1, 2}, Quantiles{}},
		{"bounds of another length", []uint64{1}, []float64{0}, Quantiles{}},
		{"one", []uint64{0, 1, 0}, []float64{0, 1, 2, 3}, Quantiles{2, 2, 2, 2}},
		{"hundred", []uint64{50, 40, 9, 1}, []float64{0, 1, 2, 3, 4}, Quantiles{1, 2, 3, 4}},
		{"open end", []uint64{0, 1}, []float64{math.Inf(-1), 5, inf}, Quantiles{5, 5, 5, 5}},
		{"all open", []uint64{1}, []float64{math.Inf(-1), inf}, Quantiles{}},
	} {
		if got := quantiles(c.counts, c.bounds, 1); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestMachine(t *testing.T) {
	m := Machine()
	if m.Cores < 1 || m.Go != runtime.Version() || m.OS != runtime.GOOS || m.Arch != runtime.GOARCH || m.CPU == "" || m.Kernel == "" {
		t.Errorf("%+v", m)
	}
	if runtime.GOOS == "linux" && (m.MemoryMiB < 16 || m.Kernel == Unknown) {
		t.Errorf("%+v", m)
	}
	if busy := NewHostTime().BusyCores(); busy < 0 || busy > float64(runtime.NumCPU()) {
		t.Errorf("%v cores are busy", busy)
	}
	if pct := NewHostTime().StealPct(); pct < 0 || pct > 100 {
		t.Errorf("steal %v %%", pct)
	}
	if n := MaxFiles(); n < 0 {
		t.Errorf("%d files", n)
	}
}

func TestGroupedWithItself(t *testing.T) {
	g := GroupedWith(os.Getpid())
	if g.Separate {
		t.Errorf("a process is separate from itself: %v", g)
	}
	if g.String() == "" {
		t.Error("no text")
	}
}
