package drumline

import (
	"errors"
	"fmt"
	"log/slog"
	randv2 "math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drumline-engine/drumline/beat"
	"github.com/drumline-engine/drumline/feed"
)

// Room is a world's handle to the engine. Its methods are for the room's goroutine, except those that say otherwise.
type Room struct {
	// Set once, before the room is shared.
	srv    *Server
	def    Definition
	name   string
	hz     int
	budget int // bytes per packet
	seed   uint64
	log    *slog.Logger
	opened time.Duration
	state  []byte // a snapshot to open with; nil: a new world
	pcg    *randv2.PCG
	rnd    *randv2.Rand
	beat   *beat.Beat    // nil without a beat
	wake   chan struct{} // without a beat: step soon; capacity 1
	again  chan struct{} // without a beat: some seat did not get all of the newest frame; capacity 1
	done   chan struct{} // closed when the room has ended

	// Owned by the room's goroutine.
	game      game
	feeds     []feed.Feed
	infos     []feed.Info
	shards    []*shard
	seats     []*Seat // by id; nil: free
	taken     []*Seat // in the order of their ids
	waiting   int     // seats without a link
	tick      Tick
	epoch     uint8
	slot      uint64        // send period of the newest captured frame
	flushing  bool          // FlushNow was called in this step
	lastFrame time.Duration // rooms without a beat: when the newest frame was captured
	owed      bool          // rooms without a beat: something may have changed since
	empty     time.Duration // since when there is no seat
	timers    []roomTimer
	ending    *Refusal // the room closes after this step
	frames    sync.Pool
	mailSpare []func()
	zero      time.Duration // when tick 0 was due, were no step ever dropped, on the server's clock

	pages qualitySum // what the pages of its seats reported; any goroutine

	// Guarded by mu.
	mu      sync.Mutex
	mail    []func()
	closed  bool // takes no more mail
	running bool // the world is open

	// Guarded by the hub's lock.
	reserved int

	// Guarded by the server's lock.
	bound     bool      // beat is set
	summary   BeatStats // as of summaryAt
	summaryAt time.Time

	// Any goroutine.
	tickNow   atomic.Uint32
	epochNow  atomic.Uint32
	stepSince atomic.Int64 // rooms without a beat: clock time at which the running step began; 0: none
	dead      atomic.Bool  // panicked or hung: the world is not called any more
	players   atomic.Int32
	away      atomic.Int32
	counters  roomCounters
}

type roomTimer struct {
	due time.Duration // on the server's clock
	f   func()
}

func newRoom(s *Server, def Definition, name string, seed uint64, state []byte) *Room {
	spec := def.spec
	r := &Room{
		srv: s, def: def, name: name, hz: spec.Hz, budget: max(spec.BudgetBytes/spec.SendHz, 64), seed: seed, state: state,
		log:    s.log.With("world", spec.Name, "room", name),
		opened: s.clock.Now(), done: make(chan struct{}), wake: make(chan struct{}, 1), again: make(chan struct{}, 1),
		seats: make([]*Seat, spec.Seats), epoch: 1,
	}
	r.pcg = randv2.NewPCG(seed, 0x6472756d6c696e65)
	r.rnd = randv2.New(r.pcg)
	r.empty = r.opened
	r.epochNow.Store(uint32(r.epoch))
	r.frames.New = func() any { return &frameSet{pool: &r.frames} }
	for _, e := range s.encoders {
		r.shards = append(r.shards, &shard{room: r, encoder: e})
	}
	return r
}

// start opens the world on a goroutine of its own, so that a slow Open holds up no beat, and then lets the room run.
func (r *Room) start() {
	if err := r.openWorld(); err != nil {
		r.log.Error("the room could not open", "err", err)
		r.srv.counters.roomErrors.Add(1)
		r.abandon(ReasonRoomError)
		return
	}
	r.mu.Lock()
	given := r.closed // up, while Open took its time
	r.running = !given
	r.mu.Unlock()
	if given {
		return
	}
	r.srv.counters.roomsOpened.Add(1)
	if f := r.srv.opt.Hooks.RoomOpened; f != nil {
		f(r.def.spec.Name, r.name)
	}
	if r.hz == 0 {
		r.loop()
		return
	}
	_, err := r.srv.beats.Add(beat.Config{
		Name: r.def.spec.Name + "/" + r.name, Hz: r.hz, SendHz: r.def.spec.SendHz, Phase: beat.Auto, CatchUp: r.def.spec.CatchUp,
		Step: r.step, OnPanic: r.panicked,
		Bind: func(b *beat.Beat) { r.beat = b; r.srv.bind(b, r) },
	})
	if err != nil { // the group is closed: the server is ending
		r.abandon(ReasonDraining)
	}
}

