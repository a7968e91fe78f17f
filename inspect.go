package drumline

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/drumline-engine/drumline/beat"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/internal/hist"
)

// What the inspector asks: one room, its last steps and its seats (Inspect), one seat's bytes (Explain), and the last two minutes
// of the server (History).
//
// None of it runs on a room's goroutine. What a seat's packets cost is kept by the encoder worker that builds them, so a question is
// posted to the workers and answered between two rounds, for askAtOnce seats at a time; the rest of the figures are atomics and
// the beat's lock-free record.

// Inspection is one room in detail. See [Server.Inspect].
type Inspection struct {
	Room RoomStats
	// Steps are the room's last 1,200 steps, oldest first; none in a room without a beat.
	Steps []StepSample
	// Seats are the taken seats, by id, those included whose player is away.
	Seats []SeatStats
	// Spent is where the bytes of all seats went since the room opened, those included that have left. Its Packets and Bytes
	// are the room's own counts.
	Spent Spent
}

// StepSample is one executed step of a room: when it was due on the server's clock, how late it began, how long after the one before, and
// how long it took.
type StepSample = beat.Sample

// RecentSteps is how many of its last steps a room remembers one by one.
const RecentSteps = beat.RecentSteps

// SeatStats is one seat. What is of the encoder's is as of its last round.
type SeatStats struct {
	Seat SeatID
	// Name is the player's name as it is shown to others: see [Seat.Name].
	Name string
	// Link is the transport's short name, such as "ws"; empty while the seat waits for its player.
	Link string
	// Ordered: deltas are against what was written last, not against what the client has acked.
	Ordered bool
	// Since is how long ago the seat was taken, LinkSince how long ago its present link (or its last, while it waits) came.
	Since, LinkSince time.Duration

	// Ping is the least of the last 16 times from a packet's write until the message that acked it was read, and AckDelay their
	// mean; 0: none is known. They hold the client's own wait: acks ride on its inputs.
	Ping, AckDelay time.Duration
	// Unacked is how long the oldest packet without an ack has been waiting; 0: all are acked.
	Unacked time.Duration
	// Age is the oldest state that was written in the last whole second: from the deadline of the step whose frame it was until
	// the link had taken the bytes. 0: nothing was written.
	Age time.Duration
	// InputMargin is how many steps before it was needed the newest labelled input came; MarginNone: there was none.
	InputMargin int8

	// QueuedBytes wait inside this process, KernelBytes in the operating system; -1: the link cannot tell.
	QueuedBytes, KernelBytes int
	// BytesPerSec and PacketsPerSec are of the last whole second, reliable messages included in the bytes.
	BytesPerSec, PacketsPerSec float64
	// Packets are state packets, Messages reliable ones, Bytes those of both, without framing, since the seat was taken.
	Packets, Messages, Bytes uint64
	Keyframes, Events        uint64
	// Wire are the counters of the present link.
	Wire LinkCounters
	// Held is the number of items (entities, documents, nodes) that the client holds, by what state feeds have told it.
	Held int
	// Skipped counts packets that were not sent and Dropped parts of the client's messages that were not used, by Drop, every one
	// present, since the seat was taken.
	Skipped, Dropped map[string]uint64
	// Quality is what the seat's page reported last, QualityAge how long ago; nil: it has not.
	Quality    *Quality
	QualityAge time.Duration
}

// Explanation says where one client's bytes went. See [Server.Explain].
type Explanation struct {
	World, Room string
	Seat        SeatStats
	// Life is since the seat was taken. Window begins between 5 and 10 seconds ago if the seat is asked about every second: each
	// question sets a mark when the newest is 5 seconds old, and the window is since the mark before that one. The first ones
	// get all of the seat's life; its For says which it is.
	Life, Window Spent
}

// Spent is where bytes went over a stretch of time.
type Spent struct {
	For     time.Duration
	Packets uint64 // state packets
	Bytes   uint64 // of those and of reliable messages, without the transport's framing
	// Rows add up to Bytes, except for sections that were built and then not taken by a link that had just become busy. Most bits
	// first.
	Rows []SpentRow
}

