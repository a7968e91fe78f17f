import assert from "node:assert/strict";
import { test } from "node:test";
import { Arrivals, RenderClock } from "../src/clock.ts";
import { type Entity, Timeline } from "../src/timeline.ts";
import type { FieldSchema, TypeSchema } from "../src/view.ts";

const TICK = 1000 / 60;
const DELAY = 60;
const field = (name: string, kind = "float", more: Partial<FieldSchema> = {}): FieldSchema => ({ name, kind, bits: 17, min: 0, q: 0.01, ...more });
const PLAYER: TypeSchema = {
  name: "player",
  fields: [field("pos.x"), field("pos.y"), field("hp", "uint", { bits: 8, q: 1 }), field("aim", "angle", { bits: 12, q: Math.PI / 2048 }), field("alive", "bool", { bits: 1, q: 1 }), field("name", "text", { bits: 5 })],
};
// As the server makes it of quanta of 0.01 and 60 steps a second: 1 / (32 · 60).
const AHEAD = { by: 1, mul: 279620, shift: 29 };
const CAR: TypeSchema = { name: "car", fields: [field("x", "float", { ahead: AHEAD }), field("vx", "float", { bits: 14, min: -8000 })] };
// One that looks where it drives: its speed ahead and to the left, along its angle, which turns.
const ANGLE_Q = Math.PI / 2048;
const DRIVE = { by: 3, by2: 4, angle: 2, mul: 279620, shift: 29 };
const TANK: TypeSchema = {
  name: "tank",
  fields: [
    field("x", "float", { pose: true, ahead: DRIVE }), field("y", "float", { pose: true, ahead: { ...DRIVE, side: 1 } }),
    field("dir", "angle", { bits: 12, q: ANGLE_Q, pose: true, ahead: { by: 5, mul: 455696, shift: 27 } }),
    field("speed", "float", { bits: 14, min: -8000, pose: true }), field("slide", "float", { bits: 14, min: -8000, pose: true }), field("turn", "float", { bits: 11, min: -1000, pose: true }),
    field("hp", "uint", { bits: 8, q: 1 }),
  ],
};
const SHOT: TypeSchema = { name: "shot", fields: [field("x"), field("id", "uint", { bits: 16, q: 1 })] };

interface Player { pos: { x: number; y: number }; hp: number; aim: number; alive: boolean; name: string }

// A timeline whose packets come 3 ticks apart after exactly 40 ms.
class Rig {
  readonly arrivals = new Arrivals(TICK);
  readonly clock = new RenderClock(this.arrivals, 20, true);
  readonly log: string[] = [];
  readonly line: Timeline;
  now = 0;

  constructor() {
    this.line = new Timeline([PLAYER, CAR, TANK], [SHOT], this.clock, TICK, {
      enter: (e) => this.log.push(`enter ${e.id} ${(e as Entity & Player).pos?.x ?? ""}`.trim()),
      leave: (e) => this.log.push(`leave ${e.id}${e.gone ? "" : " from sight"}`),
      event: (name, v, tick) => this.log.push(`${name} ${(v as unknown as { x: number }).x} at ${tick}`),
    });
  }

  packet(tick: number, fill: (line: Timeline) => void = () => {}): void {
    const at = tick * TICK + 40;
    this.line.packet(tick);
    fill(this.line);
    this.arrivals.note(tick, at);
    this.clock.arrive(tick, at);
    this.line.idle(at);
    this.now = at;
  }

  // Shows that tick, the buffer being at rest.
  show(tick: number): number {
    return this.line.advance(tick * TICK + 40 + DELAY);
  }
}

const values = (x: number, y = 0, hp = 100, aim = 0): number[] => [x, y, hp, aim, 1, 0];

