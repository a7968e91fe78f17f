import assert from "node:assert/strict";
import { test } from "node:test";
import { Arrivals, InputClock, RenderClock } from "../src/clock.ts";

const TICK = 1000 / 60;

// Plays packets of a 60 Hz room at 20 Hz, with a delay for each, against frames of 60 fps; frame gets the time and the tick shown.
function play(seconds: number, delayOf: (packet: number) => number, frame: (now: number, tick: number, clock: RenderClock) => void, ordered = true): RenderClock {
  const arrivals = new Arrivals(TICK);
  const clock = new RenderClock(arrivals, 20, ordered);
  const coming: { at: number; tick: number }[] = [];
  let last = 0;
  for (let p = 0; p < seconds * 20; p++) {
    let at = p * 50 + delayOf(p);
    if (ordered) at = Math.max(at, last); // nothing overtakes
    last = at;
    if (at < Infinity) coming.push({ at, tick: p * 3 });
  }
  coming.sort((a, b) => a.at - b.at);
  let i = 0;
  for (let now = coming[0]!.at; now < seconds * 1000; now += TICK) {
    for (; i < coming.length && coming[i]!.at <= now; i++) {
      arrivals.note(coming[i]!.tick, coming[i]!.at);
      clock.arrive(coming[i]!.tick, coming[i]!.at);
    }
    frame(now, clock.advance(now), clock);
  }
  return clock;
}

test("without jitter the clock is one send period and a little behind, at an even rate", () => {
  let before = NaN;
  play(20, () => 40, (now, tick) => {
    if (now > 2000) {
      const behind = now - 40 - tick * TICK;
      assert.ok(Math.abs(behind - 60) < 1, `${behind} ms behind at ${now}`);
      assert.ok(Math.abs(tick - before - 1) < 0.01);
    }
    before = tick;
  });
});

test("with jitter hardly any frame runs past the newest packet, and the rate stays within 5 %", () => {
  let seed = 7;
  const rand = (): number => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  let frames = 0;
  let past = 0;
  let before = NaN;
  const at: number[] = [];
  const clock = play(60, (p) => (at[p] = 40 + rand() * 60), (now, tick) => {
    if (now < 5000) {
      before = tick;
      return;
    }
    frames++;
    let newest = 0;
    for (let p = Math.max(0, Math.floor(now / 50) - 5); p <= now / 50; p++) if (p * 50 + at[p]! <= now) newest = p * 3;
    if (tick > newest) past++;
    const rate = tick - before;
    assert.ok(rate > 0.949 && rate < 1.051, `rate ${rate} at ${now}`);
    before = tick;
  });
  assert.ok(past / frames < 0.02, `${past} of ${frames} frames past the newest`);
  assert.ok(clock.delay > 90 && clock.delay < 150, `delay ${clock.delay}`);
});

test("the buffer is as long as lost packets need, and no longer for those that are overtaken", () => {
  // One of ten is lost: the next one comes a period later.
  const lossy = play(60, (p) => (p % 10 === 3 ? Infinity : 40), () => {}, false);
  assert.ok(Math.abs(lossy.delay - 110) < 1, `delay ${lossy.delay}`);
  // One of ten comes after the next one: that was there in time.
  const shuffled = play(60, (p) => (p % 10 === 3 ? 95 : 40), () => {}, false);
  assert.ok(Math.abs(shuffled.delay - 110) < 1, `delay ${shuffled.delay}`);
  // What was away for long is a pause.
  const paused = play(60, (p) => (p >= 600 && p < 640 ? Infinity : 40), () => {}, false);
  assert.ok(Math.abs(paused.delay - 60) < 1, `delay ${paused.delay}`);
});

test("the buffer is capped on an ordered link", () => {
  const clock = play(30, (p) => 40 + (p % 10 === 0 ? 900 : 0), () => {});
  assert.ok(clock.delay <= 250, `delay ${clock.delay}`);
});

test("after a pause the clock jumps and says so", () => {
  const arrivals = new Arrivals(TICK);
  const clock = new RenderClock(arrivals, 20, true);
  arrivals.note(0, 100);
  clock.arrive(0, 100);
  clock.advance(100);
  assert.equal(clock.jumped, true);
  clock.advance(116);
  assert.equal(clock.jumped, false);
  for (let p = 1; p < 100; p++) {
    arrivals.note(p * 3, 100 + p * 50);
    clock.arrive(p * 3, 100 + p * 50);
  }
  const tick = clock.advance(5100);
  assert.equal(clock.jumped, true);
  assert.ok(Math.abs(tick * TICK - (5000 - clock.delay)) < 1);
});

test("on a new link the clock goes on until the first packet tells better", () => {
  const arrivals = new Arrivals(TICK);
  const clock = new RenderClock(arrivals, 20, true);
  assert.equal(clock.advance(0), 0);
  assert.equal(clock.advance(100), 0, "no packet has come yet");
  for (let p = 0; p < 40; p++) {
    arrivals.note(600 + p * 3, 1000 + p * 50);
    clock.arrive(600 + p * 3, 1000 + p * 50);
    clock.advance(1000 + p * 50);
  }
  const lost = clock.tick;
  assert.ok(Math.abs(clock.advance(2966) - lost - 1) < 0.1);
  arrivals.reset();
  assert.ok(Math.abs(clock.advance(2983) - lost - 2) < 0.1);
  clock.reset();
  assert.equal(clock.advance(3000), 0, "another server's time");
});

test("when the server's time slips, the clock follows without running backwards", () => {
  let before = -Infinity;
  play(30, (p) => (p < 200 ? 40 : 190), (now, tick) => {
    if (now > 1000) assert.ok(tick >= before, `backwards at ${now}`);
    before = tick;
  });
});

test("a room without a beat shows the newest", () => {
  const arrivals = new Arrivals(0);
  const clock = new RenderClock(arrivals, 20, true);
  arrivals.note(5, 1000);
  clock.arrive(5, 1000);
  assert.equal(clock.advance(1001), 5);
  assert.equal(new InputClock(arrivals, 50, 1).label(2000), 0);
});

test("the lead settles where inputs come in time, whatever the distance", () => {
  for (const [down, up, rtt] of [[5, 5, 10], [40, 40, 80], [20, 150, 170], [5, 5, 2000], [100, 200, 0]] as const) {
    const arrivals = new Arrivals(TICK);
    const clock = new InputClock(arrivals, rtt, 3);
    let label = 0;
    const flying: { at: number; label: number }[] = [];
    let acked = -1;
    let margin = NaN;
    let late = 0;
    for (let now = 0; now < 20_000; now += 1) {
      const step = now / TICK;
      while (flying.length > 0 && flying[0]!.at <= now) {
        const f = flying.shift()!;
        acked = f.label;
        margin = f.label - Math.floor(step);
        if (now > 5000 && margin < 2) late++;
      }
      if (now === 4000) assert.ok(margin >= 1 && margin <= 10, `${down}/${up} ms: margin ${margin} after 4 s`);
      if (now % 50 === 0) {
        // The packet that leaves now comes `down` later with what the server knows now.
        const tick = Math.floor(step);
        const [a, m] = [acked, margin];
        if (now > down) {
          arrivals.note(tick, now + down);
          if (a >= 0) clock.margin(m, a, tick, label);
        }
        label = Math.max(label, clock.label(now));
        if (arrivals.count > 0) flying.push({ at: now + up, label });
      }
    }
    assert.equal(late, 0, `${down}/${up} ms: ${late} inputs late`);
    assert.ok(margin >= 2 && margin <= 9, `${down}/${up} ms: margin ${margin}`);
  }
});
