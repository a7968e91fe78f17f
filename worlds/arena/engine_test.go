package arena

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
)

// player is a client on a link that is two channels.
type player struct {
	t    *testing.T
	conn *drumline.Conn
	msgs chan []byte

	closing sync.Once
	ended   chan struct{}

	welcome drumline.Welcome
	dec     *snap.Decoder
	events  map[string]int
	view    drumline.BotView
	tick    drumline.Tick
	seq     uint16
	bot     func([]byte, drumline.BotView) []byte
}

func (p *player) Delivery() feed.Delivery         { return feed.Ordered }
func (p *player) MaxState() int                   { return 0 }
func (p *player) Ready() bool                     { return len(p.msgs) < cap(p.msgs)/2 }
func (p *player) Queued() int                     { return 0 }
func (p *player) Counters() drumline.LinkCounters { return drumline.LinkCounters{} }
func (p *player) TrySend(msg []byte) bool         { return p.Send(msg) == nil }

func (p *player) Send(msg []byte) error {
	select {
	case p.msgs <- append([]byte(nil), msg...):
		return nil
	default:
		return drumline.ErrBacklog
	}
}

func (p *player) Close(int, string) { go p.drop() }

// drop ends the link as if it had been cut.
func (p *player) drop() {
	p.closing.Do(func() {
		p.conn.Closed(nil)
		close(p.ended)
	})
}

func (p *player) say(kind byte, v any) {
	m, err := drumline.AppendJSON(nil, kind, v)
	if err != nil {
		p.t.Fatal(err)
	}
	p.conn.Receive(m)
}

// joinServer joins and returns once the welcome is there.
func joinServer(t *testing.T, srv *drumline.Server, h drumline.Hello) *player {
	t.Helper()
	p := &player{t: t, msgs: make(chan []byte, 1024), ended: make(chan struct{}), events: map[string]int{}}
	p.conn = srv.Accept(p, drumline.Peer{Transport: "test"})
	h.Protocol, h.World = drumline.ProtocolVersion, "arena"
	p.say(drumline.KindHello, h)
	p.until("the welcome", func() bool { return p.dec != nil })
	return p
}

// until takes messages and plays until done, at most for ten seconds.
func (p *player) until(what string, done func() bool) {
	p.t.Helper()
	limit := time.After(10 * time.Second)
	for !done() {
		select {
		case m := <-p.msgs:
			p.take(m)
		case <-p.ended:
			p.t.Fatalf("the link ended while waiting for %s", what)
		case <-limit:
			p.t.Fatalf("waited in vain for %s", what)
		}
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
		p.view.Tick = p.tick
		in := drumline.AppendInputHeader(nil, h.Seq, 0, 1, 0)
		p.conn.Receive(p.bot(in, p.view))
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

// The arena on the engine: two play, one is cut off and comes back to his player, one leaves.
func TestOnTheEngine(t *testing.T) {
	srv, err := drumline.New(drumline.Options{
		Worlds: []drumline.Definition{World()}, Seed: 7, JoinsPerSec: 100, Priority: "none", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()

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

	bob.drop()
	ann.until("bob to be away", func() bool { return ann.others(away) == 1 })
	bob = joinServer(t, srv, drumline.Hello{Name: "bob", Token: bob.welcome.Token})
	if !bob.welcome.Resumed {
		t.Error("bob did not come back to his seat")
	}
	ann.until("bob to be back", func() bool { return ann.others(named) == 1 && ann.others(away) == 0 })

	bob.conn.Receive([]byte{drumline.KindLeave})
	ann.until("bob to leave", func() bool { return ann.others(named) == 0 })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ann.drop()
	if err := srv.Drain(ctx); err != nil {
		t.Error(err)
	}
	if s := srv.Stats(); s.RoomErrors != 0 {
		t.Errorf("%d rooms broke down", s.RoomErrors)
	}
}
