package ops

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drumline-engine/drumline"
)

// busySource has a room with two seats, one of them with a hostile name.
func busySource() *source {
	src := newSource()
	src.history = []drumline.Second{{End: time.UnixMilli(5000), BytesPerSec: 1234.5, PacketsPerSec: 20, WirePerSec: 1300, AgeP99: 1500 * time.Microsecond, EncodeP99: 12 * time.Microsecond}}
	src.inspection = drumline.Inspection{
		Room: src.stats.Rooms[1],
		Steps: []drumline.StepSample{
			{Scheduled: time.Second, Late: time.Millisecond, Step: 2 * time.Millisecond},
			{Scheduled: 1500 * time.Millisecond, Interval: 500 * time.Millisecond, Step: time.Millisecond},
		},
		Seats: []drumline.SeatStats{
			{Seat: 0, Name: "Ann", Link: "ws", Ordered: true, Since: time.Minute, Ping: 20 * time.Millisecond, InputMargin: 2, KernelBytes: -1,
				BytesPerSec: 3000, Bytes: 5000, Packets: 40, Skipped: map[string]uint64{"busy": 1}, Dropped: map[string]uint64{"input_late": 3}},
			{Seat: 3, Name: evilName, InputMargin: drumline.MarginNone},
		},
		Spent: drumline.Spent{For: time.Minute, Packets: 40, Bytes: 5000, Rows: []drumline.SpentRow{{Feed: "snap", Label: "player.<b>x</b>", Bits: 39_000, Count: 100}, {Label: "packet", Bits: 1000, Count: 40}}},
	}
	return src
}

const evilName = `</script><img src=x onerror=alert(1)>"'&`

// keys lists the names of a JSON object's members and those inside, arrays by their first element.
func keys(v any, path string, out map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			out[path+k] = true
			keys(x, path+k+".", out)
		}
	case []any:
		if len(v) > 0 {
			keys(v[0], path, out)
		}
	}
}

// The page reads these; a change of a name must be made in both.
func TestInspectorShapes(t *testing.T) {
	h := newHandler(t, busySource(), Options{})
	for path, want := range map[string]string{
		"/debug/rooms": "server.players server.uptime_s server.draining server.rss_mib server.cpu_cores threads.role threads.load_cores threads.priority " +
			"history.end_ms history.bytes_per_s history.age_p99_ms history.encode_p99_us " +
			"rooms.world rooms.room rooms.players rooms.seats rooms.hz rooms.bytes_per_s rooms.held rooms.skipped " +
			"rooms.beat.steps rooms.beat.late rooms.beat.skipped rooms.beat.doubled rooms.beat.dropped rooms.beat.interval_ms.p99 rooms.beat.step_ms.p50 rooms.beat.step_ms.p99 rooms_omitted",
		"/debug/room?world=arena&room=busy": "room.tick room.send_hz room.encode_us steps.at_ms steps.late_ms steps.interval_ms steps.step_ms " +
			"seats.seat seats.name seats.link seats.ordered seats.ping_ms seats.ack_delay_ms seats.unacked_ms seats.age_ms seats.queued_bytes seats.kernel_bytes " +
			"seats.bytes_per_s seats.held seats.skipped.busy seats.dropped.input_late seats.input_margin seats_omitted " +
			"spent.for_s spent.bytes spent.packets spent.rows.feed spent.rows.label spent.rows.bits spent.rows.count spent.rows_omitted",
		"/debug/explain?world=arena&room=busy&seat=0": "world room seat.name seat.messages seat.keyframes seat.events seat.wire_bytes_out life.for_s life.rows.bits window.for_s window.rows",
	} {
		w := do(h, local("GET", path))
		v := decode[any](t, w)
		got := map[string]bool{}
		keys(v, "", got)
		for k := range strings.FieldsSeq(want) {
			if !got[k] {
				t.Errorf("%s has no %s", path, k)
			}
		}
	}
}

