package traffic

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
)

// How much there is of everything. Times are in steps of 1/60 s.
const (
	hz     = 60
	sendHz = 20
	dt     = 1.0 / hz

	seats   = 32
	drivers = 16 // the first seats
	cars    = 64 // in motion; the first ones are the drivers'
	parked  = 84
	people  = 100

	margin = 12.0 // from the edge of the world, where everything stops
)

// Input is what a player sends for each step.
type Input struct {
	// Keys: a driver's pedals and wheel, a walker's steps. Fire shoots, or honks; Jump is a driver's headlights.
	Up, Down, Left, Right bool
	Fire, Jump            bool
	// Look is where the mouse looks, 65,536 steps a turn; a driver's counts from the car's bonnet. Pitch is up and down, ±16,384 is a quarter.
	Look  uint16
	Pitch int16
}

// Velocity is that of a body, as it feels it: ahead and to the left, metres a second.
type Velocity struct {
	Ahead float64 `drumline:"q=0.03125,range=-64:64,lod=0:1,tol=0.25,frame=body:Yaw"`
	Left  float64 `drumline:"q=0.03125,range=-64:64,lod=0:1,tol=0.25,frame=body:Yaw"`
}

// Car is a car as clients see it, and below it what only the rules know.
type Car struct {
	X float64 `drumline:"q=0.00390625,range=0:900,lod=2:3,tol=0.032,move=Vel.Ahead,place"`
	Z float64 `drumline:"q=0.00390625,range=0:900,lod=2:3,tol=0.032,move=Vel.Left,place"`
	// Y is the height of the middle, which springs move.
	Y     float64 `drumline:"q=0.00390625,range=-16:112,lod=2:3,tol=0.016"`
	Yaw   float64 `drumline:"angle,turn=Spin,lod=2:3,tol=0.018"`
	Pitch float64 `drumline:"angle,lod=2:12,tol=0.006"`
	Roll  float64 `drumline:"angle,lod=2:12,tol=0.006"`
	Vel   Velocity
	// Spin is the yaw rate, radians a second.
	Spin   float64 `drumline:"q=0.02,range=-8:8,lod=0:1,tol=0.16"`
	Driver snap.EntityID
	Damage uint8
	Lights bool
	Horn   bool
	Fuel   uint8  `drumline:"range=0:100,owner"`
	Plate  string `drumline:"once,max=12"`

	Number uint8 `drumline:"-"` // among all cars
	Route  Route `drumline:"-"` // unless somebody drives
	// Speed is along the way; Cruise is what the car likes to go.
	Speed  float64 `drumline:"-"`
	Cruise float64 `drumline:"-"`
	Halt   bool    `drumline:"-"` // it stops before the crossing
	Wait   uint16  `drumline:"-"` // steps to stand there
	Steer  float64 `drumline:"-"` // -1 … 1, left is positive
	Honk   uint8   `drumline:"-"` // steps until the horn is silent
	Burnt  float64 `drumline:"-"` // per cent of fuel
	// Springs: how fast height, pitch and roll move.
	Heave, Nod, Sway float64 `drumline:"-"`
}

// Gaits of people and players.
const (
	standing = iota
	walking
	running
	inAir
	sitting // in a car
	lying
	gaits
)

// Person is a pedestrian.
type Person struct {
	X      float64 `drumline:"q=0.00390625,range=0:900,lod=2:3,tol=0.032,move=Vel.Ahead,place"`
	Z      float64 `drumline:"q=0.00390625,range=0:900,lod=2:3,tol=0.032,move=Vel.Left,place"`
	Y      float64 `drumline:"q=0.00390625,range=-16:112,lod=2:3,tol=0.016"`
	Yaw    float64 `drumline:"angle,turn=Spin,lod=2:3,tol=0.018"`
	Vel    Velocity
	Spin   float64 `drumline:"q=0.02,range=-8:8,lod=0:1,tol=0.16"`
	Gait   uint8   `drumline:"range=0:5"`
	Health uint8   `drumline:"range=0:100"`
	Outfit uint16
	Mood   uint8 `drumline:"range=0:7"`
	Phone  bool

	From, To Corner  `drumline:"-"`
	Off      float64 `drumline:"-"` // from the middle of the pavement
	Cruise   float64 `drumline:"-"`
	Wait     uint16  `drumline:"-"` // steps to stand, or to lie
}

