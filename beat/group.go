package beat

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drumline-engine/drumline/internal/hist"
)

// ErrClosed is returned by Add after Close.
var ErrClosed = errors.New("beat: the group is closed")

// maxThreads is far above any machine's need; beyond it Options.Threads is taken for a mistake.
const maxThreads = 1024

// beatNice is what the beat's threads ask for; encoders ask for half of it, so that a step is never behind an encoder.
const beatNice = -10

// Options configure a Group. The zero value of each field means its default.
type Options struct {
	// Threads is the most OS threads the group uses, 1 to 1024. 0 means one less than the cores this process may use, at
	// least 1. GOMAXPROCS should be at least two more than the cores: a thread that comes back from its sleep needs a free
	// processor of Go's, and with as many as cores steps are skipped under load.
	Threads int
	// Clock is the time to live by. Nil means SystemClock.
	Clock Clock
	// Priority is what each thread tries to get: PriorityNone, PriorityNice (nice -10) or PriorityFIFO. "" means
	// PriorityNice. A refusal is kept in Stats and changes nothing else.
	Priority string
	// HangAfter is how long a step may run before its beat is given up, at least 1 ms. 0 means 1 s. One step that seems too
	// long at a moment when the watchdog itself comes late (the process was stopped, the machine slept) gets as long again.
	HangAfter time.Duration
	// OnHang is called after a beat was given up and the others of its thread were moved, on the watchdog's goroutine. The
	// step still runs then. Until OnHang returns, no other beat is watched.
	OnHang func(b *Beat)
}

func (o *Options) fill() error {
	if o.Threads == 0 {
		o.Threads = max(1, runtime.NumCPU()-1)
	}
	if o.Threads < 1 || o.Threads > maxThreads {
		return fmt.Errorf("beat: Threads is %d, must be 1 to %d", o.Threads, maxThreads)
	}
	if o.Clock == nil {
		o.Clock = SystemClock()
	}
	switch o.Priority {
	case "":
		o.Priority = PriorityNice
	case PriorityNone, PriorityNice, PriorityFIFO:
	default:
		return errPriority(o.Priority)
	}
	if o.HangAfter == 0 {
		o.HangAfter = time.Second
	}
	if o.HangAfter < time.Millisecond {
		return fmt.Errorf("beat: HangAfter is %v, must be at least 1 ms", o.HangAfter)
	}
	return nil
}

// Group runs beats on a few threads. All methods may be called from any goroutine, steps included.
type Group struct {
	opts   Options
	clock  Clock
	origin time.Duration // phase 0 of all circles

	// Written by the beats' threads.
	tally                            tally
	threadStalls, panics, hookPanics atomic.Uint64
	stuck                            atomic.Int64 // hung steps that have not returned
	late, interval, step             hist.Histogram

	// Locks: winMu before mu before a thread's mu.
	mu       sync.Mutex
	threads  []*thread
	circles  map[rates]*circle
	beats    map[*Beat]struct{}
	hung     uint64
	moved    uint64
	closed   bool
	watching bool
	watchID  uint64 // the watchdog's goroutine

	poke      chan struct{} // wakes the watchdog when there is something to watch
	quit      chan struct{}
	watchDone chan struct{}

	winMu   sync.Mutex
	winFrom time.Duration
	winBase GroupCounters
	carry   Histograms // what earlier windows held
}

// NewGroup makes a group. It starts nothing before the first Add. The error says which option is wrong.
func NewGroup(o Options) (*Group, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	g := &Group{
		opts:      o,
		clock:     o.Clock,
		origin:    o.Clock.Now(),
		circles:   make(map[rates]*circle),
		beats:     make(map[*Beat]struct{}),
		poke:      make(chan struct{}, 1),
		quit:      make(chan struct{}),
		watchDone: make(chan struct{}),
		carry:     Histograms{new(hist.Snapshot), new(hist.Snapshot), new(hist.Snapshot)},
	}
	g.winFrom = g.origin
	return g, nil
}

