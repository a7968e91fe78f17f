package beat

import "time"

// Clock is the time that a group lives by. Both methods are called from several goroutines at once and must not call back into
// the group.
type Clock interface {
	// Now is the time since an arbitrary start. It never goes back.
	Now() time.Duration
	// SleepUntil returns when Now has reached t, or at once if it has. It is called on a beat's locked thread.
	SleepUntil(t time.Duration)
}

// PortableClock is a Clock on package time. Its start is the call, so a clock made inside a testing/synctest bubble lives by the
// bubble's time.
func PortableClock() Clock { return portableClock{time.Now()} }

type portableClock struct{ start time.Time }

func (c portableClock) Now() time.Duration         { return time.Since(c.start) }
func (c portableClock) SleepUntil(t time.Duration) { time.Sleep(t - time.Since(c.start)) }

// SystemClock is the most punctual Clock of the platform: on Linux it sleeps in the kernel until the absolute time, elsewhere
// it is the PortableClock. Its sleep blocks the OS thread, so it is for locked threads, and not for synctest.
func SystemClock() Clock { return newSystemClock() }
