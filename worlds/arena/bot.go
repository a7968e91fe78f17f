package arena

import (
	"math"
	"math/rand/v2"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed/snap"
)

// NewBot makes a player for load tests: it runs in wide curves, aims at the nearest other entity that its client holds and
// fires in bursts. It knows nothing but what a page would know, and allocates nothing after its first input. The function it
// returns is not safe for concurrent use.
func NewBot(seed uint64) func(v drumline.BotView) Input {
	b := &bot{rng: rand.New(rand.NewPCG(seed, 0x6172656e61))}
	b.heading = b.rng.Float64() * 2 * math.Pi
	b.visit = b.look
	return b.input
}

type bot struct {
	rng           *rand.Rand
	heading, turn float64 // radians; radians an input
	curve         int     // inputs until the next curve
	burst, pause  int     // inputs left of a burst, and of the pause after it
	glance        int     // inputs until the next look around
	aim           uint16

	dec     *snap.Decoder
	x, y    [2]int // field numbers, by type
	hp      [2]int
	players int // type numbers
	beasts  int

	// One look around.
	self   snap.EntityID
	at     [2]float64
	near   float64
	target [2]float64
	visit  func(snap.Entity) bool // look, bound once
}

const (
	botGlance   = 6   // inputs between two looks around
	botWall     = 160 // nearer to a wall, the curve bends back
	botTurnMax  = 0.03
	botTurnBack = 0.06
)

func (b *bot) input(v drumline.BotView) Input {
	if b.curve--; b.curve < 0 {
		b.curve = 90 + b.rng.IntN(180)
		b.turn = (b.rng.Float64()*2 - 1) * botTurnMax
	}
	turn := b.turn
	held := b.attach(v)
	if held {
		if b.glance--; b.glance < 0 {
			b.glance = botGlance
			b.lookAround()
		}
		turn = b.avoidWalls(turn)
	}
	b.heading = math.Mod(b.heading+turn, 2*math.Pi)
	in := Input{
		DX: int8(math.Round(math.Cos(b.heading) * 127)), DY: int8(math.Round(math.Sin(b.heading) * 127)),
		Aim: b.aim + uint16(b.rng.IntN(1200)) - 600,
	}
	switch {
	case b.burst > 0:
		b.burst--
		in.Fire = true
	case b.pause > 0:
		b.pause--
	case held && b.near < shotReach*shotReach:
		b.burst, b.pause = 20+b.rng.IntN(60), 40+b.rng.IntN(120)
	}
	return in
}

// attach finds the decoder and its field numbers; false: it holds no own entity yet.
func (b *bot) attach(v drumline.BotView) bool {
	if len(v.Decoders) == 0 {
		return false
	}
	dec, ok := v.Decoders[0].(*snap.Decoder)
	if !ok {
		return false
	}
	if dec != b.dec { // the first time, and after a resume
		b.dec = dec
		b.players, b.beasts = dec.Type("player"), dec.Type("monster")
		for i, t := range [2]int{b.players, b.beasts} {
			b.x[i], b.y[i], b.hp[i] = dec.Field(t, "x"), dec.Field(t, "y"), dec.Field(t, "hp")
		}
	}
	own, ok := dec.Own()
	if !ok {
		return false
	}
	b.self = own.ID
	b.at = [2]float64{own.Float(b.x[0]), own.Float(b.y[0])}
	return true
}

// lookAround aims at whoever is nearest.
func (b *bot) lookAround() {
	b.near = math.Inf(1)
	b.dec.Each(b.visit)
	if dx, dy := b.target[0]-b.at[0], b.target[1]-b.at[1]; b.near < math.Inf(1) {
		b.aim = uint16(int(math.Atan2(dy, dx) * (aimSteps / (2 * math.Pi))))
	}
}

func (b *bot) look(e snap.Entity) bool {
	kind := 0
	switch {
	case e.ID == b.self:
		return true
	case e.Type == b.beasts:
		kind = 1
	case e.Type != b.players:
		return true
	}
	if e.Int(b.hp[kind]) == 0 {
		return true
	}
	x, y := e.Float(b.x[kind]), e.Float(b.y[kind])
	if d := (x-b.at[0])*(x-b.at[0]) + (y-b.at[1])*(y-b.at[1]); d < b.near {
		b.near, b.target = d, [2]float64{x, y}
	}
	return true
}

// avoidWalls turns to the middle of the field while near a wall.
func (b *bot) avoidWalls(turn float64) float64 {
	if min(b.at[0], b.at[1], fieldSize-b.at[0], fieldSize-b.at[1]) > botWall {
		return turn
	}
	home := math.Atan2(fieldSize/2-b.at[1], fieldSize/2-b.at[0])
	if math.Sin(home-b.heading) > 0 {
		return botTurnBack
	}
	return -botTurnBack
}
