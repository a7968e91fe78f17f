// What both ends of a link must do alike, bit for bit. The twin of wire/*.go; the vectors in wire/testdata bind the two.
//
// Bits are packed from the lowest bit of each byte upwards, and the low bits of a number come first. Nothing here allocates but
// the writer's buffer.

/** The largest number that a variable-length number may have here. Go's has 64 bits; everything sent to a browser keeps to this. */
export const MAX_UVARINT = Number.MAX_SAFE_INTEGER;

// Prefix codes: small numbers in few bits. The twin of this part is wire/code.go.
//
//	EG k of u           q = (u >> k) + 1, of n bits
//	                    n-1 one-bits ─ 0 ─ the low n-1 bits of q ─ the low k bits of u      2n-1+k bits
//	code c of u, c < 8  EG c of u
//	code c of u, c ≥ 8  0 if u = 0, else 1 ─ EG c-8 of u-1
//
// Bits stand in the order in which they are written. A code from 8 on is for what is mostly zero and else anything.

/** The number of prefix codes. */
export const CODES = 16;

/** Appends bits to a buffer that grows. */
export class BitWriter {
  private buf: Uint8Array;
  /** Number of bits written. */
  length = 0;

  constructor(capacity = 64) {
    this.buf = new Uint8Array(Math.max(capacity, 8));
  }

  /** Forgets everything written. */
  reset(): void {
    this.buf.fill(0, 0, (this.length + 7) >> 3);
    this.length = 0;
  }

  /** Writes the low n bits of v, n at most 32. */
  bits(v: number, n: number): void {
    const end = this.length + n;
    if (end + 40 > this.buf.length * 8) {
      const more = new Uint8Array(Math.max(this.buf.length * 2, (end >> 3) + 8));
      more.set(this.buf);
      this.buf = more;
    }
    while (n > 0) {
      const at = this.length & 7;
      const take = Math.min(8 - at, n);
      this.buf[this.length >> 3]! |= (v & ((1 << take) - 1)) << at;
      v >>>= take;
      n -= take;
      this.length += take;
    }
  }

  /** Writes u, below 2^32, in the exponential Golomb code with k low bits, k at most 31. */
  eg(u: number, k: number): void {
    const q = Math.floor(u / 2 ** k) + 1; // up to 2^32
    const ones = q === 0x100000000 ? 32 : 31 - Math.clz32(q);
    this.bits(-1, ones);
    this.bits(0, 1);
    this.bits(q | 0, ones);
    this.bits(u | 0, k);
  }

  /** Writes u, below 2^32, in the prefix code c, which is below CODES. */
  code(u: number, c: number): void {
    if (c >= 8) {
      this.bits(u === 0 ? 0 : 1, 1);
      if (u === 0) return;
      u--;
    }
    this.eg(u, c & 7);
  }

  /** Writes a whole number from 0 to MAX_UVARINT in groups of 7 bits, the lowest first, each with a bit that says whether another follows. */
  uvarint(v: number): void {
    while (v >= 0x80) {
      this.bits((v % 0x80) | 0x80, 8);
      v = Math.floor(v / 0x80);
    }
    this.bits(v, 8);
  }

  /** Writes a whole number of either sign as the uvarint of its zigzag. */
  varint(v: number): void {
    this.uvarint(zigzag(v));
  }

  /** Writes bytes, 8 bits each, without a length. */
  bytes(b: Uint8Array): void {
    for (let i = 0; i < b.length; i++) this.bits(b[i]!, 8);
  }

  /** The bytes written so far, the last filled up with zero bits. They are a view that the next write may change. */
  finish(): Uint8Array {
    return this.buf.subarray(0, (this.length + 7) >> 3);
  }
}

/**
 * Reads what a BitWriter wrote, or Go's. Its input may come from anybody: reading past the end, or a number that no writer makes,
 * yields zeros and sets bad, which stays.
 */
export class BitReader {
  /** Something was read that is not there. */
  bad = false;
  private buf: Uint8Array;
  private pos = 0; // in bits

  constructor(buf: Uint8Array) {
    this.buf = buf;
  }

  reset(buf: Uint8Array): void {
    this.buf = buf;
    this.pos = 0;
    this.bad = false;
  }

  /** Number of bits not read yet; 0 once bad. */
  left(): number {
    return this.buf.length * 8 - this.pos;
  }

  private fail(): number {
    this.bad = true;
    this.pos = this.buf.length * 8;
    return 0;
  }

  /** Reads n bits, at most 32, as an unsigned number. */
  bits(n: number): number {
    const pos = this.pos;
    const buf = this.buf;
    if (pos + n > buf.length * 8) return this.fail();
    this.pos = pos + n;
    const i = pos >> 3;
    const shift = pos & 7;
    // Only bytes that hold wanted bits are touched: reading past an array's end is slow.
    const need = (shift + n + 7) >> 3;
    let v = need > 0 ? buf[i]! : 0;
    if (need > 1) v |= buf[i + 1]! << 8;
    if (need > 2) v |= buf[i + 2]! << 16;
    if (need > 3) v |= buf[i + 3]! << 24;
    v >>>= shift;
    if (need > 4) v |= buf[i + 4]! << (32 - shift);
    return n === 32 ? v >>> 0 : v & ((1 << n) - 1);
  }

