package drumline

import (
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drumline-engine/drumline/beat"
	"github.com/drumline-engine/drumline/feed"
)

// faultyWorld does something wrong at one place: it panics, or blocks, or calls what it should not.
type faultyWorld struct {
	testWorld
	at    string
	fault func(w *faultyWorld, s *Seat)
	once  bool
}

func (w *faultyWorld) do(place string, s *Seat) {
	if place == w.at && !w.once {
		w.once = true
		w.fault(w, s)
	}
}

func (w *faultyWorld) Feeds() []feed.Feed { w.do("Feeds", nil); return w.feeds }
func (w *faultyWorld) Join(s *Seat) error { w.do("Join", s); return w.testWorld.Join(s) }
func (w *faultyWorld) Leave(s *Seat)      { w.do("Leave", s); w.testWorld.Leave(s) }
func (w *faultyWorld) Drop(s *Seat)       { w.do("Drop", s) }
func (w *faultyWorld) Resume(s *Seat)     { w.do("Resume", s) }
func (w *faultyWorld) Step(st *Step[testInput]) {
	w.testWorld.Step(st)
	if w.steps == 90 {
		w.do("Step", nil)
		w.room.After(time.Millisecond, func() { w.do("After", nil) })
		w.room.Go(func() { w.do("Go", nil) }, func() { w.do("done", nil) })
	}
}
func (w *faultyWorld) Command(s *Seat, msg []byte) { w.do("Command", s) }

// faultyFeed's streams panic on their n-th Append.
type faultyFeed struct {
	counterFeed
	left int
}

type faultyStream struct {
	feed.Stream
	f *faultyFeed
}

func (f *faultyFeed) Join(id feed.SeatID, d feed.Delivery) feed.Stream {
	return &faultyStream{f.counterFeed.Join(id, d), f}
}

func (s *faultyStream) Append(dst []byte, f feed.Frame, limit int) ([]byte, feed.Written) {
	if s.f.left--; s.f.left == 0 {
		panic("a feed's bug")
	}
	return s.Stream.Append(dst, f, limit)
}

// newFaultyServer has a good world, "test", and a faulty one, "bad".
func newFaultyServer(t *testing.T, hz int, at string, fault func(w *faultyWorld, s *Seat)) *testServer {
	bad := Define(Kind[testInput]{Spec: Spec{Name: "bad", Hz: hz, Grace: 2 * time.Second, LingerEmpty: time.Hour}, Open: func(r *Room) (World[testInput], error) {
		w := &faultyWorld{at: at, fault: fault}
		w.room, w.main = r, &counterFeed{}
		w.feeds = []feed.Feed{w.main}
		switch at {
		case "Open":
			fault(w, nil)
		case "open error":
			return nil, errors.New("no such map")
		case "nil world":
			return nil, nil
		case "no feeds":
			w.feeds = nil
		case "stream":
			w.feeds = []feed.Feed{&faultyFeed{left: 40}}
		}
		return w, nil
	}})
	return newTestServer(t, Spec{Hz: 60}, Options{Worlds: []Definition{bad}, Clock: beat.PortableClock(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, nil)
}

// provoke makes the bad world's every method run: two players join, one sends a command, drops, comes back, leaves.
func provoke(ts *testServer) (links []*fakeLink) {
	a := ts.hello(Hello{World: "bad", Room: "r"})
	b := ts.hello(Hello{World: "bad", Room: "r"})
	pause(time.Second)
	links = append(links, a, b)
	a.send([]byte{KindCommand, 1})
	a.send(append(AppendInputHeader(nil, 0, 0, 1, 0), make([]byte, 8)...))
	pause(time.Second)
	w, _ := message[Welcome](a, KindWelcome)
	a.drop(io.EOF)
	pause(100 * time.Millisecond)
	if w.Token != "" {
		c := ts.hello(Hello{World: "bad", Token: w.Token})
		links = append(links, c)
		pause(time.Second)
		c.send([]byte{KindLeave})
	}
	pause(3 * time.Second)
	return links
}

// Whatever a world does wrong, it costs its own room: everybody in it is told, the seats are given back, the other room goes on.
func TestWorldFaults(t *testing.T) {
	boom := func(*faultyWorld, *Seat) { panic("a bug in the rules") }
	for _, hz := range []int{60, 0} {
		for _, at := range []string{"Open", "open error", "nil world", "no feeds", "Feeds", "Join", "Step", "Leave", "Drop", "Resume", "Command", "After", "Go", "done", "stream"} {
			if hz == 0 && (at == "Step" || at == "After" || at == "Go" || at == "done" || at == "stream") {
				continue // such a room makes too few steps here
			}
			t.Run(at+map[int]string{0: " without a beat", 60: ""}[hz], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ts := newFaultyServer(t, hz, at, boom)
					defer ts.Close()
					good := ts.join("good")
					defer keepAcking(good)()
					pause(100 * time.Millisecond)
					links := provoke(ts)
					told := false
					for _, l := range links {
						g, ok := message[Goodbye](l, KindRefuse)
						told = told || ok && g.Reason == "room_error"
						if !l.isClosed() {
							t.Errorf("a link is still open")
						}
					}
					if !told {
						t.Error("nobody was told room_error")
					}
					st := ts.Stats()
					if st.RoomErrors < 1 || st.Players != 1 || ts.hub.players != 1 || len(ts.hub.tokens) != 1 || st.Links != 1 {
						t.Errorf("room errors %d, players %d, reserved %d, tokens %d, links %d", st.RoomErrors, st.Players, ts.hub.players, len(ts.hub.tokens), st.Links)
					}
					n := len(good.packets(t))
					pause(time.Second)
					if d := len(good.packets(t)) - n; d < 19 {
						t.Errorf("the good room sent %d packets in a second", d)
					}
				})
			})
		}
	}
}

