import assert from "node:assert/strict";
import { test } from "node:test";
import { KIND_ACK, KIND_COMMAND, KIND_HELLO, KIND_INPUT, KIND_LEAVE, KIND_STATE, type Welcome } from "../src/packet.ts";
import { Refused, type Room, type RoomState, join } from "../src/room.ts";
import { FakePage, FakeSocket, FakeStorage } from "./fake.ts";

const URL_ = "wss://play.example/x/ws";

function start(page: FakePage, more: object = {}): Promise<Room> {
  return join({ world: "dots", url: URL_, env: page, ...more });
}

async function live(page: FakePage, w: Partial<Welcome> = {}, more: object = {}): Promise<Room> {
  const p = start(page, more);
  page.last.welcome(w);
  return p;
}

async function refusal(p: Promise<unknown>): Promise<Refused> {
  try {
    await p;
  } catch (e) {
    assert.ok(e instanceof Refused, String(e));
    return e;
  }
  throw new Error("it was let in");
}

let seq = 0;
function packet(s: FakeSocket, n: number, tick: number, more: { inputAck?: number; margin?: number; epoch?: number; body?: number[] } = {}): void {
  const ack = more.inputAck ?? 0;
  s.deliver(new Uint8Array([
    KIND_STATE, 0, n & 255, n >> 8, more.epoch ?? 1, tick & 255, (tick >> 8) & 255, ack & 255, (ack >> 8) & 255, (more.margin ?? -128) & 255, ...(more.body ?? []),
  ]));
}

// A server that sends 20 packets a second, 40 ms after their tick.
function beat(page: FakePage, s: FakeSocket, ms: number): void {
  for (let t = 0; t < ms; t += 50) {
    page.run(50);
    packet(s, ++seq & 0xffff, 1000 + Math.round((page.time * 60) / 1000));
  }
}

test("joining says hello and waits for the welcome", async () => {
  const page = new FakePage();
  const p = start(page, { name: "Ann", room: "r1" });
  assert.equal(page.last.url, URL_);
  page.last.open();
  assert.deepEqual(page.last.hello, { protocol: 1, world: "dots", room: "r1", name: "Ann" });
  page.last.welcome();
  const room = await p;
  assert.equal(room.state, "live");
  assert.equal(room.me, 3);
  assert.equal(room.name, "r1");
  assert.equal(room.player, "Ann");
  assert.equal(room.ownEntity, null);
  assert.throws(() => room.all("ghost"), /no entity type "ghost"/);
  room.leave();
});

test("the address follows the usual forms", async () => {
  for (const [url, want] of [["https://a.example/p/", "wss://a.example/p/ws"], ["http://a.example", "ws://a.example/ws"], ["ws://a.example/socket?x=1#y", "ws://a.example/socket?x=1"]]) {
    const page = new FakePage();
    const p = start(page, { url });
    assert.equal(page.last.url, want);
    page.last.welcome();
    (await p).leave();
  }
});

test("each refusal is typed", async () => {
  for (const g of [
    { reason: "room_full", code: 4010, text: "This room is full.", retry: "later", retryMs: 1500 },
    { reason: "world", code: 4022, text: "Members only.", retry: "never", retryMs: 0 },
    { reason: "version", code: 4003, text: "Reload.", retry: "never", retryMs: 0 },
  ] as const) {
    const page = new FakePage();
    const p = start(page);
    page.last.open();
    page.last.refuse(g);
    const e = await refusal(p);
    assert.deepEqual({ reason: e.reason, code: e.code, text: e.text, retry: e.retry, retryMs: e.retryMs }, g);
    assert.equal(page.openTimers, 0);
    assert.equal(page.openWatchers, 0);
  }
});

test("a close code without a goodbye still tells the reason", async () => {
  const page = new FakePage();
  const p = start(page);
  page.last.open();
  page.last.end(4011, "no room at the inn");
  const e = await refusal(p);
  assert.deepEqual([e.reason, e.retry, e.text], ["server_full", "later", "no room at the inn"]);
});

