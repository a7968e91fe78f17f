// The engine's packets: the twin of packet.go. docs/protocol.md describes them.
//
// State packet:
//
//   0  u8  kind        17
//   1  u8  flags       1 hash, 2 acks, 4 sections
//   2  u16 seq         of this packet, per seat, from 1, wraps
//   4  u8  epoch
//   5  u16 tick        low 16 bits of the frame's tick
//   7  u16 inputAck    low 16 bits of the newest input label that was received
//   9  i8  margin      steps by which that input was early (negative: late); -128: none yet
//   10 u16 ack         with flag acks: the newest packet known to be received
//   12 u32 history     with flag acks: bit i: packet ack-1-i was received too
//   .. body            flag sections clear: the body of feed 0, or nothing.
//                      set: { u8 feed, uvarint length, body } repeated
//   .. u32 hash        with flag hash: the last 4 bytes; hash of all state feeds, folded in order
//
// Input message:
//
//   0  u8  kind     2
//   1  u16 ack      newest state packet received; 0 before the first
//   3  u32 history  bit i: packet ack-1-i was received too
//   7  u8  count    1 … 8; 128 is added if seen is there
//   8  u32 label    the step the newest input is for; 0: the next one
//   12 u16 seen     with 128: how long before its step each input's player saw what he acted on, in 1/16 steps; 0: unknown
//   .. count × input, newest first, for steps label, label-1, …
//
// Report message:
//
//    0 u8  kind       6
//    1 u8  server     stutters since the report before, by what made them
//    2 u8  network
//    3 u8  page
//    4 u16 span       ms that this covers
//    6 u16 frames     that were drawn
//    8 u16 frame      99th percentile of the time between two, in 1/8 ms; of the worst second
//   10 u16 longest    of them, in 1/8 ms
//   12 u16 longTasks  that held up the page for over 50 ms
//   14 u16 ping       round trip of an input, in 1/8 ms; 0: unknown
//   16 u16 age        of what is shown, in 1/8 ms; of the worst second
//   18 u16 buffer     in 1/8 ms
//   20 u16 underruns  frames that showed more than 34 ms past the newest packet
//   22 u16 jumps      frames in which something moved otherwise than it was told to
//   24 u16 rollbacks  corrections of the own entity
//   26 u16 unreadable packets that were refused
//   28 u16 baseless   packets that could not be read for want of an earlier one
//   30 u16 starved    packets that said: the newest input came too late for its step
//   32 f32 jolt       99th percentile of the second difference of places shown; of the worst second
//
// Reliable message, a section of a feed on the reliable lane; it follows the state of its tick:
//
//   0  u8  kind   19
//   1  u8  feed
//   2  u8  epoch
//   3  u32 tick
//   7  body

export const PROTOCOL_VERSION = 1;

export const KIND_HELLO = 1;
export const KIND_INPUT = 2;
export const KIND_ACK = 3;
export const KIND_COMMAND = 4;
export const KIND_LEAVE = 5;
export const KIND_REPORT = 6;
export const KIND_WELCOME = 16;
export const KIND_STATE = 17;
export const KIND_REFUSE = 18;
export const KIND_RELIABLE = 19;

export const MAX_HELLO_BYTES = 4096;
export const MAX_COMMAND_BYTES = 4096;
/** The most inputs in one input message. */
export const MAX_INPUTS = 8;
/** A state packet's margin before the first input. */
export const MARGIN_NONE = -128;

/** A client's first message. */
export interface Hello {
  protocol: number;
  world: string;
  room?: string;
  name?: string;
  token?: string;
  cursors?: number[];
  verify?: boolean;
}

/** One field of a world's input, see {@link InputCodec}. */
export interface InputField {
  name: string;
  /** bool, i8, u8, i16, u16, i32, u32 or f32 */
  kind: string;
}

/** One feed of a room. Lane 0 is state, 1 is reliable. */
export interface FeedInfo {
  kind: string;
  name: string;
  lane: number;
  schema: unknown;
}

