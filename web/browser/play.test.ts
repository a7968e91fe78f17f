// Players in the arena: joining from the lobby, playing with and against each other, losing the connection and coming back.

import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { DESKTOP, DEVICES, PHONE, Relay, Server, picture, picturing, run, scene, until } from "./harness.ts";
import { Player } from "./player.ts";

/** What Chromium says when a connection breaks, whoever handles it. */
const BROKEN = /^console error: (WebSocket connection to .* failed|Failed to load resource: net::ERR_)|^request failed: GET .*\/api\/rooms/;
const HIT_PLAYER = 3;

const bar = (page: Page) => page.locator(".dl-bar");
const dialog = (page: Page) => page.getByRole("dialog");

for (const device of DEVICES) {
  scene(`lobby, ${device.name}: worlds, rooms, and a click to join`, async (s) => {
    const server = await s.keep(Server.start());
    const ann = new Player(await s.page(device), device);
    await ann.page.goto(server.url);
    await ann.page.getByText("No room is open.").waitFor();
    await ann.page.getByText("Sixteen players, thirty-two monsters, one field.").waitFor();
    await ann.page.getByText("Nobody is playing yet").waitFor();
    await ann.page.getByLabel("Your name").fill("Ann");
    await ann.press(ann.page.getByRole("link", { name: "Play Arena" }));
    // The lobby knew the name: nothing is asked.
    assert.equal((await ann.ready()).name, "Ann");

    const bob = new Player(await s.page(device), device);
    await bob.page.goto(server.url);
    await bob.page.getByText("1 player in 1 room").waitFor();
    const row = bob.page.locator(".room", { hasText: "Arena / 1" });
    await row.getByText("1/16").waitFor();
    await until("figures of the beat", async () => /\d+\.\d ms/.test((await row.textContent()) ?? ""));
    await wide(bob.page);
    // Whoever does not care plays under the name that is shown: nothing is asked.
    const shown = await bob.page.getByLabel("Your name").inputValue();
    assert.match(shown, /^Guest \d{3}$/);
    await bob.press(bob.page.getByRole("link", { name: "Join room 1 of Arena" }));
    assert.equal((await bob.ready()).name, shown);
    const { room, seat } = await bob.seat();
    assert.deepEqual([room, seat], ["1", 1]);
    await until("each other", async () => (await ann.other(shown)) && (await bob.other("Ann")));
    await bob.press(bob.page.getByRole("link", { name: "Lobby" }));
    await bob.page.getByText("players online").or(bob.page.getByText("player online")).waitFor();
    // Under another name he is somebody else, also in this tab.
    await bob.page.getByLabel("Your name").fill("Rob");
    await bob.press(bob.page.getByRole("link", { name: "Join room 1 of Arena" }));
    assert.equal((await bob.ready()).name, "Rob");
    // What the address bar has, a friend can use.
    assert.equal(new URL(ann.page.url()).searchParams.get("room"), "1");
    await ann.press(ann.page.getByRole("button", { name: "Copy link" }));
    await ann.page.getByRole("button", { name: "Copied" }).waitFor();
  });

  scene(`arena, ${device.name}: two move, one shoots the other, both come back after a cut and a reload`, async (s) => {
    s.expect(BROKEN);
    const server = await s.keep(Server.start());
    const relay = await s.keep(Relay.start(server.port));
    const ann = await Player.join(s, device, relay.url, "Ann");
    const bob = await Player.join(s, device, server.url, "Bob");
    await until("each other", async () => (await ann.other("Bob")) && (await bob.other("Ann")));
    await wide(ann.page);
    await walk(ann, bob, "Ann");
    await walk(bob, ann, "Bob");

    await Promise.all([ann.record(), bob.record()]);
    const a = (await ann.seat()).seat;
    let low = 100;
    await ann.hunt("Bob", async () => {
      const [me, there] = [await bob.me(), await bob.other("Ann")];
      // Bob comes to meet her, and stands: through her he would run for ever, too quick for her aim.
      if (me !== null && there) {
        const [dx, dy] = [there.x - me.x, there.y - me.y];
        await (Math.hypot(dx, dy) > 90 ? bob.hold(dx, dy) : bob.release());
      }
      low = Math.min(low, me?.hp ?? 100);
      for (const p of [ann, bob]) if (!(await p.happened()).some((e) => e.kind === "shot" && e.seat === a && e.hit === HIT_PLAYER)) return false;
      return low <= 80 && ((await ann.me())?.score ?? 0) > 0;
    });
    await bob.release();

    // The connection breaks, and nothing answers for a while.
    const before = { ...(await ann.seat()), score: (await ann.me())!.score };
    relay.refuse(true);
    relay.cut();
    await bar(ann.page).getByText("Your seat is kept for").waitFor();
    const words = (await bar(ann.page).textContent()) ?? "";
    assert.match(words, /The (connection was lost|server cannot be reached)\./);
    await inside(ann.page, ".dl-bar");
    await until("Bob's page to show that Ann is away", async () => (await bob.other("Ann"))?.away);
    relay.refuse(false);
    if (device === DESKTOP) await bar(ann.page).getByRole("button", { name: "Try now" }).click({ timeout: 3000 }).catch(() => undefined); // it may be back already
    await bar(ann.page).waitFor({ state: "detached" });
    await same(ann, before);
    await until("Bob's page to show that Ann is back", async () => (await bob.other("Ann"))?.away === false);
    assert.equal((await ann.quality()).reconnects, 1);
    await walk(ann, bob, "Ann");

    // The page is loaded again in the middle of the game.
    await ann.page.reload();
    await ann.ready();
    assert.equal(await dialog(ann.page).count(), 0, "nothing is asked");
    await same(ann, before);
    await walk(ann, bob, "Ann");
    assert.equal((await bob.others()).length, 1, "nobody else has come");
    for (const p of [ann, bob]) assert.equal((await p.quality()).decodeErrors, 0);
  });

  scene(`restart, ${device.name}: the page says so and gets in again`, async (s) => {
    s.expect(BROKEN);
    const first = await s.keep(Server.start());
    const ann = await Player.join(s, device, first.url, "Ann");
    const lobby = await s.page(device);
    await lobby.goto(first.url);
    await lobby.getByText("1 player in 1 room").waitFor();
    first.terminate();
    await bar(ann.page).getByText("The server is restarting.").waitFor();
    await bar(ann.page).getByRole("button", { name: "Try now" }).waitFor();
    assert.doesNotMatch((await bar(ann.page).textContent()) ?? "", /seat is kept/);
    await inside(ann.page, ".dl-bar");
    await first.gone;
    await lobby.getByText("The server does not answer. Trying again …").waitFor();
    await s.keep(Server.start("drumline", first.port));
    // The new server knows no seats of the old one.
    await bar(ann.page).getByText("The server is restarting. Your seat is gone, so you start anew.").waitFor();
    assert.equal((await ann.ready()).name, "Ann");
    assert.equal(await dialog(ann.page).count(), 0, "nothing had to be clicked");
    assert.equal((await ann.seat()).state, "live");
    await lobby.getByRole("alert").waitFor({ state: "hidden" });
  });

  scene(`hidden, ${device.name}: a page comes back to the present`, async (s) => {
    s.expect(/Page entered Back-Forward Cache/); // what Chromium says when it freezes a page with a socket
    const server = await s.keep(Server.start());
    const { page, other } = await s.tabs(device);
    const ann = new Player(page, device, false);
    await ann.enter(server.url, "Ann");
    const bob = await Player.join(s, DESKTOP, server.url, "Bob");
    await Promise.all([ann.record(), bob.record()]);
    const seat = await ann.seat();
    for (const freeze of [false, true]) {
      await until("Bob", () => ann.other("Bob"));
      const shots = async (p: Player): Promise<number> => (await p.happened()).filter((e) => e.kind === "shot").length;
      const from = await shots(bob);
      await other.bringToFront();
      await until("the page to be hidden", () => page.evaluate(() => document.visibilityState === "hidden"));
      const cdp = await page.context().newCDPSession(page);
      if (freeze) await cdp.send("Page.setWebLifecycleState", { state: "frozen" });
      await until("many shots", async () => {
        const me = await bob.ready();
        await bob.hold(0, 0, { dx: 500 - me.x, dy: 500 - me.y, me });
        return (await shots(bob)) >= from + 12;
      });
      const known = await shots(ann);
      const tick = await bob.page.evaluate(() => (globalThis as any).__arena.room.view().tick as number);
      await page.bringToFront();
      await until("the page to be shown", () => page.evaluate(() => document.visibilityState === "visible"));
      await until("new shots", async () => (await shots(ann)) > known + 2 || (await bob.me())?.hp === 0);
      await until("the present", async () => {
        const [there, here] = [await bob.me(), await ann.other("Bob")];
        return there && here && Math.hypot(there.x - here.x, there.y - here.y) < 2;
      });
      const replayed = (await ann.happened()).filter((e) => e.kind === "shot").slice(known).filter((e) => e.tick < tick - 60);
      assert.equal(replayed.length, 0, `${freeze ? "frozen" : "hidden"}: ${replayed.length} shots of before were played`);
      const now = await ann.seat();
      assert.deepEqual({ ...now, resumed: false }, { ...seat, resumed: false });
      await bob.release();
    }
  });
}