func (r *Room) openWorld() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	if r.game, err = r.def.kind.open(r); err != nil {
		return err
	}
	if err := checkOptional(r.game.world()); err != nil {
		return err
	}
	r.feeds = r.game.Feeds()
	if len(r.feeds) == 0 || len(r.feeds) > maxFeeds {
		return fmt.Errorf("the world has %d feeds, must have 1 to %d", len(r.feeds), maxFeeds)
	}
	for _, f := range r.feeds {
		if e, ok := f.(interface{ Err() error }); ok && e.Err() != nil {
			return e.Err()
		}
		if t, ok := f.(feed.Tunable); ok && r.srv.opt.Tuning != (feed.Tuning{}) {
			t.Tune(r.srv.opt.Tuning)
		}
		if p, ok := f.(feed.Paced); ok && p.StepHz() != 0 && p.StepHz() != r.hz {
			return fmt.Errorf("feed %d reckons with %d steps a second, the room has %d: tell the feed (snap.Options.Hz) or the spec", len(r.infos), p.StepHz(), r.hz)
		}
		in := f.Info()
		if in.Name == "" {
			in.Name = in.Kind
		}
		r.infos = append(r.infos, in)
		if s, ok := f.(feed.Sized); ok && in.Lane == feed.State {
			// Twice its share is what a packet has after a pause.
			if item, n := s.Largest(); n > 2*r.budget {
				r.log.Warn("what is larger than a packet may never reach a client: shorten its texts (max=), or raise Spec.BudgetBytes",
					"feed", in.Name, "item", item, "bytes", n, "packet", 2*r.budget)
			}
		}
	}
	if r.state != nil {
		err = r.game.Restore(r.state)
		r.state = nil
	}
	return err
}

// World and Name identify the room: the name is unique in its world. Any goroutine.
func (r *Room) World() string { return r.def.spec.Name }
func (r *Room) Name() string  { return r.name }

// Log is the room's logger. Any goroutine.
func (r *Room) Log() *slog.Logger { return r.log }

// Seed is what the room's random source was seeded with.
func (r *Room) Seed() uint64 { return r.seed }

// Rand is the room's random source: seeded, and the only one that a deterministic world may use. Its state belongs into the
// world's Snapshot: RandState appends it, RestoreRand takes it back and returns what follows.
func (r *Room) Rand() *randv2.Rand { return r.rnd }

// RandState appends the state of Rand to dst.
func (r *Room) RandState(dst []byte) []byte {
	b, _ := r.pcg.MarshalBinary() // never fails
	return append(append(dst, byte(len(b))), b...)
}

// RestoreRand reads what RandState wrote and returns the rest of src.
func (r *Room) RestoreRand(src []byte) (rest []byte, err error) {
	if len(src) < 1 || len(src) < 1+int(src[0]) {
		return src, errors.New("drumline: the random state is cut short")
	}
	var p randv2.PCG
	if err := p.UnmarshalBinary(src[1 : 1+src[0]]); err != nil {
		return src, fmt.Errorf("drumline: random state: %w", err)
	}
	*r.pcg = p
	return src[1+src[0]:], nil
}

// Seats yields the taken seats in the order of their ids.
func (r *Room) Seats() func(yield func(*Seat) bool) { return slices.Values(r.taken) }

// Wake makes a room without a beat step soon; in rooms with one it does nothing. Any goroutine.
func (r *Room) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// FlushNow sends what has changed to this seat at once, ahead of the send rate: for the answer that somebody is waiting for.
func (r *Room) FlushNow(s *Seat) {
	s.flush.Store(true)
	r.flushing = true
}

// After calls f on the room's goroutine between two steps, when d has passed. It is not part of a Snapshot: a deterministic
// world counts ticks instead.
func (r *Room) After(d time.Duration, f func()) {
	r.timers = append(r.timers, roomTimer{r.srv.clock.Now() + d, f})
}

// Go runs work on a background thread of low priority, at most Options.Workers at once in the process, and then calls done (if
// not nil) on the room's goroutine between two steps. work must not touch the world. If the room has closed meanwhile,
// done is not called. Go returns false, and does nothing, when too much work (1,024 pieces in the process) waits already.
func (r *Room) Go(work, done func()) bool {
	return r.srv.workers.do(func() {
		defer func() {
			if v := recover(); v != nil {
				r.panicked(fmt.Sprintf("in Room.Go: %v", v), debug.Stack())
			}
		}()
		work()
		if done != nil {
			r.post(done)
		}
	})
}

