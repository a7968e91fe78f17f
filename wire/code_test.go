package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// codeVector is numbers written one after the other in one of the 16 prefix codes; or in EG with Code low bits.
type codeVector struct {
	Code uint8    `json:"code"`
	U    []uint32 `json:"u"`
	Bits []int    `json:"bits"` // of each
	Hex  string   `json:"hex"`
}

// badCodeVector is input whose first code is none.
type badCodeVector struct {
	Code uint8  `json:"code"`
	Hex  string `json:"hex"`
}

// codeEdges are numbers at which a code with k low bits changes its length, and the ends of the range.
func codeEdges(k uint) []uint32 {
	edges := []uint64{0, 1, 2, 3, 5, 100, math.MaxUint32 - 1, math.MaxUint32, 1 << 31, 1<<31 - 1}
	for _, n := range []uint{1, 2, 8, 12, 13, 15, 16, 24, 25, 28, 31, 32} {
		e := (uint64(1)<<n - 1) << k // the first with n more one-bits, also after a bit for zero
		edges = append(edges, e-1, e, e+1)
	}
	var out []uint32
	for _, e := range edges {
		if e <= math.MaxUint32 {
			out = append(out, uint32(e))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func makeCodeVectors() (codes, eg []codeVector, badCodes, badEG []badCodeVector) {
	for c := range uint8(Codes) {
		v := codeVector{Code: c, U: codeEdges(uint(c & 7))}
		var w Writer
		w.Reset(nil)
		for _, u := range v.U {
			w.Code(u, c)
			v.Bits = append(v.Bits, CodeBits(u, c))
		}
		v.Hex = hex.EncodeToString(w.Finish())
		codes = append(codes, v)
	}
	for k := uint8(8); k <= 31; k++ {
		v := codeVector{Code: k, U: codeEdges(uint(k))}
		var w Writer
		w.Reset(nil)
		for _, u := range v.U {
			n := w.BitLen()
			w.EG(u, uint(k))
			v.Bits = append(v.Bits, w.BitLen()-n)
		}
		v.Hex = hex.EncodeToString(w.Finish())
		eg = append(eg, v)
	}
	// ones one-bits, a zero, then the numbers of 32 bits; with tail zero bytes after them.
	made := func(ones uint, tail int, after ...uint32) string {
		var w Writer
		w.Reset(nil)
		w.Bits(math.MaxUint32, min(ones, 32))
		w.Bits(math.MaxUint32, ones-min(ones, 32))
		w.Bits(0, 1)
		for _, x := range after {
			w.Bits(x, 32)
		}
		return hex.EncodeToString(append(w.Finish(), make([]byte, tail)...))
	}
	for c := range uint8(Codes) {
		k, esc := uint(c&7), uint(c>>3)
		for _, tail := range []int{0, 9} {
			badCodes = append(badCodes,
				badCodeVector{c, made(33-k+esc, tail)},               // too many one-bits
				badCodeVector{c, made(32-k+esc, tail, 1<<(31-k), 0)}, // as many as there may be, and a number too large
				badCodeVector{c, made(60, tail)})
		}
		if esc == 1 {
			// u-1 is 2^32-1: the largest q and low bits that are all ones.
			var w Writer
			w.Reset(nil)
			w.Bits(math.MaxUint32, 32-k)
			w.Bits(1, 2)
			w.Bits(0, 32-k)
			w.Bits(math.MaxUint32, k)
			badCodes = append(badCodes, badCodeVector{c, hex.EncodeToString(append(w.Finish(), 0, 0, 0, 0, 0, 0, 0, 0))})
		}
		badCodes = append(badCodes, badCodeVector{c, ""})
		if c != 8 && c != 0 {
			badCodes = append(badCodes, badCodeVector{c, "0f"}) // too short
		}
		badCodes = append(badCodes, badCodeVector{c, "ffffff"})
	}
	badCodes = append(badCodes, badCodeVector{16, "00000000"}, badCodeVector{255, "00000000"})
	badEG = []badCodeVector{{32, "0000000000000000"}, {31, "03000000000000000000"}, {31, "0500000000000000"}, {31, "00000000"[:6]}, {16, "ffff01000000000000"}}
	return codes, eg, badCodes, badEG
}

// checkCodeVectors reads what stands in the file.
func checkCodeVectors(t *testing.T, v *vectors) {
	for _, list := range [][]codeVector{v.Codes, v.EG} {
		for _, c := range list {
			raw, _ := hex.DecodeString(c.Hex)
			r := NewReader(raw)
			for i, u := range c.U {
				left := r.Left()
				var got uint32
				if &list[0] == &v.EG[0] {
					got = r.EG(uint(c.Code))
				} else {
					got = r.Code(c.Code)
				}
				if n := left - r.Left(); got != u || n != c.Bits[i] {
					t.Fatalf("code %d: %d in %d bits, want %d in %d", c.Code, got, n, u, c.Bits[i])
				}
			}
			if err := r.End(); err != nil {
				t.Errorf("code %d: %v", c.Code, err)
			}
		}
	}
	for _, c := range v.BadCodes {
		raw, _ := hex.DecodeString(c.Hex)
		r := NewReader(raw)
		if u := r.Code(c.Code); u != 0 || r.Err() != ErrCode && r.Err() != ErrShort || r.Left() != 0 {
			t.Errorf("code %d of %s: %d, %v", c.Code, c.Hex, u, r.Err())
		}
	}
	for _, c := range v.BadEG {
		raw, _ := hex.DecodeString(c.Hex)
		r := NewReader(raw)
		if u := r.EG(uint(c.Code)); u != 0 || r.Err() != ErrCode && r.Err() != ErrShort {
			t.Errorf("EG %d of %s: %d, %v", c.Code, c.Hex, u, r.Err())
		}
	}
}

// drawn is the code as docs/protocol.md draws it, a digit per bit in the order of writing.
func drawn(u uint32, k uint) string {
	q := uint64(u)>>k + 1
	s, n := "", 0
	for q>>n > 1 {
		s += "1"
		n++
	}
	s += "0"
	for i := range n {
		s += fmt.Sprint(q >> i & 1)
	}
	for i := range k {
		s += fmt.Sprint(u >> i & 1)
	}
	return s
}

func TestCodeIsAsDrawn(t *testing.T) {
	digits := func(write func(w *Writer)) string {
		var w Writer
		w.Reset(nil)
		write(&w)
		n := w.BitLen()
		r := NewReader(w.Finish())
		s := ""
		for range n {
			s += fmt.Sprint(r.Bits(1))
		}
		return s
	}
	for k := range uint(32) {
		for _, u := range codeEdges(k) {
			if got, want := digits(func(w *Writer) { w.EG(u, k) }), drawn(u, k); got != want {
				t.Fatalf("EG %d of %d is %s, want %s", k, u, got, want)
			}
		}
	}
	for c := range uint8(Codes) {
		for _, u := range codeEdges(uint(c & 7)) {
			want := ""
			switch {
			case c < 8:
				want = drawn(u, uint(c))
			case u == 0:
				want = "0"
			default:
				want = "1" + drawn(u-1, uint(c-8))
			}
			if got := digits(func(w *Writer) { w.Code(u, c) }); got != want || CodeBits(u, c) != len(want) {
				t.Fatalf("code %d of %d is %s (CodeBits %d), want %s", c, u, got, CodeBits(u, c), want)
			}
		}
	}
	var w Writer
	w.Reset(nil)
	if w.EG(math.MaxUint32, 0); w.BitLen() != 65 {
		t.Errorf("2^32-1 took %d bits", w.BitLen())
	}
}

func TestCodeRoundTrip(t *testing.T) {
	type item struct {
		u uint32
		c uint8 // from 16 on EG c-16
	}
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 8))
		var w Writer
		w.Reset(nil)
		w.Bits(0, uint(rnd.IntN(8)))
		skip := uint(w.BitLen())
		items := make([]item, rnd.IntN(80))
		for i := range items {
			x := item{rnd.Uint32() >> rnd.IntN(32), uint8(rnd.IntN(48))}
			if rnd.IntN(4) == 0 {
				x.u = codeEdges(uint(x.c) & 31)[rnd.IntN(5)]
			}
			items[i] = x
			before := w.BitLen()
			if x.c >= Codes {
				w.EG(x.u, uint(x.c-Codes))
			} else if w.Code(x.u, x.c); w.BitLen()-before != CodeBits(x.u, x.c) {
				t.Fatalf("seed %d: %+v in %d bits, CodeBits says %d", seed, x, w.BitLen()-before, CodeBits(x.u, x.c))
			}
		}
		bits := w.BitLen()
		b := w.Finish()
		for cut := len(b); cut >= 0; cut-- {
			r := NewReader(b[:cut:cut])
			r.Bits(skip)
			for i, x := range items {
				var got uint32
				if x.c >= Codes {
					got = r.EG(uint(x.c - Codes))
				} else {
					got = r.Code(x.c)
				}
				if got != x.u && (r.Err() == nil || got != 0) {
					t.Fatalf("seed %d cut to %d of %d: item %d %+v is read as %d", seed, cut, len(b), i, x, got)
				}
			}
			if err := r.End(); cut*8 >= bits && err != nil || cut*8 < bits && !errors.Is(err, ErrShort) {
				t.Fatalf("seed %d cut to %d of %d: %v", seed, cut, len(b), err)
			}
		}
	}
}

