package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drumline-engine/drumline/lab/report"
)

// load --compare: runs by turns with and without changed flags.

// changes are the flags that --compare adds, such as --pause=8.
func (c *loadConfig) changes() ([]string, error) {
	if c.compare == "" {
		return nil, nil
	}
	specs := newLoadConfig().flags()
	public, _ := newFlagSet("load", specs)
	var all []string
	for part := range strings.SplitSeq(c.compare, ",") {
		part = strings.TrimLeft(strings.TrimSpace(part), "-")
		name, value, ok := strings.Cut(part, "=")
		if slices.Contains([]string{"json", "expect", "compare", "rounds", "quiet"}, name) {
			return nil, usagef("--compare: --%s is for all runs together", name)
		}
		f := public.Lookup(name)
		spec := specs[max(0, slices.IndexFunc(specs, func(s flagSpec) bool { return s.name == name }))]
		if f == nil {
			return nil, usagef("--compare %q: load has no flag --%s", c.compare, name)
		}
		if !ok {
			if b, isBool := f.Value.(interface{ IsBoolFlag() bool }); !isBool || !b.IsBoolFlag() {
				return nil, usagef("--compare %q: want %s=VALUE", c.compare, name)
			}
			value = "true"
		}
		if err := public.Set(name, value); err != nil {
			return nil, usagef("--compare: --%s %s: %s", name, value, spec.want(value, err.Error()))
		}
		if err := spec.check(); err != nil {
			return nil, usagef("--compare: %v", err)
		}
		all = append(all, "--"+name+"="+value)
	}
	return all, nil
}

// runComparison runs the command again in processes of their own, by turns without and with the changes: so each run starts
// from the same state, and a server is never the child of a process that has given up its priority.
func (c *loadConfig) runComparison(ctx context.Context, e *env, args []string) error {
	changes, err := c.changes()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "drumline-load-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var runs [2][][]byte
	void := ""
	for round := range c.rounds {
		for side, name := range []string{"A", "B"} {
			file := filepath.Join(dir, fmt.Sprintf("%s%d.json", name, round+1))
			// A flag that is given twice counts as given last.
			more := append(slices.Clone(args), "--compare=", "--rounds=0", "--expect=", "--json="+file)
			if side == 1 {
				more = append(more, changes...)
			}
			b, why, err := c.runOne(ctx, e, fmt.Sprintf("%s %d of %d", name, round+1, c.rounds), more, file)
			if ctx.Err() != nil {
				return c.stopComparison(ctx, e, changes, runs)
			}
			if err != nil {
				return fmt.Errorf("run %s %d: %w", name, round+1, err)
			}
			if why != "" {
				void = why
			}
			runs[side] = append(runs[side], b)
		}
	}
	cmp, err := report.NewComparison(strings.Join(changes, " "), runs[0], runs[1])
	if err != nil {
		return err
	}
	if err := c.publish(e, cmp, cmp.Print); err != nil {
		return err
	}
	if void != "" {
		fmt.Fprintf(e.stderr, "VOID: %s in at least one run, also when repeated\n", void)
	}
	return c.judge(e, cmp, void)
}

// stopComparison publishes the medians of the rounds that were finished when a signal came. Expectations are for all rounds, so they
// are not judged.
func (c *loadConfig) stopComparison(ctx context.Context, e *env, changes []string, runs [2][][]byte) error {
	n := len(runs[1])
	text := "stopped before the first round was finished: there is nothing to compare"
	if n > 0 {
		text = fmt.Sprintf("stopped after %d of %s; the figures are of those", n, plural(c.rounds, "round"))
		cmp, err := report.NewComparison(strings.Join(changes, " "), runs[0][:n], runs[1])
		if err != nil {
			return err
		}
		if err := c.publish(e, cmp, cmp.Print); err != nil {
			return err
		}
	}
	return &stoppedError{text, ctx.Err()}
}

// runOne makes one run of a comparison, and repeats it when it is void.
func (c *loadConfig) runOne(ctx context.Context, e *env, title string, args []string, file string) (b []byte, void string, err error) {
	for try := 0; ; try++ {
		fmt.Fprintf(e.stderr, "== %s\n", title)
		p, err := startSubprocess(append([]string{"load"}, args...), os.Environ(), io.Discard, e.stderr)
		if err != nil {
			return nil, "", err
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			p.stop(serverStopTime + loadDrainTime)
			return nil, "", ctx.Err()
		}
		if p.err != nil {
			return nil, "", p.err
		}
		if b, err = os.ReadFile(file); err != nil {
			return nil, "", err
		}
		var head struct{ Void string }
		if err := json.Unmarshal(b, &head); err != nil {
			return nil, "", err
		}
		if head.Void == "" || try == voidRepeats {
			return b, head.Void, nil
		}
		fmt.Fprintf(e.stderr, "VOID: %s; once more\n", head.Void)
	}
}
