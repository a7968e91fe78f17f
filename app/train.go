package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
	"github.com/drumline-engine/drumline/lab/bots"
	"github.com/drumline-engine/drumline/link/mem"
)

const (
	defaultTrainFor = 20 * time.Second
	trainWarmup     = 1500 * time.Millisecond
	// trainLeast is the share of a field's bits for which other codes are proposed. What is less changes from run to run.
	trainLeast = 0.01
	// trainWorth is the share of all that is sent from which on other codes are recommended.
	trainWorth = 0.02
)

// trainConfig is what train's flags fill.
type trainConfig struct {
	world    string
	bots     int
	duration time.Duration
	state    string
	delay    time.Duration
	seed     uint64
}

func newTrainConfig() *trainConfig { return &trainConfig{duration: defaultTrainFor, seed: 1} }

func (c *trainConfig) flags() []flagSpec {
	return []flagSpec{
		{section: "The game that is played"},
		{name: "world", into: &c.world, usage: "Play the world of this `NAME`. Without it, the first of this program."},
		{name: "bots", some: true, most: bots.MaxBots, into: &c.bots, usage: "Let this `NUMBER` of bots play, at most 5000, in as few rooms as have the seats. Without it, as many as one room has seats."},
		{name: "for", into: &c.duration, usage: "Look at what is written for this `TIME`, at most 10m."},
		{name: "state", into: &c.state, usage: "Tell states in this `WAY`: ordered (against what was sent last, as over WebSockets) or acked (against what the client has acked, as where packets get lost). Without it ordered, or acked if there is a --delay."},
		{name: "delay", into: &c.delay, usage: "Let each packet take this `TIME`, in each direction, at most 2s. With acked states it is what makes baselines old, so give it half of your players' round trip."},
		{name: "seed", into: &c.seed, usage: "Derive the rooms' and the bots' choices from this `NUMBER`. The same one gives nearly the same figures again: the bots play in real time."},
	}
}

func trainCommand() command {
	return command{
		name:    "train",
		summary: "find the prefix codes that suit a world's entities best",
		about: "Plays a world with its bots in this process, looks at each number that is written of an entity, and prints the prefix " +
			"codes that would have written them in the fewest bits, what they save, and the line to paste into the world: snap.Options{Codes: …}. " +
			"A field is in it if other codes save at least 1 % of its bits, or if it has codes other than its default ones and keeps them, so the line " +
			"takes the place of the Codes that the world has. Instead of reading a recording it plays, so the codes are as good as the bots: train a " +
			"world with players like its own. It ends by itself.",
		flags: newTrainConfig().flags,
		run:   train,
	}
}

func train(ctx context.Context, e *env, args []string) error {
	c := newTrainConfig()
	if err := parseFlags(e, trainCommand(), c.flags(), args); err != nil {
		return err
	}
	def, err := c.check(e)
	if err != nil {
		return err
	}
	s := newServeConfig()
	s.liftCaps, s.quiet, s.priority, s.seed, s.state = true, true, "none", c.seed, c.state
	log := s.logger(e.stderr)
	// First the schemas, since without entities there is nothing to play for.
	w, err := welcome(ctx, def, log)
	if err != nil {
		return err
	}
	feeds := slices.DeleteFunc(w.Feeds, func(f feed.Info) bool { return f.Kind != snap.Kind })
	if len(feeds) == 0 {
		return fmt.Errorf("world %q has no entities, so there are no codes to choose", c.world)
	}
	s.setProcs(e)
	setGC(e)
	t := &snap.Trainer{}
	o := s.options([]drumline.Definition{def}, log)
	o.Tuning.Trace = t
	srv, err := newServer(o)
	if err != nil {
		return err
	}
	defer srv.Close()
	g, err := c.play(ctx, e, def, srv, t)
	if err != nil {
		return stopped(ctx, err, "stopped before the game was over")
	}
	return c.print(e.stdout, def, t, feeds, g)
}

