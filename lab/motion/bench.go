package motion

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
	"github.com/drumline-engine/drumline/lab/traffic"
	"github.com/drumline-engine/drumline/wire"
)

// Cell is one run of the bench: a network, and how inputs are sent over it.
type Cell struct {
	// Loss is the share of packets lost; a packet takes DelayMs and, by chance, up to JitterMs more. Both are so in each direction.
	Loss, DelayMs, JitterMs float64
	// Ordered: what is lost is sent again after 120 ms and holds up what follows. Else it is gone.
	Ordered bool
	// Seconds is for how long, five to settle not counted. Default 60.
	Seconds int
	// InputHz is how many input messages a client sends a second, each with the inputs that are new, and at least Repeat. Default: 20
	// and 3 on an ordered link, 60 and 4 else.
	InputHz, Repeat int
	// Shown is how many of the 32 clients show what they get, 60 frames a second. Default 16.
	Shown int
	// Seed makes the world and the network's chances. Default 1.
	Seed uint64

	settleS   int
	hindsight bool // measure as a Screen does that does not know the world
}

const (
	resendMs = 120
	tickMs   = 1000.0 / traffic.Hz
	period   = traffic.Hz / traffic.SendHz
	// budget is a packet's share in bytes; twice as much after a pause. As the world says.
	budget = 550
)

// Figures are what a Cell gave.
type Figures struct {
	// Motion is of the innermost ring, within 80 m; Rings are the ones farther out, to 160 and 250 m, told every second and fourth time.
	Motion
	Rings [2]Motion
	// Kinds are the innermost ring's, by type.
	Kinds map[string]Motion
	// StarvedPct are steps for which a client's input was not there in time, StarvedMax is how many of them followed each other at most. LeadMs
	// is how far ahead of the server an input is labelled when it is sent.
	StarvedPct, LeadMs float64
	StarvedMax         int
}

// event is something that happens at a time.
type event struct {
	at float64
	n  uint64
	do func()
}

type queue []event

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1].do = nil
	*q = old[:len(old)-1]
	return e
}

// way is one direction of a link.
type way struct {
	rng  *rand.Rand
	last float64
}

// arrival is when a message that leaves now comes; false: never.
func (w *way) arrival(c *Cell, now float64) (float64, bool) {
	at := now + c.DelayMs + w.rng.Float64()*c.JitterMs
	for w.rng.Float64() < c.Loss {
		if !c.Ordered {
			return 0, false
		}
		at += resendMs
	}
	if c.Ordered {
		at = max(at, w.last)
		w.last = at
	}
	return at, true
}

// bench is a Cell under way.
type bench struct {
	Cell
	now     float64
	events  queue
	n       uint64
	sim     *traffic.Sim
	tick    feed.Tick // tick t is made at (t-1) · tickMs
	inputs  [traffic.Seats]traffic.Input
	clients []*client
	truth   map[snap.EntityID]*recorded
	err     error

	lead           float64
	leads          uint64
	steps, starved uint64
	starvedMax     int
}

// client is a seat at both ends of its link.
type client struct {
	b        *bench
	seat     int
	up, down way

	// the server's
	stream  feed.Stream
	tokens  int
	seq     uint16
	acked   uint16
	history uint32
	open    []receipt
	labels  [64]uint32
	held    [64]traffic.Input
	newest  uint32
	margin  int
	inARow  int

	// the client's
	decoder  *snap.Decoder
	mind     func(drumline.BotView) traffic.Input
	view     drumline.BotView
	arrivals *arrivals
	screen   *Screen // nil: it only plays
	input    *inputClock
	got      bool
	ack      uint16
	acks     uint32
	label    uint32
	fresh    int // inputs not sent yet
	count    int // inputs in ring
	ring     [drumline.MaxInputs]traffic.Input
}

type receipt struct {
	seq uint16
	r   feed.Receipt
}

// when lets something happen at a time; of what is at the same time, what was planned first is first.
func (b *bench) when(at float64, do func()) {
	b.n++
	heap.Push(&b.events, event{at, b.n, do})
}

func (b *bench) after(ms float64, do func()) { b.when(b.now+ms, do) }

// fill sets the defaults and checks the rest.
func (c *Cell) fill() error {
	for _, f := range []struct {
		name             string
		value            *int
		def, least, most int
	}{
		{"Seconds", &c.Seconds, 60, 1, 3600},
		{"Shown", &c.Shown, 16, 1, traffic.Seats},
		{"settleS", &c.settleS, 5, 1, 60},
		{"InputHz", &c.InputHz, 60, 1, traffic.Hz},
		{"Repeat", &c.Repeat, 4, 1, drumline.MaxInputs},
	} {
		if *f.value == 0 {
			*f.value = f.def
			if c.Ordered {
				switch f.name {
				case "InputHz":
					*f.value = 20
				case "Repeat":
					*f.value = 3
				}
			}
		}
		if *f.value < f.least || *f.value > f.most {
			return fmt.Errorf("motion: %s is %d, want %d to %d", f.name, *f.value, f.least, f.most)
		}
	}
	if !(c.Loss >= 0 && c.Loss < 1) || !(c.DelayMs >= 0 && c.DelayMs <= 2000) || !(c.JitterMs >= 0 && c.JitterMs <= 2000) {
		return fmt.Errorf("motion: a network that loses %g and takes %g ms and up to %g more: want a share below 1 and times to 2000", c.Loss, c.DelayMs, c.JitterMs)
	}
	if c.Seed == 0 {
		c.Seed = 1
	}
	return nil
}

