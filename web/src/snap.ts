// Entities and events as feed/snap sends them. The twin of feed/snap/decoder.go; docs/protocol.md has this picture with more words.
//
// The section body, bits from the lowest up, uvarints in groups of 8 bits:
//
//	1  acked           baselines are acked versions; else they are the last written
//	1  keyframe        ─┬─ 32 life
//	                    └─ uvarint id of the last event before this life
//	1  own changes     ─── 32 entity id, 0: none
//	{ 1  event         ─── uvarint id of the first; of the others EG 0 of its distance from the one before it, less one
//	                       EG 2 of the ticks before the packet's tick
//	                       type, columns raw, texts }                                                 0
//	3  k of the gaps
//	{ 1  leave         ─── EG k of the gap, 1 gone }                                                  0
//	{ 1  entity        ─── EG k of the gap
//	     1  detail     ─┬─ 1  enter ─── 32 entity id, type
//	                    ├─ 1  ring, if no enter; an enter always has one ─── 2 ring
//	                    ├─ 1  owner's, if the type has owner fields
//	                    ├─ 1  changes, if no enter and the type has columns that are no pose
//	                    └─ 1  texts, if no enter and the type has texts
//	     enter         ─── each column that is no pose: 1, and raw if 1; 0: it is its default
//	                       each pose column: raw
//	     no enter      ─── if changes: each column that is no pose: its code
//	                       each pose column: its code, in the order of extrapolation
//	     texts, if enter or texts ─── each: 1 given ─── length, bytes }                               0
//	0 to 7 zero bits
//
// A gap is a slot less the one before it, less one. Type: as many bits as the number of types less one has.
//
// A packet is read into scratch and taken over only when all of it is there. After warm-up it allocates nothing but the texts that
// it brings.

import {
  ANGLE_STEPS, BitReader, CODES, MAX_AHEAD, NEW_HASH, ahead as gain, body as along, hashAdd, hashBytes, round, roundAngle, seqDiff, seqNewer, unzigzag32,
} from "./wire.ts";

/** How a column is extrapolated; docs/protocol.md has the arithmetic. Columns are named by their index. */
export interface SnapAhead {
  /** The rate that it follows. With angle: a body's speed ahead. */
  by: number;
  /** A body's speed to the left; default 0. */
  by2?: number;
  /** The angle along which the body looks. */
  angle?: number;
  /** 0: the axis from which the angle is counted; 1: the one that a quarter turn reaches. Default 0. */
  side?: number;
  mul: number;
  shift: number;
}

/** A field of an entity or event type, as the schema in the welcome has it. */
export interface SnapField {
  /** "hp", or "pos.x" for a field of a nested struct. */
  name: string;
  kind: "float" | "int" | "uint" | "bool" | "angle" | "text";
  /** Width on the wire; for a text, of its length. */
  bits: number;
  /** The smallest integer: for a float, in quanta. It is sent as 0. */
  min: number;
  /** The largest integer; of a text, its longest in bytes. */
  max: number;
  /** Value of one step. */
  q: number;
  /** Only the owning seat gets it; zero or empty for others. */
  owner?: boolean;
  /** It says where and how, not what: far away it comes less often. */
  pose?: boolean;
  /** Prefix code of the residual, by ring; none for a text and for a field of one bit. */
  codes?: number[];
  /** Low bits that are rounded away, by ring; absent: none. */
  lod?: number[];
  /** Error in quanta that may stand. */
  tolq?: number;
  /** How it is extrapolated; absent: it stays as it was. */
  ahead?: SnapAhead;
  // What was declared.
  once?: boolean;
  move?: string;
  turn?: string;
  frame?: string;
  tol?: number;
  place?: boolean;
}

/** An entity or event type. Its fields stand in wire order: numbers for all, numbers for the owner, texts for all, texts for the owner. */
export interface SnapType {
  name: string;
  fields: SnapField[];
}

/** What a decoder is told about the packet that its section came in. */
export interface SnapPacket {
  seq: number;
  epoch: number;
  /** The frame's tick, full width. */
  tick: number;
  /** The newest packet that the server knew to be received. */
  ack: number;
  /** Bit i: packet ack-1-i was received too. */
  acks: number;
}

/**
 * Why a packet was refused. "overtaken": it is not newer than one already read, which is no fault on an unordered link. "keyframe":
 * it needs a keyframe, or a baseline, that has not come. "corrupt": no server with this schema writes such bytes.
 */
export type DecodeFault = "overtaken" | "keyframe" | "corrupt";

/** Is thrown by decode. Nothing has changed, and the packet must not be acked. */
export class DecodeError extends Error {
  readonly fault: DecodeFault;

  constructor(fault: DecodeFault, text: string) {
    super(text);
    this.name = "DecodeError";
    this.fault = fault;
  }
}

/** Bounds that the server keeps as well. */
const MAX_FIELDS = 32;
const MAX_TYPES = 64;
const MAX_TEXT_BYTES = 1024;
const MAX_HZ = 1000;
/** Integers of a rate: more, and a product would not fit into a number. */
const MAX_RATE = 2 ** 20 - 1;
const RINGS = 4;
const SLOTS = 65535;
const PLACES = 65535;
/** Packets that may wait to be confirmed: the server starts a new life when as many do. */
const LOG = 64;
/** Packets before the newest that a header names. */
const HISTORY = 32;

const KINDS = ["float", "int", "uint", "bool", "angle", "text"];
const EMPTY = new Uint8Array(0);
const ANGLE_BITS = 32 - Math.clz32(ANGLE_STEPS - 1);

