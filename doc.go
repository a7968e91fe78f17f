// Package drumline is an engine for live worlds in the browser: multiplayer games, server-drawn apps, light shows. Its
// fixed-rate loop keeps its beat whoever connects.
//
// How a key press becomes a picture; each station is a file of this package or the package named under it:
//
//	key press ─► link ─► inbox ─► STEP (the beat) ─► frame ─► feeds ─► packet ─► link ─► screen
//	             link/*  inbox.go  world.go, room.go   feed     feed/*   packet.go  link/*   web
//	             ws, mem one input World.Step on a     immut-   snap:    newest     ws, mem  decode,
//	                     per seat  locked thread at    able,    entities state in-           interpolate,
//	                     and step  absolute deadlines  per send          side a byte         draw
//	                               (package beat)      tick              budget
//
// The beat does two things only: it steps the world and, on send ticks, captures an immutable frame. Encoder workers build one
// packet per seat from that frame and try a non-blocking write (encode.go). A link that is still busy is skipped and
// counted, never queued behind, so a slow, frozen or hostile client costs the step nothing.
//
// Refusals, drops and closes are data: a [Reason] with a code, a text, whether to come back, and a counter (errors.go).
//
// # The smallest world
//
// A world implements [World] for its own input type and is declared by a [Kind]:
//
//	var Dots = drumline.Define(drumline.Kind[Input]{
//		Spec: drumline.Spec{Name: "dots", Hz: 60},
//		Open: func(r *drumline.Room) (drumline.World[Input], error) { return newDots(r), nil },
//	})
//
//	func main() { app.Main(Dots) }
//
// A program that has its own HTTP server uses [New] and hands each upgraded connection to [Server.Accept]; package link/ws
// does that for WebSockets.
//
// # Goroutines
//
// Rooms run on a few locked threads (package beat), or on one goroutine each when they have no beat. Seats are served by
// encoder workers. Each link has a reader of its own that only fills the seat's inbox. Everything that a World is told
// arrives on its room's goroutine, one call at a time.
//
// # Not here
//
// Sockets (link/*), HTTP pages (app, ops, web), storage (store/*), many machines (fleet). The package imports none of them.
package drumline