/** The server's answer to a hello that was let in. */
export interface Welcome {
  protocol: number;
  world: string;
  /** The room's name. */
  room: string;
  /** The own seat's number in the room. */
  seat: number;
  /** The player's name, as the server cleaned it. */
  name: string;
  /** What the client comes back to its seat with. */
  token: string;
  /** The seat is the one from before. */
  resumed: boolean;
  /** It is raised, in 8 bits, when the room's world is replaced. */
  epoch: number;
  /** The room's newest step. */
  tick: number;
  /** Steps a second; 0: the room has no beat. */
  hz: number;
  /** State packets a second, at most. */
  sendHz: number;
  /** How long the seat is kept after a lost link. */
  graceMs: number;
  /** The link loses nothing and keeps the order. */
  ordered: boolean;
  /** Packets have a hash, as asked for. */
  verify: boolean;
  /** Above 0: the server wants to know in each input message what the player saw. */
  rewindMs?: number;
  /** Microseconds since 1970 at which step 0 would have been. */
  /** Above 0: the server wants a report on the motion shown, at most so often. */
  reportMs?: number;
  tickZeroUs: number;
  /** The fields of the world's input, in wire order. */
  inputs: InputField[];
  /** What the room sends, by number. */
  feeds: FeedInfo[];
}

/** What a client may do after a refusal or close. */
export type Retry = "never" | "new" | "resume" | "later";

/** What a client is told before its link is closed. */
export interface Goodbye {
  reason: string;
  code: number;
  text: string;
  retry: Retry;
  retryMs: number;
}

/** Reason and retry by close code, for a link that was closed without a goodbye; errors.go has the whole table. */
export const REASONS: Readonly<Record<number, readonly [name: string, retry: Retry]>> = {
  1000: ["left", "new"],
  1001: ["draining", "later"],
  1006: ["link_lost", "resume"],
  1009: ["too_big", "never"],
  4003: ["version", "never"],
  4004: ["origin", "never"],
  4005: ["no_world", "never"],
  4006: ["no_room", "never"],
  4010: ["room_full", "later"],
  4011: ["server_full", "later"],
  4012: ["too_fast", "later"],
  4013: ["silent", "later"],
  4014: ["idle", "resume"],
  4015: ["bad_message", "never"],
  4016: ["bad_ack", "never"],
  4017: ["stalled", "resume"],
  4018: ["backlog", "resume"],
  4019: ["replaced", "never"],
  4020: ["resume_unknown", "new"],
  4021: ["resume_expired", "new"],
  4022: ["world", "never"],
  4023: ["room_error", "later"],
  4024: ["room_hung", "later"],
  4025: ["room_closed", "new"],
};

/** Thrown for a malformed packet. */
export class PacketError extends Error {
  override name = "PacketError";
}

const FLAG_HASH = 1;
const FLAG_ACKS = 2;
const FLAG_SECTIONS = 4;
const STATE_HEADER_BYTES = 10;
const INPUT_HEADER_BYTES = 12;
const INPUT_SEEN_BYTES = 2;
const INPUT_SEEN_FLAG = 128;
/** The longest head of an input message. */
export const MAX_INPUT_HEADER_BYTES = INPUT_HEADER_BYTES + INPUT_SEEN_BYTES;
const RELIABLE_HEADER_BYTES = 7;

/** The fixed part of a state packet. */
export class StateHeader {
  seq = 0;
  epoch = 0;
  tick16 = 0;
  inputAck = 0;
  margin = MARGIN_NONE;
  hasAcks = false;
  ack = 0;
  acks = 0;
  hasHash = false;
  hash = 0;
}

/**
 * Splits a state packet: fills h and calls section for each feed's body, in order; bodies are views of msg. It throws a
 * PacketError for a malformed packet, and whatever section throws; the packet must then not be acked.
 */
