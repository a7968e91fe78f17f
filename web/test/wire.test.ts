import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as wire from "../src/wire.ts";

// Prefix codes and extrapolation; the rest of wire.ts is tested in snap.test.ts. The vectors are Go's: go test ./wire -update
const W = JSON.parse(readFileSync(new URL("../../../../wire/testdata/wire.json", import.meta.url), "utf8")) as {
  codes: CodeVector[];
  eg: CodeVector[];
  badCodes: { code: number; hex: string }[];
  badEG: { code: number; hex: string }[];
  ahead: Record<"zigzag32" | "half" | "ahead" | "body" | "round" | "roundAngle" | "angleDiff", number[][]> & {
    sine: number;
    random: { groups: number; first: number[]; hash: number };
  };
};

interface CodeVector { code: number; u: number[]; bits: number[]; hex: string }

const unhex = (s: string): Uint8Array => new Uint8Array(Buffer.from(s, "hex"));
const hex = (b: Uint8Array): string => Buffer.from(b).toString("hex");

for (const [name, vectors] of [["code", W.codes], ["eg", W.eg]] as const) {
  test(`wire: ${name} is written and read as in Go`, () => {
    assert.ok(vectors.length >= 16);
    for (const v of vectors) {
      const w = new wire.BitWriter(1);
      const r = new wire.BitReader(unhex(v.hex));
      v.u.forEach((u, i) => {
        const from = w.length;
        w[name](u, v.code);
        assert.equal(w.length - from, v.bits[i], `${name} ${v.code} of ${u}`);
        assert.equal(r[name](v.code), u, `${name} ${v.code}`);
      });
      assert.equal(hex(w.finish()), v.hex);
      assert.ok(r.end());
      // Cut short anywhere, what is there is read and then it is bad.
      for (let cut = 0; cut < v.hex.length / 2; cut++) {
        r.reset(unhex(v.hex).subarray(0, cut));
        for (const u of v.u) {
          const got = r[name](v.code);
          assert.ok(r.bad ? got === 0 && r.left() === 0 : got === u);
        }
        assert.ok(r.bad);
      }
    }
  });
}

test("wire: what is no prefix code is bad", () => {
  for (const [name, vectors] of [["code", W.badCodes], ["eg", W.badEG]] as const) {
    for (const v of vectors) {
      const r = new wire.BitReader(unhex(v.hex));
      assert.equal(r[name](v.code), 0);
      assert.ok(r.bad && r.left() === 0, `${name} ${v.code} of ${v.hex}`);
    }
  }
  for (const c of [-1, 2.5, 8.5, 16, 2 ** 32, NaN, Infinity]) {
    const r = new wire.BitReader(new Uint8Array(8));
    assert.equal(r.code(c), 0);
    assert.ok(r.bad, String(c));
  }
});

test("wire: random prefix codes come back from every place in a byte", () => {
  const random = new RandomAhead();
  for (let round = 0; round < 200; round++) {
    const w = new wire.BitWriter();
    const items: [number, number][] = [];
    w.bits(0, round & 7);
    for (let i = 0; i < 50; i++) {
      const u = random.next() >>> (random.next() & 31);
      const c = random.next() % 48;
      items.push([u, c]);
      if (c < 16) w.code(u, c);
      else w.eg(u, c - 16);
    }
    const r = new wire.BitReader(w.finish());
    r.bits(round & 7);
    for (const [u, c] of items) assert.equal(c < 16 ? r.code(c) : r.eg(c - 16), u);
    assert.ok(r.end());
  }
});

test("wire: integers are extrapolated and rounded as in Go", () => {
  const check = (name: string, f: (...args: number[]) => number, vectors: number[][]): void => {
    assert.ok(vectors.length > 0, name);
    // assert.equal would take -0 for 0.
    for (const v of vectors) assert.ok(Object.is(f(...v.slice(0, -1)), v.at(-1)), `${name} ${v}: ${f(...v.slice(0, -1))}`);
  };
  const A = W.ahead;
  check("zigzag32", wire.zigzag32, A.zigzag32);
  check("unzigzag32", wire.unzigzag32, A.zigzag32.map(([r, u]) => [u!, r!]));
  check("half", wire.half, A.half);
  check("ahead", wire.ahead, A.ahead);
  check("body", wire.body, A.body);
  check("round", wire.round, A.round);
  check("roundAngle", wire.roundAngle, A.roundAngle);
  check("angleDiff", wire.angleDiff, A.angleDiff);
  let h = wire.NEW_HASH;
  for (let i = 0; i < wire.ANGLE_STEPS; i++) h = wire.hashAdd(h, wire.body(1, i, 1024, 0));
  assert.equal(h, A.sine);
});

