package drumline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/drumline-engine/drumline/feed"
)

func rowBits(sp Spent) (n uint64) {
	for _, r := range sp.Rows {
		n += r.Bits
	}
	return n
}

func TestInspect(t *testing.T) {
	for _, arrangement := range []string{"", "inline"} {
		bubble(t, Spec{Hz: 60, Seats: 100}, Options{Encoders: 2, Arrangement: arrangement}, nil, func(ts *testServer) {
			var links []*fakeLink
			for i := range 90 { // more than are asked at once on one worker
				l := ts.hello(Hello{Room: "r", Name: fmt.Sprint("p", i)})
				defer keepAcking(l)()
				links = append(links, l)
			}
			pause(30 * time.Second)
			links[5].mu.Lock()
			links[5].busy, links[5].queued = true, 77
			links[5].mu.Unlock()
			links[7].send([]byte{KindLeave})
			pause(3 * time.Second)
			in, err := ts.Inspect(context.Background(), "test", "r")
			if err != nil {
				t.Fatal(err)
			}
			if in.Room.Room != "r" || in.Room.Players != 89 || len(in.Seats) != 89 || len(in.Steps) != RecentSteps {
				t.Fatalf("%+v, %d seats, %d steps", in.Room, len(in.Seats), len(in.Steps))
			}
			if !slices.IsSortedFunc(in.Seats, func(a, b SeatStats) int { return int(a.Seat) - int(b.Seat) }) {
				t.Error("seats are not in order")
			}
			for _, st := range in.Seats {
				if st.Name != fmt.Sprint("p", st.Seat) || st.Link != "fake" || !st.Ordered || st.KernelBytes != -1 {
					t.Errorf("%+v", st)
				}
				if st.Seat == 5 {
					if st.Unacked != 0 || st.QueuedBytes != 77 || st.Skipped["busy"] < 55 || st.BytesPerSec != 0 {
						t.Errorf("a busy seat: %+v", st)
					}
					continue
				}
				if st.PacketsPerSec < 19 || st.PacketsPerSec > 21 || st.BytesPerSec < 20*10 || st.Held != 1 || st.Packets < 600 || st.AckDelay <= 0 ||
					st.AckDelay < st.Ping || st.AckDelay > 100*time.Millisecond || st.Since < 30*time.Second || st.Age > 50*time.Millisecond {
					t.Errorf("%+v", st)
				}
			}
			// The one who left is among those who cost something.
			if got, want := rowBits(in.Spent), in.Spent.Bytes*8; got != want || in.Spent.Bytes == 0 {
				t.Errorf("%d bits in rows, %d in packets", got, want)
			}
			if r := in.Spent.Rows; len(r) != 2 || r[0].Label != "packet" || r[1] != (SpentRow{"counter", "value", 32 * in.Spent.Packets, in.Spent.Packets}) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A room that hangs inside its step can be looked into, so nothing of it runs on the room's goroutine; and its mailbox stays empty.
func TestInspectNeedsNoRoom(t *testing.T) {
	var release chan struct{}
	bubble(t, Spec{Hz: 60}, Options{HangAfter: time.Hour}, func(w *testWorld) {
		release = make(chan struct{})
		w.onStep = func(w *testWorld, _ *Step[testInput]) {
			if w.steps == 60 {
				<-release
			}
		}
	}, func(ts *testServer) {
		l := ts.join("r")
		defer keepAcking(l)()
		pause(3 * time.Second)
		defer close(release)
		r := ts.hub.find("test", "r")
		for range 50 {
			in, err := ts.Inspect(context.Background(), "test", "r")
			if err != nil || len(in.Seats) != 1 || in.Room.Beat.Steps > 60 {
				t.Fatalf("%v %+v", err, in.Room)
			}
			ex, err := ts.Explain(context.Background(), "test", "r", 0)
			if err != nil || ex.Life.Bytes == 0 {
				t.Fatalf("%v %+v", err, ex)
			}
			if _, err := ts.Account(context.Background(), "test", "r"); err != nil {
				t.Fatal(err)
			}
			ts.History()
			ts.Stats()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.mail) != 0 {
			t.Errorf("%d calls wait for the room", len(r.mail))
		}
	})
}

func TestExplain(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l := ts.hello(Hello{Room: "r", Name: "Ann"})
		defer keepAcking(l)()
		ask := func() Explanation {
			t.Helper()
			ex, err := ts.Explain(context.Background(), "test", "r", 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, sp := range []Spent{ex.Life, ex.Window} {
				if rowBits(sp) != sp.Bytes*8 {
					t.Errorf("%d bits in rows, %d in packets", rowBits(sp), sp.Bytes*8)
				}
			}
			return ex
		}
		pause(20 * time.Second)
		first := ask()
		if first.Seat.Name != "Ann" || first.Life.Packets < 395 || first.Window.Packets != first.Life.Packets || first.Window.For != first.Life.For {
			t.Fatalf("first: %+v", first)
		}
		for range 30 {
			pause(time.Second)
			ask()
		}
		last := ask()
		if w := last.Window; w.For < 5*time.Second || w.For >= 11*time.Second || w.Packets < 95 || w.Packets > 220 {
			t.Errorf("window: %+v", w)
		}
		if last.Life.Packets < 990 || last.Life.For < 49*time.Second {
			t.Errorf("life: %+v", last.Life)
		}
		if r := last.Window.Rows[1]; r != (SpentRow{"counter", "value", 32 * last.Window.Packets, last.Window.Packets}) {
			t.Errorf("window: %+v", r)
		}
	})
}

// A seat whose player is away, and one that comes back.
func TestInspectAway(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l := ts.join("r")
		pause(2 * time.Second)
		l.drop(errors.New("gone"))
		pause(time.Second)
		in, err := ts.Inspect(context.Background(), "test", "r")
		if err != nil || len(in.Seats) != 1 {
			t.Fatal(err, in)
		}
		if st := in.Seats[0]; st.Link != "" || st.BytesPerSec != 0 || st.Packets == 0 || st.Unacked != 0 || st.Skipped["slow"] == 0 {
			t.Errorf("away: %+v", st)
		}
		w, _ := message[Welcome](l, KindWelcome)
		back := ts.hello(Hello{Room: "r", Token: w.Token})
		defer keepAcking(back)()
		pause(3 * time.Second)
		in, err = ts.Inspect(context.Background(), "test", "r")
		if err != nil || len(in.Seats) != 1 {
			t.Fatal(err, in)
		}
		if st := in.Seats[0]; st.Link != "fake" || st.PacketsPerSec < 19 || st.Since < 5*time.Second || st.LinkSince > 3*time.Second || st.Keyframes == 0 {
			t.Errorf("back: %+v", st)
		}
		if rowBits(in.Spent) != in.Spent.Bytes*8 {
			t.Errorf("%d bits in rows, %d in packets", rowBits(in.Spent), in.Spent.Bytes*8)
		}
	})
}

func TestInspectNobody(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		ts.join("r")
		pause(time.Second)
		ctx, cancel := context.WithCancel(context.Background())
		if _, err := ts.Inspect(ctx, "test", "other"); !errors.Is(err, ErrClosed) {
			t.Errorf("no room: %v", err)
		}
		if _, err := ts.Explain(ctx, "test", "other", 0); !errors.Is(err, ErrClosed) {
			t.Errorf("no room: %v", err)
		}
		if _, err := ts.Explain(ctx, "test", "r", 3); !errors.Is(err, ErrClosed) {
			t.Errorf("no seat: %v", err)
		}
		cancel()
		// The answer may be there already; an error is the context's.
		if _, err := ts.Inspect(ctx, "test", "r"); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		r := ts.hub.find("test", "r")
		ts.Close()
		if _, err := ask(context.Background(), r, func(*int, *shard, []*outbox, bool) {}); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// Names are shown to operators, too: nothing invisible or reordering gets there, and no more than 24 characters.
func TestInspectNames(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		for _, name := range []string{"<img src=x onerror=a()>", "evil\u202egnp.exe", strings.Repeat("W", 900), "\u0000\u001b[31mred", "\u2066\u2069", "a\u0301\u200b"} {
			ts.hello(Hello{Room: "r", Name: name})
		}
		pause(time.Second)
		in, err := ts.Inspect(context.Background(), "test", "r")
		if err != nil || len(in.Seats) != 6 {
			t.Fatal(err, len(in.Seats))
		}
		for _, st := range in.Seats {
			if n := len([]rune(st.Name)); n == 0 || n > 24 {
				t.Errorf("%q has %d characters", st.Name, n)
			}
			for _, r := range st.Name {
				if unicode.Is(unicode.Cf, r) || unicode.IsControl(r) {
					t.Errorf("%q", st.Name)
				}
			}
		}
	})
}

