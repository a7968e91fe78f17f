package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drumline-engine/drumline/lab/bots"
	"github.com/drumline-engine/drumline/lab/motion"
	"github.com/drumline-engine/drumline/lab/report"
)

// benchConfig is what bench's flags fill.
type benchConfig struct {
	world                        string
	bots, rooms, inputHz, sendHz int
	duration                     time.Duration
	rounds                       int
	only                         string
	simulate                     bool
}

func newBenchConfig() *benchConfig {
	return &benchConfig{bots: 208, inputHz: defaultLoadInput, duration: 25 * time.Second, rounds: 1}
}

func (c *benchConfig) flags() []flagSpec {
	return []flagSpec{
		{section: "The load, as in load"},
		{name: "world", into: &c.world, usage: "Play in the world of this `NAME`. Without it, in the first of this program."},
		{name: "bots", into: &c.bots, usage: "Let this `NUMBER` of bots play."},
		{name: "rooms", some: true, most: bots.MaxBots, into: &c.rooms, usage: "Spread them over this `NUMBER` of rooms. Without it, as few as have the seats."},
		{name: "input-hz", into: &c.inputHz, usage: "Send this `NUMBER` of input messages a second and bot."},
		{name: "send-hz", some: true, most: maxSendHz, into: &c.sendHz, usage: "Send this `NUMBER` of states a second to each client. Without it, as the world says."},
		{name: "for", into: &c.duration, usage: "Measure each arrangement for this `TIME`."},
		{section: "The bench"},
		{name: "rounds", into: &c.rounds, usage: "Go through all arrangements this `NUMBER` of times, and print each run."},
		{name: "simulate", into: &c.simulate, usage: "Instead of all this, simulate what pages would show of lab/traffic over links that lose, delay and shuffle packets, and print it beside what really is: how evenly it moves, how late, and which inputs come in time. It takes a time of its own, a few seconds for each of its minutes (--for), and fails if a figure misses its target. Of the other flags it takes --for only."},
		{name: "only", into: &c.only, usage: "Only run the arrangements whose name contains this `TEXT`."},
	}
}

func benchCommand() command {
	return command{
		name:    "bench",
		summary: "compare ways to spread the server's work over threads",
		about: "Runs the same load against this program's server in several arrangements of threads and priorities, by turns, and " +
			"prints a row for each run. It is the measurement behind the choice in docs/decisions/0001-threads.md. Repeats a run " +
			"during which the host took more than 1 % of the time for others.",
		flags: newBenchConfig().flags,
		run:   bench,
	}
}

// benchMotion prints the tables of package motion.
func (c *benchConfig) benchMotion(ctx context.Context, e *env) error {
	if c.duration < time.Second || c.duration > maxLoadFor {
		return usagef("--for %v: want 1s to %v", c.duration, maxLoadFor)
	}
	missed, err := motion.Grid(ctx, e.stdout, motion.GridOptions{For: c.duration})
	if err == nil && missed > 0 {
		err = fmt.Errorf("%s over the target", plural(missed, "figure"))
	}
	return err
}

// arrangements are ways to run the same server; the first is the default where priorities are not permitted.
func (c *benchConfig) arrangements() []arrangement {
	return []arrangement{
		{"one beat thread, one encoder thread, no priority", []string{"--priority=none", "--beat-threads=1", "--encoders=1"}},
		{"the same, beat nice -10, encoder -5", []string{"--priority=nice", "--beat-threads=1", "--encoders=1"}},
		{"the same, beat SCHED_FIFO", []string{"--priority=fifo", "--beat-threads=1", "--encoders=1"}},
		{"two beat threads, nice", []string{"--priority=nice", "--beat-threads=2", "--encoders=1"}},
		{"a locked thread per room, nice", []string{"--priority=nice", fmt.Sprint("--beat-threads=", c.rooms), "--encoders=1"}},
		{"two encoder threads, nice", []string{"--priority=nice", "--beat-threads=1", "--encoders=2"}},
		{"an encoder that is a goroutine, nice beat", []string{"--priority=nice", "--beat-threads=1", "--encoders=1", "--arrangement=goroutines"}},
		{"encode and write on the beat, nice", []string{"--priority=nice", "--beat-threads=1", "--encoders=1", "--arrangement=inline"}},
		{"the default with GOMAXPROCS 2, nice", []string{"--priority=nice", "--beat-threads=1", "--encoders=1", "--server-gomaxprocs=2"}},
	}
}

