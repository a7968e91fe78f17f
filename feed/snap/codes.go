package snap

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// numCodes is the number of prefix codes. Code c below 8 is EG c; from 8 on it is one bit for zero, and EG (c − 8) of u − 1 for
// the others. u is the zigzag of a residual in steps of the ring, about twice its size: EG k has 1 + k bits for a u below 2^k, and
// two bits more each time u doubles beyond.
const numCodes = 16

// zeroFlag is the first of the codes that tell zero in one bit.
const zeroFlag = 8

// setDefaultCodes gives each number of an entity type its codes. They follow from the kind and the tags alone, so that the same
// declaration always gives the same schema; Options.Codes replaces them where a world is known better.
//
//	what: hit points, ids        mostly zero, else anything: the flag, and k = half the bits
//	extrapolated                 mostly right, else off by 1 or 2: the flag alone
//	a velocity                   often the same, else a few quanta: the flag, and k = a fourth of the bits, at most 3
//	an angle that nobody turns   often the same, else a few degrees: the flag, and k = 3
//	another pose                 mostly the same: the flag, and k = 1
//
// In rings that round low bits away a residual has so many bits fewer: k falls by as much, to 0 at least. The figures are from the arena
// and from synthetic traffic; what they cost against codes chosen for a world is in docs/measuring.md.
func setDefaultCodes(t *typeSchema) {
	rate := make([]bool, len(t.Fields))
	for _, f := range t.Fields {
		if a := f.Ahead; a != nil {
			rate[a.By] = true
			if a.Angle != nil {
				rate[a.By2] = true
			}
		}
	}
	for i := range t.Fields {
		f := &t.Fields[i]
		if f.Kind == kindText || f.Bits == 1 {
			continue
		}
		flag, k := uint8(zeroFlag), min(uint8(f.Bits/2), numCodes-1-zeroFlag)
		switch {
		case f.Ahead != nil:
			k = 0
		case rate[i]:
			k = min(uint8(f.Bits/4), 3)
		case f.Kind == kindAngle:
			k = 3
		case f.Pose:
			k = 1
		}
		f.Codes = &[rings]uint8{}
		for r := range f.Codes {
			var lod uint8
			if f.Lod != nil {
				lod = f.Lod[r]
			}
			f.Codes[r] = flag + k - min(k, lod)
		}
	}
}

// codeBook is what Options.Codes says: "player.pos.x=2,1,1,0 player.hp=8", a prefix code for each ring, or one for all.
type codeBook struct {
	entries []codeEntry
}

type codeEntry struct {
	text       string // "player.hp=8"
	typ, field string
	codes      [rings]uint8
	used       bool // its type was added
}

// parseCodes reads the text of Options.Codes and returns all its mistakes.
func parseCodes(text string) (*codeBook, []error) {
	b := &codeBook{}
	var errs []error
	for _, part := range strings.Fields(text) {
		e, err := parseCode(part)
		if err == nil && slices.ContainsFunc(b.entries, func(o codeEntry) bool { return o.typ == e.typ && o.field == e.field }) {
			err = errors.New("the field has codes already")
		}
		if err != nil {
			errs = append(errs, codesError(part, err))
			continue
		}
		b.entries = append(b.entries, e)
	}
	return b, errs
}

func codesError(part string, err error) error {
	return fmt.Errorf("snap: Options.Codes: %q: %w", part, err)
}

func parseCode(part string) (codeEntry, error) {
	e := codeEntry{text: part}
	name, list, ok := strings.Cut(part, "=")
	if ok {
		e.typ, e.field, ok = strings.Cut(name, ".")
	}
	if !ok || e.typ == "" || e.field == "" {
		return e, errors.New("want type.field=code, such as player.pos.x=2,1,1,0")
	}
	numbers := strings.Split(list, ",")
	if len(numbers) != 1 && len(numbers) != rings {
		return e, fmt.Errorf("want one code for all rings, or %d", rings)
	}
	for r := range e.codes {
		n, err := strconv.ParseUint(numbers[min(r, len(numbers)-1)], 10, 8)
		if err != nil || n >= numCodes {
			return e, fmt.Errorf("want codes 0 to %d", numCodes-1)
		}
		e.codes[r] = uint8(n)
	}
	return e, nil
}

// apply replaces the codes of t, an entity type without mistakes, where the book says so. Call it once for each type, before its
// layout is made.
func (b *codeBook) apply(t *typeSchema) []error {
	var errs []error
	for i := range b.entries {
		e := &b.entries[i]
		if e.typ != t.Name {
			continue
		}
		e.used = true
		k := slices.IndexFunc(t.Fields, func(f fieldSchema) bool { return f.Name == e.field })
		switch {
		case len(t.Fields) == 0: // its mistakes were reported
		case k < 0:
			var names []string
			for _, f := range t.Fields {
				if f.Codes != nil {
					names = append(names, f.Name)
				}
			}
			errs = append(errs, codesError(e.text, fmt.Errorf("%s has no such field; those with codes are %s", t.Name, strings.Join(names, ", "))))
		case t.Fields[k].Codes == nil:
			errs = append(errs, codesError(e.text, errors.New("a text or a field of one bit has no codes")))
		default:
			codes := e.codes
			t.Fields[k].Codes = &codes
		}
	}
	return errs
}

// rest returns mistakes about types that were never applied. Ask when all types are there.
func (b *codeBook) rest() []error {
	var errs []error
	for _, e := range b.entries {
		if !e.used {
			errs = append(errs, codesError(e.text, fmt.Errorf("there is no entity type %q", e.typ)))
		}
	}
	return errs
}

// plain is the type without anything that is fitted to it: a field that has changed takes a bit and, for small differences, a byte.
func (t *typeSchema) plain() typeSchema {
	p := typeSchema{Name: t.Name, Fields: slices.Clone(t.Fields)}
	for i := range p.Fields {
		f := &p.Fields[i]
		f.Ahead, f.Lod, f.TolQ = nil, nil, 0
		if f.Codes != nil {
			f.Codes = &[rings]uint8{}
			for r := range f.Codes {
				f.Codes[r] = numCodes - 1
			}
		}
	}
	return p
}
