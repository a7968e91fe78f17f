package snap

import (
	"math"
	"math/bits"
	"reflect"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/drumline-engine/drumline/wire"
)

// pageLen is the number of values in a page. Pages never move, so that a pointer to a value stays good until its Remove; 64
// makes a page's presence one word of a bitmap.
const pageLen = 64

// EntityID names an entity of a feed for as long as it lives: the slot it stands in (low 16 bits) and which of the slot's
// tenants it is (high 16 bits, never 0). 0 is no entity. A field of this type is sent like any uint32, so that one entity may
// name another.
type EntityID uint32

func makeID(slot int, gen uint16) EntityID { return EntityID(gen)<<16 | EntityID(slot) }

func (id EntityID) valid() bool { return id.gen() != 0 && id.slot() < maxSlots }
func (id EntityID) slot() int   { return int(id & 0xffff) }
func (id EntityID) gen() uint16 { return uint16(id >> 16) }

// maxSlots bounds the entities of a feed. Slot numbers take 16 bits; 65,535 of them leave one number unused.
const maxSlots = 65535

// slotInfo says who stands in a slot.
type slotInfo struct {
	gen uint16 // of the tenant, or of the last one
	typ uint8  // 1 + table index; 0: free
}

// slots hands out entity ids. A slot that was freed is not taken again before the search has come round, which keeps a stale id
// from being mistaken for a new one for as long as possible; the order depends on nothing but the calls made.
type slots struct {
	info []slotInfo
	used []uint64 // bitmap
	n    int      // taken
	next int      // where the search goes on
}

// take returns a free slot's new id for table typ, or 0 when all are taken.
func (s *slots) take(typ int) EntityID {
	// A quarter is kept free, or the search would come round at once in a world that removes as much as it spawns.
	if s.n >= len(s.info)-len(s.info)/4 && len(s.info) < maxSlots {
		s.grow(min(len(s.info)+pageLen, maxSlots))
	}
	if s.n == len(s.info) {
		return 0
	}
	w := s.next / 64
	free := ^s.used[w] &^ (1<<(s.next%64) - 1)
	for free == 0 || w*64+bits.TrailingZeros64(free) >= len(s.info) {
		if w++; w == len(s.used) {
			w = 0
		}
		free = ^s.used[w]
	}
	i := w*64 + bits.TrailingZeros64(free)
	s.used[w] |= 1 << (i % 64)
	s.n++
	if s.next = i + 1; s.next == len(s.info) {
		s.next = 0
	}
	inf := &s.info[i]
	inf.typ = uint8(typ + 1)
	if inf.gen++; inf.gen == 0 {
		inf.gen = 1
	}
	return makeID(i, inf.gen)
}

func (s *slots) grow(n int) {
	s.info = append(s.info, make([]slotInfo, n-len(s.info))...)
	for len(s.used)*64 < n {
		s.used = append(s.used, 0)
	}
}

// has reports whether id is alive in table typ.
func (s *slots) has(id EntityID, typ int) bool {
	i := id.slot()
	return i < len(s.info) && s.info[i] == slotInfo{id.gen(), uint8(typ + 1)}
}

// alive reports whether id is alive in any table.
func (s *slots) alive(id EntityID) bool {
	i := id.slot()
	return i < len(s.info) && s.info[i].typ != 0 && s.info[i].gen == id.gen()
}

func (s *slots) free(i int) {
	s.info[i].typ = 0
	s.used[i/64] &^= 1 << (i % 64)
	s.n--
}

// table is what a feed knows of one declared type without knowing its Go type.
type table struct {
	*layout
	src   []source                 // by field, numbers first
	mask  *source                  // who sees it; nil: everybody
	axes  []int                    // columns of its place
	codec codec                    // of the whole Go value, for states
	place func(t *table, slot int) // makes room for a slot and marks it live
	late  bool                     // added after the schema was fixed: works in Go, is never sent

	pages []unsafe.Pointer // by slot/pageLen: pageLen values each; nil: none yet
	size  uintptr          // of one value
	live  []uint64         // by slot/64: the slots of this table
	n     int
	raw   []string // by slot·texts+i: the text as the world wrote it …
	clean []string // … and as it is sent
}