// A type as decode walks it.
class Layout {
  readonly name: string;
  readonly fields: readonly SnapField[];
  readonly index = new Map<string, number>();
  cols = 0; // fields with a number; those from pub on are the owner's
  pub = 0;
  texts = 0;
  textPub = 0;
  owned = false;
  readonly widths: Uint8Array;
  readonly mins: Int32Array; // of a uint the bits of a uint32, as everywhere
  readonly maxs: Int32Array;
  readonly defaults: Int32Array;
  readonly scales: Float64Array;
  readonly unsigned: Uint8Array;
  readonly angles: Uint8Array;
  readonly codes: Uint8Array; // by ring · cols + column
  readonly lods: Uint8Array;
  readonly by: Int8Array; // -1: it stays
  readonly by2: Int8Array;
  readonly rates: Uint8Array; // columns that others are extrapolated along
  readonly turn: Int8Array; // -1: no body
  readonly side: Uint8Array;
  readonly mul: Float64Array;
  readonly shift: Uint8Array;
  /** Columns that are no pose, and those that are, in the order of extrapolation. */
  readonly what: Uint8Array;
  readonly pose: Uint8Array;
  readonly versions: Versions;
  readonly free: SnapEntity[] = [];

  constructor(t: SnapType, event: boolean, hz: number) {
    if (typeof t?.name !== "string" || !Array.isArray(t.fields) || t.fields.length > MAX_FIELDS) throw new TypeError("snap: bad type in the schema");
    this.name = t.name;
    this.fields = t.fields;
    const n = t.fields.length;
    let rank = 0;
    t.fields.forEach((f, i) => {
      const text = f?.kind === "text";
      const r = (f?.owner ? 1 : 0) + (text ? 2 : 0);
      if (!possible(f) || r < rank || (event && (f.owner || f.pose || f.lod || f.tolq || f.ahead)) || (f.ahead && hz === 0)) throw this.wrong(f);
      rank = r;
      if (!this.index.has(f.name)) this.index.set(f.name, i);
      this.owned ||= f.owner === true;
      if (text) {
        this.texts++;
        if (!f.owner) this.textPub++;
      } else {
        this.cols++;
        if (!f.owner) this.pub++;
      }
    });
    const { cols } = this;
    this.widths = Uint8Array.from(t.fields, (f) => f.bits);
    this.mins = Int32Array.from(t.fields, (f) => f.min | 0);
    this.maxs = Int32Array.from(t.fields, (f) => f.max | 0);
    this.defaults = Int32Array.from(t.fields, (f) => Math.max(Math.min(0, f.max), f.min) | 0);
    this.scales = Float64Array.from(t.fields, (f) => (f.kind === "uint" ? 1 : f.q));
    this.unsigned = Uint8Array.from(t.fields, (f) => (f.kind === "uint" ? 1 : 0));
    this.angles = Uint8Array.from(t.fields, (f) => (f.kind === "angle" ? 1 : 0));
    this.codes = new Uint8Array(RINGS * cols);
    this.lods = new Uint8Array(RINGS * cols);
    this.by = new Int8Array(n).fill(-1);
    this.by2 = new Int8Array(n);
    this.turn = new Int8Array(n).fill(-1);
    this.side = new Uint8Array(n);
    this.mul = new Float64Array(n);
    this.shift = new Uint8Array(n);
    const numbers = t.fields.slice(0, cols);
    const all = numbers.map((_, i) => i);
    const posed = numbers.some((f) => f.pose);
    // What others are extrapolated along is known first; a sort keeps the order of equals.
    const stage = (i: number): number => (numbers[i]!.ahead === undefined ? 0 : this.angles[i] ? 1 : 2);
    this.what = Uint8Array.from(all.filter((i) => posed && !numbers[i]!.pose));
    this.pose = Uint8Array.from(all.filter((i) => !posed || numbers[i]!.pose).sort((a, b) => stage(a) - stage(b)));
    this.versions = new Versions(cols);
    const follows = event ? [] : numbers.flatMap((f) => (f.ahead === undefined ? [] : f.ahead.angle === undefined ? [f.ahead.by] : [f.ahead.by, f.ahead.by2 ?? 0]));
    this.rates = Uint8Array.from(new Set(follows));
    if (event) return;
    numbers.forEach((f, i) => {
      for (let ring = 0; ring < RINGS; ring++) {
        this.codes[ring * cols + i] = f.codes?.[ring] ?? 0;
        this.lods[ring * cols + i] = f.lod?.[ring] ?? 0;
      }
      const a = f.ahead;
      if ((f.codes === undefined) !== (f.bits === 1) || (a !== undefined && !this.canFollow(f, a))) throw this.wrong(f);
      if (a === undefined) return;
      this.by[i] = a.by;
      this.by2[i] = a.by2 ?? 0;
      this.turn[i] = a.angle ?? -1;
      this.side[i] = a.side ?? 0;
      this.mul[i] = a.mul;
      this.shift[i] = a.shift;
    });
  }

  private wrong(f: SnapField): TypeError {
    return new TypeError(`snap: bad field ${String(f?.name)} of ${this.name} in the schema`);
  }

  // Whether a column can be extrapolated in that way: along numbers that are not extrapolated themselves, and to whoever gets it.
  private canFollow(f: SnapField, a: SnapAhead): boolean {
    if (f.bits === 1 || typeof a !== "object" || a === null || !whole(a.mul, 1, 2 ** 19 - 1) || !whole(a.shift, 1, 60)) return false;
    const known = (i: unknown): SnapField | null => {
      const c = whole(i, 0, this.cols - 1) ? this.fields[i]! : null;
      return c === null || (c.owner && !f.owner) ? null : c;
    };
    const rate = (i: unknown): boolean => {
      const c = known(i);
      return c !== null && c.ahead === undefined && c.kind !== "angle" && ordered(c) && c.min >= -MAX_RATE && c.max <= MAX_RATE;
    };
    if (!rate(a.by)) return false;
    if (a.angle === undefined) return (a.by2 ?? 0) === 0 && (a.side ?? 0) === 0;
    return rate(a.by2 ?? 0) && f.kind !== "angle" && known(a.angle)?.kind === "angle" && whole(a.side ?? 0, 0, 1);
  }

