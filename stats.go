package drumline

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/drumline-engine/drumline/beat"
	"github.com/drumline-engine/drumline/internal/hist"
)

// Stats is a picture of the server for /health, /metrics, the lobby and load tests. Counters count since the start.
type Stats struct {
	Start    time.Time
	Uptime   time.Duration
	Draining bool
	// Links counts connections, joined or not; Players counts taken seats; Waiting those of them whose link is down.
	Links, Players, Waiting int
	Joined                  uint64
	Resumed                 uint64
	// Refused and Closed count by Reason, Skipped and Dropped by Drop; every reason is present.
	Refused, Closed map[string]uint64
	Skipped         map[string]uint64
	Dropped         map[string]uint64
	// PacketsOut are state packets, PacketBytesOut the bytes of those and of reliable sections, without framing.
	PacketsOut, PacketBytesOut uint64
	MessagesIn                 uint64
	// Traffic adds up the counters of all links, ended ones too: bytes of messages, and what they became on sockets.
	Traffic                   LinkCounters
	WireBytesIn, WireBytesOut uint64
	Keyframes                 uint64
	// RoomsOpened and RoomsClosed count rooms; RoomErrors those closed by a panic, RoomHangs by the watchdog.
	RoomsOpened, RoomsClosed, RoomErrors, RoomHangs uint64

	Threads []ThreadStats
	Worlds  []WorldStats
	Rooms   []RoomStats
	// Pages is what clients reported, by world and transport; those that have not yet are not in it.
	Pages []PageStats
}

// ThreadStats describes one of the engine's own threads.
type ThreadStats struct {
	Role string `json:"role"` // beat or encoder
	// Priority is what the thread got: fifo, nice or none. Refused says why it did not get what was asked for.
	Priority  string  `json:"priority"`
	Refused   string  `json:"refused,omitempty"`
	LoadCores float64 `json:"load_cores"`
	Rooms     int     `json:"rooms"`
}

// WorldStats is one world of the lobby.
type WorldStats struct {
	Name, Title, About string
	Hz, SendHz, Seats  int
	Rooms, MaxRooms    int
	Players            int
	HasPage            bool
}

// RoomStats is one room. Rates are over the last second or so; beat figures over the last 1,200 steps.
type RoomStats struct {
	World, Room    string
	Epoch          uint8
	Tick           Tick
	Age            time.Duration
	Hz, SendHz     int
	Seats          int
	Players        int
	Waiting        int
	Beat           BeatStats
	BytesOutPerSec float64
	PacketsPerSec  float64
	PacketsOut     uint64
	PacketBytesOut uint64
	Keyframes      uint64
	Skipped        map[string]uint64
	// Held is the mean number of items a client holds; EncodeUs the mean time of one packet, RoundUs of one for all seats.
	Held, EncodeUs, RoundUs float64
	// Quality is what the pages of the room's seats reported since it opened.
	Quality QualityTotals
}

// BeatStats says how well a room kept its rate. Durations are of the last 1,200 steps; counters since the room opened.
type BeatStats struct {
	Steps, Late, Skipped, Doubled, Dropped, Stalls uint64
	Interval, Lateness, Step                       Quantiles
}

// Quantiles of a duration, in milliseconds if not said otherwise, and its mean.
type Quantiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// Window is what was measured over a stretch of time, for load tests. Skipped and Doubled are intervals over 1.5 and under
// 0.5 periods, per room, added.
type Window struct {
	For   time.Duration
	Steps uint64
	// Rooms' steps: skipped, doubled, dropped (not run after a stall), stalls (episodes of late steps).
	Skipped, Doubled, Dropped, Stalls uint64
	IntervalMs, LateMs, StepMs        Quantiles
	// EncodeUs is the time to build one packet, in µs; AgeMs from the scheduled send slot (the deadline of the step whose
	// frame is sent) to the bytes written.
	EncodeUs, AgeMs Quantiles
	PacketBytes     Quantiles // bytes, not ms
	Packets, Bytes  uint64
	// MessageBytesOut are the bytes of all messages before any compression, CompressedOut the number of messages that were
	// compressed, WireBytesOut what was written to sockets.
	MessageBytesOut uint64
	CompressedOut   uint64
	WireBytesOut    uint64
	Keyframes       uint64
	HeldMean        float64
	PeakMbit        float64 // the busiest second, wire bytes
	Skips           map[string]uint64
}

