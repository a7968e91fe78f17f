package snap

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/wire"
)

var (
	seeds   = flag.Int("seeds", 50, "worlds of each kind to play over lossy links")
	packets = flag.Int("packets", 60, "how long to play each, in packets of 1/20 s")
)

// lossy is a client behind a link that loses, doubles, delays and reorders packets and acks, with the ack handling of an engine.
type lossy struct {
	*client
	net      network
	toClient []parcel
	toServer []ack

	// The server's side.
	open   []receipt // of packets whose fate is not known, oldest first
	acked  ack       // newest that came
	epoch  uint8
	gaveUp uint16
	gave   bool
	given  map[uint16]bool // given up, which no header may name

	// The client's side.
	paused  bool // it reads nothing
	any     bool
	newest  uint16 // newest packet read …
	history uint32 // … and which of the 32 before it
	read    int
	refused int

	vague int // baselines that the client was not sure of

	// compare the client with the frame of each packet that left nothing out.
	compare func(p *parcel) error
	// watch is what the seat sees of a frame; nil: everything.
	watch  func(st *stream, fr *frame) map[EntityID]uint8
	mutant string      // what is done wrong on purpose
	failed func(error) // instead of the test's end
}

func (c *client) stream() *stream { return c.st.(*stream) }

// network is how bad the link is: shares of 100, and ticks.
type network struct {
	loss, double, up int
	refuse           int // by the link itself
	delay, jitter    int
	burst            int // now and then everything is lost for so long
}

type parcel struct {
	due  int
	p    feed.Packet
	body []byte
	fr   *frame
	more bool
	life uint32
	// bases are what the server counts on, by slot.
	bases []counted
	// rings are what the seat sees in a city.
	rings map[EntityID]uint8
}

// counted is a baseline as the server has it.
type counted struct {
	slot int
	id   EntityID
	tick feed.Tick
	sum  wire.Hash
}

type receipt struct {
	seq uint16
	r   feed.Receipt
}

type ack struct {
	due     int
	newest  uint16
	history uint32
}

func joinLossy(t testing.TB, f *Feed, seat int, net network) *lossy {
	c := &lossy{client: join(t, f, seat, feed.Unordered), net: net, given: map[uint16]bool{}}
	c.compare = func(p *parcel) error { return c.equal(p.fr) }
	c.start(65500) // soon wraps
	return c
}

// start sets the number before the first packet's.
func (c *lossy) start(seq uint16) { c.seq, c.acked.newest = seq, seq }

func (c *lossy) gone(rnd *rand.Rand, now, loss int) bool {
	return rnd.IntN(100) < loss || c.net.burst > 0 && now/c.net.burst%5 == 4
}

// run is one send tick.
func (c *lossy) run(t testing.TB, rnd *rand.Rand, now int, fr *frame, limit int) {
	t.Helper()
	c.takeAcks(rnd, now)
	if len(c.open) > 0 && c.seq+1-c.open[0].seq >= flights {
		c.giveUp()
	}
	p := feed.Packet{Seq: c.seq + 1, Epoch: c.epoch, Tick: fr.tick, Ack: c.acked.newest, Acks: c.acked.history}
	for back := range uint16(32) {
		if c.given[p.Ack-1-back] {
			p.Acks &^= 1 << back
		}
	}
	if back := p.Ack - c.gaveUp; c.mutant == "names nothing older than what was given up" && c.gave && back <= 32 {
		p.Acks &= 1<<(back-1) - 1
	}
	if c.mutant == "skips without looking at what is in flight" {
		st := c.st.(*stream)
		for i := range st.recs {
			st.recs[i].last, st.recs[i].lost = mention{}, 0
		}
	}
	if c.net.refuse > 0 && rnd.IntN(100) < c.net.refuse { // a packet that the link refuses; the next one has its number
		_, w := c.st.Append(nil, fr, limit)
		if c.watch != nil {
			c.watch(c.stream(), fr)
		}
		if w.Receipt != 0 {
			c.st.Lost(w.Receipt)
		}
		if rnd.IntN(2) == 0 {
			return
		}
	}
	b, w := c.st.Append(nil, fr, limit)
	if len(b) > limit {
		t.Fatalf("%d bytes, limit %d", len(b), limit)
	}
	if c.mutant == "uses a slot before its leave is acked" {
		st := c.st.(*stream)
		for i := range st.recs {
			if st.recs[i].leaving && st.recs[i].left {
				st.free(i)
			}
		}
	}
	bases, rings := c.counted(), map[EntityID]uint8(nil)
	if c.watch != nil {
		rings = c.watch(c.stream(), fr)
	}
	c.seq++
	if w.Receipt != 0 {
		c.open = append(c.open, receipt{c.seq, w.Receipt})
	}
	for k := 0; k == 0 || rnd.IntN(100) < c.net.double; k++ {
		if !c.gone(rnd, now, c.net.loss) {
			fr.Retain()
			c.toClient = append(c.toClient, parcel{now + c.late(rnd), p, b, fr, w.More, c.stream().life, bases, rings})
		}
	}
	keep := c.toClient[:0]
	for _, p := range c.toClient {
		if p.due > now || c.paused {
			keep = append(keep, p)
			continue
		}
		c.receive(t, &p)
		p.fr.Release()
	}
	c.toClient = keep
	if c.any && !c.paused && !c.gone(rnd, now, c.net.up) {
		c.toServer = append(c.toServer, ack{now + c.late(rnd), c.newest, c.history})
	}
}

