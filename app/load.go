package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/internal/proc"
	"github.com/drumline-engine/drumline/lab/bots"
	"github.com/drumline-engine/drumline/lab/report"
)

const (
	maxLoadFor        = 10 * time.Minute
	serverStartTime   = 20 * time.Second
	serverStopTime    = 5 * time.Second
	loadDrainTime     = time.Second
	askTimeout        = 5 * time.Second
	voidRepeats       = 2       // how often a comparison repeats a void run
	roomsPerAsk       = 16      // a server's figures cost it a little per room: with more rooms it is asked less often
	serverTail        = 8 << 10 // the line of a panic has its stack
	defaultRounds     = 3
	defaultLoadNice   = 10
	defaultLoadBots   = 16
	defaultLoadInput  = 20
	defaultLoadMotion = 4
	maxLinkDelay      = 2 * time.Second
	maxLoss           = 0.5
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
	motion, pause, rcvbuf    int
	rate                     bitRate
	seed                     uint64
	threads                  int
	nice                     int

	loss          lossShare
	delay, jitter time.Duration

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
	state        string
	noRings      bool
	deflate      bool
	opsToken     string
	opsTokenFile string
}

func newLoadConfig() *loadConfig {
	return &loadConfig{bots: defaultLoadBots, duration: 30 * time.Second, warmup: 1500 * time.Millisecond, inputHz: defaultLoadInput,
		decode: 1, seed: 1, nice: defaultLoadNice, priority: "nice"}
}

