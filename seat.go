package drumline

import (
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"
)

// Seat is one player's place in a room. It outlives its link: a dropped player comes back to the same seat within the grace.
// Methods are for the room's goroutine.
type Seat struct {
	// Data is the world's own.
	Data any

	// Set once, before the seat is shared.
	room  *Room
	id    SeatID
	name  string
	token string
	inbox *inbox
	out   *outbox

	// Owned by the room's goroutine.
	conn       *Conn // nil: waiting for the player to come back
	graceUntil time.Duration
	gone       bool // not in the room: refused by the world, or given up

	commands atomic.Int32 // in the room's mailbox
	flush    atomic.Bool  // FlushNow was called and not yet served
}

// ID is the seat's index in its room, 0 … Seats-1.
func (s *Seat) ID() SeatID { return s.id }

// Name is the player's name: cleaned (no control or bidi characters), at most 24 characters, never empty.
func (s *Seat) Name() string { return s.name }

// Connected reports whether the seat has a link.
func (s *Seat) Connected() bool { return s.conn != nil }

// Kick closes the seat: its player is told why and the world's Leave follows. Nil: ReasonWorld.
func (s *Seat) Kick(why *Refusal) {
	if why == nil {
		why = Refuse("")
	}
	s.room.post(func() { s.room.removeSeat(s, why) })
}

const maxNameRunes = 24

// cleanName makes what a client calls itself fit to be shown to others; it may return an empty string.
func cleanName(in string) string {
	if len(in) > 4*maxNameRunes {
		in = in[:4*maxNameRunes]
	}
	var b strings.Builder
	n, space := 0, false
	for _, r := range in {
		switch {
		case r == utf8.RuneError, unicode.Is(unicode.Cc, r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r):
			continue // control, bidi, zero-width, private use
		case unicode.IsSpace(r):
			space = n > 0
			continue
		case unicode.IsMark(r) && n == 0:
			continue
		}
		if space {
			if n+2 > maxNameRunes {
				break
			}
			b.WriteByte(' ')
			n++
			space = false
		}
		if n++; n > maxNameRunes {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
