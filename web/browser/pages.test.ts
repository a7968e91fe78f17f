// What pages say when a player is not let in, and pages in unusual places.

import assert from "node:assert/strict";
import type { Locator, Page } from "playwright-core";
import { DEVICES, type Device, PrefixProxy, type Scene, Server, picture, scene, until } from "./harness.ts";
import { Player } from "./player.ts";

const dialog = (page: Page): Locator => page.getByRole("dialog");

for (const device of DEVICES) {
  scene(`room full, ${device.name}: says so, and gets in when a seat is free`, async (s) => {
    const server = await s.keep(Server.start());
    const crowd = await fill(s, device, server.url, "den", 16);
    const ann = await stranger(s, device, `${server.url}w/arena/?room=den`, "Ann");
    await refusal(ann, "This room is full", "", "Try again");
    await dialog(ann.page).getByText(/Trying again in \d+\ss/).waitFor();
    await crowd.evaluate(() => (globalThis as any).__crowd.pop().leave());
    await ann.press(dialog(ann.page).getByRole("button", { name: "Try again" }));
    await ann.ready();
    assert.equal((await ann.seat()).room, "den");
  });

  scene(`server full, ${device.name}: says so, and gets in by itself`, async (s) => {
    const server = await s.keep(Server.start("drumline", 0, "--max-players", "1"));
    const crowd = await fill(s, device, server.url, "den", 1);
    const ann = await stranger(s, device, `${server.url}w/arena/`, "Ann");
    await refusal(ann, "The server is full", "", "Try again");
    await crowd.evaluate(() => (globalThis as any).__crowd.pop().leave());
    await ann.ready();
  });

  scene(`wrong version, ${device.name}: says so, and a reload helps`, async (s) => {
    const server = await s.keep(Server.start());
    const page = await s.page(device, (c) => c.addInitScript(oldOnce));
    const ann = new Player(page, device);
    await page.goto(`${server.url}w/arena/`);
    await ann.introduce("Ann");
    await refusal(ann, "A new version is out", "This page is older or newer than the server. Reload it.", "Reload");
    await ann.press(dialog(page).getByRole("button", { name: "Reload" }));
    await ann.ready();
  });

  scene(`names, ${device.name}: markup is text`, async (s) => {
    const server = await s.keep(Server.start());
    const evil = "<img src=x onerror=a()>";
    const ann = await Player.join(s, device, server.url, evil);
    const bob = await Player.join(s, device, server.url, "Bob");
    await until("the name", () => bob.other(evil));
    for (const p of [ann, bob]) {
      await p.page.getByLabel("Best players").getByText(evil).waitFor();
      assert.equal(await p.page.locator("img, .hud b").count(), 0);
    }
    const lost = await stranger(s, device, `${server.url}w/arena/?room=${encodeURIComponent("<b>x")}`, "Eve");
    await refusal(lost, "Wrong address", "A room's name is 1 to 32 of a-z, 0-9 and -.", "Try again");
    assert.equal(await lost.page.locator("dialog b").count(), 0);
    // It would fail again: the way out is what Enter takes.
    assert.equal(await lost.page.evaluate(() => document.activeElement?.textContent), "Back to the lobby");
  });

  scene(`escape, ${device.name}: a question stays until it is answered`, async (s) => {
    const server = await s.keep(Server.start());
    const ann = new Player(await s.page(device), device);
    await ann.page.goto(`${server.url}w/arena/`);
    const field = ann.page.getByLabel("Your name");
    await field.fill("An");
    await ann.page.keyboard.type("n"); // with a user's act Escape is stronger
    for (let i = 0; i < 4; i++) await ann.page.keyboard.press("Escape");
    await ann.page.keyboard.type("a"); // and it still has the focus
    await dialog(ann.page).waitFor();
    assert.equal(await field.inputValue(), "Anna");
    await ann.press(ann.page.getByRole("button", { name: "Play" }));
    assert.equal((await ann.ready()).name, "Anna");
  });

  scene(`under a path, ${device.name}: everything works and nothing leaves it`, async (s) => {
    const server = await s.keep(Server.start());
    const proxy = await s.keep(PrefixProxy.start("play", server.port));
    const ann = new Player(await s.page(device), device);
    await ann.page.goto(proxy.url);
    await ann.press(ann.page.getByRole("link", { name: "Play Arena" }));
    await ann.ready();
    assert.equal(new URL(ann.page.url()).pathname, "/play/w/arena/");
    await ann.press(ann.page.getByRole("link", { name: "Lobby" }));
    await ann.page.getByText("in 1 room").waitFor();
    assert.equal(new URL(ann.page.url()).pathname, "/play/");
    assert.deepEqual(proxy.outside, []);
  });

  scene(`dots, ${device.name}: a world of one's own`, async (s) => {
    const server = await s.keep(Server.start("dots"));
    const ann = new Player(await s.page(device), device);
    await ann.page.goto(server.url);
    await ann.press(ann.page.getByRole("link", { name: "Play Dots" }));
    const bob = await s.page(device);
    await bob.goto(`${server.url}w/dots/`);
    await new Player(bob, device).introduce("Bob");
    const from = await until("both dots", async () => (await spots(bob, OTHER)) && (await spots(bob, OWN)) && spots(ann.page, OWN));
    const key = from.x < 300 ? "ArrowRight" : "ArrowLeft";
    await ann.page.keyboard.down(key);
    const seen = (await spots(bob, OTHER))!;
    await until("Ann's dot to move on both pages", async () => {
      const [here, there] = [await spots(ann.page, OWN), await spots(bob, OTHER)];
      return here && there && Math.abs(here.x - from.x) > 40 && Math.abs(there.x - seen.x) > 30;
    });
    await ann.page.keyboard.up(key);
    // A hand on the field draws the dot there.
    const box = (await ann.page.locator("canvas").boundingBox())!;
    const view = ann.page.viewportSize()!;
    assert.ok(box.width <= view.width && box.height <= view.height && box.width > Math.min(view.width, view.height) * 0.9, JSON.stringify(box));
    await ann.page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await ann.page.mouse.down();
    await until("the dot to come to the hand", async () => {
      const here = await spots(ann.page, OWN);
      return here && Math.hypot(here.x - box.width / 2, here.y - box.height / 2) < 20;
    });
    await ann.page.mouse.up();
  });
}

