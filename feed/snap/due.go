package snap

import (
	"slices"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/wire"
)

// retry is after how many packets an enter that nothing is heard of is sent again.
const retry = 8

// expect returns what both ends expect of column i, n ticks after the baseline, in an entity of which row is known as far as
// the order of extrapolation has come.
func (y *layout) expect(i int, base, row []int32, n int64, ring uint8) int32 {
	c := &y.col[i]
	v := base[i]
	if a := c.ahead; a != nil && n > 0 {
		if a.Angle == nil {
			v += wire.Ahead(int64(base[a.By])<<4, int64(row[a.By])<<4, n, a.Mul, a.Shift)
		} else {
			v += wire.Ahead(wire.Body(a.Side, base[*a.Angle], base[a.By], base[a.By2]),
				wire.Body(a.Side, row[*a.Angle], row[a.By], row[a.By2]), n, a.Mul, a.Shift)
		}
		if c.angle {
			v &= wire.AngleSteps - 1
		}
	}
	return c.round(v, ring)
}

// round rounds a value of the column for the ring.
func (c *column) round(v int32, ring uint8) int32 {
	s := uint(c.lod[ring])
	switch {
	case s == 0:
		return v
	case c.angle:
		return wire.RoundAngle(v, s)
	}
	return wire.Round(v, s, c.min, c.max)
}

// after is how many ticks t is after a version, as far as extrapolation goes.
func (v *version) after(t feed.Tick) int64 { return int64(min(t-v.tick, wire.MaxAhead)) }

// extrapolate fills dst with what a version becomes by itself.
func (y *layout) extrapolate(dst, row []int32, v *version, t feed.Tick) {
	copy(dst, row)
	if v.still {
		return
	}
	n := v.after(t)
	for _, i := range y.pose {
		if c := &y.col[i]; c.ahead != nil && (v.owner || !c.owner) {
			dst[i] = y.expect(int(i), row, dst, n, v.ring)
		}
	}
}

func (y *layout) isStill(row []int32) bool {
	for _, i := range y.rates {
		if row[i] != 0 {
			return false
		}
	}
	return true
}

// look appends the columns of an entity as the seat sees them now to the flight and returns them.
func (s *stream) look(fr *frame, fl *flight, y *layout, place int, ring uint8, mine bool) []int32 {
	k := len(fl.vals)
	fl.vals = more(fl.vals, y.cols)
	row := fl.vals[k:][:y.cols]
	copy(row, fr.vals[fr.off[place]:][:y.cols])
	if ring > 0 && y.coarse {
		for _, i := range y.pose {
			row[i] = y.col[i].round(row[i], ring)
		}
	}
	if !mine {
		clear(row[y.pub:]) // last, for 0 may be out of a column's range
	}
	return row
}

// same reports whether a version, by itself, has become row.
func (s *stream) same(y *layout, v *version, base, row []int32, t feed.Tick, ring uint8, mine, exact bool) bool {
	if v.ring != ring || v.owner != mine {
		return false
	}
	if v.still && slices.Equal(base, row) {
		return true
	}
	for _, i := range y.what {
		if base[i] != row[i] {
			return false
		}
	}
	n := v.after(t)
	exp := s.exp[:len(row)]
	for _, i := range y.pose {
		c := &y.col[i]
		if c.owner && !mine {
			continue // 0 in both
		}
		x := base[i]
		if c.ahead != nil && !v.still {
			x = y.expect(int(i), base, exp, n, ring)
		}
		exp[i] = x
		if x == row[i] {
			continue
		}
		d := int64(row[i]) - int64(x)
		if c.angle {
			d = int64(wire.AngleDiff(row[i], x))
		}
		if tol := int64(c.tol); exact || d > tol || d < -tol {
			return false
		}
	}
	return true
}

// settled reports whether the entity is as the client has it, whichever packets have reached it. Of one that has only been sent it
// says whether the client will have it so if the packets arrive.
func (s *stream) settled(i int, rc *rec, y *layout, row []int32, t feed.Tick, ring uint8, mine, exact bool) bool {
	if rc.lost > rc.base.r || rc.base.r != 0 && !s.same(y, &rc.base, s.bv[i*s.f.stride:][:y.cols], row, t, ring, mine, exact) {
		return false
	}
	for m := rc.last; m.r > rc.base.r; {
		fl, it := s.at(m)
		if it == nil {
			break
		}
		if !s.same(y, &it.v, fl.row(it, y), row, t, ring, mine, exact) {
			return false
		}
		m = it.prev
	}
	return true
}