func (c *lossy) late(rnd *rand.Rand) int { return c.net.delay + rnd.IntN(c.net.jitter+1) }

func (c *lossy) takeAcks(rnd *rand.Rand, now int) {
	keep := c.toServer[:0]
	for _, a := range c.toServer {
		switch {
		case a.due > now:
			keep = append(keep, a)
			continue
		case wire.SeqDiff(a.newest, c.acked.newest) < 0, c.gave && wire.SeqDiff(a.newest, c.gaveUp) <= 0:
			continue
		}
		c.acked = a
		open := c.open[:0]
		for _, o := range c.open {
			back := wire.SeqDiff(a.newest, o.seq)
			switch {
			case back < 0:
				open = append(open, o)
			case back == 0, back <= 32 && a.history>>(back-1)&1 == 1, c.mutant == "takes acks for cumulative":
				c.st.Delivered(o.r)
			case back > 32:
				c.st.Lost(o.r)
			default:
				open = append(open, o)
			}
		}
		c.open = open
	}
	c.toServer = keep
	often := 200
	if c.mutant != "" {
		often = 10
	}
	if len(c.open) > 0 && rnd.IntN(often) == 0 {
		c.giveUp() // an engine whose ring is full
	}
}

func (c *lossy) giveUp() {
	c.gaveUp, c.gave = c.open[0].seq, true
	c.given[c.gaveUp] = true
	c.st.Lost(c.open[0].r)
	c.open = c.open[1:]
}

func (c *lossy) receive(t testing.TB, p *parcel) {
	t.Helper()
	note := func() {
		shift := wire.SeqDiff(p.p.Seq, c.newest)
		switch {
		case c.any && shift == 0:
			return
		case !c.any || shift > 32:
			c.history = 0
		case shift <= 0:
			c.history |= 1 << (-shift - 1)
			return
		default:
			c.history = c.history<<shift | 1<<(shift-1)
		}
		c.newest, c.any = p.p.Seq, true
	}
	if c.mutant == "acks before it has read" && (!c.any || p.p.Seq != c.newest) {
		note()
	}
	looks := c.read%4 == 0 || soaking() // it is slow
	before := wire.Hash(0)
	if looks {
		before = digest(c.d)
	}
	fail := func(err error) {
		if err != nil && c.failed == nil {
			t.Fatalf("packet %d: %v", p.p.Seq, err)
		} else if err != nil {
			c.failed(err)
		}
	}
	fail(c.sameBaselines(p))
	err := c.d.Decode(p.p, p.body)
	if c.mutant != "" && err != nil {
		if err != ErrOvertaken && err != ErrNoKeyframe {
			c.failed(err)
		}
		return
	}
	switch {
	case err == ErrOvertaken, err == ErrNoKeyframe:
		if err == ErrNoKeyframe {
			c.refused++
		}
		if looks && digest(c.d) != before {
			t.Fatal("an old packet changed something")
		}
		return
	case err != nil:
		t.Fatal(err)
	}
	if len(p.body) == 0 && (c.d.fresh || c.d.seq != p.p.Seq) {
		return // nothing was taken over
	}
	if c.mutant != "acks before it has read" {
		note()
	}
	c.read++
	if len(p.body) > 0 {
		fail(c.toldExactly(p.fr))
	}
	// Whichever packets arrived before: one that left nothing out makes the client equal to its frame.
	if !p.more {
		fail(c.compare(p))
	}
}

// counted is what the server counts on at an Append.
func (c *lossy) counted() (all []counted) {
	s := c.stream()
	if c.seq%3 > 0 && c.mutant == "" && !soaking() { // it is slow
		return nil
	}
	for i := range s.recs {
		if rc := &s.recs[i]; rc.id != 0 && !rc.leaving && rc.base.r != 0 {
			all = append(all, counted{i, rc.id, rc.base.tick, sum(s.bv[i*s.f.stride:][:s.layouts[rc.typ].cols])})
		}
	}
	return all
}

func sum(row []int32) wire.Hash {
	h := wire.NewHash
	for _, v := range row {
		h = h.Add(v)
	}
	return h
}

