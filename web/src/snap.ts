// Entities and events as feed/snap sends them. The twin of feed/snap/decoder.go; docs/protocol.md has this picture with more words.
//
// The section body, bits from the lowest up, uvarints in groups of 8 bits:
//
//	1  keyframe      ─┬─ 32 life
//	                  └─ uvarint id of the last event before this life
//	1  own changes   ─── 32 entity id, 0: none
//	{1 event         ─── uvarint id (the first) or distance from the one before it
//	                     uvarint ticks before the packet's tick, type, columns, texts}  0
//	{1 leave         ─── uvarint slot less the one before it, mod 65536}  0
//	{1 entity        ─── uvarint slot less the one before it, mod 65536
//	   1 enter       ─── 16 generation, type
//	   1 owner's (if the type has owner fields)
//	   columns
//	   1 texts (if the type has texts and this is no enter)
//	   texts         ─── each: length, bytes}  0
//	0…7 zero bits to the byte's end
//
// type: as many bits as the number of types less one has. Columns: each its schema's bits, less its min.
//
// After warm-up a packet allocates nothing but the texts that it brings.

import { BitReader, hashAdd, hashBytes, NEW_HASH, seqNewer } from "./wire.ts";

/** A field of an entity or event type, as the schema in the welcome has it. */
export interface SnapField {
  /** "hp", or "pos.x" for a field of a nested struct. */
  name: string;
  kind: "float" | "int" | "uint" | "bool" | "angle" | "text";
  /** Width on the wire; for a text, of its length. */
  bits: number;
  /** The integer that is sent as 0: for a float, in quanta. */
  min: number;
  /** Value of one step. */
  q: number;
  /** Longest text in bytes. */
  max?: number;
  /** Only the owning seat gets it; zero or empty for others. */
  owner?: boolean;
  once?: boolean;
  /** Name of the field that this one moves by. */
  move?: string;
  turn?: string;
  frame?: string;
  lod?: boolean;
  tol?: number;
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
  ack: number;
  acks: number;
}

/**
 * Why a packet was refused. "overtaken": it is not newer than one already read, which is no fault on an unordered link. "keyframe":
 * it needs a keyframe that has not come. "corrupt": no server with this schema writes such bytes.
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
const SLOTS = 65535;

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
  readonly mins: Int32Array;
  readonly scales: Float64Array;
  readonly unsigned: Uint8Array;
  readonly free: SnapEntity[] = [];

  constructor(t: SnapType) {
    if (typeof t?.name !== "string" || !Array.isArray(t.fields) || t.fields.length > MAX_FIELDS) throw new TypeError("snap: bad type in the schema");
    this.name = t.name;
    this.fields = t.fields;
    const n = t.fields.length;
    this.widths = new Uint8Array(n);
    this.mins = new Int32Array(n);
    this.scales = new Float64Array(n);
    this.unsigned = new Uint8Array(n);
    let rank = 0;
    t.fields.forEach((f, i) => {
      const text = f.kind === "text";
      const r = (f.owner ? 1 : 0) + (text ? 2 : 0);
      if (
        typeof f.name !== "string" || !["float", "int", "uint", "bool", "angle", "text"].includes(f.kind) || r < rank ||
        !Number.isInteger(f.bits) || f.bits < 1 || f.bits > 32 || !Number.isInteger(f.min) || f.min < -(2 ** 31) || f.min >= 2 ** 32 ||
        !Number.isFinite(f.q) || f.q <= 0 ||
        (text && !(Number.isInteger(f.max) && f.max! >= 1 && f.max! <= MAX_TEXT_BYTES && f.bits === 32 - Math.clz32(f.max!)))
      ) {
        throw new TypeError(`snap: bad field ${String(f.name)} of ${t.name} in the schema`);
      }
      rank = r;
      if (!this.index.has(f.name)) this.index.set(f.name, i);
      this.owned ||= f.owner === true;
      this.widths[i] = f.bits;
      this.mins[i] = f.min;
      this.scales[i] = f.kind === "uint" ? 1 : f.q;
      this.unsigned[i] = f.kind === "uint" ? 1 : 0;
      if (text) {
        this.texts++;
        if (!f.owner) this.textPub++;
      } else {
        this.cols++;
        if (!f.owner) this.pub++;
      }
    });
  }

  // Copies columns from src at off and works out their numbers.
  fill(values: Int32Array, numbers: Float64Array, src: Int32Array, off: number): void {
    for (let i = 0; i < this.cols; i++) {
      const k = src[off + i]!;
      values[i] = k;
      numbers[i] = this.unsigned[i] ? k >>> 0 : k * this.scales[i]!;
    }
  }
}

/** An entity. The object belongs to the decoder and may be another entity's after its onLeave. */
export class SnapEntity {
  /** Slot and generation: another one when the slot is used again. Server and client have the same; it may stand in other fields. */
  id = 0;
  /** Number of its type. */
  readonly type: number;
  /** The seat gets the owner's fields of it. */
  owner = false;
  /** By field index: the integers of the wire, for fields that are no texts. */
  readonly values: Int32Array;
  /** By field index: numbers in the unit that the world declared; bools are 0 or 1, texts 0. */
  readonly numbers: Float64Array;
  /** By field index: texts; "" for numbers. */
  readonly texts: string[];
  /** @internal Hashes of the texts' bytes come from here. */ readonly $bytes: Uint8Array[];
  /** @internal */ $at = 0; // place in entities
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

const EMPTY = new Uint8Array(0);

// Marks in an op's flags.
const LEAVE = 1;
const OWNER = 2;
const TEXTS = 4;
// Numbers per op: flags, slot, id, type, first column, first text.
const OP = 6;

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

