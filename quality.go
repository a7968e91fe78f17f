package drumline

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drumline-engine/drumline/internal/hist"
)

// What pages measure of the motion that they show, and tell the server. It is a client's word: nothing in the engine depends on it, every
// number is held to what is possible, and a link has so many reports a second. web/src/meter.ts is the other end.

// Report message:
//
//	 0 u8  kind       6
//	 1 u8  server     stutters since the report before, by what made them
//	 2 u8  network
//	 3 u8  page
//	 4 u16 span       ms that this covers
//	 6 u16 frames     that were drawn
//	 8 u16 frame      99th percentile of the time between two, in 1/8 ms; of the worst second
//	10 u16 longest    of them, in 1/8 ms
//	12 u16 longTasks  that held up the page for over 50 ms; 0 also where the browser cannot tell
//	14 u16 ping       round trip of an input, in 1/8 ms; 0: unknown
//	16 u16 age        of what is shown, in 1/8 ms; of the worst second
//	18 u16 buffer     in 1/8 ms
//	20 u16 underruns  frames that showed more than 34 ms past the newest packet
//	22 u16 jumps      frames in which something jumped
//	24 u16 rollbacks  corrections of the own entity
//	26 u16 unreadable packets that were refused
//	28 u16 baseless   packets that could not be read for want of an earlier one
//	30 u16 starved    packets that said: the newest input came too late for its step
//	32 f32 jolt       99th percentile of the second difference of places shown, in the world's units; of the worst second
const reportBytes = 36

// reportEvery is how often a page may report; the welcome says so. Reports that a slow link brought at once are taken up to reportBurst.
const (
	reportEvery = 2 * time.Second
	reportBurst = 8
)

// Bounds of what a report may say.
const (
	maxReportSpan = 10 * time.Second
	maxFrameHz    = 500
	maxJolt       = 1e9
)

// Cause is what made the motion in a page stutter, by what the page saw of frames and packets.
type Cause uint8

// The causes.
const (
	CauseServer  Cause = iota // the room's steps stopped
	CauseNetwork              // packets came late or not at all
	CausePage                 // the page itself was busy
	NumCauses
)

var causeNames = [NumCauses]string{"server", "network", "page"}

// String is "server", "network" or "page".
func (c Cause) String() string { return causeNames[c] }

// Quality is what a client's page measured over a stretch of time, held to what is possible. It is the client's word.
type Quality struct {
	Span   time.Duration
	Frames int // drawn
	// FrameP99 and FrameMax are of the time between two frames. P99s and Age are those of the worst second.
	FrameP99, FrameMax time.Duration
	// LongTasks held up the page for over 50 ms; 0 also where the browser cannot tell.
	LongTasks int
	// Ping is the round trip of an input (0: unknown), Age that of what is shown against the server's present, Buffer the part of it
	// that is on purpose.
	Ping, Age, Buffer time.Duration
	// Underruns are frames that showed more than 34 ms past the newest packet, Jumps those in which something moved otherwise than it
	// was told to; Rollbacks are corrections of the own entity.
	Underruns, Jumps, Rollbacks int
	// Unreadable packets were refused, Baseless ones could not be read for want of an earlier one, as happens on links that lose
	// packets; Starved ones said that the newest input had come too late for its step.
	Unreadable, Baseless, Starved int
	// JoltP99 is of the second difference of the places shown from frame to frame, in the world's units.
	JoltP99 float64
	// Stutters count by Cause.
	Stutters [NumCauses]int
}

// AppendReport appends q as a client's report. Numbers that are too large for it are sent as the largest.
func AppendReport(dst []byte, q Quality) []byte {
	dst = append(dst, KindReport)
	for _, n := range q.Stutters {
		dst = append(dst, byte(min(n, math.MaxUint8)))
	}
	eighths := func(d time.Duration) int { return int((d + time.Millisecond/16) / (time.Millisecond / 8)) }
	for _, n := range [...]int{int(q.Span / time.Millisecond), q.Frames, eighths(q.FrameP99), eighths(q.FrameMax), q.LongTasks, eighths(q.Ping),
		eighths(q.Age), eighths(q.Buffer), q.Underruns, q.Jumps, q.Rollbacks, q.Unreadable, q.Baseless, q.Starved} {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(max(0, min(n, math.MaxUint16))))
	}
	return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(q.JoltP99)))
}

