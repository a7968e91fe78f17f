package drumline

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drumline-engine/drumline/feed"
)

// bubble runs f with a server in a synctest bubble, and ends the server.
func bubble(t *testing.T, spec Spec, o Options, prepare func(*testWorld), f func(ts *testServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ts := newTestServer(t, spec, o, prepare)
		defer ts.Close()
		f(ts)
	})
}

// pause lets d pass and everything that follows from it happen.
func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// keepAcking acks all packets of a link until stop is called.
func keepAcking(l *fakeLink) (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
				l.ackAll()
			}
		}
	}()
	return func() { close(done) }
}

func TestJoinAndState(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, func(w *testWorld) {
		w.onStep = func(w *testWorld, st *Step[testInput]) { w.main.value++ }
	}, func(ts *testServer) {
		l := ts.hello(Hello{Room: "r1", Name: "  Ann\u202e  Lee "})
		defer keepAcking(l)()
		pause(3 * time.Second)
		w, ok := message[Welcome](l, KindWelcome)
		if !ok || w.Room != "r1" || w.Name != "Ann Lee" || w.Hz != 60 || w.SendHz != 20 || len(w.Token) != 32 || w.Resumed || len(w.Inputs) != 5 {
			t.Fatalf("welcome %+v", w)
		}
		ps := l.packets(t)
		if n := len(ps); n < 58 || n > 61 {
			t.Fatalf("%d packets in 3 s, want 60", n)
		}
		for i, p := range ps {
			if p.Seq != uint16(i+1) {
				t.Fatalf("packet %d has seq %d", i, p.Seq)
			}
			if i > 0 {
				if d := p.at.Sub(ps[i-1].at); d < 49*time.Millisecond || d > 51*time.Millisecond {
					t.Fatalf("packet %d came %v after the one before", i, d)
				}
				if p.Tick16-ps[i-1].Tick16 != 3 || p.value != ps[i-1].value+3 {
					t.Fatalf("packet %d: tick %d value %d after %d, %d", i, p.Tick16, p.value, ps[i-1].Tick16, ps[i-1].value)
				}
			}
		}
		due := time.UnixMicro(w.TickZeroUs).Add(time.Duration(ps[5].Tick16) * time.Second / 60)
		if d := ps[5].at.Sub(due); d < -time.Millisecond || d > time.Millisecond {
			t.Errorf("the tick was due %v before its packet", d)
		}
		st := ts.Stats()
		if st.Players != 1 || st.Joined != 1 || len(st.Rooms) != 1 || st.Rooms[0].Beat.Steps < 170 || st.Rooms[0].BytesOutPerSec < 200 {
			t.Errorf("stats %+v", st)
		}
		if w := ts.Window(); w.Steps < 170 || w.Skipped != 0 || w.Packets < 55 || w.AgeMs.Max > 1 {
			t.Errorf("window %+v", w)
		}
	})
}

func TestRefusals(t *testing.T) {
	cases := []struct {
		name  string
		spec  Spec
		opt   Options
		first int // players already in
		hello Hello
		raw   []byte
		wait  time.Duration
		want  Reason
	}{
		{name: "version", hello: Hello{Protocol: 99}, want: ReasonVersion},
		{name: "no world", hello: Hello{World: "nowhere"}, want: ReasonNoWorld},
		{name: "room name", hello: Hello{Room: "Ärger!"}, want: ReasonNoRoom},
		{name: "room full", spec: Spec{Seats: 2}, first: 2, hello: Hello{Room: "r"}, want: ReasonRoomFull},
		{name: "server full", opt: Options{MaxPlayers: 2}, first: 2, hello: Hello{Room: "other"}, want: ReasonServerFull},
		{name: "no more rooms", spec: Spec{Rooms: 1}, first: 1, hello: Hello{Room: "other"}, want: ReasonServerFull},
		{name: "joins too fast", opt: Options{JoinsPerSec: 1}, first: 5, hello: Hello{Room: "r"}, want: ReasonTooFast},
		{name: "unknown token", hello: Hello{Token: "00000000000000000000000000000000"}, want: ReasonResumeUnknown},
		{name: "silent", wait: 6 * time.Second, want: ReasonSilent},
		{name: "garbage first", raw: []byte{KindInput, 1, 2}, want: ReasonBadMessage},
		{name: "empty", raw: []byte{}, want: ReasonBadMessage},
		{name: "hello that is not JSON", raw: []byte{KindHello, '{'}, want: ReasonBadMessage},
		{name: "hello too long", raw: append([]byte{KindHello}, make([]byte, MaxHelloBytes+1)...), want: ReasonBadMessage},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.spec.Hz = 60
			bubble(t, c.spec, c.opt, nil, func(ts *testServer) {
				for range c.first {
					ts.join("r")
					pause(20 * time.Millisecond)
				}
				var l *fakeLink
				switch {
				case c.raw != nil:
					l = ts.connect(feed.Ordered)
					l.send(c.raw)
				case c.wait != 0:
					l = ts.connect(feed.Ordered)
				default:
					l = ts.hello(c.hello)
				}
				pause(c.wait + time.Second)
				g, ok := message[Goodbye](l, KindRefuse)
				if !ok || g.Reason != c.want.Name() || g.Code != c.want.Code() || g.Text == "" || g.Retry != c.want.Retry().String() {
					t.Errorf("goodbye %+v (there: %v), want %v", g, ok, c.want)
				}
				if !l.closed || l.code != c.want.Code() || l.reason != c.want.Name() {
					t.Errorf("link closed %v with %d %q", l.closed, l.code, l.reason)
				}
				st := ts.Stats()
				if st.Refused[c.want.Name()] != 1 {
					t.Errorf("refused: %v", st.Refused)
				}
				if st.Players != c.first || st.Links != c.first {
					t.Errorf("%d players on %d links, want %d", st.Players, st.Links, c.first)
				}
			})
		})
	}
}

