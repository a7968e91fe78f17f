package motion

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
)

// frameMs is between two pictures.
const frameMs = 1000.0 / 60

// FrameTime is between two pictures: call Frame that often.
const FrameTime = time.Second / 60

// hindFrames is after how many pictures one is compared with what the samples say by then: all that will come has come.
const hindFrames = 36

// Screen is a client that shows what it gets to nobody. Times are of a clock of the caller's. Not safe for concurrent use.
type Screen struct {
	arrivals arrivals
	clock    *renderClock
	line     *timeline
	zeroMs   float64
	places   [][]int                      // by kind: the fields of a place
	meters   [][]*meter                   // by kind and ring; nil: nothing was measured
	truth    func(id snap.EntityID) truth // nil: what the samples say later
	measures bool
	had      map[snap.EntityID]bool
	numbers  [32]float64
	own      snap.EntityID

	// pictures that are not compared yet, the oldest at next
	pictures [hindFrames]picture
	next     int

	shown, under uint64
	delay        float64
}

type picture struct {
	tick   float64
	things []thing
}

type thing struct {
	e *entity
	p place
}

// rings are as many as a feed may have.
const rings = 4

// NewScreen makes the client of a snap feed with that schema, on a link that keeps the order or not. tickZero is when tick 0 was, or would
// have been. It fails for a room without a beat: there each picture shows the newest.
func NewScreen(schema json.RawMessage, sendHz int, ordered bool, tickZero time.Duration) (*Screen, error) {
	kinds, hz, err := parseKinds(schema)
	if err != nil {
		return nil, err
	}
	if hz <= 0 || sendHz <= 0 {
		return nil, errors.New("motion: a room without a beat shows no motion")
	}
	s := &Screen{zeroMs: ms(tickZero), had: map[snap.EntityID]bool{}, measures: true}
	s.arrivals.tickMs = 1000 / float64(hz)
	s.clock = newRenderClock(&s.arrivals, float64(sendHz), ordered)
	s.line = newTimeline(kinds, s.clock, s.arrivals.tickMs)
	s.meters = make([][]*meter, len(kinds))
	for i, k := range kinds {
		s.places = append(s.places, k.place())
		s.meters[i] = make([]*meter, rings)
	}
	return s, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// place finds the fields that say where something is, by name: three at most.
func (k *kind) place() (fields []int) {
	group := -1
	for i, f := range k.Fields {
		if f.Place && group < 0 {
			group = i
		}
	}
	for i, f := range k.Fields {
		in := group >= 0 && groupOf(f.Name) == groupOf(k.Fields[group].Name) ||
			group < 0 && (groupOf(f.Name) == "" || strings.HasSuffix(groupOf(f.Name), "pos"))
		if in && k.mode[i] == linear && len(fields) < 3 {
			fields = append(fields, i)
		}
	}
	slices.SortFunc(fields, func(a, b int) int { return strings.Compare(k.Fields[a].Name, k.Fields[b].Name) })
	return fields
}

// Packet takes what d holds after it has read the packet of a tick, which came at now.
func (s *Screen) Packet(d *snap.Decoder, tick feed.Tick, now time.Duration) {
	s.packet(d, float64(tick), ms(now))
}

func (s *Screen) packet(d *snap.Decoder, tick, now float64) {
	here := 0
	d.Each(func(e snap.Entity) bool {
		here++
		fresh := !s.had[e.ID]
		if float64(e.Tick()) != tick && !fresh {
			return true
		}
		numbers := s.numbers[:len(s.line.kinds[e.Type].Fields)]
		for i := range numbers {
			numbers[i] = e.Float(i)
		}
		if fresh {
			s.had[e.ID] = true
			s.line.enter(e.Type, uint32(e.ID), numbers, tick, e.Ring())
		} else {
			s.line.update(uint32(e.ID), numbers, tick, e.Ring())
		}
		return true
	})
	if here != len(s.had) {
		for id := range s.had {
			if _, ok := d.Get(id); !ok {
				delete(s.had, id)
				s.line.leave(uint32(id), tick)
			}
		}
	}
	own, _ := d.Own()
	s.own = own.ID
	s.arrivals.note(tick, now)
	s.clock.arrive(tick, now)
	s.line.packet(tick)
}

// Clear forgets what is shown: the world was replaced.
func (s *Screen) Clear() {
	s.line.clear()
	clear(s.had)
	for i := range s.pictures {
		s.pictures[i].things = s.pictures[i].things[:0]
	}
}

// Frame shows the picture of now, and measures it.
func (s *Screen) Frame(now time.Duration) { s.frame(ms(now)) }

func (s *Screen) frame(now float64) {
	tick := s.line.advance(now)
	if s.arrivals.count == 0 {
		return
	}
	if s.measures {
		s.shown++
		if tick > s.line.newest {
			s.under++
		}
		s.delay += now - s.zeroMs - tick*s.arrivals.tickMs
	}
	pic := &s.pictures[s.next]
	if s.truth == nil {
		s.next = (s.next + 1) % hindFrames
		for _, t := range pic.things {
			s.compare(t, pic.tick)
		}
	}
	pic.tick, pic.things = tick, pic.things[:0]
	for _, e := range s.line.entities {
		fields := s.places[e.kind.number]
		if len(fields) == 0 || snap.EntityID(e.id) == s.own {
			continue
		}
		t := thing{e: e}
		for i, f := range fields {
			t.p[i] = e.numbers[f]
		}
		if s.truth != nil {
			s.compare(t, tick)
		} else {
			pic.things = append(pic.things, t)
		}
	}
}

func (s *Screen) compare(t thing, tick float64) {
	e := t.e
	if !s.measures {
		return
	}
	if e.path == nil {
		var real truth = hindsight{s.line, e, s.places[e.kind.number]}
		if s.truth != nil {
			real = s.truth(snap.EntityID(e.id))
		}
		if real == nil {
			return
		}
		e.path = &path{truth: real}
	}
	f := e.kind.Fields[s.places[e.kind.number][0]]
	m := s.meters[e.kind.number][min(e.ring, rings-1)]
	if m == nil {
		m = &meter{frameTicks: frameMs / s.arrivals.tickMs, slack: 2.5 * f.Q, leap: leapShare * f.span()}
		s.meters[e.kind.number][min(e.ring, rings-1)] = m
	}
	m.frame(e.path, t.p, tick)
}

// leapShare of its range is from what change of its step on something was put elsewhere, in a 60th of a second.
const leapShare = 0.01

// hindsight is the true path that samples tell once they are all there.
type hindsight struct {
	l      *timeline
	e      *entity
	fields []int
}

func (h hindsight) where(tick float64) (p place, ok bool) {
	at, ok := h.l.known(h.e, tick)
	if !ok {
		return p, false
	}
	for i, f := range h.fields {
		p[i] = at[f]
	}
	return p, true
}

// Reset forgets what was measured, but not what is shown.
func (s *Screen) Reset() {
	for _, m := range s.meters {
		clear(m)
	}
	s.line.corrections, s.shown, s.under, s.delay = 0, 0, 0, 0
}

// ring is what was measured in a ring; others are left out.
func (s *Screen) ring(ring int) *meter {
	var all meter
	for _, m := range s.meters {
		if m[ring] != nil {
			all.merge(m[ring])
		}
	}
	return &all
}

// Total adds up what several screens showed, in the innermost ring. The zero value is ready to use.
type Total struct {
	// Screens is how many were added.
	Screens int

	meter                     meter
	shown, under, corrections uint64
	delay                     float64
}

// Add adds what s has measured so far.
func (t *Total) Add(s *Screen) {
	t.Screens++
	t.meter.merge(s.ring(0))
	t.shown += s.shown
	t.under += s.under
	t.corrections += s.line.corrections
	t.delay += s.delay
}

// Motion is that of all together.
func (t *Total) Motion() Motion {
	m := t.meter.motion()
	m.Pictures, m.Underruns, m.Corrections = t.shown, t.under, t.corrections
	m.DelayMs = t.delay / float64(max(t.shown, 1))
	return m
}
