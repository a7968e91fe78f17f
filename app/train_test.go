package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
	"github.com/drumline-engine/drumline/lab/bots"
	"github.com/drumline-engine/drumline/worlds/arena"
)

// flea leaps about, so that the codes that suit what moves evenly do not suit it.
type flea struct {
	X, Y float64 `drumline:"q=0.01,range=-100:100"`
	Age  uint16
}

type fleas struct {
	still
	set *snap.Set[flea]
}

func (w fleas) Step(s *drumline.Step[nothing]) {
	for id, f := range w.set.All() {
		n := uint32(s.Tick)*2654435761 ^ uint32(id)*40503
		f.X, f.Y = float64(n%1009)/10, float64(n%7)
		if n%50 == 0 {
			f.Age++
		}
	}
}

func fleaWorld(name, codes string) drumline.Definition {
	return drumline.Define(drumline.Kind[nothing]{Spec: drumline.Spec{Name: name, Hz: 60, Seats: 3},
		Open: func(*drumline.Room) (drumline.World[nothing], error) {
			f := snap.New(snap.Options{Codes: codes})
			w := fleas{still{f}, snap.Add[flea](f, "flea")}
			for range 10 {
				w.set.Spawn(flea{})
			}
			return w, f.Err()
		}})
}

// trained runs the command.
func trained(t *testing.T, worlds []drumline.Definition, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	e, out, errs := testEnv(map[string]string{"GOMAXPROCS": "2", "GOGC": "100"})
	e.worlds, e.lab = worlds, labWorlds()
	code = run(t.Context(), e, commands(), append([]string{"train"}, args...))
	return code, out.String(), errs.String()
}

var (
	trainSums  = regexp.MustCompile(`(?m)^(these fields|all that is sent) +(\d+) B/s a client now, (\d+) with the best codes \(`)
	trainPaste = regexp.MustCompile(`(?m)^snap\.Options\{Codes: "(.*)"\}$`)
)

