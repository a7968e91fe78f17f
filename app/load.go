package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/internal/proc"
	"github.com/drumline-engine/drumline/lab/bots"
	"github.com/drumline-engine/drumline/lab/report"
	"github.com/drumline-engine/drumline/ops"
)

const (
	maxLoadFor       = 10 * time.Minute
	serverStartTime  = 20 * time.Second
	serverStopTime   = 5 * time.Second
	loadDrainTime    = time.Second
	askTimeout       = 5 * time.Second
	voidRepeats      = 2  // how often a comparison repeats a void run
	roomsPerAsk      = 16 // a server's figures cost it a little per room: with more rooms it is asked less often
	serverTail       = 4 << 10
	defaultRounds    = 3
	defaultLoadNice  = 10
	defaultLoadBots  = 16
	defaultLoadInput = 20
)

// loadConfig is what load's flags fill.
type loadConfig struct {
	world       string
	bots, rooms int
	duration    time.Duration
	warmup      time.Duration
	url         string

	inputHz, inputsPerPacket int
	decode                   fraction
	verify                   bool
	pause, rcvbuf            int
	rate                     bitRate
	seed                     uint64
	threads                  int
	nice                     int

	json    string
	expect  string
	compare string
	rounds  int
	quiet   bool

	sendHz       int
	priority     string
	beatThreads  int
	encoders     int
	arrangement  string
	goMaxProcs   int
	opsToken     string
	opsTokenFile string
}

func newLoadConfig() *loadConfig {
	return &loadConfig{bots: defaultLoadBots, duration: 30 * time.Second, warmup: 1500 * time.Millisecond, inputHz: defaultLoadInput,
		decode: 1, seed: 1, nice: defaultLoadNice, rounds: defaultRounds, priority: "nice"}
}

func (c *loadConfig) flags() []flagSpec {
	return []flagSpec{
		{section: "The load"},
		{name: "world", into: &c.world, usage: "Play the world of this `NAME`. Without it, the first of this program."},
		{name: "bots", into: &c.bots, usage: "Let this `NUMBER` of bots play, at most 5000."},
		{name: "rooms", into: &c.rooms, usage: "Spread them over this `NUMBER` of rooms, r1, r2 and so on. Without it, as few as have the seats."},
		{name: "for", into: &c.duration, usage: "Measure for this `TIME`, at most 10m."},
		{name: "warmup", into: &c.warmup, usage: "Wait this `TIME` after the last join before measuring."},
		{name: "url", into: &c.url, usage: "Load the server at this `URL`, such as http://127.0.0.1:8080, instead of a server of its own. Only load a machine of which you may. Its limits must be lifted (serve --lift-caps), and --verify needs serve --lab."},
		{section: "The bots"},
		{name: "input-hz", into: &c.inputHz, usage: "Send this `NUMBER` of input messages a second and bot, at most 200; 0: none, acks only."},
		{name: "inputs-per-packet", into: &c.inputsPerPacket, usage: "Put this `NUMBER` of inputs into a message, at most 8. Without it, one for each step between two messages, as a page does."},
		{name: "decode", into: &c.decode, usage: "Let this `SHARE` of the bots, such as 1/10, decode what they get; the others read headers and ack."},
		{name: "verify", into: &c.verify, usage: "Have each packet to a bot that decodes carry a hash of what the bot must now hold, and compare."},
		{name: "pause", into: &c.pause, usage: "After the warm-up let this `NUMBER` of bots stop reading, while they send on. They are left out of the clients' figures."},
		{name: "rcvbuf", into: &c.rcvbuf, usage: "Give bots that pause or are rate-limited (all bots, if there are none such) a receive buffer of this `NUMBER` of bytes. Without it, 4096 for those; the system's own for others."},
		{name: "rate", into: &c.rate, usage: "Let each bot read no faster than this `RATE`, such as 16kbit or 2mbit (a second)."},
		{name: "seed", into: &c.seed, usage: "Derive the bots' choices from this `NUMBER`."},
		{name: "threads", into: &c.threads, usage: "Serve the bots on this `NUMBER` of threads. Without it, one for each 2500."},
		{name: "nice", into: &c.nice, usage: "Run the bots at this `NICE` value, so that they disturb the server beside them less; 0: leave it."},
		{section: "The result"},
		{name: "json", into: &c.json, usage: "Write the figures to this `FILE`; - for standard output, the table then goes to standard error."},
		{name: "expect", into: &c.expect, usage: "Fail (exit code 1) unless this comma-separated `LIST` of conditions on figures of the JSON holds, such as beat.skipped==0,client.gap_ms.p99<=55."},
		{name: "compare", into: &c.compare, usage: "Run again and again, by turns with and without this comma-separated `LIST` of changed flags, such as pause=8 or send-hz=10,decode=1/2, and print the medians. Figures then begin with a, b (with the changes), ratio (b over a) or diff (b minus a), as in ratio.client.gap_ms.p99<=1.1."},
		{name: "rounds", into: &c.rounds, usage: "Compare over this `NUMBER` of runs of each."},
		{name: "quiet", into: &c.quiet, usage: "Print no progress."},
		{section: "The server that load starts (see serve)"},
		{name: "send-hz", into: &c.sendHz, usage: "Send this `NUMBER` of states a second to each client. Without it, as the world says."},
		{name: "priority", into: &c.priority, usage: "Ask this `KIND` of scheduling priority for the beat: nice, fifo or none."},
		{name: "beat-threads", into: &c.beatThreads, usage: "Run rooms on at most this `NUMBER` of threads."},
		{name: "encoders", into: &c.encoders, usage: "Build packets on this `NUMBER` of threads."},
		{name: "arrangement", into: &c.arrangement, usage: "Spread the server's work in another `WAY`: inline or goroutines."},
		{name: "server-gomaxprocs", into: &c.goMaxProcs, usage: "Run the server's Go code on this `NUMBER` of threads at once."},
		{section: "A server elsewhere"},
		{name: "ops-token", into: &c.opsToken, secret: true, usage: "The `TOKEN` of the server at --url, for its figures. Without it they are told only on the server's own machine."},
		{name: "ops-token-file", into: &c.opsTokenFile, usage: "Read that token from this `FILE`."},
	}
}

