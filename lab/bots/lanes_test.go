package bots

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
	"github.com/drumline-engine/drumline/link/ws"
)

// ledger is a feed of the reliable lane: numbers in a row, each of which must arrive once.
type ledger struct {
	name string
	n    atomic.Uint32 // written by the room
}

type ledgerFrame struct {
	tick feed.Tick
	n    uint32
}

func (f ledgerFrame) Tick() feed.Tick { return f.tick }
func (ledgerFrame) Retain()           {}
func (ledgerFrame) Release()          {}

func (l *ledger) Info() feed.Info {
	return feed.Info{Kind: "ledger", Name: l.name, Lane: feed.Reliable, Schema: json.RawMessage("{}")}
}
func (l *ledger) Capture(t feed.Tick) feed.Frame              { return ledgerFrame{t, l.n.Load()} }
func (l *ledger) Join(feed.SeatID, feed.Delivery) feed.Stream { return &ledgerStream{} }
func (l *ledger) Leave(feed.SeatID)                           {}

type ledgerStream struct{ told uint32 }

// Append writes the first number and one byte for each.
func (s *ledgerStream) Append(dst []byte, f feed.Frame, limit int) ([]byte, feed.Written) {
	n := f.(ledgerFrame).n
	if n == s.told {
		return dst, feed.Written{}
	}
	dst = binary.LittleEndian.AppendUint32(dst, s.told)
	for i := s.told; i < n; i++ {
		dst = append(dst, byte(i))
	}
	return dst, feed.Written{Receipt: feed.Receipt(n), Held: int(n), Keyframe: s.told == 0}
}
func (s *ledgerStream) Delivered(r feed.Receipt)     { s.told = uint32(r) }
func (s *ledgerStream) Lost(feed.Receipt)            {}
func (s *ledgerStream) Resume(uint64, feed.Delivery) { s.told = 0 }
func (s *ledgerStream) Dirty(f feed.Frame) bool      { return f.(ledgerFrame).n != s.told }
func (s *ledgerStream) Hash() uint32                 { panic("a reliable feed is not part of a packet's hash") }
func (s *ledgerStream) Account(*feed.Account)        {}
func (s *ledgerStream) Close()                       {}

// ledgerDecoder checks that nothing is missing and nothing comes twice.
type ledgerDecoder struct {
	n     uint32
	tick  feed.Tick
	epoch uint8
}

func (d *ledgerDecoder) Decode(p feed.Packet, body []byte) error {
	if len(body) < 5 {
		return errors.New("ledger: too short")
	}
	first := binary.LittleEndian.Uint32(body)
	if p.Epoch != d.epoch && first == 0 {
		d.epoch, d.n = p.Epoch, 0
	}
	if p.Epoch != d.epoch || first != d.n || p.Tick < d.tick || p.Tick == 0 {
		return errors.New("ledger: out of order")
	}
	for _, b := range body[4:] {
		if b != byte(d.n) {
			return errors.New("ledger: another number")
		}
		d.n++
	}
	d.tick = p.Tick
	return nil
}
func (d *ledgerDecoder) Hash() uint32   { panic("a reliable feed is not part of a packet's hash") }
func (d *ledgerDecoder) Cursor() uint64 { return 0 }
func (d *ledgerDecoder) Held() int      { return int(d.n) }

type lanesInput struct{ Fire bool }

type lanesDot struct {
	X int32
}

// lanesWorld has a reliable feed between two of state, so that neither numbers nor hashes fit by chance.
type lanesWorld struct {
	near, far  *snap.Feed
	dots, dust *snap.Set[lanesDot]
	log        *ledger
}

func (w *lanesWorld) Feeds() []feed.Feed { return []feed.Feed{w.near, w.log, w.far} }
func (w *lanesWorld) Join(s *drumline.Seat) error {
	w.near.Own(s.ID(), w.dots.Spawn(lanesDot{}))
	return nil
}
func (w *lanesWorld) Leave(*drumline.Seat) {}
func (w *lanesWorld) Step(st *drumline.Step[lanesInput]) {
	for _, d := range w.dots.All() {
		d.X++
	}
	for _, d := range w.dust.All() {
		d.X += 2
	}
	if st.Tick%4 == 0 {
		w.log.n.Add(3)
	}
}
func (w *lanesWorld) Snapshot(dst []byte) ([]byte, error) {
	near, err := w.near.AppendState(nil)
	if err != nil {
		return dst, err
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(near)))
	return w.far.AppendState(append(dst, near...))
}
func (w *lanesWorld) Restore(src []byte) error {
	n := binary.LittleEndian.Uint32(src)
	return errors.Join(w.near.RestoreState(src[4:4+n]), w.far.RestoreState(src[4+n:]))
}

