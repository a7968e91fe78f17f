package drumline

import (
	"context"
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
