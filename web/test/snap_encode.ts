// The sending end of feed/snap as plainly as can be: it writes what it is told, against the baselines that it is told. And a server
// that knows of its packets what their headers say.

import type { SnapField, SnapPacket, SnapType } from "../src/snap.ts";
import { ANGLE_Q, BitWriter, MAX_AHEAD, ahead, angleDiff, body, round, roundAngle, zigzag32 } from "../src/wire.ts";

export interface Schema {
  version: number;
  hash: number;
  hz: number;
  types: SnapType[];
  events: SnapType[];
}

/** A version: columns by field index. */
export interface Row {
  values: number[];
  tick: number;
  ring: number;
  owner: boolean;
}

export interface Told {
  slot: number;
  type: number;
  /** The id of an enter. */
  enter?: number;
  /** What it is told against, if it is no enter. */
  base?: Row;
  now: Row;
  /** By text; null: not given. Absent: no texts. */
  texts?: (string | null)[];
  /** Write the detail though nothing in it differs. */
  detail?: boolean;
}

export interface Section {
  acked?: boolean;
  /** A keyframe of that life. */
  life?: number;
  /** The last event before the life. */
  since?: number;
  own?: number;
  events?: { id: number; ago?: number; type: number; values: number[]; texts?: (string | null)[] }[];
  k?: number;
  leaves?: { slot: number; gone?: boolean }[];
  entities?: Told[];
}

const utf8 = new TextEncoder();
export const makeID = (place: number, gen = 1): number => ((gen << 16) | place) >>> 0;

/** A column over the integers from min to max. */
export function column(name: string, kind: SnapField["kind"], min: number, max: number, more: Partial<SnapField> = {}): SnapField {
  const bits = 32 - Math.clz32(max - min);
  const f: SnapField = { name, kind, bits, min, max, q: kind === "angle" ? ANGLE_Q : 1, ...more };
  if (bits > 1 && f.codes === undefined) f.codes = f.pose ? [3, 2, 1, 0] : [8, 9, 10, 11];
  return f;
}

export const angle = (name: string, more: Partial<SnapField> = {}): SnapField => column(name, "angle", 0, 4095, { pose: true, codes: [3, 3, 2, 8], ...more });
export const text = (name: string, max: number, more: Partial<SnapField> = {}): SnapField =>
  ({ name, kind: "text", bits: 32 - Math.clz32(max), min: 0, max, q: 1, ...more });
/** A column of an event: it is sent raw. */
export const raw = (name: string, kind: SnapField["kind"], min: number, max: number): SnapField => {
  const f = column(name, kind, min, max);
  delete f.codes;
  return f;
};

/** mul / 2^shift for a rate with quantum rateQ, a second, and a value with quantum q. */
export function step(rateQ: number, q: number, hz = 60): { mul: number; shift: number } {
  let mul = rateQ / (32 * hz * q);
  let shift = 0;
  for (; mul < 2 ** 18; shift++) mul *= 2;
  return { mul: Math.round(mul), shift };
}

const FINE = 0.01;

/** A world with everything in it: cars that look where they drive, rocks that only are, marks without a pose. */
export const SCHEMA: Schema = {
  version: 2, hash: 1, hz: 60,
  types: [
    {
      name: "car",
      fields: [
        column("hp", "uint", 0, 100),
        column("x", "float", -100_000, 100_000, { q: FINE, pose: true, lod: [0, 0, 2, 4], codes: [1, 1, 0, 0], ahead: { by: 5, by2: 6, angle: 3, ...step(FINE, FINE) } }),
        column("y", "float", -100_000, 100_000, { q: FINE, pose: true, lod: [0, 0, 2, 4], codes: [1, 1, 0, 0], ahead: { by: 5, by2: 6, angle: 3, side: 1, ...step(FINE, FINE) } }),
        angle("dir", { lod: [0, 0, 1, 3], ahead: { by: 7, ...step(FINE, ANGLE_Q) } }),
        column("team", "int", -2, 5),
        column("speed", "float", -3000, 8000, { q: FINE, pose: true, lod: [0, 0, 1, 3] }),
        column("slide", "float", -3000, 3000, { q: FINE, pose: true }),
        column("turn", "float", -800, 800, { q: FINE, pose: true }),
        column("on", "bool", 0, 1),
        column("lamp", "bool", 0, 1, { pose: true }),
        column("gear", "int", 5, 20),
        column("ammo", "uint", 0, 65535, { owner: true }),
        column("aim", "float", -400, 400, { q: FINE, owner: true, pose: true, ahead: { by: 7, ...step(FINE, FINE) } }),
        column("safe", "bool", 0, 1, { owner: true }),
        text("name", 12),
        text("note", 300, { owner: true }),
      ],
    },
    {
      name: "rock",
      fields: [
        column("x", "float", -20, 2000, { q: 0.5 }),
        column("spin", "float", -100, 100, { q: FINE, ahead: { by: 2, ...step(1, FINE) } }),
        column("rate", "int", -50, 50),
        column("seed", "uint", 0, 2 ** 32 - 1),
        column("big", "int", -(2 ** 31), 2 ** 31 - 1),
      ],
    },
    { name: "mark", fields: [text("what", 5)] },
  ],
  events: [
    { name: "shot", fields: [raw("by", "uint", 0, 2 ** 32 - 1), raw("x", "float", -100, 16000), text("say", 20), text("then", 3)] },
    { name: "bang", fields: [raw("n", "int", -5, 90)] },
  ],
};

