package linktest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Main runs a package's tests and fails if goroutines of this module are left when they are over:
//
//	func TestMain(m *testing.M) { linktest.Main(m) }
func Main(m *testing.M) {
	code := m.Run()
	if left := leftover(); left != "" && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines are left:\n\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leftover waits for the goroutines that run this module's code to end, and returns the stacks of those that do not.
func leftover() (stacks string) {
	for end := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		if stacks = running(); stacks == "" || time.Now().After(end) {
			return stacks
		}
	}
}

// running returns the stacks of the goroutines other than the caller's that run this module's code.
func running() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var found []string
	for i, stack := range strings.Split(string(buf), "\n\n") {
		// The first is the caller. The testing package's own goroutines run tests, or wait for them.
		if i > 0 && strings.Contains(stack, "drumline-engine/drumline") && !strings.Contains(stack, "testing.(*M).Run") {
			found = append(found, stack)
		}
	}
	return strings.Join(found, "\n\n")
}
