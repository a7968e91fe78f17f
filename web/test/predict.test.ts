import assert from "node:assert/strict";
import { test } from "node:test";
import type { PredictOptions } from "../src/predict.ts";
import { type Changing, join } from "../src/room.ts";
import { step as arenaStep } from "../../worlds/arena/web/move.ts";
import { FakePage } from "./fake.ts";
import { type Held, type Mover, type Net, PERFECT, SCHEMA, Sim } from "./sim.ts";
import { dice, makeID } from "./snap_encode.ts";

const rule = (p: Mover, input: Held): boolean => arenaStep(p, input);

/** As the arena's page does it. */
const OPTIONS = { type: "player", fields: ["x", "y", "vx", "vy"], step: rule } as PredictOptions & { type: string };

// Somebody who changes direction now and then.
function wanderer(seed: number): (tick: number) => Partial<Held> {
  const r = dice(seed);
  let dx = 0;
  let dy = 0;
  let until = 0;
  return (tick) => {
    if (tick >= until) {
      dx = Math.floor(r() * 256) - 128;
      dy = Math.floor(r() * 256) - 128;
      until = tick + 10 + Math.floor(r() * 40);
    }
    return { dx, dy };
  };
}

async function playing(net: Partial<Net> = {}, more: Partial<PredictOptions> = {}, player: Partial<Mover> = {}): Promise<Sim> {
  const sim = new Sim(rule, { ...PERFECT, ...net }, player);
  await sim.join();
  sim.room.predict({ ...OPTIONS, ...more });
  return sim;
}

for (const delay of [0, 5, 50, 150]) {
  for (const ordered of [true, false]) {
    test(`nothing is rolled back on a perfect link, ${2 * delay} ms round trip, ${ordered ? "ordered" : "unordered"}`, async () => {
      const sim = await playing({ delay, ordered });
      sim.hands = wanderer(3);
      sim.play(2000); // the input clock finds its lead
      const before = { ...sim.room.quality.prediction };
      const starved = sim.starved;
      sim.play(30_000);
      const q = sim.room.quality.prediction;
      assert.equal(sim.starved, starved, "the server wanted for inputs");
      assert.equal(q.rollbacks - before.rollbacks, 0);
      assert.equal(q.snaps, 0);
      assert.ok(q.active);
    });
  }
}

test("from the first packet on nothing is rolled back at no distance", async () => {
  const sim = await playing();
  sim.hands = wanderer(4);
  sim.play(20_000);
  const { rollbacks, snaps, active } = sim.room.quality.prediction;
  assert.deepEqual({ rollbacks, snaps, active }, { rollbacks: 0, snaps: 0, active: true });
});

test("a key moves the own player within two frames, with 100 ms each way", async () => {
  const sim = await playing({ delay: 100 });
  sim.hands = () => ({ dx: 0, dy: 0 });
  sim.play(3000);
  const x = sim.room.view(sim.page.time).own!.numbers[0]!;
  sim.hands = () => ({ dx: 127, dy: 0 });
  const way: number[] = [];
  sim.play(2 * 17, 60, (own) => way.push(own!.x));
  sim.play(17, 60, (own) => way.push(own!.x));
  // The hands move after the first frame was drawn.
  assert.equal(way[0], x);
  assert.ok(way[2]! > x + 0.05, `${x} became ${way.join(", ")}`);
  // And the other fields are the timeline's.
  assert.equal(sim.room.ownEntity!.numbers[4], 100);
});

test("what is shown moves evenly on displays of any rate", async () => {
  for (const hz of [30, 60, 75, 144, 240]) {
    const sim = await playing({ delay: 40 });
    sim.hands = () => ({ dx: 100, dy: 0 });
    sim.player.x = 20;
    sim.play(2000, hz);
    const xs: number[] = [];
    sim.play(1000, hz, (own) => xs.push(own!.x));
    const steps = xs.slice(1).map((x, i) => x - xs[i]!);
    const even = (210 * 100) / 127 / hz;
    for (const s of steps) assert.ok(Math.abs(s - even) < 0.15 * even + 0.02, `${hz} Hz: a step of ${s}, not ${even}`);
  }
});

