package beat

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"
)

// Auto as Config.Phase lets the group choose the phase.
const Auto time.Duration = -1

// Config describes one beat.
type Config struct {
	// Name is for reports. It need not be unique.
	Name string
	// Hz is the number of steps a second, 1 to 1000. Required.
	Hz int
	// SendHz is the rate at which the owner sends, 1 to Hz; its period is the circle over which beats are staggered, so that
	// beats with the same rates send one after the other. 0 means Hz.
	SendHz int
	// Phase is the beat's place on that circle: 0 up to, but not including, one send period. Auto puts it into the middle
	// of the largest gap between the beats with the same Hz and SendHz.
	Phase time.Duration
	// CatchUp is the most steps run at once after a stall, 1 to 1000. 0 means 3.
	CatchUp int
	// Step is one step: the n-th executed one, from 1, whose deadline was scheduled on the group's clock. Calls never
	// overlap. n counts on over dropped steps as if they had not been. Required.
	Step func(n uint64, scheduled time.Duration)
	// Bind, if set, is called inside Add, before the first Step can run, with the beat that Add is about to return. What it
	// stores may be read by Step without a lock (so do not store what Add returns once more in the same place). It must not
	// call the group.
	Bind func(b *Beat)
	// OnPanic is called when Step panicked, or ended its goroutine by runtime.Goexit, on the beat's thread. The beat is
	// over by then, the others go on. Nil: the panic is logged by package slog. A panic in OnPanic itself is swallowed and
	// counted.
	OnPanic func(v any, stack []byte)
}

func (c *Config) fill() error {
	if c.Step == nil {
		return errors.New("beat: Step is nil")
	}
	if c.Hz < 1 || c.Hz > 1000 {
		return fmt.Errorf("beat: Hz is %d, must be 1 to 1000", c.Hz)
	}
	if c.SendHz == 0 {
		c.SendHz = c.Hz
	}
	if c.SendHz < 1 || c.SendHz > c.Hz {
		return fmt.Errorf("beat: SendHz is %d, must be 1 to Hz (%d)", c.SendHz, c.Hz)
	}
	if c.CatchUp == 0 {
		c.CatchUp = 3
	}
	if c.CatchUp < 1 || c.CatchUp > 1000 {
		return fmt.Errorf("beat: CatchUp is %d, must be 1 to 1000", c.CatchUp)
	}
	if round := c.rates().sendPeriod(); c.Phase != Auto && (c.Phase < 0 || c.Phase >= round) {
		return fmt.Errorf("beat: Phase is %v, must be Auto or at least 0 and less than the send period %v", c.Phase, round)
	}
	return nil
}

func (c *Config) rates() rates { return rates{c.Hz, c.SendHz} }

// State says whether a beat still runs.
type State int32

// The states of a beat. All but Running are final, except that a stopped beat whose last step does not return ends as Hung.
const (
	Running State = iota
	Stopped
	Panicked
	Hung // its step ran longer than HangAfter
)

// String returns the state in one lower-case word.
func (s State) String() string {
	switch s {
	case Running:
		return "running"
	case Stopped:
		return "stopped"
	case Panicked:
		return "panicked"
	case Hung:
		return "hung"
	}
	return "state " + strconv.Itoa(int(s))
}

// MarshalText returns String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Beat is one function that is called at a fixed rate. All methods may be called from any goroutine, Step included.
type Beat struct {
	g      *Group
	cfg    Config
	period time.Duration // rounded down; for comparisons only, deadlines come from the grid
	base   time.Duration // the grid's point 0: the beginning of a send period

	done  chan struct{} // closed when Step has returned for the last time, or never will be waited for again
	tally tally
	ring  ring
	state atomic.Int32 // a State; changed under the thread's mu

	// Guarded by Group.mu; changed under the old thread's mu as well.
	t *thread

	// Guarded by the thread's mu.
	closed  bool          // done is
	heapAt  int           // index in the thread's heap, -1: not in it
	due     time.Duration // deadline of the next step, or of the running one
	order   time.Duration // place in the heap: due, or later
	n       uint64        // executed steps
	k       uint64        // grid index of the next step
	left    int           // steps left of those that were due when the thread last looked
	resume  uint64        // the grid index after those
	started time.Duration // start of the newest step
	late    time.Duration // and by how much it was late
	stalled bool
}

// Name returns Config.Name.
func (b *Beat) Name() string { return b.cfg.Name }

// Hz returns the beat's rate.
func (b *Beat) Hz() int { return b.cfg.Hz }