test("positions are interpolated, counts are not, angles take the short way", () => {
  const r = new Rig();
  r.packet(0, (l) => l.enter(0, 7, values(10, 20, 100, 3), ["", "", "", "", "", "Ann"], 0));
  r.packet(3, (l) => l.update(7, values(16, 20, 90, -3), ["", "", "", "", "", "Ann"], 3));
  r.show(0);
  const e = r.line.get(7) as Entity & Player;
  assert.equal(e.pos.x, 10);
  assert.equal(e.name, "Ann");
  assert.equal(e.alive, true);
  assert.equal(e.type, "player");
  r.show(1.5);
  assert.ok(Math.abs(e.pos.x - 13) < 0.01, `${e.pos.x}`);
  assert.equal(e.hp, 100);
  assert.ok(Math.abs(Math.abs(e.aim) - Math.PI) < 0.01, `${e.aim}`);
  r.show(3);
  assert.equal(e.hp, 90);
  assert.deepEqual(r.log, ["enter 7 10"]);
});

test("what has no speed stood still until the packet before", () => {
  const r = new Rig();
  r.packet(0, (l) => l.enter(0, 7, values(10), [], 0));
  for (let t = 3; t <= 12; t += 3) r.packet(t);
  r.packet(15, (l) => l.update(7, values(13), [], 15));
  const e = (r.show(11), r.line.get(7) as Entity & Player);
  assert.equal(e.pos.x, 10);
  r.show(13);
  assert.ok(Math.abs(e.pos.x - 11) < 0.02, `${e.pos.x}`);
});

// Rounds as a ring of that many bits does, in quanta of 0.01.
const coarse = (v: number, bits: number): number => (Math.round((v * 100) / 2 ** bits) * 2 ** bits) / 100;

// Shows all of the time from tick a to tick b at 60 frames a second, with packets as they come 3 ticks apart.
function play(r: Rig, from: number, to: number, packet: (line: Timeline, tick: number) => void, frame: (tick: number) => void): void {
  for (let t = from; t <= to; t++) {
    if (t % 3 === 0) r.packet(t, (l) => packet(l, t));
    frame(r.line.advance(r.now + (t % 3) * TICK));
  }
}

test("what is not in a packet goes on as both ends expect it to", () => {
  const r = new Rig();
  const x = (): number => (r.line.get(9) as Entity & { x: number }).x;
  r.packet(0, (l) => l.enter(1, 9, [10, 30], [], 0));
  let least = Infinity;
  let most = -Infinity;
  let last = NaN;
  play(r, 3, 240, (l, t) => {
    // Left out for two seconds, then told once that it was as expected.
    if (t === 120) l.update(9, [10 + (30 * 120) / 60, 30], [], t);
  }, (tick) => {
    if (tick < 1) return;
    assert.ok(Math.abs(x() - (10 + (30 * tick) / 60)) < 1e-3, `${x()} at ${tick}`);
    if (!Number.isNaN(last)) {
      least = Math.min(least, x() - last);
      most = Math.max(most, x() - last);
    }
    last = x();
  });
  assert.ok(least > 0.3 && most < 0.7, `${least} to ${most}`);
});

test("a far car that comes in each fourth packet drives at constant speed", () => {
  for (const bits of [0, 3, 5]) {
    for (const phase of [0, 3, 6, 9]) {
      const r = new Rig();
      const quantum = (2 ** bits) / 100;
      const at = (tick: number): number => coarse(80 + (22.22 * tick) / 60, bits);
      r.packet(0, (l) => l.enter(1, 9, [at(0), 22.22], [], 0, 2));
      const e = (): Entity & { x: number } => r.line.get(9) as Entity & { x: number };
      let last = NaN;
      let lastTick = 0;
      play(r, 3, 900, (l, t) => {
        if (t % 12 === phase) l.update(9, [at(t), 22.22], [], t, 2);
      }, (tick) => {
        if (tick < 1) return;
        const { x } = e();
        assert.ok(Math.abs(x - (80 + (22.22 * tick) / 60)) <= quantum / 2 + 0.01, `${x} at ${tick}`);
        // Neither stands nor leaps: a frame's way is the speed's, and the rounding's spread over some frames.
        if (!Number.isNaN(last)) assert.ok(Math.abs(x - last - (22.22 * (tick - lastTick)) / 60) <= quantum / 2 + 0.005, `${x - last} in ${tick - lastTick} ticks, ${bits} bits`);
        last = x;
        lastTick = tick;
      });
    }
  }
});

