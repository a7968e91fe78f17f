package beat

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// systemClock reads the time by way of package time, which needs no system call, and sleeps on CLOCK_MONOTONIC, which is the
// clock behind it; raw is that clock's reading at start.
type systemClock struct {
	start time.Time
	raw   int64
}

func newSystemClock() Clock {
	// The two readings are taken as close together as a few tries allow; what is left between them (well under 1 µs) is
	// a constant, and only shifts when sleeps end.
	best := time.Duration(math.MaxInt64)
	var c systemClock
	for range 16 {
		var ts unix.Timespec
		before := time.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return PortableClock()
		}
		if gap := time.Since(before); gap < best {
			best = gap
			c = systemClock{start: before, raw: ts.Nano() - int64(gap)/2}
		}
	}
	return c
}

func (c systemClock) Now() time.Duration { return time.Since(c.start) }

func (c systemClock) SleepUntil(t time.Duration) {
	ts := unix.NsecToTimespec(c.raw + int64(t))
	// The deadline is absolute, so sleeping again after a signal, or after waking a hair early, loses nothing.
	for c.Now() < t {
		switch err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil); err {
		case nil, unix.EINTR:
		default:
			// Forbidden by a sandbox, say. Late is better than spinning.
			time.Sleep(t - c.Now())
		}
	}
}
