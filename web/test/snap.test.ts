import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { DecodeError, SnapDecoder, type SnapEntity, type SnapPacket, type SnapType } from "../src/snap.ts";
import * as wire from "../src/wire.ts";

// The vectors that the Go tests write: go test ./wire ./feed/snap -update
function vectors(name: string): any {
  for (let up = "./"; up.length < 60; up += "../") {
    try {
      return JSON.parse(readFileSync(new URL(up + "wire/testdata/" + name, import.meta.url), "utf8"));
    } catch (e) {
      if ((e as { code?: string }).code !== "ENOENT") throw e;
    }
  }
  throw new Error(`wire/testdata/${name} is not above this file`);
}

const unhex = (s: string): Uint8Array => new Uint8Array(Buffer.from(s, "hex"));
const hex = (b: Uint8Array): string => Buffer.from(b).toString("hex");
const number = (v: number | string): number => (typeof v === "string" ? Number(v) : v);
const utf8 = new TextEncoder();

const W = vectors("wire.json");

interface Op { op: string; v: number; n?: number; s?: string }

test("wire: bits are written and read as in Go", () => {
  for (const { ops, hex: want } of W.bits as { ops: Op[]; hex: string }[]) {
    const w = new wire.BitWriter(1);
    for (let round = 0; round < 2; round++) {
      w.reset();
      for (const o of ops) {
        if (o.op === "bits") w.bits(o.v, o.n ?? 0);
        else if (o.op === "uvarint") w.uvarint(o.v);
        else if (o.op === "varint") w.varint(o.v);
        else w.bytes(utf8.encode(o.s ?? ""));
      }
      assert.equal(hex(w.finish()), want);
    }
    const r = new wire.BitReader(unhex(want));
    for (const o of ops) {
      if (o.op === "bits") assert.equal(r.bits(o.n ?? 0), o.v);
      else if (o.op === "uvarint") assert.equal(r.uvarint(), o.v);
      else if (o.op === "varint") assert.equal(r.varint(), o.v);
      else {
        const b = utf8.encode(o.s ?? "");
        const got = new Uint8Array(b.length);
        assert.ok(r.bytes(got, 0, b.length));
        assert.deepEqual(got, b);
      }
    }
    assert.ok(r.end());
  }
});

test("wire: bad input is noticed and stays bad", () => {
  for (const { ops, hex: input } of W.bad as { ops: Op[]; hex: string }[]) {
    const r = new wire.BitReader(unhex(input));
    for (const o of ops) {
      if (o.op === "bits") r.bits(o.n ?? 0);
      else if (o.op === "uvarint") r.uvarint();
      else r.bytes(new Uint8Array(9), 0, o.s!.length);
    }
    assert.ok(r.bad, input);
    assert.equal(r.left(), 0);
    assert.equal(r.bits(3), 0);
    assert.ok(!r.end());
  }
  for (const [input, read, ok] of [["01", 1, true], ["03", 1, false], ["0100", 1, false], ["ff", 8, true], ["", 0, true]] as const) {
    const r = new wire.BitReader(unhex(input));
    r.bits(read);
    assert.equal(r.end(), ok, input);
  }
  // More than a number holds.
  assert.equal(new wire.BitReader(unhex("ffffffffffffff10")).uvarint(), 0);
  assert.equal(new wire.BitReader(unhex("ffffffffffffff0f")).uvarint(), wire.MAX_UVARINT);
});

test("wire: numbers are quantised as in Go", () => {
  for (const v of W.quant) {
    const q = new wire.Quant(v.q, v.min, v.max);
    assert.equal(q.quantise(number(v.v)), v.k, `${v.v} by ${v.q}`);
    assert.equal(q.ok, v.ok);
    assert.equal(q.dequantise(v.k), v.back);
  }
  for (const v of W.angle) {
    const k = wire.quantiseAngle(number(v.v));
    assert.equal(k < 0 ? 0 : k, v.k, `angle ${v.v}`);
    assert.equal(k >= 0, v.ok);
    assert.equal(wire.dequantiseAngle(v.k), v.back);
  }
});

