package snap

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/wire"
)

// The section body is drawn in docs/protocol.md; the decoders are in decoder.go and web/src/snap.ts.

// packet is one Append at work.
type packet struct {
	s      *stream
	fr     *frame
	fl     *flight
	w      wire.Writer
	out    feed.Written
	tracer feed.Tracer // nil: nobody asked
	lim    int         // in bits
	k      uint

	any  bool // something is written that is worth sending
	full bool // no room for what comes next
	body int  // bits of fields, texts and events, which are accounted to these
}

// Append implements feed.Stream.
func (s *stream) Append(dst []byte, f feed.Frame, limit int) ([]byte, feed.Written) {
	fr := f.(*frame)
	if old := s.flying[s.next%flights]; old != nil {
		s.Lost(feed.Receipt(old.r)) // which may begin a life
	}
	s.prepare(fr)
	s.own = s.ownID(fr)
	s.visible(fr)
	p := packet{s: s, fr: fr, tracer: s.f.tune.Trace, fl: s.f.flights.get(), lim: limit*8 - 3} // 3: the ends of the lists
	p.fl.reset(s.next)
	p.fl.looked = s.looked
	p.out.More = s.crowded
	p.out.Keyframe = !s.up
	p.w.Reset(dst)
	p.header()
	if !p.full {
		p.events()
		p.w.Bool(false)
		p.k = s.gapCode()
		p.w.Bits(uint32(p.k), 3)
		p.leaves()
		p.w.Bool(false)
		p.entities()
		p.w.Bool(false)
	}
	p.out.Held = s.held
	s.wrote = nil
	s.looked = fr.count
	fl := p.fl
	if !p.any {
		s.f.flights.put(fl)
		return dst, feed.Written{More: p.out.More, Held: s.held}
	}
	p.out.Receipt = feed.Receipt(fl.r)
	s.flying[fl.r%flights], s.wrote = fl, fl
	s.next++
	whole := (p.w.BitLen() + 7) / 8 * 8
	s.acct[tallyHeader].add(whole - p.body)
	return p.w.Finish(), p.out
}

// gapCode chooses the code for the gaps between slots by how many there were in the last packet.
func (s *stream) gapCode() uint {
	return min(7, indexBits((s.held+s.updates)/(s.updates+1)))
}

func (p *packet) header() {
	s, w := p.s, &p.w
	w.Bool(s.acked)
	w.Bool(!s.up)
	if !s.up {
		w.Bits(s.life, 32)
		w.Uvarint(s.base)
		p.any = true
	}
	changed := s.own != s.ownSent || !s.ownOK
	w.Bool(changed)
	if changed {
		w.Bits(uint32(s.own), 32)
		p.any = true
	}
	if w.BitLen()+5 > p.lim {
		p.full, p.any, p.out.More = true, false, true
		return
	}
	if p.fl.ownSet = changed; changed {
		if s.own != s.ownSent {
			s.ownSent, s.ownFrom, s.ownOK = s.own, p.fl.r, false
		}
		s.ownLast = p.fl.r
		p.fl.own = s.own
	}
}

// wants reports whether the seat gets event id of a chunk.
func (s *stream) wants(c *chunk, id uint64) bool {
	switch c.at(id).seat {
	case everybody:
		return id > s.joinedAll && (s.f.tune.NoRings || c.sees(id, int(s.seat)))
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
		if s.wants(fr.chunks[c], id) {
			return true
		}
	}
	return false
}

// chunkOf returns the index of the chunk that holds id.
func chunkOf(fr *frame, id uint64) int {
	i, found := slices.BinarySearchFunc(fr.chunks, id, func(c *chunk, id uint64) int { return cmp.Compare(c.first, id) })
	if !found {
		i--
	}
	return i
}

