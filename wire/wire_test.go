package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/wire.json anew; web/src/wire.ts must agree")

const vectorFile = "testdata/wire.json"

// vectors is testdata/wire.json. Numbers that JSON does not know are the strings NaN, Infinity and -Infinity.
type vectors struct {
	Bits   []bitsVector  `json:"bits"`
	Bad    []badVector   `json:"bad"`
	Quant  []quantVector `json:"quant"`
	Angle  []angleVector `json:"angle"`
	Seq    []seqVector   `json:"seq"`
	Tick   []tickVector  `json:"tick"`
	ZigZag [][2]int64    `json:"zigzag"`
	Hash   []hashVector  `json:"hash"`

	Codes    []codeVector    `json:"codes"`
	EG       []codeVector    `json:"eg"`
	BadCodes []badCodeVector `json:"badCodes"`
	BadEG    []badCodeVector `json:"badEG"`
	Ahead    aheadVectors    `json:"ahead"`
}

// op is a value written: bits, uvarint, varint or text.
type op struct {
	Op string `json:"op"`
	V  int64  `json:"v"`
	N  uint   `json:"n,omitempty"`
	S  string `json:"s,omitempty"`
}

type bitsVector struct {
	Ops []op   `json:"ops"`
	Hex string `json:"hex"`
}

// badVector is input on which reading n values of op fails.
type badVector struct {
	Hex string `json:"hex"`
	Ops []op   `json:"ops"` // V is not looked at
}

type number float64

func (n number) MarshalJSON() ([]byte, error) {
	v := float64(n)
	switch {
	case math.IsNaN(v):
		return []byte(`"NaN"`), nil
	case math.IsInf(v, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(v, -1):
		return []byte(`"-Infinity"`), nil
	}
	return strconv.AppendFloat(nil, v, 'g', -1, 64), nil
}

func (n *number) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseFloat(string(slices.DeleteFunc(slices.Clone(b), func(c byte) bool { return c == '"' })), 64)
	*n = number(v)
	return err
}

type quantVector struct {
	Q    float64 `json:"q"`
	Min  int32   `json:"min"`
	Max  int32   `json:"max"`
	V    number  `json:"v"`
	K    int32   `json:"k"`
	OK   bool    `json:"ok"`
	Back float64 `json:"back"`
}

type angleVector struct {
	V    number  `json:"v"`
	K    int32   `json:"k"`
	OK   bool    `json:"ok"`
	Back float64 `json:"back"`
}

type seqVector struct {
	A     uint16 `json:"a"`
	B     uint16 `json:"b"`
	Diff  int    `json:"diff"`
	Newer bool   `json:"newer"`
}

type tickVector struct {
	Low  uint16 `json:"low"`
	Near uint32 `json:"near"`
	Full uint32 `json:"full"`
}

type hashVector struct {
	Values []int32 `json:"values"`
	Text   string  `json:"text"`
	Hash   uint32  `json:"hash"`
}

func (o op) write(w *Writer) {
	switch o.Op {
	case "bits":
		w.Bits(uint32(o.V), o.N)
	case "uvarint":
		w.Uvarint(uint64(o.V))
	case "varint":
		w.Varint(o.V)
	case "text":
		w.String(o.S)
	}
}

// read reports whether what it reads is what write wrote.
func (o op) read(r *Reader) bool {
	switch o.Op {
	case "bits":
		return r.Bits(o.N) == uint32(o.V)
	case "uvarint":
		return r.Uvarint() == uint64(o.V)
	case "varint":
		return r.Varint() == o.V
	}
	return string(r.Bytes(nil, len(o.S))) == o.S
}

// randomOps makes values of all kinds; what TypeScript cannot hold is left out.
func randomOps(r *rand.Rand, n int) []op {
	ops := []op{}
	for range n {
		switch r.IntN(4) {
		case 0:
			w := uint(r.IntN(33))
			ops = append(ops, op{Op: "bits", V: int64(r.Uint64() & (1<<w - 1)), N: w})
		case 1:
			ops = append(ops, op{Op: "uvarint", V: r.Int64N(1 << (1 + r.IntN(53)))})
		case 2:
			ops = append(ops, op{Op: "varint", V: (r.Int64N(1<<(1+r.IntN(51))) + 1) * int64(1-2*r.IntN(2))})
		default:
			ops = append(ops, op{Op: "text", S: []string{"", "a", "héllo", "\x00"}[r.IntN(4)]})
		}
	}
	return ops
}

