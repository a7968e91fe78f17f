package snap

import (
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/wire"
)

// A stream answers three questions, a file each: what does the seat see (visible, below), what does the client not know yet
// (due.go), and how is it told (write.go). What a client may hold is kept here: a record for each slot with the baseline by value, and the
// packets in flight with what they said.

// flights is how many packets may be in flight. The engine settles the oldest when there are as many.
const flights = 64

// What follows is kept small and dense: a seat's packet touches all of it, and with a thousand seats none of it is in a cache.

// flightNo is a feed.Receipt of a stream, which begins a new life before they wrap.
type flightNo uint32

// version is what a packet said of an entity, but for its columns and texts.
type version struct {
	r     flightNo // the packet's; 0: none
	tick  feed.Tick
	ring  uint8
	owner bool // with the owner's fields
	still bool // no rate is above 0: it stays as it is
}

// rec is what a stream knows of a slot. Base columns, and the texts that were sent and those of the base, stand in the stream's slabs.
type rec struct {
	id   EntityID // 0: free
	seen uint32   // the stamp of the packet that saw it last
	base version  // what is known to be with the client; base.r 0: no enter has arrived
	// last is the newest mention in a packet, as a place in a flight. Older ones hang on it.
	last mention
	// lost is the newest flightNo that mentions the slot and is not known to have arrived, though nothing is expected of it any more. Until
	// something newer has arrived the client may hold what it said.
	lost flightNo

	born    flightNo // first that can mean it
	enter   flightNo // newest with an enter; 0: none
	first   flightNo // oldest
	entered uint32   // stamp of that packet

	textSince flightNo // first with the texts that were sent last
	owed      float32  // what its error adds up to while there is no room for it

	typ     uint8
	ring    uint8 // as the seat sees it now
	leaving bool
	gone    bool // it is no more, and not only out of sight
	left    bool // a leave was written
	textOK  bool // the texts sent last have arrived, and nothing else since
}

// mention is a place in a flight: item i of the packet with receipt r. r 0: none.
type mention struct {
	r flightNo
	i int32
}

// item is what a packet says of a slot.
type item struct {
	id    EntityID
	v     version
	val   int32 // offsets in the flight's slabs
	text  int32
	prev  mention // the slot's mention before
	slot  uint16
	typ   uint8
	leave bool
	enter bool
	what  bool // some column that is no pose differs
	texts bool
}

// flight is a packet whose fate is not known.
type flight struct {
	r      flightNo
	looked uint32 // the stream's before
	events uint64 // the last event that the client has once this arrives
	ownSet bool
	own    EntityID
	items  []item
	vals   []int32
	txts   []string
	dues   []due // of the items, while the packet is made
	saved  []tally
}

func (fl *flight) row(it *item, y *layout) []int32 { return fl.vals[it.val:][:y.cols] }

// stream is a seat's view. Owned by one encoder worker.
type stream struct {
	f        *Feed
	layouts  []*layout // of the entity types
	typeBits uint
	evBits   uint
	seat     int32

	// Since Join.
	acked    bool // baselines are acked versions
	life     uint32
	next     flightNo // the next
	restores uint32
	// joinedAll and joinedOwn are the newest events at Join: those for everybody and those for the seat alone that count as before
	// it. They differ, for World.Join may greet its seat before the feed knows of it.
	joinedAll, joinedOwn uint64

	// Since the life began.
	up       bool // a packet of this life has arrived
	started  bool // eventBase is set
	base     uint64
	cursor   uint64   // the last event that is known to have arrived or isn't the seat's
	evFrame  uint32   // frame of the last packet with events
	own      EntityID // in the frame looked at
	stuckAt  uint64   // an event that was too large for the last packet …
	stuckFor int      // … and how many before
	ownSent  EntityID
	ownBase  EntityID
	ownOK    bool
	ownLast  flightNo // newest flightNo that mentions it
	ownFrom  flightNo // since when it says the same
	newest   flightNo // newest flightNo that has arrived
	stamp    uint32   // counts looks at a frame
	looked   uint32   // frame of the last packet that was not refused
	held     int
	present  int // slots in use that are not leaving
	leaving  int // the others
	crowded  bool
	sighted  int // of the present, in the last look
	updates  int // entities in the last packet, to choose how gaps are written

	slotOf []uint16         // by place in the world: slot + 1
	recs   []rec            // by slot
	used   []uint64         // bitmap by slot
	bv     []int32          // base columns, by slot·stride
	st, bt []string         // texts: sent, base, by slot·tride
	flying [flights]*flight // by receipt; nil: none
	wrote  *flight          // by the Append before Hash; nil: nothing
	eye    eye
	enters []enter

	acct    []tally  // what was written since Account: header, events, then the fields by type
	tallyOf []uint16 // by type: where its fields begin in acct
	order   []int32
	exp     []int32 // scratch of one entity
}

