package drumline

import (
	"encoding/binary"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drumline-engine/drumline/beat"
	"github.com/drumline-engine/drumline/feed"
)

// From frame to link. The room's goroutine captures a frameSet and hands it to the shards that hold its seats; each shard belongs
// to one encoder worker, which builds one packet per seat and tries one non-blocking write. A shard holds at most one
// waiting frame: a newer one replaces it, so an encoder that falls behind sends newer states, not more of them.

// frameSet is one send tick of a room: a frame of each feed, shared by the shards that send it.
type frameSet struct {
	tick      Tick
	epoch     uint8
	scheduled time.Duration // the deadline of the step it was captured after
	frames    []feed.Frame
	refs      atomic.Int32
	pool      *sync.Pool
}

func (fs *frameSet) release() {
	if fs.refs.Add(-1) > 0 {
		return
	}
	for i, f := range fs.frames {
		f.Release()
		fs.frames[i] = nil
	}
	fs.frames = fs.frames[:0]
	fs.pool.Put(fs)
}

// shard is a room's seats on one encoder worker.
type shard struct {
	room    *Room
	encoder *encoder

	connected atomic.Int32 // seats with a link, kept by the room

	mu      sync.Mutex // guards what follows
	pending *frameSet
	partial bool // pending is for seats with the flush mark only
	queued  bool // in the encoder's queue
	mail    []func()
	missed  uint64 // frames that were replaced before they were sent

	// Owned by the encoder worker.
	outs  []*outbox
	spare []func()
	gone  map[rowKey]feed.Row // where the bytes of seats that have left went
}

// offer hands over a frame; partial: for seats marked by FlushNow only. The shard takes a reference.
func (sh *shard) offer(fs *frameSet, partial bool) {
	fs.refs.Add(1)
	sh.mu.Lock()
	old := sh.pending
	if old != nil {
		partial = partial && sh.partial
	}
	sh.pending, sh.partial = fs, partial
	if old != nil {
		sh.missed++
	}
	wake := !sh.queued
	sh.queued = true
	sh.mu.Unlock()
	if old != nil {
		sh.room.counters.skipped[SkipEncoder].Add(uint64(sh.connected.Load()))
		old.release()
	}
	if wake {
		sh.encoder.enqueue(sh)
	}
}

// do runs f on the encoder worker, in order with other calls.
func (sh *shard) do(f func()) {
	sh.mu.Lock()
	sh.mail = append(sh.mail, f)
	wake := !sh.queued
	sh.queued = true
	sh.mu.Unlock()
	if wake {
		sh.encoder.enqueue(sh)
	}
}

// encoder is a worker: a thread that serves shards in the order in which their frames came.
type encoder struct {
	srv     *Server
	scratch []byte
	busy    atomic.Int64 // ns

	priority, refused string // what the thread got; set before ready is closed
	ready             chan struct{}

	mu    sync.Mutex // guards queue and stop
	queue []*shard
	stop  bool
	wake  chan struct{} // capacity 1
}

func newEncoder(s *Server) *encoder {
	return &encoder{srv: s, wake: make(chan struct{}, 1), ready: make(chan struct{})}
}

