// The tree that the tests are of: its root, its programs, and the example page that docs/client.md shows.

import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./traces.ts";

export { root };

/** Runs a program of the tree in Node and returns what it printed; a failure is an error with all that it said. */
export function node(...args: string[]): string {
  try {
    return execFileSync(process.execPath, args, { cwd: root, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  } catch (e) {
    const { stdout, stderr } = e as { stdout: string; stderr: string };
    throw new Error(`node ${args.join(" ")}:\n${stdout}${stderr}`);
  }
}

/** The TypeScript compiler. */
export const tsc = join(root, "node_modules/typescript/bin/tsc");

/** The page that docs/client.md begins with. */
export function examplePage(): { html: string; js: string } {
  const text = readFileSync(join(root, "docs/client.md"), "utf8").replaceAll("\r\n", "\n");
  const block = (kind: string): string => new RegExp("^```" + kind + "\n([^]*?)^```$", "m").exec(text)![1]!;
  return { html: block("html"), js: block("js") };
}

/**
 * Writes that page into folder as the page tells: static/plain.html and plain.js, beside an entry of a world's page, and the types that
 * `drumline types` wrote. move.js, the rule, is the caller's.
 */
export function writeExample(folder: string): void {
  const { html, js } = examplePage();
  mkdirSync(join(folder, "static"), { recursive: true });
  writeFileSync(join(folder, "main.js"), "export {};\n");
  writeFileSync(join(folder, "static/plain.html"), html);
  writeFileSync(join(folder, "static/plain.js"), js);
  writeFileSync(join(folder, "static/types.ts"), readFileSync(join(root, "worlds/arena/web/types.ts")));
}
