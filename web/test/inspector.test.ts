// What the inspector makes of its figures.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  LATE_BOUNDS, type Spent, bars, bytes, ceiling, duration, lateHistogram, ms, plural, reasons, spentSince, total, verdict,
} from "../src/inspector_data.ts";

test("figures keep three digits and their unit", () => {
  for (const [n, want] of [[0, "0 B"], [999, "999 B"], [999.7, "1.00 kB"], [1234, "1.23 kB"], [12_345, "12.3 kB"], [123_456, "123 kB"], [999_499, "999 kB"], [999_600, "1.00 MB"], [5.25e9, "5.25 GB"]] as const) {
    assert.equal(bytes(n), want);
  }
  for (const [n, want] of [[0.005, "0.01 ms"], [0.994, "0.99 ms"], [0.999, "1.00 ms"], [9.996, "10.0 ms"], [16.67, "16.7 ms"], [250, "250 ms"], [9999.9, "10.0 s"]] as const) {
    assert.equal(ms(n), want);
  }
  for (const [n, want] of [[0.25, "0.3 s"], [59, "59 s"], [119, "119 s"], [3600, "60 min"], [7200, "2 h"], [864_000, "10 days"]] as const) {
    assert.equal(duration(n), want);
  }
});

test("reasons: those that happened, most first", () => {
  assert.equal(reasons({ busy: 0, slow: 3, input_late: 1200 }), "input late 1,200, slow 3");
  assert.equal(reasons({ busy: 0 }), "none");
  assert.equal(reasons({}), "none");
  assert.equal(total({ a: 1, b: 2 }), 3);
});

test("lateness: each step in one bar", () => {
  const late = [0, 0.05, 0.06, 0.2, 8.4, 20, 20.001, 5000];
  const h = lateHistogram(late);
  assert.equal(h.length, LATE_BOUNDS.length + 1);
  assert.deepEqual(h, [2, 1, 1, 0, 0, 0, 0, 1, 1, 2]);
  assert.deepEqual(lateHistogram([]), new Array(10).fill(0));
});

test("verdicts are the server's", () => {
  const p = 1000 / 60;
  assert.equal(verdict(0.1, 16.7, p), "");
  assert.equal(verdict(9, 20, p), "late");
  assert.equal(verdict(9, 26, p), "skipped");
  assert.equal(verdict(0, 8, p), "doubled");
  assert.equal(verdict(0, 0, p), ""); // the first has no interval
});

const spent = (for_s: number, bytesSent: number, ...rows: [string, string, number, number][]): Spent => ({
  for_s, packets: 10, bytes: bytesSent, rows_omitted: 0, rows: rows.map(([feed, label, bits, count]) => ({ feed, label, bits, count })),
});

test("bars: shares of all bytes, the engine's own by name", () => {
  const b = bars(spent(2, 1000, ["", "packet", 1600, 20], ["snap", "player.x", 5600, 700], ["snap", "header", 800, 20], ["snap", "player.y", 0, 0]));
  assert.deepEqual(b.map((x) => [x.label, x.feed, x.share, x.bytesPerS, x.bitsEach]), [
    ["player.x", "snap", 0.7, 350, 8], ["packet heads", "engine", 0.2, 100, 80], ["section heads", "snap", 0.1, 50, 40],
  ]);
  assert.deepEqual(bars(spent(0, 0)), []);
  // More in the rows than was taken: still at most all of it.
  assert.equal(bars(spent(1, 1, ["snap", "x", 80, 1]))[0]!.share, 1);
});

test("what was spent since an earlier answer", () => {
  const old = spent(10, 100, ["snap", "a", 500, 5], ["", "packet", 300, 3]);
  const now = spent(14, 180, ["snap", "a", 900, 9], ["", "packet", 300, 3], ["snap", "new", 240, 1]);
  assert.deepEqual(spentSince(now, old), { for_s: 4, packets: 0, bytes: 80, rows_omitted: 0, rows: [
    { feed: "snap", label: "a", bits: 400, count: 4 }, { feed: "snap", label: "new", bits: 240, count: 1 },
  ] });
  // Another room under the same name has started anew.
  assert.deepEqual(spentSince(old, now).bytes, 0);
});

test("axes end at round numbers", () => {
  for (const [n, want] of [[0, 1], [-3, 1], [NaN, 1], [0.7, 1], [1, 1], [1.2, 2], [2.2, 2.5], [3, 5], [60, 100], [61_234, 100_000]] as const) assert.equal(ceiling(n), want);
});

test("counts have their noun", () => {
  assert.deepEqual([0, 1, 2, 1200].map((n) => plural(n, "player")), ["0 players", "1 player", "2 players", "1,200 players"]);
});