for (const [name, net, most] of [
  ["5 % loss, 60 ms jitter, unordered", { delay: 40, jitter: 60, loss: 0.05, ordered: false }, 1],
  ["10 % loss, 20 ms jitter, unordered", { delay: 40, jitter: 20, loss: 0.1, ordered: false }, 1],
  ["5 % loss, 20 ms jitter, ordered", { delay: 40, jitter: 20, loss: 0.05, ordered: true }, 3],
] as [string, Net, number][]) {
  test(`corrections are few and small: ${name}`, async () => {
    const sim = await playing(net);
    sim.hands = wanderer(5);
    sim.play(5000);
    const before = { ...sim.room.quality.prediction };
    let jump = 0;
    let last: Mover | null = null;
    sim.play(60_000, 60, (own) => {
      if (own !== null && last !== null) jump = Math.max(jump, Math.hypot(own.x - last.x, own.y - last.y));
      last = own === null ? null : { ...own, x: own.x, y: own.y };
    });
    const q = sim.room.quality.prediction;
    const perSec = (q.rollbacks - before.rollbacks) / 60;
    console.log(`${name}: ${perSec.toFixed(2)} rollbacks/s, mean ${((q.correction - before.correction) / Math.max(1, q.rollbacks - before.rollbacks)).toFixed(2)}, most ${q.correctionMax.toFixed(1)} units, ${q.snaps} snaps, largest frame step ${jump.toFixed(2)}, starved ${sim.starved}`);
    assert.ok(perSec <= most, `${perSec} rollbacks a second`);
    assert.equal(q.snaps, 0);
    assert.ok(q.correctionMax < 80, `${q.correctionMax} units`);
    assert.ok(jump < 12, `it jumped by ${jump}`);
    // In the end both agree.
    sim.hands = () => ({ dx: 0, dy: 0 });
    sim.play(3000);
    const own = sim.room.view(sim.page.time).own as unknown as Mover;
    assert.ok(Math.hypot(own.x - sim.player.x, own.y - sim.player.y) < 0.3, `${own.x}, ${own.y} is ${sim.player.x}, ${sim.player.y}`);
  });
}

test("a knock that nobody could foresee is one rollback, shown smoothly", async () => {
  const sim = await playing({ delay: 50 });
  sim.hands = () => ({ dx: 60, dy: 0 });
  sim.play(2000);
  const before = { ...sim.room.quality.prediction };
  const at = sim.tick + 3;
  sim.after = (p, tick) => {
    if (tick === at) p.y -= 30;
  };
  let most = 0;
  let y = 600;
  sim.play(1000, 60, (own) => {
    most = Math.max(most, Math.abs(own!.y - y));
    y = own!.y;
  });
  const q = sim.room.quality.prediction;
  assert.equal(q.rollbacks - before.rollbacks, 1);
  assert.ok(q.replayedSteps - before.replayedSteps >= 6 && q.replayedSteps - before.replayedSteps < 30);
  assert.ok(Math.abs(q.correction - before.correction - 30) < 1, String(q.correction));
  assert.ok(most < 8, `${most} in one frame`);
  assert.ok(Math.abs(y - 570) < 0.2, String(y));
});

test("a teleport is shown at once", async () => {
  const sim = await playing({ delay: 30 }, { snap: { x: 60, y: 60 } });
  sim.hands = () => ({ dx: 60, dy: 0 });
  sim.play(2000);
  sim.player.x = 800;
  sim.player.y = 200;
  const ys = new Set<number>();
  sim.play(300, 60, (own) => ys.add(Math.round(own!.y)));
  assert.deepEqual([...ys], [600, 200]);
  assert.equal(sim.room.quality.prediction.snaps, 1);
});

test("death pauses prediction until the next life, and the body stays where it fell", async () => {
  const sim = await playing({ delay: 50 });
  sim.hands = () => ({ dx: 127, dy: 0 });
  sim.play(1500);
  let fell = 0;
  sim.after = (p, tick) => {
    if (tick === 1100) {
      p.hp = 0;
      p.vx = p.vy = 0;
      fell = p.x;
    }
    if (tick === 1250) Object.assign(p, { hp: 100, x: 700, y: 300 });
  };
  let asleep = 0;
  let last = 0;
  const xs: number[] = [];
  sim.play(4500, 60, (own) => {
    if (sim.tick > 1125 && sim.tick < 1240) {
      if (!sim.room.quality.prediction.active) asleep++;
      if (sim.tick > 1170) assert.ok(Math.abs(own!.x - fell) < 0.2, `${own!.x}, fell at ${fell}`);
    }
    // Never to and fro on the way from what was predicted to what the timeline has.
    if (sim.tick > 1000 && sim.tick < 1240) xs.push(own!.x);
    // The living stand where they came back, the dead where they fell: both by the timeline.
    if (own!.hp === 0) assert.ok(own!.x < 700);
    last = own!.x;
  });
  assert.ok(asleep > 90, String(asleep));
  for (let i = 1; i < xs.length; i++) assert.ok(Math.abs(xs[i]! - xs[i - 1]!) < 12, `${xs[i - 1]} became ${xs[i]}`);
  assert.ok(sim.room.quality.prediction.active);
  assert.ok(last > 760, String(last));
});

