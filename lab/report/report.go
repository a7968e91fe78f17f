// Package report turns what a load test measured into a table for people, JSON for machines, and PASS or FAIL.
//
//	r := report.New(report.Measured{…})
//	r.Print(os.Stdout)
//	r.WriteJSON(file)
//	ok, err := report.Check(os.Stdout, r, "beat.skipped==0,beat.interval_ms.p99<=17.2")
//
// It measures nothing itself, and it keeps no history: comparing runs over time is for whoever keeps the files. A [Comparison] puts
// alternating runs of two settings next to each other.
//
// Nothing here starts a goroutine or is safe for concurrent use.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/internal/hist"
	"github.com/drumline-engine/drumline/internal/proc"
	"github.com/drumline-engine/drumline/lab/bots"
)

// MaxStealPct is how much stolen time a run may have; with more, what it shows is the host's doing.
const MaxStealPct = 1

// maxOtherCores is how much other work on the machine is worth a note.
const maxOtherCores = 0.15

// maxInputLateMs is from when on the load generator's own lateness (p99) is worth a word: its nap is 1 ms, a scheduler's tick 4.
const maxInputLateMs = 10

// Number is a figure. In JSON it is rounded to four decimals, and what is no number is 0.
type Number float64

// MarshalJSON writes the rounded number.
func (n Number) MarshalJSON() ([]byte, error) {
	f := math.Round(float64(n)*1e4) / 1e4
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = 0
	}
	return strconv.AppendFloat(nil, f, 'f', -1, 64), nil
}

// Quantiles of a figure, in the unit that the name of its field says.
type Quantiles struct {
	P50 Number `json:"p50"`
	P90 Number `json:"p90"`
	P99 Number `json:"p99"`
	Max Number `json:"max"`
}

func quantiles(q drumline.Quantiles) Quantiles {
	return Quantiles{Number(q.P50), Number(q.P90), Number(q.P99), Number(q.Max)}
}

func fromHist(s *hist.Snapshot, unit time.Duration) Quantiles {
	if s == nil {
		return Quantiles{}
	}
	q := s.Summary(unit)
	return Quantiles{Number(q.P50), Number(q.P90), Number(q.P99), Number(q.Max)}
}

// Sizes are Quantiles with a mean, in bytes.
type Sizes struct {
	Mean Number `json:"mean"`
	Quantiles
}

// sizes reads a histogram in which a byte is a microsecond.
func sizes(s *hist.Snapshot) Sizes {
	if s == nil {
		return Sizes{}
	}
	return Sizes{Number(float64(s.Mean()) / float64(time.Microsecond)), fromHist(s, time.Microsecond)}
}

// Report is one run. Parts that are pointers are absent when the server did not tell its side.
type Report struct {
	Machine Machine `json:"machine"`
	Command string  `json:"command"`
	// Started is the time in RFC 3339, UTC.
	Started   string `json:"started"`
	DurationS Number `json:"duration_s"`
	// Transport is ws, or mem: bots and server in one process.
	Transport string   `json:"transport"`
	Settings  Settings `json:"settings"`
	// Void says why the figures mean nothing; empty: they do.
	Void     string   `json:"void,omitempty"`
	Bots     Bots     `json:"bots"`
	Beat     *Beat    `json:"beat,omitempty"`
	Snapshot Snapshot `json:"snapshot"`
	Client   Client   `json:"client"`
	Motion   *Motion  `json:"motion,omitempty"`
	Inputs   Inputs   `json:"inputs"`
	Server   *Server  `json:"server,omitempty"`
	Load     Load     `json:"load"`
	Pause    *Pause   `json:"pause,omitempty"`
	// Threads are the server's, with the priorities they got.
	Threads []drumline.ThreadStats `json:"threads,omitempty"`
}

// Machine is where both ends ran (the bots' end, if the server is elsewhere).
type Machine struct {
	proc.Host
	StealPct Number `json:"steal_pct"`
	// OtherCores is what neither the bots nor the server used: other work on the machine. Known only with the server beside
	// the bots.
	OtherCores Number `json:"other_cores"`
	// Group says whether the scheduler separates bots and server, which would make their nice values mean nothing.
	Group string `json:"scheduler_group"`
}

