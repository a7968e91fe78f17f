package drumline

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// Definition is a world's declaration with its types erased; see Define. Copies are cheap and equal.
type Definition struct {
	spec Spec
	kind kind
	err  error
}

// kind is what the engine needs of a Kind[I], without I.
type kind interface {
	inputs() *inputCodec
	open(r *Room) (game, error)
	bot(seed uint64) func(dst []byte, v BotView) []byte
	hasBot() bool
}

// Define makes a Definition. Mistakes in k are kept and returned by New.
func Define[I any](k Kind[I]) Definition {
	d := Definition{spec: k.Spec}
	codec, err := newInputCodec(reflect.TypeFor[I]())
	switch {
	case err != nil:
	case k.Open == nil:
		err = errors.New("the Open function is missing")
	default:
		d.kind = &kindOf[I]{k: k, codec: codec}
		err = d.spec.fill()
	}
	if err != nil {
		d.err = fmt.Errorf("drumline: world %q: %w", k.Name, err)
	}
	return d
}

// With returns the definition with a changed Spec, such as another send rate. Mistakes are kept as in Define.
func (d Definition) With(change func(*Spec)) Definition {
	if d.err != nil {
		return d
	}
	change(&d.spec)
	if err := d.spec.fill(); err != nil {
		d.err = fmt.Errorf("drumline: world %q: %w", d.spec.Name, err)
	}
	return d
}

// Err returns the mistake in the declaration, if any.
func (d Definition) Err() error {
	if d.kind == nil && d.err == nil {
		return errors.New("drumline: a world that was not made by Define")
	}
	return d.err
}

// Spec returns the declaration with its defaults filled in.
func (d Definition) Spec() Spec { return d.spec }

// InputSize is the size of one encoded input in bytes.
func (d Definition) InputSize() int { return d.kind.inputs().size }

// InputFields describes an encoded input.
func (d Definition) InputFields() []InputField { return d.kind.inputs().describe() }

// NewBot makes a bot: each call of the function it returns appends one encoded input (InputSize bytes) to dst. Without a
// Kind.Bot it appends zero inputs.
func (d Definition) NewBot(seed uint64) func(dst []byte, v BotView) []byte { return d.kind.bot(seed) }

// HasBot reports whether there is a Kind.Bot, so that bots do more than send zero inputs.
func (d Definition) HasBot() bool { return d.kind.hasBot() }

var namePattern = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// fill sets defaults and returns the first mistake.
func (s *Spec) fill() error {
	if !namePattern.MatchString(s.Name) {
		return errors.New("a Name must be 1 to 32 of a-z, 0-9 and -")
	}
	if s.Title == "" {
		s.Title = s.Name
	}
	if s.Hz < 0 || s.Hz > 1000 {
		return fmt.Errorf("field Hz is %d, must be 0 to 1000", s.Hz)
	}
	if s.SendHz == 0 {
		s.SendHz = 20
		if s.Hz > 0 && s.Hz < 20 {
			s.SendHz = s.Hz
		}
	}
	if s.SendHz < 1 || s.SendHz > 1000 || s.Hz > 0 && s.SendHz > s.Hz {
		return fmt.Errorf("field SendHz is %d, must be 1 to Hz (%d)", s.SendHz, s.Hz)
	}
	if s.Rewind < 0 || s.Rewind > maxRewind || s.Rewind > 0 && s.Hz == 0 {
		return fmt.Errorf("field Rewind is %v, must be 0 to %v, and 0 in rooms without a beat", s.Rewind, maxRewind)
	}
	ints := []struct {
		name     string
		v        *int
		def      int
		low, top int
	}{
		{"Seats", &s.Seats, 16, 1, 1024},
		{"Rooms", &s.Rooms, 50, 1, 100_000},
		{"CatchUp", &s.CatchUp, 3, 1, 100},
		{"BudgetBytes", &s.BudgetBytes, 32 << 10, 1 << 10, 1 << 30},
	}
	for _, f := range ints {
		if *f.v == 0 {
			*f.v = f.def
		}
		if *f.v < f.low || *f.v > f.top {
			return fmt.Errorf("field %s is %d, must be %d to %d", f.name, *f.v, f.low, f.top)
		}
	}
	times := []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{
		{"Grace", &s.Grace, 30 * time.Second},
		{"LingerEmpty", &s.LingerEmpty, 10 * time.Second},
		{"InputHold", &s.InputHold, 250 * time.Millisecond},
	}
	for _, f := range times {
		if *f.v == 0 {
			*f.v = f.def
		}
		if *f.v < 0 {
			return fmt.Errorf("field %s is %v, must not be negative", f.name, *f.v)
		}
	}
	return nil
}

