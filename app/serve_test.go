package app

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/link/ws"
	"github.com/drumline-engine/drumline/ops"
)

// running is a server started by a test.
type running struct {
	t      *testing.T
	url    string
	cancel context.CancelFunc
	done   chan error
	client *http.Client

	mu     sync.Mutex
	stdout []string // lines
	log    strings.Builder
}

// start runs serve as Main would, and waits until it listens.
func start(t *testing.T, change func(c *serveConfig)) *running {
	t.Helper()
	c := newServeConfig()
	c.addr, c.priority, c.drainTimeout = "127.0.0.1:0", "none", 2*time.Second
	if change != nil {
		change(c)
	}
	r := &running{t: t, done: make(chan error, 1), client: &http.Client{Transport: &http.Transport{}}}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	out, in := io.Pipe()
	e, _, _ := testEnv(nil)
	e.stdout, e.stderr = in, writerFunc(func(p []byte) (int, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.log.Write(p)
	})
	listening := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.mu.Lock()
			r.stdout = append(r.stdout, lines.Text())
			r.mu.Unlock()
			if url, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
				select {
				case listening <- url:
				default:
				}
			}
		}
	})
	go func() {
		err := c.serve(ctx, e)
		in.Close()
		reading.Wait()
		r.done <- err
	}()
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Logf("log:\n%s", r.log.String())
		}
	})
	select {
	case r.url = <-listening:
	case err := <-r.done:
		t.Fatalf("serve: %v", err)
	}
	return r
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// stop ends the server and returns what serve returned.
func (r *running) stop() error {
	r.cancel()
	err := <-r.done
	r.done <- err // for whoever asks again
	r.client.CloseIdleConnections()
	return err
}

func (r *running) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.stdout)
}

