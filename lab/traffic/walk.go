package traffic

import (
	"math"

	"github.com/drumline-engine/drumline/feed/snap"
)

// How people move, in metres and seconds.
const (
	runSpeed  = 5.5
	runPull   = 40.0
	jumpSpeed = 4.5
	gravity   = 12.0

	shotReach   = 60.0
	shotSteps   = 8
	reloadSteps = 90
	shotDamage  = 12
	lieSteps    = 180
)

// stroll is a step of a pedestrian.
func (g *game) stroll(p *Person) {
	pace := p.Cruise
	switch {
	case p.Health == 0:
		pace = 0
		if p.Wait--; p.Wait == 0 {
			p.Health = 100
		}
	case p.Wait > 0:
		pace = 0
		if p.Wait--; p.Wait == 0 {
			p.Phone = false
		}
	case g.rng.IntN(600) == 0:
		p.Wait = uint16(60 + g.rng.IntN(300))
		p.Phone, p.Mood = g.rng.IntN(2) == 0, uint8(g.rng.IntN(8))
	}
	x, z := p.To.at(g.city, p.Off)
	dx, dz := x-p.X, z-p.Z
	if dx*dx+dz*dz < 1 {
		p.From, p.To = p.To, p.To.next(g.city, g.rng, p.From)
	}
	if pace > 0 {
		// Nobody walks quite straight.
		want := math.Atan2(dz, dx) + 0.05*math.Sin(0.3*(p.X+p.Z)+float64(p.Outfit))
		p.Spin = clamp(4*wrap(want-p.Yaw), 3)
		p.Yaw = wrap(p.Yaw + p.Spin*dt)
	} else {
		p.Spin = 0
	}
	p.Vel.Ahead = toward(p.Vel.Ahead, pace, 4*dt)
	sin, cos := math.Sincos(p.Yaw)
	p.X += p.Vel.Ahead * cos * dt
	p.Z += p.Vel.Ahead * sin * dt
	switch {
	case p.Health == 0:
		p.Gait = lying
	case p.Vel.Ahead > 0.1:
		p.Gait = walking
	default:
		p.Gait = standing
	}
}

// walk is a step of a player on foot.
func (g *game) walk(id snap.EntityID, p *Player, in *Input) {
	if p.Health == 0 {
		p.VX, p.VZ = 0, 0
		if p.Wait--; p.Wait == 0 {
			p.Health, p.Ammo, p.Cool = 100, 30, 0
			g.place(p)
		}
		return
	}
	p.Yaw, p.Pitch = radians(in.Look), radians(uint16(in.Pitch))
	var ahead, aside float64
	if in.Up != in.Down {
		ahead = 1
		if in.Down {
			ahead = -1
		}
	}
	if in.Left != in.Right {
		aside = 1
		if in.Right {
			aside = -1
		}
	}
	if ahead != 0 && aside != 0 {
		ahead, aside = ahead*math.Sqrt2/2, aside*math.Sqrt2/2
	}
	sin, cos := math.Sincos(p.Yaw)
	p.VX = toward(p.VX, runSpeed*(ahead*cos-aside*sin), runPull*dt)
	p.VZ = toward(p.VZ, runSpeed*(ahead*sin+aside*cos), runPull*dt)
	p.X, p.Z = inside(p.X+p.VX*dt), inside(p.Z+p.VZ*dt)
	if p.Y == 0 && in.Jump {
		p.VY = jumpSpeed
	}
	if p.Y > 0 || p.VY > 0 {
		p.VY -= gravity * dt
		if p.Y += p.VY * dt; p.Y <= 0 {
			p.Y, p.VY = 0, 0
		}
	}
	switch {
	case p.Y > 0:
		p.Gait = inAir
	case ahead != 0 || aside != 0:
		p.Gait = running
	default:
		p.Gait = standing
	}
	if p.Cool > 0 {
		if p.Cool--; p.Cool == 0 && p.Ammo == 0 {
			p.Ammo = 30
		}
	}
	if in.Fire && p.Cool == 0 {
		g.fire(id, p)
	}
}

// fire shoots in the direction in which a player looks. The first thing in the way is hit.
func (g *game) fire(id snap.EntityID, p *Player) {
	p.Cool = shotSteps
	if p.Ammo--; p.Ammo == 0 {
		p.Cool = reloadSteps
	}
	sin, cos := math.Sincos(p.Yaw)
	reach, hit := shotReach, snap.EntityID(0)
	meet := func(other snap.EntityID, x, z, size float64) {
		dx, dz := x-p.X, z-p.Z
		if along := dx*cos + dz*sin; along > 0 && along < reach && math.Abs(dz*cos-dx*sin) < size {
			reach, hit = along, other
		}
	}
	for other, c := range g.cars.All() {
		meet(other, c.X, c.Z, 1.4)
	}
	for other, q := range g.people.All() {
		meet(other, q.X, q.Z, 0.4)
	}
	for other, q := range g.players.All() {
		if other != id && q.Car == 0 {
			meet(other, q.X, q.Z, 0.4)
		}
	}
	if q := g.people.Get(hit); q != nil && q.Health > 0 {
		if q.Health -= min(q.Health, shotDamage); q.Health == 0 {
			q.Wait = lieSteps
		}
	}
	if q := g.players.Get(hit); q != nil && q.Health > 0 {
		if q.Health -= min(q.Health, shotDamage); q.Health == 0 {
			q.Wait, q.Gait = lieSteps, lying
		}
	}
	if c := g.cars.Get(hit); c != nil {
		g.hitCar(hit)
	}
	g.shots.EmitAt(p.X, p.Z, Shot{By: id, Yaw: p.Yaw, Reach: reach, Hit: hit})
}
