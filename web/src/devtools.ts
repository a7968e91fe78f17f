// What a developer may do to a page's link, and take from it: a worse network than there is, from a seed, and a recording of what came. It
// wraps the socket, so that everything above is as it would be with such a network.

import type { Env, SocketLike } from "./env.ts";
import { KIND_STATE } from "./packet.ts";

/** A packet that an ordered link loses is sent again after the latency and this; what follows it waits. */
const RESEND_MS = 60;

export class DevNetwork {
  /** Added to the round trip, half of it each way. */
  latencyMs = 0;
  /** Each message is later by up to this, evenly spread, on an unordered link out of order. */
  jitterMs = 0;
  /** State packets lost, in percent. An ordered link loses nothing: there they, and all behind them, come later by a resend. */
  lossPct = 0;
  /** Kilobits a second from the server; 0: as many as there are. */
  kbitPerSec = 0;
  /** Messages that met a loss. */
  lost = 0;
  /** The link keeps its order; null: not known, which is taken as yes. */
  ordered: (() => boolean) | null = null;
  private seed: number;

  constructor(seed: number) {
    this.seed = seed >>> 0;
  }

  /** An environment whose sockets meet this network. */
  wrap(env: Env): Env {
    return { ...bound(env), socket: (url) => new DevSocket(env, env.socket(url), this) };
  }

  /** @internal */
  random(): number {
    return (this.seed = (Math.imul(this.seed, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  }
}

// An environment's methods may need their own object.
function bound(env: Env): Env {
  return {
    now: () => env.now(), wall: () => env.wall(), random: () => env.random(), setTimeout: (f, ms) => env.setTimeout(f, ms),
    clearTimeout: (t) => env.clearTimeout(t), socket: (url) => env.socket(url), storage: env.storage, hidden: () => env.hidden(),
    onPage: (f) => env.onPage(f), longTasks: (f) => env.longTasks?.(f) ?? (() => undefined),
  };
}

class DevSocket implements SocketLike {
  onopen: ((e: any) => void) | null = null;
  onmessage: ((e: any) => void) | null = null;
  onclose: ((e: any) => void) | null = null;
  onerror: ((e: any) => void) | null = null;
  private readonly env: Env;
  private readonly socket: SocketLike;
  private readonly net: DevNetwork;
  private readonly timers = new Set<unknown>();
  // Timers are rounded, and may overtake each other: whichever goes off takes the first of its way.
  private readonly comes: (() => void)[] = [];
  private readonly goes: (() => void)[] = [];
  private inAt = 0; // when the newest message to come in, in order, does
  private outAt = 0;
  private lineFreeAt = 0;
  private waiting = 0; // bytes on their way out

  constructor(env: Env, socket: SocketLike, net: DevNetwork) {
    this.env = env;
    this.socket = socket;
    this.net = net;
    socket.onopen = (e) => this.onopen?.(e);
    socket.onmessage = (e: { data: unknown }) => this.message(e);
    socket.onerror = (e) => this.onerror?.(e);
    // After all that came before it.
    socket.onclose = (e) => this.later(this.inAt, this.comes, () => this.onclose?.(e));
  }

  get binaryType(): string {
    return this.socket.binaryType;
  }
  set binaryType(t: string) {
    this.socket.binaryType = t;
  }

  get bufferedAmount(): number {
    return this.socket.bufferedAmount + this.waiting;
  }

  send(data: Uint8Array<ArrayBuffer>): void {
    const { net } = this;
    const at = Math.max(this.outAt, this.env.now() + net.latencyMs / 2 + net.jitterMs * net.random());
    this.outAt = at;
    if (at <= this.env.now() && this.waiting === 0) {
      this.socket.send(data);
      return;
    }
    const copy = data.slice();
    this.waiting += copy.length;
    this.later(at, this.goes, () => {
      this.waiting -= copy.length;
      this.socket.send(copy);
    });
  }

  close(code?: number, reason?: string): void {
    for (const t of this.timers) this.env.clearTimeout(t);
    this.timers.clear();
    this.socket.onopen = this.socket.onmessage = this.socket.onclose = this.socket.onerror = null;
    this.socket.close(code, reason);
  }

  private message(e: { data: unknown }): void {
    const { net } = this;
    const now = this.env.now();
    const bytes = e.data instanceof ArrayBuffer ? e.data.byteLength : 0;
    const state = e.data instanceof ArrayBuffer && bytes > 0 && new Uint8Array(e.data, 0, 1)[0] === KIND_STATE;
    const free = state && net.ordered !== null && !net.ordered();
    let at = now;
    if (net.kbitPerSec > 0) at = this.lineFreeAt = Math.max(now, this.lineFreeAt) + (bytes * 8) / net.kbitPerSec;
    at += net.latencyMs / 2 + net.jitterMs * net.random();
    if (state && net.random() * 100 < net.lossPct) {
      net.lost++;
      if (free) return;
      at += net.latencyMs + RESEND_MS;
    }
    if (!free) {
      at = Math.max(at, this.inAt);
      this.inAt = at;
    }
    if (at <= now && this.comes.length === 0) this.onmessage?.(e);
    else this.later(at, free ? [] : this.comes, () => this.onmessage?.(e));
  }

  private later(at: number, way: (() => void)[], f: () => void): void {
    way.push(f);
    const t = this.env.setTimeout(() => {
      this.timers.delete(t);
      way.shift()!();
    }, Math.max(0, at - this.env.now()));
    this.timers.add(t);
  }
}

/** How much a recording holds: the newest of both. */
const RECORD_MS = 20_000;
const RECORD_BYTES = 4 << 20;

/**
 * The last seconds of what came over a link. As a file: a line of JSON about the room, then for each message { f64 ms since the first, u32
 * length, bytes }, little-endian.
 */
export class Recording {
  private readonly messages: { at: number; bytes: Uint8Array<ArrayBuffer> }[] = [];
  private size = 0;

  add(msg: Uint8Array, now: number): void {
    this.messages.push({ at: now, bytes: new Uint8Array(msg) });
    this.size += msg.length;
    let drop = 0;
    while (drop < this.messages.length - 1 && (this.size > RECORD_BYTES || now - this.messages[drop]!.at > RECORD_MS)) this.size -= this.messages[drop++]!.bytes.length;
    if (drop > 0) this.messages.splice(0, drop);
  }

  get count(): number {
    return this.messages.length;
  }

  get seconds(): number {
    const n = this.messages.length;
    return n === 0 ? 0 : (this.messages[n - 1]!.at - this.messages[0]!.at) / 1000;
  }

  /** The file; about must be without what lets others in, such as the token. */
  file(about: object): Uint8Array<ArrayBuffer> {
    const head = new TextEncoder().encode(JSON.stringify({ format: "drumline packets 1", ...about }) + "\n");
    const b = new Uint8Array(head.length + this.size + 12 * this.messages.length);
    const view = new DataView(b.buffer);
    b.set(head);
    let at = head.length;
    for (const m of this.messages) {
      view.setFloat64(at, m.at - this.messages[0]!.at, true);
      view.setUint32(at + 8, m.bytes.length, true);
      b.set(m.bytes, at + 12);
      at += 12 + m.bytes.length;
    }
    return b;
  }
}