func (e *encoder) enqueue(sh *shard) {
	if e.srv.inline && !e.stopped() {
		e.process(sh) // the benchmark's arrangement: on the room's own thread, one at a time by Server.inlineMu
		return
	}
	e.mu.Lock()
	e.queue = append(e.queue, sh)
	first := len(e.queue) == 1
	e.mu.Unlock()
	if first {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

func (e *encoder) stopped() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stop
}

func (e *encoder) close() {
	e.mu.Lock()
	e.stop = true
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// run serves until close, and then what is still queued.
func (e *encoder) run(locked bool) {
	if locked {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_ = beat.SetTimerSlack(time.Nanosecond) // unsupported: as good as it gets
		e.priority, e.refused = raise(e.srv.opt.Priority, encoderNice)
	}
	close(e.ready)
	var batch []*shard
	for {
		e.mu.Lock()
		batch, e.queue = e.queue, batch[:0]
		stop := e.stop
		e.mu.Unlock()
		if len(batch) == 0 {
			if stop {
				return
			}
			<-e.wake
			continue
		}
		start := e.srv.clock.Now()
		for i, sh := range batch {
			e.process(sh)
			batch[i] = nil
		}
		e.busy.Add(int64(e.srv.clock.Now() - start))
	}
}

func (e *encoder) process(sh *shard) {
	defer func() {
		if v := recover(); v != nil { // a feed's bug: it costs its room, not the others
			sh.outs = nil
			sh.room.panicked(v, debug.Stack())
		}
	}()
	if e.srv.inline {
		e.srv.inlineMu.Lock()
		defer e.srv.inlineMu.Unlock()
	}
	sh.mu.Lock()
	fs, partial := sh.pending, sh.partial
	sh.pending, sh.partial, sh.queued = nil, false, false
	missed := sh.missed
	sh.missed = 0
	mail := sh.mail
	sh.mail, sh.spare = sh.spare[:0], nil
	sh.mu.Unlock()
	for i, f := range mail {
		f()
		mail[i] = nil
	}
	sh.spare = mail
	if fs == nil {
		return
	}
	start := e.srv.clock.Now()
	owed := false
	for _, o := range sh.outs {
		if o.conn == nil {
			continue
		}
		o.skipped[SkipEncoder] += missed
		if o.seat.flush.Swap(false) || !partial {
			owed = e.serve(sh.room, o, fs) || owed
		}
	}
	if owed && sh.room.hz == 0 {
		sh.room.captureAgain()
	}
	fs.release()
	sh.room.counters.roundNs.Add(uint64(e.srv.clock.Now() - start))
	sh.room.counters.rounds.Add(1)
}

const (
	sentRing     = 64        // packets whose send time and receipts are kept
	fateRing     = 128       // packets whose fate is kept: those, and the 32 before that a history names
	queuedHigh   = 256 << 10 // reliable bytes waiting: no state meanwhile
	queuedBad    = 2 << 20   // for backlogAfter: close
	backlogAfter = 10 * time.Second
	slowEvery    = 4           // of send slots, for a slow client
	quietEvery   = time.Second // keep-alive of a quiet client
	maxFeeds     = 8
	sectionHead  = 4 // u8 feed, 3-byte padded uvarint
	maxSection   = 1<<21 - 1
)

// sentPacket is what a packet carried that acks have to settle, until its fate is known.
type sentPacket struct {
	receipts [maxFeeds]feed.Receipt
	open     uint8 // bit i: receipts[i] waits
}

// fate is what the streams have been told of a packet.
type fate uint8

const (
	pending fate = iota
	arrived      // headers name it from then on
	givenUp      // no header names it, even if it has arrived after all
)

// outbox is one seat's side of the encoder. Owned by the encoder worker, but for what is set once.
type outbox struct {
	seat *Seat

	conn     *Conn // nil: no link
	epoch    uint8
	delivery feed.Delivery // how packets are treated: by the link, or Unordered for Options.Acked
	streams  []feed.Stream
	reliable [maxFeeds]bool
	weights  [maxFeeds]int
	held     [maxFeeds]int // items that the client holds, by feed
	tokens   int           // bytes that may be sent now
	slot     int
	lastSend time.Duration
	badSince time.Duration // queue over queuedBad since; 0: it is not
	unacked  time.Duration // send time of the oldest packet without ack
	seq      uint32        // of the last packet
	acked    uint32        // newest acked
	open     uint32        // oldest packet whose receipts are still open (Unordered)
	ackWord  uint64        // as the reader noted it
	echo     uint64        // as headers tell it: the ack and its history, of packets that the streams know to have arrived
	untold   bool          // no packet with the echo has gone out
	sentAt   [sentRing]time.Duration
	sent     []sentPacket // by seq % sentRing; Unordered only
	fates    []fate       // by seq % fateRing; Unordered only
	body     int          // bytes of the packet being built that are feeds' sections
	figures
}

// attach gives the outbox a link. The streams start over: the client holds nothing but its cursors.
func (o *outbox) attach(c *Conn, epoch uint8, cursors []uint64, fresh bool) {
	o.conn, o.epoch = c, epoch
	o.delivery = c.srv.delivery(c.link)
	o.tokens, o.slot, o.badSince, o.seq, o.acked, o.ackWord = 0, 0, 0, 0, 0, 0
	o.open, o.echo, o.untold = 1, 0, false
	o.lastSend = 0
	o.newLink(c.srv.clock.Now())
	o.sent = nil
	if o.delivery == feed.Unordered {
		o.sent, o.fates = make([]sentPacket, sentRing), make([]fate, fateRing)
	}
	for i, st := range o.streams {
		if fresh {
			continue
		}
		var cursor uint64
		if i < len(cursors) {
			cursor = cursors[i]
		}
		st.Resume(cursor, o.streamDelivery(i))
	}
}

// delivery is how the state packets on a link are treated.
func (s *Server) delivery(l Link) feed.Delivery {
	if s.opt.Acked {
		return feed.Unordered
	}
	return l.Delivery()
}

// streamDelivery is what the stream of feed i may expect.
func (o *outbox) streamDelivery(i int) feed.Delivery {
	if o.reliable[i] {
		return feed.Ordered
	}
	return o.delivery
}

// restart gives the outbox another world on the same link: the client holds nothing of it.
func (o *outbox) restart(epoch uint8) {
	o.epoch = epoch
	for i, st := range o.streams {
		st.Resume(0, o.streamDelivery(i))
	}
	clear(o.sent) // receipts from before are void
}

func (o *outbox) close() {
	for _, st := range o.streams {
		st.Close()
	}
	o.streams, o.conn = nil, nil
}

// applyAck takes over what the reader has noted. It returns the ack and history that the next header echoes.
func (o *outbox) applyAck() (ack uint32, history uint32) {
	w := o.conn.ack.Load()
	ack, history = uint32(w>>32), uint32(w)
	if w == o.ackWord || int32(ack-o.seq) > 0 {
		// Nothing new; or the ack of a packet that the link refused after all.
		return uint32(o.echo >> 32), uint32(o.echo)
	}
	if int32(ack-o.acked) > 0 {
		o.acked = ack
		if o.seq-ack < sentRing {
			o.noteRoundTrip(ack)
		}
		if o.seq != ack {
			oldest := ack + 1
			if o.seq-ack >= sentRing {
				oldest = o.seq - sentRing + 1 // the oldest whose time is still known: it flatters the client a little
			}
			o.unacked = o.sentAt[oldest%sentRing]
		}
	}
	if o.delivery == feed.Ordered {
		o.ackWord, o.echo = w, w
		return ack, history
	}
	if o.untold {
		// No header has told the client what the streams know already, and only what headers tell may they know. A history that has
		// moved on might never name it.
		return uint32(o.echo >> 32), uint32(o.echo)
	}
	o.ackWord = w
	// Resolve receipts, oldest first: acked, given up (out of the history), or still open.
	resolvedAll := true
	for s := o.open; int32(s-ack) <= 0; s++ {
		if o.fates[s%fateRing] == pending {
			back := ack - s
			switch {
			case back == 0 || back <= 32 && history>>(back-1)&1 != 0:
				o.resolve(s, true)
			case back > 32:
				o.resolve(s, false)
			default:
				resolvedAll = false
			}
		}
		if resolvedAll {
			o.open = s + 1
		}
	}
	if o.fates[ack%fateRing] == arrived {
		history = 0
		for i := range uint32(32) {
			if s := ack - 1 - i; s >= 1 && s < ack && o.seq-s < fateRing && o.fates[s%fateRing] == arrived {
				history |= 1 << i
			}
		}
		o.echo, o.untold = uint64(ack)<<32|uint64(history), true
	}
	return uint32(o.echo >> 32), uint32(o.echo)
}

// resolve tells the streams the fate of packet s.
func (o *outbox) resolve(s uint32, came bool) {
	p := &o.sent[s%sentRing]
	if o.fates[s%fateRing] = givenUp; came {
		o.fates[s%fateRing] = arrived
	}
	for i, st := range o.streams {
		if p.open>>i&1 == 0 {
			continue
		}
		if r := p.receipts[i]; came {
			st.Delivered(r)
		} else {
			st.Lost(r)
		}
	}
	p.open = 0
}

// serve builds and sends one packet for one seat, or counts why not. It reports whether the seat is still owed something of this
// frame; only rooms without a beat, which may not have another frame soon, want to know.
func (e *encoder) serve(r *Room, o *outbox, fs *frameSet) (owed bool) {
	if fs.epoch != o.epoch {
		return true // captured before the world was replaced
	}
	now := e.srv.clock.Now()
	c, opt := o.conn, &e.srv.opt
	o.turn(now)
	ack, history := o.applyAck()
	headerOnly := false
	o.slot++
	if o.seq != o.acked {
		switch age := now - o.unacked; {
		case age > opt.StallAfter:
			c.fail(ReasonStalled)
			o.conn = nil
			return false
		case age > opt.QuietAfter:
			if now-o.lastSend < quietEvery {
				o.skip(SkipQuiet)
				return true
			}
			headerOnly = true
		case age > opt.SlowAfter:
			if o.slot%slowEvery != 0 {
				o.skip(SkipSlow)
				return true
			}
		}
	}
	if q := c.link.Queued(); q > queuedHigh {
		if q > queuedBad {
			if o.badSince == 0 {
				o.badSince = now
			} else if now-o.badSince > backlogAfter {
				c.fail(ReasonBacklog)
				o.conn = nil
				return false
			}
		} else {
			o.badSince = 0
		}
		o.skip(SkipQueued)
		return true
	}
	o.badSince = 0
	if !c.link.Ready() {
		o.skip(SkipBusy)
		return true
	}
	// Without a beat the next frame comes when somebody asks for it: what may have been lost is asked for here.
	waits := r.hz == 0 && o.delivery == feed.Unordered && o.seq != o.acked
	if r.hz == 0 && o.clean(fs) {
		o.skip(SkipClean)
		return waits
	}
	if o.delivery == feed.Unordered && o.seq+1-o.open >= sentRing {
		if now-o.unacked <= opt.SlowAfter {
			o.skip(SkipWindow) // acks are coming; each makes room for a packet
			return true
		}
		// The ring of open receipts is full, and nothing comes: the oldest is lost for good, whatever acks may still say.
		if o.fates[o.open%fateRing] == pending {
			o.resolve(o.open, false)
		}
		o.open++
	}

	share := r.budget
	o.tokens = min(o.tokens+share, 2*share)
	limit := o.tokens
	if m := c.link.MaxState(); m > 0 {
		limit = min(limit, m)
	}
	seq := o.seq + 1
	h := StateHeader{Seq: uint16(seq), Epoch: o.epoch, Tick16: uint16(fs.tick), HasHash: c.verify,
		HasAcks: o.delivery == feed.Unordered, Ack: uint16(ack), Acks: history, sections: len(o.streams) > 1}
	h.InputAck, h.Margin = o.seat.inbox.state()
	b := appendStateHeader(e.scratch[:0], h)
	var written [maxFeeds]feed.Written
	var wrote, asked uint8 // bit i: feed i has bytes in the packet; its stream was asked for some
	o.body = 0
	if !headerOnly {
		b, wrote, asked = o.appendSections(b, fs, limit-len(b)-4, h.sections, &written)
	}
	if c.verify {
		b = binary.LittleEndian.AppendUint32(b, o.hash(asked))
	}
	e.scratch = b
	built := e.srv.clock.Now()
	c.lastSeq.Store(seq) // before the write: the ack may be back before TrySend returns
	sent := c.link.TrySend(b)
	end := e.srv.clock.Now()
	if !sent {
		for i, st := range o.streams {
			if wrote>>i&1 != 0 {
				st.Lost(written[i].Receipt)
			}
		}
		c.lastSeq.Store(o.seq)
		o.skip(SkipBusy)
		return true
	}
	o.note(seq, now, &written, wrote)
	o.tokens -= len(b)
	owed = headerOnly || r.hz == 0 && o.delivery == feed.Unordered
	if more, ok := o.sendReliable(e, r, fs); !ok {
		return false
	} else if more {
		owed = true
	}

	m := &e.srv.measure
	m.encode.Record(built - now)
	m.age.Record(end - fs.scheduled)
	m.bytes.Record(time.Duration(len(b)) * time.Microsecond)
	n := &r.counters
	n.packets.Add(1)
	n.bytes.Add(uint64(len(b)))
	n.encodeNs.Add(uint64(built - now))
	o.packets++
	o.bytes += uint64(len(b))
	o.heads += uint64(len(b) - o.body)
	o.age = max(o.age, end-fs.scheduled)
	keyframe := false
	for i := range o.streams {
		if wrote>>i&1 != 0 {
			o.held[i] = written[i].Held
			o.events += uint64(written[i].Events)
			keyframe = keyframe || written[i].Keyframe
		}
		owed = owed || written[i].More
		n.held.Add(uint64(o.held[i]))
	}
	if keyframe {
		n.keyframes.Add(1)
		o.keyframes++
	}
	return owed
}

// clean reports that no stream has anything to say about fs.
func (o *outbox) clean(fs *frameSet) bool {
	for i, st := range o.streams {
		if st.Dirty(fs.frames[i]) {
			return false
		}
	}
	return true
}

// appendSections splits limit among the state feeds by weight, in their order; what one leaves goes to the next.
func (o *outbox) appendSections(b []byte, fs *frameSet, limit int, heads bool, written *[maxFeeds]feed.Written) (_ []byte, wrote, asked uint8) {
	weight := 0
	for i := range o.streams {
		if !o.reliable[i] {
			weight += o.weights[i]
		}
	}
	for i, st := range o.streams {
		if o.reliable[i] {
			continue
		}
		share := limit
		if weight > o.weights[i] {
			share = limit * o.weights[i] / weight
		}
		weight -= o.weights[i]
		start := len(b)
		if heads {
			share = min(share-sectionHead, maxSection)
			b = append(b, byte(i), 0x80, 0x80, 0)
		}
		at := len(b)
		if share > 0 {
			asked |= 1 << i
			b, written[i] = st.Append(b, fs.frames[i], share)
		}
		n := len(b) - at
		switch {
		case n == 0:
			b = b[:start]
			continue
		case heads:
			b[at-3], b[at-2], b[at-1] = byte(n)|0x80, byte(n>>7)|0x80, byte(n>>14)
		}
		wrote |= 1 << i
		o.body += n
		limit -= len(b) - start
	}
	return b, wrote, asked
}

// note remembers a packet that the link took.
func (o *outbox) note(seq uint32, now time.Duration, written *[maxFeeds]feed.Written, wrote uint8) {
	if o.seq == o.acked {
		o.unacked = now
	}
	o.seq, o.lastSend, o.untold = seq, now, false
	o.sentAt[seq%sentRing] = now
	if o.delivery == feed.Unordered {
		p := &o.sent[seq%sentRing]
		p.open, o.fates[seq%fateRing] = wrote, pending
		for i := range o.streams {
			p.receipts[i] = written[i].Receipt
		}
		return
	}
	for i, st := range o.streams {
		if wrote>>i&1 != 0 {
			st.Delivered(written[i].Receipt)
		}
	}
}

// hash folds the hashes of the state feeds, as in the packet's trailer. asked has bit i for each feed whose stream was asked for
// this packet: where a hash covers one packet's bytes only, that of another stream would be about an earlier packet.
func (o *outbox) hash(asked uint8) (h uint32) {
	first := true
	for i, st := range o.streams {
		if o.reliable[i] {
			continue
		}
		if o.delivery == feed.Unordered && asked>>i&1 == 0 {
			return 0
		}
		part := st.Hash()
		switch {
		case part == 0:
			return 0
		case first:
			h, first = part, false
		default:
			h = h*16777619 ^ part
		}
	}
	return h
}

// sendReliable queues what reliable feeds have to say: more says that they have not said all, ok is false when the link was closed
// for its backlog.
func (o *outbox) sendReliable(e *encoder, r *Room, fs *frameSet) (more, ok bool) {
	for i, st := range o.streams {
		for o.reliable[i] {
			b := AppendReliable(e.scratch[:0], ReliableHeader{i, o.epoch, fs.tick})
			head := len(b)
			b, w := st.Append(b, fs.frames[i], queuedHigh/4)
			e.scratch = b
			if len(b) == head {
				break
			}
			if err := o.conn.link.Send(b); err != nil {
				st.Lost(w.Receipt)
				if err == ErrBacklog {
					o.conn.fail(ReasonBacklog)
				}
				o.conn = nil
				return false, false
			}
			st.Delivered(w.Receipt)
			r.counters.bytes.Add(uint64(len(b)))
			o.messages++
			o.bytes += uint64(len(b))
			o.messageHeads += uint64(head)
			o.events += uint64(w.Events)
			if !w.More {
				break
			}
			if o.conn.link.Queued() > queuedHigh {
				more = true
				break
			}
		}
	}
	return more, true
}
