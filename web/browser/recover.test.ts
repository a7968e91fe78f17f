// What docs/client.md says of a page that is hidden, slow or cut off: it comes back to the present in one step, with nothing replayed, to
// the same seat, without being loaded again. All of it is real: a tab behind another one for 30 s, a processor throttled by the browser, and
// connections that break and are refused for 10 s. Nothing is simulated but the slow processor.

import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { DESKTOP, Relay, type Scene, Server, run, scene, until } from "./harness.ts";
import { Player } from "./player.ts";

const HZ = 60;
/** Where the bots play. */
const ROOM = "r1";
const HIDDEN_MS = 30_000;
const CUT_MS = 10_000;
const SLOW_MS = 8_000;
/** Of what is shown, once it is back: the buffer's longest on an ordered link, and as much again for a machine with other things to do. */
const MAX_AGE_MS = 500;
/** What Chromium says when a connection breaks, whoever handles it. */
const BROKEN = /^console error: (WebSocket connection to .* failed|Failed to load resource: net::ERR_)/;

interface Frame {
  at: number;
  tick: number;
  /** The newest tick that was received. */
  newest: number;
  entities: number;
}

interface Log {
  frames: Frame[];
  /** Ticks of the state packets that were read, by arrival. */
  packets: { at: number; tick: number; bytes: number }[];
  events: { at: number; tick: number; shown: number }[];
  enters: number;
}

/** Notes what the library shows from now on: it looks over the shoulder of the page's own room. */
async function watch(page: Page): Promise<void> {
  await page.evaluate(() => {
    const g = globalThis as any;
    const { room } = g.__arena;
    const log: Log = (g.__log = { frames: [], packets: [], events: [], enters: 0 });
    const { view, message } = room;
    room.view = (now: number) => {
      const v = view.call(room, now);
      log.frames.push({ at: performance.now(), tick: v.tick, newest: room.newest, entities: v.entities.length });
      return v;
    };
    room.message = (msg: Uint8Array, now: number) => {
      message.call(room, msg, now);
      log.packets.push({ at: performance.now(), tick: room.newest, bytes: msg.length });
    };
    for (const name of ["shot", "kill"]) {
      room.onEvent(name, (_e: unknown, tick: number) => log.events.push({ at: performance.now(), tick, shown: room.rendered }));
    }
    for (const type of ["player", "monster"]) room.onEnter(type, () => log.enters++);
    log.enters = 0;
  });
}

/** What was noted since the last time. */
function noted(page: Page): Promise<Log> {
  return page.evaluate(() => {
    const log = (globalThis as any).__log;
    return { frames: log.frames.splice(0), packets: log.packets.splice(0), events: log.events.splice(0), enters: log.enters } as Log;
  });
}

interface Figures {
  state: string;
  seat: number;
  room: string;
  name: string;
  reconnects: number;
  decodeErrors: number;
  mismatches: number;
  eventsDropped: number;
  stateAgeMs: number;
  fps: number;
  /** By cause: server, network, page. */
  stutters: [number, number, number];
  /** Set on the window before: it is gone after a reload. */
  mark: unknown;
}

function figures(page: Page): Promise<Figures> {
  return page.evaluate(() => {
    const { room } = (globalThis as any).__arena;
    const q = room.quality;
    const perf = (globalThis as any).__drumline.perf();
    return {
      state: room.state, seat: room.me, room: room.name, name: room.player, reconnects: q.reconnects, decodeErrors: q.decodeErrors, mismatches: q.mismatches,
      eventsDropped: q.eventsDropped, stateAgeMs: perf.stateAgeMs, fps: perf.fps,
      stutters: [perf.stuttersServer, perf.stuttersNetwork, perf.stuttersPage], mark: (globalThis as any).__mark,
    };
  });
}

const mark = (page: Page): Promise<void> => page.evaluate(() => void ((globalThis as any).__mark = "here"));

/** Bots that shoot, so that there are events; they end by themselves. */
function crowd(s: Scene, url: string, seconds: number): void {
  // What they measure is not asked.
  const bots = run("load", "--url", url, "--world", "arena", "--rooms", "1", "--bots", "8", "--for", `${seconds}s`).catch(() => "");
  void s.keep(Promise.resolve({ stop: async () => void (await bots) }));
}

