package report

import (
	"bytes"
	"strings"
	"testing"
)

// run is the JSON of a report with a few figures changed.
func runJSON(t *testing.T, change func(m *Measured)) []byte {
	t.Helper()
	m := measured()
	change(&m)
	var b bytes.Buffer
	if err := New(m).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestComparison(t *testing.T) {
	var a, b [][]byte
	for i, p99 := range []float64{17, 16, 400} { // one bad run of three
		a = append(a, runJSON(t, func(m *Measured) {
			m.Window.IntervalMs.P99, m.Pause = p99, nil
			m.Window.Skipped = 0
			m.Bots.Closed = map[string]int{}
		}))
		b = append(b, runJSON(t, func(m *Measured) {
			m.Window.IntervalMs.P99 = p99 + 1.7
			m.Window.Skipped = uint64(i)
			m.PeakRSSMiB = 33.25
		}))
	}
	c, err := NewComparison("--pause=8", a, b)
	if err != nil {
		t.Fatal(err)
	}
	var table, js bytes.Buffer
	c.Print(&table)
	golden(t, "compare.txt", table.Bytes())
	if err := c.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	ok, err := Check(&out, c, "a.beat.interval_ms.p99==17,b.beat.interval_ms.p99==18.7,ratio.beat.interval_ms.p99==1.1,diff.server.rss_mib<=2,"+
		"b.pause.closed.stalled==8,a.bots.closed.reset==0,b.bots.refused.server_full==0,diff.beat.skipped==1")
	if !ok || err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	// From 0 to something is no ratio.
	out.Reset()
	if ok, _ := Check(&out, c, "ratio.beat.skipped<=1"); ok || !strings.Contains(out.String(), "no such figure") {
		t.Error(out.String())
	}
	if len(c.Runs.A) != 3 || len(c.Runs.B) != 3 {
		t.Errorf("%d and %d runs kept", len(c.Runs.A), len(c.Runs.B))
	}
}

func TestComparisonOfEvenRuns(t *testing.T) {
	one := func(p99 float64) []byte { return runJSON(t, func(m *Measured) { m.Window.AgeMs.P99 = p99 }) }
	c, err := NewComparison("x", [][]byte{one(1), one(2)}, [][]byte{one(4), one(3)})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := c.flat[0]["snapshot.age_ms.p99"], c.flat[1]["snapshot.age_ms.p99"]; a != 1.5 || b != 3.5 {
		t.Errorf("medians %v and %v", a, b)
	}
}

func TestComparisonNeedsRuns(t *testing.T) {
	for _, runs := range [][2][][]byte{{}, {{[]byte("{}")}, nil}, {{[]byte("{")}, {[]byte("{}")}}} {
		if _, err := NewComparison("x", runs[0], runs[1]); err == nil {
			t.Errorf("%q is taken", runs)
		}
	}
}
