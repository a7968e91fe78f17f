package ops

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"slices"

	"github.com/drumline-engine/drumline"
)

// The most rooms that /health and /api/rooms list. Both are public, so their size has a bound whatever players open.
const maxListedRooms = 200

// Health is the answer of /health.
type Health struct {
	// Status is "ok" or "draining" (with HTTP status 503, so that balancers send nobody any more).
	Status  string  `json:"status"`
	UptimeS float64 `json:"uptime_s"`

	Players int    `json:"players"` // taken seats
	Waiting int    `json:"waiting"` // of them, those whose link is down
	Links   int    `json:"links"`
	Joined  uint64 `json:"joined"`
	Resumed uint64 `json:"resumed"`
	Refused uint64 `json:"refused"`

	// RoomCount counts open rooms. Rooms lists at most 200 of them, those with the most players first.
	RoomCount    int           `json:"room_count"`
	BytesPerS    float64       `json:"bytes_per_s"` // of packets, without framing
	PacketsPerS  float64       `json:"packets_per_s"`
	RoomErrors   uint64        `json:"room_errors"`
	RoomHangs    uint64        `json:"room_hangs"`
	StepsSkipped uint64        `json:"steps_skipped"` // of all open rooms, like the next two
	StepsDoubled uint64        `json:"steps_doubled"`
	StepsDropped uint64        `json:"steps_dropped"`
	WorstStepMs  float64       `json:"worst_step_p99_ms"`
	WorstBeatMs  float64       `json:"worst_interval_p99_ms"`
	Process      HealthProcess `json:"process"`
	Rooms        []HealthRoom  `json:"rooms"`
}

// HealthProcess are a few figures of the process; figures that the platform does not tell are 0.
type HealthProcess struct {
	CPUCores   float64 `json:"cpu_cores"` // over the last second or longer
	RSSMiB     float64 `json:"rss_mib"`
	Goroutines int     `json:"goroutines"`
}

// HealthRoom is one room.
type HealthRoom struct {
	World     string     `json:"world"`
	Room      string     `json:"room"`
	AgeS      float64    `json:"age_s"`
	Tick      uint32     `json:"tick"`
	Hz        int        `json:"hz"`
	SendHz    int        `json:"send_hz"`
	Seats     int        `json:"seats"`
	Players   int        `json:"players"`
	Waiting   int        `json:"waiting"`
	BytesPerS float64    `json:"bytes_per_s"`
	PacketsS  float64    `json:"packets_per_s"`
	Held      float64    `json:"entities_held"`
	Beat      HealthBeat `json:"beat"`
}

// HealthBeat is how well a room keeps its rate: counters since the room opened, durations of its last 1,200 steps.
type HealthBeat struct {
	Steps    uint64             `json:"steps"`
	Late     uint64             `json:"late"`
	Skipped  uint64             `json:"skipped"`
	Doubled  uint64             `json:"doubled"`
	Dropped  uint64             `json:"dropped"`
	Stalls   uint64             `json:"stalls"`
	Interval drumline.Quantiles `json:"interval_ms"`
	Lateness drumline.Quantiles `json:"late_ms"`
	Step     drumline.Quantiles `json:"step_ms"`
}

func (h *handler) health(w http.ResponseWriter, _ *http.Request) {
	st := h.picture(healthMaxAge)
	status := http.StatusOK
	if st.Draining {
		status = http.StatusServiceUnavailable
	}
	h.writeJSON(w, status, makeHealth(st, h.process.health(h.now())))
}

func makeHealth(st drumline.Stats, p HealthProcess) Health {
	v := Health{Status: "ok", UptimeS: round(st.Uptime.Seconds(), 1), Players: st.Players, Waiting: st.Waiting, Links: st.Links,
		Joined: st.Joined, Resumed: st.Resumed, RoomCount: len(st.Rooms), RoomErrors: st.RoomErrors, RoomHangs: st.RoomHangs,
		Process: p, Rooms: []HealthRoom{}}
	if st.Draining {
		v.Status = "draining"
	}
	for _, n := range st.Refused {
		v.Refused += n
	}
	for _, r := range st.Rooms {
		v.BytesPerS += r.BytesOutPerSec
		v.PacketsPerS += r.PacketsPerSec
		v.StepsSkipped += r.Beat.Skipped
		v.StepsDoubled += r.Beat.Doubled
		v.StepsDropped += r.Beat.Dropped
		v.WorstStepMs = max(v.WorstStepMs, r.Beat.Step.P99)
		v.WorstBeatMs = max(v.WorstBeatMs, r.Beat.Interval.P99)
	}
	v.BytesPerS, v.PacketsPerS = round(v.BytesPerS, 0), round(v.PacketsPerS, 1)
	for _, r := range busiest(st.Rooms, maxListedRooms) {
		v.Rooms = append(v.Rooms, HealthRoom{World: r.World, Room: r.Room, AgeS: round(r.Age.Seconds(), 1), Tick: uint32(r.Tick),
			Hz: r.Hz, SendHz: r.SendHz, Seats: r.Seats, Players: r.Players, Waiting: r.Waiting,
			BytesPerS: round(r.BytesOutPerSec, 0), PacketsS: round(r.PacketsPerSec, 1), Held: round(r.Held, 1),
			Beat: makeHealthBeat(r.Beat)})
	}
	return v
}