// enter is an entity that the seat sees and has no slot for.
type enter struct {
	place uint16
	ring  uint8
	dist  float32
}

// due is an item of the packet that is being made, with its length and how much it matters.
type due struct {
	bits int32
	rank float32
}

func newStream(f *Feed, seat feed.SeatID, d feed.Delivery) *stream {
	s := &stream{f: f, seat: int32(seat), next: 1, restores: f.restores}
	s.joinedAll, s.joinedOwn = f.log.next-1, f.log.shown
	s.cursor = s.joinedOwn
	s.acked = d == feed.Unordered
	// Streams that share a client's decoder, one after the other, must differ in their lives: each has 256 of its own.
	s.life = f.joins << 8
	for _, t := range f.tables {
		s.layouts = append(s.layouts, t.layout)
	}
	s.typeBits, s.evBits = indexBits(len(f.tables)), indexBits(len(f.events))
	s.exp = make([]int32, f.stride)
	n := tallyFixed
	for _, y := range s.layouts {
		s.tallyOf = append(s.tallyOf, uint16(n))
		n += len(y.labels)
	}
	s.acct = make([]tally, n)
	s.begin()
	return s
}

// begin starts a life: the client holds nothing.
func (s *stream) begin() {
	s.life++
	s.up, s.started = false, false
	s.ownSent, s.ownBase, s.ownOK, s.ownLast, s.ownFrom = 0, 0, true, 0, 0
	s.held, s.updates, s.newest, s.evFrame = 0, 0, 0, 0
	clear(s.recs)
	clear(s.used)
	clear(s.slotOf)
	clear(s.st)
	clear(s.bt)
	for i, fl := range s.flying {
		if fl != nil {
			s.flying[i] = nil
			s.f.flights.put(fl)
		}
	}
	s.wrote, s.present, s.leaving = nil, 0, 0
}

func (fl *flight) reset(r flightNo) {
	clear(fl.txts)
	*fl = flight{r: r, items: fl.items[:0], vals: fl.vals[:0], txts: fl.txts[:0], dues: fl.dues[:0], saved: fl.saved[:0]}
}

// flightPool keeps flights for the next packet of any seat, the last one used on top: on a link that keeps the order it is free again
// after each write, and still in the cache. The zero value is ready.
type flightPool struct {
	mu   sync.Mutex
	free []*flight
}

// idleFlights bounds a room's pool; a burst beyond is left to the collector.
const idleFlights = 256

func (p *flightPool) get() *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		fl := p.free[n-1]
		p.free = p.free[:n-1]
		return fl
	}
	return new(flight)
}

