//go:build !unix

package ws

import (
	"net"
	"sync"
	"syscall"
)

// rawConn returns nil: here every frame goes through the writer's goroutine.
func rawConn(net.Conn) syscall.RawConn { return nil }

type scratch struct{ buf []byte }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// write is not reached without a raw connection.
func (s *scratch) write(syscall.RawConn) (int, error) { return 0, nil }
