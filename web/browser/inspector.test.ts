// The inspector page: a server under a few bots, looked into on a desktop and on a phone.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Locator, Page } from "playwright-core";
import { DEVICES, PHONE, PrefixProxy, Relay, type Scene, Server, picture, picturing, run, scene, until } from "./harness.ts";

/** Bots that play for a while; the scene waits for them at its end. */
async function bots(s: Scene, server: Server, ...args: string[]): Promise<void> {
  const done = run("load", "--url", server.url, "--for", picturing ? "55s" : "15s", "--warmup", "0s", ...args);
  const outcome = done.then(() => undefined, (e: unknown) => e as Error);
  await s.keep(Promise.resolve({ stop: async (): Promise<void> => {
    if (!picturing) assert.equal(await outcome, undefined);
  } }));
}

/** Fails where something sticks out of the screen to the right. */
async function fits(page: Page): Promise<void> {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wide <= 0, `the page is ${wide} pixels too wide`);
}

/** How many different colours a canvas shows: an empty one shows none. */
function colours(canvas: Locator): Promise<number> {
  return canvas.evaluate((e) => {
    const c = e as HTMLCanvasElement;
    const { data } = c.getContext("2d")!.getImageData(0, 0, c.width, c.height);
    const seen = new Set<number>();
    for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) seen.add((data[i]! << 16) | (data[i + 1]! << 8) | data[i + 2]!);
    return seen.size;
  });
}