// Player is the figure of a seat. One that drives sits in its car, where clients draw it; its own place is told only now and then.
type Player struct {
	X      float64 `drumline:"q=0.00390625,range=0:900,lod=2:3,tol=0.032,move=VX,place"`
	Z      float64 `drumline:"q=0.00390625,range=0:900,lod=2:3,tol=0.032,move=VZ,place"`
	Y      float64 `drumline:"q=0.00390625,range=-16:112,lod=2:3,tol=0.016,move=VY"`
	VX     float64 `drumline:"q=0.03125,range=-64:64,lod=0:1,tol=0.25"`
	VZ     float64 `drumline:"q=0.03125,range=-64:64,lod=0:1,tol=0.25"`
	VY     float64 `drumline:"q=0.03125,range=-64:64,lod=0:1,tol=0.25"`
	Yaw    float64 `drumline:"angle,lod=2:3,tol=0.018"`
	Pitch  float64 `drumline:"angle,lod=2:12,tol=0.006"`
	Gait   uint8   `drumline:"range=0:5"`
	Health uint8   `drumline:"range=0:100"`
	Car    snap.EntityID
	Ammo   uint8  `drumline:"range=0:30,owner"`
	Name   string `drumline:"once,max=96"`

	Seat uint8  `drumline:"-"`
	Cool uint8  `drumline:"-"` // steps until the gun is ready
	Wait uint16 `drumline:"-"` // steps to lie
}

// Shot is one shot: from its player's place in the direction of Yaw, Reach metres long.
type Shot struct {
	By    snap.EntityID
	Yaw   float64 `drumline:"angle"`
	Reach float64 `drumline:"q=0.25,range=0:64"`
	Hit   snap.EntityID
}

// Honk is the horn of a car.
type Honk struct {
	Car snap.EntityID
}

// command is what one seat wants in a step.
type command struct {
	seat    int
	name    string // for a seat that has no player: after a Restore from before it joined
	in      Input
	missing bool
}

// game is the world without the engine. Everything that lasts from step to step is in the feed's sets and in rng.
type game struct {
	feed    *snap.Feed
	cars    *snap.Set[Car]
	people  *snap.Set[Person]
	players *snap.Set[Player]
	shots   *snap.Events[Shot]
	honks   *snap.Events[Honk]
	rng     *rand.Rand
	opt     Options
	city    city

	// Derived from the sets.
	carIDs [cars + parked]snap.EntityID
	seats  [seats]snap.EntityID // 0: free

	seated [seats]bool // scratch of one step
}

func newGame(rng *rand.Rand, o Options) *game {
	s := snap.New(snap.Options{Hz: hz, Rings: o.rings()})
	return &game{
		feed: s, rng: rng, opt: o, city: newCity(o.Spread),
		cars: snap.Add[Car](s, "car"), people: snap.Add[Person](s, "person"), players: snap.Add[Player](s, "player"),
		shots: snap.AddEvent[Shot](s, "shot"), honks: snap.AddEvent[Honk](s, "honk"),
	}
}

// populate makes all but the players.
func (g *game) populate() {
	for n := range cars + parked {
		c := Car{Number: uint8(n), Y: rideHeight, Fuel: 100, Plate: fmt.Sprintf("DL %04d", 1000+61*n%9000), Cruise: 8 + 6*g.rng.Float64()}
		if n < cars {
			g.tow(&c)
		} else {
			g.park(&c)
		}
		g.carIDs[n] = g.cars.Spawn(c)
	}
	for range people {
		p := Person{Health: 100, Outfit: uint16(g.rng.IntN(1 << 16)), Off: g.rng.Float64()*1.6 - 0.8, Cruise: 1.2 + 0.4*g.rng.Float64()}
		p.From = g.city.anyCorner(g.rng)
		p.To = p.From.next(g.city, g.rng, p.From)
		x, z := p.From.at(g.city, p.Off)
		tx, tz := p.To.at(g.city, p.Off)
		k := g.rng.Float64()
		p.X, p.Z, p.Yaw = x+k*(tx-x), z+k*(tz-z), math.Atan2(tz-z, tx-x)
		g.people.Spawn(p)
	}
}