  // Copies columns from src at off and works out their numbers.
  fill(values: Int32Array, numbers: Float64Array, src: Int32Array, off: number): void {
    for (let i = 0; i < this.cols; i++) {
      const k = src[off + i]!;
      values[i] = k;
      numbers[i] = this.number(i, k);
    }
  }

  number(i: number, k: number): number {
    return this.unsigned[i] ? k >>> 0 : k * this.scales[i]!;
  }

  // What both ends expect of pose column i, n ticks after the version at base. row holds the entity as it then is, as far as it is known.
  expect(i: number, n: number, base: Int32Array, b: number, row: Int32Array, r: number, ring: number): number {
    let x = base[b + i]!;
    const by = this.by[i]!;
    if (by >= 0) {
      const turn = this.turn[i]!;
      let v0 = base[b + by]! * 16;
      let v1 = row[r + by]! * 16;
      if (turn >= 0) {
        const by2 = this.by2[i]!;
        const side = this.side[i]!;
        v0 = along(side, base[b + turn]!, base[b + by]!, base[b + by2]!);
        v1 = along(side, row[r + turn]!, row[r + by]!, row[r + by2]!);
      }
      x = (x + gain(v0, v1, n, this.mul[i]!, this.shift[i]!)) | 0;
    }
    const s = this.lods[ring * this.cols + i]!;
    return this.angles[i] ? roundAngle(x, s) : round(x, s, this.mins[i]!, this.maxs[i]!);
  }
}

function whole(v: unknown, lo: number, hi: number): v is number {
  return Number.isInteger(v) && (v as number) >= lo && (v as number) <= hi;
}

// Whether a column's integers are signed 32-bit numbers that stand for nearer and farther.
function ordered(f: SnapField): boolean {
  return f.kind !== "bool" && (f.kind !== "uint" || f.max < 2 ** 31);
}

// Whether a field can be as the schema says, as far as it does not depend on others.
function possible(f: SnapField | null | undefined): f is SnapField {
  if (typeof f !== "object" || f === null || typeof f.name !== "string" || !KINDS.includes(f.kind) || !whole(f.bits, 1, 32) || !Number.isFinite(f.q) || f.q <= 0) return false;
  if (f.kind === "text") {
    return whole(f.max, 1, MAX_TEXT_BYTES) && f.bits === 32 - Math.clz32(f.max) && !f.pose && f.codes === undefined && f.lod === undefined && !f.tolq && f.ahead === undefined;
  }
  const [lo, hi] = f.kind === "uint" ? [0, 2 ** 32 - 1] : f.kind === "bool" ? [0, 1] : f.kind === "angle" ? [0, ANGLE_STEPS - 1] : [-(2 ** 31), 2 ** 31 - 1];
  if (!whole(f.min, lo, hi) || !whole(f.max, f.min + 1, hi) || f.bits !== 32 - Math.clz32(f.max - f.min)) return false;
  const angle = f.kind === "angle";
  if (angle && (f.min !== 0 || f.bits !== ANGLE_BITS)) return false;
  if ((f.lod !== undefined || f.tolq !== undefined || f.ahead !== undefined) && !ordered(f)) return false;
  const list = (a: unknown, most: number): boolean => a === undefined || (Array.isArray(a) && a.length === RINGS && a.every((v) => whole(v, 0, most)));
  return whole(f.tolq ?? 0, 0, 2 ** 31 - 1) && list(f.codes, CODES - 1) && list(f.lod, angle ? ANGLE_BITS : f.bits - 1);
}

// The versions of a type's entities, by value. A row is a version; an entity's rows are a chain from its newest to its baseline.
const SEQ = 0; // of the packet that told it; -1: the row is free
const TICK = 1;
const STATE = 2; // ring, and marks
const OLDER = 3; // the next row of the chain, or of the free ones; -1: none
const NEWER = 4;
const ROW = 5; // where the columns start

// Marks in a version's state; the ring has the two lowest bits.
const MINE = 4; // the owner's columns are there
const ACKED = 8; // the server knows that it has come
const VOID = 16; // the server will never know
const LOST_TRACK = 32; // whether it ever knew is not known

class Versions {
  data: Int32Array;
  readonly width: number;
  private free = -1;
  private rows = 0;

  constructor(cols: number) {
    this.width = ROW + cols;
    this.data = new Int32Array(0);
  }

  /** Takes a free row and puts it before the row head, or alone if that is -1. data may be another one afterwards. */
  push(head: number): number {
    let row = this.free;
    if (row >= 0) {
      this.free = this.data[row * this.width + OLDER]!;
    } else {
      row = this.rows++;
      if (this.data.length < this.rows * this.width) this.data = grown(this.data, Math.max(8, this.rows) * this.width);
    }
    const at = row * this.width;
    this.data[at + OLDER] = head;
    this.data[at + NEWER] = -1;
    if (head >= 0) {
      this.data[head * this.width + NEWER] = row;
      if (this.data[head * this.width + STATE]! & VOID) this.unlink(head);
    }
    return row;
  }

  /** Frees a row and all that are older. */
  cut(row: number): void {
    const { data, width } = this;
    while (row >= 0) {
      const at = row * width;
      const older = data[at + OLDER]!;
      data[at + SEQ] = -1;
      data[at + OLDER] = this.free;
      this.free = row;
      row = older;
    }
  }

  /** Frees a row that is not the newest. */
  unlink(row: number): void {
    const { data, width } = this;
    const older = data[row * width + OLDER]!;
    const newer = data[row * width + NEWER]!;
    data[newer * width + OLDER] = older;
    if (older >= 0) data[older * width + NEWER] = newer;
    data[row * width + OLDER] = -1;
    this.cut(row);
  }