test("a far car that brakes and starts is followed without a leap", () => {
  const r = new Rig();
  // The truth: speeds between 0 and 20, changing at up to 8 a second each second.
  const truth: [number, number][] = [];
  for (let t = 0, x = 80, v = 20; t <= 900; t++) {
    const a = 8 * Math.sin(t / 50);
    truth.push([x, v]);
    v = Math.max(0, Math.min(20, v + a / 60));
    x += v / 60;
  }
  r.packet(0, (l) => l.enter(1, 9, [coarse(80, 3), 20], [], 0, 2));
  let last = NaN;
  let worst = 0;
  play(r, 3, 900, (l, t) => {
    if (t % 12 === 0) l.update(9, [coarse(truth[t]![0], 3), coarse(truth[t]![1], 1)], [], t, 2);
  }, (tick) => {
    if (tick < 1) return;
    const { x } = r.line.get(9) as Entity & { x: number };
    worst = Math.max(worst, Math.abs(x - truth[Math.floor(tick)]![0]));
    if (!Number.isNaN(last)) assert.ok(x - last > -0.05 && x - last < 20 / 60 + 0.12, `${x - last} in a frame at ${tick}`);
    last = x;
  });
  // A twelfth of 8 in 0.2 s, twice over, and a frame.
  assert.ok(worst < 0.7, `${worst}`);
});

test("what is rounded is shown at an even pace, within the rounding", () => {
  const r = new Rig();
  const lod = 5;
  const speed = 7.31;
  const half = 2 ** lod / 200;
  const line = new Timeline([{ name: "far", fields: [field("x", "float", { ahead: AHEAD, lod: [0, 0, lod, lod] }), field("vx", "float", { bits: 14, min: -8000 })] }], [], r.clock, TICK, {
    enter: () => {}, leave: () => {}, event: () => {},
  });
  const shown: number[] = [];
  for (let t = 0; t <= 600; t++) {
    if (t % 3 === 0) {
      const at = t * TICK + 40;
      r.now = at;
      if (t === 0) line.enter(0, 9, [coarse(80, lod), speed], [], t, 2);
      else if (t % 12 === 0) line.update(9, [coarse(80 + (speed * t) / 60, lod), speed], [], t, 2);
      r.arrivals.note(t, at);
      r.clock.arrive(t, at);
      line.packet(t);
    }
    const tick = line.advance(r.now + (t % 3) * TICK);
    if (tick < 1) continue;
    const { x } = line.get(9) as Entity & { x: number };
    assert.ok(Math.abs(x - (80 + (speed * tick) / 60)) <= 2 * half + 0.01, `${x} at ${tick}`);
    shown.push(x);
  }
  for (let i = 62; i < shown.length; i++) {
    const jolt = shown[i]! - 2 * shown[i - 1]! + shown[i - 2]!;
    assert.ok(Math.abs(jolt) < 0.005, `a jolt of ${jolt}, rounded to ${2 * half}`);
  }
});

test("a far car that has strayed comes back without a jolt", () => {
  const r = new Rig();
  r.packet(0, (l) => l.enter(1, 9, [10, 30], [], 0, 2));
  const shown: number[] = [];
  // It brakes to a third of its speed within a quarter of a second; nobody hears of it for up to 0.2 s.
  const at = (t: number): [number, number] => {
    const s = Math.min(Math.max(0, t - 120), 15);
    return [10 + t / 2 - (s * s) / 90 - (Math.max(0, t - 135) * 20) / 60, 30 - (20 * s) / 15];
  };
  play(r, 3, 240, (l, t) => {
    if (t % 12 === 9) l.update(9, at(t), [], t, 2);
  }, () => shown.push((r.line.get(9) as Entity & { x: number } | undefined)?.x ?? NaN));
  let most = 0;
  for (let i = 60; i < shown.length; i++) {
    assert.ok(shown[i]! >= shown[i - 1]!, `backwards at frame ${i}`);
    most = Math.max(most, Math.abs(shown[i]! - 2 * shown[i - 1]! + shown[i - 2]!));
  }
  assert.ok(most < 0.15, `a jolt of ${most}, where a step is 0.5`);
  assert.ok(Math.abs(shown[shown.length - 1]! - at(240 - 3.6)[0]) < 0.05);
});

