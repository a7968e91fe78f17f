package snap

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/drumline-engine/drumline/feed"
)

// frame is the world's visible part at one tick as integers. Entities stand by slot; the columns of one entity stand side by side,
// for a stream compares and packs whole entities, and one entity's columns share a cache line that way.
type frame struct {
	tick feed.Tick
	refs atomic.Int32
	feed *Feed

	restores uint32
	count    uint32       // of the feed's captures: rings' rates are counted in it
	own      []EntityID   // by seat
	eyes     []eye        // by seat
	live     []uint64     // bitmap by slot
	n        int          // entities
	ids      []EntityID   // by slot; 0: none
	typ      []uint8      // by slot
	off      []uint32     // by slot: where its columns start in vals …
	toff     []uint32     // … and its texts in texts
	at       [][3]float32 // by slot: the place of an entity that has one
	mask     []uint32     // by slot: who sees it; 0: everybody
	vals     []int32
	texts    []string

	net grid

	chunks []*chunk // of the event log
	oldest uint64   // ids of the events in it; newest < oldest: none
	newest uint64
}

// Tick implements feed.Frame.
func (fr *frame) Tick() feed.Tick { return fr.tick }

// Retain implements feed.Frame.
func (fr *frame) Retain() { fr.refs.Add(1) }

// Release implements feed.Frame.
func (fr *frame) Release() {
	n := fr.refs.Add(-1)
	if n > 0 {
		return
	}
	if n < 0 {
		panic("snap: a frame was released more often than retained")
	}
	for i, c := range fr.chunks {
		fr.feed.log.pool.release(c)
		fr.chunks[i] = nil
	}
	fr.chunks = fr.chunks[:0]
	fr.feed.frames.put(fr)
}

// framePool keeps frames for the next Capture. The zero value is ready.
type framePool struct {
	mu   sync.Mutex
	free []*frame
}

func (p *framePool) get() *frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		fr := p.free[n-1]
		p.free = p.free[:n-1]
		return fr
	}
	return new(frame)
}

func (p *framePool) put(fr *frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < 8 { // more than are in use at once unless an encoder hangs
		p.free = append(p.free, fr)
	}
}

// capture quantises the world.
func (f *Feed) capture(t feed.Tick) *frame {
	f.seal()
	fr := f.frames.get()
	fr.refs.Store(1)
	f.captures++
	fr.tick, fr.feed, fr.restores, fr.n, fr.count = t, f, f.restores, 0, f.captures
	fr.net.built = false
	fr.own = fr.own[:0]
	for _, id := range f.own {
		if !f.slots.alive(id) || f.tables[f.slots.info[id.slot()].typ-1].late {
			id = 0
		}
		fr.own = append(fr.own, id)
	}
	n := len(f.slots.info)
	fr.live = append(fr.live[:0], f.slots.used...)
	fr.ids = sized(fr.ids, n)
	fr.typ = sized(fr.typ, n)
	fr.off = sized(fr.off, n)
	fr.toff = sized(fr.toff, n)
	fr.at = sized(fr.at, n)
	fr.mask = sized(fr.mask, n)
	fr.vals, fr.texts = fr.vals[:0], fr.texts[:0]
	for w, word := range f.slots.used {
		for ; word != 0; word &= word - 1 {
			b := bits.TrailingZeros64(word)
			i := w*64 + b
			inf := f.slots.info[i]
			tb := f.tables[inf.typ-1]
			if tb.late {
				fr.live[w] &^= 1 << b
				continue
			}
			fr.n++
			fr.ids[i], fr.typ[i] = makeID(i, inf.gen), inf.typ-1
			p := tb.at(i)
			k := len(fr.vals)
			fr.off[i] = uint32(k)
			fr.vals = more(fr.vals, tb.cols)
			tb.quantise(p, fr.vals[k:], &f.count)
			fr.at[i] = [3]float32{}
			for axis, c := range tb.axes {
				fr.at[i][axis] = float32(tb.value(c, fr.vals[k+c]))
			}
			if fr.mask[i] = 0; tb.mask != nil {
				v, _ := tb.mask.int(unsafe.Add(p, tb.mask.off))
				fr.mask[i] = uint32(v)
			}
			k = len(fr.texts)
			fr.toff[i] = uint32(k)
			if tb.texts > 0 {
				fr.texts = more(fr.texts, tb.texts)
				tb.readTexts(p, fr.texts[k:], i, &f.count)
			}
		}
	}
	f.look(fr)
	f.log.show(fr, t)
	return fr
}

// sized returns a slice of n elements, s's memory if it is enough. The elements are whatever they were: a reader asks the
// bitmap first.
func sized[E any](s []E, n int) []E {
	if n <= cap(s) {
		return s[:n]
	}
	return make([]E, n, n+n/4)
}

// more returns s with n more elements, whatever they are.
func more[E any](s []E, n int) []E {
	if len(s)+n <= cap(s) {
		return s[:len(s)+n]
	}
	return append(s, make([]E, n)...)
}