  /** Frees all that are older than a row. */
  settle(row: number): void {
    const at = row * this.width + OLDER;
    this.cut(this.data[at]!);
    this.data[at] = -1;
  }
}

// The versions that one packet brought.
class Brought {
  seq = -1;
  open = false; // what became of it is not known
  n = 0;
  refs = new Int32Array(64); // type, row

  add(type: number, row: number): void {
    const at = this.n++ * 2;
    if (this.refs.length < at + 2) this.refs = grown(this.refs, at + 2);
    this.refs[at] = type;
    this.refs[at + 1] = row;
  }
}

/** An entity. The object belongs to the decoder and may be another entity's after its onLeave. */
export class SnapEntity {
  /** Generation and place in the world: another one when the place is used again. Server and client have the same; it may stand in other fields. */
  id = 0;
  /** Number of its type. */
  readonly type: number;
  /** The seat gets the owner's fields of it. */
  owner = false;
  /** Interest ring, 0 to 3: how often it comes, and how exactly. */
  ring = 0;
  /** The tick of its newest version. In later packets it is as SnapDecoder.extrapolate says. */
  tick = 0;
  /** By field index: the integers of the newest version, for fields that are no texts. */
  readonly values: Int32Array;
  /** By field index: numbers in the unit that the world declared; bools are 0 or 1, texts 0. */
  readonly numbers: Float64Array;
  /** By field index: texts; "" for numbers. */
  readonly texts: string[];
  /** @internal Hashes of the texts' bytes come from here. */ readonly $bytes: Uint8Array[];
  /** @internal */ $at = 0; // place in entities
  /** @internal */ $slot = 0;
  /** @internal */ $row = -1; // its newest version
  /** @internal */ readonly $layout: Layout;

  /** @internal */
  constructor(type: number, layout: Layout) {
    this.type = type;
    this.$layout = layout;
    this.values = new Int32Array(layout.fields.length);
    this.numbers = new Float64Array(layout.fields.length);
    this.texts = layout.fields.map(() => "");
    this.$bytes = layout.fields.map(() => EMPTY);
  }

  /** Index of the field of that name, such as "pos.x", or -1. It is the same for all entities of the type. */
  field(name: string): number {
    return this.$layout.index.get(name) ?? -1;
  }
}

/** Something that happened once. The object is used again for the next event of its type: copy what is kept. */
export class SnapEvent {
  id = 0;
  /** The tick it happened in. */
  tick = 0;
  readonly type: number;
  readonly values: Int32Array;
  readonly numbers: Float64Array;
  readonly texts: string[];
  /** @internal */ readonly $layout: Layout;

  /** @internal */
  constructor(type: number, layout: Layout) {
    this.type = type;
    this.$layout = layout;
    this.values = new Int32Array(layout.fields.length);
    this.numbers = new Float64Array(layout.fields.length);
    this.texts = layout.fields.map(() => "");
  }

  field(name: string): number {
    return this.$layout.index.get(name) ?? -1;
  }
}

// Numbers per op: flags, slot, id, type, first column, first text.
const OP = 6;
// Marks in an op's flags; an entity's ring stands above them.
const LEAVE = 1;
const GONE = 2;
const OWNER = 4;
const ENTER = 8;
const TEXTS = 16;
const RING = 8; // place of the ring's bits

function grown(a: Int32Array, n: number): Int32Array<ArrayBuffer> {
  const more = new Int32Array(Math.max(n, a.length * 2));
  more.set(a);
  return more;
}

/** Holds what the client sees of a snap feed. */
export class SnapDecoder {
  /** Entity types by number. */
  readonly types: readonly SnapType[];
  /** Event types by number. */
  readonly events: readonly SnapType[];
  /** The entities held, in no order. It is the decoder's own array: read it, don't keep it over a decode. */
  readonly entities: readonly SnapEntity[];
  /** Id of the entity that the seat plays; 0: none. It may not have come yet. */
  own = 0;
  /** decode wants to be called for each packet, with an empty body where it has no section of this feed. */
  readonly everyPacket = true;

  // Called by decode, once the packet is taken over whole: first for leaves, then for what came or changed, then for events. What they
  // throw is thrown by decode, and the rest of the packet's calls are left out. They must not call decode.
  onEnter: ((e: SnapEntity, tick: number) => void) | null = null;
  onUpdate: ((e: SnapEntity, tick: number) => void) | null = null;
  /** gone: it is no more; else it is out of sight, or everything comes anew. */
  onLeave: ((e: SnapEntity, tick: number, gone: boolean) => void) | null = null;
  onEvent: ((e: SnapEvent, tick: number) => void) | null = null;

  private readonly layouts: Layout[];
  private readonly eventLayouts: Layout[];
  private readonly eventObjects: SnapEvent[];
  private readonly typeBits: number;
  private readonly eventBits: number;
  private readonly list: SnapEntity[] = [];
  private readonly bySlot = new Uint16Array(SLOTS); // index in list + 1
  private readonly byPlace = new Uint16Array(PLACES); // the same by the low 16 bits of the id; of two the newer
  private top = 0; // slots from here on were never used

  private fresh = true; // nothing was ever read
  private acked = false; // baselines are acked versions
  private epoch = 0;
  private life = 0;
  private seq = 0;
  private last = 0; // id of the last event
  private readonly log = Array.from({ length: LOG }, () => new Brought()); // the last packets read
  private logged = 0; // its next entry

  // The header of the packet that is being read.
  private headAck = 0;
  private headAcks = 0;
  private headNext = false; // it follows the last one that was read

