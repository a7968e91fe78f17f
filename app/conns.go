package app

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/drumline-engine/drumline/ops"
)

// maxWaitingConns is how many HTTP connections may be open without a request being answered. A browser has one or two of
// them, kept alive, so this is room for some thousand lobby visitors; each costs about 10 KiB.
const maxWaitingConns = 2048

// connGuard bounds the HTTP connections that wait: those that have said nothing or half a request, and those kept alive.
// When there are too many, it closes the one that has waited longest: a caller who means it has sent its request within a
// round trip, so it is the silent that go, and a crowd of them shuts nobody out. Timeouts end the others.
//
// Connections that became WebSockets are not its business any more.
type connGuard struct {
	max int

	mu      sync.Mutex
	conns   map[net.Conn]*guarded
	waiting *list.List // of *guarded, the longest waiting in front
	evicted uint64
}

type guarded struct {
	conn net.Conn
	// place is where the connection stands in waiting; nil while a request is being answered.
	place *list.Element
}

func newConnGuard(max int) *connGuard {
	return &connGuard{max: max, conns: map[net.Conn]*guarded{}, waiting: list.New()}
}

type guardedKey struct{}

// attach makes srv and its handler report to the guard. Call it before srv serves.
func (g *connGuard) attach(srv *http.Server) {
	next := srv.Handler
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(guardedKey{}).(*guarded); ok {
			g.busy(c)
		}
		next.ServeHTTP(w, r)
	})
	// net/http calls ConnContext for each new connection, before anything is read.
	srv.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, guardedKey{}, g.open(conn))
	}
	srv.ConnState = func(conn net.Conn, state http.ConnState) {
		switch state {
		case http.StateIdle:
			g.idle(conn)
		case http.StateClosed, http.StateHijacked:
			g.gone(conn)
		}
	}
}

func (g *connGuard) open(conn net.Conn) *guarded {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &guarded{conn: conn}
	g.conns[conn] = c
	g.wait(c)
	return c
}

func (g *connGuard) busy(c *guarded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(c)
}

func (g *connGuard) idle(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.conns[conn]; c != nil && c.place == nil {
		g.wait(c)
	}
}

func (g *connGuard) gone(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.conns[conn]; c != nil {
		g.remove(c)
		delete(g.conns, conn)
	}
}

// wait puts c at the end of the queue, and evicts its head if it is too long. g.mu is held.
func (g *connGuard) wait(c *guarded) {
	c.place = g.waiting.PushBack(c)
	if g.waiting.Len() <= g.max {
		return
	}
	oldest := g.waiting.Front().Value.(*guarded)
	g.remove(oldest)
	g.evicted++
	// Closing a TCP connection does not block: nothing was written to it that could linger. net/http notices and reports
	// StateClosed from its own goroutine.
	oldest.conn.Close()
}

func (g *connGuard) remove(c *guarded) {
	if c.place != nil {
		g.waiting.Remove(c.place)
		c.place = nil
	}
}

func (g *connGuard) stats() ops.Conns {
	g.mu.Lock()
	defer g.mu.Unlock()
	return ops.Conns{Open: len(g.conns), Waiting: g.waiting.Len(), Evicted: g.evicted}
}