// changed reports whether a column that is no pose is not as the client has it, whichever packets have reached it.
func (s *stream) changed(i int, rc *rec, y *layout, now []int32, mine bool) bool {
	differs := func(row []int32) bool {
		for _, k := range y.what {
			if row[k] != now[k] && (mine || !y.col[k].owner) {
				return true
			}
		}
		return false
	}
	if len(y.what) == 0 {
		return false
	}
	// What was given up may have arrived.
	if rc.lost > rc.base.r || rc.base.r != 0 && (rc.base.owner != mine || differs(s.bv[i*s.f.stride:][:y.cols])) {
		return true
	}
	for m := rc.last; m.r > rc.base.r; {
		fl, it := s.at(m)
		if it == nil {
			break
		}
		if it.v.owner != mine || differs(fl.row(it, y)) {
			return true
		}
		m = it.prev
	}
	return false
}

// due decides whether the packet fl tells slot i, and if so adds the item.
func (s *stream) due(fr *frame, fl *flight, i int) bool {
	rc := &s.recs[i]
	y := s.layouts[rc.typ]
	place := rc.id.slot()
	own := rc.id == s.own
	mine := own && y.owned
	enter := rc.base.r == 0
	// An enter on its way is repeated only if it is no longer right.
	waits := enter && rc.enter != 0 && s.newest < rc.enter && s.stamp-rc.entered < retry
	ring := rc.ring
	exact := own || ring == 0 && s.f.ringed()
	texts := false
	if y.texts > 0 {
		texts = !enter && !rc.textOK || waits && rc.textSince > rc.first || !s.sameTexts(fr, i, place, y, mine)
	}
	if (!enter || waits) && !texts && !own && rc.owed == 0 && !s.onTime(fr, place, ring) {
		if !s.changed(i, rc, y, fr.vals[fr.off[place]:][:y.cols], mine) {
			return false
		}
	}
	at := len(fl.vals)
	row := s.look(fr, fl, y, place, ring, mine)
	if whole := s.f.tune.Whole; whole {
		enter, texts = true, y.texts > 0
	} else if (!enter || waits) && !texts && s.settled(i, rc, y, row, fr.tick, ring, mine, exact) {
		fl.vals = fl.vals[:at]
		return false
	}
	texts = texts || enter && y.texts > 0
	it := item{slot: uint16(i), enter: enter, texts: texts, id: rc.id, typ: rc.typ, val: int32(at), text: int32(len(fl.txts)),
		v: version{r: fl.r, tick: fr.tick, ring: ring, owner: mine, still: y.isStill(row)}}
	if !enter {
		base := s.bv[i*s.f.stride:][:y.cols]
		for _, k := range y.what {
			if row[k] != base[k] {
				it.what = true
				break
			}
		}
	}
	if texts {
		n := y.tpub
		if mine {
			n = y.texts
		}
		fl.txts = append(fl.txts, fr.texts[fr.toff[place]:][:n]...)
		for ; n < y.texts; n++ {
			fl.txts = append(fl.txts, "")
		}
	}
	fl.items = append(fl.items, it)
	return true
}

// onTime reports whether what moves in the ring has come due since the last packet: a seat that is not served each time must not miss
// its turns by always coming between them.
func (s *stream) onTime(fr *frame, place int, ring uint8) bool {
	if !s.f.ringed() || s.f.opt.Hz == NoBeat {
		return true
	}
	every := uint32(s.f.rings[ring].Every)
	return every <= 1 || (fr.count+uint32(place))%every < fr.count-s.looked
}

func (s *stream) sameTexts(fr *frame, i, place int, y *layout, mine bool) bool {
	st := s.st[i*s.f.tride:][:y.texts]
	for k, t := range fr.texts[fr.toff[place]:][:y.texts] {
		if k >= y.tpub && !mine {
			t = ""
		}
		if st[k] != t {
			return false
		}
	}
	return true
}

// Dirty implements feed.Stream.
func (s *stream) Dirty(f feed.Frame) bool {
	fr := f.(*frame)
	s.prepare(fr)
	s.own = s.ownID(fr)
	if !s.up || s.own != s.ownSent || !s.ownOK || s.eventsDue(fr) {
		return true
	}
	s.visible(fr)
	if s.leaving > 0 {
		return true
	}
	fl := s.f.flights.get()
	defer s.f.flights.put(fl)
	for i := range s.recs {
		if rc := &s.recs[i]; rc.id != 0 && s.due(fr, fl, i) {
			return true
		}
	}
	return false
}
