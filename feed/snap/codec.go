package snap

import (
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// codec writes and reads a Go value whole, for states. Unlike the wire it keeps every bit and every field.
type codec struct {
	// layout describes the bytes, so that a state of another struct is refused instead of misread.
	layout string
	// min is the fewest bytes a value takes; it bounds what a length may claim.
	min int
	put func(dst []byte, p unsafe.Pointer) ([]byte, error)
	get func(r *stateReader, p unsafe.Pointer)
}

var errState = errors.New("snap: this is no state of this feed")

// stateReader reads a state. After an error everything reads as zero.
type stateReader struct {
	b   []byte
	err error
}

func (r *stateReader) fail() {
	if r.err == nil {
		r.err = errState
	}
	r.b = nil
}

func (r *stateReader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *stateReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// upTo reads a number of at most n.
func (r *stateReader) upTo(n uint64) uint64 {
	v := r.uvarint()
	if v > n {
		r.fail()
		return 0
	}
	return v
}

// count reads how many elements of at least size bytes follow.
func (r *stateReader) count(size int) int {
	if size == 0 {
		return int(r.upTo(1 << 16)) // elements without content: nothing to hold against the claim
	}
	return int(r.upTo(uint64(len(r.b)))) // each takes a byte or more
}

func (r *stateReader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *stateReader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// makeCodec builds the codec of t. path is for messages.
func makeCodec(t reflect.Type, path string) (codec, error) {
	if reflect.PointerTo(t).Implements(marshaler) && reflect.PointerTo(t).Implements(unmarshaler) {
		return marshalCodec(t), nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return codec{"bool", 1, func(dst []byte, p unsafe.Pointer) ([]byte, error) {
			if *(*bool)(p) {
				return append(dst, 1), nil
			}
			return append(dst, 0), nil
		}, func(r *stateReader, p unsafe.Pointer) { *(*bool)(p) = r.upTo(1) == 1 }}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return codec{t.Kind().String(), 1, func(dst []byte, p unsafe.Pointer) ([]byte, error) {
			return binary.AppendVarint(dst, reflect.NewAt(t, p).Elem().Int()), nil
		}, func(r *stateReader, p unsafe.Pointer) {
			v, n := binary.Varint(r.b)
			to := reflect.NewAt(t, p).Elem()
			if n <= 0 || to.OverflowInt(v) {
				r.fail()
				return
			}
			r.b = r.b[n:]
			to.SetInt(v)
		}}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return codec{t.Kind().String(), 1, func(dst []byte, p unsafe.Pointer) ([]byte, error) {
			return binary.AppendUvarint(dst, reflect.NewAt(t, p).Elem().Uint()), nil
		}, func(r *stateReader, p unsafe.Pointer) {
			v, to := r.uvarint(), reflect.NewAt(t, p).Elem()
			if to.OverflowUint(v) {
				r.fail()
				return
			}
			to.SetUint(v)
		}}, nil
	case reflect.Float32:
		return codec{"float32", 4, func(dst []byte, p unsafe.Pointer) ([]byte, error) {
			return binary.LittleEndian.AppendUint32(dst, math.Float32bits(*(*float32)(p))), nil
		}, func(r *stateReader, p unsafe.Pointer) { *(*float32)(p) = math.Float32frombits(r.uint32()) }}, nil
	case reflect.Float64:
		return codec{"float64", 8, func(dst []byte, p unsafe.Pointer) ([]byte, error) {
			return binary.LittleEndian.AppendUint64(dst, math.Float64bits(*(*float64)(p))), nil
		}, func(r *stateReader, p unsafe.Pointer) { *(*float64)(p) = math.Float64frombits(r.uint64()) }}, nil
	case reflect.String:
		return codec{"string", 1, func(dst []byte, p unsafe.Pointer) ([]byte, error) {
			s := *(*string)(p)
			return append(binary.AppendUvarint(dst, uint64(len(s))), s...), nil
		}, func(r *stateReader, p unsafe.Pointer) { *(*string)(p) = string(r.take(r.count(1))) }}, nil
	case reflect.Struct:
		return structCodec(t, path)
	case reflect.Array:
		return arrayCodec(t, path)
	case reflect.Slice:
		return sliceCodec(t, path)
	case reflect.Map:
		return mapCodec(t, path)
	}
	return codec{}, fmt.Errorf("%s: a %s cannot be saved: use values, slices and maps, give its type MarshalBinary and UnmarshalBinary, "+
		"or tag it `drumline:\"-,unsaved\"` if it may be zero after a restore", path, t)
}

var (
	marshaler   = reflect.TypeFor[encoding.BinaryMarshaler]()
	unmarshaler = reflect.TypeFor[encoding.BinaryUnmarshaler]()
)

// marshalCodec saves a type that knows how, such as time.Time or rand.PCG.
func marshalCodec(t reflect.Type) codec {
	return codec{"binary:" + t.String(), 1, func(dst []byte, p unsafe.Pointer) ([]byte, error) {
		b, err := reflect.NewAt(t, p).Interface().(encoding.BinaryMarshaler).MarshalBinary()
		if err != nil {
			return dst, fmt.Errorf("snap: saving a %s: %w", t, err)
		}
		return append(binary.AppendUvarint(dst, uint64(len(b))), b...), nil
	}, func(r *stateReader, p unsafe.Pointer) {
		b := r.take(r.count(1))
		if r.err == nil {
			if err := reflect.NewAt(t, p).Interface().(encoding.BinaryUnmarshaler).UnmarshalBinary(b); err != nil {
				r.fail()
			}
		}
	}}
}

func structCodec(t reflect.Type, path string) (codec, error) {
	type part struct {
		off uintptr
		c   codec
	}
	var parts []part
	var text strings.Builder
	out := codec{}
	text.WriteString("{")
	for i := range t.NumField() {
		f := t.Field(i)
		if w, err := parseTag(f.Tag.Get("drumline"), words{}); f.Name == "_" || err == nil && w.lost {
			continue
		}
		c, err := makeCodec(f.Type, path+"."+f.Name)
		if err != nil {
			return codec{}, err
		}
		parts = append(parts, part{f.Offset, c})
		out.min += c.min
		text.WriteString(f.Name + " " + c.layout + ";")
	}
	text.WriteString("}")
	out.layout = text.String()
	out.put = func(dst []byte, p unsafe.Pointer) (_ []byte, err error) {
		for i := range parts {
			if dst, err = parts[i].c.put(dst, unsafe.Add(p, parts[i].off)); err != nil {
				return dst, err
			}
		}
		return dst, nil
	}
	out.get = func(r *stateReader, p unsafe.Pointer) {
		for i := range parts {
			parts[i].c.get(r, unsafe.Add(p, parts[i].off))
		}
	}
	return out, nil
}

func arrayCodec(t reflect.Type, path string) (codec, error) {
	c, err := makeCodec(t.Elem(), path+"[]")
	if err != nil {
		return c, err
	}
	n, size := t.Len(), t.Elem().Size()
	return codec{fmt.Sprintf("[%d]%s", n, c.layout), n * c.min, func(dst []byte, p unsafe.Pointer) (_ []byte, err error) {
		for i := range n {
			if dst, err = c.put(dst, unsafe.Add(p, uintptr(i)*size)); err != nil {
				return dst, err
			}
		}
		return dst, nil
	}, func(r *stateReader, p unsafe.Pointer) {
		for i := range n {
			c.get(r, unsafe.Add(p, uintptr(i)*size))
		}
	}}, nil
}

func sliceCodec(t reflect.Type, path string) (codec, error) {
	c, err := makeCodec(t.Elem(), path+"[]")
	if err != nil {
		return c, err
	}
	// The length is written plus one: 0 is a nil slice, which a world may tell from an empty one.
	return codec{"[]" + c.layout, 1, func(dst []byte, p unsafe.Pointer) (_ []byte, err error) {
		v := reflect.NewAt(t, p).Elem()
		if v.IsNil() {
			return append(dst, 0), nil
		}
		dst = binary.AppendUvarint(dst, uint64(v.Len())+1)
		for i := range v.Len() {
			if dst, err = c.put(dst, v.Index(i).Addr().UnsafePointer()); err != nil {
				return dst, err
			}
		}
		return dst, nil
	}, func(r *stateReader, p unsafe.Pointer) {
		n := r.count(c.min)
		if n == 0 {
			return
		}
		// Grown by appending: a length is believed only as far as its elements come.
		v := reflect.MakeSlice(t, 0, min(n-1, 16))
		zero := reflect.Zero(t.Elem())
		for i := 0; i < n-1 && r.err == nil; i++ {
			v = reflect.Append(v, zero)
			c.get(r, v.Index(i).Addr().UnsafePointer())
		}
		reflect.NewAt(t, p).Elem().Set(v)
	}}, nil
}

func mapCodec(t reflect.Type, path string) (codec, error) {
	switch k := t.Key().Kind(); {
	case k >= reflect.Int && k <= reflect.Uint64, k == reflect.String, k == reflect.Bool:
	default:
		return codec{}, fmt.Errorf("%s: a map with keys of type %s cannot be saved in a fixed order: use integers, strings or bools as keys", path, t.Key())
	}
	key, err := makeCodec(t.Key(), path+"[key]")
	if err != nil {
		return key, err
	}
	val, err := makeCodec(t.Elem(), path+"[]")
	if err != nil {
		return val, err
	}
	return codec{"map[" + key.layout + "]" + val.layout, 1, func(dst []byte, p unsafe.Pointer) (_ []byte, err error) {
		m := reflect.NewAt(t, p).Elem()
		if m.IsNil() {
			return append(dst, 0), nil
		}
		keys := m.MapKeys()
		slices.SortFunc(keys, compareKeys)
		dst = binary.AppendUvarint(dst, uint64(len(keys))+1)
		k, v := reflect.New(t.Key()), reflect.New(t.Elem())
		for _, x := range keys {
			k.Elem().Set(x)
			v.Elem().Set(m.MapIndex(x))
			if dst, err = key.put(dst, k.UnsafePointer()); err != nil {
				return dst, err
			}
			if dst, err = val.put(dst, v.UnsafePointer()); err != nil {
				return dst, err
			}
		}
		return dst, nil
	}, func(r *stateReader, p unsafe.Pointer) {
		n := r.count(key.min + val.min)
		if n == 0 {
			return
		}
		m := reflect.MakeMap(t)
		for i := 0; i < n-1 && r.err == nil; i++ {
			k, v := reflect.New(t.Key()), reflect.New(t.Elem())
			key.get(r, k.UnsafePointer())
			val.get(r, v.UnsafePointer())
			if r.err == nil && m.MapIndex(k.Elem()).IsValid() {
				r.fail()
				return
			}
			m.SetMapIndex(k.Elem(), v.Elem())
		}
		reflect.NewAt(t, p).Elem().Set(m)
	}}, nil
}

func compareKeys(a, b reflect.Value) int {
	less := func(x, y bool) int {
		switch {
		case x:
			return -1
		case y:
			return 1
		}
		return 0
	}
	switch {
	case a.CanInt():
		return less(a.Int() < b.Int(), b.Int() < a.Int())
	case a.CanUint():
		return less(a.Uint() < b.Uint(), b.Uint() < a.Uint())
	case a.Kind() == reflect.Bool:
		return less(!a.Bool() && b.Bool(), a.Bool() && !b.Bool())
	}
	return strings.Compare(a.String(), b.String())
}
