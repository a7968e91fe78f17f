//go:build !linux

package beat

import (
	"errors"
	"fmt"
	"time"
)

func raiseThread(string, int) (string, error) {
	return PriorityNone, fmt.Errorf("beat: thread priority: %w", errors.ErrUnsupported)
}

func setTimerSlack(time.Duration) error {
	return fmt.Errorf("beat: timer slack: %w", errors.ErrUnsupported)
}
