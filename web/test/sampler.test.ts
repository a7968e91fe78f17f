import assert from "node:assert/strict";
import { test } from "node:test";
import { Acks, InputCodec } from "../src/packet.ts";
import { Sampler } from "../src/sampler.ts";

const codec = new InputCodec([{ name: "fire", kind: "bool" }, { name: "dx", kind: "i8" }]);

// The samples of a message by label.
function read(msg: Uint8Array | null, into = new Map<number, [fire: number, dx: number]>()): Map<number, [number, number]> {
  assert.ok(msg);
  const count = msg[7]!;
  const label = msg[8]! | (msg[9]! << 8) | (msg[10]! << 16);
  assert.equal(msg.length, 12 + count * codec.size);
  for (let i = 0; i < count; i++) into.set(label - i, [msg[12 + i * 2]!, (msg[13 + i * 2]! << 24) >> 24]);
  return into;
}

test("one sample per step, newest first, repeated as asked", () => {
  const s = new Sampler(codec);
  assert.equal(s.message(new Acks(), 3), null);
  s.set(1, 5);
  s.sampleTo(100);
  assert.deepEqual([...read(s.message(new Acks(), 3))], [[100, [0, 5]]]);
  s.set(1, 6);
  s.sampleTo(102);
  s.set(1, 7);
  s.sampleTo(103);
  assert.deepEqual([...read(s.message(new Acks(), 3))], [[103, [0, 7]], [102, [0, 6]], [101, [0, 6]]]);
  assert.deepEqual([...read(s.message(new Acks(), 3))], [[103, [0, 7]], [102, [0, 6]], [101, [0, 6]]]);
  s.sampleTo(103);
  s.sampleTo(90);
  assert.equal(s.label, 103);
  s.sampleTo(109);
  assert.equal(read(s.message(new Acks(), 3)).size, 6, "all fresh samples");
  s.sampleTo(1000);
  const after = read(s.message(new Acks(), 3));
  assert.deepEqual([...after.keys()], [1000, 999, 998, 997, 996, 995, 994, 993]);
});

test("a press between two samples is never lost", () => {
  const s = new Sampler(codec);
  s.sampleTo(1);
  s.set(0, 1);
  s.set(0, 0);
  s.sampleTo(3);
  const got = read(s.message(new Acks(), 3));
  assert.deepEqual([got.get(1), got.get(2), got.get(3)].map((v) => v![0]), [0, 1, 0]);
});

test("a release and press between two samples makes an edge", () => {
  const s = new Sampler(codec);
  s.set(0, 1);
  s.sampleTo(1);
  s.set(0, 0);
  s.set(0, 1);
  s.sampleTo(4);
  const got = read(s.message(new Acks(), 4));
  assert.deepEqual([1, 2, 3, 4].map((l) => got.get(l)![0]), [1, 0, 1, 1]);
});

test("every press makes one edge, however presses, samples and messages fall", () => {
  for (let seed = 1; seed <= 50; seed++) {
    let x = seed;
    const rand = (): number => (x = (Math.imul(x, 1664525) + 1013904223) >>> 0) / 2 ** 32;
    const s = new Sampler(codec);
    const all = new Map<number, [number, number]>();
    let label = 1;
    let presses = 0;
    let down = 0;
    s.sampleTo(label);
    for (let i = 0; i < 400; i++) {
      // At most two changes between samples, so that presses cannot pile up without end.
      for (let c = Math.floor(rand() * 3); c > 0; c--) {
        down ^= 1;
        if (down) presses++;
        s.set(0, down);
      }
      s.sampleTo((label += 2 + Math.floor(rand() * 3)));
      if (rand() < 0.6 || s.fresh > 3) read(s.message(new Acks(), 1 + Math.floor(rand() * 4)), all);
    }
    read(s.message(new Acks(), 3), all);
    s.set(0, 0);
    s.sampleTo(label + 8);
    read(s.message(new Acks(), 3), all);
    let edges = 0;
    let before = 0;
    for (let l = 1; l <= label + 8; l++) {
      const v = all.get(l)![0];
      if (v === 1 && before === 0) edges++;
      before = v;
    }
    assert.equal(edges, presses, `seed ${seed}`);
  }
});

test("release lets everything go, and restart forgets labels but no press", () => {
  const s = new Sampler(codec);
  s.set(1, 9);
  s.set(0, 1);
  s.release();
  s.sampleTo(10);
  assert.deepEqual(read(s.message(new Acks(), 1)).get(10), [0, 0]);
  s.set(0, 1);
  s.set(0, 0);
  s.restart();
  assert.equal(s.message(new Acks(), 3), null);
  s.sampleTo(5);
  s.sampleTo(6);
  const got = read(s.message(new Acks(), 3));
  assert.deepEqual([got.get(5)![0], got.get(6)![0]], [1, 0]);
});

test("without a beat each sample stands alone", () => {
  const s = new Sampler(codec);
  s.set(0, 1);
  s.set(0, 0);
  s.sample();
  assert.deepEqual([...read(s.message(new Acks(), 3))], [[0, [1, 0]]]);
  assert.equal(s.pending, true, "the press has to end");
  s.sample();
  assert.deepEqual([...read(s.message(new Acks(), 3))], [[0, [0, 0]]]);
  assert.equal(s.pending, false);
});
