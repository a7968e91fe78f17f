package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/link/ws"
)

// serveConfig is what serve's flags fill.
type serveConfig struct {
	addr           string
	origins        textList
	trustedProxies prefixList
	deflate        bool
	opsToken       string
	opsTokenFile   string
	drainTimeout   time.Duration

	maxPlayers int
	liftCaps   bool
	lab        bool

	sendHz      int
	priority    string
	beatThreads int
	encoders    int
	arrangement string
	goMaxProcs  int
	seed        uint64
	state       string
	noRings     bool

	quiet     bool
	logFormat string
	web       folderList
	dev       bool
}

func newServeConfig() *serveConfig {
	return &serveConfig{addr: ":8080", drainTimeout: 5 * time.Second, priority: "nice", logFormat: "text"}
}

func (c *serveConfig) flags() []flagSpec {
	return []flagSpec{
		{section: "Network"},
		{name: "addr", into: &c.addr, usage: "Listen on this `ADDRESS`: :PORT on all of the machine's addresses, HOST:PORT on one. Port 0 takes any free one."},
		{name: "origins", into: &c.origins, usage: "Let pages of these sites connect: a comma-separated `LIST` such as play.example.com,*.example.org:8443, or * for all. Without it, only pages that this server itself has sent."},
		{name: "trusted-proxies", into: &c.trustedProxies, usage: "Believe the X-Forwarded-For header of proxies in this comma-separated `LIST` of addresses and networks, such as 127.0.0.1,10.0.0.0/8. Without it, every client seems to come from the proxy, and shares its limits."},
		{name: "deflate", into: &c.deflate, usage: "Compress messages to clients that offer it, as browsers do. It halves JSON, such as documents and the welcome, and costs about 1.2 MB of memory for each thread that sends; states are packed to the bit and do not shrink."},
		{name: "drain-timeout", into: &c.drainTimeout, usage: "On SIGTERM, give clients this `TIME` to hear about it and go."},
		{section: "Limits"},
		{name: "max-players", some: true, into: &c.maxPlayers, usage: "Admit at most this `NUMBER` of players at once. Without it, 2000."},
		{name: "lift-caps", into: &c.liftCaps, usage: "Lift the limits on players, rooms and joins, for load tests. Not for a public server."},
		{section: "Worlds and threads"},
		{name: "send-hz", some: true, most: maxSendHz, into: &c.sendHz, usage: "Send this `NUMBER` of states a second to each client, in every world. Without it, as the world says."},
		{name: "priority", into: &c.priority, usage: "Ask this `KIND` of scheduling priority for the beat: nice, fifo or none. What was refused is in the log and in /debug/stats; nothing fails."},
		{name: "beat-threads", some: true, most: maxThreads, into: &c.beatThreads, usage: "Run rooms on at most this `NUMBER` of threads. Without it, the machine's cores less one, and at least one."},
		{name: "encoders", some: true, most: maxThreads, into: &c.encoders, usage: "Build packets on this `NUMBER` of threads. Without it, the machine's cores less one, and at least one."},
		{name: "arrangement", into: &c.arrangement, usage: "Spread the work in another `WAY`, for comparisons: inline (build packets on the beat) or goroutines (encoders without threads of their own)."},
		{name: "server-gomaxprocs", some: true, most: maxThreads, into: &c.goMaxProcs, usage: "Run Go code on this `NUMBER` of threads at once. Without it, GOMAXPROCS of the environment, or else the cores plus two: beat threads sleep in the kernel and must not hold up the others."},
		{name: "seed", into: &c.seed, usage: "Derive every room's randomness from this `NUMBER`, for reproducible runs. Without it, from the system."},
		{section: "What a state is made of, for measuring"},
		{name: "state", into: &c.state, usage: "Tell states in this `WAY`: whole (every item in each packet as if the client had none), plain (what differs from what was sent last, each difference in whole bytes and nothing foreseen, as a careful hand-made format does), ordered (against what was sent last, as suits a link that keeps the order) or acked (against what the client has acked, as on a link that loses packets). Without it, as suits the link; the others cost bytes and are there to show how many."},
		{name: "no-rings", into: &c.noRings, usage: "Send everything to everybody at the full rate, however far away it is."},
		{section: "Operation"},
		{name: "ops-token", into: &c.opsToken, secret: true, usage: "Answer /metrics and /debug to whoever sends this `TOKEN` (at least 16 characters) as a bearer token. Without it, only to programs on this machine. There is no such flag, since a command line can be read by every user."},
		{name: "ops-token-file", into: &c.opsTokenFile, usage: "Read that token from this `FILE`."},
		{name: "lab", into: &c.lab, usage: "Answer what load tests ask, such as a hash in each packet, and run the worlds that are there to be measured: traffic, traffic-far and traffic-spread, which have no page. Not for a public server."},
		{name: "quiet", into: &c.quiet, usage: "Print the URL of this machine and nothing else, and log warnings and errors only."},
		{name: "log-format", into: &c.logFormat, usage: "Write the log as text or json (the `FORMAT`), to standard error."},
		{name: "web", into: &c.web, usage: "Take a world's page from a folder instead of from this program, and bundle it again on a visit after its files have changed: `WORLD=DIR`, such as dots=./web. Give it once for each world."},
		{name: "dev", into: &c.dev, usage: "Look for changed files on each visit also where a world's page comes from a folder by its own code (os.DirFS). For a page that is embedded in the program, see --web. Pages get the devtools in their overlay of figures (F2)."},
	}
}

