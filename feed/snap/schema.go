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

// maxHz is the largest number of steps a second.
const maxHz = 1000

// check says whether a schema that came from outside can be used: all that newLayout and a decoder rely on.
func (s *schema) check() error {
	if s.Version != schemaVersion {
		return fmt.Errorf("schema version %d, this decoder reads %d", s.Version, schemaVersion)
	}
	// 0: a room without a beat, where nothing is extrapolated.
	if s.Hz < 0 || s.Hz > maxHz {
		return fmt.Errorf("%d steps a second, want 1 to %d, or 0 without a beat", s.Hz, maxHz)
	}
	for k, list := range [][]typeSchema{s.Types, s.Events} {
		if len(list) > maxTypes {
			return fmt.Errorf("%d types, at most %d", len(list), maxTypes)
		}
		for i := range list {
			if err := list[i].check(k == 1); err != nil {
				return fmt.Errorf("type %q: %w", list[i].Name, err)
			}
			for _, f := range list[i].Fields {
				if f.Ahead != nil && s.Hz == 0 {
					return fmt.Errorf("type %q: field %q is extrapolated without a beat", list[i].Name, f.Name)
				}
			}
		}
	}
	return nil
}

// check says whether a type can be used.
func (t *typeSchema) check(event bool) error {
	if len(t.Fields) > MaxFields {
		return fmt.Errorf("%d fields, at most %d", len(t.Fields), MaxFields)
	}
	rank := 0
	for i := range t.Fields {
		f := &t.Fields[i]
		if f.rank() < rank {
			return fmt.Errorf("field %q stands in the wrong place", f.Name)
		}
		rank = f.rank()
		err := f.check()
		switch {
		case err != nil:
		case event && (f.Owner || f.Pose || f.Lod != nil || f.TolQ != 0 || f.Ahead != nil):
			err = errors.New("no field of an event is an owner's, a pose or rounded for a ring")
		case event: // sent raw, so it has no codes
		case f.Kind == kindText && (f.Pose || f.Codes != nil || f.Lod != nil || f.TolQ != 0 || f.Ahead != nil):
			err = errors.New("a text has no pose, codes, lod, tolerance or extrapolation")
		case f.Kind == kindText:
		case f.Codes == nil && f.Bits > 1, f.Codes != nil && f.Bits == 1:
			err = errors.New("a number has codes unless it has one bit")
		case !f.Pose && (f.Lod != nil || f.TolQ != 0 || f.Ahead != nil):
			err = errors.New("only a pose has lod, tolerance or extrapolation")
		case f.Ahead != nil:
			err = t.checkAhead(f)
		}
		if err != nil {
			return fmt.Errorf("field %q: %w", f.Name, err)
		}
	}
	return nil
}

// check says whether a field can be used as far as it does not depend on others.
func (f *fieldSchema) check() error {
	if f.Kind == kindText {
		if f.Max < 1 || f.Max > MaxTextBytes || f.Bits != uint(bits.Len(uint(f.Max))) {
			return fmt.Errorf("a text of %d bytes with a length of %d bits", f.Max, f.Bits)
		}
		return nil
	}
	lo, hi := int64(math.MinInt32), int64(math.MaxInt32)
	switch f.Kind {
	case kindUint:
		lo, hi = 0, math.MaxUint32
	case kindBool:
		lo, hi = 0, 1
	case kindAngle:
		lo, hi = 0, wire.AngleSteps-1
	}
	// The bits must be those of the range: rounding relies on a multiple of 2^(bits-1) being in it.
	if f.Min >= f.Max || f.Min < lo || f.Max > hi || f.Bits != uint(bits.Len64(uint64(f.Max-f.Min))) {
		return fmt.Errorf("range %d to %d in %d bits is not possible for kind %s", f.Min, f.Max, f.Bits, kindNames[f.Kind])
	}
	if f.Kind == kindAngle && (f.Min != 0 || f.Bits != wire.AngleBits) {
		return fmt.Errorf("an angle of %d bits from %d", f.Bits, f.Min)
	}
	if !(f.Q > 0) || math.IsInf(f.Q, 0) {
		return fmt.Errorf("quantum %v", f.Q)
	}
	if (f.Lod != nil || f.TolQ != 0 || f.Ahead != nil) && !f.ordered() {
		return fmt.Errorf("lod, tolerance or extrapolation of a %s up to %d", kindNames[f.Kind], f.Max)
	}
	if f.TolQ < 0 {
		return fmt.Errorf("tolerance %d", f.TolQ)
	}
	if f.Codes != nil {
		for _, c := range f.Codes {
			if c >= numCodes {
				return fmt.Errorf("code %d, want 0 to %d", c, numCodes-1)
			}
		}
	}
	if f.Lod != nil {
		switch {
		case f.Lod[0] != 0:
			return errors.New("bits are rounded away in the innermost ring")
		case f.Min < -maxCoarse || f.Max > maxCoarse:
			return fmt.Errorf("bits of %d to %d are rounded away", f.Min, f.Max)
		}
		for _, n := range f.Lod {
			if n > f.maxLod() {
				return fmt.Errorf("%d of %d bits rounded away", n, f.Bits)
			}
		}
	}
	return nil
}

