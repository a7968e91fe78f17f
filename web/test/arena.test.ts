import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { walk } from "../../worlds/arena/web/move.ts";

export interface Traces {
  every: number;
  walks: { start: string[]; sticks: string; states: string[][] }[];
}

export function traces(): Traces {
  return JSON.parse(readFileSync(new URL("../../../../worlds/arena/move/testdata/move.json", import.meta.url), "utf8")) as Traces;
}

const view = new DataView(new ArrayBuffer(8));

export function fromBits(hex: string): number {
  view.setBigUint64(0, BigInt(`0x${hex}`));
  return view.getFloat64(0);
}

test("the arena's page moves players as its server does, to the last bit", () => {
  const t = traces();
  assert.ok(t.walks.length >= 8);
  t.walks.forEach((w, n) => {
    const [x, y, vx, vy] = w.start.map(fromBits);
    const b = { x: x!, y: y!, vx: vx!, vy: vy! };
    const sticks = new Int8Array(Buffer.from(w.sticks, "hex"));
    for (let i = 0; i < sticks.length / 2; i++) {
      walk(b, sticks[2 * i]!, sticks[2 * i + 1]!);
      if ((i + 1) % t.every !== 0) continue;
      const want = w.states[(i + 1) / t.every - 1]!.map(fromBits);
      assert.deepEqual([b.x, b.y, b.vx, b.vy], want, `walk ${n} after ${i + 1} steps`);
    }
    assert.equal(w.states.length, sticks.length / 2 / t.every);
  });
});