// Settings are how states were told, and over what network. Loss, delay and jitter are of link/mem, each in both directions.
type Settings struct {
	// State is whole, plain, ordered or acked; empty: as the server likes.
	State string `json:"state,omitempty"`
	// NoRings: everybody got everything at the full rate.
	NoRings bool `json:"no_rings,omitempty"`
	// Deflate: the bots offered to take compressed messages. Bots.Deflated says how many of them were taken at their word.
	Deflate  bool   `json:"deflate,omitempty"`
	LossPct  Number `json:"loss_pct"`
	DelayMs  Number `json:"delay_ms"`
	JitterMs Number `json:"jitter_ms"`
}

// Bots are counts of links.
type Bots struct {
	Asked  int `json:"asked"`
	Joined int `json:"joined"`
	// Lost are bots that had joined, were not made to pause, and whose link ended.
	Lost    int            `json:"lost"`
	Refused map[string]int `json:"refused"`
	Closed  map[string]int `json:"closed"`
	// JoinS is from the first dial to the last welcome.
	JoinS Number `json:"join_s"`
	Rooms int    `json:"rooms"`
	// Deflated are those that had joined and to whom the server might compress.
	Deflated int `json:"deflated"`
}

// Beat is how well the rooms kept their rate: counts of all rooms, added. Skipped is an interval over 1.5 periods, doubled one
// under 0.5; dropped steps were not run after a stall; stalls are episodes.
type Beat struct {
	Hz       int       `json:"hz"`
	Steps    uint64    `json:"steps"`
	Skipped  uint64    `json:"skipped"`
	Doubled  uint64    `json:"doubled"`
	Dropped  uint64    `json:"dropped"`
	Stalls   uint64    `json:"stalls"`
	Interval Quantiles `json:"interval_ms"`
	Late     Quantiles `json:"late_ms"`
	Step     Quantiles `json:"step_ms"`
}

// Snapshot is what was sent. Bytes are packets as they are read, that is unpacked; wire bytes are those on the socket, with the WebSocket's
// headers (over link/mem four bytes a message), and so are those of total and peak (the
// busiest second). AgeMs is from the scheduled send slot to the bytes written.
type Snapshot struct {
	Hz            int    `json:"hz"`
	BytesPerS     Number `json:"bytes_per_client_s"`
	WireBytesPerS Number `json:"wire_bytes_per_client_s"`
	TotalMbitS    Number `json:"total_mbit_s"`
	Held          Number `json:"entities_held"`
	*ServerSide          // its fields stand among the others
	Packets       uint64 `json:"packets"`
}

// ServerSide is the part of Snapshot that only the server knows.
type ServerSide struct {
	PeakMbitS   Number            `json:"peak_mbit_s"`
	PacketBytes Quantiles         `json:"packet_bytes"`
	EncodeUs    Quantiles         `json:"encode_us"`
	AgeMs       Quantiles         `json:"age_ms"`
	Keyframes   uint64            `json:"keyframes"`
	Skipped     map[string]uint64 `json:"skipped"`
}

// Client is what the bots saw, those that pause left out. AgeMs is from the time a packet's tick was due to decoded; both ends must
// have the same clock. A step that a room drops makes all its later ticks a period later than a client that had joined before can
// know, so from then on it is in AgeMs.
type Client struct {
	GapMs Quantiles `json:"gap_ms"`
	AgeMs Quantiles `json:"age_ms"`
	// AgeNote says why AgeMs is too much; empty: it is not known to be.
	AgeNote      string `json:"age_note,omitempty"`
	DecodeErrors uint64 `json:"decode_errors"`
	Mismatches   uint64 `json:"mismatches"`
	// Verified packets had a hash that was compared; that of Unverifiable ones the server did not know.
	Verified     uint64 `json:"verified"`
	Unverifiable uint64 `json:"unverifiable"`
	// Overtaken packets came after a newer one, or twice. NoBase ones were told against what the client did not have. Neither is acked.
	Overtaken uint64 `json:"overtaken"`
	NoBase    uint64 `json:"no_base"`
	// Acks are messages that carried one; AckDelayMs is from a packet until the message that acks it.
	Acks       uint64    `json:"acks"`
	AckDelayMs Quantiles `json:"ack_delay_ms"`
	// PacketBytes is of state packets, unpacked. All bots have joined and warmed up before.
	PacketBytes Sizes `json:"packet_bytes"`
	// EventsPerS is what one client is told of in a second.
	EventsPerS Number `json:"events_per_s"`
	// FirstError is an example.
	FirstError string `json:"first_error,omitempty"`
}