func serveCommand() command {
	return command{
		name:    "serve",
		summary: "run the worlds: pages, rooms and metrics",
		about: "Serves the worlds of this program: the lobby and the worlds' pages, their rooms over WebSockets, /health, " +
			"/metrics and /debug. It runs until SIGINT or SIGTERM, which lets clients know and ends cleanly; a second signal " +
			"ends it at once.",
		flags: newServeConfig().flags,
		run:   serve,
	}
}

func serve(ctx context.Context, e *env, args []string) error {
	c := newServeConfig()
	if err := parseFlags(e, serveCommand(), c.flags(), args); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	c.setProcs(e)
	setGC(e)
	return c.serve(ctx, e)
}

// check finds wrong values that nobody else would, or not in words that name the flag, and reads the token's file.
func (c *serveConfig) check() error {
	if err := checkAddr(c.addr); err != nil {
		return err
	}
	if c.logFormat != "text" && c.logFormat != "json" {
		return usagef("--log-format %q: want text or json", c.logFormat)
	}
	if c.drainTimeout < 0 {
		return usagef("--drain-timeout %v: must not be negative", c.drainTimeout)
	}
	if err := checkThreads(c.priority, c.arrangement); err != nil {
		return err
	}
	if err := checkState(c.state); err != nil {
		return err
	}
	if c.opsTokenFile != "" {
		if c.opsToken != "" {
			return usagef("both --ops-token-file and %s are set: give one of them", envName("ops-token"))
		}
		b, err := os.ReadFile(c.opsTokenFile)
		if err != nil {
			return fmt.Errorf("the operator's token: %w", err)
		}
		if c.opsToken = strings.TrimSpace(string(b)); c.opsToken == "" {
			return fmt.Errorf("the operator's token: %s is empty", c.opsTokenFile)
		}
	}
	return nil
}

// checkThreads finds what the engine would refuse in words of its own.
func checkThreads(priority, arrangement string) error {
	if !slices.Contains([]string{"nice", "fifo", "none"}, priority) {
		return usagef("--priority %q: want nice, fifo or none", priority)
	}
	if !slices.Contains([]string{"", "inline", "goroutines"}, arrangement) {
		return usagef("--arrangement %q: want inline or goroutines", arrangement)
	}
	return nil
}

// checkState finds a --state that does not exist.
func checkState(state string) error {
	if !slices.Contains([]string{"", "whole", "plain", "ordered", "acked"}, state) {
		return usagef("--state %q: want whole, plain, ordered or acked", state)
	}
	return nil
}

// gcPercent is GOGC unless the environment says otherwise. A warm server makes about a megabyte of garbage a second, so a smaller
// heap costs it a collection every ten seconds, and takes a third off its resident memory with 1,000 clients.
const gcPercent = 40