  // Scratch of one decode.
  private readonly r = new BitReader(EMPTY);
  private readonly leaves = new Uint8Array(SLOTS); // by slot: it leaves
  private ops = new Int32Array(64 * OP);
  private nOps = 0;
  private evs = new Int32Array(16 * 3); // type, first column, first text
  private readonly evIDs: number[] = [];
  private readonly evTicks: number[] = [];
  private nEvs = 0;
  private vals = new Int32Array(512);
  private nVals = 0;
  private readonly texts: (string | null)[] = []; // null: not given
  private readonly bytes: Uint8Array[] = [];
  private nTexts = 0;
  private readonly left: SnapEntity[] = [];
  private readonly leftGone: boolean[] = [];
  private nLeft = 0;
  private readonly told: SnapEntity[] = []; // the entities of the last packet, in its order
  private readonly toldNew: boolean[] = [];
  private nTold = 0;
  private readonly scratch = new Int32Array(MAX_FIELDS);
  private readonly utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  /** schema is the feed's, from the welcome. Throws a TypeError when it is none of this version. */
  constructor(schema: unknown) {
    const s = schema as { version?: unknown; hz?: unknown; types?: unknown; events?: unknown } | null;
    if (typeof s !== "object" || s === null || s.version !== 2 || !Array.isArray(s.types) || !Array.isArray(s.events) || s.types.length > MAX_TYPES || s.events.length > MAX_TYPES) {
      throw new TypeError("snap: this is no schema of version 2");
    }
    const { hz } = s;
    if (!whole(hz, 0, MAX_HZ)) throw new TypeError("snap: bad rate of steps in the schema");
    this.types = s.types as SnapType[];
    this.events = s.events as SnapType[];
    this.layouts = this.types.map((t) => new Layout(t, false, hz));
    this.eventLayouts = this.events.map((t) => new Layout(t, true, hz));
    this.eventObjects = this.eventLayouts.map((l, i) => new SnapEvent(i, l));
    this.typeBits = widthOf(this.types.length);
    this.eventBits = widthOf(this.events.length);
    this.entities = this.list;
  }

  /** Number of the entity type of that name, or -1. */
  type(name: string): number {
    return this.types.findIndex((t) => t.name === name);
  }

  /** Index of a field of entity type type, such as "pos.x", or -1. */
  field(type: number, name: string): number {
    return this.layouts[type]?.index.get(name) ?? -1;
  }

  /** Number of the event type of that name, or -1. */
  eventType(name: string): number {
    return this.events.findIndex((t) => t.name === name);
  }

  /** Index of a field of event type type, or -1. */
  eventField(type: number, name: string): number {
    return this.eventLayouts[type]?.index.get(name) ?? -1;
  }

  /** The entity with the id, if it is held. */
  get(id: number): SnapEntity | undefined {
    const at = this.byPlace[id & 0xffff];
    const e = at ? this.list[at - 1]! : undefined;
    return e !== undefined && e.id === id ? e : undefined;
  }

  /** The entity that the seat plays, once it is held. */
  get ownEntity(): SnapEntity | undefined {
    return this.own === 0 ? undefined : this.get(this.own);
  }

  /** How far the client got with events: sent to the server when it resumes. 0 before the first packet. */
  cursor(): number {
    return this.last;
  }

  /**
   * Writes an entity's numbers as they are at a later tick if nothing new comes, by field index: as the server takes them to be. After
   * 255 ticks they stay. It allocates nothing.
   */
  extrapolate(e: SnapEntity, tick: number, out: Float64Array): void {
    const l = e.$layout;
    const n = Math.min((tick - e.tick) >>> 0, MAX_AHEAD);
    const row = this.scratch;
    row.set(e.values);
    for (let k = 0; k < l.pose.length; k++) {
      const i = l.pose[k]!;
      if (l.by[i]! >= 0 && (i < l.pub || e.owner)) row[i] = l.expect(i, n, e.values, 0, row, 0, e.ring);
    }
    for (let i = 0; i < l.cols; i++) out[i] = l.number(i, row[i]!);
  }

  /**
   * A hash, equal to the server's at the same packet unless that is 0: over everything held or, with acked baselines, over what the last
   * packet told of entities.
   */
  hash(): number {
    let h = hashAdd(NEW_HASH, this.own);
    if (this.acked) {
      for (let i = 0; i < this.nTold; i++) h = hashEntity(h, this.told[i]!);
    } else {
      for (let slot = 0; slot < this.top; slot++) {
        const e = this.at(slot);
        if (e !== undefined) h = hashEntity(h, e);
      }
    }
    return h === 0 ? 1 : h;
  }

  /** Reads one section; an empty body tells the packet's header alone. Throws a DecodeError, in which case nothing has changed. */
  decode(packet: SnapPacket, body: Uint8Array): void {
    if (body.length === 0) {
      this.header(packet);
      return;
    }
    const r = this.r;
    r.reset(body);
    const acked = r.bool();
    const key = r.bool();
    const life = key ? r.bits(32) : this.life;
    const base = key ? r.uvarint() : 0;
    if (r.bad) throw corrupt("its end is missing");
    const epochs = ((packet.epoch - this.epoch) << 24) >> 24;
    let reset = false;
    if (key && (this.fresh || epochs > 0 || (epochs === 0 && ((life - this.life) | 0) > 0))) reset = true;
    else if (this.fresh || epochs > 0) throw new DecodeError("keyframe", "snap: no keyframe yet");
    else if (epochs !== 0 || life !== this.life || !seqNewer(packet.seq, this.seq)) throw overtaken();

    let own = reset ? 0 : this.own;
    if (r.bool()) {
      own = r.bits(32);
      if (own !== 0 && !isID(own)) throw corrupt("own entity");
    }
    this.look(packet);
    this.nOps = this.nEvs = this.nVals = this.nTexts = 0;
    let last: number;
    try {
      // Within an epoch, what was played before the server knew of it is not played again.
      const before = !reset ? this.last : epochs === 0 ? Math.max(this.last, base) : base;
      last = this.readEvents(packet.tick, before);
      this.readSlots(packet.tick, acked, reset);
      if (!r.end()) throw corrupt("its end is missing, or something follows it");
    } finally {
      for (let i = 0; i < this.nOps; i++) this.leaves[this.ops[i * OP + 1]!] = 0;
    }

    // From here on nothing can fail.
    this.nLeft = this.nTold = 0;
    if (reset) {
      for (let i = 0; i < LOG; i++) this.log[i]!.open = false;
      for (let i = this.list.length - 1; i >= 0; i--) this.drop(this.list[i]!, false);
    }
    this.acked = acked;
    this.confirm();
    this.fresh = false;
    this.epoch = packet.epoch;
    this.life = life;
    this.seq = packet.seq;
    this.last = last;
    this.own = own;
    const brought = acked ? this.remember(packet.seq) : null;
    for (let i = 0; i < this.nOps; i++) this.apply(i * OP, packet, brought);
    this.tell(packet.tick);
  }