// Motion is how evenly some bots showed what they got, as package motion measures it: within the innermost ring, against what their own packets
// said half a second later.
type Motion struct {
	Bots int `json:"bots"`
	// Frames are those of single things.
	Frames uint64 `json:"frames"`
	// JoltRatio is the 99th percentile of the jolts over that of the true path. JumpPct are frames with a step that is quite another than the
	// true one, SpeedErrorPct is the mean difference of the two.
	JoltRatio     Number `json:"jolt_ratio"`
	JumpPct       Number `json:"jump_pct"`
	SpeedErrorPct Number `json:"speed_error_pct"`
	// Underruns are pictures past the newest packet, UnderrunPct is their share. Corrections are things that were shown elsewhere than they were.
	Underruns   uint64 `json:"underruns"`
	UnderrunPct Number `json:"underrun_pct"`
	Corrections uint64 `json:"corrections"`
	// DelayMs is from a step until it is shown, in the mean.
	DelayMs Number `json:"delay_ms"`
}

// Inputs are what the bots sent. LateMs is from an input's slot to its write: how well the load generator kept up. EchoMs is
// from the slot until a packet acks the input.
type Inputs struct {
	Hz     int    `json:"hz"`
	Sent   uint64 `json:"sent"`
	Unsent uint64 `json:"unsent"`
	// Unused are inputs that the server left out, by reason; repeats are what redundancy costs and no fault.
	Unused map[string]uint64 `json:"unused,omitempty"`
	LateMs Quantiles         `json:"late_ms"`
	EchoMs Quantiles         `json:"echo_ms"`
}

// Server is what the server's process used. RSSMiB is the most that was seen, once a second.
type Server struct {
	CPUCores   Number    `json:"cpu_cores"`
	RSSMiB     Number    `json:"rss_mib"`
	PSSMiB     Number    `json:"pss_mib"`
	GCPauseMs  Quantiles `json:"gc_pause_ms"`
	Goroutines int       `json:"goroutines"`
}

// Load is what the bots' process used, the server in it included if it is the same one.
type Load struct {
	CPUCores Number `json:"cpu_cores"`
	RSSMiB   Number `json:"rss_mib"`
	// WithServer: bots and server were one process, so what each used is not known.
	WithServer bool `json:"with_server,omitempty"`
}

// Pause is what became of the bots that stopped reading.
type Pause struct {
	Bots int `json:"bots"`
	// Closed counts by the reason that the server counted, as far as it tells, else by what the bots saw.
	Closed map[string]int `json:"closed"`
	// Open are those whose link was still there at the end.
	Open int `json:"open"`
	// StagesS are seconds from the pause until the server's counters first rose: skipped by reason, then closed by reason.
	StagesS map[string]Number `json:"stages_s"`
}

// Measured is what a Report is made from.
type Measured struct {
	Command   string
	Started   time.Time
	Transport string // ws or mem
	Settings  Settings
	Rooms     int
	InputHz   int
	SendHz    int
	Hz        int
	Host      proc.Host
	StealPct  float64
	BusyCores float64 // of the machine, whoever used them
	Group     string
	Bots      bots.Figures
	LoadCores float64
	LoadMiB   float64 // resident memory of the bots' process, the most that was seen
	// Together: the server is in the bots' process. Process is nil then.
	Together bool
	// Window, Process and Stats are the server's; nil: it did not tell.
	Window  *drumline.Window
	Process *proc.Figures
	Stats   *drumline.Stats
	// PeakRSSMiB is the server's resident memory at its highest, if that was watched.
	PeakRSSMiB float64
	Pause      *Pause
}

