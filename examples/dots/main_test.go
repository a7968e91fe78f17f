package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/beat"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
	"github.com/drumline-engine/drumline/link/mem"
)

// client plays dots over a link inside the process.
type client struct {
	t    *testing.T
	link *mem.Client
	tick drumline.Tick
	dec  *snap.Decoder
	dot  int // type numbers
	coin int
}

func join(t *testing.T, srv *drumline.Server, name string) *client {
	t.Helper()
	c := &client{t: t, link: mem.Connect(srv, drumline.Peer{}, mem.Options{})}
	hello, err := drumline.AppendJSON(nil, drumline.KindHello, drumline.Hello{Protocol: drumline.ProtocolVersion, World: "dots", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.link.Send(hello); err != nil {
		t.Fatal(err)
	}
	c.until("a dot", func() bool {
		if c.dec == nil {
			return false
		}
		_, ok := c.dec.Own()
		return ok
	})
	return c
}

// until runs to the nearest coin, packet by packet, until done; at most for half a minute.
func (c *client) until(what string, done func() bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for !done() {
		m, err := c.link.Next(ctx)
		if err != nil {
			c.t.Fatalf("while waiting for %s: %v", what, err)
		}
		switch m[0] {
		case drumline.KindWelcome:
			var w drumline.Welcome
			if err := json.Unmarshal(m[1:], &w); err != nil {
				c.t.Fatal(err)
			}
			if c.dec, err = snap.NewDecoder(w.Feeds[0].Schema); err != nil {
				c.t.Fatal(err)
			}
			c.tick, c.dot, c.coin = w.Tick, c.dec.Type("dot"), c.dec.Type("coin")
		case drumline.KindState:
			h, err := drumline.ParseState(m, func(h drumline.StateHeader, _ int, body []byte) error {
				c.tick += drumline.Tick(h.Tick16 - uint16(c.tick))
				return c.dec.Decode(feed.Packet{Seq: h.Seq, Epoch: h.Epoch, Tick: c.tick}, body)
			})
			if err != nil {
				c.t.Fatal(err)
			}
			right, down := c.way()
			msg := drumline.AppendInputHeader(nil, h.Seq, 0, 1, 0)
			if err := c.link.Send(append(msg, byte(right), byte(down))); err != nil {
				c.t.Fatal(err)
			}
		default:
			c.t.Fatalf("while waiting for %s: %s", what, m)
		}
	}
}

func (c *client) at(e snap.Entity) (x, y float64) {
	return e.Float(c.dec.Field(e.Type, "x")), e.Float(c.dec.Field(e.Type, "y"))
}

// way is the input that leads to the nearest coin.
func (c *client) way() (right, down int8) {
	own, _ := c.dec.Own()
	x, y := c.at(own)
	near := math.Inf(1)
	for e := range c.dec.Each {
		if e.Type != c.coin {
			continue
		}
		cx, cy := c.at(e)
		if d := math.Hypot(cx-x, cy-y); d > 0 && d < near {
			near, right, down = d, int8((cx-x)/d*127), int8((cy-y)/d*127)
		}
	}
	return right, down
}

func (c *client) count(typ int) (n int) {
	for e := range c.dec.Each {
		if e.Type == typ {
			n++
		}
	}
	return n
}

func play(t *testing.T, world drumline.Definition, f func(srv *drumline.Server)) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := drumline.New(drumline.Options{
			Worlds: []drumline.Definition{world}, Clock: beat.PortableClock(), Priority: "none", Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		f(srv)
		if n := srv.Stats().RoomErrors; n != 0 {
			t.Errorf("%d rooms broke down", n)
		}
	})
}

func TestDots(t *testing.T) {
	play(t, Dots, func(srv *drumline.Server) {
		ann := join(t, srv, "ann")
		bob := join(t, srv, "bob")
		ann.until("both dots and all coins", func() bool { return ann.count(ann.dot) == 2 && ann.count(ann.coin) == 20 })
		ann.until("three coins", func() bool {
			own, _ := ann.dec.Own()
			return own.Int(ann.dec.Field(ann.dot, "coins")) >= 3
		})
		if n := ann.count(ann.coin); n != 20 {
			t.Errorf("%d coins lie about, want 20", n)
		}
		bob.link.Send([]byte{drumline.KindLeave})
		ann.until("bob to be gone", func() bool { return ann.count(ann.dot) == 1 })
		ann.link.Cut()
	})
}

// saving saves and restores its world after each step.
type saving struct {
	*world
	t *testing.T
}

func (s *saving) Step(st *drumline.Step[Input]) {
	s.world.Step(st)
	before, err := s.Snapshot(nil)
	if err != nil {
		s.t.Error(err)
	}
	s.room.Rand().Uint64()
	if err := s.Restore(before); err != nil {
		s.t.Error(err)
	}
	if after, err := s.Snapshot(nil); err != nil || !bytes.Equal(before, after) {
		s.t.Errorf("step %d: a restored world saves itself otherwise (%v)", st.Tick, err)
	}
	if s.Restore(before[:len(before)/2]) == nil || s.Restore(nil) == nil {
		s.t.Error("restored from a part")
	}
}

func TestSnapshot(t *testing.T) {
	d := drumline.Define(drumline.Kind[Input]{
		Spec: Dots.Spec(),
		Open: func(r *drumline.Room) (drumline.World[Input], error) { return &saving{newWorld(r), t}, nil },
	})
	play(t, d, func(srv *drumline.Server) {
		c := join(t, srv, "ann")
		c.until("a coin", func() bool {
			own, _ := c.dec.Own()
			return own.Int(c.dec.Field(c.dot, "coins")) > 0
		})
		c.link.Cut()
	})
}

func TestPage(t *testing.T) {
	if _, err := fs.Stat(Dots.Spec().Web, "main.ts"); err != nil {
		t.Error(err)
	}
}