for (const device of DEVICES) {
  scene(`a fault, ${device.name}: a page whose script fails at its start says so`, async (s) => {
    s.expect(/no field "vel"/);
    const server = await s.keep(Server.start());
    const why = 'drumline: predict: ship has no field "vel" with a number; there are: pos.x, pos.y';
    const page = await s.page(device, (c) => c.route(/\.js$/, async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, body: `${await answer.text()}\nthrow new RangeError(${JSON.stringify(why)});` });
    }));
    await new Player(page, device).enter(server.url, "Ann");
    const box = page.getByRole("alert").filter({ hasText: "This page has a fault" });
    await box.getByText(`RangeError: ${why}`).waitFor();
    await picture(page, `fault-${device.name}`);
    const r = (await box.boundingBox())!;
    assert.ok(r.x >= 0 && r.x + r.width <= device.width, JSON.stringify(r));
    await box.getByRole("button", { name: "Close" }).click();
    await until("the words to go", async () => (await box.count()) === 0);
  });
}

const OWN = [0x56, 0xb4, 0xe9] as const;
const OTHER = [0xe6, 0x9f, 0x00] as const;

/** The middle of all pixels of a colour on the page's canvas; null: there are none. */
function spots(page: Page, colour: readonly [number, number, number]): Promise<{ x: number; y: number } | null> {
  return page.evaluate(([r, g, b]) => {
    const from = document.querySelector("canvas");
    if (from === null) return null;
    const copy = document.createElement("canvas");
    copy.width = from.width;
    copy.height = from.height;
    const c = copy.getContext("2d", { willReadFrequently: true })!;
    c.drawImage(from, 0, 0);
    const { data } = c.getImageData(0, 0, copy.width, copy.height);
    let n = 0;
    let x = 0;
    let y = 0;
    for (let i = 0; i < data.length; i += 4) {
      if (data[i] !== r || data[i + 1] !== g || data[i + 2] !== b) continue;
      n++;
      x += (i / 4) % copy.width;
      y += Math.floor(i / 4 / copy.width);
    }
    return n < 50 ? null : { x: x / n, y: y / n };
  }, colour);
}

async function stranger(s: Scene, device: Device, url: string, name: string): Promise<Player> {
  const p = new Player(await s.page(device), device);
  await p.page.goto(url);
  await p.introduce(name);
  return p;
}

/** The dialog has these words (no text: the title says it all) and a way out, all of it on the screen. */
async function refusal(p: Player, title: string, text: string, button: string): Promise<void> {
  const d = p.page.getByRole("dialog", { name: title });
  await d.waitFor();
  if (text !== "") await d.getByText(text, { exact: true }).and(d.locator("p")).waitFor();
  else assert.equal(await d.locator(".dl-text").count(), 0);
  for (const part of [d, d.getByRole("button", { name: button }), d.getByRole("link", { name: "Back to the lobby" })]) {
    const box = await part.boundingBox();
    assert.ok(box !== null && box.x >= 0 && box.y >= 0 && box.x + box.width <= p.device.width && box.y + box.height <= p.device.height,
      `a part of the dialog sticks out: ${JSON.stringify(box)}`);
  }
}

/** Takes n seats of a room from one page, through the library that the site serves. */
async function fill(s: Scene, device: Device, site: string, room: string, n: number): Promise<Page> {
  const page = await s.page(device);
  await page.goto(site);
  await page.evaluate(async ([room, n]) => {
    // @ts-expect-error: the site serves it
    const { join } = await import("/drumline.js");
    const g = globalThis as any;
    g.__crowd = [];
    for (let i = 0; i < n; i++) g.__crowd.push(await join({ world: "arena", room, name: `Crowd ${i}`, resume: false }));
  }, [room, n] as const);
  return page;
}

/** Makes the first page load of a tab say hello in an old version of the protocol. */
function oldOnce(): void {
  if (sessionStorage.getItem("old") !== null) return;
  sessionStorage.setItem("old", "1");
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (data) {
    if (data instanceof Uint8Array && data[0] === 1) {
      const hello = JSON.parse(new TextDecoder().decode(data.subarray(1))) as { protocol: number };
      hello.protocol = 9999;
      const text = new TextEncoder().encode(JSON.stringify(hello));
      const msg = new Uint8Array(text.length + 1);
      msg[0] = 1;
      msg.set(text, 1);
      send.call(this, msg);
      return;
    }
    send.call(this, data);
  };
}
