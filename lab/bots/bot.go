package bots

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
	"github.com/drumline-engine/drumline/lab/motion"
	"github.com/drumline-engine/drumline/wire"
)

// maxMessage bounds what a server can make a bot keep, in bytes.
const maxMessage = 1 << 20

// Close codes of RFC 6455 that a bot sends.
const (
	codeNormal   = 1000
	codeProtocol = 1002
	codeNone     = 1005 // a close frame without a code
	codeAbnormal = 1006 // no close frame
)

var errMessage = errors.New("bots: a message that the protocol does not have")

type state uint8

const (
	idle    state = iota // not connected yet
	joining              // the hello is out
	live
	ended
)

// counts are of the present window.
type counts struct {
	packets, bytes, wire               uint64
	decodeErrors, mismatches, verified uint64
	unverifiable, overtaken, noBase    uint64
	events, acks                       uint64
	inputs, unsent                     uint64
}

const (
	maxLead = 24 // steps
	// maxAhead is from when on labels before the newest are not waited for but followed back, in steps.
	maxAhead = 32
)

// echoes is how many sent inputs a bot remembers in order to time their acks.
const echoes = 32

// sent is an input whose ack has not come.
type sent struct {
	label drumline.Tick
	at    time.Duration
}

// bot is one client. Everything but the first group is guarded by its shard's lock.
type bot struct {
	// set before the fleet runs
	f         *Fleet
	s         *shard
	id, index int
	room      string
	decodes   bool
	willPause bool
	shows     bool
	rcvbuf    int
	mind      func(dst []byte, v drumline.BotView) []byte
	section   func(h drumline.StateHeader, feed int, body []byte) error

	// the link
	state            state
	joined           bool
	reason           string // why it ended; the server's word once it has come
	deadline         time.Duration
	endedAt          time.Duration
	link             transport // nil: none yet, or no more
	deflated         bool      // the server may compress what it sends
	paused           bool
	pausedAt         time.Duration
	tokens, refilled time.Duration
	measured         bool
	n                counts
	firstError       string

	// the room
	hz         int
	tickZero   time.Duration // of tick 0, by the fleet's clock
	epoch      uint8
	tick       feed.Tick
	tickAt     time.Duration
	lanes      []feed.Lane
	bodies     [][]byte // sections of the packet in hand, by feed
	view       drumline.BotView
	screen     *motion.Screen // nil: it shows nothing
	snap       *snap.Decoder  // of what the screen shows
	pictureAt  time.Duration  // when the next picture is due
	verify     bool
	inputSize  int
	perPacket  int           // inputs in a message; 0: those that are new
	stride     int           // steps between two messages, at most MaxInputs
	lastPacket time.Duration // 0: none
	ack        uint16
	history    uint32
	got        bool          // ack is valid
	owed       bool          // packets that no message has acked yet
	owedAt     time.Duration // when the first of them came

	// inputs
	input  []byte                     // the mind's newest
	ring   [drumline.MaxInputs][]byte // by label
	newest drumline.Tick              // label of the newest in ring
	valid  int                        // how many in a row there are, up to newest
	lead   int
	leadAt time.Duration
	// The labels go on from paceLabel at paceAt.
	paced     bool
	paceAt    time.Duration
	paceLabel drumline.Tick
	sent      [echoes]sent
	sentN     uint
	echoed    uint16
	beats     uint64
}

// begin is called when the connection is made and the hello is on its way.
func (b *bot) begin(t transport, now time.Duration) {
	b.link, b.state, b.deadline = t, joining, now+joinTimeout
}

func (b *bot) hello() []byte {
	msg, err := drumline.AppendJSON(nil, drumline.KindHello, drumline.Hello{
		Protocol: drumline.ProtocolVersion,
		World:    b.f.o.World,
		Room:     b.room,
		Name:     fmt.Sprintf("bot %d", b.id),
		Verify:   b.f.o.Verify && b.decodes,
	})
	if err != nil {
		panic(err) // a struct of plain fields
	}
	return msg
}

// closedBy is called when reading or writing fails.
func (b *bot) closedBy(error) { b.end(Reset) }

