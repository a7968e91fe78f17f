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

// What moves is foreseen by both ends, what is far is out of sight, and a bang is heard by those near it.
func ExampleOptions_rings() {
	type Vec struct{ X, Y float64 }
	type Ship struct {
		Pos Vec `drumline:"q=0.1,range=0:2000,place,move=Vel"`
		Vel Vec `drumline:"q=0.1,range=-50:50"`
	}
	type Bang struct {
		X, Y float64 `drumline:"q=1,range=0:2000"`
	}

	s := snap.New(snap.Options{Hz: 60, Rings: []snap.Ring{
		{Radius: 200},           // near: in each packet
		{Radius: 600, Every: 4}, // farther: in every fourth; beyond 600 ships leave the client
	}})
	ships, bangs := snap.Add[Ship](s, "ship"), snap.AddEvent[Bang](s, "bang")
	if err := s.Err(); err != nil {
		fmt.Println(err)
	}
	const seat = 0
	s.Own(seat, ships.Spawn(Ship{Pos: Vec{100, 100}})) // from here the seat sees
	other := ships.Spawn(Ship{Pos: Vec{150, 100}, Vel: Vec{30, 0}})

	stream := s.Join(seat, feed.Ordered)
	client, _ := snap.NewDecoder(s.Info().Schema)
	client.OnEvent = func(snap.Event) { fmt.Println("bang") }
	for tick := feed.Tick(0); tick < 12; tick += 3 {
		o := ships.Get(other)
		switch o.Pos.X += o.Vel.X * 3 / 60; tick { // as it says, so nothing has to be sent
		case 6:
			bangs.EmitAt(300, 100, Bang{300, 100})   // 200 away
			bangs.EmitAt(1500, 100, Bang{1500, 100}) // nobody is near
		case 9:
			o.Pos.X = 1900
		}
		frame := s.Capture(tick)
		bytes, w := stream.Append(nil, frame, 1000)
		frame.Release()
		if err := client.Decode(feed.Packet{Seq: uint16(tick), Tick: tick}, bytes); err != nil {
			fmt.Println(err)
		}
		stream.Delivered(w.Receipt)
		fmt.Println(client.Held(), "ships:", len(bytes), "bytes")
	}
	// Output:
	// 2 ships: 33 bytes
	// 2 ships: 0 bytes
	// bang
	// 2 ships: 6 bytes
	// 1 ships: 2 bytes
}
