package snap

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/wire"
)

// soaking reports whether this is a long run: see the Makefile.
func soaking() bool { return *packets > 60 }

// long is a number of worlds: in a soak more.
func long(n, soak uint64) uint64 {
	if soaking() {
		return soak
	}
	return n
}

// TestChurn has a thousand entities a second come and as many go, so that places, slots and generations are used again and again, mostly
// by another type.
func TestChurn(t *testing.T) {
	for seed := range long(4, 40) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			g := newRig(t, 100+seed)
			nearWraps(g.f)
			g.tick = math.MaxUint32 - 60
			limit := []int{1 << 16, 1 << 16, 700}[seed%3]
			c := joinLossy(t, g.f, 0, network{loss: 10, up: 10, double: 2, delay: 1 + int(seed%5), jitter: 2})
			sure := join(t, g.f, 0, feed.Ordered)
			var live []EntityID
			types := map[int]map[bool]bool{} // by place: what has stood there
			for now := range *packets * 2 {
				for range 3 {
					g.tick++
					g.f.Stepping(g.tick)
				}
				for range 50 {
					id := g.spawn()
					live = append(live, id)
					if types[id.slot()] == nil {
						types[id.slot()] = map[bool]bool{}
					}
					types[id.slot()][g.players.Get(id) != nil] = true
				}
				for len(live) > 40 {
					k := g.rnd.IntN(len(live))
					if id := live[k]; !g.players.Remove(id) && !g.rocks.Remove(id) {
						t.Fatalf("%x is not there", id)
					}
					live = slices.Delete(live, k, k+1)
				}
				fr := g.f.capture(g.tick)
				c.run(t, g.rnd, now, fr, limit)
				sure.send(t, fr, 1<<16)
				sameView(t, "ordered", sure.d, fr, 0)
				fr.Release()
			}
			both := 0
			for _, has := range types {
				if len(has) == 2 {
					both++
				}
			}
			if both < 20 || len(g.f.slots.info) > 200 {
				t.Errorf("%d places held both types, of %d: this tests too little", both, len(g.f.slots.info))
			}
			c.net = network{delay: c.net.delay}
			fr := g.f.capture(g.tick)
			for now := *packets * 2; c.st.Dirty(fr) || c.d.Held() != fr.n; now++ {
				if now > *packets*2+100 {
					t.Fatal("does not come to rest")
				}
				c.run(t, g.rnd, now, fr, limit)
			}
			sameView(t, "at rest", c.d, fr, 0)
		})
	}
}

// TestCountersForHours counts packets, ticks and captures on, over every wrap of 16 bits and, in a soak, for 18 hours at 20 a second.
func TestCountersForHours(t *testing.T) {
	n := long(8_000, 18*3600*20)
	f := New(Options{Rings: []Ring{{100, 1}, {200, 3}}})
	type dot struct {
		X, Y float32 `drumline:"q=0.5,range=0:1000,place,move=V"`
		V    float32 `drumline:"q=0.5,range=-10:10"`
		N    uint8
	}
	dots, bangs := Add[dot](f, "dot"), AddEvent[bang](f, "bang")
	nearWraps(f)
	me, far := dots.Spawn(dot{X: 100, Y: 100}), dots.Spawn(dot{X: 230, Y: 100})
	f.Own(0, me)
	c := join(t, f, 0, feed.Unordered)
	c.seq = 64_000
	ack := c.seq
	st := c.stream()
	st.stamp = math.MaxUint32 - 500
	tick := feed.Tick(math.MaxUint32 - 1000)
	var open []receipt
	last := uint32(0)
	c.d.OnEvent = func(e Event) {
		if n := uint32(e.Int(0)); n != last+1 {
			t.Fatalf("event %d after %d", n, last)
		}
		last++
	}
	buf := make([]byte, 0, 1<<12)
	emitted := uint32(0)
	var gone EntityID
	for i := range n {
		tick += 3
		dots.Get(me).N++
		if dots.Get(far).X += 1; dots.Get(far).X > 420 {
			dots.Get(far).X = 150
		}
		if i%64 == 0 {
			dots.Remove(gone)
			gone = dots.Spawn(dot{X: 101})
			emitted++
			bangs.Emit(bang{emitted})
		}
		fr := f.capture(tick)
		b, w := st.Append(buf, fr, 1<<12)
		c.seq++
		if w.Receipt != 0 {
			if i%7 != 3 {
				if err := c.d.Decode(feed.Packet{Seq: c.seq, Tick: tick, Ack: ack, Acks: math.MaxUint32}, b); err != nil {
					t.Fatal(i, err)
				}
				if c.d.Hash() != st.Hash() {
					t.Fatalf("packet %d: hashes differ", i)
				}
				open = append(open, receipt{c.seq, w.Receipt})
			} else {
				st.Lost(w.Receipt)
				c.seq--
			}
		} else {
			c.seq--
		}
		if len(open) > 3 {
			st.Delivered(open[0].r)
			ack = open[0].seq
			open = open[:copy(open, open[1:])]
		}
		fr.Release()
	}
	if last+1 < emitted || f.Stats().EventsMissed != 0 {
		t.Errorf("%d of %d events", last, emitted)
	}
}

