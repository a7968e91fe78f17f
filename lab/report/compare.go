package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
)

// Comparison is alternating runs of two settings: A, B, A, B, …. Each figure is the median of its runs, so that one bad moment of the
// machine decides nothing.
type Comparison struct {
	// Change is what B adds to A's command.
	Change string `json:"change"`
	Rounds int    `json:"rounds"`
	// A and B are the medians of each figure; Ratio is B over A and Diff B minus A, where both have it.
	A     map[string]any `json:"a"`
	B     map[string]any `json:"b"`
	Ratio map[string]any `json:"ratio"`
	Diff  map[string]any `json:"diff"`
	// Runs are the reports of A and B, in the order in which they ran.
	Runs struct {
		A []json.RawMessage `json:"a"`
		B []json.RawMessage `json:"b"`
	} `json:"runs"`

	flat [4]map[string]float64 // a, b, ratio, diff
}

// NewComparison compares runs, given as the JSON of their reports.
func NewComparison(change string, a, b [][]byte) (*Comparison, error) {
	if len(a) == 0 || len(a) != len(b) {
		return nil, errors.New("report: a comparison needs as many runs of one as of the other")
	}
	c := &Comparison{Change: change, Rounds: len(a)}
	var docs [2][]*Document
	paths, objects := map[string]bool{}, map[string]bool{}
	for i, side := range [][][]byte{a, b} {
		for _, run := range side {
			d, err := NewDocument(json.RawMessage(run))
			if err != nil {
				return nil, err
			}
			docs[i] = append(docs[i], d)
			for p := range d.numbers {
				paths[p] = true
			}
			for p := range d.objects {
				objects[p] = true
			}
			if i == 0 {
				c.Runs.A = append(c.Runs.A, run)
			} else {
				c.Runs.B = append(c.Runs.B, run)
			}
		}
	}
	for i := range docs {
		c.flat[i] = medians(docs[i], paths)
	}
	ratio, diff := map[string]float64{}, map[string]float64{}
	for path, va := range c.flat[0] {
		vb, ok := c.flat[1][path]
		if !ok {
			continue
		}
		diff[path] = vb - va
		switch {
		case va != 0:
			ratio[path] = vb / va
		case vb == 0:
			ratio[path] = 1
		}
	}
	c.flat[2], c.flat[3] = ratio, diff
	for i, t := range []*map[string]any{&c.A, &c.B, &c.Ratio, &c.Diff} {
		*t = tree(c.flat[i], objects)
	}
	return c, nil
}

// medians of the figures at paths that all runs have. A reason that some runs did not count is 0 there.
func medians(docs []*Document, paths map[string]bool) map[string]float64 {
	m := map[string]float64{}
	for p := range paths {
		var v []float64
		for _, d := range docs {
			if n, ok := d.Lookup(p); ok {
				v = append(v, n)
			}
		}
		if len(v) < len(docs) {
			continue
		}
		slices.Sort(v)
		mid := v[len(v)/2]
		if len(v)%2 == 0 {
			mid = (v[len(v)/2-1] + mid) / 2
		}
		m[p] = mid
	}
	return m
}

// tree nests figures by the parts of their paths, as in a report, with the report's objects even where they are empty.
func tree(flat map[string]float64, objects map[string]bool) map[string]any {
	root := map[string]any{}
	object := func(path string) map[string]any {
		at := root
		for part := range strings.SplitSeq(path, ".") {
			next, ok := at[part].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[part] = next
			}
			at = next
		}
		return at
	}
	for path := range objects {
		if path != "" {
			object(path)
		}
	}
	for path, v := range flat {
		if at := strings.LastIndexByte(path, '.'); at >= 0 {
			object(path[:at])[path[at+1:]] = Number(v)
		} else {
			root[path] = Number(v)
		}
	}
	return root
}

// WriteJSON writes the comparison, indented.
func (c *Comparison) WriteJSON(w io.Writer) error { return writeJSON(w, c) }

// shown are the figures that Print shows; the others are in the JSON.
var shown = []string{
	"bots.joined", "bots.lost",
	"beat.skipped", "beat.doubled", "beat.dropped", "beat.interval_ms.p99", "beat.interval_ms.max", "beat.late_ms.p99", "beat.step_ms.p50", "beat.step_ms.p99",
	"snapshot.bytes_per_client_s", "snapshot.wire_bytes_per_client_s", "snapshot.total_mbit_s", "snapshot.packet_bytes.p50", "snapshot.encode_us.p50", "snapshot.encode_us.p99",
	"snapshot.age_ms.p50", "snapshot.age_ms.p99", "snapshot.entities_held",
	"client.gap_ms.p50", "client.gap_ms.p99", "client.gap_ms.max", "client.age_ms.p50", "client.age_ms.p99", "client.decode_errors", "client.mismatches", "client.unverifiable",
	"client.packet_bytes.mean", "client.packet_bytes.p99", "client.packet_bytes.max", "client.events_per_s", "client.overtaken", "client.no_base", "client.ack_delay_ms.p99",
	"inputs.echo_ms.p50", "inputs.echo_ms.p99",
	"server.cpu_cores", "server.rss_mib", "server.pss_mib", "server.gc_pause_ms.max", "load.cpu_cores", "machine.steal_pct",
}

// Print writes the medians next to each other.
func (c *Comparison) Print(w io.Writer) {
	fmt.Fprintf(w, "Medians of %d alternating runs. B is A with %s.\n\n", c.Rounds, c.Change)
	fmt.Fprintf(w, "%-36s%12s%12s%12s%12s\n", "", "A", "B", "B - A", "B / A")
	for _, p := range shown {
		a, okA := c.flat[0][p]
		b, okB := c.flat[1][p]
		if !okA && !okB {
			continue
		}
		text := func(m map[string]float64) string {
			if v, ok := m[p]; ok {
				return short(Number(v))
			}
			return "-"
		}
		if a == 0 && b == 0 {
			fmt.Fprintf(w, "%-36s%12s%12s\n", p, text(c.flat[0]), text(c.flat[1]))
			continue
		}
		fmt.Fprintf(w, "%-36s%12s%12s%12s%12s\n", p, text(c.flat[0]), text(c.flat[1]), text(c.flat[3]), text(c.flat[2]))
	}
	if only := c.onlyB(); only != "" {
		fmt.Fprintf(w, "\nOnly in B: %s\n", only)
	}
}

// onlyB lists what only B has, such as what became of its paused bots.
func (c *Comparison) onlyB() string {
	var found []string
	for p, v := range c.flat[1] {
		if _, ok := c.flat[0][p]; !ok {
			found = append(found, fmt.Sprintf("%s %s", p, short(Number(v))))
		}
	}
	sort.Strings(found)
	return strings.Join(found, ", ")
}
