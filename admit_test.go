package drumline

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/drumline-engine/drumline/feed"
)

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