test("another body starts anew", async () => {
  const sim = await playing({ delay: 30 });
  sim.hands = () => ({ dx: 60, dy: 0 });
  sim.play(1500);
  sim.replace(makeID(9, 2), { x: 100, y: 100, vx: 0, vy: 0 });
  sim.play(1000);
  const own = sim.room.view(sim.page.time).own as unknown as Mover & { id: number };
  assert.equal(own.id, makeID(9, 2));
  assert.ok(sim.room.quality.prediction.active && own.y === 100 && own.x > 150);
  assert.equal(sim.room.quality.prediction.snaps, 0);
});

test("after a lost link it starts over from one packet", async () => {
  const sim = await playing({ delay: 40 });
  sim.hands = () => ({ dx: 127, dy: 0 });
  sim.play(2000);
  const before = { ...sim.room.quality.prediction };
  sim.page.last.end(1006);
  sim.play(400);
  assert.equal(sim.room.state, "reconnecting");
  const held = (sim.room.view(sim.page.time).own as unknown as Mover).x;
  sim.page.last.open();
  sim.welcome(true);
  sim.play(60);
  assert.equal(sim.room.state, "live");
  sim.play(3000);
  const q = sim.room.quality.prediction;
  assert.ok(q.active);
  assert.ok(q.replayedSteps - before.replayedSteps < 80, String(q.replayedSteps - before.replayedSteps));
  assert.ok((sim.room.view(sim.page.time).own as unknown as Mover).x > held);
});

test("a tab that was hidden for a minute is there in one frame, without a storm", async () => {
  const sim = await playing({ delay: 40 });
  let calls = 0;
  sim.room.leave();
  const counted = new Sim(rule, { ...PERFECT, delay: 40 });
  await counted.join();
  counted.room.predict({ ...OPTIONS, step: (p: Mover, input: Held) => (calls++, rule(p, input)) } as typeof OPTIONS);
  counted.hands = wanderer(8);
  counted.play(3000);
  counted.page.page("hidden");
  counted.page.run(60_000);
  counted.page.page("visible");
  calls = 0;
  counted.play(17);
  assert.ok(calls <= 70, `${calls} steps in the first frame`);
  counted.play(200);
  assert.ok(counted.room.quality.prediction.active);
  assert.ok(calls <= 120, `${calls} steps`);
  const before = counted.room.quality.prediction.rollbacks;
  counted.play(5000);
  assert.equal(counted.room.quality.prediction.rollbacks, before);
});

test("a frame runs five steps at most", async () => {
  const sim = new Sim(rule, { ...PERFECT, delay: 20 });
  await sim.join();
  let calls = 0;
  sim.room.predict({ ...OPTIONS, step: (p: Mover, input: Held) => (calls++, rule(p, input)) } as typeof OPTIONS);
  sim.hands = () => ({ dx: 127, dy: 0 });
  sim.play(2000);
  sim.page.run(400); // the page draws nothing
  const most: number[] = [];
  for (let i = 0; i < 8; i++) {
    calls = 0;
    sim.play(17);
    most.push(calls);
  }
  assert.ok(Math.max(...most) === 5, most.join());
  assert.equal(sim.room.quality.prediction.rollbacks, 0);
});

test("presses reach the rule once, and whole numbers are compared exactly", async () => {
  const jump = (p: Mover, input: Held, _tick: number, pressed: Held): boolean => {
    if (pressed.jump) p.jumps = (p.jumps + 1) & 255;
    p.up = input.jump;
    return rule(p, input);
  };
  const sim = new Sim(jump, { ...PERFECT, delay: 50 });
  await sim.join();
  sim.room.predict({ ...OPTIONS, fields: ["x", "y", "vx", "vy", "jumps", "up"], step: jump } as typeof OPTIONS);
  let n = 0;
  sim.hands = () => ({ jump: n++ % 9 < 4, dx: 0, dy: 0 });
  sim.play(1500);
  const before = sim.room.quality.prediction.rollbacks;
  sim.play(10_000);
  assert.ok(sim.player.jumps > 60);
  assert.equal(sim.room.quality.prediction.rollbacks, before);
  const own = sim.room.view(sim.page.time).own as unknown as Mover;
  assert.ok(own.jumps >= sim.player.jumps && typeof own.up === "boolean");
});