type serverCounters struct {
	joined, resumed, messagesIn                     atomic.Uint64
	roomsOpened, roomsClosed, roomErrors, roomHangs atomic.Uint64
	refused, closed                                 [numReasons]atomic.Uint64
}

// roomCounters count since the room opened.
type roomCounters struct {
	packets, bytes, keyframes, held atomic.Uint64
	encodeNs, roundNs, rounds       atomic.Uint64
	skipped, dropped                [numDrops]atomic.Uint64 // each Drop is used in one of the two
}

// roomTotals are roomCounters at one time, or the sum of those of rooms that have closed.
type roomTotals struct {
	packets, bytes, keyframes, held uint64
	encodeNs, roundNs, rounds       uint64
	skipped                         [numDrops]uint64
}

func (t *roomTotals) add(c *roomCounters) {
	t.packets += c.packets.Load()
	t.bytes += c.bytes.Load()
	t.keyframes += c.keyframes.Load()
	t.held += c.held.Load()
	t.encodeNs += c.encodeNs.Load()
	t.roundNs += c.roundNs.Load()
	t.rounds += c.rounds.Load()
	for i := range t.skipped {
		t.skipped[i] += c.skipped[i].Load() + c.dropped[i].Load()
	}
}

func (t *roomTotals) named(from, to Drop) map[string]uint64 {
	m := make(map[string]uint64, to-from)
	for d := from; d < to; d++ {
		m[d.Name()] = t.skipped[d]
	}
	return m
}

// live takes a room into the figures.
func (s *Server) live(r *Room) {
	s.mu.Lock()
	s.open[r] = roomRate{}
	s.mu.Unlock()
}

// retire takes it out again and keeps its counts, in one go, so that no sum ever falls.
func (s *Server) retire(r *Room) {
	s.counters.roomsClosed.Add(1)
	s.mu.Lock()
	s.retired.add(&r.counters)
	delete(s.open, r)
	if r.bound {
		delete(s.byBeat, r.beat)
	}
	s.mu.Unlock()
}

// rates are what the housekeeper works out once a second.
type rates struct {
	at   time.Time
	wire uint64  // wire bytes sent until then
	peak float64 // wire bytes a second, the most since the window began

	window      time.Time // since when
	windowTotal roomTotals
	windowWire  LinkCounters
}

type roomRate struct {
	packets, bytes         uint64 // at the last look
	packetsPerS, bytesPerS float64
}

func (s *Server) updateRates(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dt := now.Sub(s.rates.at).Seconds()
	first := s.rates.at.IsZero()
	s.rates.at = now
	for r, old := range s.open {
		nw := roomRate{packets: r.counters.packets.Load(), bytes: r.counters.bytes.Load()}
		if !first && dt > 0 {
			nw.packetsPerS = float64(nw.packets-old.packets) / dt
			nw.bytesPerS = float64(nw.bytes-old.bytes) / dt
		}
		s.open[r] = nw
	}
	wire := s.wire().WireBytesOut
	if !first && dt > 0 {
		s.rates.peak = max(s.rates.peak, float64(wire-s.rates.wire)/dt)
	}
	s.rates.wire = wire
}

// totals adds up all rooms, closed ones too. mu is held.
func (s *Server) totals() roomTotals {
	t := s.retired
	for r := range s.open {
		t.add(&r.counters)
	}
	return t
}

// wire adds up all links, ended ones too. mu is held.
func (s *Server) wire() LinkCounters {
	t := s.gone
	for c := range s.links {
		t.add(c.link.Counters())
	}
	return t
}

func (t *LinkCounters) add(n LinkCounters) {
	t.MessagesIn += n.MessagesIn
	t.MessagesOut += n.MessagesOut
	t.MessageBytesIn += n.MessageBytesIn
	t.MessageBytesOut += n.MessageBytesOut
	t.CompressedIn += n.CompressedIn
	t.CompressedOut += n.CompressedOut
	t.WireBytesIn += n.WireBytesIn
	t.WireBytesOut += n.WireBytesOut
}

