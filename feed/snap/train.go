package snap

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/drumline-engine/drumline/wire"
)

// Trainer finds the prefix codes that would have written what a room wrote in the fewest bits. It is given to a room's feeds as
// feed.Tuning.Trace; the zero value is ready. It is safe for concurrent use.
//
// What it is told of are the numbers that have a code: the residuals of entities that a client holds already, those included that were
// taken out again because a packet was full. All the rest of a packet is not its business.
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

// Reset forgets all that was told so far, such as what came before players had settled in.
func (t *Trainer) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fields = nil
}

// CodeSet are the prefix codes of a field by ring, the innermost first.
type CodeSet [MaxRings]uint8

// String returns them as in Options.Codes: "8" for all rings, or "2,1,1,0".
func (c CodeSet) String() string {
	if c == (CodeSet{c[0], c[0], c[0], c[0]}) {
		return fmt.Sprint(c[0])
	}
	return fmt.Sprintf("%d,%d,%d,%d", c[0], c[1], c[2], c[3])
}

// Training is what a Trainer has found out about one field.
type Training struct {
	// Field is "type.field", as in Options.Codes.
	Field string
	// Now are the field's codes by ring, Best those that it should have: the same, unless it is worth it. In rings in which nothing was
	// written Best is as in the nearest ring inside that has numbers, or else outside.
	Now, Best CodeSet
	// Numbers were written, which took NowBits, and would have taken BestBits.
	Numbers, NowBits, BestBits uint64
}

// Choose compares the codes in a feed's schema (its Info.Schema) with the best ones: all fields that have codes, by name, and the text for
// Options.Codes that gives each its Best. The text takes the place of all that Options.Codes has said: it also names the fields whose codes
// are not their default ones and stay.
//
// least is the share of a field's bits, 0 to 1, that other codes must save; those of the others stay.
func (t *Trainer) Choose(schemaJSON json.RawMessage, least float64) (fields []Training, codes string, err error) {
	var s schema
	if err := json.Unmarshal(schemaJSON, &s); err != nil {
		return nil, "", fmt.Errorf("snap: schema: %w", err)
	}
	if err := s.check(); err != nil {
		return nil, "", fmt.Errorf("snap: schema: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts []string
	for _, ty := range s.Types {
		std := typeSchema{Name: ty.Name, Fields: slices.Clone(ty.Fields)}
		setDefaultCodes(&std)
		for i, f := range ty.Fields {
			if f.Codes == nil {
				continue
			}
			r := choose(ty.Name+"."+f.Name, CodeSet(*f.Codes), t.fields[ty.Name+"."+f.Name], least)
			if r.Best != CodeSet(*std.Fields[i].Codes) {
				parts = append(parts, r.Field+"="+r.Best.String())
			}
			fields = append(fields, r)
		}
	}
	slices.Sort(parts)
	slices.SortFunc(fields, func(a, b Training) int { return strings.Compare(a.Field, b.Field) })
	return fields, strings.Join(parts, " "), nil
}

// choose finds the best codes of a field; f is nil if nothing was told about it.
func choose(name string, now CodeSet, f *[rings]costs, least float64) Training {
	r := Training{Field: name, Now: now, Best: now}
	if f == nil {
		return r
	}
	best, first := now, -1
	for ring := range f {
		c := &f[ring]
		if c.n == 0 {
			if first >= 0 {
				best[ring] = best[ring-1]
			}
			continue
		}
		best[ring] = c.best(now[ring])
		if first < 0 {
			first = ring
		}
		r.Numbers += c.n
		r.NowBits += c.bits[now[ring]]
		r.BestBits += c.bits[best[ring]]
	}
	if saved := r.NowBits - r.BestBits; saved == 0 || float64(saved) < least*float64(r.NowBits) {
		r.BestBits = r.NowBits
		return r
	}
	for ring := range first {
		best[ring] = best[first]
	}
	r.Best = best
	return r
}

// best is the code with the fewest bits; now, if no other has fewer.
func (c *costs) best(now uint8) uint8 {
	k := now
	for i, b := range c.bits {
		if b < c.bits[k] {
			k = uint8(i)
		}
	}
	return k
}
