package wire

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// aheadVectors are calls, each a list of the arguments and then the result.
type aheadVectors struct {
	ZigZag32   [][]int64 `json:"zigzag32"`
	Half       [][]int64 `json:"half"`
	Ahead      [][]int64 `json:"ahead"`
	Body       [][]int64 `json:"body"`
	Round      [][]int64 `json:"round"`
	RoundAngle [][]int64 `json:"roundAngle"`
	AngleDiff  [][]int64 `json:"angleDiff"`
	// Sine is the hash of the sine table: of body(1, i, 1024, 0) for each i.
	Sine uint32 `json:"sine"`
	// Random is what both languages make of the same random entities; see randomAhead.
	Random randomVector `json:"random"`
}

// randomVector holds the hashes of the first groups of 1,000 entities, and the hash of all groups' hashes.
type randomVector struct {
	Groups int      `json:"groups"`
	First  []uint32 `json:"first"`
	Hash   uint32   `json:"hash"`
}

const maxRate = 1<<20 - 1

func makeAheadVectors() (v aheadVectors) {
	for _, r := range []int32{0, -1, 1, -2, 2, 1 << 20, math.MaxInt32, math.MinInt32, math.MinInt32 + 1} {
		v.ZigZag32 = append(v.ZigZag32, []int64{int64(r), int64(ZigZag32(r))})
	}
	for _, s := range []uint{0, 1, 2, 10, 30, 31, 32, 52, 53, 54, 60} {
		h := int64(1) << s >> 1
		for _, x := range []int64{0, 1, h - 1, h, h + 1, 3*h - 1, 3 * h, 3*h + 1, 1<<52 - 1, 1 << 52, 1<<53 - 1, 987654321987654} {
			if x >= 0 && x < 1<<53 {
				v.Half = append(v.Half, []int64{x, int64(s), Half(x, s)}, []int64{-x, int64(s), Half(-x, s)})
			}
		}
	}
	for _, c := range [][5]int64{
		{0, 0, 255, 1<<19 - 1, 1}, {16, 16, 1, 1 << 18, 19}, {16, 17, 1, 1 << 18, 23}, {-16, -17, 1, 1 << 18, 23}, {-100, 100, 9, 1 << 18, 20},
		{16 * maxRate, 16 * maxRate, MaxAhead, 1<<19 - 1, 1}, {-16 * maxRate, -16 * maxRate, MaxAhead, 1<<19 - 1, 1},
		{16 * maxRate, 16 * maxRate, MaxAhead, 1<<19 - 1, 60}, {16 * maxRate, 16 * maxRate, MaxAhead, 1<<19 - 1, 51}, {16 * maxRate, 16 * maxRate, MaxAhead, 1<<19 - 1, 53},
		{16 * maxRate, -16 * maxRate, MaxAhead, 1<<19 - 1, 1}, {16 * maxRate, -16*maxRate - 16, 1, 1 << 18, 22}, {1600, 1616, 3, 349525, 25}, {-5, 4, 0, 349525, 25}, {1600, 1600, 255, 0, 1},
	} {
		v.Ahead = append(v.Ahead, []int64{c[0], c[1], c[2], c[3], c[4], int64(Ahead(c[0], c[1], c[2], c[3], uint(c[4])))})
	}
	for side := range int64(2) {
		for _, angle := range []int32{0, 1, 512, 1024, 1025, 2047, 2048, 3072, 4095, 4096, -1, -1024, math.MinInt32, math.MaxInt32} {
			for _, m := range [][2]int32{{maxRate, maxRate}, {-maxRate, maxRate}, {0, 0}, {300, -7}, {-1, 0}} {
				v.Body = append(v.Body, []int64{side, int64(angle), int64(m[0]), int64(m[1]), Body(int(side), angle, m[0], m[1])})
			}
		}
	}
	for _, s := range []uint{0, 1, 2, 5, 16, 30} {
		for _, b := range [][2]int32{{-1000, 1001}, {0, 99999}, {math.MinInt32, math.MaxInt32}, {7, 8}} {
			for _, x := range []int32{0, 1, -1, 2, 3, 7, 15, 16, -15, -16, -17, b[0], b[1], b[0] + 1, b[1] - 1, 50000, math.MaxInt32, math.MinInt32, 1 << 29} {
				v.Round = append(v.Round, []int64{int64(x), int64(s), int64(b[0]), int64(b[1]), int64(Round(x, s, b[0], b[1]))})
			}
		}
	}
	angles := []int32{0, 1, 3, 4, 2047, 2048, 2049, 4092, 4094, 4095, 4096, -1, -5000, math.MaxInt32, math.MinInt32}
	for _, x := range angles {
		for _, s := range []uint{0, 1, 3, 6, 11, 12} {
			v.RoundAngle = append(v.RoundAngle, []int64{int64(x), int64(s), int64(RoundAngle(x, s))})
		}
		for _, b := range angles {
			v.AngleDiff = append(v.AngleDiff, []int64{int64(x), int64(b), int64(AngleDiff(x, b))})
		}
	}
	h := NewHash
	for i := range int32(AngleSteps) {
		h = h.Add(int32(Body(1, i, 1024, 0)))
	}
	v.Sine = uint32(h)
	v.Random.Groups = 1000
	h = NewHash
	random := newRandomAhead()
	for i := range v.Random.Groups {
		g := random.group(1000)
		if i < 10 {
			v.Random.First = append(v.Random.First, uint32(g))
		}
		h = h.Add(int32(g))
	}
	v.Random.Hash = uint32(h)
	return v
}

