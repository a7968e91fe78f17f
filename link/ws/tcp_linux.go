package ws

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setSocket sets the options that keep the kernel from hiding a slow or dead peer. All are best effort.
func setSocket(raw syscall.RawConn, lowat int, userTimeout time.Duration) {
	_ = raw.Control(func(fd uintptr) {
		if lowat > 0 {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, lowat)
		}
		if userTimeout > 0 {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(max(userTimeout.Milliseconds(), 1)))
		}
	})
}

// kernelQueued is what the socket holds: not yet sent, or sent and not yet acknowledged.
func kernelQueued(nc net.Conn) (bytes int, ok bool) {
	c, isTCP := bare(nc).(*net.TCPConn)
	if !isTCP {
		return 0, false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		bytes, ok = n, err == nil
	})
	return bytes, ok && err == nil
}
