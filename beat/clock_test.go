package beat

import (
	"testing"
	"testing/synctest"
	"time"
)

func testClock(t *testing.T, c Clock) {
	t.Helper()
	last := c.Now()
	if last < 0 {
		t.Errorf("the clock starts at %v", last)
	}
	for range 1000 {
		now := c.Now()
		if now < last {
			t.Fatalf("%v follows %v", now, last)
		}
		last = now
	}
	for _, d := range []time.Duration{-time.Hour, 0, 1, time.Microsecond, 300 * time.Microsecond, 3 * time.Millisecond} {
		until := c.Now() + d
		c.SleepUntil(until)
		if now := c.Now(); now < until {
			t.Errorf("woke %v early from a sleep of %v", until-now, d)
		}
	}
}

func TestSystemClock(t *testing.T)   { testClock(t, SystemClock()) }
func TestPortableClock(t *testing.T) { testClock(t, PortableClock()) }

func TestPortableClockInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := PortableClock()
		c.SleepUntil(time.Hour)
		if now := c.Now(); now != time.Hour {
			t.Errorf("%v after an hour", now)
		}
		c.SleepUntil(time.Minute)
		if now := c.Now(); now != time.Hour {
			t.Errorf("a sleep into the past took %v", now-time.Hour)
		}
	})
}

// TestClocksAgree: the system clock runs at the rate of package time, whatever it sleeps on.
func TestClocksAgree(t *testing.T) {
	s, p := SystemClock(), PortableClock()
	s0, p0 := s.Now(), p.Now()
	s.SleepUntil(s0 + 20*time.Millisecond)
	sd := s.Now() - s0
	if pd := p.Now() - p0; pd < sd-time.Millisecond {
		t.Errorf("%v on the system clock, %v on the portable one", sd, pd)
	}
}
