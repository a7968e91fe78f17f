package ws

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	coder "github.com/coder/websocket"
	"github.com/gorilla/websocket"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/link/linktest"
)

// upgraded is a connection without a client library, behind the handshake.
func (s *server) upgraded() (net.Conn, *bufio.Reader) {
	s.t.Helper()
	nc := s.open([]byte(request + "\r\n"))
	br := bufio.NewReader(nc)
	if answer, err := http.ReadResponse(br, nil); err != nil || answer.StatusCode != 101 {
		s.t.Fatal(answer, err)
	}
	return nc, br
}

// readFrames reads a server's frames until the connection ends.
func readFrames(t *testing.T, r io.Reader) (events []event) {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("the connection did not end well: %v", err)
	}
	var fr FrameReader
	if err := fr.Feed(b, func(op Op, payload []byte) error {
		events = append(events, event{op: op, payload: bytes.Clone(payload)})
		return nil
	}); err != nil {
		t.Errorf("what the server sent: %v", err)
	}
	return events
}

// TestRFCOverSockets: the same cases as TestRFC, with what the peer and the engine are told.
func TestRFCOverSockets(t *testing.T) {
	s := serve(t, Options{ReadLimit: limit})
	cases := slices.Clone(rfcCases)
	cases = append(cases, []rfcCase{
		{"bad UTF-8 in a close reason", masked(0x88, closePayload(1000, "a\xff")), nil, 1007, ErrProtocol},
		{"close of one byte", masked(0x88, "x"), nil, 1002, ErrProtocol},
		{"close code 1005", masked(0x88, closePayload(1005, "")), nil, 1002, ErrProtocol},
		{"close code 999", masked(0x88, closePayload(999, "")), nil, 1002, ErrProtocol},
		{"close code 5000", masked(0x88, closePayload(5000, "")), nil, 1002, ErrProtocol},
		{"ping flood", bytes.Repeat(masked(0x89, ""), maxControlRate+1), slices.Repeat([]string{"9 "}, maxControlRate), 1008, ErrProtocol},
		{"pong flood", bytes.Repeat(masked(0x8a, ""), 10*maxControlRate), nil, 1008, ErrProtocol},
	}...)
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			nc, br := s.upgraded()
			code := c.code
			in := c.bytes
			if code == 0 {
				code = 4321
				in = slices.Concat(in, masked(0x88, closePayload(code, "bye")))
			}
			if _, err := nc.Write(in); err != nil {
				t.Fatal(err)
			}
			a := s.accepted()
			events := readFrames(t, br)
			_ = nc.Close()
			if len(events) == 0 || events[len(events)-1].op != OpClose {
				t.Fatalf("no close frame in %v", events)
			}
			got, _, err := ParseClose(events[len(events)-1].payload)
			if got != code || err != nil {
				t.Errorf("closed with %d, want %d", got, code)
			}
			var pongs, wantPongs, msgs []string
			for _, ev := range events[:len(events)-1] {
				if ev.op != OpPong {
					t.Errorf("a frame with op %d", ev.op)
				}
				pongs = append(pongs, string(ev.payload))
			}
			for _, ev := range c.events {
				if ping, ok := strings.CutPrefix(ev, "9 "); ok {
					wantPongs = append(wantPongs, ping)
				} else if msg, ok := strings.CutPrefix(ev, "2 "); ok {
					msgs = append(msgs, msg)
				}
			}
			if !slices.Equal(pongs, wantPongs) {
				t.Errorf("pongs %q, want %q", pongs, wantPongs)
			}
			cause := a.rec.Wait()
			if c.code == 0 && cause != io.EOF || c.code != 0 && !errors.Is(cause, c.target) {
				t.Errorf("Closed(%v), want %v", cause, c.target)
			}
			var received []string
			for _, msg := range a.rec.Messages() {
				received = append(received, string(msg))
			}
			if !slices.Equal(received, msgs) {
				t.Errorf("received %q, want %q", received, msgs)
			}
		})
	}
}

// TestReasons: the engine learns the reason of each of this package's errors without importing it.
func TestReasons(t *testing.T) {
	for err, want := range map[error]drumline.Reason{
		ErrTooBig: drumline.ReasonTooBig, ErrIdle: drumline.ReasonIdle,
		ErrStalled: drumline.ReasonStalled, ErrProtocol: drumline.ReasonBadMessage,
		protocolError("x"): drumline.ReasonBadMessage, &violation{codePolicy, "x"}: drumline.ReasonTooFast,
	} {
		var r *drumline.Refusal
		if !errors.As(err, &r) || r.Reason != want {
			t.Errorf("%v has no reason %v", err, want)
		}
	}
}

