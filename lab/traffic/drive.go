package traffic

import (
	"math"

	"github.com/drumline-engine/drumline/feed/snap"
)

// How cars move, in metres and seconds.
const (
	pull       = 3.0  // speeding up, and braking
	braking    = 2.2  // what a car that drives by itself plans with
	topSpeed   = 14.0 // of a driven car
	backSpeed  = -3.0
	sideways   = 3.2 // acceleration to the side that a bend is taken with
	grip       = 6.0 // … that a driven car can take
	wheelBase  = 2.6
	lock       = 0.55 // radians of the wheels with the wheel turned all the way
	rideHeight = 0.5
	honkSteps  = 20
)

// cruise is a step of a car that follows its route.
func (g *game) cruise(c *Car) {
	r := &c.Route
	limit, bend, stopping := c.Cruise, c.Cruise, false
	if r.Turn != ahead {
		bend = min(bend, math.Sqrt(sideways*r.radius()))
	}
	switch d := r.length() - r.S; {
	case r.Inside:
		limit = bend
	case c.Halt && d < 4 && c.Speed < 0.4:
		stopping = true
		if c.Speed > 0 {
			break
		}
		if c.Wait--; c.Wait == 0 {
			c.Halt = false
		}
	case c.Halt:
		limit = min(limit, math.Sqrt(2*braking*max(d-3, 0.01)))
	default:
		limit = min(limit, math.Sqrt(bend*bend+2*braking*d))
	}
	pushed := clamp((limit-c.Speed)*2, pull)
	if stopping {
		pushed = -min(pull, c.Speed*hz)
	}
	c.Speed = max(c.Speed+pushed*dt, 0)
	if c.Speed > 0.3 {
		c.Speed += 0.004 * g.rng.NormFloat64()
	}
	if r.advance(g.city, g.rng, c.Speed*dt) {
		c.Wait = 0
		if c.Halt = g.rng.IntN(3) == 0; c.Halt {
			c.Wait = uint16(60 + g.rng.IntN(240))
		}
		if g.rng.IntN(40) == 0 {
			g.honk(c)
		}
	}
	x, z, way, curve := r.at(g.city)
	c.X, c.Z = x, z
	// The body follows the way with a lag, so that its spin is smooth where an arc begins; until then it slips a little.
	off := wrap(way - c.Yaw)
	g.spin(c, curve*c.Speed+4*off*min(c.Speed/2, 1))
	off = wrap(way - c.Yaw)
	c.Vel = Velocity{Ahead: c.Speed * math.Cos(off), Left: c.Speed * math.Sin(off)}
	g.shake(c, pushed)
}

// drive is a step of a car that somebody drives.
func (g *game) drive(p *Player, c *Car, in *Input) {
	v := c.Vel.Ahead
	wheel := 0.0
	if in.Left {
		wheel++
	}
	if in.Right {
		wheel--
	}
	c.Steer = toward(c.Steer, wheel, 5*dt)
	pushed := clamp(-v, 0.8) // it rolls out
	switch {
	case in.Up && !in.Down:
		pushed = min(pull, (topSpeed-v)*2)
	case in.Down:
		pushed = max(-pull, (backSpeed-v)*2)
	}
	v += pushed * dt
	if math.Abs(v) > 0.2 {
		v += 0.004 * g.rng.NormFloat64()
	}
	most := grip / max(math.Abs(v), 1)
	g.spin(c, clamp(v*math.Tan(c.Steer*lock)/wheelBase, most))
	// It slips to the outside of the bend.
	c.Vel.Left += (-0.03*c.Spin*v - c.Vel.Left) * 0.2
	c.Vel.Ahead = v
	sin, cos := math.Sincos(c.Yaw)
	c.X += (v*cos - c.Vel.Left*sin) * dt
	c.Z += (v*sin + c.Vel.Left*cos) * dt
	if x, z := inside(c.X), inside(c.Z); x != c.X || z != c.Z {
		if v > 2 {
			c.Damage = uint8(min(int(c.Damage)+5, 255))
		}
		c.X, c.Z, c.Vel, c.Spin = x, z, Velocity{Ahead: min(v, 0)}, 0
	}
	c.Speed = c.Vel.Ahead
	g.shake(c, pushed)

	c.Burnt += max(pushed, 0) * dt / 40
	if c.Burnt >= 1 {
		c.Burnt--
		if c.Fuel--; c.Fuel == 0 {
			c.Fuel = 100
		}
	}
	c.Lights = c.Lights != in.Jump
	if in.Fire && c.Honk == 0 {
		g.honk(c)
	}
	// A player's place is that of the car, told in steps, since nobody draws him elsewhere: it only says who is near him.
	if math.Abs(p.X-c.X) > 16 || math.Abs(p.Z-c.Z) > 16 {
		p.X, p.Z = c.X, c.Z
	}
	p.Yaw, p.Pitch = radians(in.Look), radians(uint16(in.Pitch))
}

func inside(u float64) float64 { return min(max(u, margin), worldSize-margin) }

// radians is an angle of which 65,536 are a turn.
func radians(steps uint16) float64 { return float64(int16(steps)) * (math.Pi / (1 << 15)) }

// spin turns a car by a step; want is the yaw rate that its wheels want.
func (g *game) spin(c *Car, want float64) {
	c.Spin += (want - c.Spin) * 0.2
	if v := math.Abs(c.Speed); v > 0.3 {
		c.Spin += 0.006 * g.rng.NormFloat64()
	}
	c.Yaw = wrap(c.Yaw + c.Spin*dt)
}

// shake is a step of the springs: the road's noise, and what speeding up and bends do.
func (g *game) shake(c *Car, pushed float64) {
	n := min(math.Abs(c.Speed)/8, 1)
	if n < 0.01 {
		n = 0
	}
	spring := func(at, v *float64, rest, stiff, damp, noise float64) {
		*v += (stiff*(rest-*at)-damp**v)*dt + noise*n*g.rng.NormFloat64()
		*at += *v * dt
	}
	spring(&c.Y, &c.Heave, rideHeight, 120, 10, 0.025)
	spring(&c.Pitch, &c.Nod, 0.004*pushed, 90, 9, 0.012)
	spring(&c.Roll, &c.Sway, 0.006*c.Spin*c.Speed, 90, 9, 0.012)
	if c.Honk > 0 {
		c.Honk--
		c.Horn = c.Honk > 0
	}
}

func (g *game) honk(c *Car) {
	c.Honk, c.Horn = honkSteps, true
	g.honks.EmitAt(c.X, c.Z, Honk{Car: g.carIDs[c.Number]})
}

// hitCar dents a car that a shot hit.
func (g *game) hitCar(id snap.EntityID) {
	c := g.cars.Get(id)
	c.Damage = uint8(min(int(c.Damage)+1, 255))
}
