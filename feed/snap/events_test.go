package snap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/drumline-engine/drumline/feed"
)

// TestEventsOverReconnects has clients of a city lose their links again and again, and come back by a cursor, now on a link that keeps the
// order and now on one that does not: each event comes once, in order, and those at a place to exactly those who were near it then.
func TestEventsOverReconnects(t *testing.T) {
	for seed := range long(2, 50) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			c := newCity(t, seed, cityHalf)
			rnd := rand.New(rand.NewPCG(seed, 11))
			net := network{loss: 20, up: 20, double: 20, delay: 1, jitter: 2}
			limit := []int{1 << 16, 200}[seed%2]
			var all []*resident
			for seat := range citySeats {
				all = append(all, c.settle(t, seat, net))
			}
			ordered := make([]bool, citySeats)
			reconnects := 0
			const end = 250
			for now := range end + 80 {
				c.calm = now >= end
				for range 3 {
					c.drive()
				}
				fr := c.capture()
				for i, r := range all {
					if now < end && rnd.IntN(15) == 0 {
						reconnects++
						for _, p := range r.toClient { // lost with the link
							p.fr.Release()
						}
						r.toClient, r.toServer, r.open, r.given = nil, nil, nil, map[uint16]bool{}
						ordered[i] = !ordered[i]
						d := feed.Unordered
						if ordered[i] {
							d = feed.Ordered
						}
						r.st.Resume(r.d.Cursor(), d)
						r.start(0)
						r.gave, r.any, r.newest, r.history, r.ack = false, false, 0, 0, 0
					}
					if ordered[i] {
						if rnd.IntN(10) == 0 { // refused by the link
							_, w := r.st.Append(nil, fr, limit)
							r.st.Lost(w.Receipt)
							continue
						}
						r.send(t, fr, limit)
						r.w.look(r.stream(), fr)
						continue
					}
					if now >= end {
						r.net = network{}
					}
					r.run(t, c.rnd, now, fr, limit)
				}
				fr.Release()
			}
			for _, r := range all {
				if err := r.heardAll(); err != nil || c.f.Stats().EventsMissed != 0 {
					t.Errorf("%v; %d missed", err, c.f.Stats().EventsMissed)
				}
				if !slices.Equal(r.bangs, c.banged) {
					t.Errorf("seat %d: %d bangs, %d emitted", r.seat, len(r.bangs), len(c.banged))
				}
			}
			if reconnects < 20 || len(c.banged) < 50 || len(c.heard[0]) < 20 {
				t.Errorf("%d reconnects, %d bangs, %d honks: this tests too little", reconnects, len(c.banged), len(c.heard[0]))
			}
		})
	}
}

// TestFastPathArrivesWhole draws a path of 1,000 points, faster than packets are sent, over a bad link: as events all points arrive, in
// order and with their ticks; as state, the newest.
func TestFastPathArrivesWhole(t *testing.T) {
	type pointer struct {
		X, Y int16
	}
	f := New(Options{})
	pointers, points := Add[pointer](f, "pointer"), AddEvent[pointer](f, "point")
	id := pointers.Spawn(pointer{})
	c := joinLossy(t, f, 0, network{loss: 20, up: 20, double: 10, delay: 2, jitter: 2})
	rnd := rand.New(rand.NewPCG(1, 1))
	var path []pointer
	var ticks []feed.Tick
	got := 0
	c.d.OnEvent = func(e Event) {
		if want := path[got]; e.Int(0) != int64(want.X) || e.Int(1) != int64(want.Y) || e.Tick != ticks[got] {
			t.Fatalf("point %d is %d, %d of tick %d, want %v of %d", got, e.Int(0), e.Int(1), e.Tick, want, ticks[got])
		}
		got++
	}
	tick, shown := feed.Tick(0), map[int64]bool{}
	for now := 0; got < 1000; now++ {
		if now > 1000 {
			t.Fatalf("%d points have come", got)
		}
		for range 3 {
			tick++
			f.Stepping(tick)
			for range min(8, 1000-len(path)) {
				p := pointer{int16(len(path)), int16(rnd.IntN(2000))}
				path, ticks = append(path, p), append(ticks, tick)
				*pointers.Get(id) = p
				points.Emit(p)
			}
		}
		fr := f.capture(tick)
		c.run(t, rnd, now, fr, 400)
		fr.Release()
		if e, ok := c.d.Get(id); ok {
			shown[e.Int(0)] = true
		}
	}
	if len(shown) > 100 || !shown[999] {
		t.Errorf("%d states were shown, the last one: %v", len(shown), shown[999])
	}
}

// TestPlacedEventsAtOnceForNewSeats: the log's stretch that an event stands in may be older than its seat.
func TestPlacedEventsAtOnceForNewSeats(t *testing.T) {
	f := New(Options{Rings: []Ring{{50, 1}}})
	set, bangs := Add[masked](f, "thing"), AddEvent[bang](f, "bang")
	bangs.EmitAt(0, 0, bang{1})
	f.capture(1).Release()
	for _, seat := range []int{0, 1, 70, 64, 300} {
		c := join(t, f, seat, feed.Ordered)
		f.Own(feed.SeatID(seat), set.Spawn(masked{X: 10}))
		bangs.EmitAt(40, 30, bang{7}) // 42.4 away
		bangs.EmitAt(61, 0, bang{8})  // 51 away
		bangs.EmitAt(60, 0, bang{9})  // 50 away
		fr := f.capture(2)
		c.send(t, fr, 1000)
		if !slices.Equal(c.bangs, []uint32{7, 9}) {
			t.Errorf("seat %d heard %v", seat, c.bangs)
		}
		fr.Release()
	}
	// Nobody is anywhere: nobody hears it, and nothing breaks.
	c := join(t, f, 9, feed.Ordered)
	bangs.EmitAt(0, 0, bang{1})
	bangs.Emit(bang{2})
	c.send(t, f.capture(3), 1000)
	if !slices.Equal(c.bangs, []uint32{2}) {
		t.Errorf("a seat without a place heard %v", c.bangs)
	}
	// Without rings a place means nothing.
	g := New(Options{})
	bangs = AddEvent[bang](g, "bang")
	c = join(t, g, 0, feed.Ordered)
	bangs.EmitAt(1e9, 0, bang{3})
	c.send(t, g.capture(1), 1000)
	if !slices.Equal(c.bangs, []uint32{3}) {
		t.Errorf("without rings: %v", c.bangs)
	}
}
