// Dots is a whole program with a world of its own: everybody is a dot and collects coins.
//
//	go run ./examples/dots serve
package main

import (
	"embed"
	"io/fs"
	"math"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/app"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
)

//go:embed web
var files embed.FS
var page, _ = fs.Sub(files, "web")

// Dots declares the world: its name, its rate, its page in web/, and how a room of it opens.
var Dots = drumline.Define(drumline.Kind[Input]{
	Spec: drumline.Spec{Name: "dots", Title: "Dots", About: "Collect coins.", Hz: 60, Web: page},
	Open: func(r *drumline.Room) (drumline.World[Input], error) { return newWorld(r), nil },
	Bot:  func(uint64) func(drumline.BotView) Input { return wander() },
})

func main() { app.Main(Dots) }

// Input is what a page sends for each step: where the keys point, -127 … 127.
type Input struct{ Right, Down int8 }

// Dot and Coin are what everybody sees.
type Dot struct {
	X, Y  float64 `drumline:"q=0.25,range=0:600"`
	Coins uint16
	Name  string `drumline:"once,max=96"`
}

type Coin struct {
	X, Y float64 `drumline:"q=1,range=0:600"`
}

type world struct {
	room  *drumline.Room
	feed  *snap.Feed
	dots  *snap.Set[Dot]
	coins *snap.Set[Coin]
}

func newWorld(r *drumline.Room) *world {
	s := snap.New(snap.Options{})
	return &world{r, s, snap.Add[Dot](s, "dot"), snap.Add[Coin](s, "coin")}
}

func (w *world) Feeds() []feed.Feed { return []feed.Feed{w.feed} }

func (w *world) Join(s *drumline.Seat) error {
	w.dot(s).Name = s.Name()
	return nil
}

func (w *world) Leave(s *drumline.Seat) { w.dots.Remove(w.feed.Owned(s.ID())) }

func (w *world) Step(st *drumline.Step[Input]) {
	for s, in := range st.Inputs() {
		d := w.dot(s)
		d.X = min(max(d.X+float64(in.Value.Right)*2*st.Dt, 0), 600)
		d.Y = min(max(d.Y+float64(in.Value.Down)*2*st.Dt, 0), 600)
		for id, c := range w.coins.All() {
			if math.Hypot(c.X-d.X, c.Y-d.Y) < 16 {
				w.coins.Remove(id)
				d.Coins++
			}
		}
	}
	for w.coins.Len() < 20 {
		w.coins.Spawn(Coin{X: w.somewhere(), Y: w.somewhere()})
	}
}

// dot is the seat's dot, made when it has none yet.
func (w *world) dot(s *drumline.Seat) *Dot {
	id := w.feed.Owned(s.ID())
	if id == 0 {
		id = w.dots.Spawn(Dot{X: w.somewhere(), Y: w.somewhere(), Name: s.Name()})
		w.feed.Own(s.ID(), id)
	}
	return w.dots.Get(id)
}

func (w *world) somewhere() float64 { return w.room.Rand().Float64() * 600 }

// wander is the player of load: somewhere else every second or so.
func wander() func(drumline.BotView) Input {
	var in Input
	return func(v drumline.BotView) Input {
		if v.Rand.IntN(60) == 0 {
			in = Input{Right: int8(v.Rand.IntN(255) - 127), Down: int8(v.Rand.IntN(255) - 127)}
		}
		return in
	}
}

// Snapshot and Restore are the random source and the feed: everything else lives in them.
func (w *world) Snapshot(dst []byte) ([]byte, error) {
	return w.feed.AppendState(w.room.RandState(dst))
}

func (w *world) Restore(src []byte) error {
	rest, err := w.room.RestoreRand(src)
	if err != nil {
		return err
	}
	return w.feed.RestoreState(rest)
}
