package drumline

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// Admission, in this order, each refusal with its own reason: draining and silent links (Accept); protocol version (the
// hello); joins from one address; the world and room names; the token, if there is one; the server's and the world's caps; the
// room's seats; at last the world's own Join.

// admit finds the room for a hello and posts the join. It runs on the link's reader goroutine.
func (s *Server) admit(c *Conn, h Hello) *Refusal {
	if s.draining.Load() {
		return &Refusal{Reason: ReasonDraining}
	}
	if !s.opt.LiftCaps && !s.joins.take(c.peer.Addr.Addr(), time.Now(), float64(s.opt.JoinsPerSec)) {
		return &Refusal{Reason: ReasonTooFast, RetryAfter: 2 * time.Second}
	}
	def, ok := s.byName[h.World]
	if !ok {
		return &Refusal{Reason: ReasonNoWorld}
	}
	if h.Token != "" {
		return s.resume(c, h)
	}
	if h.Room != "" && !namePattern.MatchString(h.Room) {
		return &Refusal{Reason: ReasonNoRoom, Text: "A room's name is 1 to 32 of a-z, 0-9 and -."}
	}
	r, why := s.hub.reserve(def, h.Room)
	if why != nil {
		return why
	}
	c.room.Store(r)
	if !r.post(func() { r.join(c, h) }) { // it ended just now
		s.hub.unreserve(r)
		return &Refusal{Reason: ReasonRoomClosed, RetryAfter: time.Second}
	}
	return nil
}

// resume gives a hello's link to the seat that its token belongs to.
func (s *Server) resume(c *Conn, h Hello) *Refusal {
	seat, expired := s.hub.byToken(h.Token)
	switch {
	case seat == nil && expired:
		return &Refusal{Reason: ReasonResumeExpired}
	case seat == nil || seat.room.def.spec.Name != h.World:
		return &Refusal{Reason: ReasonResumeUnknown}
	}
	c.room.Store(seat.room)
	if !seat.room.post(func() { seat.room.resume(seat, c, h) }) {
		return &Refusal{Reason: ReasonResumeExpired}
	}
	return nil
}

// bucket is a token bucket. It is not safe for concurrent use.
type bucket struct {
	tokens float64
	last   time.Time
}

func (b *bucket) fill(burst float64) { b.tokens = burst }

// take takes one token if there is one.
func (b *bucket) take(now time.Time, perSec, burst float64) bool {
	if !b.last.IsZero() {
		b.tokens = min(burst, b.tokens+now.Sub(b.last).Seconds()*perSec)
	}
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// joinLimiter holds buckets per address: one for the address, and for IPv6 one for its /48 too, which one person may have whole.
type joinLimiter struct {
	mu     sync.Mutex
	by     map[netip.Prefix]*bucket
	pruned time.Time
}

const (
	joinBurst      = 5  // times the rate
	joinSiteRate   = 10 // times the rate, for a /48
	joinAddresses  = 10_000
	joinForgetting = time.Minute
)

func (l *joinLimiter) take(a netip.Addr, now time.Time, perSec float64) bool {
	a = a.Unmap()
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.Is6() && !l.bucket(addressPrefix(a, 48), now, joinSiteRate*perSec).take(now, joinSiteRate*perSec, joinBurst*joinSiteRate*perSec) {
		return false // and no bucket for its /64: a /48 cannot fill the table
	}
	bits := 32
	if a.Is6() {
		bits = 64
	}
	return l.bucket(addressPrefix(a, bits), now, perSec).take(now, perSec, joinBurst*perSec)
}

// bucket finds or makes the bucket of key. mu is held.
func (l *joinLimiter) bucket(key netip.Prefix, now time.Time, perSec float64) *bucket {
	if b := l.by[key]; b != nil {
		return b
	}
	if len(l.by) >= joinAddresses && now.Sub(l.pruned) > time.Second {
		l.prune(now)
	}
	if len(l.by) >= joinAddresses { // an attack from everywhere at once: forget anybody, so that nobody is shut out
		for k := range l.by {
			delete(l.by, k)
			break
		}
	}
	if l.by == nil {
		l.by = make(map[netip.Prefix]*bucket)
	}
	b := &bucket{}
	b.fill(joinBurst * perSec)
	l.by[key] = b
	return b
}

// prune forgets who has not come for a while. mu is held.
func (l *joinLimiter) prune(now time.Time) {
	l.pruned = now
	for k, b := range l.by {
		if now.Sub(b.last) > joinForgetting {
			delete(l.by, k)
		}
	}
}

// addressPrefix is a's network; the zero Prefix, shared by all, for a transport without addresses.
func addressPrefix(a netip.Addr, bits int) netip.Prefix {
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// silentLinks are the links that have not said hello yet, the longest silent first. Whoever means it says hello within a round
// trip, so when there are too many it is the longest silent that has to go, and a crowd of them shuts nobody out.
type silentLinks struct {
	mu    sync.Mutex
	order list.List // of *Conn
	at    map[*Conn]*list.Element
}

// add takes c in and returns the link that has to go, if there are more than most.
func (l *silentLinks) add(c *Conn, most int) *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = make(map[*Conn]*list.Element)
	}
	l.at[c] = l.order.PushBack(c)
	if len(l.at) <= most {
		return nil
	}
	oldest := l.order.Front()
	l.order.Remove(oldest)
	delete(l.at, oldest.Value.(*Conn))
	return oldest.Value.(*Conn)
}

func (l *silentLinks) remove(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.at[c]; e != nil {
		l.order.Remove(e)
		delete(l.at, c)
	}
}
