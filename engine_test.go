package drumline

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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

func TestRestoreRaisesTheEpoch(t *testing.T) {
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
		pause(time.Second)
		ps := l.packets(t)
		last := ps[len(ps)-1]
		if last.Epoch != 2 || last.value != 9 || len(w.main.streams[0].resumed) != 1 {
			t.Errorf("after Restore: epoch %d value %d, resumed %v", last.Epoch, last.value, w.main.streams[0].resumed)
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

// A link that never takes a byte and one whose every send fails change nothing for the others, nor for the step.
func TestStepIsolation(t *testing.T) {
	bubble(t, Spec{Hz: 60, Seats: 64}, Options{}, nil, func(ts *testServer) {
		var links []*fakeLink
		for range 20 {
			l := ts.join("r")
			defer keepAcking(l)()
			links = append(links, l)
		}
		blocked, failing := links[0], links[1]
		pause(time.Second)
		blocked.mu.Lock()
		blocked.busy = true
		blocked.mu.Unlock()
		failing.mu.Lock()
		failing.broken = true
		failing.mu.Unlock()
		pause(5 * time.Second)
		for i, l := range links[2:] {
			if n := len(l.packets(t)); n < 118 {
				t.Errorf("link %d got %d packets", i, n)
			}
		}
		if w := ts.Window(); w.Skipped != 0 || w.LateMs.Max > 1 || w.StepMs.Max > 1 {
			t.Errorf("the step felt it: %+v", w)
		}
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