export function parseState(msg: Uint8Array, h: StateHeader, section: (feed: number, body: Uint8Array) => void): void {
  const n = msg.length;
  if (n < STATE_HEADER_BYTES || msg[0] !== KIND_STATE || (msg[1]! & ~7) !== 0) throw new PacketError("malformed header");
  const flags = msg[1]!;
  h.hasHash = (flags & FLAG_HASH) !== 0;
  h.hasAcks = (flags & FLAG_ACKS) !== 0;
  h.seq = u16(msg, 2);
  h.epoch = msg[4]!;
  h.tick16 = u16(msg, 5);
  h.inputAck = u16(msg, 7);
  h.margin = (msg[9]! << 24) >> 24;
  h.ack = h.acks = h.hash = 0;
  let at = STATE_HEADER_BYTES;
  let end = n;
  if (h.hasAcks) {
    if (end - at < 6) throw new PacketError("ack history cut off");
    h.ack = u16(msg, at);
    h.acks = u32(msg, at + 2);
    at += 6;
  }
  if (h.hasHash) {
    if (end - at < 4) throw new PacketError("hash cut off");
    end -= 4;
    h.hash = u32(msg, end);
  }
  if ((flags & FLAG_SECTIONS) === 0) {
    if (at < end) section(0, msg.subarray(at, end));
    return;
  }
  for (let last = -1; at < end; ) {
    const id = msg[at++]!;
    let length = 0;
    for (let scale = 1; ; scale *= 128) {
      if (at >= end || scale > 2 ** 28) throw new PacketError("bad section length");
      const b = msg[at++]!;
      length += (b & 127) * scale;
      if (b < 128) break;
    }
    if (id <= last || length > end - at) throw new PacketError("bad section");
    last = id;
    section(id, msg.subarray(at, at + length));
    at += length;
  }
}

/** The fixed part of a reliable message. */
export class ReliableHeader {
  feed = 0;
  epoch = 0;
  tick = 0;
}

/** Splits a reliable message: fills h and returns the body, a view of msg. It throws a PacketError for a malformed one. */
export function parseReliable(msg: Uint8Array, h: ReliableHeader): Uint8Array {
  if (msg.length < RELIABLE_HEADER_BYTES || msg[0] !== KIND_RELIABLE) throw new PacketError("malformed reliable message");
  h.feed = msg[1]!;
  h.epoch = msg[2]!;
  h.tick = u32(msg, 3);
  return msg.subarray(RELIABLE_HEADER_BYTES);
}

/** The number nearest to ref whose low 16 bits are low. */
export function near16(ref: number, low: number): number {
  return ref + (((low - ref) << 16) >> 16);
}

/** Which state packets have been received: the newest, and a history of the 32 before it. */
export class Acks {
  newest = 0;
  history = 0;
  private any = false;

  /** Notes a packet. It returns false for one that was noted before or is too old to tell. */
  note(seq: number): boolean {
    if (!this.any) {
      this.any = true;
      this.newest = seq;
      this.history = 0;
      return true;
    }
    const ahead = ((seq - this.newest) << 16) >> 16;
    if (ahead > 0) {
      this.history = ahead > 32 ? 0 : (((ahead > 31 ? 0 : this.history << ahead) | (1 << (ahead - 1))) >>> 0);
      this.newest = seq;
      return true;
    }
    if (ahead === 0 || ahead < -32) return false;
    const bit = (1 << (-ahead - 1)) >>> 0;
    if ((this.history & bit) !== 0) return false;
    this.history = (this.history | bit) >>> 0;
    return true;
  }

  /** Reports whether note would return true; it changes nothing. */
  isNew(seq: number): boolean {
    if (!this.any) return true;
    const ahead = ((seq - this.newest) << 16) >> 16;
    return ahead > 0 || (ahead < 0 && ahead >= -32 && (this.history & (1 << (-ahead - 1))) === 0);
  }
}

/** Encodes an ack-only message. */
export function encodeAck(acks: Acks): Uint8Array<ArrayBuffer> {
  const b = new Uint8Array(7);
  b[0] = KIND_ACK;
  putAcks(b, acks);
  return b;
}

function putAcks(b: Uint8Array, acks: Acks): void {
  b[1] = acks.newest;
  b[2] = acks.newest >> 8;
  putU32(b, 3, acks.history);
}

/**
 * The encoding of a world's input: bools are bits, in order, of the leading ⌈bools/8⌉ bytes; the others follow in order,
 * little-endian. Values are kept as numbers, one per field in the welcome's order; a bool is 0 or 1.
 */
export class InputCodec {
  readonly fields: readonly InputField[];
  /** Bytes of one encoded input. */
  readonly size: number;
  private readonly at: number[] = [];
  private readonly index = new Map<string, number>();
  private readonly view = new DataView(new ArrayBuffer(4));

  constructor(fields: readonly InputField[]) {
    this.fields = fields;
    let bools = 0;
    for (const f of fields) if (f.kind === "bool") bools++;
    let bit = 0;
    let at = (bools + 7) >> 3;
    fields.forEach((f, i) => {
      this.index.set(f.name, i);
      if (f.kind === "bool") {
        this.at.push(bit++);
        return;
      }
      const w = WIDTHS[f.kind];
      if (w === undefined) throw new PacketError(`input field ${f.name} has unknown kind ${f.kind}`);
      this.at.push(at);
      at += w;
    });
    this.size = at;
  }