  // Takes over the header of a packet without a section of this feed.
  private header(packet: SnapPacket): void {
    if (this.fresh || packet.epoch !== this.epoch || !seqNewer(packet.seq, this.seq)) return;
    this.look(packet);
    this.confirm();
    this.seq = packet.seq;
    this.nTold = 0;
  }

  private look(packet: SnapPacket): void {
    this.headAck = packet.ack;
    this.headAcks = packet.acks;
    this.headNext = seqDiff(packet.seq, this.seq) === 1;
  }

  // Whether the header names packet seq: 1 it does, 0 not; -1: seq is too old for it to say.
  private named(seq: number): number {
    const d = seqDiff(this.headAck, seq);
    if (d > HISTORY) return -1;
    return d === 0 || (d > 0 && (this.headAcks >>> (d - 1)) & 1) ? 1 : 0;
  }

  // The row of an entity's baseline, by what was known and what this packet's header says. It changes nothing.
  private baseline(e: SnapEntity, acked: boolean): number {
    if (!acked) return e.$row;
    const { data, width } = e.$layout.versions;
    for (let row = e.$row; row >= 0; row = data[row * width + OLDER]!) {
      const state = data[row * width + STATE]!;
      if (state & ACKED) return row;
      if (state & VOID) continue;
      const named = state & LOST_TRACK ? -1 : this.named(data[row * width + SEQ]!);
      if (named > 0) return row;
      // The header may have been lost that named it before it dropped out.
      if (named < 0 && (state & LOST_TRACK || !this.headNext)) break;
    }
    throw new DecodeError("keyframe", "snap: the baseline of an entity is not known");
  }

  // Takes over what the header says of packets read before.
  private confirm(): void {
    if (!this.acked) return;
    for (let i = 0; i < LOG; i++) {
      const b = this.log[i]!;
      if (!b.open) continue;
      const named = this.named(b.seq);
      if (named !== 0) this.settle(b, named > 0 ? ACKED : this.headNext ? VOID : LOST_TRACK);
    }
  }

  // Marks what a packet brought and what of it is still kept.
  private settle(b: Brought, mark: number): void {
    b.open = false;
    for (let k = 0; k < b.n; k++) {
      const v = this.layouts[b.refs[k * 2]!]!.versions;
      const row = b.refs[k * 2 + 1]!;
      const at = row * v.width;
      if (v.data[at + SEQ] !== b.seq) continue;
      v.data[at + STATE]! |= mark;
      if (mark !== VOID) v.settle(row); // what is older is no baseline any more
      else if (v.data[at + NEWER]! >= 0) v.unlink(row); // the newest stays: it is what is shown
    }
  }

  // Opens the log's entry for a packet. The one that it replaces is older than anything that the server still counts on.
  private remember(seq: number): Brought {
    const b = this.log[this.logged]!;
    this.logged = (this.logged + 1) % LOG;
    if (b.open) this.settle(b, LOST_TRACK);
    b.seq = seq;
    b.open = true;
    b.n = 0;
    return b;
  }

  private readEvents(tick: number, last: number): number {
    const r = this.r;
    let id = 0;
    while (r.bool()) {
      if (this.eventLayouts.length === 0) throw corrupt("an event without event types");
      id = id === 0 ? r.uvarint() : id + 1 + r.eg(0);
      const ago = r.eg(2);
      const type = r.bits(this.eventBits);
      const l = this.eventLayouts[type];
      if (l === undefined) throw corrupt("event");
      if (id === 0 || id > Number.MAX_SAFE_INTEGER) throw corrupt("event number");
      const val = this.row(l);
      const text = this.nTexts;
      for (let i = 0; i < l.cols; i++) this.vals[val + i] = r.bits(l.widths[i]!) + l.mins[i]!;
      this.readTexts(l, l.texts);
      if (r.bad) throw corrupt("its end is missing");
      if (id <= last) {
        this.nVals = val;
        this.nTexts = text;
        continue;
      }
      last = id;
      const n = this.nEvs++;
      if (this.evs.length < this.nEvs * 3) this.evs = grown(this.evs, this.nEvs * 3);
      this.evs[n * 3] = type;
      this.evs[n * 3 + 1] = val;
      this.evs[n * 3 + 2] = text;
      this.evIDs[n] = id;
      this.evTicks[n] = (tick - ago) >>> 0;
    }
    return last;
  }

  // Takes room for an op on the slot that comes k-coded after slot prev.
  private op(prev: number, k: number): number {
    const slot = prev + 1 + this.r.eg(k);
    if (this.r.bad || slot >= SLOTS) throw corrupt("slot");
    const o = this.nOps++ * OP;
    if (this.ops.length < o + OP) this.ops = grown(this.ops, o + OP);
    this.ops[o + 1] = slot;
    return o;
  }