// Close closes the room after this step: each client is told why.
func (r *Room) Close(why Reason) {
	if r.ending == nil {
		r.ending = &Refusal{Reason: why}
	}
	r.Wake()
}

// Restore replaces a running room's world by a snapshot, and raises the epoch: all clients get keyframes and drop what is still
// under way. It must be called between two steps: from a Command, an After or a done function.
func (r *Room) Restore(src []byte) error {
	if err := r.game.Restore(src); err != nil {
		r.Close(ReasonRoomError)
		return err
	}
	r.epoch++
	epoch := r.epoch
	r.epochNow.Store(uint32(epoch))
	for _, s := range r.taken {
		if s.conn != nil {
			r.seatShard(s).do(func() { s.out.restart(epoch) })
		}
	}
	return nil
}

// Snapshot appends the room's world to dst. It must be called between two steps, as Restore.
func (r *Room) Snapshot(dst []byte) ([]byte, error) { return r.game.Snapshot(dst) }

func (r *Room) isRunning() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// post runs f on the room's goroutine before the next step. It returns false when the room has ended. Any goroutine.
func (r *Room) post(f func()) bool {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return false
	}
	r.mail = append(r.mail, f)
	r.mu.Unlock()
	if r.hz == 0 {
		r.Wake()
	}
	return true
}

const maxQueuedCommands = 64

func (r *Room) postCommand(s *Seat, msg []byte) {
	if s.commands.Add(1) > maxQueuedCommands {
		s.commands.Add(-1)
		r.counters.dropped[DropCommand].Add(1)
		s.dropped[DropCommand-firstDropped].Add(1)
		return
	}
	msg = slices.Clone(msg)
	r.post(func() {
		s.commands.Add(-1)
		if w, ok := r.game.world().(Commander); ok && !s.gone {
			w.Command(s, msg)
		}
	})
}

// step is one step of a room with a beat. It runs on a beat thread.
func (r *Room) step(n uint64, scheduled time.Duration) {
	if r.dead.Load() {
		r.beat.Stop()
		return
	}
	r.zero = scheduled - steps(n, r.hz)
	r.advance(Tick(n), 1/float64(r.hz))
	if r.dead.Load() {
		return
	}
	r.tidy(r.srv.clock.Now())
	if r.dead.Load() { // given up while the world was at work
		return
	}
	if slot := r.beat.Slot(scheduled); slot != r.slot && n > 1 {
		r.slot = slot
		r.flushing = false
		r.capture(scheduled, false)
	} else if r.slot = slot; r.flushing {
		r.flushing = false
		r.capture(scheduled, true)
	}
	if r.ending != nil {
		r.beat.Stop()
		r.end(r.ending)
	}
}

// steps is the time that n steps take. It does not overflow, as n·time.Second would within months.
func steps(n uint64, hz int) time.Duration {
	h := uint64(hz)
	return time.Duration(n/h)*time.Second + time.Duration(n%h)*time.Second/time.Duration(h)
}

