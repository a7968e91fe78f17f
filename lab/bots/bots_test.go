package bots

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
)

// serverFrame makes a server's frame.
func serverFrame(fin bool, op ws.OpCode, p []byte) []byte {
	return ws.MustCompileFrame(ws.NewFrame(op, fin, p))
}

// readFrame reads a client's frame and unmasks it.
func readFrame(r io.Reader) (ws.Header, []byte, error) {
	h, err := ws.ReadHeader(r)
	if err != nil || h.Length > maxMessage {
		return h, nil, err
	}
	p := make([]byte, h.Length)
	_, err = io.ReadFull(r, p)
	if h.Masked {
		ws.Cipher(p, h.Mask, 0)
	}
	return h, p, err
}

// A server that knows just enough: it answers each bot as the test says.
type fakeServer struct {
	*httptest.Server
	mu     sync.Mutex
	hellos []drumline.Hello
	got    map[int][][]byte // messages by bot, after the hello
	wg     sync.WaitGroup
	stop   chan struct{}
}

// peer is the server's end of one bot.
type peer struct {
	net.Conn
	s     *fakeServer
	id    int
	hello drumline.Hello
}

// newFakeServer runs play for each bot; the connection ends when play returns.
func newFakeServer(t *testing.T, play func(p *peer)) *fakeServer {
	s := &fakeServer{got: map[int][][]byte{}, stop: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws" {
			http.NotFound(w, r)
			return
		}
		c, brw, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		if !s.enter() {
			c.Close()
			return
		}
		defer s.wg.Done()
		defer c.Close()
		s.serve(c, brw.Reader, play)
	}))
	t.Cleanup(func() {
		s.mu.Lock()
		close(s.stop)
		s.mu.Unlock()
		s.Close()
		s.wg.Wait()
	})
	return s
}

// enter is false once the server stops: nobody may be added to those that are waited for.
func (s *fakeServer) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stop:
		return false
	default:
		s.wg.Add(1)
		return true
	}
}

func (s *fakeServer) serve(c net.Conn, r *bufio.Reader, play func(p *peer)) {
	_, msg, err := readFrame(r)
	if err != nil {
		return
	}
	p := &peer{Conn: c, s: s}
	if len(msg) == 0 || msg[0] != drumline.KindHello || json.Unmarshal(msg[1:], &p.hello) != nil {
		return
	}
	p.id, _ = strconv.Atoi(strings.TrimPrefix(p.hello.Name, "bot "))
	s.mu.Lock()
	s.hellos = append(s.hellos, p.hello)
	s.mu.Unlock()
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			h, msg, err := readFrame(r)
			if err != nil {
				return
			}
			if h.OpCode == ws.OpPong {
				msg = append([]byte("pong "), msg...)
			}
			s.mu.Lock()
			s.got[p.id] = append(s.got[p.id], msg)
			s.mu.Unlock()
			if h.OpCode == ws.OpClose {
				c.Close()
			}
		}
	})
	play(p)
	c.Close()
	reader.Wait()
}

func (s *fakeServer) messages(id int) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got[id]
}

