import assert from "node:assert/strict";
import { test } from "node:test";
import { loadRule } from "../src/wasmrule.ts";

// A module by hand: a memory of one page, the layout's text at 16, three exports and, if wanted, an import.
interface Made {
  layout?: string;
  frame?: number;
  /** The body of rule_step(tick i32) → i32. */
  step?: number[];
  exports?: string[];
  importMemory?: boolean;
  /** Calls an unknown function of the system in rule_step. */
  callsUnknown?: boolean;
}

const I32 = 0x7f;
const vec = (...items: number[][]): number[] => [items.length, ...items.flat()];
const text = (s: string): number[] => [s.length, ...Buffer.from(s)];
const section = (id: number, body: number[]): number[] => {
  assert.ok(body.length < 1 << 14);
  return [id, (body.length & 127) | 128, body.length >> 7, ...body];
};
const code = (...ops: number[]): number[] => {
  const body = [0, ...ops, 0x0b];
  return [(body.length & 127) | 128, body.length >> 7, ...body];
};
const i32 = (n: number): number[] => [0x41, (n & 127) | 128, ((n >> 7) & 127) | 128, (n >> 14) & 63];
/** Adds the f64 at offset b to the one at a, both from address 0. */
const add = (a: number, b: number): number[] => [...i32(0), ...i32(0), 0x2b, 3, a, ...i32(0), 0x2b, 3, b, 0xa0, 0x39, 3, a];
const grow = [...i32(1), 0x40, 0, 0x1a];

function made(m: Made = {}): Uint8Array<ArrayBuffer> {
  const layout = m.layout ?? "pos.x up hp;dx;jump";
  const step = [...(m.callsUnknown ? [0x10, 0, 0x1a] : []), ...(m.step ?? add(64, 88)), ...(m.step ? [] : i32(1))];
  const imports = m.callsUnknown ? [[...text("wasi_snapshot_preview1"), ...text("path_open"), 0, 1]] : m.importMemory ? [[...text("env"), ...text("memory"), 2, 0, 1]] : [];
  const base = m.callsUnknown ? 1 : 0;
  const all: Record<string, number[]> = {
    memory: [...text("memory"), 2, 0], rule_layout: [...text("rule_layout"), 0, base], rule_frame: [...text("rule_frame"), 0, base + 1], rule_step: [...text("rule_step"), 0, base + 2],
  };
  return new Uint8Array([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, vec([0x60, 1, I32, 1, I32], [0x60, 0, 1, I32])),
    ...section(2, vec(...imports)),
    ...section(3, vec([1], [1], [0])),
    ...(m.importMemory ? [] : section(5, vec([0, 1]))),
    ...section(7, vec(...(m.exports ?? Object.keys(all)).map((n) => all[n]!))),
    ...section(10, vec(code(...i32(layout === "" ? 0 : 16)), code(...i32(m.frame ?? 64)), code(...step))),
    ...section(11, vec([0, ...i32(16), 0x0b, ...text(layout)])),
  ]);
}

const world = (): { pos: { x: number }; up: boolean; hp: number } => ({ pos: { x: 2 }, up: true, hp: 100 });

test("a rule reads and changes what its layout names, nested fields, bools and presses too", async () => {
  // x += dx; then x += jump; then up: 1 + 1 is true still.
  const rule = await loadRule(made({ step: [...add(64, 88), ...add(64, 96), ...add(72, 72), ...i32(1)] }));
  assert.deepEqual([rule.state, rule.input, rule.pressed], [["pos.x", "up", "hp"], ["dx"], ["jump"]]);
  const s = world();
  Object.freeze(s.pos); // another object each time is bound anew
  assert.throws(() => rule.step(s, { dx: 5 }, 1, { jump: true }), TypeError);
  const t = world();
  assert.equal(rule.step(t, { dx: 5 }, 1, { jump: true }), true);
  assert.deepEqual(t, { pos: { x: 8 }, up: 2, hp: 100 });
});

test("what a rule does not change need not be changeable", async () => {
  const rule = await loadRule(made());
  const s = { pos: { x: 1 }, get up() { return false; }, get hp() { return 7; } };
  assert.equal(rule.step(s, { dx: -3 }, 1, { jump: false }), true);
  assert.equal(s.pos.x, -2);
});

test("a rule that cannot tell changes nothing", async () => {
  const rule = await loadRule(made({ step: [...add(64, 88), ...i32(0)] }));
  const s = world();
  assert.equal(rule.step(s, { dx: 5 }, 1, { jump: true }), false);
  assert.deepEqual(s, world());
});

test("memory that grows under the rule is found again", async () => {
  const rule = await loadRule(made({ step: [...grow, ...add(64, 88), ...i32(1)] }));
  const s = world();
  for (let i = 1; i <= 5; i++) {
    assert.equal(rule.step(s, { dx: 1 }, i, { jump: false }), true);
    assert.equal(s.pos.x, 2 + i);
  }
});

test("a call that this page does not know is answered, not made", async () => {
  const rule = await loadRule(made({ callsUnknown: true, step: [...i32(1)] }));
  assert.equal(rule.step(world(), { dx: 0 }, 1, { jump: false }), true);
});

test("what is no rule is refused", async () => {
  for (const [m, why] of [
    [{ exports: ["memory", "rule_layout", "rule_frame"] }, /exports no rule/],
    [{ exports: ["rule_layout", "rule_frame", "rule_step"] }, /exports no rule/],
    [{ layout: "" }, /layout is no text/],
    [{ layout: "x y;dx" }, /2 groups/],
    [{ layout: ";dx;" }, /groups/],
    [{ frame: 68 }, /outside its memory/],
    [{ frame: 65528 }, /outside its memory/],
    [{ importMemory: true }, /env\.memory, which is no function/],
  ] as [Made, RegExp][]) {
    await assert.rejects(loadRule(made(m)), why);
  }
  const rule = await loadRule(made());
  assert.throws(() => rule.step({ up: true, hp: 1 }, { dx: 1 }, 1, { jump: false }), /reads "pos\.x"/);
  assert.throws(() => rule.step(world(), {}, 1, { jump: false }), /reads "dx"/);
});

