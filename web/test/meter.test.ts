import assert from "node:assert/strict";
import { test } from "node:test";
import { Meter, RECENT } from "../src/meter.ts";
import { KIND_REPORT, KIND_STATE, type Welcome } from "../src/packet.ts";
import type { Cause } from "../src/quality.ts";
import { type Room, join } from "../src/room.ts";
import { DecodeError } from "../src/snap.ts";
import { decoders } from "../src/feeds.ts";
import { FakePage, type FakeSocket } from "./fake.ts";

const TICK = 1000 / 60;
const FRAME = 1000 / 60;

function state(s: FakeSocket, seq: number, tick: number, body: number[] = [], margin = -128, inputAck = 0): void {
  s.deliver(new Uint8Array([
    KIND_STATE, 0, seq & 255, (seq >> 8) & 255, 1, tick & 255, (tick >> 8) & 255, inputAck & 255, (inputAck >> 8) & 255, margin & 255, ...body,
  ]));
}

async function live(page: FakePage, w: Partial<Welcome> = {}): Promise<Room> {
  const p = join({ world: "dots", url: "wss://play.example/ws", env: page });
  page.last.welcome({ reportMs: 2000, ...w });
  return p;
}

interface Fault {
  /** From at on for ms. */
  kind?: Cause;
  at: number;
  ms: number;
}

// Plays a page at 60 frames a second against a server at 60 steps and 20 packets a second, 40 ms away; a fault that is seeded takes place.
async function play(seed: number, f: Fault, total: number): Promise<{ room: Room; page: FakePage; verdicts: number[] }> {
  const rand = (): number => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  const page = new FakePage();
  const room = await live(page);
  const start = page.time;
  const at = f.at + 300 * rand();
  const within = (now: number, kind: Cause): boolean => f.kind === kind && now >= at && now < at + f.ms;
  const way: { tick: number; at: number }[] = [];
  let tick = 1000;
  let stepAt = 0;
  let seq = 0;
  let last = 0;
  let owed = 0;
  for (let t = 0; t < total; t += 1) {
    // The server: what it could not do in time it does three steps of, and forgets the rest.
    while (stepAt <= t) {
      if (within(stepAt, "server")) owed++;
      else {
        for (let k = 1 + Math.min(3, owed); k > 0; k--) {
          if (++tick % 3 !== 0) continue;
          const held = within(t, "network") ? at + f.ms : t;
          last = Math.max(last, held + 40 + 15 * rand());
          way.push({ tick, at: last });
        }
        owed = 0;
      }
      stepAt += TICK;
    }
    page.run(1);
    if (within(t, "page")) continue;
    for (; way.length > 0 && way[0]!.at <= t; way.shift()) state(page.last, ++seq, way[0]!.tick);
    if (Math.floor(t / FRAME) !== Math.floor((t - 1) / FRAME)) room.view(start + t);
  }
  const verdicts = [0, 0, 0];
  for (const m of page.last.of(KIND_REPORT)) for (let c = 0; c < 3; c++) verdicts[c]! += m[1 + c]!;
  return { room, page, verdicts };
}

test("a server that stops, a network that holds up and a page that is busy are told apart to the server", async () => {
  const causes: Cause[] = ["server", "network", "page"];
  for (let seed = 1; seed <= 12; seed++) {
    for (const [kind, ms] of [["server", 400], ["server", 1000], ["server", 3000], ["network", 400], ["network", 900], ["network", 3000], ["page", 200]] as [Cause, number][]) {
      const { room, verdicts } = await play(seed, { kind, ms, at: 4000 }, 12_000);
      assert.deepEqual(verdicts, causes.map((c) => (c === kind ? 1 : 0)), `seed ${seed}, ${kind} ${ms} ms`);
      assert.equal(room.quality.cause, kind);
      assert.equal(room.quality.stutters[kind], 1);
      room.leave();
    }
  }
});

test("a way that becomes longer for good is the network's doing, if the round trip says so", () => {
  for (const [kind, more] of [["network", 100], ["server", 0]] as [Cause, number][]) {
    const m = new Meter({ pingMs: () => 0, stateAgeMs: () => 0, bufferMs: () => 0, rollbacks: () => 0 });
    m.describe(TICK, 20);
    m.interrupt(0);
    // Either the way is longer by 100 ms each way from 5 s on, or the server made no steps for 100 ms.
    for (let t = 1; t < 9000; t++) {
      const late = t >= 5000 ? 100 : 0;
      if (t % 50 === 0) {
        if (t < 5000 || t >= 5100) {
          m.packet((t - late) / TICK, t);
          m.roundTrip(60 + (late > 0 ? 2 * more : 0) + (t % 7), t);
        }
      }
      if (t % 17 === 0) {
        m.frame(t, t >= 5040 && t < 5120 ? 60 : 0);
        m.roll(t);
      }
    }
    assert.equal(m.stutters[kind], 1, JSON.stringify(m.stutters));
    assert.equal(m.stutters.server + m.stutters.network + m.stutters.page, 1);
  }
});

test("nothing is judged before it has settled", () => {
  const m = new Meter({ pingMs: () => 0, stateAgeMs: () => 0, bufferMs: () => 0, rollbacks: () => 0 });
  m.describe(TICK, 20);
  m.interrupt(0);
  for (let t = 1; t < 6000; t++) {
    if (t % 50 === 0) m.packet(t / TICK, t);
    if (t % 17 === 0 && !(t > 500 && t < 900)) {
      m.frame(t, 0);
      m.roll(t);
    }
  }
  assert.deepEqual(m.stutters, { server: 0, network: 0, page: 0 });
});

