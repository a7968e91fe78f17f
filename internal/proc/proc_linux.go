package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// RSS is this process's resident memory in bytes; 0: not known.
func RSS() uint64 { return RSSOf(os.Getpid()) }

// RSSOf is the resident memory of process pid in bytes; 0: not known.
func RSSOf(pid int) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(f[1], 10, 64)
	return pages * uint64(os.Getpagesize())
}

// PSS is this process's proportional share of memory in bytes; 0: not known.
func PSS() uint64 {
	b, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return 0
	}
	return kib(string(b), "Pss:")
}

// kib finds the line that begins with key and holds a number of KiB, as /proc writes them.
func kib(text, key string) uint64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			n, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return Unknown
	}
	return cpuModelOf(string(b))
}

func cpuModelOf(info string) string {
	// arm64 kernels name no model, only numbers.
	for _, key := range []string{"model name", "Model", "CPU part"} {
		for line := range strings.Lines(info) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
				return strings.TrimSpace(value)
			}
		}
	}
	return Unknown
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return Unknown
	}
	return unix.ByteSliceToString(u.Release[:])
}

func memory() uint64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return kib(string(b), "MemTotal:")
}

func readHostTicks() hostTicks {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return hostTicks{}
	}
	return hostTicksOf(string(b))
}

// hostTicksOf reads the first line of /proc/stat: cpu user nice system idle iowait irq softirq steal guest …; guest time is
// part of user already.
func hostTicksOf(stat string) (t hostTicks) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return hostTicks{}
	}
	for i, s := range f[1:9] {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return hostTicks{}
		}
		t.total += n
		switch i {
		case 3, 4:
			t.idle += n
		case 7:
			t.steal = n
		}
	}
	return t
}

// GroupedWith says whether the scheduler puts process pid into another group than this one: another autogroup (one per session, where
// the kernel has them switched on) or another control group.
func GroupedWith(pid int) Grouping {
	read := func(pid, name string) string {
		b, err := os.ReadFile("/proc/" + pid + "/" + name)
		if err != nil {
			return ""
		}
		return string(b)
	}
	other := strconv.Itoa(pid)
	enabled, _ := os.ReadFile("/proc/sys/kernel/sched_autogroup_enabled")
	return grouping(strings.TrimSpace(string(enabled)) == "1",
		[2]string{read("self", "autogroup"), read(other, "autogroup")},
		[2]string{read("self", "cgroup"), read(other, "cgroup")})
}

func grouping(autogroups bool, auto, cgroup [2]string) Grouping {
	a, b := cpuGroup(cgroup[0]), cpuGroup(cgroup[1])
	if a == "" || b == "" {
		return Grouping{Why: Unknown}
	}
	if a != b {
		return Grouping{Known: true, Separate: true, Why: "control groups " + a + " and " + b}
	}
	if !autogroups || auto[0] == "" || auto[1] == "" {
		return Grouping{Known: true, Why: "control group " + a + ", no autogroups"}
	}
	if a, b := autogroup(auto[0]), autogroup(auto[1]); a != b {
		return Grouping{Known: true, Separate: true, Why: "autogroups " + a + " and " + b}
	}
	return Grouping{Known: true, Why: "autogroup " + autogroup(auto[0])}
}

// autogroup shortens "/autogroup-12 nice 0" to "12".
func autogroup(s string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	return strings.TrimPrefix(name, "/autogroup-")
}

// cpuGroup finds the control group that shares out the processor: the line of the cpu controller (version 1), else the one of
// the unified hierarchy.
func cpuGroup(s string) string {
	unified := ""
	for line := range strings.Lines(s) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		if f[0] == "0" && f[1] == "" {
			unified = f[2]
		}
		for c := range strings.SplitSeq(f[1], ",") {
			if c == "cpu" {
				return f[2]
			}
		}
	}
	return unified
}

// SetNice gives all threads of this process the nice value n. Threads that start later inherit it, and so do child
// processes: start those first. Lowering the value needs a privilege; raising it needs none.
func SetNice(n int) error {
	done := map[int]bool{}
	// A thread may start while we walk; one that did was cloned from a thread that we may not have reached yet, so walk
	// until nothing new appears.
	for range 8 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("proc: threads: %w", err)
		}
		found := false
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil || done[tid] {
				continue
			}
			done[tid], found = true, true
			if err := unix.Setpriority(unix.PRIO_PROCESS, tid, n); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("proc: nice %d: %w", n, err)
			}
		}
		if !found {
			break
		}
	}
	return nil
}

// DieWithParent makes cmd's process die when the thread that starts it dies. The caller must call cmd.Start on a locked
// goroutine that lives until the process has ended, else it may die too soon.
func DieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
