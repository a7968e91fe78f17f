package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
)

// Prefix codes: small numbers in few bits. The twin of this file is the part "Prefix codes" of web/src/wire.ts.
//
//	EG k of u           q = (u >> k) + 1, of n bits
//	                    n-1 one-bits ─ 0 ─ the low n-1 bits of q ─ the low k bits of u      2n-1+k bits
//	code c of u, c < 8  EG c of u
//	code c of u, c ≥ 8  0 if u = 0, else 1 ─ EG c-8 of u-1
//
// Bits stand in the order in which they are written. A code from 8 on is for what is mostly zero and else anything.

// Codes is the number of prefix codes.
const Codes = 16

// ErrCode is returned when bits are no prefix code of any 32-bit number.
var ErrCode = errors.New("wire: bad prefix code")

// ZigZag32 maps small numbers of either sign to small unsigned ones, within 32 bits: 0, -1, 1, -2 become 0, 1, 2, 3.
func ZigZag32(r int32) uint32 { return uint32(r)<<1 ^ uint32(r>>31) }

// UnZigZag32 undoes ZigZag32.
func UnZigZag32(u uint32) int32 { return int32(u>>1) ^ -int32(u&1) }

// EG writes u in the exponential Golomb code with k low bits, k at most 31. That takes 1+k bits for u below 2^k and at most 65.
func (w *Writer) EG(u uint32, k uint) { w.eg(u, k, 0) }

// Code writes u in the prefix code c, which is below Codes.
func (w *Writer) Code(u uint32, c uint8) {
	if c < 8 {
		w.eg(u, uint(c), 0)
		return
	}
	if u == 0 {
		w.Bits(0, 1)
		return
	}
	w.eg(u-1, uint(c&7), 1)
}

// eg writes esc (0 or 1) one-bits and EG k of u.
func (w *Writer) eg(u uint32, k, esc uint) {
	q := uint64(u>>(k&31)) + 1
	ones := uint(bits.Len64(q)) - 1
	head := ones + esc
	low := u & (1<<(k&31) - 1)
	if n := head + 1 + ones + k; n <= 32 {
		x := uint32(1)<<head - 1 | (uint32(q)&^(1<<ones)|low<<ones)<<(head+1)
		w.Bits(x, n)
		return
	}
	// At most 33 one-bits.
	w.Bits(1<<esc-1, esc)
	w.Bits(math.MaxUint32, ones)
	w.Bits(0, 1)
	w.Bits(uint32(q), ones)
	w.Bits(low, k)
}

// CodeBits is the number of bits that Writer.Code writes for u in the prefix code c, which is below Codes.
func CodeBits(u uint32, c uint8) int {
	esc := 0
	if c >= 8 {
		if u == 0 {
			return 1
		}
		u--
		esc = 1
		c -= 8
	}
	return esc + 2*bits.Len64(uint64(u>>c)+1) - 1 + int(c)
}

// EG reads what Writer.EG wrote with the same k. A k above 31 is ErrCode.
func (r *Reader) EG(k uint) uint32 {
	if k > 31 {
		r.fail(ErrCode)
		return 0
	}
	return r.eg(k, 0)
}

// Code reads what Writer.Code wrote in the prefix code c. A c that is no code is ErrCode.
func (r *Reader) Code(c uint8) uint32 {
	if c >= Codes {
		r.fail(ErrCode)
		return 0
	}
	return r.eg(uint(c&7), uint(c>>3))
}

// eg reads EG k, k at most 31; with esc 1 a bit stands before it that is 0 for 0, and what follows is one less.
func (r *Reader) eg(k, esc uint) uint32 {
	var x uint64 // what comes next
	var room int // how many bits of it are there
	i, shift := r.pos>>3, uint(r.pos&7)
	if i+8 <= len(r.buf) {
		x, room = binary.LittleEndian.Uint64(r.buf[i:])>>shift, 57
	} else {
		for j, b := range r.buf[i:] {
			x |= uint64(b) << (8 * j)
		}
		x, room = x>>shift, r.Left()
	}
	if x&1 < uint64(esc) && room > 0 {
		r.pos++
		return 0
	}
	x >>= esc & 1
	ones := uint(bits.TrailingZeros64(^x))
	n := int(esc + 2*ones + 1 + k)
	if n > room {
		return r.egSlow(k, esc)
	}
	x >>= (ones + 1) & 63
	q := x&(1<<(ones&63)-1) | 1<<(ones&63)
	u := (q-1)<<(k&63) | x>>(ones&63)&(1<<(k&63)-1)
	if u += uint64(esc); u > math.MaxUint32 {
		r.fail(ErrCode)
		return 0
	}
	r.pos += n
	return uint32(u)
}

// egSlow does the same for what is too long to be seen at once, or ends too early.
func (r *Reader) egSlow(k, esc uint) uint32 {
	if r.Bits(esc) < uint32(esc) {
		return 0
	}
	ones := uint(0)
	for ; r.Bits(1) == 1; ones++ {
		if ones == 32-k {
			r.fail(ErrCode)
			return 0
		}
	}
	q := uint64(r.Bits(ones)) | 1<<ones
	u := (q-1)<<k | uint64(r.Bits(k))
	if u += uint64(esc); u > math.MaxUint32 {
		r.fail(ErrCode)
	}
	if r.err != nil {
		return 0
	}
	return uint32(u)
}
