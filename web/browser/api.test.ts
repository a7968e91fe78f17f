// The library without the arena's page: the page that docs/client.md begins with, and a worker.

import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
// That the rule is compiled.
import "../../worlds/arena/web/move.ts";
import { writeExample } from "../test/tree.ts";
import { DESKTOP, Server, run, scene, until } from "./harness.ts";

const compiled = join(dirname(fileURLToPath(import.meta.url)), "../../worlds/arena/web");

scene("the page that docs/client.md begins with plays", async (s) => {
  s.expect(/willReadFrequently/); // this test reads the canvas
  const folder = mkdtempSync(join(tmpdir(), "drumline-plain-"));
  await s.keep(Promise.resolve({ stop: async () => rmSync(folder, { recursive: true, force: true }) }));
  writeExample(folder);
  for (const name of ["move.js", "rules.js"]) copyFileSync(join(compiled, name), join(folder, "static", name));
  const server = await s.keep(Server.start("drumline", 0, "--web", `arena=${folder}`));
  const bots = run("load", "--url", server.url, "--world", "arena", "--rooms", "1", "--bots", "4", "--for", "8s").catch(() => "");
  await s.keep(Promise.resolve({ stop: async () => void (await bots) }));
  const page = await s.page(DESKTOP);
  await page.goto(`${server.url}w/arena/static/plain.html`);
  await page.getByText("is here").waitFor();
  // What the canvas shows, as the number of pixels of each colour.
  const painted = (): Promise<{ own: number; left: number; monsters: number }> =>
    page.evaluate(() => {
      const { data, width } = (document.getElementById("field") as HTMLCanvasElement).getContext("2d")!.getImageData(0, 0, 800, 780);
      let own = 0;
      let left = 0;
      let monsters = 0;
      for (let i = 0; i < data.length; i += 4) {
        if (data[i] === 70 && data[i + 1] === 130 && data[i + 2] === 180) {
          own++;
          left += (i / 4) % width;
        } else if (data[i] === 178 && data[i + 1] === 34) monsters++;
      }
      return { own, left: own === 0 ? -1 : left / own, monsters };
    });
  const from = await until("the own player", async () => ((p) => (p.own > 50 && p.monsters > 500 ? p : null))(await painted()));
  const key = from.left < 400 ? "ArrowRight" : "ArrowLeft";
  await page.keyboard.down(key);
  await until("the way that the key says", async () => {
    const { own, left } = await painted();
    return own > 50 && (key === "ArrowRight" ? left > from.left + 20 : left < from.left - 20);
  });
  await page.keyboard.up(key);
  // Closed by the player: that is no refusal, and nothing is said.
  await page.keyboard.press("Escape");
  assert.doesNotMatch((await page.textContent("#says")) ?? "", /lost|closed|left\./);
});

scene("a worker of a page plays", async (s) => {
  const folder = mkdtempSync(join(tmpdir(), "drumline-worker-"));
  await s.keep(Promise.resolve({ stop: async () => rmSync(folder, { recursive: true, force: true }) }));
  writeExample(folder);
  // It needs no address: the library knows where it came from.
  writeFileSync(join(folder, "static/worker.js"), `
    import { join } from "../../../drumline.js";
    const room = await join({ world: "arena", name: "Worker" });
    const places = new Set();
    const end = room.frame((view) => {
      room.input({ dx: 90, dy: 60 });
      if (view.own === null) return;
      places.add(view.own.x);
      if (places.size < 10) return;
      end();
      postMessage({ name: room.player, places: places.size, monsters: view.all("monster").length, document: typeof document });
      room.leave();
    });
  `);
  const server = await s.keep(Server.start("drumline", 0, "--web", `arena=${folder}`));
  const page = await s.page(DESKTOP);
  await page.goto(`${server.url}w/arena/`);
  const saw = await page.evaluate(() => new Promise<any>((resolve, reject) => {
    const worker = new Worker("static/worker.js", { type: "module" });
    worker.onmessage = (e) => resolve(e.data);
    worker.onerror = (e) => reject(new Error(e.message));
  }));
  assert.deepEqual({ ...saw, places: saw.places >= 10, monsters: saw.monsters > 0 }, { name: "Worker", places: true, monsters: true, document: "undefined" });
});