func TestWorldRefuses(t *testing.T) {
	refuse := errors.New("secret detail")
	bubble(t, Spec{Hz: 60}, Options{}, func(w *testWorld) {
		w.onJoin = func(s *Seat) error { return refuse }
	}, func(ts *testServer) {
		l := ts.join("r")
		pause(time.Second)
		if g, _ := message[Goodbye](l, KindRefuse); g.Reason != "world" || g.Text == "secret detail" {
			t.Errorf("goodbye %+v", g)
		}
		refuse = Refuse("You are banned.")
		l = ts.join("r")
		pause(time.Second)
		if g, _ := message[Goodbye](l, KindRefuse); g.Reason != "world" || g.Text != "You are banned." {
			t.Errorf("goodbye %+v", g)
		}
		if st := ts.Stats(); st.Players != 0 || ts.hub.players != 0 {
			t.Errorf("%d players, %d reserved", st.Players, ts.hub.players)
		}
	})
}

func TestResume(t *testing.T) {
	bubble(t, Spec{Hz: 60, Grace: 10 * time.Second}, Options{}, nil, func(ts *testServer) {
		a := ts.join("r")
		other := ts.join("r")
		defer keepAcking(other)()
		pause(time.Second)
		w, _ := message[Welcome](a, KindWelcome)
		a.drop(io.ErrUnexpectedEOF)
		pause(5 * time.Second)
		world := ts.world("r")
		if st := ts.Stats(); st.Players != 2 || st.Waiting != 1 || world.dropped != 1 || len(world.left) != 0 {
			t.Fatalf("after the drop: %d players, %d waiting, %d drops, left %v", st.Players, st.Waiting, world.dropped, world.left)
		}

		wrong := ts.hello(Hello{Token: "ffffffffffffffffffffffffffffffff"})
		pause(100 * time.Millisecond)
		if g, _ := message[Goodbye](wrong, KindRefuse); g.Reason != "resume_unknown" {
			t.Errorf("wrong token: %+v", g)
		}

		b := ts.hello(Hello{Token: w.Token, Cursors: []uint64{42}})
		pause(time.Second)
		w2, _ := message[Welcome](b, KindWelcome)
		if !w2.Resumed || w2.Seat != w.Seat || w2.Token != w.Token || world.resumed != 1 {
			t.Fatalf("resumed: %+v", w2)
		}
		if ps := b.packets(t); len(ps) < 19 || ps[0].Seq != 1 {
			t.Errorf("%d packets after resume", len(ps))
		}
		if got := world.main.streams[w.Seat].resumed; !reflect.DeepEqual(got, []uint64{42}) {
			t.Errorf("the stream was resumed with %v", got)
		}

		// The same seat on yet another link while the old one still lives: the old one is told.
		c := ts.hello(Hello{Token: w.Token})
		pause(time.Second)
		if world.dropped != 2 || world.resumed != 2 {
			t.Errorf("the world was told of %d drops and %d resumes", world.dropped, world.resumed)
		}
		if g, _ := message[Goodbye](b, KindRefuse); g.Reason != "replaced" {
			t.Errorf("the older link: %+v", g)
		}
		if w3, _ := message[Welcome](c, KindWelcome); !w3.Resumed || w3.Seat != w.Seat {
			t.Errorf("the newer link: %+v", w3)
		}
		if st := ts.Stats(); st.Players != 2 || st.Waiting != 0 {
			t.Errorf("%d players, %d waiting", st.Players, st.Waiting)
		}

		// Grace passes: the seat is given up, and the token is told apart from an unknown one.
		c.drop(io.EOF)
		pause(11 * time.Second)
		if st := ts.Stats(); st.Players != 1 || !slices.Equal(world.left, []SeatID{w.Seat}) {
			t.Errorf("after the grace: %d players, left %v", st.Players, world.left)
		}
		if !world.main.streams[w.Seat].closed {
			t.Error("the stream was not closed")
		}
		d := ts.hello(Hello{Token: w.Token})
		pause(time.Second)
		if g, _ := message[Goodbye](d, KindRefuse); g.Reason != "resume_expired" {
			t.Errorf("expired token: %+v", g)
		}
	})
}

// A thousand links that say nothing keep nobody out.
func TestSilentCrowd(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{MaxPending: 100}, nil, func(ts *testServer) {
		good := ts.join("r")
		defer keepAcking(good)()
		for range 1000 {
			ts.connect(feed.Ordered)
		}
		late := ts.join("r")
		defer keepAcking(late)()
		pause(time.Second)
		if _, ok := message[Welcome](late, KindWelcome); !ok {
			t.Error("a player was kept out")
		}
		st := ts.Stats()
		if st.Refused["silent"] != 901 && st.Refused["silent"] != 900 || st.Links > 103 {
			t.Errorf("%d refused, %d links", st.Refused["silent"], st.Links)
		}
		pause(6 * time.Second)
		if st := ts.Stats(); st.Refused["silent"] != 1000 || st.Links != 2 || len(ts.silent.at) != 0 {
			t.Errorf("at last %d refused, %d links", st.Refused["silent"], st.Links)
		}
		if n := len(good.packets(t)); n < 138 {
			t.Errorf("the player who was there got %d packets", n)
		}
	})
}

func TestLeave(t *testing.T) {
	bubble(t, Spec{Hz: 60, LingerEmpty: 3 * time.Second}, Options{}, nil, func(ts *testServer) {
		l := ts.join("r")
		pause(time.Second)
		l.send([]byte{KindLeave})
		pause(time.Second)
		if w := ts.world("r"); len(w.left) != 1 || w.dropped != 0 || l.code != 1000 {
			t.Errorf("left %v, dropped %d, code %d", w.left, w.dropped, l.code)
		}
		if st := ts.Stats(); len(st.Rooms) != 1 || st.Closed["left"] != 1 {
			t.Errorf("rooms %d, closed %v", len(st.Rooms), st.Closed)
		}
		pause(3 * time.Second)
		if st := ts.Stats(); len(st.Rooms) != 0 || st.RoomsClosed != 1 || ts.hub.players != 0 || len(ts.hub.tokens) != 0 {
			t.Errorf("an empty room stays: %+v", st.Rooms)
		}
	})
}

