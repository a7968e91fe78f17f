package snap

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/drumline-engine/drumline/feed"
)

type car struct {
	Pos    vec     `drumline:"q=0.02,range=-1000:1000,move=Vel,place,lod"`
	Z      float64 `drumline:"q=0.02,range=-700:700,lod=2:12"`
	Vel    vec     `drumline:"q=0.05,range=-60:60,frame=body"`
	Yaw    float64 `drumline:"angle,turn=Spin,tol=0.05"`
	Spin   float64 `drumline:"q=0.01,range=-4:4"`
	HP     uint8
	Horn   bool
	Driver EntityID
	Plate  string  `drumline:"once,max=8"`
	Aim    float32 `drumline:"angle,owner"`
	Fuel   uint16  `drumline:"owner"`
	Note   string  `drumline:"once,max=30,owner"`
	groups uint16  `drumline:"mask"`
}

type pedestrian struct {
	X, Y   float32 `drumline:"q=0.05,range=-1000:1000,place,tol=0.3"`
	VX, VY float32 `drumline:"q=0.1,range=-10:10"`
	Look   float32 `drumline:"angle,lod,tol=0.2"`
	Mood   int8    `drumline:"range=-3:3"`
}

type lamp struct {
	X, Y float32 `drumline:"q=1,range=-1000:1000,place"`
	On   bool
	Hue  uint8
}

type score struct {
	Round  uint16
	Kills  int    `drumline:"range=-5:1000"`
	Title  string `drumline:"once,max=20"`
	groups uint8  `drumline:"mask"`
}

type honk struct {
	N    uint32
	X, Y float32 `drumline:"q=1,range=-1000:1000"`
}

var cityRings = []Ring{{80, 1}, {160, 2}, {250, 4}}

const (
	citySeats = 3
	cityHalf  = 350 // half of its width
)

// city is a world with every mechanism: places, bodies, spins, rings, masks, owners and tolerances.
type city struct {
	f       *Feed
	cars    *Set[car]
	walkers *Set[pedestrian]
	lamps   *Set[lamp]
	scores  *Set[score]
	honks   *Events[honk]
	bangs   *Events[bang]
	rnd     *rand.Rand
	tick    feed.Tick
	calm    bool // nothing happens but what is under way

	bang    uint32
	banged  []uint32
	looks   [citySeats][2]float64
	own     [citySeats]EntityID
	see     [citySeats]uint32
	honked  []honked // since the last capture
	truth   truth
	heard   [citySeats][]uint32 // numbers of the honks that a seat is to get …
	perhaps map[uint32]bool     // … and of those that were emitted on the very border
}

type honked struct {
	n    uint32
	x, y float64
}

// truth is what a city says of its last capture, without a look at the frame.
type truth struct {
	ents map[EntityID]truthful
	eyes [citySeats]struct {
		at [2]float64
		ok bool
	}
}

type truthful struct {
	placed bool
	at     [2]float64
	mask   uint32
}

func newCity(t testing.TB, seed uint64, half float64) *city {
	t.Helper()
	c := &city{f: New(Options{Rings: cityRings, EventLog: 4096}), rnd: rand.New(rand.NewPCG(seed, 3)), perhaps: map[uint32]bool{}}
	c.cars, c.walkers, c.lamps, c.scores = Add[car](c.f, "car"), Add[pedestrian](c.f, "walker"), Add[lamp](c.f, "lamp"), Add[score](c.f, "score")
	c.honks, c.bangs = AddEvent[honk](c.f, "honk"), AddEvent[bang](c.f, "bang")
	if err := c.f.Err(); err != nil {
		t.Fatal(err)
	}
	if seed%4 == 3 {
		nearWraps(c.f)
		c.tick = math.MaxUint32 - 100
	}
	place := func() (x, y float64) { return (c.rnd.Float64()*2 - 1) * half, (c.rnd.Float64()*2 - 1) * half }
	for i := range 50 {
		x, y := place()
		v := car{Pos: vec{x, y}, Z: c.rnd.Float64() * 40, Yaw: c.rnd.Float64() * 7, HP: 100, Plate: fmt.Sprint("c", i), Fuel: 500}
		if i%5 == 0 {
			v.groups = uint16(1 << c.rnd.IntN(3))
		}
		if i%3 > 0 { // the others are parked
			v.Vel, v.Spin = vec{c.rnd.Float64() * 30, 0}, c.rnd.Float64()-.5
		}
		id := c.cars.Spawn(v)
		if i < 2 {
			c.ride(i, id)
		}
		x, y = place()
		c.walkers.Spawn(pedestrian{X: float32(x), Y: float32(y), VX: c.rnd.Float32()*4 - 2, VY: c.rnd.Float32()*4 - 2})
		if i%2 == 0 {
			x, y = place()
			c.lamps.Spawn(lamp{X: float32(x), Y: float32(y), On: true})
		}
	}
	c.scores.Spawn(score{Title: "red"})
	c.scores.Spawn(score{Title: "blue", groups: 2})
	for i := range c.see {
		c.see[i] = math.MaxUint32
	}
	return c
}

