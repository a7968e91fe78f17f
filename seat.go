package drumline

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/drumline-engine/drumline/feed"
)

// Seat is one player's place in a room. It outlives its link: a dropped player comes back to the same seat within the grace.
// Methods are for the room's goroutine.
type Seat struct {
	// Data is the world's own.
	Data any

	// Set once, before the seat is shared.
	room  *Room
	id    SeatID
	name  string
	token string
	inbox *inbox
	out   *outbox
	since time.Duration // when it was taken, on the server's clock

	// Owned by the room's goroutine.
	conn       *Conn // nil: waiting for the player to come back
	graceUntil time.Duration
	gone       bool // not in the room: refused by the world, or given up

	commands atomic.Int32                           // in the room's mailbox
	flush    atomic.Bool                            // FlushNow was called and not yet served
	quality  atomic.Pointer[seatQuality]            // what its page reported last; nil: nothing
	dropped  [numDrops - firstDropped]atomic.Uint64 // parts of the client's messages that were not used
}

// ID is the seat's index in its room, 0 … Seats-1.
func (s *Seat) ID() SeatID { return s.id }

// Name is the player's name: cleaned (no control or bidi characters), at most 24 characters, never empty.
func (s *Seat) Name() string { return s.name }

// Connected reports whether the seat has a link.
func (s *Seat) Connected() bool { return s.conn != nil }

// Kick closes the seat: its player is told why and the world's Leave follows. Nil: ReasonWorld.
func (s *Seat) Kick(why *Refusal) {
	if why == nil {
		why = Refuse("")
	}
	s.room.post(func() { s.room.removeSeat(s, why) })
}

// A seat's life, on the room's goroutine: join, or resume, then detach when the link ends, and removeSeat at last.

func (r *Room) seatShard(s *Seat) *shard { return r.shards[int(s.id)%len(r.shards)] }

// join takes a new player in. The hub has counted the seat already.
func (r *Room) join(c *Conn, h Hello) {
	if c.phase.Load() != linkPending {
		r.srv.hub.unreserve(r)
		return
	}
	if r.ending != nil {
		r.srv.hub.unreserve(r)
		c.refuse(r.ending)
		return
	}
	id := slices.Index(r.seats, nil) // there is one: the hub counts
	s := &Seat{room: r, id: SeatID(id), name: cleanName(h.Name), token: newToken(), conn: c, since: r.srv.clock.Now(), gone: true}
	if s.name == "" {
		s.name = "Player " + strconv.Itoa(id+1)
	}
	s.inbox = newInbox(r.def.kind.inputs(), r.holdSteps(), uint32(r.tick))
	s.inbox.rewind = int(r.def.spec.Rewind * time.Duration(momentParts*r.hz) / time.Second)
	if err := r.game.Join(s); r.dead.Load() {
		return // it took too long
	} else if err != nil {
		r.srv.hub.unreserve(r)
		c.refuse(worldRefusal(r, err))
		return
	}
	s.gone = false
	r.seats[id] = s
	at, _ := slices.BinarySearchFunc(r.taken, s.id, func(s *Seat, id SeatID) int { return int(s.id) - int(id) })
	r.taken = slices.Insert(r.taken, at, s)
	r.players.Store(int32(len(r.taken)))
	s.out = &outbox{seat: s}
	s.out.delivery = r.srv.delivery(c.link)
	for i, f := range r.feeds {
		s.out.reliable[i] = r.infos[i].Lane == feed.Reliable
		s.out.weights[i] = max(r.infos[i].Weight, 1)
		s.out.streams = append(s.out.streams, f.Join(s.id, s.out.streamDelivery(i)))
	}
	r.srv.hub.addToken(s)
	if !r.letIn(s, c, nil, true) { // the link ended while we were at it
		r.removeSeat(s, &Refusal{Reason: ReasonLinkLost})
		return
	}
	r.srv.counters.joined.Add(1)
	if f := r.srv.opt.Hooks.Joined; f != nil {
		f(r.def.spec.Name, r.name, s.id, s.name, false)
	}
}

func worldRefusal(r *Room, err error) *Refusal {
	var ref *Refusal
	if errors.As(err, &ref) {
		return ref
	}
	r.log.Warn("the world refused a join", "err", err)
	return &Refusal{Reason: ReasonWorld}
}

// holdSteps is for how many steps an input is repeated. Without a beat it holds until the next one, or until the link is down.
func (r *Room) holdSteps() uint32 {
	if r.hz == 0 {
		return math.MaxUint32
	}
	return uint32(min((r.def.spec.InputHold*time.Duration(r.hz)+time.Second-1)/time.Second, math.MaxInt32))
}

// resume gives a seat a new link.
func (r *Room) resume(s *Seat, c *Conn, h Hello) {
	if s.gone {
		c.refuse(&Refusal{Reason: ReasonResumeExpired})
		return
	}
	if c.phase.Load() != linkPending {
		return
	}
	w, told := r.game.world().(Dropper)
	if old := s.conn; old != nil {
		r.detach(s)
		old.fail(ReasonReplaced)
		if told {
			if w.Drop(s); r.dead.Load() {
				return
			}
		}
	}
	s.conn = c
	r.waiting--
	r.away.Add(-1)
	if !r.letIn(s, c, h.Cursors, false) {
		r.detach(s)
		return
	}
	if told {
		if w.Resume(s); r.dead.Load() {
			return
		}
	}
	r.srv.counters.resumed.Add(1)
	if f := r.srv.opt.Hooks.Joined; f != nil {
		f(r.def.spec.Name, r.name, s.id, s.name, true)
	}
}

