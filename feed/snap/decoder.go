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
	acked  bool // baselines are acked versions
	epoch  uint8
	life   uint32
	seq    uint16
	last   uint64 // id of the last event
	own    EntityID
	n      int
	pages  [(maxSlots + slotPage) / slotPage]*page
	byID   map[EntityID]*held
	log    [flights]brought // the last packets read whose fate is not known
	logged int              // how many ever, to find the oldest
	told   []int            // slots of the entities in the last packet
	spares []*held          // entities that left, by and by reused
	idle   []*told

	// Scratch of one Decode.
	ops  []op
	evs  []eventOp
	vals []int32
	text []byte
	ends []int // of each text in text
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
	slot  int
	typ   int
	top   *told // the newest version; others hang on it, down to the baseline
	texts []string
}

// told is a version that a packet brought.
type told struct {
	version
	of    *held
	seq   uint16
	acked bool // the server knows that it came
	lost  bool // the server does not know, and never will
	vague bool // the server may or may not know
	cols  []int32
	prev  *told
}

// brought is what a packet brought.
type brought struct {
	seq  uint16
	open bool
	vers []*told
}

// op is a change read from a packet and not made yet.
type op struct {
	slot  int
	leave bool
	enter bool
	ring  uint8
	owner bool
	texts bool
	given uint32 // bit k: text k stands in the packet
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
	d := &Decoder{fresh: true, byType: map[string]int{}, eventTypes: map[string]int{}, byID: map[EntityID]*held{}}
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

// names reports whether the packet's header says that the server knows packet seq to be received, and whether the header's
// history still reaches back to it.
func names(p *feed.Packet, seq uint16) (named, reached bool) {
	switch back := wire.SeqDiff(p.Ack, seq); {
	case back == 0:
		return true, true
	case back < 0:
		return false, true
	case back <= 32:
		return p.Acks>>(back-1)&1 == 1, true
	}
	return false, false
}

// Decode implements feed.Decoder.
func (d *Decoder) Decode(p feed.Packet, body []byte) error {
	if len(body) == 0 {
		// Nothing of this feed, but the header's acks count.
		if !d.fresh && p.Epoch == d.epoch && wire.SeqNewer(p.Seq, d.seq) {
			d.confirm(&p)
			d.seq, d.told = p.Seq, d.told[:0]
		}
		return nil
	}
	r := wire.NewReader(body)
	acked := r.Bool()
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
		if own = EntityID(r.Bits(32)); own != 0 && !own.valid() {
			return corrupt("own entity")
		}
	}
	d.ops, d.evs, d.vals, d.text, d.ends = d.ops[:0], d.evs[:0], d.vals[:0], d.text[:0], d.ends[:0]
	last := d.last
	switch {
	case reset && p.Epoch == d.epoch: // what was played before the server knew of it is not played again
		last = max(last, base)
	case reset:
		last = base
	}
	err := d.readEvents(&r, p.Tick, &last)
	if err == nil {
		err = d.readSlots(&r, &p, acked, reset)
	}
	if err == nil {
		err = r.Err()
	}
	if err == nil {
		err = r.End()
	}
	if err != nil {
		if !errors.Is(err, ErrCorrupt) && err != ErrNoKeyframe {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		return err
	}

	// From here on nothing can fail.
	if reset {
		d.empty()
	}
	d.acked = acked
	if !d.fresh && !reset {
		d.confirm(&p)
	}
	d.fresh, d.epoch, d.life, d.seq, d.last, d.own = false, p.Epoch, life, p.Seq, last, own
	var b *brought
	if acked {
		b = d.remember(p.Seq)
	}
	d.told = d.told[:0]
	for i := range d.ops {
		d.apply(&d.ops[i], &p, b)
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
		step := uint64(0)
		if id == 0 {
			step = r.Uvarint()
		} else {
			step = uint64(r.EG(0)) + 1
		}
		if step == 0 || step > maxEvent-id {
			return corrupt("event number")
		}
		id += step
		ago := r.EG(2)
		typ := int(r.Bits(types))
		if typ >= len(d.events) {
			return corrupt("event")
		}
		e := eventOp{id: id, tick: tick - feed.Tick(ago), typ: typ, val: len(d.vals), text: len(d.ends)}
		y := d.events[typ]
		for k := range y.cols {
			d.vals = append(d.vals, int32(r.Bits(uint(y.bits[k]))+uint32(y.min[k])))
		}
		for k := range y.texts {
			if !r.Bool() {
				d.ends = append(d.ends, len(d.text))
			} else if err := d.readText(r, y, k); err != nil {
				return err
			}
		}
		if r.Err() != nil {
			return r.Err()
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
func (d *Decoder) readSlots(r *wire.Reader, p *feed.Packet, acked, reset bool) error {
	k := uint(r.Bits(3))
	prev := -1
	next := func() (int, error) {
		gap := r.EG(k)
		if r.Err() != nil || gap >= uint32(maxSlots-prev-1) {
			return 0, corrupt("slot")
		}
		prev += int(gap) + 1
		return prev, nil
	}
	for r.Bool() {
		i, err := next()
		if err != nil {
			return err
		}
		r.Bool() // gone or out of sight: bots do not ask
		d.ops = append(d.ops, op{slot: i, leave: true})
	}
	leaves := len(d.ops)
	prev = -1
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
		if err := d.readEntity(r, o, p, acked, reset); err != nil {
			return err
		}
	}
	return d.distinct(leaves)
}

// distinct refuses a slot that comes as a leave and as an entity.
func (d *Decoder) distinct(leaves int) error {
	a, b := d.ops[:leaves], d.ops[leaves:]
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].slot < b[0].slot:
			a = a[1:]
		case a[0].slot > b[0].slot:
			b = b[1:]
		default:
			return corrupt("a slot that leaves and stays")
		}
	}
	return nil
}