// parseReport reads a report of reportBytes and holds it to what is possible. moved: something was not, and is now the nearest that
// is. ok is false if it says nothing: no time, or a jolt that is no size.
func parseReport(msg []byte, sendHz int) (q Quality, moved, ok bool) {
	at := 4
	next := func() int {
		n := binary.LittleEndian.Uint16(msg[at:])
		at += 2
		return int(n)
	}
	eighths := func() time.Duration { return time.Duration(next()) * (time.Millisecond / 8) }
	q.Span = time.Duration(next()) * time.Millisecond
	q.Frames = next()
	q.FrameP99, q.FrameMax = eighths(), eighths()
	q.LongTasks = next()
	q.Ping, q.Age, q.Buffer = eighths(), eighths(), eighths()
	q.Underruns, q.Jumps, q.Rollbacks = next(), next(), next()
	q.Unreadable, q.Baseless, q.Starved = next(), next(), next()
	q.JoltP99 = float64(math.Float32frombits(binary.LittleEndian.Uint32(msg[at:])))
	if q.Span == 0 || !(q.JoltP99 >= 0) || math.IsInf(q.JoltP99, 0) {
		return Quality{}, false, false
	}
	if q.Span > maxReportSpan {
		q.Span, moved = maxReportSpan, true
	}
	atMost := func(n *int, most int) {
		if *n > most {
			*n, moved = most, true
		}
	}
	ms := int(q.Span / time.Millisecond)
	// What waited for a sleeping page comes all at once.
	packets := ms*sendHz/1000 + 4*sendHz
	atMost(&q.Frames, ms*maxFrameHz/1000+1)
	atMost(&q.LongTasks, ms/50+1)
	for _, n := range []*int{&q.Underruns, &q.Jumps, &q.Rollbacks} {
		atMost(n, q.Frames)
	}
	for _, n := range []*int{&q.Unreadable, &q.Baseless, &q.Starved} {
		atMost(n, packets)
	}
	if q.FrameP99 > q.FrameMax {
		q.FrameP99, moved = q.FrameMax, true
	}
	if q.JoltP99 > maxJolt {
		q.JoltP99, moved = maxJolt, true
	}
	left := ms/1000 + 1 // a page judges once a second
	for c := range q.Stutters {
		q.Stutters[c] = int(msg[1+c])
		atMost(&q.Stutters[c], left)
		left -= q.Stutters[c]
	}
	return q, moved, true
}

// QualityTotals adds up reports.
type QualityTotals struct {
	Reports   uint64
	Span      time.Duration
	Frames    uint64
	LongTasks uint64
	// Underruns, Jumps and the rest are Quality's.
	Underruns, Jumps, Rollbacks   uint64
	Unreadable, Baseless, Starved uint64
	// Stutters count by what made them; every Cause is present.
	Stutters map[string]uint64
}

// PageStats adds up what the pages of one world reported over one transport, since the start.
type PageStats struct {
	World, Transport string
	QualityTotals
	// Frame, Ping and Age distribute the reports' FrameP99, Ping (where it is known) and Age.
	Frame, Ping, Age PageDistribution
}

// PageDistribution says how many reports had a value of at most each of PageBounds, how many there were, and their sum.
type PageDistribution struct {
	Cumulative []uint64
	Count      uint64
	Sum        time.Duration
}

// PageBounds are those of PageDistribution: frames at 120, 60 and 30 Hz, and the distances of the world.
func PageBounds() []time.Duration {
	return []time.Duration{5 * time.Millisecond, 9 * time.Millisecond, 18 * time.Millisecond, 25 * time.Millisecond, 35 * time.Millisecond, 50 * time.Millisecond,
		75 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second}
}