// A world that blocks for ever is given up, with those who wait for it; Close does not wait for it.
func TestWorldHangs(t *testing.T) {
	for _, hz := range []int{60, 0} {
		for _, at := range []string{"Open", "Join", "Step", "Command"} {
			if hz == 0 && at == "Step" {
				continue
			}
			t.Run(at+map[int]string{0: " without a beat", 60: ""}[hz], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					release := make(chan struct{})
					ts := newFaultyServer(t, hz, at, func(*faultyWorld, *Seat) { <-release })
					good := ts.join("good")
					defer keepAcking(good)()
					pause(100 * time.Millisecond)
					links := provoke(ts)
					late := ts.hello(Hello{World: "bad", Room: "r"}) // before the room was given up, or into a new one
					pause(40 * time.Second)
					told := false
					for _, l := range links {
						g, ok := message[Goodbye](l, KindRefuse)
						told = told || ok && g.Reason == "room_hung"
						if !l.isClosed() {
							t.Errorf("a link is still open")
						}
					}
					if !told {
						t.Error("nobody was told room_hung")
					}
					if st := ts.Stats(); st.RoomHangs < 1 {
						t.Errorf("room hangs %d", st.RoomHangs)
					}
					n := len(good.packets(t))
					pause(time.Second)
					if d := len(good.packets(t)) - n; d < 19 {
						t.Errorf("the good room sent %d packets in a second", d)
					}
					_ = late
					ts.Close()
					close(release)
					synctest.Wait()
				})
			})
		}
	}
}

// What a world may call at odd moments does what it says, or nothing.
func TestWorldCallsAtOddMoments(t *testing.T) {
	calls := map[string]func(w *faultyWorld, s *Seat){
		"close in Join":     func(w *faultyWorld, s *Seat) { w.room.Close(ReasonRoomClosed) },
		"kick in Join":      func(w *faultyWorld, s *Seat) { s.Kick(Refuse("no")) },
		"kick in Leave":     func(w *faultyWorld, s *Seat) { s.Kick(nil) },
		"flush in Leave":    func(w *faultyWorld, s *Seat) { w.room.FlushNow(s) },
		"close in Leave":    func(w *faultyWorld, s *Seat) { w.room.Close(ReasonRoomClosed) },
		"restore in After":  func(w *faultyWorld, s *Seat) { w.room.Restore([]byte{1, 0, 0, 0}) },
		"kick in Command":   func(w *faultyWorld, s *Seat) { s.Kick(nil) },
		"close in Go":       func(w *faultyWorld, s *Seat) { w.room.Wake() },
		"after within done": func(w *faultyWorld, s *Seat) { w.room.After(0, func() { w.room.After(0, func() {}) }) },
	}
	for name, f := range calls {
		at := map[string]string{"Join": "Join", "Leave": "Leave", "After": "After", "Command": "Command", "Go": "Go", "done": "done"}
		place := ""
		for k, v := range at {
			if len(name) > len(k) && name[len(name)-len(k):] == k {
				place = v
			}
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ts := newFaultyServer(t, 60, place, f)
				defer ts.Close()
				good := ts.join("good")
				defer keepAcking(good)()
				provoke(ts)
				pause(5 * time.Second)
				if st := ts.Stats(); st.RoomErrors != 0 || st.RoomHangs != 0 {
					t.Errorf("errors %d, hangs %d", st.RoomErrors, st.RoomHangs)
				}
			})
		})
	}
}

// A join that the world kicks and refuses in one go leaves nothing behind.
func TestKickedAndRefused(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, func(w *testWorld) {
		w.onJoin = func(s *Seat) error { s.Kick(nil); return Refuse("no") }
	}, func(ts *testServer) {
		l := ts.join("r")
		pause(time.Second)
		if g, _ := message[Goodbye](l, KindRefuse); g.Reason != "world" || ts.hub.players != 0 {
			t.Errorf("%+v, %d reserved", g, ts.hub.players)
		}
	})
}

type wrongCommand struct{ testWorld }

func (w *wrongCommand) Command(s *Seat, msg string) error { return nil }

type onlyDrop struct{ World[testInput] }

func (w *onlyDrop) Drop(*Seat) {}

// Mistakes in a world show at the start.
func TestTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, w := range map[string]World[testInput]{
			"a Command that is none":  &wrongCommand{testWorld{feeds: []feed.Feed{&counterFeed{}}}},
			"a Drop without a Resume": &onlyDrop{&testWorld{feeds: []feed.Feed{&counterFeed{}}}},
			"no feeds":                &testWorld{},
		} {
			bad := Define(Kind[testInput]{Spec: Spec{Name: "bad"}, Open: func(*Room) (World[testInput], error) { return w, nil }})
			ts := newTestServer(t, Spec{}, Options{Worlds: []Definition{bad}}, nil)
			if err := ts.Try(); err == nil {
				t.Errorf("%s: no error", name)
			} else {
				t.Log(err)
			}
			ts.Close()
		}
		ts := newTestServer(t, Spec{Hz: 60}, Options{}, nil)
		if err := ts.Try(); err != nil {
			t.Error(err)
		}
		if st := ts.Stats(); len(st.Rooms) != 0 {
			t.Error("the trial left a room")
		}
		ts.Close()
	})
}
