package ops

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/drumline-engine/drumline"
)

// metric is one line of docs/metrics.md and what stands behind it. The table in newCollector is the only place where a
// metric is named.
type metric struct {
	name, kind string // kind: counter, gauge or histogram
	labels     []string
	help       string
	desc       *prometheus.Desc
}

// Bounds of the histograms. A room at 60 Hz has 16.7 ms for a step, and its intervals should all fall between the bounds around that.
var (
	stepBounds = []time.Duration{10 * time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond,
		200 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
		10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, time.Second}
	lateBounds = []time.Duration{50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
		time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
		50 * time.Millisecond, 100 * time.Millisecond, time.Second}
	intervalBounds = []time.Duration{time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 8333 * time.Microsecond,
		15 * time.Millisecond, 16 * time.Millisecond, 17 * time.Millisecond, 18 * time.Millisecond, 20 * time.Millisecond,
		25 * time.Millisecond, 34 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, time.Second}
)

// otherRoom is the room label of all rooms without series of their own. Room names have no underscore in front.
const otherRoom = "_other"

// The drops that are packets, and those that are parts of client messages. A test compares the lists with package drumline's.
var (
	skips = []drumline.Drop{drumline.SkipBusy, drumline.SkipSlow, drumline.SkipQuiet, drumline.SkipQueued,
		drumline.SkipEncoder, drumline.SkipClean, drumline.SkipWindow}
	drops = []drumline.Drop{drumline.DropInputLate, drumline.DropInputFuture, drumline.DropInputRepeat, drumline.DropCommand, drumline.DropInputSeen,
		drumline.DropReport, drumline.DropReportBound}
)

// distribution is Source.Distribution.
type distribution func(what string, bounds []time.Duration) (cumulative []uint64, count uint64, sum time.Duration)

// collector turns the server's figures into metrics when it is asked.
type collector struct {
	picture func() drumline.Stats
	dist    distribution
	conns   func() Conns
	access  *access
	series  int

	table []*metric
	// Server-wide.
	uptime, draining, links, players, waiting, joined, resumed, refused, closed, skipped, dropped, packets, packetBytes,
	keyframes, messages, messageBytesIn, messageBytesOut, compressedIn, compressedOut, wireIn, wireOut, roomsOpened, roomsClosed, roomErrors, roomHangs, step, late, interval,
	threadLoad, threadRooms, threadPriority, worldRooms, worldRoomLimit, worldPlayers,
	httpOpen, httpWaiting, httpEvicted, opsRefused *metric
	// What pages reported, by world and transport.
	page struct {
		reports, span, frames, longTasks, underruns, jumps, rollbacks, unread, starved, stutters, frame, ping, age *metric
	}
	// Per room.
	room struct {
		players, waiting, age, steps, late, skipped, doubled, dropped, stalls, stepRecent, lateRecent, intervalRecent,
		packets, packetBytes, keyframes, packetsSkipped, round, encode, held *metric
	}

	// mu guards what is remembered between two scrapes.
	mu    sync.Mutex
	shown map[roomKey]bool // rooms that have series of their own, until they close
	last  map[roomKey]roomCounts
	other map[string]roomCounts // by world
}

type roomKey struct{ world, room string }

// roomCounts are a room's counters, in a form that can be added.
type roomCounts struct {
	steps, late, skipped, doubled, dropped, stalls, packets, packetBytes, keyframes uint64
	packetsSkipped                                                                  [16]uint64 // by Drop
}

