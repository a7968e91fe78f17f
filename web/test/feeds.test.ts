import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { type FeedDecoder, type FeedPacket, Feeds, decoders } from "../src/feeds.ts";
import { KIND_RELIABLE, KIND_STATE, PacketError, ReliableHeader, parseReliable } from "../src/packet.ts";
import { type Room, join } from "../src/room.ts";
import { FakePage } from "./fake.ts";

/** Keeps what it is given; a body of 255 is refused. */
class Log implements FeedDecoder {
  readonly everyPacket?: boolean;
  readonly got: { epoch: number; tick: number; seq: number; body: number[] }[] = [];
  hashes = 0;
  decode(p: FeedPacket, body: Uint8Array): void {
    if (body[0] === 255) throw new Error("refused");
    this.got.push({ epoch: p.epoch, tick: p.tick, seq: p.seq, body: [...body] });
  }
  hash(): number {
    this.hashes++;
    return this.got.length;
  }
  cursor(): number {
    return this.got.length;
  }
}

let logs: Log[] = [];
let warned: string[] = [];
const { warn } = console;

beforeEach(() => {
  logs = [];
  warned = [];
  decoders.set("log", () => {
    const l = new Log();
    logs.push(l);
    return l;
  });
  console.warn = (text: string) => warned.push(text);
});
afterEach(() => {
  decoders.delete("log");
  console.warn = warn;
});

const log = (name: string, lane: number): { kind: string; name: string; lane: number; schema: unknown } => ({ kind: "log", name, lane, schema: {} });

async function live(feeds: object[], more: object = {}): Promise<{ page: FakePage; room: Room }> {
  const page = new FakePage();
  const p = join({ world: "dots", url: "ws://x/ws", env: page });
  page.last.welcome({ feeds: feeds as never, ...more });
  return { page, room: await p };
}

function state(page: FakePage, seq: number, tick: number, sections: [feed: number, body: number[]][], more: { epoch?: number; hash?: number } = {}): void {
  const b = [KIND_STATE, more.hash === undefined ? 4 : 5, seq & 255, seq >> 8, more.epoch ?? 1, tick & 255, (tick >> 8) & 255, 0, 0, 0x80];
  for (const [feed, body] of sections) b.push(feed, body.length, ...body);
  if (more.hash !== undefined) for (let i = 0; i < 32; i += 8) b.push((more.hash >>> i) & 255);
  page.last.deliver(new Uint8Array(b));
}

function reliable(page: FakePage, feed: number, tick: number, body: number[], epoch = 1): void {
  page.last.deliver(new Uint8Array([KIND_RELIABLE, feed, epoch, tick & 255, (tick >> 8) & 255, (tick >> 16) & 255, (tick >>> 24) & 255, ...body]));
}

test("a reliable message", () => {
  const h = new ReliableHeader();
  const msg = new Uint8Array([KIND_RELIABLE, 2, 200, 0x78, 0x56, 0x34, 0xf2, 9, 8]);
  assert.deepEqual([...parseReliable(msg, h)], [9, 8]);
  assert.deepEqual({ ...h }, { feed: 2, epoch: 200, tick: 0xf2345678 });
  assert.equal(parseReliable(msg.subarray(0, 7), h).length, 0);
  for (let n = 0; n < 7; n++) assert.throws(() => parseReliable(msg.subarray(0, n), h), PacketError);
  assert.throws(() => parseReliable(new Uint8Array([KIND_STATE, 2, 1, 0, 0, 0, 0, 1]), h), PacketError);
});

test("each lane's bytes reach their feed, and only state is in the hash", async () => {
  const { page, room } = await live([log("near", 0), log("notes", 1), log("far", 0)]);
  const [near, notes, far] = logs as [Log, Log, Log];
  state(page, 1, 1003, [[0, [1]], [2, [2]]]);
  reliable(page, 1, 66_539, [7, 7]); // whole, not 16 bits of it
  state(page, 2, 1006, [[2, [3]]], { hash: (Math.imul(1, 16777619) ^ 2) >>> 0 });
  assert.equal(room.quality.mismatches, 0);
  assert.deepEqual(near.got, [{ epoch: 1, tick: 1003, seq: 1, body: [1] }]);
  assert.deepEqual(notes.got, [{ epoch: 1, tick: 66_539, seq: 0, body: [7, 7] }]);
  assert.deepEqual(far.got.map((g) => [g.tick, ...g.body]), [[1003, 2], [1006, 3]], "a reliable tick moves no state");
  assert.equal(notes.hashes, 0);
  state(page, 3, 1009, [], { hash: 5 });
  assert.equal(room.quality.mismatches, 1);

  page.last.end(1006);
  page.run(200);
  page.last.open();
  assert.deepEqual(page.last.hello.cursors, [1, 1, 2]);
  room.leave();
});

