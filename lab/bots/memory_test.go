package bots

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
	"github.com/drumline-engine/drumline/link/mem"
	"github.com/drumline-engine/drumline/worlds/arena"
)

// memoryServer runs the arena in this process.
func memoryServer(t *testing.T) *drumline.Server {
	t.Helper()
	srv, err := drumline.New(drumline.Options{Worlds: []drumline.Definition{arena.World()}, LiftCaps: true, Lab: true, Priority: "none"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	return srv
}

// The same bots over a link that loses, delays and shuffles: what they hold is right all the same.
func TestMemory(t *testing.T) {
	for name, unordered := range map[string]bool{"unordered": true, "ordered": false} {
		t.Run(name, func(t *testing.T) {
			srv := memoryServer(t)
			f, err := Start(t.Context(), Options{Server: srv, Unordered: unordered, Path: mem.Path{Loss: .05, Delay: 5 * time.Millisecond, Jitter: 60 * time.Millisecond},
				World: "arena", NewBot: arena.World().NewBot, Bots: 3, Rooms: 1, Show: 2, Verify: true, JoinOver: 10 * time.Millisecond, InputHz: 60})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.WaitJoined(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.ResetWindow()
			until(t, "packets", func() bool {
				g := f.Figures()
				if g.Motion == nil || g.Motion.Frames == 0 {
					return false
				}
				return g.Verified > 60 && g.AckDelay.Count() > 30 && g.Echo.Count() > 5 && (!unordered || g.Overtaken > 0)
			})
			g := f.Figures()
			if g.Joined != 3 || g.Live != 3 || len(g.Refused)+len(g.Closed) != 0 {
				t.Errorf("%d joined, %d live, refused %v, closed %v", g.Joined, g.Live, g.Refused, g.Closed)
			}
			if g.DecodeErrors != 0 || g.Mismatches != 0 || g.Held < 3 || g.Acks == 0 || g.PacketBytes.Count() == 0 || g.PacketBytes.Max() < 20*packetUnit || g.WireBytes <= g.Bytes {
				t.Errorf("%+v, for example %s", g, g.FirstError)
			}
			if m := g.Motion; g.Showing != 2 || m.DelayMs <= 0 || m.Pictures == 0 || m.Underruns > m.Pictures {
				t.Errorf("%d show %+v", g.Showing, m)
			}
			if !unordered && g.Overtaken+g.NoBase != 0 {
				t.Errorf("%d overtaken, %d without a base over an ordered link", g.Overtaken, g.NoBase)
			}
			f.Close()
			until(t, "goodbyes", func() bool { return srv.Stats().Players == 0 })
			if st := srv.Stats(); st.Closed["left"] != 3 {
				t.Errorf("closed %v", st.Closed)
			}
		})
	}
}

// The server's end of a link in memory has its reason; a paused bot reads nothing of it.
func TestMemoryEnds(t *testing.T) {
	srv := memoryServer(t)
	f, err := Start(t.Context(), Options{Server: srv, World: "arena", Bots: 3, Rooms: 1, Pause: 1, RateBytes: 50_000, JoinOver: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.WaitJoined(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.ResetWindow()
	f.Pause()
	until(t, "packets", func() bool { return f.Figures().Packets > 10 })
	paused := func() uint64 {
		f.shards[0].mu.Lock()
		defer f.shards[0].mu.Unlock()
		return f.shards[0].bots[0].n.packets
	}
	was, seen := paused(), f.Figures().Packets
	until(t, "packets of the others", func() bool { return f.Figures().Packets > seen+10 })
	if n := paused(); n != was {
		t.Errorf("a paused bot read %d packets", n-was)
	}
	srv.Close()
	until(t, "the ends", func() bool {
		g := f.Figures()
		return g.Closed["draining"]+g.Closed["room_closed"] == 2 && g.Closed[Reset] == 1
	})
}

// Refusals arrive over a link in memory, too.
func TestMemoryRefusal(t *testing.T) {
	f, err := Start(t.Context(), Options{Server: memoryServer(t), World: "nowhere", Bots: 2, JoinOver: time.Millisecond, Path: mem.Path{Delay: time.Millisecond}, Unordered: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.WaitJoined(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g := f.Figures(); g.Refused["no_world"] != 2 || g.Joined != 0 {
		t.Errorf("refused %v", g.Refused)
	}
}

func TestMemoryOptions(t *testing.T) {
	srv := memoryServer(t)
	for want, o := range map[string]Options{
		"URL, Deflate and Rcvbuf are for sockets":   {Server: srv, URL: "http://127.0.0.1:1"},
		"Deflate and Rcvbuf are for sockets, and":   {Server: srv, Deflate: true},
		"Rcvbuf are for sockets, and Server is set": {Server: srv, Rcvbuf: 1},
		"Down.Loss is 2": {Server: srv, Path: mem.Path{Loss: 2}},
		"Path and Unordered are for a Server of this process": {URL: "http://127.0.0.1:1", Path: mem.Path{Loss: .1}},
		"Unordered are for a Server of this process, and":     {URL: "http://127.0.0.1:1", Unordered: true},
	} {
		o.World = "w"
		if f, err := Start(t.Context(), o); err == nil {
			f.Close()
			t.Errorf("%s: taken", want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// scripted answers each packet with the error of its first byte, and notes what it is told.
type scripted struct {
	errs   map[byte]error
	bodies []string
	acks   []uint16
}

func (d *scripted) Decode(p feed.Packet, body []byte) error {
	d.bodies = append(d.bodies, string(body))
	d.acks = append(d.acks, p.Ack)
	if len(body) > 0 {
		return d.errs[body[0]]
	}
	return nil
}
func (*scripted) Hash() uint32   { return 7 }
func (*scripted) Cursor() uint64 { return 0 }
func (*scripted) Held() int      { return 0 }

// Only what was read is acked, and what was not is counted for what it is.
func TestPacketsOfALossyLink(t *testing.T) {
	errs := map[byte]error{'o': snap.ErrOvertaken, 'k': snap.ErrNoKeyframe, 'x': errors.New("damaged")}
	first, second := &scripted{errs: errs}, &scripted{errs: errs}
	b := &bot{f: &Fleet{}, state: joining, decodes: true, verify: true, lanes: []feed.Lane{feed.State, feed.Reliable, feed.State}}
	b.f.o.Unordered = true
	b.view.Decoders = []feed.Decoder{first, nil, second}
	b.section = b.onSection
	const sections, acks, hash = 4, 2, 1
	packet := func(seq uint16, ack uint16, hashed uint32, one, two string) {
		t.Helper()
		p := state1(seq, seq, nil, 0, false)
		p[1] = sections | acks | hash
		p = binary.LittleEndian.AppendUint16(p, ack)
		p = binary.LittleEndian.AppendUint32(p, 0)
		for i, body := range []string{one, "", two} {
			if body != "" {
				p = append(append(p, byte(i), byte(len(body))), body...)
			}
		}
		if err := b.message(binary.LittleEndian.AppendUint32(p, hashed)); err != nil {
			t.Fatal(err)
		}
	}
	packet(1, 0, 0, "a", "b") // it overtook the welcome
	if b.got || b.n.overtaken != 1 || len(first.bodies) != 0 {
		t.Errorf("before the welcome: %+v", b.n)
	}
	b.state = live
	packet(2, 0, 0, "a", "b")
	packet(4, 2, 7, "", "c")
	packet(3, 2, 7, "d", "e") // late
	packet(4, 2, 7, "d", "e") // twice
	packet(5, 2, 7, "x", "f")
	packet(6, 4, 7, "g", "k")
	packet(7, 4, 7, "o", "h")
	packet(8, 4, foldHash(7, 7), "", "")
	if b.ack != 8 || b.history != 0b101000 {
		t.Errorf("ack %d, history %b", b.ack, b.history)
	}
	want := counts{packets: 8, bytes: b.n.bytes, decodeErrors: 1, noBase: 1, overtaken: 4, unverifiable: 1, verified: 2, mismatches: 1}
	if b.n != want {
		t.Errorf("%+v, want %+v", b.n, want)
	}
	if got := strings.Join(first.bodies, "|") + "; " + strings.Join(second.bodies, "|"); got != "a||x|g|o|; b|c|k|" {
		t.Error(got)
	}
	if n := len(first.acks); first.acks[n-1] != 4 {
		t.Errorf("acks %v", first.acks)
	}

	// Where baselines are those last written, the same is an error.
	b.n = counts{}
	for seq, body := range []string{"b", "k", "o"} {
		p := state1(uint16(9+seq), 9, nil, 0, false)
		p[1] = sections
		b.onState(append(append(p, 0, 1), body...))
	}
	b.onState(state1(2, 2, nil, 0, false))
	if want := (counts{packets: 4, bytes: b.n.bytes, decodeErrors: 3}); b.n != want {
		t.Errorf("%+v, want %+v", b.n, want)
	}
}
