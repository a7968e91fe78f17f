package wire

import (
	"fmt"
	"math"
	"math/bits"
)

// Quant maps numbers to whole multiples of a quantum. Zero is always exactly zero.
type Quant struct {
	// Q is the quantum, above 0.
	Q float64
	// Min and Max bound the multiples.
	Min, Max int32
}

// NewQuant returns the quantisation with quantum q that covers lo to hi. Bounds between two multiples are moved outwards. It is
// an error when q is not above zero, lo is not below hi, or a multiple does not fit into an int32.
func NewQuant(q, lo, hi float64) (Quant, error) {
	// NaN fails each of these comparisons, so each is asked the way round that refuses it.
	if !(q > 0) || math.IsInf(q, 0) {
		return Quant{}, fmt.Errorf("wire: quantum %v is not a number above 0", q)
	}
	if !(lo < hi) {
		return Quant{}, fmt.Errorf("wire: range %v to %v is empty", lo, hi)
	}
	// The millionth keeps 0.3/0.1 from becoming one step more than it looks.
	a, b := math.Floor(lo/q+1e-6), math.Ceil(hi/q-1e-6)
	if !(a >= math.MinInt32) || !(b <= math.MaxInt32) {
		return Quant{}, fmt.Errorf("wire: range %v to %v has more than 2^31 steps of %v", lo, hi, q)
	}
	return Quant{Q: q, Min: int32(a), Max: int32(b)}, nil
}

// Bits is the number of bits that hold any multiple less Min.
func (z Quant) Bits() uint { return uint(bits.Len32(uint32(z.Max) - uint32(z.Min))) }

// Quantise returns the multiple nearest to v, halves upwards. A v outside the range gives the nearer bound and false; NaN counts
// as 0 and gives false.
func (z Quant) Quantise(v float64) (k int32, ok bool) {
	x := math.Floor(v/z.Q + 0.5)
	switch {
	case x >= float64(z.Min) && x <= float64(z.Max):
		return int32(x), true
	case x > float64(z.Max):
		return z.Max, false
	case x < float64(z.Min):
		return z.Min, false
	}
	return min(max(0, z.Min), z.Max), false
}

// Dequantise returns the number that k stands for. The conversion keeps compilers from fusing the product with a sum, which would
// round otherwise than TypeScript does.
func (z Quant) Dequantise(k int32) float64 { return float64(float64(k) * z.Q) }

// AngleSteps is the number of steps in a turn; AngleBits bits hold one.
const (
	AngleSteps = 4096
	AngleBits  = 12
)

// AngleQ is one step in radians.
const AngleQ = 2 * math.Pi / AngleSteps

// QuantiseAngle returns the step nearest to an angle in radians, 0 to AngleSteps-1; whole turns do not count. Angles that are
// not finite, or so large that their steps are coarser than one, give 0 and false.
func QuantiseAngle(rad float64) (k int32, ok bool) {
	x := math.Floor(rad/AngleQ + 0.5)
	if !(math.Abs(x) < 1<<52) {
		return 0, false
	}
	return int32(int64(x) & (AngleSteps - 1)), true
}

// DequantiseAngle returns the angle of step k in radians.
func DequantiseAngle(k int32) float64 { return float64(float64(k) * AngleQ) }