// New makes a Report.
func New(m Measured) *Report {
	b := m.Bots
	seconds := b.For.Seconds()
	perClient := func(n uint64) Number {
		if b.Clients == 0 || seconds <= 0 {
			return 0
		}
		return Number(float64(n) / float64(b.Clients) / seconds)
	}
	r := &Report{
		Machine:   Machine{Host: m.Host, StealPct: Number(m.StealPct), Group: m.Group},
		Command:   m.Command,
		Started:   m.Started.UTC().Format(time.RFC3339),
		DurationS: Number(seconds),
		Transport: m.Transport,
		Settings:  m.Settings,
		Bots: Bots{Asked: b.Asked, Joined: b.Joined, Lost: b.Lost, Refused: orEmpty(b.Refused), Closed: orEmpty(b.Closed),
			JoinS: Number(b.JoinTime.Seconds()), Rooms: m.Rooms, Deflated: b.Deflated},
		Snapshot: Snapshot{Hz: m.SendHz, BytesPerS: perClient(b.Bytes), WireBytesPerS: perClient(b.WireBytes), Held: Number(b.Held), Packets: b.Packets},
		Client: Client{GapMs: fromHist(b.Gap, time.Millisecond), AgeMs: fromHist(b.Age, time.Millisecond),
			DecodeErrors: b.DecodeErrors, Mismatches: b.Mismatches, Verified: b.Verified, Unverifiable: b.Unverifiable,
			Overtaken: b.Overtaken, NoBase: b.NoBase, Acks: b.Acks, AckDelayMs: fromHist(b.AckDelay, time.Millisecond), PacketBytes: sizes(b.PacketBytes), FirstError: b.FirstError},
		Inputs: Inputs{Hz: max(m.InputHz, 0), Sent: b.Inputs, Unsent: b.Unsent, LateMs: fromHist(b.Late, time.Millisecond), EchoMs: fromHist(b.Echo, time.Millisecond)},
		Load:   Load{Number(m.LoadCores), Number(m.LoadMiB), m.Together},
		Pause:  m.Pause,
	}
	if g := b.Motion; g != nil {
		r.Motion = &Motion{Bots: b.Showing, Frames: g.Frames, JoltRatio: Number(g.JoltRatio), JumpPct: Number(g.JumpPct), SpeedErrorPct: Number(g.SpeedErrorPct),
			Underruns: g.Underruns, UnderrunPct: Number(g.UnderrunPct()), Corrections: g.Corrections, DelayMs: Number(g.DelayMs)}
	}
	if m.StealPct > MaxStealPct {
		r.Void = fmt.Sprintf("steal %.1f %%", m.StealPct)
	}
	if seconds > 0 && b.Decoding > 0 {
		r.Client.EventsPerS = Number(float64(b.Events) / float64(b.Decoding) / seconds)
	}
	if seconds > 0 {
		r.Snapshot.TotalMbitS = Number(float64(b.WireBytes) * 8 / 1e6 / seconds)
	}
	if w := m.Window; w != nil {
		r.Beat = &Beat{Hz: m.Hz, Steps: w.Steps, Skipped: w.Skipped, Doubled: w.Doubled, Dropped: w.Dropped, Stalls: w.Stalls,
			Interval: quantiles(w.IntervalMs), Late: quantiles(w.LateMs), Step: quantiles(w.StepMs)}
		if w.Dropped > 0 {
			r.Client.AgeNote = fmt.Sprintf("dropped steps: %d in all rooms; a client's age counts each one of its room as a period", w.Dropped)
		}
		if s := w.For.Seconds(); s > 0 {
			r.Snapshot.TotalMbitS = Number(float64(w.WireBytesOut) * 8 / 1e6 / s)
		}
		r.Snapshot.ServerSide = &ServerSide{PeakMbitS: Number(w.PeakMbit), PacketBytes: quantiles(w.PacketBytes),
			EncodeUs: quantiles(w.EncodeUs), AgeMs: quantiles(w.AgeMs), Keyframes: w.Keyframes, Skipped: map[string]uint64{}}
		r.Inputs.Unused = map[string]uint64{}
		for name, n := range w.Skips {
			if slices.Contains(skips, name) {
				r.Snapshot.Skipped[name] = n
			} else {
				r.Inputs.Unused[name] = n
			}
		}
	}
	if m.Together {
		r.Machine.OtherCores = Number(max(0, m.BusyCores-m.LoadCores))
	}
	if p := m.Process; p != nil {
		r.Machine.OtherCores = Number(max(0, m.BusyCores-p.CPUCores-m.LoadCores))
		r.Server = &Server{CPUCores: Number(p.CPUCores), RSSMiB: Number(max(p.RSSMiB, m.PeakRSSMiB)), PSSMiB: Number(p.PSSMiB),
			GCPauseMs:  Quantiles{Number(p.GCPauseMs.P50), Number(p.GCPauseMs.P90), Number(p.GCPauseMs.P99), Number(p.GCPauseMs.Max)},
			Goroutines: p.Goroutines}
	}
	if m.Stats != nil {
		r.Threads = m.Stats.Threads
	}
	return r
}

