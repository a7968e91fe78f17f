package snap

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/drumline-engine/drumline/wire"
)

// MaxFields is the largest number of fields that the clients see of one entity or event type.
const MaxFields = 32

// MaxTextBytes is the largest max= of a string field.
const MaxTextBytes = 1024

// maxTypes is the largest number of entity types, and of event types, of a feed.
const maxTypes = 64

// kind says how a column's integer becomes a value.
type kind uint8

const (
	kindFloat kind = iota // k·q
	kindInt               // k
	kindUint              // k as a uint32
	kindBool              // 0 or 1
	kindAngle             // k·2π/4096, 0 ≤ k < 4096
	kindText              // no column: a string
)

var kindNames = [...]string{"float", "int", "uint", "bool", "angle", "text"}

func (k kind) MarshalText() ([]byte, error) { return []byte(kindNames[k]), nil }

func (k *kind) UnmarshalText(b []byte) error {
	i := slices.Index(kindNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("unknown kind %q", b)
	}
	*k = kind(i)
	return nil
}

// schema is what travels in the welcome. Its JSON is read by NewDecoder and by web/src/snap.ts.
type schema struct {
	Version int          `json:"version"` // schemaVersion
	Hash    uint32       `json:"hash"`    // over the JSON with hash 0; tells two schemas apart
	Hz      int          `json:"hz"`      // steps a second
	Types   []typeSchema `json:"types"`   // by number, as on the wire
	Events  []typeSchema `json:"events"`
}

const schemaVersion = 2

type typeSchema struct {
	Name string `json:"name"`
	// Fields stand in wire order: numbers for all, numbers for the owner, texts for all, texts for the owner.
	Fields []fieldSchema `json:"fields"`
}

type fieldSchema struct {
	Name string  `json:"name"` // "pos.x"
	Kind kind    `json:"kind"`
	Bits uint    `json:"bits"` // width on the wire; for a text, of its length in bytes
	Min  int64   `json:"min"`  // the smallest integer: for a float, in quanta
	Max  int64   `json:"max"`  // the largest; of a text, its longest in bytes
	Q    float64 `json:"q"`    // value of one step; 1 for integers

	// What the codec needs. docs/protocol.md says what each means.
	Owner bool          `json:"owner,omitempty"` // only the owning seat gets it
	Pose  bool          `json:"pose,omitempty"`
	Codes *[rings]uint8 `json:"codes,omitempty"` // nil for texts and columns of one bit
	Lod   *[rings]uint8 `json:"lod,omitempty"`   // low bits rounded away; nil: none
	TolQ  int32         `json:"tolq,omitempty"`  // in quanta
	Ahead *ahead        `json:"ahead,omitempty"`

	// What was declared, for readers and tools.
	Once  bool    `json:"once,omitempty"`  // sent on enter and when it changes
	Move  string  `json:"move,omitempty"`  // the field this one is extrapolated from
	Turn  string  `json:"turn,omitempty"`  // of an angle: the field it turns with, in radians a second
	Frame string  `json:"frame,omitempty"` // the angle that turns the frame this one is measured in
	Tol   float64 `json:"tol,omitempty"`   // error that may stand, in the field's unit
	Place bool    `json:"place,omitempty"` // an axis of the entity's place
}

// rings is the number of interest rings that a feed can have; ring 0 is the innermost.
const rings = 4

// ahead is how a column is extrapolated. Columns are named by their index.
type ahead struct {
	By    int   `json:"by"`
	By2   int   `json:"by2,omitempty"` // with Angle: the speed to the left
	Angle *int  `json:"angle,omitempty"`
	Side  int   `json:"side,omitempty"`
	Mul   int64 `json:"mul"`
	Shift uint  `json:"shift"`
}

// seal sets the hash and returns the JSON.
func (s *schema) seal() json.RawMessage {
	s.Version, s.Hash = schemaVersion, 0
	for _, t := range [][]typeSchema{s.Types, s.Events} {
		for i := range t {
			if t[i].Fields == nil {
				t[i].Fields = []fieldSchema{}
			}
		}
	}
	b := mustJSON(s)
	s.Hash = uint32(wire.NewHash.AddString(string(b)))
	return mustJSON(s)
}

