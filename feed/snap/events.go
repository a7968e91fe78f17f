package snap

import (
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/drumline-engine/drumline/feed"
)

// Event ids count from firstEvent, so that a client that has read any keyframe has a cursor above 0 and one that has read none
// has 0. maxEvent bounds them to what TypeScript's numbers hold.
const (
	firstEvent = 2
	maxEvent   = 1<<53 - 1
)

// eventType is what a feed knows of a declared event type.
type eventType struct {
	*layout
	src  []source
	late bool
}

// Events emits events of one type. It belongs to the room's goroutine.
type Events[T any] struct {
	f   *Feed
	e   *eventType
	typ int
	tmp T // the event being emitted; a local would move to the heap
}

// AddEvent declares an event type, as Add does an entity type.
func AddEvent[T any](f *Feed, name string) *Events[T] {
	d := describe(name, reflect.TypeFor[T](), true, f.opt.Hz)
	f.errs = append(f.errs, d.errs...)
	ts, src := d.schema, d.src
	if f.sealed {
		f.errorf("event %q was added after the room opened; add all types before the world's Open returns", name)
	}
	if len(f.events) == maxTypes {
		f.errorf("%q is one event type too many; at most %d a feed", name, maxTypes)
	}
	for _, o := range f.events {
		if o.Name == name {
			f.errorf("two event types are called %q", name)
		}
	}
	e := &eventType{layout: newLayout(ts), src: src, late: f.sealed || len(f.events) >= maxTypes}
	f.events = append(f.events, e)
	return &Events[T]{f: f, e: e, typ: len(f.events) - 1}
}

// Emit sends v to every seat.
func (e *Events[T]) Emit(v T) { e.emit(v, everybody) }

// EmitAt sends v to every seat that sees the place x, y in the tick of the event: on the first two axes it is at most the
// outermost ring's radius away. In a feed without rings that is every seat. The place itself is not sent: give the event fields for it.
func (e *Events[T]) EmitAt(x, y float64, v T) {
	if ev := e.emit(v, everybody); ev != nil && e.f.ringed() {
		ev.at, ev.placed = [3]float32{float32(x), float32(y)}, true
	}
}

// EmitTo sends v to one seat.
func (e *Events[T]) EmitTo(seat feed.SeatID, v T) { e.emit(v, int32(seat)) }

func (e *Events[T]) emit(v T, seat int32) *event {
	if e.e.late {
		return nil // Err has said so
	}
	e.tmp = v
	ev, vals, texts := e.f.log.push(e.e.layout, uint8(e.typ), seat, len(e.f.eyes))
	for i := range vals {
		s := &e.e.src[i]
		k, ok := s.read(unsafe.Add(unsafe.Pointer(&e.tmp), s.off))
		vals[i] = k
		if !ok {
			s.clamps++
			e.f.count.clamped++
		}
	}
	for i := range texts {
		s := &e.e.src[e.e.cols+i]
		texts[i] = s.cleanText(*(*string)(unsafe.Add(unsafe.Pointer(&e.tmp), s.off)), &e.f.count)
	}
	e.tmp = *new(T)
	return ev
}

// everybody is the seat of an event for all; nobody that of one whose seat has left.
const (
	everybody = -1
	nobody    = -2
)

// event is an entry of the log. Its id is its place.
type event struct {
	tick  feed.Tick
	seat  int32
	val   uint16 // offset in the chunk's vals
	text  uint16
	typ   uint8
	timed bool // tick is set

	placed bool // only seats near at get it
	at     [3]float32
}

const (
	chunkEvents = 64
	chunkVals   = 512
	chunkTexts  = 64
)

// chunk is a stretch of the log with consecutive ids. The room appends to the newest chunk while encoders read what their frames
// showed them of it; neither touches what the other does, so there is no lock.
type chunk struct {
	refs  atomic.Int32
	first uint64 // id of events[0]

	// Written by the room, each place once before a frame shows it.
	n, nv, nt int
	events    [chunkEvents]event
	vals      [chunkVals]int32
	texts     [chunkTexts]string
	// near has words words for each event that is placed: the seats that see it.
	near  []uint64
	words int
}

// sees reports whether a seat sees the event with the id. A seat that the chunk has no bit for came after the event.
func (c *chunk) sees(id uint64, seat int) bool {
	if !c.at(id).placed {
		return true
	}
	return seat < c.words*64 && c.near[int(id-c.first)*c.words+seat/64]>>(seat%64)&1 == 1
}

// at returns the event with the id, which must be in the chunk.
func (c *chunk) at(id uint64) *event { return &c.events[id-c.first] }