// qualitySum adds up reports; any goroutine.
type qualitySum struct {
	mu sync.Mutex // guards what follows

	reports, frames, longTasks, underruns, jumps, rollbacks, unreadable, baseless, starved uint64
	span                                                                                   time.Duration
	stutters                                                                               [NumCauses]uint64
}

func (s *qualitySum) add(q *Quality) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports++
	s.span += q.Span
	s.frames += uint64(q.Frames)
	s.longTasks += uint64(q.LongTasks)
	s.underruns += uint64(q.Underruns)
	s.jumps += uint64(q.Jumps)
	s.rollbacks += uint64(q.Rollbacks)
	s.unreadable += uint64(q.Unreadable)
	s.baseless += uint64(q.Baseless)
	s.starved += uint64(q.Starved)
	for c, n := range q.Stutters {
		s.stutters[c] += uint64(n)
	}
}

func (s *qualitySum) totals() QualityTotals {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := QualityTotals{Reports: s.reports, Span: s.span, Frames: s.frames, LongTasks: s.longTasks, Underruns: s.underruns, Jumps: s.jumps,
		Rollbacks: s.rollbacks, Unreadable: s.unreadable, Baseless: s.baseless, Starved: s.starved, Stutters: make(map[string]uint64, NumCauses)}
	for c, n := range s.stutters {
		t.Stutters[Cause(c).String()] = n
	}
	return t
}

// pageKey names a sum of the server's. Worlds and transports are few.
type pageKey struct{ world, transport string }

type pageSum struct {
	qualitySum
	frame, ping, age hist.Histogram
}

// pages returns the sum for the pages of a world that come over a transport.
func (s *Server) pages(k pageKey) *pageSum {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pageSums[k]
	if p == nil {
		p = &pageSum{}
		s.pageSums[k] = p
	}
	return p
}

func (s *Server) pageStats() (out []PageStats) {
	s.mu.Lock()
	sums := make(map[pageKey]*pageSum, len(s.pageSums))
	for k, p := range s.pageSums {
		sums[k] = p
	}
	s.mu.Unlock()
	bounds := PageBounds()
	dist := func(h *hist.Histogram) PageDistribution {
		n := h.Snapshot()
		return PageDistribution{n.Cumulative(nil, bounds), n.Count(), n.Sum()}
	}
	for k, p := range sums {
		out = append(out, PageStats{k.world, k.transport, p.totals(), dist(&p.frame), dist(&p.ping), dist(&p.age)})
	}
	slices.SortFunc(out, func(a, b PageStats) int {
		if c := strings.Compare(a.World, b.World); c != 0 {
			return c
		}
		return strings.Compare(a.Transport, b.Transport)
	})
	return out
}

// seatQuality is a seat's newest report.
type seatQuality struct {
	Quality
	at time.Time
}

// receiveReport takes a report of the client's page.
func (c *Conn) receiveReport(s *Seat, msg []byte) {
	if len(msg) != reportBytes {
		c.fail(ReasonBadMessage)
		return
	}
	drop := func(d Drop) {
		s.room.counters.dropped[d].Add(1)
		s.dropped[d-firstDropped].Add(1)
	}
	now := time.Now()
	if c.reports.last.IsZero() {
		c.reports.fill(reportBurst)
	}
	if !c.reports.take(now, float64(time.Second)/float64(reportEvery)*1.25, reportBurst) {
		drop(DropReport)
		return
	}
	q, moved, ok := parseReport(msg, s.room.def.spec.SendHz)
	if !ok {
		drop(DropReport)
		return
	}
	if moved {
		drop(DropReportBound)
	}
	s.quality.Store(&seatQuality{q, now})
	s.room.pages.add(&q)
	if c.pages == nil {
		c.pages = c.srv.pages(pageKey{s.room.def.spec.Name, c.peer.Transport})
	}
	p := c.pages
	p.add(&q)
	if q.Frames > 1 {
		p.frame.Record(q.FrameP99)
	}
	if q.Ping > 0 {
		p.ping.Record(q.Ping)
	}
	p.age.Record(q.Age)
}
