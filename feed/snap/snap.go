// Package snap sends entities: typed structs that live in a world, seen by every seat as quantised snapshots, and events, which
// happen once.
//
// A world declares its types by structs and tags, spawns and changes values in place, and emits events. On each send tick the
// feed quantises everything once into a frame of integers; each seat's stream then writes whatever differs from what that seat
// is known to hold, inside its byte limit. State is newest-only: of a value that changes twice between two packets a client sees
// the last. Events arrive all, once and in order, unless a seat falls more than Options.EventLog events behind.
//
// It is not for documents (feed/tree), drawings (feed/canvas) or anything that must not be rounded.
//
// The smallest use:
//
//	type Player struct {
//		X, Y float64 `drumline:"q=0.01,range=0:1000"`
//		Name string  `drumline:"once,max=24"`
//		cool float64 `drumline:"-"` // the server's alone
//	}
//	type Shot struct {
//		By snap.EntityID
//	}
//
//	s := snap.New(snap.Options{})
//	players := snap.Add[Player](s, "player")
//	shots := snap.AddEvent[Shot](s, "shot")
//
//	id := players.Spawn(Player{Name: "ann"})
//	s.Own(seat, id)
//	players.Get(id).X += 0.5
//	shots.Emit(Shot{By: id})
//
// # Tags
//
// Every visible field must be exported and of one of these kinds, at most [MaxFields] a type:
//
//	float32, float64       q=0.01,range=0:1000   quantum and range; values outside are clamped and counted
//	float32, float64       angle                 radians, 4096 steps a turn, wraps
//	int…, uint…            range=lo:hi           default: the type's range; needed for types wider than 32 bits
//	bool
//	string                 once,max=24           sent on enter and when it changes; at most max bytes of valid UTF-8
//	struct                                       flattened: "pos.x"; embedded structs without a prefix; its tag is its fields' default
//
// Words about who gets it: owner (only the owning seat), - (server-only), -,unsaved (server-only, and zero after RestoreState), mask (a
// uint that says which seats see the entity; see [Feed.See]).
//
// Words about motion. Both ends go on from what the client has, and only what differs is sent:
//
//	move=Vel      a position goes on with that velocity, in its unit a second; on a struct, axis by axis
//	turn=Spin     an angle goes on with that rate, in radians a second
//	frame=body    on two velocities: ahead and to the left of the entity's angle; frame=body:Yaw names one of several
//	place         on 2 or 3 positions: where the entity is, for [Options.Rings]; a type without is near to everybody
//	lod           low bits are rounded away in the outer rings: 2, 3 and 4; lod=1:8 says otherwise
//	tol=0.05      the error that may stand in the outer rings, in the field's unit, before it is corrected
//
// A json tag renames a field for the browser.
//
// # Rings and events at a place
//
// With [Options.Rings] a seat sees what is near the entity that it owns (or near [Feed.LookAt]): each ring has a radius and a rate. Beyond a
// finite last radius an entity leaves the client, as if it had been removed, and comes back when it is near again; a last ring with the radius
// math.Inf(1) keeps everything in sight, at its rate. Rings need a type with place fields, else Err says so. [Events.EmitAt] is heard by the
// seats within the last radius. The example Options_rings has all of it.
//
// # Goroutines
//
// A Feed, its Sets and its Events belong to the room's goroutine. A stream belongs to one encoder worker. A Decoder belongs to
// whoever uses it. Frames are immutable and may be anywhere.
package snap

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/drumline-engine/drumline/feed"
)

// Kind is the feed's Info.Kind.
const Kind = "snap"

// Options configure a feed. The zero value is the default. Wrong values are reported by Err.
type Options struct {
	// Name tells several snap feeds of one room apart. Default: Kind.
	Name string
	// Weight is the feed's share of a seat's budget; see feed.Info. 0 means 1; negative is an error.
	Weight int
	// EventLog is how many events are kept for seats that have not got them yet, 1 to 65,536. Default 1,024. A seat that falls
	// further behind misses the oldest, which is counted.
	EventLog int
	// EventEvery lets at most one packet in this many carry events, for rooms that send more often than their players can see or
	// hear apart; 20 packets with events a second are plenty. 0 means 1, at most 64.
	EventEvery int
	// Hz is the steps of the room in a second, which velocities are extrapolated with; 1 to 1,000, default 60. NoBeat: there is no beat. A
	// room with another rate does not open.
	Hz int
	// Rings are how far and how often a seat sees, the innermost first, at most MaxRings. None: each seat sees everything, always. Entities of
	// a type without place fields are in the innermost ring of everybody; at least one type must have them. Beyond a finite last radius
	// entities leave the client.
	Rings []Ring
	// Codes chooses the prefix codes of fields: "player.pos.x=2,1,1,0 player.hp=8" by ring, or one for all. What it does not name has a
	// default by its kind and tags. The train command prints better ones.
	Codes string
}