// eventLog is the newest events of a room, whole chunks of them. Owned by the room's goroutine, but for the pool.
type eventLog struct {
	layouts []*layout
	keep    uint64
	chunks  []*chunk // oldest first, consecutive
	oldest  uint64   // id of the oldest that counts as kept
	next    uint64   // id of the next
	shown   uint64   // id of the last that a frame has
	dropped uint64
	now     feed.Tick
	timed   bool
	pool    chunkPool
}

type chunkPool struct {
	mu   sync.Mutex
	free []*chunk
}

func (l *eventLog) init(keep int) {
	l.keep = uint64(keep)
	l.reset(firstEvent)
}

// reset empties the log; next is the id of the next event.
func (l *eventLog) reset(next uint64) {
	for _, c := range l.chunks {
		l.pool.release(c)
	}
	clear(l.chunks)
	l.chunks = l.chunks[:0]
	l.next, l.oldest, l.shown = next, next, next-1
}

// push appends an event and returns it with the places for its columns and texts.
func (l *eventLog) push(y *layout, typ uint8, seat int32, seats int) (*event, []int32, []string) {
	var c *chunk
	if n := len(l.chunks); n > 0 {
		c = l.chunks[n-1]
	}
	words := (seats + 63) / 64
	if c == nil || c.n == chunkEvents || c.nv+y.cols > chunkVals || c.nt+y.texts > chunkTexts || words > c.words {
		c = l.pool.get()
		c.first, c.n, c.nv, c.nt = l.next, 0, 0, 0
		c.refs.Store(1)
		c.words = words
		c.near = sized(c.near, c.words*chunkEvents)
		l.chunks = append(l.chunks, c)
	}
	ev := &c.events[c.n]
	*ev = event{tick: l.now, seat: seat, val: uint16(c.nv), text: uint16(c.nt), typ: typ, timed: l.timed}
	vals, texts := c.vals[c.nv:c.nv+y.cols], c.texts[c.nt:c.nt+y.texts]
	c.n, c.nv, c.nt = c.n+1, c.nv+y.cols, c.nt+y.texts
	l.next++
	if l.next-l.oldest > l.keep {
		l.oldest++
		l.dropped++
		if old := l.chunks[0]; old.first+uint64(old.n) <= l.oldest {
			l.pool.release(old)
			copy(l.chunks, l.chunks[1:])
			l.chunks[len(l.chunks)-1] = nil
			l.chunks = l.chunks[:len(l.chunks)-1]
		}
	}
	return ev, vals, texts
}

// fresh calls fn for each event that no frame shows yet, with its chunk and its place in it.
func (l *eventLog) fresh(fn func(c *chunk, k int)) {
	for i := len(l.chunks) - 1; i >= 0; i-- {
		c := l.chunks[i]
		for k := c.n - 1; k >= 0; k-- {
			if c.first+uint64(k) <= l.shown {
				return
			}
			fn(c, k)
		}
	}
}

func (l *eventLog) void(seat feed.SeatID) {
	l.fresh(func(c *chunk, k int) {
		if e := &c.events[k]; e.seat == int32(seat) {
			e.seat = nobody
		}
	})
}

// show gives the log's picture at tick t to a frame.
func (l *eventLog) show(fr *frame, t feed.Tick) {
	l.fresh(func(c *chunk, k int) {
		e := &c.events[k]
		if !e.timed || int32(t-e.tick) < 0 {
			e.tick = t
		}
		if !e.placed {
			return
		}
		// Tested here, where the eyes are those of its tick, or at most a send period later.
		near := c.near[k*c.words:][:c.words]
		clear(near)
		for seat := range min(len(fr.eyes), c.words*64) {
			eye := &fr.eyes[seat]
			at := e.at
			at[2] = eye.at[2]
			if fr.feed.near(eye, at) {
				near[seat/64] |= 1 << (seat % 64)
			}
		}
	})
	l.shown, l.timed = l.next-1, false
	fr.oldest, fr.newest = l.oldest, l.shown
	for _, c := range l.chunks {
		c.refs.Add(1)
		fr.chunks = append(fr.chunks, c)
	}
}

func (p *chunkPool) get() *chunk {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		c := p.free[n-1]
		p.free = p.free[:n-1]
		return c
	}
	return new(chunk)
}

// release gives up one reference. Any goroutine.
func (p *chunkPool) release(c *chunk) {
	if c.refs.Add(-1) > 0 {
		return
	}
	clear(c.texts[:c.nt])
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < 64 {
		p.free = append(p.free, c)
	}
}
