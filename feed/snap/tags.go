package snap

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/drumline-engine/drumline/wire"
)

// words are the parts of a drumline tag.
type words struct {
	q, tol             float64
	lo, hi             float64
	hasQ, hasR, hasTol bool
	once, angle, owner bool
	hide, lost         bool
	mask, place        bool
	lod                *[rings]uint8 // nil: no lod
	max                int
	move, turn         string
	frame              string // body or body:Angle
}

const tagHelp = `words are q=, range=lo:hi, angle, once, max=, owner, move=, turn=, frame=body, lod, tol=, place, mask, or "-" for server-only`

// defaultLod is what a bare lod rounds away: a quarter of the bits of a 16-bit position beyond the last ring.
var defaultLod = [rings]uint8{0, 2, 3, 4}

// parseLod reads the shifts of rings 1 and up; the last one goes for the rings beyond.
func parseLod(text string) (*[rings]uint8, error) {
	lod, parts := &[rings]uint8{}, strings.Split(text, ":")
	if len(parts) >= rings {
		return nil, fmt.Errorf("want at most %d shifts, those of rings 1 to %d", rings-1, rings-1)
	}
	for r := 1; r < rings; r++ {
		n, err := strconv.ParseUint(parts[min(r, len(parts))-1], 10, 8)
		if err != nil || n > 31 {
			return nil, errors.New("want low bits to round away, 0 to 31, for rings 1 and up: lod=2:3:4")
		}
		if lod[r] = uint8(n); lod[r] < lod[r-1] {
			return nil, errors.New("a ring farther out cannot be finer than the one before it")
		}
	}
	return lod, nil
}

// parseTag reads a tag over what the struct around it said. The error joins all mistakes.
func parseTag(tag string, w words) (words, error) {
	if tag == "" {
		return w, nil
	}
	if tag == "mask" {
		return words{mask: true}, nil // nothing that was said of visible fields around it is about a mask
	}
	var errs []error
	for i, part := range strings.Split(tag, ",") {
		if err := w.parse(strings.TrimSpace(part), i == 0); err != nil {
			errs = append(errs, err)
		}
	}
	switch {
	case w.mask:
		errs = append(errs, fmt.Errorf("tag %q: no other word may stand beside mask, which clients never see", tag))
	case w.hide && tag != "-" && tag != "-,unsaved" && errs == nil:
		errs = append(errs, fmt.Errorf("tag %q: only \"unsaved\" may stand beside \"-\"", tag))
	}
	return w, errors.Join(errs...)
}

// parse reads one word of a tag.
func (w *words) parse(part string, first bool) error {
	key, val, has := strings.Cut(part, "=")
	var err error
	num := func(text string) (v float64) {
		if v, err = strconv.ParseFloat(text, 64); err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
			err = errors.New("not finite")
		}
		return v
	}
	const never, may, must = 0, 1, 2
	valued := must
	switch key {
	case "q":
		if w.q, w.hasQ = num(val), true; err == nil && w.q <= 0 {
			err = errors.New("must be above 0")
		}
	case "tol":
		if w.tol, w.hasTol = num(val), true; err == nil && w.tol < 0 {
			err = errors.New("must not be negative")
		}
	case "range":
		lo, hi, ok := strings.Cut(val, ":")
		if !ok {
			err = errors.New("want range=lo:hi")
			break
		}
		w.hasR = true
		if w.lo = num(lo); err == nil {
			w.hi = num(hi)
		}
		if err == nil && w.lo >= w.hi {
			err = errors.New("lo must be below hi")
		}
	case "max":
		if w.max, err = strconv.Atoi(val); err == nil && (w.max < 1 || w.max > MaxTextBytes) {
			err = fmt.Errorf("want 1 to %d bytes", MaxTextBytes)
		}
	case "move":
		w.move = val
	case "turn":
		w.turn = val
	case "frame":
		if w.frame = val; val != "body" && (!strings.HasPrefix(val, "body:") || val == "body:") {
			err = errors.New("the only frame beside the world's is body, or body:Yaw to name the angle")
		}
	case "lod":
		valued = may
		if w.lod = &defaultLod; has && val != "" {
			w.lod, err = parseLod(val)
		}
	default:
		valued = never
		switch key {
		case "angle":
			w.angle = true
		case "once":
			w.once = true
		case "owner":
			w.owner = true
		case "place":
			w.place = true
		case "mask":
			w.mask = true
		case "-":
			if w.hide = true; !first {
				err = errors.New("must come first")
			}
		case "unsaved":
			if w.lost = true; !w.hide {
				err = errors.New("only for server-only fields: write \"-,unsaved\"")
			}
		default:
			return fmt.Errorf("unknown word %q in the tag; %s", part, tagHelp)
		}
	}
	switch {
	case valued == never && has:
		return fmt.Errorf("word %q in the tag takes no value", part)
	case val == "" && (valued == must || has):
		return fmt.Errorf("word %q in the tag wants a value", part)
	case err != nil:
		return fmt.Errorf("word %q in the tag: %w", part, err)
	}
	return nil
}