// SendHz returns the beat's send rate.
func (b *Beat) SendHz() int { return b.cfg.SendHz }

// Offset returns the beat's phase inside its send period.
func (b *Beat) Offset() time.Duration { return b.cfg.Phase }

// Slot returns the number of the send period that the step with this deadline belongs to. The first step of each send period is
// its send step: send when the slot differs from that of the step before. This holds for any two rates, and after dropped steps.
func (b *Beat) Slot(scheduled time.Duration) uint64 {
	if scheduled < b.base {
		return 0
	}
	// k·SendHz stays far below 2^64: at 1000 Hz for 500,000 years.
	return index(scheduled-b.base, b.cfg.Hz) * uint64(b.cfg.SendHz) / uint64(b.cfg.Hz)
}

// Stop ends the beat and waits for a running step to return; then Step is never called again. Called from inside that step or
// from its OnPanic, it does not wait, and this call of Step is the last. It returns at once for a beat that hangs. It may be
// called any number of times.
//
// Two beats whose steps stop each other at the same time wait for each other until the watchdog declares one of them hung.
func (b *Beat) Stop() {
	b.g.mu.Lock()
	t := b.t
	t.mu.Lock()
	b.end(Stopped)
	inside := t.running == b && t.id == goroutineID()
	t.mu.Unlock()
	b.g.mu.Unlock()
	if !inside {
		<-b.done
	}
}

// end takes a running beat out of everything; it does nothing to one that has ended. Group.mu and the thread's are held.
func (b *Beat) end(s State) {
	if State(b.state.Load()) != Running {
		return
	}
	b.state.Store(int32(s))
	b.t.heap.remove(b)
	b.g.forget(b)
	if b.t.running != b {
		b.finish()
	}
}

// finish releases those who wait for the beat. The thread's mu is held.
func (b *Beat) finish() {
	if !b.closed {
		b.closed = true
		close(b.done)
	}
}

func (b *Beat) deadline(k uint64) time.Duration { return b.base + at(k, b.cfg.Hz) }

// begin prepares the step that is due and returns what Step is told. It is called on the thread with its mu held.
func (b *Beat) begin(now time.Duration, t *thread) (n uint64, scheduled time.Duration) {
	if b.left == 0 {
		newest := index(now-b.base, b.cfg.Hz)
		b.resume = newest + 1
		b.left = int(min(b.resume-b.k, uint64(b.cfg.CatchUp)))
	}
	g := b.g
	scheduled = b.due
	b.late = now - scheduled
	late := b.late > b.period/2
	var skipped, doubled bool
	if b.n > 0 {
		interval := now - b.started
		skipped = interval > b.period+b.period/2
		doubled = interval < b.period/2
		g.interval.Record(interval)
	}
	g.late.Record(b.late)
	b.n++
	b.started = now

	b.count(stepsCount, 1)
	if late {
		b.count(lateCount, 1)
		if !b.stalled {
			b.count(stallsCount, 1)
		}
		if !t.stalled {
			g.threadStalls.Add(1)
		}
	}
	b.stalled, t.stalled = late, late
	if skipped {
		b.count(skippedCount, 1)
	}
	if doubled {
		b.count(doubledCount, 1)
	}
	return b.n, scheduled
}

// advance remembers the step that ended and sets the next deadline. It is called on the thread with its mu held.
func (b *Beat) advance(took, now time.Duration) {
	b.ring.push(b.k, b.late, took)
	b.k++
	if b.left--; b.left == 0 {
		if debt := b.resume - b.k; debt > 0 {
			b.count(droppedCount, debt)
			b.k = b.resume
		}
	}
	b.due = b.deadline(b.k)
	b.order = b.due
	if took > b.period {
		b.order = max(b.due, now)
	}
}

func (b *Beat) count(what int, n uint64) {
	b.tally[what].Add(n)
	b.g.tally[what].Add(n)
}

// ErrGoexit is what OnPanic gets when Step ended its goroutine by runtime.Goexit.
var ErrGoexit = errors.New("beat: Step called runtime.Goexit")

// call runs one step and reports whether it returned. On the thread, no lock held.
func (b *Beat) call(n uint64, scheduled time.Duration) (ok bool) {
	defer func() {
		if ok {
			return
		}
		v := recover()
		if v == nil {
			v = ErrGoexit
		}
		b.fail(v, debug.Stack())
	}()
	b.cfg.Step(n, scheduled)
	return true
}

