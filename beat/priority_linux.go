package beat

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const fifoPriority = 10

func raiseThread(kind string, nice int) (string, error) {
	var fifoErr error
	if kind == PriorityFIFO {
		err := unix.SchedSetAttr(0, &unix.SchedAttr{
			Size:   unix.SizeofSchedAttr,
			Policy: unix.SCHED_FIFO,
			// A thread or process that this one might start begins as a normal one.
			Flags:    unix.SCHED_FLAG_RESET_ON_FORK,
			Priority: fifoPriority,
		}, 0)
		if err == nil {
			return PriorityFIFO, nil
		}
		fifoErr = refusal("SCHED_FIFO", err)
	}
	// Linux takes a thread id here and changes that thread alone, unlike POSIX.
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice); err != nil {
		return PriorityNone, errors.Join(fifoErr, refusal(fmt.Sprintf("nice %d", nice), err))
	}
	return PriorityNice, fifoErr
}

// refusal folds the two errnos of the same answer into one: sched_setattr says EPERM, setpriority EACCES.
func refusal(what string, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("beat: %s: %w (%w)", what, ErrRefused, err)
	}
	return fmt.Errorf("beat: %s: %w", what, err)
}

func setTimerSlack(d time.Duration) error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0); err != nil {
		return fmt.Errorf("beat: timer slack: %w", err)
	}
	return nil
}
