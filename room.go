package drumline

import (
	"log/slog"
	"math/rand/v2"
	"time"
)

// Room is a world's handle to the engine. Its methods are for the room's goroutine, except those that say otherwise.
type Room struct{}

// Name is the room's name, unique in its world. Any goroutine.
func (r *Room) Name() string { return "" }

// Rand is the room's random source: seeded, and the only one a deterministic world may use. Its state must be in the world's
// Snapshot: RandState appends it, and RestoreRand takes it back.
func (r *Room) Rand() *rand.Rand                                { return nil }
func (r *Room) RandState(dst []byte) []byte                     { return dst }
func (r *Room) RestoreRand(src []byte) (rest []byte, err error) { return src, nil }

// Log is the room's logger. Any goroutine.
func (r *Room) Log() *slog.Logger { return nil }

// Seats yields the taken seats in the order of their ids.
func (r *Room) Seats() func(yield func(*Seat) bool) { return nil }

// Wake makes a room without a beat step soon. Any goroutine.
func (r *Room) Wake() {}

// FlushNow sends to this seat at once what has changed, ahead of the send rate.
func (r *Room) FlushNow(s *Seat) {}

// After calls f on the room's goroutine, d from now (in rooms with a beat: rounded up to steps). It is not part of a Snapshot.
func (r *Room) After(d time.Duration, f func()) {}

// Go runs work on a background thread of lower priority, at most Options.Workers at once in the process, and then calls done (if not
// nil) on the room's goroutine between two steps. work must not touch the world. If the room has closed, done is not called.
func (r *Room) Go(work func(), done func()) {}

// Close closes the room: each client is told why, and may come back as new.
func (r *Room) Close(why Reason) {}
