// Package traffic is a world for measuring, not for playing: as many things as a city has, moving as they do in one. It has 32
// seats, 64 cars in motion, 84 parked ones and 100 pedestrians on a grid of streets.
//
//	drumline load --world traffic --bots 32
//
// Servers run it with --lab only. traffic-far is the same where each seat holds all there is, traffic-spread the same on three times the area.
//
// The first sixteen seats drive a car by keys, the others run about and shoot, looking around with a mouse. What moves does so in the way that
// costs bytes: cars turn along arcs with a yaw rate that lags, springs shake them, players turn their heads all the time. There is
// no page.
//
// The rules are the type game (game.go, city.go, drive.go, walk.go); this file fits them to [drumline.World]. They are deterministic: seed,
// joins, leaves and inputs make the states. Sines are the platform's, so two kinds of machine may differ in the last bit. All of it runs
// on the room's goroutine.
package traffic

import (
	"math"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
)

// Options choose what is measured. The zero value is the crowd in the middle 500 m with rings to 250 m.
type Options struct {
	// Spread lays the streets over all of the 900 m, so that a seat sees a third as much.
	Spread bool
	// Far adds a ring that reaches everywhere, once a second: each seat then holds everything.
	Far bool
}

// name is the world's.
func (o Options) name() string {
	n := "traffic"
	if o.Spread {
		n += "-spread"
	}
	if o.Far {
		n += "-far"
	}
	return n
}

// rings are how far and how often a seat sees.
func (o Options) rings() []snap.Ring {
	r := []snap.Ring{{Radius: 80, Every: 1}, {Radius: 160, Every: 2}, {Radius: 250, Every: 4}}
	if o.Far {
		r = append(r, snap.Ring{Radius: math.Inf(1), Every: sendHz})
	}
	return r
}

// World declares the world, named "traffic", with "-spread" and "-far" behind it for what o says.
func World(o Options) drumline.Definition {
	return drumline.Define(drumline.Kind[Input]{
		Spec: drumline.Spec{
			Name:   o.name(),
			Title:  "Traffic",
			About:  "Synthetic traffic for measuring.",
			Hz:     hz,
			SendHz: sendHz,
			Seats:  seats,
			// A packet may take twice its share after a pause: 1,100 bytes, which fit into a datagram.
			BudgetBytes: 550 * sendHz,
		},
		Open: func(r *drumline.Room) (drumline.World[Input], error) { return open(r, o), nil },
		Bot:  func(seed uint64) func(drumline.BotView) Input { return NewBot(seed, o) },
	})
}

// traffic is the game in the engine's clothes.
type traffic struct {
	room     *drumline.Room
	game     *game
	commands []command
}

func open(r *drumline.Room, o Options) *traffic {
	t := &traffic{room: r, game: newGame(r.Rand(), o), commands: make([]command, 0, seats)}
	t.game.populate()
	return t
}

func (t *traffic) Feeds() []feed.Feed { return []feed.Feed{t.game.feed} }

func (t *traffic) Join(s *drumline.Seat) error {
	t.game.join(int(s.ID()), s.Name())
	return nil
}

func (t *traffic) Leave(s *drumline.Seat) { t.game.leave(int(s.ID())) }

func (t *traffic) Step(st *drumline.Step[Input]) {
	t.commands = t.commands[:0]
	for s, in := range st.Inputs() {
		// A press shorter than a step counts as one of a step.
		in.Value.Fire = in.Value.Fire || in.Pressed.Fire
		in.Value.Jump = in.Value.Jump || in.Pressed.Jump
		t.commands = append(t.commands, command{seat: int(s.ID()), name: s.Name(), in: in.Value, missing: in.Missing})
	}
	t.game.feed.Stepping(st.Tick)
	t.game.step(t.commands)
}

// Snapshot appends the random source and then the game.
func (t *traffic) Snapshot(dst []byte) ([]byte, error) {
	return t.game.appendState(t.room.RandState(dst))
}

func (t *traffic) Restore(src []byte) error {
	rest, err := t.room.RestoreRand(src)
	if err != nil {
		return err
	}
	return t.game.restoreState(rest)
}
