// Package proc tells what this process and its machine are and use: CPU, memory, garbage collector pauses, the processor's name,
// stolen time, and whether the scheduler keeps two processes in separate groups. /health, the measuring endpoints and load
// tests report these figures next to each other, so they are taken in one place.
//
// It is not a monitor: nothing runs in the background, each figure is read when it is asked for. It has no use for clients of the engine.
//
// The smallest use is a window:
//
//	w := proc.NewWindow()
//	// … the work to be measured …
//	fmt.Println(w.Figures().CPUCores)
//
// Linux has all figures. Elsewhere what the platform does not tell cheaply is 0 for numbers and "unknown" for texts.
// All functions may be called from any goroutine; the package starts none.
package proc

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// Unknown is the text of what the platform does not tell.
const Unknown = "unknown"

// MiB is the unit of the memory figures.
const MiB = 1 << 20

// Quantiles of a duration, in the unit that the name of its field says.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Figures are what a process used over a Window; memory and goroutines are those at its end.
type Figures struct {
	// CPUCores is user and system time over wall time: 1 is one core, busy all the time.
	CPUCores float64 `json:"cpu_cores"`
	// RSSMiB is resident memory, PSSMiB the same with shared pages divided among those who share them.
	RSSMiB float64 `json:"rss_mib"`
	PSSMiB float64 `json:"pss_mib"`
	// GCPauseMs are the stop-the-world pauses of the garbage collector. They come from a histogram with buckets about a
	// sixth wide; each figure is its bucket's upper end. Zeros: there was none.
	GCPauseMs  Quantiles `json:"gc_pause_ms"`
	Goroutines int       `json:"goroutines"`
}

// Window measures this process over a stretch of time. It is safe for concurrent use.
type Window struct {
	mu     sync.Mutex
	since  time.Time
	cpu    time.Duration
	pauses []uint64
}

// NewWindow starts a window now.
func NewWindow() *Window {
	w := &Window{}
	w.Reset()
	return w
}

// Reset starts the window anew.
func (w *Window) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.cpu = time.Now(), CPU()
	w.pauses = w.pauses[:0]
	if h := gcPauses(); h != nil {
		w.pauses = append(w.pauses, h.Counts...)
	}
}

// Figures returns what was used since the window began. Reading PSS walks the page tables, so this is for
// once a second, not for each step.
func (w *Window) Figures() Figures {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := Figures{
		RSSMiB:     float64(RSS()) / MiB,
		PSSMiB:     float64(PSS()) / MiB,
		Goroutines: runtime.NumGoroutine(),
	}
	if d := time.Since(w.since); d > 0 {
		f.CPUCores = float64(CPU()-w.cpu) / float64(d)
	}
	if h := gcPauses(); h != nil {
		counts := make([]uint64, len(h.Counts))
		for i, n := range h.Counts {
			counts[i] = n
			if i < len(w.pauses) {
				counts[i] -= w.pauses[i]
			}
		}
		f.GCPauseMs = quantiles(counts, h.Buckets, 1000)
	}
	return f
}

// gcPauses reads the runtime's histogram of stop-the-world pauses since the start, in seconds.
func gcPauses() *metrics.Float64Histogram {
	s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindFloat64Histogram {
		return nil
	}
	return s[0].Value.Float64Histogram()
}

// quantiles of a histogram whose bucket i spans bounds[i] to bounds[i+1], times scale. Each is its bucket's upper end, or the
// lower end where the bucket has no finite upper one.
func quantiles(counts []uint64, bounds []float64, scale float64) Quantiles {
	var total uint64
	for _, n := range counts {
		total += n
	}
	if total == 0 || len(bounds) != len(counts)+1 {
		return Quantiles{}
	}
	at := func(q float64) float64 {
		rank := uint64(math.Ceil(q * float64(total)))
		var seen uint64
		for i, n := range counts {
			if seen += n; seen >= max(rank, 1) {
				if hi := bounds[i+1]; !math.IsInf(hi, 0) {
					return hi * scale
				}
				if lo := bounds[i]; !math.IsInf(lo, 0) {
					return lo * scale
				}
				break
			}
		}
		return 0
	}
	return Quantiles{P50: at(.5), P90: at(.9), P99: at(.99), Max: at(1)}
}

// Host is the machine.
type Host struct {
	Cores     int     `json:"cores"`
	CPU       string  `json:"cpu"`
	Kernel    string  `json:"kernel"`
	OS        string  `json:"os"`
	Arch      string  `json:"arch"`
	Go        string  `json:"go"`
	MemoryMiB float64 `json:"memory_mib"`
}

// Machine describes the machine that this process runs on.
func Machine() Host {
	h := Host{Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version()}
	h.CPU, h.Kernel, h.MemoryMiB = cpuModel(), kernel(), float64(memory())/MiB
	return h
}

// HostTime measures over a stretch of time how busy the whole machine was, and how much of its processor time its host gave to
// others: a figure measured beside much of either says little. It is not safe for concurrent use.
type HostTime struct {
	since hostTicks
}

// hostTicks are ticks of all cores since the machine's start.
type hostTicks struct{ steal, idle, total uint64 }

// NewHostTime starts to measure now.
func NewHostTime() *HostTime { return &HostTime{readHostTicks()} }

// StealPct returns the stolen share since NewHostTime, in percent of all cores' time; 0 where it is not known.
func (h *HostTime) StealPct() float64 {
	now := readHostTicks()
	if now.total <= h.since.total || now.steal < h.since.steal {
		return 0
	}
	return 100 * float64(now.steal-h.since.steal) / float64(now.total-h.since.total)
}

// BusyCores returns how many cores were busy on average since NewHostTime, whoever used them; 0 where it is not known.
func (h *HostTime) BusyCores() float64 {
	now := readHostTicks()
	total := float64(now.total) - float64(h.since.total)
	rest := float64(now.idle+now.steal) - float64(h.since.idle+h.since.steal)
	if total <= 0 || rest < 0 || rest > total {
		return 0
	}
	return float64(runtime.NumCPU()) * (total - rest) / total
}

// Grouping says whether the scheduler shares time between two processes by group. Across groups nice values mean nothing: each
// group gets its share whatever its members' priorities are.
type Grouping struct {
	Known    bool
	Separate bool
	// Why is a short text such as "autogroup 12 and 14"; [Unknown] if not Known.
	Why string
}

func (g Grouping) String() string {
	switch {
	case !g.Known:
		return Unknown
	case g.Separate:
		return "separate (" + g.Why + ")"
	}
	return "the same (" + g.Why + ")"
}
