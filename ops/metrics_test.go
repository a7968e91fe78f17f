package ops

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/drumline-engine/drumline"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

// scrape returns /metrics as lines, without comments.
func scrape(t *testing.T, src Source, o Options) map[string]string {
	t.Helper()
	return parse(t, do(newHandler(t, src, o), local("GET", "/metrics")).Body.String())
}

func parse(t *testing.T, text string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if i := strings.LastIndex(line, "} "); i >= 0 { // labels may hold spaces
			name, value = line[:i+1], strings.TrimSpace(line[i+2:])
		}
		if !ok {
			t.Fatalf("line %q", line)
		}
		m[name] = value
	}
	return m
}

func expect(t *testing.T, got map[string]string, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %q, want %s", name, got[name], value)
		}
	}
}

func TestMetrics(t *testing.T) {
	src := newSource()
	got := scrape(t, src, Options{Conns: func() Conns { return Conns{Open: 5, Waiting: 4, Evicted: 3} }})
	expect(t, got, map[string]string{
		"drumline_players":                                   "3",
		"drumline_draining":                                  "0",
		"drumline_uptime_seconds":                            "90",
		"drumline_joins_total":                               "7",
		`drumline_thread_load_cores{role="beat",thread="0"}`: "0.25",
		`drumline_thread_priority_info{priority="none",refused="EPERM",role="encoder",thread="0"}`: "1",
		`drumline_world_room_limit{world="arena"}`:                                                 "50",
		`drumline_refusals_total{reason="room_full"}`:                                              "4",
		"drumline_http_connections_waiting":                                                        "4",
		"drumline_http_connections_evicted_total":                                                  "3",
		`drumline_step_seconds_count`:                                                              "2",
		`drumline_step_seconds_sum`:                                                                "0.002",
		`drumline_step_seconds_bucket{le="0.0005"}`:                                                "0",
		`drumline_step_seconds_bucket{le="0.001"}`:                                                 "2",
		`drumline_room_players{room="busy",world="arena"}`:                                         "2",
		`drumline_room_steps_total{room="busy",world="arena"}`:                                     "1200",
		`drumline_room_step_interval_recent_seconds{room="busy",stat="p99",world="arena"}`:         "0.01675",
		`drumline_room_packets_skipped_total{reason="busy",room="busy",world="arena"}`:             "5",
		`drumline_room_round_seconds{room="busy",world="arena"}`:                                   "5e-05",
		`drumline_room_held_items{room="busy",world="arena"}`:                                      "48",
		`drumline_page_stutters_total{cause="network",transport="ws",world="arena"}`:               "2",
		`drumline_page_stutters_total{cause="page",transport="ws",world="arena"}`:                  "0",
		`drumline_page_packets_unread_total{fault="baseless",transport="ws",world="arena"}`:        "6",
		`drumline_page_seconds_total{transport="ws",world="arena"}`:                                "20",
		`drumline_page_ping_seconds_bucket{transport="ws",world="arena",le="0.1"}`:                 "1",
	})
	for _, prefix := range []string{"go_goroutines", "go_sched_latencies_seconds_bucket", "process_cpu_seconds_total", "go_build_info"} {
		found := false
		for name := range got {
			found = found || strings.HasPrefix(name, prefix)
		}
		if !found {
			t.Errorf("%s is missing", prefix)
		}
	}
}

// Each reason is there before it has happened, so that the first event is seen as a rise.
func TestEveryReasonStartsAtZero(t *testing.T) {
	got := scrape(t, &source{}, Options{})
	for _, r := range drumline.Reasons() {
		expect(t, got, map[string]string{
			fmt.Sprintf("drumline_refusals_total{reason=%q}", r.Name()): "0",
			fmt.Sprintf("drumline_closes_total{reason=%q}", r.Name()):   "0",
		})
	}
	for _, d := range skips {
		expect(t, got, map[string]string{fmt.Sprintf("drumline_packets_skipped_total{reason=%q}", d.Name()): "0"})
	}
	for _, d := range drops {
		expect(t, got, map[string]string{fmt.Sprintf("drumline_drops_total{reason=%q}", d.Name()): "0"})
	}
}

