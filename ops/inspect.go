package ops

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/drumline-engine/drumline"
)

// What the inspector page reads. The shapes have a twin in web/src/inspector.ts. Each answer is bounded: 200 rooms, 120 seconds,
// 1,200 steps, 256 seats, 512 rows of an account.

const (
	maxSeats = 256
	maxRows  = 512
)

// Rooms is the answer of /debug/rooms.
type Rooms struct {
	Server  RoomsServer            `json:"server"`
	Threads []drumline.ThreadStats `json:"threads"`
	// History is the last two minutes, oldest first.
	History []RoomsSecond `json:"history"`
	// Rooms lists at most 200 rooms, those with the most players first; RoomsOmitted counts the others.
	Rooms        []RoomRow `json:"rooms"`
	RoomsOmitted int       `json:"rooms_omitted"`
}

// RoomsServer is the server as a whole.
type RoomsServer struct {
	UptimeS    float64 `json:"uptime_s"`
	Draining   bool    `json:"draining"`
	Links      int     `json:"links"`
	Players    int     `json:"players"`
	Waiting    int     `json:"waiting"` // of them, those whose link is down
	CPUCores   float64 `json:"cpu_cores"`
	RSSMiB     float64 `json:"rss_mib"`
	Goroutines int     `json:"goroutines"`
}

// RoomsSecond is one second of the server's life: see drumline.Second.
type RoomsSecond struct {
	EndMs       int64   `json:"end_ms"` // Unix time
	BytesPerS   float64 `json:"bytes_per_s"`
	PacketsPerS float64 `json:"packets_per_s"`
	WirePerS    float64 `json:"wire_bytes_per_s"`
	AgeP99Ms    float64 `json:"age_p99_ms"`
	EncodeP99Us float64 `json:"encode_p99_us"`
}

// RoomRow is an open room. Durations of the beat are of its last 1,200 steps, its counters since it opened, rates of the last second,
// Held and EncodeUs means since it opened.
type RoomRow struct {
	World     string            `json:"world"`
	Room      string            `json:"room"`
	AgeS      float64           `json:"age_s"`
	Tick      uint32            `json:"tick"`
	Epoch     uint8             `json:"epoch"`
	Hz        int               `json:"hz"`
	SendHz    int               `json:"send_hz"`
	Seats     int               `json:"seats"`
	Players   int               `json:"players"`
	Waiting   int               `json:"waiting"`
	BytesPerS float64           `json:"bytes_per_s"`
	PacketsS  float64           `json:"packets_per_s"`
	Held      float64           `json:"held"`
	EncodeUs  float64           `json:"encode_us"`
	RoundUs   float64           `json:"round_us"`
	Skipped   map[string]uint64 `json:"skipped"` // packets, by reason
	Beat      HealthBeat        `json:"beat"`
	// Pages adds up what the room's pages reported since it opened.
	Pages RoomPages `json:"pages"`
}

// RoomPages is drumline.QualityTotals.
type RoomPages struct {
	Reports    uint64            `json:"reports"`
	SpanS      float64           `json:"span_s"`
	Frames     uint64            `json:"frames"`
	LongTasks  uint64            `json:"long_tasks"`
	Underruns  uint64            `json:"underrun_frames"`
	Jumps      uint64            `json:"jump_frames"`
	Rollbacks  uint64            `json:"rollbacks"`
	Unreadable uint64            `json:"unreadable"`
	Baseless   uint64            `json:"baseless"`
	Starved    uint64            `json:"starved"`
	Stutters   map[string]uint64 `json:"stutters"` // by cause
}

// Page is what a seat's page reported last: see drumline.Quality.
type Page struct {
	AgoS       float64        `json:"ago_s"`
	SpanMs     float64        `json:"span_ms"`
	FPS        float64        `json:"fps"`
	FrameP99Ms float64        `json:"frame_p99_ms"`
	FrameMaxMs float64        `json:"frame_max_ms"`
	LongTasks  int            `json:"long_tasks"`
	PingMs     float64        `json:"ping_ms"` // 0: unknown
	AgeMs      float64        `json:"state_age_ms"`
	BufferMs   float64        `json:"buffer_ms"`
	Underruns  int            `json:"underrun_frames"`
	Jumps      int            `json:"jump_frames"`
	Rollbacks  int            `json:"rollbacks"`
	Unreadable int            `json:"unreadable"`
	Baseless   int            `json:"baseless"`
	Starved    int            `json:"starved"`
	JoltP99    float64        `json:"jolt_p99"`
	Stutters   map[string]int `json:"stutters"` // by cause; only those above 0
}