scene("arena: a connection that falls silent is made anew", async (s) => {
  const server = await s.keep(Server.start());
  const relay = await s.keep(Relay.start(server.port));
  const ann = await Player.join(s, DESKTOP, relay.url, "Ann");
  const before = { ...(await ann.seat()), score: 0 };
  relay.stall();
  await until("a new connection", async () => (await ann.quality()).reconnects === 1);
  await same(ann, before);
  await walk(ann, ann, "");
});

scene("arena: a mouse and a finger in one room", async (s) => {
  const server = await s.keep(Server.start());
  const ann = await Player.join(s, DESKTOP, server.url, "Ann", "yard");
  const bob = await Player.join(s, PHONE, server.url, "Bob", "yard");
  await until("each other", async () => (await ann.other("Bob")) && (await bob.other("Ann")));
  await Promise.all([walk(ann, bob, "Ann"), walk(bob, ann, "Bob")]);
});

if (picturing) {
  scene("pictures", async (s) => {
    const server = await s.keep(Server.start());
    const bots = run("load", "--url", server.url, "--world", "arena", "--bots", "11", "--rooms", "2", "--for", "25s");
    for (const device of DEVICES) {
      const lobby = await s.page(device);
      await lobby.goto(server.url);
      await lobby.getByRole("link", { name: /Join room/ }).first().waitFor();
      await until("figures", async () => /kB\/s/.test((await lobby.textContent("#room-list")) ?? ""));
      await picture(lobby, `lobby-${device.name}`);
      await lobby.close();
      const ann = await Player.join(s, device, server.url, device.touch ? "Bob" : "Ann");
      await ann.record();
      let hp = 0;
      let calm = 0;
      await until("a lively moment", async () => {
        const me = await ann.ready();
        // A wound reddens the rim for a moment.
        calm = me.hp < hp ? 0 : calm + 1;
        hp = me.hp;
        await ann.hold(Math.sign(500 - me.x), Math.sign(500 - me.y), { dx: 500 - me.x, dy: 500 - me.y, me });
        return me.hp > 40 && calm > 12 && (await ann.happened()).length > 60;
      });
      await picture(ann.page, `arena-${device.name}`);
      await ann.page.close();
    }
    await bots;
  });
}

