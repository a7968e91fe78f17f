import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as packet from "../src/packet.ts";

const root = new URL("../../../../", import.meta.url);
const source = (name: string): string => readFileSync(new URL(name, root), "utf8");

test("the constants are those of packet.go", () => {
  const go = source("packet.go");
  const constants: Record<string, number> = {
    ProtocolVersion: packet.PROTOCOL_VERSION, KindHello: packet.KIND_HELLO, KindInput: packet.KIND_INPUT, KindAck: packet.KIND_ACK,
    KindCommand: packet.KIND_COMMAND, KindLeave: packet.KIND_LEAVE, KindReport: packet.KIND_REPORT, KindWelcome: packet.KIND_WELCOME, KindState: packet.KIND_STATE,
    KindRefuse: packet.KIND_REFUSE, KindReliable: packet.KIND_RELIABLE, MaxHelloBytes: packet.MAX_HELLO_BYTES,
    MaxCommandBytes: packet.MAX_COMMAND_BYTES, MaxInputs: packet.MAX_INPUTS, MarginNone: packet.MARGIN_NONE,
  };
  for (const [name, value] of Object.entries(constants)) {
    const m = new RegExp(`\\b${name}\\s*=\\s*(-?\\d+)`).exec(go);
    assert.ok(m, `packet.go has no ${name}`);
    assert.equal(Number(m[1]), value, name);
  }
});