// Run runs a cell. The same cell gives the same figures on the same kind of machine. It ends early when ctx does.
func Run(ctx context.Context, c Cell) (*Figures, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	b := &bench{Cell: c, truth: map[snap.EntityID]*recorded{}}
	var err error
	if b.sim, err = traffic.NewSim(b.Seed, traffic.Options{}); err != nil {
		return nil, err
	}
	for seat := range traffic.Seats {
		if err := b.join(seat); err != nil {
			return nil, err
		}
	}
	b.when(0, b.step)
	b.when(1000*float64(b.settleS), func() {
		for _, c := range b.clients {
			if c.screen != nil {
				c.screen.Reset()
			}
		}
	})
	end := float64(b.settleS+b.Seconds) * 1000
	for b.err == nil {
		e := heap.Pop(&b.events).(event) // there is always a next step
		if e.at > end {
			break
		}
		b.now = e.at
		e.do()
		if b.n%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if b.err != nil {
		return nil, b.err
	}
	return b.figures(), nil
}

// join makes a seat's client. Of those that show, half drive and half walk.
func (b *bench) join(seat int) error {
	info := b.sim.Feed().Info()
	dec, err := snap.NewDecoder(info.Schema)
	if err != nil {
		return err
	}
	delivery := feed.Unordered
	if b.Ordered {
		delivery = feed.Ordered
	}
	chance := func(k uint64) *rand.Rand { return rand.New(rand.NewPCG(b.Seed+uint64(seat), k)) }
	c := &client{b: b, seat: seat, up: way{rng: chance(2)}, down: way{rng: chance(3)}, decoder: dec, margin: drumline.MarginNone,
		stream: b.sim.Feed().Join(feed.SeatID(seat), delivery), mind: traffic.NewBot(b.Seed+uint64(seat), traffic.Options{}),
		view: drumline.BotView{Seat: feed.SeatID(seat), Decoders: []feed.Decoder{dec}}, arrivals: &arrivals{tickMs: tickMs}}
	b.clients = append(b.clients, c)
	if seat*b.Shown/traffic.Seats != (seat-1)*b.Shown/traffic.Seats || seat == 0 {
		if c.screen, err = NewScreen(info.Schema, traffic.SendHz, b.Ordered, -time.Second/traffic.Hz); err != nil {
			return err
		}
		if !b.hindsight {
			c.screen.truth = b.where
		}
		c.arrivals = &c.screen.arrivals
		b.when(chance(5).Float64()*frameMs, c.frame)
	}
	c.input = newInputClock(c.arrivals, 2*b.DelayMs, max(1, min(drumline.MaxInputs, traffic.Hz/float64(b.InputHz))))
	b.when(chance(4).Float64()*1000/traffic.SendHz, c.pump)
	return nil
}

// where is the true path of something; players who sit in a car have none.
func (b *bench) where(id snap.EntityID) truth {
	if r := b.truth[id]; r != nil {
		return r
	}
	return nil
}

func (b *bench) settled() bool { return b.now >= 1000*float64(b.settleS) }

// step is one of the server's.
func (b *bench) step() {
	b.tick++
	t := uint32(b.tick)
	for _, c := range b.clients {
		c.use(t)
	}
	b.sim.Step(&b.inputs)
	b.sim.Each(func(id snap.EntityID, x, y, z float64) {
		r := b.truth[id]
		if r == nil {
			r = &recorded{leap: 10}
			b.truth[id] = r
		}
		r.record(float64(t), place{x, y, z})
	})
	if t%period == 0 {
		f := b.sim.Feed().Capture(b.tick)
		for _, c := range b.clients {
			c.send(f)
		}
		f.Release()
	}
	b.when(float64(t)*tickMs, b.step) // not added up, so that no rounding is
}

// use takes the input of a step, or holds the one before.
func (c *client) use(step uint32) {
	b := c.b
	slot := step % uint32(len(c.labels))
	here := c.labels[slot] == step
	if here {
		b.inputs[c.seat] = c.held[slot]
	}
	if !b.settled() {
		return
	}
	b.steps++
	if c.inARow++; here {
		c.inARow = 0
	} else {
		b.starved++
		b.starvedMax = max(b.starvedMax, c.inARow)
	}
}

// send sends a packet.
func (c *client) send(f feed.Frame) {
	b := c.b
	c.tokens = min(c.tokens+budget, 2*budget)
	body, w := c.stream.Append(nil, f, c.tokens)
	c.tokens -= len(body)
	c.seq++
	p := feed.Packet{Seq: c.seq, Tick: f.Tick()}
	if !b.Ordered {
		p.Ack, p.Acks = c.acked, c.history
	}
	if w.Receipt != 0 {
		if b.Ordered {
			c.stream.Delivered(w.Receipt)
		} else {
			c.open = append(c.open, receipt{c.seq, w.Receipt})
		}
	}
	newest, margin := c.newest, c.margin
	if at, ok := c.down.arrival(&b.Cell, b.now); ok {
		b.when(at, func() { c.receive(p, body, newest, margin) })
	}
}

// take is a message from a client.
func (c *client) take(ack uint16, history uint32, got bool, label uint32, inputs []traffic.Input) {
	now := uint32(c.b.tick)
	for i := len(inputs) - 1; i >= 0; i-- {
		l := label - uint32(i)
		if l > label {
			continue
		}
		if l > c.newest {
			c.newest = l
			c.margin = int(l) - int(now) - 1
		}
		if l > now && l <= now+64 {
			c.labels[l%64], c.held[l%64] = l, inputs[i]
		}
	}
	if !got || c.b.Ordered {
		return
	}
	if d := wire.SeqDiff(ack, c.acked); d < 0 {
		return
	} else if d == 0 {
		c.history |= history
	} else {
		c.acked, c.history = ack, history
	}
	left := c.open[:0]
	for _, o := range c.open {
		switch back := wire.SeqDiff(c.acked, o.seq); {
		case back == 0 || back > 0 && back <= 32 && c.history>>(back-1)&1 == 1:
			c.stream.Delivered(o.r)
		case back > 32:
			c.stream.Lost(o.r)
		default:
			left = append(left, o)
		}
	}
	c.open = left
}

// receive is a packet that has come.
func (c *client) receive(p feed.Packet, body []byte, newest uint32, margin int) {
	b := c.b
	if err := c.decoder.Decode(p, body); err != nil {
		if b.Ordered {
			b.err = fmt.Errorf("motion: seat %d: %w", c.seat, err)
		}
		return
	}
	if d := p.Seq - c.ack; !c.got || d > 32 {
		c.got, c.ack, c.acks = true, p.Seq, 0
	} else {
		c.ack, c.acks = p.Seq, c.acks<<d|1<<(d-1)
	}
	tick := float64(p.Tick)
	c.view.Tick = p.Tick
	if c.screen != nil {
		c.screen.packet(c.decoder, tick, b.now)
	} else {
		c.arrivals.note(tick, b.now)
	}
	if margin == drumline.MarginNone {
		return
	}
	c.input.margin(float64(margin), float64(newest), tick, float64(c.label))
	if b.settled() {
		// The step that runs now is the one after now / tickMs.
		b.lead += float64(c.label) - 1 - b.now/tickMs
		b.leads++
	}
}

// frame is a picture of the client's.
func (c *client) frame() {
	c.b.after(frameMs, c.frame)
	c.screen.frame(c.b.now)
}

// pump sends inputs, as web/src/inputs.ts and sampler.ts do.
func (c *client) pump() {
	b := c.b
	b.after(1000/float64(b.InputHz), c.pump)
	const most = drumline.MaxInputs
	if l := uint32(c.input.label(b.now)); l > c.label {
		n := int(l - c.label)
		if c.label == 0 || n > most {
			if n = most; c.label == 0 {
				n = 1
			}
			c.count, c.fresh = 0, 0
		}
		in := c.mind(c.view)
		for i := range n {
			c.ring[(l-uint32(i))%most] = in
		}
		c.label = l
		c.count, c.fresh = min(c.count+n, most), min(c.fresh+n, most)
	}
	n := min(c.count, max(c.fresh, b.Repeat))
	if n == 0 {
		return
	}
	inputs := make([]traffic.Input, n)
	for i := range inputs {
		inputs[i] = c.ring[(c.label-uint32(i))%most]
	}
	c.fresh = 0
	ack, history, got, label := c.ack, c.acks, c.got, c.label
	if at, ok := c.up.arrival(&b.Cell, b.now); ok {
		b.when(at, func() { c.take(ack, history, got, label, inputs) })
	}
}

func (b *bench) figures() *Figures {
	var total Total
	var rings [2]meter
	kinds := map[string]*meter{}
	for _, c := range b.clients {
		if c.screen == nil {
			continue
		}
		total.Add(c.screen)
		for i := range rings {
			rings[i].merge(c.screen.ring(i + 1))
		}
		for i, m := range c.screen.meters {
			if m[0] != nil {
				name := c.screen.line.kinds[i].Name
				if kinds[name] == nil {
					kinds[name] = &meter{}
				}
				kinds[name].merge(m[0])
			}
		}
	}
	f := &Figures{Motion: total.Motion(), Kinds: map[string]Motion{}, StarvedMax: b.starvedMax}
	for i := range rings {
		f.Rings[i] = rings[i].motion()
	}
	for name, m := range kinds {
		f.Kinds[name] = m.motion()
	}
	f.StarvedPct = 100 * float64(b.starved) / float64(max(b.steps, 1))
	f.LeadMs = b.lead / float64(max(b.leads, 1)) * tickMs
	return f
}
