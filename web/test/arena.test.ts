import assert from "node:assert/strict";
import { test } from "node:test";
import { walk } from "../../worlds/arena/web/move.ts";
import { fromBits, traces } from "./traces.ts";

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