func mustJSON(s *schema) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic("snap: " + err.Error()) // nothing in a schema that was checked can fail to marshal
	}
	return b
}

// check says whether a schema that came from outside can be used.
func (s *schema) check() error {
	if s.Version != schemaVersion {
		return fmt.Errorf("schema version %d, this decoder reads %d", s.Version, schemaVersion)
	}
	for _, list := range [][]typeSchema{s.Types, s.Events} {
		if len(list) > maxTypes {
			return fmt.Errorf("%d types, at most %d", len(list), maxTypes)
		}
		for _, t := range list {
			if len(t.Fields) > MaxFields {
				return fmt.Errorf("type %q has %d fields, at most %d", t.Name, len(t.Fields), MaxFields)
			}
			rank := 0
			for _, f := range t.Fields {
				if r := f.rank(); r < rank {
					return fmt.Errorf("field %q of %q stands in the wrong place", f.Name, t.Name)
				} else {
					rank = r
				}
				switch {
				case f.Kind == kindText && (f.Max < 1 || f.Max > MaxTextBytes || f.Bits != uint(bits.Len(uint(f.Max)))),
					f.Bits < 1, f.Bits > 32, f.Min < math.MinInt32, f.Min > math.MaxUint32,
					!(f.Q > 0), math.IsInf(f.Q, 0):
					return fmt.Errorf("field %q of %q is not possible", f.Name, t.Name)
				}
			}
		}
	}
	return nil
}

// rank is a field's place among the four groups of a type.
func (f *fieldSchema) rank() int {
	r := 0
	if f.Owner {
		r++
	}
	if f.Kind == kindText {
		r += 2
	}
	return r
}

// source is where a field's value stands in the Go struct and how it is quantised.
type source struct {
	off   uintptr
	kind  reflect.Kind
	field kind
	quant wire.Quant // floats
	min   int64      // integers
	max   int64
	// maxBytes bounds a text.
	maxBytes int
	// clamps counts the values that did not fit. Owned by the room's goroutine.
	clamps uint64
}

var nameRE = regexp.MustCompile(`^[a-z][a-zA-Z0-9_-]{0,31}$`)

// words are the parts of a drumline tag.
type words struct {
	q, tol           float64
	lo, hi           float64
	hasQ, hasR, once bool
	angle, owner     bool
	lod, hide, lost  bool
	max              int
	move, turn       string
	frame            string
}

const tagHelp = `words are q=, range=lo:hi, angle, once, max=, owner, move=, turn=, frame=body, lod, tol=, or "-" for server-only`

// parseTag reads a tag over what the struct around it said.
func parseTag(tag string, w words) (words, error) {
	if tag == "" {
		return w, nil
	}
	for i, part := range strings.Split(tag, ",") {
		key, val, has := strings.Cut(strings.TrimSpace(part), "=")
		var err error
		num := func() (v float64) {
			if v, err = strconv.ParseFloat(val, 64); err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
				err = errors.New("not finite")
			}
			return v
		}
		valued := true
		switch key {
		case "q":
			if w.q, w.hasQ = num(), true; err == nil && w.q <= 0 {
				err = errors.New("must be above 0")
			}
		case "tol":
			if w.tol = num(); err == nil && w.tol < 0 {
				err = errors.New("must not be negative")
			}
		case "range":
			lo, hi, ok := strings.Cut(val, ":")
			if !ok {
				err = errors.New("want range=lo:hi")
				break
			}
			w.hasR = true
			val = lo
			w.lo = num()
			if err == nil {
				val = hi
				w.hi = num()
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
			if w.frame = val; val != "body" {
				err = errors.New("the only frame beside the world's is body")
			}
		default:
			valued = false
			switch key {
			case "angle":
				w.angle = true
			case "once":
				w.once = true
			case "owner":
				w.owner = true
			case "lod":
				w.lod = true
			case "-":
				if w.hide = true; i != 0 {
					err = errors.New("must come first")
				}
			case "unsaved":
				if w.lost = true; !w.hide {
					err = errors.New("only for server-only fields: write \"-,unsaved\"")
				}
			default:
				return w, fmt.Errorf("unknown word %q in the tag; %s", part, tagHelp)
			}
		}
		switch {
		case err != nil:
			return w, fmt.Errorf("word %q in the tag: %w", part, err)
		case valued && val == "":
			return w, fmt.Errorf("word %q in the tag wants a value", part)
		case !valued && has:
			return w, fmt.Errorf("word %q in the tag takes no value", part)
		}
	}
	if w.hide && (tag != "-" && tag != "-,unsaved") {
		return w, fmt.Errorf("tag %q: only \"unsaved\" may stand beside \"-\"", tag)
	}
	return w, nil
}