func (r *running) get(path string) (status int, header http.Header, body string) {
	r.t.Helper()
	resp, err := r.client.Get(r.url + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// join lets a player into a room of dots.
func (r *running) join() *ws.ClientConn {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	c, err := ws.Dial(ctx, "ws"+strings.TrimPrefix(r.url, "http")+"/ws", ws.DialOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	hello, err := drumline.AppendJSON(nil, drumline.KindHello, drumline.Hello{Protocol: drumline.ProtocolVersion, World: "dots", Name: "Ada"})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := c.Write(hello); err != nil {
		r.t.Fatal(err)
	}
	for {
		msg, err := c.Read()
		if err != nil {
			r.t.Fatal(err)
		}
		if msg[0] == drumline.KindWelcome {
			return c
		}
	}
}

func TestServe(t *testing.T) {
	r := start(t, nil)
	for path, want := range map[string]string{
		"/":            "<!doctype html>",
		"/health":      `"status":"ok"`,
		"/api/rooms":   `"name":"dots"`,
		"/metrics":     "drumline_players 0",
		"/debug/":      "pprof",
		"/debug/stats": `"Rooms"`,
		"/favicon.ico": "",
	} {
		status, header, body := r.get(path)
		if want != "" && (status != 200 || !strings.Contains(strings.ToLower(body), strings.ToLower(want))) {
			t.Errorf("%s: %d %.300s", path, status, body)
		}
		if header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: no nosniff", path)
		}
	}
	if status, _, _ := r.get("/no/such/page"); status != 404 {
		t.Errorf("an unknown page: %d", status)
	}
	// A WebSocket's address, asked by a browser's address bar.
	if status, _, _ := r.get("/ws"); status < 400 || status > 499 {
		t.Errorf("/ws without an upgrade: %d", status)
	}
	if err := r.stop(); err != nil {
		t.Errorf("serve: %v", err)
	}
	lines := r.lines()
	if len(lines) < 4 || !strings.HasPrefix(lines[0], "listening http://127.0.0.1:") || !strings.HasPrefix(lines[1], "world dots: 60 steps and 20 states") ||
		!strings.HasPrefix(lines[len(lines)-2], "stopping: ") || !strings.HasPrefix(lines[len(lines)-1], "stopped within ") {
		t.Errorf("printed %q", lines)
	}
}

func TestServeQuiet(t *testing.T) {
	r := start(t, func(c *serveConfig) { c.quiet = true })
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if lines := r.lines(); len(lines) != 1 || lines[0] != "listening "+r.url {
		t.Errorf("printed %q", lines)
	}
	if r.log.Len() > 0 {
		t.Errorf("logged %s", r.log.String())
	}
}

// A player hears why, /health says so meanwhile, and the server ends.
func TestDrainTellsPlayers(t *testing.T) {
	r := start(t, func(c *serveConfig) { c.drainTimeout = 20 * time.Second })
	c := r.join()
	defer c.Close(1000, "")
	r.cancel()
	var bye drumline.Goodbye
	for bye.Reason == "" {
		msg, err := c.Read()
		if err != nil {
			t.Fatalf("no goodbye: %v", err)
		}
		if msg[0] == drumline.KindRefuse {
			if err := json.Unmarshal(msg[1:], &bye); err != nil {
				t.Fatal(err)
			}
		}
	}
	if bye.Reason != "draining" || bye.Retry != "later" {
		t.Errorf("goodbye %+v", bye)
	}
	_, err := c.Read()
	var closed *ws.CloseError
	if !errors.As(err, &closed) || closed.Code != 1001 {
		t.Errorf("closed: %v", err)
	}
	c.Close(1000, "")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	lines := r.lines()
	if last := lines[len(lines)-1]; !strings.Contains(last, ": 1 join, 1 room, ") {
		t.Errorf("closing line %q", last)
	}
}

// Flags change what the engine does.
func TestServeFlags(t *testing.T) {
	r := start(t, func(c *serveConfig) { c.sendHz, c.maxPlayers, c.liftCaps, c.lab = 7, 3, true, true })
	if _, _, body := r.get("/api/rooms"); !strings.Contains(body, `"send_hz":7`) {
		t.Errorf("%s", body)
	}
	if err := r.stop(); err != nil { // all has been printed then
		t.Error(err)
	}
	if lines := strings.Join(r.lines(), "\n"); !strings.Contains(lines, "--lift-caps") || !strings.Contains(lines, "--lab") {
		t.Errorf("printed %s", lines)
	}
}

// --state and --no-rings reach the engine, and whoever reads the terminal is told.
func TestServeState(t *testing.T) {
	for state, acks := range map[string]bool{"": false, "whole": false, "plain": false, "ordered": false, "acked": true} {
		r := start(t, func(c *serveConfig) { c.state, c.noRings = state, state == "whole" })
		c := r.join()
		for {
			msg, err := c.Read()
			if err != nil {
				t.Fatal(err)
			}
			if msg[0] != drumline.KindState {
				continue
			}
			h, err := drumline.ParseState(msg, func(drumline.StateHeader, int, []byte) error { return nil })
			if err != nil || h.HasAcks != acks {
				t.Errorf("--state %q: acks in the header: %v, %v", state, h.HasAcks, err)
			}
			break
		}
		c.Close(1000, "")
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		lines := strings.Join(r.lines(), "\n")
		if strings.Contains(lines, "--state") != (state != "" && state != "ordered") || strings.Contains(lines, "--no-rings") != (state == "whole") {
			t.Errorf("--state %q printed %s", state, lines)
		}
	}
}

// What the flags say reaches the engine's options, for each server of this program.
func TestServeOptions(t *testing.T) {
	c := newServeConfig()
	c.maxPlayers, c.liftCaps, c.lab, c.beatThreads, c.encoders, c.priority, c.arrangement, c.seed, c.noRings = 9, true, true, 2, 3, "none", "inline", 7, true
	o := c.options([]drumline.Definition{testWorld("dots")}, slog.Default())
	if len(o.Worlds) != 1 || o.MaxPlayers != 9 || !o.LiftCaps || !o.Lab || o.BeatThreads != 2 || o.Encoders != 3 || o.Priority != "none" ||
		o.Arrangement != "inline" || o.Seed != 7 || o.Acked || o.Tuning != (feed.Tuning{NoRings: true}) || o.Logger == nil {
		t.Errorf("%+v", o)
	}
	for state, want := range map[string]struct {
		tuning feed.Tuning
		acked  bool
	}{"": {}, "ordered": {}, "acked": {acked: true}, "whole": {tuning: feed.Tuning{Whole: true}}, "plain": {tuning: feed.Tuning{Plain: true}}} {
		c := newServeConfig()
		c.state = state
		if o := c.options(nil, nil); o.Tuning != want.tuning || o.Acked != want.acked || checkState(state) != nil {
			t.Errorf("--state %q: %+v, acked %v", state, o.Tuning, o.Acked)
		}
	}
}

// With --deflate a client that offers it gets its welcome compressed, and /metrics tells bytes of messages and of the wire apart.
func TestServeDeflate(t *testing.T) {
	for _, on := range []bool{false, true} {
		r := start(t, func(c *serveConfig) { c.deflate = on })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		c, err := ws.Dial(ctx, "ws"+strings.TrimPrefix(r.url, "http")+"/ws", ws.DialOptions{Deflate: true})
		cancel()
		if err != nil || c.Deflate() != on {
			t.Fatalf("compression agreed upon: %v, %v", c.Deflate(), err)
		}
		hello, err := drumline.AppendJSON(nil, drumline.KindHello, drumline.Hello{Protocol: drumline.ProtocolVersion, World: "dots"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Write(hello); err != nil {
			t.Fatal(err)
		}
		welcome, err := c.Read()
		if err != nil || welcome[0] != drumline.KindWelcome {
			t.Fatalf("%q %v", welcome, err)
		}
		value := func(name string) (v float64) {
			_, _, body := r.get("/metrics")
			_, rest, ok := strings.Cut(body, "\ndrumline_"+name+" ")
			if _, err := fmt.Sscan(rest, &v); !ok || err != nil {
				t.Fatalf("no %s in %s", name, body)
			}
			return v
		}
		// What is counted after the write may be seen after it was read: the welcome is, sooner or later.
		for value("message_bytes_sent_total") < float64(len(welcome)) || on && value("messages_sent_compressed_total") == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		if n := value("message_bytes_received_total"); n != float64(len(hello)) {
			t.Errorf("%v bytes received, want %d", n, len(hello))
		}
		if n := value("messages_sent_compressed_total"); n > 0 != on {
			t.Errorf("--deflate %v: %v messages compressed", on, n)
		}
		c.Close(1000, "")
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpsToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newServeConfig()
	c.opsTokenFile = file
	if err := c.check(); err != nil || c.opsToken != "0123456789abcdef" {
		t.Errorf("%q %v", c.opsToken, err)
	}
	var usage *usageError
	if err := c.check(); !errors.As(err, &usage) { // now both are set
		t.Errorf("both given: %v", err)
	}
	if err := os.WriteFile(file, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.opsToken = ""
	if err := c.check(); err == nil {
		t.Error("an empty file: no error")
	}
	r := start(t, func(c *serveConfig) { c.opsToken = "0123456789abcdef" })
	req, err := http.NewRequest("GET", r.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", "203.0.113.9")
	for _, c := range []struct {
		auth string
		want int
	}{{"", 403}, {"Bearer 0123456789abcdeF", 403}, {"Bearer 0123456789abcdef", 200}} {
		if req.Header.Del("Authorization"); c.auth != "" {
			req.Header.Set("Authorization", c.auth)
		}
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%q: %d, want %d", c.auth, resp.StatusCode, c.want)
		}
	}
}

func TestAddressInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	e, stdout, stderr := testEnv(map[string]string{"GOMAXPROCS": "2"})
	addr := ln.Addr().String()
	if code := run(t.Context(), e, commands(), []string{"serve", "--addr", addr}); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	_, port, _ := net.SplitHostPort(addr)
	if got := stderr.String(); !strings.Contains(got, "port "+port+" is in use") || !strings.Contains(got, "--addr 127.0.0.1:") || !strings.Contains(got, "--addr 127.0.0.1:0 ") {
		t.Errorf("%q", got)
	}
	if stdout.Len() > 0 {
		t.Errorf("printed %q", stdout)
	}
}

func TestURLs(t *testing.T) {
	lan := []netip.Addr{netip.MustParseAddr("192.168.0.7"), netip.MustParseAddr("fd00::7")}
	for bound, want := range map[string]string{
		"[::]:8080":            "http://127.0.0.1:8080 [http://192.168.0.7:8080 http://[fd00::7]:8080]",
		"0.0.0.0:8080":         "http://127.0.0.1:8080 [http://192.168.0.7:8080 http://[fd00::7]:8080]",
		"127.0.0.1:9000":       "http://127.0.0.1:9000 []",
		"[::1]:9000":           "http://[::1]:9000 []",
		"[::ffff:10.0.0.1]:80": "http://10.0.0.1:80 []",
		"192.168.0.7:1":        "http://192.168.0.7:1 []",
	} {
		local, others := urls(netip.MustParseAddrPort(bound), lan)
		if got := fmt.Sprint(local, " ", others); got != want {
			t.Errorf("%s: %s, want %s", bound, got, want)
		}
	}
	for _, a := range lanAddrs() {
		if a.IsLoopback() || a.IsLinkLocalUnicast() {
			t.Errorf("%s is no address for others", a)
		}
	}
}

func TestWorldLine(t *testing.T) {
	spec := drumline.Spec{Name: "hex", Hz: 0, SendHz: 20, Seats: 1, Rooms: 50}
	for lifted, want := range map[bool]string{false: "at most 50 rooms", true: "any number of rooms"} {
		if got := worldLine(spec, lifted); got != "world hex: steps on input, at most 20 states a second, 1 seat a room, "+want {
			t.Error(got)
		}
	}
}

// A page that is written comes from a folder, and follows its changes.
func TestServeWeb(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "main.ts"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(`document.title = "first";`)
	r := start(t, func(c *serveConfig) { c.web = folderList{{"dots", dir}} })
	script := func() string {
		_, _, page := r.get("/w/dots/")
		_, rest, _ := strings.Cut(page, "assets/")
		name, _, _ := strings.Cut(rest, `"`)
		_, _, body := r.get("/assets/" + name)
		return body
	}
	if got := script(); !strings.Contains(got, "first") {
		t.Errorf("%.200s", got)
	}
	write(`document.title = "second";`)
	if got := script(); !strings.Contains(got, "second") {
		t.Errorf("%.200s", got)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if lines := strings.Join(r.lines(), "\n"); !strings.Contains(lines, "page of dots: from "+dir) {
		t.Errorf("printed %s", lines)
	}
}

func TestFolderList(t *testing.T) {
	c, err := parseServe(t, nil, "--web", "dots=a", "--web", "hex=b/c")
	if err != nil || fmt.Sprint(c.web) != "[{dots a} {hex b/c}]" {
		t.Error(c.web, err)
	}
	if c, err = parseServe(t, map[string]string{"DRUMLINE_WEB": "dots=a,hex=b"}); err != nil || len(c.web) != 2 {
		t.Error(c.web, err)
	}
	for _, bad := range []string{"dots", "=a", "dots=", "dots=a,dots=b"} {
		if _, err := parseServe(t, nil, "--web", bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// More silent connections than are allowed shut nobody out: the oldest of them go, counted, and others are served.
func TestSilentConnections(t *testing.T) {
	r := start(t, nil)
	addr := strings.TrimPrefix(r.url, "http://")
	player := r.join()
	defer player.Close(1000, "")
	const n = maxWaitingConns + 100
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for i := range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, c)
		if i%2 == 0 { // half a request is as silent as none
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n")
		}
	}
	// The first of them is closed by the server, whatever it waits for.
	conns[0].SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, conns[0]); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest connection was kept")
	}
	if status, _, body := r.get("/health"); status != 200 || !strings.Contains(body, `"players":1`) {
		t.Errorf("%d %s", status, body)
	}
	_, _, metrics := r.get("/metrics")
	for line := range strings.Lines(metrics) {
		if v, ok := strings.CutPrefix(line, "drumline_http_connections_evicted_total "); ok && strings.TrimSpace(v) == "0" {
			t.Error("no eviction was counted")
		}
	}
	other := r.join()
	other.Close(1000, "")
}

// The guard's books, without a network.
func TestConnGuard(t *testing.T) {
	g := newConnGuard(2)
	var closed []string
	conn := func(name string) net.Conn { return &fakeConn{name: name, closed: &closed} }
	a, b, c := conn("a"), conn("b"), conn("c")
	ga, gb := g.open(a), g.open(b)
	expect := func(open, waiting int, evicted uint64, gone string) {
		t.Helper()
		if got := g.stats(); got != (ops.Conns{Open: open, Waiting: waiting, Evicted: evicted}) || strings.Join(closed, "") != gone {
			t.Errorf("%+v, closed %v; want %d open, %d waiting, %d evicted, closed %s", got, closed, open, waiting, evicted, gone)
		}
	}
	expect(2, 2, 0, "")
	g.busy(ga)
	g.busy(ga) // a second request on it, pipelined
	expect(2, 1, 0, "")
	g.open(c)
	expect(3, 2, 0, "")
	g.idle(a) // back behind b and c: b is the oldest now
	expect(3, 2, 1, "b")
	g.busy(gb) // its handler began just before
	g.gone(b)
	expect(2, 2, 1, "b")
	g.idle(c)
	g.idle(b) // gone already
	expect(2, 2, 1, "b")
	g.gone(a)
	g.gone(c)
	g.gone(c)
	expect(0, 0, 1, "b")
}

type fakeConn struct {
	net.Conn
	name   string
	closed *[]string
}

func (c *fakeConn) Close() error {
	*c.closed = append(*c.closed, c.name)
	return nil
}
