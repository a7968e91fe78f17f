package drumline

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A step has momentParts parts in a Moment.
const (
	momentBits  = 4
	momentParts = 1 << momentBits
)

// maxRewind is the largest Spec.Rewind: what is seen a second later is no aim any more.
const maxRewind = time.Second

// Moment is a point in a room's time, in sixteenths of a step: 16 × tick is the end of the step tick, as a state packet of that tick
// tells it, and what lies between is between two states. 0 is unknown.
type Moment uint64

// MomentAt is the end of a step, and parts sixteenths after it.
func MomentAt(tick Tick, parts int) Moment { return Moment(tick)<<momentBits + Moment(parts) }

// Tick is the last step that had ended.
func (m Moment) Tick() Tick { return Tick(m >> momentBits) }

// Part is how much of the next one had passed, 0 to 15/16.
func (m Moment) Part() float64 { return float64(m&(momentParts-1)) / momentParts }

// momentBefore is behind parts before the end of a step; 0 if that is unknown.
func momentBefore(step uint32, behind uint16) Moment {
	m := MomentAt(Tick(step), 0)
	if behind == 0 || m <= Moment(behind) {
		return 0
	}
	return m - Moment(behind)
}

// Past remembers where things were at the end of the last steps, so that a world can judge a shot by what the shooter saw:
//
//	past := drumline.NewPast(18+2, func(a, b Place, f float64) Place { … })     // Spec.Rewind is 300 ms at 60 Hz
//
//	// at the end of each step
//	past.Begin(st.Tick)
//	for id, m := range monsters.All() {
//		past.Put(uint32(id), Place{m.X, m.Y})
//	}
//
//	// when somebody shoots, with his Input.Seen
//	if was, ok := past.At(uint32(id), in.Seen); ok { … }
//
// It is as deterministic as mix is, and belongs to the world's state: a world puts it into its Snapshot (Append, Restore). After
// warm-up it allocates nothing. It is for one goroutine.
type Past[T any] struct {
	mix    func(a, b T, f float64) T
	frames []pastFrame[T] // by tick
	newest Tick
	held   int // frames, the newest included
}

type pastFrame[T any] struct {
	ids    []uint32
	values []T
	hint   int // where the last one was found: things come in the same order each time
}

// NewPast makes the memory of a number of steps: those of Spec.Rewind, and two more. mix is what lies between a and b, f from 0 to 1 on
// the way, such as float64(a) + float64((b-a)*f).
func NewPast[T any](steps int, mix func(a, b T, f float64) T) *Past[T] {
	return &Past[T]{mix: mix, frames: make([]pastFrame[T], max(steps, 2))}
}

// Begin begins the record of a step. If it is not the one after the last, the past is forgotten first.
func (p *Past[T]) Begin(tick Tick) {
	if p.held > 0 && tick != p.newest+1 {
		p.held = 0
	}
	p.newest = tick
	p.held = min(p.held+1, len(p.frames))
	f := p.frame(tick)
	clear(f.values)
	f.ids, f.values, f.hint = f.ids[:0], f.values[:0], 0
}

// Put notes where something was at the end of the step, each id once. Where the things come in the same order in each step, At is quick.
func (p *Past[T]) Put(id uint32, v T) {
	f := p.frame(p.newest)
	f.ids, f.values = append(f.ids, id), append(f.values, v)
}

// At is where something was at a moment, or false if it was not there. A moment before all that is remembered is the oldest there
// is, one that is unknown (0) or still to come the newest. Was it there only before or only after, that counts.
func (p *Past[T]) At(id uint32, m Moment) (v T, ok bool) {
	if p.held == 0 {
		return v, false
	}
	tick, part := m.Tick(), m.Part()
	oldest := p.newest - Tick(p.held-1)
	switch {
	case m == 0 || tick >= p.newest:
		tick, part = p.newest, 0
	case tick < oldest:
		tick, part = oldest, 0
	}
	a, was := p.frame(tick).find(id)
	if part == 0 {
		return a, was
	}
	b, is := p.frame(tick + 1).find(id)
	switch {
	case was && is:
		return p.mix(a, b, part), true
	case was:
		return a, true
	}
	return b, is
}

// Reset forgets everything.
func (p *Past[T]) Reset() { p.held = 0 }

func (p *Past[T]) frame(tick Tick) *pastFrame[T] {
	return &p.frames[uint64(tick)%uint64(len(p.frames))]
}

func (f *pastFrame[T]) find(id uint32) (v T, ok bool) {
	n := len(f.ids)
	for i := range n {
		k := f.hint + i
		if k >= n {
			k -= n
		}
		if f.ids[k] == id {
			f.hint = k + 1
			if f.hint == n {
				f.hint = 0
			}
			return f.values[k], true
		}
	}
	return v, false
}

// Append appends the whole past to dst, for a world's Snapshot; put appends one value.
//
//	0  u32 frames
//	4  u32 newest tick
//	.. frames, the oldest first: u32 count, count × { u32 id, value }
func (p *Past[T]) Append(dst []byte, put func(dst []byte, v T) []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(p.held))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(p.newest))
	for i := p.held - 1; i >= 0; i-- {
		f := p.frame(p.newest - Tick(i))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.ids)))
		for k, id := range f.ids {
			dst = put(binary.LittleEndian.AppendUint32(dst, id), f.values[k])
		}
	}
	return dst
}

var errPast = errors.New("drumline: not a saved past")

// Restore replaces the past by what Append wrote and returns what follows it. get reads one value and returns what follows that. More
// frames than are kept are read and forgotten, the oldest first. After an error everything is forgotten.
func (p *Past[T]) Restore(src []byte, get func(src []byte) (v T, rest []byte, err error)) (rest []byte, err error) {
	p.held = 0
	defer func() {
		if err != nil {
			p.held = 0
		}
	}()
	if len(src) < 8 {
		return nil, errPast
	}
	n, newest := binary.LittleEndian.Uint32(src), Tick(binary.LittleEndian.Uint32(src[4:]))
	src = src[8:]
	if uint64(n) > uint64(newest)+1 || uint64(n)*4 > uint64(len(src)) {
		return nil, fmt.Errorf("%w: %d steps up to %d in %d bytes", errPast, n, newest, len(src))
	}
	for i := range n {
		if len(src) < 4 {
			return nil, errPast
		}
		count := binary.LittleEndian.Uint32(src)
		src = src[4:]
		p.Begin(newest - Tick(n-1-i))
		for range count {
			if len(src) < 4 {
				return nil, errPast
			}
			id := binary.LittleEndian.Uint32(src)
			v, after, err := get(src[4:])
			if err != nil {
				return nil, err
			}
			p.Put(id, v)
			src = after
		}
	}
	return src, nil
}