func newCollector(picture func() drumline.Stats, dist distribution, conns func() Conns, a *access, series int) *collector {
	c := &collector{picture: picture, dist: dist, conns: conns, access: a, series: series,
		shown: map[roomKey]bool{}, last: map[roomKey]roomCounts{}, other: map[string]roomCounts{}}
	add := func(name, kind, help string, labels ...string) *metric {
		m := &metric{name: "drumline_" + name, kind: kind, labels: labels, help: help}
		m.desc = prometheus.NewDesc(m.name, help, labels, nil)
		c.table = append(c.table, m)
		return m
	}
	c.uptime = add("uptime_seconds", "gauge", "Time since the server started.")
	c.draining = add("draining", "gauge", "1 while the server is shutting down and admits nobody, else 0.")
	c.links = add("links", "gauge", "Open client connections, joined or not.")
	c.players = add("players", "gauge", "Taken seats, including those whose link is down.")
	c.waiting = add("waiting_seats", "gauge", "Taken seats whose link is down and whose player may still come back.")
	c.joined = add("joins_total", "counter", "Players let into a room.")
	c.resumed = add("resumes_total", "counter", "Players who came back to their seat after a lost link.")
	c.refused = add("refusals_total", "counter", "Clients turned away before they had a seat, by reason.", "reason")
	c.closed = add("closes_total", "counter", "Links that ended after they had been accepted, by reason.", "reason")
	c.skipped = add("packets_skipped_total", "counter", "State packets left out because a newer one will replace them, by reason.", "reason")
	c.dropped = add("drops_total", "counter", "Parts of client messages that were not used, by reason.", "reason")
	c.packets = add("packets_sent_total", "counter", "State packets sent.")
	c.packetBytes = add("packet_bytes_sent_total", "counter", "Bytes of state packets sent, without the framing of the transport.")
	c.keyframes = add("keyframes_sent_total", "counter", "State packets that can be read without any earlier one: joins and resumes.")
	c.messages = add("messages_received_total", "counter", "Messages received from clients.")
	c.messageBytesIn = add("message_bytes_received_total", "counter", "Bytes of messages received from clients, without framing and inflated.")
	c.messageBytesOut = add("message_bytes_sent_total", "counter", "Bytes of messages sent to clients, without framing and before any compression.")
	c.compressedIn = add("messages_received_compressed_total", "counter", "Messages received from clients that were compressed.")
	c.compressedOut = add("messages_sent_compressed_total", "counter", "Messages sent to clients that were compressed.")
	c.wireIn = add("wire_bytes_received_total", "counter", "Bytes read from client sockets, framing included.")
	c.wireOut = add("wire_bytes_sent_total", "counter", "Bytes written to client sockets, framing included.")
	c.roomsOpened = add("rooms_opened_total", "counter", "Rooms opened.")
	c.roomsClosed = add("rooms_closed_total", "counter", "Rooms closed, for whatever reason.")
	c.roomErrors = add("room_errors_total", "counter", "Rooms closed because their world panicked or could not open.")
	c.roomHangs = add("room_hangs_total", "counter", "Rooms closed because a step did not return in time.")
	c.step = add("step_seconds", "histogram", "Time that a step of a room took, all rooms together.")
	c.late = add("step_lateness_seconds", "histogram", "Time between a step's deadline and its beginning, all rooms together.")
	c.interval = add("step_interval_seconds", "histogram", "Time between the beginnings of a room's steps, all rooms together.")
	c.threadLoad = add("thread_load_cores", "gauge", "Share of a core that an engine thread is busy.", "role", "thread")
	c.threadRooms = add("thread_rooms", "gauge", "Rooms that an engine thread serves.", "role", "thread")
	c.threadPriority = add("thread_priority_info", "gauge",
		"Always 1: the scheduling priority that an engine thread got (fifo, nice or none) and, if it is not the one asked for, why.",
		"role", "thread", "priority", "refused")
	c.worldRooms = add("world_rooms", "gauge", "Open rooms of a world.", "world")
	c.worldRoomLimit = add("world_room_limit", "gauge", "Rooms of a world that may be open at once.", "world")
	c.worldPlayers = add("world_players", "gauge", "Taken seats in a world.", "world")
	c.httpOpen = add("http_connections", "gauge", "Open HTTP connections; those that became WebSockets are links instead.")
	c.httpWaiting = add("http_connections_waiting", "gauge", "HTTP connections without a request being answered: silent, half a request, or kept alive.")
	c.httpEvicted = add("http_connections_evicted_total", "counter", "Waiting HTTP connections closed, the oldest first, to make room for new ones.")
	c.opsRefused = add("ops_refusals_total", "counter", "Requests to /metrics and /debug that were turned away, by reason.", "reason")

	p := &c.page
	page := func(name, kind, help string, labels ...string) *metric {
		return add("page_"+name, kind, help, append([]string{"world", "transport"}, labels...)...)
	}
	p.reports = page("reports_total", "counter", "Reports of pages on the motion they showed. All page_ figures are the clients' word, held to what is possible.")
	p.span = page("seconds_total", "counter", "Time that the reports cover, of all pages together.")
	p.frames = page("frames_total", "counter", "Frames that pages drew.")
	p.longTasks = page("long_tasks_total", "counter", "Tasks that held up a page for over 50 ms, where its browser tells.")
	p.underruns = page("underrun_frames_total", "counter", "Frames that showed more than 34 ms past the newest packet.")
	p.jumps = page("jump_frames_total", "counter", "Frames in which something moved otherwise than it was told to.")
	p.rollbacks = page("rollbacks_total", "counter", "Corrections of the own entity's prediction.")
	p.unread = page("packets_unread_total", "counter", "Packets that a page could not read: corrupt, or for want of an earlier one.", "fault")
	p.starved = page("starved_packets_total", "counter", "Packets that told a page that its newest input had come too late for its step.")
	p.stutters = page("stutters_total", "counter", "Times that the motion in a page stuttered, by what made it: server, network or page.", "cause")
	p.frame = page("frame_seconds", "histogram", "99th percentile of the time between two frames of a page, by report.")
	p.ping = page("ping_seconds", "histogram", "Round trip of an input, as pages measure it, by report.")
	p.age = page("state_age_seconds", "histogram", "Age of what a page shows against the server's present, by report.")

	r, wr := &c.room, []string{"world", "room"}
	room := func(name, kind, help string, labels ...string) *metric {
		return add("room_"+name, kind, help, append(slices.Clone(wr), labels...)...)
	}
	r.players = room("players", "gauge", "Taken seats of a room.")
	r.waiting = room("waiting_seats", "gauge", "Taken seats of a room whose link is down.")
	r.age = room("age_seconds", "gauge", "Time since the room opened (of _other: the oldest).")
	r.steps = room("steps_total", "counter", "Steps of a room that were run.")
	r.late = room("steps_late_total", "counter", "Steps of a room that began late by more than half a period.")
	r.skipped = room("steps_skipped_total", "counter", "Intervals between steps over 1.5 periods.")
	r.doubled = room("steps_doubled_total", "counter", "Intervals between steps under half a period.")
	r.dropped = room("steps_dropped_total", "counter", "Steps of a room that were never run, because after a stall only a few are made up for.")
	r.stalls = room("stalls_total", "counter", "Episodes in which a room's steps began late by more than half a period.")
	r.stepRecent = room("step_recent_seconds", "gauge", "Mean, p50, p90, p99 and max of the time that a step took, over the last 1,200 steps (of _other: the worst room's).", "stat")
	r.lateRecent = room("step_lateness_recent_seconds", "gauge", "Mean, p50, p90, p99 and max of how late a step began, over the last 1,200 steps (of _other: the worst room's).", "stat")
	r.intervalRecent = room("step_interval_recent_seconds", "gauge", "Mean, p50, p90, p99 and max of the time between steps, over the last 1,200 steps (of _other: the worst room's).", "stat")
	r.packets = room("packets_sent_total", "counter", "State packets sent to a room's seats.")
	r.packetBytes = room("packet_bytes_sent_total", "counter", "Bytes of state packets sent to a room's seats, without framing.")
	r.keyframes = room("keyframes_sent_total", "counter", "State packets to a room's seats that can be read without any earlier one.")
	r.packetsSkipped = room("packets_skipped_total", "counter", "State packets to a room's seats that were left out, by reason.", "reason")
	r.round = room("round_seconds", "gauge", "Mean time to build and write one frame's packets for all seats of a room (of _other: the worst room's).")
	r.encode = room("encode_seconds", "gauge", "Mean time to build one packet (of _other: the worst room's).")
	r.held = room("held_items", "gauge", "Mean number of items (entities, documents, nodes) that a client of the room holds (of _other: the largest).")
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.table {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.picture()
	emit := func(m *metric, v float64, labels ...string) {
		kind := prometheus.GaugeValue
		if m.kind == "counter" {
			kind = prometheus.CounterValue
		}
		pm, err := prometheus.NewConstMetric(m.desc, kind, v, labels...)
		if err != nil {
			pm = prometheus.NewInvalidMetric(m.desc, err)
		}
		ch <- pm
	}
	count := func(m *metric, n uint64, labels ...string) { emit(m, float64(n), labels...) }

	emit(c.uptime, st.Uptime.Seconds())
	draining := 0.0
	if st.Draining {
		draining = 1
	}
	emit(c.draining, draining)
	emit(c.links, float64(st.Links))
	emit(c.players, float64(st.Players))
	emit(c.waiting, float64(st.Waiting))
	count(c.joined, st.Joined)
	count(c.resumed, st.Resumed)
	// By the lists, not by the maps: every series is there from the first scrape on, so that a rate sees the first event.
	for _, r := range drumline.Reasons() {
		count(c.refused, st.Refused[r.Name()], r.Name())
		count(c.closed, st.Closed[r.Name()], r.Name())
	}
	for _, d := range skips {
		count(c.skipped, st.Skipped[d.Name()], d.Name())
	}
	for _, d := range drops {
		count(c.dropped, st.Dropped[d.Name()], d.Name())
	}
	count(c.packets, st.PacketsOut)
	count(c.packetBytes, st.PacketBytesOut)
	count(c.keyframes, st.Keyframes)
	count(c.messages, st.MessagesIn)
	count(c.messageBytesIn, st.Traffic.MessageBytesIn)
	count(c.messageBytesOut, st.Traffic.MessageBytesOut)
	count(c.compressedIn, st.Traffic.CompressedIn)
	count(c.compressedOut, st.Traffic.CompressedOut)
	count(c.wireIn, st.WireBytesIn)
	count(c.wireOut, st.WireBytesOut)
	count(c.roomsOpened, st.RoomsOpened)
	count(c.roomsClosed, st.RoomsClosed)
	count(c.roomErrors, st.RoomErrors)
	count(c.roomHangs, st.RoomHangs)
	c.distribution(ch, c.step, "step", stepBounds)
	c.distribution(ch, c.late, "late", lateBounds)
	c.distribution(ch, c.interval, "interval", intervalBounds)
	perRole := map[string]int{}
	for _, t := range st.Threads {
		n := strconv.Itoa(perRole[t.Role])
		perRole[t.Role]++
		emit(c.threadLoad, t.LoadCores, t.Role, n)
		emit(c.threadRooms, float64(t.Rooms), t.Role, n)
		emit(c.threadPriority, 1, t.Role, n, t.Priority, t.Refused)
	}
	for _, w := range st.Worlds {
		emit(c.worldRooms, float64(w.Rooms), w.Name)
		emit(c.worldRoomLimit, float64(w.MaxRooms), w.Name)
		emit(c.worldPlayers, float64(w.Players), w.Name)
	}
	for _, p := range st.Pages {
		c.emitPages(ch, emit, count, p)
	}
	conns := c.conns()
	emit(c.httpOpen, float64(conns.Open))
	emit(c.httpWaiting, float64(conns.Waiting))
	count(c.httpEvicted, conns.Evicted)
	for i := range refusals {
		count(c.opsRefused, c.access.refused[i].Load(), refusals[i].name)
	}
	for _, r := range c.fold(st) {
		c.emitRoom(emit, count, r)
	}
}

func (c *collector) distribution(ch chan<- prometheus.Metric, m *metric, what string, bounds []time.Duration) {
	cumulative, n, sum := c.dist(what, bounds)
	if len(cumulative) != len(bounds) {
		ch <- prometheus.NewInvalidMetric(m.desc, fmt.Errorf("ops: %d counts for %d bounds", len(cumulative), len(bounds)))
		return
	}
	pm, err := prometheus.NewConstHistogram(m.desc, n, sum.Seconds(), buckets(cumulative, bounds))
	if err != nil {
		pm = prometheus.NewInvalidMetric(m.desc, err)
	}
	ch <- pm
}

func buckets(cumulative []uint64, bounds []time.Duration) map[float64]uint64 {
	m := make(map[float64]uint64, len(bounds))
	for i, b := range bounds {
		m[b.Seconds()] = cumulative[i]
	}
	return m
}

func (c *collector) emitPages(ch chan<- prometheus.Metric, emit func(*metric, float64, ...string), count func(*metric, uint64, ...string), p drumline.PageStats) {
	m, w, t := &c.page, p.World, p.Transport
	count(m.reports, p.Reports, w, t)
	emit(m.span, p.Span.Seconds(), w, t)
	count(m.frames, p.Frames, w, t)
	count(m.longTasks, p.LongTasks, w, t)
	count(m.underruns, p.Underruns, w, t)
	count(m.jumps, p.Jumps, w, t)
	count(m.rollbacks, p.Rollbacks, w, t)
	count(m.unread, p.Unreadable, w, t, "corrupt")
	count(m.unread, p.Baseless, w, t, "baseless")
	count(m.starved, p.Starved, w, t)
	for cause := range drumline.NumCauses {
		count(m.stutters, p.Stutters[cause.String()], w, t, cause.String())
	}
	bounds := drumline.PageBounds()
	for _, d := range []struct {
		m *metric
		d drumline.PageDistribution
	}{{m.frame, p.Frame}, {m.ping, p.Ping}, {m.age, p.Age}} {
		if len(d.d.Cumulative) != len(bounds) {
			ch <- prometheus.NewInvalidMetric(d.m.desc, fmt.Errorf("ops: %d counts for %d bounds", len(d.d.Cumulative), len(bounds)))
			continue
		}
		pm, err := prometheus.NewConstHistogram(d.m.desc, d.d.Count, d.d.Sum.Seconds(), buckets(d.d.Cumulative, bounds), w, t)
		if err != nil {
			pm = prometheus.NewInvalidMetric(d.m.desc, err)
		}
		ch <- pm
	}
}

// roomSeries is what one set of room series shows: a room, or the sum of all that have none of their own.
type roomSeries struct {
	drumline.RoomStats
	roomCounts
}

// fold chooses the rooms with series of their own and adds up the others by world.
//
// A room that has series keeps them until it closes, so that its counters stay whole. The counters of _other grow by what
// each room without series has counted since the scrape before; were they a plain sum, they would fall whenever a room
// closes, and a rate over them would be wrong.
func (c *collector) fold(st drumline.Stats) []roomSeries {
	open := make(map[roomKey]bool, len(st.Rooms))
	for _, r := range st.Rooms {
		open[roomKey{r.World, r.Room}] = true
	}
	for k := range c.last {
		if !open[k] {
			delete(c.last, k)
			delete(c.shown, k)
		}
	}
	series := make([]roomSeries, 0, min(len(st.Rooms), c.series)+len(st.Worlds))
	others := map[string]*roomSeries{}
	for _, r := range busiest(st.Rooms, len(st.Rooms)) {
		k, now := roomKey{r.World, r.Room}, countsOf(r)
		before := c.last[k]
		c.last[k] = now
		if !c.shown[k] && len(c.shown) < c.series && r.Room != otherRoom {
			c.shown[k] = true
		}
		if c.shown[k] {
			series = append(series, roomSeries{r, now})
			continue
		}
		total := c.other[r.World]
		total.add(now.since(before))
		c.other[r.World] = total
		if others[r.World] == nil {
			others[r.World] = &roomSeries{RoomStats: drumline.RoomStats{World: r.World, Room: otherRoom}}
		}
		others[r.World].worst(r)
	}
	// Once a world has an _other, it stays, with its counters where they were.
	for world, total := range c.other {
		o := others[world]
		if o == nil {
			o = &roomSeries{RoomStats: drumline.RoomStats{World: world, Room: otherRoom}}
		}
		o.roomCounts = total
		series = append(series, *o)
	}
	slices.SortFunc(series, func(a, b roomSeries) int {
		return cmp.Or(cmp.Compare(a.World, b.World), cmp.Compare(a.Room, b.Room))
	})
	return series
}

func countsOf(r drumline.RoomStats) roomCounts {
	n := roomCounts{steps: r.Beat.Steps, late: r.Beat.Late, skipped: r.Beat.Skipped, doubled: r.Beat.Doubled,
		dropped: r.Beat.Dropped, stalls: r.Beat.Stalls, packets: r.PacketsOut, packetBytes: r.PacketBytesOut,
		keyframes: r.Keyframes}
	for _, d := range skips {
		n.packetsSkipped[d] = r.Skipped[d.Name()]
	}
	return n
}

// fields lists the counters, so that nothing is forgotten where they are added and subtracted.
func (n *roomCounts) fields() []*uint64 {
	f := []*uint64{&n.steps, &n.late, &n.skipped, &n.doubled, &n.dropped, &n.stalls, &n.packets, &n.packetBytes, &n.keyframes}
	for i := range n.packetsSkipped {
		f = append(f, &n.packetsSkipped[i])
	}
	return f
}

func (n *roomCounts) add(o roomCounts) {
	of := o.fields()
	for i, p := range n.fields() {
		*p += *of[i]
	}
}

// since returns what was counted after before. A counter that has fallen belongs to a new room of the same name.
func (n roomCounts) since(before roomCounts) roomCounts {
	bf := before.fields()
	for i, p := range n.fields() {
		if *p >= *bf[i] {
			*p -= *bf[i]
		}
	}
	return n
}

// worst adds room r's gauges to those of _other: sums of what adds up, else the worst.
func (s *roomSeries) worst(r drumline.RoomStats) {
	s.Players += r.Players
	s.Waiting += r.Waiting
	s.Age = max(s.Age, r.Age)
	for _, q := range [][2]*drumline.Quantiles{{&s.Beat.Step, &r.Beat.Step}, {&s.Beat.Lateness, &r.Beat.Lateness},
		{&s.Beat.Interval, &r.Beat.Interval}} {
		a, b := q[0], q[1]
		a.Mean, a.P50, a.P90, a.P99, a.Max = max(a.Mean, b.Mean), max(a.P50, b.P50), max(a.P90, b.P90), max(a.P99, b.P99), max(a.Max, b.Max)
	}
	s.RoundUs, s.EncodeUs, s.Held = max(s.RoundUs, r.RoundUs), max(s.EncodeUs, r.EncodeUs), max(s.Held, r.Held)
}

func (c *collector) emitRoom(emit func(*metric, float64, ...string), count func(*metric, uint64, ...string), s roomSeries) {
	m, w, r := &c.room, s.World, s.Room
	emit(m.players, float64(s.Players), w, r)
	emit(m.waiting, float64(s.RoomStats.Waiting), w, r)
	emit(m.age, s.Age.Seconds(), w, r)
	count(m.steps, s.steps, w, r)
	count(m.late, s.late, w, r)
	count(m.skipped, s.skipped, w, r)
	count(m.doubled, s.doubled, w, r)
	count(m.dropped, s.dropped, w, r)
	count(m.stalls, s.stalls, w, r)
	quantiles := func(m *metric, q drumline.Quantiles) {
		emit(m, q.Mean/1e3, w, r, "mean")
		emit(m, q.P50/1e3, w, r, "p50")
		emit(m, q.P90/1e3, w, r, "p90")
		emit(m, q.P99/1e3, w, r, "p99")
		emit(m, q.Max/1e3, w, r, "max")
	}
	quantiles(m.stepRecent, s.Beat.Step)
	quantiles(m.lateRecent, s.Beat.Lateness)
	quantiles(m.intervalRecent, s.Beat.Interval)
	count(m.packets, s.packets, w, r)
	count(m.packetBytes, s.packetBytes, w, r)
	count(m.keyframes, s.keyframes, w, r)
	for _, d := range skips {
		count(m.packetsSkipped, s.packetsSkipped[d], w, r, d.Name())
	}
	emit(m.round, s.RoundUs/1e6, w, r)
	emit(m.encode, s.EncodeUs/1e6, w, r)
	emit(m.held, s.Held, w, r)
}

func (h *handler) metricsHandler() (http.Handler, error) {
	reg := prometheus.NewPedanticRegistry()
	for _, c := range []prometheus.Collector{
		newCollector(func() drumline.Stats { return h.picture(healthMaxAge) }, h.src.Distribution, h.o.Conns, h.access, h.o.RoomSeries),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		// The scheduler's own delay tells a busy process from a busy room.
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(
			collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/sched/latencies:seconds$`)})),
		collectors.NewBuildInfoCollector(),
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("ops: metrics: %w", err)
		}
	}
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(h.o.Logger.Handler(), slog.LevelError),
		// One broken series must not hide the others.
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	}), nil
}
