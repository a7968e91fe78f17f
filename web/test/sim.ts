// A server of one player in virtual time: it runs a rule at 60 steps a second over labelled inputs as the engine does, and sends 20
// packets a second over a link with delay, jitter and loss both ways. And a page in front of it, with a display.

import { type AnyShape, type Room, join } from "../src/room.ts";
import { InputCodec, KIND_INPUT, KIND_STATE, near16 } from "../src/packet.ts";
import { type Row, type Schema, angle, column, dice, encode, expected, fit, makeID, step as rate } from "./snap_encode.ts";
import { FakePage } from "./fake.ts";

export const TICK = 1000 / 60;
const Q = 0.1;

/** As the arena's: places to a tenth, speeds to whole units. */
export const SCHEMA: Schema = {
  version: 2, hash: 1, hz: 60, events: [],
  types: [
    {
      name: "player",
      fields: [
        column("x", "float", 0, 10_000, { q: Q, ahead: { by: 2, ...rate(1, Q) } }),
        column("y", "float", 0, 10_000, { q: Q, ahead: { by: 3, ...rate(1, Q) } }),
        column("vx", "float", -300, 300),
        column("vy", "float", -300, 300),
        column("hp", "uint", 0, 100),
        angle("aim", { pose: false }),
        column("jumps", "uint", 0, 255),
        column("up", "bool", 0, 1),
      ],
    },
  ],
};

const INPUTS = [{ name: "jump", kind: "bool" }, { name: "dx", kind: "i8" }, { name: "dy", kind: "i8" }, { name: "aim", kind: "u16" }];

export interface Mover {
  x: number;
  y: number;
  vx: number;
  vy: number;
  hp: number;
  aim: number;
  jumps: number;
  up: boolean;
}

export interface Held {
  jump: boolean;
  dx: number;
  dy: number;
  aim: number;
}

export interface Net {
  /** ms each way. */
  delay: number;
  jitter: number;
  /** Part of the packets. */
  loss: number;
  /** WebSocket: nothing is lost or overtaken; what would have been lost comes 120 ms later, and what follows after it. */
  ordered: boolean;
}

export const PERFECT: Net = { delay: 0, jitter: 0, loss: 0, ordered: true };

export type Rule = (p: Mover, input: Held, tick: number, pressed: Held) => boolean | void;

export class Sim {
  readonly page = new FakePage();
  room!: Room<AnyShape>;
  net: Net;
  readonly rule: Rule;
  /** The server's truth, at full precision. */
  readonly player: Mover;
  id = makeID(5);
  epoch = 1;
  tick = 0;
  /** Steps for which nothing was labelled, since the first input. */
  starved = 0;
  /** What happens to the player after the step: deaths, knocks. */
  after: ((p: Mover, tick: number) => void) | null = null;
  /** What the player does before each frame. */
  hands: ((tick: number) => Partial<Held>) | null = null;
  /** Packets sent without the player in them: it went on as expected. */
  silent = 0;
  dropped = 0;
  /** The server asks what the player sees. */
  rewindMs = 0;
  /** Each input that came in time to be told apart: its label, what it holds, and the moment seen if it says so, in ticks. */
  heard: ((label: number, dx: number, seen: number) => void) | null = null;
  private readonly start: number;
  private readonly random: () => number;
  private readonly codec = new InputCodec(INPUTS);
  private readonly inbox = new Map<number, Float64Array>();
  private held: Float64Array = new Float64Array(4);
  private heldAt = -1000;
  private before: Float64Array = new Float64Array(4);
  private first = true;
  private seq = 0;
  private life = 0;
  private ack = 0;
  private acks = 0;
  private newest = 0;
  private margin = -128;
  private row: Row | null = null;
  private upFree = 0;
  private downFree = 0;
  private readonly socketsSeen = new Set<unknown>();

  constructor(rule: Rule, net: Net, player: Partial<Mover> = {}, seed = 1) {
    this.rule = rule;
    this.net = net;
    this.random = dice(seed);
    this.player = { x: 300, y: 600, vx: 0, vy: 0, hp: 100, aim: 0, jumps: 0, up: false, ...player };
    this.start = this.page.time;
    this.tick = 1000;
    this.beat();
  }

  async join(): Promise<Room<AnyShape>> {
    const p = join({ world: "dots", url: "ws://x/ws", env: this.page });
    this.welcome(false);
    return (this.room = await p);
  }

  welcome(resumed: boolean): void {
    const s = this.page.last;
    if (!this.socketsSeen.has(s)) {
      this.socketsSeen.add(s);
      const send = s.send.bind(s);
      s.send = (data) => {
        send(data);
        const msg = data.slice();
        if (msg[0] === KIND_INPUT) this.travel("up", () => this.receive(msg));
      };
    }
    this.first = true;
    this.row = null;
    this.life++;
    this.seq = 0;
    this.ack = this.acks = 0;
    this.inbox.clear();
    this.newest = 0;
    this.margin = -128;
    this.heldAt = -1000;
    s.welcome({
      hz: 60, sendHz: 20, rewindMs: this.rewindMs, ordered: this.net.ordered, resumed, tick: this.tick, epoch: this.epoch, inputs: INPUTS,
      feeds: [{ kind: "snap", name: "snap", lane: 0, schema: SCHEMA }],
    });
  }