func (c *city) ride(seat int, id EntityID) {
	c.own[seat] = id
	c.f.Own(feed.SeatID(seat), id)
}

// drive is a step of 1/60 s.
func (c *city) drive() {
	r := c.rnd
	c.tick++
	c.f.Stepping(c.tick)
	for id, v := range c.cars.All() {
		if v.Vel != (vec{}) || v.Spin != 0 {
			sin, cos := math.Sincos(v.Yaw)
			v.Pos.X += (cos*v.Vel.X - sin*v.Vel.Y) / 60
			v.Pos.Y += (sin*v.Vel.X + cos*v.Vel.Y) / 60
			v.Yaw += v.Spin / 60
			if math.Abs(v.Pos.X) > cityHalf || math.Abs(v.Pos.Y) > cityHalf {
				v.Yaw = math.Atan2(-v.Pos.Y, -v.Pos.X)
			}
		}
		if c.calm {
			continue
		}
		v.Aim = float32(c.tick%100) / 10
		switch r.IntN(400) {
		case 0:
			v.Vel = vec{r.Float64()*50 - 10, r.Float64()*4 - 2}
		case 1:
			v.Spin = r.Float64()*4 - 2
		case 2:
			v.Vel, v.Spin = vec{}, 0
		case 3:
			v.HP, v.Horn = v.HP-1, !v.Horn
		case 4:
			v.Horn = !v.Horn // there and back
		case 5:
			v.Plate = fmt.Sprint("d", r.IntN(99))
		case 6:
			v.Fuel--
			v.Note = fmt.Sprint("fuel ", v.Fuel)
		case 7:
			v.Z += r.Float64()*2 - 1
			v.Driver = EntityID(r.Uint32())
		case 8:
			v.groups = uint16(r.IntN(8))
		case 9, 10, 11:
			c.honk(v.Pos.X+r.Float64()*500-250, v.Pos.Y)
		case 12:
			if r.IntN(6) == 0 {
				v.Pos = vec{(r.Float64()*2 - 1) * cityHalf, (r.Float64()*2 - 1) * cityHalf}
			}
		case 13:
			if !slices.Contains(c.own[:], id) && r.IntN(2) == 0 {
				c.cars.Remove(id)
				c.cars.Spawn(car{Pos: vec{v.Pos.X, -v.Pos.X}, Plate: "new", HP: 1, groups: uint16(r.IntN(2))})
			}
		}
	}
	for id, w := range c.walkers.All() {
		w.X, w.Y = min(max(w.X+w.VX/60, -cityHalf), cityHalf), min(max(w.Y+w.VY/60, -cityHalf), cityHalf)
		if c.calm {
			continue
		}
		switch r.IntN(200) {
		case 0:
			w.VX, w.VY = r.Float32()*4-2, r.Float32()*4-2
		case 1:
			w.Look += r.Float32()
		case 2:
			w.Mood = int8(r.IntN(7) - 3)
		case 3:
			if r.IntN(10) == 0 {
				c.walkers.Remove(id)
				c.lamps.Spawn(lamp{X: w.X, Y: w.Y}) // another type, before long in the same place
			}
		}
	}
	if c.calm {
		return
	}
	for id, l := range c.lamps.All() {
		switch r.IntN(900) {
		case 0:
			l.On = !l.On
		case 1:
			l.Hue++
		case 2:
			c.lamps.Remove(id)
			c.walkers.Spawn(pedestrian{X: l.X, Y: l.Y, VX: 2})
		}
	}
	for _, s := range c.scores.All() {
		if r.IntN(60) == 0 {
			s.Kills, s.Title = r.IntN(1000)-5, fmt.Sprint("team ", r.IntN(5))
		}
	}
	c.looks[2] = [2]float64{200 * math.Sin(float64(c.tick)/300), 60}
	c.f.LookAt(2, c.looks[2][0], c.looks[2][1], 0)
	switch seat := r.IntN(citySeats); r.IntN(200) {
	case 0:
		c.see[seat] = uint32(r.IntN(8))
		c.f.See(feed.SeatID(seat), c.see[seat])
	case 1, 2:
		if seat < 2 {
			ids := c.ids()
			c.ride(seat, append(ids, 0)[r.IntN(len(ids)+1)])
		}
	}
	if r.IntN(6) == 0 {
		c.bang++
		c.banged = append(c.banged, c.bang)
		c.bangs.Emit(bang{c.bang})
	}
}