// sameBaselines checks, before a packet is read, that both ends would tell each entity against the same version.
func (c *lossy) sameBaselines(p *parcel) error {
	d := c.d
	if d.fresh || p.life != d.life || p.p.Epoch != d.epoch || !wire.SeqNewer(p.p.Seq, d.seq) {
		return nil
	}
	for _, b := range p.bases {
		h := d.at(b.slot)
		if h == nil || h.id != b.id {
			return fmt.Errorf("the server counts on %x in slot %d, which the client does not hold", b.id, b.slot)
		}
		switch v := d.baseline(h, &p.p, true); {
		case v == nil:
			c.vague++
			if p.p.Seq == d.seq+1 && !anyVague(h) {
				return fmt.Errorf("entity %x has no baseline, and nothing was missed; the server counts on that of tick %d", b.id, b.tick)
			}
		case v.tick != b.tick || sum(v.cols) != b.sum:
			return fmt.Errorf("entity %x: the client's baseline is of tick %d, the server's of tick %d", b.id, v.tick, b.tick)
		}
	}
	return nil
}

func anyVague(h *held) bool {
	for v := h.top; v != nil; v = v.prev {
		if v.vague {
			return true
		}
	}
	return false
}

// toldExactly checks that what the last packet told is what its frame says, rounded for its ring.
func (c *lossy) toldExactly(fr *frame) error {
	for _, slot := range c.d.told {
		h := c.d.at(slot)
		i := h.id.slot()
		y := fr.feed.tables[fr.typ[i]].layout
		mine := c.seat < len(fr.own) && fr.own[c.seat] == h.id
		for k, v := range fr.vals[fr.off[i]:][:y.cols] {
			want := rounded(v, &y.col[k], h.top.ring)
			if k >= y.pub && !mine {
				want = 0
			}
			if h.top.cols[k] != want {
				return fmt.Errorf("entity %x, %s: told %d, want %d", h.id, y.Fields[k].Name, h.top.cols[k], want)
			}
		}
	}
	return nil
}

// rounded is what docs/protocol.md says of rounding.
func rounded(v int32, c *column, ring uint8) int32 {
	s := c.lod[ring]
	if s == 0 {
		return v
	}
	x := (int64(v) + 1<<(s-1)) >> s << s
	switch {
	case c.angle:
		x = (x + 4096) % 4096
	case x > int64(c.max):
		x -= 1 << s
	case x < int64(c.min):
		x += 1 << s
	}
	return int32(x)
}

// equal compares what the client holds at the frame's tick with what it should see of it.
func (c *lossy) equal(fr *frame) (err error) {
	for _, h := range c.d.byID {
		i := h.id.slot()
		if i >= len(fr.ids) || fr.live[i/64]>>(i%64)&1 == 0 || fr.ids[i] != h.id {
			return fmt.Errorf("tick %d: holds %x, which is gone", fr.tick, h.id)
		}
		if !matches(c.d, fr, i, c.seat) {
			y := fr.feed.tables[fr.typ[i]].layout
			return fmt.Errorf("tick %d: entity %x: client has %v of tick %d %q, server %v %q", fr.tick, h.id, h.top.cols, h.top.tick, h.texts,
				fr.vals[fr.off[i]:][:y.cols], fr.texts[fr.toff[i]:][:y.texts])
		}
	}
	return nil
}

// networks are what the worlds are played over, by turns.
var networks = []network{
	{delay: 1},
	{loss: 5, up: 5, double: 5, refuse: 3, delay: 1, jitter: 3},
	{loss: 20, up: 20, double: 5, refuse: 5, delay: 2, jitter: 2},
	{loss: 40, up: 40, delay: 1, jitter: 3},
	{loss: 5, up: 80, delay: 4, jitter: 4},
	{loss: 2, up: 2, refuse: 2, delay: 20, jitter: 10},
	{loss: 5, up: 5, refuse: 10, delay: 1, jitter: 2, burst: 12},
	{loss: 5, up: 5, delay: 1, jitter: 2, burst: 45},
}

// TestUnorderedEqualsServerAtEveryPacket plays worlds of 6 s over bad links. At each packet that a client acks it is equal to the
// server in all that it holds; and when the world stands still and the link is good it soon holds everything.
func TestUnorderedEqualsServerAtEveryPacket(t *testing.T) {
	for seed := range *seeds {
		limit := []int{1 << 16, 1 << 16, 250}[seed%3]
		net := networks[seed%len(networks)]
		t.Run(fmt.Sprintf("seed=%d/limit=%d/%+v", seed, limit, net), func(t *testing.T) {
			t.Parallel()
			unordered(t, net, limit, uint64(seed), *packets)
		})
	}
}

