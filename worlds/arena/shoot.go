package arena

import (
	"math"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/worlds/arena/move"
)

const (
	shotReach  = 400.0
	shotDamage = 20
	shotSteps  = 9   // between two shots
	shotWidth  = 4.0 // added to a target's radius
)

// fire shoots once: the first thing on the ray within reach is hit at once, and everybody sees a tracer. Others are where the shooter saw
// them; whether they can be hit is what they are now.
func (g *game) fire(p *Player, seen drumline.Moment) {
	p.Cool, p.Shield, p.Trigger = shotSteps, 0, false
	dx, dy := direction(p.AimStep)
	far, hit := shotReach, uint8(hitNothing)
	if t := toWall(p.X, p.Y, dx, dy); t < far {
		far, hit = t, hitStone
	}
	for i := range move.Pillars {
		s := &move.Pillars[i]
		if t := strike(s.X-p.X, s.Y-p.Y, dx, dy, s.R); t < far {
			far, hit = t, hitStone
		}
	}
	var monster *Monster
	for i, m := range g.pack {
		if m.HP == 0 {
			continue
		}
		x, y := g.at(g.packID[i], &m.Body, seen)
		if t := strike(x-p.X, y-p.Y, dx, dy, monsterRadius+shotWidth); t < far {
			far, hit, monster = t, hitMonster, m
		}
	}
	var player *Player
	for seat, q := range g.live {
		if q == nil || q == p || !q.touchable() {
			continue
		}
		x, y := g.at(g.seats[seat], &q.Body, seen)
		if t := strike(x-p.X, y-p.Y, dx, dy, playerRadius+shotWidth); t < far {
			far, hit, player = t, hitPlayer, q
		}
	}
	g.shots.EmitAt(p.X, p.Y, Shot{Seat: p.Seat, Aim: p.Aim, Reach: far, Hit: hit})
	switch hit {
	case hitPlayer:
		g.hurt(player, shotDamage, p.Seat)
	case hitMonster:
		if monster.HP > shotDamage {
			monster.HP -= shotDamage
			return
		}
		monster.HP = 0 // removed at the end of the step
		g.score(p, monsterScore)
		g.kills.EmitAt(monster.X, monster.Y, Kill{Killer: p.Seat, Victim: nobody, X: monster.X, Y: monster.Y})
	}
}

// strike is how far along the ray (dx, dy), a unit vector, a circle of radius r at (x, y) from its start is met; +Inf: it is
// not, or lies behind.
func strike(x, y, dx, dy, r float64) float64 {
	along := float64(x*dx) + float64(y*dy)
	if along < 0 {
		return math.Inf(1)
	}
	off := float64(x*x) + float64(y*y) - float64(along*along)
	inside := float64(r*r) - off
	if inside <= 0 {
		return math.Inf(1)
	}
	return max(along-math.Sqrt(inside), 0)
}

// toWall is how far along the ray the field ends.
func toWall(x, y, dx, dy float64) float64 {
	return min(toEdge(x, dx), toEdge(y, dy))
}

func toEdge(at, d float64) float64 {
	switch {
	case d > 0:
		return (fieldSize - at) / d
	case d < 0:
		return -at / d
	}
	return math.Inf(1)
}