func makeVectors() vectors {
	var v vectors
	r := rand.New(rand.NewPCG(1, 2))
	lists := [][]op{
		{},
		{{Op: "bits", V: 1, N: 1}},
		{{Op: "bits", V: 0xffffffff, N: 32}, {Op: "bits", V: 0, N: 0}, {Op: "bits", V: 1, N: 1}, {Op: "bits", V: 0xffffffff, N: 32}},
		{{Op: "uvarint"}, {Op: "uvarint", V: 127}, {Op: "uvarint", V: 128}, {Op: "uvarint", V: 1<<53 - 1}},
		{{Op: "varint"}, {Op: "varint", V: -1}, {Op: "varint", V: 64}, {Op: "varint", V: -1 << 51}},
	}
	for n := range 12 {
		lists = append(lists, randomOps(r, n*3))
	}
	for _, ops := range lists {
		var w Writer
		w.Reset(nil)
		for _, o := range ops {
			o.write(&w)
		}
		v.Bits = append(v.Bits, bitsVector{ops, hex.EncodeToString(w.Finish())})
	}
	v.Bad = []badVector{
		{"", []op{{Op: "bits", N: 1}}},
		{"ff", []op{{Op: "bits", N: 5}, {Op: "bits", N: 4}}},
		{"80", []op{{Op: "uvarint"}}},
		{"8000", []op{{Op: "uvarint"}}},
		{"ffffffffffffffffff02", []op{{Op: "uvarint"}}},
		{"ffffffffffffffffffff01", []op{{Op: "uvarint"}}},
		{"6161", []op{{Op: "text", S: "aaa"}}},
		{"01", []op{{Op: "bits", N: 1}, {Op: "text", S: "a"}}},
	}
	for _, z := range []struct{ q, lo, hi float64 }{{0.01, 0, 1000}, {0.1, -0.35, 7.77}, {1.0 / 256, -512, 512}, {3, 5, 100}, {0.5, -9, -2}} {
		q, err := NewQuant(z.q, z.lo, z.hi)
		if err != nil {
			panic(err)
		}
		vals := []float64{0, z.lo, z.hi, z.lo - float64(z.q*0.49), z.hi + float64(z.q*0.51), math.NaN(), math.Inf(1), math.Inf(-1), 1e300, z.q / 2, -z.q / 2, 1.005, -1.005}
		for range 12 {
			vals = append(vals, float64(r.Float64()*(z.hi-z.lo))+z.lo)
		}
		for _, x := range vals {
			k, ok := q.Quantise(x)
			v.Quant = append(v.Quant, quantVector{z.q, q.Min, q.Max, number(x), k, ok, q.Dequantise(k)})
		}
	}
	angles := []float64{0, math.Pi, -math.Pi, 2 * math.Pi, 7, -7, 1e9, -1e9, 1e15, math.NaN(), math.Inf(1), AngleQ / 2, -AngleQ / 2, 1e300}
	for range 12 {
		angles = append(angles, float64(r.IntN(40000))/1000-20)
	}
	for _, x := range angles {
		k, ok := QuantiseAngle(x)
		v.Angle = append(v.Angle, angleVector{number(x), k, ok, DequantiseAngle(k)})
	}
	for _, p := range [][2]uint16{{0, 0}, {1, 0}, {0, 1}, {0, 65535}, {65535, 0}, {32768, 0}, {0, 32768}, {32767, 0}, {40000, 10000}} {
		v.Seq = append(v.Seq, seqVector{p[0], p[1], SeqDiff(p[0], p[1]), SeqNewer(p[0], p[1])})
	}
	for _, p := range []struct {
		low  uint16
		near uint32
	}{{0, 0}, {5, 3}, {0, 65535}, {65535, 65536}, {65535, 0}, {0, math.MaxUint32}, {100, 1<<31 + 99}, {40000, 1<<20 + 10000}} {
		v.Tick = append(v.Tick, tickVector{p.low, p.near, FullTick(p.low, p.near)})
	}
	for _, x := range []int64{0, -1, 1, -2, 2, 1 << 51, -1 << 51} {
		v.ZigZag = append(v.ZigZag, [2]int64{x, int64(ZigZag(x))})
	}
	for _, h := range []hashVector{{}, {Values: []int32{0}}, {Values: []int32{1, -1, math.MaxInt32, math.MinInt32}}, {Text: "héllo"},
		{Values: []int32{7}, Text: "x"}} {
		if h.Values == nil {
			h.Values = []int32{}
		}
		h.Hash = uint32(hashOf(h))
		v.Hash = append(v.Hash, h)
	}
	v.Codes, v.EG, v.BadCodes, v.BadEG = makeCodeVectors()
	v.Ahead = makeAheadVectors()
	return v
}

func hashOf(v hashVector) Hash {
	h := NewHash
	for _, x := range v.Values {
		h = h.Add(x)
	}
	return h.AddString(v.Text)
}

