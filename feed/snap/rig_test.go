package snap

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/wire"
)

type vec struct{ X, Y float64 }

type player struct {
	Pos    vec     `drumline:"q=0.01,range=0:1000,move=Vel"`
	Vel    vec     `drumline:"q=0.01,range=-50:50"`
	Dir    float32 `drumline:"angle"`
	HP     uint8
	Firing bool
	Team   int            `drumline:"range=-2:3"`
	Name   string         `drumline:"once,max=12"`
	Ammo   uint16         `drumline:"owner"`
	Note   string         `drumline:"once,max=300,owner"`
	cool   float64        `drumline:"-"`
	Seen   map[string]int `drumline:"-"`
}

type rock struct {
	X, Y float32 `drumline:"q=0.5,range=-10:1000"`
	Seed uint32
	Big  int64 `drumline:"range=-2147483648:2147483647"`
}

type shot struct {
	By   EntityID
	X, Y float32 `drumline:"q=0.1,range=0:1000"`
	Say  string  `drumline:"once,max=20"`
}

type bang struct {
	N uint32
}

// rig is a world with two types of entities and two of events, driven at random.
type rig struct {
	f       *Feed
	players *Set[player]
	rocks   *Set[rock]
	shots   *Events[shot]
	bangs   *Events[bang]
	rnd     *rand.Rand
	tick    feed.Tick
	emitted []uint32 // numbers of the bangs for everybody
}

func newRig(t testing.TB, seed uint64) *rig {
	t.Helper()
	g := &rig{f: New(Options{}), rnd: rand.New(rand.NewPCG(seed, 1))}
	g.players, g.rocks = Add[player](g.f, "player"), Add[rock](g.f, "rock")
	g.shots, g.bangs = AddEvent[shot](g.f, "shot"), AddEvent[bang](g.f, "bang")
	if err := g.f.Err(); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *rig) spawn() EntityID {
	r := g.rnd
	if r.IntN(3) == 0 {
		return g.rocks.Spawn(rock{X: r.Float32() * 900, Y: -3, Seed: r.Uint32(), Big: int64(int32(r.Uint32()))})
	}
	return g.players.Spawn(player{
		Pos: vec{r.Float64() * 1000, r.Float64() * 1000}, Dir: float32(r.IntN(20000))/1000 - 10, HP: uint8(r.Uint32()),
		Team: r.IntN(6) - 2, Name: fmt.Sprint("p", r.IntN(1000)), Ammo: uint16(r.Uint32()), Note: fmt.Sprint("note ", r.IntN(9)),
	})
}

// step changes the world a little, or much.
func (g *rig) step(seats int) {
	r := g.rnd
	g.tick++
	g.f.Stepping(g.tick)
	for id, p := range g.players.All() {
		switch r.IntN(12) {
		case 0, 1, 2, 3:
			p.Pos.X += r.Float64() - .5
			p.Vel.X = float64(r.IntN(8000))/100 - 40
		case 4:
			p.Firing = !p.Firing
			g.shots.Emit(shot{By: id, X: float32(p.Pos.X), Say: []string{"", "hé", "bang"}[r.IntN(3)]})
		case 5:
			p.Ammo++
		case 6:
			if r.IntN(6) == 0 {
				p.Name = fmt.Sprint("q", r.IntN(1000))
			}
		case 7:
			p.Note = fmt.Sprint("note ", r.IntN(9))
		case 8:
			if r.IntN(8) == 0 {
				g.players.Remove(id)
			}
		}
	}
	for id, k := range g.rocks.All() {
		switch r.IntN(30) {
		case 0:
			g.rocks.Remove(id)
		case 1:
			k.X++
		case 2: // there and back: what makes a client keep a version that the server believes superseded
			k.Y = -3
		case 3:
			k.Y = 4
		}
	}
	for range r.IntN(3) {
		if g.f.slots.n < 60 {
			g.spawn()
		}
	}
	if seats > 0 && r.IntN(4) == 0 {
		var ids []EntityID
		for id := range g.players.All() {
			ids = append(ids, id)
		}
		if len(ids) > 0 {
			g.f.Own(feed.SeatID(r.IntN(seats)), ids[r.IntN(len(ids))])
		}
	}
	for range r.IntN(3) {
		n := uint32(len(g.emitted)) + 1
		g.emitted = append(g.emitted, n)
		g.bangs.Emit(bang{n})
	}
	if seats > 0 && r.IntN(3) == 0 {
		seat := r.IntN(seats)
		g.bangs.EmitTo(feed.SeatID(seat), bang{1<<31 | uint32(seat)})
	}
}

// matches reports whether the client, at the frame's tick, holds slot i of the frame as the seat should see it.
func matches(d *Decoder, fr *frame, i, seat int) bool {
	h := d.byID[fr.ids[i]]
	if h == nil || h.id != fr.ids[i] || h.typ != int(fr.typ[i]) {
		return false
	}
	y := fr.feed.tables[fr.typ[i]].layout
	mine := seat < len(fr.own) && fr.own[seat] == h.id
	now := make([]int32, y.cols)
	y.extrapolate(now, h.top.cols, &h.top.version, fr.tick)
	for k, v := range fr.vals[fr.off[i]:][:y.cols] {
		if k >= y.pub && !mine {
			v = 0
		}
		if now[k] != y.col[k].round(v, h.top.ring) {
			return false
		}
	}
	for k, v := range fr.texts[fr.toff[i]:][:y.texts] {
		if k >= y.tpub && !mine {
			v = ""
		}
		if h.texts[k] != v {
			return false
		}
	}
	return true
}