// events writes from the first that is not known to have arrived. They are repeated from there in each packet, so a packet that
// arrives never leaves a gap, and the client skips what it has had.
func (p *packet) events() {
	s, fr, w := p.s, p.fr, &p.w
	due := s.eventsDue(fr)
	if p.fl.events = s.cursor; !due {
		return
	}
	if s.f.opt.EventEvery > 1 && s.evFrame != 0 && fr.count-s.evFrame < uint32(s.f.opt.EventEvery) {
		p.out.More = true
		return
	}
	// A burst of events must not stop all motion: a quarter stays for entities.
	lim := p.lim
	if fr.n > 0 {
		lim -= lim / 4
	}
	first, last := w.BitLen(), uint64(0)
	c := chunkOf(fr, s.cursor+1)
	for id := s.cursor + 1; id <= fr.newest; id++ {
		if c+1 < len(fr.chunks) && fr.chunks[c+1].first == id {
			c++
		}
		ch := fr.chunks[c]
		if !s.wants(ch, id) {
			p.fl.events = id
			continue
		}
		e := ch.at(id)
		m := w.Mark()
		y := s.f.log.layouts[e.typ]
		w.Bool(true)
		if last == 0 {
			w.Uvarint(id)
		} else {
			w.EG(uint32(min(id-last-1, math.MaxUint32)), 0)
		}
		w.EG(uint32(fr.tick-e.tick), 2)
		w.Bits(uint32(e.typ), s.evBits)
		w.Columns(ch.vals[e.val:][:y.cols], y.min, y.bits)
		for k, t := range ch.texts[e.text:][:y.texts] {
			w.Bool(true)
			putText(w, y, k, t)
		}
		if n := w.BitLen() + 5; n > lim && (p.out.Events > 0 || n > p.lim) {
			w.Rewind(m)
			if p.out.Events == 0 && s.stuck(id) {
				p.fl.events = id // it never fits: the others must not wait for it
				p.any = true
				s.f.large.Add(1)
				continue
			}
			p.out.More = true
			break
		}
		last, p.fl.events = id, id
		p.out.Events++
		p.any = true
	}
	if p.out.Events > 0 {
		s.evFrame = fr.count
	}
	n := w.BitLen() - first
	p.body += n
	s.acct[tallyEvents].bits += uint64(n)
	s.acct[tallyEvents].n += uint64(p.out.Events)
}

// patience is how many packets an event that is alone too large for each of them is tried in.
const patience = 32

// stuck reports whether event id has been too large for so many packets that it never will fit.
func (s *stream) stuck(id uint64) bool {
	if s.stuckAt != id {
		s.stuckAt, s.stuckFor = id, 0
	}
	s.stuckFor++
	return s.stuckFor > patience
}

func putText(w *wire.Writer, y *layout, k int, t string) {
	w.Bits(uint32(len(t)), uint(y.tbits[k]))
	w.String(t)
}

// leaves tells what is gone or out of sight. What is not told keeps everything but the own entity waiting, for an entity may come
// back in another slot.
func (p *packet) leaves() {
	s, w := p.s, &p.w
	if s.leaving == 0 {
		return
	}
	prev, lim := -1, p.lim-(p.lim-w.BitLen())/4
	for k, word := range s.used {
		for ; word != 0; word &= word - 1 {
			i := k*64 + bits.TrailingZeros64(word)
			rc := &s.recs[i]
			if !rc.leaving {
				continue
			}
			m := w.Mark()
			w.Bool(true)
			w.EG(uint32(i-prev-1), p.k)
			w.Bool(rc.gone)
			if w.BitLen() > lim {
				w.Rewind(m)
				p.out.More, p.full = true, true
				return
			}
			prev, p.any, rc.left = i, true, true
			p.fl.items = append(p.fl.items, item{slot: uint16(i), leave: true, id: rc.id})
		}
	}
}

func (p *packet) entities() {
	s, fl := p.s, p.fl
	first := len(fl.items)
	start, body := p.w.Mark(), p.body
	fl.saved = append(fl.saved[:0], s.acct...)
	prev, enters := -1, 0
	for k, word := range s.used {
		for ; word != 0; word &= word - 1 {
			i := k*64 + bits.TrailingZeros64(word)
			rc := &s.recs[i]
			if rc.leaving || p.full && (rc.id != s.own || rc.base.r == 0) {
				continue
			}
			if rc.base.r == 0 && rc.enter == 0 && enters > 2*p.lim && rc.id != s.own {
				p.out.More = true // too much has come into sight for one packet: the next looks at the rest
				continue
			}
			if !s.due(p.fr, fl, i) {
				continue
			}
			it := &fl.items[len(fl.items)-1]
			at := p.w.BitLen()
			rank := p.entity(it, prev)
			n := p.w.BitLen() - at
			switch {
			case n > p.lim:
				s.f.large.Add(1)
			case it.enter && rc.enter == 0:
				enters += n
			}
			fl.dues = append(fl.dues, due{bits: int32(n - p.gapBits(i, prev)), rank: rank})
			prev = i
		}
	}
	if p.w.BitLen() > p.lim {
		p.w.Rewind(start)
		p.body = body
		copy(s.acct, fl.saved)
		p.choose(first)
		fl = p.fl
	}
	s.updates = len(fl.items) - first
	for k := first; k < len(fl.items); k++ {
		p.commit(k)
	}
}

