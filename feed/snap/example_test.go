package snap_test

import (
	"fmt"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
)

func Example() {
	type Player struct {
		X, Y float64 `drumline:"q=0.01,range=0:1000"`
		Name string  `drumline:"once,max=24"`
	}
	type Shot struct {
		By snap.EntityID
	}

	// The world.
	s := snap.New(snap.Options{})
	players := snap.Add[Player](s, "player")
	shots := snap.AddEvent[Shot](s, "shot")
	if err := s.Err(); err != nil {
		fmt.Println(err)
	}
	const seat = 0
	ann := players.Spawn(Player{X: 10, Name: "ann"})
	s.Own(seat, ann)

	// The engine: once per send tick a frame, and for each seat its bytes.
	stream := s.Join(seat, feed.Ordered)
	client, _ := snap.NewDecoder(s.Info().Schema)
	client.OnEvent = func(e snap.Event) { fmt.Println("event of type", e.Type, "at tick", e.Tick) }
	for tick := range feed.Tick(3) {
		players.Get(ann).X += 0.5
		if tick == 1 {
			shots.Emit(Shot{By: ann})
		}
		frame := s.Capture(tick)
		bytes, w := stream.Append(nil, frame, 1000)
		frame.Release()

		// The client.
		if err := client.Decode(feed.Packet{Seq: uint16(tick), Tick: tick}, bytes); err != nil {
			fmt.Println(err)
		}
		stream.Delivered(w.Receipt)
		me, _ := client.Own()
		x, name := client.Field(me.Type, "x"), client.Field(me.Type, "name")
		fmt.Println(me.Text(name), "at", me.Float(x), "in", len(bytes), "bytes")
	}
	// Output:
	// ann at 10.5 in 23 bytes
	// event of type 0 at tick 1
	// ann at 11 in 9 bytes
	// ann at 11.5 in 3 bytes
}
