package drumline

import (
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/drumline-engine/drumline/feed"
)

// Tick and SeatID are package feed's, named here so that a world imports one package for its vocabulary.
type (
	Tick   = feed.Tick
	SeatID = feed.SeatID
)

// World is the rules of one room. I is the world's input: a struct of bools, fixed-size integers and float32 that a client
// sends for each step (see [Kind]).
//
// All methods are called on the room's goroutine, never two at once, so a World needs no locks. None may block: no I/O, no
// sleeping, no waiting for a lock that somebody holds for long. Long work goes through [Room.Go]. A method that panics closes
// this room alone, with [ReasonRoomError].
//
// A world is deterministic: given the same seed ([Room.Rand]), the same joins and leaves and the same inputs, it computes
// the same states. It takes no time from the clock, iterates over no map where order matters and uses no global randomness.
// Saves, replays and hand-over rest on that and on Snapshot.
type World[I any] interface {
	// Feeds returns what the room sends, in the order of their sections. It is called once, after Open.
	Feeds() []feed.Feed

	// Join takes a seat in. To refuse, return a [*Refusal] (any other error refuses with ReasonWorld and hides its text).
	// The seat's feeds join right after.
	Join(s *Seat) error

	// Leave is called once for each joined seat: the player left, was closed, or did not come back within the grace. A
	// dropped link alone is no leave; see Dropper.
	Leave(s *Seat)

	// Step advances the world by one step of fixed length and reads exactly one input per seat. It is called Hz times a
	// second; after a stall at most CatchUp steps follow at once and the rest of the debt is dropped and counted. In a room
	// with Hz 0 it is called after anything happened to it (input, a join, a command, a timer, Wake), and st.Dt is 0.
	Step(st *Step[I])

	// Snapshot appends the whole world to dst, RNG and server-only fields included, and returns the longer slice.
	// Feeds are captured on the next send tick as after any step.
	Snapshot(dst []byte) ([]byte, error)

	// Restore replaces the world by what Snapshot wrote. It is called before the first Join, or on a running room between
	// two steps; clients then get a keyframe in a new epoch. src is valid during the call. After an error the room closes.
	Restore(src []byte) error
}

// Commander is implemented by a World that takes commands: reliable, ordered messages, each delivered once, for what must not
// be merged into newest-wins inputs (a purchase, a drawn line, a chat message).
type Commander interface {
	// Command is called between two steps, in the order of arrival. msg is valid during the call, at most
	// [MaxCommandBytes] long, and from outside: check it.
	Command(s *Seat, msg []byte)
}

// Dropper is implemented by a World that wants to know when a seat's link breaks and comes back within its grace.
type Dropper interface {
	Drop(s *Seat)
	Resume(s *Seat)
}

// Step is what a world's Step receives. It is valid during the call.
type Step[I any] struct {
	// Tick is this step's number, from 1.
	Tick Tick
	// Dt is the step's length in seconds, always 1/Hz exactly; 0 in rooms without a beat.
	Dt float64

	seats  []*Seat
	inputs []Input[I]
}

// Inputs yields each seat with its input, in the order of seat ids.
func (st *Step[I]) Inputs() func(yield func(*Seat, Input[I]) bool) {
	return func(yield func(*Seat, Input[I]) bool) {
		for i, s := range st.seats {
			if !yield(s, st.inputs[i]) {
				return
			}
		}
	}
}

// Input is what one seat wants in one step.
type Input[I any] struct {
	// Value is the seat's input of this step: the one labelled for it, or else the newest before it, repeated for at most
	// Spec.InputHold, or else the zero value.
	Value I
	// Pressed holds the bools of I that went from false to true since the previous step, each once, however often the
	// input is repeated; a press that arrived too late for its own step appears in the next one. All other fields are zero.
	Pressed I
	// Age is how many steps ago Value was meant to be used: 0 if it is this step's own.
	Age int
	// Missing: Value is the zero value because nothing has come for longer than Spec.InputHold, or the link is down.
	Missing bool
	// Seen is the moment that the player's page showed when the input was given: what he aimed at was where it stood then. It is
	// a client's word, kept within [Spec.Rewind] before the step and never later than the end of the step before. 0: unknown, since
	// Spec.Rewind is 0 or the client does not say. [Past] looks up where things were.
	Seen Moment
}

// Spec is what a world declares about its rooms. The zero value of each field means its default.
type Spec struct {
	// Name stands in URLs: lower-case letters, digits and dashes, 1 to 32. Required.
	Name string
	// Title is shown to people. Default: Name.
	Title string
	// About is one sentence for the lobby.
	About string
	// Hz is the number of steps a second, 1 to 1000. 0: no beat; the room steps on input, timers and Wake.
	Hz int
	// SendHz is the number of state packets a second and seat, at most Hz; in rooms without a beat, the most there are.
	// Default 20, or Hz if that is less.
	SendHz int
	// Seats is the number of players a room takes, 1 to 1024. Default 16.
	Seats int
	// Rooms is the number of rooms of this world that may be open at once. Default 50.
	Rooms int
	// Grace is how long a seat waits for its player after the link dropped. Default 30 s.
	Grace time.Duration
	// LingerEmpty is how long a room stays open after its last seat left. Default 10 s.
	LingerEmpty time.Duration
	// InputHold is how long the newest input is repeated while no newer one comes. Default 250 ms. In rooms without a beat an
	// input holds until the next one, or until the link is down.
	InputHold time.Duration
	// Rewind asks clients for the moment that their players see, and is the farthest back that one is believed, at most 1 s. It
	// takes two bytes in an input message. A page's delay and an input's margin make some 180 ms, and the way there and back comes
	// to it: with 300 ms those who are up to 130 ms from the server, there and back, hit all that they see. Default 0: Input.Seen
	// stays 0.
	Rewind time.Duration
	// CatchUp is the most steps run at once after a stall. Default 3.
	CatchUp int
	// BudgetBytes is the number of state bytes a second and seat. A packet's limit is its share of it (twice the share after
	// a pause). Default 32 KiB.
	BudgetBytes int
	// Web holds the world's page: its TypeScript or JavaScript, styles and images, with main.ts (or main.js) as the entry.
	// Nil: the world has no page of its own.
	Web fs.FS
}

// Kind declares a world with its types.
//
// I's fields must be exported and of type bool, int8, uint8, int16, uint16, int32, uint32 or float32, at most 32 of them and
// 64 bytes together, in the order in which they are sent (little-endian; all bools first, packed into bits). A tag
// `json:"dx"` renames a field for the browser; else its name with a lower-case first letter is used. A float that is not
// finite is refused.
type Kind[I any] struct {
	Spec
	// Open makes the world of a new room. It is called before the room runs, on a goroutine of its own, so that a slow Open
	// holds up no beat; those who want to join wait meanwhile, for at most 30 s. serve also calls it once at the start, for
	// a room that nobody joins. Required.
	Open func(r *Room) (World[I], error)
	// Bot makes the player of a load test: a function that is asked once per input and sees what a client sees. It runs in
	// the load process. Nil: bots send zero inputs.
	Bot func(seed uint64) func(v BotView) I
}

// BotView is what a bot knows: what its client has decoded.
type BotView struct {
	Seat SeatID
	// Tick is the newest decoded tick.
	Tick Tick
	// Decoders stand in the order of World.Feeds.
	Decoders []feed.Decoder
	Rand     *rand.Rand
}
