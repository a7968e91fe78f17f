package proc

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// CPU is the user and system time of this process so far.
func CPU() time.Duration {
	h, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var created, ended, kernel, user syscall.Filetime
	if syscall.GetProcessTimes(h, &created, &ended, &kernel, &user) != nil {
		return 0
	}
	// Both are counts of 100 ns, split into halves; Filetime.Nanoseconds would take them for dates.
	ticks := func(f syscall.Filetime) int64 { return int64(f.HighDateTime)<<32 | int64(f.LowDateTime) }
	return time.Duration(100 * (ticks(kernel) + ticks(user)))
}

// MaxFiles is how many files and sockets this process may have open; 0: not known.
func MaxFiles() int { return 0 }

// SetNice would set the process's priority; this platform has no nice values.
func SetNice(n int) error { return fmt.Errorf("proc: nice %d: %w", n, errors.ErrUnsupported) }

// Terminate ends process p. There is no way to ask it on this platform.
func Terminate(p *os.Process) error { return p.Kill() }
