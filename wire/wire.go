// Package wire holds what both ends of a link must do alike, bit for bit: packing bits, variable-length numbers, prefix codes,
// quantising, rounding and extrapolating, comparing sequence numbers that wrap, and hashing. Its twin is web/src/wire.ts; the
// vectors in testdata bind the two.
//
// It knows no packet and no feed: what the bits mean is said by its callers. The smallest use:
//
//	var w wire.Writer
//	w.Reset(nil)
//	w.Bits(5, 3)
//	w.Uvarint(300)
//	b := w.Finish()
//
//	r := wire.NewReader(b)
//	v, n := r.Bits(3), r.Uvarint()
//	err := r.End()
//
// Bits are packed from the lowest bit of each byte upwards, and the low bits of a number come first.
//
// Writers and readers belong to one goroutine at a time. Everything else is a pure function.
package wire

// ZigZag maps small numbers of either sign to small unsigned ones: 0, -1, 1, -2 become 0, 1, 2, 3.
func ZigZag(v int64) uint64 { return uint64(v)<<1 ^ uint64(v>>63) }

// UnZigZag undoes ZigZag.
func UnZigZag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// SeqDiff is how far a is after b among 16-bit sequence numbers that wrap: negative when a is before b. Numbers half the
// circle apart (32,768) count as before.
func SeqDiff(a, b uint16) int { return int(int16(a - b)) }

// SeqNewer reports whether a comes after b among 16-bit sequence numbers that wrap.
func SeqNewer(a, b uint16) bool { return int16(a-b) > 0 }

// FullTick restores a tick from its low 16 bits: the one of all ticks with those bits that is nearest to near, a tick known to
// be less than 32,768 steps away.
func FullTick(low uint16, near uint32) uint32 {
	return near + uint32(int32(int16(low-uint16(near))))
}

// Hash is a running hash over 32-bit values. It finds differences between two ends that should be equal; it is no protection
// against somebody who wants a collision.
type Hash uint32

// NewHash is the hash of nothing.
const NewHash Hash = 0x811c9dc5

// Add returns the hash of the values so far followed by v. As in FNV-1a a value is mixed in by xor and an odd multiplier; but
// values come as whole words and not as bytes, so shifts bring the high bits down again. One multiplier was not enough: two values
// that differ in their top bits hashed like another pair that differs in a middle one.
func (h Hash) Add(v int32) Hash {
	x := (uint32(h) ^ uint32(v)) * 0x9e3779b1
	x = (x ^ x>>15) * 0x85ebca77
	return Hash(x ^ x>>13)
}

// AddString returns the hash of the values so far followed by the length of s and its bytes.
func (h Hash) AddString(s string) Hash {
	h = h.Add(int32(len(s)))
	for i := range len(s) {
		h = h.Add(int32(s[i]))
	}
	return h
}
