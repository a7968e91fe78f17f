package ops

import (
	"runtime"
	"sync"
	"time"

	"github.com/drumline-engine/drumline/internal/proc"
)

// process measures this process for /health, where a window of its own for everybody who asks would be too much, and for
// /debug/window.
type process struct {
	window *proc.Window // safe for concurrent use

	mu       sync.Mutex
	since    time.Time
	cpu      time.Duration
	cpuCores float64
}

func newProcess(now time.Time) *process {
	return &process{window: proc.NewWindow(), since: now, cpu: proc.CPU()}
}

// health returns the process's figures; the CPU share is of the last stretch of at least a second between two calls.
func (p *process) health(now time.Time) HealthProcess {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := now.Sub(p.since); d >= time.Second {
		cpu := proc.CPU()
		p.cpuCores = float64(cpu-p.cpu) / float64(d)
		p.since, p.cpu = now, cpu
	}
	return HealthProcess{CPUCores: round(p.cpuCores, 3), RSSMiB: round(float64(proc.RSS())/proc.MiB, 1),
		Goroutines: runtime.NumGoroutine()}
}