  private travel(way: "up" | "down", arrive: () => void): void {
    const { delay, jitter, loss, ordered } = this.net;
    const lost = this.random() < loss;
    let at = this.page.time + delay + this.random() * jitter;
    if (ordered) {
      if (lost) at += 120;
      const free = way === "up" ? this.upFree : this.downFree;
      at = Math.max(at, free);
      if (way === "up") this.upFree = at;
      else this.downFree = at;
    } else if (lost) {
      this.dropped++;
      return;
    }
    this.page.setTimeout(arrive, at - this.page.time);
  }

  private receive(msg: Uint8Array): void {
    const n = msg[7]! & 0x7f;
    const head = msg[7]! & 0x80 ? 14 : 12;
    const view = new DataView(msg.buffer);
    const behind = head === 14 ? view.getUint16(12, true) / 16 : 0;
    const ack = view.getUint16(1, true);
    if (near16(this.ack, ack) >= this.ack) {
      this.ack = near16(this.ack, ack);
      this.acks = view.getUint32(3, true);
    }
    const label = view.getUint32(8, true);
    for (let i = n - 1; i >= 0; i--) {
      const l = label - i;
      if (this.inbox.has(l) || l < this.tick - 64) continue;
      const values = new Float64Array(4);
      this.codec.decode(msg, head + i * this.codec.size, values);
      if (l > this.newest) {
        this.newest = l;
        this.margin = Math.max(-127, Math.min(127, l - this.tick - 1));
      }
      this.inbox.set(l, values);
      this.heard?.(l, values[1]!, behind === 0 ? 0 : l - behind);
      if (l <= this.tick && l > this.heldAt) this.held = values;
    }
  }

  private beat(): void {
    const step = (): void => {
      this.step(++this.tick);
      if (this.tick % 3 === 0 && this.room !== undefined && this.room.state === "live") this.send();
      const next = this.start + (this.tick + 1 - 1000) * TICK;
      this.page.setTimeout(step, next - this.page.time);
    };
    this.page.setTimeout(step, TICK);
  }

  private step(tick: number): void {
    const own = this.inbox.get(tick);
    if (own !== undefined) {
      this.held = own;
      this.heldAt = tick;
    } else if (this.newest > 0) this.starved++;
    const now = tick - this.heldAt >= 15 ? new Float64Array(4) : this.held;
    const input = { jump: now[0] !== 0, dx: now[1]!, dy: now[2]!, aim: now[3]! };
    const pressed = { jump: now[0] !== 0 && this.before[0] === 0, dx: 0, dy: 0, aim: 0 };
    this.before = now;
    this.rule(this.player, input, tick, pressed);
    this.after?.(this.player, tick);
  }

  private send(): void {
    const p = this.player;
    const values = [Math.round(p.x / Q), Math.round(p.y / Q), Math.round(p.vx), Math.round(p.vy), p.hp, Math.round((p.aim * 4096) / (2 * Math.PI)) & 4095, p.jumps, p.up ? 1 : 0];
    const t = SCHEMA.types[0]!;
    const now = fit(t, { values, tick: this.tick, ring: 0, owner: true });
    const { ordered } = this.net;
    let body: Uint8Array;
    const base = this.row;
    if (ordered && !this.first && base !== null) {
      const same = values.every((v, i) => v === expected(t, i, base, now.values, this.tick - base.tick, 0));
      if (same) this.silent++;
      else this.row = now;
      body = encode(SCHEMA, this.tick, { own: this.id, entities: same ? [] : [{ slot: 0, type: 0, base, now }] });
    } else {
      // Where packets are lost each one tells everything.
      this.row = now;
      body = encode(SCHEMA, this.tick, { acked: !ordered, life: this.life, own: this.id, entities: [{ slot: 0, type: 0, enter: this.id, now }] });
    }
    this.first = false;
    const seq = ++this.seq;
    const msg = new Uint8Array((ordered ? 10 : 16) + body.length);
    const view = new DataView(msg.buffer);
    msg.set([KIND_STATE, ordered ? 0 : 2, seq & 255, (seq >> 8) & 255, this.epoch, this.tick & 255, (this.tick >> 8) & 255, this.newest & 255, (this.newest >> 8) & 255, this.margin & 255]);
    if (!ordered) {
      view.setUint16(10, this.ack, true);
      view.setUint32(12, this.acks, true);
    }
    msg.set(body, ordered ? 10 : 16);
    const s = this.page.last;
    this.travel("down", () => s.deliver(msg));
  }

  /** Replaces the player: another id, another place. */
  replace(id: number, p: Partial<Mover>): void {
    this.id = id;
    this.row = null;
    this.first = true;
    Object.assign(this.player, p);
  }

  /** Shows frames at hz for ms. see is called after each. */
  play(ms: number, hz = 60, see?: (own: Mover | null, now: number) => void): void {
    const end = this.page.time + ms;
    for (let i = 1; ; i++) {
      const at = end - ms + (i * 1000) / hz;
      if (at > end) break;
      this.page.run(at - this.page.time);
      const view = this.room.view(this.page.time);
      if (this.hands !== null) this.room.input(this.hands(this.tick));
      see?.(view.own as unknown as Mover | null, this.page.time);
    }
    this.page.run(end - this.page.time);
  }
}