/** The same seat, the same page, and nothing that could not be read. */
function unharmed(before: Figures, after: Figures, reconnects: number): void {
  assert.deepEqual(
    { seat: after.seat, room: after.room, name: after.name, state: after.state, reconnects: after.reconnects, decodeErrors: after.decodeErrors, mismatches: after.mismatches, mark: after.mark },
    { seat: before.seat, room: before.room, name: before.name, state: "live", reconnects, decodeErrors: 0, mismatches: 0, mark: "here" },
  );
  assert.ok(after.stateAgeMs < MAX_AGE_MS, `what is shown is ${after.stateAgeMs} ms old`);
}

const told = (f: Figures): string => `${f.fps.toFixed(0)} frames/s, state ${f.stateAgeMs.toFixed(0)} ms old, stutters by server, network, page: ${f.stutters.join(", ")}`;

/** No frame shows a moment of before, and none runs after the present in haste: the first one is there already. */
function present(log: Log, from: number, what: string): void {
  const frames = log.frames.filter((f) => f.at >= from);
  assert.ok(frames.length > 10, `${what}: ${frames.length} frames`);
  const first = frames[0]!;
  // The newest packet may be a second old for a page whose packets wait with its frames.
  assert.ok(first.tick >= first.newest - HZ / 2, `${what}: the first frame shows ${first.newest - first.tick} ticks ago`);
  for (let i = 1; i < frames.length; i++) {
    const [a, b] = [frames[i - 1]!, frames[i]!];
    assert.ok(b.tick >= a.tick, `${what}: back from ${a.tick} to ${b.tick}`);
  }
  const last = frames[frames.length - 1]!;
  const rate = ((last.tick - first.tick) / (last.at - first.at)) * 1000;
  assert.ok(rate < HZ * 1.3 && rate > HZ * 0.7, `${what}: ${rate} ticks a second were shown`);
}

scene("hidden for 30 s: the first frame shows the present, nothing is replayed", async (s) => {
  const server = await s.keep(Server.start());
  const { page, other } = await s.tabs(DESKTOP);
  const ann = new Player(page, DESKTOP, false);
  await ann.enter(server.url, "Ann", ROOM);
  await mark(page);
  crowd(s, server.url, 45);
  await until("bots", async () => (await ann.others()).length >= 8);
  await watch(page);
  await until("shots", async () => page.evaluate(() => (globalThis as any).__log.events.length > 0));
  const before = await figures(page);

  await other.bringToFront();
  await until("the page to be hidden", () => page.evaluate(() => document.visibilityState === "hidden"));
  await noted(page);
  const hiddenAt = await page.evaluate(() => performance.now());
  await new Promise((r) => setTimeout(r, HIDDEN_MS));
  const away = await noted(page);
  const shownAt = await page.evaluate(() => performance.now());
  await page.bringToFront();
  await until("the page to be shown", () => page.evaluate(() => document.visibilityState === "visible"));
  await new Promise((r) => setTimeout(r, 2000));
  const back = await noted(page);
  const after = await figures(page);

  unharmed(before, after, 0);
  assert.equal(away.frames.length, 0, "a hidden page has no frames");
  assert.equal(away.events.length, 0, "nor events");
  const seconds = (shownAt - hiddenAt) / 1000;
  assert.ok(away.packets.length >= seconds && away.packets.length <= seconds * 21, `${away.packets.length} packets in ${seconds} s`);
  present(back, shownAt, "after 30 s");
  // What happened meanwhile was dropped, and counted; what was played then belongs to the frame.
  assert.ok(after.eventsDropped > before.eventsDropped, "events of the time between are dropped");
  const stale = back.events.filter((e) => e.tick < back.frames[0]!.tick - HZ);
  assert.deepEqual(stale, []);
  console.log(`hidden ${seconds.toFixed(1)} s: ${away.packets.length} packets, ${after.eventsDropped - before.eventsDropped} events dropped, first frame ${(back.frames[0]!.newest - back.frames[0]!.tick).toFixed(1)} ticks behind the newest packet; then ${told(after)}`);
});

