//go:build unix && !linux

package proc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// SetNice gives this process the nice value n. Child processes that start later inherit it. Lowering the value needs a
// privilege; raising it needs none.
func SetNice(n int) error {
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, n); err != nil {
		return fmt.Errorf("proc: nice %d: %w", n, err)
	}
	return nil
}