func TestGorillaClient(t *testing.T) {
	s := serve(t, Options{})
	dial := func(t *testing.T) (*websocket.Conn, accepted) {
		d := websocket.Dialer{EnableCompression: true, WriteBufferSize: 128} // larger messages go in fragments
		c, answer, err := d.Dial(s.url(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Header.Get("Sec-WebSocket-Extensions") != "" {
			t.Error("compression was accepted")
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetReadDeadline(time.Now().Add(linktest.Patience))
		return c, s.accepted()
	}
	t.Run("messages", func(t *testing.T) {
		c, a := dial(t)
		for i, n := range []int{0, 5, 125, 126, 600, 8192} {
			msg := bytes.Repeat([]byte{byte(i)}, n)
			if err := c.WriteMessage(websocket.BinaryMessage, msg); err != nil {
				t.Fatal(err)
			}
			if got := a.rec.WaitMessages(i + 1)[i]; !bytes.Equal(got, msg) {
				t.Errorf("%d bytes arrived as %d", n, len(got))
			}
			if err := a.link.Send(msg); err != nil {
				t.Fatal(err)
			}
			if kind, got, err := c.ReadMessage(); kind != websocket.BinaryMessage || !bytes.Equal(got, msg) || err != nil {
				t.Errorf("%d bytes arrived as %d of kind %d, %v", n, len(got), kind, err)
			}
		}
		pong := ""
		c.SetPongHandler(func(s string) error { pong = s; return nil })
		if err := c.WriteControl(websocket.PingMessage, []byte("are you there"), time.Time{}); err != nil {
			t.Fatal(err)
		}
		a.link.Close(4010, "full")
		_, _, err := c.ReadMessage()
		if e := (*websocket.CloseError)(nil); !errors.As(err, &e) || e.Code != 4010 || e.Text != "full" {
			t.Errorf("closed with %v", err)
		}
		// The close may have overtaken the pong: nothing is answered after it.
		if pong != "" && pong != "are you there" {
			t.Errorf("pong %q", pong)
		}
		if err := a.rec.Wait(); err != nil {
			t.Errorf("Closed(%v)", err)
		}
	})
	for _, c := range []struct {
		name string
		send func(*websocket.Conn) error
		code int
		want error
	}{
		{"text", func(c *websocket.Conn) error { return c.WriteMessage(websocket.TextMessage, []byte("hi")) }, 1003, ErrProtocol},
		{"big", func(c *websocket.Conn) error { return c.WriteMessage(websocket.BinaryMessage, make([]byte, 8193)) }, 1009, ErrTooBig},
		{"close", func(c *websocket.Conn) error {
			return c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1001, "reload"), time.Time{})
		}, 1001, io.EOF},
		{"close without a code", func(c *websocket.Conn) error {
			return c.WriteControl(websocket.CloseMessage, nil, time.Time{})
		}, 1005, io.EOF},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, a := dial(t)
			if err := c.send(conn); err != nil {
				t.Fatal(err)
			}
			_, _, err := conn.ReadMessage()
			if e := (*websocket.CloseError)(nil); !errors.As(err, &e) || e.Code != c.code {
				t.Errorf("closed with %v, want %d", err, c.code)
			}
			_ = conn.Close()
			if err := a.rec.Wait(); !errors.Is(err, c.want) {
				t.Errorf("Closed(%v), want %v", err, c.want)
			}
		})
	}
}

func TestCoderClient(t *testing.T) {
	s := serve(t, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), linktest.Patience)
	defer cancel()
	dial := func(t *testing.T) (*coder.Conn, accepted) {
		c, _, err := coder.Dial(ctx, s.url(), &coder.DialOptions{CompressionMode: coder.CompressionContextTakeover})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.CloseNow() })
		return c, s.accepted()
	}
	c, a := dial(t)
	for i, n := range []int{0, 125, 126, 600, 8192} {
		msg := bytes.Repeat([]byte{byte(i)}, n)
		if err := c.Write(ctx, coder.MessageBinary, msg); err != nil {
			t.Fatal(err)
		}
		if got := a.rec.WaitMessages(i + 1)[i]; !bytes.Equal(got, msg) {
			t.Errorf("%d bytes arrived as %d", n, len(got))
		}
		if err := a.link.Send(msg); err != nil {
			t.Fatal(err)
		}
		if kind, got, err := c.Read(ctx); kind != coder.MessageBinary || !bytes.Equal(got, msg) || err != nil {
			t.Errorf("%d bytes arrived as %d, %v", n, len(got), err)
		}
	}
	done := c.CloseRead(ctx)
	if err := c.Ping(ctx); err != nil { // returns with the pong
		t.Errorf("Ping: %v", err)
	}
	_ = done
	a.link.Close(4017, "stalled")
	if err := a.rec.Wait(); err != nil {
		t.Errorf("Closed(%v)", err)
	}

	c, a = dial(t)
	if err := c.Close(coder.StatusNormalClosure, "bye"); err != nil { // waits for the answer
		t.Errorf("Close: %v", err)
	}
	if err := a.rec.Wait(); err != io.EOF {
		t.Errorf("Closed(%v), want io.EOF", err)
	}

	c, a = dial(t)
	if err := c.Write(ctx, coder.MessageText, []byte("hi")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Read(ctx); coder.CloseStatus(err) != coder.StatusUnsupportedData {
		t.Errorf("text: %v", err)
	}
	a.rec.Wait()
}