test("no server, no answer, no address", async () => {
  let page = new FakePage();
  let p = start(page);
  page.last.end(1006);
  assert.deepEqual([(await refusal(p)).reason], ["unreachable"]);

  page = new FakePage();
  p = start(page);
  page.run(4999);
  assert.equal(page.last.closedWith, undefined);
  page.run(1);
  assert.equal(page.last.closedWith, 4000);
  assert.equal((await refusal(p)).reason, "timeout");

  page = new FakePage();
  page.socket = () => {
    throw new SyntaxError("bad address");
  };
  assert.equal((await refusal(start(page))).retry, "never");
});

test("a welcome that cannot be read is a matter of versions", async () => {
  for (const w of [{ protocol: 2 }, { inputs: [{ name: "x", kind: "i99" }] }] as Partial<Welcome>[]) {
    const page = new FakePage();
    const p = start(page);
    page.last.welcome(w);
    assert.equal((await refusal(p)).reason, "version");
  }
});

test("a lost link comes back to the same seat, with growing pauses", async () => {
  const page = new FakePage();
  const room = await live(page);
  const states: RoomState[] = [];
  room.onState((s) => states.push(s));
  const first = page.last;
  first.end(1006);
  assert.equal(room.state, "reconnecting");
  assert.ok(room.info.retryInMs > 0 && room.info.graceLeftMs === 30_000);
  const pauses: number[] = [];
  for (let i = 0; i < 6; i++) {
    const from = page.time;
    const n = page.sockets.length;
    while (page.sockets.length === n) page.run(1);
    pauses.push(page.time - from);
    if (i < 5) page.last.end(1006);
  }
  assert.deepEqual(pauses, [200, 400, 800, 1600, 3000, 3000]);
  page.last.open();
  assert.equal(page.last.hello.token, "secret");
  assert.equal(page.last.hello.room, "r1");
  page.last.welcome({ resumed: true, token: "next" });
  assert.equal(room.state, "live");
  assert.equal(room.info.resumed, true);
  assert.equal(room.quality.reconnects, 1);
  assert.equal(states[0], "reconnecting");
  assert.equal(states[states.length - 1], "live");
  page.last.end(1006);
  page.run(200);
  page.last.open();
  assert.equal(page.last.hello.token, "next");
  room.leave();
});

test("when the grace is over it is over", async () => {
  const page = new FakePage();
  const room = await live(page, { graceMs: 10_000 });
  page.last.end(1006);
  const from = page.time;
  while (room.state !== "closed") {
    page.run(10);
    if (room.state === "reconnecting" && page.last.closedWith === undefined && page.last.onclose !== null) page.last.end(1006);
    assert.ok(page.time - from < 16_000);
  }
  assert.equal(room.info.why?.retry, "new");
  assert.ok(page.time - from >= 9_990, `${page.time - from}`);
  assert.equal(page.openTimers, 0);
  assert.equal((page.storage as FakeStorage).items.size, 0);
});

test("goodbyes decide what happens next", async () => {
  for (const [retry, want] of [["never", "closed"], ["new", "closed"], ["resume", "reconnecting"], ["later", "reconnecting"]] as const) {
    const page = new FakePage();
    const room = await live(page);
    page.last.refuse({ reason: "some", code: 4099, text: "Some reason.", retry, retryMs: 700 });
    assert.equal(room.state, want);
    assert.equal(room.info.why?.text, "Some reason.");
    if (want === "reconnecting") {
      assert.equal(Math.round(room.info.retryInMs), 700, "the server's pause counts");
      room.leave();
    }
    assert.equal(page.openTimers, 0);
  }
});

test("a seat that is gone ends the way back", async () => {
  const page = new FakePage();
  const room = await live(page);
  page.last.end(1006);
  page.run(200);
  page.last.open();
  page.last.refuse({ reason: "resume_unknown", code: 4020, text: "Gone.", retry: "new" });
  assert.equal(room.state, "closed");
  assert.equal(room.info.why?.reason, "resume_unknown");
});

