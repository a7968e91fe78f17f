package snap

import (
	"sync"
	"testing"

	"github.com/drumline-engine/drumline/feed"
)

// TestRoomAndEncodersShareNothingUnguarded runs a room and its encoders at once, as the engine does, for the race detector: the room
// goes on changing the world and emitting into the log while encoders read older frames.
func TestRoomAndEncodersShareNothingUnguarded(t *testing.T) {
	const seats, ticks = 4, 150
	g := newRig(t, 8)
	for range 20 {
		g.spawn()
	}
	var wg sync.WaitGroup
	var in [seats]chan feed.Frame
	for i := range seats {
		c := join(t, g.f, i, feed.Ordered)
		in[i] = make(chan feed.Frame, 3) // encoders lag behind the room by up to so many frames
		wg.Go(func() {
			defer c.st.Close()
			for f := range in[i] {
				b, w := c.st.Append(nil, f, 1<<16)
				c.seq++
				if err := c.d.Decode(feed.Packet{Seq: c.seq, Tick: f.Tick()}, b); err != nil {
					t.Errorf("seat %d: %v", i, err)
				} else if c.d.Hash() != c.st.Hash() {
					t.Errorf("seat %d: hashes differ", i)
				}
				c.st.Delivered(w.Receipt)
				f.Release()
			}
			if len(c.bangs) == 0 {
				t.Errorf("seat %d: no events", i)
			}
		})
	}
	for range ticks {
		g.step(seats)
		for range 20 { // so that chunks of the log are given back and used again
			g.shots.Emit(shot{Say: "x"})
		}
		f := g.f.Capture(g.tick)
		for i := range in {
			f.Retain()
			in[i] <- f
		}
		f.Release()
	}
	for i := range in {
		close(in[i])
	}
	wg.Wait()
	if s := g.f.Stats(); s.EventsMissed != 0 {
		t.Errorf("%d events missed", s.EventsMissed)
	}
}
