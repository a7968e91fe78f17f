// The npm package as somebody else has it: packed, installed in a folder of its own, and used in Node and in a worker against a server.

import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import { node, root, tsc } from "./tree.ts";

const PATIENCE_MS = 30_000;
const windows = process.platform === "win32";

let dir = ""; // somebody's project
let server: ChildProcess | null = null;
let url = "";

before(async () => {
  dir = mkdtempSync(join(tmpdir(), "drumline-npm-"));
  node("scripts/npm.mjs", join(dir, "package"));
  const npm = (cwd: string, ...args: string[]): string => execFileSync(windows ? "npm.cmd" : "npm", args, { cwd, encoding: "utf8", shell: windows, stdio: ["ignore", "pipe", "pipe"] });
  const packed = npm(join(dir, "package"), "pack", "--silent", "--pack-destination", dir).trim();
  mkdirSync(join(dir, "project"));
  dir = join(dir, "project");
  writeFileSync(join(dir, "package.json"), JSON.stringify({ name: "project", private: true, type: "module" }));
  npm(dir, "install", "--silent", "--offline", "--no-audit", "--no-fund", join("..", packed));

  const program = join(dir, windows ? "drumline.exe" : "drumline");
  execFileSync("go", ["build", "-o", program, "./cmd/drumline"], { cwd: root, stdio: ["ignore", "inherit", "inherit"] });
  const child = (server = spawn(program, ["serve", "--addr", "127.0.0.1:0", "--priority", "none"], { stdio: ["ignore", "pipe", "pipe"] }));
  url = await new Promise<string>((resolve, reject) => {
    let out = "";
    for (const s of [child.stdout!, child.stderr!]) {
      s.setEncoding("utf8").on("data", (d: string) => {
        out += d;
        const m = /^listening (http:\/\/[^\s/]*:\d+)/m.exec(out);
        if (m) resolve(`${m[1]!}/`);
      });
    }
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`the server ended with ${code}:\n${out}`)));
  });
});

after(async () => {
  if (server !== null && server.exitCode === null) {
    const gone = new Promise((resolve) => server!.once("exit", resolve));
    server.kill();
    await gone;
  }
  if (dir !== "") rmSync(dirname(dir), { recursive: true, force: true });
});

test("the package is the library, its types and its license, and depends on nothing", () => {
  const at = join(dir, "node_modules/drumline");
  const p = JSON.parse(readFileSync(join(at, "package.json"), "utf8")) as Record<string, any>;
  assert.match(p["version"], /^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/);
  assert.deepEqual([p["name"], p["license"], p["type"], p["dependencies"], p["scripts"]], ["drumline", "Apache-2.0", "module", undefined, undefined]);
  for (const file of ["LICENSE", "README.md", "lib/index.js", "lib/index.d.ts", "lib/ui.css"]) assert.ok(existsSync(join(at, file)), file);
  assert.doesNotMatch(readFileSync(join(at, "lib/room.d.ts"), "utf8"), /\$session|@internal/);
});

test("its types hold without the sources", () => {
  writeFileSync(join(dir, "use.ts"), `
    import { type Room, Refused, join } from "drumline";
    import { enter } from "drumline/ui";
    import { keys } from "drumline/input";
    interface World { entities: { dot: { readonly x: number } }; events: { bang: { readonly at: number } }; input: { dx: number } }
    export async function play(): Promise<Room<World>> {
      const room = await join<World>({ url: "https://play.example/", world: "dots" });
      room.onEvent("bang", (b) => b.at.toFixed());
      room.frame((view) => view.all("dot").map((d) => d.x + d.id));
      room.input({ dx: keys().x });
      // @ts-expect-error there is no such field
      room.input({ dz: 1 });
      room.onRefused((why: Refused) => why.text);
      return enter<World>();
    }
  `);
  for (const [module, moduleResolution] of [["nodenext", "nodenext"], ["esnext", "bundler"]]) {
    writeFileSync(join(dir, "tsconfig.json"), JSON.stringify({
      compilerOptions: { strict: true, noEmit: true, target: "es2022", lib: ["es2022", "dom", "dom.iterable"], module, moduleResolution, types: [] }, files: ["use.ts"],
    }));
    node(tsc, "-p", join(dir, "tsconfig.json"));
  }
});

// Joins, moves, sees that it moves, and prints what it saw. socket: the class, or nothing where there is a global one.
const player = (imports: string, socket: string, tell: string): string => `
  import { join } from "drumline";
  ${imports}
  const room = await join({ url: ${JSON.stringify(url)}, world: "arena", room: "npm", ${socket} });
  const places = new Set();
  let events = 0;
  room.onEvent("shot", () => events++);
  const end = room.frame((view) => {
    room.input({ dx: 90, dy: 90, fire: true });
    const me = view.own;
    if (me === null) return;
    places.add(me.x + " " + me.y);
    if (places.size < 20 || events === 0) return;
    end();
    const { state, me: seat } = room;
    const saw = { state, seat, places: places.size, monsters: view.all("monster").length, document: typeof document };
    room.leave();
    ${tell}
  });
`;

interface Saw {
  state: string;
  seat: number;
  places: number;
  monsters: number;
  document: string;
}

function check(saw: Saw): void {
  assert.equal(saw.state, "live");
  assert.ok(saw.places >= 20 && saw.monsters > 0, JSON.stringify(saw));
  assert.equal(saw.document, "undefined");
}

const socketFile = join(dirname(fileURLToPath(import.meta.url)), "socket.js");
const importSocket = `import { NodeSocket } from ${JSON.stringify(pathToFileURL(socketFile).href)};`;

// Ends by itself once the room is left: nothing of the library keeps a program alive.
async function run(code: string, ...flags: string[]): Promise<Saw> {
  const file = join(dir, "player.mjs");
  writeFileSync(file, code);
  const child = spawn(process.execPath, [...flags, file], { cwd: dir, stdio: ["ignore", "pipe", "pipe"], timeout: PATIENCE_MS });
  let out = "";
  let err = "";
  child.stdout.setEncoding("utf8").on("data", (d: string) => (out += d));
  child.stderr.setEncoding("utf8").on("data", (d: string) => (err += d));
  const code_ = await new Promise((resolve) => child.once("close", resolve));
  assert.equal(code_, 0, `${out}${err}`);
  return JSON.parse(out) as Saw;
}

test("a program in Node plays, with a WebSocket that it gives", async () => {
  check(await run(player(importSocket, "webSocket: NodeSocket", "console.log(JSON.stringify(saw));")));
});

test("a program in Node plays, with the global WebSocket", async () => {
  // Node 20 has it behind a flag.
  const flags = typeof WebSocket === "undefined" ? ["--experimental-websocket", "--no-warnings"] : [];
  check(await run(player("", "", "console.log(JSON.stringify(saw));"), ...flags));
});

test("a worker plays", async () => {
  const file = join(dir, "worker.mjs");
  writeFileSync(file, player(`import { parentPort } from "node:worker_threads"; ${importSocket}`, "webSocket: NodeSocket", "parentPort.postMessage(saw);"));
  const worker = new Worker(file);
  const timer = setTimeout(() => void worker.terminate(), PATIENCE_MS);
  try {
    const exit = new Promise<number>((resolve) => worker.once("exit", resolve));
    check(await new Promise<Saw>((resolve, reject) => {
      worker.once("message", resolve);
      worker.once("error", reject);
      worker.once("exit", () => reject(new Error("the worker ended and told nothing")));
    }));
    assert.equal(await exit, 0, "it ends by itself");
  } finally {
    clearTimeout(timer);
  }
});