test("with rejoin a seat that is gone is taken anew, and the reason is kept", async () => {
  const page = new FakePage();
  const room = await live(page, {}, { rejoin: true, name: "Ann" });
  page.last.refuse({ reason: "room_error", code: 4023, text: "The room broke down and was closed.", retry: "later", retryMs: 900 });
  assert.equal(room.state, "reconnecting");
  assert.deepEqual([room.info.kept, room.info.why?.reason, Math.round(room.info.retryInMs)], [false, "room_error", 900], "no promise");
  page.run(900);
  page.last.open();
  assert.equal(page.last.hello.token, "secret");
  page.last.refuse({ reason: "resume_unknown", code: 4020, text: "Gone.", retry: "new" });
  assert.equal(room.state, "reconnecting");
  assert.equal(room.info.why?.reason, "room_error");
  assert.equal(room.info.graceLeftMs, 0);
  page.run(3000);
  page.last.open();
  assert.deepEqual(page.last.hello, { protocol: 1, world: "dots", room: "r1", name: "Ann" });
  page.last.refuse({ reason: "room_full" });
  assert.equal(room.info.why?.reason, "room_full", "this is what holds it up");
  page.run(3000);
  page.last.open();
  assert.deepEqual(page.last.hello, { protocol: 1, world: "dots", name: "Ann" }, "any room will do");
  page.last.welcome({ seat: 5, token: "other" });
  assert.equal(room.state, "live");
  assert.equal(room.me, 5);
  assert.deepEqual([room.info.resumed, room.info.why?.reason], [false, "room_error"]);
  // The seat's end by rules, or by a person, is an end.
  page.last.refuse({ reason: "replaced", code: 4019, text: "Elsewhere.", retry: "never" });
  assert.equal(room.state, "closed");
  assert.equal(page.openTimers, 0);
});

test("with rejoin a long restart is waited for", async () => {
  const page = new FakePage();
  const room = await live(page, { graceMs: 10_000 }, { rejoin: true });
  page.last.end(1006);
  assert.equal(room.info.kept, true);
  page.run(200);
  page.last.end(1006);
  assert.deepEqual([room.info.kept, room.info.why?.reason], [true, "unreachable"]);
  for (const end = page.time + 60_000; page.time < end; page.run(100)) if (page.last.onclose !== null) page.last.end(1006);
  assert.deepEqual([room.state, room.info.kept], ["reconnecting", false]);
  room.retryNow();
  page.last.welcome();
  assert.equal(room.state, "live");
  assert.deepEqual([room.info.resumed, room.info.why?.reason], [false, "link_lost"]);
  room.leave();
});

test("without rejoin the end names both reasons", async () => {
  const page = new FakePage();
  const room = await live(page);
  page.last.refuse({ reason: "draining", code: 1001, text: "The server is restarting.", retry: "later" });
  page.run(200);
  page.last.end(1006);
  assert.equal(room.info.why?.text, "The server is restarting.", "not that it cannot be reached");
  page.run(400);
  page.last.open();
  page.last.refuse({ reason: "resume_unknown", code: 4020, text: "Your seat is not known here any more.", retry: "new" });
  assert.equal(room.info.why?.text, "The server is restarting. Your seat is not known here any more.");
});

test("another name is another player", async () => {
  const page = new FakePage();
  await live(page, {}, { name: "Ann" });
  page.page("leaving");
  for (const [name, token] of [["Ann", "secret"], ["Bea", undefined]] as const) {
    const next = new FakePage();
    const storage = new FakeStorage();
    for (const [k, v] of (page.storage as FakeStorage).items) storage.setItem(k, v);
    next.storage = storage;
    const p = start(next, { name });
    next.last.open();
    assert.equal(next.last.hello.token, token);
    next.last.welcome();
    (await p).leave();
  }
});