// A client that never acks goes through the stated stages: quarter rate, keep-alive, close.
func TestStalledClient(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l, good := ts.join("r"), ts.join("r")
		defer keepAcking(good)()
		count := func(l *fakeLink, from, to time.Duration) (n int) {
			ps := l.packets(t)
			for _, p := range ps {
				if d := p.at.Sub(ps[0].at); d >= from && d < to {
					n++
				}
			}
			return n
		}
		pause(40 * time.Second)
		if n := count(l, 0, 990*time.Millisecond); n != 20 {
			t.Errorf("first second: %d packets, want 20", n)
		}
		if n := count(l, 2*time.Second, 10*time.Second); n < 38 || n > 42 {
			t.Errorf("2 to 10 s: %d packets, want 40", n)
		}
		if n := count(l, 11*time.Second, 29*time.Second); n < 16 || n > 20 {
			t.Errorf("11 to 29 s: %d packets, want 18", n)
		}
		ps := l.packets(t)
		if last := ps[len(ps)-1]; last.bodies != 0 {
			t.Error("a keep-alive has a body")
		}
		g, _ := message[Goodbye](l, KindRefuse)
		if g.Reason != "stalled" || g.Retry != "resume" {
			t.Errorf("goodbye %+v", g)
		}
		if n := count(good, 0, 30*time.Second); n < 599 || n > 601 {
			t.Errorf("the other client got %d packets in 30 s, want 600", n)
		}
		st := ts.Stats()
		if st.Closed["stalled"] != 1 || st.Skipped["slow"] == 0 || st.Skipped["quiet"] == 0 {
			t.Errorf("closed %v skipped %v", st.Closed, st.Skipped)
		}
	})
}

func TestBusyAndBackloggedLinks(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l := ts.join("r")
		defer keepAcking(l)()
		pause(time.Second)
		l.mu.Lock()
		l.busy = true
		n := len(l.state)
		l.mu.Unlock()
		pause(500 * time.Millisecond)
		l.mu.Lock()
		l.busy = false
		if len(l.state) != n {
			t.Error("a busy link was sent to")
		}
		l.mu.Unlock()
		pause(500 * time.Millisecond)
		st := ts.Stats()
		if s := st.Skipped["busy"]; s < 9 || s > 11 {
			t.Errorf("skipped %v", st.Skipped)
		}
		ps := l.packets(t)
		if last := ps[len(ps)-1]; len(ps) < n+9 || last.Seq != uint16(len(ps)) {
			t.Errorf("%d packets, %d before, last seq %d", len(ps), n, last.Seq)
		}
		l.mu.Lock()
		l.queued = 3 << 20
		l.mu.Unlock()
		pause(9 * time.Second)
		if l.isClosed() {
			t.Fatal("closed before its time")
		}
		pause(2 * time.Second)
		if g, _ := message[Goodbye](l, KindRefuse); g.Reason != "backlog" {
			t.Errorf("goodbye %+v", g)
		}
	})
}

func TestBadMessages(t *testing.T) {
	input := func(label Tick, n int, body ...byte) []byte {
		return append(AppendInputHeader(nil, 0, 0, n, label), body...)
	}
	good := make([]byte, 8) // bits, dx, aim, speed
	nan := append(slices.Clone(good[:4]), 0, 0, 0xc0, 0x7f)
	cases := []struct {
		name string
		msg  []byte
		want Reason
	}{
		{"unknown kind", []byte{99, 1, 2, 3}, ReasonBadMessage},
		{"a server's kind", []byte{KindState}, ReasonBadMessage},
		{"second hello", []byte{KindHello, '{', '}'}, ReasonBadMessage},
		{"empty", []byte{}, ReasonBadMessage},
		{"short ack", []byte{KindAck, 1, 0}, ReasonBadMessage},
		{"ack of the future", AppendAck(nil, 30000, 0), ReasonBadAck},
		{"ack of the past beyond the first", AppendAck(nil, 65000, 0), ReasonBadAck},
		{"history before the first", AppendAck(nil, 2, ^uint32(0)), ReasonBadAck},
		{"short input", []byte{KindInput, 0, 0}, ReasonBadMessage},
		{"input without inputs", input(5, 0), ReasonBadMessage},
		{"too many inputs", input(50, 9, bytes.Repeat(good, 9)...), ReasonBadMessage},
		{"input cut short", input(5, 1, good[:7]...), ReasonBadMessage},
		{"input too long", input(5, 1, append(slices.Clone(good), 1)...), ReasonBadMessage},
		{"spare bits", input(5, 1, append([]byte{0x80}, good[1:]...)...), ReasonBadMessage},
		{"not a number", input(5, 1, nan...), ReasonBadMessage},
		{"labels below zero", input(1, 2, append(slices.Clone(good), good...)...), ReasonBadMessage},
		{"command too big", append([]byte{KindCommand}, make([]byte, MaxCommandBytes+1)...), ReasonTooBig},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
				l, other := ts.join("r"), ts.join("r")
				defer keepAcking(other)()
				pause(time.Second)
				l.send(c.msg)
				pause(time.Second)
				if g, _ := message[Goodbye](l, KindRefuse); g.Reason != c.want.Name() || l.code != c.want.Code() {
					t.Errorf("goodbye %+v, code %d, want %v", g, l.code, c.want)
				}
				if st := ts.Stats(); st.Closed[c.want.Name()] != 1 {
					t.Errorf("closed %v", st.Closed)
				}
				if ps := other.packets(t); len(ps) < 38 || other.isClosed() {
					t.Errorf("the other client got %d packets: %v %+v", len(ps), ts.Stats().Skipped, ts.Window())
				}
			})
		})
	}
}

func TestMessageFlood(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l, other := ts.join("r"), ts.join("r")
		defer keepAcking(other)()
		pause(time.Second)
		for range 10_000 {
			l.ack(1, 0)
			if l.conn.why.Load() != 0 {
				break
			}
		}
		pause(time.Second)
		if g, _ := message[Goodbye](l, KindRefuse); g.Reason != "too_fast" {
			t.Errorf("goodbye %+v", g)
		}
		if n := len(other.packets(t)); n < 38 {
			t.Errorf("the other client got %d packets", n)
		}
	})
}