  private readSlots(tick: number, acked: boolean, reset: boolean): void {
    const r = this.r;
    const k = r.bits(3);
    let slot = -1;
    while (r.bool()) {
      const o = this.op(slot, k);
      slot = this.ops[o + 1]!;
      this.ops[o] = LEAVE | (r.bool() ? GONE : 0);
      this.leaves[slot] = 1;
    }
    let clash = false;
    slot = -1;
    while (r.bool()) {
      const o = this.op(slot, k);
      slot = this.ops[o + 1]!;
      this.readEntity(o, slot, tick, acked, reset);
      if (r.bad) throw corrupt("its end is missing");
      if (this.leaves[slot] !== 0) clash = true;
    }
    if (clash) throw corrupt("a slot that leaves and stays");
  }

  private readEntity(o: number, slot: number, tick: number, acked: boolean, reset: boolean): void {
    const r = this.r;
    const detail = r.bool();
    const enter = detail && r.bool();
    const e = enter || reset ? undefined : this.at(slot);
    const id = enter ? r.bits(32) : (e?.id ?? 0);
    const type = enter ? r.bits(this.typeBits) : (e?.type ?? 0);
    const l = this.layouts[type];
    if (this.layouts.length === 0) throw corrupt("an entity without entity types");
    if (!enter && e === undefined) throw new DecodeError("keyframe", "snap: an entity that is not held");
    if (enter && (l === undefined || !isID(id))) throw corrupt("entity");
    const y = l!;
    const { versions } = y;
    let base = 0;
    let state = 0;
    let n = 0;
    if (!enter) {
      base = this.baseline(e!, acked) * versions.width;
      state = versions.data[base + STATE]!;
      n = Math.min((tick - versions.data[base + TICK]!) >>> 0, MAX_AHEAD);
      base += ROW;
    }
    let ring = state & 3;
    let mine = (state & MINE) !== 0;
    let changes = false;
    let texts = enter && y.texts > 0;
    if (detail) {
      if (enter || r.bool()) ring = r.bits(2);
      if (y.owned) mine = r.bool();
      if (!enter) {
        changes = y.what.length > 0 && r.bool();
        texts = y.texts > 0 && r.bool();
      }
    }
    const at = this.row(y);
    if (enter) this.readWhole(y, at, mine);
    else this.readResiduals(y, at, versions.data, base, n, ring, mine, changes);
    for (let k = 0; k < y.rates.length; k++) {
      if (Math.abs(this.vals[at + y.rates[k]!]!) > MAX_RATE) throw corrupt("a rate that cannot be extrapolated along");
    }
    const { ops } = this;
    ops[o] = (ring << RING) | (mine ? OWNER : 0) | (enter ? ENTER : 0) | (texts ? TEXTS : 0);
    ops[o + 2] = id;
    ops[o + 3] = type;
    ops[o + 4] = at;
    ops[o + 5] = this.nTexts;
    if (texts) this.readTexts(y, mine ? y.texts : y.textPub);
  }

  // Takes room for the columns of a type, which are 0.
  private row(l: Layout): number {
    const at = this.nVals;
    this.nVals += l.cols;
    if (this.vals.length < this.nVals) this.vals = grown(this.vals, this.nVals);
    this.vals.fill(0, at, this.nVals);
    return at;
  }

  private readWhole(l: Layout, at: number, mine: boolean): void {
    const r = this.r;
    const { what, pose } = l;
    for (let k = 0; k < what.length; k++) {
      const i = what[k]!;
      if (i >= l.pub && !mine) continue;
      this.vals[at + i] = r.bool() ? r.bits(l.widths[i]!) + l.mins[i]! : l.defaults[i]!;
    }
    for (let k = 0; k < pose.length; k++) {
      const i = pose[k]!;
      if (i < l.pub || mine) this.vals[at + i] = r.bits(l.widths[i]!) + l.mins[i]!;
    }
  }

  private readResiduals(l: Layout, at: number, data: Int32Array, base: number, n: number, ring: number, mine: boolean, changes: boolean): void {
    const { vals } = this;
    const { what, pose } = l;
    for (let k = 0; k < what.length; k++) {
      const i = what[k]!;
      if (i >= l.pub && !mine) continue;
      const x = data[base + i]!;
      vals[at + i] = changes ? this.residual(l, i, x, ring) : x;
    }
    for (let k = 0; k < pose.length; k++) {
      const i = pose[k]!;
      if (i < l.pub || mine) vals[at + i] = this.residual(l, i, l.expect(i, n, data, base, vals, at, ring), ring);
    }
  }

  // Reads a column of which x is expected.
  private residual(l: Layout, i: number, x: number, ring: number): number {
    // What an owner did not have before is 0, whatever its range: such a baseline counts as the smaller of the two.
    if (l.widths[i] === 1) return this.r.bool() === (x === l.maxs[i]) ? l.mins[i]! : l.maxs[i]!;
    const k = ring * l.cols + i;
    const v = x + (unzigzag32(this.r.code(l.codes[k]!)) << l.lods[k]!);
    return l.angles[i] ? v & (ANGLE_STEPS - 1) : v | 0;
  }

  // Reads n texts; the rest is not given.
  private readTexts(l: Layout, n: number): void {
    const r = this.r;
    for (let i = l.cols; i < l.fields.length; i++) {
      let text: string | null = null;
      let bytes = EMPTY;
      if (i < l.cols + n && r.bool()) {
        text = "";
        const size = r.bits(l.widths[i]!);
        if (size > l.fields[i]!.max) throw corrupt("text is too long");
        if (size > 0) {
          if (size * 8 > r.left()) throw corrupt("its end is missing");
          bytes = new Uint8Array(size);
          r.bytes(bytes, 0, size);
          try {
            text = this.utf8.decode(bytes);
          } catch {
            throw corrupt("text is no UTF-8");
          }
        }
      }
      this.texts[this.nTexts] = text;
      this.bytes[this.nTexts++] = bytes;
    }
  }

