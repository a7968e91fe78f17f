package drumline

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drumline-engine/drumline/beat"
	"github.com/drumline-engine/drumline/feed"
)

// fakeLink records what it is sent. busy makes TrySend refuse; queued is reported as waiting.
type fakeLink struct {
	delivery feed.Delivery

	reader sync.Mutex // one message at a time

	mu     sync.Mutex
	conn   *Conn
	busy   bool
	broken bool // Send fails
	queued int
	state  [][]byte
	at     []time.Time // arrival of state
	other  [][]byte
	code   int
	reason string
	closed bool
}

func (l *fakeLink) Delivery() feed.Delivery { return l.delivery }
func (l *fakeLink) MaxState() int           { return 0 }
func (l *fakeLink) Ready() bool             { l.mu.Lock(); defer l.mu.Unlock(); return !l.busy && !l.closed }
func (l *fakeLink) Queued() int             { l.mu.Lock(); defer l.mu.Unlock(); return l.queued }
func (l *fakeLink) Counters() LinkCounters  { return LinkCounters{} }

func (l *fakeLink) TrySend(msg []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy || l.closed {
		return false
	}
	l.state = append(l.state, append([]byte(nil), msg...))
	l.at = append(l.at, time.Now())
	return true
}

func (l *fakeLink) Send(msg []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrLinkClosed
	}
	if l.broken {
		return errors.New("broken")
	}
	l.other = append(l.other, append([]byte(nil), msg...))
	return nil
}

func (l *fakeLink) Close(code int, reason string) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed, l.code, l.reason = true, code, reason
	c := l.conn
	l.mu.Unlock()
	if c != nil {
		go c.Closed(nil)
	}
}

func (l *fakeLink) isClosed() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.closed }

// drop ends the link from outside.
func (l *fakeLink) drop(err error) {
	l.mu.Lock()
	was := l.closed
	l.closed = true
	l.mu.Unlock()
	if !was {
		l.conn.Closed(err)
	}
}

// packets returns the state packets so far, split.
func (l *fakeLink) packets(t *testing.T) (out []fakePacket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, m := range l.state {
		p := fakePacket{at: l.at[i]}
		h, err := ParseState(m, func(_ StateHeader, f int, body []byte) error {
			if f == 0 {
				p.value = binary.LittleEndian.Uint32(body)
			}
			p.bodies++
			return nil
		})
		if err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		p.StateHeader = h
		out = append(out, p)
	}
	return out
}

type fakePacket struct {
	StateHeader
	at     time.Time
	value  uint32
	bodies int
}

// message returns the last message of a kind on the reliable lane.
func message[T any](l *fakeLink, kind byte) (v T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.other) - 1; i >= 0; i-- {
		if m := l.other[i]; m[0] == kind {
			return v, json.Unmarshal(m[1:], &v) == nil
		}
	}
	return v, false
}

// send gives the engine a message as if it had come over the link.
func (l *fakeLink) send(msg []byte) {
	l.reader.Lock()
	defer l.reader.Unlock()
	l.conn.Receive(msg)
}

func (l *fakeLink) sendJSON(kind byte, v any) {
	m, err := AppendJSON(nil, kind, v)
	if err != nil {
		panic(err)
	}
	l.send(m)
}

func (l *fakeLink) ack(seq uint16, history uint32) { l.send(AppendAck(nil, seq, history)) }

// ackAll acks the newest packet.
func (l *fakeLink) ackAll() {
	l.mu.Lock()
	n := len(l.state)
	var seq uint16
	if n > 0 {
		seq = binary.LittleEndian.Uint16(l.state[n-1][2:])
	}
	l.mu.Unlock()
	if seq != 0 {
		l.ack(seq, 0)
	}
}

// counterFeed sends one uint32 that the world sets.
type counterFeed struct {
	lane    feed.Lane
	value   uint32
	streams []*counterStream
	mu      sync.Mutex
	frames  atomic.Int32 // captured
}

type counterFrame struct {
	t feed.Tick
	v uint32
}

func (f *counterFrame) Tick() feed.Tick { return f.t }
func (f *counterFrame) Retain()         {}
func (f *counterFrame) Release()        {}

func (f *counterFeed) Info() feed.Info {
	return feed.Info{Kind: "counter", Lane: f.lane, Schema: json.RawMessage("{}")}
}
func (f *counterFeed) Capture(t feed.Tick) feed.Frame {
	f.frames.Add(1)
	return &counterFrame{t, f.value}
}
func (f *counterFeed) Leave(feed.SeatID) {}
func (f *counterFeed) Join(_ feed.SeatID, d feed.Delivery) feed.Stream {
	s := &counterStream{d: d, sent: ^uint32(0)}
	f.mu.Lock()
	f.streams = append(f.streams, s)
	f.mu.Unlock()
	return s
}

type counterStream struct {
	mu              sync.Mutex // tests look at it
	d               feed.Delivery
	n, told         feed.Receipt
	sent            uint32
	delivered, lost []feed.Receipt
	resumed         []uint64
	resumedAs       []feed.Delivery
	closed          bool
}

