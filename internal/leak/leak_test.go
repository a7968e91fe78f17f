package leak

import (
	"strings"
	"testing"
)

func TestLeftover(t *testing.T) {
	stop := make(chan struct{})
	go func() { <-stop }()
	found := running()
	close(stop)
	if !strings.Contains(found, "TestLeftover") {
		t.Error("a goroutine that waits was not found")
	}
	if left := leftover(); strings.Contains(left, "TestLeftover.func") {
		t.Errorf("a goroutine that has ended was found:\n%s", left)
	}
}