// setGC sets the collector's target.
func setGC(e *env) {
	if v, ok := e.lookupEnv("GOGC"); !ok || v == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// setProcs raises GOMAXPROCS over the number of cores: a beat thread that sleeps in the kernel keeps its processor, in Go's
// sense, until the runtime's monitor takes it away, and with none to spare a packet waits that long.
func (c *serveConfig) setProcs(e *env) {
	n := c.goMaxProcs
	if n == 0 {
		if v, ok := e.lookupEnv("GOMAXPROCS"); ok && v != "" {
			return
		}
		n = runtime.GOMAXPROCS(0) + 2 // Go's own default counts the cores that a container may use
	}
	runtime.GOMAXPROCS(n)
}

func (c *serveConfig) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{}
	if c.quiet {
		o.Level = slog.LevelWarn
	}
	if c.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// definitions returns the program's worlds, and then with --lab those of the lab, with what flags change about them.
func (c *serveConfig) definitions(e *env) ([]drumline.Definition, error) {
	if len(e.worlds) == 0 {
		return nil, errors.New("this program has no worlds: give app.Main at least one")
	}
	worlds := slices.Clone(e.worlds)
	if c.lab {
		for _, d := range e.all()[len(e.worlds):] {
			// One that cannot send that often must not hinder the program's own; load refuses if it is the one wanted.
			if c.sendHz <= d.Spec().Hz {
				worlds = append(worlds, d)
			}
		}
	}
	out := make([]drumline.Definition, len(worlds))
	for i, d := range worlds {
		if out[i] = d; c.sendHz > 0 {
			out[i] = d.With(func(s *drumline.Spec) { s.SendHz = c.sendHz })
			if s := d.Spec(); d.Err() == nil && out[i].Err() != nil {
				return nil, usagef("--send-hz %d: world %s runs %d steps a second, so it can send 1 to %d states", c.sendHz, s.Name, s.Hz, cmp.Or(s.Hz, 1000))
			}
		}
	}
	for _, f := range c.web {
		i := slices.IndexFunc(out, func(d drumline.Definition) bool { return d.Spec().Name == f.world })
		if i < 0 {
			var names []string
			for _, d := range out {
				names = append(names, d.Spec().Name)
			}
			return nil, usagef("--web %s=%s: there is no such world; there is %s", f.world, f.dir, strings.Join(names, ", "))
		}
		if info, err := os.Stat(f.dir); err != nil || !info.IsDir() {
			return nil, usagef("--web %s=%s: there is no such folder", f.world, f.dir)
		}
		out[i] = out[i].With(func(s *drumline.Spec) { s.Web = os.DirFS(f.dir) })
	}
	return out, nil
}

// options are the engine's, as the flags say: for every server of this program, whether it has sockets or not.
func (c *serveConfig) options(worlds []drumline.Definition, log *slog.Logger) drumline.Options {
	return drumline.Options{Worlds: worlds, MaxPlayers: c.maxPlayers, LiftCaps: c.liftCaps, Lab: c.lab,
		BeatThreads: c.beatThreads, Encoders: c.encoders, Priority: c.priority, Arrangement: c.arrangement, Seed: c.seed,
		Acked:  c.state == "acked",
		Tuning: feed.Tuning{Whole: c.state == "whole", Plain: c.state == "plain", NoRings: c.noRings},
		Logger: log}
}

// newServer makes an engine whose worlds have shown that they can open.
func newServer(o drumline.Options) (*drumline.Server, error) {
	srv, err := drumline.New(o)
	if err != nil {
		return nil, err
	}
	if err := srv.Try(); err != nil {
		srv.Close()
		return nil, err
	}
	return srv, nil
}

// How an HTTP connection may dawdle. WebSockets have limits of their own (package link/ws).
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second
	writeTimeout      = 60 * time.Second // a page's script over a slow phone
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10
	httpEndTimeout    = time.Second // for answers still being written when the server ends
)

