package snap

import (
	"math/bits"
	"slices"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/wire"
)

// The section body, bits from the lowest up, uvarints in groups of 8 bits. Its twin is in web/src/snap.ts; docs/protocol.md has
// the same picture with more words.
//
//	1  keyframe      ─┬─ 32 life
//	                  └─ uvarint id of the last event before this life
//	1  own changes   ─── 32 entity id, 0: none
//	{1 event         ─── uvarint id (the first) or distance from the one before it
//	                     uvarint ticks before the packet's tick, type, columns, texts}  0
//	{1 leave         ─── uvarint slot less the one before it, mod 65536}  0
//	{1 entity        ─── uvarint slot less the one before it, mod 65536
//	   1 enter       ─── 16 generation, type
//	   1 owner's (if the type has owner fields)
//	   columns
//	   1 texts (if the type has texts and this is no enter)
//	   texts         ─── each: length, bytes}  0
//	0…7 zero bits to the byte's end
//
// type: as many bits as the number of types less one has. Columns: each its schema's bits, less its min.
//
// Life counts a stream's starts. A keyframe of a new life empties the client first. Until one packet of a life is known to have
// arrived every packet is a keyframe, and an entity is sent as an enter until one of its enters is known to have arrived; so any
// packet that arrives can be read, and those that don't need no repair.

// slotWrap is the modulus of slot distances.
const slotWrap = 1 << 16

// version is what a client holds in a slot.
type version struct {
	id    EntityID
	typ   uint8
	held  bool
	owner bool // with the owner's fields
}

// rec is what a stream knows of a slot. The columns and texts of sent and base stand in the stream's slabs.
type rec struct {
	// sent is what the client holds once everything written has arrived. ok: nothing else can be there, for a packet since the
	// receipt `since` has arrived, and all from there on said the same.
	sent  version
	ok    bool
	since uint64
	// known: an enter of sent.id has arrived, so that the slot alone names it.
	known      bool
	enterSince uint64
	// textOK and textSince are the same for the texts.
	textOK    bool
	textSince uint64
	// last is the newest receipt whose packet mentions the slot.
	last uint64
	// base is what was last known to have arrived.
	base version
}

// item is a mention of a slot in a packet.
type item struct {
	slot  uint16
	enter bool
	texts bool
	v     version
	val   int // offsets in the flight's slabs
	text  int
}

// flight is a packet whose fate is not known.
type flight struct {
	r      uint64
	events uint64 // the last event that the client has once this arrives
	ownSet bool
	own    EntityID
	items  []item
	vals   []int32
	txts   []string
}

// maxFlights bounds the packets in flight; the engine settles them long before.
const maxFlights = 1024

// stream is a seat's view. Owned by one encoder worker.
type stream struct {
	f        *Feed
	layouts  []*layout // of the entity types
	typeBits uint
	seat     int32
	own1     int // index in frame.own

	// Since Join.
	ordered  bool
	life     uint32
	next     uint64 // the next receipt
	restores uint32
	// joinedAll and joinedOwn are the newest events at Join: those for everybody and those for the seat alone that count as before
	// it. They differ, for World.Join may greet its seat before the feed knows of it.
	joinedAll, joinedOwn uint64

	// Since the life began.
	up      bool // a packet of this life has arrived
	started bool // eventBase is set
	base    uint64
	cursor  uint64 // the last event that is known to have arrived or isn't the seat's
	ownSent EntityID
	ownBase EntityID
	ownOK   bool
	ownLast uint64 // newest receipt that mentions it
	ownFrom uint64 // since when it says the same
	held    int
	rot     int // slot where the next packet's entities begin
	recs    []rec
	tracked []uint64 // bitmap of the recs in use
	sv, bv  []int32  // sent and base columns, by slot·stride
	st, bt  []string // texts, by slot·tride
	flights []*flight
	idle    []*flight

	acct account
}

// account counts what was written since Account was last asked.
type account struct {
	header, events uint64 // bits
	headers, evs   uint64
	types          []typeAccount
}

type typeAccount struct {
	pub, own uint64 // writes of the columns for all, and of those for the owner
	texts    []uint64
	textBits []uint64
}