func loadCommand() command {
	return command{
		name:    "load",
		summary: "measure the server with bots over real sockets",
		about: "Starts a server of its own (or takes the one at --url), lets bots join over real WebSockets and play as the world's " +
			"own bot does, and measures: the beat, the age of what is sent, what clients see, bytes, processor and memory. It " +
			"prints a table and ends by itself. A run during which the machine's host took more than 1 % of the time for others is marked VOID.",
		flags: newLoadConfig().flags,
		run:   load,
	}
}

func load(ctx context.Context, e *env, args []string) error {
	c := newLoadConfig()
	if err := parseFlags(e, loadCommand(), c.flags(), args); err != nil {
		return err
	}
	def, err := c.check(e)
	if err != nil {
		return err
	}
	if c.compare != "" {
		return c.runComparison(ctx, e, args)
	}
	r, err := c.run(ctx, e, def, commandLine("load", args))
	if err != nil {
		return err
	}
	if err := c.publish(e, r, r.Print); err != nil {
		return err
	}
	return c.judge(e, r, r.Void)
}

// check finds what is wrong with the flags before anything is started.
func (c *loadConfig) check(e *env) (def drumline.Definition, err error) {
	if len(e.worlds) == 0 {
		return def, errors.New("this program has no worlds: give app.Main at least one")
	}
	if c.world == "" {
		c.world = e.worlds[0].Spec().Name
	}
	found := false
	var names []string
	for _, d := range e.worlds {
		names = append(names, d.Spec().Name)
		if d.Spec().Name == c.world {
			def, found = d, true
		}
	}
	if !found {
		return def, usagef("--world %q: there is no such world; there is %s", c.world, strings.Join(names, ", "))
	}
	for _, f := range []struct {
		name               string
		value, least, most int
	}{
		{"bots", c.bots, 1, bots.MaxBots}, {"rooms", c.rooms, 0, bots.MaxBots}, {"pause", c.pause, 0, c.bots},
		{"input-hz", c.inputHz, 0, 200}, {"inputs-per-packet", c.inputsPerPacket, 0, drumline.MaxInputs},
		{"rcvbuf", c.rcvbuf, 0, 1 << 26}, {"threads", c.threads, 0, 16}, {"nice", c.nice, 0, 19}, {"rounds", c.rounds, 1, 50},
		{"send-hz", c.sendHz, 0, 1000}, {"beat-threads", c.beatThreads, 0, 1024}, {"encoders", c.encoders, 0, 1024},
		{"server-gomaxprocs", c.goMaxProcs, 0, 1024},
	} {
		if f.value < f.least || f.value > f.most {
			return def, usagef("--%s %d: want %d to %d", f.name, f.value, f.least, f.most)
		}
	}
	if c.duration <= 0 || c.duration > maxLoadFor {
		return def, usagef("--for %v: want more than 0 and at most %v", c.duration, maxLoadFor)
	}
	if c.warmup < 0 || c.warmup > time.Minute {
		return def, usagef("--warmup %v: want 0 to 1m", c.warmup)
	}
	if c.rooms == 0 {
		c.rooms = (c.bots + def.Spec().Seats - 1) / def.Spec().Seats
	}
	if _, err := report.ParseExpectations(c.expect); err != nil {
		return def, usagef("--expect: %v", err)
	}
	if _, err := c.changes(); err != nil {
		return def, err
	}
	if c.url != "" {
		d := newLoadConfig()
		if c.sendHz != d.sendHz || c.priority != d.priority || c.beatThreads != d.beatThreads || c.encoders != d.encoders ||
			c.arrangement != d.arrangement || c.goMaxProcs != d.goMaxProcs {
			return def, usagef("--url names a running server: give --send-hz, --priority, --beat-threads, --encoders, --arrangement and --server-gomaxprocs to that one")
		}
	}
	if c.opsTokenFile != "" {
		if c.opsToken != "" {
			return def, usagef("both --ops-token-file and %s are set: give one of them", envName("ops-token"))
		}
		b, err := os.ReadFile(c.opsTokenFile)
		if err != nil {
			return def, fmt.Errorf("the operator's token: %w", err)
		}
		c.opsToken = strings.TrimSpace(string(b))
	}
	return def, nil
}

