package drumline

import "time"

// Stats is a picture of the server for /health, /metrics, the lobby and load tests. Counters count since the start.
type Stats struct {
	Start    time.Time
	Uptime   time.Duration
	Draining bool
	// Links counts connections, joined or not; Players counts taken seats; Waiting those of them whose link is down.
	Links, Players, Waiting int
	Joined                  uint64
	Resumed                 uint64
	// Refused and Closed count by Reason, Skipped and Dropped by Drop; every reason is present.
	Refused, Closed map[string]uint64
	Skipped         map[string]uint64
	Dropped         map[string]uint64
	// Packets, their bytes (without framing), and bytes on sockets, both directions.
	PacketsOut, PacketBytesOut uint64
	MessagesIn                 uint64
	WireBytesIn, WireBytesOut  uint64
	Keyframes                  uint64
	// RoomsOpened and RoomsClosed count rooms; RoomErrors those closed by a panic, RoomHangs by the watchdog.
	RoomsOpened, RoomsClosed, RoomErrors, RoomHangs uint64

	Threads []ThreadStats
	Worlds  []WorldStats
	Rooms   []RoomStats
}

// ThreadStats describes one of the engine's own threads.
type ThreadStats struct {
	Role string `json:"role"` // beat, encoder, work
	// Priority is what the thread got: fifo, nice or none. Refused says why it did not get what was asked for.
	Priority  string  `json:"priority"`
	Refused   string  `json:"refused,omitempty"`
	LoadCores float64 `json:"load_cores"`
	Rooms     int     `json:"rooms"`
}

// WorldStats is one world of the lobby.
type WorldStats struct {
	Name, Title, About string
	Hz, SendHz, Seats  int
	Rooms, MaxRooms    int
	Players            int
	HasPage            bool
}

// RoomStats is one room. Rates are over the last second or so; beat figures over the last 1,200 steps.
type RoomStats struct {
	World, Room    string
	Epoch          uint8
	Tick           Tick
	Age            time.Duration
	Hz, SendHz     int
	Seats          int
	Players        int
	Waiting        int
	Beat           BeatStats
	BytesOutPerSec float64
	PacketsPerSec  float64
	PacketsOut     uint64
	PacketBytesOut uint64
	Keyframes      uint64
	Skipped        map[string]uint64
	// Held is the mean number of items a client holds; EncodeUs the mean time of one packet, RoundUs of one for all seats.
	Held, EncodeUs, RoundUs float64
}

// BeatStats says how well a room kept its rate. Durations are of the last 1,200 steps; counters since the room opened.
type BeatStats struct {
	Steps, Late, Skipped, Doubled, Dropped, Stalls uint64
	Interval, Lateness, Step                       Quantiles
}

// Quantiles of a duration, in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Window is what was measured over a stretch of time, for load tests. Skipped and Doubled are intervals over 1.5 and under
// 0.5 periods, per room, added.
type Window struct {
	For   time.Duration
	Steps uint64
	// Rooms' steps: skipped, doubled, dropped (steps not run after a stall), stalls (episodes of them).
	Skipped, Doubled, Dropped, Stalls uint64
	IntervalMs, LateMs, StepMs        Quantiles
	// EncodeUs is the time to build one packet, in µs; AgeMs from the scheduled send slot (the deadline of the step whose
	// frame is sent) to the bytes written.
	EncodeUs, AgeMs Quantiles
	PacketBytes     Quantiles // bytes, not ms
	Packets, Bytes  uint64
	WireBytesOut    uint64
	Keyframes       uint64
	HeldMean        float64
	PeakMbit        float64 // the busiest second
	Skips           map[string]uint64
}

// Definition is a World's declaration with its types erased; see Define.
type Definition struct{}

// Spec returns the declaration with its defaults filled in.
func (d Definition) Spec() Spec { return Spec{} }

// InputSize is the size of one encoded input in bytes.
func (d Definition) InputSize() int { return 0 }

// InputFields describes an encoded input.
func (d Definition) InputFields() []InputField { return nil }

// NewBot makes a bot: each call of the function it returns appends one encoded input (InputSize bytes) to dst.
func (d Definition) NewBot(seed uint64) func(dst []byte, v BotView) []byte { return nil }

// Define makes a Definition. Mistakes in k are kept and returned by New.
func Define[I any](k Kind[I]) Definition { return Definition{} }
