package traffic

import (
	"fmt"
	"math/rand/v2"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
)

// Sim is the world without the engine: for a bench that has a clock and a network of its own, and wants to know where everything really is.
// Not safe for concurrent use.
type Sim struct {
	game     *game
	tick     feed.Tick
	commands []command
}

// Seats, Hz and SendHz are the world's.
const (
	Seats  = seats
	Hz     = hz
	SendHz = sendHz
)

// NewSim makes the world with all its seats taken.
func NewSim(seed uint64, o Options) (*Sim, error) {
	s := &Sim{game: newGame(rand.New(rand.NewPCG(seed, 1)), o)}
	s.game.populate()
	if err := s.game.feed.Err(); err != nil {
		return nil, err
	}
	for seat := range seats {
		s.game.join(seat, fmt.Sprint("bot ", seat))
	}
	return s, nil
}

// Feed is what the world sends. Its tick is that of the last Step.
func (s *Sim) Feed() *snap.Feed { return s.game.feed }

// Step makes one step with an input of each seat.
func (s *Sim) Step(inputs *[Seats]Input) {
	s.tick++
	s.commands = s.commands[:0]
	for seat := range seats {
		s.commands = append(s.commands, command{seat: seat, in: inputs[seat]})
	}
	s.game.feed.Stepping(s.tick)
	s.game.step(s.commands)
}

// Each tells where everything is that clients draw: not players who sit in a car.
func (s *Sim) Each(fn func(id snap.EntityID, x, y, z float64)) {
	for id, c := range s.game.cars.All() {
		fn(id, c.X, c.Y, c.Z)
	}
	for id, p := range s.game.people.All() {
		fn(id, p.X, p.Y, p.Z)
	}
	for id, p := range s.game.players.All() {
		if p.Car == 0 {
			fn(id, p.X, p.Y, p.Z)
		}
	}
}