// end is the end of the link, for reason unless the server gave one before.
func (b *bot) end(reason string) {
	if b.state == ended {
		return
	}
	switch {
	case b.f.closing.Load():
		b.reason = "" // we did it
	case b.reason == "":
		b.reason = reason
	}
	was := b.state
	b.state, b.endedAt = ended, b.f.now()
	if b.link != nil {
		b.link.drop()
		b.link = nil
	}
	if was != live {
		b.f.settle()
	}
}

// close tells the server code and ends the link.
func (b *bot) close(code int, reason string) {
	if b.link != nil {
		b.link.bye(code)
	}
	b.end(reason)
}

// leave says goodbye. The link ends when the server closes it.
func (b *bot) leave() {
	if b.state == live {
		b.link.send([]byte{drumline.KindLeave}, feed.Reliable)
	}
	if b.link != nil { // a broken one ends when it is written to
		b.link.bye(codeNormal)
	}
}

// codeName names a close code.
func codeName(code int) string {
	for _, r := range drumline.Reasons() {
		if r.Code() == code {
			return r.Name()
		}
	}
	return fmt.Sprintf("code_%d", code)
}

func (b *bot) message(p []byte) error {
	if len(p) == 0 {
		return errMessage
	}
	switch p[0] {
	case drumline.KindState:
		if b.state == live {
			b.onState(p)
			return nil
		}
		if b.state == joining && b.f.o.Unordered {
			b.n.overtaken++ // it came before the welcome
			return nil
		}
	case drumline.KindReliable:
		if b.state == live {
			b.onReliable(p)
			return nil
		}
	case drumline.KindWelcome:
		if b.state == joining {
			return b.onWelcome(p[1:])
		}
	case drumline.KindRefuse:
		var g drumline.Goodbye
		if json.Unmarshal(p[1:], &g) == nil && g.Reason != "" {
			// The close frame that follows ends the link.
			b.reason = g.Reason
			return nil
		}
	}
	return errMessage
}

func (b *bot) onWelcome(p []byte) error {
	now := b.f.now()
	var w drumline.Welcome
	if err := json.Unmarshal(p, &w); err != nil {
		return b.unwelcome("the welcome: " + err.Error())
	}
	if w.Protocol != drumline.ProtocolVersion || w.Hz < 0 || w.Hz > 1000 || len(w.Feeds) > 255 {
		return b.unwelcome(fmt.Sprintf("a welcome of protocol %d, %d Hz, %d feeds", w.Protocol, w.Hz, len(w.Feeds)))
	}
	size, err := inputSize(w.Inputs)
	if err != nil {
		return b.unwelcome(err.Error())
	}
	decoders, err := b.s.decoders(b, w.Feeds)
	if err != nil {
		return b.unwelcome(err.Error())
	}
	b.inputSize, b.view.Decoders, b.view.Seat, b.verify = size, decoders, w.Seat, w.Verify
	for _, f := range w.Feeds {
		b.lanes = append(b.lanes, f.Lane)
	}
	b.hz, b.epoch, b.tick, b.tickAt = w.Hz, w.Epoch, w.Tick, now
	b.tickZero = time.UnixMicro(w.TickZeroUs).Sub(b.f.start.Round(0))
	b.perPacket, b.stride = b.f.o.InputsPerPacket, 1
	if hz := b.f.o.InputHz; hz > 0 {
		b.stride = min(max((w.Hz+hz-1)/hz, 1), drumline.MaxInputs)
	}
	b.lead = b.goal()
	if err := b.unveil(w); err != nil {
		return b.unwelcome(err.Error())
	}
	b.state, b.joined = live, true
	storeMax(&b.f.lastJoin, int64(now))
	b.s.watch(b)
	b.f.settle()
	return nil
}

// unveil makes the screen of a bot that shows what it gets, if that moves.
func (b *bot) unveil(w drumline.Welcome) (err error) {
	if !b.shows || w.Hz == 0 {
		return nil
	}
	for i, d := range b.view.Decoders {
		if d, ok := d.(*snap.Decoder); ok && w.Feeds[i].Lane == feed.State {
			b.snap, b.pictureAt = d, b.f.now()
			b.screen, err = motion.NewScreen(w.Feeds[i].Schema, w.SendHz, w.Ordered, b.tickZero)
			return err
		}
	}
	return nil
}

