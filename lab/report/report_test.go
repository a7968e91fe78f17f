package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/internal/hist"
	"github.com/drumline-engine/drumline/internal/proc"
	"github.com/drumline-engine/drumline/lab/bots"
	"github.com/drumline-engine/drumline/lab/motion"
)

var update = flag.Bool("update", false, "write testdata anew")

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; go test -update writes it anew\n%s", file, got)
	}
}

func durations(all ...time.Duration) *hist.Snapshot {
	var h hist.Histogram
	for _, d := range all {
		h.Record(d)
	}
	return h.Snapshot()
}

func measured() Measured {
	const ms = time.Millisecond
	return Measured{
		Command: "drumline load --bots 208 --rooms 13 --pause 8", Started: time.Date(2026, 12, 1, 4, 20, 0, 0, time.UTC), Transport: "ws",
		Rooms: 13, InputHz: 20, SendHz: 20, Hz: 60,
		Host:     proc.Host{Cores: 2, CPU: "Some CPU", Kernel: "6.1", OS: "linux", Arch: "amd64", Go: "go1.26", MemoryMiB: 8000.4},
		StealPct: 0.123456, BusyCores: 0.75, Group: "the same (autogroup 3)",
		Bots: bots.Figures{For: 30 * time.Second, Asked: 208, Joined: 207, Live: 198, Lost: 1, JoinTime: 834 * ms,
			Refused: map[string]int{"room_full": 1}, Closed: map[string]int{"reset": 9}, Clients: 199,
			Packets: 119_400, Bytes: 18_507_000, WireBytes: 18_745_800,
			Gap: durations(49*ms, 50*ms, 51*ms), Age: durations(ms, 2*ms), Late: durations(ms / 2), Echo: durations(30*ms, 60*ms),
			AckDelay: durations(10*ms, 45*ms), PacketBytes: durations(90*time.Microsecond, 155*time.Microsecond, 1020*time.Microsecond),
			Unverifiable: 4, Overtaken: 5, NoBase: 6, Acks: 123_000, Events: 11_940, Decoding: 199,
			Motion:   &motion.Motion{Frames: 480_000, JoltRatio: 1.04, JumpPct: 0.012, SpeedErrorPct: 0.93, Pictures: 7200, Underruns: 36, Corrections: 512, DelayMs: 117.5},
			Showing:  4,
			Verified: 119_400, Held: 48, Inputs: 124_000, Unsent: 3},
		LoadCores: 0.2, LoadMiB: 25.5,
		Window: &drumline.Window{For: 30 * time.Second, Steps: 23_400, Skipped: 2, Doubled: 1, Dropped: 0, Stalls: 1,
			IntervalMs: drumline.Quantiles{P50: 16.667, P90: 16.7, P99: 16.77, Max: 26.4}, LateMs: drumline.Quantiles{P50: 0.07, P90: 0.1, P99: 0.15, Max: 9.7},
			StepMs:      drumline.Quantiles{P50: 0.012, P90: 0.02, P99: 0.05, Max: 1},
			EncodeUs:    drumline.Quantiles{P50: 3.1, P90: 4, P99: 12, Max: 300},
			AgeMs:       drumline.Quantiles{P50: 0.1, P90: 0.2, P99: 0.28, Max: 5},
			PacketBytes: drumline.Quantiles{P50: 155, P90: 160, P99: 170, Max: 1200},
			Packets:     119_000, Bytes: 18_500_000, WireBytesOut: 18_800_000, Keyframes: 2, PeakMbit: 5.25,
			Skips: map[string]uint64{"busy": 12, "slow": 160, "quiet": 0, "input_late": 7}},
		Process:    &proc.Figures{CPUCores: 0.345, RSSMiB: 30.5, PSSMiB: 28.25, GCPauseMs: proc.Quantiles{P50: 0.01, P90: 0.02, P99: 0.02, Max: 0.02}, Goroutines: 230},
		PeakRSSMiB: 31.25,
		Stats: &drumline.Stats{Threads: []drumline.ThreadStats{{Role: "beat", Priority: "nice", LoadCores: 0.1, Rooms: 13},
			{Role: "encoder", Priority: "none", Refused: "permission denied", LoadCores: 0.2}}},
		Pause: &Pause{Bots: 8, Closed: map[string]int{"stalled": 8}, StagesS: map[string]Number{"skipped_slow": 2, "closed_stalled": 31, "skipped_busy": 1}},
	}
}

func TestGolden(t *testing.T) {
	m := measured()
	r := New(m)
	var table, js bytes.Buffer
	r.Print(&table)
	golden(t, "full.txt", table.Bytes())
	if err := r.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	golden(t, "full.json", js.Bytes())

	// A server elsewhere that tells nothing, on a machine whose time was stolen.
	m.Window, m.Process, m.Stats, m.Pause, m.StealPct = nil, nil, nil, nil, 3.25
	m.Bots.Late = durations(20 * time.Millisecond)
	m.Bots.FirstError, m.Bots.DecodeErrors = "bot 3: a state packet: short", 1
	r = New(m)
	table.Reset()
	js.Reset()
	r.Print(&table)
	golden(t, "remote.txt", table.Bytes())
	if err := r.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	golden(t, "remote.json", js.Bytes())
}