  private at(slot: number): SnapEntity | undefined {
    const at = this.bySlot[slot]!;
    return at === 0 ? undefined : this.list[at - 1];
  }

  private apply(o: number, packet: SnapPacket, brought: Brought | null): void {
    const { ops } = this;
    const flags = ops[o]!;
    const slot = ops[o + 1]!;
    let e = this.at(slot);
    if (flags & LEAVE) {
      if (e !== undefined) this.drop(e, (flags & GONE) !== 0); // its enter may have been lost
      return;
    }
    const id = ops[o + 2]! >>> 0;
    const type = ops[o + 3]!;
    const l = this.layouts[type]!;
    const enter = e === undefined || e.id !== id || e.type !== type;
    if (enter) {
      if (e !== undefined) this.drop(e, false);
      e = this.add(l, id, type, slot);
    }
    const it = e!;
    it.owner = (flags & OWNER) !== 0;
    it.ring = (flags >> RING) & 3;
    it.tick = packet.tick;
    const val = ops[o + 4]!;
    l.fill(it.values, it.numbers, this.vals, val);
    for (let k = 0; k < l.texts; k++) {
      const at = ops[o + 5]! + k;
      const text = flags & TEXTS ? this.texts[at]! : null;
      // One that is not given stays, but is empty at first, and for those who are not the owner.
      if (text === null && !(flags & ENTER) && (k < l.textPub || it.owner)) continue;
      it.texts[l.cols + k] = text ?? "";
      it.$bytes[l.cols + k] = text === null ? EMPTY : this.bytes[at]!;
    }
    const v = l.versions;
    if (brought !== null || it.$row < 0) it.$row = v.push(it.$row);
    const row = it.$row * v.width;
    v.data[row + SEQ] = packet.seq;
    v.data[row + TICK] = packet.tick;
    v.data[row + STATE] = it.ring | (it.owner ? MINE : 0) | (brought === null ? ACKED : 0);
    for (let i = 0; i < l.cols; i++) v.data[row + ROW + i] = this.vals[val + i]!;
    if (brought === null) v.settle(it.$row);
    else brought.add(type, it.$row);
    this.toldNew[this.nTold] = enter;
    this.told[this.nTold++] = it;
  }

  private add(l: Layout, id: number, type: number, slot: number): SnapEntity {
    const e = l.free.pop() ?? new SnapEntity(type, l);
    e.id = id;
    e.$slot = slot;
    e.$at = this.list.length;
    this.list.push(e);
    this.bySlot[slot] = this.byPlace[id & 0xffff] = this.list.length;
    this.top = Math.max(this.top, slot + 1);
    return e;
  }

  // Takes an entity out of what is held; tell lets it go.
  private drop(e: SnapEntity, gone: boolean): void {
    const place = e.id & 0xffff;
    if (this.byPlace[place] === e.$at + 1) this.byPlace[place] = 0;
    this.bySlot[e.$slot] = 0;
    const last = this.list.pop()!;
    if (last !== e) {
      const there = last.id & 0xffff;
      if (this.byPlace[there] === last.$at + 1) this.byPlace[there] = e.$at + 1;
      this.bySlot[last.$slot] = e.$at + 1;
      this.list[e.$at] = last;
      last.$at = e.$at;
    }
    e.$layout.versions.cut(e.$row);
    e.$row = -1;
    this.leftGone[this.nLeft] = gone;
    this.left[this.nLeft++] = e;
  }

  // Tells what the packet has changed.
  private tell(tick: number): void {
    try {
      for (let i = 0; i < this.nLeft; i++) this.onLeave?.(this.left[i]!, tick, this.leftGone[i]!);
      for (let i = 0; i < this.nTold; i++) {
        if (this.toldNew[i]) this.onEnter?.(this.told[i]!, tick);
        else this.onUpdate?.(this.told[i]!, tick);
      }
      for (let i = 0; i < this.nEvs; i++) this.play(i, tick);
    } finally {
      for (let i = 0; i < this.nLeft; i++) this.left[i]!.$layout.free.push(this.left[i]!);
    }
  }

  private play(i: number, tick: number): void {
    if (this.onEvent === null) return;
    const e = this.eventObjects[this.evs[i * 3]!]!;
    const l = e.$layout;
    e.id = this.evIDs[i]!;
    e.tick = this.evTicks[i]!;
    l.fill(e.values, e.numbers, this.vals, this.evs[i * 3 + 1]!);
    for (let k = 0; k < l.texts; k++) e.texts[l.cols + k] = this.texts[this.evs[i * 3 + 2]! + k] ?? "";
    this.onEvent(e, tick);
  }
}

function corrupt(what: string): DecodeError {
  return new DecodeError("corrupt", `snap: corrupt packet: ${what}`);
}

function overtaken(): DecodeError {
  return new DecodeError("overtaken", "snap: the packet is older than what is held");
}

function isID(id: number): boolean {
  return id >>> 16 !== 0 && (id & 0xffff) < PLACES;
}

function hashEntity(h: number, e: SnapEntity): number {
  const l = e.$layout;
  h = hashAdd(hashAdd(h, e.id), e.type);
  for (let i = 0; i < l.cols; i++) h = hashAdd(h, e.values[i]!);
  for (let i = l.cols; i < l.fields.length; i++) h = hashBytes(h, e.$bytes[i]!);
  return h;
}

// Number of bits that hold a number below n.
function widthOf(n: number): number {
  return n > 1 ? 32 - Math.clz32(n - 1) : 0;
}