// loop is the life of a room without a beat.
func (r *Room) loop() {
	defer func() {
		if v := recover(); v != nil {
			r.panicked(v, debug.Stack())
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	gap := time.Second / time.Duration(r.def.spec.SendHz)
	for {
		step := false
		select {
		case <-r.wake:
			step = true
		case <-timer.C:
			step = r.timerDue()
		case <-r.again:
			r.owed = true
		case <-r.srv.stopped:
			r.Close(ReasonDraining)
		}
		now := r.srv.clock.Now()
		r.stepSince.Store(int64(now))
		if step {
			r.advance(r.tick+1, 0)
			r.owed = true
		}
		r.tidy(now)
		r.stepSince.Store(0)
		if r.dead.Load() {
			return
		}
		// The first change goes out at once, the next ones at the rate.
		switch {
		case r.owed && now-r.lastFrame >= gap:
			r.owed, r.flushing, r.lastFrame = false, false, now
			r.capture(now, false)
		case r.flushing:
			r.flushing = false
			r.capture(now, true)
		}
		if r.ending != nil {
			r.end(r.ending)
			return
		}
		timer.Reset(r.nextTimer(now, gap))
	}
}

// captureAgain makes a room without a beat send again, at its rate: a seat was skipped, or did not get all. Any goroutine.
func (r *Room) captureAgain() {
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// housekeeping is how often a room without a beat looks after its seats' grace.
const housekeeping = time.Second

func (r *Room) nextTimer(now, gap time.Duration) time.Duration {
	next := housekeeping
	if r.owed {
		next = min(next, r.lastFrame+gap-now)
	}
	for _, t := range r.timers {
		next = min(next, t.due-now)
	}
	return max(next, 0)
}

func (r *Room) timerDue() bool {
	now := r.srv.clock.Now()
	return slices.ContainsFunc(r.timers, func(t roomTimer) bool { return t.due <= now })
}

// advance does the mail, the timers and one step. It stops where the room is given up meanwhile.
func (r *Room) advance(tick Tick, dt float64) {
	r.mu.Lock()
	mail := r.mail
	r.mail, r.mailSpare = r.mailSpare[:0], nil
	r.mu.Unlock()
	for i, f := range mail {
		f()
		mail[i] = nil
		if r.dead.Load() {
			return
		}
	}
	r.mailSpare = mail

	now := r.srv.clock.Now()
	for i := 0; i < len(r.timers); i++ {
		if t := r.timers[i]; t.due <= now {
			r.timers = slices.Delete(r.timers, i, i+1)
			i--
			if t.f(); r.dead.Load() {
				return
			}
		}
	}
	r.tick = tick
	r.game.step(tick, dt, r.taken)
	r.tickNow.Store(uint32(tick))
}

// tidy gives up seats whose grace has passed, and closes the room when it has been empty for long enough.
func (r *Room) tidy(now time.Duration) {
	if r.waiting > 0 {
		for i := len(r.taken) - 1; i >= 0 && !r.dead.Load(); i-- {
			if s := r.taken[i]; s.conn == nil && now >= s.graceUntil {
				r.removeSeat(s, &Refusal{Reason: ReasonLinkLost})
			}
		}
	}
	if len(r.taken) == 0 && r.ending == nil && now-r.empty >= r.def.spec.LingerEmpty {
		if r.srv.hub.closeIfEmpty(r) {
			r.ending = &Refusal{Reason: ReasonRoomClosed}
		}
	}
}

// capture makes a frame and offers it to the shards that have somebody to send it to.
func (r *Room) capture(scheduled time.Duration, partial bool) {
	viewers := int32(0)
	for _, sh := range r.shards {
		viewers += sh.connected.Load()
	}
	if viewers == 0 {
		return
	}
	fs := r.frames.Get().(*frameSet)
	fs.tick, fs.epoch, fs.scheduled = r.tick, r.epoch, scheduled
	fs.refs.Store(1)
	for _, f := range r.feeds {
		fs.frames = append(fs.frames, f.Capture(r.tick))
	}
	for _, sh := range r.shards {
		if sh.connected.Load() > 0 {
			sh.offer(fs, partial)
		}
	}
	fs.release()
}

// end is the end of a room on its own goroutine: each seat leaves the world.
func (r *Room) end(why *Refusal) {
	for len(r.taken) > 0 && !r.dead.Load() {
		r.removeSeat(r.taken[len(r.taken)-1], why)
	}
	r.finish(why)
}

// abandon is the end of a room whose world must not be called any more: it panicked, hangs, or never opened. Any goroutine; it
// touches only what any goroutine may, for the room's own may still be inside the world.
func (r *Room) abandon(why Reason) {
	if r.dead.Swap(true) {
		return
	}
	r.srv.hub.dropTokens(r)
	r.finish(&Refusal{Reason: why})
	for _, sh := range r.shards {
		sh.do(func() {
			for _, o := range sh.outs {
				o.close()
			}
			sh.outs = nil
		})
	}
}

// finish takes the room out of everything. Whoever plays in it or waits to be let in is told.
func (r *Room) finish(why *Refusal) {
	r.mu.Lock()
	if r.closed { // it hung while it ended, or the other way round
		r.mu.Unlock()
		return
	}
	r.closed = true
	r.mail = nil
	opened := r.running
	r.mu.Unlock()
	for _, c := range r.srv.linksOf(r) {
		c.end(why)
	}
	r.srv.hub.remove(r)
	r.srv.retire(r)
	if f := r.srv.opt.Hooks.RoomClosed; f != nil && opened {
		f(r.def.spec.Name, r.name, why.Reason)
	}
	close(r.done)
}

// panicked ends a room whose world panicked: this room alone.
func (r *Room) panicked(v any, stack []byte) {
	r.log.Error("the world panicked; its room is closed", "panic", v, "stack", string(stack))
	r.srv.counters.roomErrors.Add(1)
	r.abandon(ReasonRoomError)
}

// hung gives up a room whose step, or Open, does not return. When it does return, it finds the room dead.
func (r *Room) hung() {
	r.log.Error("a step hangs; its room is closed", "hang_after", r.srv.opt.HangAfter)
	r.srv.counters.roomHangs.Add(1)
	r.abandon(ReasonRoomHung)
}