// SpentRow is one line of Spent.
type SpentRow struct {
	// Feed is the feed's name; empty: the engine's own.
	Feed string
	// Label is the feed's, such as "player.pos.x"; see its Stream.Account. The engine's own are "packet" (header, acks and heads of sections
	// of state packets) and "message" (the same of reliable ones).
	Label string
	// Bits were written in Count writes.
	Bits, Count uint64
}

// Second is one second of the server's life. See [Server.History].
type Second struct {
	End time.Time
	// BytesPerSec and PacketsPerSec are those of packets, WirePerSec bytes written to sockets.
	BytesPerSec, PacketsPerSec, WirePerSec float64
	// AgeP99 is from the deadline of a step until the packets of its frame were written, EncodeP99 the time to build one packet.
	// 0: nothing was sent.
	AgeP99, EncodeP99 time.Duration
}

// historySeconds is how far back History goes.
const historySeconds = 120

const (
	askAtOnce  = 16              // seats, between two rounds of an encoder: under 0.1 ms
	markEvery  = 5 * time.Second // see Explanation.Window
	pingsKept  = 16
	rateWindow = time.Second
)

// Inspect looks into one open room. Its cost is that of sorting the last 1,200 steps, on the calling goroutine, and about 5 µs a
// seat on the encoder workers (BenchmarkInspect), which send packets in between; nothing runs on the room's own goroutine, so also a room whose step hangs can be looked into. It
// returns ErrClosed when there is no such room or the server ends meanwhile, or ctx's error.
func (s *Server) Inspect(ctx context.Context, world, room string) (Inspection, error) {
	r := s.hub.find(world, room)
	if r == nil {
		return Inspection{}, ErrClosed
	}
	type part struct {
		seats []seatFigures
		rows  []keyedRow
	}
	parts, err := ask(ctx, r, func(p *part, sh *shard, outs []*outbox, first bool) {
		if first {
			for k, row := range sh.gone {
				p.rows = append(p.rows, keyedRow{k, row})
			}
		}
		for _, o := range outs {
			p.rows = o.appendRows(p.rows)
			p.seats = append(p.seats, o.look(r.srv.clock.Now()))
		}
	})
	if err != nil {
		return Inspection{}, err
	}
	rows := map[rowKey]feed.Row{}
	var in Inspection
	for _, p := range parts {
		addRows(rows, p.rows)
		for _, f := range p.seats {
			in.Seats = append(in.Seats, f.finish())
		}
	}
	slices.SortFunc(in.Seats, func(a, b SeatStats) int { return cmp.Compare(a.Seat, b.Seat) })
	s.mu.Lock()
	rate, b := s.open[r], r.beat
	if !r.bound {
		b = nil
	}
	s.mu.Unlock()
	in.Room = r.stats(rate, time.Second)
	if b != nil {
		in.Steps = b.Recent(make([]StepSample, 0, RecentSteps+1))
	}
	in.Spent = Spent{For: in.Room.Age, Packets: in.Room.PacketsOut, Bytes: in.Room.PacketBytesOut, Rows: sortRows(rows)}
	return in, nil
}

// Explain tells where one client's bytes went, by feed, type and field. It runs on one encoder worker for some microseconds; the
// first question about a seat lets it remember marks, some kilobytes until the seat is given up. Errors are Inspect's; ErrClosed
// also when nobody has this seat.
func (s *Server) Explain(ctx context.Context, world, room string, seat SeatID) (Explanation, error) {
	r := s.hub.find(world, room)
	if r == nil {
		return Explanation{}, ErrClosed
	}
	type part struct {
		figures *seatFigures
		now     time.Duration
		life    mark
		since   mark
	}
	parts, err := ask(ctx, r, func(p *part, _ *shard, outs []*outbox, _ bool) {
		for _, o := range outs {
			if o.seat.id == seat {
				p.now = r.srv.clock.Now()
				f := o.look(p.now)
				p.figures = &f
				p.life, p.since = o.explain(p.now)
			}
		}
	})
	if err != nil {
		return Explanation{}, err
	}
	for _, p := range parts {
		if p.figures != nil {
			return Explanation{World: world, Room: room, Seat: p.figures.finish(),
				Life: p.life.spentSince(mark{at: p.figures.seat.since}), Window: p.life.spentSince(p.since)}, nil
		}
	}
	return Explanation{}, ErrClosed
}