test("silence counts as a loss, but not after a sleep", async () => {
  const page = new FakePage();
  const room = await live(page);
  beat(page, page.last, 2000);
  assert.equal(room.state, "live");
  page.run(4000);
  assert.equal(room.state, "live");
  page.run(1001);
  assert.equal(room.state, "reconnecting");
  page.run(200);
  page.last.welcome({ resumed: true });
  const s = page.last;
  page.time += 60_000; // the machine slept: timers are late, and what came meanwhile is still to be handled
  page.run(0);
  assert.equal(room.state, "live");
  packet(s, 1, 2000);
  page.run(3000);
  assert.equal(room.state, "live");
  room.leave();
});

test("the network coming back, or the page, ends the pause", async () => {
  for (const change of ["online", "visible"] as const) {
    const page = new FakePage();
    const room = await live(page);
    page.last.end(1006);
    for (let i = 0; i < 4; i++) {
      page.run(3000);
      page.last.end(1006);
    }
    const n = page.sockets.length;
    page.page(change);
    assert.equal(page.sockets.length, n + 1);
    room.leave();
  }
});

test("a reload comes back to the seat, a copy of the tab does not", async () => {
  const page = new FakePage();
  const room = await live(page);
  const storage = page.storage as FakeStorage;

  const copy = new FakePage();
  copy.storage = new FakeStorage();
  for (const [k, v] of storage.items) copy.storage.setItem(k, v);
  const other = start(copy);
  copy.last.open();
  assert.equal(copy.last.hello.token, undefined);
  copy.last.welcome();
  (await other).leave();

  page.page("leaving");
  const next = new FakePage();
  next.storage = storage;
  next.time = page.time + 1500;
  const again = start(next);
  next.last.open();
  assert.equal(next.last.hello.token, "secret");
  assert.deepEqual(next.last.hello.cursors, []);
  next.last.welcome({ resumed: true });
  (await again).leave();
  assert.equal(storage.items.size, 0);
  room.leave();
});

test("a reload after the seat was given up joins anew", async () => {
  const page = new FakePage();
  await live(page, {}, { name: "Ann" });
  page.page("leaving");
  const next = new FakePage();
  next.storage = page.storage;
  next.time = page.time + 1500;
  const again = start(next, { name: "Ann" });
  next.last.open();
  assert.equal(next.last.hello.token, "secret");
  next.last.refuse({ reason: "resume_expired", code: 4021, text: "Too late.", retry: "new" });
  assert.equal(next.sockets.length, 2);
  next.last.open();
  assert.deepEqual(next.last.hello, { protocol: 1, world: "dots", name: "Ann" });
  next.last.welcome();
  (await again).leave();

  const late = new FakePage();
  late.storage = new FakeStorage();
  const room = await live(late);
  late.page("leaving");
  room.leave();
  late.time += 60_000;
  const p = start(late);
  late.last.open();
  assert.equal(late.last.hello.token, undefined, "it has long been given up");
  late.last.welcome();
  (await p).leave();
});

test("another room is asked for without the token", async () => {
  const page = new FakePage();
  await live(page);
  page.page("leaving");
  const next = new FakePage();
  next.storage = page.storage;
  const p = start(next, { room: "r2" });
  next.last.open();
  assert.deepEqual(next.last.hello, { protocol: 1, world: "dots", room: "r2" });
  next.last.welcome();
  (await p).leave();
});

test("storage that throws changes nothing else", async () => {
  const page = new FakePage();
  const forbidden = (): never => {
    throw new Error("forbidden");
  };
  page.storage = { getItem: forbidden, setItem: forbidden, removeItem: forbidden };
  const room = await live(page);
  page.page("leaving");
  room.leave();
  assert.equal(room.state, "closed");
});

test("leave gives the seat up and stops everything", async () => {
  const page = new FakePage();
  const room = await live(page);
  room.input({ dx: 1 });
  beat(page, page.last, 200);
  room.leave();
  assert.equal(page.last.of(KIND_LEAVE).length, 1);
  assert.equal(page.last.closedWith, 1000);
  assert.equal(room.state, "closed");
  assert.equal(page.openTimers, 0);
  assert.equal(page.openWatchers, 0);
  const n = page.last.sent.length;
  room.input({ dx: 2 });
  page.run(1000);
  room.leave();
  assert.equal(page.last.sent.length, n);
});