func TestInputsReachTheirSteps(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l := ts.join("r")
		pause(time.Second)
		w := ts.world("r")
		now := Tick(l.conn.seat.Load().room.tickNow.Load())
		body := func(bits, dx byte) []byte { return []byte{bits, dx, 0, 0, 0, 0, 0, 0} }
		l.send(append(append(AppendInputHeader(nil, 0, 0, 2, now+5), body(1, 7)...), body(0, 6)...))
		l.send(append(AppendInputHeader(nil, 0, 0, 1, now+500), body(1, 9)...)) // far future
		pause(time.Second)
		at := func(tick Tick) Input[testInput] { return w.inputs[int(tick)-int(w.steps-len(w.inputs))-1] }
		if in := at(now + 4); in.Value.DX != 6 || in.Age != 0 || in.Pressed.Fire {
			t.Errorf("step +4: %+v", in)
		}
		if in := at(now + 5); in.Value.DX != 7 || in.Age != 0 || !in.Pressed.Fire || !in.Value.Fire {
			t.Errorf("step +5: %+v", in)
		}
		if in := at(now + 7); in.Value.DX != 7 || in.Age != 2 || in.Pressed.Fire || !in.Value.Fire {
			t.Errorf("step +7: %+v", in)
		}
		if in := at(now + 5 + 15); !in.Missing || in.Value.DX != 0 || in.Value.Fire {
			t.Errorf("step +20, after the hold: %+v", in)
		}
		if st := ts.Stats(); st.Dropped["input_future"] != 1 {
			t.Errorf("dropped %v", st.Dropped)
		}
		ps := l.packets(t)
		if last := ps[len(ps)-1]; last.InputAck != uint16(now+5) || last.Margin != 4 {
			t.Errorf("header says ack %d margin %d, want %d 4", last.InputAck, last.Margin, now+5)
		}
	})
}

func TestCommandsInOrder(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l := ts.join("r")
		pause(time.Second)
		for i := range 1000 {
			l.send(binary.LittleEndian.AppendUint32([]byte{KindCommand}, uint32(i)))
			if i%50 == 49 {
				pause(250 * time.Millisecond)
			}
		}
		pause(time.Second)
		w := ts.world("r")
		if len(w.commands) != 1000 {
			t.Fatalf("%d commands of 1,000", len(w.commands))
		}
		for i, c := range w.commands {
			if binary.LittleEndian.Uint32(c) != uint32(i) {
				t.Fatalf("command %d out of order", i)
			}
		}
		for range 100 { // more than the queue holds between two steps
			l.send([]byte{KindCommand, 1})
		}
		pause(time.Second)
		if st := ts.Stats(); st.Dropped["command"] != 36 || len(w.commands) != 1064 {
			t.Errorf("dropped %d, delivered %d", st.Dropped["command"], len(w.commands)-1000)
		}
	})
}

func TestPanicClosesOneRoom(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, func(w *testWorld) {
		if w.room.Name() == "bad" {
			w.onStep = func(w *testWorld, st *Step[testInput]) {
				if w.steps == 60 {
					panic("a bug in the rules")
				}
			}
		}
	}, func(ts *testServer) {
		good, bad := ts.join("good"), ts.join("bad")
		defer keepAcking(good)()
		pause(5 * time.Second)
		if g, _ := message[Goodbye](bad, KindRefuse); g.Reason != "room_error" {
			t.Errorf("goodbye %+v", g)
		}
		if n := len(good.packets(t)); n < 98 || good.isClosed() {
			t.Errorf("the good room sent %d packets", n)
		}
		st := ts.Stats()
		if st.RoomErrors != 1 || len(st.Rooms) != 1 || len(ts.world("bad").left) != 0 || st.Players != 1 || ts.hub.players != 1 {
			t.Errorf("errors %d, rooms %d, players %d/%d, left %v", st.RoomErrors, len(st.Rooms), st.Players, ts.hub.players, ts.world("bad").left)
		}
		again := ts.join("bad") // the room opens anew
		pause(500 * time.Millisecond)
		if _, ok := message[Welcome](again, KindWelcome); !ok {
			t.Error("the room did not open again")
		}
	})
}

func TestHungRoom(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{BeatThreads: 1}, func(w *testWorld) {
		if w.room.Name() == "bad" {
			w.onStep = func(w *testWorld, st *Step[testInput]) {
				if w.steps == 60 {
					time.Sleep(20 * time.Second)
				}
			}
		}
	}, func(ts *testServer) {
		good, bad := ts.join("good"), ts.join("bad")
		defer keepAcking(good)()
		pause(5 * time.Second)
		if g, _ := message[Goodbye](bad, KindRefuse); g.Reason != "room_hung" {
			t.Errorf("goodbye %+v", g)
		}
		ps := good.packets(t)
		if len(ps) < 50 || time.Since(ps[len(ps)-1].at) > 100*time.Millisecond {
			t.Errorf("the good room does not go on: %d packets", len(ps))
		}
		if st := ts.Stats(); st.RoomHangs != 1 || len(st.Rooms) != 1 || ts.hub.players != 1 || len(ts.hub.tokens) != 1 {
			t.Errorf("hangs %d, rooms %d, reserved %d, tokens %d", st.RoomHangs, len(st.Rooms), ts.hub.players, len(ts.hub.tokens))
		}
		pause(20 * time.Second) // the step returns, and finds its room gone
		if w := ts.world("bad"); w.steps != 60 {
			t.Errorf("the dead room stepped on to %d", w.steps)
		}
	})
}

func TestRoomWithoutBeat(t *testing.T) {
	bubble(t, Spec{Hz: 0, SendHz: 10}, Options{}, func(w *testWorld) {
		w.onStep = func(w *testWorld, st *Step[testInput]) {
			for _, in := range st.Inputs() {
				if in.Pressed.Fire {
					w.main.value++
				}
			}
		}
	}, func(ts *testServer) {
		l := ts.join("r")
		defer keepAcking(l)()
		pause(30 * time.Second)
		if ps := l.packets(t); len(ps) != 1 {
			t.Fatalf("an idle room sent %d packets in 30 s, want the first only", len(ps))
		}
		press := func() {
			l.send(append(AppendInputHeader(nil, 0, 0, 1, 0), 1, 0, 0, 0, 0, 0, 0, 0))
			synctest.Wait()
			l.send(append(AppendInputHeader(nil, 0, 0, 1, 0), 0, 0, 0, 0, 0, 0, 0, 0))
			synctest.Wait()
		}
		start := time.Now()
		press()
		ps := l.packets(t)
		if len(ps) != 2 || ps[1].at != start || ps[1].value != 1 {
			t.Fatalf("the first change came %d packets and %v later", len(ps)-1, ps[len(ps)-1].at.Sub(start))
		}
		for range 20 { // a burst: every press counts, packets come at the rate
			press()
			pause(10 * time.Millisecond)
		}
		pause(time.Second)
		ps = l.packets(t)
		if n := len(ps) - 2; n < 2 || n > 4 {
			t.Errorf("a burst of 200 ms made %d packets, want 2 to 4", n)
		}
		if v := ps[len(ps)-1].value; v != 21 {
			t.Errorf("%d presses counted, want 21", v)
		}
		w := ts.world("r")
		steps := w.steps
		w.room.Wake()
		synctest.Wait()
		if w.steps != steps+1 {
			t.Errorf("Wake made %d steps", w.steps-steps)
		}
	})
}

