package ws

import (
	"context"
	"net"
	"syscall"
	"time"
)

// Listen listens on a TCP address with this package's default socket options set before the first byte of a connection, also
// under TLS. The handler sets its own on each connection that it upgrades, so Listen is no condition for it.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	lc := net.ListenConfig{
		KeepAliveConfig: keepAlives,
		Control: func(_, _ string, raw syscall.RawConn) error {
			setSocket(raw, defaultNotSentLowat, defaultUserTimeout)
			return nil
		},
	}
	return lc.Listen(ctx, "tcp", addr)
}

var keepAlives = net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive, Count: 3}

// tune sets the socket options of an accepted connection, as far as there is a TCP socket under it.
func tune(nc net.Conn, lowat int, userTimeout time.Duration) {
	c, ok := bare(nc).(*net.TCPConn)
	if !ok {
		return
	}
	_ = c.SetNoDelay(true)
	_ = c.SetKeepAliveConfig(keepAlives)
	if raw, err := c.SyscallConn(); err == nil {
		setSocket(raw, lowat, userTimeout)
	}
}