// TestSlowReader: a client with a tiny receive buffer that reads nothing, then everything. TrySend refuses, this process holds
// less than two messages, and what was taken arrives whole. On Linux the kernel holds little too.
func TestSlowReader(t *testing.T) {
	s := serve(t, Options{})
	c := s.dial(DialOptions{NetDial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := net.Dialer{Control: smallReceiveBuffer}
		return d.DialContext(ctx, network, addr)
	}})
	a := s.accepted()
	msg := make([]byte, 3000)
	taken, refused := 0, 0
	for refused < 5000 {
		binary.LittleEndian.PutUint32(msg, uint32(taken))
		msg[len(msg)-1] = byte(taken)
		if a.link.TrySend(msg) {
			taken++
		} else {
			refused++
			runtime.Gosched()
		}
		if n := a.link.Queued(); n > 2*len(msg) {
			t.Fatalf("%d bytes are queued", n)
		}
	}
	if a.link.Ready() {
		t.Error("Ready while the peer does not read")
	}
	if n, ok := a.link.(drumline.KernelQueuer).KernelQueued(); ok {
		if n > 256<<10 {
			t.Errorf("the kernel holds %d bytes", n)
		}
		if n == 0 {
			t.Error("the kernel holds nothing, though it takes nothing")
		}
	} else if runtime.GOOS == "linux" {
		t.Error("KernelQueued does not know")
	}
	for i := range taken {
		got, err := c.Read()
		if err != nil || len(got) != len(msg) || int(binary.LittleEndian.Uint32(got)) != i || got[len(got)-1] != byte(i) {
			t.Fatalf("message %d of %d: %d bytes, %v", i, taken, len(got), err)
		}
	}
	linktest.Eventually(t, "Ready", a.link.Ready)
	_ = c.CloseNow()
}

// TestSilence: connections that never send a request, and links that never send a frame, cost others nothing and end when the
// server does.
func TestSilence(t *testing.T) {
	s := serve(t, Options{})
	const half = 500
	var open []net.Conn
	for range half {
		open = append(open, s.open(nil))
	}
	for range half {
		nc, _ := s.upgraded()
		open = append(open, nc)
	}
	silent := make([]accepted, half)
	for i := range silent {
		silent[i] = s.accepted()
	}
	c := s.dial(DialOptions{})
	a := s.accepted()
	for i := range 100 {
		if err := c.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		a.rec.WaitMessages(i + 1)
		if !a.link.TrySend([]byte("pong")) {
			t.Fatal("TrySend was refused")
		}
		if _, err := c.Read(); err != nil {
			t.Fatal(err)
		}
	}
	for _, nc := range open {
		_ = nc.Close()
	}
	for _, a := range silent {
		if err := a.rec.Wait(); err == nil {
			t.Error("Closed(nil) for a peer that went away")
		}
	}
}

// piped is a link over a pipe that takes a byte only when the peer reads it, for tests of time.
func piped(t *testing.T, o Options) (l *conn, rec *linktest.Recorder, peer net.Conn) {
	t.Helper()
	s, err := o.settings()
	if err != nil {
		t.Fatal(err)
	}
	near, peer := net.Pipe()
	l, rec = newConn(near, s, s.Deflate == DeflateOn), linktest.NewRecorder(t)
	go l.run(func(drumline.Link, drumline.Peer) Receiver { return rec }, drumline.Peer{}, nil)
	return l, rec, peer
}

// ended waits in a bubble, however long that takes there.
func ended(rec *linktest.Recorder) error {
	<-rec.Ended()
	return rec.Err()
}

