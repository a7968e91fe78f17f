package snap

import (
	"fmt"
	"testing"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/wire"
)

// lossy is a client behind a link that loses, doubles and reorders packets and acks, with the ack handling of an engine.
type lossy struct {
	*client
	toClient []parcel
	toServer []ack
	open     []receipt // of packets whose fate is not known, oldest first
	newest   uint16    // newest packet read …
	history  uint32    // … and which of the 32 before it
	decoded  int
}

type parcel struct {
	due  int
	p    feed.Packet
	body []byte
	fr   *frame
	more bool
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

func (c *lossy) run(t *testing.T, g *rig, now int, fr *frame, limit int, loss int) {
	r := g.rnd
	b, w := c.st.Append(nil, fr, limit)
	if len(b) > limit {
		t.Fatalf("%d bytes, limit %d", len(b), limit)
	}
	if w.Receipt != 0 {
		c.seq++
		c.open = append(c.open, receipt{c.seq, w.Receipt})
		for k := 0; k == 0 || r.IntN(20) == 0; k++ { // now and then twice
			if r.IntN(100) >= loss {
				fr.Retain()
				c.toClient = append(c.toClient, parcel{now + 1 + r.IntN(4), feed.Packet{Seq: c.seq, Tick: fr.tick}, b, fr, w.More})
			}
		}
	}
	keep := c.toClient[:0]
	for _, p := range c.toClient {
		if p.due > now {
			keep = append(keep, p)
			continue
		}
		c.receive(t, p)
		p.fr.Release()
	}
	c.toClient = keep
	if c.decoded > 0 && r.IntN(100) >= loss {
		c.toServer = append(c.toServer, ack{now + 1 + r.IntN(4), c.newest, c.history})
	}
	acks := c.toServer[:0]
	for _, a := range c.toServer {
		if a.due > now {
			acks = append(acks, a)
			continue
		}
		for len(c.open) > 0 && !wire.SeqNewer(c.open[0].seq, a.newest) {
			back := wire.SeqDiff(a.newest, c.open[0].seq)
			arrived := back == 0 || back <= 32 && a.history>>(back-1)&1 == 1
			// Now and then an engine gives up on a packet that did arrive.
			if arrived && r.IntN(20) > 0 {
				c.st.Delivered(c.open[0].r)
			} else {
				c.st.Lost(c.open[0].r)
			}
			c.open = c.open[1:]
		}
	}
	c.toServer = acks
}

func (c *lossy) receive(t *testing.T, p parcel) {
	before := snapshotOf(c.d)
	switch err := c.d.Decode(p.p, p.body); {
	case err == ErrOvertaken:
		if c.decoded == 0 || wire.SeqNewer(p.p.Seq, c.newest) {
			t.Fatal("a new packet passes for an old one")
		}
		if snapshotOf(c.d) != before {
			t.Fatal("an old packet changed something")
		}
		return
	case err != nil:
		t.Fatal(err)
	}
	shift := wire.SeqDiff(p.p.Seq, c.newest)
	if c.decoded == 0 {
		c.history = 0
	} else if shift > 32 {
		c.history = 0
	} else {
		c.history = c.history<<shift | 1<<(shift-1)
	}
	c.newest = p.p.Seq
	c.decoded++
	// Whichever packets arrived before: one that left nothing out makes the client equal to its frame.
	if !p.more {
		sameView(t, fmt.Sprint("packet ", p.p.Seq), c.d, p.fr, c.seat)
	}
}

func TestUnorderedEqualsServerAtEveryPacket(t *testing.T) {
	for _, limit := range []int{1 << 16, 250} {
		for _, loss := range []int{0, 5, 40} {
			for seed := range uint64(2) {
				t.Run(fmt.Sprintf("limit=%d/loss=%d/seed=%d", limit, loss, seed), func(t *testing.T) {
					unordered(t, limit, loss, seed, 250)
				})
			}
		}
	}
}

// unordered drives a world under clients on lossy links, then lets it stand still.
func unordered(t *testing.T, limit, loss int, seed uint64, steps int) {
	g := newRig(t, seed)
	var clients []*lossy
	for range 15 {
		g.spawn()
	}
	now := 0
	for range steps {
		g.step(2)
		if len(clients) < 2 && g.rnd.IntN(20) == 0 {
			c := &lossy{client: join(t, g, len(clients), feed.Unordered)}
			c.seq = 65500 // soon wraps
			clients = append(clients, c)
		}
		fr := g.f.capture(g.tick)
		for _, c := range clients {
			c.run(t, g, now, fr, limit, loss)
		}
		fr.Release()
		now++
	}
	// The world stands still: everybody ends up with it, and then nothing is sent any more.
	fr := g.f.capture(g.tick)
	for dirty := true; dirty; now++ {
		if now > 20*steps {
			t.Fatal("does not come to rest")
		}
		dirty = false
		for _, c := range clients {
			c.run(t, g, now, fr, limit, loss)
			dirty = dirty || c.st.Dirty(fr)
		}
	}
	for _, c := range clients {
		sameView(t, "at rest", c.d, fr, c.seat)
		c.inOrder(t, g)
		if missed := g.f.Stats().EventsMissed; missed > 0 && limit == 1<<16 {
			t.Errorf("%d events missed", missed)
		}
		if len(c.bangs) == 0 || c.mine == 0 {
			t.Error("no events came")
		}
		if c.st.Dirty(fr) || c.st.Hash() != c.d.Hash() {
			t.Error("still dirty, or hashes differ")
		}
	}
}

// TestThereAndBackInFlight is the case that makes acked baselines go wrong: A is known to be there, B is in flight, the world is back
// at A. The client may come to hold B, so A must be sent.
func TestThereAndBackInFlight(t *testing.T) {
	for _, arrives := range []bool{true, false} {
		g := newRig(t, 1)
		id := g.players.Spawn(player{HP: 1})
		c := join(t, g, 0, feed.Unordered)
		c.send(t, g.f.capture(1), 1000)
		g.players.Get(id).HP = 2
		b, w := c.st.Append(nil, g.f.capture(2), 1000)
		if arrives {
			if err := c.d.Decode(feed.Packet{Seq: 2}, b); err != nil {
				t.Fatal(err)
			}
		}
		c.st.Lost(w.Receipt) // its ack never came
		g.players.Get(id).HP = 1
		fr := g.f.capture(3)
		c.seq = 2
		c.send(t, fr, 1000)
		sameView(t, fmt.Sprint("arrives=", arrives), c.d, fr, 0)
		if c.st.Dirty(fr) {
			t.Error("still dirty")
		}
	}
}
