package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed/snap"
	"github.com/drumline-engine/drumline/lab/report"
)

// breaking is a world that panics when a room has made so many steps.
type breaking struct {
	still
	steps int
	n     *int
}

func (w breaking) Step(*drumline.Step[nothing]) {
	if *w.n++; *w.n > w.steps {
		panic("the wheel came off")
	}
}

func breakingWorld(name string, steps int) drumline.Definition {
	return drumline.Define(drumline.Kind[nothing]{Spec: drumline.Spec{Name: name, Hz: 60},
		Open: func(*drumline.Room) (drumline.World[nothing], error) {
			f := snap.New(snap.Options{})
			snap.Add[dot](f, "dot").Spawn(dot{})
			return breaking{still{f}, steps, new(int)}, f.Err()
		}})
}

// A run whose room panicked is printed, fails, says why and shows what the server said, however early it was.
func TestLoadRoomBreaks(t *testing.T) {
	for as, args := range map[string][]string{"breaking": {"--for=9m"}, "breaking early": {"--for=9m", "--verify"}} {
		t.Setenv(asProgram, as)
		e, out, errs := testEnv(nil)
		e.worlds = []drumline.Definition{breakingWorld("breaks", 0)} // of this one only the name counts
		err := load(t.Context(), e, append([]string{"--bots=3", "--rooms=1", "--warmup=50ms", "--nice=0"}, args...))
		if err == nil {
			t.Fatalf("%s: it went well\n%s%s", as, out, errs)
		}
		for _, want := range []string{"a room ended with an error of its world, which threw out 3 bots (room_error)", "it said:", "the wheel came off"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v lacks %q", as, err, want)
			}
		}
		if strings.Contains(err.Error(), "--lab") || exitCode(e, "load", err) != exitFailed || !strings.Contains(out.String(), "room_error") {
			t.Errorf("%s: %v\n%s", as, err, out)
		}
	}
}

func TestLoadTrouble(t *testing.T) {
	run := func(change func(r *report.Report, end *runEnd)) (*report.Report, runEnd) {
		r, end := &report.Report{Bots: report.Bots{Closed: map[string]int{}, Refused: map[string]int{}}}, runEnd{said: "; it said:\nouch"}
		change(r, &end)
		return r, end
	}
	for _, c := range []struct {
		expect string
		change func(r *report.Report, end *runEnd)
		want   string // empty: no trouble
	}{
		{"", func(*report.Report, *runEnd) {}, ""},
		{"", func(r *report.Report, _ *runEnd) { r.Bots.Closed["stalled"] = 3 }, ""},
		{"", func(r *report.Report, _ *runEnd) { r.Bots.Closed["room_error"], r.Bots.Refused["room_error"] = 1, 1 }, "threw out 2 bots (room_error); it said:\nouch"},
		{"", func(r *report.Report, _ *runEnd) { r.Bots.Closed["room_hung"] = 1 }, "a room hung in its world, which threw out 1 bot (room_hung)"},
		{"bots.closed.room_error==1", func(r *report.Report, _ *runEnd) { r.Bots.Closed["room_error"] = 1 }, ""},
		{"", func(r *report.Report, _ *runEnd) { r.Client.DecodeErrors, r.Client.FirstError = 2, "bot 1: short" }, "2 packets could not be decoded; the first: bot 1: short; it said:"},
		{"", func(_ *report.Report, end *runEnd) { end.earlyErrors = 1 }, "1 packet could not be decoded"},
		{"client.decode_errors<=2", func(r *report.Report, _ *runEnd) { r.Client.DecodeErrors = 2 }, ""},
		{"", func(r *report.Report, end *runEnd) { r.Client.Mismatches, end.earlyMismatches = 1, 1 }, "2 packets left a bot with something else"},
		{"", func(_ *report.Report, end *runEnd) { end.cut = "no bot plays any more, closed: 3 draining" }, "3 draining"},
		{"bots.closed.stalled==3", func(_ *report.Report, end *runEnd) { end.cut = "no bot plays any more" }, ""},
		{"bots.lost==3", func(_ *report.Report, end *runEnd) { end.cut, end.gone = "the server stopped", true }, "the server stopped"},
		{"", func(_ *report.Report, end *runEnd) { end.unverified = true }, "--lab"},
		{"", func(r *report.Report, end *runEnd) { end.unverified, r.Bots.Closed["room_error"] = true, 1 }, "room_error"},
	} {
		r, end := run(c.change)
		err := (&loadConfig{expect: c.expect}).trouble(r, end)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v %+v, expecting %q: %v, want %q", r.Bots, end, c.expect, err, c.want)
		}
	}
}

