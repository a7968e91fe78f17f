package snap

import (
	"testing"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/wire"
)

// The two benchmarks of docs/decisions/0007: what writing an entity costs, against the least that taking its bits from a cache shared by
// seats would cost. One operation is 280 entities.

func BenchmarkBlockWrite(b *testing.B) {
	c := newCrowd(280)
	s := c.f.Join(0, feed.Ordered).(*stream)
	var frames [2]*frame
	for i := range frames {
		c.move()
		frames[i] = c.f.capture(feed.Tick(i + 1))
	}
	_, w := s.Append(nil, frames[0], 1<<16)
	s.Delivered(w.Receipt)
	s.prepare(frames[1])
	s.visible(frames[1])
	fl := s.f.flights.get()
	fl.reset(s.next)
	for i := range s.recs {
		if s.recs[i].id != 0 {
			s.due(frames[1], fl, i)
		}
	}
	p := packet{s: s, fr: frames[1], fl: fl, lim: 1 << 20}
	buf := make([]byte, 0, 1<<16)
	b.ReportAllocs()
	for b.Loop() {
		p.w.Reset(buf)
		for k := range fl.items {
			p.entity(&fl.items[k], k-1)
		}
	}
	b.ReportMetric(float64(len(fl.items)), "entities")
}

func BenchmarkBlockLookUp(b *testing.B) {
	type key struct {
		id   EntityID
		tick feed.Tick
		was  uint8
		ring uint8
	}
	type block struct {
		bits [2]uint32
		n    [2]uint8
	}
	cache := map[key]block{}
	var keys []key
	for i := range 280 {
		k := key{makeID(i, 1), feed.Tick(100 + i%3), 0, uint8(i % 3)}
		keys = append(keys, k)
		cache[k] = block{[2]uint32{uint32(i), 7}, [2]uint8{32, uint8(i % 20)}}
	}
	buf := make([]byte, 0, 1<<16)
	var w wire.Writer
	b.ReportAllocs()
	for b.Loop() {
		w.Reset(buf)
		for _, k := range keys {
			x := cache[k]
			w.Bits(x.bits[0], uint(x.n[0]))
			w.Bits(x.bits[1], uint(x.n[1]))
		}
	}
}
