// Makes the client library an npm package, from the sources that the binary bundles: node scripts/npm.mjs [FOLDER].
// The folder (default web/.build/npm) is made anew; `npm pack` there makes the archive. Nothing is published.

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const out = resolve(process.argv[2] ?? join(root, "web/.build/npm"));
const src = join(root, "web/src");

// The module's version, as the go command writes it: the tag of this commit, else a pseudo-version; 0.0.0 without a repository.
function version() {
  const git = (...args) => execFileSync("git", args, { cwd: root, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], env: { ...process.env, TZ: "UTC" } }).trim();
  const tag = (...args) => {
    try {
      return /^v(\d+)\.(\d+)\.(\d+)$/.exec(git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", ...args));
    } catch {
      return null; // there is none
    }
  };
  try {
    const here = tag("--exact-match");
    if (here !== null) return here[0].slice(1);
    const [date, revision] = git("show", "-s", "--format=%cd %H", "--date=format-local:%Y%m%d%H%M%S", "HEAD").split(" ");
    const before = tag();
    const base = before === null ? "0.0.0" : `${before[1]}.${before[2]}.${Number(before[3]) + 1}-0`;
    return `${base}${before === null ? "-" : "."}${date}-${revision.slice(0, 12)}`;
  } catch {
    return "0.0.0";
  }
}

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const compiler = join(root, "node_modules/typescript/bin/tsc");
execFileSync(process.execPath, [compiler, "-p", join(root, "tsconfig.npm.json"), "--outDir", join(out, "lib")], { stdio: "inherit" });

for (const name of readdirSync(join(out, "lib"))) {
  if (!name.endsWith(".d.ts")) continue;
  // What stands beside them are .js files, and a style sheet has no types.
  const file = join(out, "lib", name);
  const text = readFileSync(file, "utf8").replace(/(from "\.\/\w+)\.ts"/g, '$1.js"').replace(/^import "\.\/\w+\.css";\n/gm, "");
  writeFileSync(file, text);
}
for (const name of ["ui.css", "input.css"]) copyFileSync(join(src, name), join(out, "lib", name));
copyFileSync(join(root, "LICENSE"), join(out, "LICENSE"));

const entry = (name) => ({ types: `./lib/${name}.d.ts`, default: `./lib/${name}.js` });
writeFileSync(join(out, "package.json"), JSON.stringify({
  name: "drumline",
  version: version(),
  description: "The client of drumline, an engine for live worlds in the browser: for pages, workers and Node.",
  license: "Apache-2.0",
  type: "module",
  engines: { node: ">=20" },
  exports: { ".": entry("index"), "./ui": entry("ui"), "./input": entry("input"), "./package.json": "./package.json" },
  types: "./lib/index.d.ts",
  sideEffects: ["*.css"],
  files: ["lib"],
  repository: { type: "git", url: "git+https://github.com/drumline-engine/drumline.git" },
}, null, 2) + "\n");
writeFileSync(join(out, "README.md"), `# drumline

The client library of drumline servers: it joins a room, shows its entities between two snapshots, predicts the own one, sends inputs, and
comes back to the same seat after a lost link. One ES module without dependencies.

    import { join } from "drumline";

    const room = await join({ url: "https://play.example/", world: "arena", name: "Ann" });
    room.frame((view) => console.log(view.tick, view.entities.length));

- It runs in pages, in workers and in Node 20 and later. Where there is no global WebSocket (Node before 22) give a class of that kind:
  \`join({ webSocket: WebSocket, … })\`.
- Of the same version as the server, it has the same protocol; another one is refused with the reason "version".
- \`drumline/ui\` and \`drumline/input\` are for pages alone. They import style sheets, so they need a bundler.
`);
console.log(`${out}: drumline ${JSON.parse(readFileSync(join(out, "package.json"), "utf8")).version}`);