// TestMutationsKeepTheHash changes a world at random, a million times in a soak: both ends have the same hash after each packet on a link
// that keeps the order.
func TestMutationsKeepTheHash(t *testing.T) {
	const each = 100
	ticks := long(200, 1_000_000/each)
	g := newRig(t, 77)
	for range 50 {
		g.spawn()
	}
	c := join(t, g.f, 0, feed.Ordered)
	r := g.rnd
	for n := range ticks {
		g.tick++
		g.f.Stepping(g.tick)
		var players, rocks []EntityID
		for id := range g.players.All() {
			players = append(players, id)
		}
		for id := range g.rocks.All() {
			rocks = append(rocks, id)
		}
		for range each {
			if p := g.players.Get(append(players, 0)[r.IntN(len(players)+1)]); p != nil && r.IntN(3) > 0 {
				switch r.IntN(9) {
				case 0:
					p.Pos = vec{r.Float64() * 1000, r.Float64()*1100 - 50}
				case 1:
					p.Vel = vec{r.Float64()*100 - 50, 0}
				case 2:
					p.Dir = r.Float32()*100 - 50
				case 3:
					p.HP, p.Firing = uint8(r.Uint32()), !p.Firing
				case 4:
					p.Team = r.IntN(6) - 2
				case 5:
					p.Name = fmt.Sprint("n", r.IntN(99))
				case 6:
					p.Ammo, p.Note = uint16(r.Uint32()), fmt.Sprint(r.Uint64())
				case 7:
					g.f.Own(0, players[r.IntN(len(players))])
				case 8:
					g.players.Remove(players[r.IntN(len(players))])
				}
				continue
			}
			if k := g.rocks.Get(append(rocks, 0)[r.IntN(len(rocks)+1)]); k != nil {
				switch r.IntN(5) {
				case 0:
					k.X = r.Float32()*1010 - 10
				case 1:
					k.Seed = r.Uint32()
				case 2:
					k.Big = int64(int32(r.Uint32()))
				case 3:
					k.Y = -3
				case 4:
					g.rocks.Remove(rocks[r.IntN(len(rocks))])
				}
			}
			if g.f.slots.n < 50 {
				g.spawn()
			}
		}
		fr := g.f.capture(g.tick)
		if c.send(t, fr, 1<<16); c.st.Hash() != c.d.Hash() {
			t.Fatalf("tick %d: hashes differ", n)
		}
		if n%16 == 0 {
			sameView(t, "", c.d, fr, 0)
		}
		fr.Release()
	}
}

// masked is an entity that some see.
type masked struct {
	X, Y   float32 `drumline:"q=0.5,range=-100:100,place"`
	V      float32 `drumline:"q=0.5,range=-10:10"`
	N      uint16
	Groups uint8 `drumline:"mask"`
}

