import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join as path } from "node:path";
import { test } from "node:test";
import { Refused, type Room, join } from "../src/index.ts";
import { KIND_LEAVE } from "../src/packet.ts";
import { FakePage } from "./fake.ts";
import { examplePage, node, root, tsc, writeExample } from "./tree.ts";

async function live(page: FakePage, more: object = {}): Promise<Room> {
  const p = join({ world: "dots", url: "wss://play.example/ws", env: page, ...more });
  page.last.welcome();
  return p;
}

test("docs/api.md is what the sources say, and every exported name has a comment", () => {
  node("scripts/api.mjs", "--check");
});

test("the page that docs/client.md begins with is short, and its types are right", () => {
  const { html, js } = examplePage();
  const lines = (html + js).trimEnd().split("\n").length;
  assert.ok(lines <= 60, `${lines} lines`);
  const dir = mkdtempSync(path(tmpdir(), "drumline-example-"));
  try {
    // Where a server has them, so that the addresses in the page lead there.
    const world = path(dir, "w/arena");
    mkdirSync(world, { recursive: true });
    writeExample(world);
    writeFileSync(path(dir, "drumline.d.ts"), 'export * from "drumline";\n');
    writeFileSync(path(world, "static/move.d.ts"), `export { step } from ${JSON.stringify(path(root, "worlds/arena/web/move.ts"))};\n`);
    writeFileSync(path(dir, "tsconfig.json"), JSON.stringify({
      extends: path(root, "tsconfig.json"),
      compilerOptions: { allowJs: true, checkJs: true, types: [], paths: { drumline: [path(root, "web/src/index.ts")] } },
      include: [], files: [path(world, "static/plain.js")],
    }));
    node(tsc, "-p", path(dir, "tsconfig.json"));
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});

test("close keeps the seat, and the tab's next join comes back to it", async () => {
  const page = new FakePage();
  const states: string[] = [];
  const room = await live(page);
  room.onState((s) => states.push(s));
  room.onRefused(() => states.push("refused"));
  const link = page.last;
  room.close();
  room.close();
  assert.deepEqual(states, ["closed"]);
  assert.equal(room.info.why?.reason, "left");
  // 1000, or a leave, would give up the seat.
  assert.equal(link.closedWith, 4000);
  assert.equal(link.of(KIND_LEAVE).length, 0);
  assert.deepEqual([page.openTimers, page.openWatchers], [0, 0]);
  page.run(1000);
  const back = join({ world: "dots", url: "wss://play.example/ws", env: page });
  page.last.open();
  assert.equal(page.last.hello.token, "secret");
  page.last.welcome({ resumed: true });
  (await back).leave();
});

test("close while the link is lost", async () => {
  const page = new FakePage();
  const room = await live(page);
  page.last.end(1006);
  assert.equal(room.state, "reconnecting");
  room.close();
  const { length } = page.sockets;
  page.run(60_000);
  assert.equal(page.sockets.length, length, "it tries no more");
  assert.deepEqual([room.state, page.openTimers, page.openWatchers], ["closed", 0, 0]);
});

test("onRefused tells once why it is over, also afterwards, and not of leaving", async () => {
  const page = new FakePage();
  const room = await live(page);
  const why: Refused[] = [];
  const off = room.onRefused((w) => why.push(w));
  room.onRefused(() => assert.fail("that was ended"))();
  page.last.end(1006);
  assert.equal(why.length, 0, "it may come back");
  page.run(300);
  page.last.open();
  page.last.refuse({ reason: "replaced", code: 4019, text: "You play elsewhere.", retry: "never" });
  assert.deepEqual(why.map((w) => [w.reason, w.text]), [["replaced", "You play elsewhere."]]);
  assert.ok(why[0] instanceof Refused);
  let late = 0;
  room.onRefused(() => late++);
  assert.equal(late, 1);
  off();

  const other = await live(new FakePage());
  other.onRefused(() => assert.fail("who leaves is not refused"));
  other.leave();
});

test("without a page: what is missing is said", async () => {
  await assert.rejects(join({ world: "dots", webSocket: class {} as any }), /url/);
  if (typeof WebSocket === "undefined") await assert.rejects(join({ world: "dots", url: "ws://127.0.0.1:9/ws" }), /webSocket/);
});

test("frame runs on a timer where nothing is painted", async () => {
  const room = await live(new FakePage());
  const seen: number[] = [];
  await new Promise<void>((resolve) => {
    const end = room.frame((_view, _now, dt) => {
      seen.push(dt);
      if (seen.length < 3) return;
      end();
      resolve();
    });
  });
  assert.equal(seen[0], 0);
  assert.ok(seen[1]! > 0 && seen[2]! > 0);
  room.leave();
});
