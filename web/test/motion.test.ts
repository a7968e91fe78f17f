import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Arrivals, InputClock, RenderClock } from "../src/clock.ts";
import { Timeline } from "../src/timeline.ts";
import type { TypeSchema } from "../src/view.ts";

// The vectors that the Go tests write: go test ./lab/motion -run Vectors -update
interface Told { kind: number; id: number; ring: number; numbers: number[] }
interface Step {
  at: number;
  tick?: number;
  enters?: Told[];
  updates?: Told[];
  leaves?: number[];
  shows?: number;
  delay?: number;
  shown?: { id: number; numbers: number[] }[];
}
interface Vectors {
  tickMs: number;
  sendHz: number;
  types: TypeSchema[];
  cases: { name: string; ordered: boolean; events: Step[] }[];
  inputs: { rttMs: number; batch: number; steps: { at: number; tick: number; margin: number; acked: number; label: number }[] }[];
}

function vectors(): Vectors {
  for (let up = "./"; up.length < 60; up += "../") {
    try {
      return JSON.parse(readFileSync(new URL(up + "wire/testdata/motion.json", import.meta.url), "utf8"));
    } catch (e) {
      if ((e as { code?: string }).code !== "ENOENT") throw e;
    }
  }
  throw new Error("wire/testdata/motion.json is not above this file");
}

const V = vectors();
const near = (a: number, b: number): boolean => Math.abs(a - b) < 1e-6;

for (const c of V.cases) {
  test(`what is shown is what lab/motion shows: ${c.name}`, () => {
    const arrivals = new Arrivals(V.tickMs);
    const clock = new RenderClock(arrivals, V.sendHz, c.ordered);
    const line = new Timeline(V.types, [], clock, V.tickMs, { enter: () => {}, leave: () => {}, event: () => {} });
    let compared = 0;
    for (const s of c.events) {
      if (s.tick !== undefined) {
        for (const e of s.enters ?? []) line.enter(e.kind, e.id, e.numbers, [], s.tick, e.ring);
        for (const e of s.updates ?? []) line.update(e.id, e.numbers, [], s.tick, e.ring);
        for (const id of s.leaves ?? []) line.leave(id, s.tick);
        arrivals.note(s.tick, s.at);
        clock.arrive(s.tick, s.at);
        line.packet(s.tick);
        continue;
      }
      const tick = line.advance(s.at);
      assert.ok(near(tick, s.shows ?? 0), `${s.at} ms: tick ${tick}, want ${s.shows}`);
      assert.ok(near(clock.delay, s.delay ?? 0), `${s.at} ms: delay ${clock.delay}, want ${s.delay}`);
      if (s.shown === undefined) continue;
      const all = [...line.entities].sort((a, b) => a.id - b.id);
      assert.deepEqual(all.map((e) => e.id), s.shown.map((e) => e.id), `${s.at} ms`);
      s.shown.forEach((want, k) => {
        want.numbers.forEach((x, n) => {
          const got = all[k]!.numbers[n]!;
          assert.ok(near(got, x) || near(Math.abs(got - x), 2 * Math.PI), `${s.at} ms: ${want.id}'s ${all[k]!.type} field ${n} is ${got}, want ${x}`);
          compared++;
        });
      });
    }
    assert.ok(compared > 500, `${compared} numbers`);
  });
}

test("input clocks label as lab/motion's do", () => {
  for (const v of V.inputs) {
    const arrivals = new Arrivals(V.tickMs);
    const clock = new InputClock(arrivals, v.rttMs, v.batch);
    let sent = 0;
    for (const s of v.steps) {
      arrivals.note(s.tick, s.at);
      clock.margin(s.margin, s.acked, s.tick, sent);
      const label = clock.label(s.at);
      sent = Math.max(sent, label);
      assert.equal(label, s.label, `${s.at} ms`);
    }
  }
});
