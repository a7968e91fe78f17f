// What the library costs a page: its own work in each frame of an arena with 48 entities, the garbage that it leaves, and its size. The
// figures are printed; what is asserted is far above them, for machines of CI are shared.

import assert from "node:assert/strict";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { DESKTOP, Server, run, scene, until } from "./harness.ts";
import { Player } from "./player.ts";

const MEASURE_MS = 10_000;
/** The aim is 1 ms; four times that fails, in the quietest of so many parts: other programs do not slow down all of them, but a slow library does. */
const MAX_P99_MS = 4;
const PARTS = 5;
const MAX_GARBAGE_BYTES = 64 << 10; // a frame
const MAX_BUNDLE_BYTES = 40 << 10;
const ENTITIES = 48;

interface Work {
  /** By frame: reading what came since the frame before, and bringing what is shown to now: interpolation and prediction. */
  decode: number[];
  view: number[];
  entities: number;
  packets: number;
  replayed: number;
  predicted: boolean;
  /** The finest step of the page's clock, in ms. */
  resolution: number;
}

scene("arena with 48 entities: the library's own work in a frame", async (s) => {
  const server = await s.keep(Server.start());
  // Painting in software on a large screen would take the processor from what is measured.
  const page = await s.page({ ...DESKTOP, width: 480, height: 360 });
  const bots = run("load", "--url", server.url, "--world", "arena", "--rooms", "1", "--bots", "15", "--decode", "1/15", "--for", "32s").catch(() => "");
  await s.keep(Promise.resolve({ stop: async () => void (await bots) }));
  const ann = new Player(page, DESKTOP);
  await ann.enter(server.url, "Ann", "r1");
  await until("a full room", () => page.evaluate((n) => (globalThis as any).__arena.room.entities.length >= n, ENTITIES));
  await page.evaluate(() => {
    const g = globalThis as any;
    const { room } = g.__arena;
    const work: Work = (g.__work = { decode: [], view: [], entities: 0, packets: 0, replayed: 0, predicted: false, resolution: 1 });
    const { view, message } = room;
    let reading = 0;
    room.message = function drumlineDecode(msg: Uint8Array, now: number): void {
      const t = performance.now();
      message.call(room, msg, now);
      reading += performance.now() - t;
      work.packets++;
    };
    room.view = function drumlineView(now: number): unknown {
      const t = performance.now();
      const v = view.call(room, now);
      work.view.push(performance.now() - t);
      work.decode.push(reading);
      work.entities = v.entities.length;
      reading = 0;
      return v;
    };
    for (let i = 0, t = performance.now(); i < 1000; i++) {
      let u = performance.now();
      while (u === t) u = performance.now();
      work.resolution = Math.min(work.resolution, u - t);
      t = u;
    }
  });
  await page.keyboard.down("KeyD");
  await page.waitForTimeout(2000); // compiled by then
  await page.evaluate(() => {
    const w = (globalThis as any).__work;
    w.decode.length = w.view.length = w.packets = 0;
  });
  await page.waitForTimeout(MEASURE_MS);
  const work = await page.evaluate(() => {
    const g = globalThis as any;
    const q = g.__arena.room.quality.prediction;
    return { ...g.__work, replayed: q.replayedSteps, predicted: q.active } as Work;
  });

  // Once more with the profiler, which costs time: who allocates, collected since or not.
  const cdp = await page.context().newCDPSession(page);
  const before = await page.evaluate(() => (globalThis as any).__work.view.length as number);
  await cdp.send("HeapProfiler.startSampling", { samplingInterval: 1024, includeObjectsCollectedByMajorGC: true, includeObjectsCollectedByMinorGC: true } as any);
  await page.waitForTimeout(5000);
  const { profile } = (await cdp.send("HeapProfiler.stopSampling")) as { profile: { head: Node } };
  const frames = (await page.evaluate(() => (globalThis as any).__work.view.length as number)) - before;
  await page.keyboard.up("KeyD");
  const library = bytesUnder(profile.head, /^drumline(View|Decode)$/) / frames;
  const whole = bytesUnder(profile.head, /./) / frames;

  const sum = work.view.map((v, i) => v + work.decode[i]!);
  const line = (name: string, of: number[]): string => `${name} p50 ${quantile(of, 0.5).toFixed(3)}, p95 ${quantile(of, 0.95).toFixed(3)}, p99 ${quantile(of, 0.99).toFixed(3)}, most ${Math.max(...of).toFixed(3)} ms`;
  console.log(`${work.view.length} frames in ${MEASURE_MS / 1000} s with ${work.entities} entities and ${work.packets} packets; the clock's step is ${(work.resolution * 1000).toFixed(0)} µs`);
  for (const [name, of] of [["decode", work.decode], ["interpolate and predict", work.view], ["all", sum]] as const) console.log(line(name, of));
  console.log(`garbage per frame: ${library.toFixed(0)} B by the library, ${whole.toFixed(0)} B by the whole page`);
  assert.ok(work.entities >= ENTITIES && work.view.length > 100 && work.packets > 100, JSON.stringify({ ...work, view: work.view.length, decode: 0 }));
  const part = Math.floor(sum.length / PARTS);
  const quietest = Math.min(...Array.from({ length: PARTS }, (_, i) => quantile(sum.slice(i * part, (i + 1) * part), 0.99)));
  console.log(`p99 of the quietest ${MEASURE_MS / PARTS / 1000} s: ${quietest.toFixed(3)} ms`);
  assert.ok(quietest <= MAX_P99_MS, `${quietest} ms; ${line("all", sum)}`);
  assert.ok(library <= MAX_GARBAGE_BYTES, `${library} B of garbage per frame`);
});

scene("the library packs into 40 KiB", async (s) => {
  const server = await s.keep(Server.start());
  const js = Buffer.from(await (await fetch(`${server.url}drumline.js`)).arrayBuffer());
  const packed = brotliCompressSync(js, { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: js.length } }).length;
  console.log(`drumline.js: ${js.length} B, gzip ${gzipSync(js, { level: 9 }).length} B, brotli ${packed} B`);
  assert.ok(packed <= MAX_BUNDLE_BYTES, `${packed} B`);
});

interface Node {
  callFrame: { functionName: string };
  selfSize: number;
  children: Node[];
}

/** Bytes allocated in functions of that name and in all that they call. */
function bytesUnder(n: Node, name: RegExp, inside = false): number {
  inside ||= name.test(n.callFrame.functionName);
  return n.children.reduce((sum, c) => sum + bytesUnder(c, name, inside), inside ? n.selfSize : 0);
}

function quantile(of: readonly number[], q: number): number {
  const sorted = [...of].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1)]!;
}
