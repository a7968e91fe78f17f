// Package bots is a crowd of players for load tests: many clients in one process that speak the real protocol over real sockets,
// run the real decoder and play by their world's own bot.
//
// The smallest use:
//
//	f, err := bots.Start(ctx, bots.Options{URL: "http://127.0.0.1:8080", World: "arena", NewBot: def.NewBot, Bots: 208, Rooms: 13})
//	if err != nil { … }
//	defer f.Close()
//	f.WaitJoined(ctx)
//	f.ResetWindow()
//	time.Sleep(30 * time.Second)
//	fmt.Println(f.Figures().Gap.Quantile(0.99))
//
// With Options.Server the crowd joins a server of its own process over link/mem instead, where the network can lose and delay: the same bots
// over another transport. What they and the server use of the machine can then not be told apart.
//
// It is not a client library: a bot never resumes, never sends commands and knows no way back from an error. It measures what a
// client sees; what the server did is the server's to tell.
//
// # Cost
//
// A load generator that wakes for each packet disturbs the server beside it more by its wake-ups than by its work. On Linux one
// thread per 2,500 bots looks at all sockets every millisecond and sleeps in between, so times at the client are up to
// 1 ms too late. Elsewhere, and on TLS, each bot has a goroutine that reads. Links in memory are looked at every millisecond, too, and cost a
// goroutine each for the network between.
//
// # Goroutines
//
// Start makes the threads above and a few goroutines that connect; Close waits for all of them. Bots of one thread are
// guarded by one lock, which Figures takes as well. Methods of a Fleet may be called from any goroutine.
package bots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/internal/hist"
	"github.com/drumline-engine/drumline/internal/proc"
	"github.com/drumline-engine/drumline/lab/motion"
	"github.com/drumline-engine/drumline/link/mem"
)

// Bounds of a fleet, so that a mistyped number does no harm.
const (
	MaxBots = 5000
	// MaxLife is how long a fleet lives at most; then it ends by itself.
	MaxLife = 11 * time.Minute
)

const (
	joinTimeout  = 8 * time.Second        // dial to welcome
	dialers      = 64                     // connections in the making at once
	joinsPerSec  = 500                    // how fast big fleets join
	leastJoin    = 800 * time.Millisecond // small fleets join over this long
	botsPerLoop  = 2500
	defaultInput = 20
	smallRcvbuf  = 4096
	readSlots    = 50 // a rate-limited bot reads this often a second
	// longGap is from when on a gap counts that has not ended yet.
	longGap = 250 * time.Millisecond
)

// NewDecoder makes the decoder of a feed from its schema.
type NewDecoder func(schema json.RawMessage) (feed.Decoder, error)

// Options set up a Fleet. The zero value of each field means its default; wrong values are errors from Start.
type Options struct {
	// URL is the server's, such as http://127.0.0.1:8080; its path is a prefix to /ws. Required, unless Server is set.
	URL string
	// Server, if set, is joined in this process over link/mem. It should lift its limits: all bots come from nowhere.
	Server *drumline.Server
	// Path is the network to Server, the same in both directions. Each bot's chances follow from Seed and its number.
	Path mem.Path
	// Unordered makes the state lane to Server unordered: what is lost is gone. Else it is sent again and holds up what follows.
	Unordered bool
	// Deflate offers the server at URL to compress its messages (permessage-deflate, without a window from message to message).
	Deflate bool
	// AllowRemote lets URL name another machine than this one. Load on a machine must be meant.
	AllowRemote bool
	// World is the name of the world to join. Required.
	World string
	// NewBot makes a bot's mind from its seed: a function that appends one encoded input. Default: inputs of zeros. It is the
	// NewBot of a drumline.Definition.
	NewBot func(seed uint64) func(dst []byte, v drumline.BotView) []byte
	// Decoders are by feed.Info.Kind. Default: those of this module.
	Decoders map[string]NewDecoder

	// Bots is how many there are, 1 to MaxBots. Default 16.
	Bots int
	// Rooms is over how many rooms they are spread, named r1, r2, …. Default: one per 16 bots.
	Rooms int
	// JoinOver is the time over which they join. Default 0.8 s, or 500 a second if that is longer.
	JoinOver time.Duration

	// InputHz is how many input messages a bot sends a second, up to 200; negative: none, acks only. Default 20.
	InputHz int
	// InputsPerPacket is how many inputs go into one message, 1 to 8: the newest, also if they were sent before. Default: those of
	// the steps since the message before, so that each step has one and none is sent twice. NewBot's function is asked once per
	// message.
	InputsPerPacket int
	// DecodeEvery n lets one bot in n decode what it gets; the others read the header and ack. Default 1.
	DecodeEvery int
	// Verify asks the server for a hash in each packet to the bots that decode, and compares. The server must be in its lab mode.
	Verify bool

	// Show is how many of the bots that decode show what they get to nobody, sixty pictures a second, and measure how evenly it moves. They are
	// spread over the rooms. Default none.
	Show int
	// Pause is how many bots stop reading on Fleet.Pause, while they go on sending. Spread over the rooms.
	Pause int
	// RateBytes is how many bytes a second a bot reads once it has joined. Default: as they come.
	RateBytes int
	// Rcvbuf is the receive buffer (SO_RCVBUF, bytes) of bots that pause or are rate-limited, or of all if there are none
	// such. Default for those: 4096, the least that most systems give; for others, the system's own.
	Rcvbuf int

	// Threads is the number of event loops. Default: one per 2,500 bots.
	Threads int
	// Portable uses a goroutine per connection also where there is a better way.
	Portable bool
	// Seed makes the bots' choices. Default 1.
	Seed uint64
}

