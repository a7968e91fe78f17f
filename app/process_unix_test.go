//go:build unix

package app

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// child starts this test binary as a drumline program, and returns when it has printed its first line.
func child(t *testing.T, as string, args ...string) (cmd *exec.Cmd, out *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asProgram+"="+as)
	cmd.Stderr = t.Output()
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, bufio.NewReader(pipe)
}

func line(t *testing.T, out *bufio.Reader, prefix string) string {
	t.Helper()
	s, err := out.ReadString('\n')
	if err != nil || !strings.HasPrefix(s, prefix) {
		t.Fatalf("line %q, %v; want %q", s, err, prefix)
	}
	return s
}

// SIGTERM, and its echo, end the program with exit code 0 and a closing line.
func TestSigterm(t *testing.T) {
	cmd, out := childOnPort(t)
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Process.Signal(syscall.SIGTERM)
	rest, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(string(rest), "\nstopped within ") {
		t.Errorf("%v, printed %s", err, rest)
	}
}

// A second signal ends a program that does not come to its end by itself.
func TestSecondSignal(t *testing.T) {
	cmd, out := child(t, "stubborn", "serve")
	line(t, out, "here")
	cmd.Process.Signal(syscall.SIGINT)
	line(t, out, "stopping")
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
				t.Errorf("ended by %v, want SIGINT", err)
			}
			return
		case <-time.After(50 * time.Millisecond): // those in the first moments are taken for echoes
			cmd.Process.Signal(syscall.SIGINT)
		}
	}
}

func TestExitCodeOfProcess(t *testing.T) {
	cmd, _ := child(t, "main", "serve", "--no-such-flag")
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitUsage {
		t.Errorf("%v, want exit code %d", err, exitUsage)
	}
}

func childOnPort(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd, out := child(t, "main", append([]string{"serve", "--addr", "127.0.0.1:0", "--priority", "none"}, args...)...)
	line(t, out, "listening http://127.0.0.1:")
	line(t, out, "world dots: ")
	return cmd, out
}
