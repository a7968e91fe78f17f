package app

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/lab/report"
	"github.com/drumline-engine/drumline/link/mem"
)

// The network between bots and server: sockets, or link/mem with both of them in this process.

// inProcess reports whether the bots join a server of this process, over a network that can lose and delay.
func (c *loadConfig) inProcess() bool { return c.loss.given || c.delay != 0 || c.jitter != 0 }

// checkLink finds flags about the network and the states that do not go together.
func (c *loadConfig) checkLink() error {
	if err := checkState(c.state); err != nil {
		return err
	}
	if c.delay < 0 || c.delay > maxLinkDelay || c.jitter < 0 || c.jitter > maxLinkDelay {
		return usagef("--delay %v, --jitter %v: want 0 to %v each", c.delay, c.jitter, maxLinkDelay)
	}
	if !c.inProcess() {
		return nil
	}
	for _, f := range []struct {
		given bool
		name  string
	}{{c.url != "", "url"}, {c.deflate, "deflate"}, {c.rcvbuf != 0, "rcvbuf"}} {
		if f.given {
			return usagef("--%s is about sockets; with --loss, --delay or --jitter bots and server are in one process and have none", f.name)
		}
	}
	return nil
}

// checkCompared finds changes of --compare after which B would be no run, or another sort of run than A.
//
// b is c as it was given, before defaults that depend on other flags.
func (c *loadConfig) checkCompared(e *env, b loadConfig, changes []string) error {
	if c.compare == "" {
		return nil
	}
	public, _ := newFlagSet("load", b.flags())
	if err := public.Parse(changes); err != nil {
		return usagef("--compare: %v", err)
	}
	if b.inProcess() != c.inProcess() {
		return usagef("--compare %s: one side would play over sockets, the other over link/mem; give --loss 0 to have both over link/mem", c.compare)
	}
	b.compare, b.rounds, b.expect, b.json = "", 0, "", ""
	_, err := b.check(e)
	if err == nil && b.url == "" {
		_, _, err = b.serverConfig(e) // what the server of B would refuse
	}
	if usage := (*usageError)(nil); errors.As(err, &usage) {
		return usagef("--compare: %v", err)
	}
	return err
}

// settings are what a report says about states and network.
func (c *loadConfig) settings() report.Settings {
	return report.Settings{State: c.state, NoRings: c.noRings, Deflate: c.deflate, LossPct: report.Number(100 * c.loss.share),
		DelayMs: report.Number(ms(c.delay)), JitterMs: report.Number(ms(c.jitter))}
}

// unordered reports whether states may be lost and overtaken in this process. What is told against the packet before needs a link
// that keeps the order, and whole states get one, too, so that a comparison with the others is about states alone.
func (c *loadConfig) unordered() bool { return c.state == "" || c.state == "acked" }

func (c *loadConfig) path() mem.Path {
	return mem.Path{Loss: c.loss.share, Delay: c.delay, Jitter: c.jitter}
}

// serverConfig is what serve makes of the flags of a run's server.
func (c *loadConfig) serverConfig(e *env) (s *serveConfig, worlds []drumline.Definition, err error) {
	s = newServeConfig()
	public, _ := newFlagSet("serve", s.flags())
	if err := public.Parse(c.serveArgs()[1:]); err != nil {
		return nil, nil, fmt.Errorf("the server of this process: %w", err)
	}
	worlds, err = s.definitions(e)
	return s, worlds, err
}

// newServer makes the server of a run in this process, as serve would make it from the same flags.
func (c *loadConfig) newServer(e *env) (*drumline.Server, error) {
	s, worlds, err := c.serverConfig(e)
	if err != nil {
		return nil, err
	}
	s.setProcs(e)
	setGC(e)
	return newServer(s.options(worlds, s.logger(e.stderr)))
}

// lossShare is a share of packets as a flag's value.
type lossShare struct {
	share float64
	given bool // else 0 stands for no network of this sort at all
}

// MarshalText implements encoding.TextMarshaler.
func (l lossShare) MarshalText() ([]byte, error) {
	if !l.given {
		return nil, nil
	}
	return append(strconv.AppendFloat(nil, 100*l.share, 'f', -1, 64), '%'), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *lossShare) UnmarshalText(b []byte) error {
	s := strings.TrimSpace(string(b))
	if s == "" {
		*l = lossShare{}
		return nil
	}
	v, err := readShare(s)
	if err != nil || !(v >= 0 && v <= maxLoss) {
		return fmt.Errorf("%q: want a share such as 5%%, 0.05 or 1/20, at most %d%%", s, int(100*maxLoss))
	}
	*l = lossShare{v, true}
	return nil
}

func readShare(s string) (float64, error) {
	if n, ok := strings.CutSuffix(s, "%"); ok {
		v, err := strconv.ParseFloat(strings.TrimSpace(n), 64)
		return v / 100, err
	}
	over, under, ok := strings.Cut(s, "/")
	if !ok {
		return strconv.ParseFloat(s, 64)
	}
	a, errA := strconv.ParseUint(over, 10, 32)
	b, errB := strconv.ParseUint(under, 10, 32)
	if b == 0 {
		return 0, strconv.ErrRange
	}
	return float64(a) / float64(b), errors.Join(errA, errB)
}