func TestVectors(t *testing.T) {
	b, err := json.MarshalIndent(makeVectors(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	// Lists of numbers stand on one line.
	b = regexp.MustCompile(`\[[-0-9,\s]*\]`).ReplaceAllFunc(b, func(list []byte) []byte {
		return bytes.Join(bytes.Fields(list), nil)
	})
	b = append(b, '\n')
	if *update {
		if err := os.WriteFile(vectorFile, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(have, b) {
		t.Errorf("%s is not what this code makes; if that is meant, run with -update and mend web/src/wire.ts", vectorFile)
	}
	// What stands in the file is also read, not only written.
	var v vectors
	if err := json.Unmarshal(have, &v); err != nil {
		t.Fatal(err)
	}
	for i, c := range v.Bits {
		raw, _ := hex.DecodeString(c.Hex)
		r := NewReader(raw)
		for k, o := range c.Ops {
			if !o.read(&r) {
				t.Errorf("bits %d: value %d", i, k)
			}
		}
		if err := r.End(); err != nil {
			t.Errorf("bits %d: %v", i, err)
		}
	}
	checkCodeVectors(t, &v)
	for i, c := range v.Bad {
		raw, _ := hex.DecodeString(c.Hex)
		r := NewReader(raw)
		for _, o := range c.Ops {
			o.read(&r)
		}
		if r.Err() == nil {
			t.Errorf("bad %d was read", i)
		}
	}
}

func TestBitsRoundTrip(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		ops := randomOps(r, 1+r.IntN(60))
		head := []byte("head")[:r.IntN(5)]
		var w Writer
		w.Reset(slices.Clone(head))
		bits := 0
		for _, o := range ops {
			m, before := w.Mark(), w.BitLen()
			for range r.IntN(5) { // something that is taken back
				randomOps(r, 1)[0].write(&w)
			}
			w.Rewind(m)
			if w.BitLen() != before {
				t.Fatalf("seed %d: %d bits after Rewind, %d before", seed, w.BitLen(), before)
			}
			o.write(&w)
			bits = w.BitLen()
		}
		b := w.Finish()
		if want := len(head) + (bits+7)/8; len(b) != want || string(b[:len(head)]) != string(head) {
			t.Fatalf("seed %d: %d bytes for %d bits", seed, len(b), bits)
		}
		rd := NewReader(b[len(head):])
		for k, o := range ops {
			if !o.read(&rd) {
				t.Fatalf("seed %d: value %d (%+v)", seed, k, o)
			}
		}
		if err := rd.End(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		// Cut short, reading ends in an error that stays.
		for cut := range len(b) - len(head) {
			rd.Reset(b[len(head):][:cut])
			for _, o := range ops {
				o.read(&rd)
			}
			if err := rd.End(); bits > cut*8 && !errors.Is(err, ErrShort) && !errors.Is(err, ErrVarint) {
				t.Fatalf("seed %d cut to %d: %v", seed, cut, err)
			}
		}
	}
}

func TestColumns(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 100 {
		n := r.IntN(20)
		row, low, width := make([]int32, n), make([]int32, n), make([]uint8, n)
		var a, b Writer
		a.Reset(nil)
		b.Reset(nil)
		a.Bits(1, 3)
		b.Bits(1, 3)
		for i := range row {
			width[i], low[i] = uint8(r.IntN(33)), int32(r.Uint32())
			row[i] = low[i] + int32(r.Uint32())
			a.Bits(uint32(row[i]-low[i]), uint(width[i]))
		}
		b.Columns(row, low, width)
		if !slices.Equal(a.Finish(), b.Finish()) {
			t.Fatalf("row %v, min %v, width %v", row, low, width)
		}
	}
}

func TestReaderEnd(t *testing.T) {
	for _, c := range []struct {
		b    []byte
		read uint
		want error
	}{
		{[]byte{0x01}, 1, nil}, {[]byte{0x03}, 1, ErrTrailing}, {[]byte{0x01, 0}, 1, ErrTrailing}, {[]byte{0xff}, 8, nil},
		{[]byte{0xff}, 9, ErrShort}, {nil, 0, nil},
	} {
		r := NewReader(c.b)
		r.Bits(c.read)
		if err := r.End(); err != c.want {
			t.Errorf("%x after %d bits: %v, want %v", c.b, c.read, err, c.want)
		}
		if c.want == ErrShort && (r.Left() != 0 || r.Bits(3) != 0 || r.Uvarint() != 0 || r.Err() != ErrShort) {
			t.Error("the error does not stay")
		}
	}
	r := NewReader([]byte{1, 2})
	if got := r.Bytes(nil, -1); got != nil || r.Err() != ErrShort {
		t.Error("a negative length was taken")
	}
}

func TestUvarint64(t *testing.T) {
	for _, v := range []uint64{0, 1 << 63, math.MaxUint64} {
		var w Writer
		w.Reset(nil)
		w.Uvarint(v)
		r := NewReader(w.Finish())
		if got := r.Uvarint(); got != v || r.End() != nil {
			t.Errorf("%d came back as %d, %v", v, got, r.Err())
		}
	}
	for _, v := range []int64{0, math.MinInt64, math.MaxInt64} {
		if UnZigZag(ZigZag(v)) != v {
			t.Errorf("zigzag of %d", v)
		}
	}
}

func TestNewQuant(t *testing.T) {
	for _, c := range []struct {
		q, lo, hi float64
		bits      uint // 0: refused
	}{
		{0.01, 0, 1000, 17}, {0.1, 0, 0.3, 2}, {1, -1, 1, 2}, {0.3, 0, 1, 3}, {1, math.MinInt32, math.MaxInt32, 32},
		{0, 0, 1, 0}, {-1, 0, 1, 0}, {math.NaN(), 0, 1, 0}, {math.Inf(1), 0, 1, 0}, {1, 1, 1, 0}, {1, 2, 1, 0}, {1, math.NaN(), 1, 0},
		{1, 0, math.NaN(), 0}, {1, 0, math.Inf(1), 0}, {1, math.Inf(-1), 0, 0}, {1, 0, 1 << 31, 0}, {1e-9, 0, 1000, 0},
	} {
		z, err := NewQuant(c.q, c.lo, c.hi)
		if (err == nil) != (c.bits > 0) || err == nil && z.Bits() != c.bits {
			t.Errorf("q=%v range=%v:%v: %d bits, %v; want %d", c.q, c.lo, c.hi, z.Bits(), err, c.bits)
		}
	}
}

func TestQuantErrorIsHalfAQuantum(t *testing.T) {
	z, _ := NewQuant(0.01, -100, 100)
	r := rand.New(rand.NewPCG(1, 1))
	for range 10000 {
		v := r.Float64()*200 - 100
		k, ok := z.Quantise(v)
		if d := math.Abs(z.Dequantise(k) - v); !ok || d > 0.005+1e-9 {
			t.Fatalf("%v became %v", v, z.Dequantise(k))
		}
		if again, ok := z.Quantise(z.Dequantise(k)); !ok || again != k {
			t.Fatalf("%d became %d on the second round", k, again)
		}
	}
}

func TestHashSeesEveryBit(t *testing.T) {
	base := hashVector{Values: []int32{1, 2, 3, 4}, Text: "ab"}
	seen := map[Hash]string{hashOf(base): "base"}
	note := func(v hashVector, what string) {
		if other, dup := seen[hashOf(v)]; dup {
			t.Errorf("%s hashes like %s", what, other)
		}
		seen[hashOf(v)] = what
	}
	for i := range 4 {
		for bit := range 32 {
			v := base
			v.Values = slices.Clone(base.Values)
			v.Values[i] ^= 1 << bit
			note(v, fmt.Sprint("bit ", bit, " of ", i))
		}
	}
	note(hashVector{Values: base.Values, Text: "ba"}, "another text")
	note(hashVector{Values: []int32{1, 2, 4, 3}, Text: "ab"}, "another order")
	// The same high bit flipped in two values: what the shift in Add is for.
	note(hashVector{Values: []int32{1 ^ math.MinInt32, 2 ^ math.MinInt32, 3, 4}, Text: "ab"}, "two high bits")
}

func FuzzReader(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add([]byte{0x80, 0x80, 1}, []byte{1, 2, 3})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []byte{33, 34, 35, 8})
	f.Fuzz(func(t *testing.T, b, script []byte) {
		r := NewReader(b)
		var out []byte
		for _, s := range script {
			before, left := r.Err(), r.Left()
			switch {
			case s <= 32:
				if v := r.Bits(uint(s)); uint64(v)>>s != 0 {
					t.Fatalf("%d in %d bits", v, s)
				}
			case s == 33:
				r.Uvarint()
			case s == 34:
				r.Varint()
			default:
				out = r.Bytes(out, int(s)-40)
			}
			if before != nil && r.Err() != before || r.Left() < 0 || r.Left() > left || r.Err() != nil && r.Left() != 0 {
				t.Fatal("the error does not stay, or the place is wrong")
			}
		}
		if len(out) > len(b) {
			t.Fatal("more bytes than there are")
		}
		_ = r.End()
	})
}
