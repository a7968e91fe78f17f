import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { KIND_STATE } from "../src/packet.ts";
import { join } from "../src/room.ts";
import type { TypeSchema } from "../src/view.ts";
import { FakePage } from "./fake.ts";

// The packets that feed/snap wrote for its own tests, through a whole room.
interface Step {
  seq: number; epoch: number; tick: number; ack: number; acks: number; hex: string; error?: string; hash: number; own: number; held: number;
  entities?: { id: number; type: number; numbers: number[]; texts: string[] }[];
  events?: unknown[];
}
interface Case { name: string; schema: { types: TypeSchema[]; events: TypeSchema[] }; steps: Step[] }

const cases = (JSON.parse(readFileSync(new URL("../../../../wire/testdata/snap.json", import.meta.url), "utf8")) as { cases: Case[] }).cases;

for (const c of cases) {
  test(`a room shows what the server sent: ${c.name}`, async () => {
    const page = new FakePage();
    const p = join({ world: "dots", url: "ws://x/ws", env: page });
    const hz = 60;
    // Where the vectors hold packets that nobody can read, a lost link would end the story.
    const ordered = !c.steps.some((s) => s.error !== undefined);
    const welcome = (s: Step, resumed: boolean): void =>
      page.last.welcome({ hz, ordered, resumed, tick: s.tick, epoch: s.epoch, feeds: [{ kind: "snap", name: "snap", lane: 0, schema: c.schema }] });
    welcome(c.steps[0]!, false);
    const room = await p;
    let played = 0;
    const shown = new Set<number>();
    for (const e of c.schema.events) room.onEvent(e.name, () => played++);
    for (const t of c.schema.types) {
      room.onEnter(t.name, (e) => {
        assert.equal(e.type, t.name);
        assert.ok(!shown.has(e.id), `${e.id} enters twice`);
        shown.add(e.id);
      });
      room.onLeave(t.name, (e) => assert.ok(shown.delete(e.id), `${e.id} leaves twice`));
    }

    const start = page.time;
    let want = 0;
    let last: Step | undefined;
    let epoch = c.steps[0]!.epoch;
    for (const s of c.steps) {
      if (ordered && last !== undefined && s.seq <= last.seq) {
        // Numbers start again: the server resumed on a new link.
        page.last.end(1006);
        page.run(200);
        page.last.open();
        assert.equal(page.last.hello.cursors?.length, 1);
        welcome(s, true);
      }
      const at = start + (s.tick * 1000) / hz;
      for (let t = page.time + 16; t < at; t += 16) {
        page.run(t - page.time);
        room.view();
      }
      page.run(Math.max(0, at - page.time));
      const body = Buffer.from(s.hex, "hex");
      const head = ordered ? 10 : 16;
      const msg = new Uint8Array(head + body.length + 4);
      const view = new DataView(msg.buffer);
      msg.set([KIND_STATE, ordered ? 1 : 3, s.seq & 255, (s.seq >> 8) & 255, s.epoch, s.tick & 255, (s.tick >> 8) & 255, 0, 0, 0x80]);
      if (!ordered) {
        view.setUint16(10, s.ack, true);
        view.setUint32(12, s.acks, true);
      }
      msg.set(body, head);
      view.setUint32(head + body.length, s.hash, true);
      page.last.deliver(msg);
      if (s.error === undefined) {
        want += s.events?.length ?? 0;
        last = s;
        if (s.epoch !== epoch) played = want - (s.events?.length ?? 0); // what an old epoch had not played yet is void
        epoch = s.epoch;
      }
    }
    for (let i = 0; i < 60; i++) {
      page.run(16);
      room.view();
    }

    assert.equal(room.state, "live");
    assert.equal(room.quality.mismatches, 0);
    assert.deepEqual([...shown].sort(), room.entities.map((e) => e.id).sort());
    assert.equal(room.entities.length, last!.held);
    assert.equal(room.ownEntity?.id ?? 0, room.entities.some((e) => e.id === last!.own) ? last!.own : 0);
    for (const e of last!.entities ?? []) {
      const got = room.view().get(e.id)!;
      const fields = c.schema.types[e.type]!.fields;
      fields.forEach((f, i) => {
        if (f.kind === "text") assert.equal(got.texts[i], e.texts[i - e.numbers.length]);
        else if (f.kind !== "float" && f.kind !== "angle") assert.equal(got.numbers[i], e.numbers[i], f.name);
      });
    }
    assert.equal(played + room.quality.eventsDropped >= want, true, `${played} of ${want} events, ${room.quality.eventsDropped} dropped`);
    room.leave();
    assert.equal(page.openTimers, 0);
  });
}