func (s *counterStream) Append(dst []byte, f feed.Frame, limit int) ([]byte, feed.Written) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit < 4 {
		return dst, feed.Written{More: true}
	}
	s.n++
	s.sent = f.(*counterFrame).v
	return binary.LittleEndian.AppendUint32(dst, s.sent), feed.Written{Receipt: s.n, Held: 1, Keyframe: s.n == 1}
}

func (s *counterStream) Delivered(r feed.Receipt) {
	s.mu.Lock()
	s.delivered = append(s.delivered, r)
	s.mu.Unlock()
}

func (s *counterStream) Lost(r feed.Receipt) {
	s.mu.Lock()
	s.lost = append(s.lost, r)
	s.mu.Unlock()
}

func (s *counterStream) Resume(c uint64, d feed.Delivery) {
	s.mu.Lock()
	s.resumed = append(s.resumed, c)
	s.resumedAs = append(s.resumedAs, d)
	s.sent = ^uint32(0)
	s.mu.Unlock()
}

func (s *counterStream) Dirty(f feed.Frame) bool { return s.sent != f.(*counterFrame).v }
func (s *counterStream) Hash() uint32            { return s.sent * 7 }
func (s *counterStream) Account(a *feed.Account) {
	s.mu.Lock()
	a.Add("value", 32*uint64(s.n-s.told), uint64(s.n-s.told))
	s.told = s.n
	s.mu.Unlock()
}
func (s *counterStream) Close() { s.mu.Lock(); s.closed = true; s.mu.Unlock() }

// testInput is the input of testWorld.
type testInput struct {
	Fire, Jump bool
	DX         int8
	Aim        uint16
	Speed      float32
}

// testWorld does what its test tells it to.
type testWorld struct {
	room     *Room
	feeds    []feed.Feed
	main     *counterFeed
	steps    int
	joined   []*Seat
	left     []SeatID
	dropped  int
	resumed  int
	inputs   []Input[testInput] // of seat 0
	commands [][]byte
	onStep   func(w *testWorld, st *Step[testInput])
	onJoin   func(s *Seat) error
}

func (w *testWorld) Feeds() []feed.Feed { return w.feeds }
func (w *testWorld) Join(s *Seat) error {
	if w.onJoin != nil {
		if err := w.onJoin(s); err != nil {
			return err
		}
	}
	w.joined = append(w.joined, s)
	return nil
}
func (w *testWorld) Leave(s *Seat) { w.left = append(w.left, s.ID()) }
func (w *testWorld) Drop(*Seat)    { w.dropped++ }
func (w *testWorld) Resume(*Seat)  { w.resumed++ }
func (w *testWorld) Step(st *Step[testInput]) {
	w.steps++
	for s, in := range st.Inputs() {
		if s.ID() == 0 {
			w.inputs = append(w.inputs, in)
		}
	}
	if w.onStep != nil {
		w.onStep(w, st)
	}
}
func (w *testWorld) Command(s *Seat, msg []byte) {
	w.commands = append(w.commands, append([]byte(nil), msg...))
}
func (w *testWorld) Snapshot(dst []byte) ([]byte, error) {
	return binary.LittleEndian.AppendUint32(dst, w.main.value), nil
}
func (w *testWorld) Restore(src []byte) error {
	if len(src) != 4 {
		return errors.New("cut short")
	}
	w.main.value = binary.LittleEndian.Uint32(src)
	return nil
}

// testServer is a server with one world, driven by synctest's clock.
type testServer struct {
	*Server
	t      testing.TB
	mu     sync.Mutex
	worlds map[string]*testWorld
}

func newTestServer(t testing.TB, spec Spec, o Options, prepare func(w *testWorld)) *testServer {
	t.Helper()
	ts := &testServer{t: t, worlds: map[string]*testWorld{}}
	if spec.Name == "" {
		spec.Name = "test"
	}
	o.Worlds = append(o.Worlds, Define(Kind[testInput]{Spec: spec, Open: func(r *Room) (World[testInput], error) {
		w := &testWorld{room: r, main: &counterFeed{}}
		w.feeds = []feed.Feed{w.main}
		if prepare != nil {
			prepare(w)
		}
		ts.mu.Lock()
		ts.worlds[r.Name()] = w
		ts.mu.Unlock()
		return w, nil
	}}))
	o.Clock = beat.PortableClock()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.Priority == "" {
		o.Priority = "none"
	}
	if o.JoinsPerSec == 0 {
		o.JoinsPerSec = 1000
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ts.Server = s
	return ts
}

func (ts *testServer) world(room string) *testWorld {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.worlds[room]
}

func (ts *testServer) connect(d feed.Delivery) *fakeLink {
	l := &fakeLink{delivery: d}
	c := ts.Accept(l, Peer{Addr: netip.MustParseAddrPort("192.0.2.1:999"), Transport: "fake"})
	l.mu.Lock()
	l.conn = c
	closed := l.closed
	l.mu.Unlock()
	if closed {
		go c.Closed(nil)
	}
	return l
}

func (ts *testServer) join(room string) *fakeLink { return ts.hello(Hello{Room: room}) }

func (ts *testServer) hello(h Hello) *fakeLink {
	l := ts.connect(feed.Ordered)
	if h.Protocol == 0 {
		h.Protocol = ProtocolVersion
	}
	if h.World == "" {
		h.World = "test"
	}
	l.sendJSON(KindHello, h)
	return l
}