export const CAR = 0;
export const ROCK = 1;
export const MARK = 2;

const columns = (t: SnapType): SnapField[] => t.fields.filter((f) => f.kind !== "text");

/** The columns that are no pose, and those that are in the order of extrapolation. */
export function split(t: SnapType): [what: number[], pose: number[]] {
  const cols = columns(t);
  const all = cols.map((_, i) => i);
  const posed = cols.some((f) => f.pose);
  const pose = all.filter((i) => cols[i]!.pose || !posed);
  const what = all.filter((i) => !pose.includes(i));
  const still = pose.filter((i) => !cols[i]!.ahead);
  const turning = pose.filter((i) => cols[i]!.ahead && cols[i]!.kind === "angle");
  return [what, [...still, ...turning, ...pose.filter((i) => !still.includes(i) && !turning.includes(i))]];
}

/** What both ends expect of a pose column, n ticks after base. */
export function expected(t: SnapType, i: number, base: Row, now: number[], n: number, ring: number): number {
  const f = t.fields[i]!;
  let x = base.values[i]!;
  const a = f.ahead;
  if (a) {
    const v = (of: number[]): number => (a.angle === undefined ? 16 * of[a.by]! : body(a.side ?? 0, of[a.angle]!, of[a.by]!, of[a.by2 ?? 0]!));
    x = (x + ahead(v(base.values), v(now), Math.min(n, MAX_AHEAD), a.mul, a.shift)) | 0;
  }
  return rounded(t, i, x, ring);
}

export function rounded(t: SnapType, i: number, x: number, ring: number): number {
  const f = t.fields[i]!;
  const s = f.lod?.[ring] ?? 0;
  return f.kind === "angle" ? roundAngle(x, s) : round(x, s, f.min | 0, f.max | 0);
}

function mine(t: SnapType, i: number, row: Row): boolean {
  return !t.fields[i]!.owner || row.owner;
}

/** Any row that can be, in a ring. */
export function anyRow(t: SnapType, random: () => number, tick: number, ring: number, owner: boolean): Row {
  const row: Row = { values: columns(t).map((f) => (f.min + Math.floor(random() * (f.max - f.min + 1))) | 0), tick, ring, owner };
  return fit(t, row);
}

/** Rounds a row for its ring, and leaves out what is the owner's alone. */
export function fit(t: SnapType, row: Row): Row {
  const [, pose] = split(t);
  columns(t).forEach((f, i) => {
    if (!mine(t, i, row)) row.values[i] = 0;
    else if (pose.includes(i)) row.values[i] = rounded(t, i, row.values[i]!, row.ring);
    else if (f.kind === "uint") row.values[i]! |= 0;
  });
  return row;
}

const widthOf = (n: number): number => (n > 1 ? 32 - Math.clz32(n - 1) : 0);

