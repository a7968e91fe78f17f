package bots

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// haveLoop: this platform has an event loop.
const haveLoop = true

const readBuffer = 64 << 10

// poller is a shard's event loop. A bot's descriptor is registered with the bot's index for as long as the bot has a
// connection; one that must not read is registered for errors only.
type poller struct {
	fd     int
	events []unix.EpollEvent
	buf    []byte // shared by all bots: one that is up to date holds no bytes of its own
}

func (s *shard) open() error {
	if s.portable {
		return nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("bots: epoll: %w", err)
	}
	s.poll = poller{fd: fd, events: make([]unix.EpollEvent, 512), buf: make([]byte, readBuffer)}
	return nil
}

// closeLoop is called by the shard's goroutine at its end. A dialer may come later; adopt finds the loop closed.
func (s *shard) closeLoop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.poll.fd > 0 {
		unix.Close(s.poll.fd)
		s.poll.fd = 0
	}
}

// lockThread keeps the loop on one thread, so that its naps are the thread's and cost no hand-over.
func lockThread(portable bool) (unlock func()) {
	if portable {
		return func() {}
	}
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// wait sleeps for a nap and reads what has come.
func (s *shard) wait() {
	if s.portable {
		time.Sleep(nap)
		return
	}
	ts := unix.NsecToTimespec(int64(nap))
	unix.Nanosleep(&ts, nil) // an interrupted nap is a short one
	for {
		n, err := unix.EpollWait(s.poll.fd, s.poll.events, 0)
		if err != nil || n == 0 {
			return
		}
		s.mu.Lock()
		for _, e := range s.poll.events[:n] {
			b := s.bots[e.Fd]
			sock, ok := b.link.(*socket)
			if !ok {
				continue
			}
			if e.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
				s.readLast(b)
				continue
			}
			if sock.reads {
				s.readSome(b, readBuffer)
			}
		}
		s.mu.Unlock()
		if n < len(s.poll.events) {
			return
		}
	}
}

// readSome reads at most limit bytes for b, once.
func (s *shard) readSome(b *bot, limit int) {
	if limit <= 0 {
		return
	}
	sock, c, ok := raw[*rawConn](b)
	if !ok {
		return
	}
	n, err := unix.Read(c.fd, s.poll.buf[:min(limit, readBuffer)])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
	case err != nil:
		b.closedBy(err)
	case n == 0:
		b.end(Reset)
	default:
		sock.receive(s.poll.buf[:n])
	}
}

// readLast reads what a broken connection still holds, so that the server's last word is not lost, and ends it.
func (s *shard) readLast(b *bot) {
	for range 64 {
		before := b.n.wire
		s.readSome(b, readBuffer)
		if b.state == ended || b.n.wire == before {
			break
		}
	}
	b.end(Reset)
}

// watch registers b for reading, or not.
func (s *shard) watch(b *bot) {
	sock, c, ok := raw[*rawConn](b)
	if !ok {
		return
	}
	reads := !b.paused && (s.f.o.RateBytes == 0 || b.state != live)
	if reads == sock.reads {
		return
	}
	sock.reads = reads
	e := unix.EpollEvent{Fd: int32(b.index)}
	if reads {
		e.Events = unix.EPOLLIN
	}
	if err := unix.EpollCtl(s.poll.fd, unix.EPOLL_CTL_MOD, c.fd, &e); err != nil {
		b.closedBy(err)
	}
}

// forget takes a socket out of the loop; its connection is about to be closed, which does it.
func (s *shard) forget(sock *socket) { sock.reads = false }

// adopt takes over a new connection. The lock is held.
func (s *shard) adopt(b *bot, c net.Conn, deflated bool) error {
	if s.portable {
		s.adoptNet(b, c, deflated)
		return nil
	}
	fd, err := takeFD(c)
	if err != nil {
		return err
	}
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(b.index)}
	if err := unix.EpollCtl(s.poll.fd, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		unix.Close(fd)
		return fmt.Errorf("bots: epoll: %w", err)
	}
	sock := newSocket(b, &rawConn{fd}, deflated)
	sock.reads = true
	b.begin(sock, s.f.now())
	return nil
}

// takeFD takes the descriptor out of c, which is closed. It is non-blocking, as c's was.
func takeFD(c net.Conn) (int, error) {
	defer c.Close()
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return 0, fmt.Errorf("bots: a %T has no descriptor", c)
	}
	raw, err := tc.SyscallConn()
	if err != nil {
		return 0, err
	}
	fd := -1
	var dup error
	if err := raw.Control(func(p uintptr) { fd, dup = unix.FcntlInt(p, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return 0, err
	}
	return fd, dup
}

type rawConn struct{ fd int }

func (c *rawConn) write(p []byte) (int, error) {
	n, err := unix.Write(c.fd, p)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	return max(n, 0), err
}

func (c *rawConn) close() { unix.Close(c.fd) }