func (b *Beat) fail(v any, stack []byte) {
	g := b.g
	g.mu.Lock()
	b.t.mu.Lock()
	// A beat that was given up as hung has been reported; its thread is no longer b.t's, and end does nothing.
	report := State(b.state.Load()) != Hung
	b.end(Panicked)
	b.t.mu.Unlock()
	g.mu.Unlock()
	g.panics.Add(1)
	if !report {
		return
	}
	defer func() {
		if recover() != nil {
			g.hookPanics.Add(1)
		}
	}()
	if b.cfg.OnPanic == nil {
		slog.Error("a beat's step panicked; the beat is over", "beat", b.cfg.Name, "panic", v, "stack", string(stack))
		return
	}
	b.cfg.OnPanic(v, stack)
}

// Recent appends the last RecentSteps steps, oldest first. It never holds up the step.
func (b *Beat) Recent(dst []Sample) []Sample { return b.ring.appendTo(dst, b.deadline) }

// Counters count since the start. They only grow.
type Counters struct {
	// Steps were executed.
	Steps uint64 `json:"steps"`
	// Late steps began more than half a period after their deadline.
	Late uint64 `json:"late"`
	// Skipped steps began more than 1.5 periods after the step before.
	Skipped uint64 `json:"skipped"`
	// Doubled steps began less than half a period after the step before. A late step is seen twice: as Skipped, and as
	// Doubled by the next one, which is on time.
	Doubled uint64 `json:"doubled"`
	// Dropped steps were never executed: the debt beyond CatchUp.
	Dropped uint64 `json:"dropped"`
	// Stalls are episodes: late steps in a row count as one.
	Stalls uint64 `json:"stalls"`
}

// tally is Counters in the making.
type tally [6]atomic.Uint64

const (
	stepsCount = iota
	lateCount
	skippedCount
	doubledCount
	droppedCount
	stallsCount
)

func (t *tally) read() Counters {
	return Counters{
		Steps: t[stepsCount].Load(), Late: t[lateCount].Load(), Skipped: t[skippedCount].Load(),
		Doubled: t[doubledCount].Load(), Dropped: t[droppedCount].Load(), Stalls: t[stallsCount].Load(),
	}
}

func (c Counters) minus(o Counters) Counters {
	return Counters{
		Steps: c.Steps - o.Steps, Late: c.Late - o.Late, Skipped: c.Skipped - o.Skipped,
		Doubled: c.Doubled - o.Doubled, Dropped: c.Dropped - o.Dropped, Stalls: c.Stalls - o.Stalls,
	}
}

// BeatStats is a beat in numbers. The quantiles are exact, over the last RecentSteps steps.
type BeatStats struct {
	Counters
	State    State     `json:"state"`
	Late     Quantiles `json:"lateness"`
	Interval Quantiles `json:"interval"`
	Step     Quantiles `json:"step"`
}

// Counters returns what was counted since the start. It is cheap, and never holds up the step.
func (b *Beat) Counters() Counters { return b.tally.read() }

// Stats returns the beat's counters, state and recent quantiles. It never holds up the step.
func (b *Beat) Stats() BeatStats {
	recent := b.Recent(nil)
	pick := func(f func(*Sample) time.Duration, from int) Quantiles {
		d := make([]time.Duration, 0, len(recent))
		for i := from; i < len(recent); i++ {
			d = append(d, f(&recent[i]))
		}
		return quantiles(d)
	}
	// A beat's very first step has no interval.
	from := 0
	if len(recent) > 0 && recent[0].Interval == 0 {
		from = 1
	}
	return BeatStats{
		Counters: b.tally.read(),
		State:    State(b.state.Load()),
		Late:     pick(func(s *Sample) time.Duration { return s.Late }, 0),
		Interval: pick(func(s *Sample) time.Duration { return s.Interval }, from),
		Step:     pick(func(s *Sample) time.Duration { return s.Step }, 0),
	}
}

// goroutineID reads the calling goroutine's number from its stack trace, the only portable way to tell a call from inside a step
// from one outside. It takes about a microsecond and is used by Stop and Close alone.
func goroutineID() uint64 {
	var buf [64]byte
	s := buf[:runtime.Stack(buf[:], false)]
	const prefix = "goroutine "
	end := len(prefix)
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	id, err := strconv.ParseUint(string(s[len(prefix):end]), 10, 64)
	if err != nil {
		panic("beat: unreadable stack header: " + string(s))
	}
	return id
}