// Feed is the entities and events of a room. All methods belong to the room's goroutine; those of feed.Feed are the engine's.
type Feed struct {
	// Set before the first Info, Capture or Join; immutable afterwards.
	opt    Options
	tables []*table
	events []*eventType
	sealed bool
	schema json.RawMessage
	rings  []Ring
	reach2 float32 // square of the outermost radius
	placed []bool  // by entity type: it has a place
	tune   feed.Tuning
	stride int // most columns of an entity type
	tride  int // most texts
	codes  *codeBook
	errs   []error

	// Owned by the room's goroutine.
	slots    slots
	own      []EntityID // by seat
	eyes     []eye      // by seat
	captures uint32
	log      eventLog
	full     uint64
	count    counts
	restores uint32 // how often RestoreState replaced everything
	joins    uint32

	// Any goroutine.
	frames  framePool
	flights flightPool
	missed  atomic.Uint64
	large   atomic.Uint64
}

// New makes a feed without types. Mistakes in opt are collected for Err.
func New(opt Options) *Feed {
	f := &Feed{opt: opt}
	if opt.EventLog == 0 {
		f.opt.EventLog = 1024
	}
	if f.opt.EventLog < 1 || f.opt.EventLog > 1<<16 {
		f.errorf("Options.EventLog is %d, want 1 to 65536", opt.EventLog)
		f.opt.EventLog = 1024
	}
	if opt.Weight < 0 {
		f.errorf("Options.Weight is %d, want 0 or more", opt.Weight)
	}
	if opt.Name == "" {
		f.opt.Name = Kind
	}
	if f.opt.EventEvery = max(opt.EventEvery, 1); opt.EventEvery < 0 || opt.EventEvery > 64 {
		f.errorf("Options.EventEvery is %d, want 1 to 64", opt.EventEvery)
		f.opt.EventEvery = 1
	}
	if opt.Hz == 0 {
		f.opt.Hz = 60
	}
	if f.opt.Hz > 1000 || f.opt.Hz < NoBeat {
		f.errorf("Options.Hz is %d, want 1 to 1000, or NoBeat", opt.Hz)
		f.opt.Hz = 60
	}
	f.setRings(opt.Rings)
	var errs []error
	f.codes, errs = parseCodes(opt.Codes)
	f.errs = append(f.errs, errs...)
	f.slots.grow(pageLen)
	f.log.init(f.opt.EventLog)
	return f
}

// StepHz implements feed.Paced: Options.Hz, if anything is extrapolated.
func (f *Feed) StepHz() int {
	for _, t := range f.tables {
		if !t.late && len(t.rates) > 0 {
			return f.opt.Hz
		}
	}
	return 0
}

// Largest implements feed.Sized: the type of entities or events whose values take the most bytes, all texts at their longest.
func (f *Feed) Largest() (item string, bytes int) {
	const around = 16 * 8 // bits of the section and of what names an item
	most := func(kind string, y *layout) {
		n := around
		for k := range y.cols {
			n += int(y.bits[k]) + 1
		}
		for k := range y.texts {
			n += 1 + int(y.tbits[k]) + 8*y.tmax[k]
		}
		if n = (n + 7) / 8; n > bytes {
			item, bytes = kind+" "+y.Name, n
		}
	}
	for _, t := range f.tables {
		most("entity", t.layout)
	}
	for _, e := range f.events {
		most("event", e.layout)
	}
	return item, bytes
}

func (f *Feed) setRings(list []Ring) {
	if len(list) > MaxRings {
		f.errorf("%d rings, at most %d", len(list), MaxRings)
		return
	}
	last := 0.0
	for i, r := range list {
		if r.Every == 0 {
			r.Every = 1
		}
		if !(r.Radius > last) || r.Every < 1 || r.Every > 256 {
			f.errorf("ring %d is %+v: want a radius above that of the ring inside it, and Every from 1 to 256", i, r)
			return
		}
		last = r.Radius
		f.rings = append(f.rings, r)
	}
	f.reach2 = float32(last * last)
}

// ringed reports whether the feed looks at where things are.
func (f *Feed) ringed() bool { return len(f.rings) > 0 && !f.tune.NoRings }

// Tune implements feed.Tunable: Whole sends each entity whole in each packet where it is due, Plain each changed field as a flag and a
// difference in whole bytes, NoRings everything in each packet.
func (f *Feed) Tune(t feed.Tuning) { f.tune = t }

func (f *Feed) errorf(format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("snap: "+format, args...))
}

