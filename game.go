package drumline

import (
	"reflect"

	"github.com/drumline-engine/drumline/feed"
)

// game is a World[I] with I erased: what a room drives.
type game interface {
	Feeds() []feed.Feed
	Join(s *Seat) error
	Leave(s *Seat)
	Snapshot(dst []byte) ([]byte, error)
	Restore(src []byte) error

	// step runs one step with one input from each seat's inbox.
	step(tick Tick, dt float64, seats []*Seat)
	// world is the World itself, to look for optional interfaces.
	world() any
}

type gameOf[I any] struct {
	World[I]
	codec *inputCodec
	st    Step[I]
	// By position in st.inputs: the reflected Value and Pressed, made once per growth of the slice.
	values, presses []reflect.Value
	raw             [maxInputBytes]byte
}

func (g *gameOf[I]) world() any { return g.World }

func (g *gameOf[I]) step(tick Tick, dt float64, seats []*Seat) {
	if cap(g.st.inputs) < len(seats) {
		g.st.inputs = make([]Input[I], len(seats), len(seats)+8)
		all := g.st.inputs[:cap(g.st.inputs)]
		g.values, g.presses = g.values[:0], g.presses[:0]
		for i := range all {
			g.values = append(g.values, reflect.ValueOf(&all[i].Value).Elem())
			g.presses = append(g.presses, reflect.ValueOf(&all[i].Pressed).Elem())
		}
	}
	g.st.inputs = g.st.inputs[:len(seats)]
	for i, s := range seats {
		in := &g.st.inputs[i]
		raw := g.raw[:g.codec.size]
		var pressed uint32
		pressed, in.Age, in.Missing = s.inbox.take(uint32(tick), raw)
		g.codec.decode(raw, g.values[i])
		g.codec.decodeBits(pressed, g.presses[i])
	}
	g.st.Tick, g.st.Dt, g.st.seats = tick, dt, seats
	g.World.Step(&g.st)
}
