package snap

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"

	"github.com/drumline-engine/drumline/wire"
)

// A state is the magic, the fingerprint of all Go types, the slots (count, where the search goes on, generation and tenant of each),
// the values in the order of slots, who owns what, what See and LookAt have set, the number of the last event, and a CRC-32 of all that.
const stateMagic = "SNP2"

// fingerprint tells the states of differently declared feeds apart.
func (f *Feed) fingerprint() uint32 {
	h := wire.NewHash
	for _, t := range f.tables {
		h = h.AddString(t.Name).AddString(t.codec.layout)
	}
	return uint32(h)
}

// AppendState appends everything to dst: entities with their server-only fields and exact floats, ids, ownership, what See and
// LookAt have set, and how far the events have got. Events that no packet has carried yet are not part of it. The same state gives the same bytes. It fails if Err
// does, or if a type's own MarshalBinary does.
func (f *Feed) AppendState(dst []byte) ([]byte, error) {
	if err := f.Err(); err != nil {
		return dst, err
	}
	start := len(dst)
	b := append(dst, stateMagic...)
	b = binary.LittleEndian.AppendUint32(b, f.fingerprint())
	b = binary.AppendUvarint(b, uint64(len(f.slots.info)))
	b = binary.AppendUvarint(b, uint64(f.slots.next))
	for _, s := range f.slots.info {
		b = append(binary.LittleEndian.AppendUint16(b, s.gen), s.typ)
	}
	var err error
	for w, word := range f.slots.used {
		for ; word != 0; word &= word - 1 {
			i := w*64 + bits.TrailingZeros64(word)
			t := f.tables[f.slots.info[i].typ-1]
			if b, err = t.codec.put(b, t.at(i)); err != nil {
				return dst, err
			}
		}
	}
	b = binary.AppendUvarint(b, uint64(len(f.own)))
	for _, id := range f.own {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	b = f.appendEyes(b)
	b = binary.AppendUvarint(b, f.log.next-1)
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:])), nil
}

// appendEyes appends what See and LookAt have set, by seat. Where a seat looks because of its entity is not a state of its own.
func (f *Feed) appendEyes(b []byte) []byte {
	n := 0
	for _, e := range f.eyes {
		if e.set || e.mask != math.MaxUint32 {
			n++
		}
	}
	b = binary.AppendUvarint(b, uint64(n))
	for seat, e := range f.eyes {
		if !e.set && e.mask == math.MaxUint32 {
			continue
		}
		b = binary.LittleEndian.AppendUint32(binary.AppendUvarint(b, uint64(seat)), e.mask)
		if !e.set {
			b = append(b, 0)
			continue
		}
		b = append(b, 1)
		for _, v := range e.at {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b
}

func readEyes(r *stateReader) []eye {
	var eyes []eye
	for range r.upTo(uint64(len(r.b) / 6)) {
		seat := int(r.upTo(1<<16 - 1))
		if seat < len(eyes) { // they rise
			r.fail()
		}
		if r.err != nil {
			return nil
		}
		for len(eyes) < seat {
			eyes = append(eyes, eye{mask: math.MaxUint32})
		}
		e := eye{mask: r.uint32()}
		if r.upTo(1) == 1 {
			e.ok, e.set = true, true
			for k := range e.at {
				e.at[k] = math.Float32frombits(r.uint32())
			}
		}
		if !e.set && e.mask == math.MaxUint32 {
			r.fail() // nothing to tell
		}
		eyes = append(eyes, e)
	}
	return eyes
}

// RestoreState replaces everything by what AppendState wrote, in a feed with the same types added in the same order. Every stream
// starts over with a keyframe. It belongs into World.Restore, which the engine calls in a new epoch: numbers of events may go back, and only then will clients
// take them again. A world that wants to go back by itself calls Room.Restore. All pointers from Get are void. On an error nothing has changed: the bytes are damaged, cut short,
// or of other types.
func (f *Feed) RestoreState(src []byte) error {
	if err := f.Err(); err != nil {
		return err
	}
	if len(src) < len(stateMagic)+8 || string(src[:len(stateMagic)]) != stateMagic {
		return errState
	}
	body, sum := src[:len(src)-4], binary.LittleEndian.Uint32(src[len(src)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return fmt.Errorf("%w: its checksum is wrong", errState)
	}
	r := stateReader{b: body[len(stateMagic):]}
	if r.uint32() != f.fingerprint() {
		return fmt.Errorf("%w: its types are declared otherwise", errState)
	}
	// Everything is built beside what there is and taken over at the end.
	var n slots
	if size := int(r.upTo(maxSlots)); size*3 <= len(r.b) && size > 0 {
		n.grow(size)
	} else {
		return errState
	}
	n.next = int(r.upTo(uint64(len(n.info) - 1)))
	tables := make([]*table, len(f.tables))
	for k, t := range f.tables {
		c := *t
		c.pages, c.live, c.n, c.raw, c.clean = nil, nil, 0, nil, nil
		tables[k] = &c
	}
	for i := range n.info {
		b := r.take(3)
		if b == nil {
			return errState
		}
		s := slotInfo{gen: binary.LittleEndian.Uint16(b), typ: b[2]}
		if int(s.typ) > len(tables) || s.typ > 0 && s.gen == 0 {
			return errState
		}
		if n.info[i] = s; s.typ > 0 {
			n.used[i/64] |= 1 << (i % 64)
			n.n++
		}
	}
	for i, s := range n.info {
		if s.typ > 0 {
			t := tables[s.typ-1]
			t.place(t, i)
			t.codec.get(&r, t.at(i))
			if r.err != nil {
				return r.err
			}
		}
	}
	own := make([]EntityID, 0, 16)
	for range r.upTo(uint64(len(r.b) / 4)) {
		own = append(own, EntityID(r.uint32()))
	}
	eyes := readEyes(&r)
	last := r.upTo(maxEvent)
	if r.err != nil || len(r.b) != 0 || last < firstEvent-1 || len(own) > 1<<16 {
		return errState
	}
	f.slots, f.own, f.eyes = n, own, eyes
	for k, t := range f.tables {
		t.pages, t.live, t.n, t.raw, t.clean = tables[k].pages, tables[k].live, tables[k].n, tables[k].raw, tables[k].clean
	}
	f.log.reset(last + 1)
	f.restores++
	return nil
}