// The lists of drops are complete: the engine's maps have no other names, and no Drop follows the last one listed.
func TestEveryDropIsListed(t *testing.T) {
	type input struct{ Fire bool }
	srv, err := drumline.New(drumline.Options{Logger: quiet(), Priority: "none", Worlds: []drumline.Definition{
		drumline.Define(drumline.Kind[input]{Spec: drumline.Spec{Name: "dots", Hz: 60},
			Open: func(*drumline.Room) (drumline.World[input], error) { return nil, drumline.ErrClosed }}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	st := srv.Stats()
	for _, c := range []struct {
		what   string
		listed []drumline.Drop
		counts map[string]uint64
	}{{"skipped", skips, st.Skipped}, {"dropped", drops, st.Dropped}} {
		var want, got []string
		for _, d := range c.listed {
			want = append(want, d.Name())
			if int(d) >= len(roomCounts{}.packetsSkipped) {
				t.Errorf("no room for %s in roomCounts", d.Name())
			}
			if dropTexts[d] == "" {
				t.Errorf("%s has no text for docs/metrics.md", d.Name())
			}
		}
		for name := range c.counts {
			got = append(got, name)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("%s: listed %v, the engine counts %v", c.what, want, got)
		}
	}
}

func TestRoomSeriesAreBounded(t *testing.T) {
	src := newSource()
	src.stats.Rooms = nil
	for i := range 10 {
		src.stats.Rooms = append(src.stats.Rooms, room("arena", fmt.Sprintf("r%d", i), i, 100))
	}
	h := newHandler(t, src, Options{RoomSeries: 3})
	got := parse(t, do(h, local("GET", "/metrics")).Body.String())
	rooms := map[string]bool{}
	label := regexp.MustCompile(`^drumline_room_.*room="([^"]*)"`)
	for name := range got {
		if m := label.FindStringSubmatch(name); m != nil {
			rooms[m[1]] = true
		}
	}
	if len(rooms) != 4 || !rooms["r9"] || !rooms["r8"] || !rooms["r7"] || !rooms[otherRoom] {
		t.Errorf("rooms with series: %v", rooms)
	}
	expect(t, got, map[string]string{
		`drumline_room_players{room="_other",world="arena"}`:                             "21", // 0 + … + 6
		`drumline_room_steps_total{room="_other",world="arena"}`:                         "700",
		`drumline_room_packets_skipped_total{reason="busy",room="_other",world="arena"}`: "35",
		`drumline_room_step_recent_seconds{room="_other",stat="max",world="arena"}`:      "0.0004",
	})
}

// Counters of _other never fall, and a room keeps its series until it closes, whatever the others do.
func TestOtherNeverFalls(t *testing.T) {
	c := newCollector(nil, nil, nil, newAccess("", nil), 1)
	other := func(st drumline.Stats) (steps uint64, shown []string) {
		for _, s := range c.fold(st) {
			if s.Room == otherRoom {
				steps = s.steps
			} else {
				shown = append(shown, s.Room)
			}
		}
		return steps, shown
	}
	stats := func(rooms ...drumline.RoomStats) drumline.Stats { return drumline.Stats{Rooms: rooms} }
	for i, c := range []struct {
		st    drumline.Stats
		steps uint64
		shown string
	}{
		{stats(room("arena", "a", 5, 100), room("arena", "b", 4, 50), room("arena", "c", 3, 10)), 60, "a"},
		{stats(room("arena", "a", 0, 160), room("arena", "b", 4, 110), room("arena", "c", 3, 70)), 180, "a"}, // a is the emptiest, and stays
		{stats(room("arena", "a", 0, 220), room("arena", "c", 3, 130)), 240, "a"},                            // b closed
		{stats(room("arena", "a", 0, 280), room("arena", "b", 1, 7), room("arena", "c", 3, 190)), 307, "a"},  // a new b
		{stats(room("arena", "b", 1, 67), room("arena", "c", 3, 250)), 367, "c"},                             // a closed: c gets its place
		{stats(room("arena", "c", 3, 310)), 367, "c"},                                                        // nobody else: _other stays
		{stats(), 367, ""},
		{stats(room("arena", "_other", 3, 10)), 377, ""}, // a name that would clash
	} {
		steps, shown := other(c.st)
		if steps != c.steps || strings.Join(shown, " ") != c.shown {
			t.Errorf("scrape %d: _other has %d steps, want %d; shown %v, want %s", i, steps, c.steps, shown, c.shown)
		}
	}
	if len(c.last) != 1 || len(c.shown) != 0 {
		t.Errorf("remembers closed rooms: %v %v", c.last, c.shown)
	}
}

// Names and units as Prometheus' own linter wants them.
func TestMetricNames(t *testing.T) {
	src := newSource()
	c := newCollector(src.Stats, src.Distribution, func() Conns { return Conns{} }, newAccess("", nil), 100)
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	// Every metric of the table is really sent, and nothing that the table lacks.
	var sent, table []string
	for _, f := range families {
		sent = append(sent, f.GetName())
	}
	for _, m := range c.table {
		table = append(table, m.name)
		if !strings.HasSuffix(m.help, ".") {
			t.Errorf("%s: help is no sentence: %q", m.name, m.help)
		}
	}
	slices.Sort(table)
	if !slices.Equal(sent, table) {
		t.Errorf("sent  %v\ntable %v", sent, table)
	}
}

// dropTexts explain the values of the label reason that are drops; reasons have texts of their own.
var dropTexts = map[drumline.Drop]string{
	drumline.SkipBusy:        "The link still held bytes of the packet before.",
	drumline.SkipSlow:        "Lower rate: the client's newest ack is older than a second.",
	drumline.SkipQuiet:       "Keep-alive only: the client's newest ack is older than ten seconds.",
	drumline.SkipQueued:      "The reliable lane held too much.",
	drumline.SkipEncoder:     "The encoder had not finished the room's previous frame.",
	drumline.SkipClean:       "There was nothing to say, in a room without a beat.",
	drumline.SkipWindow:      "As many packets were under way, unacked, as can be told apart: the round trip is long for the rate.",
	drumline.DropInputLate:   "An input for a step that had been run already.",
	drumline.DropInputFuture: "An input for a step too far ahead.",
	drumline.DropInputRepeat: "An input that was known already: redundancy, no fault.",
	drumline.DropCommand:     "A command, because the seat's queue was full.",
	drumline.DropReport:      "A report of a page on the motion it showed: it came too soon, or said nothing.",
	drumline.DropReportBound: "A number of such a report: it was out of bounds, and was moved to the bound.",
	drumline.DropInputSeen:   "What an input said of the moment that its player saw: it was out of bounds, and was moved to the bound.",
}

func metricsPage() string {
	var b strings.Builder
	b.WriteString(`# Metrics

/metrics speaks Prometheus' text format. It answers to programs on the server's own machine, or to whoever sends the operator's
token (drumline help serve: DRUMLINE_OPS_TOKEN) as "Authorization: Bearer TOKEN".

This page is made from the code by "make docs", and a test compares them.

Each reason is present from the start, at 0. Only so many rooms have series of their own (100; the fullest when they get a free
place, which they keep until they close); the others of a world are added up under room="_other". Counters of a room begin anew
when a room of the same name opens. What pages reported (page_) is by world and transport, and there from the first report on; by room
and seat /debug/rooms and /debug/room have it.

| metric | type | labels | meaning |
|---|---|---|---|
`)
	for _, m := range newCollector(nil, nil, nil, newAccess("", nil), 1).table {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "), m.help)
	}
	b.WriteString("\n`go_*` and `process_*` are the standard metrics of Go programs: memory, garbage collector, goroutines, " +
		"CPU, descriptors; `go_sched_latencies_seconds` is how long goroutines waited for a thread, the counterpart of event loop lag.\n")
	b.WriteString("\n## Reasons\n\nOf `drumline_refusals_total` and `drumline_closes_total`, with the close code and whether the client may come back:\n\n" +
		"| reason | code | come back |\n|---|---|---|\n")
	for _, r := range drumline.Reasons() {
		fmt.Fprintf(&b, "| `%s` | %d | %s |\n", r.Name(), r.Code(), r.Retry())
	}
	for _, c := range []struct {
		of    string
		drops []drumline.Drop
	}{
		{"Of `drumline_packets_skipped_total` and `drumline_room_packets_skipped_total`", skips},
		{"Of `drumline_drops_total`", drops},
	} {
		fmt.Fprintf(&b, "\n%s:\n\n| reason | meaning |\n|---|---|\n", c.of)
		for _, d := range c.drops {
			fmt.Fprintf(&b, "| `%s` | %s |\n", d.Name(), dropTexts[d])
		}
	}
	b.WriteString("\nOf `drumline_ops_refusals_total`:\n\n| reason | meaning |\n|---|---|\n")
	for _, r := range refusals {
		fmt.Fprintf(&b, "| `%s` | %s. |\n", r.name, strings.ToUpper(r.text[:1])+r.text[1:])
	}
	return b.String()
}

func TestDocs(t *testing.T) {
	const file = "../docs/metrics.md"
	want := metricsPage()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the code says; make docs writes it anew", file)
	}
}

func BenchmarkCollect(b *testing.B) {
	src := newSource()
	for i := range 125 {
		src.stats.Rooms = append(src.stats.Rooms, room("arena", fmt.Sprint("r", i), 16, 1200))
	}
	h := newHandler(b, src, Options{})
	b.ReportAllocs()
	for b.Loop() {
		if w := do(h, local("GET", "/metrics")); w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}
