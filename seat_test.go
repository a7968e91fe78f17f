package drumline

import (
	"encoding/binary"
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"
)

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