func (c *city) ids() (ids []EntityID) {
	for id := range c.cars.All() {
		ids = append(ids, id)
	}
	return ids
}

func (c *city) honk(x, y float64) {
	c.bang++
	c.honked = append(c.honked, honked{c.bang, x, y})
	c.honks.EmitAt(x, y, honk{N: c.bang, X: float32(x), Y: float32(y)})
}

// stop brings everything to rest.
func (c *city) stop() {
	c.calm = true
	for _, v := range c.cars.All() {
		v.Vel, v.Spin = vec{}, 0
	}
	for _, w := range c.walkers.All() {
		w.VX, w.VY = 0, 0
	}
}

// capture takes a frame and notes the truth of it.
func (c *city) capture() *frame {
	c.truth.ents = map[EntityID]truthful{}
	on := func(v, q float64) float64 { return math.RoundToEven(v/q) * q }
	for id, v := range c.cars.All() {
		c.truth.ents[id] = truthful{true, [2]float64{on(v.Pos.X, .02), on(v.Pos.Y, .02)}, uint32(v.groups)}
	}
	for id, w := range c.walkers.All() {
		c.truth.ents[id] = truthful{true, [2]float64{on(float64(w.X), .05), on(float64(w.Y), .05)}, 0}
	}
	for id, l := range c.lamps.All() {
		c.truth.ents[id] = truthful{true, [2]float64{on(float64(l.X), 1), on(float64(l.Y), 1)}, 0}
	}
	for id, s := range c.scores.All() {
		c.truth.ents[id] = truthful{mask: uint32(s.groups)}
	}
	for seat := range c.truth.eyes {
		e := &c.truth.eyes[seat]
		if own, ok := c.truth.ents[c.own[seat]]; ok && own.placed {
			e.at, e.ok = own.at, true
		} else if seat == 2 && c.looks[2] != [2]float64{} {
			e.at, e.ok = c.looks[2], true
		}
		for _, h := range c.honked {
			switch d := math.Hypot(h.x-e.at[0], h.y-e.at[1]); {
			case math.Abs(d-250) < 1e-2:
				c.perhaps[h.n] = true
			case e.ok && d < 250:
				c.heard[seat] = append(c.heard[seat], h.n)
			}
		}
	}
	c.honked = c.honked[:0]
	return c.f.capture(c.tick)
}

// watcher is what a seat sees, by the docs alone: rings, and five in a hundred more to fall out of one.
type watcher struct {
	c     *city
	seat  int
	life  uint32
	rings map[EntityID]uint8
}

// look takes in the last capture, which the stream has just looked at.
func (w *watcher) look(st *stream, fr *frame) map[EntityID]uint8 {
	if st.life != w.life {
		w.life, w.rings = st.life, nil
	}
	eye := w.c.truth.eyes[w.seat]
	now := map[EntityID]uint8{}
	for id, e := range w.c.truth.ents {
		own := id == w.c.own[w.seat]
		if !own && e.mask != 0 && e.mask&w.c.see[w.seat] == 0 {
			continue
		}
		if own || !e.placed {
			now[id] = 0
			continue
		}
		before, held := w.rings[id]
		if !held {
			before = uint8(len(cityRings))
		}
		d := math.Hypot(e.at[0]-eye.at[0], e.at[1]-eye.at[1])
		for r := range uint8(len(cityRings)) {
			lim := cityRings[r].Radius
			if r >= before {
				lim *= 1.05
			}
			if math.Abs(d-lim) < 1e-3 { // too near to call: as the stream has it
				if k := st.slotOf[id.slot()]; k > 0 && st.recs[k-1].id == id {
					now[id] = st.recs[k-1].ring
				}
				break
			}
			if eye.ok && d < lim {
				now[id] = r
				break
			}
		}
	}
	w.rings = now
	return maps.Clone(now)
}