// changes are the flags that --compare adds, such as --pause=8.
func (c *loadConfig) changes() ([]string, error) {
	if c.compare == "" {
		return nil, nil
	}
	public, _ := newFlagSet("load", newLoadConfig().flags())
	var all []string
	for part := range strings.SplitSeq(c.compare, ",") {
		part = strings.TrimLeft(strings.TrimSpace(part), "-")
		name, value, ok := strings.Cut(part, "=")
		if slices.Contains([]string{"json", "expect", "compare", "rounds", "quiet"}, name) {
			return nil, usagef("--compare: --%s is for all runs together", name)
		}
		f := public.Lookup(name)
		if f == nil {
			return nil, usagef("--compare %q: load has no flag --%s", c.compare, name)
		}
		if !ok {
			if b, isBool := f.Value.(interface{ IsBoolFlag() bool }); !isBool || !b.IsBoolFlag() {
				return nil, usagef("--compare %q: want %s=VALUE", c.compare, name)
			}
			value = "true"
		}
		if err := public.Set(name, value); err != nil {
			return nil, usagef("--compare: --%s %q: %v", name, value, err)
		}
		all = append(all, "--"+name+"="+value)
	}
	return all, nil
}

// run makes one run.
func (c *loadConfig) run(ctx context.Context, e *env, def drumline.Definition, command string) (*report.Report, error) {
	spec := def.Spec()
	if seats := spec.Seats * c.rooms; c.bots > seats {
		fmt.Fprintf(e.stderr, "note: %d rooms have %d seats; %d bots will be refused\n", c.rooms, seats, c.bots-seats)
	}
	t := &loadTarget{url: strings.TrimSuffix(c.url, "/"), token: c.opsToken, own: c.url == ""}
	group := proc.Unknown
	var server *subprocess
	if t.own {
		var err error
		if server, err = c.startServer(ctx, e); err != nil {
			return nil, err
		}
		defer server.stop(serverStopTime)
		t.url = server.url
		group = proc.GroupedWith(server.pid()).String()
	}
	// Only now, since a child inherits it.
	if c.nice > 0 {
		if err := proc.SetNice(c.nice); err != nil {
			fmt.Fprintf(e.stderr, "note: the bots run at full priority: %v\n", err)
		}
	}
	r := &loadRun{c: c, e: e, target: t, server: server, def: def}
	o := bots.Options{URL: t.url, AllowRemote: c.url != "", World: c.world, NewBot: def.NewBot, Bots: c.bots, Rooms: c.rooms, InputHz: c.inputHz,
		InputsPerPacket: c.inputsPerPacket, DecodeEvery: int(c.decode), Verify: c.verify, Pause: c.pause, RateBytes: int(c.rate), Rcvbuf: c.rcvbuf,
		Threads: c.threads, Seed: c.seed}
	if c.inputHz == 0 {
		o.InputHz = -1
	}
	m, err := r.measure(ctx, o)
	if err != nil {
		if server != nil && !errors.Is(err, context.Canceled) {
			err = fmt.Errorf("%w%s", err, server.said())
		}
		return nil, err
	}
	m.Command, m.Transport, m.Rooms, m.InputHz, m.Host, m.Group = command, "ws", c.rooms, c.inputHz, proc.Machine(), group
	m.Hz, m.SendHz = spec.Hz, spec.SendHz
	if c.sendHz > 0 {
		m.SendHz = c.sendHz
	}
	if m.Stats != nil {
		for _, w := range m.Stats.Worlds {
			if w.Name == c.world {
				m.Hz, m.SendHz = w.Hz, w.SendHz
			}
		}
	}
	return report.New(m), nil
}

