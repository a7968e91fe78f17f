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

// leftover returns the stacks of the goroutines that run this module's code and do not end in time.
func leftover() string {
	for end := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		var left []string
		for i, stack := range strings.Split(string(buf), "\n\n") {
			// The first is this one.
			if i > 0 && strings.Contains(stack, "drumline-engine/drumline") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			return ""
		}
		if time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
	}
}