// Without a beat an input holds until the next one: what others do, does not let go of it.
func TestHeldInputWithoutBeat(t *testing.T) {
	presses := 0
	var held, missing bool
	bubble(t, Spec{Hz: 0}, Options{}, func(w *testWorld) {
		w.onStep = func(w *testWorld, st *Step[testInput]) {
			for s, in := range st.Inputs() {
				if s.ID() == 0 {
					held, missing = in.Value.Fire, in.Missing
					if in.Pressed.Fire {
						presses++
					}
				}
			}
		}
	}, func(ts *testServer) {
		a, b := ts.join("r"), ts.join("r")
		pause(time.Second)
		fire := append(AppendInputHeader(nil, 0, 0, 1, 0), 1, 0, 0, 0, 0, 0, 0, 0)
		other := append(AppendInputHeader(nil, 0, 0, 1, 0), 0, 1, 0, 0, 0, 0, 0, 0)
		for range 5 {
			a.send(fire)
			synctest.Wait()
			b.send(other)
			pause(time.Second)
		}
		if presses != 1 || !held || missing {
			t.Errorf("%d presses, held %v, missing %v", presses, held, missing)
		}
		w := ts.world("r")
		steps := w.steps
		pause(10 * time.Second)
		if w.steps != steps {
			t.Errorf("%d steps with nothing to do", w.steps-steps)
		}
		a.drop(io.EOF)
		pause(time.Second)
		if held || !missing {
			t.Errorf("after the link: held %v, missing %v", held, missing)
		}
	})
}

// moreFeed has more to send than fits: n bytes, counted down.
type moreFeed struct {
	counterFeed
	left int
}
type moreStream struct {
	feed.Stream
	f *moreFeed
}

func (f *moreFeed) Join(id feed.SeatID, d feed.Delivery) feed.Stream {
	return &moreStream{f.counterFeed.Join(id, d), f}
}
func (s *moreStream) Dirty(feed.Frame) bool { return s.f.left > 0 }
func (s *moreStream) Append(dst []byte, _ feed.Frame, limit int) ([]byte, feed.Written) {
	n := min(limit, s.f.left)
	s.f.left -= n
	return append(dst, make([]byte, n)...), feed.Written{Receipt: 1, More: s.f.left > 0}
}

// What does not fit into one packet follows at the send rate, also where nothing else happens.
func TestMoreWithoutBeat(t *testing.T) {
	f := &moreFeed{left: 20_000}
	bubble(t, Spec{Hz: 0, SendHz: 20, BudgetBytes: 32 << 10}, Options{}, func(w *testWorld) { w.feeds = []feed.Feed{f} }, func(ts *testServer) {
		l := ts.join("r")
		defer keepAcking(l)()
		pause(900 * time.Millisecond)
		if f.left > 0 {
			t.Errorf("%d bytes of 20,000 are left after 0.9 s at 32 KiB/s", f.left)
		}
		l.mu.Lock()
		n := len(l.state)
		l.mu.Unlock()
		pause(5 * time.Second)
		if l.mu.Lock(); len(l.state) != n {
			t.Errorf("%d more packets with nothing to say", len(l.state)-n)
		}
		l.mu.Unlock()
	})
}

func TestFlushNow(t *testing.T) {
	var flush atomic.Bool
	bubble(t, Spec{Hz: 60, SendHz: 2}, Options{}, func(w *testWorld) {
		w.onStep = func(w *testWorld, st *Step[testInput]) {
			if flush.Swap(false) {
				w.room.FlushNow(w.joined[0])
			}
		}
	}, func(ts *testServer) {
		a, b := ts.join("r"), ts.join("r")
		defer keepAcking(a)()
		defer keepAcking(b)()
		pause(2100 * time.Millisecond)
		na, nb := len(a.packets(t)), len(b.packets(t))
		flush.Store(true)
		pause(20 * time.Millisecond)
		if da, db := len(a.packets(t))-na, len(b.packets(t))-nb; da != 1 || db != 0 {
			t.Errorf("FlushNow sent %d to its seat and %d to the other", da, db)
		}
	})
}

