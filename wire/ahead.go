package wire

import (
	"fmt"
	"math"
)

// Extrapolation: what both ends expect of a number some ticks later, in integers. The twin of this file is the part
// "Extrapolation" of web/src/wire.ts.
//
//	expected = value + half((v0 + v1) · n · mul, shift)
//
// A rate v counts 16ths of its quantum. TypeScript has 53 bits: the product stays below 2^53 for rates below 2^20 quanta, also for
// those of a body that moves both ahead and sideways, n up to MaxAhead and mul below 2^19. Sums wrap to 32 bits.

// MaxAhead is the largest number of ticks that anything is extrapolated over.
const MaxAhead = 255

// What AheadStep chooses from: mul has mulBits bits, which is the most that the 53 bits of a product leave.
const (
	mulBits  = 19
	maxShift = 60
)

// Half is x / 2^s rounded to the nearest, halves away from zero; |x| below 2^53, s at most 60.
func Half(x int64, s uint) int64 {
	h := int64(1) << (s & 63) >> 1
	if x < 0 {
		return -((h - x) >> (s & 63))
	}
	return (x + h) >> (s & 63)
}

// Ahead is what a number gains in n ticks during which its rate goes evenly from v0 to v1, both in 16ths of the rate's quantum:
// half((v0+v1)·n·mul, shift), wrapped to 32 bits. mul and shift are of AheadStep, n is at most MaxAhead.
func Ahead(v0, v1, n, mul int64, shift uint) int32 {
	return int32(Half((v0+v1)*n*mul, shift))
}

// AheadStep returns the factor mul/2^shift nearest to ratio, for Ahead. With quanta rateQ (per second) and valueQ and hz ticks a
// second ratio is rateQ/(2·16·hz·valueQ): the 2 is for the mean of two rates. mul is in [2^18, 2^19) and shift in 1 to 60;
// a ratio too small for these moves nothing by half a quantum in MaxAhead ticks, so it becomes mul 0 and shift 1. A ratio that is
// not a number above 0, or that comes to 2^18 or more, is an error.
func AheadStep(ratio float64) (mul int64, shift uint, err error) {
	if !(ratio > 0) || math.IsInf(ratio, 0) {
		return 0, 0, fmt.Errorf("wire: ratio %v of rate and value is not a number above 0", ratio)
	}
	f, exp := math.Frexp(ratio) // f in [½, 1)
	m := math.Round(f * (1 << mulBits))
	if m == 1<<mulBits {
		m, exp = 1<<(mulBits-1), exp+1
	}
	switch s := mulBits - exp; {
	case s < 1:
		return 0, 0, fmt.Errorf("wire: ratio %v of rate and value is not below %d", ratio, 1<<(mulBits-1))
	case s > maxShift:
		return 0, 1, nil
	default:
		return int64(m), uint(s), nil
	}
}

// sine is round(2^14 · sin(2π i / 4096)). No entry of it is nearer than 0.0002 to where it would round otherwise, so an error of
// the last bits in somebody's sine does not show.
var sine = func() (t [AngleSteps]int16) {
	const quarter = AngleSteps / 4
	for i := range quarter + 1 {
		v := int16(math.Round(float64((1 << 14) * math.Sin(float64(i)*AngleQ))))
		t[i], t[2*quarter-i] = v, v
		t[2*quarter+i], t[(AngleSteps-i)%AngleSteps] = -v, -v
	}
	return t
}()

// Body is the speed along an axis, in 16ths of a quantum, of what looks along an angle (in steps; whole turns do not count) and
// moves with the speeds ahead and left in quanta. Side 0 is the axis from which the angle is counted, side 1 the one that a
// quarter turn reaches.
func Body(side int, angle, ahead, left int32) int64 {
	s := int64(sine[angle&(AngleSteps-1)])
	c := int64(sine[(angle+AngleSteps/4)&(AngleSteps-1)])
	if side == 0 {
		return Half(c*int64(ahead)-s*int64(left), 10)
	}
	return Half(s*int64(ahead)+c*int64(left), 10)
}

// Round rounds s low bits of x away, s at most 30, halves upwards. What comes out above hi or below lo is one step of 2^s nearer.
// With s 0 x stays as it is, wherever it is.
func Round(x int32, s uint, lo, hi int32) int32 {
	if s == 0 {
		return x
	}
	step := int32(1) << (s & 31)
	y := (x + step>>1) & -step
	if y > hi {
		return y - step
	}
	if y < lo {
		return y + step
	}
	return y
}

// RoundAngle rounds s low bits of an angle in steps away, s at most 12, halves upwards; the result is in 0 to AngleSteps-1.
func RoundAngle(x int32, s uint) int32 {
	step := int32(1) << (s & 31)
	return (x + step>>1) & -step & (AngleSteps - 1)
}

// AngleDiff is how far the angle a is on from b in steps, the short way round: -2048 to 2047.
func AngleDiff(a, b int32) int32 { return (a - b) << (32 - AngleBits) >> (32 - AngleBits) }
