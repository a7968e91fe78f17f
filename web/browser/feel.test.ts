// How it feels: the own player moves at once, however far the server is.

import assert from "node:assert/strict";
import { DESKTOP, Relay, Server, scene } from "./harness.ts";
import { Player } from "./player.ts";

/** One way, in ms. */
const DELAY = 100;

interface Felt {
  /** Frames drawn from the press on, up to the first that shows a move. */
  frames: number;
  ms: number;
}

scene("arena: a key moves the own player at once, the server being 200 ms away", async (s) => {
  const server = await s.keep(Server.start());
  const relay = await s.keep(Relay.start(server.port, DELAY));
  const ann = await Player.join(s, DESKTOP, relay.url, "Ann", "feel");
  // A tap, so that the input clock has found its lead.
  await ann.page.keyboard.press("KeyD");
  const prediction = () => ann.page.evaluate(() => (globalThis as any).__arena.stats().prediction);
  // Alive, standing and foreseen; monsters are about, so that may take a life or two.
  const standing = () => ann.page.evaluate(() => {
    const peek = (globalThis as any).__arena;
    const me = peek.me();
    return me !== null && me.hp > 0 && peek.stats().prediction.active && Math.hypot(me.vx, me.vy) < 0.01 ? { x: me.x, y: me.y } : null;
  });
  const felt: Felt[] = [];
  const end = Date.now() + 50_000;
  while (felt.length < 5 && Date.now() < end) {
    const at = await standing();
    if (at === null) {
      await ann.page.waitForTimeout(50);
      continue;
    }
    await ann.page.evaluate(() => {
      const g = globalThis as any;
      g.__moved = new Promise<Felt | null>((resolve) => {
        addEventListener("keydown", () => {
          const from = g.__arena.me();
          const t0 = performance.now();
          let frames = 0;
          // After all that the frame draws.
          const look = (): void => void setTimeout(() => {
            frames++;
            const me = g.__arena.me();
            if (from === null || from.hp === 0 || me === null || me.hp === 0) resolve(null);
            else if (me.x !== from.x || me.y !== from.y || frames > 120) resolve({ frames, ms: performance.now() - t0 });
            else requestAnimationFrame(look);
          });
          requestAnimationFrame(look);
        }, { once: true, capture: true });
      });
    });
    // To the middle, where no wall is; one way after the other, for a pillar may be in between.
    const sideways = felt.length % 2 === 0;
    const key = sideways ? (at.x > 500 ? "KeyA" : "KeyD") : at.y > 500 ? "KeyW" : "KeyS";
    await ann.page.keyboard.down(key);
    const f = await ann.page.evaluate(() => (globalThis as any).__moved as Promise<Felt | null>);
    if (f !== null) felt.push(f);
    await ann.page.keyboard.up(key);
    await ann.page.waitForTimeout(300);
  }
  assert.ok(felt.length >= 3, `the player lived long enough for ${felt.length} presses only`);
  felt.sort((a, b) => a.frames - b.frames);
  const mid = felt[felt.length >> 1]!;
  // The hand is read in the first frame; the step that it is for begins before the third.
  assert.ok(mid.frames <= 3 && mid.ms < DELAY, JSON.stringify(felt));
  const rtt = await ann.page.evaluate(() => (globalThis as any).__arena.room.quality.rttMs);
  assert.ok(rtt >= 2 * DELAY, `${rtt} ms`);
  const q = await prediction();
  assert.ok(q.snaps === 0 && q.correctionMax < 60, JSON.stringify(q));
});
