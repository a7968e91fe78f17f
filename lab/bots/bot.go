package bots

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/gobwas/ws"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
)

type state uint8

const (
	idle    state = iota // not connected yet
	joining              // the hello is out
	live
	ended
)

// conn is a bot's connection. Its methods never wait for the peer for long.
type conn interface {
	// write takes as many bytes as it can at once; fewer than all is no error.
	write(p []byte) (int, error)
	close()
}

// counts are of the present window.
type counts struct {
	packets, bytes, wire               uint64
	decodeErrors, mismatches, verified uint64
	inputs, unsent                     uint64
}

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
	rcvbuf    int
	mind      func(dst []byte, v drumline.BotView) []byte
	section   func(h drumline.StateHeader, feed int, body []byte) error

	// the link
	state            state
	joined           bool
	reason           string // why it ended; the server's word once it has come
	deadline         time.Duration
	endedAt          time.Duration
	c                conn
	in               frames
	out              []byte // what the socket did not take
	reads            bool   // registered for reading, or not
	paused           bool
	pausedAt         time.Duration
	tokens, refilled time.Duration
	measured         bool
	n                counts
	firstError       string

	// the room
	hz         int
	tickZero   time.Duration // of tick 0, by the fleet's clock
	aged       bool          // tickZero is right for this epoch
	epoch      uint8
	tick       feed.Tick
	tickAt     time.Duration
	lanes      []feed.Lane
	view       drumline.BotView
	verify     bool
	inputSize  int
	perPacket  int
	lastPacket time.Duration // 0: none
	ack        uint16
	history    uint32
	got        bool // ack is valid

	// inputs
	input  []byte                     // the mind's newest
	ring   [drumline.MaxInputs][]byte // by label
	newest drumline.Tick              // label of the newest in ring
	valid  int                        // how many in a row there are, up to newest
	lead   int
	leadAt time.Duration
	sent   [echoes]sent
	sentN  uint
	echoed uint16
	beats  uint64
}