func TestRoomGoAndAfter(t *testing.T) {
	type result struct {
		work, done, after bool
	}
	var got result
	bubble(t, Spec{Hz: 60}, Options{}, func(w *testWorld) {
		w.onStep = func(w *testWorld, st *Step[testInput]) {
			if w.steps == 30 {
				w.room.Go(func() { got.work = true; time.Sleep(300 * time.Millisecond) }, func() { got.done = true })
				w.room.After(100*time.Millisecond, func() { got.after = true })
			}
		}
	}, func(ts *testServer) {
		l := ts.join("r")
		defer keepAcking(l)()
		pause(2 * time.Second)
		if want := (result{work: true, done: true, after: true}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if n := len(l.packets(t)); n < 38 {
			t.Errorf("only %d packets", n)
		}
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := newTestServer(t, Spec{Hz: 60}, Options{}, nil)
		a, b := ts.join("r1"), ts.join("r2")
		pending := ts.connect(feed.Ordered)
		pause(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := ts.Drain(ctx); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		for i, l := range []*fakeLink{a, b, pending} {
			g, _ := message[Goodbye](l, KindRefuse)
			if g.Reason != "draining" || g.Retry != "later" || g.RetryMs < 500 || g.RetryMs > 3000 || l.code != 1001 {
				t.Errorf("link %d: %+v, code %d", i, g, l.code)
			}
		}
		if w := ts.world("r1"); len(w.left) != 1 {
			t.Error("the world was not told")
		}
		late := ts.join("r3")
		pause(100 * time.Millisecond)
		if g, _ := message[Goodbye](late, KindRefuse); g.Reason != "draining" {
			t.Errorf("a late join: %+v", g)
		}
		ts.Close()
		ts.Close()
		if st := ts.Stats(); !st.Draining || st.Links != 0 {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestCloseWithoutDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := newTestServer(t, Spec{Hz: 60}, Options{}, nil)
		l := ts.join("r")
		pause(time.Second)
		ts.Close()
		pause(time.Second)
		if g, _ := message[Goodbye](l, KindRefuse); g.Reason != "draining" {
			t.Errorf("%+v", g)
		}
	})
}

// A running room takes another world: the epoch rises, sequence, acks and ticks run on, and nobody loses the link over it.
func TestRestoreOnARunningRoom(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l := ts.join("r")
		defer keepAcking(l)()
		pause(time.Second)
		w := ts.world("r")
		w.room.post(func() {
			if err := w.room.Restore([]byte{9, 0, 0, 0}); err != nil {
				t.Error(err)
			}
		})
		pause(40 * time.Second) // longer than StallAfter
		ps := l.packets(t)
		last := ps[len(ps)-1]
		if last.Epoch != 2 || last.value != 9 || len(w.main.streams[0].resumed) != 1 || l.isClosed() {
			t.Fatalf("after Restore: epoch %d value %d, resumed %v, closed %v", last.Epoch, last.value, w.main.streams[0].resumed, l.isClosed())
		}
		for i, p := range ps[1:] {
			if p.Seq != ps[i].Seq+1 || p.Tick16-ps[i].Tick16 != 3 || p.Epoch < ps[i].Epoch || p.Epoch == 2 && p.value != 9 {
				t.Fatalf("packet %+v after %+v", p, ps[i])
			}
		}
		if st := ts.Stats(); st.Skipped["slow"] != 0 || st.Rooms[0].Epoch != 2 {
			t.Errorf("skipped %v, epoch %d", st.Skipped, st.Rooms[0].Epoch)
		}
		w.room.post(func() {
			if err := w.room.Restore([]byte{9}); err == nil {
				t.Error("a bad snapshot was taken")
			}
		})
		pause(time.Second)
		if g, _ := message[Goodbye](l, KindRefuse); g.Reason != "room_error" {
			t.Errorf("%+v", g)
		}
	})
}

func TestSnapshotAndRestoreRooms(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, func(w *testWorld) { w.main.value = 5 }, func(ts *testServer) {
		l := ts.join("a")
		defer keepAcking(l)()
		pause(time.Second)
		snap, err := ts.Snapshot(context.Background(), "test", "a")
		if err != nil || !bytes.Equal(snap, []byte{5, 0, 0, 0}) {
			t.Fatalf("% x, %v", snap, err)
		}
		if _, err := ts.Snapshot(context.Background(), "test", "nowhere"); !errors.Is(err, ErrClosed) {
			t.Errorf("a room that is not open: %v", err)
		}
		snap[0] = 77
		if err := ts.Restore("test", "b", snap); err != nil {
			t.Fatal(err)
		}
		if err := ts.Restore("test", "a", snap); err == nil {
			t.Error("an open room was opened again")
		}
		if err := ts.Restore("nowhere", "a", snap); err == nil {
			t.Error("an unknown world was opened")
		}
		m := ts.join("b")
		defer keepAcking(m)()
		pause(time.Second)
		if ps := m.packets(t); len(ps) == 0 || ps[0].value != 77 {
			t.Errorf("the restored room shows %v", ps)
		}
		if err := ts.Restore("test", "c", []byte{1}); err != nil {
			t.Fatal(err)
		}
		pause(time.Second)
		if st := ts.Stats(); len(st.Rooms) != 2 || st.RoomErrors != 1 {
			t.Errorf("%d rooms, %d errors after a snapshot that the world does not take", len(st.Rooms), st.RoomErrors)
		}
		rows, err := ts.Account(context.Background(), "test", "a")
		if err != nil || rows[0]["value"].Bits < 32*18 {
			t.Errorf("account %v, %v", rows, err)
		}
	})
}

// A link that ends at any moment of its joining leaves no seat behind.
func TestNoGhostSeats(t *testing.T) {
	bubble(t, Spec{Hz: 60, Grace: time.Second, LingerEmpty: time.Second}, Options{}, nil, func(ts *testServer) {
		for i := range 200 {
			l := ts.join(fmt.Sprint("r", i%7))
			go l.drop(io.ErrUnexpectedEOF)
			if i%3 == 0 {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond)
			}
		}
		pause(5 * time.Second)
		if st := ts.Stats(); st.Players != 0 || len(st.Rooms) != 0 || ts.hub.players != 0 || len(ts.hub.tokens) != 0 || st.Links != 0 {
			t.Errorf("players %d, rooms %d, reserved %d, tokens %d, links %d", st.Players, len(st.Rooms), ts.hub.players, len(ts.hub.tokens), st.Links)
		}
	})
}

// Addresses cannot shut each other out, and one site cannot fill the limiter's table.
func TestJoinLimiter(t *testing.T) {
	var l joinLimiter
	now := time.Unix(1, 0)
	passed := 0
	for i := range 20_000 {
		a := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 1, byte(i >> 8), byte(i)})
		if l.take(a, now, 5) {
			passed++
		}
	}
	if passed > 250 || len(l.by) > 300 {
		t.Errorf("a /48 got %d joins at once and %d buckets", passed, len(l.by))
	}
	for i := range 30_000 {
		l.take(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now, 5)
	}
	if !l.take(netip.MustParseAddr("192.0.2.77"), now, 5) || len(l.by) > joinAddresses {
		t.Errorf("a newcomer was shut out, or the table has %d buckets", len(l.by))
	}
	one := netip.MustParseAddr("192.0.2.1")
	got := 0
	for range 100 {
		if l.take(one, now, 5) {
			got++
		}
	}
	if got != 25 || !l.take(one, now.Add(time.Second), 5) {
		t.Errorf("one address got %d joins at once, want 25", got)
	}
	now = now.Add(2 * joinForgetting)
	l.mu.Lock()
	l.prune(now)
	n := len(l.by)
	l.mu.Unlock()
	if n != 0 {
		t.Errorf("%d buckets are kept for ever", n)
	}
	if !l.take(netip.Addr{}, now, 5) {
		t.Error("a transport without addresses is shut out")
	}
}