// show shows the pictures that are due: each at its own time, as a display does, also if the loop is late.
func (b *bot) show(now time.Duration) {
	if b.screen == nil || b.state != live {
		return
	}
	if now-b.pictureAt > time.Second {
		b.pictureAt = now
	}
	for ; b.pictureAt <= now; b.pictureAt += motion.FrameTime {
		b.screen.Frame(b.pictureAt)
	}
}

func (b *bot) unwelcome(why string) error {
	b.note(why)
	b.close(codeNormal, BadWelcome)
	return io.EOF
}

func (b *bot) note(what string) {
	if b.firstError == "" {
		b.firstError = fmt.Sprintf("bot %d: %s", b.id, what)
	}
}

// inputSize is the size of an encoded input.
func inputSize(fields []drumline.InputField) (int, error) {
	bools, n := 0, 0
	for _, f := range fields {
		switch f.Kind {
		case "bool":
			bools++
		case "i8", "u8":
			n++
		case "i16", "u16":
			n += 2
		case "i32", "u32", "f32":
			n += 4
		default:
			return 0, fmt.Errorf("input field %q: unknown kind %q", f.Name, f.Kind)
		}
	}
	return n + (bools+7)/8, nil
}

// onState takes a state packet. What is wrong with one is counted and ends nothing: a client has to live with it.
func (b *bot) onState(p []byte) {
	now := b.f.now()
	b.n.packets++
	b.n.bytes += uint64(len(p))
	if b.lastPacket != 0 && b.measured {
		b.f.gap.Record(now - b.lastPacket)
	}
	b.lastPacket = now

	b.f.note(&b.f.packet, b.measured, time.Duration(len(p))*packetUnit)

	clear(b.bodies)
	h, err := drumline.ParseState(p, b.section)
	if err != nil {
		b.n.decodeErrors++
		b.note("a state packet: " + err.Error())
		return
	}
	late := b.got && !wire.SeqNewer(h.Seq, b.ack)
	if late && !h.HasAcks {
		b.n.decodeErrors++
		b.note(fmt.Sprintf("a state packet: number %d after %d", h.Seq, b.ack))
		return
	}
	if late || b.overtaken(h.Epoch) {
		b.n.overtaken++
		return
	}
	tick := b.fullTick(h.Tick16)
	if b.decodes && !b.decode(h, tick) {
		return
	}
	if b.screen != nil {
		if h.Epoch != b.epoch {
			b.screen.Clear()
		}
		b.screen.Packet(b.snap, tick, now)
	}
	b.epoch = h.Epoch
	if tick >= b.tick {
		b.tick, b.tickAt, b.view.Tick = tick, now, tick
	}
	b.received(h.Seq)
	if !b.owed {
		b.owed, b.owedAt = true, now
	}
	if b.decodes {
		now = b.f.now()
		if h.HasHash {
			b.compare(h.Hash, tick)
		}
		if b.hz > 0 && b.measured {
			b.f.age.Record(now - b.tickZero - time.Duration(tick)*time.Second/time.Duration(b.hz))
		}
	}
	b.onInputAck(h, now)
}

// onSection notes a feed's part of a state packet.
func (b *bot) onSection(_ drumline.StateHeader, i int, body []byte) error {
	if i >= len(b.lanes) {
		return fmt.Errorf("bots: a section of feed %d of %d", i, len(b.lanes))
	}
	if b.lanes[i] != feed.State {
		return fmt.Errorf("bots: a section of feed %d, which is reliable", i)
	}
	if len(b.bodies) < len(b.lanes) {
		b.bodies = make([][]byte, len(b.lanes))
	}
	b.bodies[i] = body
	return nil
}

// decode gives a packet to the decoders of all state feeds, also to those that have no section in it: its header concerns them. It
// is false if one of them did not read it; then the packet is not acked. Where baselines are acked, packets are lost or come late, and
// what cannot be read for that is no error.
func (b *bot) decode(h drumline.StateHeader, tick feed.Tick) bool {
	p := feed.Packet{Seq: h.Seq, Epoch: h.Epoch, Tick: tick, Ack: h.Ack, Acks: h.Acks}
	for i, d := range b.view.Decoders {
		if b.lanes[i] != feed.State {
			continue
		}
		var body []byte
		if i < len(b.bodies) {
			body = b.bodies[i]
		}
		err := d.Decode(p, body)
		switch {
		case err == nil:
			continue
		case h.HasAcks && errors.Is(err, snap.ErrOvertaken):
			b.n.overtaken++
		case h.HasAcks && errors.Is(err, snap.ErrNoKeyframe):
			b.n.noBase++
		default:
			b.n.decodeErrors++
			b.note("a state packet: " + err.Error())
		}
		return false
	}
	return true
}

