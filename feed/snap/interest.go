package snap

import (
	"math"
	"math/bits"
	"sync"

	"github.com/drumline-engine/drumline/feed"
)

// Ring is how far a seat sees at which rate.
type Ring struct {
	// Radius is the distance, in the unit of the place fields, up to which entities are in the ring. The last ring may reach
	// everywhere: math.Inf(1). If it does not, what is beyond it leaves the client.
	Radius float64
	// Every is the number of send ticks from one to the next in which what moves in the ring is due. 1 is each, 0 means 1; at
	// most 256. What an entity is, in fields that are no pose, is due at once in any ring.
	Every int
}

// stay is how much farther than a ring's radius an entity may go before it falls out of it, so that one that walks along the border does
// not come and go.
const stay = 1.05

// NoBeat is for Options.Hz: the room has no beat, so nothing is extrapolated, and rings have no rates.
const NoBeat = -1

// MaxRings is the largest number of rings.
const MaxRings = rings

// eye is from where and what a seat sees.
type eye struct {
	at   [3]float32
	ok   bool // at is set
	set  bool // … by LookAt, and not by an entity
	mask uint32
}

// LookAt sets the place from which a seat sees, in the order of the place fields; z is 0 in a world of two. It holds while the seat
// owns no entity that has a place; when such an entity goes, the seat goes on looking from where it was. A seat that has never had either
// sees only entities in no place.
func (f *Feed) LookAt(seat feed.SeatID, x, y, z float64) {
	e := f.eye(seat)
	e.at, e.ok, e.set = [3]float32{float32(x), float32(y), float32(z)}, true, true
}

// See sets a seat's visibility mask: it sees entities whose mask field is 0 or has a bit in common with it, and the one it owns. Until it
// is called a seat sees all.
func (f *Feed) See(seat feed.SeatID, mask uint32) { f.eye(seat).mask = mask }

func (f *Feed) eye(seat feed.SeatID) *eye {
	for int(seat) >= len(f.eyes) {
		f.eyes = append(f.eyes, eye{mask: math.MaxUint32})
	}
	return &f.eyes[seat]
}

// look gives the frame each seat's eye, which follows its entity.
func (f *Feed) look(fr *frame) {
	for seat, id := range f.own {
		if id == 0 {
			continue
		}
		if e := f.eye(feed.SeatID(seat)); f.slots.alive(id) {
			if t := f.tables[f.slots.info[id.slot()].typ-1]; len(t.axes) > 0 {
				e.at, e.ok, e.set = fr.at[id.slot()], true, false
			}
		}
	}
	fr.eyes = append(fr.eyes[:0], f.eyes...)
}

// near reports whether a place is inside the outermost ring of an eye.
func (f *Feed) near(e *eye, at [3]float32) bool {
	return e.ok && dist2(e.at, at) <= f.reach2
}

func dist2(a, b [3]float32) float32 {
	x, y, z := a[0]-b[0], a[1]-b[1], a[2]-b[2]
	return x*x + y*y + z*z
}

// grid is a frame's entities by place: cells of a square net over the first two axes. It is built by the first encoder that
// asks, for all seats.
type grid struct {
	mu    sync.Mutex
	built bool

	min   [2]float32
	cell  float32
	nx    int
	ny    int
	start []uint32 // by cell: where its entities start in items; one more at the end
	items []uint16 // slots
	none  []uint16 // slots of entities in no place
	of    []uint32 // scratch: cell by slot
}

// grid returns the frame's net.
func (fr *frame) grid() *grid {
	g := &fr.net
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.built {
		g.build(fr)
	}
	return g
}

func (g *grid) build(fr *frame) {
	g.built = true
	g.none, g.items = g.none[:0], g.items[:0]
	lo := [2]float32{math.MaxFloat32, math.MaxFloat32}
	hi := [2]float32{-math.MaxFloat32, -math.MaxFloat32}
	n := 0
	for w, word := range fr.live {
		for ; word != 0; word &= word - 1 {
			i := w*64 + bits.TrailingZeros64(word)
			if !fr.feed.placed[fr.typ[i]] {
				g.none = append(g.none, uint16(i))
				continue
			}
			n++
			for k := range 2 {
				lo[k], hi[k] = min(lo[k], fr.at[i][k]), max(hi[k], fr.at[i][k])
			}
		}
	}
	if n == 0 {
		g.nx, g.ny = 0, 0
		return
	}
	// A cell of a third of the sight means few cells to visit and few entities in them that are too far; more cells than entities would
	// only be empty.
	g.min, g.cell = lo, max(float32(math.Sqrt(float64(fr.feed.reach2)))/3, 1e-3)
	for {
		g.nx, g.ny = int((hi[0]-lo[0])/g.cell)+1, int((hi[1]-lo[1])/g.cell)+1
		if g.nx <= 4*n+16 && g.ny <= 4*n+16 && g.nx*g.ny <= 4*n+16 {
			break
		}
		g.cell *= 2
	}
	g.start = sized(g.start, g.nx*g.ny+1)
	clear(g.start)
	g.of = sized(g.of, len(fr.ids))
	g.items = sized(g.items, n)
	fr.located(func(i int) {
		c := g.at(fr.at[i][1], lo[1], g.ny)*g.nx + g.at(fr.at[i][0], lo[0], g.nx)
		g.of[i] = uint32(c)
		g.start[c+1]++
	})
	for c := range g.nx * g.ny {
		g.start[c+1] += g.start[c]
	}
	// Filled from each cell's end; start becomes the beginning again that way.
	copy(g.start, g.start[1:])
	for w := len(fr.live) - 1; w >= 0; w-- {
		for word := fr.live[w]; word != 0; {
			b := 63 - bits.LeadingZeros64(word)
			word &^= 1 << b
			i := w*64 + b
			if !fr.feed.placed[fr.typ[i]] {
				continue
			}
			c := g.of[i]
			g.start[c]--
			g.items[g.start[c]] = uint16(i)
		}
	}
	g.start[g.nx*g.ny] = uint32(n)
}

// located calls fn for the slots of entities in a place.
func (fr *frame) located(fn func(i int)) {
	for w, word := range fr.live {
		for ; word != 0; word &= word - 1 {
			if i := w*64 + bits.TrailingZeros64(word); fr.feed.placed[fr.typ[i]] {
				fn(i)
			}
		}
	}
}

// at is the number of the cell on an axis, 0 … n-1.
func (g *grid) at(v, lo float32, n int) int {
	c := (v - lo) / g.cell
	if !(c > 0) {
		return 0
	}
	return int(min(c, float32(n-1)))
}

// span is the range of cells on an axis that is less than r away from v.
func (g *grid) span(axis int, v, r float32) (from, to int) {
	n := g.nx
	if axis == 1 {
		n = g.ny
	}
	return g.at(v-r, g.min[axis], n), g.at(v+r, g.min[axis], n)
}