// loadRun is one run under way.
type loadRun struct {
	c      *loadConfig
	e      *env
	target *loadTarget
	server *subprocess // nil: --url
	def    drumline.Definition
	fleet  *bots.Fleet

	told    *ops.DebugWindow // the newest figures of the server; nil: it tells none
	rss     float64
	pausing *report.Pause
	paused  time.Time
	before  drumline.Stats // when the pause began
}

// measure lets the bots join, warms up, measures, and returns what was seen.
func (r *loadRun) measure(ctx context.Context, o bots.Options) (m report.Measured, err error) {
	c := r.c
	if r.fleet, err = bots.Start(ctx, o); err != nil {
		return m, err
	}
	defer r.fleet.Close()
	if err := r.join(ctx); err != nil {
		return m, err
	}
	if err := r.sleep(ctx, c.warmup); err != nil {
		return m, err
	}
	if err := r.ask(ctx); err != nil {
		if r.target.own {
			return m, err
		}
		fmt.Fprintf(r.e.stderr, "note: without the server's own figures: %v\n", err)
	}
	if c.pause > 0 {
		r.pausing, r.paused = &report.Pause{Bots: c.pause, Closed: map[string]int{}, StagesS: map[string]report.Number{}}, time.Now()
		if r.told != nil {
			r.before = r.told.Stats
		}
		r.fleet.Pause()
	}
	m.Started = time.Now()
	used, steal := proc.NewWindow(), proc.NewSteal()
	if r.told != nil {
		if err := r.target.reset(ctx); err != nil {
			return m, err
		}
	}
	r.fleet.ResetWindow()
	if err := r.watch(ctx, steal); err != nil {
		return m, err
	}
	m.Bots = r.fleet.Figures()
	m.LoadCores, m.StealPct = used.Figures().CPUCores, steal.Pct()
	if r.told != nil {
		if err := r.ask(ctx); err != nil {
			return m, err
		}
		m.Window, m.Process, m.Stats = &r.told.Window, &r.told.Process, &r.told.Stats
		r.watchMemory()
		m.PeakRSSMiB = r.rss
	}
	m.Pause = r.pauseFigures(m.Bots)
	return m, nil
}