/** Writes a section for a packet of that tick. */
export function encode(schema: Schema, tick: number, s: Section): Uint8Array {
  const w = new BitWriter();
  const flag = (b: boolean): boolean => {
    w.bits(b ? 1 : 0, 1);
    return b;
  };
  const putRaw = (f: SnapField, v: number): void => w.bits(v - f.min, f.bits);
  const putTexts = (t: SnapType, n: number, texts: (string | null)[]): void => {
    t.fields.filter((f) => f.kind === "text").slice(0, n).forEach((f, i) => {
      const v = texts[i] ?? null;
      if (!flag(v !== null)) return;
      const b = utf8.encode(v!);
      w.bits(b.length, f.bits);
      w.bytes(b);
    });
  };
  flag(s.acked === true);
  if (flag(s.life !== undefined)) {
    w.bits(s.life!, 32);
    w.uvarint(s.since ?? 0);
  }
  if (flag(s.own !== undefined)) w.bits(s.own!, 32);
  let last = 0;
  for (const e of s.events ?? []) {
    flag(true);
    if (last === 0) w.uvarint(e.id);
    else w.eg(e.id - last - 1, 0);
    last = e.id;
    w.eg(e.ago ?? 0, 2);
    w.bits(e.type, widthOf(schema.events.length));
    const t = schema.events[e.type]!;
    columns(t).forEach((f, i) => putRaw(f, e.values[i]!));
    putTexts(t, 32, e.texts ?? []);
  }
  flag(false);
  const k = s.k ?? 1;
  w.bits(k, 3);
  let slot = -1;
  const gap = (to: number): void => {
    flag(true);
    w.eg(to - slot - 1, k);
    slot = to;
  };
  for (const l of s.leaves ?? []) {
    gap(l.slot);
    flag(l.gone === true);
  }
  flag(false);
  slot = -1;
  for (const e of s.entities ?? []) {
    gap(e.slot);
    const t = schema.types[e.type]!;
    const [what, pose] = split(t);
    const texts = t.fields.filter((f) => f.kind === "text");
    const { now, base } = e;
    const enter = e.enter !== undefined;
    const owned = t.fields.some((f) => f.owner);
    const changes = !enter && what.some((i) => mine(t, i, now) && now.values[i] !== base!.values[i]);
    const given = !enter && texts.length > 0 && e.texts !== undefined;
    if (flag(enter || changes || given || e.detail === true || now.ring !== base!.ring || now.owner !== base!.owner)) {
      if (flag(enter)) {
        w.bits(e.enter!, 32);
        w.bits(e.type, widthOf(schema.types.length));
      }
      if (enter || flag(now.ring !== base!.ring)) w.bits(now.ring, 2);
      if (owned) flag(now.owner);
      if (!enter && what.length > 0) flag(changes);
      if (!enter && texts.length > 0) flag(given);
    }
    if (enter) {
      for (const i of what) {
        const f = t.fields[i]!;
        if (mine(t, i, now) && flag(now.values[i] !== (Math.max(Math.min(0, f.max), f.min) | 0))) putRaw(f, now.values[i]!);
      }
      for (const i of pose) if (mine(t, i, now)) putRaw(t.fields[i]!, now.values[i]!);
    } else {
      const put = (i: number, x: number): void => {
        const f = t.fields[i]!;
        const v = now.values[i]!;
        if (f.bits === 1) flag(v !== x);
        else w.code(zigzag32(((f.kind === "angle" ? angleDiff(v, x) : v - x) | 0) >> (f.lod?.[now.ring] ?? 0)), f.codes![now.ring]!);
      };
      if (changes) for (const i of what) if (mine(t, i, now)) put(i, base!.values[i]!);
      for (const i of pose) if (mine(t, i, now)) put(i, expected(t, i, base!, now.values, (tick - base!.tick) >>> 0, now.ring));
    }
    if (texts.length > 0 && (enter || given)) putTexts(t, now.owner ? texts.length : texts.filter((f) => !f.owner).length, e.texts ?? []);
  }
  flag(false);
  return w.finish().slice();
}

/** What a server knows of what came, and the versions of its entities. Packets are numbered from 1, and do not wrap here. */
export class Server {
  readonly schema: Schema;
  readonly acked: boolean;
  /** Newest last. */
  readonly versions = new Map<number, { packet: number; row: Row }[]>();
  packet = 0;
  private readonly received = new Set<number>();
  private readonly told = new Set<number>(); // packets that a header has named

  constructor(acked: boolean, schema = SCHEMA) {
    this.acked = acked;
    this.schema = schema;
  }

  /** The client's acks have come. */
  hear(newest: number, history: number): void {
    for (let i = 0; i <= 32; i++) if ((i === 0 || (history >>> (i - 1)) & 1) && newest - i > 0) this.received.add(newest - i);
  }

  /** The next packet's header. */
  header(tick: number, epoch = 1): SnapPacket {
    const at: SnapPacket = { seq: ++this.packet & 0xffff, epoch, tick, ack: 0, acks: 0 };
    if (!this.acked) return at;
    const ack = Math.max(0, ...this.received);
    at.ack = ack & 0xffff;
    if (ack > 0) this.told.add(ack);
    for (let i = 0; i < 32; i++) {
      if (!this.received.has(ack - 1 - i)) continue;
      at.acks = (at.acks | (1 << i)) >>> 0;
      this.told.add(ack - 1 - i);
    }
    return at;
  }

  /** What an entity can be told against after the last header: undefined means that it has to enter. */
  base(slot: number): Row | undefined {
    const list = this.versions.get(slot) ?? [];
    for (let i = list.length - 1; i >= 0; i--) if (!this.acked || this.told.has(list[i]!.packet)) return list[i]!.row;
    return undefined;
  }

  /** Remembers what the packet of the last header said. */
  tell(slot: number, row: Row): void {
    const list = this.versions.get(slot) ?? [];
    list.push({ packet: this.packet, row });
    this.versions.set(slot, list);
  }

  /** Packets without an ack. */
  get waiting(): number {
    return this.packet - Math.max(0, ...this.received);
  }
}

/** A generator of numbers below 1 that is the same each time. */
export function dice(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
