// Package leak fails a package's tests when goroutines of this module outlive them:
//
//	func TestMain(m *testing.M) { leak.Main(m) }
//
// It is for tests only.
package leak

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// patience is how long goroutines may take to end after the last test.
const patience = 5 * time.Second

// Main runs the tests, waits up to five seconds for the goroutines that run this module's code to end, and exits.
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
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
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
