package snap

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/wire"
)

// Errors of Decode. Nothing has changed when one is returned, and the packet must not be acked.
var (
	// ErrOvertaken is returned when the packet is not newer than one already read. It is no fault: on an unordered link packets are
	// doubled and overtaken.
	ErrOvertaken = errors.New("snap: the packet is older than what is held")
	// ErrNoKeyframe is returned for a packet that needs a keyframe which has not come.
	ErrNoKeyframe = errors.New("snap: no keyframe yet")
	// ErrCorrupt is returned, wrapped with what is wrong, for bytes that no stream of this schema writes.
	ErrCorrupt = errors.New("snap: corrupt packet")
)

// Decoder holds what a client sees. It implements feed.Decoder, for bots and tests; its twin is in web/src/snap.ts. It is not safe
// for concurrent use.
type Decoder struct {
	// OnEvent, if set, is called for each event, in order, once the packet that brought it is taken over. It is set before Decode.
	OnEvent func(Event)

	types, events []*layout
	byType        map[string]int
	eventTypes    map[string]int

	// What is held.
	fresh  bool // nothing was ever read
	epoch  uint8
	life   uint32
	seq    uint16
	last   uint64 // id of the last event
	own    EntityID
	n      int
	pages  [(maxSlots + slotPage) / slotPage]*page
	spares []*held // entities that left, by and by reused

	// Scratch of one Decode.
	ops   []op
	evs   []eventOp
	vals  []int32
	text  []byte
	ends  []int // of each text in text
	marks []uint64
}

// slotPage is small: a packet of a few bytes may name any slot, and must not make the decoder allocate much.
const slotPage = 32

type page struct {
	n    int
	slot [slotPage]*held
}

// held is an entity that the client has.
type held struct {
	id    EntityID
	typ   int
	owner bool
	cols  []int32
	texts []string
}

// op is a change read from a packet and not made yet.
type op struct {
	slot  int
	leave bool
	enter bool
	owner bool
	texts bool
	id    EntityID
	typ   int
	val   int // where its columns start in vals
	text  int // index of its first text's end in ends
}

type eventOp struct {
	id   uint64
	tick feed.Tick
	typ  int
	val  int
	text int
}

// NewDecoder makes the decoder of a feed with that schema (Info.Schema).
func NewDecoder(schemaJSON json.RawMessage) (*Decoder, error) {
	var s schema
	if err := json.Unmarshal(schemaJSON, &s); err != nil {
		return nil, fmt.Errorf("snap: schema: %w", err)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("snap: %w", err)
	}
	d := &Decoder{fresh: true, byType: map[string]int{}, eventTypes: map[string]int{}}
	for i, t := range s.Types {
		d.types = append(d.types, newLayout(t))
		d.byType[t.Name] = i
	}
	for i, t := range s.Events {
		d.events = append(d.events, newLayout(t))
		d.eventTypes[t.Name] = i
	}
	return d, nil
}

func corrupt(what string) error { return fmt.Errorf("%w: %s", ErrCorrupt, what) }

