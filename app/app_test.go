package app

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
)

// A test binary with this variable set is a program of its own; see process_unix_test.go.
const asProgram = "DRUMLINE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "main":
		Main(testWorld("dots"))
	case "breaking":
		Main(breakingWorld("breaks", 90))
	case "breaking early":
		Main(breakingWorld("breaks", 6))
	case "stubborn":
		os.Exit(process([]command{{name: "serve", run: func(ctx context.Context, e *env, _ []string) error {
			fmt.Fprintln(e.stdout, "here")
			<-ctx.Done()
			fmt.Fprintln(e.stdout, "stopping")
			select {}
		}}}, nil))
	}
	before := runtime.NumGoroutine()
	code := m.Run()
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before && code == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			fmt.Fprintf(os.Stderr, "%d goroutines before the tests, after them:\n", before)
			buf := make([]byte, 1<<20)
			os.Stderr.Write(buf[:runtime.Stack(buf, true)])
			code = 1
		}
	}
	os.Exit(code)
}

// still is a world in which nothing happens.
type still struct{ feed *snap.Feed }

type dot struct {
	X uint8
}

type nothing struct{ Go bool }

func (s still) Feeds() []feed.Feed                { return []feed.Feed{s.feed} }
func (still) Join(*drumline.Seat) error           { return nil }
func (still) Leave(*drumline.Seat)                {}
func (still) Step(*drumline.Step[nothing])        {}
func (still) Snapshot(dst []byte) ([]byte, error) { return dst, nil }
func (still) Restore([]byte) error                { return nil }

func testWorld(name string) drumline.Definition {
	return drumline.Define(drumline.Kind[nothing]{Spec: drumline.Spec{Name: name, Hz: 60},
		Open: func(*drumline.Room) (drumline.World[nothing], error) {
			f := snap.New(snap.Options{})
			snap.Add[dot](f, "dot").Spawn(dot{})
			return still{f}, f.Err()
		}})
}

// testEnv is a process without environment variables but those given.
func testEnv(vars map[string]string) (e *env, stdout, stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	return &env{worlds: []drumline.Definition{testWorld("dots")}, stdout: stdout, stderr: stderr,
		lookup: func(name string) (string, bool) { v, ok := vars[name]; return v, ok }}, stdout, stderr
}

