import assert from "node:assert/strict";
import { test } from "node:test";
import { DevNetwork, Recording } from "../src/devtools.ts";
import type { SocketLike } from "../src/env.ts";
import { KIND_RELIABLE, KIND_STATE } from "../src/packet.ts";
import { FakePage } from "./fake.ts";

interface Got {
  n: number;
  at: number;
}

// Delivers a message every 50 ms, every fifth of them a reliable one, and returns when each came through.
function through(seed: number, set: (n: DevNetwork) => void, count = 400): { got: Got[]; net: DevNetwork; page: FakePage; socket: SocketLike } {
  const page = new FakePage();
  const net = new DevNetwork(seed);
  set(net);
  const socket = net.wrap(page).socket("ws://x");
  const start = page.time;
  const got: Got[] = [];
  socket.onmessage = (e: { data: ArrayBuffer }) => {
    const b = new Uint8Array(e.data);
    got.push({ n: b[1]! | (b[2]! << 8), at: page.time - start });
  };
  for (let i = 0; i < count; i++) {
    page.last.deliver(new Uint8Array([i % 5 === 4 ? KIND_RELIABLE : KIND_STATE, i & 255, i >> 8, ...new Uint8Array(97)]));
    page.run(50);
  }
  page.run(5000);
  return { got, net, page, socket };
}

const late = (got: Got[]): number[] => got.map((g) => g.at - 50 * g.n);

test("a network that is as it is changes nothing", () => {
  const { got, page, socket } = through(1, () => undefined, 50);
  assert.deepEqual(late(got), new Array(50).fill(0));
  socket.send(new Uint8Array([1, 2]));
  assert.equal(page.last.sent.length, 1);
  assert.equal(socket.bufferedAmount, 0);
  assert.equal(page.openTimers, 0);
});

test("latency is shared by both ways, jitter is within its bound, and the order is kept", () => {
  const { got, page, socket } = through(7, (n) => {
    n.latencyMs = 100;
    n.jitterMs = 120;
  });
  assert.deepEqual(got.map((g) => g.n), Array.from({ length: 400 }, (_, i) => i));
  assert.ok(late(got).every((ms) => ms >= 50 && ms <= 170.5));
  assert.ok(Math.max(...late(got)) > 150 && Math.min(...late(got)) < 60);
  const t = page.time;
  for (let i = 0; i < 20; i++) socket.send(new Uint8Array([9, i]));
  assert.equal(socket.bufferedAmount, 40);
  page.run(49);
  assert.equal(page.last.sent.length, 0);
  page.run(200);
  assert.deepEqual(page.last.sent.map((m) => m[1]), Array.from({ length: 20 }, (_, i) => i));
  assert.equal(socket.bufferedAmount, 0);
  assert.ok(page.time > t);
});

test("on an ordered link a loss is a delay, for what follows as well; nothing is missing", () => {
  const { got, net } = through(3, (n) => {
    n.lossPct = 10;
    n.latencyMs = 80;
    n.ordered = () => true;
  });
  assert.deepEqual(got.map((g) => g.n), Array.from({ length: 400 }, (_, i) => i));
  assert.ok(net.lost > 15 && net.lost < 55, `${net.lost} losses`);
  assert.ok(late(got).every((ms) => ms >= 40 && ms <= 181));
  const delayed = late(got).filter((ms) => ms > 41).length;
  assert.ok(delayed > net.lost, "those behind a lost one wait");
});

test("on an unordered link state packets are lost, and nothing else", () => {
  const { got, net } = through(3, (n) => {
    n.lossPct = 30;
    n.jitterMs = 150;
    n.ordered = () => false;
  });
  assert.equal(got.length, 400 - net.lost);
  assert.ok(net.lost > 60);
  const reliable = got.filter((g) => g.n % 5 === 4).map((g) => g.n);
  assert.deepEqual(reliable, Array.from({ length: 80 }, (_, i) => 5 * i + 4));
  assert.ok(got.some((g, i) => i > 0 && g.n < got[i - 1]!.n), "some overtake");
});

test("a narrow line delays by what it carries", () => {
  const { got } = through(1, (n) => (n.kbitPerSec = 16), 100); // 100 bytes take 50 ms
  assert.ok(Math.abs(late(got)[99]! - 50) < 2, `${late(got)[99]}`);
  const over = late(through(1, (n) => (n.kbitPerSec = 8), 100).got); // twice that
  assert.ok(Math.abs(over[49]! - 100 - 49 * 50) < 3, `${over[49]}`);
});

test("a seed gives the same network again", () => {
  const set = (n: DevNetwork): void => {
    n.lossPct = 5;
    n.jitterMs = 90;
  };
  assert.deepEqual(through(11, set).got, through(11, set).got);
  assert.notDeepEqual(through(11, set).got, through(12, set).got);
});

test("the end comes after what was on its way, and closing stops it all", () => {
  const page = new FakePage();
  const net = new DevNetwork(1);
  net.latencyMs = 200;
  const socket = net.wrap(page).socket("ws://x");
  const said: string[] = [];
  socket.onmessage = () => said.push("message");
  socket.onclose = () => said.push("close");
  page.last.deliver(new Uint8Array([KIND_STATE]));
  page.last.end();
  page.run(300);
  assert.deepEqual(said, ["message", "close"]);
  const other = net.wrap(page).socket("ws://x");
  other.onmessage = () => said.push("late");
  page.last.deliver(new Uint8Array([KIND_STATE]));
  other.close(1000);
  assert.equal(page.openTimers, 0);
  assert.equal(page.last.closedWith, 1000);
});

test("a recording keeps the last 20 seconds, and no more than its bytes", () => {
  const r = new Recording();
  for (let i = 0; i < 1000; i++) r.add(new Uint8Array([KIND_STATE, i & 255, i >> 8]), 50 * i);
  assert.equal(r.count, 401);
  assert.equal(r.seconds, 20);
  const file = r.file({ welcome: { room: "r1" } });
  const end = file.indexOf(10);
  assert.deepEqual(JSON.parse(new TextDecoder().decode(file.subarray(0, end))), { format: "drumline packets 1", welcome: { room: "r1" } });
  const view = new DataView(file.buffer, end + 1);
  assert.equal(view.byteLength, 401 * 15);
  assert.equal(view.getFloat64(15, true), 50);
  assert.equal(view.getUint32(23, true), 3);
  assert.equal(view.getUint8(27) | 0, KIND_STATE);
  for (let i = 0; i < 30; i++) r.add(new Uint8Array(1 << 20), 50_000 + i);
  assert.ok(r.count <= 4, `${r.count} messages of a MiB`);
});