func (p *flightPool) put(fl *flight) {
	fl.reset(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < idleFlights {
		p.free = append(p.free, fl)
	}
}

// Resume implements feed.Stream. A cursor of 0 is a client that has read no packet of this feed; events that an earlier page of
// the seat has had are not repeated to it.
func (s *stream) Resume(cursor uint64, d feed.Delivery) {
	if cursor > 0 {
		s.cursor = max(cursor, s.joinedOwn)
	}
	s.acked = d == feed.Unordered
	s.begin()
}

// prepare fits the stream to the frame.
func (s *stream) prepare(fr *frame) {
	if fr.restores != s.restores {
		// Another world: event ids may have gone back, and all that it emitted is new.
		s.restores = fr.restores
		s.joinedAll, s.joinedOwn = min(s.joinedAll, fr.oldest-1), min(s.joinedOwn, fr.oldest-1)
		s.cursor = min(s.cursor, fr.oldest-1)
		s.begin()
	}
	if n := len(fr.ids); n > len(s.slotOf) {
		s.slotOf = append(s.slotOf, make([]uint16, n-len(s.slotOf))...)
	}
	if s.cursor > fr.newest {
		s.cursor = min(s.joinedOwn, fr.newest) // a client's cursor from another world, or a lie
	}
	if missed := fr.oldest - 1; s.cursor < missed {
		s.f.missed.Add(missed - s.cursor)
		s.cursor = missed
	}
	if !s.started {
		s.started, s.base = true, s.cursor
	}
}

func (s *stream) ownID(fr *frame) EntityID {
	if int(s.seat) < len(fr.own) {
		return fr.own[s.seat]
	}
	return 0
}

// visible looks where the seat's entities are: it renews the rings of the records, marks those that are out of sight as leaving, and
// gives slots to what came into sight.
func (s *stream) visible(fr *frame) {
	s.stamp++
	s.sighted, s.crowded, s.enters = 0, false, s.enters[:0]
	s.eye = eye{mask: math.MaxUint32}
	if int(s.seat) < len(fr.eyes) {
		s.eye = fr.eyes[s.seat]
	}
	rings := s.f.rings
	if s.own != 0 {
		s.sight(fr, s.own.slot(), 0, -1)
	}
	switch {
	case !s.f.ringed():
		for w, word := range fr.live {
			for ; word != 0; word &= word - 1 {
				s.sight(fr, w*64+bits.TrailingZeros64(word), 0, 0)
			}
		}
	default:
		g := fr.grid()
		for _, i := range g.none {
			s.sight(fr, int(i), 0, 0)
		}
		if !s.eye.ok {
			break
		}
		r := float32(rings[len(rings)-1].Radius * stay)
		x0, x1 := g.span(0, s.eye.at[0], r)
		y0, y1 := g.span(1, s.eye.at[1], r)
		if g.nx == 0 {
			break
		}
		for y := y0; y <= y1; y++ {
			for _, i := range g.items[g.start[y*g.nx+x0]:g.start[y*g.nx+x1+1]] {
				s.distant(fr, int(i), rings)
			}
		}
	}
	if s.sighted < s.present {
		for w, word := range s.used {
			for ; word != 0; word &= word - 1 {
				i := w*64 + bits.TrailingZeros64(word)
				if rc := &s.recs[i]; rc.seen != s.stamp && !rc.leaving {
					s.leave(fr, i, rc)
				}
			}
		}
	}
	if len(s.enters) > 1 {
		// What is near gets the lower slots, and so comes first when not all fits.
		slices.SortFunc(s.enters, func(a, b enter) int {
			switch {
			case a.dist < b.dist:
				return -1
			case a.dist > b.dist:
				return 1
			}
			return int(a.place) - int(b.place)
		})
	}
	for _, e := range s.enters {
		s.open(fr, e)
	}
}

// distant sights an entity in a place by its distance.
func (s *stream) distant(fr *frame, i int, rings []Ring) {
	d := dist2(s.eye.at, fr.at[i])
	now := uint8(len(rings)) // the ring that it is in as the client has it
	if k := s.slotOf[i]; k > 0 && s.recs[k-1].id == fr.ids[i] {
		now = s.recs[k-1].ring
	}
	for r := range rings {
		lim := float32(rings[r].Radius)
		if uint8(r) >= now {
			lim *= stay
		}
		if d <= lim*lim {
			s.sight(fr, i, uint8(r), d)
			return
		}
	}
}

// sight notes that the seat sees the entity in place i of the world, unless it is hidden from it.
func (s *stream) sight(fr *frame, i int, ring uint8, dist float32) {
	id, m := fr.ids[i], fr.mask[i]
	if m != 0 && m&s.eye.mask == 0 && id != s.own {
		return
	}
	if k := s.slotOf[i]; k > 0 && s.recs[k-1].id == id {
		if rc := &s.recs[k-1]; rc.seen != s.stamp { // else it is the own entity, which was first
			rc.seen, rc.ring = s.stamp, ring
			s.sighted++
		}
		return
	}
	if len(s.enters) == 0 || s.enters[0].place != uint16(i) {
		s.enters = append(s.enters, enter{uint16(i), ring, dist})
	}
}

// open gives an entity a slot.
func (s *stream) open(fr *frame, e enter) {
	slot := -1
	for w, word := range s.used {
		if word != math.MaxUint64 {
			slot = w*64 + bits.TrailingZeros64(^word)
			break
		}
	}
	if slot < 0 {
		slot = len(s.used) * 64
	}
	if slot >= maxSlots {
		s.crowded = true // leaves that nobody has acked take all the slots
		return
	}
	if slot == len(s.used)*64 {
		s.used = append(s.used, 0)
		n := len(s.used) * 64
		s.recs = append(s.recs, make([]rec, n-len(s.recs))...)
		s.bv = append(s.bv, make([]int32, n*s.f.stride-len(s.bv))...)
		s.st = append(s.st, make([]string, n*s.f.tride-len(s.st))...)
		s.bt = append(s.bt, make([]string, n*s.f.tride-len(s.bt))...)
	}
	s.used[slot/64] |= 1 << (slot % 64)
	s.present++
	s.recs[slot] = rec{born: s.next, id: fr.ids[e.place], typ: fr.typ[e.place], ring: e.ring, seen: s.stamp}
	s.slotOf[e.place] = uint16(slot + 1)
}

// leave begins to take an entity from the client.
func (s *stream) leave(fr *frame, i int, rc *rec) {
	place := rc.id.slot()
	if s.slotOf[place] == uint16(i+1) {
		s.slotOf[place] = 0
	}
	s.present--
	if rc.enter == 0 {
		s.free(i) // the client has never heard of it
		return
	}
	s.leaving++
	rc.leaving, rc.gone = true, place >= len(fr.ids) || fr.live[place/64]>>(place%64)&1 == 0 || fr.ids[place] != rc.id
	s.held--
}

func (s *stream) free(i int) {
	if s.recs[i].leaving {
		s.leaving--
	}
	s.recs[i] = rec{}
	s.used[i/64] &^= 1 << (i % 64)
	clear(s.st[i*s.f.tride:][:s.f.tride])
	clear(s.bt[i*s.f.tride:][:s.f.tride])
}

// at returns the item of a mention, or nil if its flight is gone.
func (s *stream) at(m mention) (*flight, *item) {
	if fl := s.flying[m.r%flights]; fl != nil && fl.r == m.r {
		return fl, &fl.items[m.i]
	}
	return nil, nil
}

// settle takes the flight with receipt r out; nil if it is void. The caller puts it back into the pool.
func (s *stream) settle(r feed.Receipt) *flight {
	at := &s.flying[r%flights]
	fl := *at
	if fl == nil || fl.r != flightNo(r) {
		return nil
	}
	*at = nil
	if s.wrote == fl {
		s.wrote = nil
	}
	return fl
}

// Delivered implements feed.Stream.
func (s *stream) Delivered(r feed.Receipt) {
	fl := s.settle(r)
	if fl == nil {
		return
	}
	defer s.f.flights.put(fl)
	s.up = true
	s.newest = max(s.newest, fl.r)
	s.cursor = max(s.cursor, fl.events)
	if fl.ownSet {
		s.ownBase = fl.own
		s.ownOK = s.ownOK || fl.r >= s.ownFrom
	}
	for k := range fl.items {
		it := &fl.items[k]
		i := int(it.slot)
		rc := &s.recs[i]
		if rc.id != it.id || fl.r < rc.born {
			continue // the slot is another's by now
		}
		if it.leave {
			s.free(i)
			continue
		}
		if fl.r <= rc.base.r {
			continue
		}
		rc.base = it.v
		y := s.layouts[it.typ]
		copy(s.bv[i*s.f.stride:], fl.row(it, y))
		if it.texts {
			copy(s.bt[i*s.f.tride:], fl.txts[it.text:][:y.texts])
			rc.textOK = rc.textOK || fl.r >= rc.textSince
		}
	}
}

// Lost implements feed.Stream. On an unordered link a packet that is given up may have arrived for all we know: what it said stays among
// what the client may hold. On an ordered one the client holds what it held before.
func (s *stream) Lost(r feed.Receipt) {
	fl := s.settle(r)
	if fl == nil {
		return
	}
	defer s.f.flights.put(fl)
	if fl.r == s.next-1 {
		s.looked = fl.looked // most likely refused: what came due is still due
	}
	if s.acked && s.newest < fl.r && s.next-fl.r >= flights-1 {
		// Nothing has arrived for as long as packets are remembered. The client may have lost track of its baselines as well.
		s.begin()
		return
	}
	if !s.acked && fl.ownSet && s.ownLast == fl.r {
		s.ownSent, s.ownOK = s.ownBase, true
	}
	for k := range fl.items {
		it := &fl.items[k]
		i := int(it.slot)
		rc := &s.recs[i]
		if rc.id != it.id || fl.r < rc.born {
			continue
		}
		if s.acked {
			if !s.alike(i, rc, fl, it) {
				rc.lost = max(rc.lost, fl.r)
			}
			continue
		}
		rc.left = rc.left && !it.leave
		if rc.enter == fl.r && rc.base.r == 0 {
			rc.enter = 0
			s.held--
		}
		if it.texts && rc.base.r != 0 {
			copy(s.st[i*s.f.tride:][:s.f.tride], s.bt[i*s.f.tride:])
			rc.textOK = true
		}
	}
}

// alike reports whether it is all one if the client has the item or the baseline, now and later on. Anything older must be settled, for
// the mentions before the item are not found any more.
func (s *stream) alike(i int, rc *rec, fl *flight, it *item) bool {
	if it.leave || rc.base.r == 0 || !it.v.still || !rc.base.still || it.v.ring != rc.base.ring || it.v.owner != rc.base.owner {
		return false
	}
	if _, older := s.at(it.prev); older != nil && it.prev.r > rc.base.r {
		return false
	}
	row := fl.row(it, s.layouts[it.typ])
	return slices.Equal(row, s.bv[i*s.f.stride:][:len(row)])
}

// Hash implements feed.Stream.
func (s *stream) Hash() uint32 {
	h := wire.NewHash.Add(int32(s.ownSent))
	fl := s.wrote
	if s.wrote = nil; fl == nil {
		fl = &flight{}
	}
	if s.acked {
		for k := range fl.items {
			if it := &fl.items[k]; !it.leave {
				y := s.layouts[it.typ]
				h = hashEntity(h, it.id, it.typ, fl.row(it, y), s.st[int(it.slot)*s.f.tride:][:y.texts])
			}
		}
		return nonzero(h)
	}
	k := 0 // leaves come before entities in a flight, and both rise
	for k < len(fl.items) && fl.items[k].leave {
		k++
	}
	entities := fl.items[k:]
	for i := range s.recs {
		rc := &s.recs[i]
		if rc.id == 0 || rc.leaving && rc.left {
			continue
		}
		y := s.layouts[rc.typ]
		texts := s.st[i*s.f.tride:][:y.texts]
		for len(entities) > 0 && int(entities[0].slot) < i {
			entities = entities[1:]
		}
		switch {
		case len(entities) > 0 && int(entities[0].slot) == i:
			h = hashEntity(h, rc.id, rc.typ, fl.row(&entities[0], y), texts)
		case rc.base.r != 0:
			h = hashEntity(h, rc.id, rc.typ, s.bv[i*s.f.stride:][:y.cols], texts)
		}
	}
	return nonzero(h)
}

// nonzero keeps clear of 0, which says that nothing is known.
func nonzero(h wire.Hash) uint32 { return max(uint32(h), 1) }

// hashEntity adds an entity to a hash.
func hashEntity(h wire.Hash, id EntityID, typ uint8, cols []int32, texts []string) wire.Hash {
	h = h.Add(int32(id)).Add(int32(typ))
	for _, v := range cols {
		h = h.Add(v)
	}
	for _, t := range texts {
		h = h.AddString(t)
	}
	return h
}

// Close implements feed.Stream.
func (s *stream) Close() { *s = stream{f: s.f, seat: s.seat} }
