package arena

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
)

// crowd is a game that bots play, each with a client of its own on an ordered link that takes everything.
type crowd struct {
	*game
	tick    feed.Tick
	bots    []func(drumline.BotView) Input
	views   []drumline.BotView
	streams []feed.Stream
	buf     []byte
	seq     uint16
	fire    int // inputs with Fire
	bytes   int // sent to seat 0
	cmds    []command
}

func newCrowd(t testing.TB, seed uint64, players int) *crowd {
	c := &crowd{game: newGame(rand.New(rand.NewPCG(seed, 1)))}
	c.populate()
	info := c.feed.Info()
	if err := c.feed.Err(); err != nil {
		t.Fatal(err)
	}
	for i := range players {
		c.join(i, names[i])
		dec, err := snap.NewDecoder(info.Schema)
		if err != nil {
			t.Fatal(err)
		}
		c.bots = append(c.bots, NewBot(seed+uint64(i)))
		c.views = append(c.views, drumline.BotView{Seat: feed.SeatID(i), Decoders: []feed.Decoder{dec}})
		c.streams = append(c.streams, c.feed.Join(feed.SeatID(i), feed.Ordered))
	}
	return c
}

// run steps three times and sends once.
func (c *crowd) run(t testing.TB) {
	for range 3 {
		c.tick++
		c.cmds = c.cmds[:0]
		for i, bot := range c.bots {
			in := bot(c.views[i])
			if in.Fire {
				c.fire++
			}
			c.cmds = append(c.cmds, command{seat: i, name: names[i], in: in})
		}
		c.feed.Stepping(c.tick)
		c.step(c.cmds)
	}
	fr := c.feed.Capture(c.tick)
	c.seq++
	for i, s := range c.streams {
		var w feed.Written
		c.buf, w = s.Append(c.buf[:0], fr, 1<<16)
		if len(c.buf) == 0 {
			continue
		}
		if i == 0 {
			c.bytes += len(c.buf)
		}
		s.Delivered(w.Receipt)
		c.views[i].Tick = c.tick
		if err := c.views[i].Decoders[0].Decode(feed.Packet{Seq: c.seq, Tick: c.tick}, c.buf); err != nil {
			t.Fatalf("tick %d, seat %d: %v", c.tick, i, err)
		}
	}
	fr.Release()
}

// While anybody plays, at least nine of ten entities change from one send to the next, as clients see them: it is what makes
// the arena's bytes comparable with other engines' figures.
func TestNearlyAllMoves(t *testing.T) {
	for _, players := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(players), func(t *testing.T) {
			c := newCrowd(t, 5, players)
			dec := c.views[0].Decoders[0].(*snap.Decoder)
			fields := map[int][]int{}
			for typ, names := range map[string][]string{
				"player":  {"x", "y", "vx", "vy", "aim", "hp", "wait", "shield", "away", "seat", "score"},
				"monster": {"x", "y", "vx", "vy", "hp", "mad"},
			} {
				for _, n := range names {
					f := dec.Field(dec.Type(typ), n)
					if f < 0 {
						t.Fatalf("no field %s of %s", n, typ)
					}
					fields[dec.Type(typ)] = append(fields[dec.Type(typ)], f)
				}
			}
			old, now := map[snap.EntityID][]float64{}, map[snap.EntityID][]float64{}
			var least, sum float64 = 1, 0
			const sends = 8 * 20
			for send := range sends {
				c.run(t)
				clear(now)
				same, both := 0, 0
				for e := range dec.Each {
					var v []float64
					for _, f := range fields[e.Type] {
						v = append(v, e.Float(f))
					}
					now[e.ID] = v
					if o, ok := old[e.ID]; ok {
						both++
						if slices.Equal(o, v) {
							same++
						}
					}
				}
				old, now = now, old
				if send == 0 {
					continue
				}
				changed := 1 - float64(same)/float64(both)
				least, sum = min(least, changed), sum+changed
				if changed < 0.9 {
					t.Fatalf("send %d: %d of %d entities stand still", send, same, both)
				}
			}
			t.Logf("least %.1f %%, mean %.1f %% of the entities change at a send of %d bytes", 100*least, 100*sum/(sends-1), c.bytes/sends)
		})
	}
}

// The bots play: they run about, hit something, and die now and then.
func TestBotsPlay(t *testing.T) {
	c := newCrowd(t, 3, maxSeats)
	var far [maxSeats]float64
	deaths := 0
	for range 15 * 20 {
		c.run(t)
		for i, id := range c.seats {
			p := c.players.Get(id)
			far[i] += length(p.VX, p.VY) / 20
			if p.Wait > respawnSteps-3 {
				deaths++
			}
		}
	}
	score := 0
	for i, id := range c.seats {
		if far[i] < 900 {
			t.Errorf("bot %d went %.0f units in 15 s", i, far[i])
		}
		score += int(c.players.Get(id).Score)
	}
	if score < 50 || deaths < 5 {
		t.Errorf("in 15 s sixteen bots scored %d and died %d times", score, deaths)
	}
	if f := float64(c.fire) / float64(len(c.bots)*int(c.tick)); f < 0.1 || f > 0.7 {
		t.Errorf("bots fire %.0f %% of the time; bursts were meant", 100*f)
	}
}

// Somebody who is alone in a room has time to find out what this is: all monsters together must not fall upon him.
func TestAloneIsNotHopeless(t *testing.T) {
	const games, most = 11, 60 * 20 // sends
	lives := func(act func(in Input) Input) (median float64) {
		var all []float64
		for seed := range uint64(games) {
			c := newCrowd(t, 100+seed, 1)
			play := c.bots[0]
			c.bots[0] = func(v drumline.BotView) Input { return act(play(v)) }
			n := 0
			for ; n < most && c.players.Get(c.seats[0]).HP > 0; n++ {
				c.run(t)
			}
			all = append(all, float64(n)/20)
		}
		slices.Sort(all)
		t.Logf("quartiles %.1f, %.1f, %.1f s", all[games/4], all[games/2], all[games*3/4])
		return all[games/2]
	}
	if s := lives(func(in Input) Input { return in }); s < 30 {
		t.Errorf("a bot lives for %.1f s", s)
	}
	if s := lives(func(in Input) Input { return Input{DX: in.DX, DY: in.DY} }); s < 30 {
		t.Errorf("who runs and never shoots lives for %.1f s", s)
	}
	if s := lives(func(Input) Input { return Input{} }); s < 15 {
		t.Errorf("who stands still lives for %.1f s", s)
	}
}

func TestBotAllocatesNothing(t *testing.T) {
	c := newCrowd(t, 1, 2)
	for range 50 {
		c.run(t)
	}
	v := c.views[0]
	if n := testing.AllocsPerRun(1000, func() { c.bots[0](v) }); n != 0 {
		t.Errorf("%v allocations an input", n)
	}
}

// A bot that has got nothing yet still sends something.
func TestBotBeforeFirstPacket(t *testing.T) {
	c := newCrowd(t, 1, 1)
	bot := NewBot(9)
	for range 100 {
		bot(drumline.BotView{})
		if in := bot(c.views[0]); in.Fire {
			t.Fatal("fires at what it does not know")
		}
	}
}

func BenchmarkBot(b *testing.B) {
	c := newCrowd(b, 1, maxSeats)
	for range 50 {
		c.run(b)
	}
	v := c.views[0]
	b.ReportAllocs()
	for b.Loop() {
		c.bots[0](v)
	}
}