// checkAhead says whether a column can be extrapolated as it says.
func (t *typeSchema) checkAhead(f *fieldSchema) error {
	a := f.Ahead
	if a.Mul < 1 || a.Mul >= 1<<19 || a.Shift < 1 || a.Shift > 60 {
		return fmt.Errorf("extrapolated by %d / 2^%d", a.Mul, a.Shift)
	}
	if f.Bits == 1 {
		return errors.New("one bit is extrapolated")
	}
	// column is field i as something that f depends on.
	column := func(i int) (*fieldSchema, error) {
		if i < 0 || i >= len(t.Fields) || t.Fields[i].Kind == kindText {
			return nil, fmt.Errorf("extrapolated along field %d, which is no column", i)
		}
		c := &t.Fields[i]
		if c.Owner && !f.Owner {
			return nil, fmt.Errorf("extrapolated along %q, which is the owner's alone", c.Name)
		}
		return c, nil
	}
	rates := []int{a.By}
	if a.Angle != nil {
		rates = append(rates, a.By2)
	}
	for _, i := range rates {
		v, err := column(i)
		switch {
		case err != nil:
			return err
		case v.Ahead != nil:
			return fmt.Errorf("extrapolated along %q, which is extrapolated itself", v.Name)
		case v.Kind == kindAngle || !v.ordered() || v.Min < -maxRate || v.Max > maxRate:
			return fmt.Errorf("extrapolated along %q, %s from %d to %d", v.Name, kindNames[v.Kind], v.Min, v.Max)
		case !v.Pose:
			return fmt.Errorf("extrapolated along %q, which is no pose", v.Name)
		}
	}
	if a.Angle == nil {
		if a.By2 != 0 || a.Side != 0 {
			return errors.New("a side of a body without an angle")
		}
		return nil
	}
	switch g, err := column(*a.Angle); {
	case err != nil:
		return err
	case g.Kind != kindAngle || f.Kind == kindAngle:
		return fmt.Errorf("field %q is a body's angle for a field of kind %s", g.Name, kindNames[f.Kind])
	case !g.Pose:
		return fmt.Errorf("field %q is a body's angle, and no pose", g.Name)
	case a.Side != 0 && a.Side != 1:
		return fmt.Errorf("side %d of a body", a.Side)
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

// ordered reports whether a column's integers are signed 32-bit numbers that stand for nearer and farther: what can be rounded,
// extrapolated and wrong by a little. An id is not.
func (f *fieldSchema) ordered() bool {
	switch f.Kind {
	case kindFloat, kindInt, kindAngle:
		return true
	case kindUint:
		return f.Max <= math.MaxInt32
	}
	return false
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

// Names travel to the browser: types' as labels too, fields' as properties of objects.
var (
	nameRE  = regexp.MustCompile(`^[a-z][a-zA-Z0-9_-]{0,31}$`)
	fieldRE = regexp.MustCompile(`^[\pL_][\pL\pN_]{0,63}$`)
)