// lanesServer runs the world above over real sockets; room is its first room.
func lanesServer(t *testing.T) (srv *drumline.Server, url string, room func() *drumline.Room) {
	t.Helper()
	var mu sync.Mutex
	var first *drumline.Room
	world := drumline.Define(drumline.Kind[lanesInput]{
		Spec: drumline.Spec{Name: "lanes", Hz: 60},
		Open: func(r *drumline.Room) (drumline.World[lanesInput], error) {
			w := &lanesWorld{near: snap.New(snap.Options{Name: "near"}), far: snap.New(snap.Options{Name: "far"}), log: &ledger{name: "log"}}
			w.dots = snap.Add[lanesDot](w.near, "dot")
			w.dust = snap.Add[lanesDot](w.far, "dust")
			for range 3 {
				w.dust.Spawn(lanesDot{})
			}
			mu.Lock()
			first = r
			mu.Unlock()
			return w, errors.Join(w.near.Err(), w.far.Err())
		},
	})
	srv, err := drumline.New(drumline.Options{Worlds: []drumline.Definition{world}, LiftCaps: true, Lab: true, Priority: "none"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	h, err := ws.Handler(srv, ws.Options{})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	return srv, hs.URL, func() *drumline.Room { mu.Lock(); defer mu.Unlock(); return first }
}

// Both lanes of the real engine: each feed gets its own bytes, and only those of state are in the hash. Restored in the middle,
// the room goes on in a new epoch.
func TestTwoLanes(t *testing.T) {
	_, url, room := lanesServer(t)
	decoders := defaultDecoders()
	decoders["ledger"] = func(json.RawMessage) (feed.Decoder, error) { return &ledgerDecoder{}, nil }
	f, err := Start(t.Context(), Options{URL: url, World: "lanes", Bots: 4, Rooms: 1, Verify: true, JoinOver: 20 * time.Millisecond, Decoders: decoders})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.WaitJoined(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.ResetWindow()
	// told is the least number that a bot's ledger holds.
	told := func(epoch uint8) uint32 {
		s := f.shards[0]
		s.mu.Lock()
		defer s.mu.Unlock()
		least := ^uint32(0)
		for _, b := range s.bots {
			if b.state != live || len(b.view.Decoders) != 3 || b.epoch != epoch {
				return 0
			}
			d := b.view.Decoders[1].(*ledgerDecoder)
			if d.epoch != epoch {
				return 0
			}
			least = min(least, d.n)
		}
		return least
	}
	check := func(when string) {
		t.Helper()
		if g := f.Figures(); g.DecodeErrors != 0 || g.Mismatches != 0 || g.Live != 4 || g.Verified == 0 {
			t.Errorf("%s: %d errors, %d mismatches of %d, %d live: %s; closed %v", when, g.DecodeErrors, g.Mismatches, g.Verified, g.Live, g.FirstError, g.Closed)
		}
	}
	epoch := f.shards[0].epochOf(0)
	until(t, "the reliable feed", func() bool { return told(epoch) > 20 || f.Figures().DecodeErrors > 0 })
	check("at first")

	before := f.shards[0].tickOf(0)
	saved, failed := told(epoch), make(chan error, 1)
	r := room()
	if !r.Go(func() {}, func() {
		state, err := r.Snapshot(nil)
		if err == nil {
			err = r.Restore(state)
		}
		failed <- err
	}) {
		t.Fatal("no worker")
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	until(t, "the new epoch", func() bool { return told(epoch+1) > saved || f.Figures().DecodeErrors > 0 || f.Figures().Live < 4 })
	check("in the new epoch")
	if tick := f.shards[0].tickOf(0); tick <= before {
		t.Errorf("tick %d after %d", tick, before)
	}
	if g := f.Figures(); g.Age.Quantile(.99) > time.Minute || g.Held < 4+3 {
		t.Errorf("age %v, %v items held", g.Age.Quantile(.99), g.Held)
	}
}

func (s *shard) epochOf(bot int) uint8 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bots[bot].epoch
}

func (s *shard) tickOf(bot int) feed.Tick {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bots[bot].tick
}