test("the reasons are those of errors.go", () => {
  const rows = [...source("errors.go").matchAll(/\{"([a-z_]+)", (\d+), Retry(\w+), "/g)];
  assert.ok(rows.length > 20);
  const want = Object.fromEntries(rows.map((m) => [m[2], [m[1], m[3]!.toLowerCase()]]));
  assert.deepEqual(packet.REASONS, want);
});

function state(flags: number, ...rest: number[]): Uint8Array {
  return new Uint8Array([packet.KIND_STATE, flags, 0x34, 0x12, 7, 0x02, 0x01, 0x04, 0x03, 0xfe, ...rest]);
}

function parse(msg: Uint8Array): { h: packet.StateHeader; sections: [number, number[]][] } {
  const h = new packet.StateHeader();
  const sections: [number, number[]][] = [];
  packet.parseState(msg, h, (feed, body) => sections.push([feed, [...body]]));
  return { h, sections };
}

test("a state packet is split", () => {
  const { h, sections } = parse(state(0, 9, 8, 7));
  assert.equal(h.seq, 0x1234);
  assert.equal(h.epoch, 7);
  assert.equal(h.tick16, 0x0102);
  assert.equal(h.inputAck, 0x0304);
  assert.equal(h.margin, -2);
  assert.deepEqual(sections, [[0, [9, 8, 7]]]);
  assert.deepEqual(parse(state(0)).sections, []);
});

test("acks, hash and sections are found", () => {
  const { h, sections } = parse(state(7, 0xff, 0xff, 1, 0, 0, 0x80, 0, 2, 10, 11, 3, 0, 1, 2, 3, 4));
  assert.equal(h.ack, 0xffff);
  assert.equal(h.acks, 0x80000001);
  assert.equal(h.hash, 0x04030201);
  assert.deepEqual(sections, [[0, [10, 11]], [3, []]]);
});

test("a section may be longer than 127 bytes", () => {
  const body = Array.from({ length: 300 }, (_, i) => i & 255);
  assert.deepEqual(parse(state(4, 5, 0xac, 0x02, ...body)).sections, [[5, body]]);
});

test("malformed state packets are refused", () => {
  const bad: Uint8Array[] = [
    new Uint8Array(0), state(0).subarray(0, 9), state(8), state(2, 1, 2, 3, 4, 5), state(1, 1, 2, 3), state(4, 0), state(4, 0, 5, 1), state(4, 1, 0, 1, 0),
    state(4, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), state(4, 2, 0, 1, 0),
  ];
  for (const b of bad) assert.throws(() => parse(b), packet.PacketError, `[${b}]`);
  const other = state(0);
  other[0] = 16;
  assert.throws(() => parse(other), packet.PacketError);
});

test("random bytes are refused or read, nothing else", () => {
  let seed = 99;
  const rand = (n: number): number => ((seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) >>> 8) % n;
  for (let i = 0; i < 20_000; i++) {
    const b = new Uint8Array(rand(60));
    for (let k = 0; k < b.length; k++) b[k] = rand(256);
    if (b.length > 1) b.set([packet.KIND_STATE, rand(8)]);
    try {
      for (const [feed, body] of parse(b).sections) assert.ok(feed < 256 && body.length <= b.length);
    } catch (e) {
      assert.ok(e instanceof packet.PacketError, `[${b}]: ${e}`);
    }
  }
});

test("ticks are completed to the nearest", () => {
  for (const tick of [0, 1, 65535, 65536, 65537, 1e6, 2 ** 31]) {
    for (const step of [-32768, -1, 0, 1, 32767]) {
      if (tick + step >= 0) assert.equal(packet.near16(tick, (tick + step) % 65536), tick + step);
    }
  }
});

test("the ack history knows the last 32 packets, over the wrap", () => {
  let seed = 1;
  const rand = (): number => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  const acks = new packet.Acks();
  const got = new Set<number>();
  let newest = -1;
  for (let i = 0; i < 5000; i++) {
    const n = Math.max(0, newest + Math.floor(rand() * (rand() < 0.05 ? 60 : 5)) - 2);
    const known = got.has(n) || n < newest - 32;
    assert.equal(acks.isNew((n + 65000) & 0xffff), !known);
    assert.equal(acks.note((n + 65000) & 0xffff), !known);
    if (!known) got.add(n);
    newest = Math.max(newest, n);
    assert.equal(acks.newest, (newest + 65000) & 0xffff);
    let history = 0;
    for (let b = 0; b < 32; b++) if (got.has(newest - 1 - b)) history = (history | (1 << b)) >>> 0;
    assert.equal(acks.history, history);
  }
});

test("inputs are packed: bools first, then the others, little-endian", () => {
  const names = ["a", "fire", "b", "c", "jump", "d", "e", "f"];
  const kinds = ["i8", "bool", "u16", "i32", "bool", "f32", "u8", "i16"];
  const c = new packet.InputCodec(names.map((name, i) => ({ name, kind: kinds[i]! })));
  assert.equal(c.size, 1 + 1 + 2 + 4 + 4 + 1 + 2);
  assert.equal(c.field("jump"), 4);
  assert.equal(c.field("none"), -1);
  const b = new Uint8Array(c.size + 2).fill(0xaa);
  c.encode([-2, 1, 0x1234, -3, 1, 1.5, 200, -300], b, 1);
  assert.deepEqual([...b], [0xaa, 3, 0xfe, 0x34, 0x12, 0xfd, 0xff, 0xff, 0xff, 0, 0, 0xc0, 0x3f, 200, 0xd4, 0xfe, 0xaa]);
  c.encode([999, 0, -5, NaN, 1, Infinity, 255.4, -1e9], b, 1);
  assert.deepEqual([...b], [0xaa, 2, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0x80, 0xaa]);
  assert.throws(() => new packet.InputCodec([{ name: "x", kind: "i64" }]), /i64/);
});

test("nine bools take two bytes", () => {
  const c = new packet.InputCodec(Array.from({ length: 9 }, (_, i) => ({ name: `b${i}`, kind: "bool" })));
  const b = new Uint8Array(2);
  c.encode([1, 0, 0, 0, 0, 0, 0, 1, 1], b, 0);
  assert.deepEqual([...b], [0x81, 1]);
});

test("ack and input heads", () => {
  const acks = new packet.Acks();
  assert.deepEqual([...packet.encodeAck(acks)], [3, 0, 0, 0, 0, 0, 0]);
  acks.note(0x0101);
  acks.note(0x0102);
  assert.deepEqual([...packet.encodeAck(acks)], [3, 2, 1, 1, 0, 0, 0]);
  const b = new Uint8Array(12);
  assert.equal(packet.putInputHeader(b, acks, 3, 0x04030201), 12);
  assert.deepEqual([...b], [2, 2, 1, 1, 0, 0, 0, 3, 1, 2, 3, 4]);
});

test("goodbyes and welcomes from outside are checked", () => {
  const g = packet.decodeGoodbye(packet.encodeJSON(18, { reason: "room_full", code: 4010, text: "Full.", retry: "later", retryMs: 2000 }));
  assert.deepEqual(g, { reason: "room_full", code: 4010, text: "Full.", retry: "later", retryMs: 2000 });
  assert.equal(packet.decodeGoodbye(new Uint8Array([18, 0x7b])).retry, "resume");
  assert.equal(packet.decodeGoodbye(packet.encodeJSON(18, { code: 4020, retry: "nonsense", retryMs: -1 })).retry, "new");
  assert.equal(packet.decodeGoodbye(packet.encodeJSON(18, null)).reason, "link_lost");
  assert.throws(() => packet.decodeWelcome(packet.encodeJSON(16, { protocol: 2 })), packet.PacketError);
  assert.throws(() => packet.decodeWelcome(packet.encodeJSON(16, null)), packet.PacketError);
  assert.throws(() => packet.decodeWelcome(new Uint8Array([16, 1, 2])), packet.PacketError);
});

const vectors = JSON.parse(source("wire/testdata/packet.json"));
const unhex = (h: string): Uint8Array => new Uint8Array(Buffer.from(h, "hex"));
const hex = (b: Uint8Array): string => Buffer.from(b).toString("hex");

test("packets are read and written as in Go", () => {
  for (const v of vectors.states) {
    const { h, sections } = parse(unhex(v.hex));
    for (const k of ["seq", "epoch", "tick16", "inputAck", "margin", "hasAcks", "ack", "acks", "hasHash", "hash"] as const) assert.equal(h[k], v[k], `${v.hex} ${k}`);
    assert.deepEqual(sections.map(([feed, body]) => ({ feed, body: hex(new Uint8Array(body)) })), v.sections);
  }
  for (const bad of vectors.badStates) assert.throws(() => parse(unhex(bad)), packet.PacketError, bad);
  for (const v of vectors.reliable) {
    const h = new packet.ReliableHeader();
    assert.equal(hex(packet.parseReliable(unhex(v.hex), h)), v.body);
    assert.deepEqual([h.feed, h.epoch, h.tick], [v.feed, v.epoch, v.tick]);
  }
  const codec = new packet.InputCodec(vectors.fields);
  for (const v of vectors.inputs) {
    const acks = new packet.Acks();
    acks.newest = v.ack;
    acks.history = v.history;
    const b = new Uint8Array((v.seen === undefined ? 12 : 14) + v.values.length * codec.size);
    let at = packet.putInputHeader(b, acks, v.values.length, v.label, v.seen);
    const back = new Float64Array(codec.fields.length);
    for (const values of v.values) {
      codec.encode(values, b, at);
      codec.decode(b, at, back);
      assert.deepEqual([...back], values);
      at += codec.size;
    }
    assert.equal(hex(b), v.hex);
  }
  for (const v of vectors.reports) {
    const [server, network, page] = v.stutters;
    const [spanMs, frames, p99, max, longTasks, ping, age, buffer, underruns, jumps, rollbacks, unreadable, baseless, starved] = v.numbers;
    assert.equal(hex(packet.encodeReport({
      server, network, page, spanMs, frames, frameP99Ms: p99 / 8, frameMaxMs: max / 8, longTasks, pingMs: ping / 8, stateAgeMs: age / 8, bufferMs: buffer / 8,
      underruns, jumps, rollbacks, unreadable, baseless, starved, joltP99: v.jolt,
    })), v.hex);
  }
  for (const v of vectors.acks) {
    const acks = new packet.Acks();
    for (const seq of v.seqs) acks.note(seq);
    assert.equal(hex(packet.encodeAck(acks)), v.hex, `${v.seqs}`);
  }
});