// TestIdle: a silent peer is pinged at 15, 30 and 45 s, told at 60 s, and closed when it does not answer.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rec, peer := piped(t, Options{})
		start := time.Now()
		var at []time.Duration
		var ops []Op
		go func() {
			var r FrameReader
			b := make([]byte, 100)
			for {
				n, err := peer.Read(b)
				if err != nil {
					return
				}
				_ = r.Feed(b[:n], func(op Op, payload []byte) error {
					at, ops = append(at, time.Since(start)), append(ops, op)
					return nil
				})
			}
		}()
		err := ended(rec)
		if took := time.Since(start); !errors.Is(err, ErrIdle) || took != 61*time.Second {
			t.Errorf("Closed(%v) after %v, want ErrIdle after 61s", err, took)
		}
		synctest.Wait()
		if want := []time.Duration{15 * time.Second, 30 * time.Second, 45 * time.Second, 60 * time.Second}; !slices.Equal(at, want) ||
			!slices.Equal(ops, []Op{OpPing, OpPing, OpPing, OpClose}) {
			t.Errorf("frames %v at %v", ops, at)
		}
	})
}

// TestQuiet: a peer that answers pings stays; one that sends by itself is not pinged.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rec, peer := piped(t, Options{})
		pings := 0
		go func() {
			var r FrameReader
			b := make([]byte, 100)
			for {
				n, err := peer.Read(b)
				if err != nil {
					return
				}
				_ = r.Feed(b[:n], func(op Op, payload []byte) error {
					if op == OpPing {
						pings++
						_, _ = peer.Write(AppendClientFrame(nil, OpPong, payload, [4]byte{1}))
					}
					return nil
				})
			}
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if pings != 39 && pings != 40 {
			t.Errorf("%d pings in ten minutes, want 40", pings)
		}
		before := pings
		for range 60 {
			time.Sleep(10 * time.Second)
			_, _ = peer.Write(masked(0x82, "x"))
		}
		synctest.Wait()
		if pings > before+1 {
			t.Errorf("%d pings to a peer that sends by itself", pings-before)
		}
		if n := len(rec.Messages()); n != 60 {
			t.Errorf("%d of 60 messages received", n)
		}
		l.Close(1000, "")
		ended(rec)
	})
}

// TestWakeInsideFrame: a deadline that wakes the reader loses none of a frame's bytes, in the small buffer or a larger one.
func TestWakeInsideFrame(t *testing.T) {
	for _, size := range []int{100, 3000} {
		synctest.Test(t, func(t *testing.T) {
			l, rec, peer := piped(t, Options{})
			go func() { _, _ = io.Copy(io.Discard, peer) }()
			want := strings.Repeat("w", size)
			frame := masked(0x82, want)
			for i, b := range frame {
				if i%(size/10) == 1 {
					time.Sleep(20 * time.Second)
				}
				if _, err := peer.Write([]byte{b}); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if got := rec.Messages(); len(got) != 1 || string(got[0]) != want {
				t.Errorf("received %d messages", len(got))
			}
			if n := len(l.read.buf); n != smallRead {
				t.Errorf("the read buffer stays at %d bytes", n)
			}
			l.Close(1000, "")
			ended(rec)
		})
	}
}

// TestBigAnnouncement: a header alone makes no memory.
func TestBigAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rec, peer := piped(t, Options{ReadLimit: 1 << 20})
		_, _ = peer.Write([]byte{0x82, 0x80 | 127, 0, 0, 0, 0, 0, 0x0f, 0, 0, 0, 0, 0, 0, 1, 2, 3})
		synctest.Wait()
		if n := cap(l.read.buf); n > 4<<10 {
			t.Errorf("the read buffer has %d bytes for 17", n)
		}
		_ = peer.Close()
		if err := ended(rec); err == nil {
			t.Error("Closed(nil)")
		}
	})
}

// TestStalled: a peer that takes nothing is given up after WriteTimeout, a slow one is not.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rec, peer := piped(t, Options{})
		start := time.Now()
		if !l.TrySend(make([]byte, 100)) {
			t.Fatal("refused")
		}
		synctest.Wait()
		if l.Ready() || l.Queued() != 102 || l.TrySend([]byte{1}) {
			t.Errorf("ready with %d bytes queued", l.Queued())
		}
		err := ended(rec)
		if took := time.Since(start); !errors.Is(err, ErrStalled) || took != defaultWriteTimeout {
			t.Errorf("Closed(%v) after %v, want ErrStalled after %v", err, took, defaultWriteTimeout)
		}
		_ = peer.Close()
	})
}

