// How well it runs, as the page shows it and the server hears it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { DESKTOP, PHONE, Relay, type Scene, Server, picture, scene, until } from "./harness.ts";
import { Player } from "./player.ts";

interface Told {
  reports: number;
  stutters: Record<string, number>;
}

/** What the server counts of the room's pages. */
async function told(server: Server): Promise<Told> {
  const rooms = (await (await fetch(`${server.url}debug/rooms`)).json()) as { rooms: { pages: Told }[] };
  return rooms.rooms[0]!.pages;
}

const perf = (page: Page): Promise<Record<string, number>> => page.evaluate(() => (globalThis as any).__drumline.perf());
const sleep = (ms: number): Promise<void> => new Promise((r) => setTimeout(r, ms));

async function smooth(page: Page): Promise<void> {
  // Long enough that a fault is not taken for the page's own beginning.
  await until("some seconds of frames", async () => (await perf(page))["fps"]! > 20);
  await sleep(4000);
}

async function enter(s: Scene, device: typeof DESKTOP, site: string, query: string): Promise<Player> {
  const p = new Player(await s.page(device), device);
  await p.page.goto(`${site}w/arena/${query}`);
  await p.introduce("Ann");
  await p.ready();
  return p;
}

scene("a stutter is put down to the server, the network or the page, and the server is told", async (s) => {
  const server = await s.keep(Server.start());
  const relay = await s.keep(Relay.start(server.port));
  const ann = await Player.join(s, DESKTOP, relay.url, "Ann");
  const fault = async (cause: string, make: () => Promise<void>): Promise<void> => {
    await smooth(ann.page);
    const before = (await told(server)).stutters[cause]!;
    await make();
    await until(`a verdict on the ${cause}`, async () => (await told(server)).stutters[cause]! > before);
  };
  await fault("page", () => ann.page.evaluate(() => {
    for (const end = performance.now() + 400; performance.now() < end; );
  }));
  await fault("network", async () => {
    relay.hold(true);
    await sleep(700);
    relay.hold(false);
  });
  await fault("server", async () => {
    server.freeze(true);
    await sleep(900);
    server.freeze(false);
  });
  const metrics = await (await fetch(`${server.url}metrics`)).text();
  assert.match(metrics, /drumline_page_stutters_total\{cause="server",transport="ws",world="arena"\} [1-9]/);
  assert.match(metrics, /drumline_page_reports_total\{transport="ws",world="arena"\} [1-9]/);
});

scene("the overlay, desktop: F2 shows it and hides it; devtools are offered only when asked for", async (s) => {
  const server = await s.keep(Server.start());
  const ann = await enter(s, DESKTOP, server.url, "");
  const box = ann.page.getByRole("complementary", { name: "How well it runs" });
  assert.equal(await box.count(), 0);
  await ann.page.keyboard.press("F2");
  await box.waitFor();
  await until("frames", async () => (await perf(ann.page))["fps"]! > 0);
  await box.getByText("State age").waitFor();
  assert.equal(await box.getByRole("slider").count(), 0);
  await ann.page.keyboard.press("F2");
  await until("the overlay to go", async () => (await box.count()) === 0);
});

scene("the overlay, desktop: a worse network, a pause and a recording", async (s) => {
  const server = await s.keep(Server.start());
  const ann = await enter(s, DESKTOP, server.url, "?dev=7");
  const bob = await Player.join(s, DESKTOP, server.url, "Bob", (await ann.seat()).room);
  await bob.page.keyboard.down("KeyD");
  await ann.page.keyboard.press("F2");
  const box = ann.page.getByRole("complementary", { name: "How well it runs" });
  await box.waitFor();
  await smooth(ann.page);
  const before = (await perf(ann.page))["rttMs"]!;
  await box.getByRole("slider", { name: "Latency" }).fill("200");
  await box.getByRole("slider", { name: "Jitter" }).fill("40");
  await box.getByRole("slider", { name: "Loss" }).fill("2");
  await until("the ping to rise", async () => (await perf(ann.page))["rttMs"]! > before + 150);
  await box.getByText("This link keeps its order").waitFor();
  await sleep(2500);
  assert.equal((await perf(ann.page))["stuttersServer"], 0, "a longer way is not the server's doing");
  await picture(ann.page, "overlay");

  const download = ann.page.waitForEvent("download");
  await box.getByRole("button", { name: "Save packets" }).click();
  const file = await download;
  assert.match(file.suggestedFilename(), /^arena-.*\.packets$/);
  const bytes = readFileSync((await file.path())!);
  const head = JSON.parse(bytes.subarray(0, bytes.indexOf(10)).toString()) as { welcome: { world: string; token?: string } };
  assert.equal(head.welcome.world, "arena");
  assert.equal(head.welcome.token, undefined);
  assert.ok(bytes.length > 2000);

  await box.getByRole("button", { name: "Pause" }).click();
  const tick = (): Promise<number> => ann.page.evaluate(() => (globalThis as any).__arena.room.view().tick);
  const at = await tick();
  await sleep(300);
  assert.equal(await tick(), at);
  await box.getByRole("button", { name: "Go on" }).click();
  await until("time to go on", async () => (await tick()) > at + 10);
});

scene("the overlay, phone: a tap in the corner shows it, and it fits", async (s) => {
  const server = await s.keep(Server.start());
  const ann = await enter(s, PHONE, server.url, "?dev=1");
  await ann.page.touchscreen.tap(12, 12);
  const box = ann.page.getByRole("complementary", { name: "How well it runs" });
  await box.waitFor();
  await sleep(6000);
  // A line of it, until one wants more.
  const line = box.getByRole("button", { expanded: false });
  assert.match((await line.textContent())!, /^\d+ fps, \d+ ms · /);
  assert.ok((await box.boundingBox())!.height < 80, "one line");
  assert.equal(await box.getByText("State age").isVisible(), false);
  await line.tap();
  await box.getByText("State age").waitFor();
  const r = (await box.boundingBox())!;
  assert.ok(r.x >= 0 && r.y >= 0 && r.x + r.width <= PHONE.width && r.y + r.height <= PHONE.height, JSON.stringify(r));
  assert.ok(await box.evaluate((e) => e.scrollWidth <= e.clientWidth), "nothing sticks out");
  await picture(ann.page, "overlay-phone");
  await box.getByRole("button", { name: "Hide" }).tap();
  await until("the overlay to go", async () => (await box.count()) === 0);
});