test("a body turns and drives along its angle, and any number of turns come out right", () => {
  const r = new Rig();
  interface Tank { x: number; y: number; dir: number; hp: number }
  const e = (): Entity & Tank => r.line.get(5) as Entity & Tank;
  // Ahead and to the left at 6 and 2 a second; the angle turns by 5 a second, and is told every 3 s: more than two turns.
  const w = 5;
  const dir = (tick: number): number => Math.PI + ((((w * tick) / 60) % (2 * Math.PI)) - Math.PI);
  const still = [10, 20, 0, 0, 0, w, 9];
  r.packet(0, (l) => {
    l.enter(2, 5, still, [], 0);
    l.enter(2, 6, [10, 20, Math.PI / 2, 6, 2, 0, 9], [], 0);
  });
  play(r, 3, 600, (l, t) => {
    if (t % 180 === 0) l.update(5, [10, 20, dir(t), 0, 0, w, 9], [], t);
  }, (tick) => {
    if (tick < 1) return;
    const off = Math.abs(e().dir - dir(tick)) % (2 * Math.PI);
    assert.ok(Math.min(off, 2 * Math.PI - off) < 0.02, `${e().dir}, not ${dir(tick)} at ${tick}`);
    const d = r.line.get(6) as Entity & Tank;
    const s = Math.min(tick, 255) / 60; // after so many ticks things are expected to stay
    assert.ok(Math.abs(d.x - (10 - 2 * s)) < 0.01 && Math.abs(d.y - (20 + 6 * s)) < 0.01, `${d.x} ${d.y} at ${tick}`);
  });
  assert.equal(e().hp, 9);
});

test("past the newest packet all run on alike, whenever they were told last", () => {
  const r = new Rig();
  r.packet(0, (l) => {
    l.enter(1, 1, [0, 60], [], 0, 2);
    l.enter(1, 2, [0, 60], [], 0);
  });
  for (let t = 3; t <= 9; t += 3) r.packet(t, (l) => l.update(2, [t, 60], [], t));
  let now = r.now + DELAY;
  const x = (id: number): number => (r.line.get(id) as Entity & { x: number }).x;
  for (let i = 0; i < 40; i++) {
    r.line.advance((now += TICK));
    assert.ok(Math.abs(x(1) - x(2)) < 0.01, `${x(1)} and ${x(2)}`);
  }
  assert.ok(Math.abs(x(1) - (9 + 60 * 0.175)) < 0.05, `stopped at ${x(1)}`);
  // It went on as expected after all: nothing leaps.
  let before = x(1);
  for (let t = 12; t <= 60; t += 3) r.packet(t);
  for (let i = 0; i < 60; i++) {
    r.line.advance((now += TICK));
    assert.ok(x(1) - before < 6, `${x(1) - before} in a frame`);
    before = x(1);
  }
});

test("velocities bend the path between two samples", () => {
  const r = new Rig();
  // Speeds up from rest: half of the way takes more than half of the time.
  r.packet(0, (l) => l.enter(1, 9, [0, 0], [], 0));
  r.packet(3, (l) => l.update(9, [1, 40], [], 3));
  r.show(1.5);
  const x = (r.line.get(9) as Entity & { x: number }).x;
  assert.ok(x > 0.1 && x < 0.35, `${x}`);
});

test("a teleport is not a fast run, and takes its other coordinate along", () => {
  const r = new Rig();
  r.packet(0, (l) => l.enter(0, 7, values(10, 20), [], 0));
  r.packet(3, (l) => l.update(7, values(900, 25), [], 3));
  r.show(2.9);
  const e = r.line.get(7) as Entity & Player;
  assert.deepEqual([e.pos.x, e.pos.y], [10, 20]);
  r.show(3);
  assert.deepEqual([e.pos.x, e.pos.y], [900, 25]);
});

