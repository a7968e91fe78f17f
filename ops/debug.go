package ops

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/internal/proc"
)

const debugText = `drumline debug

inspector                   the page that shows what follows
rooms                       the server's last two minutes, its threads, and its rooms
room?world=W&room=R         one room: its last 1,200 steps, its seats, and where its bytes went
explain?world=W&room=R&seat=N
                            where one client's bytes went, since it came and lately
account?world=W&room=R      where the bytes of each seat of a room went since it joined: bits and writes by type and field
stats                       everything the server counts, as JSON
window                      GET: what was measured since the window began; POST: begin a new one
pprof/                      Go's profiles; pprof/profile?seconds=10 for the CPU, pprof/heap for memory
pprof/trace?seconds=3       an execution trace for "go tool trace"
`

func debugIndex(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, debugText)
}

func (h *handler) debugStats(w http.ResponseWriter, _ *http.Request) {
	h.writeJSON(w, http.StatusOK, h.picture(healthMaxAge))
}

// account tells where the bytes of a room's seats went.
func (h *handler) account(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), accountTimeout)
	defer cancel()
	rows, err := h.src.Account(ctx, r.FormValue("world"), r.FormValue("room"))
	switch {
	case errors.Is(err, drumline.ErrClosed):
		http.Error(w, "there is no such room: give ?world= and ?room=", http.StatusNotFound)
	case err != nil:
		http.Error(w, "the encoders did not answer in time", http.StatusServiceUnavailable)
	default:
		h.writeJSON(w, http.StatusOK, rows)
	}
}

const accountTimeout = 2 * time.Second

// DebugWindow is the answer of GET /debug/window.
type DebugWindow struct {
	Window drumline.Window `json:"window"`
	// Process covers the same stretch of time; its memory and goroutines are those at its end.
	Process proc.Figures `json:"process"`
	// Stats is the server as it is now, not an older picture.
	Stats drumline.Stats `json:"stats"`
}

func (h *handler) window(w http.ResponseWriter, _ *http.Request) {
	h.writeJSON(w, http.StatusOK, DebugWindow{h.src.Window(), h.process.window.Figures(), h.src.Stats()})
}

func (h *handler) resetWindow(w http.ResponseWriter, _ *http.Request) {
	h.src.ResetWindow()
	h.process.window.Reset()
	w.WriteHeader(http.StatusNoContent)
}