// Work that never returns, or ends its goroutine, takes neither the others' work nor the process's end.
func TestRoomGoMisused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var ran atomic.Int32
		ts := newTestServer(t, Spec{Hz: 60}, Options{Workers: 1}, func(w *testWorld) {
			w.onStep = func(w *testWorld, st *Step[testInput]) {
				if w.steps == 10 {
					w.room.Go(runtime.Goexit, nil)
					w.room.Go(func() {}, func() { ran.Add(1) })
					w.room.Go(func() { <-release }, nil)
				}
			}
		})
		ts.join("r")
		pause(time.Second)
		if ran.Load() != 1 {
			t.Error("work after a Goexit did not run")
		}
		start := time.Now()
		ts.Close()
		if d := time.Since(start); d < workGrace || d > workGrace+100*time.Millisecond {
			t.Errorf("Close took %v, want %v", d, workGrace)
		}
		close(release)
	})
}

func TestRefusalsCountOnce(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, func(w *testWorld) {
		w.onJoin = func(s *Seat) error { s.conn.link.(*fakeLink).drop(io.EOF); return nil }
	}, func(ts *testServer) {
		ts.join("r")
		pause(time.Second)
		total := uint64(0)
		for _, n := range ts.Stats().Refused {
			total += n
		}
		if total != 1 || ts.hub.players != 0 {
			t.Errorf("%d refusals counted for one, %d reserved", total, ts.hub.players)
		}
	})
}