func TestHistory(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		defer keepAcking(ts.join("r"))()
		pause(10*time.Second + time.Millisecond)
		h := ts.History()
		if len(h) < 8 || len(h) > 10 {
			t.Fatalf("%d seconds", len(h))
		}
		ts.ResetWindow() // which empties the histograms that the history is made of
		pause(10 * time.Second)
		h = ts.History()
		for i, s := range h[3:] {
			if s.PacketsPerSec < 19 || s.PacketsPerSec > 21 || s.BytesPerSec < 200 || s.AgeP99 > 50*time.Millisecond {
				t.Errorf("second %d: %+v", i, s)
			}
		}
		pause(3 * time.Minute)
		h = ts.History()
		if len(h) != historySeconds || !slices.IsSortedFunc(h, func(a, b Second) int { return a.End.Compare(b.End) }) {
			t.Errorf("%d seconds", len(h))
		}
	})
}

// accountStream has written something of 20 fields at each question.
type accountStream struct {
	counterStream
	labels []string
}

func (s *accountStream) Account(a *feed.Account) {
	for _, l := range s.labels {
		a.Add(l, 100, 10)
	}
}

// BenchmarkInspect is what a question about a room of 16 costs its encoder worker.
func BenchmarkInspect(b *testing.B) {
	st := &accountStream{}
	for i := range 20 {
		st.labels = append(st.labels, fmt.Sprintf("monster.field%d", i))
	}
	r := &Room{infos: []feed.Info{{Name: "snap"}}}
	var outs []*outbox
	for i := range 16 {
		outs = append(outs, &outbox{seat: &Seat{room: r, id: SeatID(i)}, streams: []feed.Stream{st}})
	}
	b.ReportAllocs()
	for b.Loop() {
		var rows []keyedRow
		for _, o := range outs {
			rows = o.appendRows(rows)
			if o.look(time.Second).Seat != o.seat.id {
				b.Fatal("another seat")
			}
		}
	}
}
