package drumline

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"sync"
	"time"
)

// hub knows the open rooms and whose token is whose. Its lock is never held while a room or link is called; Server.mu may be
// taken inside it.
type hub struct {
	srv *Server

	mu      sync.Mutex // guards what follows
	rooms   map[roomKey]*Room
	perKind map[string]int // rooms by world
	players int            // reserved seats in all rooms
	opened  uint64
	tokens  map[string]*Seat
	expired map[string]time.Time // tokens of seats that were given up, for a while, to tell expired from unknown
	closing bool
}

type roomKey struct{ world, room string }

const (
	expiredKept = 10 * time.Minute
	expiredMost = 10_000
)

func newHub(s *Server) *hub {
	return &hub{srv: s, rooms: map[roomKey]*Room{}, perKind: map[string]int{}, tokens: map[string]*Seat{}, expired: map[string]time.Time{}}
}

// reserve finds a room with a free seat, or opens one, and takes the seat's place in the counts; see unreserve.
func (h *hub) reserve(def Definition, name string) (*Room, *Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := &h.srv.opt
	if h.closing {
		return nil, &Refusal{Reason: ReasonDraining}
	}
	if h.players >= o.MaxPlayers && !o.LiftCaps {
		return nil, &Refusal{Reason: ReasonServerFull, RetryAfter: 5 * time.Second}
	}
	world := def.spec.Name
	r := h.rooms[roomKey{world, name}]
	if name == "" {
		r = h.fullest(world)
	}
	if r == nil {
		if h.perKind[world] >= def.spec.Rooms && !o.LiftCaps {
			return nil, &Refusal{Reason: ReasonServerFull, Text: "All rooms of this world are taken.", RetryAfter: 5 * time.Second}
		}
		if name == "" {
			name = h.freeName(world)
		}
		r = h.open(def, name, nil)
	}
	if r.reserved >= def.spec.Seats {
		return nil, &Refusal{Reason: ReasonRoomFull, RetryAfter: 3 * time.Second}
	}
	r.reserved++
	h.players++
	return r, nil
}

// restore opens a room with a snapshot's world.
func (h *hub) restore(def Definition, name string, state []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closing:
		return ErrClosed
	case h.rooms[roomKey{def.spec.Name, name}] != nil:
		return fmt.Errorf("drumline: room %s/%s is open already", def.spec.Name, name)
	case h.perKind[def.spec.Name] >= def.spec.Rooms && !h.srv.opt.LiftCaps:
		return fmt.Errorf("drumline: world %s has %d rooms already", def.spec.Name, def.spec.Rooms)
	}
	h.open(def, name, state)
	return nil
}

// fullest is the open room of a world with the most players and a free seat; nil if there is none.
func (h *hub) fullest(world string) (best *Room) {
	for k, r := range h.rooms {
		if k.world != world || r.reserved >= r.def.spec.Seats {
			continue
		}
		if best == nil || r.reserved > best.reserved || r.reserved == best.reserved && r.name < best.name {
			best = r
		}
	}
	return best
}

func (h *hub) freeName(world string) string {
	for n := 1; ; n++ {
		if name := strconv.Itoa(n); h.rooms[roomKey{world, name}] == nil {
			return name
		}
	}
}

// open adds a room and starts to open it. mu is held.
func (h *hub) open(def Definition, name string, state []byte) *Room {
	h.opened++
	seed := h.srv.opt.Seed
	if seed != 0 {
		seed = seed*0x9e3779b97f4a7c15 + h.opened
	} else {
		seed = new(maphash.Hash).Sum64() | 1
	}
	r := newRoom(h.srv, def, name, seed, state)
	h.rooms[roomKey{def.spec.Name, name}] = r
	h.perKind[def.spec.Name]++
	h.srv.live(r)
	go r.start() // it ends with the room; Close waits for Room.done
	return r
}

func (h *hub) unreserve(r *Room) {
	h.mu.Lock()
	if r.reserved > 0 { // else the room was removed, with all of them
		r.reserved--
		h.players--
	}
	h.mu.Unlock()
}

// closeIfEmpty takes a room without seats out of the hub; false: somebody is on the way in.
func (h *hub) closeIfEmpty(r *Room) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.reserved > 0 {
		return false
	}
	h.drop(r)
	return true
}

// drop takes a room out; the seats still counted in it are given back. mu is held.
func (h *hub) drop(r *Room) {
	k := roomKey{r.def.spec.Name, r.name}
	if h.rooms[k] == r {
		delete(h.rooms, k)
		h.perKind[k.world]--
	}
}

func (h *hub) remove(r *Room) {
	h.mu.Lock()
	h.drop(r)
	h.players -= r.reserved
	r.reserved = 0
	h.mu.Unlock()
}

func (h *hub) find(world, room string) *Room {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rooms[roomKey{world, room}]
}

func (h *hub) byToken(token string) (s *Seat, expired bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.tokens[token]; s != nil {
		return s, false
	}
	_, expired = h.expired[token]
	return nil, expired
}

func (h *hub) addToken(s *Seat) {
	h.mu.Lock()
	h.tokens[s.token] = s
	h.mu.Unlock()
}

func (h *hub) removeToken(s *Seat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tokens[s.token] != s {
		return
	}
	delete(h.tokens, s.token)
	if len(h.expired) < expiredMost {
		h.expired[s.token] = time.Now()
	}
}

// dropTokens forgets the tokens of all seats of a room.
func (h *hub) dropTokens(r *Room) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t, s := range h.tokens {
		if s.room == r {
			delete(h.tokens, t)
		}
	}
}

// forget drops what has been kept long enough.
func (h *hub) forget(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t, at := range h.expired {
		if now.Sub(at) > expiredKept {
			delete(h.expired, t)
		}
	}
}

// all returns the open rooms, by world and name.
func (h *hub) all() []*Room {
	h.mu.Lock()
	out := make([]*Room, 0, len(h.rooms))
	for _, r := range h.rooms {
		out = append(out, r)
	}
	h.mu.Unlock()
	slices.SortFunc(out, byName)
	return out
}

// byName orders rooms by world and name, numbers as people count.
func byName(a, b *Room) int {
	return cmp.Or(cmp.Compare(a.def.spec.Name, b.def.spec.Name), cmp.Compare(len(a.name), len(b.name)), cmp.Compare(a.name, b.name))
}