// await waits for the bot's messages to satisfy ok.
func (s *fakeServer) await(t *testing.T, id int, ok func(all [][]byte) bool) [][]byte {
	t.Helper()
	for range 2000 {
		if all := s.messages(id); ok(all) {
			return all
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("bot %d: what was waited for never came; there are %d messages", id, len(s.messages(id)))
	return nil
}

func (p *peer) message(kind byte, v any) {
	b, err := drumline.AppendJSON(nil, kind, v)
	if err != nil {
		panic(err)
	}
	p.frame(b)
}

func (p *peer) frame(b []byte) { p.Write(serverFrame(true, ws.OpBinary, b)) }

func (p *peer) welcome() {
	p.message(drumline.KindWelcome, drumline.Welcome{
		Protocol: drumline.ProtocolVersion, World: p.hello.World, Room: p.hello.Room, Seat: drumline.SeatID(p.id), Hz: 60, SendHz: 20,
		Ordered: true, Verify: p.hello.Verify, Tick: 100, TickZeroUs: time.Now().Add(-100 * time.Second / 60).UnixMicro(),
		Inputs: []drumline.InputField{{Name: "dx", Kind: "i8"}, {Name: "fire", Kind: "bool"}},
		Feeds:  []feed.Info{{Kind: "count"}},
	})
}

// state makes a state packet by hand, as packet.go draws it.
func state1(seq uint16, tick uint16, body []byte, hash uint32, hashed bool) []byte {
	flags := byte(0)
	if hashed {
		flags = 1
	}
	b := []byte{drumline.KindState, flags}
	b = binary.LittleEndian.AppendUint16(b, seq)
	b = append(b, 0)
	b = binary.LittleEndian.AppendUint16(b, tick)
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = append(b, 0x80)
	b = append(b, body...)
	if hashed {
		b = binary.LittleEndian.AppendUint32(b, hash)
	}
	return b
}

// states sends state packets until the link or the test ends; each holds its number.
func (p *peer) states(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := uint32(1); ; n++ {
		body := binary.LittleEndian.AppendUint32(nil, n)
		if _, err := p.Write(serverFrame(true, ws.OpBinary, state1(uint16(n), uint16(100+3*n), body, n*7, p.hello.Verify))); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-p.s.stop:
			return
		}
	}
}

// countDecoder holds the last number.
type countDecoder struct{ n uint32 }

func (d *countDecoder) Decode(_ feed.Packet, body []byte) error {
	if len(body) != 4 {
		return fmt.Errorf("a body of %d bytes", len(body))
	}
	d.n = binary.LittleEndian.Uint32(body)
	return nil
}
func (d *countDecoder) Hash() uint32   { return d.n * 7 }
func (d *countDecoder) Cursor() uint64 { return 0 }
func (d *countDecoder) Held() int      { return 3 }

var countOnly = map[string]NewDecoder{
	"count": func(json.RawMessage) (feed.Decoder, error) { return &countDecoder{}, nil },
}

// both runs a test on the event loop and on the portable path.
func both(t *testing.T, f func(t *testing.T, o Options)) {
	for _, portable := range []bool{false, true} {
		name := "loop"
		if portable {
			name = "portable"
		}
		t.Run(name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			f(t, Options{World: "fake", Portable: portable, Decoders: countOnly, JoinOver: 20 * time.Millisecond, InputHz: 50})
			for range 400 {
				if runtime.NumGoroutine() <= before {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
			buf := make([]byte, 1<<16)
			t.Errorf("goroutines: %d, then %d\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		})
	}
}

// within runs f with a server and a fleet and closes both before it returns, so that leaks show.
func within(t *testing.T, o Options, play func(p *peer), f func(s *fakeServer, fl *Fleet)) {
	t.Helper()
	t.Run("run", func(t *testing.T) {
		s := newFakeServer(t, play)
		o.URL = s.URL
		fl, err := Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer fl.Close()
		if err := fl.WaitJoined(t.Context()); err != nil {
			t.Fatal(err)
		}
		f(s, fl)
	})
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s: never", what)
}

func TestFleetPlays(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		o.Bots, o.Rooms, o.DecodeEvery, o.Verify = 12, 3, 2, true
		o.NewBot = func(seed uint64) func([]byte, drumline.BotView) []byte {
			return func(dst []byte, v drumline.BotView) []byte {
				return append(dst, byte(v.Seat), byte(len(v.Decoders)))
			}
		}
		within(t, o, func(p *peer) {
			p.welcome()
			p.states(10 * time.Millisecond)
		}, func(s *fakeServer, f *Fleet) {
			f.ResetWindow()
			until(t, "packets", func() bool { return f.Figures().Packets >= 12*5 })
			all := s.await(t, 7, func(all [][]byte) bool { return len(all) > 5 })
			g := f.Figures()
			if g.Asked != 12 || g.Joined != 12 || g.Live != 12 || g.Lost != 0 || len(g.Refused)+len(g.Closed) != 0 || g.Clients != 12 {
				t.Errorf("links: %+v", g)
			}
			if g.DecodeErrors != 0 || g.Mismatches != 0 || g.Verified == 0 || g.Held != 3 || g.FirstError != "" {
				t.Errorf("decoding: %+v", g)
			}
			if g.Bytes == 0 || g.WireBytes < g.Bytes || g.Gap.Count() == 0 || g.Age.Count() == 0 || g.Inputs == 0 || g.Late.Count() == 0 {
				t.Errorf("figures: %+v", g)
			}
			for i, msg := range all {
				if msg[0] != drumline.KindInput || int(msg[7]) < 1 || len(msg) != 12+2*int(msg[7]) || msg[12] != 7 || msg[13] != 1 {
					t.Fatalf("message %d: % x", i, msg)
				}
			}
			last := all[len(all)-1]
			if ack := binary.LittleEndian.Uint16(last[1:]); ack < 2 || binary.LittleEndian.Uint32(last[3:]) != 1<<(ack-1)-1 && ack <= 32 {
				t.Errorf("ack %d with history %b", ack, last[3:7])
			}
			rooms := map[string]int{}
			for _, h := range s.hellos {
				rooms[h.Room]++
				id, _ := strconv.Atoi(strings.TrimPrefix(h.Name, "bot "))
				if h.World != "fake" || h.Protocol != drumline.ProtocolVersion || h.Verify != (id%2 == 0) {
					t.Errorf("hello %+v", h)
				}
			}
			if len(rooms) != 3 || rooms["r1"] != 4 || rooms["r3"] != 4 {
				t.Errorf("rooms %v", rooms)
			}
			f.Close()
			s.await(t, 3, func(all [][]byte) bool {
				for _, msg := range all {
					if len(msg) == 1 && msg[0] == drumline.KindLeave {
						return true
					}
				}
				return false
			})
			if g := f.Figures(); g.Joined != 12 || g.Lost != 0 {
				t.Errorf("after the end: %+v", g)
			}
		})
	})
}

// Each bot meets another kind of trouble; the last one plays on.
func TestTroubleStaysWithItsBot(t *testing.T) {
	state := func(n uint32, body []byte) []byte {
		return serverFrame(true, ws.OpBinary, state1(uint16(n), uint16(100+3*n), body, 0, false))
	}
	four := []byte{1, 0, 0, 0}
	waitEnd := func(p *peer) { <-p.s.stop }
	troubles := []struct {
		name string
		play func(p *peer)
		// how it ends: refused or closed with a reason, or decode errors while it goes on
		refused, closed string
	}{
		{"garbage", func(p *peer) { p.welcome(); p.Write([]byte("HTTP/1.1 500 oh\r\n\r\n")); waitEnd(p) }, "", BadFrame},
		{"oversized", func(p *peer) { p.welcome(); p.Write([]byte{0x82, 127, 0, 0, 0, 0, 0, 32, 0, 0}); waitEnd(p) }, "", BadFrame},
		{"text", func(p *peer) { p.welcome(); p.Write(serverFrame(true, ws.OpText, []byte("hi"))); waitEnd(p) }, "", BadFrame},
		{"unknown kind", func(p *peer) { p.welcome(); p.frame([]byte{99}); waitEnd(p) }, "", BadFrame},
		{"empty message", func(p *peer) { p.welcome(); p.frame(nil); waitEnd(p) }, "", BadFrame},
		{"two welcomes", func(p *peer) { p.welcome(); p.welcome(); waitEnd(p) }, "", BadFrame},
		{"state before the welcome", func(p *peer) { p.Write(state(1, four)); waitEnd(p) }, BadFrame, ""},
		{"no welcome but silence and an end", func(p *peer) {}, Reset, ""},
		{"refused", func(p *peer) {
			p.message(drumline.KindRefuse, drumline.Goodbye{Reason: "room_full", Code: 4010})
			p.Write(serverFrame(true, ws.OpClose, ws.NewCloseFrameBody(4010, "room_full")))
			waitEnd(p)
		}, "room_full", ""},
		{"refused by a code alone", func(p *peer) {
			p.Write(serverFrame(true, ws.OpClose, ws.NewCloseFrameBody(4011, "")))
			waitEnd(p)
		}, "server_full", ""},
		{"another version", func(p *peer) {
			p.message(drumline.KindWelcome, drumline.Welcome{Protocol: 99, Feeds: []feed.Info{{Kind: "count"}}})
			waitEnd(p)
		}, BadWelcome, ""},
		{"a feed without a decoder", func(p *peer) {
			p.message(drumline.KindWelcome, drumline.Welcome{Protocol: drumline.ProtocolVersion, Feeds: []feed.Info{{Kind: "opera"}}})
			waitEnd(p)
		}, BadWelcome, ""},
		{"an input of an unknown kind", func(p *peer) {
			p.message(drumline.KindWelcome, drumline.Welcome{Protocol: drumline.ProtocolVersion, Feeds: []feed.Info{{Kind: "count"}},
				Inputs: []drumline.InputField{{Name: "x", Kind: "i64"}}})
			waitEnd(p)
		}, BadWelcome, ""},
		{"not JSON", func(p *peer) { p.frame([]byte{drumline.KindWelcome, '{'}); waitEnd(p) }, BadWelcome, ""},
		{"stalled", func(p *peer) {
			p.welcome()
			p.message(drumline.KindRefuse, drumline.Goodbye{Reason: "stalled", Code: 4017})
			p.Write(serverFrame(true, ws.OpClose, ws.NewCloseFrameBody(4017, "stalled")))
			waitEnd(p)
		}, "", "stalled"},
		{"an unknown code", func(p *peer) {
			p.welcome()
			p.Write(serverFrame(true, ws.OpClose, ws.NewCloseFrameBody(4999, "")))
			waitEnd(p)
		}, "", "code_4999"},
		{"cut", func(p *peer) { p.welcome() }, "", Reset},
		{"cut inside a frame", func(p *peer) { p.welcome(); p.Write(state(1, four)[:5]) }, "", Reset},
		{"undecodable", func(p *peer) {
			p.welcome()
			p.Write(state(1, []byte{1}))
			p.Write(serverFrame(true, ws.OpBinary, []byte{drumline.KindState, 0xff}))
			p.frame([]byte{drumline.KindReliable})
			p.states(10 * time.Millisecond)
		}, "", ""},
		{"in pieces", func(p *peer) {
			p.welcome()
			for n := uint32(1); n < 40; n++ {
				msg := state1(uint16(n), uint16(100+3*n), binary.LittleEndian.AppendUint32(nil, n), 0, false)
				all := slices.Concat(serverFrame(false, ws.OpBinary, msg[:3]), serverFrame(true, ws.OpPing, []byte("x")), serverFrame(true, ws.OpContinuation, msg[3:]))
				for _, c := range all {
					if _, err := p.Write([]byte{c}); err != nil {
						return
					}
				}
			}
			waitEnd(p)
		}, "", ""},
		{"well", func(p *peer) { p.welcome(); p.states(10 * time.Millisecond) }, "", ""},
	}
	both(t, func(t *testing.T, o Options) {
		o.Bots = len(troubles)
		within(t, o, func(p *peer) { troubles[p.id].play(p) }, func(s *fakeServer, f *Fleet) {
			refused, closed := map[string]int{}, map[string]int{}
			alive := 0
			for _, c := range troubles {
				switch {
				case c.refused != "":
					refused[c.refused]++
				case c.closed != "":
					closed[c.closed]++
				default:
					alive++
				}
			}
			until(t, "all ends", func() bool {
				g := f.Figures()
				return fmt.Sprint(g.Refused, g.Closed) == fmt.Sprint(refused, closed)
			})
			well := len(troubles) - 1
			until(t, "what goes on goes on", func() bool {
				f.shards[0].mu.Lock()
				defer f.shards[0].mu.Unlock()
				return f.shards[0].bots[well].n.packets > 20 && f.shards[0].bots[well-1].n.packets >= 39
			})
			g := f.Figures()
			if g.Live != alive || g.Lost != len(troubles)-alive-sum(refused) || g.Joined != g.Live+g.Lost {
				t.Errorf("%d live, %d lost, %d joined of %d; refused %v, closed %v", g.Live, g.Lost, g.Joined, g.Asked, g.Refused, g.Closed)
			}
			if g.DecodeErrors != 3 || g.FirstError == "" {
				t.Errorf("%d decode errors, first %q", g.DecodeErrors, g.FirstError)
			}
			s.await(t, well-1, func(all [][]byte) bool {
				for _, msg := range all {
					if string(msg) == "pong x" {
						return true
					}
				}
				return false
			})
		})
	})
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

func TestMismatch(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		o.Bots, o.Verify = 1, true
		within(t, o, func(p *peer) {
			p.welcome()
			for n := uint16(1); n <= 4; n++ {
				hash := uint32(7 * n)
				if n == 3 {
					hash++
				}
				p.frame(state1(n, 100+3*n, binary.LittleEndian.AppendUint32(nil, uint32(n)), hash, true))
			}
			<-p.s.stop
		}, func(s *fakeServer, f *Fleet) {
			until(t, "four packets", func() bool { return f.Figures().Verified == 4 })
			if g := f.Figures(); g.Mismatches != 1 || g.DecodeErrors != 0 {
				t.Errorf("%d mismatches, %d errors", g.Mismatches, g.DecodeErrors)
			}
		})
	})
}

// A paused bot reads nothing more, sends on, and sees the end of its link.
func TestPause(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		o.Bots, o.Pause, o.Rooms = 4, 2, 2
		cut := make(chan struct{})
		within(t, o, func(p *peer) {
			p.welcome()
			if p.id < 2 {
				go func() {
					<-cut
					p.Conn.(*net.TCPConn).SetLinger(0)
					p.Close()
				}()
			}
			p.states(5 * time.Millisecond)
		}, func(s *fakeServer, f *Fleet) {
			until(t, "packets", func() bool {
				f.shards[0].mu.Lock()
				defer f.shards[0].mu.Unlock()
				return f.shards[0].bots[0].n.packets > 3
			})
			f.ResetWindow()
			f.Pause()
			packets := func(id int) uint64 {
				f.shards[0].mu.Lock()
				defer f.shards[0].mu.Unlock()
				return f.shards[0].bots[id].n.packets
			}
			seen := packets(3)
			until(t, "others read on", func() bool { return packets(3) > seen+3 })
			was := packets(0)
			seen = packets(3)
			until(t, "others read on", func() bool { return packets(3) > seen+20 })
			// A reader that was under way when the pause began reads once more.
			if n := packets(0); n > was+1 && !o.Portable || n > was+4 {
				t.Errorf("a paused bot read %d packets", n-was)
			}
			sent := len(s.messages(0))
			s.await(t, 0, func(all [][]byte) bool { return len(all) > sent+5 })
			g := f.Figures()
			if len(g.Paused) != 2 || g.Paused[0].Room != "r1" || g.Paused[1].Room != "r2" || g.Paused[0].Reason != "" || g.Clients != 2 {
				t.Errorf("paused: %+v", g.Paused)
			}
			close(cut)
			if o.Portable {
				return // nobody looks at a paused connection there until a write fails
			}
			until(t, "the ends", func() bool { g := f.Figures(); return g.Paused[0].Reason == Reset && g.Paused[1].Reason == Reset })
			if g := f.Figures(); g.Lost != 0 || g.Closed[Reset] != 2 || g.Paused[0].After <= 0 {
				t.Errorf("%d lost, closed %v, %+v", g.Lost, g.Closed, g.Paused)
			}
		})
	})
}