// gapBits is how long the gap is from one slot to another.
func (p *packet) gapBits(slot, prev int) int { return wire.CodeBits(uint32(slot-prev-1), uint8(p.k)) }

// choose writes again those items that matter most, and lets the others be owed. The flight is replaced by one that holds no more
// than the packet does.
func (p *packet) choose(first int) {
	s, all := p.s, p.fl
	s.order = s.order[:0]
	for k := range all.dues {
		d := &all.dues[k]
		rc := &s.recs[all.items[first+k].slot]
		rc.owed += d.rank
		if d.rank = rc.owed; rc.id == s.own {
			d.rank = math.MaxFloat32
		}
		s.order = append(s.order, int32(k))
	}
	slices.SortFunc(s.order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(all.dues[b].rank, all.dues[a].rank), cmp.Compare(a, b))
	})
	// First as many as would fit without gaps; then those that matter least make room for the gaps, which are longer the fewer there are.
	room := p.lim - p.w.BitLen()
	left, chosen := room, s.order[:0]
	for _, k := range s.order {
		if n := int(all.dues[k].bits); n <= left {
			left -= n
			chosen = append(chosen, k)
		} else {
			all.dues[k].rank = -1
		}
	}
	for over := 1; over > 0 && len(chosen) > 0; {
		over = -room
		prev := -1
		for k := range all.dues {
			if slot := int(all.items[first+k].slot); all.dues[k].rank >= 0 {
				over += int(all.dues[k].bits) + p.gapBits(slot, prev)
				prev = slot
			}
		}
		for most := over; most > 0 && len(chosen) > 0; {
			k := chosen[len(chosen)-1]
			chosen = chosen[:len(chosen)-1]
			most -= int(all.dues[k].bits) + 1
			all.dues[k].rank = -1
		}
	}
	p.fl = s.f.flights.get()
	p.fl.reset(all.r)
	p.fl.looked, p.fl.events, p.fl.ownSet, p.fl.own = all.looked, all.events, all.ownSet, all.own
	p.fl.items = append(p.fl.items, all.items[:first]...)
	prev := -1
	for k := range all.dues {
		it := all.items[first+k]
		if all.dues[k].rank < 0 {
			continue
		}
		y := s.layouts[it.typ]
		row, texts := all.row(&it, y), all.txts[it.text:]
		if it.val, it.text = int32(len(p.fl.vals)), int32(len(p.fl.txts)); it.texts {
			p.fl.txts = append(p.fl.txts, texts[:y.texts]...)
		}
		p.fl.vals = append(p.fl.vals, row...)
		p.entity(&it, prev)
		prev = int(it.slot)
		p.fl.items = append(p.fl.items, it)
	}
	s.f.flights.put(all)
	p.out.More = true
}

// entity writes an item and returns how much it matters: how wrong the client is without it, in powers of two, weighed by the ring.
func (p *packet) entity(it *item, prev int) (rank float32) {
	s, w := p.s, &p.w
	i := int(it.slot)
	rc := &s.recs[i]
	y := s.layouts[it.typ]
	row := p.fl.row(it, y)
	plain := !it.enter && !it.what && !it.texts && it.v.ring == rc.base.ring && it.v.owner == rc.base.owner
	w.Bool(true)
	w.EG(uint32(i-prev-1), p.k)
	w.Bool(!plain)
	if !plain {
		w.Bool(it.enter)
		turned := true
		if it.enter {
			w.Bits(uint32(it.id), 32)
			w.Bits(uint32(it.typ), s.typeBits)
		} else {
			turned = it.v.ring != rc.base.ring
			w.Bool(turned)
		}
		if turned {
			w.Bits(uint32(it.v.ring), 2)
		}
		if y.owned {
			w.Bool(it.v.owner)
		}
		if !it.enter && len(y.what) > 0 {
			w.Bool(it.what)
		}
		if !it.enter && y.texts > 0 {
			w.Bool(it.texts)
		}
	}
	at := w.BitLen()
	start := at
	acct := s.acct[s.tallyOf[it.typ]:][:len(y.labels)]
	ring := it.v.ring
	if it.enter {
		for _, k := range y.what {
			c := &y.col[k]
			if c.owner && !it.v.owner {
				continue
			}
			w.Bool(row[k] != c.def)
			if row[k] != c.def {
				w.Bits(uint32(row[k])-uint32(c.min), uint(c.bits))
			}
			at = acct[k].upTo(at, w.BitLen())
		}
		for _, k := range y.pose {
			if c := &y.col[k]; !c.owner || it.v.owner {
				w.Bits(uint32(row[k])-uint32(c.min), uint(c.bits))
				at = acct[k].upTo(at, w.BitLen())
			}
		}
		if rank = 16; rc.enter != 0 {
			rank = 2 // the others are not there at all
		}
	} else {
		base := s.bv[i*s.f.stride:][:y.cols]
		if it.what {
			for _, k := range y.what {
				if c := &y.col[k]; !c.owner || it.v.owner {
					if u := c.put(w, row[k], base[k], ring); p.tracer != nil {
						p.trace(y, k, ring, u)
					}
					at = acct[k].upTo(at, w.BitLen())
				}
			}
			rank = 12
		}
		n := rc.base.after(p.fr.tick)
		worst := uint32(0)
		for _, k := range y.pose {
			c := &y.col[k]
			if c.owner && !it.v.owner {
				continue
			}
			var x int32
			if c.ahead == nil && c.lod[ring] == 0 {
				x = base[k]
			} else {
				x = y.expect(int(k), base, row, n, ring)
			}
			u := c.put(w, row[k], x, ring)
			worst |= u
			if p.tracer != nil {
				p.trace(y, k, ring, u)
			}
			at = acct[k].upTo(at, w.BitLen())
		}
		rank += float32(1 + bits.Len32(worst))
	}
	if it.texts {
		n := y.tpub
		if it.v.owner {
			n = y.texts
		}
		for k, t := range p.fl.txts[it.text:][:n] {
			given := !it.enter || t != ""
			w.Bool(given)
			if given {
				putText(w, y, k, t)
			}
			at = acct[y.cols+k].upTo(at, w.BitLen())
		}
	}
	p.body += w.BitLen() - start
	return rank / float32(1+ring)
}

