//go:build !windows

package app

import "syscall"

const errAddrInUse = syscall.EADDRINUSE