type arrangement struct {
	name string
	args []string
}

func bench(ctx context.Context, e *env, args []string) error {
	c := newBenchConfig()
	typed, err := parseTyped(e, benchCommand(), c.flags(), args)
	if err != nil {
		return err
	}
	if c.simulate {
		for _, name := range typed {
			if name != "simulate" && name != "for" {
				return usagef("--%s: a simulation takes no other flag than --for", name)
			}
		}
		return c.benchMotion(ctx, e)
	}
	for _, f := range []struct {
		name               string
		value, least, most int
	}{{"bots", c.bots, 1, bots.MaxBots}, {"rounds", c.rounds, 1, 20}, {"input-hz", c.inputHz, 0, 200}} {
		if f.value < f.least || f.value > f.most {
			return usagef("--%s %d: want %d to %d", f.name, f.value, f.least, f.most)
		}
	}
	if c.duration <= 0 || c.duration > maxLoadFor {
		return usagef("--for %v: want more than 0 and at most %v", c.duration, maxLoadFor)
	}
	if len(e.worlds) == 0 {
		return errors.New("this program has no worlds: give app.Main at least one")
	}
	if c.world == "" {
		c.world = e.worlds[0].Spec().Name
	}
	def, err := e.find("world", c.world)
	if err != nil {
		return err
	}
	if c.rooms == 0 {
		seats := def.Spec().Seats
		c.rooms = (c.bots + seats - 1) / seats
	}
	all := slices.DeleteFunc(c.arrangements(), func(a arrangement) bool { return !strings.Contains(a.name, c.only) })
	if len(all) == 0 {
		var names strings.Builder
		for _, a := range c.arrangements() {
			names.WriteString("\n  " + a.name)
		}
		return usagef("--only %q matches no arrangement; there are:%s", c.only, &names)
	}
	dir, err := os.MkdirTemp("", "drumline-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	base := []string{"--quiet", "--world=" + c.world, fmt.Sprint("--bots=", c.bots), fmt.Sprint("--rooms=", c.rooms), fmt.Sprint("--input-hz=", c.inputHz),
		fmt.Sprint("--for=", c.duration)}
	if c.sendHz != 0 {
		base = append(base, fmt.Sprint("--send-hz=", c.sendHz))
	}
	fmt.Fprintf(e.stdout, "%d bots in %d rooms of %s, %d input messages a second, %v each\n\n", c.bots, c.rooms, c.world, c.inputHz, c.duration)
	fmt.Fprintln(e.stdout, "| arrangement | interval p50 / p99 / max ms | late p99 ms | skipped / doubled / dropped of steps | age p99 ms | gap p99 ms | cores server + bots | RSS MiB |")
	fmt.Fprintln(e.stdout, "|---|---|---|---|---|---|---|---|")
	load := newLoadConfig()
	for range c.rounds {
		for i, a := range all {
			file := filepath.Join(dir, "run.json")
			b, void, err := load.runOne(ctx, e, fmt.Sprintf("%d of %d: %s", i+1, len(all), a.name), slices.Concat(base, a.args, []string{"--json=" + file}), file)
			if err != nil {
				return stopped(ctx, fmt.Errorf("%s: %w", a.name, err), "stopped before all arrangements had run")
			}
			var r report.Report
			if err := json.Unmarshal(b, &r); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			name := a.name
			if void != "" {
				name += " (void: " + void + ")"
			}
			fmt.Fprintf(e.stdout, "| %s | %.2f / %.2f / %.2f | %.2f | %d / %d / %d of %d | %.2f | %.1f | %.2f + %.2f | %.0f |\n", name,
				r.Beat.Interval.P50, r.Beat.Interval.P99, r.Beat.Interval.Max, r.Beat.Late.P99, r.Beat.Skipped, r.Beat.Doubled, r.Beat.Dropped, r.Beat.Steps,
				r.Snapshot.AgeMs.P99, r.Client.GapMs.P99, r.Server.CPUCores, r.Load.CPUCores, r.Server.RSSMiB)
		}
	}
	return nil
}