// right compares a client with a frame and with what it should see of it: what is due exactly or within the tolerance, what is no
// pose always. all: everything visible must be there, and counts as due.
func right(d *Decoder, fr *frame, seat int, rings map[EntityID]uint8, all bool) error {
	for _, h := range d.byID {
		ring, sees := rings[h.id]
		if !sees {
			return fmt.Errorf("tick %d: holds %x, which is out of sight", fr.tick, h.id)
		}
		i := h.id.slot()
		if fr.ids[i] != h.id || h.typ != int(fr.typ[i]) {
			return fmt.Errorf("tick %d: %x is another", fr.tick, h.id)
		}
		y := fr.feed.tables[fr.typ[i]].layout
		mine := seat < len(fr.own) && fr.own[seat] == h.id
		due := all || mine || (fr.count+uint32(i))%uint32(cityRings[ring].Every) == 0
		if due && h.top.ring != ring {
			return fmt.Errorf("tick %d: %s %x is in ring %d, want %d", fr.tick, y.Name, h.id, h.top.ring, ring)
		}
		now := make([]int32, y.cols)
		y.extrapolate(now, h.top.cols, &h.top.version, fr.tick)
		for k, v := range fr.vals[fr.off[i]:][:y.cols] {
			c := &y.col[k]
			pose := y.Fields[k].Pose || y.what == nil
			if pose && !due {
				continue
			}
			want := rounded(v, c, h.top.ring)
			if c.owner && !mine {
				want = 0
			}
			off := int64(now[k]) - int64(want)
			if c.angle {
				off = (off+4096+2048)%4096 - 2048
			}
			if lim := int64(c.tol); off != 0 && (!pose || mine || ring == 0 || off > lim || off < -lim) {
				return fmt.Errorf("tick %d: %s %x in ring %d, %s is off by %d: has %v of tick %d, server %v", fr.tick, y.Name, h.id, ring,
					y.Fields[k].Name, off, h.top.cols, h.top.tick, fr.vals[fr.off[i]:][:y.cols])
			}
		}
		for k, v := range fr.texts[fr.toff[i]:][:y.texts] {
			if k >= y.tpub && !mine {
				v = ""
			}
			if h.texts[k] != v {
				return fmt.Errorf("tick %d: %s %x has text %q, want %q", fr.tick, y.Name, h.id, h.texts[k], v)
			}
		}
	}
	if all && d.Held() != len(rings) {
		return fmt.Errorf("tick %d: holds %d, sees %d", fr.tick, d.Held(), len(rings))
	}
	if own := ownOf(fr, seat); d.own != own {
		return fmt.Errorf("tick %d: owns %x, want %x", fr.tick, d.own, own)
	}
	return nil
}

func ownOf(fr *frame, seat int) EntityID {
	if seat < len(fr.own) {
		return fr.own[seat]
	}
	return 0
}

// resident is a client of a city.
type resident struct {
	*lossy
	w      watcher
	honks  []uint32
	joined uint32 // the last number emitted when it joined
}

func (c *city) settle(t testing.TB, seat int, net network) *resident {
	r := &resident{lossy: joinLossy(t, c.f, seat, net), w: watcher{c: c, seat: seat}, joined: c.bang}
	r.watch = r.w.look
	r.compare = func(p *parcel) error { return right(r.d, p.fr, seat, p.rings, false) }
	r.hear()
	return r
}

// hear keeps the honks, too.
func (r *resident) hear() {
	bangs, typ := r.d.OnEvent, r.d.EventType("honk")
	r.d.OnEvent = func(e Event) {
		if bangs(e); e.Type == typ {
			r.honks = append(r.honks, uint32(e.Int(0)))
		}
	}
}