func newStream(f *Feed, seat feed.SeatID, d feed.Delivery) *stream {
	s := &stream{f: f, seat: int32(seat), own1: int(seat), next: 1, restores: f.restores}
	s.joinedAll, s.joinedOwn = f.log.next-1, f.log.shown
	s.cursor = s.joinedOwn
	s.ordered = d == feed.Ordered
	// Streams that share a client's decoder, one after the other, must differ in their lives: each has 256 of its own.
	s.life = f.joins << 8
	for _, t := range f.tables {
		s.layouts = append(s.layouts, t.layout)
	}
	s.typeBits = indexBits(len(f.tables))
	s.acct.types = make([]typeAccount, len(f.tables))
	for i, t := range f.tables {
		s.acct.types[i].texts, s.acct.types[i].textBits = make([]uint64, t.texts), make([]uint64, t.texts)
	}
	s.begin()
	return s
}

// begin starts a life: the client holds nothing.
func (s *stream) begin() {
	s.life++
	s.up, s.started = false, false
	s.ownSent, s.ownBase, s.ownOK, s.ownLast, s.ownFrom = 0, 0, true, 0, 0
	s.held, s.rot = 0, 0
	clear(s.recs)
	clear(s.tracked)
	clear(s.st)
	clear(s.bt)
	for _, fl := range s.flights {
		s.recycle(fl)
	}
	clear(s.flights)
	s.flights = s.flights[:0]
}

func (s *stream) recycle(fl *flight) {
	clear(fl.txts)
	fl.items, fl.vals, fl.txts = fl.items[:0], fl.vals[:0], fl.txts[:0]
	s.idle = append(s.idle, fl)
}

