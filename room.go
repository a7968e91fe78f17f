package drumline

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	randv2 "math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
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
	pcg    *randv2.PCG
	rnd    *randv2.Rand
	beat   *beat.Beat    // nil without a beat
	wake   chan struct{} // without a beat; capacity 1
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

	// Guarded by mu.
	mu      sync.Mutex
	mail    []func()
	closed  bool // takes no more mail
	running bool // the world is open

	// Guarded by the hub's lock.
	reserved int

	// Guarded by the server's lock.
	bound bool // beat is set

	// Any goroutine.
	tickNow   atomic.Uint32
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

func newRoom(s *Server, def Definition, name string, seed uint64) *Room {
	spec := def.spec
	r := &Room{
		srv: s, def: def, name: name, hz: spec.Hz, budget: max(spec.BudgetBytes/spec.SendHz, 64), seed: seed,
		log:    s.log.With("world", spec.Name, "room", name),
		opened: s.clock.Now(), done: make(chan struct{}), wake: make(chan struct{}, 1),
		seats: make([]*Seat, spec.Seats), epoch: 1,
	}
	r.pcg = randv2.NewPCG(seed, 0x6472756d6c696e65)
	r.rnd = randv2.New(r.pcg)
	r.empty = r.opened
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
	r.feeds = r.game.Feeds()
	if len(r.feeds) == 0 || len(r.feeds) > maxFeeds {
		return fmt.Errorf("the world has %d feeds, must have 1 to %d", len(r.feeds), maxFeeds)
	}
	for _, f := range r.feeds {
		if e, ok := f.(interface{ Err() error }); ok && e.Err() != nil {
			return e.Err()
		}
		in := f.Info()
		if in.Name == "" {
			in.Name = in.Kind
		}
		r.infos = append(r.infos, in)
	}
	return nil
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
	for _, s := range r.taken {
		if c := s.conn; c != nil {
			r.seatShard(s).do(func() {
				s.out.attach(c, epoch, nil, false)
			})
			r.welcome(s, c, true)
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
	r.zero = scheduled - time.Duration(n)*time.Second/time.Duration(r.hz)
	r.advance(Tick(n), 1/float64(r.hz))
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
		select {
		case <-r.wake:
		case <-timer.C:
		case <-r.srv.stopped:
			r.ending = &Refusal{Reason: ReasonDraining}
		}
		now := r.srv.clock.Now()
		r.stepSince.Store(int64(now))
		r.advance(r.tick+1, 0)
		r.stepSince.Store(0)
		if r.dead.Load() {
			return
		}
		// The first change goes out at once, the next ones at the rate.
		r.owed = true
		switch {
		case now-r.lastFrame >= gap:
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

// advance does what comes between two captures: mail, timers, one step, empty seats.
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
			t.f()
		}
	}
	r.tick = tick
	r.game.step(tick, dt, r.taken)
	if r.dead.Load() {
		return
	}
	r.tickNow.Store(uint32(tick))

	if r.waiting > 0 {
		for i := len(r.taken) - 1; i >= 0; i-- {
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
	fs.tick, fs.scheduled = r.tick, scheduled
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

func (r *Room) seatShard(s *Seat) *shard { return r.shards[int(s.id)%len(r.shards)] }

// join takes a new player in. The hub has counted the seat already.
func (r *Room) join(c *Conn, h Hello) {
	if c.phase.Load() != linkPending {
		r.srv.hub.unreserve(r)
		return
	}
	id := slices.Index(r.seats, nil)
	if id < 0 || r.ending != nil {
		r.srv.hub.unreserve(r)
		c.refuse(&Refusal{Reason: ReasonRoomFull, RetryAfter: time.Second})
		return
	}
	s := &Seat{room: r, id: SeatID(id), name: cleanName(h.Name), token: newToken(), conn: c, gone: true}
	if s.name == "" {
		s.name = "Player " + strconv.Itoa(id+1)
	}
	s.inbox = newInbox(r.def.kind.inputs(), r.holdSteps())
	if err := r.game.Join(s); err != nil {
		r.srv.hub.unreserve(r)
		c.refuse(worldRefusal(r, err))
		return
	}
	s.gone = false
	r.seats[id] = s
	at, _ := slices.BinarySearchFunc(r.taken, s.id, func(s *Seat, id SeatID) int { return int(s.id) - int(id) })
	r.taken = slices.Insert(r.taken, at, s)
	r.players.Store(int32(len(r.taken)))
	s.out = &outbox{seat: s}
	for i, f := range r.feeds {
		s.out.streams = append(s.out.streams, f.Join(s.id, c.link.Delivery()))
		s.out.reliable[i] = r.infos[i].Lane == feed.Reliable
		s.out.weights[i] = max(r.infos[i].Weight, 1)
	}
	r.srv.hub.addToken(s)
	if !r.letIn(s, c, nil, true) { // the link ended while we were at it
		r.removeSeat(s, &Refusal{Reason: ReasonLinkLost})
		return
	}
	r.srv.counters.joined.Add(1)
	if f := r.srv.opt.Hooks.Joined; f != nil {
		f(r.def.spec.Name, r.name, s.id, s.name, false)
	}
}

func worldRefusal(r *Room, err error) *Refusal {
	var ref *Refusal
	if errors.As(err, &ref) {
		return ref
	}
	r.log.Warn("the world refused a join", "err", err)
	return &Refusal{Reason: ReasonWorld}
}

// holdSteps is for how many steps an input is repeated. Without a beat a step takes the newest there is.
func (r *Room) holdSteps() int {
	if r.hz == 0 {
		return 1
	}
	return int((r.def.spec.InputHold*time.Duration(r.hz) + time.Second - 1) / time.Second)
}

// resume gives a seat a new link.
func (r *Room) resume(s *Seat, c *Conn, h Hello) {
	if s.gone {
		c.refuse(&Refusal{Reason: ReasonResumeExpired})
		return
	}
	if c.phase.Load() != linkPending {
		return
	}
	if old := s.conn; old != nil {
		r.detach(s)
		old.fail(ReasonReplaced)
	}
	s.conn = c
	r.waiting--
	r.away.Add(-1)
	s.inbox.reset()
	if !r.letIn(s, c, h.Cursors, false) {
		r.detach(s)
		return
	}
	if w, ok := r.game.world().(Dropper); ok {
		w.Resume(s)
	}
	r.srv.counters.resumed.Add(1)
	if f := r.srv.opt.Hooks.Joined; f != nil {
		f(r.def.spec.Name, r.name, s.id, s.name, true)
	}
}

// letIn welcomes a link and hands it to the encoder. It returns false if the link has ended.
func (r *Room) letIn(s *Seat, c *Conn, cursors []uint64, fresh bool) bool {
	sh := r.seatShard(s)
	sh.connected.Add(1)
	if !c.phase.CompareAndSwap(linkPending, linkJoined) {
		return false
	}
	epoch := r.epoch
	r.welcome(s, c, !fresh)
	c.seat.Store(s)
	sh.do(func() {
		if fresh {
			sh.outs = append(sh.outs, s.out)
		}
		s.out.attach(c, epoch, cursors, fresh)
	})
	if r.hz == 0 { // nothing else may ever happen here: show what there is
		r.FlushNow(s)
	}
	return true
}

func (r *Room) welcome(s *Seat, c *Conn, resumed bool) {
	spec := r.def.spec
	w := Welcome{
		Protocol: ProtocolVersion, World: spec.Name, Room: r.name, Seat: s.id, Name: s.name, Token: s.token, Resumed: resumed,
		Epoch: r.epoch, Tick: r.tick, Hz: spec.Hz, SendHz: spec.SendHz, GraceMs: int(spec.Grace.Milliseconds()),
		Ordered: c.link.Delivery() == feed.Ordered, Verify: c.verify, Inputs: r.def.kind.inputs().describe(), Feeds: r.infos,
	}
	if r.hz > 0 {
		w.TickZeroUs = time.Now().Add(r.zero - r.srv.clock.Now()).UnixMicro()
	}
	msg, err := AppendJSON(nil, KindWelcome, w)
	if err != nil {
		r.log.Error("a feed's schema is not JSON", "err", err)
		r.Close(ReasonRoomError)
		return
	}
	c.link.Send(msg) // if it fails the link is ending, and Closed follows
}

// detach takes a seat's link away; the seat waits for its player from now on.
func (r *Room) detach(s *Seat) {
	s.conn = nil
	s.graceUntil = r.srv.clock.Now() + r.def.spec.Grace
	r.waiting++
	r.away.Add(1)
	sh := r.seatShard(s)
	sh.connected.Add(-1)
	sh.do(func() { s.out.conn = nil })
}

// linkEnded is told by a link that has ended.
func (r *Room) linkEnded(s *Seat, c *Conn, why Reason) {
	if s.conn != c || s.gone {
		return // replaced by a newer link, or gone already
	}
	r.detach(s)
	if why == ReasonLeft || why.Retry() == RetryNever {
		r.removeSeat(s, &Refusal{Reason: why})
		return
	}
	if w, ok := r.game.world().(Dropper); ok {
		w.Drop(s)
	}
}

// removeSeat gives a seat up for good.
func (r *Room) removeSeat(s *Seat, why *Refusal) {
	if s.gone {
		return
	}
	s.gone = true
	sh := r.seatShard(s)
	if c := s.conn; c != nil {
		s.conn = nil
		sh.connected.Add(-1)
		c.end(why)
	} else {
		r.waiting--
		r.away.Add(-1)
	}
	sh.do(func() {
		sh.outs = slices.DeleteFunc(sh.outs, func(o *outbox) bool { return o == s.out })
		s.out.close()
	})
	r.seats[s.id] = nil
	r.taken = slices.DeleteFunc(r.taken, func(t *Seat) bool { return t == s })
	r.players.Store(int32(len(r.taken)))
	if len(r.taken) == 0 {
		r.empty = r.srv.clock.Now()
	}
	r.srv.hub.removeToken(s)
	r.srv.hub.unreserve(r)
	r.game.Leave(s)
	for _, f := range r.feeds {
		f.Leave(s.id)
	}
	if f := r.srv.opt.Hooks.Left; f != nil {
		f(r.def.spec.Name, r.name, s.id, why.Reason)
	}
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

func newToken() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