// forLeaf drops what the struct around a field said about fields of another kind, so that one tag may stand on a struct of
// floats and bools. What the field's own tag says (own) stays and is refused if it is wrong.
func (w words) forLeaf(k reflect.Kind, own words) words {
	float := (k == reflect.Float32 || k == reflect.Float64) && !own.angle
	number := !own.angle && k != reflect.Bool && k != reflect.String
	if !float {
		w.q, w.hasQ, w.place = own.q, own.hasQ, own.place
	}
	if !number {
		w.lo, w.hi, w.hasR, w.move, w.frame = own.lo, own.hi, own.hasR, own.move, own.frame
	}
	if !number && !own.angle {
		w.lod, w.tol, w.hasTol = own.lod, own.tol, own.hasTol
	}
	if !own.angle {
		w.turn = own.turn
	}
	return w
}

// leaf is a field found in a struct.
type leaf struct {
	fieldSchema
	src  source
	path string // "Pos.X", for messages and for move=
	// bad: a mistake was reported, so whoever names it need not hear of it again.
	bad bool
	// frame is the word frame=, before it is resolved.
	frame string

	// What link found; nil: nothing.
	rate *leaf // of move= and turn=
	body *leaf // of frame=: the angle
}

// scan collects mistakes and leaves of one type.
type scan struct {
	typ    string
	event  bool
	hz     int
	leaves []*leaf
	mask   *source
	masked string // path of the mask
	errs   []error
}

func (s *scan) errorf(path, format string, args ...any) {
	s.errs = append(s.errs, fmt.Errorf("snap: %s.%s: %s", s.typ, path, fmt.Sprintf(format, args...)))
}

// wrong reports a mistake of a leaf.
func (s *scan) wrong(l *leaf, format string, args ...any) {
	l.bad = true
	s.errorf(l.path, format, args...)
}

// described is what the tags of a Go type say.
type described struct {
	schema typeSchema
	src    []source // by field
	mask   *source  // of the visibility mask; nil: everybody may see it
	errs   []error  // if there are any, the schema has no fields
}

// describe reads the tags of struct type t. hz is the number of steps a second, which extrapolation depends on; below 1 there is no
// beat, and nothing is extrapolated.
func describe(name string, t reflect.Type, event bool, hz int) described {
	d := described{schema: typeSchema{Name: name, Fields: []fieldSchema{}}}
	s := scan{typ: t.String(), event: event, hz: hz}
	if !nameRE.MatchString(name) {
		s.errs = append(s.errs, fmt.Errorf("snap: name %q of %s: want a lower-case letter, then letters, digits, dashes and underscores, 1 to 32 in all", name, t))
	}
	if t.Kind() != reflect.Struct {
		s.errs = append(s.errs, fmt.Errorf("snap: %q: %s is not a struct; fields are declared by a struct's fields and their tags", name, t))
		d.errs = s.errs
		return d
	}
	s.walk(t, "", "", 0, words{})
	s.names()
	s.places()
	s.link()
	if n := len(s.leaves); n > MaxFields {
		s.errs = append(s.errs, fmt.Errorf("snap: %s has %d visible fields; at most %d a type: tag some \"-\", or make two types of it", t, n, MaxFields))
	}
	if s.errs == nil {
		slices.SortStableFunc(s.leaves, func(a, b *leaf) int { return a.rank() - b.rank() })
		s.extrapolate()
	}
	if d.errs = s.errs; d.errs != nil {
		return d
	}
	for _, l := range s.leaves {
		d.schema.Fields, d.src = append(d.schema.Fields, l.fieldSchema), append(d.src, l.src)
	}
	if d.mask = s.mask; !event {
		setDefaultCodes(&d.schema)
	}
	return d
}