// Decode implements feed.Decoder.
func (d *Decoder) Decode(p feed.Packet, body []byte) error {
	r := wire.NewReader(body)
	key := r.Bool()
	life, base, reset := d.life, uint64(0), false
	if key {
		life, base = r.Bits(32), r.Uvarint()
		if base > maxEvent {
			return corrupt("event number")
		}
	}
	if err := r.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	switch {
	case key && (d.fresh || int8(p.Epoch-d.epoch) > 0 || p.Epoch == d.epoch && int32(life-d.life) > 0):
		reset = true
	case d.fresh:
		return ErrNoKeyframe
	case p.Epoch != d.epoch && int8(p.Epoch-d.epoch) > 0:
		return ErrNoKeyframe
	case p.Epoch != d.epoch || life != d.life || !wire.SeqNewer(p.Seq, d.seq):
		return ErrOvertaken
	}
	own := d.own
	if reset {
		own = 0
	}
	if r.Bool() {
		if own = EntityID(r.Bits(32)); own != 0 && (own.gen() == 0 || own.slot() >= maxSlots) {
			return corrupt("own entity")
		}
	}
	d.ops, d.evs, d.vals, d.text, d.ends = d.ops[:0], d.evs[:0], d.vals[:0], d.text[:0], d.ends[:0]
	last := d.last
	if reset {
		last = base
	}
	err := d.readEvents(&r, p.Tick, &last)
	if err == nil {
		err = d.readSlots(&r, reset)
	}
	if err == nil {
		err = r.Err()
	}
	if err == nil {
		err = r.End()
	}
	if err != nil {
		if !errors.Is(err, ErrCorrupt) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		return err
	}

	// From here on nothing can fail.
	if reset {
		d.empty()
	}
	d.fresh, d.epoch, d.life, d.seq, d.last, d.own = false, p.Epoch, life, p.Seq, last, own
	for i := range d.ops {
		d.apply(&d.ops[i])
	}
	if d.OnEvent != nil {
		for _, e := range d.evs {
			y := d.events[e.typ]
			ev := Event{ID: e.id, Tick: e.tick, Type: e.typ, y: y, cols: d.vals[e.val:][:y.cols]}
			for k := range y.texts {
				ev.texts = append(ev.texts, d.textAt(e.text+k))
			}
			d.OnEvent(ev)
		}
	}
	return nil
}

// readEvents reads the events and drops those up to *last, which it moves on.
func (d *Decoder) readEvents(r *wire.Reader, tick feed.Tick, last *uint64) error {
	id := uint64(0)
	types := indexBits(len(d.events))
	for r.Bool() {
		if len(d.events) == 0 {
			return corrupt("an event without event types")
		}
		step := r.Uvarint()
		if step == 0 || step > maxEvent-id {
			return corrupt("event number")
		}
		id += step
		ago := r.Uvarint()
		typ := int(r.Bits(types))
		if typ >= len(d.events) || ago > 1<<32-1 {
			return corrupt("event")
		}
		e := eventOp{id: id, tick: tick - feed.Tick(ago), typ: typ, val: len(d.vals), text: len(d.ends)}
		y := d.events[typ]
		d.readCols(r, y, y.cols)
		if err := d.readTexts(r, y, y.texts); err != nil {
			return err
		}
		if id > *last {
			*last = id
			d.evs = append(d.evs, e)
		} else {
			d.vals, d.ends = d.vals[:e.val], d.ends[:e.text]
			d.text = d.text[:d.textStart(e.text)]
		}
	}
	return nil
}

// readSlots reads leaves and entities.
func (d *Decoder) readSlots(r *wire.Reader, reset bool) error {
	if d.marks == nil {
		d.marks = make([]uint64, (maxSlots+63)/64)
	}
	defer func() {
		for i := range d.ops {
			d.marks[d.ops[i].slot/64] = 0
		}
	}()
	prev := 0
	next := func() (int, error) {
		step := r.Uvarint()
		i := (prev + int(step&(slotWrap-1))) & (slotWrap - 1)
		if r.Err() != nil || step >= slotWrap || i >= maxSlots || d.marks[i/64]>>(i%64)&1 == 1 {
			return 0, corrupt("slot")
		}
		d.marks[i/64] |= 1 << (i % 64)
		prev = i
		return i, nil
	}
	for r.Bool() {
		i, err := next()
		if err != nil {
			return err
		}
		d.ops = append(d.ops, op{slot: i, leave: true})
	}
	prev = 0
	types := indexBits(len(d.types))
	for r.Bool() {
		if len(d.types) == 0 {
			return corrupt("an entity without entity types")
		}
		i, err := next()
		if err != nil {
			return err
		}
		d.ops = append(d.ops, op{slot: i, val: len(d.vals), text: len(d.ends)})
		o := &d.ops[len(d.ops)-1]
		if o.enter = r.Bool(); o.enter {
			gen := uint16(r.Bits(16))
			o.id, o.typ = makeID(i, gen), int(r.Bits(types))
			if gen == 0 || o.typ >= len(d.types) {
				return corrupt("entity")
			}
		} else {
			h := d.at(i)
			if h == nil || reset {
				return corrupt("an entity that is not held")
			}
			o.id, o.typ = h.id, h.typ
		}
		y := d.types[o.typ]
		cols, texts := y.pub, y.tpub
		if y.owned && r.Bool() {
			o.owner, cols, texts = true, y.cols, y.texts
		}
		d.readCols(r, y, cols)
		for n := y.cols - cols; n > 0; n-- {
			d.vals = append(d.vals, 0)
		}
		if o.texts = y.texts > 0 && (o.enter || r.Bool()); o.texts {
			if err := d.readTexts(r, y, texts); err != nil {
				return err
			}
			for n := y.texts - texts; n > 0; n-- {
				d.ends = append(d.ends, len(d.text))
			}
		}
		if r.Err() != nil {
			return r.Err() // before a mass of empty ops
		}
	}
	return nil
}

