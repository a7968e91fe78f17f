import assert from "node:assert/strict";
import { test } from "node:test";
import { Arrivals, RenderClock } from "../src/clock.ts";
import { type Cause, QualityWatch } from "../src/quality.ts";

const TICK = 1000 / 60;

interface Fault {
  /** The server makes no steps from at on for ms. */
  server?: number;
  /** Nothing gets through the network; what was sent meanwhile comes afterwards, or is lost. */
  network?: number;
  lost?: boolean;
  /** Every packet is late by up to this. */
  jitter?: number;
  ordered?: boolean;
  /** The page's main thread does something else. */
  page?: number;
}

// Plays six seconds with a fault in the fourth and asks for its cause half a second after it.
function play(seed: number, f: Fault): Cause | null {
  const rand = (): number => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  const { jitter = 20, ordered = true } = f;
  const at = 4000 + 400 * rand();
  // The server: steps on a grid; after a stall three at once, the rest of the debt is dropped.
  const packets: { tick: number; at: number }[] = [];
  let tick = 0;
  let last = 0;
  const send = (now: number): void => {
    if (++tick % 3 !== 0) return;
    let there = now + 40 + jitter * rand();
    if (f.network !== undefined && now >= at && now < at + f.network) {
      if (f.lost) return;
      there = Math.max(there, at + f.network + 40);
    }
    if (ordered) there = Math.max(there, last);
    last = Math.max(last, there);
    packets.push({ tick, at: there });
  };
  for (let now = 0; now < 6000; now += TICK) {
    if (f.server !== undefined && now >= at && now < at + f.server) continue;
    const woke = f.server !== undefined && now >= at + f.server && now - TICK < at + f.server;
    for (let k = woke ? 3 : 1; k > 0; k--) send(now);
  }
  packets.sort((a, b) => a.at - b.at);
  const arrivals = new Arrivals(TICK);
  const clock = new RenderClock(arrivals, 20, ordered);
  const watch = new QualityWatch(TICK, 20);
  let newest = -1;
  let i = 0;
  const end = at + Math.max(f.server ?? 0, f.network ?? 0, f.page ?? 0) + 700;
  for (let now = rand() * TICK; now < end; now += TICK) {
    // What came while the page was busy is read when it is not, before the next frame.
    const busy = f.page !== undefined && now >= at && now < at + f.page;
    if (busy) continue;
    for (; i < packets.length && packets[i]!.at <= now; i++) {
      const p = packets[i]!;
      const waited = f.page !== undefined && p.at >= at - TICK && p.at < at + f.page;
      const seen = waited ? now : p.at;
      if (p.tick < newest) continue; // overtaken
      newest = p.tick;
      arrivals.note(p.tick, seen);
      clock.arrive(p.tick, seen);
      watch.packet(p.tick, seen);
    }
    const shown = clock.advance(now);
    watch.frame(now, (shown - newest) * TICK);
  }
  return watch.cause(end);
}

function all(want: Cause | null, f: Fault): void {
  for (let seed = 1; seed <= 100; seed++) assert.equal(play(seed, f), want, `seed ${seed}, ${JSON.stringify(f)}`);
}

test("a server that stops is told from the network and the page", () => {
  for (const server of [300, 500, 1000]) for (const jitter of [5, 20, 60]) all("server", { server, jitter });
  all("server", { server: 400, jitter: 40, ordered: false });
});

test("a network that holds packets up, or loses them, is told from the server and the page", () => {
  for (const network of [300, 500, 1000]) for (const jitter of [5, 20, 60]) all("network", { network, jitter });
  all("network", { network: 400, jitter: 40, ordered: false, lost: true });
});

test("a page that is busy is told from the server and the network, though its packets are late, too", () => {
  for (const page of [120, 300, 800]) for (const jitter of [5, 20, 60]) all("page", { page, jitter });
  all("page", { page: 300, jitter: 60, ordered: false });
});

test("nothing is nobody's fault, jitter that the buffer hides included", () => {
  for (const jitter of [0, 20, 60, 100]) all(null, { jitter });
  all(null, { jitter: 60, ordered: false });
});

test("a watch starts over after an interruption, and finds nothing without a beat", () => {
  const watch = new QualityWatch(TICK, 20);
  for (let k = 0; k < 40; k++) {
    watch.packet(3 * k, 50 * k);
    watch.frame(50 * k, 0);
  }
  watch.interrupt(); // hidden for a while
  for (let k = 0; k < 40; k++) {
    watch.packet(900 + 3 * k, 15_000 + 50 * k);
    watch.frame(15_000 + 50 * k, 0);
  }
  assert.equal(watch.cause(17_000), null);
  const w = watch.window(17_000);
  assert.equal(w.packets, 40);
  const none = new QualityWatch(0, 20);
  none.frame(0, 0);
  none.frame(1000, 100);
  assert.equal(none.cause(1000), null);
});