test("inputs go out 20 times a second, each step once at least, acks inside", async () => {
  const page = new FakePage();
  const room = await live(page);
  beat(page, page.last, 500);
  page.last.sent.length = 0;
  room.input({ dx: 7 });
  for (let i = 0; i < 40; i++) {
    beat(page, page.last, 50);
    room.view();
  }
  const sent = page.last.of(KIND_INPUT);
  assert.ok(sent.length >= 38 && sent.length <= 44, `${sent.length} messages in 2 s`);
  const labels = new Set<number>();
  let newest = 0;
  for (const m of sent) {
    const count = m[7]!;
    const label = new DataView(m.buffer).getUint32(8, true);
    assert.ok(count >= 1 && count <= 8);
    for (let i = 0; i < count; i++) labels.add(label - i);
    newest = Math.max(newest, label);
  }
  for (let l = Math.min(...labels); l <= newest; l++) assert.ok(labels.has(l), `no input for step ${l}`);
  const tick = 1000 + (page.time * 60) / 1000;
  assert.ok(newest > tick - 2 && newest < tick + 20, `label ${newest} at tick ${tick}`);
  const last = sent[sent.length - 1]!;
  assert.ok(Math.abs((last[1]! | (last[2]! << 8)) - (seq & 0xffff)) <= 1, "the ack is the newest packet");
  assert.equal(page.last.of(KIND_ACK).length, 0);
  assert.throws(() => room.input({ jump: true }), /no input field "jump"; there are: fire, dx/);
  room.leave();
});

test("a press between two frames reaches the server exactly once", async () => {
  const page = new FakePage();
  const room = await live(page);
  beat(page, page.last, 500);
  room.input({ dx: 0 });
  beat(page, page.last, 200);
  page.last.sent.length = 0;
  room.input({ fire: true });
  room.input({ fire: false });
  beat(page, page.last, 300);
  const byLabel = new Map<number, number>();
  for (const m of page.last.of(KIND_INPUT)) {
    const label = new DataView(m.buffer).getUint32(8, true);
    for (let i = 0; i < m[7]!; i++) byLabel.set(label - i, m[12 + 2 * i]!);
  }
  assert.equal([...byLabel.values()].filter((v) => v === 1).length, 1);
  room.leave();
});

test("a page without input acks at least twice a second, also when hidden", async () => {
  for (const hidden of [false, true]) {
    const page = new FakePage();
    const room = await live(page);
    if (hidden) {
      room.input({ dx: 5 });
      beat(page, page.last, 300);
      page.page("hidden");
      const input = page.last.of(KIND_INPUT).at(-1)!;
      assert.deepEqual([...input.subarray(12, 14)], [0, 0], "keys are let go");
    }
    page.last.sent.length = 0;
    beat(page, page.last, 5000);
    const acks = page.last.of(KIND_ACK);
    assert.ok(acks.length >= 10 && acks.length <= 21, `${acks.length} acks in 5 s`);
    assert.equal(page.last.sent.length, acks.length);
    if (hidden) {
      page.page("visible");
      room.input({ dx: 5 });
      beat(page, page.last, 500);
      assert.ok(page.last.of(KIND_INPUT).length >= 8);
    }
    room.leave();
  }
});