// orEmpty makes an object of JSON out of what may be nil.
func orEmpty(m map[string]int) map[string]int {
	if m == nil {
		return map[string]int{}
	}
	return m
}

// WriteJSON writes the report, indented.
func (r *Report) WriteJSON(w io.Writer) error { return writeJSON(w, r) }

func writeJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) {
	p := printer{w: w}
	m := r.Machine
	p.line("run", "%s", r.Command)
	over := "over " + r.Transport
	if r.Load.WithServer {
		over = "in one process, link/mem"
	}
	p.line("", "%s, %s s %s", r.Started, short(r.DurationS), over)
	if text := r.settings(); text != "" {
		p.line("", "%s", text)
	}
	p.line("machine", "%d × %s, %s %s %s, %s, %s MiB; steal %s %%, other work %s cores", m.Cores, m.CPU, m.OS, m.Kernel, m.Arch, m.Go, short(Number(math.Round(m.MemoryMiB))), short(m.StealPct), short(m.OtherCores))
	p.line("", "scheduler group of bots and server: %s", m.Group)
	for _, t := range r.Threads {
		refused := ""
		if t.Refused != "" {
			refused = " (" + t.Refused + ")"
		}
		p.line("", "%s thread: priority %s%s, %s cores", t.Role, t.Priority, refused, short(Number(t.LoadCores)))
	}
	b := r.Bots
	p.line("links", "%d of %d joined within %s s, in %d rooms; %d lost; refused: %s; closed: %s", b.Joined, b.Asked, short(b.JoinS), b.Rooms, b.Lost, list(b.Refused), list(b.Closed))
	if t := r.Beat; t != nil {
		p.line("beat", "%d Hz, %d steps: skipped %d, doubled %d, dropped %d, stalls %d", t.Hz, t.Steps, t.Skipped, t.Doubled, t.Dropped, t.Stalls)
	}
	s := r.Snapshot
	p.line("snapshot", "%d Hz, %s B/s a client decoded, %s on the wire; on all wires %s Mbit/s%s", s.Hz, short(s.BytesPerS), short(s.WireBytesPerS), short(s.TotalMbitS), s.peak())
	if s.ServerSide != nil {
		p.line("", "%d packets came, %s items held, %d keyframes; skipped: %s", s.Packets, short(s.Held), s.Keyframes, list(s.Skipped))
	} else {
		p.line("", "%d packets came, %s items held", s.Packets, short(s.Held))
	}
	c := r.Client
	p.line("client", "%d decode errors, %d mismatches in %d verified packets, %d unverifiable", c.DecodeErrors, c.Mismatches, c.Verified, c.Unverifiable)
	p.line("", "%s B a packet in the mean, %s at most; %s events a second", short(c.PacketBytes.Mean), short(c.PacketBytes.Max), short(c.EventsPerS))
	p.line("", "%d packets overtaken, %d without a base; %d acks sent", c.Overtaken, c.NoBase, c.Acks)
	if c.FirstError != "" {
		p.line("", "for example: %s", c.FirstError)
	}
	if g := r.Motion; g != nil {
		p.line("motion", "of %d bots, %s ms late: jolts %s of the true ones, %s %% jump frames, speed off by %s %%", g.Bots, short(g.DelayMs), short(g.JoltRatio), short(g.JumpPct), short(g.SpeedErrorPct))
		p.line("", "%s %% of the pictures past the newest packet, %d corrections", short(g.UnderrunPct), g.Corrections)
	}
	p.line("inputs", "%d messages a second and bot, %d sent, %d not; the server did not use: %s", r.Inputs.Hz, r.Inputs.Sent, r.Inputs.Unsent, list(r.Inputs.Unused))
	if v := r.Server; v != nil {
		p.line("server", "%s cores, %s MiB resident, %s proportional, %d goroutines", short(v.CPUCores), short(v.RSSMiB), short(v.PSSMiB), v.Goroutines)
	} else if r.Load.WithServer {
		p.line("server", "in the bots' process: what it used is in the next line")
	} else {
		p.line("server", "did not tell its figures (they are for this machine, or for who has the token)")
	}
	who := "the bots"
	if r.Load.WithServer {
		who = "bots and server together"
	}
	p.line("load", "%s cores, %s MiB resident: %s", short(r.Load.CPUCores), short(r.Load.RSSMiB), who)
	if u := r.Pause; u != nil {
		p.line("paused", "%d bots: %d still open, closed: %s", u.Bots, u.Open, list(u.Closed))
		for _, name := range sortedBy(u.StagesS) {
			p.line("", "%s after %s s", name, short(u.StagesS[name]))
		}
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "%-26s%10s%10s%10s%10s\n", "", "p50", "p90", "p99", "max")
	p.quantiles("client gap ms", c.GapMs)
	p.quantiles("client age ms", c.AgeMs)
	p.quantiles("client ack delay ms", c.AckDelayMs)
	p.quantiles("client packet bytes", c.PacketBytes.Quantiles)
	if t := r.Beat; t != nil {
		p.quantiles("beat interval ms", t.Interval)
		p.quantiles("beat late ms", t.Late)
		p.quantiles("beat step ms", t.Step)
	}
	if s.ServerSide != nil {
		p.quantiles("snapshot age ms", s.AgeMs)
		p.quantiles("snapshot encode µs", s.EncodeUs)
		p.quantiles("snapshot packet bytes", s.PacketBytes)
	}
	p.quantiles("input late ms", r.Inputs.LateMs)
	p.quantiles("input echo ms", r.Inputs.EchoMs)
	if v := r.Server; v != nil {
		p.quantiles("server GC pause ms", v.GCPauseMs)
	}
	if late := r.Inputs.LateMs.P99; late > maxInputLateMs {
		fmt.Fprintf(w, "\nNOTE: the bots sent their inputs up to %s ms late (p99): they got too little of this machine, and what clients saw is partly their own doing\n", short(late))
	}
	if other := m.OtherCores; other > maxOtherCores {
		fmt.Fprintf(w, "\nNOTE: other work on this machine took %s cores: repeat the run on a quiet one\n", short(other))
	}
	if note := r.Client.AgeNote; note != "" {
		fmt.Fprintf(w, "\nNOTE: client age: %s\n", note)
	}
	if r.Void != "" {
		fmt.Fprintf(w, "\nVOID: %s; repeat the run\n", r.Void)
	}
}

