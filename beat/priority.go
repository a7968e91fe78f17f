package beat

import (
	"errors"
	"fmt"
	"time"
)

// The kinds of thread priority.
const (
	// PriorityNone leaves the thread as it is.
	PriorityNone = "none"
	// PriorityNice changes the thread's nice value.
	PriorityNice = "nice"
	// PriorityFIFO puts the thread under SCHED_FIFO, before all normal threads of the machine, whatever their container. A
	// FIFO thread that is busy for more than about 0.7 of a core makes things worse, not better: the kernel then takes the
	// core away for tens of milliseconds at a time.
	PriorityFIFO = "fifo"
)

// ErrRefused is returned when the system does not let this process raise its priority (EPERM or EACCES). On Linux CAP_SYS_NICE,
// RLIMIT_NICE or RLIMIT_RTPRIO would allow it.
var ErrRefused = errors.New("refused by the system; CAP_SYS_NICE, RLIMIT_NICE or RLIMIT_RTPRIO would allow it")

// RaiseThread changes the priority of the calling thread alone and returns the kind it got. The goroutine must be locked to its
// thread and should never unlock it, so that the thread ends with it.
//
// Kind "nice" sets the nice value, -20 to 19; raising it above 0 is always allowed. Kind "fifo" tries SCHED_FIFO with
// priority 10 and, if that is refused, the nice value. Kind "none" does nothing. An error says what was refused, and got still
// says what holds; go on with it. Only Linux has priorities per thread here; elsewhere got is "none" with
// errors.ErrUnsupported.
func RaiseThread(kind string, nice int) (got string, err error) {
	if nice < -20 || nice > 19 {
		return PriorityNone, fmt.Errorf("beat: nice is %d, must be -20 to 19", nice)
	}
	switch kind {
	case PriorityNone:
		return PriorityNone, nil
	case PriorityNice, PriorityFIFO:
		return raiseThread(kind, nice)
	}
	return PriorityNone, errPriority(kind)
}

func errPriority(kind string) error {
	return fmt.Errorf("beat: priority is %q, must be \"none\", \"nice\" or \"fifo\"", kind)
}

// SetTimerSlack sets by how much the kernel may delay the calling thread's sleeps to save wake-ups, at least 1 ns. The goroutine
// must be locked to its thread. Linux's default is 50 µs; 1 ns takes a sleep's median lateness from 0.07 to 0.02 ms and needs no
// privilege. Elsewhere it returns errors.ErrUnsupported.
func SetTimerSlack(d time.Duration) error {
	if d < 1 {
		return fmt.Errorf("beat: timer slack is %v, must be at least 1 ns", d)
	}
	return setTimerSlack(d)
}
