// Package arena is a ready world: up to sixteen players and thirty-two monsters shoot at and chase each other on one field.
//
// It is the world that load tests run (everything moves all the time), and an example of the whole road: rules in Go,
// entities and events through feed/snap, a page in web/.
//
//	app.Main(arena.World())
//
// The rules are the type game (game.go, move.go, monster.go, shoot.go): pure, deterministic, no engine. This file fits
// them to [drumline.World]. Everything runs on the room's goroutine; the package starts none.
//
// A player whose link drops stands still, cannot shoot and cannot be hit, for as long as the engine keeps the seat
// (Spec.Grace); when he comes back nothing hits him for one more second. So nobody dies by a bad connection, and nobody gains by pulling
// the plug but time.
package arena

import (
	"embed"
	"io/fs"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
)

//go:embed web
var files embed.FS

// rewind is how far back a shot is judged at most: a shooter who is 130 ms from the server, there and back, hits what he sees. More would be
// felt by those who are hit when they believe to be behind a pillar.
const rewind = 300 * time.Millisecond

// World declares the arena, named "arena".
func World() drumline.Definition {
	page, err := fs.Sub(files, "web")
	if err != nil {
		panic("arena: " + err.Error()) // the name above is a valid path
	}
	return drumline.Define(drumline.Kind[Input]{
		Spec: drumline.Spec{
			Name:   "arena",
			Title:  "Arena",
			About:  "Sixteen players, thirty-two monsters, one field.",
			Hz:     hz,
			SendHz: 20,
			Seats:  maxSeats,
			Rewind: rewind,
			Web:    page,
		},
		Open: func(r *drumline.Room) (drumline.World[Input], error) { return open(r, rewind), nil },
		Bot:  NewBot,
	})
}

// arena is the game in the engine's clothes.
type arena struct {
	room     *drumline.Room
	game     *game
	commands []command
}

// open makes a room's world; rewind is its Spec.Rewind, and without one shots hit what is there when they are fired.
func open(r *drumline.Room, rewind time.Duration) *arena {
	a := &arena{room: r, game: newGame(r.Rand()), commands: make([]command, 0, maxSeats)}
	if rewind > 0 {
		a.game.remember(int(rewind*hz/time.Second) + 2)
	}
	a.game.populate()
	return a
}

func (a *arena) Feeds() []feed.Feed { return []feed.Feed{a.game.feed} }

func (a *arena) Join(s *drumline.Seat) error {
	a.game.join(int(s.ID()), s.Name())
	return nil
}

func (a *arena) Leave(s *drumline.Seat)  { a.game.leave(int(s.ID())) }
func (a *arena) Drop(s *drumline.Seat)   { a.game.away(int(s.ID()), true) }
func (a *arena) Resume(s *drumline.Seat) { a.game.away(int(s.ID()), false) }

func (a *arena) Step(st *drumline.Step[Input]) {
	a.commands = a.commands[:0]
	for s, in := range st.Inputs() {
		a.commands = append(a.commands, command{
			seat: int(s.ID()), name: s.Name(), in: in.Value, pressed: in.Pressed.Fire, missing: in.Missing, seen: in.Seen,
		})
	}
	a.game.feed.Stepping(st.Tick)
	a.game.tick = st.Tick
	a.game.step(a.commands)
}

// Snapshot appends the random source and then the game.
func (a *arena) Snapshot(dst []byte) ([]byte, error) {
	return a.game.appendState(a.room.RandState(dst))
}

func (a *arena) Restore(src []byte) error {
	rest, err := a.room.RestoreRand(src)
	if err != nil {
		return err
	}
	return a.game.restoreState(rest)
}
