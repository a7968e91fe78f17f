//go:build unix

package ws

import (
	"net"
	"sync"
	"syscall"
)

// rawConn gives access to the socket for writes that do not wait, or nil. Only the net package's own types will do: a wrapper
// may count or change what passes through its Write.
func rawConn(nc net.Conn) syscall.RawConn {
	switch c := nc.(type) {
	case *net.TCPConn:
		raw, _ := c.SyscallConn()
		return raw
	case *net.UnixConn:
		raw, _ := c.SyscallConn()
		return raw
	}
	return nil
}

// scratch is the memory of one write that does not wait. Its function is made once, since a closure per write would be garbage.
type scratch struct {
	buf []byte
	n   int
	err error
	fn  func(fd uintptr) bool
}

var scratches = sync.Pool{New: func() any {
	s := &scratch{buf: make([]byte, 0, 2<<10)}
	s.fn = s.try
	return s
}}

// write offers buf to the kernel once and returns how much it took.
func (s *scratch) write(raw syscall.RawConn) (int, error) {
	s.n, s.err = 0, nil
	if err := raw.Write(s.fn); err != nil {
		return 0, err
	}
	return s.n, s.err
}

// try always returns true: with false the net package would wait until the socket takes bytes.
func (s *scratch) try(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), s.buf)
		switch err {
		case nil:
			s.n = n
		case syscall.EINTR:
			continue
		case syscall.EAGAIN, syscall.ENOBUFS:
		default:
			s.err = err
		}
		return true
	}
}
