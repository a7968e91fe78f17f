package traffic

import (
	"errors"
	"fmt"
	"math"

	"github.com/drumline-engine/drumline/feed"
)

// The saved game, after the random source:
//
//	0  u8  version  1
//	1  u8  blocks of the city
//	2  ..  the feed's state
const (
	stateVersion = 1
	stateHeader  = 2
)

var errState = errors.New("traffic: not a saved traffic")

func (g *game) appendState(dst []byte) ([]byte, error) {
	return g.feed.AppendState(append(dst, stateVersion, g.city.blocks))
}

// restoreState replaces the game. After an error nothing has changed.
func (g *game) restoreState(src []byte) error {
	if err := newGame(nil, g.opt).load(src); err != nil {
		return err
	}
	return g.load(src)
}

func (g *game) load(src []byte) error {
	if len(src) < stateHeader || src[0] != stateVersion {
		return fmt.Errorf("%w of version %d", errState, stateVersion)
	}
	if src[1] != g.city.blocks {
		return fmt.Errorf("%w: a city of %d blocks, this one has %d", errState, src[1], g.city.blocks)
	}
	if err := g.feed.RestoreState(src[stateHeader:]); err != nil {
		return fmt.Errorf("traffic: restore: %w", err)
	}
	clear(g.carIDs[:])
	clear(g.seats[:])
	for id, c := range g.cars.All() {
		if !c.sane(g.city) || g.carIDs[c.Number] != 0 {
			return fmt.Errorf("%w: car %d", errState, c.Number)
		}
		g.carIDs[c.Number] = id
	}
	if g.cars.Len() != len(g.carIDs) || g.people.Len() != people {
		return fmt.Errorf("%w: %d cars and %d people", errState, g.cars.Len(), g.people.Len())
	}
	for _, p := range g.people.All() {
		if !p.sane(g.city) {
			return fmt.Errorf("%w: a person at %g, %g", errState, p.X, p.Z)
		}
	}
	for id, p := range g.players.All() {
		if !p.sane() || g.seats[p.Seat] != 0 || p.Car != 0 && (int(p.Seat) >= drivers || p.Car != g.carIDs[p.Seat]) {
			return fmt.Errorf("%w: the player of seat %d", errState, p.Seat)
		}
		g.seats[p.Seat] = id
	}
	for n, id := range g.carIDs {
		c := g.cars.Get(id)
		if p := g.players.Get(c.Driver); c.Driver != 0 && (p == nil || p.Car != id) {
			return fmt.Errorf("%w: the driver of car %d", errState, n)
		}
	}
	for seat, id := range g.seats {
		if p := g.players.Get(id); p != nil && p.Car != 0 {
			id = p.Car
		}
		g.feed.Own(feed.SeatID(seat), id)
	}
	return nil
}

// within reports whether all of v are numbers of at most limit.
func within(limit float64, v ...float64) bool {
	for _, x := range v {
		if !(math.Abs(x) <= limit) {
			return false
		}
	}
	return true
}

func onMap(x, z float64) bool { return x >= 0 && x <= worldSize && z >= 0 && z <= worldSize }

func (c *Car) sane(t city) bool {
	r := &c.Route
	return int(c.Number) < cars+parked && onMap(c.X, c.Z) && r.I <= t.blocks && r.J <= t.blocks && r.Dir < 4 &&
		(r.Turn == ahead || r.Turn == left || r.Turn == right) && r.S >= 0 && r.S <= r.length() && c.Halt == (c.Wait > 0) && c.Fuel <= 100 &&
		within(100, c.Y, c.Vel.Ahead, c.Vel.Left, c.Spin, c.Speed, c.Cruise, c.Steer, c.Burnt, c.Heave, c.Nod, c.Sway) &&
		within(math.Pi, c.Yaw, c.Pitch, c.Roll)
}

func (p Corner) sane(t city) bool {
	return p.I <= t.blocks && p.J <= t.blocks && p.SX*p.SX == 1 && p.SZ*p.SZ == 1
}

func (p *Person) sane(t city) bool {
	return onMap(p.X, p.Z) && p.From.sane(t) && p.To.sane(t) && p.Gait < gaits && p.Health <= 100 && (p.Health > 0 || p.Wait > 0) &&
		within(100, p.Y, p.Vel.Ahead, p.Vel.Left, p.Spin, p.Off, p.Cruise) && within(math.Pi, p.Yaw)
}

func (p *Player) sane() bool {
	return p.Seat < seats && (p.Car != 0) == (p.Seat < drivers) && onMap(p.X, p.Z) && p.Gait < gaits && p.Health <= 100 && p.Ammo <= 30 &&
		(p.Health > 0 || p.Wait > 0) && (p.Ammo > 0 || p.Cool > 0) && within(100, p.Y, p.VX, p.VZ, p.VY) && within(math.Pi, p.Yaw, p.Pitch)
}
