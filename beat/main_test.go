package beat

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestMain fails if the tests leave goroutines behind.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	// A goroutine that has told the test that it is done may need a moment to end.
	for range 200 {
		if runtime.NumGoroutine() <= before {
			os.Exit(code)
		}
		time.Sleep(10 * time.Millisecond)
	}
	buf := make([]byte, 1<<20)
	fmt.Fprintf(os.Stderr, "%d goroutines left:\n%s\n", runtime.NumGoroutine()-before, buf[:runtime.Stack(buf, true)])
	os.Exit(1)
}

// jumpClock goes on only when somebody sleeps on it, or when told to.
type jumpClock struct{ now atomic.Int64 }

func (c *jumpClock) Now() time.Duration { return time.Duration(c.now.Load()) }
func (c *jumpClock) SleepUntil(t time.Duration) {
	if t > c.Now() {
		c.now.Store(int64(t))
	}
}
func (c *jumpClock) advance(d time.Duration) { c.now.Add(int64(d)) }

// manual is a group of one thread that the test drives by hand: no goroutine, no waiting, a fake hour in a second.
type manual struct {
	*Group
	clock *jumpClock
	t     *thread
}

func newManual(tb testing.TB) *manual {
	tb.Helper()
	clock := new(jumpClock)
	g, err := NewGroup(Options{Threads: 1, Clock: clock, Priority: PriorityNone})
	if err != nil {
		tb.Fatal(err)
	}
	t := newThread(g)
	close(t.exited)
	g.threads = append(g.threads, t)
	g.watching = true
	close(g.watchDone)
	return &manual{g, clock, t}
}

func (m *manual) add(tb testing.TB, c Config) *Beat {
	tb.Helper()
	b, err := m.Add(c)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// turnOnce does what thread.run does in one round.
func (m *manual) turnOnce() turn {
	what, until := m.t.turn()
	if what == sleep {
		m.clock.SleepUntil(until)
	}
	return what
}

// runTo runs everything that is due up to and including time end.
func (m *manual) runTo(end time.Duration) {
	for {
		if what, until := m.t.turn(); what == sleep {
			if until > end {
				m.clock.SleepUntil(end)
				return
			}
			m.clock.SleepUntil(until)
		} else if what != again {
			return
		}
	}
}