test("a decoder that wants every packet gets the headers of those without a section of its feed", async () => {
  decoders.set("log", () => {
    const l = Object.assign(new Log(), { everyPacket: logs.length !== 1 });
    logs.push(l);
    return l;
  });
  const { page, room } = await live([log("near", 0), log("far", 0), log("notes", 1)], { ordered: false });
  const [near, far, notes] = logs as [Log, Log, Log];
  state(page, 1, 1003, [[1, [1]]]);
  state(page, 2, 1006, [[0, [2]]]);
  state(page, 3, 1009, []);
  state(page, 3, 1009, []); // doubled
  state(page, 4, 1012, [[1, [255]]]); // refused
  state(page, 5, 1015, [[0, []], [1, [3]]]);
  assert.deepEqual(near.got.map((g) => [g.seq, ...g.body]), [[1], [2, 2], [3], [5]]);
  assert.deepEqual(far.got.map((g) => [g.seq, ...g.body]), [[1, 1], [5, 3]]);
  assert.deepEqual(notes.got, []);
  room.leave();
});

test("a hash of 0 is not compared", async () => {
  const { page, room } = await live([log("near", 0)]);
  state(page, 1, 1003, [[0, [1]]], { hash: 0 });
  assert.equal(room.quality.mismatches, 0);
  state(page, 2, 1006, [[0, [1]]], { hash: 9 });
  assert.equal(room.quality.mismatches, 1);
  room.leave();
});

test("epochs on the reliable lane", async () => {
  const { page, room } = await live([log("near", 0), log("notes", 1)]);
  const [near, notes] = logs as [Log, Log];
  reliable(page, 1, 1003, [1], 2); // before the first state of its epoch
  state(page, 1, 1003, [[0, [1]]], { epoch: 1 });
  reliable(page, 1, 1004, [2], 1);
  state(page, 2, 1006, [[0, [2]]], { epoch: 2 });
  assert.deepEqual(notes.got.map((g) => [g.epoch, ...g.body]), [[2, 1]]);
  assert.deepEqual(near.got.map((g) => [g.epoch, ...g.body]), [[2, 2]]);
  assert.equal(room.quality.decodeErrors, 0);
  room.leave();
});

test("a reliable message that cannot be read ends the link, and the third one in a row the room", async () => {
  const wrong: [string, (page: FakePage) => void][] = [
    ["cut short", (page) => page.last.deliver(new Uint8Array([KIND_RELIABLE, 1, 1, 0, 0, 0]))],
    ["of a feed on the other lane", (page) => reliable(page, 0, 1003, [1])],
    ["of no feed", (page) => reliable(page, 7, 1003, [1])],
    ["refused by its decoder", (page) => reliable(page, 1, 1003, [255])],
  ];
  for (const [name, send] of wrong) {
    const { page, room } = await live([log("near", 0), log("notes", 1)]);
    for (let i = 1; i <= 3; i++) {
      state(page, 1, 1003, [[0, [i]]]); // state that is well does not make up for it
      send(page);
      assert.equal(room.quality.decodeErrors, i, name);
      assert.equal(room.state, i < 3 ? "reconnecting" : "closed", name);
      page.run(250);
      if (i < 3) page.last.welcome({ resumed: true, feeds: [log("near", 0), log("notes", 1)] as never });
    }
    assert.equal(room.info.why?.reason, "version", name);
  }
});

test("feeds of unknown kinds are left out, with one word", async () => {
  const { page, room } = await live([log("near", 0), { kind: "opera", name: "a", lane: 0, schema: {} }, { kind: "opera", name: "b", lane: 1, schema: {} }]);
  assert.equal(warned.length, 1);
  assert.match(warned[0]!, /feeds of kind "opera"/);
  state(page, 1, 1003, [[0, [1]], [1, [2]]], { hash: 12345 });
  reliable(page, 2, 1003, [3]);
  state(page, 2, 1006, [[0, [4]]]);
  assert.deepEqual(logs[0]!.got.map((g) => g.body), [[1], [4]]);
  assert.equal(room.quality.decodeErrors, 0);
  assert.equal(room.quality.mismatches, 0, "what cannot be read cannot be compared");
  assert.equal(room.state, "live");
  page.last.end(1006);
  page.run(200);
  page.last.welcome({ resumed: true, feeds: room.welcome.feeds });
  assert.equal(warned.length, 1, "said once");
  room.leave();
});

test("feeds of one kind, of none, and a schema that cannot be read", () => {
  const none = new Feeds([]);
  assert.equal(none.hash(), 0);
  assert.equal(none.snap, null);
  assert.deepEqual(none.cursors(), []);
  const one = new Feeds([log("x", 0)]);
  one.state(0, { seq: 1, epoch: 0, tick: 1, ack: 0, acks: 0 }, new Uint8Array(1));
  assert.equal(one.hash(), 1);
  one.state(5, { seq: 1, epoch: 0, tick: 1, ack: 0, acks: 0 }, new Uint8Array(1)); // of a later server
  assert.throws(() => new Feeds([{ kind: "snap", name: "snap", lane: 0, schema: { version: 99 } }]), TypeError);
  assert.equal(warned.length, 0);
});