func (s *scan) walk(t reflect.Type, goPath, namePath string, off uintptr, outer words) {
	for i := range t.NumField() {
		f := t.Field(i)
		path := goPath + f.Name
		tag := f.Tag.Get("drumline")
		own, _ := parseTag(tag, words{})
		w, err := parseTag(tag, outer)
		switch {
		case err != nil:
			// It is kept by its name, so that what refers to it does not seem to refer to nothing.
			s.leaves = append(s.leaves, &leaf{path: path, bad: true})
			s.errorf(path, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
			continue
		case w.mask:
			s.setMask(f, path, off+f.Offset)
			continue
		case w.hide || f.Name == "_":
			continue
		case !f.IsExported() && !(f.Anonymous && f.Type.Kind() == reflect.Struct):
			s.errorf(path, "is not exported: export it, or tag it `drumline:\"-\"` if clients need not see it")
			continue
		}
		name := fieldName(f)
		if f.Type.Kind() == reflect.Struct {
			if w.angle || w.once || w.max != 0 {
				s.errorf(path, "angle, once and max= have no meaning on a struct; tag its fields")
				continue
			}
			if f.Anonymous {
				s.walk(f.Type, goPath+f.Name+".", namePath, off+f.Offset, w)
			} else {
				s.walk(f.Type, path+".", namePath+name+".", off+f.Offset, w)
			}
			continue
		}
		l := &leaf{path: path, src: source{off: off + f.Offset, kind: f.Type.Kind()}}
		s.leaves = append(s.leaves, l)
		w = w.forLeaf(f.Type.Kind(), own)
		l.fieldSchema = fieldSchema{Name: namePath + name, Q: 1, Owner: w.owner, Once: w.once}
		if !fieldRE.MatchString(name) {
			s.wrong(l, "is called %q in the browser; want a letter, then letters, digits and underscores, 1 to 64 in all", name)
		}
		if err := l.set(f.Type, w); err != nil {
			s.wrong(l, "%v", err)
			continue
		}
		if s.event {
			if w.owner || w.move != "" || w.turn != "" || w.lod != nil || w.hasTol || w.frame != "" || w.place {
				s.wrong(l, "owner, move=, turn=, frame=, lod, tol= and place have no meaning on an event; use EmitTo for what one seat gets, EmitAt for a place")
			}
			continue
		}
		if l.Kind == kindUint && !l.ordered() { // only now is its range known; see forLeaf
			w.lod, w.tol, w.hasTol, w.move, w.frame = own.lod, own.tol, own.hasTol, own.move, own.frame
		}
		if err := l.refine(w); err != nil {
			s.wrong(l, "%v", err)
		}
	}
}

// setMask takes the field tagged mask.
func (s *scan) setMask(f reflect.StructField, path string, off uintptr) {
	switch k := f.Type.Kind(); {
	case s.event:
		s.errorf(path, "mask has no meaning on an event; use EmitTo for what one seat gets")
	case k != reflect.Uint8 && k != reflect.Uint16 && k != reflect.Uint32:
		s.errorf(path, "mask is for uint8, uint16 and uint32, a bit for each group that sees the entity, not %s", f.Type)
	case s.mask != nil:
		s.errorf(path, "%s is the mask already; a type has one", s.masked)
	default:
		_, hi, _ := intRange(k)
		s.mask, s.masked = &source{off: off, kind: k, field: kindUint, max: hi}, path
	}
}

// set fills in what depends on the Go type.
func (l *leaf) set(t reflect.Type, w words) error {
	k := t.Kind()
	if w.max != 0 && k != reflect.String {
		return errors.New("max= is for strings")
	}
	if w.angle && k != reflect.Float32 && k != reflect.Float64 {
		return fmt.Errorf("angle is for float32 and float64 in radians, not %s", t)
	}
	switch k {
	case reflect.Float32, reflect.Float64:
		if w.angle {
			if w.hasQ || w.hasR {
				return errors.New("an angle has 4096 steps a turn: leave out q= and range=")
			}
			l.Kind, l.Bits, l.Q, l.Max = kindAngle, wire.AngleBits, wire.AngleQ, wire.AngleSteps-1
			break
		}
		if !w.hasQ || !w.hasR {
			return errors.New("a float needs a quantum and a range, such as `drumline:\"q=0.01,range=0:1000\"`, or angle")
		}
		z, err := wire.NewQuant(w.q, w.lo, w.hi)
		if err != nil {
			return fmt.Errorf("%s; take a larger q= or a smaller range=", strings.TrimPrefix(err.Error(), "wire: "))
		}
		if z.Min == z.Max {
			return fmt.Errorf("range=%v:%v holds one multiple of q=%v; take a smaller q= or a larger range=", w.lo, w.hi, w.q)
		}
		l.Kind, l.Bits, l.Q, l.Min, l.Max, l.src.quant = kindFloat, z.Bits(), z.Q, int64(z.Min), int64(z.Max), z
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if w.hasQ {
			return errors.New("q= is for floats")
		}
		lo, hi, ok := intRange(k)
		if w.hasR {
			if w.lo != math.Trunc(w.lo) || w.hi != math.Trunc(w.hi) {
				return errors.New("range= of an integer wants whole numbers")
			}
			if ok && (w.lo < float64(lo) || w.hi > float64(hi)) {
				return fmt.Errorf("range=%v:%v does not fit into %s", w.lo, w.hi, t)
			}
			if w.lo < math.MinInt32 || w.hi > math.MaxUint32 || w.lo < 0 && w.hi > math.MaxInt32 {
				return errors.New("range= must fit into an int32 or a uint32")
			}
			if w.lo < 0 && (k == reflect.Uint || k == reflect.Uint64) {
				return fmt.Errorf("range=%v:%v does not fit into %s", w.lo, w.hi, t)
			}
			lo, hi, ok = int64(w.lo), int64(w.hi), true
		}
		if !ok {
			return fmt.Errorf("%s is too wide: add a range= that fits into 32 bits, or use a 32-bit type", t)
		}
		l.Kind, l.Bits, l.Min, l.Max, l.src.min, l.src.max = kindInt, uint(bits.Len64(uint64(hi-lo))), lo, hi, lo, hi
		if lo >= 0 {
			l.Kind = kindUint
		}
	case reflect.Bool:
		if w.hasQ || w.hasR {
			return errors.New("q= and range= are for numbers")
		}
		l.Kind, l.Bits, l.Max = kindBool, 1, 1
	case reflect.String:
		if w.hasQ || w.hasR || w.move != "" || w.turn != "" || w.frame != "" || w.hasTol || w.lod != nil || w.place {
			return errors.New("a string takes once, max= and owner only")
		}
		if !w.once || w.max == 0 {
			return errors.New("a string is sent on enter and when it changes, with a bound in bytes: tag it such as `drumline:\"once,max=24\"`")
		}
		l.Kind, l.Bits, l.Max, l.src.maxBytes = kindText, uint(bits.Len(uint(w.max))), int64(w.max), w.max
	default:
		return fmt.Errorf("clients cannot see a %s: use bool, integers, floats, strings and structs of them, or tag it `drumline:\"-\"`", t)
	}
	l.src.field = l.Kind
	return nil
}

// refine takes the words about motion and interest, which need the range.
func (l *leaf) refine(w words) error {
	var errs []error
	errorf := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, word := range []struct {
		name  string
		given bool
	}{{"move=", w.move != ""}, {"frame=", w.frame != ""}, {"lod", w.lod != nil}, {"tol=", w.hasTol}} {
		if word.given && !l.ordered() {
			errorf("%s is for floats, angles and integers of at most 2^31-1: what has no near and far cannot be a little wrong", word.name)
		}
	}
	switch {
	case w.move != "" && l.Kind == kindAngle:
		errorf("move= is for positions; an angle turns: write turn=%s", w.move)
	case w.move != "" && l.Bits == 1:
		errorf("move=%s: a field of one bit has nowhere to go; take a smaller q= or a larger range=", w.move)
	case w.frame != "" && l.Kind == kindAngle:
		errorf("frame= is for velocities, not for an angle")
	}
	if w.turn != "" && l.Kind != kindAngle {
		errorf("turn= is for angles: it names the field that says how fast one turns. What names the angle of a body's velocities is frame=body:%s", w.turn)
	}
	if w.place && (l.Kind != kindFloat || l.Owner) {
		errorf("place is for floats that everybody may know")
	}
	if errs != nil {
		return errors.New(strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; "))
	}
	l.Move, l.Turn, l.frame, l.Tol, l.Place = w.move, w.turn, w.frame, w.tol, w.place
	if w.hasTol {
		// The millionth keeps 0.3/0.1 from becoming one quantum less than it looks.
		tolQ, most := math.Floor(w.tol/l.Q+1e-6), float64(l.Max-l.Min)
		switch {
		case tolQ < 1:
			errorf("tol=%v is below one quantum of %v, which is the error of any value; leave it out", w.tol, l.Q)
		case tolQ >= most || l.Kind == kindAngle && tolQ >= wire.AngleSteps/2 || tolQ > math.MaxInt32:
			errorf("tol=%v is as wide as the range: nothing would ever be told", w.tol)
		default:
			l.TolQ = int32(tolQ)
		}
	}
	if w.lod != nil {
		lod := *w.lod
		if l.Min < -maxCoarse || l.Max > maxCoarse {
			errorf("lod is for %d to %d quanta, not %d to %d: take a larger q= or a smaller range=", -maxCoarse, maxCoarse, l.Min, l.Max)
		}
		for r := range lod {
			if w.lod != &defaultLod && uint(lod[r]) > l.Bits {
				errorf("lod rounds %d bits away in ring %d, of %d; at that many the field is not told at all", lod[r], r, l.Bits)
				break
			}
			lod[r] = min(lod[r], l.maxLod())
		}
		if lod != ([rings]uint8{}) {
			l.Lod = &lod
		}
	}
	if errs != nil {
		return errors.New(strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; "))
	}
	return nil
}

// maxCoarse bounds the integers that may be rounded, so that rounding never leaves 32 bits.
const maxCoarse = 1<<30 - 1

// maxLod is how many bits can be rounded away so that a multiple of 2^lod is still in the range.
func (f *fieldSchema) maxLod() uint8 {
	if f.Kind == kindAngle {
		return wire.AngleBits
	}
	return uint8(f.Bits - 1)
}

// intRange is what an integer kind holds; false if that is more than 32 bits.
func intRange(k reflect.Kind) (lo, hi int64, ok bool) {
	switch k {
	case reflect.Int8:
		return math.MinInt8, math.MaxInt8, true
	case reflect.Int16:
		return math.MinInt16, math.MaxInt16, true
	case reflect.Int32:
		return math.MinInt32, math.MaxInt32, true
	case reflect.Uint8:
		return 0, math.MaxUint8, true
	case reflect.Uint16:
		return 0, math.MaxUint16, true
	case reflect.Uint32:
		return 0, math.MaxUint32, true
	}
	return 0, 0, false
}

// names finds fields that the browser would mistake for each other.
func (s *scan) names() {
	seen := map[string]string{}
	for _, l := range s.leaves {
		if l.Name == "" {
			continue // its tag was not understood
		}
		if other, dup := seen[l.Name]; dup {
			s.wrong(l, "is called %q like %s; rename one with a json tag", l.Name, other)
		}
		seen[l.Name] = l.path
	}
	for _, l := range s.leaves {
		for i := range len(l.Name) {
			if l.Name[i] != '.' {
				continue
			}
			if other, dup := seen[l.Name[:i]]; dup {
				s.wrong(l, "stands in %q, which is what %s is called; rename one with a json tag", l.Name[:i], other)
			}
		}
	}
}

// places checks the axes of the entity's place.
func (s *scan) places() {
	var axes []string
	for _, l := range s.leaves {
		if l.Place {
			axes = append(axes, l.path)
		}
	}
	if n := len(axes); n == 1 || n > 3 {
		s.errs = append(s.errs, fmt.Errorf("snap: %s: place is on %s; a place has 2 or 3 axes", s.typ, strings.Join(axes, ", ")))
	}
}

// maxRate bounds the integers of a velocity, so that no intermediate of the extrapolation exceeds 2^53.
const maxRate = 1<<20 - 1

// link resolves move=, turn= and frame=, which name a Go field beside the tagged one.
func (s *scan) link() {
	for _, l := range s.leaves {
		word, ref := "move", &l.Move
		if l.Turn != "" {
			word, ref = "turn", &l.Turn
		}
		if *ref == "" {
			continue
		}
		say := func(format string, args ...any) {
			s.errorf(l.path, "%s=%s: %s", word, *ref, fmt.Sprintf(format, args...))
		}
		switch to := s.find(l.path, *ref); {
		case to == nil:
			say("there is no such visible field beside it")
		case to.bad: // was said
		case to == l:
			say("a field cannot refer to itself")
		case word == "turn" && to.Kind != kindFloat:
			say("%s is no float in radians a second", to.path)
		case to.Kind == kindAngle:
			say("%s is an angle, not units a second", to.path)
		case !to.ordered():
			say("%s is no signed number", to.path)
		case to.Owner && !l.Owner:
			say("%s is the owner's alone, so others could not follow", to.path)
		case to.Move != "":
			say("%s is extrapolated itself, along %s; only one step is possible", to.path, to.Move)
		case to.Min < -maxRate || to.Max > maxRate:
			say("%s has %d to %d quanta; what others are extrapolated along must stay within ±%d: take a larger q= or a smaller range=", to.path, to.Min, to.Max, maxRate)
		default:
			l.rate, *ref = to, to.Name
		}
	}
	s.bodies()
}

// bodies resolves frame=.
func (s *scan) bodies() {
	type group struct{ angle, fields []*leaf }
	var groups []*group // by angle, in the order of the schema
	for _, l := range s.leaves {
		if l.frame == "" {
			continue
		}
		angle := s.bodyAngle(l)
		if angle == nil {
			continue
		}
		l.body, l.Frame = angle, angle.Name
		i := slices.IndexFunc(groups, func(g *group) bool { return g.angle[0] == angle })
		if i < 0 {
			i, groups = len(groups), append(groups, &group{angle: []*leaf{angle}})
		}
		groups[i].fields = append(groups[i].fields, l)
	}
	for _, g := range groups {
		first, n := g.fields[0], len(g.fields)
		if n != 2 {
			if slices.ContainsFunc(s.leaves, func(l *leaf) bool { return l.bad }) {
				continue // which may be the one that is missing
			}
			s.errorf(first.path, "frame=body is on %s, all turned by %s; it wants exactly two fields: the speed ahead, then the speed to the left",
				plural(n, "field"), g.angle[0].path)
			continue
		}
		if left := g.fields[1]; first.Q != left.Q {
			s.errorf(left.path, "has a quantum of %v and %s one of %v; two velocities of one body need the same q=", left.Q, first.path, first.Q)
			continue
		}
		var movers [2][]*leaf
		for _, l := range s.leaves {
			for side, v := range g.fields {
				if l.rate != v {
					continue
				}
				movers[side] = append(movers[side], l)
				for _, base := range []*leaf{g.fields[1-side], g.angle[0]} {
					if base.Owner && !l.Owner {
						s.errorf(l.path, "move=%s: that is a body's velocity, and of the body %s is the owner's alone, so others could not follow", l.Move, base.path)
					}
				}
			}
		}
		for side, m := range movers {
			if len(m) > 1 && len(movers[1-side]) < len(m) {
				s.errorf(m[1].path, "moves along %s like %s; in a body's frame one position moves by each of %s and %s", g.fields[side].path, m[0].path, first.path, g.fields[1].path)
			}
		}
	}
}

// bodyAngle finds the angle that frame= of l means; nil after a mistake.
func (s *scan) bodyAngle(l *leaf) *leaf {
	if name, named := strings.CutPrefix(l.frame, "body:"); named {
		switch a := s.find(l.path, name); {
		case a == nil:
			s.errorf(l.path, "frame=%s: there is no such visible field beside it", l.frame)
		case a.bad: // was said
		case a.Kind != kindAngle:
			s.errorf(l.path, "frame=%s: %s is no angle", l.frame, a.path)
		case a.Owner && !l.Owner:
			s.errorf(l.path, "frame=%s: %s is the owner's alone, so others could not follow", l.frame, a.path)
		default:
			return a
		}
		return nil
	}
	var angles []*leaf
	bad := false
	for _, a := range s.leaves {
		if bad = bad || a.bad; a.Kind == kindAngle && (!a.Owner || l.Owner) {
			angles = append(angles, a)
		}
	}
	switch {
	case len(angles) == 1:
		return angles[0]
	case len(angles) > 1:
		s.errorf(l.path, "frame=body: %s and %s are angles; name the one that turns it: frame=body:%s", angles[0].path, angles[1].path, angles[0].path)
	case !bad: // else the angle may be the field with the mistake
		s.errorf(l.path, "frame=body: no visible field is an angle that everybody who gets this may know; add one, such as Yaw float64 `drumline:\"angle\"`")
	}
	return nil
}

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// extrapolate sets what link found and everything is in its final order for.
func (s *scan) extrapolate() {
	index := func(l *leaf) int { return slices.Index(s.leaves, l) }
	for _, l := range s.leaves {
		l.Pose = l.Pose || !s.event && (l.rate != nil || l.Kind == kindAngle || l.Lod != nil || l.TolQ > 0 || l.Place)
		if l.rate == nil {
			continue
		}
		l.rate.Pose = true
		if s.hz < 1 {
			continue // without a beat nothing is extrapolated
		}
		mul, shift, err := wire.AheadStep(l.rate.Q / (2 * 16 * float64(s.hz) * l.Q))
		if err != nil {
			s.errorf(l.path, "a quantum of %v along %s with one of %v at %d steps a second: %s; take quanta that are nearer to each other",
				l.Q, l.rate.path, l.rate.Q, s.hz, strings.TrimPrefix(err.Error(), "wire: "))
			continue
		}
		if mul == 0 {
			s.errorf(l.path, "a quantum of %v is so large against the %v of %s that nothing would move; take a smaller one", l.Q, l.rate.Q, l.rate.path)
			continue
		}
		l.Ahead = &ahead{By: index(l.rate), Mul: mul, Shift: shift}
		if l.rate.body == nil {
			continue
		}
		// The other velocity of the same body.
		i := slices.IndexFunc(s.leaves, func(v *leaf) bool { return v != l.rate && v.body == l.rate.body })
		first, left, side := l.rate, s.leaves[i], 0
		if left.src.off < first.src.off {
			first, left, side = left, first, 1
		}
		a := index(l.rate.body)
		left.Pose, first.Pose = true, true
		l.Ahead.By, l.Ahead.By2, l.Ahead.Angle, l.Ahead.Side = index(first), index(left), &a, side
	}
}

// find looks for the leaf that ref names as seen from path. Beside the field itself it looks beside the structs around it, for
// a tag may stand on a struct: `Pos Vec "move=Vel"` sends Pos.X to Vel.X.
func (s *scan) find(path, ref string) *leaf {
	prefix, tail := path, ""
	for prefix != "" {
		var last string
		if i := strings.LastIndexByte(prefix, '.'); i >= 0 {
			prefix, last = prefix[:i], prefix[i+1:]
		} else {
			prefix, last = "", prefix
		}
		base := ref
		if prefix != "" {
			base = prefix + "." + ref
		}
		for _, l := range s.leaves {
			if l.path == base || tail != "" && l.path == base+tail {
				return l
			}
		}
		tail = "." + last + tail
	}
	return nil
}

// fieldName is a field's name in the schema: its json tag's, or its own in lower camel case.
func fieldName(f reflect.StructField) string {
	if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
		return name
	}
	r := []rune(f.Name)
	for i := range r {
		// "HPMax" becomes hpMax: the last capital of a run begins the next word.
		if !unicode.IsUpper(r[i]) || i > 0 && i+1 < len(r) && unicode.IsLower(r[i+1]) {
			break
		}
		r[i] = unicode.ToLower(r[i])
	}
	return string(r)
}
