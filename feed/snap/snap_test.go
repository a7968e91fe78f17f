package snap

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/drumline-engine/drumline/feed"
)

func TestOrderedEqualsServerAtEveryTick(t *testing.T) {
	for seed := range long(4, 100) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			ordered(t, seed, 150)
		})
	}
}

// ordered drives a world under clients on ordered links that join late, leave, break and refuse packets.
func ordered(t *testing.T, seed uint64, steps int) {
	g := newRig(t, seed)
	var clients []*client
	for range 20 {
		g.spawn()
	}
	for n := range steps {
		g.step(len(clients))
		switch r := g.rnd.IntN(40); {
		case r == 0 && len(clients) < 6:
			clients = append(clients, join(t, g.f, len(clients), feed.Ordered))
		case r == 1 && len(clients) > 0: // another player on the same seat
			i := g.rnd.IntN(len(clients))
			clients[i].inOrder(t, g2(g, clients[i]))
			clients[i].st.Close()
			g.f.Leave(feed.SeatID(i))
			clients[i] = join(t, g.f, i, feed.Ordered)
		case r == 2 && len(clients) > 0: // a link that broke
			c := clients[g.rnd.IntN(len(clients))]
			c.st.Resume(c.d.Cursor(), feed.Ordered)
			c.seq = 0
		}
		fr := g.f.capture(g.tick)
		for _, c := range clients {
			if g.rnd.IntN(5) == 0 { // a packet that the link refused
				_, w := c.st.Append(nil, fr, 1<<16)
				c.st.Lost(w.Receipt)
			}
			if !c.st.Dirty(fr) {
				if b, w := c.st.Append(nil, fr, 1<<16); b != nil || w.Receipt != 0 {
					t.Fatal("not dirty, yet something was written")
				}
			}
			_, w := c.send(t, fr, 1<<16)
			if w.More {
				t.Fatal("more, within 64 KiB")
			}
			sameView(t, fmt.Sprint("tick ", n, " seat ", c.seat), c.d, fr, c.seat)
			if w.Held != c.d.Held() || c.st.Hash() != c.d.Hash() {
				t.Fatalf("held %d and %d, hash %x and %x", w.Held, c.d.Held(), c.st.Hash(), c.d.Hash())
			}
			if c.st.Dirty(fr) {
				t.Fatal("dirty after everything was sent")
			}
			c.inOrder(t, g)
		}
		fr.Release()
	}
}

// g2 is a rig whose last bang is the last that a frame could have shown to c.
func g2(g *rig, c *client) *rig {
	n := slices.Index(g.emitted, append(c.bangs, 0)[max(len(c.bangs)-1, 0)])
	return &rig{emitted: g.emitted[:n+1]}
}

func TestSmallLimitStarvesNobody(t *testing.T) {
	g := newRig(t, 3)
	for range 40 {
		g.spawn()
	}
	c := join(t, g.f, 0, feed.Ordered)
	own := g.players.Spawn(player{Name: "me", Note: strings.Repeat("x", 90)})
	g.f.Own(0, own)
	fr := g.f.capture(1)
	more := true
	for n := 0; more; n++ {
		if n > 60 {
			t.Fatal("does not end")
		}
		_, w := c.send(t, fr, 150)
		if n == 0 {
			if e, ok := c.d.Own(); !ok || e.Text(c.d.Field(0, "name")) != "me" {
				t.Fatal("the own entity did not come first")
			}
		}
		more = w.More
	}
	sameView(t, "at rest", c.d, fr, 0)
	fr.Release()

	// Everything moves all the time: each entity must get its turn.
	age := map[EntityID]int{}
	for n := range 200 {
		for _, p := range g.players.All() {
			p.Pos.X = float64(n % 7)
			p.HP++
		}
		fr := g.f.capture(feed.Tick(n + 2))
		c.send(t, fr, 100)
		fr.eachLive(func(i int) {
			id := fr.ids[i]
			if matches(c.d, fr, i, 0) {
				age[id] = 0
			} else if age[id]++; age[id] > 12 {
				t.Fatalf("entity %x has waited for %d packets", id, age[id])
			}
		})
		fr.Release()
	}
	if b, w := c.st.Append(nil, fr0(g), 3); b != nil || !w.More || w.Receipt != 0 {
		t.Errorf("limit 3: %d bytes, %+v; want nothing and More", len(b), w)
	}
}

