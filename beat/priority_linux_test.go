package beat

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// policyAndNice is what the kernel says of the calling thread.
func policyAndNice(t *testing.T) (policy uint32, nice int32) {
	t.Helper()
	a, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return a.Policy, a.Nice
}

func TestRaiseThreadDoesWhatItSays(t *testing.T) {
	for _, want := range []string{PriorityNice, PriorityFIFO} {
		onThread(func() {
			got, err := RaiseThread(want, -7)
			policy, nice := policyAndNice(t)
			switch {
			case got == PriorityFIFO && policy == unix.SCHED_FIFO && err == nil:
			case got == PriorityNice && policy == unix.SCHED_NORMAL && nice == -7 && (err == nil) == (want == PriorityNice):
			case got == PriorityNone && policy == unix.SCHED_NORMAL && errors.Is(err, ErrRefused):
			default:
				t.Errorf("asked for %s: got %q, %v; the kernel says policy %d, nice %d", want, got, err, policy, nice)
			}
		})
	}
}

// TestRefusal gives up the thread's capabilities first, so it sees what an ordinary user sees.
func TestRefusal(t *testing.T) {
	onThread(func() {
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&hdr, &none[0]); err != nil {
			t.Fatal(err)
		}
		var nice, rt unix.Rlimit
		if err := errors.Join(unix.Getrlimit(unix.RLIMIT_NICE, &nice), unix.Getrlimit(unix.RLIMIT_RTPRIO, &rt)); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{PriorityNice, PriorityFIFO} {
			got, err := RaiseThread(kind, -10)
			// An account may be allowed more by its limits; then there is nothing to refuse.
			allowed := nice.Cur >= 30 || kind == PriorityFIFO && rt.Cur >= fifoPriority
			if !allowed && (got != PriorityNone || !errors.Is(err, ErrRefused)) {
				t.Errorf("%s: %q, %v", kind, got, err)
			}
		}
		if got, err := RaiseThread(PriorityNice, 10); got != PriorityNice || err != nil {
			t.Errorf("lowering the priority: %q, %v", got, err)
		}
		if err := SetTimerSlack(1); err != nil {
			t.Errorf("timer slack: %v", err)
		}
		if slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || slack != 1 {
			t.Errorf("the kernel says the slack is %d ns, %v", slack, err)
		}
	})
}

// raised counts the threads of this process that have a raised nice value or a real-time policy.
func raised(t *testing.T) (n int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("%d threads, %v", len(tasks), err)
	}
	for _, name := range tasks {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		// The name in parentheses may hold anything; fields are counted after it. Nice is the 19th, the policy the 41st.
		f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		nice, err1 := strconv.Atoi(f[16])
		policy, err2 := strconv.Atoi(f[38])
		if err1 != nil || err2 != nil {
			t.Fatalf("%s: %s", name, raw)
		}
		if nice < 0 || policy == unix.SCHED_FIFO {
			n++
		}
	}
	return n
}

// TestPriorityStaysOnTheBeatsThreads: no other thread of the process may inherit it.
func TestPriorityStaysOnTheBeatsThreads(t *testing.T) {
	for _, kind := range []string{PriorityNice, PriorityFIFO} {
		before := raised(t)
		g, err := NewGroup(Options{Threads: 2, Priority: kind})
		if err != nil {
			t.Fatal(err)
		}
		stepped := make(chan struct{}, 1000)
		for range 4 {
			if _, err := g.Add(Config{Hz: 100, Phase: Auto, Step: func(uint64, time.Duration) {
				// Threads that the runtime starts while a step runs are the ones in danger.
				onThread(func() {})
				notify(stepped)
			}}); err != nil {
				t.Fatal(err)
			}
		}
		for range 40 {
			<-stepped
		}
		want := 0
		for _, th := range g.Stats().Threads {
			switch {
			case th.Priority == kind && th.PriorityErr == "":
				want++
			case th.Priority != kind && th.PriorityErr != "":
				if th.Priority != PriorityNone {
					want++
				}
			default:
				t.Errorf("%+v", th)
			}
		}
		// Threads of earlier tests may end meanwhile, so there may be fewer of the old ones.
		if got := raised(t); got > before+want || got < want {
			t.Errorf("%s: %d raised threads, %d of them from before; the group has %d", kind, got, before, want)
		}
		g.Close()
	}
}