func TestRoomDetail(t *testing.T) {
	h := newHandler(t, busySource(), Options{})
	v := decode[RoomDetail](t, do(h, local("GET", "/debug/room?world=arena&room=busy")))
	want := Steps{AtMs: []float64{-500, 0}, LateMs: []float64{1, 0}, IntervalMs: []float64{0, 500}, StepMs: []float64{2, 1}}
	if !reflect.DeepEqual(v.Steps, want) {
		t.Errorf("steps %+v", v.Steps)
	}
	if len(v.Seats) != 2 || v.Seats[0].PingMs != 20 || *v.Seats[0].InputMargin != 2 || v.Seats[1].InputMargin != nil || v.Seats[1].Name != evilName {
		t.Errorf("seats %+v", v.Seats)
	}
	for path, want := range map[string]int{
		"/debug/room":                                       404,
		"/debug/room?world=arena&room=none":                 404,
		"/debug/explain?world=arena&room=busy&seat=0":       200,
		"/debug/explain?world=arena&room=busy&seat=9":       404,
		"/debug/explain?world=arena&room=busy":              400,
		"/debug/explain?world=arena&room=busy&seat=-1":      400,
		"/debug/explain?world=arena&room=busy&seat=99999":   400,
		"/debug/explain?world=arena&room=busy&seat=%3Cb%3E": 400,
	} {
		if w := do(h, local("GET", path)); w.Code != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := do(h, local("POST", "/debug/room?world=arena&room=busy")); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

// What a player calls himself stays text, also where a browser takes an answer for a page.
func TestHostileNames(t *testing.T) {
	h := newHandler(t, busySource(), Options{})
	for _, path := range []string{"/debug/room?world=arena&room=busy", "/debug/explain?world=arena&room=busy&seat=3"} {
		w := do(h, local("GET", path))
		if body := w.Body.String(); strings.ContainsAny(body, "<>&") || !strings.Contains(body, `\u003c/script\u003e`) {
			t.Errorf("%s: %s", path, body)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
	// Errors do not repeat what they were asked.
	if body := do(h, local("GET", "/debug/explain?seat=%3Cimg%3E&world=%3Cimg%3E")).Body.String(); strings.Contains(body, "img") {
		t.Error(body)
	}
}

// Each answer is bounded, whatever there is.
func TestInspectorBounds(t *testing.T) {
	src := busySource()
	seat := src.inspection.Seats[0]
	src.inspection.Seats = nil
	for i := range 1024 {
		seat.Seat, seat.Name, seat.Unacked = drumline.SeatID(i), strings.Repeat("\U0001f941", 24), time.Duration(i%7)*time.Second
		src.inspection.Seats = append(src.inspection.Seats, seat)
	}
	src.inspection.Spent.Rows = nil
	for i := range 5000 {
		src.inspection.Spent.Rows = append(src.inspection.Spent.Rows, drumline.SpentRow{Label: fmt.Sprint(i)})
	}
	src.inspection.Steps = make([]drumline.StepSample, 5000)
	src.stats.Rooms = nil
	for i := range 3000 {
		src.stats.Rooms = append(src.stats.Rooms, room("arena", fmt.Sprintf("r%d", i), i%17, 1))
	}
	h := newHandler(t, src, Options{})
	w := do(h, local("GET", "/debug/room?world=arena&room=busy"))
	size := w.Body.Len()
	v := decode[RoomDetail](t, w)
	if len(v.Seats) != maxSeats || v.SeatsOmitted != 768 || len(v.Spent.Rows) != maxRows || v.Spent.RowsOmitted != 4488 || len(v.Steps.AtMs) != drumline.RecentSteps || size > 400_000 {
		t.Errorf("%d seats, %d omitted, %d rows, %d steps, %d bytes", len(v.Seats), v.SeatsOmitted, len(v.Spent.Rows), len(v.Steps.AtMs), size)
	}
	for i, s := range v.Seats {
		if s.UnackedMs < 5000 || i > 0 && s.Seat <= v.Seats[i-1].Seat {
			t.Fatalf("seat %d with %v ms is among the worst", s.Seat, s.UnackedMs)
		}
	}
	w = do(h, local("GET", "/debug/rooms"))
	size = w.Body.Len()
	if v := decode[Rooms](t, w); len(v.Rooms) != maxListedRooms || v.RoomsOmitted != 2800 || size > 300_000 {
		t.Errorf("%d rooms, %d omitted, %d bytes", len(v.Rooms), v.RoomsOmitted, size)
	}
}

// Encoders that do not answer are waited for a bounded time, by all that ask.
func TestInspectTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := busySource()
		src.stuck = true
		h := newHandler(t, src, Options{})
		codes := make(chan int, 3)
		begin := time.Now()
		for range 3 {
			go func() { codes <- do(h, local("GET", "/debug/explain?world=arena&room=busy&seat=0")).Code }()
		}
		for range 3 {
			if c := <-codes; c != http.StatusServiceUnavailable {
				t.Errorf("%d", c)
			}
		}
		if d := time.Since(begin); d != inspectTimeout {
			t.Errorf("after %v", d)
		}
	})
}

// The page holds no figures, so that it may ask for the token; the figures never come without it.
func TestInspectorAccess(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the page") })
	data := []string{"/debug/rooms", "/debug/room?world=arena&room=busy", "/debug/explain?world=arena&room=busy&seat=0"}
	for _, c := range []struct {
		name   string
		token  string
		remote bool
		sent   string
		page   int
		data   int
	}{
		{"here", "", false, "", 200, 200},
		{"here, a token is set", testToken, false, "", 200, 200},
		{"elsewhere", "", true, "", 403, 403},
		{"elsewhere, a token is set", testToken, true, "", 200, 403},
		{"elsewhere, with it", testToken, true, testToken, 200, 200},
		{"elsewhere, with another", testToken, true, testToken + "x", 200, 403},
	} {
		h := newHandler(t, busySource(), Options{Token: c.token, Inspector: page})
		ask := func(path string) *httptest.ResponseRecorder {
			r := local("GET", path)
			if c.remote {
				r = remote("GET", path)
			}
			if c.sent != "" {
				r.Header.Set("Authorization", "Bearer "+c.sent)
			}
			return do(h, r)
		}
		if w := ask("/debug/inspector"); w.Code != c.page || (w.Body.String() == "the page") != (c.page == 200) {
			t.Errorf("%s: the page: %d %s", c.name, w.Code, w.Body)
		}
		for _, path := range data {
			if w := ask(path); w.Code != c.data {
				t.Errorf("%s: %s: %d", c.name, path, w.Code)
			}
			sep := "?"
			if strings.Contains(path, "?") {
				sep = "&"
			}
			if w := ask(path + sep + "token=" + testToken); w.Code != c.data {
				t.Errorf("%s: a token in the address: %d", c.name, w.Code)
			}
		}
	}
	if w := do(newHandler(t, busySource(), Options{}), local("GET", "/debug/inspector")); w.Code != http.StatusNotFound {
		t.Errorf("without a page: %d", w.Code)
	}
}

// The account's rows are the engine's, so a reader can add them up.
func TestExplainJSON(t *testing.T) {
	w := do(newHandler(t, busySource(), Options{}), local("GET", "/debug/explain?world=arena&room=busy&seat=0"))
	v := decode[Explained](t, w)
	var bits uint64
	for _, r := range v.Life.Rows {
		bits += r.Bits
	}
	if v.Seat.Name != "Ann" || bits != v.Life.Bytes*8 || v.Life.ForS != 60 {
		t.Errorf("%+v", v)
	}
	b, err := json.Marshal(makeSpent(drumline.Spent{}))
	if err != nil || !strings.Contains(string(b), `"rows":[]`) {
		t.Errorf("%s %v", b, err)
	}
}