func makeHealthBeat(b drumline.BeatStats) HealthBeat {
	return HealthBeat{Steps: b.Steps, Late: b.Late, Skipped: b.Skipped, Doubled: b.Doubled, Dropped: b.Dropped,
		Stalls: b.Stalls, Interval: b.Interval, Lateness: b.Lateness, Step: b.Step}
}

// busiest returns at most n rooms, those with the most players first, then by name.
func busiest(rooms []drumline.RoomStats, n int) []drumline.RoomStats {
	rooms = slices.Clone(rooms)
	slices.SortFunc(rooms, func(a, b drumline.RoomStats) int {
		return cmp.Or(cmp.Compare(b.Players, a.Players), cmp.Compare(a.World, b.World), cmp.Compare(a.Room, b.Room))
	})
	return rooms[:min(n, len(rooms))]
}

// Lobby is the answer of /api/rooms, which the lobby page reads.
type Lobby struct {
	Server LobbyServer  `json:"server"`
	Worlds []LobbyWorld `json:"worlds"`
	// Rooms lists at most 200 rooms, those with the most players first; RoomsOmitted counts the others.
	Rooms        []LobbyRoom `json:"rooms"`
	RoomsOmitted int         `json:"rooms_omitted"`
}

// LobbyServer is the server as a whole.
type LobbyServer struct {
	Players  int     `json:"players"`
	UptimeS  float64 `json:"uptime_s"`
	Draining bool    `json:"draining"`
}

// LobbyWorld is a world that can be played.
type LobbyWorld struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	About    string `json:"about"`
	Hz       int    `json:"hz"`
	SendHz   int    `json:"send_hz"`
	Seats    int    `json:"seats"`
	Rooms    int    `json:"rooms"`
	MaxRooms int    `json:"max_rooms"`
	Players  int    `json:"players"`
	HasPage  bool   `json:"has_page"`
}

// LobbyRoom is an open room.
type LobbyRoom struct {
	World     string    `json:"world"`
	Room      string    `json:"room"`
	Players   int       `json:"players"`
	Seats     int       `json:"seats"`
	Hz        int       `json:"hz"`
	Beat      LobbyBeat `json:"beat"`
	BytesPerS float64   `json:"bytes_per_s"`
	AgeS      float64   `json:"age_s"`
}

// LobbyBeat is a room's beat in three figures: the interval over its last 1,200 steps, the counters since it opened.
type LobbyBeat struct {
	IntervalP99Ms float64 `json:"interval_p99_ms"`
	Skipped       uint64  `json:"skipped"`
	Dropped       uint64  `json:"dropped"`
}

func (h *handler) rooms(w http.ResponseWriter, _ *http.Request) {
	b, err := h.lobbyJSON()
	if err != nil {
		h.o.Logger.Error("ops: cannot list the rooms", "err", err)
		http.Error(w, "500 the rooms cannot be listed; see the log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(b)
}

// lobbyJSON keeps the bytes of the answer, since each open lobby page asks for them every two seconds.
func (h *handler) lobbyJSON() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.now(); h.lobby == nil || now.Sub(h.lobbyAt) >= roomsMaxAge {
		b, err := json.Marshal(makeLobby(h.pictureLocked(healthMaxAge)))
		if err != nil {
			return nil, err
		}
		h.lobby, h.lobbyAt = append(b, '\n'), now
	}
	return h.lobby, nil
}

func makeLobby(st drumline.Stats) Lobby {
	v := Lobby{Server: LobbyServer{Players: st.Players, UptimeS: round(st.Uptime.Seconds(), 0), Draining: st.Draining},
		Worlds: []LobbyWorld{}, Rooms: []LobbyRoom{}, RoomsOmitted: max(0, len(st.Rooms)-maxListedRooms)}
	for _, w := range st.Worlds {
		v.Worlds = append(v.Worlds, LobbyWorld(w))
	}
	for _, r := range busiest(st.Rooms, maxListedRooms) {
		v.Rooms = append(v.Rooms, LobbyRoom{World: r.World, Room: r.Room, Players: r.Players, Seats: r.Seats, Hz: r.Hz,
			Beat:      LobbyBeat{round(r.Beat.Interval.P99, 2), r.Beat.Skipped, r.Beat.Dropped},
			BytesPerS: round(r.BytesOutPerSec, 0), AgeS: round(r.Age.Seconds(), 0)})
	}
	return v
}

// round keeps digits behind the point, and makes what JSON cannot say 0.
func round(v float64, digits int) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}
