package snap

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/drumline-engine/drumline/feed"
)

// TestStillForLongThenMoves: a baseline is kept by value for as long as it is one, on both ends, however many packets and ticks ago.
func TestStillForLongThenMoves(t *testing.T) {
	for _, dl := range []feed.Delivery{feed.Ordered, feed.Unordered} {
		g := newRig(t, 1)
		old := g.players.Spawn(player{Name: "still", Pos: vec{500, 500}})
		busy := g.players.Spawn(player{Name: "busy"})
		c := join(t, g.f, 0, dl)
		for n := range 5 * flights {
			g.tick += 3
			g.players.Get(busy).HP++
			fr := g.f.capture(g.tick)
			c.send(t, fr, 1000)
			if n > 2 && len(c.d.told) > 1 {
				t.Fatalf("%v: what stands still was told in packet %d", dl, n)
			}
			fr.Release()
		}
		g.players.Get(old).Pos.X += 0.01
		g.tick += 3
		fr := g.f.capture(g.tick)
		b, _ := c.send(t, fr, 1000)
		sameView(t, "after", c.d, fr, 0)
		if len(b) > 12 || len(c.d.told) != 1 {
			t.Errorf("%v: %d bytes for a step of one quantum", dl, len(b))
		}
	}
}

// TestPausedFor30Seconds has a client read nothing for 600 packets, which are lost, or wait for it to be read all at once. The server begins
// new lives, keeps what it holds bounded, and all is well soon after; events come once and in order.
func TestPausedFor30Seconds(t *testing.T) {
	for _, kept := range []bool{false, true} {
		for seed := range long(1, 10) {
			t.Run(fmt.Sprintf("kept=%v/seed=%d", kept, seed), func(t *testing.T) {
				t.Parallel()
				c := newCity(t, seed, cityHalf)
				rnd := rand.New(rand.NewPCG(seed, 7))
				r := c.settle(t, 0, network{delay: 1, jitter: 1})
				first := r.stream().life
				const pause, resume, end = 20, 620, 680
				for now := range end {
					c.calm = now > end-10
					for range 3 {
						c.drive()
					}
					fr := c.capture()
					r.paused = now >= pause && now < resume
					if r.run(t, rnd, now, fr, 1<<16); r.paused && !kept {
						for _, p := range r.toClient {
							p.fr.Release()
						}
						r.toClient = r.toClient[:0]
					}
					if len(r.open) > flights || len(r.toServer) > flights {
						t.Fatalf("%d packets open", len(r.open))
					}
					if now == end-1 {
						if r.d.seq < r.seq-3 {
							t.Errorf("read up to %d of %d", r.d.seq, r.seq)
						}
					}
					fr.Release()
				}
				if lives := r.stream().life - first; lives < 5 || lives > 600/(flights-1)+1 {
					t.Errorf("%d new lives in 600 packets", lives)
				}
				// listen checks the order, and that none comes twice.
				if err := r.heardAll(); err != nil || len(r.bangs) < end*3/10 || c.f.Stats().EventsMissed != 0 {
					t.Errorf("%v; %d bangs, %d missed", err, len(r.bangs), c.f.Stats().EventsMissed)
				}
			})
		}
	}
}

// TestEpochWithOldPacketsInFlight restores a world under clients that still have packets of the old one under way, and acks on theirs.
func TestEpochWithOldPacketsInFlight(t *testing.T) {
	for seed := range long(6, 100) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			g := newRig(t, seed)
			for range 15 {
				g.spawn()
			}
			c := joinLossy(t, g.f, 0, network{loss: 10, up: 10, double: 10, delay: 3, jitter: 5})
			c.epoch = 254
			last := map[uint8]uint64{}
			c.d.OnEvent = func(e Event) { // numbers begin anew in each world
				if e.ID <= last[c.d.epoch] {
					t.Errorf("event %d after %d", e.ID, last[c.d.epoch])
				}
				last[c.d.epoch] = e.ID
			}
			var state []byte
			late := 0
			for now := range 120 {
				g.step(1)
				if now%40 == 20 {
					state, _ = g.f.AppendState(nil)
				}
				if now%40 == 30 {
					if err := g.f.RestoreState(state); err != nil {
						t.Fatal(err)
					}
					c.epoch++
					c.st.Resume(0, feed.Unordered)
					c.open = nil // receipts from before are void
					g.rocks.Spawn(rock{Seed: 1})
					late += len(c.toClient)
				}
				fr := g.f.capture(g.tick)
				epoch, fresh := c.d.epoch, c.d.fresh
				if c.run(t, g.rnd, now, fr, 1<<16); !fresh && int8(c.d.epoch-epoch) < 0 {
					t.Fatal("the epoch went back")
				}
				fr.Release()
			}
			if c.d.epoch != c.epoch || late < 6 || len(last) < 4 {
				t.Errorf("epoch %d, want %d; %d packets were late", c.d.epoch, c.epoch, late)
			}
		})
	}
}

