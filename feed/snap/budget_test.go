package snap

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/drumline-engine/drumline/feed"
)

// TestOverload has ten times the entities that there is room for, all moving: no packet is over the limit, the own entity is in each, and
// nothing waits for long. With N bytes due in all and B of room in a packet everything has its turn about every N/B packets if all
// are equally wrong; what is less wrong than the mean waits longer by as much, and what is in an outer ring, by its number plus one.
// The weight is in powers of two of the error, so between a little and much there is a factor of 4 or so.
func TestOverload(t *testing.T) {
	type thing struct {
		X, Y float32 `drumline:"q=0.01,range=-1000:1000,place,move=V"`
		V    float32 `drumline:"q=0.01,range=-50:50"`
		N    uint16
	}
	const limit, n, packets = 250, 400, 120
	for _, ringed := range []bool{false, true} {
		for _, dl := range []feed.Delivery{feed.Ordered, feed.Unordered} {
			t.Run(fmt.Sprintf("rings=%v/delivery=%v", ringed, dl), func(t *testing.T) {
				t.Parallel()
				opt := Options{}
				if ringed {
					opt.Rings = []Ring{{100, 1}, {200, 2}, {400, 4}}
				}
				f := New(opt)
				set := Add[thing](f, "thing")
				r := rand.New(rand.NewPCG(1, uint64(dl)))
				var ids []EntityID
				for range n {
					ids = append(ids, set.Spawn(thing{X: r.Float32()*500 - 250, Y: r.Float32()*500 - 250}))
				}
				f.Own(0, ids[n/2])
				set.Get(ids[n/2]).X, set.Get(ids[n/2]).Y = 0, 0
				c := join(t, f, 0, dl)
				tick := feed.Tick(0)
				step := func() *frame {
					tick += 3
					for id, v := range set.All() {
						if r.IntN(3) == 0 && id != ids[n/2] {
							v.X = min(max(v.X+r.Float32()*8-4, -250), 250)
						}
						v.N++
					}
					return f.capture(tick)
				}
				for k := 0; ; k++ { // until everything has come in
					fr := step()
					_, w := c.send(t, fr, limit)
					fr.Release()
					if c.d.Held() == w.Held && k > 20 && len(c.d.told) > 0 && c.d.Held() >= n*9/10 {
						break
					} else if k > 2*n*10*8/8/limit+200 {
						t.Fatalf("%d of %d have come in %d packets", c.d.Held(), n, k)
					}
				}
				since := map[EntityID]int{}
				sent, told, worst := 0, 0, 0
				for range packets {
					fr := step()
					b, w := c.send(t, fr, limit)
					if !w.More {
						t.Fatal("everything fits: this tests nothing")
					}
					for _, h := range c.d.byID {
						since[h.id]++
					}
					for _, slot := range c.d.told {
						h := c.d.at(slot)
						worst = max(worst, since[h.id]/(1+int(h.top.ring)))
						since[h.id] = 0
					}
					if since[ids[n/2]] != 0 {
						t.Fatal("the own entity is not there")
					}
					for id := range since {
						if c.d.byID[id] == nil {
							delete(since, id)
						}
					}
					sent, told = sent+len(b), told+len(c.d.told)
					fr.Release()
				}
				for id, k := range since {
					worst = max(worst, k/(1+int(c.d.byID[id].top.ring)))
				}
				turn := c.d.Held() * packets / told // N/B
				t.Logf("%d held, %.1f told a packet: a turn is %d packets, the longest wait %d", c.d.Held(), float64(told)/packets, turn, worst)
				if worst > 3*turn || turn < 6 {
					t.Errorf("something waited for %d packets, a turn is %d", worst, turn)
				}
			})
		}
	}
}

// TestFairShareOfMixedSizes: what is large does not starve beside what is small, nor the other way round.
func TestFairShareOfMixedSizes(t *testing.T) {
	type sign struct {
		N    uint16
		Text string `drumline:"once,max=200"`
	}
	for _, dl := range []feed.Delivery{feed.Ordered, feed.Unordered} {
		f := New(Options{})
		small, large := Add[bang](f, "small"), Add[sign](f, "large")
		for i := range 100 {
			small.Spawn(bang{uint32(i)})
		}
		for i := range 20 {
			large.Spawn(sign{Text: strings.Repeat("x", 40+8*i)})
		}
		c := join(t, f, 0, dl)
		const limit = 260
		since := map[EntityID]int{}
		bytes := 100*3 + 20*(40+76+4) // due in each packet
		for n := range 400 {
			for _, s := range small.All() {
				s.N += 3
			}
			k := 0
			for _, s := range large.All() {
				s.N++
				s.Text = strings.Repeat(string(rune('a'+n%26)), 40+8*k)
				k++
			}
			fr := f.capture(feed.Tick(n))
			c.send(t, fr, limit)
			for _, slot := range c.d.told {
				since[c.d.at(slot).id] = -1
			}
			fr.eachLive(func(i int) {
				if since[fr.ids[i]]++; n > 60 && since[fr.ids[i]] > 3*bytes/limit {
					t.Fatalf("%v, packet %d: %x has waited for %d packets, a turn is %d", dl, n, fr.ids[i], since[fr.ids[i]], bytes/limit)
				}
			})
			fr.Release()
		}
	}
}

