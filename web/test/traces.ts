// The walks that the arena's rule in Go, its twin in TypeScript and the rule as WebAssembly all reproduce.

import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The module's folder, from wherever the tests were built to. */
export const root = (() => {
  let dir = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(dir, "go.mod"))) {
    if (dirname(dir) === dir) throw new Error("no go.mod above the test");
    dir = dirname(dir);
  }
  return dir;
})();

export interface Traces {
  every: number;
  walks: { start: string[]; sticks: string; states: string[][] }[];
}

export function traces(): Traces {
  return JSON.parse(readFileSync(join(root, "worlds/arena/move/testdata/move.json"), "utf8")) as Traces;
}

const view = new DataView(new ArrayBuffer(8));

export function fromBits(hex: string): number {
  view.setBigUint64(0, BigInt(`0x${hex}`));
  return view.getFloat64(0);
}