func fr0(g *rig) *frame {
	for _, p := range g.players.All() {
		p.HP++
	}
	return g.f.capture(1000)
}

// TestEntityTooLargeBlocksNobody has more entities that can never fit than the stream tries per packet.
func TestEntityTooLargeBlocksNobody(t *testing.T) {
	type sign struct {
		Text string `drumline:"once,max=500"`
		N    uint8
	}
	f := New(Options{})
	signs := Add[sign](f, "sign")
	for i := range 40 {
		if i%2 == 0 {
			signs.Spawn(sign{Text: strings.Repeat("x", 400)})
		} else {
			signs.Spawn(sign{Text: "small"})
		}
	}
	st := f.Join(0, feed.Ordered)
	d, _ := NewDecoder(f.Info().Schema)
	fr := f.capture(1)
	for n := range 60 {
		b, w := st.Append(nil, fr, 60)
		if w.Receipt == 0 {
			continue
		}
		if err := d.Decode(feed.Packet{Seq: uint16(n + 1)}, b); err != nil {
			t.Fatal(err)
		}
		st.Delivered(w.Receipt)
	}
	if d.Held() != 20 {
		t.Errorf("client holds %d, want the 20 that fit", d.Held())
	}
}

func TestEventsAllInOrder(t *testing.T) {
	// A fast pointer's path: state shows the last point, events show them all.
	for _, dl := range []feed.Delivery{feed.Ordered, feed.Unordered} {
		g := newRig(t, 1)
		c := join(t, g.f, 0, dl)
		for range 1000 {
			g.emitted = append(g.emitted, uint32(len(g.emitted)+1))
			g.bangs.Emit(bang{g.emitted[len(g.emitted)-1]})
		}
		for n := 0; len(c.bangs) < 1000; n++ {
			if n > 100 {
				t.Fatal("does not end")
			}
			fr := g.f.capture(feed.Tick(n))
			c.send(t, fr, 300)
			fr.Release()
		}
		c.inOrder(t, g)
		if c.bangs[0] != 1 || g.f.Stats().EventsMissed != 0 {
			t.Errorf("first %d, missed %d", c.bangs[0], g.f.Stats().EventsMissed)
		}
	}
}

func TestEventsBeyondTheLogAreMissedAndCounted(t *testing.T) {
	g := newRig(t, 1)
	c := join(t, g.f, 0, feed.Ordered)
	for i := range uint32(3000) {
		g.bangs.Emit(bang{i})
	}
	fr := g.f.capture(1)
	c.send(t, fr, 1<<16)
	if s := g.f.Stats(); s.EventsMissed != 1976 || s.EventsDropped != 1976 || len(c.bangs) != 1024 || c.bangs[0] != 1976 {
		t.Errorf("%+v, got %d from %d", s, len(c.bangs), c.bangs[0])
	}
	if len(g.f.log.chunks) > 17 {
		t.Errorf("%d chunks for 1,024 events", len(g.f.log.chunks))
	}
}

func TestEventTicks(t *testing.T) {
	g := newRig(t, 1)
	c := join(t, g.f, 0, feed.Ordered)
	var ticks []feed.Tick
	c.d.OnEvent = func(e Event) { ticks = append(ticks, e.Tick) }
	g.bangs.Emit(bang{}) // no step has been named: the tick of the capture
	g.f.Stepping(4)
	g.bangs.Emit(bang{})
	g.f.Stepping(5)
	g.bangs.Emit(bang{})
	c.send(t, g.f.capture(6), 1000)
	g.bangs.Emit(bang{})
	c.send(t, g.f.capture(math.MaxUint32), 1000)
	g.f.Stepping(0)
	g.bangs.Emit(bang{})
	c.send(t, g.f.capture(1), 1000)
	if want := []feed.Tick{6, 4, 5, math.MaxUint32, 0}; !slices.Equal(ticks, want) {
		t.Errorf("ticks %v, want %v", ticks, want)
	}
}