// compare checks what the bot holds against the server's hash; 0 is none.
func (b *bot) compare(hash uint32, tick feed.Tick) {
	if hash == 0 {
		b.n.unverifiable++
		return
	}
	b.n.verified++
	if b.hash() != hash {
		b.n.mismatches++
		b.note(fmt.Sprintf("tick %d: the hash of what it holds is not the server's", tick))
	}
}

// overtaken says that a message is of an epoch before this one: what it tells is of a world that was replaced.
func (b *bot) overtaken(epoch uint8) bool { return int8(epoch-b.epoch) < 0 }

// fullTick finds the tick nearest to the newest one that ends in a header's 16 bits. Ticks run on when the epoch is raised.
func (b *bot) fullTick(low uint16) feed.Tick {
	return b.tick + feed.Tick(int16(low-uint16(b.tick)))
}

// onReliable takes a section of a reliable feed. Its bytes count with those of state.
func (b *bot) onReliable(p []byte) {
	b.n.bytes += uint64(len(p))
	h, body, err := drumline.ParseReliable(p)
	if err == nil && (h.Feed >= len(b.lanes) || b.lanes[h.Feed] != feed.Reliable) {
		err = fmt.Errorf("there is no reliable feed %d", h.Feed)
	}
	if err == nil && b.decodes && !b.overtaken(h.Epoch) {
		b.epoch = h.Epoch
		err = b.view.Decoders[h.Feed].Decode(feed.Packet{Epoch: h.Epoch, Tick: h.Tick}, body)
	}
	if err != nil {
		b.n.decodeErrors++
		b.note("a reliable message: " + err.Error())
	}
}

// received notes that packet seq, which is newer than those before, has been read.
func (b *bot) received(seq uint16) {
	d := int(int16(seq - b.ack))
	switch {
	case !b.got:
		b.ack, b.got = seq, true
	case d > 32:
		b.ack, b.history = seq, 0
	default:
		// The bit of the packet that was newest until now, after those of the ones between.
		b.ack, b.history = seq, b.history<<d|1<<(d-1)
	}
}

// hash is that of all state feeds: of one feed its own, of several folded in order.
func (b *bot) hash() uint32 {
	var h uint32
	first := true
	for i, d := range b.view.Decoders {
		if b.lanes[i] != feed.State {
			continue
		}
		if first {
			h, first = d.Hash(), false
			continue
		}
		h = foldHash(h, d.Hash())
	}
	return h
}

// onInputAck times the way of an input and keeps inputs as early as they should be.
func (b *bot) onInputAck(h drumline.StateHeader, now time.Duration) {
	if b.hz == 0 || h.Margin == drumline.MarginNone {
		return
	}
	if h.InputAck != b.echoed {
		b.echoed = h.InputAck
		for _, s := range b.sent {
			if s.label != 0 && uint16(s.label) == h.InputAck {
				if b.measured {
					b.f.echo.Record(now - s.at)
				}
				break
			}
		}
	}
	margin := int(h.Margin)
	switch since := now - b.leadAt; {
	case margin < b.goal() && since > 150*time.Millisecond && b.lead < maxLead:
		b.follow(1, now)
	case margin > b.goal()+3 && since > time.Second && b.lead > 0:
		b.follow(-1, now)
	}
}

// goal is the least margin of a message's newest input with which its oldest new one is a whole step early.
func (b *bot) goal() int {
	if b.perPacket > 0 {
		return min(b.perPacket, b.stride)
	}
	return b.stride
}

// follow changes the lead.
func (b *bot) follow(by int, now time.Duration) {
	b.lead, b.leadAt = b.lead+by, now
	b.paceLabel += drumline.Tick(by)
}