// heardAll checks that exactly the honks that were near have come, once and in order.
func (r *resident) heardAll() error {
	near := func(list []uint32) []uint32 {
		return slices.DeleteFunc(slices.Clone(list), func(n uint32) bool { return n <= r.joined || r.w.c.perhaps[n] })
	}
	if want, got := near(r.w.c.heard[r.seat]), near(r.honks); !slices.Equal(want, got) {
		return fmt.Errorf("seat %d heard %v, want %v", r.seat, got, want)
	}
	return nil
}

// TestCityEqualsServerAtEveryPacket plays a city over bad links. At each packet that left nothing out what a client holds is what it
// sees, as exact as its rings say; and when the city stands still and the link is good it soon holds everything.
func TestCityEqualsServerAtEveryPacket(t *testing.T) {
	for seed := range *seeds {
		limit := []int{1 << 16, 1 << 16, 300}[seed%3]
		net := networks[seed%len(networks)]
		t.Run(fmt.Sprintf("seed=%d/limit=%d/%+v", seed, limit, net), func(t *testing.T) {
			t.Parallel()
			playCity(t, net, limit, uint64(seed), *packets)
		})
	}
}

func playCity(t *testing.T, net network, limit int, seed uint64, packets int) {
	c := newCity(t, seed, cityHalf)
	var clients []*resident
	// One on a link that keeps the order must see exactly what there is to see after each packet.
	var sure *client
	var w watcher
	for now := range packets {
		for range 3 {
			c.drive()
		}
		switch now {
		case 2:
			clients = append(clients, c.settle(t, 0, net))
		case packets / 4:
			clients = append(clients, c.settle(t, 2, net))
			sure, w = join(t, c.f, 1, feed.Ordered), watcher{c: c, seat: 1}
		}
		fr := c.capture()
		for _, r := range clients {
			r.run(t, c.rnd, now, fr, limit)
		}
		if sure != nil {
			_, wr := sure.send(t, fr, 1<<16)
			rings := w.look(sure.stream(), fr)
			err := right(sure.d, fr, 1, rings, false)
			if err == nil && (sure.d.Held() != len(rings) || wr.Held != len(rings)) {
				err = fmt.Errorf("holds %d (the server says %d), sees %d", sure.d.Held(), wr.Held, len(rings))
			}
			if err == nil && wr.Receipt != 0 && sure.st.Hash() != sure.d.Hash() {
				err = fmt.Errorf("hashes differ")
			}
			if err != nil {
				t.Fatalf("ordered, packet %d: %v", now, err)
			}
		}
		fr.Release()
	}
	c.stop()
	for _, r := range clients {
		r.net.loss, r.net.up, r.net.burst, r.net.refuse = 0, 0, 0, 0
	}
	trip := 2 * (net.delay + net.jitter + 1)
	rest := 2*trip + 2*retry + 2*cityRings[2].Every
	if limit < 1000 {
		rest += (4 + int(c.f.log.next)/12) * trip
	}
	if net.burst > 40 || net.up > 50 || net.delay > 10 {
		rest += flights + trip
	}
	for now, calm := packets, 0; calm < cityRings[2].Every; now++ {
		if now > packets+rest {
			t.Fatalf("does not come to rest in %d packets", rest)
		}
		for range 3 {
			c.drive()
		}
		fr := c.capture()
		dirty := false
		for _, r := range clients {
			r.run(t, c.rnd, now, fr, limit)
			dirty = dirty || r.st.Dirty(fr) || right(r.d, fr, r.seat, r.w.rings, true) != nil
		}
		if calm++; dirty {
			calm = 0
		}
		fr.Release()
	}
	fr := c.capture()
	defer fr.Release()
	for _, r := range clients {
		if err := right(r.d, fr, r.seat, r.w.rings, true); err != nil {
			t.Fatal("at rest: ", err)
		}
		if err := r.heardAll(); err != nil && c.f.Stats().EventsMissed == 0 {
			t.Error(err)
		}
		if len(r.bangs) == 0 || len(r.honks) == 0 {
			t.Errorf("seat %d: %d bangs and %d honks came", r.seat, len(r.bangs), len(r.honks))
		}
	}
}