// Stats returns a picture of the server. It costs a little per room; call it at most a few times a second.
func (s *Server) Stats() Stats {
	st := Stats{
		Start: s.started, Uptime: time.Since(s.started), Draining: s.draining.Load(),
		Joined: s.counters.joined.Load(), Resumed: s.counters.resumed.Load(), MessagesIn: s.counters.messagesIn.Load(),
		Refused: map[string]uint64{}, Closed: map[string]uint64{},
		RoomsOpened: s.counters.roomsOpened.Load(), RoomsClosed: s.counters.roomsClosed.Load(),
		RoomErrors: s.counters.roomErrors.Load(), RoomHangs: s.counters.roomHangs.Load(),
	}
	for i := range reasons {
		name := Reason(i).Name()
		st.Refused[name] = s.counters.refused[i].Load()
		st.Closed[name] = s.counters.closed[i].Load()
	}
	s.mu.Lock()
	total, wire := s.totals(), s.wire()
	st.Links = len(s.links)
	rate := maps.Clone(s.open)
	s.mu.Unlock()
	rooms := slices.SortedFunc(maps.Keys(rate), byName)
	st.Skipped, st.Dropped = total.named(0, firstDropped), total.named(firstDropped, numDrops)
	st.PacketsOut, st.PacketBytesOut, st.Keyframes = total.packets, total.bytes, total.keyframes
	st.Traffic, st.WireBytesIn, st.WireBytesOut = wire, wire.WireBytesIn, wire.WireBytesOut

	worlds := map[string]*WorldStats{}
	st.Worlds = make([]WorldStats, len(s.opt.Worlds))
	for i, d := range s.opt.Worlds {
		p := d.spec
		st.Worlds[i] = WorldStats{Name: p.Name, Title: p.Title, About: p.About, Hz: p.Hz, SendHz: p.SendHz, Seats: p.Seats,
			MaxRooms: p.Rooms, HasPage: p.Web != nil}
		worlds[p.Name] = &st.Worlds[i]
	}
	fresh := time.Second + time.Duration(len(rooms))*summaryCost
	for _, r := range rooms {
		rs := r.stats(rate[r], fresh)
		st.Rooms = append(st.Rooms, rs)
		st.Players += rs.Players
		st.Waiting += rs.Waiting
		w := worlds[rs.World]
		w.Rooms++
		w.Players += rs.Players
	}
	st.Threads = s.threads()
	st.Pages = s.pageStats()
	return st
}

func (r *Room) stats(rate roomRate, fresh time.Duration) RoomStats {
	var t roomTotals
	t.add(&r.counters)
	p := r.def.spec
	rs := RoomStats{
		World: p.Name, Room: r.name, Epoch: uint8(r.epochNow.Load()), Tick: Tick(r.tickNow.Load()), Age: r.srv.clock.Now() - r.opened,
		Hz: p.Hz, SendHz: p.SendHz, Seats: p.Seats, Players: int(r.players.Load()), Waiting: int(r.away.Load()),
		BytesOutPerSec: rate.bytesPerS, PacketsPerSec: rate.packetsPerS, PacketsOut: t.packets, PacketBytesOut: t.bytes,
		Keyframes: t.keyframes, Skipped: t.named(0, firstDropped), Quality: r.pages.totals(),
	}
	if t.packets > 0 {
		rs.Held = float64(t.held) / float64(t.packets)
		rs.EncodeUs = float64(t.encodeNs) / float64(t.packets) / 1e3
	}
	if t.rounds > 0 {
		rs.RoundUs = float64(t.roundNs) / float64(t.rounds) / 1e3
	}
	rs.Beat = r.beatStats(fresh)
	return rs
}

// summaryCost is added per room to the age that a room's quantiles may have: sorting 1,200 steps takes about 0.4 ms, and whoever
// asks for /health again and again must not cost the server more than a few percent of a core.
const summaryCost = 10 * time.Millisecond

// beatStats is how well the room kept its rate; quantiles may be as old as fresh. Any goroutine.
func (r *Room) beatStats(fresh time.Duration) BeatStats {
	r.srv.mu.Lock()
	b, old, at := r.beat, r.summary, r.summaryAt
	if !r.bound {
		b = nil
	}
	r.srv.mu.Unlock()
	switch {
	case b == nil:
		return BeatStats{}
	case !at.IsZero() && time.Since(at) < fresh:
		c := b.Counters()
		old.Steps, old.Late, old.Skipped, old.Doubled, old.Dropped, old.Stalls = c.Steps, c.Late, c.Skipped, c.Doubled, c.Dropped, c.Stalls
		return old
	}
	bs := b.Stats()
	now := BeatStats{Steps: bs.Steps, Late: bs.Counters.Late, Skipped: bs.Skipped, Doubled: bs.Doubled, Dropped: bs.Dropped,
		Stalls: bs.Stalls, Interval: ms(bs.Interval), Lateness: ms(bs.Late), Step: ms(bs.Step)}
	r.srv.mu.Lock()
	r.summary, r.summaryAt = now, time.Now()
	r.srv.mu.Unlock()
	return now
}