// Add starts a beat, on the thread with the fewest. Its first step comes within one period, or 20 ms later if that thread has
// just gone to sleep. The error says which part of c is wrong, or is ErrClosed.
func (g *Group) Add(c Config) (*Beat, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, ErrClosed
	}
	r := c.rates()
	ci := g.circles[r]
	if ci == nil {
		ci = new(circle)
		g.circles[r] = ci
	}
	if c.Phase == Auto {
		c.Phase = ci.choose(r)
	}
	ci.add(c.Phase)
	b := &Beat{g: g, cfg: c, period: r.period(), done: make(chan struct{}), heapAt: -1}
	g.beats[b] = struct{}{}
	if c.Bind != nil {
		c.Bind(b)
	}

	t, fresh := g.pick()
	b.t = t
	t.mu.Lock()
	// The thread does not look at its beats before it wakes; a deadline before that would begin the beat with a late step.
	from := max(g.clock.Now(), t.until)
	b.base = g.origin + c.Phase
	if from >= b.base {
		b.base += at(index(from-b.base, c.SendHz), c.SendHz)
		b.k = index(from-b.base, c.Hz) + 1
	}
	b.due = b.deadline(b.k)
	b.order = b.due
	t.heap.push(b)
	t.mu.Unlock()
	if fresh {
		go t.run()
	} else {
		notify(t.wake)
	}
	if !g.watching {
		g.watching = true
		go g.watch()
	}
	notify(g.poke)
	return b, nil
}

// pick returns the thread for a new beat, and whether it has yet to be started. mu is held.
func (g *Group) pick() (t *thread, fresh bool) {
	for _, o := range g.threads {
		if t == nil || len(o.heap) < len(t.heap) {
			t = o
		}
	}
	if t == nil || len(t.heap) > 0 && len(g.threads) < g.opts.Threads {
		t = newThread(g)
		g.threads = append(g.threads, t)
		return t, true
	}
	return t, false
}

// forget frees the place of a beat. mu is held.
func (g *Group) forget(b *Beat) {
	delete(g.beats, b)
	r := b.cfg.rates()
	ci := g.circles[r]
	ci.remove(b.cfg.Phase)
	if len(ci.phases) == 0 {
		delete(g.circles, r)
	}
}

// replace hands the beats of a thread that will serve no more to a fresh one. mu and t's mu are held.
func (g *Group) replace(t *thread) {
	t.gone = true
	i := slices.Index(g.threads, t)
	if i < 0 {
		return
	}
	if len(t.heap) == 0 {
		g.threads = slices.Delete(g.threads, i, i+1)
		return
	}
	u := newThread(g)
	u.heap, t.heap = t.heap, nil
	for _, b := range u.heap {
		b.t = u
	}
	g.moved += uint64(len(u.heap))
	g.threads[i] = u
	go u.run()
}

// Close stops all beats and ends the group. It waits for running steps as Stop does, and for the group's goroutines; called from
// inside a step or hook, it does not wait for the goroutine it is called on. It may be called any number of times.
func (g *Group) Close() {
	me := goroutineID()
	var wait []*thread
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	for _, t := range g.threads {
		t.mu.Lock()
		for len(t.heap) > 0 {
			t.heap[len(t.heap)-1].end(Stopped)
		}
		t.gone = true
		if t.id != me {
			wait = append(wait, t)
		}
		t.mu.Unlock()
		notify(t.wake)
	}
	watchdog := g.watching && g.watchID != me
	g.mu.Unlock()
	for _, t := range wait {
		select {
		case <-t.exited:
		case <-t.lost:
		}
	}
	if first {
		// Only now: a step that hangs during Close is still found.
		close(g.quit)
	}
	if watchdog {
		<-g.watchDone
	}
}

// Beats returns the running beats, in no order.
func (g *Group) Beats() []*Beat {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*Beat, 0, len(g.beats))
	for b := range g.beats {
		all = append(all, b)
	}
	return all
}

// GroupCounters are the sums over all beats, ended ones included, and what only a group can count.
type GroupCounters struct {
	Counters
	// ThreadStalls are episodes too, but per thread: one hiccup that makes all rooms of a thread late counts once.
	ThreadStalls uint64 `json:"thread_stalls"`
	// Panics of steps.
	Panics uint64 `json:"panics"`
	// HookPanics are panics of OnPanic and OnHang, which are swallowed.
	HookPanics uint64 `json:"hook_panics"`
	// Hung beats.
	Hung uint64 `json:"hung"`
	// Moved counts beats that were moved to a fresh thread because another one hung or ended their own.
	Moved uint64 `json:"moved"`
}