test("a server ahead of the page is followed", async () => {
  const sim = await playing();
  sim.hands = wanderer(2);
  sim.play(1000);
  // All inputs come late: the page predicts what is past already.
  sim.net = { ...PERFECT, delay: 0 };
  const before = sim.room.quality.prediction;
  (sim as unknown as { tick: number }).tick += 12; // a server that caught up
  sim.play(3000);
  assert.ok(before.active);
  const own = sim.room.view(sim.page.time).own as unknown as Mover;
  assert.ok(Number.isFinite(own.x));
});

test("an angle is compared by its wrap", async () => {
  const turn = (p: Mover, input: Held): boolean => {
    p.aim = (p.aim + input.dx / 1000) % (2 * Math.PI);
    if (p.aim < 0) p.aim += 2 * Math.PI;
    return true;
  };
  const sim = new Sim(turn, { ...PERFECT, delay: 50 });
  await sim.join();
  sim.room.predict({ ...OPTIONS, fields: ["aim"], step: turn } as typeof OPTIONS);
  sim.hands = () => ({ dx: 100 });
  sim.play(1500);
  const before = sim.room.quality.prediction.rollbacks;
  let most = 0;
  let last: number | null = null;
  sim.play(5000, 60, (own) => {
    if (last !== null) {
      let d = own!.aim - last;
      d -= 2 * Math.PI * Math.round(d / (2 * Math.PI));
      most = Math.max(most, Math.abs(d));
    }
    last = own!.aim;
  });
  assert.equal(sim.room.quality.prediction.rollbacks, before);
  assert.ok(most < 0.13, String(most));
});

test("a rule that fails, or yields no number, does no harm", async () => {
  const reported: unknown[] = [];
  const g = globalThis as { reportError?: (e: unknown) => void };
  const old = g.reportError;
  g.reportError = (e) => reported.push(e);
  try {
    for (const bad of [() => { throw new Error("bad rule"); }, (p: Mover) => { p.x = NaN; }, (p: Mover) => { p.x = Infinity; }]) {
      const sim = await playing({ delay: 20 }, { step: bad as never });
      sim.hands = () => ({ dx: 127, dy: 0 });
      sim.play(2000);
      const own = sim.room.view(sim.page.time).own as unknown as Mover;
      assert.ok(own.x > 400 && !sim.room.quality.prediction.active, String(own.x));
    }
    assert.equal(reported.length, 1);
  } finally {
    g.reportError = old!;
  }
});

test("a rule cannot change what it does not predict", async () => {
  const reported: unknown[] = [];
  const g = globalThis as { reportError?: (e: unknown) => void };
  g.reportError = (e) => reported.push(e);
  const sim = await playing({}, { step: ((p: Mover) => { p.hp = 3; }) as never });
  sim.hands = () => ({ dx: 1 });
  sim.play(500);
  assert.match(String(reported[0]), /hp/);
});

test("what cannot be predicted is refused", async () => {
  const page = new FakePage();
  const p = join({ world: "dots", url: "ws://x/ws", env: page });
  page.last.welcome({ hz: 0, sendHz: 20, feeds: [{ kind: "snap", name: "snap", lane: 0, schema: { ...SCHEMA, hz: 60 } }] });
  const still = await p;
  assert.throws(() => still.predict(OPTIONS), /no beat/);

  const sim = new Sim(rule, PERFECT);
  const room = await sim.join();
  for (const [o, why] of [
    [{ type: "ghost" }, /no entity type "ghost"; there are: player/],
    [{ fields: [] }, /at least one/],
    [{ fields: ["x", "x"] }, /none twice/],
    [{ fields: ["z"] }, /no field "z" with a number; there are: x, y, vx, vy, .*hp/],
    [{ tolerance: { hp: 1 } }, /"hp" is not predicted/],
    [{ snap: { x: -1 } }, /"x"/],
    [{ halfMs: 0 }, /halfMs/],
    [{ maxReplay: 121 }, /maxReplay/],
  ] as [Partial<PredictOptions>, RegExp][]) {
    assert.throws(() => room.predict({ ...OPTIONS, ...o }), why);
  }
  const end = room.predict(OPTIONS);
  assert.throws(() => room.predict(OPTIONS), /a rule already/);
  end();
  end();
  room.predict(OPTIONS)();
});

test("when it ends, the timeline is shown again", async () => {
  const sim = await playing({ delay: 100 });
  sim.hands = () => ({ dx: 127, dy: 0 });
  sim.play(1000);
  const ahead = (sim.room.view(sim.page.time).own as unknown as Mover).x;
  sim.room.leave();
  const again = new Sim(rule, { ...PERFECT, delay: 100 });
  await again.join();
  const end = again.room.predict(OPTIONS);
  again.hands = () => ({ dx: 127, dy: 0 });
  again.play(1000);
  end();
  const behind = (again.room.view(again.page.time).own as unknown as Mover).x;
  assert.ok(behind < ahead - 20, `${behind}, predicted ${ahead}`);
  assert.equal(again.room.quality.prediction.active, false);
});