// kindOf is the typed half of a Definition.
type kindOf[I any] struct {
	k     Kind[I]
	codec *inputCodec
}

func (k *kindOf[I]) inputs() *inputCodec { return k.codec }

func (k *kindOf[I]) open(r *Room) (game, error) {
	w, err := k.k.Open(r)
	if err != nil {
		return nil, err
	}
	if w == nil {
		return nil, errors.New("the Open function returned no world")
	}
	return &gameOf[I]{World: w, codec: k.codec}, nil
}

func (k *kindOf[I]) hasBot() bool { return k.k.Bot != nil }

func (k *kindOf[I]) bot(seed uint64) func(dst []byte, v BotView) []byte {
	if k.k.Bot == nil {
		return func(dst []byte, _ BotView) []byte { return append(dst, make([]byte, k.codec.size)...) }
	}
	think := k.k.Bot(seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	in := new(I)
	v := reflect.ValueOf(in).Elem()
	return func(dst []byte, view BotView) []byte {
		view.Rand = rnd
		*in = think(view)
		return k.codec.append(dst, v)
	}
}

// inputCodec reads and writes a world's input struct: bools packed into leading bits, then the other fields, little-endian.
type inputCodec struct {
	fields   []inputField
	bools    int
	bitBytes int
	size     int
}

type inputField struct {
	index int // in the struct
	name  string
	kind  reflect.Kind
}

var inputKinds = map[reflect.Kind]struct {
	name string
	size int
}{
	reflect.Bool: {"bool", 0}, reflect.Int8: {"i8", 1}, reflect.Uint8: {"u8", 1}, reflect.Int16: {"i16", 2},
	reflect.Uint16: {"u16", 2}, reflect.Int32: {"i32", 4}, reflect.Uint32: {"u32", 4}, reflect.Float32: {"f32", 4},
}

const (
	maxInputFields = 32
	maxInputBytes  = 64
)

func newInputCodec(t reflect.Type) (*inputCodec, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("the input type %v is not a struct", t)
	}
	if n := t.NumField(); n > maxInputFields {
		return nil, fmt.Errorf("the input type %v has %d fields, at most %d are possible", t, n, maxInputFields)
	}
	c := &inputCodec{}
	var others []inputField
	for i := range t.NumField() {
		f := t.Field(i)
		k, ok := inputKinds[f.Type.Kind()]
		if !ok || !f.IsExported() {
			return nil, fmt.Errorf("the input field %v.%s (%v) must be exported and a bool, int8, uint8, int16, uint16, int32, uint32 or float32",
				t, f.Name, f.Type)
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			r := []rune(f.Name)
			r[0] = unicode.ToLower(r[0])
			if strings.ToUpper(f.Name) == f.Name { // DX becomes dx
				r = []rune(strings.ToLower(f.Name))
			}
			name = string(r)
		}
		field := inputField{i, name, f.Type.Kind()}
		if field.kind == reflect.Bool {
			c.fields = append(c.fields, field)
			c.bools++
		} else {
			others = append(others, field)
			c.size += k.size
		}
	}
	c.fields = append(c.fields, others...)
	c.bitBytes = (c.bools + 7) / 8
	c.size += c.bitBytes
	if c.size > maxInputBytes {
		return nil, fmt.Errorf("the input type %v takes %d bytes, at most %d are possible", t, c.size, maxInputBytes)
	}
	return c, nil
}