// reacting is a standard error that calls react once when marker is written.
func reacting(w *strings.Builder, marker string, react func()) writerFunc {
	done := false
	return func(p []byte) (int, error) {
		n, err := w.Write(p)
		if !done && strings.Contains(w.String(), marker) {
			done = true
			react()
		}
		return n, err
	}
}

// A server that is stopped under the load of another process leaves the figures until then.
func TestLoadURLServerGoes(t *testing.T) {
	r := start(t, func(c *serveConfig) { c.liftCaps = true })
	file := filepath.Join(t.TempDir(), "run.json")
	e, out, _ := testEnv(nil)
	var errs strings.Builder
	e.stderr = reacting(&errs, " playing, ", r.cancel)
	err := load(t.Context(), e, []string{"--bots=3", "--rooms=1", "--for=9m", "--warmup=50ms", "--nice=0", "--url", r.url, "--json", file})
	if err == nil || !strings.Contains(err.Error(), "no bot plays any more, closed: 3 draining") && !strings.Contains(err.Error(), "stopped telling its figures") {
		t.Errorf("%v\n%s", err, &errs)
	}
	if !strings.Contains(errs.String(), "note: the run was cut short: ") || !strings.Contains(out.String(), "client gap ms") {
		t.Errorf("%s%s", out, &errs)
	}
	if s := readReport(t, file)["snapshot"].(map[string]any); s["packets"].(float64) < 1 {
		t.Errorf("%v", s)
	}
}

// A comparison that is stopped prints what it has.
func TestLoadCompareStopped(t *testing.T) {
	for marker, want := range map[string]string{"== A 2 of 3": "stopped after 1 of 3 rounds", "== A 1 of 3": "nothing to compare"} {
		t.Setenv(asProgram, "main")
		ctx, cancel := context.WithCancel(t.Context())
		file := filepath.Join(t.TempDir(), "cmp.json")
		e, out, _ := testEnv(nil)
		var errs strings.Builder
		e.stderr = reacting(&errs, marker, cancel)
		err := load(ctx, e, []string{"--bots=2", "--rooms=1", "--for=200ms", "--warmup=0s", "--nice=0", "--quiet", "--json", file, "--compare=input-hz=10"})
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "context") || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v\n%s", marker, err, &errs)
		}
		b, none := os.ReadFile(file)
		if strings.HasPrefix(want, "stopped after 1") {
			var c struct{ Rounds int }
			if json.Unmarshal(b, &c); c.Rounds != 1 || !strings.Contains(out.String(), "Medians of 1 alternating runs") {
				t.Errorf("%+v\n%s", c, out)
			}
		} else if none == nil || out.Len() > 0 {
			t.Errorf("%s%s", b, out)
		}
	}
}

func TestStopped(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	other := errors.New("other")
	cancel()
	for _, c := range []struct {
		err  error
		want string
	}{{other, "other"}, {fmt.Errorf("asking: %w", context.Canceled), "stopped early"}} {
		if err := stopped(ctx, c.err, "stopped early"); err.Error() != c.want || !errors.Is(err, c.err) {
			t.Errorf("%v: %v", c.err, err)
		}
	}
	if err := stopped(ctx, nil, "stopped early"); err != nil {
		t.Error(err)
	}
	if err := stopped(t.Context(), context.Canceled, "stopped early"); err != context.Canceled {
		t.Error(err)
	}
}
