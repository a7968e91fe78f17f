package drumline

import (
	"log/slog"
	"time"

	"github.com/drumline-engine/drumline/beat"
	"github.com/drumline-engine/drumline/feed"
)

// Options set up a Server. The zero value of each field means its default; wrong values are errors from New.
type Options struct {
	// Worlds are the worlds that this server runs. Required: at least one.
	Worlds []Definition

	// MaxPlayers is the number of seats that may be taken at once. Default 2000.
	MaxPlayers int
	// MaxPending is the number of links that may be open without a hello; with more, the one that has been silent for the
	// longest is closed with ReasonSilent. Default 512.
	MaxPending int
	// JoinsPerSec is how many joins a second one address (an IPv6 /64) gets, and a tenth of what an IPv6 /48 gets, with a burst
	// of five times as many. Default 5.
	JoinsPerSec int
	// LiftCaps lifts MaxPlayers, JoinsPerSec and Spec.Rooms: for load tests. It is never implied by an address.
	LiftCaps bool
	// Lab grants Hello.Verify and the measuring endpoints' extras. Not for production.
	Lab bool

	// HelloTimeout is how long a link may wait before its hello. Default 5 s.
	HelloTimeout time.Duration
	// SlowAfter, QuietAfter and StallAfter are ages of the oldest packet without an ack: a quarter of the rate, keep-alive
	// only (one packet a second), close. Defaults 1 s, 10 s, 30 s.
	SlowAfter, QuietAfter, StallAfter time.Duration
	// MessagesPerSec is how many messages a second one link may send, with a burst of twice as many; a link over it is
	// closed with ReasonTooFast. Default 240.
	MessagesPerSec int

	// BeatThreads is the most threads that rooms share. Default: cores - 1, at least 1.
	BeatThreads int
	// Encoders is the number of encoder workers. Default: cores - 1, at least 1.
	Encoders int
	// Workers is the number of threads for Room.Go. Default: cores - 1, at least 1.
	Workers int
	// Priority is what the beat and encoder threads ask for: "nice" (default: -10 and -5), "fifo" (beat only; encoders nice)
	// or "none". A refusal is recorded in the stats and changes nothing else.
	Priority string
	// Arrangement is for benchmarks that compare ways to spread the work: "" (default: beat threads and encoder threads),
	// "inline" (encode and write on the beat) or "goroutines" (encoders are not locked to threads).
	Arrangement string
	// Acked has each link treated as if it lost packets and changed their order: what a client is sent is told against what it
	// has acked, and packets' headers name the acks. For measuring what that costs, over any link.
	Acked bool
	// Tuning are the switches that feeds which are feed.Tunable are given before their room opens. For measuring.
	Tuning feed.Tuning
	// HangAfter is how long a step may take before its room is given up. Default 1 s.
	HangAfter time.Duration

	// Clock is the time of the beat and of everything that is measured. Default beat.SystemClock(); tests give
	// beat.PortableClock() inside a synctest bubble.
	Clock beat.Clock

	// Seed makes rooms reproducible: room n of the process gets a seed derived from it. 0: from the system.
	Seed uint64
	// Logger receives the engine's log. Default slog.Default().
	Logger *slog.Logger
	// Hooks are called on events; see Hooks.
	Hooks Hooks
}
