package beat

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// maxSleep bounds how long a new beat waits for a sleeping thread to see it. A sleep on an absolute deadline cannot be called
// off by portable means, and 50 wake-ups a second only happen on a thread whose beats are all slower than that.
const maxSleep = 20 * time.Millisecond

// loadWindow is over how long a thread's load is averaged.
const loadWindow = time.Second

// thread serves its beats in the order of their deadlines, one step at a time. A beat whose own step took longer than its period
// stands behind all others that are due, so that it makes itself late before it does them.
type thread struct {
	g      *Group
	wake   chan struct{} // there is a first beat, or gone
	exited chan struct{} // closed when the goroutine ends
	lost   chan struct{} // closed when its step was declared hung: do not wait for exited

	// Read without a lock, so that those who look on never hold up a step.
	since    atomic.Int64 // when the running step began, plus 1; 0: none runs
	steps    atomic.Uint64
	load     atomic.Uint64 // bits of a float64
	priority atomic.Pointer[outcome]

	// Guarded by mu, which is held for moments only, never during a step or a sleep. The heap's length changes under
	// Group.mu as well.
	mu      sync.Mutex
	id      uint64 // goroutine; 0: not yet running
	heap    heap
	running *Beat
	until   time.Duration // the thread sleeps until then
	gone    bool          // leave at the next chance
	hung    bool          // the running step was given up

	stalled  bool // the newest step was late
	busy     time.Duration
	loadFrom time.Duration
}

type outcome struct {
	got string
	err string
}

func newThread(g *Group) *thread {
	return &thread{
		g:      g,
		wake:   make(chan struct{}, 1),
		exited: make(chan struct{}),
		lost:   make(chan struct{}),
	}
}

type turn int

const (
	again turn = iota // something may be due
	sleep             // nothing is due yet
	park              // there are no beats
	leave
)

func (t *thread) run() {
	clean := false
	defer func() { t.exit(clean) }()
	// Never unlocked: the OS thread has a changed priority and must end with this goroutine.
	runtime.LockOSThread()
	got, err := RaiseThread(t.g.opts.Priority, beatNice)
	o := &outcome{got: got}
	if err != nil {
		o.err = err.Error()
	}
	t.priority.Store(o)
	// Where it fails, sleeps end a little later. Nothing else changes.
	_ = SetTimerSlack(1)

	t.mu.Lock()
	t.id = goroutineID()
	t.loadFrom = t.g.clock.Now()
	t.mu.Unlock()
	for {
		switch what, until := t.turn(); what {
		case sleep:
			t.g.clock.SleepUntil(until)
		case park:
			<-t.wake
		case leave:
			clean = true
			return
		}
	}
}

// exit runs at the goroutine's end, which comes unasked when a step calls runtime.Goexit.
func (t *thread) exit(clean bool) {
	defer close(t.exited)
	if clean {
		return
	}
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since.Store(0)
	if t.hung {
		t.g.stuck.Add(-1)
		return
	}
	if t.running != nil {
		t.running.finish()
		t.running = nil
	}
	if !t.gone {
		t.g.replace(t)
	}
}

// turn runs the step that is due, if one is, and says what to do next.
func (t *thread) turn() (turn, time.Duration) {
	now := t.g.clock.Now()
	t.mu.Lock()
	if t.gone {
		t.mu.Unlock()
		return leave, 0
	}
	if len(t.heap) == 0 {
		t.load.Store(0)
		t.busy, t.loadFrom = 0, now
		t.mu.Unlock()
		return park, 0
	}
	b := t.heap[0]
	if b.order > now {
		t.until = min(b.order, now+maxSleep)
		until := t.until
		t.mu.Unlock()
		return sleep, until
	}
	t.running = b
	n, scheduled := b.begin(now, t)
	t.since.Store(int64(now) + 1)
	t.mu.Unlock()

	ok := b.call(n, scheduled)

	end := t.g.clock.Now()
	t.g.step.Record(end - now)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since.Store(0)
	if t.hung {
		t.g.stuck.Add(-1)
		return leave, 0
	}
	t.running = nil
	t.steps.Add(1)
	t.account(now, end)
	if ok {
		b.advance(end-now, end)
	}
	if b.heapAt >= 0 {
		t.heap.fix(b)
	} else {
		b.finish()
	}
	return again, 0
}

// account adds a step to the thread's load. mu is held.
func (t *thread) account(from, to time.Duration) {
	t.busy += to - from
	if span := to - t.loadFrom; span >= loadWindow {
		t.load.Store(math.Float64bits(t.busy.Seconds() / span.Seconds()))
		t.busy, t.loadFrom = 0, to
	}
}

// stats is called with Group.mu held.
func (t *thread) stats() ThreadStats {
	s := ThreadStats{Beats: len(t.heap), LoadCores: math.Float64frombits(t.load.Load()), Steps: t.steps.Load()}
	if o := t.priority.Load(); o != nil {
		s.Priority, s.PriorityErr = o.got, o.err
	}
	return s
}

// heap is a binary heap of beats by order. Each beat knows its index.
type heap []*Beat

func (h heap) less(i, j int) bool { return h[i].order < h[j].order }

func (h heap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = i, j
}

func (h heap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h heap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h *heap) push(b *Beat) {
	b.heapAt = len(*h)
	*h = append(*h, b)
	h.up(b.heapAt)
}

func (h *heap) remove(b *Beat) {
	i, last := b.heapAt, len(*h)-1
	if i != last {
		h.swap(i, last)
	}
	(*h)[last] = nil
	*h = (*h)[:last]
	if i < last {
		h.up(i)
		h.down(i)
	}
	b.heapAt = -1
}

// fix restores the order after b's order has changed.
func (h heap) fix(b *Beat) {
	h.up(b.heapAt)
	h.down(b.heapAt)
}