// randomAhead makes the same random entities in both languages and does with them what an encoder and a decoder do with a
// residual. Its twin is randomAhead in web/test/wire.test.ts.
type randomAhead struct {
	x    uint32 // xorshift32
	lost int    // values that did not come back
}

func newRandomAhead() *randomAhead { return &randomAhead{x: 0x9e3779b9} }

func (r *randomAhead) next() uint32 {
	r.x ^= r.x << 13
	r.x ^= r.x >> 17
	r.x ^= r.x << 5
	return r.x
}

// signed returns a number of up to bits bits and a sign, small ones as often as large ones.
func (r *randomAhead) signed(bits uint32) int32 {
	w := r.next()
	v := int32(w << (32 - bits) >> (32 - bits) >> (w >> 27 % bits))
	if w&(1<<26) != 0 {
		return -v
	}
	return v
}

// told is what a decoder makes of the residual of value, which is rounded by s.
func (r *randomAhead) told(h Hash, value, expected int32, s uint) Hash {
	u := ZigZag32((value - expected) >> s)
	if expected+UnZigZag32(u)<<s != value {
		r.lost++
	}
	return h.Add(expected).Add(int32(u))
}

func (r *randomAhead) toldAngle(h Hash, value, expected int32, s uint) Hash {
	u := ZigZag32(AngleDiff(value, expected) >> s)
	if (expected+UnZigZag32(u)<<s)&(AngleSteps-1) != value {
		r.lost++
	}
	return h.Add(expected).Add(int32(u))
}

// group returns the hash of what n entities are expected to be and how they are told.
func (r *randomAhead) group(n int) Hash {
	h := NewHash
	for range n {
		// Ranges of the position, how it is rounded, and how far it is extrapolated.
		s := uint(r.next() >> 29)
		hi := int32(r.next()>>(8+r.next()&7)) | 1<<10
		lo := -hi >> (r.next() & 15)
		ticks := int64(r.next() >> 24)
		mul, shift := int64(1<<18|r.next()&(1<<18-1)), uint(1+r.next()%60)

		// The world's axes.
		from, to := Round(lo+int32(r.next()%uint32(hi-lo+1)), s, lo, hi), Round(lo+int32(r.next()%uint32(hi-lo+1)), s, lo, hi)
		v0 := r.signed(20)
		v1 := v0 + r.signed(6)
		v1 = min(max(v1, -maxRate), maxRate)
		expected := Round(from+Ahead(16*int64(v0), 16*int64(v1), ticks, mul, shift), s, lo, hi)
		h = r.told(h, to, expected, s)

		// An angle.
		t := s & 3
		a0, a1 := RoundAngle(int32(r.next()), t), RoundAngle(int32(r.next()), t)
		w0, w1 := r.signed(12), r.signed(12)
		h = r.toldAngle(h, a1, RoundAngle(a0+Ahead(16*int64(w0), 16*int64(w1), ticks, mul, shift), t), t)

		// A body's axes.
		f0, l0, f1, l1 := r.signed(20), r.signed(20), r.signed(20), r.signed(20)
		for side := range 2 {
			gain := Ahead(Body(side, a0, f0, l0), Body(side, a1, f1, l1), ticks, mul, shift)
			h = r.told(h, to, Round(from+gain, s, lo, hi), s)
		}
	}
	return h
}