// TestEventsWhilePoor: events that keep coming leave a quarter of the room, so motion goes on.
func TestEventsWhilePoor(t *testing.T) {
	g := newRig(t, 1)
	for range 30 {
		g.players.Spawn(player{})
	}
	c := join(t, g.f, 0, feed.Ordered)
	told := 0
	for range 200 {
		g.tick++
		for range 40 {
			g.emitted = append(g.emitted, uint32(len(g.emitted)+1))
			g.bangs.Emit(bang{uint32(len(g.emitted))})
		}
		for _, p := range g.players.All() {
			p.HP++
		}
		fr := g.f.capture(g.tick)
		c.send(t, fr, 200)
		told += len(c.d.told)
		fr.Release()
	}
	if told < 200*4 || c.d.Held() != 30 {
		t.Errorf("%d entities told in 200 packets, %d held", told, c.d.Held())
	}
}

// TestTuned: what a measuring run switches off makes packets longer and changes nothing that is seen.
func TestTuned(t *testing.T) {
	play := func(tune feed.Tuning, dl feed.Delivery) (bytes, held int) {
		c := newCity(t, 4, cityHalf)
		c.f.Tune(tune)
		k := join(t, c.f, 0, dl)
		for n := range 60 {
			for range 3 {
				c.drive()
			}
			fr := c.capture()
			b, w := k.send(t, fr, 1<<16)
			if w.More {
				t.Fatal("more")
			}
			if n > 0 {
				bytes += len(b)
			}
			if tune.NoRings {
				fr.eachLive(func(i int) {
					h := k.d.byID[fr.ids[i]]
					if m := fr.mask[i]; (h != nil) != (m == 0 || m&c.see[0] != 0 || fr.ids[i] == fr.own[0]) {
						t.Fatalf("%+v: %x", tune, fr.ids[i])
					}
					if h != nil && h.top.ring != 0 {
						t.Fatalf("ring %d", h.top.ring)
					}
				})
			}
			if tune.Whole {
				told := map[EntityID]bool{}
				for _, slot := range k.d.told {
					told[k.d.at(slot).id] = true
				}
				fr.eachLive(func(i int) {
					if h := k.d.byID[fr.ids[i]]; h != nil && (h.top.ring == 0 || tune.NoRings) && !told[h.id] {
						t.Fatalf("%+v: %x was left out", tune, fr.ids[i])
					}
				})
			}
			for _, slot := range k.d.told {
				h := k.d.at(slot)
				i := h.id.slot()
				y := fr.feed.tables[fr.typ[i]].layout
				for c, v := range fr.vals[fr.off[i]:][:y.cols] {
					if want := rounded(v, &y.col[c], h.top.ring); h.top.cols[c] != want && (c < y.pub || h.id == fr.own[0]) {
						t.Fatalf("%+v: %x", tune, h.id)
					}
				}
			}
			held = k.d.Held()
			fr.Release()
		}
		return bytes, held
	}
	for _, dl := range []feed.Delivery{feed.Ordered, feed.Unordered} {
		plain, seen := play(feed.Tuning{}, dl)
		whole, seenWhole := play(feed.Tuning{Whole: true}, dl)
		all, seenAll := play(feed.Tuning{NoRings: true}, dl)
		both, seenBoth := play(feed.Tuning{Whole: true, NoRings: true}, dl)
		if !(plain < whole && plain < all && whole < both && all < both) || seen != seenWhole || seenAll <= seen || seenAll != seenBoth {
			t.Errorf("%v: bytes %d, whole %d, without rings %d, both %d; held %d %d %d %d", dl, plain, whole, all, both, seen, seenWhole, seenAll, seenBoth)
		}
		t.Logf("%v: bytes a packet: %d, whole %d, without rings %d, both %d", dl, plain/59, whole/59, all/59, both/59)
	}
}

// TestHiddenColumnsCostNothing: an owner's column that follows a rate everybody knows is nobody else's business.
func TestHiddenColumnsCostNothing(t *testing.T) {
	type runner struct {
		X    float32 `drumline:"q=0.1,range=0:10000,move=V"`
		V    float32 `drumline:"q=0.1,range=-50:50"`
		Odo  float32 `drumline:"q=0.1,range=100:10000,move=V,owner,lod"`
		Gear uint8   `drumline:"range=5:6,owner"`
	}
	for _, dl := range []feed.Delivery{feed.Ordered, feed.Unordered} {
		f := New(Options{})
		set := Add[runner](f, "runner")
		id := set.Spawn(runner{V: 6, Odo: 200, Gear: 6})
		c := join(t, f, 0, dl)
		for n := range feed.Tick(60) {
			v := set.Get(id)
			v.X, v.Odo = v.X+6./20, v.Odo+6./20
			if n == 30 {
				f.Own(0, id)
			}
			fr := f.capture(3 * n)
			if _, w := c.send(t, fr, 1000); w.Receipt != 0 && n > 5 && n < 30 {
				t.Fatalf("%v: packet %d has something to tell", dl, n)
			}
			fr.Release()
			e, ok := c.d.Get(id)
			odo, gear := e.Ahead(c.d.Field(0, "odo"), fr.tick), e.Int(c.d.Field(0, "gear"))
			if mine := n >= 30; !ok || (gear == 6) != mine || (math.Abs(odo-float64(v.Odo)) < .11) != mine {
				t.Fatalf("%v: packet %d: odo %v, gear %d", dl, n, odo, gear)
			}
		}
	}
}
