package app

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stillProcs keeps a run in this process from changing how Go runs the other tests.
func stillProcs(t *testing.T) {
	t.Helper()
	t.Setenv("GOMAXPROCS", "2")
	t.Setenv("GOGC", "100")
}

// runTogether is runLoad with bots and server in this process.
func runTogether(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	e, out, errs := testEnv(map[string]string{"GOMAXPROCS": "2", "GOGC": "100"})
	err = load(t.Context(), e, append([]string{"--bots=3", "--rooms=1", "--for=300ms", "--warmup=50ms", "--priority=none"}, args...))
	return out.String(), errs.String(), err
}

// A run over a bad network, in one process: everything is there but what cannot be told apart.
func TestLoadTogether(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json")
	out, errs, err := runTogether(t, "--loss=5%", "--delay=10ms", "--jitter=5ms", "--verify", "--json", file,
		"--expect=bots.joined==3,bots.lost==0,client.decode_errors==0,client.mismatches==0,settings.loss_pct==5,settings.delay_ms==10,beat.steps>0,"+
			"client.packet_bytes.max<=1100,client.acks>0,client.ack_delay_ms.p99>=0,client.events_per_s==0,load.rss_mib>0,motion.bots==3,motion.underruns>=0,motion.delay_ms>=0")
	if err != nil && !strings.Contains(err.Error(), "void") {
		t.Fatalf("%v\n%s%s", err, out, errs)
	}
	for _, want := range []string{"in one process, link/mem", "each way loses 5 % and takes 10 ms and up to 5 ms more", "server    in the bots' process", "bots and server together", "scheduler group of bots and server: one process"} {
		if !strings.Contains(out, want) {
			t.Errorf("the table lacks %q\n%s", want, out)
		}
	}
	r := readReport(t, file)
	if r["transport"] != "mem" || r["server"] != nil || r["beat"] == nil || r["load"].(map[string]any)["with_server"] != true {
		t.Errorf("%v %v %v", r["transport"], r["server"], r["load"])
	}
}

// With --state ordered the link is, too: nothing is overtaken, whatever the network does.
func TestLoadTogetherOrdered(t *testing.T) {
	out, errs, err := runTogether(t, "--quiet", "--loss=10%", "--jitter=60ms", "--state=ordered", "--verify",
		"--expect=bots.joined==3,client.mismatches==0,client.overtaken==0,client.no_base==0,client.decode_errors==0,client.verified>0")
	if err != nil && !strings.Contains(err.Error(), "void") {
		t.Fatalf("%v\n%s%s", err, out, errs)
	}
}

// Only what is told against what has arrived, or not told to be, goes over a link that loses.
func TestLoadTogetherKeepsOrder(t *testing.T) {
	for state, want := range map[string]bool{"": true, "acked": true, "ordered": false, "whole": false, "plain": false} {
		if c := (&loadConfig{state: state}); c.unordered() != want {
			t.Errorf("--state %q: unordered %v", state, c.unordered())
		}
	}
	for _, state := range []string{"whole", "plain"} {
		out, errs, err := runTogether(t, "--quiet", "--loss=10%", "--jitter=30ms", "--state="+state, "--verify",
			"--expect=bots.joined==3,client.mismatches==0,client.overtaken==0,client.no_base==0,client.decode_errors==0,client.verified>0")
		if err != nil && !strings.Contains(err.Error(), "void") {
			t.Errorf("%v\n%s%s", err, out, errs)
		}
	}
}

// What changes states or the network can be compared, in one run of each, and the bytes are in the table.
func TestLoadCompareStates(t *testing.T) {
	stillProcs(t)
	for _, args := range [][]string{
		{"--state=whole", "--compare=state=ordered", "--expect=a.bots.joined==2,b.bots.joined==2,b.client.mismatches==0,ratio.snapshot.bytes_per_client_s<1,ratio.snapshot.wire_bytes_per_client_s<1"},
		{"--compare=state=plain", "--expect=a.bots.joined==2,b.bots.joined==2,b.client.decode_errors==0,b.client.mismatches==0,b.client.verified>0"},
		{"--compare=state=whole,no-rings,deflate", "--expect=a.bots.deflated==0,b.bots.deflated==2,a.bots.joined==2,b.bots.joined==2,b.client.decode_errors==0,b.client.mismatches==0"},
		{"--loss=0", "--compare=loss=20%", "--expect=a.settings.loss_pct==0,b.settings.loss_pct==20,a.bots.joined==2,b.bots.joined==2,b.client.mismatches==0"},
	} {
		out, errs, err := runLoad(t, t.Context(), append([]string{"--quiet", "--bots=2", "--rooms=1", "--rounds=1", "--verify"}, args...)...)
		if err != nil && !strings.Contains(err.Error(), "void") {
			t.Errorf("%v: %v\n%s%s", args, err, out, errs)
		}
		for _, row := range []string{"snapshot.bytes_per_client_s", "snapshot.wire_bytes_per_client_s"} {
			_, after, _ := strings.Cut(out, "\n"+row+" ")
			if line, _, _ := strings.Cut(after, "\n"); len(strings.Fields(line)) != 4 { // A, B, B - A, B / A
				t.Errorf("%v: %s %q in\n%s", args, row, line, out)
			}
		}
	}
}

func TestLoadLinkUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--loss 51%", "at most 50%"},
		{"--loss much", "1/20"},
		{"--delay 3s", "0 to 2s"},
		{"--jitter -1ms", "0 to 2s"},
		{"--state half", "want whole, plain, ordered or acked"},
		{"--loss 1% --deflate", "--deflate is about sockets"},
		{"--delay 1ms --url http://127.0.0.1:1", "--url is about sockets"},
		{"--loss 0 --rcvbuf 4096", "--rcvbuf is about sockets"},
		{"--url http://127.0.0.1:1 --state acked", "--state and --no-rings to that one"},
		{"--url http://127.0.0.1:1 --no-rings", "--state and --no-rings to that one"},
		{"--compare loss=5%", "give --loss 0"},
		{"--delay 5ms --compare delay=0s", "give --loss 0"},
		{"--loss 0 --compare deflate", "about sockets"},
		{"--compare state=half", "want whole, plain, ordered or acked"},
		{"--compare loss=2", "want a share"},
		{"--compare for=0s", "--compare: --for 0s: want more than 0"},
		{"--compare bots=2,pause=3", "--compare: --pause 3: want 0 to 2"},
		{"--compare send-hz=1000", "--compare: --send-hz 1000: world dots runs 60"},
		{"--compare priority=high", "--compare: --priority"},
		{"--compare world=chess", "there is dots"},
		{"--loss 0 --expect server.rss_mib<1", "there is no such figure"},
		{"--motion 20", "--motion 20: want 1 to 3; leave it out"},
		{"--expect motion.jolt_ratio<2 --bots 2", "there is no such figure"},
	} {
		if _, _, err := runTogether(t, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

// The server of a run gets the flags, whichever process it is in.
func TestLoadPassesFlagsOn(t *testing.T) {
	c := newLoadConfig()
	c.state, c.noRings, c.deflate = "acked", true, true
	if got := strings.Join(c.serveArgs(), " "); !strings.HasSuffix(got, "--priority=nice --state=acked --no-rings --deflate") {
		t.Error(got)
	}
	e, _, _ := testEnv(map[string]string{"GOMAXPROCS": "2", "GOGC": "100"})
	c.sendHz = 1000
	if srv, err := c.newServer(e); err == nil {
		srv.Close()
		t.Error("1000 states a second of 60 steps")
	}
}

func TestLossShare(t *testing.T) {
	for in, want := range map[string]struct {
		share float64
		text  string
	}{"5%": {.05, "5%"}, "0.05": {.05, "5%"}, "1/20": {.05, "5%"}, " 2.5 % ": {.025, "2.5%"}, "0": {0, "0%"}, "50%": {.5, "50%"}} {
		var l lossShare
		if err := l.UnmarshalText([]byte(in)); err != nil || l.share != want.share || !l.given {
			t.Errorf("%q: %+v, %v", in, l, err)
		}
		b, _ := l.MarshalText()
		if string(b) != want.text {
			t.Errorf("%q: %s, want %s", in, b, want.text)
		}
		var again lossShare
		if err := again.UnmarshalText(b); err != nil || again != l {
			t.Errorf("%s: %+v, %v", b, again, err)
		}
	}
	for _, bad := range []string{"51%", "0.6", "-1%", "1/0", "1/1", "NaN", "NaN%", "x", "%", "1/x", "-1/20"} {
		if err := new(lossShare).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	l := lossShare{.1, true}
	if err := l.UnmarshalText(nil); err != nil || l.given {
		t.Errorf("an empty value: %+v, %v", l, err)
	}
	if c := (&loadConfig{jitter: time.Millisecond}); !c.inProcess() {
		t.Error("jitter needs no network")
	}
}
