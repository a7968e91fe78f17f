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

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/lab/bots"
)

// Expectation is one condition on a figure, such as beat.interval_ms.p99<=17.2.
type Expectation struct {
	// Path is the figure's place in the JSON.
	Path string
	// Op is ==, !=, <=, >=, < or >.
	Op    string
	Value float64
}

func (e Expectation) String() string {
	return e.Path + e.Op + strconv.FormatFloat(e.Value, 'f', -1, 64)
}

// ParseExpectations reads a comma-separated list.
func ParseExpectations(s string) ([]Expectation, error) {
	var all []Expectation
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		at := strings.IndexAny(part, "=!<>")
		if at < 0 {
			return nil, fmt.Errorf("report: expectation %q: want something like beat.skipped==0", part)
		}
		e := Expectation{Path: strings.TrimSpace(part[:at])}
		rest := part[at:]
		for _, op := range []string{"==", "!=", "<=", ">=", "<", ">"} {
			if strings.HasPrefix(rest, op) {
				e.Op = op
				break
			}
		}
		if e.Op == "" {
			return nil, fmt.Errorf("report: expectation %q: want ==, !=, <=, >=, < or >", part)
		}
		if e.Path == "" || strings.ContainsAny(e.Path, " \t") {
			return nil, fmt.Errorf("report: expectation %q: no figure before %s", part, e.Op)
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest[len(e.Op):]), 64)
		if err != nil || math.IsNaN(v) {
			return nil, fmt.Errorf("report: expectation %q: want a number after %s", part, e.Op)
		}
		e.Value = v
		all = append(all, e)
	}
	return all, nil
}

// holds reports whether got satisfies the expectation.
func (e Expectation) holds(got float64) bool {
	switch e.Op {
	case "==":
		return got == e.Value
	case "!=":
		return got != e.Value
	case "<=":
		return got <= e.Value
	case ">=":
		return got >= e.Value
	case "<":
		return got < e.Value
	}
	return got > e.Value
}

// Document is the figures of a Report or a Comparison by their path in its JSON.
type Document struct {
	numbers map[string]float64
	objects map[string]bool
}

// NewDocument reads the figures of v's JSON. What is not a number is left out.
func NewDocument(v any) (*Document, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	var tree any
	if err := json.Unmarshal(b, &tree); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	d := &Document{map[string]float64{}, map[string]bool{}}
	d.add("", tree)
	return d, nil
}

func (d *Document) add(path string, v any) {
	switch v := v.(type) {
	case float64:
		d.numbers[path] = v
	case map[string]any:
		d.objects[path] = true
		for name, v := range v {
			if path != "" {
				name = path + "." + name
			}
			d.add(name, v)
		}
	}
}

// Lookup finds a figure. A reason that was not counted is 0 if there is such a reason.
func (d *Document) Lookup(path string) (float64, bool) {
	if v, ok := d.numbers[path]; ok {
		return v, true
	}
	parent, leaf := "", path
	if at := strings.LastIndexByte(path, '.'); at >= 0 {
		parent, leaf = path[:at], path[at+1:]
	}
	if !d.objects[parent] {
		return 0, false
	}
	switch parent[strings.LastIndexByte(parent, '.')+1:] {
	case "refused", "closed":
		return 0, isReason(leaf)
	case "skipped":
		return 0, slices.Contains(skips, leaf)
	case "unused":
		return 0, slices.Contains(unused, leaf)
	}
	return 0, false
}

// skips are the reasons for which state packets are left out.
var skips = []string{
	drumline.SkipBusy.Name(), drumline.SkipSlow.Name(), drumline.SkipQuiet.Name(), drumline.SkipQueued.Name(),
	drumline.SkipEncoder.Name(), drumline.SkipClean.Name(), drumline.SkipWindow.Name(),
}

// unused are the reasons for which parts of client messages are.
var unused = []string{
	drumline.DropInputLate.Name(), drumline.DropInputFuture.Name(), drumline.DropInputRepeat.Name(), drumline.DropCommand.Name(), drumline.DropInputSeen.Name(),
}

func isReason(name string) bool {
	switch name {
	case bots.NoAnswer, bots.NoConnection, bots.BadFrame, bots.BadWelcome, bots.Reset:
		return true
	}
	for _, r := range drumline.Reasons() {
		if r.Name() == name {
			return true
		}
	}
	return strings.HasPrefix(name, "http_") || strings.HasPrefix(name, "code_")
}

// near finds paths that end like path, as a hint for who mistyped it.
func (d *Document) near(path string) string {
	leaf := path[strings.LastIndexByte(path, '.')+1:]
	var found []string
	for p := range d.numbers {
		if p == leaf || strings.HasSuffix(p, "."+leaf) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return ""
	}
	// Those of the same part of the report first.
	part, _, _ := strings.Cut(path, ".")
	other := func(p string) bool { return !strings.HasPrefix(p, part+".") }
	sort.Slice(found, func(i, j int) bool {
		if a, b := other(found[i]), other(found[j]); a != b {
			return b
		}
		return found[i] < found[j]
	})
	return "; there is " + strings.Join(found[:min(len(found), 4)], ", ")
}

// Check writes a PASS or FAIL line for each expectation of the list on v's JSON, and reports whether all hold. A figure that does
// not exist is a failure, not an error, so that a run without it cannot pass.
func Check(w io.Writer, v any, list string) (bool, error) {
	all, err := ParseExpectations(list)
	if err != nil {
		return false, err
	}
	d, err := NewDocument(v)
	if err != nil {
		return false, err
	}
	ok := true
	for _, e := range all {
		got, found := d.Lookup(e.Path)
		switch {
		case !found:
			ok = false
			fmt.Fprintf(w, "FAIL %s: there is no such figure%s\n", e, d.near(e.Path))
		case !e.holds(got):
			ok = false
			fmt.Fprintf(w, "FAIL %s: it is %s\n", e, strconv.FormatFloat(got, 'f', -1, 64))
		default:
			fmt.Fprintf(w, "PASS %s: it is %s\n", e, strconv.FormatFloat(got, 'f', -1, 64))
		}
	}
	return ok, nil
}
