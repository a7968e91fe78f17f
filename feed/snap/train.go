package snap

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/drumline-engine/drumline/wire"
)

// Trainer finds the prefix codes that would have written what a room wrote in the fewest bits. It is given to a room's feeds as
// feed.Tuning.Trace; the zero value is ready. It is safe for concurrent use.
type Trainer struct {
	mu     sync.Mutex
	fields map[string]*[rings]costs
}

// costs is what each code would have taken.
type costs struct {
	n    uint64
	bits [wire.Codes]uint64
}

// Residual implements feed.Tracer.
func (t *Trainer) Residual(field string, ring int, u uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fields == nil {
		t.fields = map[string]*[rings]costs{}
	}
	f := t.fields[field]
	if f == nil {
		f = new([rings]costs)
		t.fields[field] = f
	}
	c := &f[ring]
	c.n++
	for k := range c.bits {
		c.bits[k] += uint64(wire.CodeBits(u, uint8(k)))
	}
}

// Training is what a Trainer found out about one field.
type Training struct {
	Field string
	Codes [MaxRings]uint8 // best by ring; where nothing was written that of the ring inside it
	N     uint64          // numbers written
	Best  float64         // bits a number with Codes
}

// Fields returns the fields by name.
func (t *Trainer) Fields() []Training {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Training
	for name, f := range t.fields {
		r := Training{Field: name}
		var sum uint64
		// Rings that nothing was written in take the codes of the nearest inside, the first ones those of the nearest outside.
		best := -1
		for ring := range f {
			if f[ring].n > 0 {
				best = f[ring].best()
				break
			}
		}
		for ring := range f {
			if c := &f[ring]; c.n > 0 {
				best = c.best()
				r.N += c.n
				sum += c.bits[best]
			}
			r.Codes[ring] = uint8(best)
		}
		r.Best = float64(sum) / float64(r.N)
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Training) int { return strings.Compare(a.Field, b.Field) })
	return out
}

func (c *costs) best() int {
	k := 0
	for i, b := range c.bits {
		if b < c.bits[k] {
			k = i
		}
	}
	return k
}

// Codes is the text for Options.Codes.
func (t *Trainer) Codes() string {
	var parts []string
	for _, f := range t.Fields() {
		c := f.Codes
		if c[0] == c[1] && c[1] == c[2] && c[2] == c[3] {
			parts = append(parts, fmt.Sprintf("%s=%d", f.Field, c[0]))
		} else {
			parts = append(parts, fmt.Sprintf("%s=%d,%d,%d,%d", f.Field, c[0], c[1], c[2], c[3]))
		}
	}
	return strings.Join(parts, " ")
}

// Bits is how many bits the residuals took in all with given codes: those of Options.Codes text, and where it names no field those
// that def returns.
func (t *Trainer) Bits(def func(field string, ring int) uint8) (bits uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, f := range t.fields {
		for ring := range f {
			if f[ring].n > 0 {
				bits += f[ring].bits[def(name, ring)]
			}
		}
	}
	return bits
}
