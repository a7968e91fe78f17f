package snap

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/drumline-engine/drumline/feed"
)

// van is a car of a wide world.
type van struct {
	Pos   vec     `drumline:"q=0.02,range=-4000:4000,move=Vel,place,lod,tol=0.1"`
	Z     float64 `drumline:"q=0.02,range=-100:200,lod,tol=0.1"`
	Vel   vec     `drumline:"q=0.05,range=-60:60,frame=body"`
	Yaw   float64 `drumline:"angle,turn=Spin,lod"`
	Spin  float64 `drumline:"q=0.01,range=-4:4"`
	HP    uint8
	Horn  bool
	Plate string `drumline:"once,max=8"`
	Fuel  uint16 `drumline:"owner"`
}

// crowdedCity is n entities at so many to a seat's sight, each of the first seats with one of its own. Two thirds drive about.
type crowdedCity struct {
	f    *Feed
	set  *Set[van]
	rnd  *rand.Rand
	half float64
	tick feed.Tick
}

func newCrowdedCity(n, seats, visible int) *crowdedCity {
	c := &crowdedCity{f: New(Options{Rings: cityRings}), rnd: rand.New(rand.NewPCG(1, 2))}
	c.set = Add[van](c.f, "van")
	c.half = 250 * math.Sqrt(math.Pi*float64(n)/float64(visible)) / 2
	for i := range n {
		v := van{Pos: vec{(c.rnd.Float64()*2 - 1) * c.half, (c.rnd.Float64()*2 - 1) * c.half}, Yaw: c.rnd.Float64() * 7, Plate: fmt.Sprint("c", i)}
		if i%3 > 0 {
			v.Vel = vec{c.rnd.Float64() * 20, 0}
		}
		if id := c.set.Spawn(v); i < seats {
			c.f.Own(feed.SeatID(i), id)
		}
	}
	return c
}

// drive goes on by a send tick, wobbling as cars do on bad roads.
func (c *crowdedCity) drive() {
	r := c.rnd
	c.tick += 3
	for _, v := range c.set.All() {
		if v.Vel == (vec{}) {
			continue
		}
		v.Yaw += v.Spin / 20
		sin, cos := math.Sincos(v.Yaw)
		v.Pos.X += cos*v.Vel.X/20 + r.Float64()*.04
		v.Pos.Y += sin*v.Vel.X/20 + r.Float64()*.04
		v.Z = 10 + r.Float64()*.1
		if r.IntN(20) == 0 {
			v.Spin, v.Vel.X = r.Float64()*2-1, min(max(v.Vel.X+r.Float64()*4-2, 1), 30)
		}
		if math.Abs(v.Pos.X) > c.half || math.Abs(v.Pos.Y) > c.half {
			v.Yaw = math.Atan2(-v.Pos.Y, -v.Pos.X)
		}
	}
}

// candidates is how many entities a stream looks at in a frame because of where they are.
func candidates(st *stream, fr *frame) (n int) {
	g := fr.grid()
	e := fr.eyes[st.seat]
	r := float32(st.f.rings[len(st.f.rings)-1].Radius * stay)
	x0, x1 := g.span(0, e.at[0], r)
	y0, y1 := g.span(1, e.at[1], r)
	for y := y0; y <= y1; y++ {
		n += int(g.start[y*g.nx+x1+1] - g.start[y*g.nx+x0])
	}
	return n + len(g.none)
}

// TestCostGrowsWithWhatIsVisible has 300 seats in a world of 300 and in one of 3,000 entities, each seeing about 60: what is looked at, and
// what is kept, is as much in one as in the other.
func TestCostGrowsWithWhatIsVisible(t *testing.T) {
	const seats = 300
	type cost struct{ looked, held, slots float64 }
	measure := func(n int) (c cost) {
		w := newCrowdedCity(n, seats, 60)
		var all []*stream
		for seat := range seats {
			all = append(all, w.f.Join(feed.SeatID(seat), feed.Unordered).(*stream))
		}
		const packets = 6
		for range packets {
			w.drive()
			fr := w.f.capture(w.tick)
			for _, st := range all {
				_, wr := st.Append(nil, fr, 1<<16)
				st.Delivered(wr.Receipt)
				c.looked += float64(candidates(st, fr)) / (seats * packets)
				c.held += float64(wr.Held) / (seats * packets)
				c.slots += float64(len(st.recs)) / (seats * packets)
			}
			fr.Release()
		}
		return c
	}
	few, many := measure(300), measure(3000)
	t.Logf("300 entities: %+v; 3,000: %+v", few, many)
	// The larger world has less of a border, beyond which there is nothing.
	if many.looked > 1.5*few.looked || many.looked > 2.5*many.held || many.slots > 1.5*few.slots {
		t.Error("the cost grows with the world")
	}
	if few.held < 30 || many.held < 40 || many.held > 80 {
		t.Errorf("%.0f and %.0f held, want about 60", few.held, many.held)
	}
}

// BenchmarkAppendCity is a client-snapshot of a city on a link with acks that are three packets old: ns/op, bytes/op and allocs/op are each
// for one.
func BenchmarkAppendCity(b *testing.B) {
	for _, load := range []struct{ entities, seats, visible int }{{300, 1, 50}, {600, 1, 280}, {300, 300, 60}} {
		b.Run(fmt.Sprintf("entities=%d/seats=%d/held=%d", load.entities, load.seats, load.visible), func(b *testing.B) {
			c := newCrowdedCity(load.entities, load.seats, load.visible)
			var frames [64]*frame
			for i := range frames {
				c.drive()
				frames[i] = c.f.capture(c.tick)
			}
			streams := make([]*stream, load.seats)
			open := make([][]feed.Receipt, load.seats)
			for i := range streams {
				streams[i] = c.f.Join(feed.SeatID(i), feed.Unordered).(*stream)
			}
			buf := make([]byte, 0, 1<<16)
			total, held := 0, 0
			tick := feed.Tick(0)
			run := func(seat, k int) {
				if seat == 0 {
					tick += 3
					frames[k%64].tick = tick
				}
				out, w := streams[seat].Append(buf, frames[k%64], 1<<16)
				total, held = total+len(out), held+w.Held
				if w.Receipt != 0 {
					open[seat] = append(open[seat], w.Receipt)
				}
				if o := open[seat]; len(o) > 3 {
					streams[seat].Delivered(o[0])
					open[seat] = o[:copy(o, o[1:])]
				}
			}
			for k := range 2 * 64 {
				for seat := range streams {
					run(seat, k)
				}
			}
			total, held = 0, 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				run(i%load.seats, i/load.seats)
			}
			b.ReportMetric(float64(total)/float64(b.N), "bytes/op")
			b.ReportMetric(float64(held)/float64(b.N), "held/op")
		})
	}
}
