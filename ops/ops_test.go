package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
)

// source is a server of made-up figures.
type source struct {
	mu     sync.Mutex
	stats  drumline.Stats
	window drumline.Window
	asked  atomic.Int32
	resets atomic.Int32

	inspection drumline.Inspection
	history    []drumline.Second
	stuck      bool // the encoders do not answer
}

func (s *source) Stats() drumline.Stats {
	s.asked.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

func (s *source) Window() drumline.Window { return s.window }

func (s *source) ResetWindow() { s.resets.Add(1) }

func (s *source) set(f func(st *drumline.Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.stats)
}

func (s *source) Account(_ context.Context, world, room string) (map[drumline.SeatID]map[string]feed.Row, error) {
	if world != "arena" || room != "busy" {
		return nil, drumline.ErrClosed
	}
	return map[drumline.SeatID]map[string]feed.Row{3: {"player.x": {Bits: 320, Count: 20}}}, nil
}

func (s *source) Inspect(_ context.Context, world, room string) (drumline.Inspection, error) {
	if world != "arena" || room != "busy" {
		return drumline.Inspection{}, drumline.ErrClosed
	}
	return s.inspection, nil
}

func (s *source) Explain(ctx context.Context, world, room string, seat drumline.SeatID) (drumline.Explanation, error) {
	if s.stuck {
		<-ctx.Done()
		return drumline.Explanation{}, ctx.Err()
	}
	for _, st := range s.inspection.Seats {
		if world == "arena" && room == "busy" && st.Seat == seat {
			return drumline.Explanation{World: world, Room: room, Seat: st, Life: s.inspection.Spent}, nil
		}
	}
	return drumline.Explanation{}, drumline.ErrClosed
}

func (s *source) History() []drumline.Second { return s.history }

// Distribution tells of two steps of 1 ms.
func (s *source) Distribution(_ string, bounds []time.Duration) (cumulative []uint64, count uint64, sum time.Duration) {
	for _, b := range bounds {
		n := uint64(0)
		if b >= time.Millisecond {
			n = 2
		}
		cumulative = append(cumulative, n)
	}
	return cumulative, 2, 2 * time.Millisecond
}

func newSource() *source {
	s := &source{window: drumline.Window{For: 3 * time.Second, Steps: 180}}
	s.stats = drumline.Stats{Uptime: 90 * time.Second, Links: 3, Players: 3, Waiting: 1, Joined: 7, Resumed: 2,
		Refused:     map[string]uint64{"room_full": 4, "version": 1},
		PacketsOut:  1000,
		RoomsOpened: 2,
		Threads:     []drumline.ThreadStats{{Role: "beat", Priority: "nice", LoadCores: .25, Rooms: 2}, {Role: "encoder", Priority: "none", Refused: "EPERM"}},
		Worlds:      []drumline.WorldStats{{Name: "arena", Title: "Arena", About: "Shoot.", Hz: 60, SendHz: 20, Seats: 16, Rooms: 2, MaxRooms: 50, Players: 3, HasPage: true}},
		Rooms: []drumline.RoomStats{
			room("arena", "quiet", 1, 120),
			room("arena", "busy", 2, 1200),
		},
		Pages: []drumline.PageStats{{World: "arena", Transport: "ws",
			QualityTotals: drumline.QualityTotals{Reports: 10, Span: 20 * time.Second, Frames: 1200, Baseless: 6, Stutters: map[string]uint64{"network": 2}},
			Frame:         pageDistribution(17 * time.Millisecond), Ping: pageDistribution(80 * time.Millisecond), Age: pageDistribution(120 * time.Millisecond)}},
	}
	return s
}

// pageDistribution is that of one report.
func pageDistribution(v time.Duration) drumline.PageDistribution {
	d := drumline.PageDistribution{Count: 1, Sum: v}
	for _, b := range drumline.PageBounds() {
		n := uint64(0)
		if v <= b {
			n = 1
		}
		d.Cumulative = append(d.Cumulative, n)
	}
	return d
}

func room(world, name string, players int, steps uint64) drumline.RoomStats {
	return drumline.RoomStats{World: world, Room: name, Age: 20 * time.Second, Hz: 60, SendHz: 20, Seats: 16, Players: players,
		Beat: drumline.BeatStats{Steps: steps, Skipped: 1, Interval: drumline.Quantiles{P50: 16.67, P90: 16.7, P99: 16.75, Max: 17},
			Step: drumline.Quantiles{P50: .1, P90: .2, P99: .3, Max: .4}},
		BytesOutPerSec: 7000, PacketsPerSec: 40, PacketsOut: 10 * steps, Skipped: map[string]uint64{"busy": 5},
		Held: 48, EncodeUs: 3, RoundUs: 50}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newHandler(t testing.TB, src Source, o Options) http.Handler {
	t.Helper()
	o.Logger = quiet()
	h, err := Handler(src, o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// local is a request from this machine.
func local(method, path string) *http.Request {
	r := httptest.NewRequest(method, "http://127.0.0.1:8080"+path, nil)
	r.RemoteAddr = "127.0.0.1:40000"
	return r
}

func remote(method, path string) *http.Request {
	r := httptest.NewRequest(method, "http://play.example.com"+path, nil)
	r.RemoteAddr = "203.0.113.9:40000"
	return r
}

func do(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func decode[T any](t *testing.T, w *httptest.ResponseRecorder) (v T) {
	t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Fatalf("content type %q, body %q", got, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestHealth(t *testing.T) {
	src := newSource()
	w := do(newHandler(t, src, Options{}), remote("GET", "/health"))
	v := decode[map[string]any](t, w)
	if w.Code != 200 || v["status"] != "ok" || v["players"] != 3.0 || v["refused"] != 5.0 || v["room_count"] != 2.0 ||
		v["bytes_per_s"] != 14000.0 || v["steps_skipped"] != 2.0 || v["worst_interval_p99_ms"] != 16.75 {
		t.Errorf("%d %v", w.Code, v)
	}
	first := v["rooms"].([]any)[0].(map[string]any)
	if first["room"] != "busy" || first["bytes_per_s"] != 7000.0 {
		t.Errorf("first room: %v", first)
	}
	beat := first["beat"].(map[string]any)
	for _, key := range []string{"steps", "skipped", "doubled", "dropped", "interval_ms", "late_ms", "step_ms"} {
		if beat[key] == nil {
			t.Errorf("the beat has no %s: %v", key, beat)
		}
	}
	if p99 := beat["interval_ms"].(map[string]any)["p99"]; p99 != 16.75 {
		t.Errorf("p99 %v", p99)
	}
	process := v["process"].(map[string]any)
	if process["goroutines"].(float64) < 1 {
		t.Errorf("process: %v", process)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestHealthWhileDraining(t *testing.T) {
	src := newSource()
	src.stats.Draining = true
	w := do(newHandler(t, src, Options{}), remote("GET", "/health"))
	if v := decode[Health](t, w); w.Code != http.StatusServiceUnavailable || v.Status != "draining" {
		t.Errorf("%d %+v", w.Code, v)
	}
}

func TestLobby(t *testing.T) {
	w := do(newHandler(t, newSource(), Options{}), remote("GET", "/api/rooms"))
	want := `{"server":{"players":3,"uptime_s":90,"draining":false},` +
		`"worlds":[{"name":"arena","title":"Arena","about":"Shoot.","hz":60,"send_hz":20,"seats":16,"rooms":2,"max_rooms":50,"players":3,"has_page":true}],` +
		`"rooms":[{"world":"arena","room":"busy","players":2,"seats":16,"hz":60,"beat":{"interval_p99_ms":16.75,"skipped":1,"dropped":0},"bytes_per_s":7000,"age_s":20},` +
		`{"world":"arena","room":"quiet","players":1,"seats":16,"hz":60,"beat":{"interval_p99_ms":16.75,"skipped":1,"dropped":0},"bytes_per_s":7000,"age_s":20}],"rooms_omitted":0}` + "\n"
	if got := w.Body.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Without rooms and worlds the lists are empty, not null.
func TestEmptyServer(t *testing.T) {
	h := newHandler(t, &source{}, Options{})
	if got := do(h, remote("GET", "/api/rooms")).Body.String(); !strings.Contains(got, `"worlds":[],"rooms":[]`) {
		t.Error(got)
	}
	if got := do(h, remote("GET", "/health")).Body.String(); !strings.Contains(got, `"rooms":[]`) {
		t.Error(got)
	}
	if w := do(h, local("GET", "/metrics")); w.Code != 200 {
		t.Error(w.Code, w.Body)
	}
}

// What is public is bounded, however many rooms players open.
func TestManyRooms(t *testing.T) {
	src := newSource()
	src.stats.Rooms = nil
	for i := range 3000 {
		src.stats.Rooms = append(src.stats.Rooms, room("arena", fmt.Sprintf("r%d", i), i%17, 1))
	}
	h := newHandler(t, src, Options{})
	v := decode[Lobby](t, do(h, remote("GET", "/api/rooms")))
	if len(v.Rooms) != maxListedRooms || v.RoomsOmitted != 3000-maxListedRooms || v.Rooms[0].Players != 16 {
		t.Errorf("%d rooms listed, %d omitted", len(v.Rooms), v.RoomsOmitted)
	}
	if v := decode[Health](t, do(h, remote("GET", "/health"))); len(v.Rooms) != maxListedRooms || v.RoomCount != 3000 {
		t.Errorf("%d of %d rooms listed", len(v.Rooms), v.RoomCount)
	}
}

// A crowd that asks costs one picture of the server, and hears of a change when it is due.
func TestAnswersAreShared(t *testing.T) {
	src := newSource()
	o := Options{Logger: quiet()}
	var clock atomic.Int64
	hh, err := newHandlerAt(src, o, func() time.Time { return time.Unix(0, clock.Load()) })
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { do(hh.mux, remote("GET", "/api/rooms")); do(hh.mux, remote("GET", "/health")) })
	}
	wg.Wait()
	if n := src.asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
	src.set(func(st *drumline.Stats) { st.Players = 99 })
	clock.Add(int64(healthMaxAge))
	if v := decode[Health](t, do(hh.mux, remote("GET", "/health"))); v.Players != 99 {
		t.Errorf("%d players in /health", v.Players)
	}
	if v := decode[Lobby](t, do(hh.mux, remote("GET", "/api/rooms"))); v.Server.Players != 3 {
		t.Errorf("%d players in the lobby before its second is over", v.Server.Players)
	}
	clock.Add(int64(roomsMaxAge))
	if v := decode[Lobby](t, do(hh.mux, remote("GET", "/api/rooms"))); v.Server.Players != 99 {
		t.Errorf("%d players in the lobby", v.Server.Players)
	}
}

func TestDebugWindow(t *testing.T) {
	src := newSource()
	h := newHandler(t, src, Options{})
	if w := do(h, local("POST", "/debug/window")); w.Code != http.StatusNoContent || src.resets.Load() != 1 {
		t.Errorf("POST: %d, %d resets", w.Code, src.resets.Load())
	}
	v := decode[map[string]map[string]any](t, do(h, local("GET", "/debug/window")))
	if v["window"]["Steps"] != 180.0 || v["window"]["For"] != 3e9 || v["stats"]["Players"] != 3.0 {
		t.Errorf("%v", v)
	}
	for _, key := range []string{"cpu_cores", "rss_mib", "pss_mib", "gc_pause_ms", "goroutines"} {
		if v["process"][key] == nil {
			t.Errorf("process has no %s: %v", key, v["process"])
		}
	}
	if w := do(h, local("GET", "/debug/window")); w.Code != 200 || src.resets.Load() != 1 {
		t.Error("GET has reset the window")
	}
}

// A page of another site, open in a developer's browser, must not start a window.
func TestCrossSitePost(t *testing.T) {
	src := newSource()
	h := newHandler(t, src, Options{})
	r := local("POST", "/debug/window")
	r.Header.Set("Origin", "https://evil.example")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if w := do(h, r); w.Code != http.StatusForbidden || src.resets.Load() != 0 {
		t.Errorf("%d, %d resets", w.Code, src.resets.Load())
	}
}

func TestDebugPages(t *testing.T) {
	h := newHandler(t, newSource(), Options{})
	for path, want := range map[string]string{
		"/debug/":                              "pprof",
		"/debug/stats":                         `"Players":3`,
		"/debug/account?world=arena&room=busy": `{"3":{"player.x":{"bits":320,"count":20}}}`,
		"/debug/pprof/":                        "goroutine",
		"/debug/pprof/heap?debug=1":            "heap profile",
		"/debug/pprof/cmdline":                 "",
	} {
		if w := do(h, local("GET", path)); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %.200s", path, w.Code, w.Body)
		}
	}
	if w := do(h, local("GET", "/debug/nothing")); w.Code != http.StatusNotFound {
		t.Errorf("an unknown page: %d", w.Code)
	}
	if w := do(h, local("DELETE", "/debug/window")); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("an unknown method: %d", w.Code)
	}
	if w := do(h, local("POST", "/health")); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /health: %d", w.Code)
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"short token": {Token: "123456789012345"},
		"space":       {Token: "1234567890123456 8"},
		"line end":    {Token: "1234567890123456\n"},
		"not ASCII":   {Token: "1234567890123456é"},
		"series":      {RoomSeries: -1},
		"prefix":      {TrustedProxies: []netip.Prefix{{}}},
	} {
		if _, err := Handler(newSource(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Handler(nil, Options{}); err == nil {
		t.Error("no source: no error")
	}
}

// The real server is a source, over a real connection.
func TestRealServer(t *testing.T) {
	type input struct{ Fire bool }
	srv, err := drumline.New(drumline.Options{Logger: quiet(), Priority: "none", Worlds: []drumline.Definition{
		drumline.Define(drumline.Kind[input]{Spec: drumline.Spec{Name: "dots", Hz: 60},
			Open: func(*drumline.Room) (drumline.World[input], error) { return nil, io.EOF }}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	ts := httptest.NewServer(newHandler(t, srv, Options{}))
	defer ts.Close()
	for _, path := range []string{"/health", "/metrics", "/debug/stats", "/debug/window", "/api/rooms"} {
		resp, err := ts.Client().Get(ts.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || len(body) == 0 {
			t.Errorf("%s: %d %v %s", path, resp.StatusCode, err, body)
		}
	}
}

// A profile takes as long as it was asked to, whatever the server's timeouts are.
func TestProfileOutlivesTimeouts(t *testing.T) {
	ts := httptest.NewUnstartedServer(newHandler(t, newSource(), Options{}))
	ts.Config.ReadTimeout, ts.Config.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond
	ts.Start()
	defer ts.Close()
	for _, path := range []string{"/debug/pprof/trace?seconds=1", "/debug/pprof/profile?seconds=1"} {
		begin := time.Now()
		resp, err := ts.Client().Get(ts.URL + path)
		if err != nil {
			t.Fatal(path, err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if took := time.Since(begin); err != nil || resp.StatusCode != 200 || len(body) == 0 || took < time.Second {
			t.Errorf("%s: %d, %v, %d bytes after %v", path, resp.StatusCode, err, len(body), took)
		}
	}
}
