package drumline

import (
	"context"
	"encoding/binary"
	"math"
	"testing"
	"time"
)

// goodReport is one that nobody has anything against.
func goodReport() Quality {
	return Quality{Span: 2 * time.Second, Frames: 120, FrameP99: 17 * time.Millisecond, FrameMax: 40 * time.Millisecond, LongTasks: 1,
		Ping: 80 * time.Millisecond, Age: 120 * time.Millisecond, Buffer: 60 * time.Millisecond, Underruns: 4, Jumps: 3, Rollbacks: 2, Unreadable: 1, Baseless: 5,
		Starved: 6, JoltP99: 0.5, Stutters: [NumCauses]int{CauseNetwork: 1}}
}

func TestReportsComeThroughAsTheyAre(t *testing.T) {
	want := goodReport()
	got, moved, ok := parseReport(AppendReport(nil, want), 20)
	if !ok || moved || got != want {
		t.Errorf("%+v, moved %v, ok %v", got, moved, ok)
	}
}

func TestReportsAreHeldToWhatIsPossible(t *testing.T) {
	raw := func(change func(b []byte)) []byte {
		b := AppendReport(nil, goodReport())
		change(b)
		return b
	}
	jolt := func(f float32) func(b []byte) {
		return func(b []byte) { binary.LittleEndian.PutUint32(b[32:], math.Float32bits(f)) }
	}
	word := func(at int, v uint16) func(b []byte) {
		return func(b []byte) { binary.LittleEndian.PutUint16(b[at:], v) }
	}
	for _, tt := range []struct {
		name   string
		change func(b []byte)
		ok     bool
		check  func(q Quality) bool
	}{
		{"no time", word(4, 0), false, nil},
		{"a jolt that is no number", jolt(float32(math.NaN())), false, nil},
		{"an endless jolt", jolt(float32(math.Inf(1))), false, nil},
		{"a negative jolt", jolt(-1), false, nil},
		{"a vast jolt", jolt(1e30), true, func(q Quality) bool { return q.JoltP99 == maxJolt }},
		{"a minute", word(4, 60000), true, func(q Quality) bool { return q.Span == maxReportSpan }},
		{"frames", word(6, 65535), true, func(q Quality) bool { return q.Frames == 1001 }},
		{"p99 over the longest", word(8, 65535), true, func(q Quality) bool { return q.FrameP99 == q.FrameMax }},
		{"long tasks", word(12, 65535), true, func(q Quality) bool { return q.LongTasks == 41 }},
		{"underruns", word(20, 121), true, func(q Quality) bool { return q.Underruns == q.Frames }},
		{"jumps", word(22, 500), true, func(q Quality) bool { return q.Jumps == q.Frames }},
		{"rollbacks", word(24, 500), true, func(q Quality) bool { return q.Rollbacks == q.Frames }},
		{"unreadable", word(26, 65535), true, func(q Quality) bool { return q.Unreadable == 120 }},
		{"baseless", word(28, 65535), true, func(q Quality) bool { return q.Baseless == 120 }},
		{"starved", word(30, 65535), true, func(q Quality) bool { return q.Starved == 120 }},
		{"verdicts", func(b []byte) { b[1], b[2], b[3] = 255, 255, 255 }, true,
			func(q Quality) bool { return q.Stutters == [NumCauses]int{3, 0, 0} }},
	} {
		q, moved, ok := parseReport(raw(tt.change), 20)
		if ok != tt.ok || ok && (!moved || !tt.check(q)) {
			t.Errorf("%s: ok %v, moved %v: %+v", tt.name, ok, moved, q)
		}
	}
}

func TestReportsAreAddedUp(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l := ts.join("a")
		defer keepAcking(l)()
		pause(time.Second)
		w, ok := message[Welcome](l, KindWelcome)
		if !ok || w.ReportMs != 2000 {
			t.Fatalf("welcome: %v, reportMs %d", ok, w.ReportMs)
		}
		for range 2 {
			l.send(AppendReport(nil, goodReport()))
		}
		bad := goodReport()
		bad.JoltP99 = math.Inf(1)
		l.send(AppendReport(nil, bad))
		moved := goodReport()
		moved.Jumps = 1000
		l.send(AppendReport(nil, moved))
		pause(3 * time.Second)

		st := ts.Stats()
		if st.Dropped["report"] != 1 || st.Dropped["report_bounds"] != 1 {
			t.Errorf("dropped %v", st.Dropped)
		}
		if len(st.Pages) != 1 {
			t.Fatalf("pages %+v", st.Pages)
		}
		if p := st.Pages[0]; p.World != "test" || p.Transport != "fake" || p.Reports != 3 || p.Stutters["network"] != 3 || p.Jumps != 3+3+120 ||
			p.Span != 6*time.Second || p.Ping.Count != 3 || p.Ping.Sum != 240*time.Millisecond || len(p.Ping.Cumulative) != len(PageBounds()) {
			t.Errorf("pages %+v", p)
		}
		if q := st.Rooms[0].Quality; q.Reports != 3 || len(q.Stutters) != int(NumCauses) || q.Stutters["network"] != 3 {
			t.Errorf("room %+v", q)
		}
		in, err := ts.Inspect(context.Background(), "test", "a")
		if err != nil {
			t.Fatal(err)
		}
		if s := in.Seats[0]; s.Quality == nil || s.Quality.Jumps != 120 || s.Quality.Ping != 80*time.Millisecond || s.QualityAge != 3*time.Second || s.Dropped["report"] != 1 {
			t.Errorf("seat %+v", s)
		}
	})
}

func TestReportsTooOftenAreDropped(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l := ts.join("a")
		defer keepAcking(l)()
		pause(time.Second)
		for range 50 { // time stands still meanwhile
			l.send(AppendReport(nil, goodReport()))
		}
		st := ts.Stats()
		if n := st.Pages[0].Reports; n != reportBurst || st.Dropped["report"] != 50-reportBurst {
			t.Errorf("%d taken, %d dropped", n, st.Dropped["report"])
		}
		for range 20 { // those that come as they should are all taken
			pause(reportEvery)
			l.send(AppendReport(nil, goodReport()))
		}
		if n := ts.Stats().Pages[0].Reports; n != reportBurst+20 || l.isClosed() {
			t.Errorf("%d taken, closed %v", n, l.isClosed())
		}
	})
}

func TestReportOfAnotherSizeIsRefused(t *testing.T) {
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		for _, n := range []int{1, reportBytes - 1, reportBytes + 1} {
			l := ts.join("a")
			pause(time.Second)
			b := make([]byte, n)
			b[0] = KindReport
			l.send(b)
			pause(time.Second)
			if g, _ := message[Goodbye](l, KindRefuse); g.Reason != "bad_message" {
				t.Errorf("%d bytes: %+v", n, g)
			}
		}
		if st := ts.Stats(); st.Closed["bad_message"] != 3 || len(st.Pages) != 0 {
			t.Errorf("closed %v, pages %+v", st.Closed, st.Pages)
		}
	})
}

func BenchmarkReceiveReport(b *testing.B) {
	msg := AppendReport(nil, goodReport())
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := parseReport(msg, 20); !ok {
			b.Fatal("refused")
		}
	}
}