// readEntity reads what follows an entity's slot.
func (d *Decoder) readEntity(r *wire.Reader, o *op, p *feed.Packet, acked, reset bool) error {
	detail := r.Bool()
	if detail {
		o.enter = r.Bool()
	}
	var base *told
	if o.enter {
		o.id, o.typ = EntityID(r.Bits(32)), int(r.Bits(indexBits(len(d.types))))
		if !o.id.valid() || o.typ >= len(d.types) {
			return corrupt("entity")
		}
	} else {
		h := d.at(o.slot)
		if h == nil || reset {
			return ErrNoKeyframe
		}
		if base = d.baseline(h, p, acked); base == nil {
			return ErrNoKeyframe
		}
		o.id, o.typ, o.ring, o.owner = h.id, h.typ, base.ring, base.owner
	}
	y := d.types[o.typ]
	what := o.enter
	if detail {
		if o.enter || r.Bool() {
			o.ring = uint8(r.Bits(2))
		}
		o.owner = y.owned && r.Bool()
		if !o.enter {
			what = len(y.what) > 0 && r.Bool()
		}
		o.texts = y.texts > 0 && (o.enter || r.Bool())
	}
	d.vals = append(d.vals, make([]int32, y.cols)...)
	row := d.vals[o.val:]
	if o.enter {
		for _, k := range y.what {
			if c := &y.col[k]; !c.owner || o.owner {
				if row[k] = c.def; r.Bool() {
					row[k] = int32(r.Bits(uint(c.bits)) + uint32(c.min))
				}
			}
		}
		for _, k := range y.pose {
			if c := &y.col[k]; !c.owner || o.owner {
				row[k] = int32(r.Bits(uint(c.bits)) + uint32(c.min))
			}
		}
	} else {
		for _, k := range y.what {
			if c := &y.col[k]; !c.owner || o.owner {
				if row[k] = base.cols[k]; what {
					row[k] = c.get(r, row[k], o.ring)
				}
			}
		}
		n := base.after(p.Tick)
		for _, k := range y.pose {
			if c := &y.col[k]; !c.owner || o.owner {
				row[k] = c.get(r, y.expect(int(k), base.cols, row, n, o.ring), o.ring)
			}
		}
	}
	for _, k := range y.rates {
		if row[k] < -maxRate || row[k] > maxRate {
			return corrupt("a rate that cannot be extrapolated along")
		}
	}
	if o.texts {
		n := y.tpub
		if o.owner {
			n = y.texts
		}
		for k := range n {
			if r.Bool() {
				o.given |= 1 << k
				if err := d.readText(r, y, k); err != nil {
					return err
				}
			}
		}
	}
	return r.Err() // before a mass of empty ops
}

