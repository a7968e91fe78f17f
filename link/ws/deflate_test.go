package ws

import (
	"bufio"
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/gobwas/ws"
	"github.com/gorilla/websocket"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/link/linktest"
)

// offers are headers and whether permessage-deflate is agreed upon.
var offers = []struct {
	header string
	ok     bool
}{
	{"permessage-deflate", true},
	{"permessage-deflate; client_max_window_bits", true}, // Chromium, Firefox, Safari
	{"permessage-deflate; client_max_window_bits=15; server_no_context_takeover", true},
	{"permessage-deflate; client_max_window_bits=8;server_no_context_takeover;client_no_context_takeover", true},
	{`permessage-deflate;	client_max_window_bits = "10" `, true},
	{`permessage-deflate; client_max_window_bits="1\0"`, true},
	{"permessage-deflate; server_max_window_bits=15", true},
	{`permessage-deflate; server_max_window_bits="15"`, true},
	{"x-webkit-deflate-frame, permessage-deflate", true},
	{"permessage-deflate; server_max_window_bits=10, permessage-deflate", true}, // the second choice
	{", ,permessage-deflate,", true},

	{"", false},
	{",", false},
	{"x-webkit-deflate-frame", false},
	{"Permessage-Deflate", false},
	{"permessage-deflate; server_max_window_bits=12", false},
	{"permessage-deflate; server_max_window_bits=8", false},
	{"permessage-deflate; server_max_window_bits", false},
	{"permessage-deflate; server_max_window_bits=16", false},
	{"permessage-deflate; client_max_window_bits=16", false},
	{"permessage-deflate; client_max_window_bits=7", false},
	{"permessage-deflate; client_max_window_bits=08", false},
	{"permessage-deflate; client_max_window_bits=1", false},
	{"permessage-deflate; client_max_window_bits=100", false},
	{"permessage-deflate; client_max_window_bits=", false},
	{`permessage-deflate; client_max_window_bits=""`, false},
	{`permessage-deflate; client_max_window_bits="10`, false},
	{`permessage-deflate; client_max_window_bits="10\`, false},
	{`permessage-deflate; client_max_window_bits="1 0"`, false},
	{"permessage-deflate; client_max_window_bits; client_max_window_bits", false},
	{"permessage-deflate; server_no_context_takeover; server_no_context_takeover", false},
	{"permessage-deflate; server_no_context_takeover=1", false},
	{"permessage-deflate; client_no_context_takeover=true", false},
	{"permessage-deflate; mystery", false},
	{"permessage-deflate;", false},
	{"permessage-deflate; ;", false},
	{"permessage-deflate client_max_window_bits", false},
	{"permessage-deflate, @", false},
	{"=permessage-deflate", false},
	{strings.Repeat("a,", maxExtensions) + "permessage-deflate", false},
	{"permessage-deflate" + strings.Repeat("; a", maxExtensions+1), false},
}

func TestOffers(t *testing.T) {
	for _, o := range offers {
		if got := acceptDeflate([]string{o.header}); got != o.ok {
			t.Errorf("%q: agreed %v, want %v", o.header, got, o.ok)
		}
	}
	if acceptDeflate(nil) || !acceptDeflate([]string{"foo", "permessage-deflate"}) || !acceptDeflate([]string{"@", "permessage-deflate"}) {
		t.Error("several headers")
	}
}

// FuzzExtensions: no header panics, and one that is agreed upon still is when it is put together anew from what was understood.
func FuzzExtensions(f *testing.F) {
	for _, o := range offers {
		f.Add(o.header)
	}
	f.Fuzz(func(t *testing.T, s string) {
		all, ok := parseExtensions(s)
		if !ok {
			if acceptDeflate([]string{s}) {
				t.Error("agreed upon without being understood")
			}
			return
		}
		var again []string
		for _, e := range all {
			text := e.name
			for _, p := range e.params {
				if text += ";" + p.name; p.given {
					text += "=" + p.value
				}
			}
			again = append(again, text)
		}
		joined := strings.Join(again, ",")
		if twice, ok := parseExtensions(joined); !ok || fmt.Sprint(twice) != fmt.Sprint(all) {
			t.Errorf("%q became %q, read as %v", s, joined, twice)
		}
		if acceptDeflate([]string{s}) != acceptDeflate([]string{joined}) {
			t.Errorf("%q and %q differ", s, joined)
		}
	})
}

// What the server answers, with compression on and off.
func TestDeflateAnswer(t *testing.T) {
	for _, on := range []Deflate{DeflateOff, DeflateOn} {
		s := serve(t, Options{Deflate: on})
		for _, o := range offers {
			if strings.TrimSpace(o.header) == "" {
				continue
			}
			nc := s.open([]byte(request + "Sec-WebSocket-Extensions: " + o.header + "\r\n\r\n"))
			answer, err := http.ReadResponse(bufio.NewReader(nc), nil)
			if err != nil || answer.StatusCode != 101 {
				t.Fatal(answer, err)
			}
			want := ""
			if o.ok && on == DeflateOn {
				want = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
			}
			if got := answer.Header.Get("Sec-WebSocket-Extensions"); got != want {
				t.Errorf("on %d, %q: answer %q", on, o.header, got)
			}
			_ = nc.Close()
			_ = s.accepted().rec.Wait()
		}
	}
	if _, err := (Options{Deflate: 7}).settings(); err == nil || !strings.Contains(err.Error(), "Deflate") {
		t.Errorf("Deflate 7: %v", err)
	}
}

// TestDialDeflate: answers that a client must not take.
func TestDialDeflate(t *testing.T) {
	for _, c := range []struct {
		answer  string
		offered bool
		ok      bool
	}{
		{"", true, true},
		{deflateAnswer, true, true},
		{"permessage-deflate; server_no_context_takeover", true, true},
		{"permessage-deflate; server_no_context_takeover; server_max_window_bits=15", true, true},
		{deflateAnswer, false, false},
		{"permessage-deflate", true, false},
		{deflateAnswer + ", " + deflateAnswer, true, false},
		{deflateAnswer + "; client_max_window_bits=15", true, false},
		{deflateAnswer + "; mystery", true, false},
		{"other", true, false},
		{"@", true, false},
	} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Sec-WebSocket-Extensions"); (got != "") != c.offered {
				t.Errorf("the offer is %q", got)
			}
			nc, _, _ := w.(http.Hijacker).Hijack()
			text := "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + acceptKey(r.Header.Get("Sec-WebSocket-Key")) + "\r\n"
			if c.answer != "" {
				text += "Sec-WebSocket-Extensions: " + c.answer + "\r\n"
			}
			_, _ = nc.Write([]byte(text + "\r\n"))
			_ = nc.Close()
		}))
		conn, err := Dial(t.Context(), "ws"+strings.TrimPrefix(h.URL, "http"), DialOptions{Deflate: c.offered, Header: http.Header{"Sec-Websocket-Extensions": {"x"}}})
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", c.answer, err)
		}
		if err == nil {
			if conn.Deflate() != (c.answer != "") {
				t.Errorf("%q: Deflate() is %v", c.answer, conn.Deflate())
			}
			_ = conn.CloseNow()
		}
		h.Close()
	}
}

// text is JSON-like: it shrinks.
func text(n int) []byte {
	var b []byte
	for i := 0; len(b) < n; i++ {
		b = fmt.Appendf(b, `{"id":%d,"name":"player %d","score":%d},`, i, i%7, i*i%101)
	}
	return b[:n]
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// packed compresses as a client may: at any level, without the tail.
func packed(t testing.TB, msg []byte, level int) string {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(msg)
	_ = w.Flush()
	return strings.TrimSuffix(b.String(), "\x00\x00\xff\xff")
}

func inflate(msg string, limit int) ([]byte, error) {
	in := inflaters.Get().(*inflater)
	defer in.free()
	return in.inflate(nil, []byte(msg), limit)
}

func TestPack(t *testing.T) {
	d := newDeflaters().get()
	for _, n := range []int{256, 300, 1000, 65535, 65536, deflateMax} {
		msg := text(n)
		b := d.pack(msg)
		if b == nil || len(b) > n*15/16 {
			t.Fatalf("%d bytes became %d", n, len(b))
		}
		got, err := inflate(string(b), n)
		if err != nil || !bytes.Equal(got, msg) {
			t.Errorf("%d bytes came back as %d, %v", n, len(got), err)
		}
		if _, err := inflate(string(b), n-1); !errors.Is(err, ErrTooBig) {
			t.Errorf("%d bytes, limit one less: %v", n, err)
		}
		if d.pack(noise(n)) != nil {
			t.Errorf("%d bytes of noise were compressed", n)
		}
	}
}

// What clients may send: RFC 7692, 7.2.3, and what other compressors make.
func TestInflate(t *testing.T) {
	for _, c := range []struct{ name, packed, want string }{
		{"one block", "\xf2\x48\xcd\xc9\xc9\x07\x00", "Hello"},
		{"no compression", "\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00", "Hello"},
		{"a final block", "\xf3\x48\xcd\xc9\xc9\x07\x00\x00", "Hello"},
		{"two blocks", "\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", "Hello"},
		{"empty", "\x00", ""},
		{"empty, as zlib has it", "\x02\x00", ""},
	} {
		got, err := inflate(c.packed, 10)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
	for level := flate.HuffmanOnly; level <= 9; level++ {
		for _, n := range []int{0, 1, 100, 8192} {
			for _, msg := range [][]byte{text(n), noise(n)} {
				got, err := inflate(packed(t, msg, level), n)
				if err != nil || !bytes.Equal(got, msg) {
					t.Errorf("level %d: %d bytes came back as %d, %v", level, n, len(got), err)
				}
			}
		}
	}
	// A stream that ends, and a second one whose matches reach back into the first.
	first, second := text(3000), text(2900)
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, 6)
	_, _ = w.Write(first)
	_ = w.Close()
	w, _ = flate.NewWriterDict(&b, 6, first)
	_, _ = w.Write(second)
	_ = w.Flush()
	got, err := inflate(strings.TrimSuffix(b.String(), "\x00\x00\xff\xff"), 5900)
	if err != nil || !bytes.Equal(got, slices.Concat(first, second)) {
		t.Errorf("two streams: %d bytes, %v", len(got), err)
	}
}

func TestInflateRefuses(t *testing.T) {
	whole := packed(t, text(2000), 6)
	for _, c := range []struct {
		name, packed string
		want         error
	}{
		{"nothing", "", ErrProtocol},
		{"cut", whole[:len(whole)/2], ErrProtocol},
		{"a block of a kind that is not", "\x06", ErrProtocol},
		{"a wrong length of a stored block", "\x00\x05\x00\xfa\xfe\x48", ErrProtocol},
		{"a match before the start", "\x02\x02\x00\x00", ErrProtocol},
		{"too many final blocks", strings.Repeat("\x03\x00", 5000), ErrProtocol},
		{"final blocks, then a bomb", strings.Repeat("\x03\x00", 3) + packed(t, make([]byte, 1<<20), 9), ErrTooBig},
		{"a bomb", packed(t, make([]byte, 64<<20), 9), ErrTooBig},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := inflate(c.packed, 8192)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, c.want) || len(got) > 0 {
			t.Errorf("%s: %d bytes, %v, want %v", c.name, len(got), err, c.want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 256<<10 {
			t.Errorf("%s: %d bytes of memory", c.name, n)
		}
	}
}

func FuzzInflate(f *testing.F) {
	for _, s := range []string{"", "\x00", "\x02\x00", "\xf2\x48\xcd\xc9\xc9\x07\x00", "\xf3\x48\xcd\xc9\xc9\x07\x00\x00",
		strings.Repeat("\x03\x00", 10), packed(f, text(3000), 6), packed(f, noise(300), 1), packed(f, make([]byte, 100_000), 9)} {
		f.Add([]byte(s))
	}
	d := newDeflaters().get()
	f.Fuzz(func(t *testing.T, b []byte) {
		const most = 4000
		got, err := inflate(string(b), most)
		if err != nil {
			if !errors.Is(err, ErrTooBig) && !errors.Is(err, ErrProtocol) || len(got) > 0 {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			return
		}
		if len(got) > most {
			t.Fatalf("%d bytes", len(got))
		}
		if p := d.pack(got); p != nil {
			if again, err := inflate(string(p), most); err != nil || !bytes.Equal(again, got) {
				t.Errorf("%d bytes came back as %d, %v", len(got), len(again), err)
			}
		}
	})
}

// deflateCases are a client's frames where compression was agreed upon.
func deflateCases(t testing.TB) []rfcCase {
	hello := "\xf2\x48\xcd\xc9\xc9\x07\x00"
	long := packed(t, text(limit), 6)
	return []rfcCase{
		{"compressed", masked(0xc2, hello), []string{"2 Hello"}, 0, nil},
		{"not compressed", masked(0x82, "Hello"), []string{"2 Hello"}, 0, nil},
		{"by turns", slices.Concat(masked(0xc2, hello), masked(0x82, "a"), masked(0xc2, hello)), []string{"2 Hello", "2 a", "2 Hello"}, 0, nil},
		{"to the limit", masked(0xc2, long), []string{"2 " + string(text(limit))}, 0, nil},
		{"noise to the limit", masked(0xc2, packed(t, noise(limit), 6)), []string{"2 " + string(noise(limit))}, 0, nil},
		{"in fragments", slices.Concat(masked(0x42, hello[:3]), masked(0x89, "p"), masked(0x00, ""), masked(0x80, hello[3:])), []string{"9 p", "2 Hello"}, 0, nil},
		{"in fragments, then not", slices.Concat(masked(0x42, hello[:3]), masked(0x80, hello[3:]), masked(0x02, "a"), masked(0x80, "b")), []string{"2 Hello", "2 ab"}, 0, nil},

		{"RSV1 on a ping", masked(0xc9, ""), nil, 1002, ErrProtocol},
		{"RSV1 on a pong", masked(0xca, ""), nil, 1002, ErrProtocol},
		{"RSV1 on a close", masked(0xc8, ""), nil, 1002, ErrProtocol},
		{"RSV1 on a continuation", slices.Concat(masked(0x42, hello[:3]), masked(0xc0, hello[3:])), nil, 1002, ErrProtocol},
		{"RSV1 on a later fragment only", slices.Concat(masked(0x02, hello[:3]), masked(0xc0, hello[3:])), nil, 1002, ErrProtocol},
		{"RSV1 and RSV2", masked(0xe2, hello), nil, 1002, ErrProtocol},
		{"RSV2", masked(0xa2, hello), nil, 1002, ErrProtocol},
		{"a message inside fragments", slices.Concat(masked(0x42, hello[:3]), masked(0xc2, hello)), nil, 1002, ErrProtocol},
		{"text", masked(0xc1, hello), nil, 1003, ErrProtocol},
		{"damaged", slices.Concat(masked(0xc2, hello), masked(0xc2, "\x07")), []string{"2 Hello"}, 1002, ErrProtocol},
		{"empty", masked(0xc2, ""), nil, 1002, ErrProtocol},
		{"over the limit", masked(0xc2, packed(t, text(limit+1), 6)), nil, 1009, ErrTooBig},
		{"a bomb", masked(0xc2, packed(t, make([]byte, 200_000), 9)), nil, 1009, ErrTooBig},
		{"a bomb in fragments", slices.Concat(masked(0x42, packed(t, make([]byte, 200_000), 9)[:100]), masked(0x80, packed(t, make([]byte, 200_000), 9)[100:])), nil, 1009, ErrTooBig},
		{"more compressed bytes than any message has", masked(0xc2, strings.Repeat("x", packedLimit(limit)+1)), nil, 1009, ErrTooBig},
		{"not compressed, over the limit", masked(0x82, strings.Repeat("x", limit+1)), nil, 1009, ErrTooBig},
	}
}

func TestDeflateCases(t *testing.T) {
	s := serve(t, Options{ReadLimit: limit, Deflate: DeflateOn})
	for _, c := range deflateCases(t) {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			for _, step := range []int{1, 7, 1 << 20} {
				events, err := decode(&decoder{limit: limit, side: ws.StateServerSide, deflate: true}, c.bytes, step)
				c.check(t, events, err)
			}
			// And over a socket.
			nc := s.open([]byte(request + "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"))
			br := bufio.NewReader(nc)
			if answer, err := http.ReadResponse(br, nil); err != nil || answer.Header.Get("Sec-WebSocket-Extensions") == "" {
				t.Fatal(answer, err)
			}
			code, in := c.code, c.bytes
			if code == 0 {
				code, in = 4321, slices.Concat(in, masked(0x88, closePayload(4321, "")))
			}
			if _, err := nc.Write(in); err != nil {
				t.Fatal(err)
			}
			a := s.accepted()
			events := readFrames(t, br)
			_ = nc.Close()
			if got, _, err := ParseClose(events[len(events)-1].payload); got != code || err != nil {
				t.Errorf("closed with %d, want %d", got, code)
			}
			if cause := a.rec.Wait(); c.code == 0 && cause != io.EOF || c.code != 0 && !errors.Is(cause, c.target) {
				t.Errorf("Closed(%v), want %v", cause, c.target)
			}
			got := a.rec.Messages()
			want := slices.DeleteFunc(slices.Clone(c.events), func(s string) bool { return s[0] != '2' })
			if len(got) != len(want) {
				t.Fatalf("%d messages, want %q", len(got), want)
			}
			for i := range got {
				if "2 "+string(got[i]) != want[i] {
					t.Errorf("message %q, want %q", got[i], want[i])
				}
			}
		})
	}
	// The engine counts a bomb as what it is.
	_, err := inflate(packed(t, make([]byte, 100_000), 9), limit)
	var r *drumline.Refusal
	if !errors.As(err, &r) || r.Reason != drumline.ReasonTooBig {
		t.Errorf("%v has no reason %v", err, drumline.ReasonTooBig)
	}
}

// FuzzDeflatedFrames: no frames panic, break the limit or depend on where they were cut, also where compression was agreed upon.
func FuzzDeflatedFrames(f *testing.F) {
	for _, c := range deflateCases(f) {
		f.Add(c.bytes, uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		whole, err1 := decode(&decoder{limit: limit, side: ws.StateServerSide, deflate: true}, b, len(b)+1)
		parts, err2 := decode(&decoder{limit: limit, side: ws.StateServerSide, deflate: true}, b, int(step)+1)
		if !slices.Equal(whole, parts) || fmt.Sprint(err1) != fmt.Sprint(err2) {
			t.Errorf("whole: %q, %v\nparts of %d: %q, %v", whole, err1, step+1, parts, err2)
		}
		for _, ev := range whole {
			if len(ev) > limit+3 {
				t.Errorf("an event of %d bytes", len(ev))
			}
		}
	})
}

// exchange sends messages both ways and checks what arrived and what was counted.
func exchange(t *testing.T, a accepted, compresses bool, send func([]byte) error, recv func() ([]byte, error)) {
	t.Helper()
	var total uint64
	sizes := []int{0, 5, 255, 256, 700, 3000, 8192}
	for i, n := range sizes {
		msg := text(n)
		total += uint64(n)
		if err := send(msg); err != nil {
			t.Fatal(err)
		}
		if got := a.rec.WaitMessages(i + 1)[i]; !bytes.Equal(got, msg) {
			t.Errorf("%d bytes arrived as %d", n, len(got))
		}
		if err := a.link.Send(msg); err != nil {
			t.Fatal(err)
		}
		if got, err := recv(); !bytes.Equal(got, msg) || err != nil {
			t.Errorf("%d bytes arrived as %d, %v", n, len(got), err)
		}
	}
	c := a.link.Counters()
	if c.MessageBytesIn != total || c.MessageBytesOut != total || c.CompressedOut != 4 || (c.CompressedIn > 0) != compresses {
		t.Errorf("counted %+v, want %d bytes", c, total)
	}
	if c.WireBytesOut > total/2 || (c.WireBytesIn < total) != compresses {
		t.Errorf("counted %d bytes on the wire out and %d in of %d", c.WireBytesOut, c.WireBytesIn, total)
	}
}

// Other people's clients, with each of their ways to compress.
func TestDeflateClients(t *testing.T) {
	s := serve(t, Options{Deflate: DeflateOn})
	t.Run("gorilla", func(t *testing.T) {
		d := websocket.Dialer{EnableCompression: true, WriteBufferSize: 128} // larger messages go in fragments
		c, answer, err := d.Dial(s.url(), nil)
		if err != nil || answer.Header.Get("Sec-WebSocket-Extensions") != deflateAnswer {
			t.Fatal(answer, err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetReadDeadline(time.Now().Add(linktest.Patience))
		exchange(t, s.accepted(), true, func(msg []byte) error { return c.WriteMessage(websocket.BinaryMessage, msg) },
			func() ([]byte, error) { _, msg, err := c.ReadMessage(); return msg, err })
	})
	for name, mode := range map[string]coder.CompressionMode{"takeover": coder.CompressionContextTakeover, "no takeover": coder.CompressionNoContextTakeover} {
		t.Run("coder, "+name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), linktest.Patience)
			defer cancel()
			c, answer, err := coder.Dial(ctx, s.url(), &coder.DialOptions{CompressionMode: mode, CompressionThreshold: 1})
			if err != nil || answer.Header.Get("Sec-WebSocket-Extensions") != deflateAnswer {
				t.Fatal(answer, err)
			}
			defer func() { _ = c.CloseNow() }()
			exchange(t, s.accepted(), true, func(msg []byte) error { return c.Write(ctx, coder.MessageBinary, msg) },
				func() ([]byte, error) { _, msg, err := c.Read(ctx); return msg, err })
		})
	}
	t.Run("ours", func(t *testing.T) {
		c := s.dial(DialOptions{Deflate: true})
		exchange(t, s.accepted(), false, c.Write, c.Read)
	})
	t.Run("a client that does not offer", func(t *testing.T) {
		c := s.dial(DialOptions{})
		a := s.accepted()
		if err := a.link.Send(text(3000)); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Read(); !bytes.Equal(got, text(3000)) || err != nil || a.link.Counters().CompressedOut != 0 {
			t.Errorf("%d bytes, %v, %+v", len(got), err, a.link.Counters())
		}
	})
}

// A client refuses what does not inflate, or inflates to too much.
func TestClientInflates(t *testing.T) {
	for _, c := range []struct {
		packed string
		want   error
	}{{"\x07", ErrProtocol}, {packed(t, make([]byte, 100_000), 9), ErrTooBig}} {
		frame := AppendServerFrame(nil, opDeflated, []byte(c.packed))
		near, far := net.Pipe()
		conn := &ClientConn{nc: near, d: decoder{limit: 1000, side: ws.StateClientSide, text: true, deflate: true}, buf: make([]byte, 4096)}
		go func() { _, _ = far.Write(frame); _, _ = io.Copy(io.Discard, far) }()
		if msg, err := conn.Read(); !errors.Is(err, c.want) {
			t.Errorf("%d bytes, %v, want %v", len(msg), err, c.want)
		}
		if _, err := conn.Read(); !errors.Is(err, c.want) {
			t.Errorf("again: %v", err)
		}
		_ = far.Close()
		r := FrameReader{Limit: 1000, Deflate: true}
		if err := r.Feed(frame, func(Op, []byte) error { return nil }); !errors.Is(err, c.want) {
			t.Errorf("FrameReader: %v, want %v", err, c.want)
		}
	}
	r := FrameReader{Deflate: true}
	var got []string
	frames := slices.Concat(AppendServerFrame(nil, opDeflated, []byte(packed(t, text(500), 1))), AppendServerFrame(nil, OpBinary, []byte("a")))
	for _, b := range frames {
		if err := r.Feed([]byte{b}, func(_ Op, p []byte) error { got = append(got, string(p)); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{string(text(500)), "a"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// When all compressors are in use, a message goes as it is: nobody waits, and no more are made.
func TestDeflatersAreBounded(t *testing.T) {
	s := serve(t, Options{Deflate: DeflateOn})
	c := s.dial(DialOptions{Deflate: true})
	a := s.accepted()
	pool := a.link.(*conn).set.deflaters
	var held []*deflater
	for d := pool.get(); d != nil; d = pool.get() {
		held = append(held, d)
	}
	if len(held) != runtime.GOMAXPROCS(0) {
		t.Errorf("%d compressors", len(held))
	}
	for _, want := range []uint64{0, 1} {
		if err := a.link.Send(text(1000)); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Read(); !bytes.Equal(got, text(1000)) || err != nil || a.link.Counters().CompressedOut != want {
			t.Errorf("%d bytes, %v, %d compressed, want %d", len(got), err, a.link.Counters().CompressedOut, want)
		}
		for _, d := range held {
			pool.put(d)
		}
		held = nil
	}
}

// A lane whose messages do not shrink is tried less and less, and at once again when they do.
func TestLane(t *testing.T) {
	var l lane
	tries := 0
	for range 1000 {
		if l.due() {
			tries++
			l.learn(false)
		}
	}
	if tries < 18 || tries > 22 {
		t.Errorf("%d tries in 1000 messages that do not shrink", tries)
	}
	for !l.due() {
	}
	l.learn(true)
	for range 10 {
		if !l.due() {
			t.Fatal("not tried after one that shrank")
		}
		l.learn(true)
	}
	// Over a link: states that do not shrink do not keep documents from being compressed.
	s := serve(t, Options{Deflate: DeflateOn})
	c := s.dial(DialOptions{Deflate: true})
	a := s.accepted()
	for range 20 {
		linktest.Eventually(t, "a link that is ready", a.link.Ready)
		if !a.link.TrySend(noise(600)) {
			t.Fatal("refused")
		}
		if got, err := c.Read(); !bytes.Equal(got, noise(600)) || err != nil {
			t.Fatal(len(got), err)
		}
		if err := a.link.Send(text(600)); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Read(); !bytes.Equal(got, text(600)) || err != nil {
			t.Fatal(len(got), err)
		}
	}
	if n := a.link.Counters(); n.CompressedOut != 20 || n.MessagesOut != 40 {
		t.Errorf("%+v", n)
	}
}

// TestDeflateAllocates: a compressed state takes one write and no garbage, and so does reading one.
func TestDeflateAllocates(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector makes sync.Pool forget")
		return
	}
	l, peer := benchPairOf(t, Options{Deflate: DeflateOn})
	msg := text(1000)
	b := make([]byte, 64<<10)
	if n := testing.AllocsPerRun(500, func() {
		if !l.TrySend(msg) {
			t.Fatal("refused")
		}
		if n, err := peer.Read(b); err != nil || n > 500 || b[0] != 0xc2 {
			t.Fatal(n, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations per TrySend", n)
	}
	r := FrameReader{Deflate: true}
	frame := AppendServerFrame(nil, opDeflated, []byte(packed(t, msg, 1)))
	each := func(Op, []byte) error { return nil }
	if n := testing.AllocsPerRun(500, func() { _ = r.Feed(frame, each) }); n > 0 {
		t.Errorf("%v allocations per message read", n)
	}
}

// BenchmarkDeflate: what a message costs to compress and to inflate, and what it becomes.
func BenchmarkDeflate(b *testing.B) {
	for _, c := range []struct {
		name string
		msg  []byte
	}{{"json/bytes=256", text(256)}, {"json/bytes=800", text(800)}, {"json/bytes=8192", text(8192)}, {"noise/bytes=600", noise(600)}} {
		b.Run("pack/"+c.name, func(b *testing.B) {
			d := newDeflaters().get()
			b.ReportAllocs()
			n := len(c.msg)
			for b.Loop() {
				if p := d.pack(c.msg); p != nil {
					n = len(p)
				}
			}
			b.ReportMetric(float64(n), "B/packed")
		})
		b.Run("inflate/"+c.name, func(b *testing.B) {
			in := inflaters.Get().(*inflater)
			msg := []byte(packed(b, c.msg, 1))
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if in.buf, err = in.inflate(in.buf[:0], msg, len(c.msg)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDeflateMemory: what one compressor and one inflater keep.
func BenchmarkDeflateMemory(b *testing.B) {
	heap := func(make func() any) float64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var kept [10]any
		for i := range kept {
			kept[i] = make()
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(kept)
		return float64(after.HeapAlloc-before.HeapAlloc) / 1024 / float64(len(kept))
	}
	pool := &deflaters{most: 10}
	msg := packed(b, text(1000), 1)
	for b.Loop() {
		b.ReportMetric(heap(func() any { d := pool.get(); d.pack(text(1000)); return d }), "KiB/deflater")
		b.ReportMetric(heap(func() any {
			in := inflaters.New().(*inflater)
			in.buf, _ = in.inflate(in.buf, []byte(msg), 1000)
			return in
		}), "KiB/inflater")
		pool = &deflaters{most: 10}
	}
}