// Resume implements feed.Stream. A cursor of 0 is a client that has read no packet of this feed; events that an earlier page of
// the seat has had are not repeated to it.
func (s *stream) Resume(cursor uint64, d feed.Delivery) {
	if cursor > 0 {
		s.cursor = max(cursor, s.joinedOwn)
	}
	s.ordered = d == feed.Ordered
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
	if n := len(fr.ids); n > len(s.recs) {
		s.recs = append(s.recs, make([]rec, n-len(s.recs))...)
		s.sv = append(s.sv, make([]int32, n*s.f.stride-len(s.sv))...)
		s.bv = append(s.bv, make([]int32, n*s.f.stride-len(s.bv))...)
		s.st = append(s.st, make([]string, n*s.f.tride-len(s.st))...)
		s.bt = append(s.bt, make([]string, n*s.f.tride-len(s.bt))...)
		s.tracked = append(s.tracked, make([]uint64, len(fr.live)-len(s.tracked))...)
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
	if s.own1 < len(fr.own) {
		return fr.own[s.own1]
	}
	return 0
}

// wants reports whether the seat gets event id.
func (s *stream) wants(e *event, id uint64) bool {
	switch e.seat {
	case everybody:
		return id > s.joinedAll
	case s.seat:
		return id > s.joinedOwn
	}
	return false
}

// eventsDue moves the cursor over events that are not the seat's and reports whether it came to one that is.
func (s *stream) eventsDue(fr *frame) bool {
	if s.cursor >= fr.newest {
		return false
	}
	c := chunkOf(fr, s.cursor+1)
	for ; s.cursor < fr.newest; s.cursor++ {
		id := s.cursor + 1
		if c+1 < len(fr.chunks) && fr.chunks[c+1].first == id {
			c++
		}
		if s.wants(fr.chunks[c].at(id), id) {
			return true
		}
	}
	return false
}

// chunkOf returns the index of the chunk that holds id.
func chunkOf(fr *frame, id uint64) int {
	i, found := slices.BinarySearchFunc(fr.chunks, id, func(c *chunk, id uint64) int {
		switch {
		case c.first < id:
			return -1
		case c.first > id:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	return i
}

// seen is an entity that is due, against what the client holds.
type seen struct {
	v     version
	y     *layout
	row   []int32  // the columns that the seat may see
	texts []string // the texts that it may see
	fresh bool     // not the entity that was sent last in this slot
	same  bool     // the columns are those that were sent last
	tsame bool
}

// look compares slot i of the frame with its rec. It fills e in place: this is the innermost loop of a seat, and a seat looks at
// every entity for every packet.
func (s *stream) look(fr *frame, i int, own EntityID, e *seen) bool {
	rc := &s.recs[i]
	id, typ := fr.ids[i], fr.typ[i]
	y := s.layouts[typ]
	cols, texts, mine := y.pub, y.tpub, false
	if y.owned && id == own {
		cols, texts, mine = y.cols, y.texts, true
	}
	off := int(fr.off[i])
	row := fr.vals[off : off+cols]
	if rc.sent.id == id && rc.sent.held && rc.sent.owner == mine {
		e.fresh, e.same, e.tsame = false, true, true
		sent := s.sv[i*s.f.stride:][:len(row)]
		for k, v := range row {
			if v != sent[k] {
				e.same = false
				break
			}
		}
		if texts > 0 {
			st := s.st[i*s.f.tride:][:texts]
			for k, t := range fr.texts[fr.toff[i]:][:texts] {
				if t != st[k] {
					e.tsame = false
					break
				}
			}
		}
		if e.same && e.tsame && rc.ok && rc.textOK {
			return false
		}
	} else {
		e.fresh, e.same, e.tsame = !rc.sent.held || rc.sent.id != id, false, false
	}
	e.v = version{id: id, typ: typ, held: true, owner: mine}
	e.y, e.row = y, row
	e.texts = fr.texts[fr.toff[i]:][:texts]
	return true
}

// Append implements feed.Stream.
func (s *stream) Append(dst []byte, f feed.Frame, limit int) ([]byte, feed.Written) {
	fr := f.(*frame)
	s.prepare(fr)
	if len(s.flights) >= maxFlights {
		s.Lost(feed.Receipt(s.flights[0].r))
	}
	p := packet{s: s, fr: fr, r: s.next, lim: limit*8 - 3, own: s.ownID(fr)} // 3: the ends of the lists
	p.out.Keyframe = !s.up
	if n := len(s.idle); n > 0 {
		p.fl, s.idle = s.idle[n-1], s.idle[:n-1]
	} else {
		p.fl = new(flight)
	}
	p.w.Reset(dst)
	p.header()
	if !p.full {
		p.events()
		p.w.Bool(false)
		p.leaves()
		p.w.Bool(false)
		p.entities()
		p.w.Bool(false)
	}
	p.out.Held = s.held
	if !p.any {
		s.recycle(p.fl)
		return dst, feed.Written{More: p.out.More, Held: s.held}
	}
	p.fl.r, p.fl.events = p.r, p.lastEvent
	p.out.Receipt = feed.Receipt(p.r)
	s.flights = append(s.flights, p.fl)
	s.next++
	whole := (p.w.BitLen() + 7) / 8 * 8
	s.acct.header += uint64(whole - p.body)
	s.acct.headers++
	return p.w.Finish(), p.out
}

// packet is one Append at work.
type packet struct {
	s   *stream
	fr  *frame
	fl  *flight
	w   wire.Writer
	out feed.Written
	r   uint64
	lim int // in bits
	own EntityID

	any       bool // something is written that is worth sending
	full      bool // not even the header fits
	body      int  // bits of fields, texts and events, which are accounted to these
	lastEvent uint64
	prev      int // slot of the last mention
}

func (p *packet) header() {
	s := p.s
	p.w.Bool(!s.up)
	if !s.up {
		p.w.Bits(s.life, 32)
		p.w.Uvarint(s.base)
		p.any = true
	}
	changed := p.own != s.ownSent || !s.ownOK
	p.w.Bool(changed)
	if changed {
		p.w.Bits(uint32(p.own), 32)
		p.any = true
	}
	if p.w.BitLen() > p.lim {
		p.full, p.any, p.out.More = true, false, true
		return
	}
	if changed {
		if p.own != s.ownSent {
			s.ownSent, s.ownFrom, s.ownOK = p.own, p.r, false
		}
		s.ownLast = p.r
		p.fl.ownSet, p.fl.own = true, p.own
	} else {
		p.fl.ownSet = false
	}
}

// events writes from the first that is not known to have arrived. They are repeated from there in each packet, so a packet that
// arrives never leaves a gap, and the client skips what it has had.
func (p *packet) events() {
	s, fr, w := p.s, p.fr, &p.w
	due := s.eventsDue(fr)
	if p.lastEvent = s.cursor; !due {
		return
	}
	// A burst of events must not stop all motion: a quarter stays for entities.
	lim := p.lim
	if fr.n > 0 {
		lim -= lim / 4
	}
	types := indexBits(len(s.f.events))
	first, last := w.BitLen(), uint64(0)
	c := chunkOf(fr, s.cursor+1)
	for id := s.cursor + 1; id <= fr.newest; id++ {
		if c+1 < len(fr.chunks) && fr.chunks[c+1].first == id {
			c++
		}
		ch := fr.chunks[c]
		e := ch.at(id)
		if !s.wants(e, id) {
			p.lastEvent = id
			continue
		}
		m := w.Mark()
		y := s.f.events[e.typ].layout
		w.Bool(true)
		w.Uvarint(id - last)
		w.Uvarint(uint64(uint32(fr.tick - e.tick)))
		w.Bits(uint32(e.typ), types)
		w.Columns(ch.vals[e.val:][:y.cols], y.min, y.bits)
		putTexts(w, y, ch.texts[e.text:][:y.texts])
		if n := w.BitLen(); n > lim && (p.out.Events > 0 || n > p.lim) {
			w.Rewind(m)
			p.out.More = true
			break
		}
		last, p.lastEvent = id, id
		p.out.Events++
		p.any = true
	}
	n := w.BitLen() - first
	p.body += n
	s.acct.events += uint64(n)
	s.acct.evs += uint64(p.out.Events)
}

func putTexts(w *wire.Writer, y *layout, texts []string) {
	for i, t := range texts {
		w.Bits(uint32(len(t)), uint(y.tbits[i]))
		w.String(t)
	}
}

func (p *packet) leaves() {
	s, w := p.s, &p.w
	p.prev = 0
	for k, word := range s.tracked {
		if k < len(p.fr.live) {
			word &^= p.fr.live[k]
		}
		for ; word != 0; word &= word - 1 {
			i := k*64 + bits.TrailingZeros64(word)
			rc := &s.recs[i]
			m := w.Mark()
			w.Bool(true)
			w.Uvarint(uint64(i-p.prev) & (slotWrap - 1))
			if w.BitLen() > p.lim {
				w.Rewind(m)
				p.out.More = true
				return
			}
			p.prev, p.any = i, true
			if rc.sent.held {
				rc.sent, rc.ok, rc.since, rc.known = version{}, false, p.r, false
				s.held--
			}
			rc.last = p.r
			p.fl.items = append(p.fl.items, item{slot: uint16(i)})
		}
	}
}

func (p *packet) entities() {
	s, live := p.s, p.fr.live
	p.prev = 0
	mine := -1
	var e seen
	if i := p.own.slot(); p.own != 0 && live[i/64]>>(i%64)&1 == 1 {
		mine = i
		if s.look(p.fr, i, p.own, &e) && !p.entity(i, &e) {
			p.out.More = true
		}
	}
	if s.rot >= len(live)*64 {
		s.rot = 0
	}
	// Entities that don't fit come first next time. A few more are tried after one that did not fit, since a small one may; if the
	// very first is too large for what events leave, the turn passes on all the same.
	const tries = 4
	tried, failed, rot := 0, 0, s.rot
	for k := 0; k <= len(live); k++ {
		wi := s.rot/64 + k
		if wi >= len(live) {
			wi -= len(live)
		}
		word := live[wi]
		if k == 0 {
			word &= ^uint64(0) << (s.rot % 64)
		} else if k == len(live) {
			word &= 1<<(s.rot%64) - 1
		}
		for ; word != 0; word &= word - 1 {
			i := wi*64 + bits.TrailingZeros64(word)
			if i == mine {
				continue
			}
			if !s.look(p.fr, i, p.own, &e) {
				continue
			}
			tried++
			if p.entity(i, &e) {
				continue
			}
			p.out.More = true
			if failed++; failed == 1 && tried > 1 || failed == 2 && rot == s.rot {
				rot = i
			}
			if failed == tries {
				s.rot = rot
				return
			}
		}
	}
	s.rot = rot
}

// entity writes slot i and reports whether it fitted.
func (p *packet) entity(i int, e *seen) bool {
	s, w, y, rc := p.s, &p.w, e.y, &p.s.recs[i]
	enter := e.fresh || !rc.known
	withTexts := y.texts > 0 && (enter || !e.tsame || !rc.textOK)
	m := w.Mark()
	if gap := uint32(i-p.prev) & (slotWrap - 1); gap < 0x80 && !enter {
		w.Bits(gap<<1|1, 10) // the common case of the following in one go
	} else {
		w.Bool(true)
		w.Uvarint(uint64(gap))
		w.Bool(enter)
	}
	if enter {
		w.Bits(uint32(e.v.id.gen()), 16)
		w.Bits(uint32(e.v.typ), s.typeBits)
	}
	if y.owned {
		w.Bool(e.v.owner)
	}
	start := w.BitLen()
	w.Columns(e.row, y.min, y.bits)
	body := w.BitLen() - start
	if y.texts > 0 {
		if !enter {
			w.Bool(withTexts)
		}
		if withTexts {
			start = w.BitLen()
			putTexts(w, y, e.texts)
			body += w.BitLen() - start
		}
	}
	if w.BitLen() > p.lim {
		w.Rewind(m)
		return false
	}
	p.prev, p.any = i, true
	p.body += body
	a := &s.acct.types[e.v.typ]
	a.pub++
	if e.v.owner {
		a.own++
	}

	if e.fresh {
		rc.known, rc.enterSince = false, p.r
		if !rc.sent.held {
			s.held++
			s.tracked[i/64] |= 1 << (i % 64)
		}
	}
	if !e.same {
		rc.ok, rc.since = false, p.r
		sv := s.sv[i*s.f.stride:][:y.cols]
		if n := copy(sv, e.row); n < len(sv) {
			clear(sv[n:])
		}
	}
	it := item{slot: uint16(i), enter: enter, texts: withTexts, v: e.v, val: len(p.fl.vals), text: len(p.fl.txts)}
	p.fl.vals = append(p.fl.vals, e.row...)
	if withTexts {
		for k, t := range e.texts {
			a.texts[k]++
			a.textBits[k] += uint64(y.tbits[k]) + 8*uint64(len(t))
		}
		p.fl.txts = append(p.fl.txts, e.texts...)
		if !e.tsame {
			rc.textOK, rc.textSince = false, p.r
			st := s.st[i*s.f.tride:][:y.texts]
			clear(st[copy(st, e.texts):])
		}
	} else if y.texts == 0 {
		rc.textOK = true
	}
	rc.sent, rc.last = e.v, p.r
	p.fl.items = append(p.fl.items, it)
	return true
}

// settle takes flight r out of the queue; nil if it is void.
func (s *stream) settle(r uint64) *flight {
	for len(s.flights) > 0 && s.flights[0].r <= r {
		fl := s.flights[0]
		copy(s.flights, s.flights[1:])
		s.flights[len(s.flights)-1] = nil
		s.flights = s.flights[:len(s.flights)-1]
		if fl.r == r {
			return fl
		}
		s.lost(fl) // passed over
	}
	return nil
}

// Delivered implements feed.Stream.
func (s *stream) Delivered(r feed.Receipt) {
	fl := s.settle(uint64(r))
	if fl == nil {
		return
	}
	s.up = true
	s.cursor = max(s.cursor, fl.events)
	if fl.ownSet {
		s.ownBase = fl.own
		s.ownOK = s.ownOK || fl.r >= s.ownFrom
	}
	for k := range fl.items {
		it := &fl.items[k]
		i := int(it.slot)
		rc := &s.recs[i]
		rc.base = it.v
		rc.ok = rc.ok || fl.r >= rc.since
		if !it.v.held {
			if rc.ok && !rc.sent.held {
				s.untrack(i)
			}
			continue
		}
		y := s.layouts[it.v.typ]
		cols, texts := y.pub, y.tpub
		if it.v.owner {
			cols, texts = y.cols, y.texts
		}
		bv := s.bv[i*s.f.stride:][:y.cols]
		if n := copy(bv, fl.vals[it.val:][:cols]); n < len(bv) {
			clear(bv[n:])
		}
		rc.known = rc.known || it.enter && fl.r >= rc.enterSince
		if it.texts {
			bt := s.bt[i*s.f.tride:][:y.texts]
			clear(bt[copy(bt, fl.txts[it.text:][:texts]):])
			rc.textOK = rc.textOK || fl.r >= rc.textSince
		}
	}
	s.recycle(fl)
}

// Lost implements feed.Stream.
func (s *stream) Lost(r feed.Receipt) {
	if fl := s.settle(uint64(r)); fl != nil {
		s.lost(fl)
	}
}

// lost goes on as if fl had never left. On an unordered link it may have arrived for all we know, so nothing that it said is taken
// back: it stays due, because it is not known to be there. On an ordered link the client holds what it held before.
func (s *stream) lost(fl *flight) {
	defer s.recycle(fl)
	if !s.ordered {
		return
	}
	if fl.ownSet && s.ownLast == fl.r {
		s.ownSent, s.ownOK = s.ownBase, true
	}
	for k := range fl.items {
		i := int(fl.items[k].slot)
		rc := &s.recs[i]
		if rc.last != fl.r {
			continue // a later packet says more
		}
		if rc.sent.held {
			s.held--
		}
		if !rc.base.held {
			s.untrack(i)
			continue
		}
		s.held++
		rc.sent, rc.ok, rc.known, rc.textOK = rc.base, true, true, true
		copy(s.sv[i*s.f.stride:][:s.f.stride], s.bv[i*s.f.stride:])
		copy(s.st[i*s.f.tride:][:s.f.tride], s.bt[i*s.f.tride:])
	}
}

func (s *stream) untrack(i int) {
	s.recs[i] = rec{}
	s.tracked[i/64] &^= 1 << (i % 64)
	clear(s.st[i*s.f.tride:][:s.f.tride])
	clear(s.bt[i*s.f.tride:][:s.f.tride])
}

// Dirty implements feed.Stream.
func (s *stream) Dirty(f feed.Frame) bool {
	fr := f.(*frame)
	s.prepare(fr)
	own := s.ownID(fr)
	if !s.up || own != s.ownSent || !s.ownOK || s.eventsDue(fr) {
		return true
	}
	for k, word := range s.tracked {
		if k >= len(fr.live) || word&^fr.live[k] != 0 {
			return true
		}
	}
	var e seen
	for k, word := range fr.live {
		for ; word != 0; word &= word - 1 {
			if s.look(fr, k*64+bits.TrailingZeros64(word), own, &e) {
				return true
			}
		}
	}
	return false
}

// Hash implements feed.Stream.
func (s *stream) Hash() uint32 {
	h := wire.NewHash.Add(int32(s.ownSent))
	for i := range s.recs {
		if v := s.recs[i].sent; v.held {
			y := s.layouts[v.typ]
			h = hashEntity(h, v.id, v.typ, s.sv[i*s.f.stride:][:y.cols], s.st[i*s.f.tride:][:y.texts])
		}
	}
	return uint32(h)
}

// hashEntity adds an entity to a hash over all, taken in the order of slots.
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

// Account implements feed.Stream. Rows are "type.field", "events", and "header" for all that says which and where, with the bits
// that fill the last byte.
func (s *stream) Account(a *feed.Account) {
	a.Add("header", s.acct.header, s.acct.headers)
	a.Add("events", s.acct.events, s.acct.evs)
	for i, t := range s.acct.types {
		y := s.layouts[i]
		for k := range y.cols {
			n := t.pub
			if k >= y.pub {
				n = t.own
			}
			a.Add(y.labels[k], n*uint64(y.bits[k]), n)
		}
		for k, n := range t.texts {
			a.Add(y.labels[y.cols+k], t.textBits[k], n)
		}
		clear(t.texts)
		clear(t.textBits)
		s.acct.types[i] = typeAccount{texts: t.texts, textBits: t.textBits}
	}
	s.acct = account{types: s.acct.types}
}

// Close implements feed.Stream.
func (s *stream) Close() { *s = stream{f: s.f, seat: s.seat, own1: s.own1} }