// get reads a column of which x is expected.
func (c *column) get(r *wire.Reader, x int32, ring uint8) int32 {
	if c.flag {
		if x = c.flagged(x); r.Bool() {
			return c.min + c.max - x // the other of the two
		}
		return x
	}
	x += wire.UnZigZag32(r.Code(c.codes[ring])) << c.lod[ring]
	if c.angle {
		x &= wire.AngleSteps - 1
	}
	return x
}

// baseline returns the version that the packet tells h against; nil if it is not there, or if it cannot be known.
func (d *Decoder) baseline(h *held, p *feed.Packet, acked bool) *told {
	if !acked {
		return h.top
	}
	for v := h.top; v != nil; v = v.prev {
		switch {
		case v.acked:
			return v
		case v.lost:
			continue
		case v.vague:
			return nil
		}
		switch named, reached := names(p, v.seq); {
		case named:
			return v
		case !reached && p.Seq != d.seq+1:
			return nil
		}
	}
	return nil
}

// confirm takes over what a packet's header says about packets read before.
func (d *Decoder) confirm(p *feed.Packet) {
	if !d.acked {
		return
	}
	direct := p.Seq == d.seq+1
	for i := range d.log {
		b := &d.log[i]
		if !b.open {
			continue
		}
		named, reached := names(p, b.seq)
		if !named && reached {
			continue
		}
		b.open = false
		for _, v := range b.vers {
			switch {
			case v.seq != b.seq || v.of == nil:
			case named:
				v.acked = true
				d.cut(v)
			case direct:
				d.forget(v)
			default:
				v.vague = true
				d.cut(v)
			}
		}
		b.vers = b.vers[:0]
	}
}

// remember opens the log's entry for a packet. The one that it replaces is older than anything that the server still counts on.
func (d *Decoder) remember(seq uint16) *brought {
	b := &d.log[d.logged%flights]
	d.logged++
	if b.open {
		for _, v := range b.vers {
			if v.seq == b.seq && v.of != nil {
				v.vague = true
				d.cut(v)
			}
		}
	}
	*b = brought{seq: seq, open: true, vers: b.vers[:0]}
	return b
}

// cut drops what is older than v.
func (d *Decoder) cut(v *told) {
	for u := v.prev; u != nil; {
		next := u.prev
		d.retire(u)
		u = next
	}
	v.prev = nil
}

// forget takes v out of its chain, as it is no baseline of anything to come; the newest stays, for it is what the client shows.
func (d *Decoder) forget(v *told) {
	v.lost = true
	for u := v.of.top; u != nil; u = u.prev {
		if u.prev == v {
			u.prev = v.prev
			d.retire(v)
			return
		}
	}
}

func (d *Decoder) retire(v *told) {
	*v = told{cols: v.cols[:0]}
	d.idle = append(d.idle, v)
}