// Account tells where the bytes of each seat of a room went since it joined, by the feeds' labels; Explain tells more of one.
// Cost and errors are Inspect's.
func (s *Server) Account(ctx context.Context, world, room string) (map[SeatID]map[string]feed.Row, error) {
	r := s.hub.find(world, room)
	if r == nil {
		return nil, ErrClosed
	}
	parts, err := ask(ctx, r, func(p *map[SeatID]map[string]feed.Row, _ *shard, outs []*outbox, _ bool) {
		if *p == nil {
			*p = map[SeatID]map[string]feed.Row{}
		}
		for _, o := range outs {
			rows := map[string]feed.Row{}
			o.collect()
			for i := range o.streams {
				for label, row := range o.accounts[i].Rows {
					rows[label] = sum(rows[label], row)
				}
			}
			(*p)[o.seat.id] = rows
		}
	})
	if err != nil {
		return nil, err
	}
	all := map[SeatID]map[string]feed.Row{}
	for _, p := range parts {
		maps.Copy(all, p)
	}
	return all, nil
}

// ask has f called on the encoder worker of each of a room's shards, for up to askAtOnce seats at a time, so that a full room does not
// hold up its own packets. first says that it is the shard's first call; it comes even when there are no seats. What f makes of a
// shard comes back once all have answered. Seats that leave during the question may be missing from its answer.
func ask[T any](ctx context.Context, r *Room, f func(part *T, sh *shard, outs []*outbox, first bool)) ([]T, error) {
	parts := make(chan *T, len(r.shards))
	for _, sh := range r.shards {
		part := new(T)
		sh.do(func() {
			rest := slices.Clone(sh.outs)
			first := true
			var next func()
			next = func() {
				now := rest[:min(len(rest), askAtOnce)]
				if r.srv.inline { // do would wait for the lock that this call holds
					now = rest
				}
				rest = rest[len(now):]
				f(part, sh, slices.DeleteFunc(now, func(o *outbox) bool { return o.streams == nil }), first)
				first = false
				if len(rest) > 0 {
					sh.do(next)
					return
				}
				parts <- part
			}
			next()
		})
	}
	var all []T
	for range r.shards {
		select {
		case p := <-parts:
			all = append(all, *p)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.srv.stopped:
			return nil, ErrClosed
		}
	}
	return all, nil
}

// figures are what an outbox counts about its seat. They are owned by the encoder worker, like the outbox.
type figures struct {
	accounts     [maxFeeds]feed.Account // since the seat joined
	packets      uint64
	heads        uint64 // bytes of packets outside of the feeds' sections
	messages     uint64 // reliable
	messageHeads uint64
	bytes        uint64 // of packets and messages
	keyframes    uint64
	events       uint64
	skipped      [firstDropped]uint64

	linkSince time.Duration
	pings     [pingsKept]uint32 // µs
	pinged    int

	// The running second, and the last whole one.
	second                     time.Duration // its begin
	secondBytes, secondPackets uint64        // at its begin
	age                        time.Duration // the highest so far
	lastBytes, lastPackets     float64       // a second
	lastAge                    time.Duration
	lastSecond                 time.Duration // end of the last whole one
	markOld, markNew           mark
}

// mark is what was spent until some time. Its rows are not changed any more.
type mark struct {
	set            bool
	at             time.Duration
	packets, bytes uint64
	rows           []keyedRow
}

type rowKey struct{ feed, label string }

type keyedRow struct {
	rowKey
	feed.Row
}

func sum(a, b feed.Row) feed.Row { return feed.Row{Bits: a.Bits + b.Bits, Count: a.Count + b.Count} }

func addRows(to map[rowKey]feed.Row, from []keyedRow) {
	for _, r := range from {
		to[r.rowKey] = sum(to[r.rowKey], r.Row)
	}
}