// TestVersionThatDropsOutOfTheHistory: packet 2 is read, but the server never hears of it. Once no header can name it any more a client
// that has seen every header knows that it is no baseline; one that has missed a header cannot know, refuses what needs to, and gets a
// new life.
func TestVersionThatDropsOutOfTheHistory(t *testing.T) {
	for _, miss := range []int{0, 20, 35, 36, 37, 39, 41} { // 0: none
		g := newRig(t, 1)
		id := g.players.Spawn(player{HP: 1})
		c := join(t, g.f, 0, feed.Unordered)
		c.send(t, g.f.capture(1), 1000)
		g.players.Get(id).HP = 2
		b, w := c.st.Append(nil, g.f.capture(2), 1000)
		if err := c.d.Decode(feed.Packet{Seq: 2, Tick: 2, Ack: 1}, b); err != nil {
			t.Fatal(err)
		}
		// Packets without a section, all acked but the second, which drops out of the history with the header of packet 36.
		seq := uint16(2)
		header := func() feed.Packet {
			p := feed.Packet{Seq: seq, Tick: feed.Tick(seq), Ack: seq - 1}
			for back := range 32 {
				if of := int(p.Ack) - 1 - back; of > 0 && of != 2 {
					p.Acks |= 1 << back
				}
			}
			if p.Ack == 2 {
				p.Ack, p.Acks = 1, 0
			}
			return p
		}
		for seq = 3; seq < 42; seq++ {
			if int(seq) == miss {
				continue
			}
			if err := c.d.Decode(header(), nil); err != nil {
				t.Fatal(err)
			}
		}
		c.st.Lost(w.Receipt)
		g.players.Get(id).HP = 9
		fr := g.f.capture(50)
		b, w = c.st.Append(nil, fr, 1000)
		err := c.d.Decode(header(), b)
		vague := miss == 35 || miss == 36 // the last that could, and the first that cannot
		if vague != (err == ErrNoKeyframe) || !vague && err != nil {
			t.Fatalf("without header %d: %v", miss, err)
		}
		if !vague {
			sameView(t, fmt.Sprint("without header ", miss), c.d, fr, 0)
			continue
		}
		// It refuses, and so does not ack, until the server begins a new life.
		ack := header()
		for n := 0; ; n++ {
			if n > flights {
				t.Fatal("no new life comes")
			}
			seq++
			fr := g.f.capture(50 + feed.Tick(n))
			b, w = c.st.Append(nil, fr, 1000)
			err := c.d.Decode(feed.Packet{Seq: seq, Tick: fr.tick, Ack: ack.Ack, Acks: ack.Acks}, b)
			if w.Keyframe != (err == nil) {
				t.Fatalf("packet %d: keyframe %v, %v", n, w.Keyframe, err)
			}
			if err == nil {
				sameView(t, "in a new life", c.d, fr, 0)
				break
			}
		}
	}
}

// TestEventsAreNotPlayedAgainInANewLife: the acks of packets with events are lost until the server begins a new life, which it begins
// where it last heard of the client.
func TestEventsAreNotPlayedAgainInANewLife(t *testing.T) {
	g := newRig(t, 1)
	g.players.Spawn(player{})
	c := join(t, g.f, 0, feed.Unordered)
	c.send(t, g.f.capture(1), 1000)
	key := false
	for n := range feed.Tick(3 * flights) {
		if n < 10 {
			g.emitted = append(g.emitted, uint32(n+1))
			g.bangs.Emit(bang{uint32(n + 1)})
		}
		for _, p := range g.players.All() {
			p.HP++
		}
		fr := g.f.capture(2 + n)
		b, w := c.st.Append(nil, fr, 1000)
		c.seq++
		if err := c.d.Decode(feed.Packet{Seq: c.seq, Tick: fr.tick, Ack: 1}, b); err != nil {
			t.Fatal(err)
		}
		if w.Receipt == 0 {
			t.Fatal("nothing was sent")
		}
		key = key || w.Keyframe
		sameView(t, "", c.d, fr, 0)
	}
	if !key || len(c.bangs) != 10 {
		t.Errorf("new life: %v; bangs %v", key, c.bangs)
	}
	c.inOrder(t, g)
}
