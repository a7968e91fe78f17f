package drumline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drumline-engine/drumline/beat"
	"github.com/drumline-engine/drumline/internal/hist"
)

// Server runs rooms and serves their seats. All methods are safe for concurrent use.
type Server struct {
	// Set once by New.
	opt      Options
	log      *slog.Logger
	clock    beat.Clock
	byName   map[string]Definition
	hub      *hub
	beats    *beat.Group
	encoders []*encoder
	workers  *workers
	inline   bool
	inlineMu sync.Mutex // serialises encoding in the "inline" arrangement
	stopped  chan struct{}
	started  time.Time

	wg       sync.WaitGroup // the housekeeper
	encoding sync.WaitGroup
	closing  sync.Once
	draining atomic.Bool
	silent   silentLinks
	joins    joinLimiter
	counters serverCounters
	measure  measures

	warned time.Time // owned by the housekeeper

	mu       sync.Mutex // guards what follows
	links    map[*Conn]struct{}
	noLinks  chan struct{} // closed when the last link has ended while draining
	byBeat   map[*beat.Beat]*Room
	open     map[*Room]roomRate
	retired  roomTotals
	gone     LinkCounters // of links that have ended
	rates    rates
	seconds  secondRing
	pageSums map[pageKey]*pageSum
}

// Nice values of the engine's threads: the beat first, then the encoders, then everything else, and Room.Go's work last.
const (
	encoderNice = -5
	workerNice  = 10
)