// TestHideRemoveAddReveal does the four in every order, with a packet after each or not, lost or not: what a client holds is what it
// is to see.
func TestHideRemoveAddReveal(t *testing.T) {
	ops := []string{"hide", "remove", "add", "reveal"}
	var orders [][]string
	var permute func(done, left []string)
	permute = func(done, left []string) {
		if len(left) == 0 {
			orders = append(orders, slices.Clone(done))
		}
		for i, op := range left {
			permute(append(done[:len(done):len(done)], op), slices.Delete(slices.Clone(left), i, i+1))
		}
	}
	permute(nil, ops)
	for _, order := range orders {
		for cuts := range 16 { // bit i: a packet after op i; from bit 3 on it is lost
			for _, dl := range []feed.Delivery{feed.Ordered, feed.Unordered} {
				f := New(Options{Rings: []Ring{{50, 1}}})
				set := Add[masked](f, "thing")
				var ids [5]EntityID
				for i := range ids {
					ids[i] = set.Spawn(masked{X: float32(i), Groups: 1})
				}
				set.Get(ids[1]).Groups = 2
				f.LookAt(0, 0, 0, 0)
				f.See(0, 1)
				c := join(t, f, 0, dl)
				tick := feed.Tick(0)
				send := func(lost bool) {
					tick += 3
					fr := f.capture(tick)
					defer fr.Release()
					if lost {
						_, w := c.st.Append(nil, fr, 1000)
						if c.st.Lost(w.Receipt); dl == feed.Unordered {
							c.seq++
						}
						return
					}
					c.send(t, fr, 1000)
					sees := map[EntityID]uint16{}
					for id, m := range set.All() {
						if m.Groups&1 != 0 {
							sees[id] = m.N
						}
					}
					c.d.Each(func(e Entity) bool {
						if n, ok := sees[e.ID]; !ok || int64(n) != e.Int(c.d.Field(0, "n")) {
							t.Fatalf("%v, packets %04b, %v: holds %x", order, cuts, dl, e.ID)
						}
						return true
					})
					if c.d.Held() != len(sees) {
						t.Fatalf("%v, packets %04b, %v: holds %d, sees %d", order, cuts, dl, c.d.Held(), len(sees))
					}
				}
				send(false)
				for k, op := range order {
					switch op {
					case "hide":
						set.Get(ids[2]).Groups = 2
					case "remove":
						set.Remove(ids[0])
					case "add":
						set.Spawn(masked{Groups: 3, N: uint16(k)})
					case "reveal":
						set.Get(ids[1]).Groups, set.Get(ids[1]).N = 1, 7
					}
					if cuts>>k&1 == 1 {
						send(cuts>>3 == 1)
					}
				}
				send(false)
				set.Get(ids[2]).Groups, set.Get(ids[3]).N = 1, 9 // and there again
				send(false)
			}
		}
	}
}

// left reads the leaves of a packet without events: by slot, whether it is gone.
func left(t *testing.T, d *Decoder, body []byte) map[int]bool {
	t.Helper()
	r := wire.NewReader(body)
	r.Bool()
	if r.Bool() {
		r.Bits(32)
		r.Uvarint()
	}
	if r.Bool() {
		r.Bits(32)
	}
	if r.Bool() {
		t.Fatal("an event")
	}
	k, slot, all := uint(r.Bits(3)), -1, map[int]bool{}
	for r.Bool() {
		slot += int(r.EG(k)) + 1
		all[slot] = r.Bool()
	}
	return all
}

