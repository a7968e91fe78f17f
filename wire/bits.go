package wire

import (
	"encoding/binary"
	"errors"
)

// Errors of a Reader.
var (
	// ErrShort is returned when more was read than there is.
	ErrShort = errors.New("wire: input ends too early")
	// ErrVarint is returned when a variable-length number has more than 64 bits or is longer than it need be.
	ErrVarint = errors.New("wire: bad variable-length number")
	// ErrTrailing is returned by End when something follows the last value read.
	ErrTrailing = errors.New("wire: bytes left over")
)

// Writer appends bits to a byte slice. Call Reset before the first use and Finish after the last.
type Writer struct {
	buf  []byte
	acc  uint64 // bits not yet in buf, lowest first
	n    uint   // how many; below 32 between two calls
	base int    // length of buf at Reset
}

// Mark is a place in a Writer to go back to.
type Mark struct {
	len int
	acc uint64
	n   uint
}

// Reset makes the writer append to dst.
func (w *Writer) Reset(dst []byte) { *w = Writer{buf: dst, base: len(dst)} }

// Bits writes the low n bits of v, n at most 32.
func (w *Writer) Bits(v uint32, n uint) {
	w.acc |= uint64(v) & (1<<(n&63) - 1) << (w.n & 63) // the masks spare the compiler a comparison each
	if w.n += n; w.n >= 32 {
		w.spill()
	}
}

// spill moves 32 bits to the buffer. It stands alone so that Bits stays small enough to be inlined.
func (w *Writer) spill() {
	w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(w.acc))
	w.acc >>= 32
	w.n -= 32
}

// Columns writes row[i] - min[i] in width[i] bits for each i of row. It does what that many calls of Bits do, and keeps its state
// in registers meanwhile.
func (w *Writer) Columns(row, min []int32, width []uint8) {
	acc, n := w.acc, w.n
	min, width = min[:len(row)], width[:len(row)]
	for i, v := range row {
		b := uint(width[i])
		acc |= uint64(uint32(v)-uint32(min[i])) & (1<<(b&63) - 1) << (n & 63)
		if n += b; n >= 32 {
			w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(acc))
			acc >>= 32
			n -= 32
		}
	}
	w.acc, w.n = acc, n
}

// Bool writes one bit.
func (w *Writer) Bool(b bool) {
	var v uint32
	if b {
		v = 1
	}
	w.Bits(v, 1)
}

// Uvarint writes v in groups of 8 bits: 7 bits of v, the lowest first, and a bit that says whether another group follows.
func (w *Writer) Uvarint(v uint64) {
	for v >= 0x80 {
		w.Bits(uint32(v)&0x7f|0x80, 8)
		v >>= 7
	}
	w.Bits(uint32(v), 8)
}

// Varint writes v as the Uvarint of its ZigZag.
func (w *Writer) Varint(v int64) { w.Uvarint(ZigZag(v)) }

// String writes the bytes of s, 8 bits each, without a length.
func (w *Writer) String(s string) {
	for i := range len(s) {
		w.Bits(uint32(s[i]), 8)
	}
}

// BitLen is the number of bits written since Reset.
func (w *Writer) BitLen() int { return (len(w.buf)-w.base)*8 + int(w.n) }

// Mark returns the current place.
func (w *Writer) Mark() Mark { return Mark{len(w.buf), w.acc, w.n} }

// Rewind forgets everything written since m, which must be of this writer and of the time since its last Reset.
func (w *Writer) Rewind(m Mark) { w.buf, w.acc, w.n = w.buf[:m.len], m.acc, m.n }

// Finish fills the last byte with zero bits and returns the slice.
func (w *Writer) Finish() []byte {
	for ; w.n > 0; w.n -= min(w.n, 8) {
		w.buf = append(w.buf, byte(w.acc))
		w.acc >>= 8
	}
	return w.buf
}

// Reader reads what a Writer wrote. Its input may come from anybody: reading past the end, or a number that no Writer makes,
// yields zeros and an error that stays; nothing panics. Check Err before trusting any value.
type Reader struct {
	buf []byte
	pos int // in bits
	err error
}

// NewReader reads b.
func NewReader(b []byte) Reader { return Reader{buf: b} }

// Reset makes the reader start over with b.
func (r *Reader) Reset(b []byte) { *r = Reader{buf: b} }

// Err is the first error, or nil.
func (r *Reader) Err() error { return r.err }

// Left is the number of bits not read yet; 0 after an error.
func (r *Reader) Left() int { return len(r.buf)*8 - r.pos }

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.pos = len(r.buf) * 8
}

// Bits reads n bits, at most 32.
func (r *Reader) Bits(n uint) uint32 {
	if r.pos+int(n) > len(r.buf)*8 {
		r.fail(ErrShort)
		return 0
	}
	i, shift := r.pos>>3, uint(r.pos&7)
	r.pos += int(n)
	if i+8 <= len(r.buf) {
		return uint32(binary.LittleEndian.Uint64(r.buf[i:]) >> shift & (1<<n - 1))
	}
	var x uint64
	for k := 0; i+k < len(r.buf); k++ {
		x |= uint64(r.buf[i+k]) << (8 * k)
	}
	return uint32(x >> shift & (1<<n - 1))
}

// Bool reads one bit.
func (r *Reader) Bool() bool { return r.Bits(1) == 1 }

// Uvarint reads what Writer.Uvarint wrote. Only the shortest form of a number is accepted.
func (r *Reader) Uvarint() uint64 {
	var v uint64
	for shift := uint(0); ; shift += 7 {
		b := uint64(r.Bits(8))
		if r.err != nil {
			return 0
		}
		if shift == 63 && b > 1 || shift > 0 && b == 0 {
			r.fail(ErrVarint)
			return 0
		}
		v |= b & 0x7f << shift
		if b < 0x80 {
			return v
		}
	}
}

// Varint reads what Writer.Varint wrote.
func (r *Reader) Varint() int64 { return UnZigZag(r.Uvarint()) }

// Bytes reads n bytes and appends them to dst. When fewer are left it appends nothing.
func (r *Reader) Bytes(dst []byte, n int) []byte {
	if n < 0 || n > r.Left()/8 {
		r.fail(ErrShort)
		return dst
	}
	for range n {
		dst = append(dst, byte(r.Bits(8)))
	}
	return dst
}

// End returns the first error of the reader, or ErrTrailing unless all that is left are fewer than 8 zero bits.
func (r *Reader) End() error {
	if r.err != nil {
		return r.err
	}
	if n := r.Left(); n >= 8 || n > 0 && r.Bits(uint(n)) != 0 {
		r.fail(ErrTrailing)
	}
	return r.err
}