test("past the newest packet motion runs on, fades, stops, and is made good without a jump", () => {
  const r = new Rig();
  r.packet(0, (l) => l.enter(0, 7, values(0), [], 0));
  r.packet(3, (l) => l.update(7, values(5), [], 3)); // 100 a second
  r.show(3);
  const e = r.line.get(7) as Entity & Player;
  let now = 3 * TICK + 40 + DELAY;
  let before = e.pos.x;
  for (let i = 0; i < 25; i++) {
    r.line.advance((now += TICK));
    assert.ok(e.pos.x >= before && e.pos.x - before < 1.9, `step ${e.pos.x - before}`);
    before = e.pos.x;
  }
  assert.ok(Math.abs(e.pos.x - (5 + 17.5)) < 0.1, `stopped at ${e.pos.x}`);
  // It had stood still after all: what is shown goes back to the truth, little by little.
  for (let t = 6; t <= 36; t += 3) r.packet(t);
  for (let i = 0; i < 80; i++) {
    r.line.advance((now += TICK));
    assert.ok(Math.abs(e.pos.x - before) < 3, `jump of ${e.pos.x - before}`);
    before = e.pos.x;
  }
  assert.ok(Math.abs(e.pos.x - 5) < 0.1, `ends at ${e.pos.x}`);
});

test("enter, events and leave wait for their tick, in this order", () => {
  const r = new Rig();
  r.packet(0, (l) => l.enter(0, 1, values(1), [], 0));
  r.show(0);
  r.packet(3, (l) => {
    l.leave(1, 3);
    l.event(0, [5, 77], [], 2);
    l.event(0, [6, 77], [], 3);
    l.enter(0, 2, values(2), [], 3);
  });
  r.show(1.9);
  assert.deepEqual(r.log, ["enter 1 1"]);
  r.show(2.1);
  assert.deepEqual(r.log.slice(1), ["shot 5 at 2"]);
  assert.equal(r.line.get(2), undefined);
  r.packet(6);
  r.show(3.1);
  assert.deepEqual(r.log.slice(2), ["enter 2 2", "shot 6 at 3", "leave 1"]);
  assert.deepEqual(r.line.entities.map((e) => e.id), [2]);
  assert.equal(r.line.get(1), undefined);
});

test("a keyframe that takes an entity away and brings it again changes nothing shown", () => {
  const r = new Rig();
  r.packet(0, (l) => l.enter(0, 1, values(1), [], 0));
  r.show(0);
  const e = r.line.get(1);
  r.packet(3, (l) => {
    l.leave(1, 3);
    l.enter(0, 1, values(4), [], 3);
  });
  r.packet(6);
  r.show(5);
  assert.equal(r.line.get(1), e);
  assert.equal((e as Entity & Player).pos.x, 4);
  assert.deepEqual(r.log, ["enter 1 1"]);
});

test("a leave says whether it is no more or out of sight", () => {
  const r = new Rig();
  r.packet(0, (l) => {
    l.enter(0, 1, values(1), [], 0);
    l.enter(0, 2, values(1), [], 0);
  });
  r.show(0);
  r.packet(3, (l) => {
    l.leave(1, 3, false);
    l.leave(2, 3, true);
  });
  r.packet(6);
  r.show(4);
  assert.deepEqual(r.log.slice(2), ["leave 1 from sight", "leave 2"]);
});

test("an id that comes back after it was gone is a new entity", () => {
  const r = new Rig();
  r.packet(0, (l) => l.enter(0, 1, values(1), [], 0));
  r.show(0);
  r.packet(3, (l) => l.leave(1, 3));
  r.packet(6);
  r.show(4);
  r.packet(9, (l) => l.enter(0, 1, values(9), [], 9));
  r.show(7);
  r.packet(12);
  r.show(10);
  assert.deepEqual(r.log, ["enter 1 1", "leave 1", "enter 1 9"]);
  assert.equal((r.line.get(1) as Entity & Player).pos.x, 9);
});