// unordered drives a world under clients on lossy links, then lets it stand still.
func unordered(t *testing.T, net network, limit int, seed uint64, steps int) {
	g := newRig(t, seed)
	if seed%4 == 3 {
		nearWraps(g.f)
		g.tick = math.MaxUint32 - 100
	}
	var clients []*lossy
	for range 15 {
		g.spawn()
	}
	now := 0
	for range steps {
		g.step(2)
		if len(clients) < 2 && (now == 3 || now == 30) {
			clients = append(clients, joinLossy(t, g.f, len(clients), net))
		}
		fr := g.f.capture(g.tick)
		for _, c := range clients {
			c.run(t, g.rnd, now, fr, limit)
		}
		fr.Release()
		now++
	}
	// The world stands still, and the link is good: within two round trips everybody has what there is, and then nothing is sent any more.
	for _, players := range g.players.All() {
		players.Vel = vec{} // at rest; what moves on its own is tested elsewhere
	}
	for _, c := range clients {
		c.net.loss, c.net.up, c.net.burst, c.net.refuse = 0, 0, 0, 0
	}
	trips := 2*2*(net.delay+net.jitter+1) + 2*retry
	if limit < 1000 {
		trips += (1 + int(g.f.log.next)/12) * 2 * (net.delay + net.jitter + 1) // events wait for acks, three quarters of a packet at a time
	}
	if net.burst > 40 || net.up > 50 || net.delay > 10 {
		trips += flights // a client that lost track begins a new life
	}
	end := now + trips
	for dirty := true; dirty; now++ {
		fr := g.f.capture(g.tick)
		dirty = false
		for _, c := range clients {
			c.run(t, g.rnd, now, fr, limit)
			dirty = dirty || c.st.Dirty(fr) || c.d.Held() != fr.n
		}
		fr.Release()
		if now > end {
			t.Fatalf("does not come to rest in %d packets", trips)
		}
	}
	fr := g.f.capture(g.tick)
	mine := 0
	for _, c := range clients {
		sameView(t, "at rest", c.d, fr, c.seat)
		c.inOrder(t, g)
		if missed := g.f.Stats().EventsMissed; missed > 0 && limit == 1<<16 {
			t.Errorf("%d events missed", missed)
		}
		if mine += c.mine; len(c.bangs) == 0 || mine == 0 {
			t.Error("no events came")
		}
	}
}

// nearWraps has the feed's counters go over their ends soon.
func nearWraps(f *Feed) {
	f.captures, f.joins = math.MaxUint32-40, 1<<24-1
	for i := range f.slots.info {
		f.slots.info[i].gen = math.MaxUint16 - uint16(i%3)
	}
}

// TestMutants plays with what must not be done; each must be found out.
func TestMutants(t *testing.T) {
	for _, mutant := range []string{
		"skips without looking at what is in flight",
		"takes acks for cumulative",
		"acks before it has read",
		"uses a slot before its leave is acked",
		"names nothing older than what was given up",
	} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			var found error
			for seed := uint64(0); found == nil; seed++ {
				if seed == 40 {
					t.Fatal("nobody noticed")
				}
				g := newRig(t, seed)
				for range 15 {
					g.spawn()
				}
				c := joinLossy(t, g.f, 0, network{loss: 20, up: 20, delay: 1, jitter: 3})
				c.mutant, c.failed = mutant, func(err error) { found = err }
				for now := 0; now < 150 && found == nil; now++ {
					g.step(1)
					fr := g.f.capture(g.tick)
					c.run(t, g.rnd, now, fr, 1<<16)
					fr.Release()
				}
			}
			t.Log("found:", found)
		})
	}
}

// TestThereAndBackInFlight is the case that makes acked baselines go wrong: A is known to be there, B is in flight, the world is back
// at A. The client may come to hold B, so A must be sent.
func TestThereAndBackInFlight(t *testing.T) {
	for _, arrives := range []bool{true, false} {
		g := newRig(t, 1)
		id := g.players.Spawn(player{HP: 1})
		c := join(t, g.f, 0, feed.Unordered)
		c.send(t, g.f.capture(1), 1000)
		g.players.Get(id).HP = 2
		b, w := c.st.Append(nil, g.f.capture(2), 1000)
		if arrives {
			if err := c.d.Decode(feed.Packet{Seq: 2, Ack: 1}, b); err != nil {
				t.Fatal(err)
			}
		}
		c.st.Lost(w.Receipt) // its ack never came
		g.players.Get(id).HP = 1
		fr := g.f.capture(3)
		c.seq = 2
		c.ack = 1
		c.send(t, fr, 1000)
		sameView(t, fmt.Sprint("arrives=", arrives), c.d, fr, 0)
		if c.st.Dirty(fr) {
			t.Error("still dirty")
		}
	}
}