// join waits until all bots have joined or failed.
func (r *loadRun) join(ctx context.Context) error {
	joined := make(chan error, 1)
	go func() { joined <- r.fleet.WaitJoined(ctx) }()
	// The channel is buffered, and Close of the fleet ends the wait.
	for {
		select {
		case err := <-joined:
			if err != nil {
				return err
			}
			g := r.fleet.Figures()
			r.progress("%d of %d joined within %.2f s", g.Joined, g.Asked, g.JoinTime.Seconds())
			if g.Joined == 0 {
				why := ""
				if g.FirstError != "" {
					why = "; " + g.FirstError
				}
				return fmt.Errorf("no bot could join %s: refused %v%s", r.target.url, g.Refused, why)
			}
			return nil
		case <-r.ended():
			return errServerEnded
		case <-time.After(time.Second):
			r.progress("%d of %d joined", r.fleet.Figures().Joined, r.c.bots)
		}
	}
}

var errServerEnded = errors.New("the server that was started for the run ended before its time")

// ended is closed when the server of the run has ended; nil for one at --url.
func (r *loadRun) ended() <-chan struct{} {
	if r.server == nil {
		return nil
	}
	return r.server.done
}

func (r *loadRun) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.ended():
		return errServerEnded
	case <-time.After(d):
		return nil
	}
}

// watch prints a line each second until the time of the measurement is over.
func (r *loadRun) watch(ctx context.Context, steal *proc.Steal) error {
	start := time.Now()
	every := time.Duration(max(1, r.c.rooms/roomsPerAsk)) * time.Second
	asked := start
	for n := 1; ; n++ {
		next := start.Add(min(time.Duration(n)*time.Second, r.c.duration))
		if err := r.sleep(ctx, time.Until(next)); err != nil {
			return err
		}
		if time.Since(start) >= r.c.duration {
			return nil
		}
		r.watchMemory()
		if r.told != nil && time.Since(asked) >= every-time.Second/2 {
			asked = time.Now()
			if err := r.ask(ctx); err != nil {
				return err
			}
			r.stages()
		}
		if r.c.quiet {
			continue
		}
		g := r.fleet.Figures()
		line := fmt.Sprintf("%3.0f s: %d playing, gap p99 %.1f ms, age p99 %.2f ms", time.Since(start).Seconds(), g.Live,
			ms(g.Gap.Quantile(.99)), ms(g.Age.Quantile(.99)))
		if g.DecodeErrors+g.Mismatches > 0 {
			line += fmt.Sprintf(", %d decode errors, %d mismatches", g.DecodeErrors, g.Mismatches)
		}
		if r.told != nil {
			w := r.told.Window
			line += fmt.Sprintf("; beat p99 %.2f ms, skipped %d, doubled %d; send age p99 %.2f ms; %.2f cores, %.1f MiB", w.IntervalMs.P99, w.Skipped, w.Doubled,
				w.AgeMs.P99, r.told.Process.CPUCores, r.told.Process.RSSMiB)
		}
		r.progress("%s; steal %.1f %%", line, steal.Pct())
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (r *loadRun) progress(format string, args ...any) {
	if !r.c.quiet {
		fmt.Fprintf(r.e.stderr, format+"\n", args...)
	}
}

// ask fetches the server's figures.
func (r *loadRun) ask(ctx context.Context) error {
	told, err := r.target.window(ctx)
	if err != nil {
		return err
	}
	r.told = told
	return nil
}

// watchMemory keeps the most memory that was seen: read from outside, at no cost to the server, where that is possible.
func (r *loadRun) watchMemory() {
	if r.server != nil {
		r.rss = max(r.rss, float64(proc.RSSOf(r.server.pid()))/proc.MiB)
	} else if r.told != nil {
		r.rss = max(r.rss, r.told.Process.RSSMiB)
	}
}

// stages notes when the server's counters first rose after the pause.
func (r *loadRun) stages() {
	if r.pausing == nil || r.told == nil {
		return
	}
	after := report.Number(time.Since(r.paused).Seconds())
	note := func(what string, now, before map[string]uint64) {
		for name, n := range now {
			if key := what + "_" + name; n > before[name] {
				if _, ok := r.pausing.StagesS[key]; !ok {
					r.pausing.StagesS[key] = after
				}
			}
		}
	}
	note("skipped", r.told.Stats.Skipped, r.before.Skipped)
	note("closed", r.told.Stats.Closed, r.before.Closed)
}

// pauseFigures says what became of the paused bots. A client that reads nothing cannot hear why it was closed, so the reasons are
// the server's: what it counted since the pause, less what the other bots were told.
func (r *loadRun) pauseFigures(g bots.Figures) *report.Pause {
	p := r.pausing
	if p == nil {
		return nil
	}
	r.stages()
	seen, others := map[string]int{}, map[string]int{}
	for name, n := range g.Closed {
		others[name] = n
	}
	for _, b := range g.Paused {
		if b.Reason == "" {
			p.Open++
			continue
		}
		seen[b.Reason]++
		others[b.Reason]--
	}
	if r.told == nil {
		p.Closed = seen
		return p
	}
	for name, n := range r.told.Stats.Closed {
		if n := int(n-r.before.Closed[name]) - others[name]; n > 0 {
			p.Closed[name] = n
		}
	}
	return p
}

// loadTarget is the server's HTTP side.
type loadTarget struct {
	url, token string
	own        bool
}

func (t *loadTarget) do(ctx context.Context, method string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, t.url+"/debug/window", nil)
	if err != nil {
		return nil, err
	}
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	// Not kept alive: a connection that idles is one more that the server's figures would show.
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, req.URL, err)
	}
	if res.StatusCode/100 != 2 {
		hint := ""
		if res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusUnauthorized {
			hint = "; it tells them to its own machine, or to who gives its token (--ops-token-file)"
		}
		return nil, fmt.Errorf("%s %s: %s%s", method, req.URL, res.Status, hint)
	}
	return b, nil
}