/** Makes the same random entities in both languages; the twin of randomAhead in wire/ahead_test.go. */
class RandomAhead {
  private x = 0x9e3779b9 | 0;
  /** Values that did not come back. */
  lost = 0;
  private h = 0;

  next(): number {
    let x = this.x;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.x = x;
    return x >>> 0;
  }

  /** A number of up to bits bits and a sign, small ones as often as large ones. */
  private signed(bits: number): number {
    const w = this.next();
    const v = ((w << (32 - bits)) >>> (32 - bits)) >>> (w >>> 27) % bits;
    return w & (1 << 26) ? 0 - v : v;
  }

  private told(value: number, expected: number, s: number): void {
    const u = wire.zigzag32((value - expected | 0) >> s);
    if ((expected + (wire.unzigzag32(u) << s) | 0) !== value) this.lost++;
    this.h = wire.hashAdd(wire.hashAdd(this.h, expected), u);
  }

  private toldAngle(value: number, expected: number, s: number): void {
    const u = wire.zigzag32(wire.angleDiff(value, expected) >> s);
    if (((expected + (wire.unzigzag32(u) << s)) & 4095) !== value) this.lost++;
    this.h = wire.hashAdd(wire.hashAdd(this.h, expected), u);
  }

  /** The hash of what n entities are expected to be and how they are told. */
  group(n: number): number {
    this.h = wire.NEW_HASH;
    const most = 2 ** 20 - 1;
    while (n-- > 0) {
      // Ranges of the position, how it is rounded, and how far it is extrapolated.
      const s = this.next() >>> 29;
      const wide = this.next();
      const hi = (wide >>> (8 + (this.next() & 7))) | (1 << 10);
      const lo = -hi >> (this.next() & 15);
      const ticks = this.next() >>> 24;
      const mul = (1 << 18) | (this.next() & (2 ** 18 - 1));
      const shift = 1 + (this.next() % 60);

      // The world's axes.
      const from = wire.round(lo + (this.next() % (hi - lo + 1)), s, lo, hi);
      const to = wire.round(lo + (this.next() % (hi - lo + 1)), s, lo, hi);
      const v0 = this.signed(20);
      const v1 = Math.min(Math.max(v0 + this.signed(6), -most), most);
      this.told(to, wire.round((from + wire.ahead(16 * v0, 16 * v1, ticks, mul, shift)) | 0, s, lo, hi), s);

      // An angle.
      const t = s & 3;
      const a0 = wire.roundAngle(this.next(), t);
      const a1 = wire.roundAngle(this.next(), t);
      const w0 = this.signed(12);
      const w1 = this.signed(12);
      this.toldAngle(a1, wire.roundAngle(a0 + wire.ahead(16 * w0, 16 * w1, ticks, mul, shift), t), t);

      // A body's axes.
      const f0 = this.signed(20);
      const l0 = this.signed(20);
      const f1 = this.signed(20);
      const l1 = this.signed(20);
      for (let side = 0; side < 2; side++) {
        const gain = wire.ahead(wire.body(side, a0, f0, l0), wire.body(side, a1, f1, l1), ticks, mul, shift);
        this.told(to, wire.round((from + gain) | 0, s, lo, hi), s);
      }
    }
    return this.h;
  }
}

test("wire: a million random entities are extrapolated as in Go", () => {
  const random = new RandomAhead();
  const want = W.ahead.random;
  let h = wire.NEW_HASH;
  for (let i = 0; i < want.groups; i++) {
    const g = random.group(1000);
    if (i < want.first.length) assert.equal(g, want.first[i], `group ${i}`);
    h = wire.hashAdd(h, g);
  }
  assert.equal(h, want.hash);
  assert.equal(random.lost, 0);
});
