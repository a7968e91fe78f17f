// Package ops is the server's window for those who run it: health for balancers, metrics for Prometheus, profiles and
// measurement windows for developers, and the list of rooms for the lobby page.
//
//	h, err := ops.Handler(srv, ops.Options{})
//	mux.Handle("/health", h)
//	mux.Handle("/metrics", h)
//	mux.Handle("/debug/", h)
//	mux.Handle("/api/rooms", h)
//
// /debug/inspector is a page for people; it reads /debug/rooms, /debug/room and /debug/explain (inspect.go, docs/inspector.md).
//
// /health and /api/rooms are public: they name no player and no address, are bounded in size, and are computed at most a few
// times a second whoever asks. /metrics and /debug answer to this machine itself or to the holder of Options.Token; see
// access.go. docs/metrics.md lists the metrics.
//
// The package only reads. It has no goroutine of its own, measures nothing by itself except the process, and changes one
// thing: POST /debug/window starts a new measurement window.
package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
)

// Source is what the handler asks for its figures; *drumline.Server is one. Its methods may be called from any goroutine.
type Source interface {
	Stats() drumline.Stats
	Window() drumline.Window
	ResetWindow()
	Account(ctx context.Context, world, room string) (map[drumline.SeatID]map[string]feed.Row, error)
	Inspect(ctx context.Context, world, room string) (drumline.Inspection, error)
	Explain(ctx context.Context, world, room string, seat drumline.SeatID) (drumline.Explanation, error)
	History() []drumline.Second
	// Distribution is described at drumline.Server. Each call's counts are at least those of the call before.
	Distribution(what string, bounds []time.Duration) (cumulative []uint64, count uint64, sum time.Duration)
}

// Options set up a Handler. The zero value of each field means its default; wrong values are errors.
type Options struct {
	// Token lets its holder use /metrics and /debug from anywhere, as "Authorization: Bearer TOKEN". At least
	// MinTokenBytes long, of visible ASCII characters. Empty: only this machine itself may.
	Token string
	// TrustedProxies are the addresses of proxies whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// RoomSeries is how many rooms have metrics of their own; the others are added up as room="_other". Default 100.
	RoomSeries int
	// Inspector is the page of /debug/inspector, which package web makes. It is answered to those who may see /debug, and if a Token is
	// set to everybody: it then asks for it. Nil: there is no such page.
	Inspector http.Handler
	// Conns tells about the HTTP server's connections. Nil: those metrics are 0.
	Conns func() Conns
	// Logger is told when an answer could not be made. Default slog.Default().
	Logger *slog.Logger
}

// MinTokenBytes is the least length of Options.Token: shorter ones can be guessed.
const MinTokenBytes = 16

// Conns describes an HTTP server's connections.
type Conns struct {
	// Open counts HTTP connections, Waiting those of them without a request being answered.
	Open, Waiting int
	// Evicted counts waiting connections that were closed to make room for newer ones, since the start.
	Evicted uint64
}

// How old the figures in an answer may be. Stats costs a little per room, and these pages are public.
const (
	healthMaxAge = 250 * time.Millisecond
	roomsMaxAge  = time.Second
)

// Handler makes the handler for /health, /metrics, /debug/ and /api/rooms of a server.
func Handler(src Source, o Options) (http.Handler, error) {
	h, err := newHandlerAt(src, o, time.Now)
	if err != nil {
		return nil, err
	}
	return h.mux, nil
}

func newHandlerAt(src Source, o Options, now func() time.Time) (*handler, error) {
	if src == nil {
		return nil, errors.New("ops: no source")
	}
	if o.RoomSeries < 0 {
		return nil, fmt.Errorf("ops: RoomSeries is %d; it must not be negative", o.RoomSeries)
	}
	if o.RoomSeries == 0 {
		o.RoomSeries = 100
	}
	if o.Token != "" && len(o.Token) < MinTokenBytes {
		return nil, fmt.Errorf("ops: the token has %d bytes; at least %d are needed", len(o.Token), MinTokenBytes)
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("ops: the token must consist of visible ASCII characters, without spaces")
	}
	for _, p := range o.TrustedProxies {
		if !p.IsValid() {
			return nil, errors.New("ops: TrustedProxies holds a prefix that is not valid")
		}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Conns == nil {
		o.Conns = func() Conns { return Conns{} }
	}
	h := &handler{src: src, o: o, now: now, process: newProcess(now()), inspecting: make(chan struct{}, 1)}
	h.access = newAccess(o.Token, o.TrustedProxies)
	metrics, err := h.metricsHandler()
	if err != nil {
		return nil, err
	}

	private := http.NewServeMux()
	private.Handle("GET /metrics", metrics)
	private.HandleFunc("GET /debug/{$}", debugIndex)
	private.HandleFunc("GET /debug/stats", h.debugStats)
	private.HandleFunc("GET /debug/account", h.account)
	private.HandleFunc("GET /debug/rooms", h.debugRooms)
	private.HandleFunc("GET /debug/room", h.debugRoom)
	private.HandleFunc("GET /debug/explain", h.debugExplain)
	private.HandleFunc("GET /debug/window", h.window)
	private.HandleFunc("POST /debug/window", h.resetWindow)
	private.HandleFunc("GET /debug/pprof/", pprof.Index)
	private.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	private.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	private.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	private.HandleFunc("GET /debug/pprof/trace", pprof.Trace)

	// A page of another site must not start a window (or anything else that is not a GET) through a developer's browser.
	guarded := h.access.guard(http.NewCrossOriginProtection().Handler(private))

	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", h.health)
	mux.HandleFunc("GET /api/rooms", h.rooms)
	mux.Handle("/metrics", guarded)
	mux.Handle("/debug/", guarded)
	if o.Inspector != nil {
		mux.HandleFunc("GET /debug/inspector", h.inspectorPage)
	}
	h.mux = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
	return h, nil
}

type handler struct {
	src     Source
	o       Options
	now     func() time.Time
	access  *access
	process *process
	mux     http.Handler
	// inspecting holds one item while the engine is asked about a room.
	inspecting chan struct{}

	// mu guards what is kept between requests. Whoever finds it too old makes it anew, with mu held, so that a crowd of
	// requests costs one picture.
	mu      sync.Mutex
	stats   drumline.Stats
	taken   time.Time
	lobby   []byte
	lobbyAt time.Time
}

// picture returns the server's figures, at most maxAge old.
func (h *handler) picture(maxAge time.Duration) drumline.Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pictureLocked(maxAge)
}

func (h *handler) pictureLocked(maxAge time.Duration) drumline.Stats {
	if now := h.now(); h.taken.IsZero() || now.Sub(h.taken) >= maxAge {
		h.stats, h.taken = h.src.Stats(), now
	}
	return h.stats
}

func (h *handler) writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		h.o.Logger.Error("ops: cannot write an answer", "err", err)
		http.Error(w, "500 the figures cannot be written as JSON; see the log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}