// begin is called when the connection is made and the hello is on its way.
func (b *bot) begin(c conn, now time.Duration) {
	b.c, b.state, b.deadline = c, joining, now+joinTimeout
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

// receive takes bytes from the socket.
func (b *bot) receive(p []byte) {
	b.n.wire += uint64(len(p))
	if err := b.in.read(p, b); err != nil {
		if b.state != ended {
			b.close(ws.StatusProtocolError, BadFrame)
		}
	}
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
	if b.c != nil {
		b.s.forget(b)
		b.c.close()
		b.c = nil
	}
	b.in, b.out = frames{}, nil
	if was != live {
		b.f.settle()
	}
}

// close tells the server code and ends the link.
func (b *bot) close(code ws.StatusCode, reason string) {
	b.send(ws.OpClose, ws.NewCloseFrameBody(code, ""))
	b.end(reason)
}

// leave says goodbye. The link ends when the server closes it.
func (b *bot) leave() {
	if b.state == live {
		b.send(ws.OpBinary, []byte{drumline.KindLeave})
	}
	b.send(ws.OpClose, ws.NewCloseFrameBody(ws.StatusNormalClosure, ""))
}

// frame is called for each message and control frame.
func (b *bot) frame(op ws.OpCode, p []byte) error {
	if b.state == ended {
		return io.EOF
	}
	switch op {
	case ws.OpPing:
		b.send(ws.OpPong, p)
		return nil
	case ws.OpPong:
		return nil
	case ws.OpClose:
		reason := Reset
		if code, _ := ws.ParseCloseFrameData(p); code != 0 {
			reason = codeName(int(code))
		}
		b.close(ws.StatusNormalClosure, reason)
		return io.EOF
	case ws.OpBinary:
		return b.message(p)
	}
	return errFrame // the protocol has no text
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
		return errFrame
	}
	switch p[0] {
	case drumline.KindState:
		if b.state == live {
			b.onState(p)
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
	return errFrame
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
	decoders, err := b.s.decoders(w.Feeds, b.decodes)
	if err != nil {
		return b.unwelcome(err.Error())
	}
	b.inputSize, b.view.Decoders, b.view.Seat, b.verify = size, decoders, w.Seat, w.Verify
	for _, f := range w.Feeds {
		b.lanes = append(b.lanes, f.Lane)
	}
	b.hz, b.epoch, b.tick, b.tickAt = w.Hz, w.Epoch, w.Tick, now
	b.tickZero, b.aged = time.UnixMicro(w.TickZeroUs).Sub(b.f.start.Round(0)), w.Hz > 0
	b.perPacket, b.lead = b.f.o.InputsPerPacket, 2
	if b.perPacket == 0 {
		b.perPacket = 1
		if hz := b.f.o.InputHz; hz > 0 {
			b.perPacket = min(max((w.Hz+hz/2)/hz, 1), drumline.MaxInputs)
		}
	}
	b.state, b.joined = live, true
	storeMax(&b.f.lastJoin, int64(now))
	b.s.watch(b)
	b.f.settle()
	return nil
}

func (b *bot) unwelcome(why string) error {
	b.note(why)
	b.close(ws.StatusNormalClosure, BadWelcome)
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

	h, err := drumline.ParseState(p, b.section)
	if err != nil {
		b.n.decodeErrors++
		b.note("a state packet: " + err.Error())
		return
	}
	tick := b.fullTick(h)
	if h.Epoch != b.epoch {
		// The room was restored; when the new tick 0 was due is not told.
		b.epoch, b.aged = h.Epoch, false
	}
	if tick >= b.tick || !b.aged {
		b.tick, b.tickAt, b.view.Tick = tick, now, tick
	}
	b.received(h.Seq)
	if b.decodes {
		now = b.f.now()
		if h.HasHash {
			b.n.verified++
			if b.hash() != h.Hash {
				b.n.mismatches++
				b.note(fmt.Sprintf("tick %d: the hash of what it holds is not the server's", tick))
			}
		}
		if b.aged && b.measured {
			b.f.age.Record(now - b.tickZero - time.Duration(tick)*time.Second/time.Duration(b.hz))
		}
	}
	b.onInputAck(h, now)
}

// onSection decodes a feed's part of a state packet.
func (b *bot) onSection(h drumline.StateHeader, i int, body []byte) error {
	if i >= len(b.view.Decoders) {
		return fmt.Errorf("bots: a section of feed %d of %d", i, len(b.view.Decoders))
	}
	if !b.decodes {
		return nil
	}
	return b.view.Decoders[i].Decode(feed.Packet{
		Seq: h.Seq, Epoch: h.Epoch, Tick: b.fullTick(h), Ack: h.Ack, Acks: h.Acks,
	}, body)
}

// fullTick finds the tick nearest to the newest one that ends in the header's 16 bits. A new epoch begins near 0.
func (b *bot) fullTick(h drumline.StateHeader) feed.Tick {
	if h.Epoch != b.epoch {
		return feed.Tick(h.Tick16)
	}
	return b.tick + feed.Tick(int16(h.Tick16-uint16(b.tick)))
}

// onReliable takes a section of a reliable feed: kind, feed, epoch, body.
func (b *bot) onReliable(p []byte) {
	if len(p) < 3 || int(p[1]) >= len(b.view.Decoders) || b.lanes[p[1]] != feed.Reliable {
		b.n.decodeErrors++
		b.note("a reliable message of no feed")
		return
	}
	if !b.decodes {
		return
	}
	if err := b.view.Decoders[p[1]].Decode(feed.Packet{Epoch: p[2], Tick: b.tick}, p[3:]); err != nil {
		b.n.decodeErrors++
		b.note("a reliable message: " + err.Error())
	}
}

// received notes that packet seq has come.
func (b *bot) received(seq uint16) {
	d := int(int16(seq - b.ack))
	switch {
	case !b.got:
		b.ack, b.got = seq, true
	case d > 32:
		b.ack, b.history = seq, 0
	case d > 0:
		// The bit of the packet that was newest until now, after those of the ones between.
		b.ack, b.history = seq, b.history<<d|1<<(d-1)
	case d < 0 && d >= -32:
		b.history |= 1 << (-d - 1)
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
	switch since := now - b.leadAt; {
	case h.Margin < 1 && since > 150*time.Millisecond && b.lead < 16:
		b.lead, b.leadAt = b.lead+1, now
	case h.Margin > 4 && since > time.Second && b.lead > 0:
		b.lead, b.leadAt = b.lead-1, now
	}
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
	if !b.flush() {
		if b.state == live {
			b.n.unsent++
		}
		return
	}
	hz := b.f.o.InputHz
	if hz <= 0 || hz == 1 && b.beats%2 == 0 {
		if b.got {
			b.send(ws.OpBinary, drumline.AppendAck(b.s.message[:0], b.ack, b.history))
		}
		return
	}
	label := b.label(now)
	b.s.message = b.appendInputs(b.s.message[:0], label)
	if !b.send(ws.OpBinary, b.s.message) {
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

// label is the step for which an input that is sent now should be meant: the one that runs when it arrives, plus a lead that
// follows the server's margin. 0 means the next one.
func (b *bot) label(now time.Duration) drumline.Tick {
	if b.hz == 0 || !b.got {
		return 0
	}
	since := min(now-b.tickAt, 2*time.Second) // a pause stops the estimate, not the inputs
	l := b.tick + 1 + drumline.Tick(b.lead) + drumline.Tick(int64(since)*int64(b.hz)/int64(time.Second))
	if l <= b.newest && b.newest-l < 32 {
		l = b.newest + 1
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
	fresh := int64(label) - int64(b.newest)
	n := b.perPacket
	if fresh <= 0 || fresh > int64(n) || b.newest == 0 {
		fresh, b.valid = int64(n), 0
	}
	for i := fresh - 1; i >= 0; i-- {
		if int64(label) <= i {
			continue
		}
		p := &b.ring[(label-drumline.Tick(i))%drumline.MaxInputs]
		*p = append((*p)[:0], b.input...)
		b.valid = min(b.valid+1, drumline.MaxInputs)
	}
	b.newest = label
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

// send frames p and gives it to the socket, and keeps what that does not take. It is false if nothing was sent, since there is
// something left from before or the link has ended.
func (b *bot) send(op ws.OpCode, p []byte) bool {
	if b.state == ended || !b.flush() {
		return false
	}
	b.s.scratch = appendFrame(b.s.scratch[:0], op, b.s.mask(), p)
	n, err := b.c.write(b.s.scratch)
	if err != nil {
		b.closedBy(err)
		return false
	}
	if n < len(b.s.scratch) {
		b.out = append(b.out[:0], b.s.scratch[n:]...)
	}
	return true
}

// flush tries to send what the socket did not take before; true: nothing is left.
func (b *bot) flush() bool {
	if len(b.out) == 0 {
		return true
	}
	n, err := b.c.write(b.out)
	if err != nil {
		b.closedBy(err)
		return false
	}
	b.out = b.out[:copy(b.out, b.out[n:])]
	return len(b.out) == 0
}