// trace tells who asked.
func (p *packet) trace(y *layout, k, ring uint8, u uint32) {
	if !y.col[k].flag {
		p.tracer.Residual(y.labels[k], int(ring), u)
	}
}

// put writes a column against what is expected of it and returns how far it is off, in steps.
func (c *column) put(w *wire.Writer, v, x int32, ring uint8) uint32 {
	if c.flag {
		differs := v != c.flagged(x)
		w.Bool(differs)
		if differs {
			return 1
		}
		return 0
	}
	d := v - x
	if c.angle {
		d = wire.AngleDiff(v, x)
	}
	u := wire.ZigZag32(d >> c.lod[ring])
	w.Code(u, c.codes[ring])
	return u
}

// flagged is a baseline of a column of one bit: an owner's that was not told before is 0, whatever its range.
func (c *column) flagged(x int32) int32 {
	if x == c.max {
		return x
	}
	return c.min
}

// commit notes that an item is in the packet.
func (p *packet) commit(k int) {
	s := p.s
	it := &p.fl.items[k]
	i := int(it.slot)
	rc := &s.recs[i]
	it.prev, rc.last = rc.last, mention{p.fl.r, int32(k)}
	p.any = true
	rc.owed = 0
	if it.enter {
		if rc.enter == 0 {
			s.held++
			rc.first = p.fl.r
		}
		rc.enter, rc.entered = p.fl.r, s.stamp
	}
	y := s.layouts[it.typ]
	if it.texts {
		st := s.st[i*s.f.tride:][:y.texts]
		if txts := p.fl.txts[it.text:][:y.texts]; rc.textSince == 0 || !slices.Equal(st, txts) {
			copy(st, txts)
			rc.textOK, rc.textSince = false, p.fl.r
		}
	}
}

// tally counts bits and writes.
type tally struct{ bits, n uint64 }

func (t *tally) add(bits int) {
	t.bits += uint64(bits)
	t.n++
}

// upTo adds what was written from bit at to bit end, and returns end.
func (t *tally) upTo(at, end int) int {
	t.bits += uint64(end - at)
	t.n++
	return end
}

// Places in stream.acct; the fields of the types follow from tallyFixed on, see stream.tallyOf.
const (
	tallyHeader = iota
	tallyEvents
	tallyFixed
)

// Account implements feed.Stream. Rows are "type.field", "events", and "header" for all that says which and where, with the bits
// that fill the last byte.
func (s *stream) Account(a *feed.Account) {
	if s.acct == nil {
		return
	}
	a.Add("header", s.acct[tallyHeader].bits, s.acct[tallyHeader].n)
	a.Add("events", s.acct[tallyEvents].bits, s.acct[tallyEvents].n)
	for i, y := range s.layouts {
		for k, label := range y.labels {
			t := s.acct[int(s.tallyOf[i])+k]
			a.Add(label, t.bits, t.n)
		}
	}
	clear(s.acct)
}
