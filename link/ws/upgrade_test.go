package ws

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
)

const request = "GET / HTTP/1.1\r\nHost: here.test\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// open dials without this package's client and sends bytes.
func (s *server) open(bytes []byte) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write(bytes); err != nil {
		s.t.Fatal(err)
	}
	return c
}

func TestUpgradeRefusals(t *testing.T) {
	s := serve(t, Options{})
	for _, c := range []struct {
		name, old, new string
		status         int
		header         string // that must be in the answer
	}{
		{"fine", "", "", 101, "Sec-Websocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="},
		{"any case", "Upgrade: websocket", "Upgrade: WebSocket", 101, ""},
		{"compression is declined", "\r\nUpgrade", "\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nUpgrade", 101, ""},
		{"a page of this host", "\r\nUpgrade", "\r\nOrigin: http://here.test\r\nUpgrade", 101, ""},
		{"POST", "GET", "POST", 405, "Allow: GET"},
		{"HTTP/1.0", "HTTP/1.1", "HTTP/1.0", 426, ""},
		{"no upgrade", "Upgrade: websocket\r\n", "", 426, "Upgrade: websocket"},
		{"another upgrade", "Upgrade: websocket", "Upgrade: h2c", 426, "Upgrade: websocket"},
		{"connection", "keep-alive, Upgrade", "keep-alive", 426, "Connection: Upgrade"},
		{"version 8", "Version: 13", "Version: 8", 426, "Sec-Websocket-Version: 13"},
		{"no version", "Sec-WebSocket-Version: 13\r\n", "", 426, "Sec-Websocket-Version: 13"},
		{"no key", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", 400, ""},
		{"short key", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZQ==", 400, ""},
		{"key not base64", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZ!==", 400, ""},
		{"two keys", "\r\nSec-WebSocket-Key", "\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Key", 400, ""},
		{"body", "\r\nUpgrade", "\r\nContent-Length: 3\r\nUpgrade", 400, ""},
		{"chunked body", "\r\nUpgrade", "\r\nTransfer-Encoding: chunked\r\nUpgrade", 400, ""},
		{"a page of another host", "\r\nUpgrade", "\r\nOrigin: http://evil.test\r\nUpgrade", 403, ""},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			text := request
			if c.old != "" {
				text = strings.Replace(text, c.old, c.new, 1)
			}
			nc := s.open([]byte(text + "\r\n"))
			answer, err := http.ReadResponse(bufio.NewReader(nc), nil)
			if err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != c.status {
				t.Errorf("status %d, want %d", answer.StatusCode, c.status)
			}
			var head bytes.Buffer
			_ = answer.Header.Write(&head)
			if !strings.Contains(head.String(), c.header) {
				t.Errorf("no %q in\n%s", c.header, head.String())
			}
			if answer.Header.Get("Sec-WebSocket-Extensions") != "" {
				t.Error("an extension was accepted")
			}
			if c.status == 101 {
				a := s.accepted()
				_ = nc.Close()
				a.rec.Wait()
			}
		})
	}
}

// TestEarlyFrame: frames in the same segment as the request are net/http's to read, and must not be lost with its buffer.
func TestEarlyFrame(t *testing.T) {
	s := serve(t, Options{})
	for _, size := range []int{5, 700, 3000} {
		payload := strings.Repeat("e", size)
		first := masked(0x82, payload)
		half := len(first) / 2
		nc := s.open(append([]byte(request+"\r\n"), append(masked(0x82, "early"), first[:half]...)...))
		a := s.accepted()
		a.rec.WaitMessages(1)
		if _, err := nc.Write(append(first[half:], masked(0x82, "late")...)); err != nil {
			t.Fatal(err)
		}
		got := a.rec.WaitMessages(3)
		if string(got[0]) != "early" || string(got[1]) != payload || string(got[2]) != "late" {
			t.Errorf("received %q", got)
		}
		if n := a.link.Counters().WireBytesIn; n != uint64(len(masked(0x82, "early"))+len(first)+len(masked(0x82, "late"))) {
			t.Errorf("counted %d bytes", n)
		}
		_ = nc.Close()
	}
}

func TestHTTP2(t *testing.T) {
	s := serveWith(t, Options{}, true)
	answer, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if answer.ProtoMajor != 2 || answer.StatusCode != http.StatusUpgradeRequired || !strings.Contains(string(text), "HTTP/1.1") {
		t.Errorf("%s %d %s", answer.Proto, answer.StatusCode, text)
	}
}

func TestOrigins(t *testing.T) {
	for _, c := range []struct {
		patterns, host, origin string
		want                   bool
	}{
		{"", "a.test", "", true},
		{"", "a.test", "https://a.test", true},
		{"", "A.test", "https://a.TEST", true},
		{"", "a.test:8080", "http://a.test:8080", true},
		{"", "a.test:443", "https://a.test", true},
		{"", "a.test", "https://a.test:443", true},
		{"", "a.test:8080", "http://a.test", false},
		{"", "a.test", "http://a.test:8080", false},
		{"", "a.test", "https://b.test", false},
		{"", "a.test", "https://a.test.evil.test", false},
		{"", "a.test", "null", false},
		{"", "a.test", "file://", false},
		{"", "a.test", "ftp://a.test", false},
		{"", "a.test", "a.test", false},
		{"", "[::1]:80", "http://[::1]", true},
		{"", "[::1]:8080", "http://[::1]:8080", true},
		{"*", "a.test", "null", true},
		{"*", "a.test", "https://b.test", true},
		{"b.test", "a.test", "https://b.test", true},
		{"b.test", "a.test", "http://b.test:80", true},
		{"b.test", "a.test", "http://b.test:81", false},
		{"b.test", "a.test", "https://c.b.test", false},
		{"b.test", "a.test", "https://a.test", false},
		{"b.test", "a.test", "", true},
		{"b.test:81", "a.test", "http://b.test:81", true},
		{"b.test:443", "a.test", "https://b.test", true},
		{"b.test:*", "a.test", "http://b.test:9999", true},
		{"b.test:*", "a.test", "http://b.test", true},
		{"https://b.test", "a.test", "https://b.test", true},
		{"https://b.test", "a.test", "http://b.test", false},
		{"*.b.test", "a.test", "https://c.b.test", true},
		{"*.b.test", "a.test", "https://d.c.b.test", true},
		{"*.b.test", "a.test", "https://b.test", false},
		{"*.b.test", "a.test", "https://evilb.test", false},
		{"[::1]:*", "a.test", "http://[::1]:5173", true},
		{"c.test b.test", "a.test", "http://b.test", true},
	} {
		o, err := parseOrigins(strings.Fields(c.patterns))
		if err != nil {
			t.Fatal(err)
		}
		r := &http.Request{Host: c.host, Header: http.Header{}}
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if got := o.allow(r); got != c.want {
			t.Errorf("Origins %q, host %q, origin %q: %v", c.patterns, c.host, c.origin, got)
		}
	}
	o := origins{}
	r := &http.Request{Host: "a.test", Header: http.Header{"Origin": {"http://a.test", "http://a.test"}}}
	if o.allow(r) {
		t.Error("two Origin headers were let in")
	}
}

func TestRefusedOrigin(t *testing.T) {
	type refusal struct {
		peer drumline.Peer
		why  drumline.Reason
	}
	refused := make(chan refusal, 1)
	s := serve(t, Options{Refused: func(p drumline.Peer, why drumline.Reason) { refused <- refusal{p, why} }})
	_, err := Dial(context.Background(), s.url(), DialOptions{Header: http.Header{"Origin": {"http://evil.test"}}})
	e := (*HandshakeError)(nil)
	if !errors.As(err, &e) || e.Status != 403 || e.Text == "" {
		t.Errorf("Dial: %v, want 403 and a text", err)
	}
	if r := <-refused; r.why != drumline.ReasonOrigin || !r.peer.Addr.Addr().IsLoopback() || r.peer.Transport != "ws" {
		t.Errorf("refused %+v", r)
	}
	if len(s.conns) != 0 {
		t.Error("the link was accepted all the same")
	}
}

func TestPeerAddr(t *testing.T) {
	s := &settings{Options: Options{TrustedProxies: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"),
	}}}
	for _, c := range []struct {
		remote, forwarded, want string
	}{
		{"1.2.3.4:5", "", "1.2.3.4:5"},
		{"1.2.3.4:5", "9.9.9.9", "1.2.3.4:5"}, // not from a trusted proxy
		{"[::ffff:1.2.3.4]:5", "", "1.2.3.4:5"},
		{"10.0.0.1:5", "", "10.0.0.1:5"},
		{"10.0.0.1:5", "9.9.9.9", "9.9.9.9:0"},
		{"[::ffff:10.0.0.1]:5", "9.9.9.9:77", "9.9.9.9:77"},
		{"10.0.0.1:5", "8.8.8.8, 9.9.9.9", "9.9.9.9:0"}, // the left one is the client's own claim
		{"10.0.0.1:5", "8.8.8.8, 9.9.9.9 ,10.1.1.1,10.2.2.2", "9.9.9.9:0"},
		{"10.0.0.1:5", "8.8.8.8|9.9.9.9|10.2.2.2", "9.9.9.9:0"}, // several headers
		{"10.0.0.1:5", "10.3.3.3, 10.2.2.2", "10.3.3.3:0"},
		{"10.0.0.1:5", "8.8.8.8, junk, 10.2.2.2", "10.2.2.2:0"},
		{"10.0.0.1:5", "unknown", "10.0.0.1:5"},
		{"10.0.0.1:5", "8.8.8.8, , 10.2.2.2", "10.2.2.2:0"},
		{"[fd00::1]:5", "2001:db8::1", "[2001:db8::1]:0"},
		{"[fd00::1]:5", "[2001:db8::1]:99", "[2001:db8::1]:99"},
		{"[fd00::1]:5", "[2001:db8::1]", "[2001:db8::1]:0"},
		{"@", "9.9.9.9", "9.9.9.9:0"},
		{"10.0.0.1:5", "8.8.8.8" + strings.Repeat(", 10.2.2.2", maxForwarded), "10.2.2.2:0"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{}}
		for _, h := range strings.Split(c.forwarded, "|") {
			if h != "" {
				r.Header.Add("X-Forwarded-For", h)
			}
		}
		if got := s.peerAddr(r); got.String() != c.want {
			t.Errorf("%s, forwarded for %q: %v, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
	s.TrustedProxies = nil
	r := &http.Request{RemoteAddr: "@", Header: http.Header{"X-Forwarded-For": {"9.9.9.9"}}}
	if got := s.peerAddr(r); got.IsValid() {
		t.Errorf("a Unix socket without trusted proxies: %v", got)
	}
}

func TestOptions(t *testing.T) {
	accept := func(drumline.Link, drumline.Peer) Receiver { return nil }
	for name, o := range map[string]Options{
		"ReadLimit":      {ReadLimit: 10},
		"ReadLimit ":     {ReadLimit: 1 << 30},
		"NotSentLowat":   {NotSentLowat: -2},
		"PingEvery":      {PingEvery: -1},
		"PingEvery ":     {PingEvery: time.Minute},
		"IdleTimeout":    {IdleTimeout: -time.Second},
		"WriteTimeout":   {WriteTimeout: -1},
		"CloseTimeout":   {CloseTimeout: -1},
		"UserTimeout":    {UserTimeout: -2},
		"TrustedProxies": {TrustedProxies: []netip.Prefix{{}}},
	} {
		if _, err := HandlerFunc(accept, o); err == nil || !strings.Contains(err.Error(), "Options."+strings.TrimSpace(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, origin := range []string{"", " ", "https://", "a.test/path", "a.*.test", "*a.test", "**", "ftp://a.test", "a.test:x",
		"a.test:", "::1", "*.", "user@a.test", "a.test:80:80", ".a.test", "https://*"} {
		if _, err := HandlerFunc(accept, Options{Origins: []string{origin}}); err == nil {
			t.Errorf("Origins %q were taken", origin)
		}
	}
	if _, err := HandlerFunc(nil, Options{}); err == nil {
		t.Error("HandlerFunc without accept")
	}
	if _, err := Handler(nil, Options{}); err == nil {
		t.Error("Handler without a server")
	}
	s, err := Options{IdleTimeout: 8 * time.Second, NotSentLowat: -1, UserTimeout: -1}.settings()
	if err != nil || s.PingEvery != 2*time.Second {
		t.Errorf("IdleTimeout alone: PingEvery %v, %v", s.PingEvery, err)
	}
}

// TestMiddleware: a wrapped ResponseWriter that can be unwrapped does no harm.
func TestMiddleware(t *testing.T) {
	h, err := HandlerFunc(func(l drumline.Link, _ drumline.Peer) Receiver {
		l.Close(4000, "hi")
		return discard{}
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(wrapped{w}, r) }))
	defer s.Close()
	c, err := Dial(context.Background(), "ws"+strings.TrimPrefix(s.URL, "http"), DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(); err == nil || err.Error() != "ws: closed by the server: 4000 hi" {
		t.Errorf("Read: %v", err)
	}
	// A writer that cannot be hijacked gets an answer.
	w := httptest.NewRecorder()
	r, _ := http.ReadRequest(bufio.NewReader(strings.NewReader(request + "\r\n")))
	if h.ServeHTTP(w, r); w.Code != http.StatusInternalServerError {
		t.Errorf("status %d without a Hijacker", w.Code)
	}
}

type discard struct{}

func (discard) Receive([]byte) {}
func (discard) Closed(error)   {}

type wrapped struct{ w http.ResponseWriter }

func (w wrapped) Header() http.Header         { return w.w.Header() }
func (w wrapped) Write(b []byte) (int, error) { return w.w.Write(b) }
func (w wrapped) WriteHeader(status int)      { w.w.WriteHeader(status) }
func (w wrapped) Unwrap() http.ResponseWriter { return w.w }

func TestDialErrors(t *testing.T) {
	ctx := context.Background()
	for _, address := range []string{"http://localhost", "ws://", "::", "localhost:80"} {
		if _, err := Dial(ctx, address, DialOptions{}); err == nil {
			t.Errorf("Dial(%q) succeeded", address)
		}
	}
	if _, err := Dial(ctx, "ws://localhost", DialOptions{ReadLimit: -1}); err == nil {
		t.Error("a negative ReadLimit was taken")
	}
	answer := func(text string) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			nc, _, _ := w.(http.Hijacker).Hijack()
			text := strings.ReplaceAll(text, "KEY", acceptKey(r.Header.Get("Sec-WebSocket-Key")))
			_, _ = nc.Write([]byte(text))
			_ = nc.Close()
		}))
	}
	const proper = "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: KEY\r\n"
	for _, text := range []string{
		"", "nonsense\r\n\r\n",
		"HTTP/1.1 404 x\r\nContent-Length: 4\r\n\r\nnope",
		strings.Replace(proper, "KEY", "x", 1) + "\r\n",
		strings.Replace(proper, "websocket", "h2c", 1) + "\r\n",
		proper + "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
		proper + "Sec-WebSocket-Protocol: chat\r\n\r\n",
	} {
		s := answer(text)
		if _, err := Dial(ctx, "ws"+strings.TrimPrefix(s.URL, "http"), DialOptions{}); err == nil {
			t.Errorf("Dial took %q", text)
		}
		s.Close()
	}
	// A frame in the same segment as the answer.
	s := answer(proper + "\r\n\x82\x01x\x88\x00")
	defer s.Close()
	c, err := Dial(ctx, "ws"+strings.TrimPrefix(s.URL, "http"), DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if msg, err := c.Read(); string(msg) != "x" || err != nil {
		t.Errorf("Read: %q, %v", msg, err)
	}
	if _, err := c.Read(); err == nil || err.(*CloseError).Code != 1005 {
		t.Errorf("Read: %v, want a close without a code", err)
	}
	// The context bounds a server that says nothing.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	for _, scheme := range []string{"ws://", "wss://"} {
		if _, err := Dial(short, scheme+l.Addr().String(), DialOptions{TLS: &tls.Config{InsecureSkipVerify: true}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial to a silent server: %v", err)
		}
	}
}