func (d *Decoder) readText(r *wire.Reader, y *layout, k int) error {
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
func (d *Decoder) apply(o *op, p *feed.Packet, b *brought) {
	h := d.at(o.slot)
	if o.leave {
		if h != nil { // its enter may have been lost
			d.drop(h)
		}
		return
	}
	if h != nil && (h.id != o.id || h.typ != o.typ) {
		d.drop(h)
		h = nil
	}
	y := d.types[o.typ]
	if h == nil {
		h = d.add(o.slot, o.id, o.typ)
		h.texts = slices.Grow(h.texts[:0], y.texts)[:y.texts]
	}
	d.told = append(d.told, o.slot)
	v := h.top
	if b != nil || v == nil {
		v = d.version()
		v.of, v.prev, h.top = h, h.top, v
	}
	row := d.vals[o.val:][:y.cols]
	v.version = version{tick: p.Tick, ring: o.ring, owner: o.owner, still: y.isStill(row)}
	v.seq, v.acked = p.Seq, b == nil
	v.cols = append(v.cols[:0], row...)
	if b == nil {
		d.cut(v)
	} else {
		b.vers = append(b.vers, v)
	}
	at := o.text
	for k := range h.texts {
		switch {
		case o.given>>k&1 == 1:
			if t := d.text[d.textStart(at):d.ends[at]]; h.texts[k] != string(t) {
				h.texts[k] = string(t)
			}
			at++
		case o.enter || k >= y.tpub && !o.owner:
			h.texts[k] = ""
		}
	}
}

func (d *Decoder) version() *told {
	if n := len(d.idle); n > 0 {
		v := d.idle[n-1]
		d.idle = d.idle[:n-1]
		return v
	}
	return new(told)
}

func (d *Decoder) add(slot int, id EntityID, typ int) *held {
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
	h.id, h.slot, h.typ = id, slot, typ
	p.slot[slot%slotPage] = h
	d.byID[id] = h
	p.n++
	d.n++
	return h
}

func (d *Decoder) drop(h *held) {
	d.cut(h.top)
	d.retire(h.top)
	if d.byID[h.id] == h {
		delete(d.byID, h.id)
	}
	p := d.pages[h.slot/slotPage]
	p.slot[h.slot%slotPage] = nil
	p.n--
	d.n--
	clear(h.texts[:cap(h.texts)])
	*h = held{texts: h.texts[:0]}
	d.spares = append(d.spares, h)
}

func (d *Decoder) empty() {
	for i := range d.log {
		d.log[i] = brought{vers: d.log[i].vers[:0]}
	}
	for _, p := range d.pages {
		if p != nil && p.n > 0 {
			for _, h := range p.slot {
				if h != nil {
					d.drop(h)
				}
			}
		}
	}
}

// Hash implements feed.Decoder: over everything on an ordered link; over what the last packet brought where baselines are acked, for
// which others are still held depends on what was lost.
func (d *Decoder) Hash() uint32 {
	h := wire.NewHash.Add(int32(d.own))
	add := func(e *held) bool {
		h = hashEntity(h, e.id, uint8(e.typ), e.top.cols, e.texts)
		return true
	}
	if d.acked {
		for _, i := range d.told {
			add(d.at(i))
		}
	} else {
		d.each(add)
	}
	return nonzero(h)
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
	if h := d.byID[id]; h != nil {
		return d.entity(h), true
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

// Tick is the tick of what is held of it; Ring is the interest ring, 0 the innermost, whose coarseness it has.
func (e Entity) Tick() feed.Tick {
	if e.h == nil {
		return 0
	}
	return e.h.top.tick
}

// Ring is documented at Tick.
func (e Entity) Ring() int {
	if e.h == nil {
		return 0
	}
	return int(e.h.top.ring)
}

// Ahead returns field field as it is expected to be at a later tick, if nothing happens to it.
func (e Entity) Ahead(field int, t feed.Tick) float64 {
	if e.h == nil || field < 0 || field >= e.y.cols {
		return 0
	}
	row := make([]int32, e.y.cols)
	e.y.extrapolate(row, e.h.top.cols, &e.h.top.version, t)
	return e.y.value(field, row[field])
}

// Float returns a number in the unit that the world declared it in.
func (e Entity) Float(field int) float64 {
	if e.h == nil || field < 0 || field >= len(e.h.top.cols) {
		return 0
	}
	return e.y.value(field, e.h.top.cols[field])
}

// Int returns an integer, 0 or 1 for a bool, and for floats and angles the number of quanta.
func (e Entity) Int(field int) int64 {
	if e.h == nil || field < 0 || field >= len(e.h.top.cols) {
		return 0
	}
	return e.y.whole(field, e.h.top.cols[field])
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