test("a page that was hidden shows the newest state and replays nothing", () => {
  const r = new Rig();
  r.packet(0, (l) => l.enter(0, 1, values(0), [], 0));
  r.show(0);
  for (let t = 3; t <= 6000; t += 3) {
    r.packet(t, (l) => {
      l.update(1, values(t / 10), [], t);
      l.event(0, [t, 0], [], t);
      if (t % 30 === 0) l.enter(0, 1000 + t, values(t), [], t);
      if (t % 30 === 15 && t > 30) l.leave(1000 + t - 15, t);
    });
  }
  const quiet = r.log.length;
  assert.ok(quiet < 200, `${quiet} callbacks while hidden`);
  r.line.advance(r.now);
  const shots = r.log.filter((s) => s.startsWith("shot"));
  assert.ok(shots.every((s, i) => i === 0 || Number(s.split(" at ")[1]) > Number(shots[i - 1]!.split(" at ")[1])));
  assert.ok(r.line.eventsDropped > 1000, `${r.line.eventsDropped}`);
  const x = (r.line.get(1) as Entity & Player).pos.x;
  assert.ok(Math.abs(x - (6000 - DELAY / TICK) / 10) < 0.2, `${x}`);
  const open = new Set<string>();
  for (const s of r.log) {
    if (s.startsWith("enter")) open.add(s.split(" ")[1]!);
    if (s.startsWith("leave")) assert.ok(open.delete(s.split(" ")[1]!), s);
  }
  assert.deepEqual([...open].sort(), r.line.entities.map((e) => String(e.id)).sort());
});

test("1,000 events in order all play in order, once", () => {
  const r = new Rig();
  r.packet(0, (l) => l.enter(0, 1, values(0), [], 0));
  let now = r.now;
  for (let t = 3, n = 0; n < 1000; t += 3) {
    r.packet(t, (l) => {
      for (let k = 0; k < 10; k++) l.event(0, [n++, 0], [], t - 2 + Math.floor(k / 4));
    });
    for (; now < r.now; now += TICK) r.line.advance(now);
  }
  for (let i = 0; i < 30; i++) r.line.advance((now += TICK));
  const shots = r.log.filter((s) => s.startsWith("shot")).map((s) => Number(s.split(" ")[1]));
  assert.deepEqual(shots, Array.from({ length: 1000 }, (_, i) => i));
});

test("the queue of events is bounded", () => {
  const r = new Rig();
  r.packet(0);
  r.show(0);
  r.packet(3, (l) => {
    for (let i = 0; i < 3000; i++) l.event(0, [i, 0], [], 3);
  });
  r.show(4);
  assert.equal(r.log.length, 1024);
  assert.equal(r.log[0], "shot 1976 at 3");
  assert.equal(r.line.eventsDropped, 3000 - 1024);
});

test("clear lets everything leave", () => {
  const r = new Rig();
  r.packet(0, (l) => {
    l.enter(0, 1, values(1), [], 0);
    l.enter(1, 2, [1, 1], [], 0);
  });
  r.show(0);
  r.line.clear();
  assert.deepEqual(r.log.slice(2).sort(), ["leave 1 from sight", "leave 2 from sight"]);
  assert.equal(r.line.entities.length, 0);
  assert.equal(r.line.kind("player")!.live.length, 0);
});

test("fields whose name is taken get another one", () => {
  const arrivals = new Arrivals(0);
  const clock = new RenderClock(arrivals, 20, true);
  let id = 0;
  const line = new Timeline([{ name: "t", fields: [field("id", "uint"), field("type", "text"), field("a.b.c"), field("a.d")] }], [SHOT], clock, 0, {
    enter: () => {},
    leave: () => {},
    event: (_, v) => (id = (v as unknown as { id: number }).id),
  });
  line.packet(1);
  line.enter(0, 5, [11, 0, 12, 13], ["", "kind"], 1);
  line.event(0, [1, 42], [], 1);
  arrivals.note(1, 0);
  clock.arrive(1, 0);
  line.advance(1);
  const e = line.get(5) as Entity & { id_: number; type_: string; a: { b: { c: number }; d: number } };
  assert.deepEqual([e.id, e.id_, e.type, e.type_, e.a.b.c, e.a.d, id], [5, 11, "t", "kind", 12, 13, 42]);
});
