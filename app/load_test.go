package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/lab/bots"
	"github.com/drumline-engine/drumline/link/ws"
	"github.com/drumline-engine/drumline/worlds/arena"
)

// runLoad runs load in this process; the server it starts is another process of this test binary.
func runLoad(t *testing.T, ctx context.Context, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Setenv(asProgram, "main")
	e, out, errs := testEnv(nil)
	err = load(ctx, e, append([]string{"--bots=4", "--rooms=2", "--for=300ms", "--warmup=50ms", "--nice=0"}, args...))
	return out.String(), errs.String(), err
}

func readReport(t *testing.T, file string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// The whole way: a server of its own, bots, figures, table, JSON, expectations.
func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json")
	out, errs, err := runLoad(t, t.Context(), "--json", file, "--send-hz=30", "--verify",
		"--expect=bots.joined==4,bots.lost==0,client.decode_errors==0,client.mismatches==0,beat.hz==60,snapshot.hz==30,beat.steps>0,inputs.sent>0,server.goroutines>0")
	r := readReport(t, file)
	if r["void"] != nil {
		if err == nil || !strings.Contains(out, "VOID: steal") {
			t.Errorf("void, but %v\n%s", err, out)
		}
	} else if err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs)
	}
	for _, want := range []string{"links     4 of 4 joined", "beat thread: priority", "client gap ms", "PASS bots.joined==4", "scheduler group"} {
		if !strings.Contains(out, want) {
			t.Errorf("the table lacks %q\n%s", want, out)
		}
	}
	if !strings.Contains(errs, "4 of 4 joined within") {
		t.Errorf("no progress: %s", errs)
	}
	for _, key := range []string{"machine", "command", "duration_s", "transport", "bots", "beat", "snapshot", "client", "server", "load"} {
		if r[key] == nil {
			t.Errorf("the JSON lacks %s", key)
		}
	}
	if s, _ := r["command"].(string); !strings.Contains(s, "drumline load --bots=4") {
		t.Errorf("command %q", s)
	}
}

func TestLoadFailsByExpectation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json")
	out, _, err := runLoad(t, t.Context(), "--quiet", "--json", file, "--expect", "bots.joined==5")
	if err == nil || !strings.Contains(out, "FAIL bots.joined==5: it is 4") {
		t.Errorf("%v\n%s", err, out)
	}
	e, _, errs := testEnv(nil)
	if code := exitCode(e, "load", err); code != exitFailed {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// Bots that stop reading are told apart from the others, and what became of them is in the report.
func TestLoadPause(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json")
	if _, errs, err := runLoad(t, t.Context(), "--pause=2", "--rate=2mbit", "--decode=1/2", "--input-hz=0", "--json", file); err != nil {
		t.Fatal(err, errs)
	}
	p, _ := readReport(t, file)["pause"].(map[string]any)
	if p["bots"] != 2.0 || p["open"] != 2.0 {
		t.Errorf("%v", p)
	}
}

func TestLoadJSONOnStdout(t *testing.T) {
	out, errs, err := runLoad(t, t.Context(), "--quiet", "--json=-", "--expect=bots.asked==4")
	var r map[string]any
	if e := json.Unmarshal([]byte(out), &r); e != nil {
		t.Errorf("%v, %v\n%s", err, e, out)
	}
	if !strings.Contains(errs, "client gap ms") || !strings.Contains(errs, "PASS bots.asked==4") {
		t.Error(errs)
	}
}

func TestLoadCompare(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cmp.json")
	out, errs, err := runLoad(t, t.Context(), "--quiet", "--json", file, "--rounds=1", "--compare=input-hz=0,verify",
		"--expect=a.bots.joined==4,b.bots.joined==4,b.inputs.sent==0,a.inputs.sent>0,b.client.verified>0,a.client.verified==0,ratio.bots.joined==1")
	if err != nil && !strings.Contains(err.Error(), "void") {
		t.Fatalf("%v\n%s%s", err, out, errs)
	}
	for _, want := range []string{"Medians of 1 alternating runs. B is A with --input-hz=0 --verify=true.", "PASS b.inputs.sent==0"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing\n%s", want, out)
		}
	}
	if !strings.Contains(errs, "== A 1 of 1") || !strings.Contains(errs, "== B 1 of 1") {
		t.Error(errs)
	}
	if r := readReport(t, file); r["a"] == nil || r["ratio"] == nil || r["change"] != "--input-hz=0 --verify=true" {
		t.Errorf("%v", r["change"])
	}
}