test("wire: sequence numbers, ticks, zigzag and hashes are Go's", () => {
  for (const v of W.seq) {
    assert.equal(wire.seqDiff(v.a, v.b), v.diff);
    assert.equal(wire.seqNewer(v.a, v.b), v.newer);
  }
  for (const v of W.tick) assert.equal(wire.fullTick(v.low, v.near), v.full);
  for (const [v, u] of W.zigzag) {
    assert.equal(wire.zigzag(v), u);
    assert.equal(wire.unzigzag(u), v);
  }
  for (const v of W.hash) {
    let h = wire.NEW_HASH;
    for (const x of v.values) h = wire.hashAdd(h, x);
    assert.equal(wire.hashBytes(h, utf8.encode(v.text)), v.hash);
  }
});

interface Step {
  seq: number; epoch: number; tick: number; ack: number; acks: number; hex: string; error?: string; hash: number; cursor: number; own: number; held: number;
  entities?: { id: number; type: number; values: number[]; numbers: number[]; texts: string[] }[];
  events?: { id: number; tick: number; type: number; numbers: number[]; texts: string[] }[];
}
interface Case { name: string; schema: { types: SnapType[] }; steps: Step[] }

const G: Case[] = vectors("snap.json").cases;

// Splits values by field index as the vectors have them: numbers, then texts.
function split(t: SnapType, of: { numbers: Float64Array; texts: string[] }): { numbers: number[]; texts: string[] } {
  const cols = t.fields.filter((f) => f.kind !== "text").length;
  return { numbers: [...of.numbers].slice(0, cols), texts: of.texts.slice(cols) };
}

function dump(d: SnapDecoder): Step["entities"] {
  return [...d.entities]
    .sort((a, b) => a.$slot - b.$slot)
    .map((e) => {
      const s = split(d.types[e.type]!, e);
      return { id: e.id, type: e.type, values: [...e.values].slice(0, s.numbers.length), ...s };
    });
}

function feed(d: SnapDecoder, s: SnapPacket, body: Uint8Array): string | undefined {
  try {
    d.decode({ seq: s.seq, epoch: s.epoch, tick: s.tick, ack: s.ack, acks: s.acks }, body);
  } catch (e) {
    assert.ok(e instanceof DecodeError, String(e));
    return e.fault;
  }
  return undefined;
}

for (const c of G) {
  test(`snap: ${c.name}`, () => {
    const d = new SnapDecoder(c.schema);
    const events: Step["events"] = [];
    d.onEvent = (e, tick) => {
      assert.equal(tick, at.tick);
      events.push({ id: e.id, tick: e.tick, type: e.type, ...split(d.events[e.type]!, e) });
    };
    // What enters and leaves must add up to what is held.
    const there = new Map<number, SnapEntity>();
    d.onEnter = (e) => {
      assert.ok(!there.has(e.id));
      there.set(e.id, e);
    };
    d.onUpdate = (e) => assert.equal(there.get(e.id), e);
    d.onLeave = (e) => assert.ok(there.delete(e.id));
    let at: Step;
    c.steps.forEach((s, i) => {
      at = s;
      events.length = 0;
      const what = `step ${i}`;
      assert.equal(feed(d, s, unhex(s.hex)), s.error, what);
      assert.equal(d.hash(), s.hash, what);
      assert.equal(d.cursor(), s.cursor, what);
      assert.equal(d.own, s.own, what);
      assert.equal(d.entities.length, s.held, what);
      assert.deepEqual(events, s.events ?? [], what);
      if (s.entities) assert.deepEqual(dump(d), s.entities, what);
      assert.deepEqual([...there.keys()].sort(), d.entities.map((e) => e.id).sort(), what);
      for (const e of d.entities) assert.equal(d.get(e.id), e);
      if (d.ownEntity) assert.equal(d.ownEntity.id, d.own);
    });
  });
}

