package beat

import (
	"errors"
	"runtime"
	"testing"
	"time"
)

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

func TestRaiseThreadRefusesNonsense(t *testing.T) {
	for _, nice := range []int{-21, 20} {
		if got, err := RaiseThread(PriorityNice, nice); err == nil || got != PriorityNone {
			t.Errorf("nice %d: %q, %v", nice, got, err)
		}
	}
	if got, err := RaiseThread("turbo", 0); err == nil || got != PriorityNone {
		t.Errorf("turbo: %q, %v", got, err)
	}
	if got, err := RaiseThread(PriorityNone, 0); err != nil || got != PriorityNone {
		t.Errorf("none: %q, %v", got, err)
	}
	if err := SetTimerSlack(0); err == nil {
		t.Error("a slack of 0 was taken")
	}
}

// TestRaiseThreadAnywhere: each outcome is one of those promised, on every system.
func TestRaiseThreadAnywhere(t *testing.T) {
	onThread(func() {
		got, err := RaiseThread(PriorityNice, 10)
		if runtime.GOOS == "linux" && (got != PriorityNice || err != nil) {
			t.Errorf("lowering the priority: %q, %v", got, err)
		}
		if runtime.GOOS != "linux" && (got != PriorityNone || !errors.Is(err, errors.ErrUnsupported)) {
			t.Errorf("%q, %v", got, err)
		}
		if err := SetTimerSlack(time.Microsecond); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
	})
}
