//go:build unix

package bots

import "golang.org/x/sys/unix"

func setRcvbuf(fd uintptr, n int) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, n)
}
