//go:build !linux

package proc

import "os/exec"

// RSS is this process's resident memory in bytes; 0: not known.
func RSS() uint64 { return 0 }

// RSSOf is the resident memory of process pid in bytes; 0: not known.
func RSSOf(pid int) uint64 { return 0 }

// PSS is this process's proportional share of memory in bytes; 0: not known.
func PSS() uint64 { return 0 }

func cpuModel() string         { return Unknown }
func kernel() string           { return Unknown }
func memory() uint64           { return 0 }
func readHostTicks() hostTicks { return hostTicks{} }

// GroupedWith says whether the scheduler puts process pid into another group than this one. Not known on this platform.
func GroupedWith(pid int) Grouping { return Grouping{Why: Unknown} }

// DieWithParent makes cmd's process die with its parent. Not possible on this platform: it does nothing.
func DieWithParent(cmd *exec.Cmd) {}