for (const device of DEVICES) {
  scene(`inspector, ${device.name}: rooms, beat, seats, and where a client's bytes go`, async (s) => {
    const server = await s.keep(Server.start("drumline", 0, "--lift-caps", ...(picturing ? ["--priority", "nice"] : [])));
    await bots(s, server, "--bots", "24", "--rooms", "2");
    const page = await s.page(device);
    await page.emulateMedia({ colorScheme: "dark" });
    await page.goto(`${server.url}debug/inspector`);

    // Rooms, and that they live.
    await page.getByRole("button", { name: "Look into room r1 of arena" }).waitFor();
    await page.getByRole("button", { name: "Look into room r2 of arena" }).click();
    await page.getByRole("heading", { name: "Room arena / r2" }).waitFor();
    assert.equal(new URL(page.url()).hash, "#arena/r2");
    await page.locator("#server").getByText("24 players").waitFor();
    const words = page.locator("#room-words");
    const before = await words.textContent();
    await until("the tick to move on", async () => (await words.textContent()) !== before);
    const row = page.getByRole("row").filter({ hasText: "arena / r2" });
    await row.getByText(/^12\/16/).waitFor();
    await until("bytes", async () => /\d+(\.\d+)? kB/.test((await row.textContent()) ?? ""));

    // The plots show something, and say it.
    for (const canvas of [page.locator("canvas.timeline"), page.locator("canvas.trend").first()]) {
      await until("a drawing", async () => (await colours(canvas)) >= 2);
      assert.match((await canvas.getAttribute("aria-label")) ?? "", /\d/);
    }
    const lateness = page.locator("#lateness .bar-share");
    await until("steps in the histogram", async () => (await lateness.allTextContents()).some((t) => Number(t.replaceAll(",", "")) > 30));
    await page.locator("#spent").getByText("packet heads").waitFor();
    await page.locator("#spent").getByText(/^player\./).first().waitFor();
    await fits(page);
    if (device === PHONE || !picturing) {
      await page.locator("canvas.timeline").scrollIntoViewIfNeeded();
      const box = (await page.locator("canvas.timeline").boundingBox())!;
      await page.mouse.move(box.x + box.width * 0.8, box.y + box.height / 2);
      await page.getByText(/ago: interval/).waitFor();
      await page.mouse.move(0, 0);
    }

    if (picturing) await new Promise((r) => setTimeout(r, 40_000));

    // One seat.
    const seat = page.getByRole("button", { name: /^Where did the bytes of seat 3,/ });
    await until("a ping", async () => /\d ms/.test((await page.getByRole("row").filter({ has: seat }).textContent()) ?? ""));
    await seat.click();
    const drawer = page.getByRole("dialog");
    await drawer.getByText(/^Seat 3 of arena \/ r2, by ws/).waitFor();
    await drawer.getByText(/^player\./).first().waitFor();
    const shares = await drawer.locator(".bar-share").allTextContents();
    const sorted = shares.map((t) => parseFloat(t.replace("< ", "")));
    assert.deepEqual(sorted, [...sorted].sort((a, b) => b - a));
    await drawer.getByRole("button", { name: "Since it came" }).click();
    const spent = drawer.locator(".words").last();
    const first = await spent.textContent();
    await until("the seat's figures to move", async () => (await spent.textContent()) !== first);
    await fits(page);
    await picture(page, device === PHONE ? "inspector-seat-phone" : "inspector-seat");
    await page.keyboard.press("Escape");
    await drawer.waitFor({ state: "hidden" });
    if (picturing) {
      // Higher than a screen, for all of it that tells something new.
      await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
      await page.setViewportSize(device === PHONE ? { width: device.width, height: 1760 } : { width: device.width, height: 1360 });
      await page.evaluate(() => scrollTo(0, 0));
      await new Promise((r) => setTimeout(r, 1500));
      await picture(page, device === PHONE ? "inspector-phone" : "inspector");
    }
  });

  scene(`inspector, ${device.name}: names are text, and a seat that is gone is said`, async (s) => {
    const server = await s.keep(Server.start());
    const crowd = await s.page(device);
    await crowd.goto(server.url);
    const evil = "<img src=x onerror=a()>";
    await crowd.evaluate(async (evil) => {
      // @ts-expect-error: the site serves it
      const { join } = await import("/drumline.js");
      (globalThis as any).__p = await join({ world: "arena", room: "den", name: evil, resume: false });
      (globalThis as any).__q = await join({ world: "arena", room: "den", name: "Bob", resume: false });
    }, evil);
    const page = await s.page(device);
    await page.goto(`${server.url}debug/inspector#arena/den`);
    await page.getByRole("button", { name: `seat 0, ${evil}` }).click();
    const drawer = page.getByRole("dialog", { name: evil });
    await drawer.getByText(/^Seat 0 of arena \/ den/).waitFor();
    assert.equal(await page.locator("main img, dialog img").count(), 0);
    s.expect(/404 .*debug\/explain|status of 404/);
    await crowd.evaluate(() => (globalThis as any).__p.leave());
    await drawer.getByText("Nobody has seat 0 of arena / den any more.").waitFor();
    await drawer.getByRole("button", { name: "Close" }).click();
    await page.getByRole("button", { name: "seat 1, Bob" }).waitFor();
    assert.equal(await page.getByRole("button", { name: evil }).count(), 0);
  });

  scene(`inspector, ${device.name}: a server that goes away is said, and its return seen`, async (s) => {
    const server = await s.keep(Server.start());
    const relay = await s.keep(Relay.start(server.port));
    const page = await s.page(device);
    await page.goto(`${relay.url}debug/inspector`);
    await page.getByText("No room is open.").waitFor();
    s.expect(/ERR_CONNECTION|ERR_EMPTY_RESPONSE/);
    relay.refuse(true);
    relay.cut();
    await page.getByRole("alert").getByText(/The server has not answered for .* Trying again/).waitFor();
    relay.refuse(false);
    await page.getByRole("alert").waitFor({ state: "hidden" });
  });

  scene(`inspector, ${device.name}: the token, where one is needed`, async (s) => {
    const dir = mkdtempSync(join(tmpdir(), "drumline-token-"));
    await s.keep(Promise.resolve({ stop: async () => rmSync(dir, { recursive: true, force: true }) }));
    const secret = "tomtom-paradiddle-rimshot";
    writeFileSync(join(dir, "token"), secret, { mode: 0o600 });
    const server = await s.keep(Server.start("drumline", 0, "--ops-token-file", join(dir, "token")));
    // A proxy says whom it forwards for, and then loopback is not enough.
    const proxy = await s.keep(PrefixProxy.start("play", server.port));
    const page = await s.page(device);
    await page.setExtraHTTPHeaders({ "X-Forwarded-For": "203.0.113.9" });
    s.expect(/403/);
    await page.goto(`${proxy.url}debug/inspector`);
    const field = page.getByLabel("Operator’s token");
    await field.waitFor();
    assert.equal(await page.locator("#view").isVisible(), false);
    await fits(page);
    await field.fill("something-quite-different");
    await page.getByRole("button", { name: "Look in" }).click();
    await page.getByText("The server does not know this token.").waitFor();
    await field.fill(secret);
    await page.keyboard.press("Enter");
    await page.getByText("No room is open.").waitFor();
    assert.equal(await field.isVisible(), false);
    // In memory only.
    assert.ok(!page.url().includes(secret));
    const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, document.body.outerHTML, history.state]));
    assert.ok(!kept.includes(secret));
    assert.equal(await field.inputValue(), "");
    await page.reload();
    await field.waitFor();
    assert.deepEqual(proxy.outside, []);
  });
}

scene("inspector: a hidden page asks nothing", async (s) => {
  const server = await s.keep(Server.start());
  const { page, other } = await s.tabs(DEVICES[0]!);
  let asked = 0;
  page.on("request", (r) => {
    if (r.url().includes("/debug/rooms")) asked++;
  });
  await page.goto(`${server.url}debug/inspector`);
  await until("three questions", () => asked >= 3);
  await other.bringToFront();
  await until("the page to be hidden", () => page.evaluate(() => document.visibilityState === "hidden"));
  await new Promise((r) => setTimeout(r, 500)); // one may be under way
  const before = asked;
  await new Promise((r) => setTimeout(r, 2500));
  assert.equal(asked, before);
  await page.bringToFront();
  await until("another question", () => asked > before);
});
