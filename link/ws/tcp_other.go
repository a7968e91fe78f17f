//go:build !linux

package ws

import (
	"net"
	"syscall"
	"time"
)

func setSocket(syscall.RawConn, int, time.Duration) {}

func kernelQueued(net.Conn) (bytes int, ok bool) { return 0, false }