func TestExitCodes(t *testing.T) {
	cmds := append(commands(), command{name: "fail", run: func(context.Context, *env, []string) error { return io.ErrUnexpectedEOF }},
		command{name: "misuse", run: func(context.Context, *env, []string) error {
			return fmt.Errorf("wrapped: %w", usagef("use it better"))
		}},
		command{name: "ask", run: func(context.Context, *env, []string) error { return flag.ErrHelp }})
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // what must be in them; empty: they must be empty
	}{
		{"", exitUsage, "", "Commands:"},
		{"help", exitOK, "Commands:", ""},
		{"-h", exitOK, "Commands:", ""},
		{"--help", exitOK, "Commands:", ""},
		{"help help", exitOK, "Commands:", ""},
		{"help serve", exitOK, "--addr", ""},
		{"serve --help", exitOK, "--addr", ""},
		{"serve -h", exitOK, "DRUMLINE_OPS_TOKEN", ""},
		{"help nothing", exitUsage, "", `no command "nothing"`},
		{"nothing", exitUsage, "", "Commands:"},
		{"version", exitOK, "protocol 1", ""},
		{"--version", exitOK, "protocol 1", ""},
		{"version now", exitUsage, "", `"now" is not a flag`},
		{"serve now", exitUsage, "", `"now" is not a flag`},
		{"serve --adr :1", exitUsage, "", "there is no flag --adr"},
		{"serve --addr 8080", exitUsage, "", "give HOST:PORT or :PORT"},
		{"serve --addr :http", exitUsage, "", "0 to 65535"},
		{"serve --addr :70000", exitUsage, "", "0 to 65535"},
		{"serve --addr", exitUsage, "", "--addr needs a value"},
		{"serve --send-hz many", exitUsage, "", "--send-hz many: want a whole number"},
		{"serve --send-hz -1", exitUsage, "", "--send-hz -1: want 1 to 1000; leave it out"},
		{"serve --max-players 0", exitUsage, "", "--max-players 0: must be at least 1"},
		{"serve --seed -1", exitUsage, "", "--seed -1: want a whole number that is not negative"},
		{"serve --lab=perhaps", exitUsage, "", "--lab perhaps: want true or false"},
		{"serve --drain-timeout 5", exitUsage, "", "--drain-timeout 5: needs a unit, such as 5s"},
		{"serve --drain-timeout soon", exitUsage, "", "want a time such as 5s"},
		{"serve --web dots", exitUsage, "", "--web dots: want WORLD=DIR"},
		{"serve --addr 127.0.0.1:0 --web chess=.", exitUsage, "", "there is dots"},
		{"serve --addr 127.0.0.1:0 --web dots=/does/not/exist", exitUsage, "", "no such folder"},
		{"serve --addr 127.0.0.1:0 --origins /a/b", exitUsage, "", "--origins /a/b: "},
		{"serve --arrangement heap", exitUsage, "", "--arrangement"},
		{"serve --state delta", exitUsage, "", "--state \"delta\": want whole, plain, ordered or acked"},
		{"serve --deflate=9", exitUsage, "", "--deflate 9: want true or false"},
		{"bench --only nothing", exitUsage, "", "the same, beat SCHED_FIFO"},
		{"serve --beat-threads 100000", exitUsage, "", "--beat-threads 100000: want 1 to 1024; leave it out for the default"},
		{"serve --encoders 0", exitUsage, "", "--encoders 0: want 1 to 1024; leave it out for the default"},
		{"bench --send-hz 9999", exitUsage, "", "--send-hz 9999: want 1 to 1000; leave it out for the default"},
		{"bench --rooms 0", exitUsage, "", "--rooms 0: want 1 to 5000; leave it out for the default"},
		{"bench --simulate --bots 3 --rounds 2", exitUsage, "", "--bots: a simulation takes no other flag than --for"},
		{"bench --for 0s", exitUsage, "", "--for"},
		{"bench --simulate --for 100ms", exitUsage, "", "--for 100ms: want 1s"},
		{"serve --log-format xml", exitUsage, "", "want text or json"},
		{"serve --drain-timeout -1s", exitUsage, "", "must not be negative"},
		{"serve --trusted-proxies 10.0.0.0/33", exitUsage, "", "10.0.0.0/33"},
		{"serve --origins a,,b", exitUsage, "", "empty"},
		{"serve --ops-token 1234567890123456", exitUsage, "", "there is no flag --ops-token"},
		{"serve --ops-token-file /does/not/exist", exitFailed, "", "operator's token"},
		{"serve --addr 127.0.0.1:0 --send-hz 1000", exitUsage, "", "--send-hz 1000: world dots runs 60"},
		{"serve --addr 127.0.0.1:0 --priority high", exitUsage, "", "--priority"},
		{"fail", exitFailed, "", "fail: unexpected EOF"},
		{"misuse", exitUsage, "", "use it better"},
		{"ask", exitOK, "", ""},
	} {
		e, stdout, stderr := testEnv(map[string]string{"GOMAXPROCS": "2"}) // so that serve leaves it alone
		code := run(t.Context(), e, cmds, strings.Fields(c.args))
		if code != c.code {
			t.Errorf("%q: exit code %d, want %d\n%s", c.args, code, c.code, stderr)
		}
		for name, s := range map[string]struct{ got, want string }{"stdout": {stdout.String(), c.stdout}, "stderr": {stderr.String(), c.stderr}} {
			if s.want == "" && s.got != "" || !strings.Contains(s.got, s.want) {
				t.Errorf("%q: %s is %q, want %q in it", c.args, name, s.got, s.want)
			}
		}
	}
}

func TestNoWorlds(t *testing.T) {
	e, _, stderr := testEnv(map[string]string{"GOMAXPROCS": "2"})
	e.worlds = nil
	if code := run(t.Context(), e, commands(), []string{"serve", "--addr", "127.0.0.1:0"}); code != exitFailed || !strings.Contains(stderr.String(), "no worlds") {
		t.Errorf("%d %s", code, stderr)
	}
}

func TestBuildVersion(t *testing.T) {
	if got := buildVersion(nil); got == "" {
		t.Error("empty")
	}
	info := &debug.BuildInfo{Main: debug.Module{Path: "example.com/game", Version: "(devel)"},
		Deps:     []*debug.Module{{Path: enginePath, Version: "v1.2.3"}, {Path: "example.com/other", Version: "v9.0.0"}},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}}
	want := "example.com/game (devel), revision 0123456789ab with changes\n" + enginePath + " v1.2.3"
	if got := buildVersion(info); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Every command has what help needs, and is found by its name once.
func TestCommands(t *testing.T) {
	names := map[string]bool{"help": true}
	for _, c := range commands() {
		if c.summary == "" || c.run == nil {
			t.Errorf("%s: no summary or nothing to run", c.name)
		}
		if names[c.name] {
			t.Errorf("two commands are named %s", c.name)
		}
		names[c.name] = true
		e, stdout, stderr := testEnv(nil)
		if err := c.run(t.Context(), e, []string{"--help"}); !errors.Is(err, flag.ErrHelp) && err != nil {
			t.Errorf("%s --help: %v", c.name, err)
		}
		if stdout.Len()+stderr.Len() == 0 {
			t.Errorf("%s --help prints nothing", c.name)
		}
	}
}