// settings says what is not as usual.
func (r *Report) settings() string {
	s := r.Settings
	var all []string
	if s.State != "" {
		all = append(all, "states told "+s.State)
	}
	if s.NoRings {
		all = append(all, "no rings")
	}
	if s.Deflate {
		all = append(all, fmt.Sprintf("compression agreed with %d bots", r.Bots.Deflated))
	}
	if r.Load.WithServer {
		all = append(all, fmt.Sprintf("each way loses %s %% and takes %s ms and up to %s ms more", short(s.LossPct), short(s.DelayMs), short(s.JitterMs)))
	}
	return strings.Join(all, "; ")
}

func (s Snapshot) peak() string {
	if s.ServerSide == nil {
		return ""
	}
	return fmt.Sprintf(", %s in the busiest second", short(s.PeakMbitS))
}

type printer struct{ w io.Writer }

func (p printer) line(head, format string, args ...any) {
	fmt.Fprintf(p.w, "%-10s%s\n", head, fmt.Sprintf(format, args...))
}

func (p printer) quantiles(name string, q Quantiles) {
	// Padded by runes: a µ is two bytes.
	fmt.Fprintf(p.w, "%s%s%10s%10s%10s%10s\n", name, strings.Repeat(" ", max(26-len([]rune(name)), 1)), short(q.P50), short(q.P90), short(q.P99), short(q.Max))
}

// short writes a number with as many decimals as say something.
func short(n Number) string {
	f := float64(n)
	digits := 3
	switch a := math.Abs(f); {
	case f == math.Trunc(f), a >= 1000:
		digits = 0
	case a >= 100:
		digits = 1
	case a >= 1:
		digits = 2
	}
	return strconv.FormatFloat(f, 'f', digits, 64)
}

// list writes the counts that are not 0, by name.
func list[N int | uint64](m map[string]N) string {
	var names []string
	for name, n := range m {
		if n != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	sort.Strings(names)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, m[name])
	}
	return strings.Join(names, ", ")
}

// sortedBy returns the names in the order of their values.
func sortedBy(m map[string]Number) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := m[names[i]], m[names[j]]
		return a < b || a == b && names[i] < names[j]
	})
	return names
}
