package traffic

import (
	"math"
	"math/rand/v2"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed/snap"
)

// NewBot makes a player for load tests. It drives along the streets, or runs about and shoots, whichever its seat does, by keys that are down
// or up. It knows nothing but what a page would know: the city, and what its client holds. o is that of the world. The function it
// returns allocates nothing and is not safe for concurrent use.
func NewBot(seed uint64, o Options) func(v drumline.BotView) Input {
	b := &bot{rng: rand.New(rand.NewPCG(seed, 0x74726166)), city: newCity(o.Spread)}
	b.look = 2 * math.Pi * b.rng.Float64()
	return b.input
}

type bot struct {
	rng  *rand.Rand
	city city
	tick drumline.Tick

	dec     *snap.Decoder
	car     int // type number
	x, z    [2]int
	yaw     int
	forward int

	// The mouse, radians and radians a second.
	look, pitch, lookRate, pitchRate float64
	still                            float64 // seconds without a move

	keys Input   // of one on foot
	hold float64 // seconds until they change

	// Of a driver.
	driving bool
	dir     dir
	node    uint8   // the crossing ahead, counted along dir
	lane    uint8   // the street it is on
	turn    uint8   // what it will do there
	rest    float64 // seconds to stand still
}

func (b *bot) input(v drumline.BotView) Input {
	// It lives in the time of the packets, whatever the rate of its inputs.
	since := min(max(float64(int32(v.Tick-b.tick)), 0), hz/4) * dt
	b.tick = v.Tick
	own, ok := b.attach(v)
	if !ok {
		return Input{}
	}
	if own.Type == b.car {
		return b.drive(own, since)
	}
	return b.run(own, since)
}

// attach finds the decoder and its field numbers; false: it holds no own entity yet.
func (b *bot) attach(v drumline.BotView) (own snap.Entity, ok bool) {
	if len(v.Decoders) == 0 {
		return own, false
	}
	dec, ok := v.Decoders[0].(*snap.Decoder)
	if !ok {
		return own, false
	}
	if dec != b.dec { // the first time, and after a resume
		b.dec, b.car = dec, dec.Type("car")
		for i, t := range [2]int{b.car, dec.Type("player")} {
			b.x[i], b.z[i] = dec.Field(t, "x"), dec.Field(t, "z")
		}
		b.yaw, b.forward = dec.Field(b.car, "yaw"), dec.Field(b.car, "vel.ahead")
	}
	return dec.Own()
}

// gaze moves the mouse: it swings about home, more or less wildly, and rests at times.
func (b *bot) gaze(since, home, wild float64) {
	if b.still > 0 {
		b.still -= since
		b.lookRate, b.pitchRate = b.lookRate/2, b.pitchRate/2
	} else if since > 0 {
		n := math.Sqrt(since)
		b.lookRate += -5*b.lookRate*since + wild*n*b.rng.NormFloat64()
		b.pitchRate += -5*(b.pitchRate+b.pitch)*since + wild*n/4*b.rng.NormFloat64()
		if b.rng.Float64() < since/2 {
			b.still = 1.5 * b.rng.Float64()
		}
	}
	b.look = wrap(b.look + b.lookRate*since)
	b.pitch = clamp(b.pitch+b.pitchRate*since, 1)
	if math.IsNaN(home) {
		return
	}
	b.look += (home - b.look) * since
}

func (b *bot) mouse(in Input) Input {
	in.Look = uint16(int(math.Round(b.look * (1 << 15) / math.Pi)))
	in.Pitch = int16(math.Round(b.pitch * (1 << 15) / math.Pi))
	return in
}

// run is the input of one on foot.
func (b *bot) run(own snap.Entity, since float64) Input {
	b.gaze(since, math.NaN(), 3.5)
	if b.hold -= since; b.hold <= 0 {
		b.hold = 0.3 + 1.7*b.rng.Float64()
		k, side := b.rng.IntN(10), b.rng.IntN(3)
		b.keys = Input{Up: k >= 2 && k < 9, Down: k == 9, Left: k >= 2 && side == 0, Right: k >= 2 && side == 1, Fire: b.rng.IntN(24) == 0}
		x, z := own.Float(b.x[1]), own.Float(b.z[1])
		// Whoever has left the city turns back.
		const mid = worldSize / 2
		if most := b.city.axis(b.city.blocks) - mid - 20; math.Hypot(x-mid, z-mid) > most {
			b.look = math.Atan2(mid-z, mid-x)
			b.keys.Up, b.keys.Down = true, false
		}
	}
	in := b.keys
	in.Jump = b.rng.Float64() < since/4
	return b.mouse(in)
}

// drive is the input of a driver: he keeps to the right lane, and slows down for a bend.
func (b *bot) drive(own snap.Entity, since float64) Input {
	at := [2]float64{own.Float(b.x[0]), own.Float(b.z[0])}
	yaw, v := wrap(own.Float(b.yaw)), own.Float(b.forward)
	b.gaze(since, 0, 1.2)
	if !b.driving || math.Cos(yaw-b.dir.yaw()) < -0.2 {
		b.driving, b.dir = true, dir(int(math.Round(yaw/(math.Pi/2)))&3)
		b.enter(at)
	}
	gap := b.gap(at)
	if gap < turnIn[b.turn] {
		b.dir = b.dir.turn(b.turn)
		b.enter(at)
		gap = b.gap(at)
	}
	// Metres that the lane is to the left.
	l := b.dir.turn(left)
	aside := b.city.axis(b.lane) - at[l&1]
	if l >= 2 {
		aside = -aside
	}
	aside -= laneOff
	off := wrap(b.dir.yaw() + clamp(0.06*aside, 0.4) - yaw)

	speed := 12.0
	if math.Abs(off) > 0.3 || b.turn != ahead && gap < 30 {
		speed = 5
	}
	if b.rest > 0 {
		b.rest -= since
		speed = 0
	} else if b.rng.Float64() < since/40 {
		b.rest = 3 + 3*b.rng.Float64()
	}
	in := Input{Up: v < speed-0.3, Down: v > speed+0.6, Left: off > 0.06, Right: off < -0.06}
	if b.rng.Float64() < since/5 { // a key that was not meant
		in.Left, in.Right = !in.Left, false
	}
	in.Fire = b.rng.Float64() < since/60
	in.Jump = b.rng.Float64() < since/120
	return b.mouse(in)
}

// turnIn is how many metres before the middle of a crossing the wheel turns.
var turnIn = [...]float64{ahead: 0, left: 4, right: 9}

// gap is the way to the middle of the crossing ahead, in metres.
func (b *bot) gap(at [2]float64) float64 {
	d := b.city.axis(b.node) - at[b.dir&1]
	if b.dir >= 2 {
		return -d
	}
	return d
}

// enter finds the crossing ahead and the street that it is on, and chooses a turn.
func (b *bot) enter(at [2]float64) {
	d := b.dir
	last := float64(b.city.blocks)
	u := (at[d&1] - b.city.origin) / block
	k := math.Ceil(u + 0.15) // the one that it has just passed is behind
	if d >= 2 {
		k = math.Floor(u - 0.15)
	}
	b.node = uint8(min(max(k, 0), last))
	b.lane = uint8(min(max(math.Round((at[1-d&1]-b.city.origin)/block), 0), last))
	i, j := b.node, b.lane
	if d&1 == 1 {
		i, j = j, i
	}
	turns := [4]uint8{ahead, left, right, ahead}
	n := b.rng.IntN(4)
	for m := range 4 {
		b.turn = turns[(n+m)&3]
		if _, _, ok := b.city.next(i, j, d.turn(b.turn)); ok {
			return
		}
	}
}
