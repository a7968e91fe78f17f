// A browser page without a browser: virtual time, sockets that the test answers, storage.

import type { Env, PageChange, SocketLike, StorageLike } from "../src/env.ts";
import { type Goodbye, type Hello, KIND_HELLO, KIND_REFUSE, KIND_WELCOME, PROTOCOL_VERSION, type Welcome, encodeJSON } from "../src/packet.ts";

export class FakeSocket implements SocketLike {
  binaryType = "";
  bufferedAmount = 0;
  onopen: ((e: unknown) => void) | null = null;
  onmessage: ((e: unknown) => void) | null = null;
  onclose: ((e: unknown) => void) | null = null;
  onerror: ((e: unknown) => void) | null = null;
  readonly url: string;
  readonly sent: Uint8Array[] = [];
  closedWith: number | undefined;

  constructor(url: string) {
    this.url = url;
  }

  send(data: Uint8Array<ArrayBuffer>): void {
    this.sent.push(data.slice());
  }

  close(code?: number): void {
    this.closedWith ??= code ?? 1005;
  }

  // The server's side.

  open(): void {
    this.onopen?.({});
  }

  deliver(msg: Uint8Array): void {
    this.onmessage?.({ data: msg.slice().buffer });
  }

  end(code = 1006, reason = ""): void {
    this.onclose?.({ code, reason });
  }

  welcome(w: Partial<Welcome> = {}): void {
    this.open();
    this.deliver(encodeJSON(KIND_WELCOME, { ...WELCOME, ...w }));
  }

  refuse(g: Partial<Goodbye>): void {
    this.deliver(encodeJSON(KIND_REFUSE, { reason: "room_full", code: 4010, text: "This room is full.", retry: "later", retryMs: 0, ...g }));
  }

  get hello(): Hello {
    const m = this.sent[0];
    if (m === undefined || m[0] !== KIND_HELLO) throw new Error("no hello");
    return JSON.parse(new TextDecoder().decode(m.subarray(1))) as Hello;
  }

  of(kind: number): Uint8Array[] {
    return this.sent.filter((m) => m[0] === kind);
  }
}

export const WELCOME: Welcome = {
  protocol: PROTOCOL_VERSION, world: "dots", room: "r1", seat: 3, name: "Ann", token: "secret", resumed: false, epoch: 1, tick: 1000, hz: 60, sendHz: 20,
  graceMs: 30_000, ordered: true, verify: false, tickZeroUs: 0,
  inputs: [{ name: "fire", kind: "bool" }, { name: "dx", kind: "i8" }], feeds: [],
};

export class FakeStorage implements StorageLike {
  readonly items = new Map<string, string>();
  getItem(k: string): string | null {
    return this.items.get(k) ?? null;
  }
  setItem(k: string, v: string): void {
    this.items.set(k, v);
  }
  removeItem(k: string): void {
    this.items.delete(k);
  }
}

export class FakePage implements Env {
  time = 1000;
  isHidden = false;
  readonly sockets: FakeSocket[] = [];
  storage: StorageLike | null = new FakeStorage();
  private timers: { at: number; id: number; f: () => void }[] = [];
  private ids = 0;
  private readonly watchers = new Set<(c: PageChange) => void>();

  now(): number {
    return this.time;
  }
  wall(): number {
    return 1.7e12 + this.time;
  }
  random(): number {
    return 1;
  }
  setTimeout(f: () => void, ms: number): unknown {
    this.timers.push({ at: this.time + Math.max(0, ms), id: ++this.ids, f });
    return this.ids;
  }
  clearTimeout(id: unknown): void {
    this.timers = this.timers.filter((t) => t.id !== id);
  }
  socket(url: string): SocketLike {
    const s = new FakeSocket(url);
    this.sockets.push(s);
    return s;
  }
  hidden(): boolean {
    return this.isHidden;
  }
  onPage(f: (c: PageChange) => void): () => void {
    this.watchers.add(f);
    return () => this.watchers.delete(f);
  }

  get last(): FakeSocket {
    return this.sockets[this.sockets.length - 1]!;
  }
  get openTimers(): number {
    return this.timers.length;
  }
  get openWatchers(): number {
    return this.watchers.size;
  }

  page(c: PageChange): void {
    if (c === "hidden" || c === "visible") this.isHidden = c === "hidden";
    for (const f of this.watchers) f(c);
  }

  /** Lets ms pass; timers run in order. */
  run(ms: number, each?: (now: number) => void): void {
    const end = this.time + ms;
    for (;;) {
      this.timers.sort((a, b) => a.at - b.at || a.id - b.id);
      const next = this.timers[0];
      if (next === undefined || next.at > end) break;
      this.timers.shift();
      this.time = Math.max(this.time, next.at);
      next.f();
      each?.(this.time);
    }
    this.time = end;
  }
}