func (c *inputCodec) describe() []InputField {
	out := make([]InputField, len(c.fields))
	for i, f := range c.fields {
		out[i] = InputField{f.name, inputKinds[f.kind].name}
	}
	return out
}

// bits returns the bools of an encoded input.
func (c *inputCodec) bits(src []byte) (bits uint32) {
	for i := range c.bitBytes {
		bits |= uint32(src[i]) << (8 * i)
	}
	return bits
}

// valid reports whether src can be an input: right size, no spare bit set, every float finite.
func (c *inputCodec) valid(src []byte) bool {
	if len(src) != c.size || c.bools < 32 && c.bits(src)>>c.bools != 0 {
		return false
	}
	p := src[c.bitBytes:]
	for _, f := range c.fields[c.bools:] {
		if f.kind == reflect.Float32 {
			if x := math.Float32frombits(binary.LittleEndian.Uint32(p)); x-x != 0 {
				return false
			}
		}
		p = p[inputKindSize(f.kind):]
	}
	return true
}

func inputKindSize(k reflect.Kind) int {
	switch k {
	case reflect.Int8, reflect.Uint8:
		return 1
	case reflect.Int16, reflect.Uint16:
		return 2
	}
	return 4
}

// decode sets all of v, a struct of the codec's type. src is valid.
func (c *inputCodec) decode(src []byte, v reflect.Value) {
	c.decodeBits(c.bits(src), v)
	p := src[c.bitBytes:]
	for _, f := range c.fields[c.bools:] {
		x := v.Field(f.index)
		switch f.kind {
		case reflect.Int8:
			x.SetInt(int64(int8(p[0])))
		case reflect.Uint8:
			x.SetUint(uint64(p[0]))
		case reflect.Int16:
			x.SetInt(int64(int16(binary.LittleEndian.Uint16(p))))
		case reflect.Uint16:
			x.SetUint(uint64(binary.LittleEndian.Uint16(p)))
		case reflect.Int32:
			x.SetInt(int64(int32(binary.LittleEndian.Uint32(p))))
		case reflect.Uint32:
			x.SetUint(uint64(binary.LittleEndian.Uint32(p)))
		case reflect.Float32:
			x.SetFloat(float64(math.Float32frombits(binary.LittleEndian.Uint32(p))))
		}
		p = p[inputKindSize(f.kind):]
	}
}

// decodeBits sets the bools of v.
func (c *inputCodec) decodeBits(bits uint32, v reflect.Value) {
	for i, f := range c.fields[:c.bools] {
		v.Field(f.index).SetBool(bits>>i&1 != 0)
	}
}

// append encodes v.
func (c *inputCodec) append(dst []byte, v reflect.Value) []byte {
	var bits uint32
	for i, f := range c.fields[:c.bools] {
		if v.Field(f.index).Bool() {
			bits |= 1 << i
		}
	}
	for i := range c.bitBytes {
		dst = append(dst, byte(bits>>(8*i)))
	}
	for _, f := range c.fields[c.bools:] {
		x := v.Field(f.index)
		switch f.kind {
		case reflect.Int8:
			dst = append(dst, byte(x.Int()))
		case reflect.Uint8:
			dst = append(dst, byte(x.Uint()))
		case reflect.Int16:
			dst = binary.LittleEndian.AppendUint16(dst, uint16(x.Int()))
		case reflect.Uint16:
			dst = binary.LittleEndian.AppendUint16(dst, uint16(x.Uint()))
		case reflect.Int32:
			dst = binary.LittleEndian.AppendUint32(dst, uint32(x.Int()))
		case reflect.Uint32:
			dst = binary.LittleEndian.AppendUint32(dst, uint32(x.Uint()))
		case reflect.Float32:
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(x.Float())))
		}
	}
	return dst
}