/** Walks a way; watcher must see it. */
async function walk(who: Player, watcher: Player, name: string): Promise<void> {
  const seen = async () => (name === "" ? watcher.me() : watcher.other(name));
  const from = await until("a live player", async () => {
    const me = await who.me();
    return me !== null && me.hp > 0 && (await seen()) !== undefined ? me : null;
  });
  const places = new Set<string>();
  await until("a walk that is seen", async () => {
    const me = await who.me();
    const there = await seen();
    if (me === null || !there) return false;
    await who.hold(Math.sign(500 - me.x) || 1, Math.sign(500 - me.y) || 1);
    places.add(`${Math.round(there.x)} ${Math.round(there.y)}`);
    return places.size >= 5 && Math.hypot(there.x - from.x, there.y - from.y) > 50;
  });
  await who.release();
  await until("both pages to agree on the place", async () => {
    const [me, there] = [await who.me(), await seen()];
    return me && there && Math.hypot(me.x - there.x, me.y - there.y) < 1;
  });
}

async function same(p: Player, before: { seat: number; room: string; name: string; score: number }): Promise<void> {
  const after = await p.seat();
  assert.deepEqual(
    { seat: after.seat, room: after.room, name: after.name, resumed: after.resumed, state: after.state },
    { seat: before.seat, room: before.room, name: before.name, resumed: true, state: "live" },
  );
  const score = (await p.ready()).score;
  assert.ok(score >= before.score, `${before.score} points became ${score}`);
}

/** Nothing sticks out to the side. */
async function wide(page: Page): Promise<void> {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(over <= 0, `the page is ${over} px too wide`);
}

/** The element is on the screen as a whole. */
async function inside(page: Page, selector: string): Promise<void> {
  const box = await page.locator(selector).boundingBox();
  const view = page.viewportSize()!;
  assert.ok(box !== null && box.x >= 0 && box.y >= 0 && box.x + box.width <= view.width && box.y + box.height <= view.height,
    `${selector} sticks out: ${JSON.stringify(box)}`);
}
