package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/internal/proc"
	"github.com/drumline-engine/drumline/lab/bots"
	"github.com/drumline-engine/drumline/lab/report"
	"github.com/drumline-engine/drumline/ops"
)

// One run: the bots join, warm up, play, and what they and the server saw is put together.

// loadRun is one run under way.
type loadRun struct {
	c      *loadConfig
	e      *env
	target *loadTarget
	server *subprocess // nil: --url
	def    drumline.Definition
	fleet  *bots.Fleet

	told      *ops.DebugWindow // the newest figures of the server; nil: it tells none
	rss       float64
	ownRSS    float64 // of this process
	pausing   *report.Pause
	paused    time.Time
	before    drumline.Stats // when the pause began
	measuring bool           // the window that is measured has begun
	asked     bool           // told is of the window that is measured
	end       runEnd
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
	g := r.fleet.Figures()
	r.end.earlyErrors, r.end.earlyMismatches = g.DecodeErrors, g.Mismatches
	// Bots that were thrown out verify nothing either, and then that is not why.
	if c.verify && g.Packets > 0 && g.Verified == 0 && len(g.Closed) == 0 && g.DecodeErrors == 0 {
		return m, errNotVerified
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
	used, host := proc.NewWindow(), proc.NewHostTime()
	if r.told != nil {
		if err := r.target.reset(ctx); err != nil {
			return m, err
		}
	}
	r.fleet.ResetWindow()
	r.measuring = true
	if err := r.watch(ctx, host); err != nil {
		return m, err
	}
	m.Bots = r.fleet.Figures()
	if r.end.cut == "" {
		r.end.cut = nobodyPlays(m.Bots)
	}
	r.end.unverified = c.verify && m.Bots.Verified == 0
	m.LoadCores, m.StealPct, m.BusyCores = used.Figures().CPUCores, host.StealPct(), host.BusyCores()
	if r.told != nil && !r.end.gone {
		if err := r.ask(ctx); err != nil {
			if ctx.Err() != nil || r.target.own {
				return m, err
			}
			r.end.cut = r.gone(err)
		}
	}
	if r.told != nil && r.asked {
		m.Window, m.Stats = &r.told.Window, &r.told.Stats
		if r.target.srv == nil {
			m.Process = &r.told.Process
		}
	}
	r.watchMemory()
	m.PeakRSSMiB, m.LoadMiB = r.rss, r.ownRSS
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

var errNotVerified = errors.New("--verify: no packet carries a hash; the server has to run with --lab, and a bot has to decode")

// deathTime is how long after the links of all bots the end of the server that had them may become known.
const deathTime = 500 * time.Millisecond

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
func (r *loadRun) watch(ctx context.Context, host *proc.HostTime) error {
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
				if ctx.Err() != nil || r.target.own {
					return err
				}
				r.end.cut = r.gone(err)
				return nil
			}
			r.stages()
		}
		if r.end.cut = nobodyPlays(r.fleet.Figures()); r.end.cut != "" {
			// That of a server that has died is its death, which may take a moment to be known.
			if r.server != nil {
				if err := r.sleep(ctx, deathTime); err != nil {
					return err
				}
			}
			return nil
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
			line += fmt.Sprintf("; beat p99 %.2f ms, skipped %d, doubled %d; send age p99 %.2f ms", w.IntervalMs.P99, w.Skipped, w.Doubled,
				w.AgeMs.P99)
			if r.target.srv == nil {
				line += fmt.Sprintf("; %.2f cores, %.1f MiB", r.told.Process.CPUCores, r.told.Process.RSSMiB)
			}
		}
		r.progress("%s; steal %.1f %%", line, host.StealPct())
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
	r.told, r.asked = told, r.measuring
	return nil
}

// gone says that the server at --url does not answer any more, and what its bots heard.
func (r *loadRun) gone(err error) string {
	r.end.gone = true
	s := "the server stopped telling its figures: " + err.Error()
	if nobody := nobodyPlays(r.fleet.Figures()); nobody != "" {
		s = nobody + "; " + s
	}
	return s
}

// watchMemory keeps the most memory that was seen: read from outside, at no cost to the server, where that is possible.
func (r *loadRun) watchMemory() {
	r.ownRSS = max(r.ownRSS, float64(proc.RSS())/proc.MiB)
	if r.server != nil {
		r.rss = max(r.rss, float64(proc.RSSOf(r.server.pid()))/proc.MiB)
	} else if r.told != nil && r.target.srv == nil {
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