func (c *loadConfig) flags() []flagSpec {
	return []flagSpec{
		{section: "The load"},
		{name: "world", into: &c.world, usage: "Play the world of this `NAME`. Without it, the first of this program."},
		{name: "bots", into: &c.bots, usage: "Let this `NUMBER` of bots play, at most 5000."},
		{name: "rooms", some: true, most: bots.MaxBots, into: &c.rooms, usage: "Spread them over this `NUMBER` of rooms, r1, r2 and so on. Without it, as few as have the seats."},
		{name: "for", into: &c.duration, usage: "Measure for this `TIME`, at most 10m."},
		{name: "warmup", into: &c.warmup, usage: "Wait this `TIME` after the last join before measuring."},
		{name: "url", into: &c.url, usage: "Load the server at this `URL`, such as http://127.0.0.1:8080, instead of a server of its own. Only load a machine of which you may. The age that clients see is measured across both clocks, so it means something only where they are the same one: on one machine. Its limits must be lifted (serve --lift-caps), and --verify needs serve --lab."},
		{section: "The bots"},
		{name: "input-hz", into: &c.inputHz, usage: "Send this `NUMBER` of input messages a second and bot, at most 200; 0: none, acks only."},
		{name: "inputs-per-packet", some: true, most: drumline.MaxInputs, into: &c.inputsPerPacket, usage: "Put this `NUMBER` of inputs into a message, at most 8. Without it, one for each step between two messages, as a page does."},
		{name: "decode", into: &c.decode, usage: "Let this `SHARE` of the bots, such as 1/10, decode what they get; the others read headers and ack."},
		{name: "verify", into: &c.verify, usage: "Have each packet to a bot that decodes carry a hash of what the bot must now hold, and compare."},
		{name: "motion", some: true, most: bots.MaxBots, into: &c.motion, usage: "Let this `NUMBER` of the bots that decode show what they get, sixty pictures a second, as a page does but to nobody, and measure how evenly it moves. Without it, 4 in one process with the server, and none over sockets, where it would cost the bots time."},
		{name: "pause", into: &c.pause, usage: "After the warm-up let this `NUMBER` of bots stop reading, while they send on. They are left out of the clients' figures."},
		{name: "rcvbuf", some: true, most: 1 << 26, into: &c.rcvbuf, usage: "Give bots that pause or are rate-limited (all bots, if there are none such) a receive buffer of this `NUMBER` of bytes. Without it, 4096 for those; the system's own for others."},
		{name: "rate", into: &c.rate, usage: "Let each bot read no faster than this `RATE`, such as 16kbit or 2mbit (a second)."},
		{name: "seed", into: &c.seed, usage: "Derive the bots' choices from this `NUMBER`."},
		{name: "threads", some: true, most: 16, into: &c.threads, usage: "Serve the bots on this `NUMBER` of threads. Without it, one for each 2500."},
		{name: "nice", into: &c.nice, usage: "Run the bots at this `NICE` value, so that they disturb the server beside them less; 0: leave it."},
		{section: "A bad network"},
		{name: "loss", into: &c.loss, usage: "Run bots and server in one process over link/mem instead of sockets, and lose this `SHARE` of packets, such as 5%, 0.05 or 1/20, in each direction. 0 loses none, to compare with. A lost state is gone, a welcome is sent again; with --state whole, plain or ordered everything is, and holds up what follows. The same seed loses the same packets."},
		{name: "delay", into: &c.delay, usage: "The same network: let each packet take this `TIME`, in each direction, at most 2s."},
		{name: "jitter", into: &c.jitter, usage: "The same network: add up to this `TIME` to each packet by chance, so that packets overtake each other unless --state is whole, plain or ordered; at most 2s."},
		{section: "The result"},
		{name: "json", into: &c.json, usage: "Write the figures to this `FILE`; - for standard output, the table then goes to standard error."},
		{name: "expect", into: &c.expect, usage: "Fail (exit code 1) also unless this comma-separated `LIST` of conditions on figures of the JSON holds, such as beat.skipped==0,client.gap_ms.p99<=55."},
		{name: "compare", into: &c.compare, usage: "Run again and again, by turns with and without this comma-separated `LIST` of changed flags, such as pause=8 or send-hz=10,decode=1/2, and print the medians. Figures then begin with a, b (with the changes), ratio (b over a) or diff (b minus a), as in ratio.client.gap_ms.p99<=1.1."},
		{name: "rounds", into: &c.rounds, usage: "With --compare, make this `NUMBER` of runs of each. Without it, 3."},
		{name: "quiet", into: &c.quiet, usage: "Print no progress."},
		{section: "The server that load starts (see serve)"},
		{name: "send-hz", some: true, most: maxSendHz, into: &c.sendHz, usage: "Send this `NUMBER` of states a second to each client. Without it, as the world says."},
		{name: "priority", into: &c.priority, usage: "Ask this `KIND` of scheduling priority for the beat: nice, fifo or none."},
		{name: "beat-threads", some: true, most: maxThreads, into: &c.beatThreads, usage: "Run rooms on at most this `NUMBER` of threads."},
		{name: "encoders", some: true, most: maxThreads, into: &c.encoders, usage: "Build packets on this `NUMBER` of threads."},
		{name: "arrangement", into: &c.arrangement, usage: "Spread the server's work in another `WAY`: inline or goroutines."},
		{name: "server-gomaxprocs", some: true, most: maxThreads, into: &c.goMaxProcs, usage: "Run the server's Go code on this `NUMBER` of threads at once."},
		{name: "state", into: &c.state, usage: "Tell states in this `WAY`: whole, plain, ordered or acked. Without it, as suits the link."},
		{name: "no-rings", into: &c.noRings, usage: "Send everything to everybody at the full rate."},
		{name: "deflate", into: &c.deflate, usage: "Have the server compress messages, and the bots offer to take them so. With --url the bots offer it, and the server does as it likes. Bytes decoded are those after unpacking, bytes on the wire those on the socket."},
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
			"own bot does, and measures: the beat, the age of what is sent, what clients see, bytes, processor and memory. With --loss, " +
			"--delay or --jitter bots and server share this process instead, and a network that can do so lies between them. It " +
			"prints a table and ends by itself. It fails (exit code 1) if bots were kept out, a room broke down, packets could not be decoded or " +
			"held something else than they should (--verify), or nobody was left to play, unless --expect names that figure. A run during which the machine's host took more than 1 % of the time for others is marked VOID.",
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
	if note := noBot(def); note != "" && c.inputHz > 0 {
		fmt.Fprintf(e.stderr, "note: %s\n", note)
	}
	if c.compare != "" {
		return c.runComparison(ctx, e, args)
	}
	r, end, err := c.run(ctx, e, def, commandLine("load", args))
	if err != nil {
		return stopped(ctx, err, "stopped before the run was over")
	}
	if end.cut != "" {
		fmt.Fprintf(e.stderr, "note: the run was cut short: %s; the figures are of the %.1f s before\n", end.cut, float64(r.DurationS))
	}
	if err := c.publish(e, r, r.Print); err != nil {
		return err
	}
	judged := c.judge(e, r, r.Void)
	// A broken server is why expectations fail, so it is named first.
	if err := c.trouble(r, end); err != nil {
		return err
	}
	if judged != nil {
		return judged
	}
	return c.allJoined(r)
}

// noBot says that a world's bots do nothing; empty: they play.
func noBot(def drumline.Definition) string {
	if def.HasBot() {
		return ""
	}
	return fmt.Sprintf("world %s has no Bot (drumline.Kind.Bot): its bots send zero inputs", def.Spec().Name)
}

// allJoined is an error when bots were kept out, unless the expectations say how many may be.
func (c *loadConfig) allJoined(r *report.Report) error {
	all, err := report.ParseExpectations(c.expect)
	if err != nil || r.Bots.Joined == r.Bots.Asked || slices.ContainsFunc(all, func(x report.Expectation) bool {
		return x.Path == "bots.joined" || strings.HasPrefix(x.Path, "bots.refused.")
	}) {
		return err
	}
	why := ""
	for _, name := range slices.Sorted(maps.Keys(r.Bots.Refused)) {
		why += fmt.Sprintf(", %d refused: %s", r.Bots.Refused[name], name)
	}
	return fmt.Errorf("only %d of %d bots joined%s", r.Bots.Joined, r.Bots.Asked, why)
}

// check finds what is wrong with the flags before anything is started.
func (c *loadConfig) check(e *env) (def drumline.Definition, err error) {
	given := *c
	if len(e.worlds) == 0 {
		return def, errors.New("this program has no worlds: give app.Main at least one")
	}
	if c.world == "" {
		c.world = e.worlds[0].Spec().Name
	}
	if def, err = e.find("world", c.world); err != nil {
		return def, err
	}
	for _, f := range []struct {
		name               string
		value, least, most int
	}{
		{"bots", c.bots, 1, bots.MaxBots}, {"pause", c.pause, 0, c.bots},
		{"input-hz", c.inputHz, 0, 200}, {"nice", c.nice, 0, 19}, {"rounds", c.rounds, 0, 50},
	} {
		if f.value < f.least || f.value > f.most {
			return def, usagef("--%s %d: want %d to %d", f.name, f.value, f.least, f.most)
		}
	}
	if c.motion > c.bots {
		return def, outOfRange("motion", c.motion, c.bots)
	}
	if c.duration <= 0 || c.duration > maxLoadFor {
		return def, usagef("--for %v: want more than 0 and at most %v", c.duration, maxLoadFor)
	}
	if c.warmup < 0 || c.warmup > time.Minute {
		return def, usagef("--warmup %v: want 0 to 1m", c.warmup)
	}
	// A server leaves out a world of the lab that cannot send so often; for one of the program's own it says this itself.
	if s := def.Spec(); c.sendHz > s.Hz && !slices.ContainsFunc(e.worlds, func(d drumline.Definition) bool { return d.Spec().Name == s.Name }) {
		return def, usagef("--send-hz %d: world %s runs %d steps a second, so it can send 1 to %d states", c.sendHz, s.Name, s.Hz, s.Hz)
	}
	if c.rooms == 0 {
		c.rooms = (c.bots + def.Spec().Seats - 1) / def.Spec().Seats
	}
	changes, err := c.changes()
	if err != nil {
		return def, err
	}
	if err := c.checkLink(); err != nil {
		return def, err
	}
	if err := c.checkCompared(e, given, changes); err != nil {
		return def, err
	}
	switch {
	case c.compare == "" && c.rounds != 0:
		return def, usagef("--rounds %d: there is nothing to repeat without --compare", c.rounds)
	case c.rounds == 0:
		c.rounds = defaultRounds
	}
	if err := c.checkExpectations(); err != nil {
		return def, err
	}
	if err := checkWritable(c.json); err != nil {
		return def, err
	}
	if err := checkThreads(c.priority, c.arrangement); err != nil {
		return def, err
	}
	if c.url != "" {
		if u, err := url.Parse(c.url); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return def, usagef("--url %q: want an address such as http://127.0.0.1:8080", c.url)
		}
		d := newLoadConfig()
		if c.sendHz != d.sendHz || c.priority != d.priority || c.beatThreads != d.beatThreads || c.encoders != d.encoders ||
			c.arrangement != d.arrangement || c.goMaxProcs != d.goMaxProcs || c.state != d.state || c.noRings {
			return def, usagef("--url names a running server: give --send-hz, --priority, --beat-threads, --encoders, --arrangement, --server-gomaxprocs, --state and --no-rings to that one")
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

// checkExpectations finds figures that no run has, before one is made.
func (c *loadConfig) checkExpectations() error {
	all, err := report.ParseExpectations(c.expect)
	if err != nil {
		return usagef("--expect: %s", strings.TrimPrefix(err.Error(), "report: "))
	}
	if len(all) == 0 {
		return nil
	}
	example, err := exampleFigures(c.compare != "", c.inProcess(), c.motion)
	if err != nil {
		return err
	}
	var lines strings.Builder
	if _, err := report.Check(&lines, example, c.expect); err != nil {
		return err
	}
	for line := range strings.Lines(lines.String()) {
		if what, ok := strings.CutPrefix(line, "FAIL "); ok && strings.Contains(what, noSuchFigure) && !strings.Contains(what, "pause.stages_s.") {
			return usagef("--expect %s", strings.TrimSpace(what))
		}
	}
	return nil
}

// noSuchFigure is what package report says.
const noSuchFigure = ": there is no such figure"

// exampleFigures has every figure that a run, or a comparison of runs, can have.
func exampleFigures(comparison, inProcess bool, motion int) (any, error) {
	r := &report.Report{
		Bots:     report.Bots{Refused: map[string]int{}, Closed: map[string]int{}},
		Beat:     &report.Beat{},
		Snapshot: report.Snapshot{ServerSide: &report.ServerSide{Skipped: map[string]uint64{}}},
		Inputs:   report.Inputs{Unused: map[string]uint64{drumline.DropInputLate.Name(): 0}},
		Motion:   &report.Motion{},
		Server:   &report.Server{},
		Pause:    &report.Pause{Closed: map[string]int{}, StagesS: map[string]report.Number{}},
	}
	if inProcess {
		r.Server = nil // nobody can tell it from the bots
	} else if motion == 0 && !comparison {
		r.Motion = nil
	}
	if !comparison {
		return r, nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	// A ratio of nothing to nothing is none.
	b = zeroFigure.ReplaceAll(b, []byte(":1"))
	return report.NewComparison("", [][]byte{b}, [][]byte{b})
}

var zeroFigure = regexp.MustCompile(`:0\b`)

// checkWritable finds a file that could not be written, before the work for it is done.
func checkWritable(file string) error {
	if file == "" || file == "-" {
		return nil
	}
	_, missing := os.Stat(file)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return usagef("--json: %v", err)
	}
	f.Close()
	if missing != nil {
		os.Remove(file)
	}
	return nil
}

// run makes one run.
func (c *loadConfig) run(ctx context.Context, e *env, def drumline.Definition, command string) (*report.Report, runEnd, error) {
	spec := def.Spec()
	if seats := spec.Seats * c.rooms; c.bots > seats {
		fmt.Fprintf(e.stderr, "note: %d rooms have %d seats; %d bots will be refused\n", c.rooms, seats, c.bots-seats)
	}
	t := &loadTarget{url: strings.TrimSuffix(c.url, "/"), token: c.opsToken, own: c.url == ""}
	group := proc.Unknown
	var server *subprocess
	switch {
	case c.inProcess():
		var err error
		if t.srv, err = c.newServer(e); err != nil {
			return nil, runEnd{}, err
		}
		defer t.srv.Close()
		t.url, group = "the server of this process", "one process"
	case t.own:
		var err error
		if server, err = c.startServer(ctx, e); err != nil {
			return nil, runEnd{}, err
		}
		defer server.stop(serverStopTime)
		t.url = server.url
		group = proc.GroupedWith(server.pid()).String()
	}
	// Only now, since a child inherits it.
	if c.nice > 0 && t.srv == nil {
		if err := proc.SetNice(c.nice); err != nil {
			fmt.Fprintf(e.stderr, "note: the bots run at full priority: %v\n", err)
		}
	}
	r := &loadRun{c: c, e: e, target: t, server: server, def: def}
	o := bots.Options{URL: t.url, AllowRemote: c.url != "", Deflate: c.deflate, World: c.world, NewBot: def.NewBot, Bots: c.bots, Rooms: c.rooms, InputHz: c.inputHz,
		InputsPerPacket: c.inputsPerPacket, DecodeEvery: int(c.decode), Verify: c.verify, Show: c.motion, Pause: c.pause, RateBytes: int(c.rate), Rcvbuf: c.rcvbuf,
		Threads: c.threads, Seed: c.seed}
	if c.inputHz == 0 {
		o.InputHz = -1
	}
	transport := "ws"
	if t.srv != nil {
		o.URL, o.Server, o.Path, o.Unordered = "", t.srv, c.path(), c.unordered()
		transport = "mem"
		if c.motion == 0 {
			o.Show = min(c.bots, defaultLoadMotion)
		}
	}
	m, err := r.measure(ctx, o)
	if err != nil {
		if server != nil && !errors.Is(err, context.Canceled) {
			err = fmt.Errorf("%w%s", err, server.said())
		}
		return nil, runEnd{}, err
	}
	m.Command, m.Transport, m.Rooms, m.InputHz, m.Host, m.Group = command, transport, c.rooms, c.inputHz, proc.Machine(), group
	m.Settings, m.Together = c.settings(), t.srv != nil
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
	if server != nil {
		r.end.said = server.said()
	}
	return report.New(m), r.end, nil
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
