package drumline

import (
	"bytes"
	"fmt"
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
	// What they hold now, so that an input that is repeated is not decoded again.
	cached []cachedInput
	raw    [maxInputBytes]byte
}

type cachedInput struct {
	seat    *Seat
	raw     [maxInputBytes]byte
	pressed uint32
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
		g.cached = make([]cachedInput, len(all))
	}
	for i := len(seats); i < len(g.st.inputs); i++ {
		g.cached[i].seat = nil // gone
	}
	g.st.inputs = g.st.inputs[:len(seats)]
	for i, s := range seats {
		in := &g.st.inputs[i]
		raw := g.raw[:g.codec.size]
		var pressed uint32
		pressed, in.Age, in.Missing = s.inbox.take(uint32(tick), raw)
		in.Seen = s.inbox.seen
		old := &g.cached[i]
		if old.seat != s || !bytes.Equal(old.raw[:len(raw)], raw) {
			g.codec.decode(raw, g.values[i])
			copy(old.raw[:], raw)
		}
		if old.seat != s || old.pressed != pressed {
			g.codec.decodeBits(pressed, g.presses[i])
		}
		old.seat, old.pressed = s, pressed
	}
	g.st.Tick, g.st.Dt, g.st.seats = tick, dt, seats
	g.World.Step(&g.st)
}

// checkOptional finds methods that look like an optional interface's but are not: a Command with another signature would never
// be called, and nobody would say why.
func checkOptional(world any) error {
	t := reflect.TypeOf(world)
	has := func(name string) bool { _, ok := t.MethodByName(name); return ok }
	if _, ok := world.(Commander); !ok && has("Command") {
		m, _ := t.MethodByName("Command")
		return fmt.Errorf("%v has a method Command that is %v, not Command(s *drumline.Seat, msg []byte) as drumline.Commander wants: "+
			"give it this signature, or another name", t, m.Type)
	}
	_, drops := world.(interface{ Drop(*Seat) })
	_, resumes := world.(interface{ Resume(*Seat) })
	if drops != resumes {
		return fmt.Errorf("%v has only one of Drop and Resume: drumline.Dropper wants both", t)
	}
	return nil
}
