package proc

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHostTicksOf(t *testing.T) {
	for in, want := range map[string]hostTicks{
		"cpu  10 20 30 400 5 6 7 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n": {steal: 8, idle: 405, total: 486},
		"cpu  10 20 30 400 5 6 7 8 100 100":                         {steal: 8, idle: 405, total: 486},
		"cpu 1 2 3":                                                 {},
		"cpu 1 2 3 4 5 6 7 x":                                       {},
		"":                                                          {},
	} {
		if got := hostTicksOf(in); got != want {
			t.Errorf("%q: %+v, want %+v", in, got, want)
		}
	}
}

func TestCPUModelOf(t *testing.T) {
	for in, want := range map[string]string{
		"processor\t: 0\nmodel\t\t: 1\nmodel name\t: Some CPU @ 3 GHz\n": "Some CPU @ 3 GHz",
		"processor\t: 0\nCPU part\t: 0xd0c\n":                            "0xd0c",
		"":                                                               Unknown,
	} {
		if got := cpuModelOf(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestGrouping(t *testing.T) {
	const v1 = "4:memory:/m\n3:cpu,cpuacct:/a\n0::/u\n"
	for _, c := range []struct {
		name         string
		on           bool
		auto, cgroup [2]string
		separate     bool
		text         string
	}{
		{"the same", true, [2]string{"/autogroup-3 nice 0\n", "/autogroup-3 nice 0\n"}, [2]string{"0::/\n", "0::/\n"}, false, "the same (autogroup 3)"},
		{"sessions", true, [2]string{"/autogroup-3 nice 0\n", "/autogroup-4 nice 0\n"}, [2]string{"0::/\n", "0::/\n"}, true, "separate (autogroups 3 and 4)"},
		{"sessions, off", false, [2]string{"/autogroup-3 nice 0\n", "/autogroup-4 nice 0\n"}, [2]string{"0::/\n", "0::/\n"}, false, "the same (control group /, no autogroups)"},
		{"containers", true, [2]string{}, [2]string{"0::/a\n", "0::/b\n"}, true, "separate (control groups /a and /b)"},
		{"version 1", false, [2]string{}, [2]string{v1, v1}, false, "the same (control group /a, no autogroups)"},
		{"nothing known", true, [2]string{}, [2]string{}, false, Unknown},
	} {
		g := grouping(c.on, c.auto, c.cgroup)
		if g.Separate != c.separate || g.String() != c.text {
			t.Errorf("%s: %v, want %s", c.name, g, c.text)
		}
	}
	if g := GroupedWith(-1); g.Known {
		t.Errorf("a process that does not exist: %v", g)
	}
}

func TestMemoryOfOthers(t *testing.T) {
	if RSSOf(os.Getpid()) == 0 {
		t.Error("no memory of our own")
	}
	if n := RSSOf(-1); n != 0 {
		t.Errorf("%d bytes of no process", n)
	}
}

// A child of the test binary, so that the tests' own nice value stays as it is.
func TestSetNice(t *testing.T) {
	if os.Getenv("PROC_TEST_NICE") == "1" {
		if err := SetNice(7); err != nil {
			t.Fatal(err)
		}
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			tid, _ := strconv.Atoi(task.Name())
			// The kernel's value is 20 minus nice.
			if got, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil && 20-got != 7 {
				t.Errorf("thread %d: nice %d", tid, 20-got)
			}
		}
		err = SetNice(-1000) // clamped to -20: a privilege
		if err != nil && !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.EPERM) {
			t.Fatal(err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSetNice$", "-test.v")
	cmd.Env = append(os.Environ(), "PROC_TEST_NICE=1")
	DieWithParent(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS") {
		t.Fatalf("%v\n%s", err, out)
	}
}