func TestZigZag32(t *testing.T) {
	for i, r := range []int32{0, -1, 1, -2, 2} {
		if ZigZag32(r) != uint32(i) || UnZigZag32(uint32(i)) != r {
			t.Errorf("%d becomes %d", r, ZigZag32(r))
		}
	}
	rnd := rand.New(rand.NewPCG(4, 4))
	for range 1000 {
		r := int32(rnd.Uint32()) >> rnd.IntN(32)
		if u := ZigZag32(r); UnZigZag32(u) != r || uint64(u) != ZigZag(int64(r)) {
			t.Fatalf("%d becomes %d", r, u)
		}
	}
	for _, r := range []int32{math.MaxInt32, math.MinInt32} {
		if u := ZigZag32(r); UnZigZag32(u) != r || uint64(u) != ZigZag(int64(r)) {
			t.Errorf("%d becomes %d", r, u)
		}
	}
}

// A code of a Reader is exactly what a Writer makes of the number: nothing else is accepted, and no more is consumed.
func FuzzCode(f *testing.F) {
	f.Add([]byte{}, []byte{0, 8, 16})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []byte{0, 15, 47})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0}, []byte{8, 8, 8})
	f.Add([]byte{0x5a, 0x13, 0xee, 0x01, 0x77, 0x20, 0x93, 0x4c, 0x00, 0x01, 0x02}, []byte{1, 9, 3, 12, 7, 16, 20, 47, 200})
	_, _, bad, _ := makeCodeVectors()
	for _, c := range bad {
		raw, _ := hex.DecodeString(c.Hex)
		f.Add(raw, []byte{c.Code})
	}
	f.Fuzz(func(t *testing.T, b, script []byte) {
		r := NewReader(b)
		var w Writer
		w.Reset(nil)
		for _, s := range script {
			before, left := r.Err(), r.Left()
			var u uint32
			if s < 128 {
				u = r.Code(s & 31)
			} else {
				u = r.EG(uint(s & 63))
			}
			if r.Err() != nil {
				if u != 0 || r.Left() != 0 || before != nil && r.Err() != before || r.Err() != ErrCode && r.Err() != ErrShort {
					t.Fatalf("%d and %v after %v, %d bits left", u, r.Err(), before, r.Left())
				}
				continue
			}
			n := w.BitLen()
			if s < 128 {
				w.Code(u, s&31)
			} else {
				w.EG(u, uint(s&63))
			}
			if n = w.BitLen() - n; n != left-r.Left() || n > 66 {
				t.Fatalf("%d was read from %d bits and takes %d", u, left-r.Left(), n)
			}
		}
		n := w.BitLen()
		again, first := NewReader(w.Finish()), NewReader(b)
		for ; n > 0; n -= min(n, 32) {
			if k := uint(min(n, 32)); again.Bits(k) != first.Bits(k) {
				t.Fatal("what was read is not what is written")
			}
		}
	})
}

// residuals are like those of a snapshot: mostly small.
func residuals() ([]uint32, []uint8) {
	rnd := rand.New(rand.NewPCG(9, 9))
	u, c := make([]uint32, 1024), make([]uint8, 1024)
	for i := range u {
		u[i], c[i] = ZigZag32(int32(rnd.NormFloat64()*6)), []uint8{2, 3, 8, 10}[i%4]
	}
	return u, c
}

func BenchmarkCode(b *testing.B) {
	u, c := residuals()
	buf := make([]byte, 0, 8<<10)
	var w Writer
	total := 0
	for _, op := range []string{"write", "read", "bits"} {
		b.Run(op, func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				switch op {
				case "write":
					w.Reset(buf)
					for i, x := range u {
						w.Code(x, c[i])
					}
				case "read":
					if n == 0 {
						w.Reset(buf)
						for i, x := range u {
							w.Code(x, c[i])
						}
						buf = w.Finish()
					}
					r := NewReader(buf)
					for i := range u {
						total += int(r.Code(c[i]))
					}
				default:
					for i, x := range u {
						total += CodeBits(x, c[i])
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(u)), "ns/number")
		})
	}
	if total < 0 {
		b.Fatal("a sum of positive numbers")
	}
}