  /** The index of a field; -1: there is none of that name. */
  field(name: string): number {
    return this.index.get(name) ?? -1;
  }

  isBool(i: number): boolean {
    return this.fields[i]!.kind === "bool";
  }

  /** Encodes values into dst at offset. Integers are rounded and clamped; what is not a finite number is 0. */
  encode(values: ArrayLike<number>, dst: Uint8Array, offset: number): void {
    dst.fill(0, offset, offset + this.size);
    for (let i = 0; i < this.fields.length; i++) {
      const kind = this.fields[i]!.kind;
      let v = values[i]!;
      if (!Number.isFinite(v)) v = 0;
      const at = this.at[i]!;
      if (kind === "bool") {
        if (v !== 0) dst[offset + (at >> 3)]! |= 1 << (at & 7);
        continue;
      }
      if (kind === "f32") {
        this.view.setFloat32(0, Math.max(-3.4028234663852886e38, Math.min(3.4028234663852886e38, v)), true);
        v = this.view.getUint32(0, true);
      } else {
        const bits = WIDTHS[kind]! * 8;
        const signed = kind.charCodeAt(0) === 105; // i
        const max = 2 ** (signed ? bits - 1 : bits) - 1;
        v = Math.max(signed ? -max - 1 : 0, Math.min(max, Math.round(v)));
      }
      for (let b = 0, w = WIDTHS[kind]!; b < w; b++) dst[offset + at + b] = v >>> (8 * b);
    }
  }

  /** Reads what encode wrote: the values as the server gets them. */
  decode(src: Uint8Array, offset: number, out: Float64Array): void {
    for (let i = 0; i < this.fields.length; i++) {
      const kind = this.fields[i]!.kind;
      const at = offset + this.at[i]!;
      if (kind === "bool") {
        out[i] = (src[offset + (this.at[i]! >> 3)]! >> (this.at[i]! & 7)) & 1;
        continue;
      }
      let v = 0;
      const w = WIDTHS[kind]!;
      for (let b = 0; b < w; b++) v |= src[at + b]! << (8 * b);
      if (kind === "f32") {
        this.view.setInt32(0, v, true);
        out[i] = this.view.getFloat32(0, true);
      } else {
        const spare = 32 - 8 * w;
        out[i] = kind.charCodeAt(0) === 105 ? (v << spare) >> spare : v >>> 0;
      }
    }
  }
}

const WIDTHS: Readonly<Record<string, number>> = { i8: 1, u8: 1, i16: 2, u16: 2, i32: 4, u32: 4, f32: 4 };

/**
 * Encodes the head of an input message into b; count encoded inputs, newest first, follow at the offset it returns. seen: how long before
 * its step each input's player saw what he acted on, in 1/16 steps, 0: unknown; -1: the server does not ask.
 */
export function putInputHeader(b: Uint8Array, acks: Acks, count: number, label: number, seen = -1): number {
  b[0] = KIND_INPUT;
  putAcks(b, acks);
  b[7] = count;
  putU32(b, 8, label);
  if (seen < 0) return INPUT_HEADER_BYTES;
  b[7] = count | INPUT_SEEN_FLAG;
  b[12] = seen;
  b[13] = seen >> 8;
  return INPUT_HEADER_BYTES + INPUT_SEEN_BYTES;
}

const REPORT_BYTES = 36;

/** What a page tells the server of the motion it showed. */
export interface Report {
  /** Stutters, by what made them. */
  server: number;
  network: number;
  page: number;
  spanMs: number;
  frames: number;
  frameP99Ms: number;
  frameMaxMs: number;
  longTasks: number;
  pingMs: number;
  stateAgeMs: number;
  bufferMs: number;
  underruns: number;
  jumps: number;
  rollbacks: number;
  unreadable: number;
  baseless: number;
  starved: number;
  joltP99: number;
}

/** A report that says nothing yet. */
export function newReport(): Report {
  return {
    server: 0, network: 0, page: 0, spanMs: 0, frames: 0, frameP99Ms: 0, frameMaxMs: 0, longTasks: 0, pingMs: 0, stateAgeMs: 0, bufferMs: 0, underruns: 0,
    jumps: 0, rollbacks: 0, unreadable: 0, baseless: 0, starved: 0, joltP99: 0,
  };
}