// tow puts a car, at rest, on a random straight, for nobody to drive.
func (g *game) tow(c *Car) {
	c.Route = g.city.anyRoute(g.rng)
	c.X, c.Z, c.Yaw, _ = c.Route.at(g.city)
	c.Vel, c.Spin, c.Speed, c.Steer = Velocity{}, 0, 0, 0
	c.Driver, c.Halt, c.Wait, c.Horn, c.Honk = 0, false, 0, false, 0
	c.Lights = c.Number%4 == 0
}

// park puts a car at a kerb for good.
func (g *game) park(c *Car) {
	r := g.city.anyRoute(g.rng)
	x, z, yaw, _ := r.at(g.city)
	l := dir(r.Dir).turn(left)
	c.X, c.Z, c.Yaw = x-dirX[l]*(kerbOff-laneOff), z-dirZ[l]*(kerbOff-laneOff), wrap(yaw+0.04*g.rng.NormFloat64())
}

// join gives a seat its player, and a driver his car.
func (g *game) join(seat int, name string) {
	if g.seats[seat] != 0 {
		return // it came out of a snapshot
	}
	p := Player{Seat: uint8(seat), Name: name, Health: 100, Ammo: 30}
	if seat >= drivers {
		g.place(&p)
		g.seats[seat] = g.players.Spawn(p)
		g.feed.Own(feed.SeatID(seat), g.seats[seat])
		return
	}
	c := g.cars.Get(g.carIDs[seat])
	p.X, p.Z, p.Yaw, p.Gait, p.Car = c.X, c.Z, c.Yaw, sitting, g.carIDs[seat]
	g.seats[seat] = g.players.Spawn(p)
	c.Driver, c.Steer = g.seats[seat], 0
	g.feed.Own(feed.SeatID(seat), p.Car)
}

// place puts a walker on a random corner.
func (g *game) place(p *Player) {
	p.X, p.Z = g.city.anyCorner(g.rng).at(g.city, 0)
	p.Y, p.VX, p.VZ, p.VY, p.Gait = 0, 0, 0, 0, standing
}

func (g *game) leave(seat int) {
	id := g.seats[seat]
	if id == 0 {
		return
	}
	g.feed.Own(feed.SeatID(seat), 0)
	if c := g.cars.Get(g.players.Get(id).Car); c != nil {
		g.tow(c)
	}
	g.players.Remove(id)
	g.seats[seat] = 0
}

// step advances the game by 1/60 s. cmds holds at most one command a seat; a player whose seat has none, as after a Restore that nobody
// came back from, goes.
func (g *game) step(cmds []command) {
	g.seated = [seats]bool{}
	for i := range cmds {
		g.seated[cmds[i].seat] = true
		g.join(cmds[i].seat, cmds[i].name)
	}
	for seat := range g.seats {
		if !g.seated[seat] {
			g.leave(seat)
		}
	}
	for _, id := range g.carIDs[:cars] {
		if c := g.cars.Get(id); c.Driver == 0 {
			g.cruise(c)
		}
	}
	for _, p := range g.people.All() {
		g.stroll(p)
	}
	for i := range cmds {
		k := &cmds[i]
		id := g.seats[k.seat]
		p := g.players.Get(id)
		in := &k.in
		if k.missing {
			in = &Input{Look: uint16(int(math.Round(p.Yaw * (1 << 15) / math.Pi)))}
		}
		if c := g.cars.Get(p.Car); c != nil {
			g.drive(p, c, in)
		} else {
			g.walk(id, p, in)
		}
	}
}