// spentSince is what was spent between an earlier mark and this one.
func (m mark) spentSince(old mark) Spent {
	rows := map[rowKey]feed.Row{}
	addRows(rows, m.rows)
	for _, r := range old.rows {
		rows[r.rowKey] = feed.Row{Bits: rows[r.rowKey].Bits - r.Bits, Count: rows[r.rowKey].Count - r.Count}
	}
	return Spent{For: m.at - old.at, Packets: m.packets - old.packets, Bytes: m.bytes - old.bytes, Rows: sortRows(rows)}
}

func sortRows(rows map[rowKey]feed.Row) []SpentRow {
	out := make([]SpentRow, 0, len(rows))
	for k, r := range rows {
		if r != (feed.Row{}) {
			out = append(out, SpentRow{k.feed, k.label, r.Bits, r.Count})
		}
	}
	slices.SortFunc(out, func(a, b SpentRow) int {
		return cmp.Or(cmp.Compare(b.Bits, a.Bits), cmp.Compare(a.Feed, b.Feed), cmp.Compare(a.Label, b.Label))
	})
	return out
}

// skip counts a packet that was not sent.
func (o *outbox) skip(d Drop) {
	o.skipped[d]++
	o.seat.room.counters.skipped[d].Add(1)
}

// newLink forgets what was of the last link.
func (o *outbox) newLink(now time.Duration) {
	o.linkSince, o.pinged = now, 0
	o.second, o.secondBytes, o.secondPackets, o.age = now, o.bytes, o.packets, 0
	o.lastBytes, o.lastPackets, o.lastAge, o.lastSecond = 0, 0, 0, 0
}

// turn ends the running second when it is over.
func (o *outbox) turn(now time.Duration) {
	d := now - o.second
	if d < rateWindow {
		return
	}
	o.lastBytes = float64(o.bytes-o.secondBytes) / d.Seconds()
	o.lastPackets = float64(o.packets-o.secondPackets) / d.Seconds()
	o.lastAge, o.lastSecond = o.age, now
	o.second, o.secondBytes, o.secondPackets, o.age = now, o.bytes, o.packets, 0
}

// noteRoundTrip takes a sample from the newest acked packet.
func (o *outbox) noteRoundTrip(ack uint32) {
	at := time.Duration(o.conn.ackAt.Load())
	if uint32(o.conn.ack.Load()>>32) != ack {
		return // a newer ack came in between, and the time may be that one's
	}
	if d := at - o.sentAt[ack%sentRing]; d >= 0 {
		o.pings[o.pinged%pingsKept] = uint32(min(d.Microseconds(), 1<<32-1))
		o.pinged++
	}
}

// collect takes over what the streams have written.
func (o *outbox) collect() {
	for i, st := range o.streams {
		st.Account(&o.accounts[i])
	}
}

// appendRows appends where the seat's bytes went. Adding up and sorting is left to the one who asks.
func (o *outbox) appendRows(rows []keyedRow) []keyedRow {
	o.collect()
	for i := range o.streams {
		name := o.seat.room.infos[i].Name
		for label, row := range o.accounts[i].Rows {
			rows = append(rows, keyedRow{rowKey{name, label}, row})
		}
	}
	return append(rows, keyedRow{rowKey{label: "packet"}, feed.Row{Bits: o.heads * 8, Count: o.packets}},
		keyedRow{rowKey{label: "message"}, feed.Row{Bits: o.messageHeads * 8, Count: o.messages}})
}

// keep remembers where the bytes of a seat that leaves went.
func (sh *shard) keep(o *outbox) {
	if sh.gone == nil {
		sh.gone = map[rowKey]feed.Row{}
	}
	addRows(sh.gone, o.appendRows(nil))
}

// explain returns what the seat has spent, and since which mark the window is; it moves the marks.
func (o *outbox) explain(now time.Duration) (life, since mark) {
	life = mark{set: true, at: now, packets: o.packets, bytes: o.bytes, rows: o.appendRows(nil)}
	if !o.markNew.set || now-o.markNew.at >= markEvery {
		o.markOld, o.markNew = o.markNew, life
	}
	if !o.markOld.set {
		return life, mark{at: o.seat.since}
	}
	return life, o.markOld
}

// seatFigures are a seat's figures as the encoder worker knows them, and the link that knows the rest.
type seatFigures struct {
	SeatStats
	conn    *Conn
	seat    *Seat
	skipped [firstDropped]uint64
}