// RoomDetail is the answer of /debug/room.
type RoomDetail struct {
	Room  RoomRow `json:"room"`
	Steps Steps   `json:"steps"`
	// Seats lists at most 256 seats by id; of more, those that have waited longest for an ack, then those that cost the most.
	Seats        []Seat `json:"seats"`
	SeatsOmitted int    `json:"seats_omitted"`
	Spent        Spent  `json:"spent"`
}

// Steps are the last steps of a room, oldest first, in columns of equal length.
type Steps struct {
	// AtMs is when each was due, in ms before the last one: 0 at the end.
	AtMs []float64 `json:"at_ms"`
	// LateMs is by how much it began late, IntervalMs the time since the one before began (0: it was the first), StepMs how
	// long it took.
	LateMs     []float64 `json:"late_ms"`
	IntervalMs []float64 `json:"interval_ms"`
	StepMs     []float64 `json:"step_ms"`
}

// Seat is one seat: see drumline.SeatStats.
type Seat struct {
	Seat        int               `json:"seat"`
	Name        string            `json:"name"`
	Link        string            `json:"link"` // empty: the player is away
	Ordered     bool              `json:"ordered"`
	SinceS      float64           `json:"since_s"`
	LinkSinceS  float64           `json:"link_since_s"`
	PingMs      float64           `json:"ping_ms"`
	AckDelayMs  float64           `json:"ack_delay_ms"`
	UnackedMs   float64           `json:"unacked_ms"`
	AgeMs       float64           `json:"age_ms"`
	InputMargin *int              `json:"input_margin"` // steps; null: no labelled input came yet
	QueuedBytes int               `json:"queued_bytes"`
	KernelBytes int               `json:"kernel_bytes"` // -1: unknown
	BytesPerS   float64           `json:"bytes_per_s"`
	PacketsPerS float64           `json:"packets_per_s"`
	Packets     uint64            `json:"packets"`
	Messages    uint64            `json:"messages"`
	Bytes       uint64            `json:"bytes"`
	WireOut     uint64            `json:"wire_bytes_out"` // of the present link
	WireIn      uint64            `json:"wire_bytes_in"`
	Keyframes   uint64            `json:"keyframes"`
	Events      uint64            `json:"events"`
	Held        int               `json:"held"`
	Skipped     map[string]uint64 `json:"skipped"` // packets not sent, by reason
	Dropped     map[string]uint64 `json:"dropped"` // parts of the client's messages not used, by reason
	Page        *Page             `json:"page"`    // null: its page has not reported
}

// Spent is where bytes went over a stretch of time: see drumline.Spent.
type Spent struct {
	ForS    float64    `json:"for_s"`
	Packets uint64     `json:"packets"`
	Bytes   uint64     `json:"bytes"`
	Rows    []SpentRow `json:"rows"` // most bits first, at most 512
	// RowsOmitted counts the smallest ones, which are left out.
	RowsOmitted int `json:"rows_omitted"`
}

// SpentRow is one line of Spent. Feed is empty for the engine's own: see drumline.SpentRow.
type SpentRow struct {
	Feed  string `json:"feed"`
	Label string `json:"label"`
	Bits  uint64 `json:"bits"`
	Count uint64 `json:"count"`
}

// Explained is the answer of /debug/explain.
type Explained struct {
	World  string `json:"world"`
	Room   string `json:"room"`
	Seat   Seat   `json:"seat"`
	Life   Spent  `json:"life"`
	Window Spent  `json:"window"`
}

// debugRooms lists the rooms. The picture of the server is shared with /health and at most a quarter of a second old.
func (h *handler) debugRooms(w http.ResponseWriter, _ *http.Request) {
	h.writeJSON(w, http.StatusOK, makeRooms(h.picture(healthMaxAge), h.src.History(), h.process.health(h.now())))
}