func (t *loadTarget) reset(ctx context.Context) error {
	_, err := t.do(ctx, http.MethodPost)
	return err
}

func (t *loadTarget) window(ctx context.Context) (*ops.DebugWindow, error) {
	b, err := t.do(ctx, http.MethodGet)
	if err != nil {
		return nil, err
	}
	w := &ops.DebugWindow{}
	if err := json.Unmarshal(b, w); err != nil {
		return nil, fmt.Errorf("the server's figures: %w", err)
	}
	return w, nil
}

// publish prints the result and writes its JSON.
func (c *loadConfig) publish(e *env, v interface{ WriteJSON(io.Writer) error }, print func(io.Writer)) error {
	if c.json == "-" {
		print(e.stderr)
		return v.WriteJSON(e.stdout)
	}
	print(e.stdout)
	if c.json == "" {
		return nil
	}
	var b bytes.Buffer
	if err := v.WriteJSON(&b); err != nil {
		return err
	}
	if err := os.WriteFile(c.json, b.Bytes(), 0o666); err != nil {
		return fmt.Errorf("--json: %w", err)
	}
	return nil
}

// judge checks the expectations.
func (c *loadConfig) judge(e *env, v any, void string) error {
	if c.expect == "" {
		return nil
	}
	out := e.stdout
	if c.json == "-" {
		out = e.stderr
	}
	fmt.Fprintln(out)
	ok, err := report.Check(out, v, c.expect)
	switch {
	case err != nil:
		return err
	case void != "":
		return fmt.Errorf("the run is void (%s): it shows nothing, repeat it", void)
	case !ok:
		return errors.New("not all expectations hold")
	}
	return nil
}