// TestStoppedLeftOrGone: what stands still stays as it is; what goes out of range or out of sight is said to have left; what is no more
// is said to be gone.
func TestStoppedLeftOrGone(t *testing.T) {
	f := New(Options{Rings: []Ring{{50, 1}}})
	set := Add[masked](f, "thing")
	f.LookAt(0, 0, 0, 0)
	f.See(0, 1)
	var ids [4]EntityID
	for i := range ids {
		ids[i] = set.Spawn(masked{X: 1, V: 3, Groups: 1})
	}
	c := join(t, f, 0, feed.Unordered)
	c.send(t, f.capture(3), 1000)
	slot := map[EntityID]int{}
	for id, h := range c.d.byID {
		slot[id] = h.slot
	}
	set.Get(ids[0]).V = 0      // stopped
	set.Get(ids[1]).X = 90     // out of range
	set.Get(ids[2]).Groups = 2 // hidden
	set.Remove(ids[3])         // gone
	b, _ := c.send(t, f.capture(6), 1000)
	got := left(t, c.d, b)
	if _, there := got[slot[ids[0]]]; there || len(got) != 3 || got[slot[ids[1]]] || got[slot[ids[2]]] || !got[slot[ids[3]]] {
		t.Errorf("leaves %v of %v", got, slot)
	}
	if e, ok := c.d.Get(ids[0]); !ok || e.Float(c.d.Field(0, "v")) != 0 || c.d.Held() != 1 {
		t.Error("what stopped is not there at rest")
	}
	// Nothing is sent about it any more, and it stays.
	for tick := range feed.Tick(100) {
		if b, w := c.st.Append(nil, f.capture(9+tick), 1000); b != nil || w.Receipt != 0 || w.Held != 1 {
			t.Fatalf("%x was sent", b)
		}
	}
}

// TestLateJoinerEqualsVeteran has one join a city beside another in the same seat, with masks and rings on. A second later both hold
// the same, but for what the veteran still sees because it was nearer before.
func TestLateJoinerEqualsVeteran(t *testing.T) {
	for seed := range long(4, 40) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			c := newCity(t, seed, cityHalf)
			c.see[0] = 5
			c.f.See(0, 5)
			net := networks[seed%3]
			rnd := rand.New(rand.NewPCG(seed, 9))
			all := []*resident{c.settle(t, 0, net)}
			const late, end = 40, 60
			for now := range end + 60 {
				c.calm = now >= end
				for range 3 {
					c.drive()
				}
				if now == late {
					all = append(all, c.settle(t, 0, net))
				}
				if now == end {
					for _, r := range all {
						r.net = network{}
					}
				}
				fr := c.capture()
				for _, r := range all {
					r.run(t, rnd, now, fr, 1<<16)
				}
				if now < end+12 { // the last that was lost has come
					fr.Release()
					continue
				}
				veteran, joiner := all[0], all[1]
				for _, r := range all {
					if err := right(r.d, fr, 0, r.w.rings, false); err != nil {
						t.Fatal(err)
					}
				}
				for id, h := range veteran.d.byID {
					j := joiner.d.byID[id]
					switch {
					case j == nil && joiner.w.rings[id] == 0 && veteran.w.rings[id] == 2 && dist(c, id) > 250:
					case j == nil:
						t.Fatalf("packet %d: the late joiner lacks %x", now, id)
					case !slices.Equal(j.texts, h.texts):
						t.Fatalf("packet %d: %x: texts %q and %q", now, id, h.texts, j.texts)
					case veteran.w.rings[id] == 0 && joiner.w.rings[id] == 0:
						y := veteran.d.types[h.typ]
						a, b := make([]int32, y.cols), make([]int32, y.cols)
						y.extrapolate(a, h.top.cols, &h.top.version, fr.tick)
						y.extrapolate(b, j.top.cols, &j.top.version, fr.tick)
						if !slices.Equal(a, b) {
							t.Fatalf("packet %d: %x is %v and %v", now, id, a, b)
						}
					}
				}
				for id := range joiner.d.byID {
					if veteran.d.byID[id] == nil {
						t.Fatalf("packet %d: the veteran lacks %x", now, id)
					}
				}
				fr.Release()
			}
		})
	}
}

// dist is how far an entity is from seat 0.
func dist(c *city, id EntityID) float64 {
	e, eye := c.truth.ents[id], c.truth.eyes[0]
	return math.Hypot(e.at[0]-eye.at[0], e.at[1]-eye.at[1])
}