func makeRooms(st drumline.Stats, history []drumline.Second, p HealthProcess) Rooms {
	v := Rooms{Server: RoomsServer{UptimeS: round(st.Uptime.Seconds(), 1), Draining: st.Draining, Links: st.Links, Players: st.Players,
		Waiting: st.Waiting, CPUCores: p.CPUCores, RSSMiB: p.RSSMiB, Goroutines: p.Goroutines},
		Threads: append([]drumline.ThreadStats{}, st.Threads...), History: []RoomsSecond{}, Rooms: []RoomRow{}, RoomsOmitted: max(0, len(st.Rooms)-maxListedRooms)}
	for i := range v.Threads {
		v.Threads[i].LoadCores = round(v.Threads[i].LoadCores, 3)
	}
	for _, s := range history {
		v.History = append(v.History, RoomsSecond{s.End.UnixMilli(), round(s.BytesPerSec, 0), round(s.PacketsPerSec, 1), round(s.WirePerSec, 0),
			millis(s.AgeP99), round(s.EncodeP99.Seconds()*1e6, 1)})
	}
	for _, r := range busiest(st.Rooms, maxListedRooms) {
		v.Rooms = append(v.Rooms, makeRoomRow(r))
	}
	return v
}

func makeRoomRow(r drumline.RoomStats) RoomRow {
	return RoomRow{World: r.World, Room: r.Room, AgeS: round(r.Age.Seconds(), 1), Tick: uint32(r.Tick), Epoch: r.Epoch, Hz: r.Hz, SendHz: r.SendHz,
		Seats: r.Seats, Players: r.Players, Waiting: r.Waiting, BytesPerS: round(r.BytesOutPerSec, 0), PacketsS: round(r.PacketsPerSec, 1),
		Held: round(r.Held, 1), EncodeUs: round(r.EncodeUs, 1), RoundUs: round(r.RoundUs, 1), Skipped: r.Skipped, Beat: makeHealthBeat(r.Beat),
		Pages: makeRoomPages(r.Quality)}
}

// debugRoom looks into one room.
func (h *handler) debugRoom(w http.ResponseWriter, r *http.Request) {
	h.inspect(w, r, func(ctx context.Context, world, room string) (any, error) {
		in, err := h.src.Inspect(ctx, world, room)
		return makeRoomDetail(in), err
	})
}

// debugExplain tells where one client's bytes went.
func (h *handler) debugExplain(w http.ResponseWriter, r *http.Request) {
	seat, err := strconv.ParseUint(r.FormValue("seat"), 10, 16)
	if err != nil {
		http.Error(w, "400 give ?seat= as a number from 0", http.StatusBadRequest)
		return
	}
	h.inspect(w, r, func(ctx context.Context, world, room string) (any, error) {
		ex, err := h.src.Explain(ctx, world, room, drumline.SeatID(seat))
		return Explained{World: ex.World, Room: ex.Room, Seat: makeSeat(ex.Seat), Life: makeSpent(ex.Life), Window: makeSpent(ex.Window)}, err
	})
}

// inspectTimeout is how long the encoders may take to answer.
const inspectTimeout = 2 * time.Second

// inspect answers with what f finds out. One question is asked at a time, so many open pages cost the encoders no more of a
// moment than one.
func (h *handler) inspect(w http.ResponseWriter, r *http.Request, f func(ctx context.Context, world, room string) (any, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), inspectTimeout)
	defer cancel()
	var v any
	err := context.DeadlineExceeded
	select {
	case h.inspecting <- struct{}{}:
		func() {
			defer func() { <-h.inspecting }() // also after a panic, which net/http swallows
			v, err = f(ctx, r.FormValue("world"), r.FormValue("room"))
		}()
	case <-ctx.Done():
	}
	switch {
	case errors.Is(err, drumline.ErrClosed):
		http.Error(w, "404 there is no such room or seat: give ?world= and ?room=", http.StatusNotFound)
	case err != nil:
		http.Error(w, "503 the encoders did not answer in time", http.StatusServiceUnavailable)
	default:
		h.writeJSON(w, http.StatusOK, v)
	}
}

func makeRoomDetail(in drumline.Inspection) RoomDetail {
	v := RoomDetail{Room: makeRoomRow(in.Room), Steps: makeSteps(in.Steps), Seats: []Seat{}, SeatsOmitted: max(0, len(in.Seats)-maxSeats), Spent: makeSpent(in.Spent)}
	seats := in.Seats
	if v.SeatsOmitted > 0 {
		seats = slices.Clone(seats)
		slices.SortFunc(seats, func(a, b drumline.SeatStats) int {
			return cmp.Or(cmp.Compare(b.Unacked, a.Unacked), cmp.Compare(b.BytesPerSec, a.BytesPerSec), cmp.Compare(a.Seat, b.Seat))
		})
		seats = seats[:maxSeats]
		slices.SortFunc(seats, func(a, b drumline.SeatStats) int { return cmp.Compare(a.Seat, b.Seat) })
	}
	for _, s := range seats {
		v.Seats = append(v.Seats, makeSeat(s))
	}
	return v
}