// beat is a bot's turn in the schedule of sends: slot is when it was due.
func (b *bot) beat(slot, now time.Duration) {
	switch b.state {
	case joining:
		if now > b.deadline {
			b.end(NoAnswer)
		}
		return
	case live:
	default:
		return
	}
	b.beats++
	if !b.link.ready() {
		if b.state == live {
			b.n.unsent++
		}
		return
	}
	hz := b.f.o.InputHz
	if hz <= 0 || hz == 1 && b.beats%2 == 0 {
		if b.got {
			b.s.message = drumline.AppendAck(b.s.message[:0], b.ack, b.history)
			b.say(now)
		}
		return
	}
	label := b.label(slot, now)
	b.s.message = b.appendInputs(b.s.message[:0], label)
	if !b.say(now) {
		b.n.unsent++
		return
	}
	b.n.inputs++
	if b.measured {
		b.f.late.Record(b.f.now() - slot)
	}
	b.sent[b.sentN%echoes] = sent{label, slot}
	b.sentN++
}

// say sends the shard's message, which begins with an ack.
func (b *bot) say(now time.Duration) bool {
	if !b.link.send(b.s.message, feed.State) {
		return false
	}
	if b.got {
		b.n.acks++
	}
	if b.owed {
		b.f.note(&b.f.ackDelay, b.measured, now-b.owedAt)
		b.owed = false
	}
	return true
}

// label is the step for which an input of slot that is sent now should be meant: the one that runs when it arrives, plus a lead
// that follows the server's margin. 0 means the next one. From message to message it goes on by the time between their slots,
// since an estimate from arrivals alone is one step off now and then, and each time a step is sent twice or not at all.
func (b *bot) label(slot, now time.Duration) drumline.Tick {
	if b.hz == 0 || !b.got {
		b.paced = false
		return 0
	}
	since := min(now-b.tickAt, 2*time.Second) // a pause stops the estimate, not the inputs
	estimate := b.tick + 1 + drumline.Tick(b.lead) + drumline.Tick(int64(since)*int64(b.hz)/int64(time.Second))
	l := b.paceLabel + drumline.Tick((int64(slot-b.paceAt)*int64(b.hz)+int64(time.Second)/2)/int64(time.Second))
	if off := int32(estimate - l); !b.paced || off < -1 || off > 1 {
		b.paced, b.paceAt, b.paceLabel = true, slot, estimate
		l = estimate
	}
	// The server dropped steps, or there are more messages than steps: wait for it, as the last one's or the next one's.
	switch ahead := int32(b.newest - l); {
	case ahead < 0 || ahead >= maxAhead || b.newest == 0:
	case int(ahead) < b.stride:
		l = b.newest + 1
	default:
		l = b.newest
	}
	return l
}

// appendInputs asks the bot's mind for one input, which it holds for all steps up to label that are new, and appends the message.
// To ask for each step would make the bots a third heavier, and players hold their keys for longer than three steps.
func (b *bot) appendInputs(dst []byte, label drumline.Tick) []byte {
	b.think()
	if label == 0 {
		b.newest, b.valid = 0, 0
		dst = drumline.AppendInputHeader(dst, b.ack, b.history, 1, 0)
		return append(dst, b.input...)
	}
	most := b.perPacket
	if most == 0 {
		most = drumline.MaxInputs
	}
	fresh := int(int32(label - b.newest))
	if fresh < 0 || fresh > most || b.newest == 0 {
		// What came before does not follow, and older steps than these are over.
		fresh, b.valid = b.goal(), 0
	}
	for i := fresh - 1; i >= 0; i-- {
		if int64(label) <= int64(i) {
			continue
		}
		p := &b.ring[(label-drumline.Tick(i))%drumline.MaxInputs]
		*p = append((*p)[:0], b.input...)
		b.valid = min(b.valid+1, drumline.MaxInputs)
	}
	b.newest = label
	n := b.perPacket
	if n == 0 {
		n = max(fresh, 1)
	}
	n = min(n, b.valid)
	dst = drumline.AppendInputHeader(dst, b.ack, b.history, n, label)
	for i := range n {
		dst = append(dst, b.ring[(label-drumline.Tick(i))%drumline.MaxInputs]...)
	}
	return dst
}

// think asks for the next input.
func (b *bot) think() {
	b.input = b.input[:0]
	if b.mind != nil {
		b.input = b.mind(b.input, b.view)
	}
	for len(b.input) < b.inputSize {
		b.input = append(b.input, 0)
	}
}