// forLeaf drops what the struct around a field said about fields of another kind, so that one tag may stand on a struct of
// floats and bools. What the field's own tag says stays and is refused if it is wrong.
func (w words) forLeaf(k reflect.Kind, tag string) words {
	own, _ := parseTag(tag, words{}) // an error was reported by the parse over the outer words
	float := k == reflect.Float32 || k == reflect.Float64
	if !float || own.angle {
		w.q, w.hasQ = own.q, own.hasQ
	}
	if own.angle || k == reflect.Bool || k == reflect.String {
		w.lo, w.hi, w.hasR = own.lo, own.hi, own.hasR
	}
	if k == reflect.Bool || k == reflect.String {
		w.move, w.turn, w.frame, w.lod, w.tol = own.move, own.turn, own.frame, own.lod, own.tol
	}
	return w
}

// leaf is a field found in a struct.
type leaf struct {
	fieldSchema
	src  source
	path string // "Pos.X", for messages and for move=
}

// scan collects mistakes and leaves of one type.
type scan struct {
	typ    string
	event  bool
	leaves []leaf
	errs   []error
}

func (s *scan) errorf(path, format string, args ...any) {
	s.errs = append(s.errs, fmt.Errorf("snap: %s.%s: %s", s.typ, path, fmt.Sprintf(format, args...)))
}

// describe reads the tags of struct type t. It returns nil sources when there are mistakes.
func describe(name string, t reflect.Type, event bool) (typeSchema, []source, []error) {
	out := typeSchema{Name: name, Fields: []fieldSchema{}}
	s := scan{typ: t.String(), event: event}
	if !nameRE.MatchString(name) {
		s.errs = append(s.errs, fmt.Errorf("snap: name %q of %s: want a lower-case letter, then letters, digits, dashes and underscores, 1 to 32 in all", name, t))
	}
	if t.Kind() != reflect.Struct {
		s.errs = append(s.errs, fmt.Errorf("snap: %q: %s is not a struct; fields are declared by a struct's fields and their tags", name, t))
		return out, nil, s.errs
	}
	s.walk(t, "", "", 0, words{})
	s.link()
	if n := len(s.leaves); n > MaxFields {
		s.errs = append(s.errs, fmt.Errorf("snap: %s has %d visible fields; at most %d a type: tag some \"-\", or make two types of it", t, n, MaxFields))
	}
	seen := map[string]string{}
	for _, l := range s.leaves {
		if other, dup := seen[l.Name]; dup {
			s.errorf(l.path, "is called %q like %s; rename one with a json tag", l.Name, other)
		}
		seen[l.Name] = l.path
	}
	if s.errs != nil {
		return out, nil, s.errs
	}
	slices.SortStableFunc(s.leaves, func(a, b leaf) int { return a.rank() - b.rank() })
	var src []source
	for _, l := range s.leaves {
		out.Fields, src = append(out.Fields, l.fieldSchema), append(src, l.src)
	}
	return out, src, nil
}