test("whatever runs, a packet is acked within half a second", async () => {
  for (const hz of [0, 60]) {
    for (const mouse of [false, true]) {
      const page = new FakePage();
      const room = await live(page, { hz, sendHz: 20 });
      if (mouse) room.input({ dx: 1 }); // and then it rests
      const s = page.last;
      let n = 0;
      let acked = 0;
      let waits = -1; // since when the oldest packet waits
      const look = (): void => {
        for (const m of s.sent) if (m[0] === KIND_ACK || m[0] === KIND_INPUT) acked = m[1]! | (m[2]! << 8);
        s.sent.length = 0;
        if (acked === n) waits = -1;
        assert.ok(waits < 0 || page.time - waits <= 500, `hz ${hz}, mouse ${mouse}: packet ${n} waits since ${page.time - waits} ms, acked ${acked}`);
      };
      const send = (): void => {
        packet(s, ++n, 1000 + Math.round((page.time * 60) / 1000));
        if (waits < 0) waits = page.time;
        look();
      };
      // What others do, and what comes of the page's own commands.
      for (let t = 0; t < 60_000; t += 100) {
        if (t % 400 === 0) room.command(new Uint8Array([1]));
        if (mouse) room.input({ dx: 1 });
        send();
        page.run(100, look);
      }
      for (let i = 0; i < 3; i++) send();
      page.run(500, look);
      assert.equal(acked, n, "the last ones, too");
      page.run(4000, look);
      assert.equal(room.state, "live");
      if (hz === 0 && !mouse) assert.equal(page.openTimers, 0, "nothing to wait for");
      room.leave();
      assert.equal(page.openTimers, 0);
    }
  }
});

test("a link that is stuck takes no more inputs", async () => {
  const page = new FakePage();
  const room = await live(page);
  room.input({ dx: 5 });
  beat(page, page.last, 300);
  page.last.sent.length = 0;
  page.last.bufferedAmount = 1 << 20;
  beat(page, page.last, 1000);
  assert.equal(page.last.of(KIND_INPUT).length, 0);
  page.last.bufferedAmount = 0;
  beat(page, page.last, 200);
  assert.ok(page.last.of(KIND_INPUT).length >= 3);
  room.leave();
});

test("inputs go on after a reconnect, with labels of the new link", async () => {
  const page = new FakePage();
  const room = await live(page);
  room.input({ dx: 5 });
  beat(page, page.last, 300);
  page.last.end(1006);
  page.run(250);
  page.last.welcome({ resumed: true, tick: 1000 + Math.round((page.time * 60) / 1000) });
  beat(page, page.last, 500);
  const sent = page.last.of(KIND_INPUT);
  assert.ok(sent.length >= 8, `${sent.length}`);
  assert.equal(sent.at(-1)![13], 5, "what is held is still held");
  room.leave();
});

test("without a beat an input goes out at once, then at the rate, and nothing is repeated", async () => {
  const page = new FakePage();
  const room = await live(page, { hz: 0, sendHz: 10 });
  packet(page.last, 1, 1000);
  page.run(1000);
  page.last.sent.length = 0;
  room.input({ dx: 1 });
  assert.equal(page.last.of(KIND_INPUT).length, 1);
  assert.deepEqual([...page.last.of(KIND_INPUT)[0]!.subarray(7)], [1, 0, 0, 0, 0, 0, 1]);
  room.input({ dx: 2 });
  room.input({ dx: 3 });
  room.input({ fire: true });
  room.input({ fire: false });
  assert.equal(page.last.of(KIND_INPUT).length, 1);
  page.run(500);
  const sent = page.last.of(KIND_INPUT);
  assert.deepEqual(sent.slice(1).map((m) => [...m.subarray(12)]), [[1, 3], [0, 3]]);
  page.run(20_000);
  assert.equal(page.last.of(KIND_INPUT).length, 3);
  assert.equal(room.state, "live", "silence is no loss here");
  room.leave();
});

test("commands are sent or refused, never kept", async () => {
  const page = new FakePage();
  const room = await live(page);
  assert.equal(room.command(new Uint8Array([1, 2])), true);
  assert.deepEqual([...page.last.of(KIND_COMMAND)[0]!], [KIND_COMMAND, 1, 2]);
  assert.throws(() => room.command(new Uint8Array(4097)), RangeError);
  page.last.end(1006);
  assert.equal(room.command(new Uint8Array(1)), false);
  room.leave();
});