// look reads the seat on the encoder worker. What needs a lock or a system call is left to finish.
func (o *outbox) look(now time.Duration) seatFigures {
	s := o.seat
	f := seatFigures{conn: o.conn, seat: s, skipped: o.skipped, SeatStats: SeatStats{
		Seat: s.id, Name: s.name, Since: now - s.since, LinkSince: now - o.linkSince, Ordered: o.delivery == feed.Ordered, KernelBytes: -1,
		Packets: o.packets, Messages: o.messages, Bytes: o.bytes, Keyframes: o.keyframes, Events: o.events,
	}}
	if o.conn == nil {
		return f
	}
	if o.seq != o.acked {
		f.Unacked = now - o.unacked
	}
	if now-o.lastSecond < 3*rateWindow { // else the encoder has not come by for long
		f.BytesPerSec, f.PacketsPerSec, f.Age = o.lastBytes, o.lastPackets, o.lastAge
	}
	if n := min(o.pinged, pingsKept); n > 0 {
		least, all := o.pings[0], uint64(0)
		for _, p := range o.pings[:n] {
			least, all = min(least, p), all+uint64(p)
		}
		f.Ping = time.Duration(least) * time.Microsecond
		f.AckDelay = time.Duration(all) * time.Microsecond / time.Duration(n)
	}
	for _, n := range o.held {
		f.Held += n
	}
	return f
}

// finish adds what is not the encoder's. Any goroutine.
func (f *seatFigures) finish() SeatStats {
	st := f.SeatStats
	st.Skipped = make(map[string]uint64, firstDropped)
	for d, n := range f.skipped {
		st.Skipped[Drop(d).Name()] = n
	}
	st.Dropped = make(map[string]uint64, numDrops-firstDropped)
	for i := range f.seat.dropped {
		st.Dropped[(firstDropped + Drop(i)).Name()] = f.seat.dropped[i].Load()
	}
	_, st.InputMargin = f.seat.inbox.state()
	if q := f.seat.quality.Load(); q != nil {
		st.Quality, st.QualityAge = &q.Quality, time.Since(q.at)
	}
	if f.conn == nil {
		return st
	}
	st.Link = f.conn.peer.Transport
	st.QueuedBytes = f.conn.link.Queued()
	if k, ok := f.conn.link.(KernelQueuer); ok {
		if n, ok := k.KernelQueued(); ok {
			st.KernelBytes = n
		}
	}
	st.Wire = f.conn.link.Counters()
	return st
}

// secondRing is the last two minutes. Guarded by the server's lock.
type secondRing struct {
	ring [historySeconds]Second
	n    int // written so far

	at                   time.Time
	packets, bytes, wire uint64
	age, encode          *hist.Snapshot
}

// updateSeconds is the housekeeper's, once a second. It reads histograms that are there anyway: measuring costs the encoders nothing.
func (s *Server) updateSeconds(now time.Time) {
	age, encode := s.measure.age.Snapshot(), s.measure.encode.Snapshot()
	s.mu.Lock()
	defer s.mu.Unlock()
	h, t, wire := &s.seconds, s.totals(), s.wire().WireBytesOut
	if dt := now.Sub(h.at).Seconds(); !h.at.IsZero() && dt > 0 {
		per := func(now, old uint64) float64 { return float64(now-old) / dt }
		h.ring[h.n%historySeconds] = Second{
			End: now, BytesPerSec: per(t.bytes, h.bytes), PacketsPerSec: per(t.packets, h.packets), WirePerSec: per(wire, h.wire),
			AgeP99: age.Since(h.age).Quantile(0.99), EncodeP99: encode.Since(h.encode).Quantile(0.99),
		}
		h.n++
	}
	h.at, h.packets, h.bytes, h.wire, h.age, h.encode = now, t.packets, t.bytes, wire, age, encode
}

// History returns the server's last two minutes, a second each, oldest first. It copies at most 120 of them.
func (s *Server) History() []Second {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.seconds
	n := min(h.n, historySeconds)
	out := make([]Second, 0, n)
	for i := h.n - n; i < h.n; i++ {
		out = append(out, h.ring[i%historySeconds])
	}
	return out
}