func (d *Decoder) readCols(r *wire.Reader, y *layout, n int) {
	for k := range n {
		d.vals = append(d.vals, int32(r.Bits(uint(y.bits[k]))+uint32(y.min[k])))
	}
}

func (d *Decoder) readTexts(r *wire.Reader, y *layout, n int) error {
	for k := range n {
		size := int(r.Bits(uint(y.tbits[k])))
		if size > y.tmax[k] {
			return corrupt("text is too long")
		}
		start := len(d.text)
		d.text = r.Bytes(d.text, size)
		if !utf8.Valid(d.text[start:]) {
			return corrupt("text is no UTF-8")
		}
		d.ends = append(d.ends, len(d.text))
	}
	return nil
}

// textStart is where text k starts in the scratch.
func (d *Decoder) textStart(k int) int {
	if k == 0 {
		return 0
	}
	return d.ends[k-1]
}

func (d *Decoder) textAt(k int) string { return string(d.text[d.textStart(k):d.ends[k]]) }

func (d *Decoder) at(slot int) *held {
	if p := d.pages[slot/slotPage]; p != nil {
		return p.slot[slot%slotPage]
	}
	return nil
}

// apply makes a change.
func (d *Decoder) apply(o *op) {
	h := d.at(o.slot)
	if o.leave {
		if h != nil { // its enter may have been lost
			d.drop(o.slot)
		}
		return
	}
	if h == nil {
		h = d.add(o.slot)
	}
	y := d.types[o.typ]
	if h.id != o.id || h.typ != o.typ {
		h.id, h.typ = o.id, o.typ
		h.texts = slices.Grow(h.texts[:0], y.texts)[:y.texts]
	}
	h.owner = o.owner
	h.cols = append(h.cols[:0], d.vals[o.val:][:y.cols]...)
	if o.texts {
		for k := range h.texts {
			if b := d.text[d.textStart(o.text+k):d.ends[o.text+k]]; h.texts[k] != string(b) {
				h.texts[k] = string(b)
			}
		}
	}
}

func (d *Decoder) add(slot int) *held {
	p := d.pages[slot/slotPage]
	if p == nil {
		p = new(page)
		d.pages[slot/slotPage] = p
	}
	var h *held
	if n := len(d.spares); n > 0 {
		h, d.spares = d.spares[n-1], d.spares[:n-1]
	} else {
		h = new(held)
	}
	p.slot[slot%slotPage] = h
	p.n++
	d.n++
	return h
}

func (d *Decoder) drop(slot int) {
	p := d.pages[slot/slotPage]
	h := p.slot[slot%slotPage]
	clear(h.texts[:cap(h.texts)])
	*h = held{cols: h.cols[:0], texts: h.texts[:0]}
	d.spares = append(d.spares, h)
	p.slot[slot%slotPage] = nil
	p.n--
	d.n--
}

func (d *Decoder) empty() {
	for i, p := range d.pages {
		if p != nil && p.n > 0 {
			for k, h := range p.slot {
				if h != nil {
					d.drop(i*slotPage + k)
				}
			}
		}
	}
}

// Hash implements feed.Decoder.
func (d *Decoder) Hash() uint32 {
	h := wire.NewHash.Add(int32(d.own))
	d.each(func(e *held) bool {
		h = hashEntity(h, e.id, uint8(e.typ), e.cols, e.texts)
		return true
	})
	return uint32(h)
}

