package snap

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/drumline-engine/drumline/feed"
)

type mover struct {
	X, Y   float32 `drumline:"q=0.02,range=0:1310"`
	VX, VY float32 `drumline:"q=0.05,range=-50:50"`
	Dir    float32 `drumline:"angle"`
	HP     uint8
	Firing bool
	Name   string `drumline:"once,max=16"`
}

// crowd is n entities that all move each tick.
type crowd struct {
	f   *Feed
	set *Set[mover]
	rnd *rand.Rand
}

func newCrowd(n int) *crowd {
	c := &crowd{f: New(Options{}), rnd: rand.New(rand.NewPCG(1, 2))}
	c.set = Add[mover](c.f, "mover")
	for i := range n {
		c.set.Spawn(mover{X: c.rnd.Float32() * 1000, Y: c.rnd.Float32() * 1000, Name: fmt.Sprint("mover ", i)})
	}
	return c
}

func (c *crowd) move() {
	for _, m := range c.set.All() {
		m.X += 1 + c.rnd.Float32()
		if m.X > 1300 {
			m.X = 0
		}
		m.VX = c.rnd.Float32() * 40
		m.Dir += 0.1
	}
}

var loads = []int{48, 280}

func BenchmarkCapture(b *testing.B) {
	for _, n := range loads {
		b.Run(fmt.Sprint("held=", n), func(b *testing.B) {
			c := newCrowd(n)
			b.ReportAllocs()
			for i := range b.N {
				c.f.Capture(feed.Tick(i)).Release()
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range loads {
		b.Run(fmt.Sprint("held=", n), func(b *testing.B) {
			c := newCrowd(n)
			st := c.f.Join(0, feed.Ordered)
			var frames [16]feed.Frame
			for i := range frames {
				c.move()
				frames[i] = c.f.Capture(feed.Tick(i))
			}
			buf := make([]byte, 0, 1<<16)
			total := 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				out, w := st.Append(buf, frames[i%16], 1<<16)
				st.Delivered(w.Receipt)
				total += len(out)
			}
			b.ReportMetric(float64(total)/float64(b.N), "bytes/op")
		})
	}
}

// BenchmarkAppendStill is what a seat costs where nothing changes.
func BenchmarkAppendStill(b *testing.B) {
	for _, n := range loads {
		b.Run(fmt.Sprint("held=", n), func(b *testing.B) {
			c := newCrowd(n)
			st := c.f.Join(0, feed.Ordered)
			fr := c.f.Capture(1)
			_, w := st.Append(nil, fr, 1<<16)
			st.Delivered(w.Receipt)
			b.ReportAllocs()
			for b.Loop() {
				if out, _ := st.Append(nil, fr, 1<<16); out != nil {
					b.Fatal("something was written")
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, n := range loads {
		b.Run(fmt.Sprint("held=", n), func(b *testing.B) {
			c := newCrowd(n)
			st := c.f.Join(0, feed.Ordered)
			d, _ := NewDecoder(c.f.Info().Schema)
			var packets [16][]byte
			for i := range packets {
				c.move()
				var w feed.Written
				packets[i], w = st.Append(nil, c.f.Capture(feed.Tick(i)), 1<<16)
				st.Delivered(w.Receipt)
			}
			if err := d.Decode(feed.Packet{}, packets[0]); err != nil {
				b.Fatal(err)
			}
			seq := uint16(0)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				seq++
				if err := d.Decode(feed.Packet{Seq: seq}, packets[1+i%15]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestNothingAllocated holds the hot paths to no allocation once warm.
func TestNothingAllocated(t *testing.T) {
	for _, dl := range []feed.Delivery{feed.Ordered, feed.Unordered} {
		c := newCrowd(100)
		evs := AddEvent[bang](c.f, "bang")
		st := c.f.Join(0, dl)
		d, err := NewDecoder(c.f.Info().Schema)
		if err != nil {
			t.Fatal(err)
		}
		d.OnEvent = func(Event) {}
		buf := make([]byte, 0, 1<<16)
		seq := uint16(0)
		var open []feed.Receipt
		var spawned EntityID
		run := func() {
			c.move()
			evs.Emit(bang{uint32(seq)})
			c.set.Remove(spawned)
			spawned = c.set.Spawn(mover{})
			seq++
			fr := c.f.Capture(feed.Tick(seq))
			out, w := st.Append(buf, fr, 1<<15)
			if err := d.Decode(feed.Packet{Seq: seq, Tick: fr.Tick(), Ack: max(seq, 4) - 4, Acks: 1<<32 - 1}, out); err != nil {
				t.Fatal(err)
			}
			if open = append(open, w.Receipt); len(open) > 3 {
				st.Delivered(open[0])
				open = open[:copy(open, open[1:])]
			}
			fr.Release()
		}
		for range 1200 { // until the event log is full
			run()
		}
		if n := testing.AllocsPerRun(200, run); n > 0 {
			t.Errorf("%v: %v allocations a tick", dl, n)
		}
	}
}