// letIn welcomes a link and hands it to the encoder. It returns false if the link has ended.
func (r *Room) letIn(s *Seat, c *Conn, cursors []uint64, fresh bool) bool {
	sh := r.seatShard(s)
	sh.connected.Add(1)
	c.seat.Store(s) // before the link counts as joined: from then on its end is told to the seat
	if !c.phase.CompareAndSwap(linkPending, linkJoined) {
		return false
	}
	epoch := r.epoch
	r.welcome(s, c, !fresh)
	sh.do(func() {
		if fresh {
			sh.outs = append(sh.outs, s.out)
		}
		s.out.attach(c, epoch, cursors, fresh)
	})
	if r.hz == 0 { // nothing else may ever happen here: show what there is
		r.FlushNow(s)
	}
	return true
}

func (r *Room) welcome(s *Seat, c *Conn, resumed bool) {
	spec := r.def.spec
	w := Welcome{
		Protocol: ProtocolVersion, World: spec.Name, Room: r.name, Seat: s.id, Name: s.name, Token: s.token, Resumed: resumed,
		Epoch: r.epoch, Tick: r.tick, Hz: spec.Hz, SendHz: spec.SendHz, GraceMs: int(spec.Grace.Milliseconds()),
		RewindMs: int(spec.Rewind.Milliseconds()), ReportMs: int(reportEvery.Milliseconds()), Ordered: c.link.Delivery() == feed.Ordered, Verify: c.verify, Inputs: r.def.kind.inputs().describe(), Feeds: r.infos,
	}
	if r.hz > 0 {
		w.TickZeroUs = time.Now().Add(r.zero - r.srv.clock.Now()).UnixMicro()
	}
	msg, err := AppendJSON(nil, KindWelcome, w)
	if err != nil {
		r.log.Error("a feed's schema is not JSON", "err", err)
		r.Close(ReasonRoomError)
		return
	}
	c.link.Send(msg) // if it fails the link is ending, and Closed follows
}

// detach takes a seat's link away; the seat waits for its player from now on.
func (r *Room) detach(s *Seat) {
	s.conn = nil
	s.graceUntil = r.srv.clock.Now() + r.def.spec.Grace
	r.waiting++
	r.away.Add(1)
	s.inbox.reset()
	sh := r.seatShard(s)
	sh.connected.Add(-1)
	sh.do(func() { s.out.conn = nil })
}

// linkEnded is told by a link that has ended.
func (r *Room) linkEnded(s *Seat, c *Conn, why Reason) {
	if s.conn != c || s.gone {
		return // replaced by a newer link, or gone already
	}
	r.detach(s)
	if why == ReasonLeft || why.Retry() == RetryNever {
		r.removeSeat(s, &Refusal{Reason: why})
		return
	}
	if w, ok := r.game.world().(Dropper); ok {
		w.Drop(s)
	}
}

// removeSeat gives a seat up for good.
func (r *Room) removeSeat(s *Seat, why *Refusal) {
	if s.gone {
		return
	}
	s.gone = true
	sh := r.seatShard(s)
	if c := s.conn; c != nil {
		s.conn = nil
		sh.connected.Add(-1)
		c.end(why)
	} else {
		r.waiting--
		r.away.Add(-1)
	}
	sh.do(func() {
		sh.outs = slices.DeleteFunc(sh.outs, func(o *outbox) bool { return o == s.out })
		sh.keep(s.out)
		s.out.close()
	})
	r.seats[s.id] = nil
	r.taken = slices.DeleteFunc(r.taken, func(t *Seat) bool { return t == s })
	r.players.Store(int32(len(r.taken)))
	if len(r.taken) == 0 {
		r.empty = r.srv.clock.Now()
	}
	r.srv.hub.removeToken(s)
	r.srv.hub.unreserve(r)
	if r.game.Leave(s); r.dead.Load() {
		return
	}
	for _, f := range r.feeds {
		f.Leave(s.id)
	}
	if f := r.srv.opt.Hooks.Left; f != nil {
		f(r.def.spec.Name, r.name, s.id, why.Reason)
	}
}

func newToken() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

const maxNameRunes = 24

// blanks are letters and symbols that show nothing: Hangul fillers and the empty Braille pattern.
const blanks = "\u115f\u1160\u3164\uffa0\u2800"

// cleanName makes what a client calls itself fit to be shown to others; it may return an empty string.
func cleanName(in string) string {
	if len(in) > 4*maxNameRunes {
		in = in[:4*maxNameRunes]
	}
	var b strings.Builder
	n, space := 0, false
	for _, r := range in {
		switch {
		case r == utf8.RuneError, unicode.Is(unicode.Cc, r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r), strings.ContainsRune(blanks, r):
			continue // control, bidi, zero-width, private use, blank
		case unicode.IsSpace(r):
			space = n > 0
			continue
		case unicode.IsMark(r) && n == 0:
			continue
		}
		if space {
			if n+2 > maxNameRunes {
				break
			}
			b.WriteByte(' ')
			n++
			space = false
		}
		if n++; n > maxNameRunes {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