func TestEventsOfAJoiner(t *testing.T) {
	g := newRig(t, 1)
	g.bangs.Emit(bang{1})
	g.bangs.EmitTo(3, bang{1<<31 | 3})
	g.f.capture(1)
	g.bangs.Emit(bang{2})              // before the join, in no frame yet
	g.bangs.EmitTo(3, bang{1<<31 | 3}) // for the seat's last tenant
	g.f.Leave(3)
	g.bangs.EmitTo(3, bang{1<<31 | 3}) // a greeting from World.Join
	c := join(t, g.f, 3, feed.Ordered)
	g.bangs.Emit(bang{3})
	c.send(t, g.f.capture(2), 1000)
	if !slices.Equal(c.bangs, []uint32{3}) || c.mine != 1 {
		t.Errorf("bangs %v, own %d; want 3 and the greeting", c.bangs, c.mine)
	}
}

func TestResumeContinuesEvents(t *testing.T) {
	g := newRig(t, 1)
	c := join(t, g.f, 0, feed.Ordered)
	g.bangs.Emit(bang{1})
	c.send(t, g.f.capture(1), 1000)
	g.bangs.Emit(bang{2})
	_, w := c.st.Append(nil, g.f.capture(2), 1000) // written, and lost with the link
	c.st.Delivered(w.Receipt)
	c.st.Resume(c.d.Cursor(), feed.Ordered)
	g.bangs.Emit(bang{3})
	fr := g.f.capture(3)
	_, w = c.send(t, fr, 1000)
	if !w.Keyframe || !slices.Equal(c.bangs, []uint32{1, 2, 3}) {
		t.Errorf("keyframe %v, bangs %v", w.Keyframe, c.bangs)
	}
	// A page that was loaded anew has no cursor: nothing is played twice, nothing new is missed.
	c.st.Resume(0, feed.Ordered)
	d, _ := NewDecoder(g.f.Info().Schema)
	c.d, c.seq, c.bangs, c.last = d, 0, nil, 0
	c.listen(t)
	g.bangs.Emit(bang{4})
	c.send(t, g.f.capture(4), 1000)
	if !slices.Equal(c.bangs, []uint32{4}) {
		t.Errorf("after a reload: bangs %v, want 4", c.bangs)
	}
	// A cursor from nowhere counts as one from the seat's beginning.
	c.last = 0
	c.st.Resume(1<<60, feed.Ordered)
	c.send(t, g.f.capture(5), 1000)
}

func TestSetIsDeterministicAndIDsDoNotComeBack(t *testing.T) {
	g := newRig(t, 1)
	seen := map[EntityID]bool{}
	var live []EntityID
	for range 5000 {
		if len(live) > 0 && g.rnd.IntN(2) == 0 {
			k := g.rnd.IntN(len(live))
			id := live[k]
			live = slices.Delete(live, k, k+1)
			if g.players.Get(id) == nil || !g.players.Remove(id) || g.players.Remove(id) || g.players.Get(id) != nil {
				t.Fatal("remove")
			}
			continue
		}
		id := g.players.Spawn(player{})
		if id == 0 || seen[id] {
			t.Fatalf("id %x", id)
		}
		seen[id] = true
		live = append(live, id)
	}
	if g.players.Len() != len(live) || g.rocks.Len() != 0 || g.rocks.Get(live[0]) != nil {
		t.Error("the sets mix")
	}
	var order []EntityID
	for id, p := range g.players.All() {
		if p != g.players.Get(id) {
			t.Fatal("pointer")
		}
		order = append(order, id)
	}
	slices.SortFunc(live, func(a, b EntityID) int { return a.slot() - b.slot() })
	if !slices.Equal(order, live) {
		t.Error("All is not in the order of slots")
	}
	for id := range g.players.All() { // removing the current one, and breaking off
		g.players.Remove(id)
		if g.players.Len() == 3 {
			break
		}
	}
	if g.players.Len() != 3 {
		t.Error("removal during All")
	}
}

func TestFull(t *testing.T) {
	f := New(Options{})
	set := Add[bang](f, "bang")
	var first EntityID
	for i := range maxSlots {
		id := set.Spawn(bang{})
		if id == 0 {
			t.Fatalf("full after %d", i)
		}
		if first == 0 {
			first = id
		}
	}
	if set.Spawn(bang{}) != 0 || f.Stats().Full != 1 || f.Stats().Entities != 65535 {
		t.Errorf("%+v", f.Stats())
	}
	set.Remove(first)
	if id := set.Spawn(bang{}); id == 0 || id == first || id.slot() != first.slot() {
		t.Errorf("%x after %x", id, first)
	}
}

