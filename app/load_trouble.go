package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/lab/bots"
	"github.com/drumline-engine/drumline/lab/report"
)

// What makes a run fail although it was measured: its figures are of a server that was broken, or gone.

// brokenRooms says how many bots were thrown out since their room broke down; empty: none. closed and refused count by reason.
func brokenRooms(closed, refused map[string]int) string {
	var parts []string
	for _, x := range []struct {
		reason drumline.Reason
		text   string
	}{
		{drumline.ReasonRoomError, "a room ended with an error of its world"},
		{drumline.ReasonRoomHung, "a room hung in its world"},
	} {
		name := x.reason.Name()
		if n := closed[name] + refused[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s, which threw out %s (%s)", x.text, plural(n, "bot"), name))
		}
	}
	return strings.Join(parts, "; ")
}

// trouble is an error if a run that was measured to its end shows a server or a codec that does not work, or was cut short. What the
// expectations name is theirs to judge.
func (c *loadConfig) trouble(r *report.Report, end runEnd) error {
	all, err := report.ParseExpectations(c.expect)
	if err != nil {
		return err
	}
	expected := func(path string) bool {
		return slices.ContainsFunc(all, func(x report.Expectation) bool { return x.Path == path })
	}
	unexpected := func(kind string, counts map[string]int) map[string]int {
		out := maps.Clone(counts)
		maps.DeleteFunc(out, func(name string, _ int) bool { return expected("bots." + kind + "." + name) })
		return out
	}
	var parts []string
	if s := brokenRooms(unexpected("closed", r.Bots.Closed), unexpected("refused", r.Bots.Refused)); s != "" {
		parts = append(parts, s)
	}
	wrong := false
	for _, x := range []struct {
		path        string
		n           uint64
		thing, text string
	}{
		{"client.decode_errors", r.Client.DecodeErrors + end.earlyErrors, "packet", "could not be decoded"},
		{"client.mismatches", r.Client.Mismatches + end.earlyMismatches, "packet", "left a bot with something else than the server has (--verify)"},
	} {
		if x.n > 0 && !expected(x.path) {
			parts = append(parts, plural(x.n, x.thing)+" "+x.text)
			wrong = true
		}
	}
	if wrong && r.Client.FirstError != "" {
		parts = append(parts, "the first: "+r.Client.FirstError)
	}
	left := slices.ContainsFunc(all, func(x report.Expectation) bool {
		return x.Path == "bots.lost" || strings.HasPrefix(x.Path, "bots.closed.")
	})
	if end.cut != "" && (end.gone || len(parts) > 0 || !left) {
		parts = append(parts, end.cut)
	}
	if len(parts) == 0 && end.unverified {
		return errNotVerified
	}
	if len(parts) == 0 {
		return nil
	}
	return fmt.Errorf("%s%s", strings.Join(parts, "; "), end.said)
}

// runEnd is how a run that was measured ended.
type runEnd struct {
	// cut says why it ended before its time; empty: it did not.
	cut string
	// gone: the server at --url stopped answering.
	gone bool
	// earlyErrors and earlyMismatches count packets before the measurement.
	earlyErrors, earlyMismatches uint64
	// unverified: bots were to compare hashes and got none.
	unverified bool
	// said is what the server of the run wrote, for an error message.
	said string
}

// nobodyPlays says that all bots that were to play to the end have lost their links; empty: some play, or were made to stop reading.
func nobodyPlays(g bots.Figures) string {
	if g.Live > 0 || g.Lost == 0 {
		return ""
	}
	var why []string
	for _, name := range slices.Sorted(maps.Keys(g.Closed)) {
		why = append(why, fmt.Sprintf("%d %s", g.Closed[name], name))
	}
	return "no bot plays any more, closed: " + strings.Join(why, ", ")
}

// stoppedError is returned when a signal ended a command before it was done. It wraps the context's error.
type stoppedError struct {
	text  string
	cause error
}

func (e *stoppedError) Error() string { return e.text }
func (e *stoppedError) Unwrap() error { return e.cause }

// stopped makes an error that says what a signal interrupted out of that of a context; others stay as they are.
func stopped(ctx context.Context, err error, text string) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	return &stoppedError{text, err}
}