// check finds what is wrong with the flags, and fills in what they leave open.
func (c *trainConfig) check(e *env) (def drumline.Definition, err error) {
	if len(e.worlds) == 0 {
		return def, errors.New("this program has no worlds: give app.Main at least one")
	}
	if c.world == "" {
		c.world = e.worlds[0].Spec().Name
	}
	if def, err = e.find("world", c.world); err != nil {
		return def, err
	}
	if c.bots = cmp.Or(c.bots, min(def.Spec().Seats, bots.MaxBots)); c.bots > bots.MaxBots {
		return def, outOfRange("bots", c.bots, bots.MaxBots)
	}
	if c.duration <= 0 || c.duration > maxLoadFor {
		return def, usagef("--for %v: want more than 0 and at most %v", c.duration, maxLoadFor)
	}
	if c.delay < 0 || c.delay > maxLinkDelay {
		return def, usagef("--delay %v: want 0 to %v", c.delay, maxLinkDelay)
	}
	switch c.state {
	case "ordered", "acked":
	case "":
		if c.state = "ordered"; c.delay > 0 {
			c.state = "acked"
		}
	default:
		return def, usagef("--state %q: want ordered or acked", c.state)
	}
	return def, nil
}

// play lets the bots join and settle in, and then has t see what is written to them. The figures are of the same time.
func (c *trainConfig) play(ctx context.Context, e *env, def drumline.Definition, srv *drumline.Server, t *snap.Trainer) (g bots.Figures, err error) {
	seats := def.Spec().Seats
	r := &loadRun{c: &loadConfig{bots: c.bots}, e: e, target: &loadTarget{url: fmt.Sprintf("world %q", c.world), srv: srv}, def: def}
	if r.fleet, err = bots.Start(ctx, bots.Options{Server: srv, Path: mem.Path{Delay: c.delay}, Unordered: c.state == "acked", World: c.world,
		NewBot: def.NewBot, Bots: c.bots, Rooms: (c.bots + seats - 1) / seats, InputHz: defaultLoadInput, Seed: c.seed}); err != nil {
		return g, err
	}
	defer r.fleet.Close()
	if err := r.join(ctx); err != nil {
		return g, err
	}
	if err := r.sleep(ctx, trainWarmup); err != nil {
		return g, err
	}
	if g = r.fleet.Figures(); brokenRooms(g.Closed, g.Refused) != "" {
		return g, errors.New(brokenRooms(g.Closed, g.Refused))
	}
	srv.ResetWindow()
	r.fleet.ResetWindow()
	t.Reset()
	start := time.Now()
	for left := c.duration; left > 0; left = c.duration - time.Since(start) {
		if err := r.sleep(ctx, min(left, time.Second)); err != nil {
			return g, err
		}
		g = r.fleet.Figures()
		// Codes for a world that breaks down on the way would be of a part of it.
		if s := brokenRooms(g.Closed, g.Refused); s != "" {
			return g, errors.New(s)
		}
		r.progress("%3.0f s of %v: %d playing, %d packets", time.Since(start).Seconds(), c.duration, g.Live, g.Packets)
	}
	if n := srv.Window().Dropped; n > 0 {
		fmt.Fprintf(e.stderr, "note: this machine was too slow for %s; what moves has moved further between two packets than it should\n", plural(n, "step"))
	}
	return g, nil
}

