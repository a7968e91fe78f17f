// The arena's rule as WebAssembly, in Node: it stands among these tests since it builds Go.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { loadRule } from "../src/wasmrule.ts";
import { fromBits, root, traces } from "../test/traces.ts";
import { step as twin } from "../../worlds/arena/web/move.ts";

const file = join(root, "web/.build/wasm/move.wasm");
mkdirSync(join(file, ".."), { recursive: true });
execFileSync("go", ["build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, "./worlds/arena/rulewasm"], {
  cwd: root, env: { ...process.env, GOOS: "wasip1", GOARCH: "wasm", CGO_ENABLED: "0" }, stdio: ["ignore", "inherit", "inherit"],
});

const none = {};

test("the arena's Go rule as WebAssembly walks as the server does, to the last bit", async (t) => {
  const rule = await loadRule(readFileSync(file));
  assert.deepEqual([rule.state, rule.input, rule.pressed], [["x", "y", "vx", "vy", "hp"], ["dx", "dy"], []]);
  const all = traces();
  const input = { dx: 0, dy: 0, fire: false };
  const state = { x: 0, y: 0, vx: 0, vy: 0, hp: 100 };
  all.walks.forEach((w, n) => {
    [state.x, state.y, state.vx, state.vy] = w.start.map(fromBits) as [number, number, number, number];
    const sticks = new Int8Array(Buffer.from(w.sticks, "hex"));
    for (let i = 0; i < sticks.length / 2; i++) {
      input.dx = sticks[2 * i]!;
      input.dy = sticks[2 * i + 1]!;
      assert.equal(rule.step(state, input, i + 1, none), true);
      if ((i + 1) % all.every !== 0) continue;
      assert.deepEqual([state.x, state.y, state.vx, state.vy], w.states[(i + 1) / all.every - 1]!.map(fromBits), `walk ${n} after ${i + 1} steps`);
    }
  });
  state.hp = 0;
  const before = { ...state };
  assert.equal(rule.step(state, input, 1, none), false);
  assert.deepEqual(state, before);

  // For the report only.
  state.hp = 100;
  const nsPerStep = (f: (i: number) => void): string => {
    const N = 200_000;
    for (let i = 0; i < N; i++) f(i);
    const t0 = performance.now();
    for (let i = 0; i < N; i++) f(i);
    return (((performance.now() - t0) / N) * 1e6).toFixed(0);
  };
  const wasm = nsPerStep((i) => {
    input.dx = (i & 255) - 128;
    rule.step(state, input, i, none);
  });
  const script = nsPerStep((i) => {
    input.dx = (i & 255) - 128;
    twin(state, input);
  });
  t.diagnostic(`${wasm} ns a step, the twin in TypeScript ${script} ns`);
});

test("what is no rule is refused", async () => {
  const empty = new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]);
  await assert.rejects(loadRule(empty), /exports no rule/);
  await assert.rejects(loadRule(new Uint8Array([1, 2, 3])), WebAssembly.CompileError);
  const rule = await loadRule(readFileSync(file));
  assert.throws(() => rule.step({ x: 1, y: 1, vx: 0, vy: 0 }, { dx: 0, dy: 0 }, 1, none), /reads "hp"/);
});
