package drumline

// Seat is one player's place in a room. It outlives its link: a dropped player comes back to the same seat within the grace.
// Methods are for the room's goroutine.
type Seat struct {
	// Data is the world's own.
	Data any
}

// ID is the seat's index in its room, 0 … Seats-1.
func (s *Seat) ID() SeatID { return 0 }

// Name is the player's name: cleaned (no control or bidi characters), at most 24 characters, never empty.
func (s *Seat) Name() string { return "" }

// Connected reports whether the seat has a link.
func (s *Seat) Connected() bool { return false }

// Kick closes the seat: its player is told why and the world's Leave follows.
func (s *Seat) Kick(r *Refusal) {}