func TestMended(t *testing.T) {
	g := newRig(t, 1)
	id := g.players.Spawn(player{Pos: vec{-5, math.NaN()}, Vel: vec{math.Inf(1), 1e9}, Dir: float32(math.Inf(-1)), Team: 99,
		Name: "Zoë Zoë Zoë Zoë", Note: "a\xffb"})
	c := join(t, g.f, 0, feed.Ordered)
	g.f.Own(0, id)
	c.send(t, g.f.capture(1), 1000)
	e, ok := c.d.Own()
	if !ok {
		t.Fatal("no own entity")
	}
	get := func(name string) float64 { return e.Float(c.d.Field(0, name)) }
	text := func(name string) string { return e.Text(c.d.Field(0, name)) }
	if get("pos.x") != 0 || get("pos.y") != 0 || get("vel.x") != 50 || get("vel.y") != 50 || get("dir") != 0 || get("team") != 3 ||
		text("name") != "Zoë Zoë Zo" || text("note") != "a\uFFFDb" {
		t.Error(snapshotOf(c.d))
	}
	s := g.f.Stats()
	if s.Clamped != 6 || s.TextsCut != 2 || s.Fields["player.pos.y"] != 1 || s.Fields["player.name"] != 1 {
		t.Errorf("%+v", s)
	}
}

func TestAccountIsComplete(t *testing.T) {
	g := newRig(t, 5)
	c := join(t, g.f, 0, feed.Ordered)
	for range 20 {
		g.spawn()
	}
	total := 0
	for range 50 {
		g.step(1)
		fr := g.f.capture(g.tick)
		b, _ := c.send(t, fr, 200)
		total += len(b)
		fr.Release()
	}
	var a feed.Account
	c.st.Account(&a)
	var sum uint64
	for _, r := range a.Rows {
		sum += r.Bits
	}
	if sum != uint64(total)*8 {
		t.Errorf("%d bits in the account, %d written", sum, total*8)
	}
	for _, label := range []string{"header", "events", "player.pos.x", "player.ammo", "player.note", "rock.seed"} {
		if a.Rows[label].Count == 0 {
			t.Errorf("nothing under %q", label)
		}
	}
	var again feed.Account
	c.st.Account(&again)
	if len(again.Rows) != 0 {
		t.Errorf("counted twice: %v", again.Rows)
	}
}

func TestFramesShareAndReuse(t *testing.T) {
	g := newRig(t, 1)
	g.spawn()
	a := g.f.capture(1)
	a.Retain()
	b := g.f.capture(2)
	if a == b {
		t.Fatal("a frame in use was reused")
	}
	a.Release()
	a.Release()
	if c := g.f.capture(3); c != a {
		t.Error("a free frame was not reused")
	}
	defer func() {
		if recover() == nil {
			t.Error("one Release too many went unnoticed")
		}
	}()
	b.Release()
	b.Release()
}

// Rings without a place do nothing, which is a mistake; it is told when there is no other that may be why.
func TestRingsWithoutPlace(t *testing.T) {
	type nowhere struct{ N uint8 }
	type plase struct {
		X, Y float32 `drumline:"q=1,range=0:9,plase"`
	}
	for _, c := range []struct {
		name string
		add  func(f *Feed)
		want string
	}{
		{"no place", func(f *Feed) { Add[nowhere](f, "a"); Add[nowhere](f, "b") }, "no entity type has a place (a, b)"},
		{"one type has one", func(f *Feed) { Add[nowhere](f, "a"); Add[spot](f, "spot") }, ""},
		{"events only", func(f *Feed) { AddEvent[bang](f, "bang") }, ""},
		{"a slip of the pen", func(f *Feed) { Add[plase](f, "p") }, `unknown word "plase"`},
	} {
		f := New(Options{Rings: []Ring{{Radius: 50}}})
		c.add(f)
		err := f.Err()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "no entity type") != (c.name == "no place") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