// The codes that are found save bytes, and pasted into the world they are its codes.
func TestTrain(t *testing.T) {
	code, out, errs := trained(t, []drumline.Definition{fleaWorld("fleas", "flea.age=3")}, "--for=300ms")
	if code != exitOK {
		t.Fatalf("%d\n%s%s", code, out, errs)
	}
	sums := trainSums.FindAllStringSubmatch(out, -1)
	if len(sums) != 2 {
		t.Fatalf("%q in\n%s", sums, out)
	}
	for _, s := range sums {
		var now, best int
		if fmt.Sscan(s[2], &now); now == 0 {
			t.Errorf("%s", s[0])
		}
		if fmt.Sscan(s[3], &best); best >= now {
			t.Errorf("%s: no gain, from %d to %d", s[1], now, best)
		}
	}
	for _, want := range []string{"fleas with 3 bots for 300ms, states told ordered, seed 1", "flea.age ", "flea.x ", "flea.y ", " → "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if !strings.Contains(errs, "3 of 3 joined") || !strings.Contains(errs, "s of 300ms: 3 playing") {
		t.Errorf("no progress: %s", errs)
	}
	line := trainPaste.FindStringSubmatch(out)
	if line == nil || !strings.Contains(line[1], "flea.x=") {
		t.Fatalf("no line to paste in\n%s", out)
	}
	w, err := welcome(t.Context(), fleaWorld("fleas", line[1]), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, codes, err := new(snap.Trainer).Choose(w.Feeds[0].Schema, 0); err != nil || codes != line[1] {
		t.Errorf("pasted %q, the schema says %q, %v", line[1], codes, err)
	}
}

// A world of the program and one of the lab, over a link that loses.
func TestTrainWorlds(t *testing.T) {
	for _, args := range []string{"--world=arena --bots=2", "--world=traffic --bots=17 --delay=5ms --seed=3", "--world=arena --bots=2 --state=acked"} {
		code, out, errs := trained(t, []drumline.Definition{testWorld("dots"), arena.World()}, append(strings.Fields(args), "--for=300ms")...)
		if code != exitOK {
			t.Fatalf("%s: %d\n%s%s", args, code, out, errs)
		}
		for _, s := range trainSums.FindAllStringSubmatch(out, -1) {
			var now, best int
			fmt.Sscan(s[2], &now)
			if fmt.Sscan(s[3], &best); best > now || now == 0 {
				t.Errorf("%s: %s: from %d to %d", args, s[1], now, best)
			}
		}
		if !strings.Contains(out, "snap.Options") || strings.Contains(out, "told acked") != (args != "--world=arena --bots=2") {
			t.Errorf("%s:\n%s", args, out)
		}
		if strings.Contains(out, "5ms each way, seed 3") != strings.Contains(args, "delay") {
			t.Errorf("%s:\n%s", args, out)
		}
	}
}

func TestTrainRefuses(t *testing.T) {
	bare := drumline.Define(drumline.Kind[input]{Spec: drumline.Spec{Name: "bare", Hz: 20},
		Open: func(*drumline.Room) (drumline.World[input], error) { return bareWorld{}, nil }})
	closed := drumline.Define(drumline.Kind[input]{Spec: drumline.Spec{Name: "closed", Hz: 20},
		Open: func(*drumline.Room) (drumline.World[input], error) { return nil, errors.New("no map here") }})
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--world=chess", exitUsage, "there is no such world; there are: dots, bare, closed, traffic"},
		{"--bots=0", exitUsage, "--bots 0: want 1 to 5000; leave it out for the default"},
		{"--bots=5001", exitUsage, "want 1 to 5000"},
		{"--for=0s", exitUsage, "--for 0s"},
		{"--for=11m", exitUsage, "at most 10m"},
		{"--delay=3s", exitUsage, "0 to 2s"},
		{"--delay=-1s", exitUsage, "0 to 2s"},
		{"--state=whole", exitUsage, "want ordered or acked"},
		{"now", exitUsage, "is not a flag"},
		{"--world=bare", exitFailed, `world "bare" has no entities`},
		{"--world=closed", exitFailed, `world "closed" does not open: no map here`},
		{"--bots=1 --for=50ms", exitFailed, "no number of an entity was written: world dots has no Bot (drumline.Kind.Bot): its bots send zero inputs"},
	} {
		if code, out, errs := trained(t, []drumline.Definition{testWorld("dots"), bare, closed}, strings.Fields(c.args)...); code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %d, want %d and %q\n%s%s", c.args, code, c.code, c.want, out, errs)
		}
	}
	if code, _, errs := trained(t, nil); code != exitFailed || !strings.Contains(errs, "no worlds") {
		t.Errorf("%d %s", code, errs)
	}
	e, _, _ := testEnv(map[string]string{"GOMAXPROCS": "2", "GOGC": "100"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := train(ctx, e, []string{"--for=10m"}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// A room with several feeds has a table and a line for each, unless the trainer cannot tell them apart.
func TestTrainPrint(t *testing.T) {
	info := func(name, typ, codes string) feed.Info {
		f := snap.New(snap.Options{Name: name, Codes: codes})
		snap.Add[flea](f, typ)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		return f.Info()
	}
	tr := &snap.Trainer{}
	for range 100 {
		tr.Residual("louse.x", 0, 200)
	}
	g := bots.Figures{Clients: 1, For: time.Second, Bytes: 1000}
	c := newTrainConfig()
	c.world, c.state = "zoo", "ordered"
	var b bytes.Buffer
	if err := c.print(&b, fleaWorld("zoo", ""), tr, []feed.Info{info("near", "louse", ""), info("far", "flea", "flea.x=3")}, g); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nfeed near  codes now ", "\nfeed far  ", "\nlouse.x  ", "not written: louse.age, louse.y\n", "not written: flea.age, flea.x, flea.y\n",
		"\nfeed near: snap.Options{Codes: \"louse.x=5\"}\n", "\nfeed far: no other codes would save 1 % of a field's bits: leave snap.Options as it is\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &b)
		}
	}
	if !strings.Contains(b.String(), "goes where the world makes its feed") || !strings.Contains(b.String(), "under 2 % of all that is sent: not worth the line") {
		t.Errorf("what to do with the line:\n%s", &b)
	}
	g.Bytes = 500
	b.Reset()
	if err := c.print(&b, fleaWorld("zoo", ""), tr, []feed.Info{info("near", "louse", "")}, g); err != nil || strings.Contains(b.String(), "not worth") {
		t.Errorf("a gain of 2.5 %%: %v\n%s", err, &b)
	}
	if line := pasteLine("", "", true); !strings.Contains(line, "leave Codes out") {
		t.Error(line)
	}
	if err := c.print(io.Discard, fleaWorld("zoo", ""), tr, []feed.Info{info("near", "louse", ""), info("far", "louse", "")}, g); err == nil || !strings.Contains(err.Error(), "cannot be told apart") {
		t.Errorf("one type in two feeds: %v", err)
	}
	if err := c.print(io.Discard, fleaWorld("zoo", ""), tr, []feed.Info{info("near", "louse", "")}, bots.Figures{}); err == nil || !strings.Contains(err.Error(), "no bot stayed") {
		t.Errorf("nobody there: %v", err)
	}
	if err := c.print(io.Discard, fleaWorld("zoo", ""), tr, []feed.Info{{Kind: snap.Kind, Schema: []byte("{}")}}, g); err == nil {
		t.Error("a schema of another version is taken")
	}
}

// A world that breaks down is not called one in which nothing changes.
func TestTrainRoomBreaks(t *testing.T) {
	e, out, errs := testEnv(map[string]string{"GOMAXPROCS": "2", "GOGC": "100"})
	e.worlds = []drumline.Definition{breakingWorld("breaks", 90)}
	var mu sync.Mutex // the room logs its panic beside the command's progress
	e.stderr = writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return errs.Write(p)
	})
	code := run(t.Context(), e, commands(), []string{"train", "--for=9m", "--bots=2"})
	mu.Lock()
	defer mu.Unlock()
	if s := errs.String(); code != exitFailed || !strings.Contains(s, "a room ended with an error of its world, which threw out 2 bots (room_error)") ||
		!strings.Contains(s, "the wheel came off") || strings.Contains(s, "does nothing change") {
		t.Errorf("%d\n%s%s", code, out, s)
	}
}