// serve runs a server until ctx ends.
func (c *serveConfig) serve(ctx context.Context, e *env) error {
	worlds, err := c.definitions(e)
	if err != nil {
		return err
	}
	log := c.logger(e.stderr)
	// First the address: whoever starts a second server by mistake should hear of it before rooms and threads exist.
	ln, err := ws.Listen(ctx, c.addr)
	if err != nil {
		return listenError(c.addr, err)
	}
	defer ln.Close()
	srv, err := newServer(c.options(worlds, log))
	if err != nil {
		return err
	}
	defer srv.Close()
	guard := newConnGuard(maxWaitingConns)
	handler, err := c.routes(srv, worlds[:len(e.worlds)], guard, log)
	if err != nil {
		return err
	}
	hs := &http.Server{Handler: handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	guard.attach(hs)
	served := make(chan error, 1)
	go func() { served <- hs.Serve(ln) }()
	// Whatever happens below, no handler and no goroutine of the HTTP server stays behind.
	defer func() {
		hs.Close()
		<-served
	}()

	c.greet(e.stdout, ln.Addr(), worlds)
	select {
	case err := <-served:
		served <- err
		return fmt.Errorf("the HTTP server ended: %w", err)
	case <-ctx.Done():
	}
	c.drain(ctx, e, srv, hs, log)
	return nil
}

// greet tells where the server is and what it runs. The first line is for programs, too: drumline load waits for it.
func (c *serveConfig) greet(w io.Writer, bound net.Addr, worlds []drumline.Definition) {
	var port netip.AddrPort
	if a, ok := bound.(*net.TCPAddr); ok {
		port = a.AddrPort()
	}
	local, others := urls(port, lanAddrs())
	fmt.Fprintf(w, "listening %s\n", local)
	if c.quiet {
		return
	}
	for _, u := range others {
		fmt.Fprintf(w, "listening %s (for others on this network)\n", u)
	}
	for _, d := range worlds {
		fmt.Fprintln(w, worldLine(d.Spec(), c.liftCaps))
	}
	for _, f := range c.web {
		fmt.Fprintf(w, "page of %s: from %s\n", f.world, f.dir)
	}
	for _, on := range []struct {
		is   bool
		text string
	}{{c.liftCaps, "no limit on players, rooms and joins (--lift-caps)"}, {c.lab, "load tests are answered (--lab)"},
		{c.state != "" && c.state != "ordered", "states are told in another way, for measuring (--state " + c.state + ")"},
		{c.noRings, "everybody gets everything at the full rate (--no-rings)"}} {
		if on.is {
			fmt.Fprintf(w, "note: %s; not for a public server\n", on.text)
		}
	}
}

func worldLine(s drumline.Spec, lifted bool) string {
	rate := fmt.Sprintf("%d steps and %d states a second", s.Hz, s.SendHz)
	if s.Hz == 0 {
		rate = fmt.Sprintf("steps on input, at most %d states a second", s.SendHz)
	}
	rooms := "any number of rooms"
	if !lifted {
		rooms = "at most " + plural(s.Rooms, "room")
	}
	return fmt.Sprintf("world %s: %s, %s a room, %s", s.Name, rate, plural(s.Seats, "seat"), rooms)
}

// drain tells the clients, waits for them for a while, and ends the HTTP server. Until then it answers, so that /health says
// that the server is draining and pages hear why they are refused.
func (c *serveConfig) drain(ctx context.Context, e *env, srv *drumline.Server, hs *http.Server, log *slog.Logger) {
	if !c.quiet {
		fmt.Fprintf(e.stdout, "stopping: telling %s; another signal ends it at once\n", plural(srv.Stats().Players, "player"))
	}
	began := time.Now()
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.drainTimeout)
	defer cancel()
	if err := srv.Drain(within); err != nil {
		log.Warn("not every client went in time; the others are cut off", "waited", c.drainTimeout, "links", srv.Stats().Links)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpEndTimeout)
	defer cancel()
	if err := hs.Shutdown(ending); err != nil {
		log.Warn("HTTP answers were cut off", "err", err)
	}
	st := srv.Stats()
	if !c.quiet {
		fmt.Fprintf(e.stdout, "stopped within %s, after an uptime of %s: %s, %s, %s, %.1f MB\n", time.Since(began).Round(10*time.Millisecond),
			st.Uptime.Round(100*time.Millisecond), plural(st.Joined, "join"), plural(st.RoomsOpened, "room"), plural(st.PacketsOut, "packet"),
			float64(st.PacketBytesOut)/1e6)
	}
}

// textList is a comma-separated list as a flag's value.
type textList []string

// MarshalText implements encoding.TextMarshaler.
func (l textList) MarshalText() ([]byte, error) { return []byte(strings.Join(l, ",")), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *textList) UnmarshalText(text []byte) error {
	*l = nil
	for s := range strings.SplitSeq(string(text), ",") {
		if s = strings.TrimSpace(s); s == "" {
			return errors.New("an item is empty")
		}
		*l = append(*l, s)
	}
	return nil
}

// prefixList is a comma-separated list of networks; a single address stands for itself.
type prefixList []netip.Prefix

// MarshalText implements encoding.TextMarshaler.
func (l prefixList) MarshalText() ([]byte, error) {
	var items textList
	for _, p := range l {
		items = append(items, p.String())
	}
	return items.MarshalText()
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *prefixList) UnmarshalText(text []byte) error {
	var items textList
	if err := items.UnmarshalText(text); err != nil {
		return err
	}
	*l = nil
	for _, s := range items {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, addrErr := netip.ParseAddr(s)
			if addrErr != nil || a.Zone() != "" {
				return fmt.Errorf("%q is neither an address nor a network such as 10.0.0.0/8", s)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		*l = append(*l, p.Masked())
	}
	return nil
}

// folderList is a list of WORLD=DIR as a flag's value. Giving the flag again adds to it.
type folderList []folder

type folder struct{ world, dir string }

// MarshalText implements encoding.TextMarshaler.
func (l folderList) MarshalText() ([]byte, error) {
	var items textList
	for _, f := range l {
		items = append(items, f.world+"="+f.dir)
	}
	return items.MarshalText()
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *folderList) UnmarshalText(text []byte) error {
	var items textList
	if err := items.UnmarshalText(text); err != nil {
		return err
	}
	for _, s := range items {
		world, dir, ok := strings.Cut(s, "=")
		if !ok || world == "" || dir == "" {
			return errors.New("want WORLD=DIR, such as dots=./web")
		}
		if slices.ContainsFunc(*l, func(f folder) bool { return f.world == world }) {
			return fmt.Errorf("world %s is there twice", world)
		}
		*l = append(*l, folder{world, dir})
	}
	return nil
}