func TestRate(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		o.Bots, o.RateBytes = 1, 2000
		within(t, o, func(p *peer) {
			p.welcome()
			for n := uint16(1); ; n++ {
				if _, err := p.Write(serverFrame(true, ws.OpBinary, state1(n, 100+3*n, make([]byte, 500), 0, false))); err != nil {
					return
				}
			}
		}, func(s *fakeServer, f *Fleet) {
			f.ResetWindow()
			until(t, "bytes", func() bool { return f.Figures().WireBytes > 1000 })
			g := f.Figures()
			if most := uint64(2000*(g.For.Seconds()+0.5)) + 200; g.WireBytes > most {
				t.Errorf("%d bytes in %v at 2000 a second", g.WireBytes, g.For)
			}
		})
	})
}

func TestNoInputsMeansAcks(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		o.Bots, o.InputHz = 1, -1
		within(t, o, func(p *peer) { p.welcome(); p.states(10 * time.Millisecond) }, func(s *fakeServer, f *Fleet) {
			for _, msg := range s.await(t, 0, func(all [][]byte) bool { return len(all) >= 2 }) {
				if msg[0] != drumline.KindAck || len(msg) != 7 || binary.LittleEndian.Uint16(msg[1:]) == 0 {
					t.Errorf("% x", msg)
				}
			}
		})
	})
}