scene("a processor four times slower: fewer frames of the same moments", async (s) => {
  const server = await s.keep(Server.start());
  const ann = await Player.join(s, DESKTOP, server.url, "Ann", ROOM);
  const { page } = ann;
  await mark(page);
  crowd(s, server.url, 25);
  await until("bots", async () => (await ann.others()).length >= 8);
  await watch(page);
  const before = await figures(page);
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Emulation.setCPUThrottlingRate", { rate: 4 });
  await new Promise((r) => setTimeout(r, 1000)); // what it changes at once is not what is asked
  await noted(page);
  const from = await page.evaluate(() => performance.now());
  await new Promise((r) => setTimeout(r, SLOW_MS));
  const slow = await noted(page);
  const during = await figures(page);
  await cdp.send("Emulation.setCPUThrottlingRate", { rate: 1 });
  await new Promise((r) => setTimeout(r, 3000));
  await noted(page);
  const restored = await page.evaluate(() => performance.now());
  await new Promise((r) => setTimeout(r, 2000));
  const quick = await noted(page);
  const after = await figures(page);

  unharmed(before, during, 0);
  unharmed(before, after, 0);
  present(slow, from, "throttled");
  present(quick, restored, "afterwards");
  const age = (l: Log): number => l.frames.map((f) => f.newest - f.tick).sort((a, b) => a - b)[l.frames.length >> 1]!;
  // It does not fall behind, however long it lasts.
  const half = slow.frames.length >> 1;
  const [first, second] = [{ ...slow, frames: slow.frames.slice(0, half) }, { ...slow, frames: slow.frames.slice(half) }];
  assert.ok(age(second) < age(first) + HZ / 4, `${age(first)} ticks behind became ${age(second)}`);
  console.log(`throttled 4×: ${(slow.frames.length / SLOW_MS * 1000).toFixed(0)} frames/s, ${age(slow).toFixed(1)} ticks behind the newest packet; afterwards ${age(quick).toFixed(1)} ticks, ${told(after)}`);
});

scene("cut off for 10 s: one snapshot brings it back to the same seat", async (s) => {
  s.expect(BROKEN);
  const server = await s.keep(Server.start());
  const relay = await s.keep(Relay.start(server.port));
  const ann = await Player.join(s, DESKTOP, relay.url, "Ann", ROOM);
  const { page } = ann;
  await mark(page);
  crowd(s, server.url, 30);
  await until("bots", async () => (await ann.others()).length >= 8);
  await watch(page);
  await until("shots", async () => page.evaluate(() => (globalThis as any).__log.events.length > 0));
  const before = await figures(page);
  const shown = (await noted(page)).frames.at(-1)!;
  relay.refuse(true);
  relay.cut();
  await until("the loss", async () => (await figures(page)).state === "reconnecting");
  await new Promise((r) => setTimeout(r, CUT_MS));
  const away = await noted(page);
  const lastTick = Math.max(shown.newest, ...away.packets.map((p) => p.tick));
  relay.refuse(false);
  const backFrom = await page.evaluate(() => performance.now());
  await until("the way back", async () => (await figures(page)).state === "live");
  await new Promise((r) => setTimeout(r, 2500));
  const back = await noted(page);
  const after = await figures(page);

  unharmed(before, after, 1);
  assert.equal(await page.evaluate(() => (globalThis as any).__arena.room.info.resumed), true);
  // The first packet leaps over all that was missed; those behind it go on from there, at the rate of any.
  const fresh = back.packets.filter((p) => p.tick > lastTick);
  const leap = fresh[0]!;
  assert.ok(leap.tick > lastTick + ((CUT_MS / 1000) * HZ * 9) / 10, `from ${lastTick} to ${leap.tick}`);
  for (let i = 1; i < fresh.length; i++) assert.ok(fresh[i]!.tick - fresh[i - 1]!.tick < 2 * HZ, `${fresh[i - 1]!.tick} → ${fresh[i]!.tick}`);
  // What it shows then is whole at once: all that was shown, and the others where they are now.
  const first = back.frames.find((f) => f.tick > lastTick + HZ);
  assert.ok(first !== undefined && first.entities >= 30, JSON.stringify(first));
  present(back, Math.max(first.at, backFrom), "after 10 s");
  const missed = back.events.filter((e) => e.tick > lastTick && e.tick < leap.tick - HZ * 1.5);
  assert.deepEqual(missed, [], "events of the time between");
  console.log(`cut ${CUT_MS / 1000} s: back ${(leap.at - backFrom).toFixed(0)} ms after the network, one packet of ${leap.bytes} B over ${leap.tick - lastTick} ticks, ${after.eventsDropped - before.eventsDropped} events dropped; then ${told(after)}`);
});