// eachLive calls fn for the slots in use.
func (fr *frame) eachLive(fn func(i int)) {
	for w, word := range fr.live {
		for ; word != 0; word &= word - 1 {
			fn(w*64 + bits.TrailingZeros64(word))
		}
	}
}

// sameView checks that the client holds what the seat should see of the frame, and nothing else.
func sameView(t testing.TB, what string, d *Decoder, fr *frame, seat int) {
	t.Helper()
	fr.eachLive(func(i int) {
		if !matches(d, fr, i, seat) {
			var has any = "nothing"
			if h := d.byID[fr.ids[i]]; h != nil {
				has = fmt.Sprintf("%+v of tick %d %q", h.top.cols, h.top.tick, h.texts)
			}
			y := fr.feed.tables[fr.typ[i]].layout
			t.Fatalf("%s: tick %d, entity %x: client has %v, server %v %q", what, fr.tick, fr.ids[i], has, fr.vals[fr.off[i]:][:y.cols], fr.texts[fr.toff[i]:][:y.texts])
		}
	})
	if d.Held() != fr.n {
		t.Fatalf("%s: client holds %d, server %d", what, d.Held(), fr.n)
	}
	var own EntityID
	if seat < len(fr.own) {
		own = fr.own[seat]
	}
	if d.own != own {
		t.Fatalf("%s: client owns %x, server says %x", what, d.own, own)
	}
}

// snapshotOf is everything that a decoder holds, as text.
func snapshotOf(d *Decoder) string {
	b := fmt.Appendln(nil, d.fresh, d.epoch, d.life, d.seq, d.last, d.own, d.n)
	d.each(func(h *held) bool {
		b = fmt.Appendln(b, h.id, h.slot, h.typ, h.texts)
		for v := h.top; v != nil; v = v.prev {
			b = fmt.Appendln(b, v.version, v.seq, v.acked, v.lost, v.vague, v.cols)
		}
		return true
	})
	return string(b)
}

// digest is a hash of everything that a decoder holds.
func digest(d *Decoder) wire.Hash {
	flags := func(list ...bool) (n int32) {
		for i, f := range list {
			if f {
				n |= 1 << i
			}
		}
		return n
	}
	h := wire.NewHash.Add(flags(d.fresh, d.acked)).Add(int32(d.epoch)).Add(int32(d.life)).Add(int32(d.seq)).Add(int32(d.last)).Add(int32(d.own)).Add(int32(d.n))
	d.each(func(e *held) bool {
		h = h.Add(int32(e.slot))
		for v := e.top; v != nil; v = v.prev {
			h = hashEntity(h, e.id, uint8(e.typ), v.cols, e.texts).Add(int32(v.tick)).Add(int32(v.ring)).Add(int32(v.seq)).
				Add(flags(v.owner, v.still, v.acked, v.lost, v.vague))
		}
		return true
	})
	for i := range d.log {
		h = h.Add(int32(d.log[i].seq)).Add(flags(d.log[i].open)).Add(int32(len(d.log[i].vers)))
	}
	return h
}

// client is a seat with its stream and a decoder at the other end.
type client struct {
	seat  int
	st    feed.Stream
	d     *Decoder
	seq   uint16
	ack   uint16 // the newest packet that the server knows to be read
	bangs []uint32
	mine  int
	last  uint64
}

func join(t testing.TB, f *Feed, seat int, dl feed.Delivery) *client {
	t.Helper()
	d, err := NewDecoder(f.Info().Schema)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{seat: seat, st: f.Join(feed.SeatID(seat), dl), d: d}
	c.listen(t)
	return c
}

func (c *client) listen(t testing.TB) {
	typ := c.d.EventType("bang")
	c.d.OnEvent = func(e Event) {
		if e.ID <= c.last {
			t.Errorf("event %d after %d", e.ID, c.last)
		}
		c.last = e.ID
		if e.Type != typ {
			return
		}
		if n := uint32(e.Int(0)); n>>31 == 1 {
			if int(n&^(1<<31)) != c.seat {
				t.Errorf("seat %d got an event for seat %d", c.seat, n&^(1<<31))
			}
			c.mine++
		} else {
			c.bangs = append(c.bangs, n)
		}
	}
}

// send is one packet that arrives, and whose ack is back before the next.
func (c *client) send(t testing.TB, fr *frame, limit int) ([]byte, feed.Written) {
	t.Helper()
	b, w := c.st.Append(nil, fr, limit)
	if len(b) > limit {
		t.Fatalf("%d bytes, limit %d", len(b), limit)
	}
	if w.Receipt == 0 {
		return nil, w
	}
	c.seq++
	if err := c.d.Decode(feed.Packet{Seq: c.seq, Tick: fr.tick, Ack: c.ack}, b); err != nil {
		t.Fatalf("seat %d: %v", c.seat, err)
	}
	c.ack = c.seq
	c.st.Delivered(w.Receipt)
	return b, w
}

// inOrder checks that the client has had every bang from the first it got to the newest emitted, but for those that its world counts as
// missed.
func (c *client) inOrder(t testing.TB, g *rig) {
	t.Helper()
	for i, n := range c.bangs {
		if i > 0 && n != c.bangs[i-1]+1 && (n <= c.bangs[i-1] || g.f != nil && g.f.Stats().EventsMissed == 0) {
			t.Fatalf("seat %d: bang %d after %d", c.seat, n, c.bangs[i-1])
		}
	}
	if n := len(g.emitted); n > 0 && len(c.bangs) > 0 && c.bangs[len(c.bangs)-1] != g.emitted[n-1] {
		t.Fatalf("seat %d: last bang %d, %d emitted", c.seat, c.bangs[len(c.bangs)-1], n)
	}
}