func TestResidualsComeBack(t *testing.T) {
	r := newRandomAhead()
	if r.group(20000); r.lost > 0 {
		t.Errorf("%d values did not come back", r.lost)
	}
}

func TestHalf(t *testing.T) {
	rnd := rand.New(rand.NewPCG(6, 6))
	for range 20000 {
		x, s := rnd.Int64N(1<<53)>>rnd.IntN(53), uint(rnd.IntN(61))
		if rnd.IntN(4) == 0 { // a half, or one beside it
			x = min(((x>>s|1)<<s>>1)+int64(rnd.IntN(3))-1, 1<<53-1)
		}
		x = max(x, 0)
		// |x| · 2 / 2^s, and one added before the last bit is dropped.
		want := new(big.Int).Lsh(big.NewInt(x), 1)
		want.Add(want, new(big.Int).Lsh(big.NewInt(1), s))
		want.Rsh(want, s+1)
		if got := Half(x, s); got != want.Int64() || Half(-x, s) != -got {
			t.Fatalf("half of %d by %d: %d and %d, want %v", x, s, got, Half(-x, s), want)
		}
	}
}

// The comment of ahead.go promises 53 bits.
func TestAheadStaysExact(t *testing.T) {
	const most = MaxAhead * (1<<mulBits - 1)
	if p := int64(2 * 16 * maxRate * most); p >= 1<<53 {
		t.Errorf("two rates make %d", p)
	}
	largest := int64(0)
	for angle := range int32(AngleSteps) {
		s, c := int64(sine[angle]), int64(sine[(angle+1024)&4095])
		if n := s*s + c*c; n < 1<<28-1<<15 || n > 1<<28+1<<15 {
			t.Errorf("sine and cosine of %d have length² %d", angle, n)
		}
		for side := range 2 {
			for _, sign := range []int32{1, -1} {
				largest = max(largest, Body(side, angle, maxRate, sign*maxRate), -Body(side, angle, maxRate, sign*maxRate))
			}
		}
	}
	if p := 2 * largest * most; largest < 23e6 || p >= 1<<53 {
		t.Errorf("a body of %d sixteenths makes %d", largest, p)
	}
	// Wrapped like TypeScript's exact number.
	exact := int64(16 * maxRate * most)
	if got, want := Ahead(16*maxRate, 16*maxRate, MaxAhead, 1<<19-1, 1), int32(exact); got != want {
		t.Errorf("%d, want %d", got, want)
	}
}

