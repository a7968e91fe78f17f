package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/drumline-engine/drumline/internal/proc"
)

// Other processes of this program: the server of a run, the runs of a comparison.

// serveArgs is the command line of the server of a run.
func (c *loadConfig) serveArgs() []string {
	args := []string{"serve", "--addr=127.0.0.1:0", "--lift-caps", "--lab", "--quiet", "--drain-timeout=" + loadDrainTime.String(), "--priority=" + c.priority}
	for _, f := range []struct {
		name  string
		value int
	}{{"send-hz", c.sendHz}, {"beat-threads", c.beatThreads}, {"encoders", c.encoders}, {"server-gomaxprocs", c.goMaxProcs}} {
		if f.value != 0 {
			args = append(args, "--"+f.name+"="+strconv.Itoa(f.value))
		}
	}
	if c.arrangement != "" {
		args = append(args, "--arrangement="+c.arrangement)
	}
	if c.state != "" {
		args = append(args, "--state="+c.state)
	}
	if c.noRings {
		args = append(args, "--no-rings")
	}
	if c.deflate {
		args = append(args, "--deflate")
	}
	return args
}

// startServer starts a server of this program and waits for its first line. It runs in the same session and process group, so
// that nice values of bots and server mean something to each other.
func (c *loadConfig) startServer(ctx context.Context, e *env) (*subprocess, error) {
	first := &firstLine{found: make(chan string, 1)}
	// A flag of serve's in the environment is not meant for this server.
	vars := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(newServeConfig().flags(), func(f flagSpec) bool { return f.name != "" && envName(f.name) == name })
	})
	p, err := startSubprocess(c.serveArgs(), vars, first, nil)
	if err != nil {
		return nil, fmt.Errorf("starting a server: %w", err)
	}
	select {
	case line := <-first.found:
		url, ok := strings.CutPrefix(line, "listening ")
		if !ok {
			p.stop(0) // whatever this is, it is no server
			return nil, fmt.Errorf("starting a server: its first line is %q, not where it listens%s", line, p.said())
		}
		p.url = strings.TrimSuffix(url, "/")
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("the server did not start: %v%s", p.err, p.said())
	case <-ctx.Done():
		p.stop(serverStopTime)
		return nil, ctx.Err()
	case <-time.After(serverStartTime):
		p.stop(serverStopTime)
		return nil, fmt.Errorf("the server did not say where it listens within %v%s", serverStartTime, p.said())
	}
}

// subprocess is another process of this program.
type subprocess struct {
	url  string
	cmd  *exec.Cmd
	tail *tail
	done chan struct{} // closed when it has ended
	err  error         // how it ended; after done
}

// startSubprocess runs this program with other arguments. Its output goes to stdout and, what it says on standard error, to stderr (nil: kept
// for said). It dies with this process where the platform can do that.
func startSubprocess(args, vars []string, stdout, stderr io.Writer) (*subprocess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &subprocess{cmd: exec.Command(self, args...), tail: &tail{}, done: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = vars, stdout, io.Writer(p.tail)
	if stderr != nil {
		p.cmd.Stderr = stderr
	}
	p.cmd.WaitDelay = time.Second
	proc.DieWithParent(p.cmd)
	started := make(chan error)
	go func() {
		// It dies with the thread that starts it, so that one must stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *subprocess) pid() int { return p.cmd.Process.Pid }

// stop asks the process to end, waits, and after grace kills it.
func (p *subprocess) stop(grace time.Duration) {
	proc.Terminate(p.cmd.Process) // an error means that it has ended
	select {
	case <-p.done:
	case <-time.After(grace):
		p.cmd.Process.Kill()
		<-p.done
	}
}

// said is the end of what the process wrote to standard error, for an error message.
func (p *subprocess) said() string {
	if s := p.tail.String(); s != "" {
		return "; it said:\n" + s
	}
	return ""
}

// firstLine waits for the first line of what is written to it and drops the rest.
type firstLine struct {
	line  []byte
	ended bool
	found chan string
}

func (f *firstLine) Write(p []byte) (int, error) {
	if f.ended {
		return len(p), nil
	}
	head, _, ended := bytes.Cut(p, []byte("\n"))
	f.line = append(f.line, head...)
	if ended = ended || len(f.line) > serverTail; ended {
		f.ended = true
		f.found <- strings.TrimSpace(string(f.line))
	}
	return len(p), nil
}

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - serverTail; over > 0 {
		t.b = t.b[:copy(t.b, t.b[over:])]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}