func (s *scan) walk(t reflect.Type, goPath, namePath string, off uintptr, outer words) {
	for i := range t.NumField() {
		f := t.Field(i)
		path := goPath + f.Name
		w, err := parseTag(f.Tag.Get("drumline"), outer)
		switch {
		case err != nil:
			s.errorf(path, "%v", err)
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
		w = w.forLeaf(f.Type.Kind(), f.Tag.Get("drumline"))
		l := leaf{path: path, src: source{off: off + f.Offset, kind: f.Type.Kind()}}
		l.fieldSchema = fieldSchema{
			Name: namePath + name, Q: 1, Owner: w.owner, Once: w.once, Move: w.move, Turn: w.turn, Frame: w.frame, Lod: w.lod, Tol: w.tol,
		}
		if err := l.set(f.Type, w); err != nil {
			s.errorf(path, "%v", err)
			continue
		}
		if s.event && (w.owner || w.move != "" || w.turn != "" || w.lod || w.tol != 0 || w.frame != "") {
			s.errorf(path, "owner, move=, turn=, frame=, lod and tol= have no meaning on an event; use EmitTo for what one seat gets")
			continue
		}
		s.leaves = append(s.leaves, l)
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
			l.Kind, l.Bits, l.Q = kindAngle, wire.AngleBits, wire.AngleQ
			break
		}
		if !w.hasQ || !w.hasR {
			return errors.New("a float needs a quantum and a range, such as `drumline:\"q=0.01,range=0:1000\"`, or angle")
		}
		z, err := wire.NewQuant(w.q, w.lo, w.hi)
		if err != nil {
			return fmt.Errorf("%s; take a larger q= or a smaller range=", strings.TrimPrefix(err.Error(), "wire: "))
		}
		l.Kind, l.Bits, l.Q, l.Min, l.src.quant = kindFloat, z.Bits(), z.Q, int64(z.Min), z
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
		l.Kind, l.Bits, l.Min, l.src.min, l.src.max = kindInt, uint(bits.Len64(uint64(hi-lo))), lo, lo, hi
		if lo >= 0 {
			l.Kind = kindUint
		}
	case reflect.Bool:
		if w.hasQ || w.hasR {
			return errors.New("q= and range= are for numbers")
		}
		l.Kind, l.Bits = kindBool, 1
	case reflect.String:
		if w.hasQ || w.hasR || w.move != "" || w.turn != "" || w.frame != "" || w.tol != 0 || w.lod {
			return errors.New("a string takes once, max= and owner only")
		}
		if !w.once || w.max == 0 {
			return errors.New("a string is sent on enter and when it changes, with a bound in bytes: tag it such as `drumline:\"once,max=24\"`")
		}
		l.Kind, l.Bits, l.Max, l.src.maxBytes = kindText, uint(bits.Len(uint(w.max))), w.max, w.max
	default:
		return fmt.Errorf("clients cannot see a %s: use bool, integers, floats, strings and structs of them, or tag it `drumline:\"-\"`", t)
	}
	l.src.field = l.Kind
	return nil
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

// link resolves move= and turn=, which name a Go field beside the tagged one, to the names of leaves.
func (s *scan) link() {
	for i := range s.leaves {
		l := &s.leaves[i]
		for k, ref := range []*string{&l.Move, &l.Turn} {
			word := [...]string{"move", "turn"}[k]
			if *ref == "" {
				continue
			}
			to := s.find(l.path, *ref, word == "move")
			switch {
			case to == nil:
				s.errorf(l.path, "%s=%s: there is no such visible field beside it", word, *ref)
			case to == l:
				s.errorf(l.path, "%s=%s: a field cannot refer to itself", word, *ref)
			case to.Kind != kindFloat && to.Kind != kindInt && word == "move":
				s.errorf(l.path, "move=%s: %s is no signed number", *ref, to.path)
			case to.Kind != kindAngle && word == "turn":
				s.errorf(l.path, "turn=%s: %s is no angle", *ref, to.path)
			case to.Owner && !l.Owner:
				s.errorf(l.path, "%s=%s: %s is the owner's alone, so others could not follow", word, *ref, to.path)
			default:
				*ref = to.Name
			}
		}
		if l.Frame == "body" && l.Turn == "" {
			s.errorf(l.path, "frame=body needs turn= to name the angle that turns the body")
		}
	}
}

// find looks for the leaf that ref names as seen from path. Beside the field itself it looks beside the structs around it, for
// a tag may stand on a struct: `Pos Vec "move=Vel"` sends Pos.X to Vel.X.
func (s *scan) find(path, ref string, parallel bool) *leaf {
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
		for i := range s.leaves {
			if s.leaves[i].path == base || parallel && tail != "" && s.leaves[i].path == base+tail {
				return &s.leaves[i]
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