  bool(): boolean {
    return this.bits(1) === 1;
  }

  /** Reads what BitWriter.eg wrote with the same k. A k that is no whole number from 0 to 31 is bad. */
  eg(k: number): number {
    if (k >>> 0 !== k || k > 31) return this.fail();
    const buf = this.buf;
    const pos = this.pos;
    const i = pos >> 3;
    if (i + 4 <= buf.length) {
      // 25 bits of what comes next are there whatever pos is. A number that fits into them is below 2^25.
      const v = ((buf[i]! | (buf[i + 1]! << 8) | (buf[i + 2]! << 16) | (buf[i + 3]! << 24)) >>> (pos & 7)) & 0x1ffffff;
      const ones = 31 - Math.clz32(~v & -~v);
      const n = ones + ones + 1 + k;
      if (n <= 25) {
        this.pos = pos + n;
        const x = v >>> (ones + 1);
        return ((x & ((1 << ones) - 1)) + (1 << ones) - 1) * (1 << k) + ((x >>> ones) & ((1 << k) - 1));
      }
    }
    return this.egSlow(k);
  }

  /** The same for what is too long to be seen at once, or near the end. */
  private egSlow(k: number): number {
    let ones = 0;
    for (; this.bits(1) === 1; ones++) if (ones === 32 - k) return this.fail();
    const q = this.bits(ones) + 2 ** ones;
    const u = (q - 1) * 2 ** k + this.bits(k);
    if (this.bad || u > 0xffffffff) return this.fail();
    return u;
  }

  /** Reads what BitWriter.code wrote in the prefix code c. A c that is no code is bad. */
  code(c: number): number {
    if (c < 8) return this.eg(c);
    if (c >>> 0 !== c || c >= CODES) return this.fail();
    if (this.bits(1) === 0) return 0;
    const u = this.eg(c - 8) + 1;
    return u > 0xffffffff || this.bad ? this.fail() : u;
  }

  /** Reads a variable-length number. Only its shortest form is accepted, and nothing above MAX_UVARINT. */
  uvarint(): number {
    let v = 0;
    let scale = 1;
    for (let group = 0; ; group++, scale *= 128) {
      const b = this.bits(8);
      if (this.bad || (group === 7 && b > 15) || (group > 0 && b === 0)) return this.fail();
      v += (b & 0x7f) * scale;
      if (b < 0x80) return v;
    }
  }

  varint(): number {
    return unzigzag(this.uvarint());
  }

  /** Reads n bytes into dst from its index at; false, and nothing read, when fewer are left. */
  bytes(dst: Uint8Array, at: number, n: number): boolean {
    if (n < 0 || n * 8 > this.left()) {
      this.fail();
      return false;
    }
    for (let i = 0; i < n; i++) dst[at + i] = this.bits(8);
    return true;
  }

  /** Reports whether all went well and nothing is left but fewer than 8 zero bits. */
  end(): boolean {
    const n = this.left();
    if (n >= 8 || this.bits(n) !== 0) this.fail();
    return !this.bad;
  }
}

/** Maps small numbers of either sign to small unsigned ones: 0, -1, 1, -2 become 0, 1, 2, 3. For |v| up to 2^52. */
export function zigzag(v: number): number {
  return v < 0 ? -2 * v - 1 : 2 * v;
}

export function unzigzag(u: number): number {
  return u % 2 === 0 ? u / 2 : -(u + 1) / 2;
}

/** The same within 32 bits: of any int32, a number below 2^32. */
export function zigzag32(r: number): number {
  return ((r << 1) ^ (r >> 31)) >>> 0;
}

/** Undoes zigzag32: an int32. */
export function unzigzag32(u: number): number {
  return (u >>> 1) ^ -(u & 1);
}

/** How far a is after b among 16-bit sequence numbers that wrap: negative when a is before b. */
export function seqDiff(a: number, b: number): number {
  return ((a - b) << 16) >> 16;
}

/** Whether a comes after b among 16-bit sequence numbers that wrap. */
export function seqNewer(a: number, b: number): boolean {
  return seqDiff(a, b) > 0;
}

/** Restores a tick from its low 16 bits: the one nearest to near, which is known to be less than 32,768 steps away. */
export function fullTick(low: number, near: number): number {
  return (near + seqDiff(low, near & 0xffff)) >>> 0;
}

/** The hash of nothing. */
export const NEW_HASH = 0x811c9dc5;

/** The hash of the values so far followed by the 32-bit value v; see wire.Hash.Add. */
export function hashAdd(h: number, v: number): number {
  let x = Math.imul(h ^ v, 0x9e3779b1);
  x = Math.imul(x ^ (x >>> 15), 0x85ebca77);
  return (x ^ (x >>> 13)) >>> 0;
}

/** The hash of the values so far followed by the length of a text and its UTF-8 bytes. */
export function hashBytes(h: number, b: Uint8Array, length = b.length): number {
  h = hashAdd(h, length);
  for (let i = 0; i < length; i++) h = hashAdd(h, b[i]!);
  return h;
}