test("malformed packets end an ordered link; a page that never understands gives up", async () => {
  const page = new FakePage();
  const room = await live(page);
  page.last.deliver(new Uint8Array([KIND_STATE, 8]));
  assert.equal(room.state, "reconnecting");
  assert.equal(room.quality.decodeErrors, 1);
  page.run(250);
  page.last.welcome({ resumed: true });
  packet(page.last, 1, 1500);
  assert.equal(room.state, "live");
  page.last.deliver(new Uint8Array([99, 1, 2]));
  assert.equal(room.state, "live", "kinds of later servers are left out");
  for (let i = 0; i < 3; i++) {
    assert.equal(room.state, "live");
    page.last.deliver(new Uint8Array([KIND_STATE, 8]));
    page.run(250);
    if (i < 2) page.last.welcome({ resumed: true });
  }
  assert.equal(room.state, "closed");
  assert.equal(room.info.why?.reason, "version");
});

test("rtt comes from inputs, rates from packets", async () => {
  const page = new FakePage();
  const room = await live(page);
  room.input({ dx: 1 });
  beat(page, page.last, 1000);
  const label = (): number => new DataView(page.last.of(KIND_INPUT).at(-1)!.buffer).getUint32(8, true);
  for (let i = 0; i < 40; i++) {
    page.run(20);
    const l = label();
    page.run(30);
    packet(page.last, ++seq & 0xffff, 1000 + Math.round((page.time * 60) / 1000), { inputAck: l & 0xffff, margin: 4 });
  }
  assert.ok(room.quality.rttMs >= 20 && room.quality.rttMs <= 100, `${room.quality.rttMs}`);
  assert.ok(Math.abs(room.quality.packetsPerSec - 20) < 2, `${room.quality.packetsPerSec}`);
  assert.ok(Math.abs(room.quality.bytesPerSec - 200) < 20, `${room.quality.bytesPerSec}`);
  room.view();
  assert.ok(room.quality.stateAgeMs > 40 && room.quality.stateAgeMs < 200, `${room.quality.stateAgeMs}`);
  assert.equal(room.quality.inputMargin, 4);
  room.leave();
});

test("in a new epoch packets, acks, ticks and inputs go on; what is from before counts for nothing", async () => {
  const page = new FakePage();
  const room = await live(page, { epoch: 255 });
  room.input({ dx: 1 });
  const tick = (): number => 1000 + Math.round((page.time * 60) / 1000);
  let n = 0;
  const send = (epoch: number): void => {
    page.run(50);
    packet(page.last, ++n, tick(), { epoch });
  };
  for (let i = 0; i < 10; i++) send(255);
  const before = room.view().tick;
  for (let i = 0; i < 10; i++) send(0); // 8 bits wrap
  const shown = room.view().tick;
  assert.ok(shown > before && shown < tick(), `tick ${shown} after ${before}`);
  const input = (): DataView => new DataView(page.last.of(KIND_INPUT).at(-1)!.buffer);
  const label = input().getUint32(8, true);
  assert.ok(label > tick() - 2 && label < tick() + 20, `label ${label} at tick ${tick()}`);
  assert.ok(n - input().getUint16(1, true) <= 1, "acks go on");

  const acked = input().getUint16(1, true);
  for (let i = 0; i < 5; i++) send(255);
  assert.ok(input().getUint16(1, true) <= Math.max(acked, 20), "an old epoch is not acked");
  send(0);
  page.run(60);
  assert.equal(input().getUint16(1, true), n);
  assert.equal(input().getUint32(3, true) & 0b111111, 0b100000);
  assert.equal(page.last.of(KIND_HELLO).length, 1);
  assert.equal(room.quality.decodeErrors, 0);
  room.leave();
});

test("a second welcome on a live link is left out", async () => {
  const page = new FakePage();
  const room = await live(page);
  beat(page, page.last, 200);
  page.last.welcome({ seat: 9, tick: 5, epoch: 7, token: "other", resumed: true });
  beat(page, page.last, 200);
  assert.equal(room.state, "live");
  assert.equal(room.me, 3);
  assert.ok(room.view().tick > 900);
  page.last.end(1006);
  page.run(200);
  page.last.open();
  assert.equal(page.last.hello.token, "secret");
  room.leave();
});
