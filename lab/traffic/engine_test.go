package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// probe saves and restores its world in step 40: nothing of it may change, and nobody may notice.
type probe struct {
	*traffic
	t *testing.T
}

func (p *probe) Step(st *drumline.Step[Input]) {
	p.traffic.Step(st)
	if st.Tick != 40 {
		return
	}
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

// Bots join over links inside the process and play for one and a half seconds. No packet is larger than a datagram takes.
func TestOnTheEngine(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		t.Run(fmt.Sprint("lossy=", lossy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playOnTheEngine(t, lossy) })
		})
	}
}

func playOnTheEngine(t *testing.T, lossy bool) {
	world := drumline.Define(drumline.Kind[Input]{
		Spec: World(Options{}).Spec(),
		Open: func(r *drumline.Room) (drumline.World[Input], error) {
			if lossy {
				return open(r, Options{}), nil
			}
			return &probe{open(r, Options{}), t}, nil
		},
	})
	if err := world.Err(); err != nil {
		t.Fatal(err)
	}
	srv, err := drumline.New(drumline.Options{
		Worlds: []drumline.Definition{world}, Seed: 7, JoinsPerSec: 100, Priority: "none", Clock: beat.PortableClock(),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	const players = drivers + 2
	done := make(chan error)
	for seed := range players {
		go func() { done <- playOne(ctx, srv, lossy, uint64(seed)) }()
	}
	for range players {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if s := srv.Stats(); s.RoomErrors != 0 {
		t.Errorf("%d rooms broke down", s.RoomErrors)
	}
}

// playOne is a client that joins, plays and goes.
func playOne(ctx context.Context, srv *drumline.Server, lossy bool, seed uint64) error {
	o := mem.Options{Down: mem.Path{Delay: 20 * time.Millisecond}}
	if lossy {
		o.Unordered, o.Seed = true, seed
		o.Down.Loss, o.Up.Loss, o.Down.Duplicate, o.Down.Reorder = 0.05, 0.05, 0.02, 0.05
	}
	link := mem.Connect(srv, drumline.Peer{}, o)
	defer link.Cut()
	hello, err := drumline.AppendJSON(nil, drumline.KindHello, drumline.Hello{Protocol: drumline.ProtocolVersion, World: "traffic"})
	if err != nil {
		return err
	}
	if err := link.Send(hello); err != nil {
		return err
	}
	var dec *snap.Decoder
	var bot func([]byte, drumline.BotView) []byte
	var view drumline.BotView
	var start, tick drumline.Tick
	var ack uint16 // the newest packet decoded, and in history those before it
	var history uint32
	for {
		m, err := link.Next(ctx)
		if err != nil {
			return err
		}
		switch m[0] {
		case drumline.KindWelcome:
			var w drumline.Welcome
			if err := json.Unmarshal(m[1:], &w); err != nil {
				return err
			}
			if dec, err = snap.NewDecoder(w.Feeds[0].Schema); err != nil {
				return err
			}
			start, tick = w.Tick, w.Tick
			view = drumline.BotView{Seat: w.Seat, Decoders: []feed.Decoder{dec}}
			bot = World(Options{}).NewBot(uint64(w.Seat))
		case drumline.KindState:
			if len(m) > 1100 {
				return fmt.Errorf("a packet of %d bytes", len(m))
			}
			h, err := drumline.ParseState(m, func(h drumline.StateHeader, _ int, body []byte) error {
				at := tick + drumline.Tick(int32(int16(h.Tick16-uint16(tick))))
				return dec.Decode(feed.Packet{Seq: h.Seq, Epoch: h.Epoch, Tick: at, Ack: h.Ack, Acks: h.Acks}, body)
			})
			if lossy && errors.Is(err, snap.ErrOvertaken) {
				continue
			}
			if err != nil {
				return err
			}
			tick += drumline.Tick(int32(int16(h.Tick16 - uint16(tick))))
			if ack != 0 {
				history = (history<<1 | 1) << (h.Seq - ack - 1)
			}
			ack = h.Seq
			view.Tick = tick
			if err := link.Send(bot(drumline.AppendInputHeader(nil, ack, history, 1, 0), view)); err != nil {
				return err
			}
			if tick < start+3*hz/2 {
				continue
			}
			own, ok := dec.Own()
			if !ok || dec.Held() < 20 {
				return fmt.Errorf("seat %d holds %d things, its own: %v", view.Seat, dec.Held(), ok)
			}
			if drives := own.Type == dec.Type("car"); drives != (view.Seat < drivers) {
				return fmt.Errorf("seat %d drives: %v", view.Seat, drives)
			}
			return nil
		case drumline.KindRefuse:
			return fmt.Errorf("refused: %s", m[1:])
		}
	}
}