// A server without /debug: its own figures are absent, so no expectation on them can pass.
func TestLoadURLWithoutFigures(t *testing.T) {
	srv, err := drumline.New(drumline.Options{Worlds: []drumline.Definition{testWorld("dots")}, LiftCaps: true, Priority: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	h, err := ws.Handler(srv, ws.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/play/ws", h)
	mux.HandleFunc("/play/debug/", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer 0123456789abcdef" {
			t.Errorf("no token: %v", r.Header)
		}
		http.Error(w, "no", http.StatusForbidden)
	})
	hs := httptest.NewServer(mux)
	defer hs.Close()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600)
	file := filepath.Join(dir, "run.json")
	out, errs, err := runLoad(t, t.Context(), "--url", hs.URL+"/play/", "--ops-token-file", token, "--json", file, "--pause=1", "--expect=beat.skipped==0")
	if err == nil || !strings.Contains(out, "FAIL beat.skipped==0: there is no such figure") || !strings.Contains(out, "did not tell its figures") {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(errs, "without the server's own figures") || !strings.Contains(errs, "--ops-token-file") {
		t.Error(errs)
	}
	r := readReport(t, file)
	if r["beat"] != nil || r["server"] != nil || r["bots"].(map[string]any)["joined"] != 4.0 {
		t.Errorf("%v", r)
	}
	out, errs, err = runLoad(t, t.Context(), "--url", hs.URL) // no such path: nobody can join
	if err == nil || !strings.Contains(err.Error(), "no bot could join") || !strings.Contains(err.Error(), "http_404") {
		t.Errorf("%v\n%s%s", err, out, errs)
	}
}

func TestLoadServerDoesNotStart(t *testing.T) {
	_, _, err := runLoad(t, t.Context(), "--send-hz=1000")
	if err == nil || !strings.Contains(err.Error(), "the server did not start") || !strings.Contains(err.Error(), "runs 60 steps") {
		t.Error(err)
	}
	t.Setenv(asProgram, "stubborn") // prints something else
	e, _, _ := testEnv(nil)
	c := newLoadConfig()
	if p, err := c.startServer(t.Context(), e); err == nil || !strings.Contains(err.Error(), `its first line is "here"`) {
		t.Error(p, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	t.Setenv(asProgram, "main")
	if p, err := c.startServer(ctx, e); err == nil {
		p.stop(serverStopTime) // it was quicker than the context
	} else if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// serve's own variables do not reach the server of a run; the address would be taken.
func TestLoadServerEnvironment(t *testing.T) {
	t.Setenv("DRUMLINE_SEND_HZ", "nonsense")
	if _, _, err := runLoad(t, t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLoadInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, _, err := runLoad(t, ctx, "--for=9m")
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) || time.Since(start) > time.Minute {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// The server dies in the middle of a run: the run says so, at once.
func TestLoadServerDies(t *testing.T) {
	t.Setenv(asProgram, "main")
	e, _, _ := testEnv(nil)
	c := newLoadConfig()
	c.duration, c.quiet, c.world, c.rooms = 5*time.Minute, true, "dots", 1
	server, err := c.startServer(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	defer server.stop(serverStopTime)
	r := &loadRun{c: c, e: e, target: &loadTarget{url: server.url, own: true}, server: server, def: e.worlds[0]}
	time.AfterFunc(time.Second, func() { server.cmd.Process.Kill() })
	_, err = r.measure(t.Context(), bots.Options{URL: server.url, World: "dots", Bots: 2, JoinOver: 10 * time.Millisecond})
	if err == nil {
		t.Error("a run without a server ends well")
	}
}

func TestSubprocessIsKilled(t *testing.T) {
	t.Setenv(asProgram, "stubborn")
	first := &firstLine{found: make(chan string, 1)}
	p, err := startSubprocess([]string{"serve"}, os.Environ(), first, nil)
	if err != nil {
		t.Fatal(err)
	}
	if line := <-first.found; line != "here" {
		t.Errorf("first line %q", line)
	}
	p.stop(50 * time.Millisecond)
	if p.err == nil {
		t.Error("it ended well")
	}
	p.stop(time.Second) // again: nothing to do
}

func TestLoadUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--world chess", "there is dots"},
		{"--bots 0", "--bots 0: want 1 to 5000"},
		{"--bots 5001", "want 1 to 5000"},
		{"--rooms -1", "--rooms"},
		{"--pause 5", "--pause 5: want 0 to 4"},
		{"--for 0s", "--for 0s"},
		{"--for 11m", "at most 10m"},
		{"--for soon", "soon"},
		{"--warmup -1s", "--warmup"},
		{"--input-hz 201", "--input-hz"},
		{"--inputs-per-packet 9", "--inputs-per-packet"},
		{"--decode 10", "1/10"},
		{"--decode 1/0", "1/10"},
		{"--rate fast", "16kbit"},
		{"--rate 16", "16kbit"},
		{"--rate 1bit", "at least 8bit"},
		{"--nice 20", "--nice"},
		{"--threads 0", "--threads 0: want 1 to 16; leave it out for the default"},
		{"--send-hz 9999", "--send-hz 9999: want 1 to 1000; leave it out for the default"},
		{"--rooms 0", "--rooms 0: want 1 to 5000; leave it out for the default"},
		{"--motion 0", "--motion 0: want 1 to"},
		{"--priority high", "--priority"},
		{"--rounds 2", "without --compare"},
		{"--json /does/not/exist", "--json"},
		{"--url 127.0.0.1:8080", "http://127.0.0.1:8080"},
		{"--compare encoders=0", "--encoders 0: want 1 to 1024"},
		{"--expect beat.skiped==0", "there is no such figure"},
		{"--expect client.age.p99<=1", "client.age_ms.p99"},
		{"--expect a.beat.skipped==0", "there is beat.skipped"},
		{"--compare bots=3 --expect beat.skipped==0", "a.beat.skipped"},
		{"--expect beat.skipped=0", "want =="},
		{"--expect beat", "beat.skipped==0"},
		{"--compare bots", "want bots=VALUE"},
		{"--compare bots=many", "many"},
		{"--compare boats=3", "no flag --boats"},
		{"--compare json=x", "all runs together"},
		{"--url http://127.0.0.1:1 --send-hz 10", "give --send-hz"},
		{"now", "is not a flag"},
	} {
		e, _, _ := testEnv(nil)
		err := load(t.Context(), e, append([]string{"--bots=4"}, strings.Fields(c.args)...))
		var usage *usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
	e, _, _ := testEnv(map[string]string{"DRUMLINE_OPS_TOKEN": "0123456789abcdef"})
	if err := load(t.Context(), e, []string{"--ops-token-file=x", "--url=http://127.0.0.1:1"}); err == nil || !strings.Contains(err.Error(), "one of them") {
		t.Error(err)
	}
	e, _, _ = testEnv(nil)
	e.worlds = nil
	if err := load(t.Context(), e, nil); err == nil || !strings.Contains(err.Error(), "no worlds") {
		t.Error(err)
	}
	if err := load(t.Context(), &env{worlds: []drumline.Definition{testWorld("dots")}, stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}},
		[]string{"--url=http://192.0.2.1:99999"}); err == nil {
		t.Error("a port of 99999 is taken")
	}
}

// Every kind of figure that a run or a comparison has may be expected.
func TestKnownFigures(t *testing.T) {
	for compare, list := range map[string]string{
		"": "machine.steal_pct==0,duration_s>0,bots.asked==4,bots.refused.room_full==0,bots.closed.stalled==0,beat.interval_ms.p99<1,snapshot.hz==20,snapshot.age_ms.max<1," +
			"snapshot.skipped.busy==0,client.verified>0,inputs.unused.input_late==0,inputs.echo_ms.p50<1,server.rss_mib<1,load.cpu_cores<1,pause.open==1,pause.closed.backlog==1,pause.stages_s.skipped_slow<1",
		"motion=1": "a.motion.jolt_ratio<1,b.motion.jump_pct<1,ratio.motion.delay_ms<1",
		"pause=1":  "a.beat.skipped==0,b.client.gap_ms.p99<1,ratio.client.gap_ms.p99<1,diff.server.rss_mib<1,b.bots.closed.stalled==1,b.pause.closed.backlog==1",
	} {
		e, _, _ := testEnv(nil)
		c := newLoadConfig()
		c.compare, c.expect = compare, list
		if _, err := c.check(e); err != nil {
			t.Error(err)
		}
	}
}

// Who measures half a crowd should hear of it; who expects that, not.
func TestLoadNotAllJoin(t *testing.T) {
	if _, _, err := runLoad(t, t.Context(), "--quiet", "--bots=20", "--rooms=1"); err == nil || !strings.Contains(err.Error(), "only 16 of 20 bots joined, 4 refused: room_full") {
		t.Error(err)
	}
	if _, _, err := runLoad(t, t.Context(), "--quiet", "--bots=20", "--rooms=1", "--expect=bots.refused.room_full==4"); err != nil && !strings.Contains(err.Error(), "void") {
		t.Error(err)
	}
}

// A server that is no lab cannot be verified, and the run says so instead of passing.
func TestLoadVerifyNeedsLab(t *testing.T) {
	r := start(t, func(c *serveConfig) { c.liftCaps = true })
	if _, _, err := runLoad(t, t.Context(), "--quiet", "--url", r.url, "--verify"); err == nil || !strings.Contains(err.Error(), "--lab") {
		t.Error(err)
	}
}

func TestLoadDefaults(t *testing.T) {
	e, _, _ := testEnv(nil)
	c := newLoadConfig()
	c.bots = 33
	if _, err := c.check(e); err != nil || c.world != "dots" || c.rooms != 3 {
		t.Errorf("%v, world %s, %d rooms", err, c.world, c.rooms)
	}
	c.sendHz, c.beatThreads, c.encoders, c.goMaxProcs, c.arrangement, c.priority = 10, 1, 2, 8, "inline", "fifo"
	want := "serve --addr=127.0.0.1:0 --lift-caps --lab --quiet --drain-timeout=1s --priority=fifo --send-hz=10 --beat-threads=1 --encoders=2 --server-gomaxprocs=8 --arrangement=inline"
	if got := strings.Join(c.serveArgs(), " "); got != want {
		t.Error(got)
	}
}

func TestFraction(t *testing.T) {
	for in, want := range map[string]string{"1/10": "1/10", "1": "1/1", " 1/2 ": "1/2", "1/5000": "1/5000"} {
		var f fraction
		if err := f.UnmarshalText([]byte(in)); err != nil {
			t.Errorf("%q: %v", in, err)
		} else if b, _ := f.MarshalText(); string(b) != want {
			t.Errorf("%q: %s", in, b)
		}
	}
	for _, bad := range []string{"", "0", "2/3", "1/", "1/-1", "1/5001", "0.1", "1/x"} {
		if err := new(fraction).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestBitRate(t *testing.T) {
	for in, want := range map[string]struct {
		bytes int
		text  string
	}{"16kbit": {2000, "16kbit"}, "2Mbit": {250_000, "2mbit"}, "1.5 mbit": {187_500, "1500kbit"}, "800bit": {100, "800bit"}, "0": {0, ""}, "": {0, ""}, "1gbit": {125_000_000, "1000mbit"}} {
		var r bitRate
		if err := r.UnmarshalText([]byte(in)); err != nil || int(r) != want.bytes {
			t.Errorf("%q: %d, %v", in, r, err)
		}
		b, _ := r.MarshalText()
		if string(b) != want.text {
			t.Errorf("%q: %s, want %s", in, b, want.text)
		}
		var again bitRate
		if err := again.UnmarshalText(b); err != nil || again != r {
			t.Errorf("%s: %d, %v", b, again, err)
		}
	}
	for _, bad := range []string{"16", "kbit", "-1kbit", "NaNbit", "1e99gbit", "16kB", "7bit"} {
		if err := new(bitRate).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestFirstLineAndTail(t *testing.T) {
	f := &firstLine{found: make(chan string, 1)}
	for _, part := range []string{"listen", "ing here\r\nmore", "\nand more\n"} {
		if n, err := fmt.Fprint(f, part); n != len(part) || err != nil {
			t.Error(n, err)
		}
	}
	if got := <-f.found; got != "listening here" {
		t.Errorf("%q", got)
	}
	f = &firstLine{found: make(chan string, 1)}
	f.Write(bytes.Repeat([]byte("x"), serverTail+1)) // a line without an end
	if got := <-f.found; len(got) <= serverTail {
		t.Errorf("%d bytes", len(got))
	}
	var tl tail
	for i := range 3000 {
		fmt.Fprintln(&tl, i)
	}
	if s := tl.String(); len(s) > serverTail || !strings.HasSuffix(s, "2998\n2999") {
		t.Errorf("%d bytes, ending in %q", len(s), s[len(s)-20:])
	}
}

func TestCommandLine(t *testing.T) {
	if got := commandLine("load", []string{"--bots", "4", "--expect=a<=1", "it's", ""}); got != `drumline load --bots 4 '--expect=a<=1' 'it'\''s' ''` {
		t.Error(got)
	}
}

func TestLoadNoBot(t *testing.T) {
	for _, c := range []struct {
		inputs string
		def    drumline.Definition
		said   bool
	}{{"20", testWorld("dots"), true}, {"0", testWorld("dots"), false}, {"20", arena.World(), false}} {
		e, _, errs := testEnv(map[string]string{"GOMAXPROCS": "2", "GOGC": "100"})
		e.worlds = []drumline.Definition{c.def}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // what is said is said before anything runs
		_ = load(ctx, e, []string{"--bots=1", "--loss=1%", "--input-hz=" + c.inputs})
		if got := strings.Contains(errs.String(), "note: world dots has no Bot (drumline.Kind.Bot): its bots send zero inputs"); got != c.said {
			t.Errorf("%s %s inputs a second: %s", c.def.Spec().Name, c.inputs, errs)
		}
	}
}