// TestCloseDeadlines: flush for CloseTimeout, wait a second for the peer's frame, no longer.
func TestCloseDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rec, peer := piped(t, Options{})
		start := time.Now()
		_ = l.Send(make([]byte, 100))
		l.Close(1000, "")
		if took := time.Since(start); took != 0 {
			t.Errorf("Close took %v", took)
		}
		if err := ended(rec); err != nil {
			t.Errorf("Closed(%v)", err)
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("a peer that takes nothing is closed after %v", took)
		}
		_ = peer.Close()
	})
	synctest.Test(t, func(t *testing.T) {
		l, rec, peer := piped(t, Options{})
		go func() { _, _ = io.Copy(io.Discard, peer) }()
		start := time.Now()
		l.Close(1000, "")
		if err := ended(rec); err != nil {
			t.Errorf("Closed(%v)", err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("a peer that does not answer is closed after %v", took)
		}
	})
	// Close shortens the deadline of a write that is waiting.
	synctest.Test(t, func(t *testing.T) {
		l, rec, peer := piped(t, Options{})
		_ = l.Send(make([]byte, 100))
		time.Sleep(time.Second)
		start := time.Now()
		l.Close(1000, "")
		ended(rec)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("closed after %v", took)
		}
		_ = peer.Close()
	})
}

// deaf is a connection that cannot be written to any more, like a socket whose peer has gone.
type deaf struct{ net.Conn }

func (deaf) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestGoodbyeBeforeBrokenWrite: what the peer said before it went is received, though a write has failed since.
func TestGoodbyeBeforeBrokenWrite(t *testing.T) {
	for _, last := range []struct {
		name  string
		bytes []byte
		want  error
	}{
		{"close frame", masked(0x88, closePayload(1001, "")), io.EOF},
		{"nothing", nil, syscall.EPIPE},
	} {
		t.Run(last.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := Options{}.settings()
				if err != nil {
					t.Fatal(err)
				}
				near, peer := net.Pipe()
				l, rec := newConn(deaf{near}, s, false), linktest.NewRecorder(t)
				go l.run(func(drumline.Link, drumline.Peer) Receiver { return rec }, drumline.Peer{}, nil)
				l.TrySend([]byte("state"))
				synctest.Wait()
				if l.Ready() || l.Queued() != 0 || l.TrySend(nil) || l.Send(nil) == nil {
					t.Error("the link goes on after a broken write")
				}
				_, _ = peer.Write(masked(0x82, "goodbye"))
				if last.bytes != nil {
					_, _ = peer.Write(last.bytes)
				}
				if err := ended(rec); !errors.Is(err, last.want) {
					t.Errorf("Closed(%v), want %v", err, last.want)
				}
				if got := rec.Messages(); len(got) != 1 || string(got[0]) != "goodbye" {
					t.Errorf("received %q", got)
				}
				_ = peer.Close()
			})
		})
	}
}

// TestPeerVanishesInClose: the end of a peer that was told to go is not an error.
func TestPeerVanishesInClose(t *testing.T) {
	s := serve(t, Options{})
	nc, br := s.upgraded()
	a := s.accepted()
	a.link.Close(4010, "full")
	b := make([]byte, 8)
	if _, err := io.ReadFull(br, b); err != nil || b[0] != 0x88 {
		t.Errorf("%x, %v", b, err)
	}
	_ = nc.Close()
	if err := a.rec.Wait(); err != nil {
		t.Errorf("Closed(%v)", err)
	}
}

// TestFloodAfterError: a peer that goes on sending after its error is not read for ever.
func TestFloodAfterError(t *testing.T) {
	s := serve(t, Options{})
	nc, _ := s.upgraded()
	a := s.accepted()
	var flood sync.WaitGroup
	flood.Go(func() {
		b := bytes.Repeat(masked(0x81, "text"), 1000)
		for {
			if _, err := nc.Write(b); err != nil {
				return
			}
		}
	})
	if err := a.rec.Wait(); !errors.Is(err, ErrProtocol) {
		t.Errorf("Closed(%v)", err)
	}
	if n := a.link.Counters().WireBytesIn; n > 2*maxDiscard {
		t.Errorf("%d bytes were read", n)
	}
	flood.Wait()
}

// TestNoGarbage: a message each way makes no garbage.
func TestNoGarbage(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector makes sync.Pool forget")
		return
	}
	l, peer := benchPair(t)
	msg := make([]byte, 600)
	b := make([]byte, 64<<10)
	if n := testing.AllocsPerRun(500, func() {
		if !l.TrySend(msg) {
			t.Fatal("refused")
		}
		if _, err := peer.Read(b); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations per TrySend", n)
	}
}