func (t *table) at(slot int) unsafe.Pointer {
	return unsafe.Add(t.pages[slot/pageLen], uintptr(slot%pageLen)*t.size)
}

// counts are a feed's drops and mends. Owned by the room's goroutine.
type counts struct {
	clamped, cut uint64
}

// quantise fills row with the columns of the value at p.
func (t *table) quantise(p unsafe.Pointer, row []int32, c *counts) {
	for i := range row {
		s := &t.src[i]
		k, ok := s.read(unsafe.Add(p, s.off))
		row[i] = k
		if !ok {
			s.clamps++
			c.clamped++
		}
	}
}

// read quantises the value at p.
func (s *source) read(p unsafe.Pointer) (k int32, ok bool) {
	switch s.field {
	case kindFloat:
		return s.quant.Quantise(s.float(p))
	case kindAngle:
		return wire.QuantiseAngle(s.float(p))
	case kindBool:
		if *(*bool)(p) {
			return 1, true
		}
		return 0, true
	}
	v, ok := s.int(p)
	if v < s.min {
		return int32(uint32(s.min)), false
	} else if v > s.max {
		return int32(uint32(s.max)), false
	}
	return int32(uint32(v)), ok
}

func (s *source) float(p unsafe.Pointer) float64 {
	if s.kind == reflect.Float32 {
		return float64(*(*float32)(p))
	}
	return *(*float64)(p)
}

func (s *source) int(p unsafe.Pointer) (int64, bool) {
	switch s.kind {
	case reflect.Int:
		return int64(*(*int)(p)), true
	case reflect.Int8:
		return int64(*(*int8)(p)), true
	case reflect.Int16:
		return int64(*(*int16)(p)), true
	case reflect.Int32:
		return int64(*(*int32)(p)), true
	case reflect.Int64:
		return *(*int64)(p), true
	case reflect.Uint8:
		return int64(*(*uint8)(p)), true
	case reflect.Uint16:
		return int64(*(*uint16)(p)), true
	case reflect.Uint32:
		return int64(*(*uint32)(p)), true
	case reflect.Uint:
		return wide(uint64(*(*uint)(p)))
	default:
		return wide(*(*uint64)(p))
	}
}

// wide keeps a large uint64 from turning negative.
func wide(v uint64) (int64, bool) {
	if v > math.MaxInt64 {
		return math.MaxInt64, false
	}
	return int64(v), true
}

// readTexts fills dst with the texts of the value at p, which stands in slot.
func (t *table) readTexts(p unsafe.Pointer, dst []string, slot int, c *counts) {
	for i := range dst {
		s := &t.src[t.cols+i]
		raw := *(*string)(unsafe.Add(p, s.off))
		// Looking at every text of every entity on every capture is only cheap while it hasn't changed.
		j := slot*t.texts + i
		if t.raw[j] != raw || t.clean[j] == "" {
			t.raw[j], t.clean[j] = raw, s.cleanText(raw, c)
		}
		dst[i] = t.clean[j]
	}
}

// cleanText makes s valid UTF-8 of at most maxBytes without cutting a character.
func (s *source) cleanText(v string, c *counts) string {
	if len(v) <= s.maxBytes && utf8.ValidString(v) {
		return v
	}
	c.cut++
	s.clamps++
	if len(v) > 4*s.maxBytes {
		v = v[:4*s.maxBytes] // enough for any mend; the rest is cut anyway
	}
	v = strings.ToValidUTF8(v, "\uFFFD")
	if n := s.maxBytes; len(v) > n {
		for n > 0 && !utf8.RuneStart(v[n]) {
			n--
		}
		v = v[:n]
	}
	return strings.Clone(v) // not a slice that keeps a megabyte alive
}