func TestBody(t *testing.T) {
	for _, c := range []struct {
		side        int
		angle       int32
		ahead, left int32
		want        int64
	}{
		{0, 0, 10, 3, 160}, {1, 0, 10, 3, 48}, {0, 1024, 10, 3, -48}, {1, 1024, 10, 3, 160}, {0, 2048, 10, 3, -160}, {1, 3072, 10, 3, -160}, {0, 3072, 10, 3, 48},
		{0, 512, 1000, 0, 11313}, {1, 4096 - 512, 1000, 0, -11313},
	} {
		if got := Body(c.side, c.angle, c.ahead, c.left); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	for i, s := range sine {
		if x := float64((1 << 14) * math.Sin(float64(i)*AngleQ)); math.Abs(x-float64(s)) > 0.5-0.0002 {
			t.Errorf("sine %d is %d for %v: too near to a half", i, s, x)
		}
	}
}

func TestRound(t *testing.T) {
	for _, c := range []struct {
		x      int32
		s      uint
		lo, hi int32
		want   int32
	}{
		{5, 0, 0, 4, 5}, {5, 1, 0, 100, 6}, {-5, 1, -100, 100, -4}, {6, 2, 0, 100, 8}, {-6, 2, -100, 100, -4}, {99, 3, 0, 100, 96}, {99, 3, 0, 104, 96}, {101, 3, 0, 104, 104},
		{101, 3, 0, 103, 96}, {1, 2, 1, 100, 4}, {-7, 2, -7, 100, -4}, {math.MaxInt32, 4, math.MinInt32, math.MaxInt32, math.MinInt32},
	} {
		if got := Round(c.x, c.s, c.lo, c.hi); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	rnd := rand.New(rand.NewPCG(7, 7))
	for range 20000 {
		s := uint(rnd.IntN(10))
		lo := int32(rnd.IntN(1<<20)) - 1<<19
		hi := lo + 2<<s + int32(rnd.IntN(1<<20))
		x := lo + int32(rnd.IntN(int(hi-lo+1)))
		y := Round(x, s, lo, hi)
		if y < lo || y > hi || y&(1<<s-1) != 0 || y-x > 1<<s || x-y > 1<<s || Round(y, s, lo, hi) != y {
			t.Fatalf("%d by %d bits in %d to %d: %d", x, s, lo, hi, y)
		}
		a := RoundAngle(x, s)
		if d := AngleDiff(a, x); a < 0 || a >= AngleSteps || a&(1<<s-1) != 0 || d > 1<<s>>1 || d < -(1<<s>>1) {
			t.Fatalf("angle %d by %d bits: %d", x, s, a)
		}
	}
	for _, c := range [][3]int32{{0, 0, 0}, {10, 4090, 16}, {4090, 10, -16}, {2048, 0, -2048}, {0, 2048, -2048}, {2047, 0, 2047}, {2049, 0, -2047}} {
		if got := AngleDiff(c[0], c[1]); got != c[2] {
			t.Errorf("%d from %d: %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestAheadStep(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	for range 20000 {
		ratio := math.Ldexp(0.5+float64(rnd.Float64()/2), rnd.IntN(60)-41)
		mul, shift, err := AheadStep(ratio)
		if err != nil || mul < 1<<18 || mul >= 1<<19 || shift < 1 || shift > 60 {
			t.Fatalf("%v: %d, %d, %v", ratio, mul, shift, err)
		}
		if d := math.Abs(float64(math.Ldexp(ratio, int(shift))) - float64(mul)); d > 0.5 {
			t.Fatalf("%v: %d/2^%d is not the nearest", ratio, mul, shift)
		}
	}
	for _, c := range []struct {
		ratio float64
		mul   int64
		shift uint
		ok    bool
	}{
		{1, 1 << 18, 18, true}, {1 - 1e-12, 1 << 18, 18, true}, {1.0 / 3, 349525, 20, true}, {1 << 17, 1 << 18, 1, true}, {1<<18 - 0.5, 1<<19 - 1, 1, true},
		{math.Ldexp(1, -42), 1 << 18, 60, true}, {math.Ldexp(0.99, -42), 0, 1, true}, {math.SmallestNonzeroFloat64, 0, 1, true},
		{1 << 18, 0, 0, false}, {1<<18 - 0.2, 0, 0, false}, {1e300, 0, 0, false}, {math.Inf(1), 0, 0, false}, {math.NaN(), 0, 0, false}, {0, 0, 0, false}, {-1, 0, 0, false},
	} {
		mul, shift, err := AheadStep(c.ratio)
		if mul != c.mul || shift != c.shift || (err == nil) != c.ok {
			t.Errorf("%v: %d, %d, %v", c.ratio, mul, shift, err)
		}
	}
	// What is too small for a mul and a shift would move nothing.
	if Ahead(16*maxRate, 16*maxRate, MaxAhead, 1<<18, 60) != 0 {
		t.Error("the smallest step moves something")
	}
	// Centimetres, centimetres a second and 60 ticks: after a second 100 quanta of speed are 100 of place.
	mul, shift, err := AheadStep(0.01 / (2 * 16 * 60 * 0.01))
	if got := Ahead(1600, 1600, 60, mul, shift); err != nil || got != 100 {
		t.Errorf("%d after a second, %v", got, err)
	}
}

func BenchmarkAhead(b *testing.B) {
	b.ReportAllocs()
	mul, shift, err := AheadStep(0.01 / (2 * 16 * 60 * 0.01))
	if err != nil {
		b.Fatal(err)
	}
	x := int32(0)
	for i := int32(0); b.Loop(); i++ {
		x = Round(x+Ahead(Body(0, i, 500, x&255), Body(0, i+9, 510, x&255), 3, mul, shift), 2, -100000, 100000)
	}
}