func (o *Options) fill() (*url.URL, error) {
	u, err := o.way()
	if err != nil {
		return nil, err
	}
	if o.World == "" {
		return nil, errors.New("bots: World: no name")
	}
	if o.Bots == 0 {
		o.Bots = 16
	}
	for _, f := range []struct {
		name          string
		value         *int
		def, min, max int
	}{
		{"Bots", &o.Bots, 16, 1, MaxBots},
		{"Rooms", &o.Rooms, (o.Bots + 15) / 16, 1, MaxBots},
		{"InputHz", &o.InputHz, defaultInput, -1, 200},
		{"InputsPerPacket", &o.InputsPerPacket, 0, 0, drumline.MaxInputs},
		{"DecodeEvery", &o.DecodeEvery, 1, 1, MaxBots},
		{"Pause", &o.Pause, 0, 0, o.Bots},
		{"Show", &o.Show, 0, 0, o.Bots},
		{"RateBytes", &o.RateBytes, 0, 0, 1 << 30},
		{"Rcvbuf", &o.Rcvbuf, 0, 0, 1 << 26},
		{"Threads", &o.Threads, (o.Bots + botsPerLoop - 1) / botsPerLoop, 1, 16},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < f.min || *f.value > f.max {
			return nil, fmt.Errorf("bots: %s is %d, want %d to %d", f.name, *f.value, f.min, f.max)
		}
	}
	if o.JoinOver < 0 || o.JoinOver > time.Minute {
		return nil, fmt.Errorf("bots: JoinOver is %v, want up to 1m", o.JoinOver)
	}
	if o.JoinOver == 0 {
		o.JoinOver = max(leastJoin, time.Duration(o.Bots)*time.Second/joinsPerSec)
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.Decoders == nil {
		o.Decoders = defaultDecoders()
	}
	if n := proc.MaxFiles(); o.Server == nil && n > 0 && n < o.Bots+64 {
		return nil, fmt.Errorf("bots: %d bots need %d open files, this process may have %d: raise the limit (ulimit -n)", o.Bots, o.Bots+64, n)
	}
	return u, nil
}

// way checks how the bots reach the server; the URL is nil if it is in this process.
func (o *Options) way() (*url.URL, error) {
	if o.Server != nil {
		if o.URL != "" || o.Deflate || o.Rcvbuf != 0 {
			return nil, errors.New("bots: URL, Deflate and Rcvbuf are for sockets, and Server is set")
		}
		if err := (mem.Options{Down: o.Path, Up: o.Path}).Check(); err != nil {
			return nil, fmt.Errorf("bots: Path: %w", err)
		}
		return nil, nil
	}
	if o.Path != (mem.Path{}) || o.Unordered {
		return nil, errors.New("bots: Path and Unordered are for a Server of this process, and there is none")
	}
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("bots: URL %q: want something like http://127.0.0.1:8080", o.URL)
	}
	switch u.Scheme {
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	case "ws", "wss":
	default:
		return nil, fmt.Errorf("bots: URL %q: want http, https, ws or wss", o.URL)
	}
	if !o.AllowRemote && !loopback(u.Hostname()) {
		return nil, fmt.Errorf("bots: URL %q is not this machine and AllowRemote is not set", o.URL)
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/ws") + "/ws"
	u.RawQuery, u.Fragment = "", ""
	return u, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// Fleet is a running crowd.
type Fleet struct {
	// set before any goroutine starts
	o      Options
	target target
	start  time.Time
	shards []*shard
	wg     sync.WaitGroup
	cancel context.CancelFunc
	ctx    context.Context

	settled  chan struct{} // closed when no bot is on its way any more
	early    bool          // by then the fleet was ending; read it when settled is closed
	pending  atomic.Int64
	lastJoin atomic.Int64 // ns since start
	closing  atomic.Bool
	// loops end when stop is closed
	stop     chan struct{}
	stopOnce sync.Once

	gap, age, late, echo hist.Histogram
	ackDelay, packet     hist.Histogram // packet: see packetUnit
	windowAt             atomic.Int64   // ns since start
	pausedAt             atomic.Int64
}

// now is the fleet's clock: monotonic, since its start.
func (f *Fleet) now() time.Duration { return time.Since(f.start) }

// packetUnit is what a byte counts in a histogram of durations.
const packetUnit = time.Microsecond

// note records d if it is of a bot that is measured.
func (f *Fleet) note(h *hist.Histogram, measured bool, d time.Duration) {
	if measured {
		h.Record(d)
	}
}

// Start makes the bots and lets them join, which takes Options.JoinOver and goes on when Start has returned. They end when Close
// is called, when ctx ends, and after MaxLife.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	u, err := o.fill()
	if err != nil {
		return nil, err
	}
	f := &Fleet{o: o, start: time.Now(), settled: make(chan struct{}), stop: make(chan struct{})}
	f.ctx, f.cancel = context.WithTimeout(ctx, MaxLife)
	f.pending.Store(int64(o.Bots))
	if u != nil {
		f.target = target{url: u, tls: u.Scheme == "wss", address: hostPort(u), deflate: o.Deflate}
	}
	portable := o.Portable || f.target.tls || !haveLoop || o.Server != nil
	for i := range o.Threads {
		s := &shard{f: f, id: i, portable: portable, scratch: make([]byte, 0, 1024)}
		if err := s.open(); err != nil {
			for _, s := range f.shards {
				s.closeLoop()
			}
			f.cancel()
			return nil, err
		}
		f.shards = append(f.shards, s)
	}
	showing := 0
	for i := range o.Bots {
		s := f.shards[i%o.Threads]
		b := newBot(f, s, i)
		s.bots = append(s.bots, b)
		if showing < o.Show && b.decodes && !b.willPause {
			s.showing = append(s.showing, b)
			b.shows = true
			showing++
		}
	}
	for _, s := range f.shards {
		f.wg.Go(s.run)
	}
	f.wg.Go(f.join)
	context.AfterFunc(f.ctx, f.end)
	return f, nil
}

func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "wss" {
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

// join dials one bot after the other, evenly over JoinOver.
func (f *Fleet) join() {
	var dialing sync.WaitGroup
	defer dialing.Wait()
	slots := make(chan struct{}, dialers)
	for i := range f.o.Bots {
		s := f.shards[i%len(f.shards)]
		b := s.bots[i/len(f.shards)]
		at := f.o.JoinOver * time.Duration(i) / time.Duration(f.o.Bots)
		select {
		case <-f.stop:
			return
		case <-time.After(at - f.now()):
		}
		select {
		case <-f.stop:
			return
		case slots <- struct{}{}:
		}
		dialing.Go(func() {
			defer func() { <-slots }()
			s.dial(b)
		})
	}
}

// settle is called once for each bot, when it has joined or has failed to.
func (f *Fleet) settle() {
	if f.pending.Add(-1) == 0 {
		f.early = f.closing.Load()
		close(f.settled)
	}
}

// WaitJoined returns when every bot has joined or failed to; see Figures for which. The error is ctx's, or says that the fleet
// ended before.
func (f *Fleet) WaitJoined(ctx context.Context) error {
	select {
	case <-f.settled:
	case <-ctx.Done():
		return ctx.Err()
	case <-f.stop:
		select {
		case <-f.settled: // both: which came first counts
		default:
			return errEnded
		}
	}
	if f.early {
		return errEnded
	}
	return nil
}

var errEnded = errors.New("bots: the fleet has ended")

// Pause makes Options.Pause bots stop reading. They go on sending inputs, with the ack of the last packet they read: what a server
// has to suffer from a client that is alive but never reads.
func (f *Fleet) Pause() {
	f.pausedAt.Store(int64(f.now()))
	for _, s := range f.shards {
		s.mu.Lock()
		for _, b := range s.bots {
			if b.willPause && b.state == live && !b.paused {
				b.paused, b.pausedAt = true, f.now()
				b.link.pause()
			}
		}
		s.mu.Unlock()
	}
}

// ResetWindow forgets what was measured so far. What happened to links (joined, refused, lost, closed) is kept.
func (f *Fleet) ResetWindow() {
	for _, s := range f.shards {
		s.mu.Lock()
		for _, b := range s.bots {
			if b.screen != nil {
				b.screen.Reset()
			}
			b.n = counts{}
			if b.measured = b.state == live && !b.willPause; b.lastPacket == 0 {
				b.lastPacket = f.now()
			}
		}
		s.mu.Unlock()
	}
	for _, h := range []*hist.Histogram{&f.gap, &f.age, &f.late, &f.echo, &f.ackDelay, &f.packet} {
		h.Reset()
	}
	f.windowAt.Store(int64(f.now()))
}

// Figures is what a fleet has seen. All but the counts of links are over the window since ResetWindow, without bots that pause.
type Figures struct {
	For time.Duration
	// Asked, Joined and Live count bots; Lost those that had joined, were not made to pause, and whose link ended.
	Asked, Joined, Live, Lost int
	// JoinTime is from the start to the last join.
	JoinTime time.Duration
	// Refused counts bots that never got in and Closed those whose link ended later (the paused ones too), by the reason's
	// name or one of the Reason constants of this package.
	Refused, Closed map[string]int
	// Clients is the number of bots that the following figures are about.
	Clients int
	// Packets are state packets, Bytes those and reliable sections, unpacked if the server compresses; WireBytes are all bytes read from
	// the sockets, WebSocket headers included.
	Packets, Bytes, WireBytes uint64
	// PacketBytes is the size of a state packet, unpacked: a byte counts as a microsecond.
	PacketBytes *hist.Snapshot
	// Deflated is the number of bots whose server may compress.
	Deflated int
	// Gap is between two state packets of one bot, and since the last one if that is long ago. Age is from the time at which a
	// packet's tick was due until it was decoded; it takes the server's clock for this one, so both must be the same machine's.
	// Late is from an input's slot to its write, Echo from the slot until a packet acks it.
	Gap, Age, Late, Echo *hist.Snapshot
	// DecodeErrors and Mismatches count packets; Verified those whose hash was compared, Unverifiable those whose hash the server
	// did not know.
	DecodeErrors, Mismatches, Verified, Unverifiable uint64
	// Overtaken packets came after a newer one, or twice, or before the welcome. NoBase ones are told against something that the bot
	// does not have, as may happen where packets are lost. Neither is acked, and neither is an error.
	Overtaken, NoBase uint64
	// Acks are messages that carried an ack. AckDelay is from a packet until the message that acks it, of those packets between two messages
	// the first.
	Acks     uint64
	AckDelay *hist.Snapshot
	// Events are what the Decoders of the decoding bots have told of; Decoding is how many bots those are.
	Events   uint64
	Decoding int
	// FirstError is the first decode error, as an example.
	FirstError string
	// Held is the mean number of items held by a bot that decodes.
	Held float64
	// Inputs were sent; Unsent were due but the socket was full or the generator too late.
	Inputs, Unsent uint64
	// Motion is what Options.Show bots showed; nil: none did. What they take for the true path is what their own packets say half a second later.
	Motion  *motion.Motion
	Showing int
	// Paused are the bots that were made to pause.
	Paused []PausedBot
}

// PausedBot is what became of a bot that stopped reading.
type PausedBot struct {
	Room string
	// Reason is empty while the link lives; Reset where the server's word could not arrive, since nothing was read.
	Reason string
	// After is from the pause to the end of the link.
	After time.Duration
}

// Reasons that are not the server's.
const (
	// NoAnswer: no welcome or refusal within 8 s.
	NoAnswer = "no_answer"
	// NoConnection: the connection could not be made.
	NoConnection = "no_connection"
	// BadFrame: the server broke the WebSocket protocol.
	BadFrame = "bad_frame"
	// BadWelcome: the welcome was not readable, of another protocol version, or named a feed that has no decoder here.
	BadWelcome = "bad_welcome"
	// Reset: the link ended without a close frame or a goodbye.
	Reset = "reset"
)

// Figures returns what has been seen so far. It costs a short lock per thread.
func (f *Fleet) Figures() Figures {
	now := f.now()
	g := Figures{
		For:      now - time.Duration(f.windowAt.Load()),
		Asked:    f.o.Bots,
		JoinTime: time.Duration(f.lastJoin.Load()),
		Refused:  map[string]int{},
		Closed:   map[string]int{},
	}
	held, holders := 0, 0
	var gaps hist.Histogram
	var shown motion.Total
	for _, s := range f.shards {
		s.mu.Lock()
		for _, b := range s.bots {
			switch {
			case b.joined:
				g.Joined++
				if b.deflated {
					g.Deflated++
				}
				if b.state == live || b.reason == "" { // still there when the fleet ended
					g.Live++
				} else {
					g.Closed[b.reason]++
					if !b.paused {
						g.Lost++
					}
				}
			case b.state == ended && b.reason != "":
				g.Refused[b.reason]++
			}
			if b.paused {
				p := PausedBot{Room: b.room}
				if b.state == ended {
					p.Reason, p.After = b.reason, b.endedAt-b.pausedAt
				}
				g.Paused = append(g.Paused, p)
			}
			g.DecodeErrors += b.n.decodeErrors
			g.Mismatches += b.n.mismatches
			g.Verified += b.n.verified
			g.Unverifiable += b.n.unverifiable
			g.Overtaken += b.n.overtaken
			g.NoBase += b.n.noBase
			if g.FirstError == "" {
				g.FirstError = b.firstError
			}
			g.Inputs += b.n.inputs
			g.Unsent += b.n.unsent
			if !b.measured {
				continue
			}
			if open := now - b.lastPacket; b.state == live && b.hz > 0 && open > longGap {
				gaps.Record(open) // else a bot that gets nothing at all would not show
			}
			g.Clients++
			if b.screen != nil {
				shown.Add(b.screen)
			}
			g.Packets += b.n.packets
			g.Bytes += b.n.bytes
			g.WireBytes += b.n.wire
			g.Acks += b.n.acks
			if b.decodes {
				g.Decoding++
				g.Events += b.n.events
			}
			if b.decodes && b.state == live {
				for _, d := range b.view.Decoders {
					held += d.Held()
				}
				holders++
			}
		}
		s.mu.Unlock()
	}
	if g.Showing = shown.Screens; g.Showing > 0 {
		m := shown.Motion()
		g.Motion = &m
	}
	if holders > 0 {
		g.Held = float64(held) / float64(holders)
	}
	g.Gap, g.Age, g.Late, g.Echo = f.gap.Snapshot(), f.age.Snapshot(), f.late.Snapshot(), f.echo.Snapshot()
	g.AckDelay, g.PacketBytes = f.ackDelay.Snapshot(), f.packet.Snapshot()
	g.Gap.Merge(gaps.Snapshot())
	return g
}

// Close lets the bots say goodbye and waits until everything of the fleet has ended. It is idempotent.
func (f *Fleet) Close() {
	f.end()
	f.wg.Wait()
}

// end is Close without waiting.
func (f *Fleet) end() {
	f.stopOnce.Do(func() {
		f.closing.Store(true)
		close(f.stop)
		f.cancel() // who is dialling stops
	})
}

// newBot makes bot i, not yet connected.
func newBot(f *Fleet, s *shard, i int) *bot {
	b := &bot{
		f: f, s: s, id: i,
		index:     i / len(f.shards),
		room:      fmt.Sprintf("r%d", i%f.o.Rooms+1),
		decodes:   i%f.o.DecodeEvery == 0,
		willPause: i < f.o.Pause,
	}
	seed := f.o.Seed + uint64(i)
	b.view.Rand = rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	if f.o.NewBot != nil {
		b.mind = f.o.NewBot(seed)
	}
	b.section = b.onSection
	b.rcvbuf = f.o.Rcvbuf
	if special := b.willPause || f.o.RateBytes > 0; special && b.rcvbuf == 0 {
		b.rcvbuf = smallRcvbuf
	} else if !special && (f.o.Pause > 0 || f.o.RateBytes > 0) {
		b.rcvbuf = 0
	}
	return b
}