const NOTHING = newReport();

export function clearReport(r: Report): void {
  Object.assign(r, NOTHING);
}

/** Encodes a report. What is too large for it is sent as the largest, and what is no number as 0. */
export function encodeReport(r: Report): Uint8Array<ArrayBuffer> {
  const b = new Uint8Array(REPORT_BYTES);
  const view = new DataView(b.buffer);
  b[0] = KIND_REPORT;
  const count = (v: number, most: number): number => (v > 0 ? Math.min(most, Math.round(v)) : 0);
  b[1] = count(r.server, 255);
  b[2] = count(r.network, 255);
  b[3] = count(r.page, 255);
  let at = 4;
  const put = (v: number): void => {
    view.setUint16(at, count(v, 65535), true);
    at += 2;
  };
  put(r.spanMs);
  put(r.frames);
  put(8 * r.frameP99Ms);
  put(8 * r.frameMaxMs);
  put(r.longTasks);
  put(8 * r.pingMs);
  put(8 * r.stateAgeMs);
  put(8 * r.bufferMs);
  put(r.underruns);
  put(r.jumps);
  put(r.rollbacks);
  put(r.unreadable);
  put(r.baseless);
  put(r.starved);
  view.setFloat32(at, r.joltP99 > 0 ? Math.min(1e9, r.joltP99) : 0, true);
  return b;
}

const text = new TextEncoder();

/** Encodes a message of one kind byte and JSON. */
export function encodeJSON(kind: number, value: unknown): Uint8Array<ArrayBuffer> {
  const json = text.encode(JSON.stringify(value));
  const b = new Uint8Array(json.length + 1);
  b[0] = kind;
  b.set(json, 1);
  return b;
}

/** Reads the JSON of a message of one kind byte and JSON. It throws a PacketError if it is none. */
export function decodeJSON(msg: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(msg.subarray(1)));
  } catch {
    throw new PacketError("malformed JSON");
  }
}

/** Reads a welcome. It throws a PacketError for one that this client cannot use. */
export function decodeWelcome(msg: Uint8Array): Welcome {
  const w = decodeJSON(msg) as Welcome | null;
  if (
    typeof w !== "object" || w === null || w.protocol !== PROTOCOL_VERSION || typeof w.token !== "string" ||
    !isCount(w.seat) || !isCount(w.tick) || !isCount(w.hz) || !isCount(w.sendHz) || !isCount(w.graceMs) || !isCount(w.epoch)
  ) {
    throw new PacketError("unusable welcome");
  }
  w.inputs ??= [];
  w.feeds ??= [];
  return w;
}

/** Reads a goodbye; fields that are missing or wrong get harmless values. */
export function decodeGoodbye(msg: Uint8Array): Goodbye {
  let g: Partial<Goodbye> = {};
  try {
    g = (decodeJSON(msg) as Partial<Goodbye> | null) ?? {};
  } catch {
    // The close code that follows still tells the reason.
  }
  const code = isCount(g.code) ? g.code : 1006;
  const known = REASONS[code];
  const retry = g.retry;
  return {
    reason: typeof g.reason === "string" ? g.reason : (known?.[0] ?? "link_lost"),
    code,
    text: typeof g.text === "string" && g.text !== "" ? g.text : "The server closed the connection.",
    retry: retry === "never" || retry === "new" || retry === "resume" || retry === "later" ? retry : (known?.[1] ?? "resume"),
    retryMs: isCount(g.retryMs) ? Math.min(g.retryMs, 300_000) : 0,
  };
}

function isCount(v: unknown): v is number {
  return typeof v === "number" && Number.isFinite(v) && v >= 0;
}

function u16(b: Uint8Array, at: number): number {
  return b[at]! | (b[at + 1]! << 8);
}

function u32(b: Uint8Array, at: number): number {
  return (b[at]! | (b[at + 1]! << 8) | (b[at + 2]! << 16) | (b[at + 3]! << 24)) >>> 0;
}

function putU32(b: Uint8Array, at: number, v: number): void {
  b[at] = v;
  b[at + 1] = v >>> 8;
  b[at + 2] = v >>> 16;
  b[at + 3] = v >>> 24;
}