// Bots and server in one process: what each used is not claimed.
func TestTogether(t *testing.T) {
	m := measured()
	m.Transport, m.Together, m.Process, m.Pause = "mem", true, nil, nil
	m.Settings = Settings{State: "acked", NoRings: true, LossPct: 5, DelayMs: 40, JitterMs: 10}
	r := New(m)
	var table, js bytes.Buffer
	r.Print(&table)
	golden(t, "together.txt", table.Bytes())
	if err := r.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	golden(t, "together.json", js.Bytes())
	var out bytes.Buffer
	if ok, _ := Check(&out, r, "server.rss_mib<1"); ok {
		t.Error("the server's memory is claimed")
	}
	m.Settings, m.Together, m.Bots.Deflated = Settings{Deflate: true}, false, 207
	table.Reset()
	New(m).Print(&table)
	if !strings.Contains(table.String(), "compression agreed with 207 bots") {
		t.Error(table.String())
	}
}

// The keys that tools and documents rely on.
func TestKeys(t *testing.T) {
	d, err := NewDocument(New(measured()))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(`machine.steal_pct duration_s
		bots.asked bots.joined bots.lost bots.refused.room_full
		beat.hz beat.steps beat.skipped beat.doubled beat.dropped beat.interval_ms.p50 beat.late_ms.p90 beat.step_ms.p99
		snapshot.hz snapshot.bytes_per_client_s snapshot.wire_bytes_per_client_s snapshot.total_mbit_s snapshot.peak_mbit_s
		snapshot.packet_bytes.p50 snapshot.encode_us.p99 snapshot.age_ms.max snapshot.entities_held snapshot.keyframes snapshot.skipped.busy
		client.gap_ms.p99 client.age_ms.max client.decode_errors client.mismatches client.verified client.unverifiable client.overtaken client.no_base
		client.acks client.ack_delay_ms.p99 client.packet_bytes.mean client.packet_bytes.p99 client.packet_bytes.max client.events_per_s
		bots.deflated settings.loss_pct settings.delay_ms settings.jitter_ms load.rss_mib
		server.cpu_cores server.rss_mib server.pss_mib server.gc_pause_ms.max server.goroutines load.cpu_cores`) {
		if _, ok := d.numbers[path]; !ok {
			t.Errorf("no %s", path)
		}
	}
	var top map[string]any
	b, _ := json.Marshal(New(measured()))
	json.Unmarshal(b, &top)
	for _, key := range []string{"machine", "command", "transport"} {
		if top[key] == nil {
			t.Errorf("no %s", key)
		}
	}
}

// After dropped steps what clients call age is not what it was, and the report says so.
func TestAgeNote(t *testing.T) {
	for dropped, want := range map[uint64]bool{0: false, 4: true} {
		m := measured()
		m.Window.Dropped = dropped
		r := New(m)
		var table, js bytes.Buffer
		r.Print(&table)
		if err := r.WriteJSON(&js); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(table.String(), "NOTE: client age: dropped steps: 4"); got != want {
			t.Errorf("%d dropped steps:\n%s", dropped, table.String())
		}
		if got := strings.Contains(js.String(), `"age_note": "dropped steps: 4`); got != want {
			t.Errorf("%d dropped steps:\n%s", dropped, js.String())
		}
	}
}

func TestFiguresOfNothing(t *testing.T) {
	empty := durations()
	r := New(Measured{Bots: bots.Figures{Gap: empty, Age: empty, Late: empty, Echo: empty}, Window: &drumline.Window{}, Process: &proc.Figures{}})
	var b bytes.Buffer
	r.Print(&b)
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") || strings.Contains(s, "null") {
		t.Error(s)
	}
}

func TestNumber(t *testing.T) {
	for in, want := range map[float64]string{0: "0", 1.00004: "1", 16.66666: "16.6667", 1e9: "1000000000", -0.5: "-0.5", math.Inf(1): "0"} {
		if b, err := json.Marshal(Number(in)); err != nil || string(b) != want {
			t.Errorf("%v: %s, %v", in, b, err)
		}
	}
	if b, _ := json.Marshal(Number(math.NaN())); string(b) != "0" {
		t.Errorf("NaN: %s", b)
	}
	for in, want := range map[Number]string{0: "0", 0.1234: "0.123", 1.2345: "1.23", 123.45: "123.5", 12345.6: "12346", 17: "17", -2.5: "-2.50"} {
		if got := short(in); got != want {
			t.Errorf("%v: %s, want %s", float64(in), got, want)
		}
	}
}
