package arena

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/beat"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
	"github.com/drumline-engine/drumline/link/mem"
)

// player is a client on a link inside the process.
type player struct {
	t       *testing.T
	link    *mem.Client
	welcome drumline.Welcome
	dec     *snap.Decoder
	events  map[string]int
	view    drumline.BotView
	tick    drumline.Tick
	bot     func([]byte, drumline.BotView) []byte
	each    func(h drumline.StateHeader) []byte // in place of bot: the whole message
}

// joinServer joins and returns once the welcome is there.
func joinServer(t *testing.T, srv *drumline.Server, h drumline.Hello) *player {
	t.Helper()
	p := &player{t: t, events: map[string]int{}}
	p.link = mem.Connect(srv, drumline.Peer{}, mem.Options{Down: mem.Path{Delay: 20 * time.Millisecond}})
	h.Protocol, h.World = drumline.ProtocolVersion, "arena"
	hello, err := drumline.AppendJSON(nil, drumline.KindHello, h)
	if err != nil {
		t.Fatal(err)
	}
	p.send(hello)
	p.until("the welcome", func() bool { return p.dec != nil })
	return p
}

func (p *player) send(msg []byte) {
	p.t.Helper()
	if err := p.link.Send(msg); err != nil {
		p.t.Fatal(err)
	}
}

// until takes messages and plays until done, at most for ten seconds.
func (p *player) until(what string, done func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for !done() {
		m, err := p.link.Next(ctx)
		if err != nil {
			p.t.Fatalf("while waiting for %s: %v", what, err)
		}
		p.take(m)
	}
}

func (p *player) take(m []byte) {
	p.t.Helper()
	switch m[0] {
	case drumline.KindWelcome:
		if err := json.Unmarshal(m[1:], &p.welcome); err != nil {
			p.t.Fatal(err)
		}
		dec, err := snap.NewDecoder(p.welcome.Feeds[0].Schema)
		if err != nil {
			p.t.Fatal(err)
		}
		dec.OnEvent = func(e snap.Event) { p.events[[]string{"shot", "kill"}[e.Type]]++ }
		p.dec, p.tick = dec, p.welcome.Tick
		p.view = drumline.BotView{Seat: p.welcome.Seat, Decoders: []feed.Decoder{dec}}
		p.bot = World().NewBot(uint64(p.welcome.Seat))
	case drumline.KindState:
		h, err := drumline.ParseState(m, func(h drumline.StateHeader, _ int, body []byte) error {
			p.tick += drumline.Tick(h.Tick16 - uint16(p.tick))
			return p.dec.Decode(feed.Packet{Seq: h.Seq, Epoch: h.Epoch, Tick: p.tick}, body)
		})
		if err != nil {
			p.t.Fatal(err)
		}
		p.tick += drumline.Tick(h.Tick16 - uint16(p.tick)) // a packet may tell of nothing
		p.view.Tick = p.tick
		if p.each != nil {
			p.send(p.each(h))
			return
		}
		in := drumline.AppendInputHeader(nil, h.Seq, 0, 1, 0)
		p.send(p.bot(in, p.view))
	case drumline.KindRefuse:
		p.t.Fatalf("refused: %s", m[1:])
	}
}

// number returns a field of an entity.
func (p *player) number(e snap.Entity, typ, field string) float64 {
	return e.Float(p.dec.Field(p.dec.Type(typ), field))
}

func (p *player) others(f func(e snap.Entity) bool) (n int) {
	own, _ := p.dec.Own()
	for e := range p.dec.Each {
		if e.Type == p.dec.Type("player") && e.ID != own.ID && f(e) {
			n++
		}
	}
	return n
}

// inBubble runs f with a server whose time is synctest's.
func inBubble(t *testing.T, world drumline.Definition, f func(t *testing.T, srv *drumline.Server)) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := drumline.New(drumline.Options{
			Worlds: []drumline.Definition{world}, Seed: 7, JoinsPerSec: 100, Priority: "none", Clock: beat.PortableClock(),
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		f(t, srv)
		if s := srv.Stats(); s.RoomErrors != 0 {
			t.Errorf("%d rooms broke down", s.RoomErrors)
		}
	})
}

// The arena on the engine: two play, one is cut off and comes back to his player, and leaves.
func TestOnTheEngine(t *testing.T) {
	inBubble(t, World(), func(t *testing.T, srv *drumline.Server) {
		ann := joinServer(t, srv, drumline.Hello{Name: "ann"})
		bob := joinServer(t, srv, drumline.Hello{Name: "bob", Room: ann.welcome.Room})
		var at [2]float64
		ann.until("her own player and the monsters", func() bool {
			own, ok := ann.dec.Own()
			if ok {
				at = [2]float64{ann.number(own, "player", "x"), ann.number(own, "player", "y")}
			}
			return ok && ann.dec.Held() == 2+maxMonsters
		})
		ann.until("her player to move and shoot", func() bool {
			own, _ := ann.dec.Own()
			d := length(ann.number(own, "player", "x")-at[0], ann.number(own, "player", "y")-at[1])
			return d > 20 && ann.events["shot"] > 0
		})
		named := func(e snap.Entity) bool { return e.Text(ann.dec.Field(e.Type, "name")) == "bob" }
		away := func(e snap.Entity) bool { return named(e) && e.Int(ann.dec.Field(e.Type, "away")) != 0 }
		ann.until("bob", func() bool { return ann.others(named) == 1 && ann.others(away) == 0 })

		bob.link.Cut()
		ann.until("bob to be away", func() bool { return ann.others(away) == 1 })
		bob = joinServer(t, srv, drumline.Hello{Name: "bob", Token: bob.welcome.Token})
		if !bob.welcome.Resumed {
			t.Error("bob did not come back to his seat")
		}
		ann.until("bob to be back", func() bool { return ann.others(named) == 1 && ann.others(away) == 0 })

		bob.send([]byte{drumline.KindLeave})
		ann.until("bob to leave", func() bool { return ann.others(named) == 0 })
		ann.link.Cut()
	})
}

// probe saves and restores its world after each step: nothing of it may change, and nobody may notice.
type probe struct {
	*arena
	t *testing.T
}

func (p *probe) Step(st *drumline.Step[Input]) {
	p.arena.Step(st)
	before, err := p.Snapshot(nil)
	if err != nil {
		p.t.Error(err)
	}
	p.room.Rand().Uint64() // the source is a part of the snapshot
	if err := p.Restore(before); err != nil {
		p.t.Error(err)
	}
	if after, err := p.Snapshot(nil); err != nil || !bytes.Equal(before, after) {
		p.t.Errorf("step %d: a restored world saves itself otherwise (%v)", st.Tick, err)
	}
	for n := range 10 {
		if p.Restore(before[:n]) == nil {
			p.t.Errorf("restored from %d of %d bytes", n, len(before))
		}
	}
}

func TestSnapshotOnTheEngine(t *testing.T) {
	world := drumline.Define(drumline.Kind[Input]{
		Spec: drumline.Spec{Name: "arena", Hz: hz, Rewind: rewind},
		Open: func(r *drumline.Room) (drumline.World[Input], error) { return &probe{open(r, rewind), t}, nil },
	})
	inBubble(t, world, func(t *testing.T, srv *drumline.Server) {
		ann := joinServer(t, srv, drumline.Hello{Name: "ann"})
		ann.until("a second of play", func() bool { return ann.tick > ann.welcome.Tick+hz && ann.dec.Held() == 1+maxMonsters })
		ann.link.Cut()
	})
}