/** Maps numbers to whole multiples of a quantum, as wire.Quant does. */
export class Quant {
  readonly q: number;
  readonly min: number;
  readonly max: number;
  /** Whether the last quantise found its number inside the range. */
  ok = true;

  constructor(q: number, min: number, max: number) {
    this.q = q;
    this.min = min;
    this.max = max;
  }

  /** The multiple nearest to v, halves upwards; outside the range the nearer bound, and for NaN that nearest to 0. */
  quantise(v: number): number {
    const x = Math.floor(v / this.q + 0.5);
    this.ok = x >= this.min && x <= this.max;
    if (this.ok) return x + 0; // never -0
    return Math.min(Math.max(Number.isNaN(x) ? 0 : x, this.min), this.max);
  }

  dequantise(k: number): number {
    return k * this.q;
  }
}

/** Number of steps in a turn, and one of them in radians. */
export const ANGLE_STEPS = 4096;
export const ANGLE_Q = (2 * Math.PI) / ANGLE_STEPS;

/** The step nearest to an angle in radians, 0 to ANGLE_STEPS-1; -1 for one that is not finite or far too large. */
export function quantiseAngle(rad: number): number {
  const x = Math.floor(rad / ANGLE_Q + 0.5);
  if (!(Math.abs(x) < 2 ** 52)) return -1;
  return x - Math.floor(x / ANGLE_STEPS) * ANGLE_STEPS;
}

/** The angle of step k in radians. */
export function dequantiseAngle(k: number): number {
  return k * ANGLE_Q;
}

// Extrapolation: what both ends expect of a number some ticks later, in integers. The twin of this part is wire/ahead.go.
//
//	expected = value + half((v0 + v1) · n · mul, shift)
//
// A rate v counts 16ths of its quantum. TypeScript has 53 bits: the product stays below 2^53 for rates below 2^20 quanta, also for
// those of a body that moves both ahead and sideways, n up to MAX_AHEAD and mul below 2^19. Sums wrap to 32 bits.

/** The largest number of ticks that anything is extrapolated over. */
export const MAX_AHEAD = 255;

/** 2^-s by s. */
const HALVED = Float64Array.from({ length: 61 }, (_, s) => 2 ** -s);

/** x / 2^s rounded to the nearest, halves away from zero; |x| below 2^53, s at most 60. */
export function half(x: number, s: number): number {
  // Scaling by a power of two loses nothing, and Math.round takes halves upwards. Never -0.
  const y = x * HALVED[s]!;
  return y < 0 ? 0 - Math.round(-y) : Math.round(y) + 0;
}

/** What a number gains in n ticks during which its rate goes evenly from v0 to v1, in 16ths of the rate's quantum: an int32. */
export function ahead(v0: number, v1: number, n: number, mul: number, shift: number): number {
  return half((v0 + v1) * n * mul, shift) | 0;
}

/** round(2^14 · sin(2π i / 4096)); wire/ahead.go says why every browser has the same. */
const SINE = /* @__PURE__ */ (() => {
  const t = new Int16Array(ANGLE_STEPS);
  const quarter = ANGLE_STEPS / 4;
  for (let i = 0; i <= quarter; i++) {
    const v = Math.round(2 ** 14 * Math.sin(i * ANGLE_Q));
    t[i] = t[2 * quarter - i] = v;
    t[2 * quarter + i] = t[(ANGLE_STEPS - i) % ANGLE_STEPS] = -v;
  }
  return t;
})();

/**
 * The speed along an axis, in 16ths of a quantum, of what looks along an angle (in steps; whole turns do not count) and moves with
 * the speeds ahead and left in quanta. Side 0 is the axis from which the angle is counted, side 1 the one that a quarter turn
 * reaches.
 */
export function body(side: number, angle: number, ahead: number, left: number): number {
  const s = SINE[angle & (ANGLE_STEPS - 1)]!;
  const c = SINE[(angle + ANGLE_STEPS / 4) & (ANGLE_STEPS - 1)]!;
  return side === 0 ? half(c * ahead - s * left, 10) : half(s * ahead + c * left, 10);
}

/**
 * Rounds s low bits of an int32 away, s at most 30, halves upwards. What comes out above hi or below lo is one step of 2^s nearer.
 * With s 0 x stays as it is, wherever it is.
 */
export function round(x: number, s: number, lo: number, hi: number): number {
  if (s === 0) return x;
  const step = 1 << s;
  const y = (x + (step >> 1)) & -step;
  if (y > hi) return (y - step) | 0;
  if (y < lo) return (y + step) | 0;
  return y;
}

/** Rounds s low bits of an angle in steps away, s at most 12, halves upwards; the result is in 0 to ANGLE_STEPS-1. */
export function roundAngle(x: number, s: number): number {
  const step = 1 << s;
  return (x + (step >> 1)) & -step & (ANGLE_STEPS - 1);
}

/** How far the angle a is on from b in steps, the short way round: -2048 to 2047. */
export function angleDiff(a: number, b: number): number {
  return ((a - b) << 20) >> 20;
}