func TestHTTPRefusal(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	defer srv.Close()
	f, err := Start(t.Context(), Options{URL: srv.URL, World: "w", Bots: 3, JoinOver: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.WaitJoined(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g := f.Figures(); g.Refused["http_403"] != 3 || g.Joined != 0 {
		t.Errorf("%+v", g.Refused)
	}
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	f, err := Start(t.Context(), Options{URL: "http://" + l.Addr().String(), World: "w", Bots: 2, JoinOver: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WaitJoined(t.Context())
	if g := f.Figures(); g.Refused[NoConnection] != 2 {
		t.Errorf("%+v", g.Refused)
	}
}

// The fleet ends with its context, also while its bots are on their way.
func TestContextEndsFleet(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	f, err := Start(ctx, Options{URL: "http://" + l.Addr().String(), World: "w", Bots: 100, JoinOver: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := f.WaitJoined(t.Context()); err == nil {
		t.Error("a fleet that has ended says that it has joined")
	}
	f.Close()
	f.Close()
}

func TestOptions(t *testing.T) {
	good := Options{URL: "http://127.0.0.1:1", World: "w"}
	for _, c := range []struct {
		name   string
		change func(o *Options)
		want   string
	}{
		{"no URL", func(o *Options) { o.URL = "" }, "want something like"},
		{"no host", func(o *Options) { o.URL = "arena" }, "want something like"},
		{"scheme", func(o *Options) { o.URL = "ftp://127.0.0.1" }, "want http"},
		{"remote", func(o *Options) { o.URL = "http://192.0.2.1" }, "not this machine"},
		{"remote name", func(o *Options) { o.URL = "http://example.org" }, "not this machine"},
		{"no world", func(o *Options) { o.World = "" }, "World"},
		{"too many", func(o *Options) { o.Bots = MaxBots + 1 }, "Bots is 5001"},
		{"negative", func(o *Options) { o.Bots = -1 }, "Bots is -1"},
		{"rooms", func(o *Options) { o.Rooms = -1 }, "Rooms"},
		{"input rate", func(o *Options) { o.InputHz = 201 }, "InputHz"},
		{"inputs", func(o *Options) { o.InputsPerPacket = 9 }, "InputsPerPacket"},
		{"decode", func(o *Options) { o.DecodeEvery = -1 }, "DecodeEvery"},
		{"pause", func(o *Options) { o.Pause = 17 }, "Pause is 17, want 0 to 16"},
		{"show", func(o *Options) { o.Show = 17 }, "Show is 17, want 0 to 16"},
		{"rate", func(o *Options) { o.RateBytes = -1 }, "RateBytes"},
		{"rcvbuf", func(o *Options) { o.Rcvbuf = -1 }, "Rcvbuf"},
		{"threads", func(o *Options) { o.Threads = 17 }, "Threads"},
		{"join", func(o *Options) { o.JoinOver = time.Hour }, "JoinOver"},
	} {
		o := good
		c.change(&o)
		if f, err := Start(t.Context(), o); err == nil {
			f.Close()
			t.Errorf("%s: taken", c.name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for in, want := range map[string]string{
		"http://127.0.0.1:8080":       "ws://127.0.0.1:8080/ws",
		"http://[::1]:8080/":          "ws://[::1]:8080/ws",
		"https://localhost/play/?x=1": "wss://localhost/play/ws",
		"ws://127.0.0.1:1/ws":         "ws://127.0.0.1:1/ws",
	} {
		o := good
		o.URL = in
		if u, err := o.fill(); err != nil || u.String() != want {
			t.Errorf("%s: %v, %v", in, u, err)
		}
	}
	o := good
	o.Bots = 2000
	if _, err := o.fill(); err != nil && !strings.Contains(err.Error(), "ulimit") {
		t.Error(err)
	} else if err == nil && (o.Rooms != 125 || o.JoinOver != 4*time.Second || o.Threads != 1 || o.InputHz != 20) {
		t.Errorf("%+v", o)
	}
}

func TestAckHistory(t *testing.T) {
	var b bot
	for _, c := range []struct {
		seq     uint16
		ack     uint16
		history uint32
	}{
		{1, 1, 0},
		{2, 2, 0b1},
		{4, 4, 0b110},
		{36, 36, 0b110<<32&0xffffffff | 0b1<<31},
		{69, 69, 0},
		{70, 70, 0b1},
	} {
		b.received(c.seq)
		if b.ack != c.ack || b.history != c.history {
			t.Errorf("after %d: ack %d, history %b; want %d, %b", c.seq, b.ack, b.history, c.ack, c.history)
		}
	}
	b = bot{}
	b.received(65535)
	b.received(0)
	b.received(2)
	if b.ack != 2 || b.history != 0b110 {
		t.Errorf("around the end of the numbers: ack %d, history %b", b.ack, b.history)
	}
}

func TestInputsAreForStepsInARow(t *testing.T) {
	type message struct {
		label  drumline.Tick
		inputs []byte // newest first
	}
	for _, c := range []struct {
		name      string
		perPacket int
		messages  []message
	}{
		{"those that are new", 0, []message{
			{10, []byte{1, 1, 1}},
			{13, []byte{2, 2, 2}},
			{14, []byte{3}},
			{16, []byte{4, 4}},
			{20, []byte{5, 5, 5, 5}},
			{20, []byte{5}}, // no step has begun since: the last one again
			{40, []byte{7, 7, 7}},
			{5, []byte{8, 8, 8}}, // the server is far behind what was thought
			{0, []byte{9}},
			{2, []byte{10, 10}},
		}},
		{"always three", 3, []message{
			{10, []byte{1, 1, 1}},
			{13, []byte{2, 2, 2}},
			{14, []byte{3, 2, 2}}, // one new, two repeated
			{16, []byte{4, 4, 3}}, // two new
			{20, []byte{5, 5, 5}}, // four steps on: one is left out
			{20, []byte{5, 5, 5}},
			{0, []byte{7}},
		}},
		{"always eight", 8, []message{
			{10, []byte{1, 1, 1}}, // the steps before are over
			{13, []byte{2, 2, 2, 1, 1, 1}},
			{16, []byte{3, 3, 3, 2, 2, 2, 1, 1}},
		}},
		{"one", 1, []message{{10, []byte{1}}, {13, []byte{2}}, {14, []byte{3}}}},
	} {
		n := byte(0)
		b := &bot{inputSize: 1, perPacket: c.perPacket, stride: 3, mind: func(dst []byte, _ drumline.BotView) []byte { n++; return append(dst, n) }}
		for _, m := range c.messages {
			msg := b.appendInputs(nil, m.label)
			if got := msg[12:]; string(got) != string(m.inputs) || int(msg[7]) != len(m.inputs) || binary.LittleEndian.Uint32(msg[8:]) != uint32(m.label) {
				t.Errorf("%s, label %d: %v, want %v", c.name, m.label, got, m.inputs)
			}
		}
	}
}

func TestWheel(t *testing.T) {
	w := wheel{start: time.Second, hz: 3, n: 7}
	var slots []time.Duration
	turns := make([]int, 7)
	for now := time.Duration(0); now < 101*time.Second; now += time.Millisecond {
		for {
			i, slot, ok := w.due(now)
			if !ok {
				break
			}
			if slot > now || now-slot > time.Millisecond {
				t.Fatalf("turn %d of %v given at %v", i, slot, now)
			}
			turns[i]++
			slots = append(slots, slot)
		}
	}
	for i, n := range turns {
		if n != 300 {
			t.Errorf("bot %d had %d turns in 100 s at 3 Hz", i, n)
		}
	}
	if last := slots[len(slots)-1]; last.Round(time.Millisecond) != 101*time.Second-48*time.Millisecond {
		t.Errorf("the last turn was due at %v: it drifts", last)
	}
	if n := w.skip(101*time.Second, time.Second); n != 0 {
		t.Errorf("%d turns dropped in time", n)
	}
	n := w.skip(111*time.Second, time.Second)
	if _, slot, ok := w.due(111 * time.Second); n == 0 || n%7 != 0 || !ok || 111*time.Second-slot > time.Second || 111*time.Second-slot < 600*time.Millisecond {
		t.Errorf("%d dropped, next due at %v", n, slot)
	}
	if n := (&wheel{}).skip(time.Hour, 0); n != 0 {
		t.Error("an empty wheel turns")
	}
}

func TestLabelLeads(t *testing.T) {
	b := &bot{f: &Fleet{}, hz: 60, got: true, tick: 600, tickAt: time.Second, lead: 2, stride: 3}
	now := time.Second + 50*time.Millisecond
	if l := b.label(now, now); l != 606 {
		t.Errorf("label %d, want the tick, three more, the next, two ahead", l)
	}
	b.newest = 606
	if l := b.label(now, now); l != 607 {
		t.Errorf("label %d does not advance", l)
	}
	b.newest = 609
	if l := b.label(now, now); l != 609 {
		t.Errorf("label %d runs ahead of the server", l)
	}
	b.newest = 606
	if l := b.label(time.Hour, time.Hour); l != 600+3+120 {
		t.Errorf("label %d runs away without packets", l)
	}
	late := drumline.StateHeader{Margin: 2}
	now = time.Second
	for range 100 {
		now += 50 * time.Millisecond
		b.onInputAck(late, now)
	}
	if b.lead != maxLead {
		t.Errorf("lead %d after many late inputs", b.lead)
	}
	good := drumline.StateHeader{Margin: 3}
	for range 100 {
		now += 50 * time.Millisecond
		b.onInputAck(good, now)
	}
	if b.lead != maxLead {
		t.Errorf("lead %d, changed for good inputs", b.lead)
	}
	early := drumline.StateHeader{Margin: 9}
	for range 1000 {
		now += 50 * time.Millisecond
		b.onInputAck(early, now)
	}
	if b.lead != 0 {
		t.Errorf("lead %d after many early inputs", b.lead)
	}
}

// Packets come a little early or late, messages go out a little late: each step has its input once all the same, and in time.
func TestLabelsKeepPace(t *testing.T) {
	for _, c := range []struct{ hz, inputHz int }{{60, 20}, {60, 25}, {60, 60}, {30, 20}, {20, 20}, {60, 8}} {
		f := &Fleet{}
		f.o.InputHz = c.inputHz
		b := &bot{f: f, hz: c.hz, got: true, inputSize: 1, stride: (c.hz + c.inputHz - 1) / c.inputHz}
		b.lead = b.goal()
		rnd := rand.New(rand.NewPCG(1, 2))
		jitter := func() time.Duration { return time.Duration(rnd.IntN(3000)) * time.Microsecond }
		step := func(n int) time.Duration { return time.Duration(n) * time.Second / time.Duration(c.hz) }
		seen := map[drumline.Tick]int{}
		first, late := drumline.Tick(0), 0
		w := wheel{start: 10 * time.Second, hz: int64(c.inputHz), n: 1}
		for range 20 * c.inputHz {
			_, slot, _ := w.due(time.Hour)
			now := slot + jitter()
			server := drumline.Tick(int64(now) * int64(c.hz) / int64(time.Second))
			// The newest packet: three steps are a send period here.
			b.tick = server - server%3
			b.tickAt = step(int(b.tick)) + jitter()
			if b.tickAt > now {
				b.tick, b.tickAt = b.tick-3, b.tickAt-step(3)
			}
			label := b.label(slot, now)
			msg := b.appendInputs(nil, label)
			if first == 0 {
				first = label
			}
			for i := range drumline.Tick(msg[7]) {
				seen[label-i]++
				if label-i <= server {
					late++
				}
			}
			b.onInputAck(drumline.StateHeader{InputAck: uint16(label), Margin: int8(int32(label-server) - 1)}, now)
		}
		holes, repeats := 0, 0
		for l := first; l <= b.newest; l++ {
			holes += max(1-seen[l], 0)
			repeats += max(seen[l]-1, 0)
		}
		if holes+repeats+late > 0 {
			t.Errorf("%d Hz, %d messages a second: %d steps without input, %d repeated, %d late of %d", c.hz, c.inputHz, holes, repeats, late, len(seen))
		}
	}
}

// A raised epoch: numbers, acks and ticks go on; what is still under way from before counts for nothing.
func TestEpoch(t *testing.T) {
	d := &countDecoder{}
	b := &bot{f: &Fleet{}, hz: 60, decodes: true, epoch: 255, tick: 70_000, lanes: []feed.Lane{feed.State, feed.Reliable}}
	b.view.Decoders = []feed.Decoder{d, &countDecoder{}}
	b.section = b.onSection
	packet := func(seq uint16, epoch byte, tick uint32, n uint32) {
		p := state1(seq, uint16(tick), binary.LittleEndian.AppendUint32(nil, n), 0, false)
		p[4] = epoch
		b.onState(p)
	}
	packet(10, 255, 70_003, 1)
	packet(11, 0, 70_006, 2)
	if b.epoch != 0 || b.tick != 70_006 || b.ack != 11 || b.history != 1 || d.n != 2 {
		t.Errorf("epoch %d, tick %d, ack %d, history %b, holds %d", b.epoch, b.tick, b.ack, b.history, d.n)
	}
	packet(12, 255, 70_007, 3)
	if b.epoch != 0 || b.tick != 70_006 || b.ack != 11 || d.n != 2 || b.n.decodeErrors != 0 {
		t.Errorf("after a packet of before: epoch %d, tick %d, ack %d, holds %d, %s", b.epoch, b.tick, b.ack, d.n, b.firstError)
	}
	packet(13, 0, 70_009, 4)
	if b.tick != 70_009 || b.ack != 13 || b.history != 0b110 || d.n != 4 {
		t.Errorf("tick %d, ack %d, history %b, holds %d", b.tick, b.ack, b.history, d.n)
	}
	reliable := func(i int, epoch byte, n uint32) {
		p := drumline.AppendReliable(nil, drumline.ReliableHeader{Feed: i, Epoch: epoch, Tick: 70_010})
		b.onReliable(binary.LittleEndian.AppendUint32(p, n))
	}
	held := func() uint32 { return b.view.Decoders[1].(*countDecoder).n }
	reliable(1, 0, 5)
	reliable(1, 255, 6)
	if held() != 5 || b.n.decodeErrors != 0 {
		t.Errorf("the reliable feed holds %d, %s", held(), b.firstError)
	}
	if h := b.hash(); h != d.Hash() {
		t.Errorf("hash %d: not that of the state feed alone", h)
	}
	reliable(0, 0, 7) // a feed of the other lane
	reliable(2, 0, 7)
	b.onReliable([]byte{drumline.KindReliable, 1, 0, 0, 0, 0})
	b.onReliable(drumline.AppendReliable(nil, drumline.ReliableHeader{Feed: 1}))
	if b.n.decodeErrors != 4 || d.n != 4 || held() != 5 {
		t.Errorf("%d errors, holding %d and %d", b.n.decodeErrors, d.n, held())
	}
}

func TestInputSize(t *testing.T) {
	n, err := inputSize([]drumline.InputField{{Kind: "bool"}, {Kind: "i8"}, {Kind: "u16"}, {Kind: "f32"}, {Kind: "i32"}})
	if n != 12 || err != nil {
		t.Error(n, err)
	}
}

func TestDialReason(t *testing.T) {
	for want, err := range map[string]error{
		"http_503":   ws.StatusError(503),
		NoAnswer:     context.DeadlineExceeded,
		NoConnection: errors.New("refused"),
	} {
		if got := dialReason(fmt.Errorf("dial: %w", err)); got != want {
			t.Errorf("%v: %s", err, got)
		}
	}
}
