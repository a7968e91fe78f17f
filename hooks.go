package drumline

// Hooks are optional functions that the engine calls. They are called on the goroutine named, must not block, and must not
// call back into the Server except for Stats.
type Hooks struct {
	// RoomOpened and RoomClosed are called on the room's goroutine.
	RoomOpened func(world, room string)
	RoomClosed func(world, room string, why Reason)
	// Joined and Left are called on the room's goroutine.
	Joined func(world, room string, seat SeatID, name string, resumed bool)
	Left   func(world, room string, seat SeatID, why Reason)
	// Refused is called on the link's reader goroutine.
	Refused func(peer Peer, why Reason)
}