// Sums over all rooms never fall when a room closes.
func TestTotalsNeverFall(t *testing.T) {
	bubble(t, Spec{Hz: 60, LingerEmpty: time.Millisecond}, Options{LiftCaps: true}, nil, func(ts *testServer) {
		var last uint64
		for i := range 60 {
			l := ts.join(fmt.Sprint("r", i%5))
			pause(300 * time.Millisecond)
			l.send([]byte{KindLeave})
			for range 20 {
				if n := ts.Stats().PacketsOut; n < last {
					t.Fatalf("packets fell from %d to %d", last, n)
				} else {
					last = n
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
		if w := ts.Window(); w.PeakMbit > 1 {
			t.Errorf("peak %v Mbit/s", w.PeakMbit)
		}
		if len(ts.open) > 1 {
			t.Errorf("%d rooms in the figures", len(ts.open))
		}
	})
}

// On an unordered link each packet's fate is told from the acks and their history.
func TestUnorderedReceipts(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l := ts.connect(feed.Unordered)
		l.sendJSON(KindHello, Hello{Protocol: ProtocolVersion, World: "test", Room: "r"})
		pause(520 * time.Millisecond)
		n := len(l.packets(t))
		l.ack(uint16(n), 0b101) // n, n-1 and n-3 arrived
		pause(60 * time.Millisecond)
		st := ts.world("r").main.streams[0]
		want := []feed.Receipt{feed.Receipt(n - 3), feed.Receipt(n - 1), feed.Receipt(n)}
		if !reflect.DeepEqual(st.delivered, want) || len(st.lost) != 0 {
			t.Fatalf("delivered %v lost %v, want %v", st.delivered, st.lost, want)
		}
		ps := l.packets(t)
		if p := ps[len(ps)-1]; !p.HasAcks || p.Ack != uint16(n) || p.Acks != 0b101 {
			t.Errorf("the echo is %v %d %b", p.HasAcks, p.Ack, p.Acks)
		}
		l.ack(uint16(n), 0b1111) // a later message: more of the same arrived
		pause(60 * time.Millisecond)
		if len(st.delivered) != 5 {
			t.Errorf("delivered %v", st.delivered)
		}
		pause(2 * time.Second)
		for range 3 { // acks far ahead: what is out of the history is lost
			l.ackAll()
			pause(60 * time.Millisecond)
		}
		if len(st.lost) < n-5 || st.lost[0] != 1 {
			t.Errorf("lost %v", st.lost)
		}
		seen := map[feed.Receipt]bool{}
		for _, r := range append(slices.Clone(st.delivered), st.lost...) {
			if seen[r] {
				t.Fatalf("receipt %d was told twice", r)
			}
			seen[r] = true
		}
	})
}

func TestTwoFeeds(t *testing.T) {
	doc := &counterFeed{lane: feed.Reliable}
	extra := &counterFeed{}
	bubble(t, Spec{Hz: 60}, Options{Lab: true}, func(w *testWorld) {
		w.feeds = []feed.Feed{w.main, doc, extra}
		w.main.value, doc.value, extra.value = 5, 6, 7
	}, func(ts *testServer) {
		l := ts.hello(Hello{Room: "r", Verify: true})
		defer keepAcking(l)()
		pause(time.Second)
		ps := l.packets(t)
		want := uint32(5*7)*16777619 ^ 7*7
		if p := ps[3]; p.bodies != 2 || p.value != 5 || !p.HasHash || p.Hash != want {
			t.Errorf("packet %+v, hash %d want %d", p, p.Hash, want)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		got := 0
		for _, m := range l.other {
			if m[0] == KindReliable {
				got++
				if m[1] != 1 || binary.LittleEndian.Uint32(m[7:]) != 6 {
					t.Errorf("reliable section % x", m)
				}
			}
		}
		if got == 0 {
			t.Error("no reliable section")
		}
	})
}

// blockingLink's TrySend does not return until release is closed: a broken adapter, against the contract.
type blockingLink struct {
	fakeLink
	release chan struct{}
	calls   atomic.Int32
}

func (l *blockingLink) TrySend([]byte) bool { l.calls.Add(1); <-l.release; return false }

// failingLink takes nothing, although it says it is ready.
type failingLink struct {
	fakeLink
	calls atomic.Int32
}

func (l *failingLink) TrySend([]byte) bool { l.calls.Add(1); return false }

// Whatever links do, the step keeps its beat: 200 links, one that blocks its encoder for ever and one that fails every write.
func TestStepIsolation(t *testing.T) {
	bubble(t, Spec{Hz: 60, Seats: 256}, Options{Encoders: 2}, nil, func(ts *testServer) {
		blocking, failing := &blockingLink{release: make(chan struct{})}, &failingLink{}
		attach := func(l Link, f *fakeLink) {
			c := ts.Accept(l, Peer{})
			f.mu.Lock()
			f.conn = c
			f.mu.Unlock()
			f.sendJSON(KindHello, Hello{Protocol: ProtocolVersion, World: "test", Room: "r"})
		}
		attach(failing, &failing.fakeLink) // seat 0, and half of the others: encoder 0
		pause(50 * time.Millisecond)
		attach(blocking, &blocking.fakeLink) // seat 1: encoder 1
		pause(50 * time.Millisecond)
		var links []*fakeLink
		for range 198 {
			l := ts.join("r")
			defer keepAcking(l)()
			links = append(links, l)
		}
		pause(time.Second)
		ts.ResetWindow()
		pause(5 * time.Second)
		if w := ts.Window(); w.Steps != 300 || w.Skipped != 0 || w.Doubled != 0 || w.Dropped != 0 || w.LateMs.Max > 0 || w.StepMs.Max > 0 {
			t.Errorf("the step felt it: %+v", w)
		}
		if blocking.calls.Load() != 1 || failing.calls.Load() < 100 {
			t.Errorf("the blocking link was tried %d times, the failing one %d", blocking.calls.Load(), failing.calls.Load())
		}
		for i, l := range links { // those who share the encoder with the one that fails
			if n := len(l.packets(t)); i%2 == 0 && n < 98 {
				t.Errorf("link %d got %d packets", i, n)
			}
		}
		close(blocking.release)
	})
}

// 10,000 rooms opened and closed leave nothing behind (colyseus/colyseus#842).
func TestRoomChurn(t *testing.T) {
	bubble(t, Spec{Hz: 60, LingerEmpty: time.Nanosecond}, Options{LiftCaps: true}, nil, func(ts *testServer) {
		run := func(n int) {
			for i := range n {
				l := ts.join(fmt.Sprintf("r%d", i%500))
				pause(20 * time.Millisecond)
				l.send([]byte{KindLeave})
				if i%100 == 99 {
					pause(200 * time.Millisecond)
					ts.mu.Lock()
					clear(ts.worlds)
					ts.mu.Unlock()
				}
			}
			pause(time.Second)
		}
		run(500)
		before := runtime.NumGoroutine()
		heap := liveHeap()
		run(9500)
		if n := runtime.NumGoroutine(); n > before+5 {
			t.Errorf("%d goroutines, %d before", n, before)
		}
		if h := liveHeap(); h > heap+4<<20 {
			t.Errorf("heap %d kB, %d before", h>>10, heap>>10)
		}
		if st := ts.Stats(); st.RoomsClosed != 10_000 || len(st.Rooms) != 0 || st.Links != 0 {
			t.Errorf("closed %d, open %d, links %d", st.RoomsClosed, len(st.Rooms), st.Links)
		}
	})
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestDefineAndOptionsMistakes(t *testing.T) {
	open := func(*Room) (World[testInput], error) { return nil, nil }
	bad := map[string]Definition{
		"no name":       Define(Kind[testInput]{Open: open}),
		"upper case":    Define(Kind[testInput]{Spec: Spec{Name: "Arena"}, Open: open}),
		"no open":       Define(Kind[testInput]{Spec: Spec{Name: "a"}}),
		"hz":            Define(Kind[testInput]{Spec: Spec{Name: "a", Hz: 2000}, Open: open}),
		"send hz":       Define(Kind[testInput]{Spec: Spec{Name: "a", Hz: 10, SendHz: 20}, Open: open}),
		"seats":         Define(Kind[testInput]{Spec: Spec{Name: "a", Seats: -1}, Open: open}),
		"grace":         Define(Kind[testInput]{Spec: Spec{Name: "a", Grace: -1}, Open: open}),
		"zero":          {},
		"changed badly": Define(Kind[testInput]{Spec: Spec{Name: "a"}, Open: open}).With(func(s *Spec) { s.SendHz = 5000 }),
	}
	for name, d := range bad {
		if _, err := New(Options{Worlds: []Definition{d}}); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Log(err)
		}
	}
	good := Define(Kind[testInput]{Spec: Spec{Name: "a"}, Open: open})
	for name, o := range map[string]Options{
		"no worlds":   {},
		"twice":       {Worlds: []Definition{good, good}},
		"negative":    {Worlds: []Definition{good}, MaxPlayers: -1},
		"stages":      {Worlds: []Definition{good}, SlowAfter: time.Minute},
		"arrangement": {Worlds: []Definition{good}, Arrangement: "odd"},
		"priority":    {Worlds: []Definition{good}, Priority: "odd"},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := newInputCodec(reflect.TypeFor[struct{ Name string }]()); err == nil {
		t.Error("a string input was taken")
	}
	if _, err := newInputCodec(reflect.TypeFor[int]()); err == nil {
		t.Error("an int as input was taken")
	}
	if _, err := newInputCodec(reflect.TypeFor[struct{ a bool }]()); err == nil {
		t.Error("a hidden field was taken")
	}
}

func TestInputCodec(t *testing.T) {
	c, err := newInputCodec(reflect.TypeFor[testInput]())
	if err != nil {
		t.Fatal(err)
	}
	want := []InputField{{"fire", "bool"}, {"jump", "bool"}, {"dx", "i8"}, {"aim", "u16"}, {"speed", "f32"}}
	if got := c.describe(); !reflect.DeepEqual(got, want) {
		t.Errorf("fields %v", got)
	}
	in := testInput{Jump: true, DX: -5, Aim: 40000, Speed: 1.5}
	raw := c.append(nil, reflect.ValueOf(in))
	var out testInput
	c.decode(raw, reflect.ValueOf(&out).Elem())
	if out != in || !c.valid(raw) || len(raw) != c.size {
		t.Errorf("% x is %+v", raw, out)
	}
}