func (c GroupCounters) minus(o GroupCounters) GroupCounters {
	return GroupCounters{
		Counters: c.Counters.minus(o.Counters), ThreadStalls: c.ThreadStalls - o.ThreadStalls, Panics: c.Panics - o.Panics,
		HookPanics: c.HookPanics - o.HookPanics, Hung: c.Hung - o.Hung, Moved: c.Moved - o.Moved,
	}
}

// ThreadStats is one thread in numbers.
type ThreadStats struct {
	Beats int `json:"beats"`
	// Priority is the kind that the thread got, "" until it has tried.
	Priority string `json:"priority"`
	// PriorityErr says what was refused. "": nothing.
	PriorityErr string `json:"priority_err,omitempty"`
	// LoadCores is the share of the last second or so that was spent inside steps, waiting for a core included.
	LoadCores float64 `json:"load_cores"`
	Steps     uint64  `json:"steps"`
}

// Stats is a group in numbers.
type Stats struct {
	Threads []ThreadStats `json:"threads"`
	// Beats that run.
	Beats int `json:"beats"`
	// Stuck steps belong to hung beats and have not returned; each holds a thread.
	Stuck int           `json:"stuck"`
	Total GroupCounters `json:"total"`
}

// Stats returns the group's state and its counters since the start. It never holds up a step.
func (g *Group) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Stats{Beats: len(g.beats), Stuck: int(g.stuck.Load()), Total: g.counters()}
	for _, t := range g.threads {
		s.Threads = append(s.Threads, t.stats())
	}
	return s
}

// counters reads all counters. mu is held.
func (g *Group) counters() GroupCounters {
	return GroupCounters{
		Counters: g.tally.read(), ThreadStalls: g.threadStalls.Load(), Panics: g.panics.Load(),
		HookPanics: g.hookPanics.Load(), Hung: g.hung, Moved: g.moved,
	}
}

// Histograms are the distributions over all steps of a group. Each is the caller's own copy.
type Histograms struct {
	// Late is by how much steps began after their deadlines.
	Late *hist.Snapshot
	// Interval is the time between the starts of successive steps of a beat.
	Interval *hist.Snapshot
	// Step is how long steps ran.
	Step *hist.Snapshot
}

func (h Histograms) merge(o Histograms) {
	h.Late.Merge(o.Late)
	h.Interval.Merge(o.Interval)
	h.Step.Merge(o.Step)
}

// Histograms returns the distributions since the last ResetWindow.
func (g *Group) Histograms() Histograms {
	return Histograms{g.late.Snapshot(), g.interval.Snapshot(), g.step.Snapshot()}
}

// TotalHistograms returns the distributions since the start, whatever was reset; they only grow.
func (g *Group) TotalHistograms() Histograms {
	g.winMu.Lock()
	defer g.winMu.Unlock()
	h := g.Histograms()
	h.merge(g.carry)
	return h
}

// Window is what a group counted since the last ResetWindow.
type Window struct {
	Length time.Duration `json:"length"`
	GroupCounters
}

// Window returns the counters since the last ResetWindow, or since the start.
func (g *Group) Window() Window {
	g.winMu.Lock()
	defer g.winMu.Unlock()
	g.mu.Lock()
	now := g.counters()
	g.mu.Unlock()
	return Window{Length: g.clock.Now() - g.winFrom, GroupCounters: now.minus(g.winBase)}
}

// ResetWindow begins a new measurement window for Window and Histograms. A step that runs meanwhile may count in either.
func (g *Group) ResetWindow() {
	g.winMu.Lock()
	defer g.winMu.Unlock()
	g.carry.merge(Histograms{g.late.Take(), g.interval.Take(), g.step.Take()})
	g.mu.Lock()
	g.winBase = g.counters()
	g.mu.Unlock()
	g.winFrom = g.clock.Now()
}

// notify wakes who waits on c, now or at its next wait.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
