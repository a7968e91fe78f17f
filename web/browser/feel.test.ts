// How it feels: the own player moves at once, however far the server is.

import assert from "node:assert/strict";
import { DESKTOP, Relay, Server, scene, until } from "./harness.ts";
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
  const still = async () => (await ann.me())?.hp === 100 && (await prediction()).active && (await ann.page.evaluate(() => {
    const me = (globalThis as any).__arena.me();
    return Math.hypot(me.vx, me.vy) < 0.01;
  }));
  const felt: Felt[] = [];
  for (const key of ["KeyD", "KeyA", "KeyS", "KeyW", "KeyD"]) {
    await ann.page.waitForTimeout(300);
    await until("a player that stands", still);
    const [x, y] = [(await ann.ready()).x, (await ann.ready()).y];
    // At a wall or pillar that way may be blocked: then another key will tell.
    if (x < 60 || x > 940 || y < 60 || y > 940) continue;
    const moved = ann.page.evaluate(
      () =>
        new Promise<Felt>((resolve) => {
          const peek = (globalThis as any).__arena;
          addEventListener("keydown", () => {
            const from = peek.me();
            const t0 = performance.now();
            let frames = 0;
            // After all that the frame draws.
            const look = (): void => void setTimeout(() => {
              frames++;
              const me = peek.me();
              if (me.x !== from.x || me.y !== from.y || frames > 120) resolve({ frames, ms: performance.now() - t0 });
              else requestAnimationFrame(look);
            });
            requestAnimationFrame(look);
          }, { once: true, capture: true });
        }),
    );
    await ann.page.keyboard.down(key);
    felt.push(await moved);
    await ann.page.keyboard.up(key);
  }
  assert.ok(felt.length >= 2, "the player stood at a wall all the time");
  felt.sort((a, b) => a.frames - b.frames);
  const mid = felt[felt.length >> 1]!;
  // The hand is read in the first frame; the step that it is for begins before the third.
  assert.ok(mid.frames <= 3 && felt[felt.length - 1]!.ms < DELAY, JSON.stringify(felt));
  const rtt = await ann.page.evaluate(() => (globalThis as any).__arena.room.quality.rttMs);
  assert.ok(rtt >= 2 * DELAY, `${rtt} ms`);
  const q = await prediction();
  assert.ok(q.snaps === 0 && q.correctionMax < 60, JSON.stringify(q));
});