// Cursor implements feed.Decoder: the number of the last event read; 0 before the first packet.
func (d *Decoder) Cursor() uint64 { return d.last }

// Held implements feed.Decoder: the number of entities.
func (d *Decoder) Held() int { return d.n }

func (d *Decoder) each(fn func(*held) bool) {
	for _, p := range d.pages {
		if p != nil && p.n > 0 {
			for _, h := range p.slot {
				if h != nil && !fn(h) {
					return
				}
			}
		}
	}
}

// Each calls fn for each entity held, in the order of their slots, until it returns false. fn must not call Decode.
func (d *Decoder) Each(fn func(Entity) bool) { d.each(func(h *held) bool { return fn(d.entity(h)) }) }

// Own returns the entity that the seat plays; false if there is none, or if it has not come yet.
func (d *Decoder) Own() (Entity, bool) {
	if d.own == 0 {
		return Entity{}, false
	}
	return d.Get(d.own)
}

// Get returns the entity with the id.
func (d *Decoder) Get(id EntityID) (Entity, bool) {
	if i := id.slot(); i < maxSlots {
		if h := d.at(i); h != nil && h.id == id {
			return d.entity(h), true
		}
	}
	return Entity{}, false
}

func (d *Decoder) entity(h *held) Entity {
	return Entity{ID: h.id, Type: h.typ, y: d.types[h.typ], h: h}
}

// Type returns the number of the entity type of that name, or -1.
func (d *Decoder) Type(name string) int { return lookup(d.byType, name) }

// EventType returns the number of the event type of that name, or -1.
func (d *Decoder) EventType(name string) int { return lookup(d.eventTypes, name) }

func lookup(m map[string]int, name string) int {
	if i, ok := m[name]; ok {
		return i
	}
	return -1
}

// Field returns the index of a field, such as "pos.x", of entity type typ; -1 if there is none. It is the same for all entities of
// the type.
func (d *Decoder) Field(typ int, name string) int { return fieldOf(d.types, typ, name) }

// EventField is Field for event types.
func (d *Decoder) EventField(typ int, name string) int { return fieldOf(d.events, typ, name) }

func fieldOf(list []*layout, typ int, name string) int {
	if typ < 0 || typ >= len(list) {
		return -1
	}
	return list[typ].field(name)
}

// Entity is an entity as a client sees it, valid until the next Decode. The field methods return zero for an index that the type
// does not have, or whose kind is another; fields that only the owner gets are zero for others.
type Entity struct {
	ID   EntityID
	Type int
	y    *layout
	h    *held
}

// Float returns a number in the unit that the world declared it in.
func (e Entity) Float(field int) float64 {
	if e.h == nil || field < 0 || field >= len(e.h.cols) {
		return 0
	}
	return e.y.value(field, e.h.cols[field])
}

// Int returns an integer, 0 or 1 for a bool, and for floats and angles the number of quanta.
func (e Entity) Int(field int) int64 {
	if e.h == nil || field < 0 || field >= len(e.h.cols) {
		return 0
	}
	return e.y.whole(field, e.h.cols[field])
}

// Text returns a string.
func (e Entity) Text(field int) string {
	if e.h == nil || field < e.y.cols || field >= len(e.y.Fields) {
		return ""
	}
	return e.h.texts[field-e.y.cols]
}

// Event is something that happened once, at Tick. It is valid during OnEvent; Fields are read as those of Entity.
type Event struct {
	ID    uint64
	Tick  feed.Tick
	Type  int
	y     *layout
	cols  []int32
	texts []string
}

// Float is Entity.Float.
func (e Event) Float(field int) float64 {
	if field < 0 || field >= len(e.cols) {
		return 0
	}
	return e.y.value(field, e.cols[field])
}

// Int is Entity.Int.
func (e Event) Int(field int) int64 {
	if field < 0 || field >= len(e.cols) {
		return 0
	}
	return e.y.whole(field, e.cols[field])
}

// Text is Entity.Text.
func (e Event) Text(field int) string {
	if field < len(e.cols) || field-len(e.cols) >= len(e.texts) {
		return ""
	}
	return e.texts[field-len(e.cols)]
}