test("snap: damaged packets change nothing", () => {
  const c = G[0]!;
  const upTo = (n: number): SnapDecoder => {
    const d = new SnapDecoder(c.schema);
    for (const s of c.steps.slice(0, n)) feed(d, s, unhex(s.hex));
    return d;
  };
  for (const n of [0, 1, 5]) {
    const s = c.steps[n]!;
    const body = unhex(s.hex);
    let d = upTo(n);
    const state = (): string => JSON.stringify([d.hash(), d.cursor(), d.own, dump(d)]);
    const before = state();
    let calls = 0;
    const watch = (): void => {
      d.onEnter = d.onLeave = d.onUpdate = d.onEvent = () => calls++;
    };
    watch();
    for (let k = 0; k < body.length; k++) {
      if (k > 0) assert.ok(feed(d, s, body.subarray(0, k)), `cut to ${k}`);
      for (let bit = 0; bit < 8; bit++) {
        const bad = body.slice();
        bad[k]! ^= 1 << bit;
        calls = 0;
        if (feed(d, s, bad) === undefined) {
          d = upTo(n); // it passes for a packet
          watch();
        } else {
          assert.equal(state(), before, `byte ${k} bit ${bit}`);
          assert.equal(calls, 0);
        }
      }
    }
    assert.equal(feed(d, s, body), undefined);
    assert.equal(d.hash(), s.hash);
  }
});

test("snap: random bytes never do harm", () => {
  let seed = 12345;
  const random = (): number => (seed = (Math.imul(seed, 1103515245) + 12345) >>> 0) / 2 ** 32;
  const c = G[1]!;
  const d = new SnapDecoder(c.schema);
  for (const s of c.steps.slice(0, 9)) feed(d, s, unhex(s.hex));
  for (let i = 0; i < 5000; i++) {
    const b = Uint8Array.from({ length: Math.floor(random() * 40) }, () => random() * 256);
    if (b.length > 0 && random() < 0.9) b[0] = (b[0]! & 0xfc) | 1; // acked, no keyframe
    feed(d, { seq: (65530 + i) & 0xffff, epoch: 3, tick: i, ack: 65525, acks: 0xffffffff }, b);
    d.hash();
  }
  assert.ok(d.entities.length < 5000);
});

test("snap: fields are found by name", () => {
  const d = new SnapDecoder(G[1]!.schema);
  const player = d.type("player");
  assert.equal(player, 0);
  assert.equal(d.type("nobody"), -1);
  assert.equal(d.types[player]!.fields[d.field(player, "pos.y")]!.name, "pos.y");
  assert.equal(d.field(player, "pos"), -1);
  assert.equal(d.field(9, "x"), -1);
  assert.equal(d.eventField(d.eventType("shot"), "say"), 3);
  for (const s of G[1]!.steps) feed(d, s, unhex(s.hex));
  const me = d.ownEntity!;
  assert.ok(me.owner);
  assert.equal(me.field("note"), d.field(player, "note"));
  assert.equal(me.texts[me.field("pos.x")], "");
  assert.equal(me.numbers[me.field("note")], 0);
});

test("snap: nothing is allocated for entities once warm", () => {
  const c = G[0]!;
  const d = new SnapDecoder(c.schema);
  const seen = new Set<SnapEntity>();
  d.onEnter = (e) => seen.add(e);
  const steps = c.steps.map((s) => ({ ...s, body: unhex(s.hex) }));
  let most = 0;
  for (let round = 0; round < 50; round++) {
    for (const s of steps) feed(d, { ...s, epoch: (s.epoch + round) & 255 }, s.body);
    if (round === 2) most = seen.size;
  }
  assert.equal(seen.size, most);
});
