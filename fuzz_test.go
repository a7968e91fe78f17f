package drumline

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/drumline-engine/drumline/feed"
)

func FuzzParseState(f *testing.F) {
	h := StateHeader{Seq: 1, Tick16: 3, Margin: MarginNone}
	f.Add(append(appendStateHeader(nil, h), 1, 2, 3))
	h.sections, h.HasAcks, h.HasHash = true, true, true
	f.Add(append(appendStateHeader(nil, h), 0, 0x82, 0x80, 0, 9, 9, 2, 1, 7, 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, msg []byte) {
		total, last := 0, -1
		_, err := ParseState(msg, func(_ StateHeader, id int, body []byte) error {
			total += len(body)
			if id <= last && id != 0 {
				t.Fatalf("feed %d after %d", id, last)
			}
			last = id
			return nil
		})
		if err == nil && total > len(msg) {
			t.Fatalf("%d bytes of bodies in %d", total, len(msg))
		}
	})
}

// FuzzReceive feeds a joined link with arbitrary messages: the engine may close the link, and nothing else.
func FuzzReceive(f *testing.F) {
	input := append(AppendInputHeader(nil, 0, 0, 1, 5), 1, 2, 3, 4, 5, 6, 7, 8)
	f.Add(input, true)
	f.Add(append(AppendInputHeaderSeen(nil, 0, 0, 1, 5, 40), 1, 2, 3, 4, 5, 6, 7, 8), true)
	f.Add(AppendAck(nil, 1, 0), true)
	f.Add([]byte{KindCommand, 1, 2}, true)
	f.Add([]byte{KindLeave}, true)
	f.Add(AppendReport(nil, Quality{Span: 2 * time.Second, Frames: 120, JoltP99: 3, Stutters: [NumCauses]int{1, 2, 3}}), true)
	f.Add(append([]byte{KindReport}, bytes.Repeat([]byte{255}, reportBytes-1)...), true)
	hello, _ := AppendJSON(nil, KindHello, Hello{Protocol: ProtocolVersion, World: "test"})
	f.Add(hello, false)
	ts := newTestServer(f, Spec{Hz: 0}, Options{LiftCaps: true, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, nil)
	f.Cleanup(ts.Close)
	f.Fuzz(func(t *testing.T, msg []byte, joined bool) {
		l := ts.connect(feed.Ordered)
		r := newRoom(ts.Server, ts.opt.Worlds[0], "fuzz", 1, nil)
		if joined {
			s := &Seat{room: r, inbox: newInbox(r.def.kind.inputs(), 4, 0)}
			l.conn.hello = true
			l.conn.seat.Store(s)
		}
		l.send(msg)
		l.drop(io.EOF)
	})
}

func FuzzCleanName(f *testing.F) {
	for _, s := range []string{"Ann", "  a\u202eb ", "\x00\xff", "ＡＢＣ", "e\u0301\u0301\u0301", "a very long name that goes on and on and on"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := cleanName(s)
		if len([]rune(n)) > maxNameRunes {
			t.Fatalf("%q has %d characters", n, len([]rune(n)))
		}
		if again := cleanName(n); again != n {
			t.Fatalf("%q cleans to %q and then to %q", s, n, again)
		}
		if b, err := json.Marshal(n); err != nil || len(b) == 0 {
			t.Fatal(err)
		}
	})
}