// print writes the tables, the sums and the lines to paste.
func (c *trainConfig) print(w io.Writer, def drumline.Definition, t *snap.Trainer, feeds []feed.Info, g bots.Figures) error {
	clientSeconds := float64(g.Clients) * g.For.Seconds()
	if clientSeconds == 0 {
		return errors.New("no bot stayed to the end")
	}
	rate := func(bits uint64) float64 { return float64(bits) / 8 / clientSeconds }
	fmt.Fprintf(w, "%s with %s for %v, states told %s", c.world, plural(g.Clients, "bot"), c.duration, c.state)
	if c.delay > 0 {
		fmt.Fprintf(w, ", %v each way", c.delay)
	}
	fmt.Fprintf(w, ", seed %d\n", c.seed)
	var numbers, now, best uint64
	var lines []string
	anew := false
	feedOf := map[string]string{}
	for _, f := range feeds {
		fields, codes, err := t.Choose(f.Schema, trainLeast)
		if err != nil {
			return err
		}
		name := cmp.Or(f.Name, f.Kind)
		heading := ""
		if len(feeds) > 1 {
			heading = "feed " + name
		}
		changed := false
		for _, x := range fields {
			if other, ok := feedOf[x.Field]; ok {
				return fmt.Errorf("the feeds %s and %s both have a field %s: what they write cannot be told apart, so call the types by different names", other, name, x.Field)
			}
			feedOf[x.Field] = name
			numbers, now, best = numbers+x.Numbers, now+x.NowBits, best+x.BestBits
			changed = changed || x.Best != x.Now
		}
		anew = anew || changed
		printFields(w, heading, fields, rate)
		lines = append(lines, pasteLine(heading, codes, changed))
	}
	if note := noBot(def); numbers == 0 && note != "" {
		return fmt.Errorf("no number of an entity was written: %s", note)
	}
	if numbers == 0 {
		return errors.New("no number of an entity was written: does nothing change in this world, or is a --for longer needed?")
	}
	fmt.Fprintf(w, "\n%-22s%9.0f B/s a client now, %.0f with the best codes (%s)\n", "these fields", rate(now), rate(best), change(rate(best), rate(now)))
	whole := float64(g.Bytes) / clientSeconds
	if whole > 0 {
		after := whole - rate(now-best)
		fmt.Fprintf(w, "%-22s%9.0f B/s a client now, %.0f with the best codes (%s)\n", "all that is sent", whole, after, change(after, whole))
	}
	fmt.Fprintf(w, "\n%s\n", strings.Join(lines, "\n"))
	if anew {
		fmt.Fprintln(w, "\nA code says which numbers of a field are written in few bits. It goes where the world makes its feed, snap.New(snap.Options{Codes: \"…\"}); pages learn it from the server.")
		if gain := rate(now - best); whole > 0 && gain < trainWorth*whole {
			fmt.Fprintf(w, "The gain is under %.0f %% of all that is sent: not worth the line.\n", 100*trainWorth)
		}
	}
	return nil
}

func change(after, before float64) string {
	if before == 0 {
		return "no change"
	}
	return fmt.Sprintf("%+.1f %%", 100*(after/before-1))
}

// printFields writes a feed's table.
func printFields(w io.Writer, heading string, fields []snap.Training, rate func(bits uint64) float64) {
	wide := len(heading)
	for _, x := range fields {
		wide = max(wide, len(x.Field))
	}
	fmt.Fprintf(w, "\n%-*s  %-12s%-12s%12s%18s%20s\n", wide, heading, "codes now", "best", "numbers", "bits a number", "B/s a client")
	var silent []string
	for _, x := range fields {
		if x.Numbers == 0 {
			silent = append(silent, x.Field)
			continue
		}
		per := func(bits uint64) float64 { return float64(bits) / float64(x.Numbers) }
		best, bits, bytes := "as now", fmt.Sprintf("%.2f", per(x.NowBits)), fmt.Sprintf("%.1f", rate(x.NowBits))
		if x.Best != x.Now {
			best = x.Best.String()
			bits += fmt.Sprintf(" → %.2f", per(x.BestBits))
			bytes += fmt.Sprintf(" → %.1f", rate(x.BestBits))
		}
		fmt.Fprintf(w, "%-*s  %-12s%-12s%12d%18s%20s\n", wide, x.Field, x.Now, best, x.Numbers, bits, bytes)
	}
	if silent != nil {
		fmt.Fprintf(w, "not written: %s\n", strings.Join(silent, ", "))
	}
}

// pasteLine is what to do with a feed's codes.
func pasteLine(heading, codes string, changed bool) string {
	if heading != "" {
		heading += ": "
	}
	switch {
	case !changed:
		return heading + fmt.Sprintf("no other codes would save %.0f %% of a field's bits: leave snap.Options as it is", 100*trainLeast)
	case codes == "":
		return heading + "snap.Options{} // the default codes are the best: leave Codes out"
	}
	return heading + fmt.Sprintf("snap.Options{Codes: %q}", codes)
}
