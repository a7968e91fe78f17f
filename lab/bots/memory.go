package bots

import (
	"math"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/link/mem"
)

// memory is a transport to a server in the same process. The network between is link/mem's; the loop looks at it as often as it
// looks at sockets.
type memory struct {
	b      *bot
	c      *mem.Client
	left   bool // bye was said
	credit int  // bytes that a rate-limited bot may read; below 0 after a large message
}

// framing is what link/mem counts for a message besides its bytes.
const framing = 4

// join connects a bot to the server of this process and sends its hello.
func (s *shard) join(b *bot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f.closing.Load() {
		return
	}
	o := &s.f.o
	c := mem.Connect(o.Server, drumline.Peer{}, mem.Options{Seed: o.Seed + uint64(b.id), Down: o.Path, Up: o.Path, Unordered: o.Unordered})
	s.pairs = append(s.pairs, c)
	b.begin(&memory{b: b, c: c}, s.f.now())
	if !b.link.send(b.hello(), feed.Reliable) {
		b.end(NoConnection)
	}
}

// pump reads what has come over links in memory.
func (s *shard) pump() {
	if s.f.o.Server == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.bots {
		if m, ok := b.link.(*memory); ok {
			if b.state == live && s.f.o.RateBytes > 0 {
				m.read(0) // the schedule of reads does the rest
			} else {
				m.read(math.MaxInt)
			}
		}
	}
}

// closePairs ends what is left of the links in memory and waits for their goroutines.
func (s *shard) closePairs() {
	s.mu.Lock()
	pairs := s.pairs
	s.pairs = nil
	s.mu.Unlock()
	for _, c := range pairs {
		c.Cut()
	}
	for _, c := range pairs {
		<-c.Done()
	}
}

// read takes messages until their bytes reach limit, and notices the end of the link. What is over the limit counts against the
// next one.
func (m *memory) read(limit int) {
	over := false
	select {
	case <-m.c.Done():
		over = true // before the last look: what has arrived is still read
	default:
	}
	b := m.b
	if m.credit = min(m.credit, 0); limit > 0 {
		m.credit += limit
	}
	for m.credit > 0 && b.state != ended {
		msg, ok := m.c.TryNext()
		if !ok {
			break
		}
		m.credit -= len(msg) + framing
		b.n.wire += uint64(len(msg) + framing)
		if err := b.message(msg); err != nil && b.state != ended {
			b.close(codeProtocol, BadFrame)
		}
	}
	if over {
		reason := Reset
		if code := m.c.CloseCode(); code != 0 && code != codeAbnormal {
			reason = codeName(code)
		}
		b.end(reason)
	}
}

func (m *memory) ready() bool { return true }

func (m *memory) send(msg []byte, lane feed.Lane) bool {
	if lane == feed.Reliable {
		return m.c.Send(msg) == nil
	}
	return m.c.SendState(msg)
}

func (m *memory) pause() { m.c.Pause() }

func (m *memory) bye(code int) {
	m.left = true
	m.c.Close(code, "")
}

func (m *memory) drop() {
	if !m.left { // else it ends by itself when the goodbye has arrived, and closePairs sees to it
		m.c.Cut()
	}
}