// runComparison runs the command again in processes of their own, by turns without and with the changes: so each run starts
// from the same state, and a server is never the child of a process that has given up its priority.
func (c *loadConfig) runComparison(ctx context.Context, e *env, args []string) error {
	changes, err := c.changes()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "drumline-load-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var runs [2][][]byte
	void := ""
	for round := range c.rounds {
		for side, name := range []string{"A", "B"} {
			file := filepath.Join(dir, fmt.Sprintf("%s%d.json", name, round+1))
			// A flag that is given twice counts as given last.
			more := append(slices.Clone(args), "--compare=", "--expect=", "--json="+file)
			if side == 1 {
				more = append(more, changes...)
			}
			b, why, err := c.runOne(ctx, e, fmt.Sprintf("%s %d of %d", name, round+1, c.rounds), more, file)
			if err != nil {
				return fmt.Errorf("run %s %d: %w", name, round+1, err)
			}
			if why != "" {
				void = why
			}
			runs[side] = append(runs[side], b)
		}
	}
	cmp, err := report.NewComparison(strings.Join(changes, " "), runs[0], runs[1])
	if err != nil {
		return err
	}
	if err := c.publish(e, cmp, cmp.Print); err != nil {
		return err
	}
	if void != "" {
		fmt.Fprintf(e.stderr, "VOID: %s in at least one run, also when repeated\n", void)
	}
	return c.judge(e, cmp, void)
}

// runOne makes one run of a comparison, and repeats it when it is void.
func (c *loadConfig) runOne(ctx context.Context, e *env, title string, args []string, file string) (b []byte, void string, err error) {
	for try := 0; ; try++ {
		fmt.Fprintf(e.stderr, "== %s\n", title)
		p, err := startSubprocess(append([]string{"load"}, args...), os.Environ(), io.Discard, e.stderr)
		if err != nil {
			return nil, "", err
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			p.stop(serverStopTime + loadDrainTime)
			return nil, "", ctx.Err()
		}
		if p.err != nil {
			return nil, "", p.err
		}
		if b, err = os.ReadFile(file); err != nil {
			return nil, "", err
		}
		var head struct{ Void string }
		if err := json.Unmarshal(b, &head); err != nil {
			return nil, "", err
		}
		if head.Void == "" || try == voidRepeats {
			return b, head.Void, nil
		}
		fmt.Fprintf(e.stderr, "VOID: %s; once more\n", head.Void)
	}
}

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

// commandLine is what was typed, more or less, for the report.
func commandLine(name string, args []string) string {
	words := []string{program(), name}
	for _, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$&|;<>()*?`") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// fraction is a share 1/n as a flag's value; its number is n.
type fraction int

func (f fraction) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "1/%d", max(int(f), 1)), nil }

func (f *fraction) UnmarshalText(b []byte) error {
	s := strings.TrimSpace(string(b))
	if s == "1" {
		s = "1/1"
	}
	rest, ok := strings.CutPrefix(s, "1/")
	n, err := strconv.Atoi(rest)
	if !ok || err != nil || n < 1 || n > bots.MaxBots {
		return fmt.Errorf("%q: want a share such as 1/10", s)
	}
	*f = fraction(n)
	return nil
}

// bitRate is a rate such as 16kbit as a flag's value; its number is bytes a second, 0 for none.
type bitRate int

func (r bitRate) MarshalText() ([]byte, error) {
	bits := int64(r) * 8
	switch {
	case r == 0:
		return nil, nil
	case bits%1_000_000 == 0:
		return fmt.Appendf(nil, "%dmbit", bits/1_000_000), nil
	case bits%1000 == 0:
		return fmt.Appendf(nil, "%dkbit", bits/1000), nil
	}
	return fmt.Appendf(nil, "%dbit", bits), nil
}

func (r *bitRate) UnmarshalText(b []byte) error {
	s := strings.ToLower(strings.TrimSpace(string(b)))
	if s == "" || s == "0" {
		*r = 0
		return nil
	}
	scale := 1.0
	number := s
	for _, unit := range []struct {
		name  string
		scale float64
	}{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}} {
		if rest, ok := strings.CutSuffix(s, unit.name); ok {
			number, scale = rest, unit.scale
			break
		}
		number = ""
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	bytes := v * scale / 8
	if err != nil || !(bytes >= 1) || bytes > 1<<30 {
		return fmt.Errorf("%q: want a rate such as 16kbit or 2mbit, at least 8bit", s)
	}
	*r = bitRate(bytes)
	return nil
}