  // Called by decode, once the packet is taken over whole: first for leaves, then for what came or changed, then for events. What they
  // throw is thrown by decode, and the rest of the packet's calls are left out. They must not call decode.
  onEnter: ((e: SnapEntity, tick: number) => void) | null = null;
  onUpdate: ((e: SnapEntity, tick: number) => void) | null = null;
  onLeave: ((e: SnapEntity, tick: number) => void) | null = null;
  onEvent: ((e: SnapEvent, tick: number) => void) | null = null;

  private readonly layouts: Layout[];
  private readonly eventLayouts: Layout[];
  private readonly eventObjects: SnapEvent[];
  private readonly typeBits: number;
  private readonly eventBits: number;
  private readonly list: SnapEntity[] = [];
  private readonly bySlot = new Uint16Array(SLOTS); // place in list + 1
  private top = 0; // slots from here on were never used

  private fresh = true; // nothing was ever read
  private epoch = 0;
  private life = 0;
  private seq = 0;
  private last = 0; // id of the last event

  // Scratch of one decode.
  private readonly r = new BitReader(EMPTY);
  private readonly marks = new Uint8Array(SLOTS);
  private ops = new Int32Array(64 * OP);
  private nOps = 0;
  private evs = new Int32Array(16 * 3); // type, first column, first text
  private readonly evIDs: number[] = [];
  private readonly evTicks: number[] = [];
  private nEvs = 0;
  private vals = new Int32Array(512);
  private nVals = 0;
  private readonly texts: string[] = [];
  private readonly bytes: Uint8Array[] = [];
  private nTexts = 0;
  private readonly utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  /** schema is the feed's, from the welcome. Throws a TypeError when it is none of this version. */
  constructor(schema: unknown) {
    const s = schema as { version?: unknown; types?: unknown; events?: unknown } | null;
    if (typeof s !== "object" || s === null || s.version !== 1 || !Array.isArray(s.types) || !Array.isArray(s.events) || s.types.length > MAX_TYPES || s.events.length > MAX_TYPES) {
      throw new TypeError("snap: this is no schema of version 1");
    }
    this.types = s.types as SnapType[];
    this.events = s.events as SnapType[];
    this.layouts = this.types.map((t) => new Layout(t));
    this.eventLayouts = this.events.map((t) => new Layout(t));
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
    const e = this.at(id & 0xffff);
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

  /** A hash over everything held, equal to the server's at the same packet. */
  hash(): number {
    let h = hashAdd(NEW_HASH, this.own);
    for (let slot = 0; slot < this.top; slot++) {
      const at = this.bySlot[slot]!;
      if (at === 0) continue;
      const e = this.list[at - 1]!;
      const l = e.$layout;
      h = hashAdd(hashAdd(h, e.id), e.type);
      for (let i = 0; i < l.cols; i++) h = hashAdd(h, e.values[i]!);
      for (let i = l.cols; i < l.fields.length; i++) h = hashBytes(h, e.$bytes[i]!);
    }
    return h;
  }

  /** Reads one section. Throws a DecodeError, in which case nothing has changed. */
  decode(packet: SnapPacket, body: Uint8Array): void {
    const r = this.r;
    r.reset(body);
    const key = r.bool();
    const life = key ? r.bits(32) : this.life;
    const base = key ? r.uvarint() : 0;
    if (r.bad) throw corrupt("its end is missing");
    const epochs = ((packet.epoch - this.epoch) << 24) >> 24;
    let reset = false;
    if (key && (this.fresh || epochs > 0 || (epochs === 0 && ((life - this.life) | 0) > 0))) reset = true;
    else if (this.fresh || epochs > 0) throw new DecodeError("keyframe", "snap: no keyframe yet");
    else if (epochs !== 0 || life !== this.life || !seqNewer(packet.seq, this.seq)) throw new DecodeError("overtaken", "snap: the packet is older than what is held");

    let own = reset ? 0 : this.own;
    if (r.bool()) {
      own = r.bits(32);
      if (own !== 0 && (own >>> 16 === 0 || (own & 0xffff) >= SLOTS)) throw corrupt("own entity");
    }
    this.nOps = this.nEvs = this.nVals = this.nTexts = 0;
    let last: number;
    try {
      last = this.readEvents(packet.tick, reset ? base : this.last);
      this.readSlots(reset);
      if (!r.end()) throw corrupt("its end is missing, or something follows it");
    } finally {
      for (let i = 0; i < this.nOps; i++) this.marks[this.ops[i * OP + 1]!] = 0;
    }

    // From here on only callbacks can fail.
    if (reset) {
      this.last = base;
      for (let i = this.list.length - 1; i >= 0; i--) this.drop(this.list[i]!, packet.tick);
    }
    this.fresh = false;
    this.epoch = packet.epoch;
    this.life = life;
    this.seq = packet.seq;
    this.last = last;
    this.own = own;
    for (let i = 0; i < this.nOps; i++) this.apply(i * OP, packet.tick);
    for (let i = 0; i < this.nEvs; i++) this.play(i, packet.tick);
  }

  private readEvents(tick: number, last: number): number {
    const r = this.r;
    let id = 0;
    while (r.bool()) {
      if (this.eventLayouts.length === 0) throw corrupt("an event without event types");
      const step = r.uvarint();
      if (step === 0 || step > Number.MAX_SAFE_INTEGER - id) throw corrupt("event number");
      id += step;
      const ago = r.uvarint();
      const type = r.bits(this.eventBits);
      const l = this.eventLayouts[type];
      if (l === undefined || ago > 0xffffffff) throw corrupt("event");
      const val = this.nVals;
      const text = this.nTexts;
      this.readCols(l, l.cols);
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

  private slot(prev: number): number {
    const step = this.r.uvarint();
    const slot = (prev + step) & 0xffff;
    if (this.r.bad || step > 0xffff || slot >= SLOTS || this.marks[slot] !== 0) throw corrupt("slot");
    return slot;
  }

  // Takes room for an op on slot, which is marked: a slot comes once in a packet.
  private op(slot: number): number {
    const o = this.nOps++ * OP;
    if (this.ops.length < o + OP) this.ops = grown(this.ops, o + OP);
    this.marks[slot] = 1;
    this.ops[o] = 0;
    this.ops[o + 1] = slot;
    return o;
  }

  private readSlots(reset: boolean): void {
    const r = this.r;
    let slot = 0;
    while (r.bool()) {
      slot = this.slot(slot);
      const o = this.op(slot);
      this.ops[o] = LEAVE;
    }
    slot = 0;
    while (r.bool()) {
      if (this.layouts.length === 0) throw corrupt("an entity without entity types");
      slot = this.slot(slot);
      const o = this.op(slot);
      let id: number;
      let type: number;
      const enter = r.bool();
      if (enter) {
        const gen = r.bits(16);
        id = ((gen << 16) | slot) >>> 0;
        type = r.bits(this.typeBits);
        if (gen === 0 || type >= this.layouts.length) throw corrupt("entity");
      } else {
        const e = reset ? undefined : this.at(slot);
        if (e === undefined) throw corrupt("an entity that is not held");
        id = e.id;
        type = e.type;
      }
      const l = this.layouts[type]!;
      const mine = l.owned && r.bool();
      const ops = this.ops;
      ops[o + 2] = id;
      ops[o + 3] = type;
      ops[o + 4] = this.nVals;
      ops[o + 5] = this.nTexts;
      this.readCols(l, mine ? l.cols : l.pub);
      const texts = l.texts > 0 && (enter || r.bool());
      if (texts) this.readTexts(l, mine ? l.texts : l.textPub);
      ops[o] = (mine ? OWNER : 0) | (texts ? TEXTS : 0);
      if (r.bad) throw corrupt("its end is missing");
    }
  }

  // Reads n columns and fills up with zeros to all of the type's.
  private readCols(l: Layout, n: number): void {
    const r = this.r;
    const at = this.nVals;
    this.nVals += l.cols;
    if (this.vals.length < this.nVals) this.vals = grown(this.vals, this.nVals);
    const vals = this.vals;
    for (let i = 0; i < n; i++) vals[at + i] = r.bits(l.widths[i]!) + l.mins[i]!;
    for (let i = n; i < l.cols; i++) vals[at + i] = 0;
  }

  private readTexts(l: Layout, n: number): void {
    const r = this.r;
    for (let i = 0; i < l.texts; i++) {
      let text = "";
      let bytes = EMPTY;
      if (i < n) {
        const size = r.bits(l.widths[l.cols + i]!);
        if (size > l.fields[l.cols + i]!.max!) throw corrupt("text is too long");
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
    const at = slot < SLOTS ? this.bySlot[slot]! : 0;
    return at === 0 ? undefined : this.list[at - 1];
  }

  private apply(o: number, tick: number): void {
    const ops = this.ops;
    const flags = ops[o]!;
    const slot = ops[o + 1]!;
    let e = this.at(slot);
    if (flags & LEAVE) {
      if (e !== undefined) this.drop(e, tick); // its enter may have been lost
      return;
    }
    const id = ops[o + 2]! >>> 0;
    const type = ops[o + 3]!;
    const l = this.layouts[type]!;
    const enter = e === undefined || e.id !== id || e.type !== type;
    if (enter) {
      if (e !== undefined) this.drop(e, tick);
      e = l.free.pop() ?? new SnapEntity(type, l);
      e.id = id;
      e.$at = this.list.length;
      this.list.push(e);
      this.bySlot[slot] = this.list.length;
      this.top = Math.max(this.top, slot + 1);
    }
    const it = e!;
    it.owner = (flags & OWNER) !== 0;
    l.fill(it.values, it.numbers, this.vals, ops[o + 4]!);
    if (flags & TEXTS) {
      for (let i = 0; i < l.texts; i++) {
        it.texts[l.cols + i] = this.texts[ops[o + 5]! + i]!;
        it.$bytes[l.cols + i] = this.bytes[ops[o + 5]! + i]!;
      }
    }
    if (enter) this.onEnter?.(it, tick);
    else this.onUpdate?.(it, tick);
  }

  private drop(e: SnapEntity, tick: number): void {
    const last = this.list.pop()!;
    if (last !== e) {
      this.list[e.$at] = last;
      last.$at = e.$at;
      this.bySlot[last.id & 0xffff] = e.$at + 1;
    }
    this.bySlot[e.id & 0xffff] = 0;
    try {
      this.onLeave?.(e, tick);
    } finally {
      e.$layout.free.push(e);
    }
  }

  private play(i: number, tick: number): void {
    if (this.onEvent === null) return;
    const e = this.eventObjects[this.evs[i * 3]!]!;
    const l = e.$layout;
    e.id = this.evIDs[i]!;
    e.tick = this.evTicks[i]!;
    l.fill(e.values, e.numbers, this.vals, this.evs[i * 3 + 1]!);
    for (let k = 0; k < l.texts; k++) e.texts[l.cols + k] = this.texts[this.evs[i * 3 + 2]! + k]!;
    this.onEvent(e, tick);
  }
}

function corrupt(what: string): DecodeError {
  return new DecodeError("corrupt", `snap: corrupt packet: ${what}`);
}

// Number of bits that hold a number below n.
function widthOf(n: number): number {
  return n > 1 ? 32 - Math.clz32(n - 1) : 0;
}