test("without a fault nothing is blamed, and reports are bounded and say what is so", async () => {
  const { room, page, verdicts } = await play(5, { at: 0, ms: 0 }, 12_000);
  assert.deepEqual(verdicts, [0, 0, 0]);
  const sent = page.last.of(KIND_REPORT);
  assert.ok(sent.length >= 4 && sent.length <= 6, `${sent.length} reports`);
  const v = new DataView(sent[2]!.buffer);
  assert.equal(sent[2]!.length, 36);
  assert.ok(Math.abs(v.getUint16(4, true) - 2000) < 60, `span ${v.getUint16(4, true)}`);
  assert.ok(Math.abs(v.getUint16(6, true) - 120) < 5, `frames ${v.getUint16(6, true)}`);
  assert.ok(v.getUint16(8, true) / 8 < 19 && v.getUint16(8, true) / 8 > 15, "frame p99");
  assert.equal(v.getUint16(20, true), 0, "underruns");
  const q = room.quality;
  assert.ok(Math.abs(q.fps - 60) < 2 && q.frameMaxMs < 19 && q.cause === null && q.underruns === 0);
  room.leave();
});

test("a server that does not ask is told nothing", async () => {
  const page = new FakePage();
  const room = await live(page, { reportMs: 0 });
  for (let i = 1; i < 400; i++) {
    page.run(FRAME);
    if (i % 3 === 0) state(page.last, i, 1000 + i);
    room.view(page.time);
  }
  assert.equal(page.last.of(KIND_REPORT).length, 0);
  assert.ok(room.quality.fps > 58);
  room.leave();
});

test("a hidden page reports nothing, and is not blamed for having slept", async () => {
  const page = new FakePage();
  const room = await live(page);
  let i = 0;
  const go = (ms: number, draw: boolean): void => {
    for (let t = 0; t < ms; t += FRAME) {
      page.run(FRAME);
      if (++i % 3 === 0) state(page.last, i, 1000 + i);
      if (draw) room.view(page.time);
    }
  };
  go(3000, true);
  page.page("hidden");
  const before = page.last.of(KIND_REPORT).length;
  go(8000, false);
  assert.equal(page.last.of(KIND_REPORT).length, before);
  page.page("visible");
  go(6000, true);
  assert.ok(page.last.of(KIND_REPORT).length > before);
  assert.deepEqual(room.quality.stutters, { server: 0, network: 0, page: 0 });
  room.leave();
});

test("packets that need what was lost are counted apart, and so are starved inputs", async () => {
  decoders.set("test/meter", () => ({
    decode: (_: unknown, body: Uint8Array) => {
      if (body[0] === 9) throw new DecodeError("keyframe", "no baseline");
      if (body[0] === 8) throw new DecodeError("overtaken", "old");
    },
    hash: () => 0, cursor: () => 0,
  }));
  const page = new FakePage();
  const room = await live(page, { ordered: false, feeds: [{ kind: "test/meter", name: "m", lane: 0, schema: null }] });
  let seq = 0;
  for (let i = 0; i < 200; i++) {
    page.run(FRAME);
    room.view(page.time);
    if (i === 20) state(page.last, ++seq, 1000 + i, [9]);
    else if (i === 23) state(page.last, ++seq, 1000 + i, [8]);
    else if (i % 3 === 0) state(page.last, ++seq, 1000 + i, [1], i === 30 || i === 33 ? -2 : 2, i === 33 ? 30 : i);
  }
  assert.equal(room.quality.baseless, 1);
  assert.equal(room.quality.decodeErrors, 0);
  const all = page.last.of(KIND_REPORT).map((m) => new DataView(m.buffer));
  assert.equal(all.reduce((n, v) => n + v.getUint16(28, true), 0), 1);
  assert.equal(all.reduce((n, v) => n + v.getUint16(30, true), 0), 1, "one input was late, and said so twice");
  room.leave();
});

test("long tasks are counted where the browser tells, and no longer watched when it is over", async () => {
  const page = new FakePage();
  let told: ((ms: number) => void) | null = null;
  (page as { longTasks?: unknown }).longTasks = (f: (ms: number) => void) => {
    told = f;
    return () => (told = null);
  };
  const room = await live(page);
  for (let i = 0; i < 130; i++) {
    page.run(FRAME);
    if (i === 70 || i === 80) told!(90);
    room.view(page.time);
  }
  assert.equal(room.quality.longTasks, 2);
  room.leave();
  assert.equal(told, null);
});

test("jolts are found again within nine percent, at the 99th percentile", () => {
  const m = new Meter({ pingMs: () => 0, stateAgeMs: () => 0, bufferMs: () => 0, rollbacks: () => 0 });
  m.roll(0);
  for (let i = 0; i < 1000; i++) {
    m.moved(i < 985 ? 0.001 : 3, i === 500);
    m.frame(i, 0);
  }
  m.roll(1000);
  assert.ok(Math.abs(m.second.joltP99 / 3 - 1) < 0.1, `${m.second.joltP99}`);
  assert.equal(m.second.jumps, 1);
  assert.equal(m.frames.count, RECENT);
  assert.equal(m.frames.at(RECENT - 1), 1);
});