// Err returns all mistakes made with New, Add and AddEvent, joined, or nil. Each names the type, the field and what mends it. The
// engine asks when the room opens, so that a wrong tag is an error of the start and not of the first player.
func (f *Feed) Err() error {
	errs := append(f.errs[:len(f.errs):len(f.errs)], f.codes.rest()...)
	// A type with a mistake may be the one that was to have a place.
	if err := f.placeless(); err != nil && len(errs) == 0 {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// placeless is an error if there are rings, but nothing that could be in them. A feed with events only may have rings, for EmitAt.
func (f *Feed) placeless() error {
	if len(f.rings) == 0 || len(f.tables) == 0 {
		return nil
	}
	var names []string
	for _, t := range f.tables {
		if len(t.axes) > 0 {
			return nil
		}
		names = append(names, t.Name)
	}
	return fmt.Errorf("snap: Options.Rings are set, but no entity type has a place (%s), so everybody would see everything: add the word place to the fields of a "+
		"position, such as q=0.25,range=0:600,place on X and Y, or leave Rings out", strings.Join(names, ", "))
}

// Info implements feed.Feed. No type can be added afterwards.
func (f *Feed) Info() feed.Info {
	f.seal()
	return feed.Info{Kind: Kind, Name: f.opt.Name, Lane: feed.State, Weight: f.opt.Weight, Schema: f.schema}
}

// seal fixes the schema.
func (f *Feed) seal() {
	if f.sealed {
		return
	}
	f.sealed = true
	s := schema{Hz: max(f.opt.Hz, 0), Types: []typeSchema{}, Events: []typeSchema{}}
	for _, t := range f.tables {
		if f.tune.Plain {
			t.layout = newLayout(t.plain())
		}
		s.Types = append(s.Types, t.typeSchema)
		f.placed = append(f.placed, len(t.axes) > 0)
		f.stride, f.tride = max(f.stride, t.cols), max(f.tride, t.texts)
	}
	for _, e := range f.events {
		s.Events = append(s.Events, e.typeSchema)
	}
	f.schema = s.seal()
	f.log.layouts = make([]*layout, len(f.events))
	for i, e := range f.events {
		f.log.layouts[i] = e.layout
	}
}

// Own says which entity the seat plays: the client finds it as its own, gets its owner-only fields, and gets it first when bytes
// are short. 0 is none. Leave and the entity's removal end it.
func (f *Feed) Own(seat feed.SeatID, id EntityID) {
	for int(seat) >= len(f.own) {
		if id == 0 {
			return
		}
		f.own = append(f.own, 0)
	}
	f.own[seat] = id
}

// Owned returns the entity that the seat plays, or 0.
func (f *Feed) Owned(seat feed.SeatID) EntityID {
	if int(seat) >= len(f.own) || !f.slots.alive(f.own[seat]) {
		return 0
	}
	return f.own[seat]
}

// Stepping tells the feed that step t begins, so that events carry the tick they happened in. Without it they carry the tick
// of the next Capture.
func (f *Feed) Stepping(t feed.Tick) { f.log.now, f.log.timed = t, true }

// Stats is what a feed had to mend or refuse.
type Stats struct {
	Entities      int    // alive
	Clamped       uint64 // numbers outside their range or not finite, each time one was captured or emitted
	TextsCut      uint64 // texts that were too long or no UTF-8, each time one was changed to such a value or emitted
	Full          uint64 // spawns refused because all ids were taken
	EventsDropped uint64 // events that left the full log, whether or not somebody still wanted them
	EventsMissed  uint64 // events that had left the log before some seat got them, per seat, those for other seats included
	// TooLarge counts entities that alone were larger than the packet that they were due in, each time, and events that a seat did
	// not get because they were larger than 32 packets in a row had room for.
	TooLarge uint64
	// Fields says which fields Clamped and TextsCut are about, by "type.field".
	Fields map[string]uint64
}

// Stats returns the counts since New. It belongs to the room's goroutine, like everything of a Feed.
func (f *Feed) Stats() Stats {
	s := Stats{
		Entities: f.slots.n, Clamped: f.count.clamped, TextsCut: f.count.cut, Full: f.full,
		EventsDropped: f.log.dropped, EventsMissed: f.missed.Load(), TooLarge: f.large.Load(), Fields: map[string]uint64{},
	}
	add := func(l *layout, src []source) {
		for i := range src {
			if n := src[i].clamps; n > 0 {
				s.Fields[l.Name+"."+l.Fields[i].Name] += n
			}
		}
	}
	for _, t := range f.tables {
		add(t.layout, t.src)
	}
	for _, e := range f.events {
		add(e.layout, e.src)
	}
	return s
}

// Set is the entities of one type. It belongs to the room's goroutine.
type Set[T any] struct {
	f   *Feed
	t   *table
	typ int
}

// Add declares an entity type: T's fields and tags say what clients see of it. Mistakes are collected for Err; the set works
// regardless, so that a constructor need not check each line. A name is a lower-case letter and up to 31 letters, digits, dashes
// and underscores.
func Add[T any](f *Feed, name string) *Set[T] {
	rt := reflect.TypeFor[T]()
	d := describe(name, rt, false, f.opt.Hz)
	f.errs = append(f.errs, d.errs...)
	f.errs = append(f.errs, f.codes.apply(&d.schema)...)
	t := &table{layout: newLayout(d.schema), src: d.src, mask: d.mask, size: rt.Size(), late: f.sealed, place: place[T]}
	for i, c := range d.schema.Fields {
		if c.Place {
			t.axes = append(t.axes, i)
		}
	}
	switch c, err := makeCodec(rt, rt.String()); {
	case err != nil:
		f.errorf("%v", err)
	default:
		t.codec = c
	}
	if f.sealed {
		f.errorf("%q was added after the room opened; add all types before the world's Open returns", name)
	}
	if len(f.tables) == maxTypes {
		f.errorf("%q is one entity type too many; at most %d a feed", name, maxTypes)
	}
	for _, o := range f.tables {
		if o.Name == name {
			f.errorf("two entity types are called %q", name)
		}
	}
	f.tables = append(f.tables, t)
	return &Set[T]{f: f, t: t, typ: len(f.tables) - 1}
}

// Spawn adds an entity and returns its id: 0 if the feed holds 65,535 already, which is counted.
func (s *Set[T]) Spawn(v T) EntityID {
	if s.typ >= maxTypes {
		s.f.full++
		return 0
	}
	id := s.f.slots.take(s.typ)
	if id == 0 {
		s.f.full++
		return 0
	}
	i := id.slot()
	place[T](s.t, i)
	*(*T)(s.t.at(i)) = v
	return id
}

// place makes room for slot i in t and marks it live.
func place[T any](t *table, i int) {
	for i/pageLen >= len(t.pages) {
		t.pages, t.live = append(t.pages, nil), append(t.live, 0)
		if t.texts > 0 {
			t.raw = append(t.raw, make([]string, pageLen*t.texts)...)
			t.clean = append(t.clean, make([]string, pageLen*t.texts)...)
		}
	}
	if t.pages[i/pageLen] == nil {
		t.pages[i/pageLen] = unsafe.Pointer(new([pageLen]T))
	}
	t.live[i/pageLen] |= 1 << (i % pageLen)
	t.n++
}

// Get returns the entity to read and to change in place, or nil if it is gone. The pointer is good until Remove or
// RestoreState.
func (s *Set[T]) Get(id EntityID) *T {
	if !s.f.slots.has(id, s.typ) {
		return nil
	}
	return (*T)(s.t.at(id.slot()))
}

// Remove ends an entity and reports whether it was there. Its id does not come back before its place in the world has had 65,535 others.
func (s *Set[T]) Remove(id EntityID) bool {
	if !s.f.slots.has(id, s.typ) {
		return false
	}
	i := id.slot()
	*(*T)(s.t.at(i)) = *new(T)
	clear(s.t.raw[i*s.t.texts : (i+1)*s.t.texts])
	clear(s.t.clean[i*s.t.texts : (i+1)*s.t.texts])
	s.t.live[i/pageLen] &^= 1 << (i % pageLen)
	s.t.n--
	s.f.slots.free(i)
	return true
}

// Len is the number of entities in the set.
func (s *Set[T]) Len() int { return s.t.n }

// All yields the entities in the order of their slots, which is the same in every run. The loop may remove any of them; whether
// it sees what it spawns itself depends on the slot, again the same in every run.
func (s *Set[T]) All() func(yield func(EntityID, *T) bool) {
	return func(yield func(EntityID, *T) bool) {
		for w := 0; w < len(s.t.live); w++ {
			for left := s.t.live[w]; left != 0; {
				b := bits.TrailingZeros64(left)
				i := w*pageLen + b
				if !yield(makeID(i, s.f.slots.info[i].gen), (*T)(s.t.at(i))) {
					return
				}
				// What the loop body removed is gone from live; what it spawned behind b joins in.
				left = s.t.live[w] &^ (1<<(b+1) - 1)
			}
		}
	}
}

// Capture implements feed.Feed.
func (f *Feed) Capture(t feed.Tick) feed.Frame { return f.capture(t) }

// Join implements feed.Feed. The seat gets no event that was emitted to everybody before.
func (f *Feed) Join(seat feed.SeatID, d feed.Delivery) feed.Stream {
	f.seal()
	f.joins++
	f.eye(seat) // events count the seats that may see them
	return newStream(f, seat, d)
}

// Leave implements feed.Feed. Events emitted to the seat that no frame has yet are dropped, for its next tenant is somebody else.
func (f *Feed) Leave(seat feed.SeatID) {
	f.Own(seat, 0)
	if int(seat) < len(f.eyes) {
		f.eyes[seat] = eye{mask: math.MaxUint32}
	}
	f.log.void(seat)
}
