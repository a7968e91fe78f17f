package drumline

import (
	"fmt"
	"testing"
	"time"

	"github.com/drumline-engine/drumline/feed"
)

// nullLink takes everything and keeps nothing.
type nullLink struct{ fakeLink }

func (l *nullLink) TrySend([]byte) bool { return true }
func (l *nullLink) Send([]byte) error   { return nil }
func (l *nullLink) Ready() bool         { return true }

// newBenchRoom makes a room with seats on null links that nobody but the benchmark drives.
func newBenchRoom(b testing.TB, seats int) (*Room, *encoder) {
	ts := newTestServer(b, Spec{Hz: 60, Seats: max(seats, 1), LingerEmpty: time.Hour}, Options{LiftCaps: true}, nil)
	b.Cleanup(ts.Close)
	r := newRoom(ts.Server, ts.opt.Worlds[0], "bench", 1, nil)
	if err := r.openWorld(); err != nil {
		b.Fatal(err)
	}
	e := newEncoder(ts.Server) // not run: the benchmark calls process
	r.shards = []*shard{{room: r, encoder: e}}
	for range seats {
		c := ts.Accept(&nullLink{}, Peer{})
		b.Cleanup(func() { c.Closed(nil) })
		r.join(c, Hello{})
	}
	e.process(r.shards[0])
	return r, e
}

// BenchmarkRoomStep is a step of an empty world: what the engine itself costs the beat.
func BenchmarkRoomStep(b *testing.B) {
	for _, seats := range []int{0, 16, 64} {
		b.Run(fmt.Sprintf("seats=%d", seats), func(b *testing.B) {
			r, _ := newBenchRoom(b, seats)
			w := r.game.(*gameOf[testInput]).World.(*testWorld)
			b.ReportAllocs()
			for b.Loop() {
				w.inputs = w.inputs[:0]
				r.advance(r.tick+1, 1.0/60)
			}
		})
	}
}

// BenchmarkServe is one packet for one seat without its feeds' own work and without a socket.
func BenchmarkServe(b *testing.B) {
	r, e := newBenchRoom(b, 16)
	sh := r.shards[0]
	b.ReportAllocs()
	fs := &frameSet{tick: 1, epoch: 1, pool: &r.frames, frames: []feed.Frame{&counterFrame{t: 1}}}
	fs.refs.Store(1 << 30)
	b.ResetTimer()
	for b.Loop() {
		for _, o := range sh.outs {
			o.acked = o.seq
			e.serve(r, o, fs)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/16, "ns/packet")
}

// A step and a packet cost no garbage.
func TestNoAllocations(t *testing.T) {
	r, e := newBenchRoom(t, 16)
	w := r.game.(*gameOf[testInput]).World.(*testWorld)
	if n := testing.AllocsPerRun(200, func() {
		w.inputs = w.inputs[:0]
		r.advance(r.tick+1, 1.0/60)
	}); n > 0 {
		t.Errorf("a step makes %v allocations", n)
	}
	fs := &frameSet{tick: 1, epoch: 1, pool: &r.frames, frames: []feed.Frame{&counterFrame{t: 1}}}
	fs.refs.Store(1 << 30)
	st := r.shards[0].outs[0].streams[0].(*counterStream)
	if n := testing.AllocsPerRun(200, func() {
		o := r.shards[0].outs[0]
		o.acked = o.seq
		st.delivered = st.delivered[:0]
		e.serve(r, o, fs)
	}); n > 0 {
		t.Errorf("a packet makes %v allocations", n)
	}
}