// New starts a server: its threads run until Close. It returns an error that names the option or world that is wrong.
func New(o Options) (*Server, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	s := &Server{
		opt: o, log: o.Logger, clock: o.Clock, byName: map[string]Definition{}, inline: o.Arrangement == "inline",
		stopped: make(chan struct{}), started: time.Now(), links: map[*Conn]struct{}{}, byBeat: map[*beat.Beat]*Room{}, open: map[*Room]roomRate{}, pageSums: map[pageKey]*pageSum{},
	}
	for _, d := range o.Worlds {
		if err := d.Err(); err != nil {
			return nil, err
		}
		if _, twice := s.byName[d.spec.Name]; twice {
			return nil, fmt.Errorf("drumline: two worlds are called %q", d.spec.Name)
		}
		s.byName[d.spec.Name] = d
	}
	s.hub = newHub(s)
	var err error
	s.beats, err = beat.NewGroup(beat.Options{
		Threads: o.BeatThreads, Clock: s.clock, Priority: o.Priority, HangAfter: o.HangAfter,
		OnHang: func(b *beat.Beat) {
			s.mu.Lock()
			r := s.byBeat[b]
			s.mu.Unlock()
			if r != nil {
				r.hung()
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("drumline: %w", err)
	}
	for range o.Encoders {
		e := newEncoder(s)
		s.encoders = append(s.encoders, e)
		s.encoding.Go(func() { e.run(o.Arrangement == "") })
	}
	s.workers = newWorkers(o.Workers)
	s.wg.Go(s.keepHouse)
	return s, nil
}

func (o *Options) fill() error {
	if len(o.Worlds) == 0 {
		return errors.New("drumline: Options.Worlds is empty")
	}
	cores := max(1, runtime.NumCPU()-1)
	ints := []struct {
		name string
		v    *int
		def  int
	}{
		{"MaxPlayers", &o.MaxPlayers, 2000}, {"MaxPending", &o.MaxPending, 512}, {"JoinsPerSec", &o.JoinsPerSec, 5},
		{"MessagesPerSec", &o.MessagesPerSec, 240}, {"BeatThreads", &o.BeatThreads, cores}, {"Encoders", &o.Encoders, cores},
		{"Workers", &o.Workers, cores},
	}
	for _, f := range ints {
		if *f.v < 0 {
			return fmt.Errorf("drumline: Options.%s is %d, must not be negative", f.name, *f.v)
		}
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	times := []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{
		{"HelloTimeout", &o.HelloTimeout, 5 * time.Second}, {"SlowAfter", &o.SlowAfter, time.Second},
		{"QuietAfter", &o.QuietAfter, 10 * time.Second}, {"StallAfter", &o.StallAfter, 30 * time.Second},
		{"HangAfter", &o.HangAfter, time.Second},
	}
	for _, f := range times {
		if *f.v < 0 {
			return fmt.Errorf("drumline: Options.%s is %v, must not be negative", f.name, *f.v)
		}
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	if o.SlowAfter > o.QuietAfter || o.QuietAfter > o.StallAfter {
		return fmt.Errorf("drumline: SlowAfter (%v), QuietAfter (%v) and StallAfter (%v) must not fall", o.SlowAfter, o.QuietAfter, o.StallAfter)
	}
	switch o.Arrangement {
	case "", "inline", "goroutines":
	default:
		return fmt.Errorf("drumline: Options.Arrangement is %q, must be empty, inline or goroutines", o.Arrangement)
	}
	if o.Priority == "" {
		o.Priority = beat.PriorityNice
	}
	if o.Clock == nil {
		o.Clock = beat.SystemClock()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return nil
}

// raise asks for an encoder's priority: FIFO is for the beat alone, whose share of a core is small.
func raise(kind string, nice int) (got, refused string) {
	if kind == beat.PriorityFIFO {
		kind = beat.PriorityNice
	}
	got, err := beat.RaiseThread(kind, nice)
	if err != nil {
		refused = err.Error()
	}
	return got, refused
}

// Worlds returns the server's worlds in the order of Options.Worlds.
func (s *Server) Worlds() []Definition { return s.opt.Worlds }

// Try opens a room of each world that nobody will join, and forgets it: mistakes in a world's feeds and methods then show at the
// start and not when the first player comes. It calls Open and Feeds, and may take as long as they do.
func (s *Server) Try() error {
	for _, d := range s.opt.Worlds {
		if err := newRoom(s, d, "trial", s.opt.Seed|1, nil).openWorld(); err != nil {
			return fmt.Errorf("drumline: world %q does not open: %w", d.spec.Name, err)
		}
	}
	return nil
}

// Refused counts a refusal that an adapter decided before Accept, such as ReasonOrigin.
func (s *Server) Refused(p Peer, why Reason) {
	s.counters.refused[why].Add(1)
	if f := s.opt.Hooks.Refused; f != nil {
		f(p, why)
	}
}

func (s *Server) remember(c *Conn) {
	s.mu.Lock()
	s.links[c] = struct{}{}
	s.mu.Unlock()
}

func (s *Server) forget(c *Conn) {
	n := c.link.Counters()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, c)
	s.gone.add(n)
	if len(s.links) == 0 && s.noLinks != nil {
		close(s.noLinks)
		s.noLinks = nil
	}
}

func (s *Server) allLinks() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Conn, 0, len(s.links))
	for c := range s.links {
		out = append(out, c)
	}
	return out
}

func (s *Server) linksOf(r *Room) []*Conn {
	out := s.allLinks()
	n := 0
	for _, c := range out {
		if c.room.Load() == r {
			out[n] = c
			n++
		}
	}
	return out[:n]
}

func (s *Server) bind(b *beat.Beat, r *Room) {
	s.mu.Lock()
	r.bound = true
	s.byBeat[b] = r
	s.mu.Unlock()
}

// Restore opens a room with the world of a snapshot (Snapshot, or World.Snapshot), before anybody joins. It returns an error when
// there is no such world, the room is open already, or the caps do not allow another; a snapshot that the world does not take
// closes the room with ReasonRoomError.
func (s *Server) Restore(world, room string, snapshot []byte) error {
	def, ok := s.byName[world]
	if !ok || !namePattern.MatchString(room) {
		return fmt.Errorf("drumline: there is no world %q, or %q is no room's name", world, room)
	}
	return s.hub.restore(def, room, append([]byte{}, snapshot...))
}

// Snapshot returns the whole world of an open room, taken between two steps. It returns ErrClosed when there is no such room or
// it ends meanwhile, ctx's error, or the world's own.
func (s *Server) Snapshot(ctx context.Context, world, room string) ([]byte, error) {
	type result struct {
		b   []byte
		err error
	}
	r := s.hub.find(world, room)
	done := make(chan result, 1)
	if r == nil || !r.post(func() {
		b, err := r.game.Snapshot(nil)
		done <- result{b, err}
	}) {
		return nil, ErrClosed
	}
	select {
	case x := <-done:
		return x.b, x.err
	case <-r.done:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Drain stops admitting, tells every client why and when to come back (spread over a few seconds), closes the rooms, and
// returns nil when all rooms and links have ended, or ctx's error. Call Close after it.
func (s *Server) Drain(ctx context.Context) error {
	s.draining.Store(true)
	s.hub.mu.Lock()
	s.hub.closing = true
	s.hub.mu.Unlock()
	rooms := s.hub.all()
	for _, r := range rooms {
		r.post(func() { r.Close(ReasonDraining) })
	}
	for _, c := range s.allLinks() {
		if c.phase.Load() == linkPending {
			c.fail(ReasonDraining)
		}
	}
	s.mu.Lock()
	done := make(chan struct{})
	if len(s.links) == 0 {
		close(done)
	} else if s.noLinks != nil {
		done = s.noLinks
	} else {
		s.noLinks = done
	}
	s.mu.Unlock()
	for _, r := range rooms {
		select {
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends everything at once: links that are still open are closed with ReasonDraining, worlds are not asked. It is
// idempotent and waits for the server's goroutines, but not for a room whose step hangs.
func (s *Server) Close() {
	s.closing.Do(func() {
		s.draining.Store(true)
		s.hub.mu.Lock()
		s.hub.closing = true
		s.hub.mu.Unlock()
		close(s.stopped)
		s.beats.Close() // no step runs after this, except one that hangs
		for _, r := range s.hub.all() {
			if r.hz > 0 || !r.isRunning() {
				r.abandon(ReasonDraining)
			}
			select {
			case <-r.done:
			case <-time.After(s.opt.HangAfter):
				r.hung()
			}
		}
		for _, c := range s.allLinks() {
			c.fail(ReasonDraining)
		}
		s.wg.Wait()
		s.workers.close()
		for _, e := range s.encoders {
			e.close()
		}
		s.encoding.Wait()
	})
}

// openTimeout is how long World.Open may take. Players wait meanwhile.
const openTimeout = 30 * time.Second

// keepHouse looks once a second after what no room looks after.
func (s *Server) keepHouse() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-s.stopped:
			return
		case now := <-t.C:
			s.updateRates(now)
			s.updateSeconds(now)
			s.hub.forget(now)
			s.warnFIFO(now)
			s.joins.mu.Lock()
			s.joins.prune(now)
			s.joins.mu.Unlock()
			for _, r := range s.hub.all() {
				since := time.Duration(r.stepSince.Load()) // of rooms without a beat; the others have the group's watchdog
				if since != 0 && s.clock.Now()-since > s.opt.HangAfter || !r.isRunning() && s.clock.Now()-r.opened > openTimeout {
					r.hung()
				}
			}
		}
	}
}

// fifoLoad is the share of a core from which on a FIFO beat thread does harm: the kernel takes the core away from it for tens of
// milliseconds, so that normal threads get their part.
const fifoLoad = 0.7

// warnFIFO logs, once a minute at most, that a FIFO beat thread is too busy.
func (s *Server) warnFIFO(now time.Time) {
	if s.opt.Priority != beat.PriorityFIFO || now.Sub(s.warned) < time.Minute {
		return
	}
	for _, t := range s.beats.Stats().Threads {
		if t.Priority == beat.PriorityFIFO && t.LoadCores > fifoLoad {
			s.warned = now
			s.log.Warn("a beat thread under SCHED_FIFO is too busy: use --priority nice, or more beat threads", "load_cores", t.LoadCores, "limit", fifoLoad)
			return
		}
	}
}

// workers run Room.Go's functions on threads of low priority.
type workers struct {
	queue chan func()

	mu      sync.RWMutex // guards closed: nothing is queued after it
	closed  bool
	running sync.WaitGroup
}

const (
	maxQueuedWork = 1024
	// workGrace is how long Close waits for work that runs. Go has no way to end a goroutine; it must not keep the process.
	workGrace = 2 * time.Second
)

func newWorkers(n int) *workers {
	w := &workers{queue: make(chan func(), maxQueuedWork)}
	for range n {
		w.start()
	}
	return w
}

func (w *workers) start() {
	w.running.Go(func() {
		runtime.LockOSThread() // for the priority; the thread ends with the goroutine
		_, _ = beat.RaiseThread(beat.PriorityNice, workerNice)
		ended := false
		defer func() {
			if !ended { // the work called runtime.Goexit
				w.start()
			}
		}()
		for f := range w.queue {
			f()
		}
		ended = true
	})
}

// do queues f; false: too much waits, or the server has ended.
func (w *workers) do(f func()) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return false
	}
	select {
	case w.queue <- f:
		return true
	default:
		return false
	}
}

func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	close(w.queue)
	done := make(chan struct{})
	go func() {
		w.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(workGrace):
	}
}

// measures are histograms of the encoders' work, over one window.
type measures struct {
	encode, age, bytes hist.Histogram
}