func makeSteps(samples []drumline.StepSample) Steps {
	samples = samples[max(0, len(samples)-drumline.RecentSteps):]
	n := len(samples)
	v := Steps{make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)}
	for i, s := range samples {
		v.AtMs[i] = round((s.Scheduled-samples[n-1].Scheduled).Seconds()*1e3, 1)
		v.LateMs[i], v.IntervalMs[i], v.StepMs[i] = millis(s.Late), millis(s.Interval), millis(s.Step)
	}
	return v
}

func makeSeat(s drumline.SeatStats) Seat {
	v := Seat{Seat: int(s.Seat), Name: s.Name, Link: s.Link, Ordered: s.Ordered, SinceS: round(s.Since.Seconds(), 1), LinkSinceS: round(s.LinkSince.Seconds(), 1),
		PingMs: millis(s.Ping), AckDelayMs: millis(s.AckDelay), UnackedMs: millis(s.Unacked), AgeMs: millis(s.Age),
		QueuedBytes: s.QueuedBytes, KernelBytes: s.KernelBytes, BytesPerS: round(s.BytesPerSec, 0), PacketsPerS: round(s.PacketsPerSec, 1),
		Packets: s.Packets, Messages: s.Messages, Bytes: s.Bytes, WireOut: s.Wire.WireBytesOut, WireIn: s.Wire.WireBytesIn,
		Keyframes: s.Keyframes, Events: s.Events, Held: s.Held, Skipped: s.Skipped, Dropped: s.Dropped}
	if s.Quality != nil {
		v.Page = makePage(*s.Quality, s.QualityAge)
	}
	if s.InputMargin != drumline.MarginNone {
		m := int(s.InputMargin)
		v.InputMargin = &m
	}
	return v
}

func makePage(q drumline.Quality, ago time.Duration) *Page {
	v := &Page{AgoS: round(ago.Seconds(), 1), SpanMs: millis(q.Span), FPS: round(float64(q.Frames)/q.Span.Seconds(), 1), FrameP99Ms: millis(q.FrameP99),
		FrameMaxMs: millis(q.FrameMax), LongTasks: q.LongTasks, PingMs: millis(q.Ping), AgeMs: millis(q.Age), BufferMs: millis(q.Buffer), Underruns: q.Underruns,
		Jumps: q.Jumps, Rollbacks: q.Rollbacks, Unreadable: q.Unreadable, Baseless: q.Baseless, Starved: q.Starved, JoltP99: q.JoltP99, Stutters: map[string]int{}}
	for c, n := range q.Stutters {
		if n > 0 {
			v.Stutters[drumline.Cause(c).String()] = n
		}
	}
	return v
}

func makeRoomPages(t drumline.QualityTotals) RoomPages {
	v := RoomPages{Reports: t.Reports, SpanS: round(t.Span.Seconds(), 1), Frames: t.Frames, LongTasks: t.LongTasks, Underruns: t.Underruns, Jumps: t.Jumps,
		Rollbacks: t.Rollbacks, Unreadable: t.Unreadable, Baseless: t.Baseless, Starved: t.Starved, Stutters: t.Stutters}
	if v.Stutters == nil {
		v.Stutters = map[string]uint64{}
	}
	return v
}

func makeSpent(s drumline.Spent) Spent {
	v := Spent{ForS: round(s.For.Seconds(), 1), Packets: s.Packets, Bytes: s.Bytes, Rows: []SpentRow{}, RowsOmitted: max(0, len(s.Rows)-maxRows)}
	for _, r := range s.Rows[:min(len(s.Rows), maxRows)] {
		v.Rows = append(v.Rows, SpentRow(r))
	}
	return v
}

func millis(d time.Duration) float64 { return round(d.Seconds()*1e3, 3) }

// inspectorPage answers with the page itself. It holds no figures: a browser cannot send a token by going to an address, so where a
// token is set everybody gets the page, which then asks for it.
func (h *handler) inspectorPage(w http.ResponseWriter, r *http.Request) {
	if h.access.hasToken {
		h.o.Inspector.ServeHTTP(w, r)
		return
	}
	h.access.guard(h.o.Inspector).ServeHTTP(w, r)
}