func ms(q beat.Quantiles) Quantiles {
	return Quantiles{q.Mean.Seconds() * 1e3, q.P50.Seconds() * 1e3, q.P90.Seconds() * 1e3, q.P99.Seconds() * 1e3, q.Max.Seconds() * 1e3}
}

// Window returns what was measured since the last ResetWindow, or the start.
func (s *Server) Window() Window {
	beats := s.beats.Window()
	dist := s.beats.Histograms()
	s.mu.Lock()
	defer s.mu.Unlock()
	total, wire := s.totals(), s.wire()
	old := &s.rates.windowTotal
	since := s.rates.window
	if since.IsZero() {
		since = s.started
	}
	w := Window{
		For: time.Since(since), Steps: beats.Steps, Skipped: beats.Skipped, Doubled: beats.Doubled, Dropped: beats.Dropped, Stalls: beats.Stalls,
		IntervalMs: quantiles(dist.Interval, 1e3), LateMs: quantiles(dist.Late, 1e3), StepMs: quantiles(dist.Step, 1e3),
		EncodeUs: quantiles(s.measure.encode.Snapshot(), 1e6), AgeMs: quantiles(s.measure.age.Snapshot(), 1e3), PacketBytes: quantiles(s.measure.bytes.Snapshot(), 1e6),
		Packets: total.packets - old.packets, Bytes: total.bytes - old.bytes, WireBytesOut: wire.WireBytesOut - s.rates.windowWire.WireBytesOut,
		MessageBytesOut: wire.MessageBytesOut - s.rates.windowWire.MessageBytesOut, CompressedOut: wire.CompressedOut - s.rates.windowWire.CompressedOut,
		Keyframes: total.keyframes - old.keyframes, PeakMbit: s.rates.peak * 8 / 1e6,
	}
	if w.Packets > 0 {
		w.HeldMean = float64(total.held-old.held) / float64(w.Packets)
	}
	d := total
	for i := range d.skipped {
		d.skipped[i] -= old.skipped[i]
	}
	w.Skips = d.named(0, numDrops)
	return w
}

func quantiles(s *hist.Snapshot, unit float64) Quantiles {
	q := func(p float64) float64 { return s.Quantile(p).Seconds() * unit }
	return Quantiles{s.Mean().Seconds() * unit, q(0.5), q(0.9), q(0.99), s.Max().Seconds() * unit}
}

// Distribution returns how many steps of all rooms since the start had a value of at most each of bounds (ascending), how many
// there were, and their sum. what is "step" (how long a step took), "late" (how late it began) or "interval" (since the one
// before).
func (s *Server) Distribution(what string, bounds []time.Duration) (cumulative []uint64, count uint64, sum time.Duration) {
	all := s.beats.TotalHistograms()
	h := all.Step
	switch what {
	case "late":
		h = all.Late
	case "interval":
		h = all.Interval
	}
	return h.Cumulative(nil, bounds), h.Count(), h.Sum()
}

// ResetWindow starts a new measurement window.
func (s *Server) ResetWindow() {
	s.beats.ResetWindow()
	s.measure.encode.Reset()
	s.measure.age.Reset()
	s.measure.bytes.Reset()
	s.mu.Lock()
	s.rates.window = time.Now()
	s.rates.windowTotal = s.totals()
	s.rates.windowWire = s.wire()
	s.rates.peak = 0
	s.mu.Unlock()
}

func (s *Server) threads() (out []ThreadStats) {
	for _, t := range s.beats.Stats().Threads {
		out = append(out, ThreadStats{Role: "beat", Priority: t.Priority, Refused: t.PriorityErr, LoadCores: t.LoadCores, Rooms: t.Beats})
	}
	up := time.Since(s.started)
	for _, e := range s.encoders {
		<-e.ready
		out = append(out, ThreadStats{Role: "encoder", Priority: e.priority, Refused: e.refused,
			LoadCores: time.Duration(e.busy.Load()).Seconds() / up.Seconds()})
	}
	return out
}