test("a far server: more steps than may be computed anew", async () => {
  const sim = await playing({ delay: 300 }, { maxReplay: 20 });
  sim.hands = () => ({ dx: 60, dy: 0 });
  sim.play(4000);
  const own = sim.room.view(sim.page.time).own as unknown as Mover;
  assert.ok(own.x > 350);
  assert.equal(sim.room.quality.prediction.active, false);
});

test("against a pillar corrections stay small", async () => {
  const sim = await playing({ delay: 60 }, { tolerance: { x: 0.2, y: 0.2, vx: 2, vy: 2 } }, { x: 300.03, y: 499.98 });
  sim.hands = () => ({ dx: 127, dy: 0 });
  sim.play(8000);
  const q = sim.room.quality.prediction;
  console.log("pillar:", JSON.stringify(q));
  assert.ok(q.correctionMax < 14 && q.snaps === 0);
});

for (const net of [PERFECT, { ...PERFECT, delay: 75 }, { delay: 40, jitter: 40, loss: 0.05, ordered: false }]) {
  test(`an input tells what its player saw: ${JSON.stringify(net)}`, async () => {
    const sim = new Sim(rule, net);
    sim.rewindMs = 300;
    await sim.join();
    // Each frame's input is another one, so that it is known by what it holds.
    const shown = new Map<number, number>();
    let n = 0;
    sim.hands = () => {
      n = (n + 1) % 100;
      shown.set(n, sim.room.view(sim.page.time).tick);
      return { dx: n };
    };
    const errors: number[] = [];
    sim.heard = (_label, dx, seen) => {
      if (sim.tick > 1120 && shown.has(dx)) errors.push(seen - shown.get(dx)!);
    };
    sim.play(12_000);
    assert.ok(errors.length > 500, String(errors.length));
    errors.sort((a, b) => a - b);
    const at = (q: number): number => errors[Math.floor(q * errors.length)]!;
    const mean = errors.reduce((a, b) => a + b, 0) / errors.length;
    assert.ok(Math.abs(mean) < 0.5 && at(0.02) > -2 && at(0.98) < 2, `mean ${mean}, ${at(0.02)} to ${at(0.98)} ticks`);
  });
}

test("a page that draws nothing does not say what it sees", async () => {
  const sim = new Sim(rule, { ...PERFECT, delay: 20 });
  sim.rewindMs = 300;
  await sim.join();
  sim.hands = () => ({ dx: 1 });
  sim.play(1000);
  const seen = new Set<number>();
  sim.page.run(1000);
  sim.heard = (_l, _dx, at) => seen.add(at);
  sim.page.run(1000);
  assert.deepEqual([...seen], [0]);
});

test("where nobody asks, inputs are as short as ever", async () => {
  const sim = await playing();
  sim.hands = () => ({ dx: 1 });
  sim.play(500);
  for (const m of sim.page.last.of(2)) assert.ok(m[7]! <= 8);
});

test("a rule that sets what is not its own is told so", async () => {
  const real = globalThis.reportError;
  const said: string[] = [];
  globalThis.reportError = (e) => void said.push(String(e));
  try {
    for (const step of [
      (p: Mover) => void (p.vy = 1),
      (_: Mover, input: Held) => void (input.dx = 1),
    ]) {
      const sim = await playing({}, { fields: ["x", "y", "vx"], step } as Partial<PredictOptions>);
      sim.hands = () => ({ dx: 1 });
      sim.play(1000);
      assert.equal(sim.room.quality.prediction.active, false);
    }
  } finally {
    globalThis.reportError = real;
  }
  assert.deepEqual(said, [
    "TypeError: drumline: predict: the rule sets vy, which is not in fields",
    "TypeError: drumline: predict: the rule sets dx, which is of the input",
  ]);
});

test("a rule may set nested fields by their types", () => {
  interface Ship { readonly pos: { readonly x: number; readonly at: { readonly deep: boolean } }; readonly name: string; readonly odd: any }
  const ship: Changing<Ship> = { pos: { x: 0, at: { deep: false } }, name: "", odd: 0 };
  ship.pos.x = 1;
  ship.pos.at.deep = true;
  ship.name = "Ann";
  ship.odd = 2;
  // @ts-expect-error it has no such field
  ship.pos.z = 1;
  assert.equal(ship.pos.x, 1);
});
