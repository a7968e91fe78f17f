// A seat in a room: joining, coming back, sending inputs, and what is shown.

import { Arrivals, InputClock, RenderClock } from "./clock.ts";
import { type Env, type PageChange, browserEnv, socketURL } from "./env.ts";
import { Link, lost, unreachable } from "./link.ts";
import {
  Acks, type Goodbye, type Hello, InputCodec, KIND_COMMAND, KIND_HELLO, KIND_LEAVE, KIND_STATE, KIND_WELCOME, MARGIN_NONE,
  MAX_COMMAND_BYTES, MAX_INPUTS, PROTOCOL_VERSION, type Retry, StateHeader, type Welcome, decodeWelcome, encodeAck, encodeJSON, near16,
  parseState,
} from "./packet.ts";
import { Sampler } from "./sampler.ts";
import { DecodeError, SnapDecoder } from "./snap.ts";
import { type Entity, type EntityKind, Timeline } from "./timeline.ts";

/** A try to connect, from the first packet to the welcome, may take this long. */
const CONNECT_MS = 5000;
/** A room with a beat says something at least once a second; after this long without a word the link is lost. */
const SILENT_MS = 5000;
/** Pauses between tries to come back: from the first, doubled, to the last. */
const BACKOFF_MS = 200;
const MAX_BACKOFF_MS = 3000;
/** Input messages a second, and the inputs in each of them on an ordered link, the newest ones again included. */
const SENDS_PER_SEC = 20;
const REPEAT = 3;
const REPEAT_UNORDERED = 4;
/** Time between acks while no input runs. */
const ACK_MS = 250;
/** A link that has this many bytes waiting takes no more inputs: they would be late. */
const MAX_WAITING_BYTES = 16 << 10;

/** What a page knows of its world's data: its entity types, event types and input. All optional. */
export interface Shape {
  entities: object;
  events: object;
  input: object;
}

/** The shape of a world that the page has not described. */
export interface AnyShape {
  entities: Record<string, Record<string, any>>;
  events: Record<string, Record<string, any>>;
  input: Record<string, number | boolean>;
}

export interface JoinOptions {
  world: string;
  /** The room to join, opened if need be. Empty: any with a free seat, else a new one. */
  room?: string;
  /** The player's name. Empty: the server makes one. */
  name?: string;
  /** The server's address, http(s) or ws(s). Empty: the one that served the page. */
  url?: string;
  /** Come back to the seat that this tab had before a reload. Default true. */
  resume?: boolean;
  /** Ask for a hash in each packet and count mismatches; only laboratory servers grant it. */
  verify?: boolean;
  /** For tests. */
  env?: Env;
}

/** Why a player was not let in, or may not stay. */
export class Refused extends Error {
  override name = "Refused";
  /** Such as "room_full"; docs/protocol.md lists them. "unreachable": there was no server. */
  readonly reason: string;
  readonly code: number;
  /** For the player. */
  readonly text: string;
  /** What may help: nothing, joining as a new player, coming back with the token, or waiting. */
  readonly retry: Retry;
  /** The least pause before the next try. */
  readonly retryMs: number;

  constructor(g: Goodbye) {
    super(`${g.reason}: ${g.text}`);
    this.reason = g.reason;
    this.code = g.code;
    this.text = g.text;
    this.retry = g.retry;
    this.retryMs = g.retryMs;
  }
}

/** joining: no seat yet. live: playing. reconnecting: the link is lost, the seat waits. closed: it is over. */
export type RoomState = "joining" | "live" | "reconnecting" | "closed";

export interface StateInfo {
  /** What happened to the last link; null at first. */
  why: Refused | null;
  /** live: the seat is the one from before. */
  resumed: boolean;
  /** reconnecting: tries so far, ms to the next one (0: it is running), ms until the seat is given up. */
  attempt: number;
  retryInMs: number;
  graceLeftMs: number;
}

/** What is shown at one moment. The object and its arrays are the same each time; read them, do not keep them. */
export interface View<S extends Shape = AnyShape> {
  /** The tick shown, with fraction. */
  readonly tick: number;
  /** All entities shown, in the order in which they came. */
  readonly entities: readonly Entity[];
  /** The entity that the own seat plays, if it is shown. */
  readonly own: Entity | null;
  /** All entities of one type. */
  all<K extends keyof S["entities"] & string>(type: K): readonly (S["entities"][K] & Entity)[];
  /** The entity of an id, if it is shown. */
  get(id: number): Entity | undefined;
}

/** How well the connection does. */
export interface Quality {
  /** Round trip of an input, 0 while none is known. */
  readonly rttMs: number;
  /** Age of what is shown against the server's present. */
  readonly stateAgeMs: number;
  readonly bytesPerSec: number;
  readonly packetsPerSec: number;
  /** How far the shown state lies behind the newest, on purpose. */
  readonly bufferMs: number;
  /** Steps by which the newest input was early; negative: late. */
  readonly inputMargin: number;
  /** Packets that could not be read, and packets whose hash was wrong (in lab rooms). */
  readonly decodeErrors: number;
  readonly mismatches: number;
  /** Links made after the first. */
  readonly reconnects: number;
  /** Events that were not played: too old after a pause, or too many. */
  readonly eventsDropped: number;
}

type Handler = (...args: any[]) => void;

const NOT_UNDERSTOOD: Goodbye = { reason: "version", code: 4003, text: "This page is older or newer than the server. Reload it.", retry: "never", retryMs: 0 };

/** Joins a world. It throws Refused when the player is not let in or the server cannot be reached. */
export async function join<S extends Shape = AnyShape>(options: JoinOptions): Promise<Room<S>> {
  const room = new Room<S>(options);
  await room.$start();
  return room;
}

/** One seat's connection to a room. It is made by {@link join}. */
export class Room<S extends Shape = AnyShape> {
  readonly world: string;
  /** What the server said when it let us in. */
  welcome!: Welcome;

  private readonly options: JoinOptions;
  private readonly env: Env;
  private readonly url: string;
  private link: Link | null = null;
  private current: RoomState = "joining";
  private readonly lastInfo: StateInfo = { why: null, resumed: false, attempt: 0, retryInMs: 0, graceLeftMs: 0 };
  private token = "";
  private savedRoom = "";
  private savedCursors: number[] = [];
  private settle: { resolve(): void; reject(e: Refused): void } | null = null;
  private unwatch: (() => void) | null = null;

  // One link.
  private linkTimer: unknown = null; // connecting: the limit; live: silence
  private retryTimer: unknown = null;
  private retryAt = 0;
  private lostAt = 0;
  private attempt = 0;
  private acks = new Acks();
  private acked = 0;
  private heardAt = 0;
  private helloAt = 0;
  private readonly header = new StateHeader();

  // One epoch of one room.
  private arrivals = new Arrivals(0);
  private clock = new RenderClock(this.arrivals, 20, true);
  private timeline: Timeline | null = null;
  private decoders: (SnapDecoder | null)[] = [];
  private snap: SnapDecoder | null = null; // the first of them
  private schema = "";
  private epoch = 0;
  private newest = -1; // tick; -1: none in this epoch
  private readonly at = { seq: 0, epoch: 0, tick: 0, ack: 0, acks: 0 }; // the packet being read
  private begun = false;
  private old = false;
  private rendered = 0;

  // Inputs.
  private sampler: Sampler | null = null;
  private inputClock = new InputClock(this.arrivals, 0, 1);
  private wanted = false; // the page gives inputs
  private dirty = false; // without a beat: a change waits for its turn
  private sendTimer: unknown = null;
  private sentAt = -Infinity;
  private readonly sentLabels = new Float64Array(256);
  private readonly sentTimes = new Float64Array(256);
  private lastInputAck = -1;

  // Handlers of the page.
  private readonly stateHandlers = new Set<(state: RoomState, info: StateInfo) => void>();
  private readonly enterHandlers = new Map<string, Set<Handler>>();
  private readonly leaveHandlers = new Map<string, Set<Handler>>();
  private readonly eventHandlers = new Map<string, Set<Handler>>();

  // Figures.
  private readonly rtts = new Float64Array(16);
  private rttCount = 0;
  private margin = MARGIN_NONE;
  private windowAt = 0;
  private bytes = 0;
  private packets = 0;
  private bytesRate = 0;
  private packetsRate = 0;
  private decodeErrors = 0;
  private badInRow = 0;
  private mismatches = 0;
  private reconnects = 0;
  private readonly shown: View<S>;
  /** How well the connection does; always the same object. */
  readonly quality: Quality;

  /** @internal Use {@link join}. */
  constructor(options: JoinOptions) {
    this.options = options;
    this.world = options.world;
    this.env = options.env ?? browserEnv();
    this.url = socketURL(options.url ?? "");
    const room = this;
    this.shown = {
      get tick() { return room.rendered; },
      get entities() { return room.entities; },
      get own() { return room.ownEntity; },
      all: (type) => room.all(type),
      get: (id) => room.timeline?.get(id),
    };
    this.quality = {
      get rttMs() { return room.rtt(); },
      get stateAgeMs() { return room.arrivals.count === 0 ? 0 : Math.max(0, room.clock.behind(room.env.now()) + room.rtt() / 2); },
      get bytesPerSec() { return room.rate(room.bytesRate); },
      get packetsPerSec() { return room.rate(room.packetsRate); },
      get bufferMs() { return room.clock.delay; },
      get inputMargin() { return room.margin; },
      get decodeErrors() { return room.decodeErrors; },
      get mismatches() { return room.mismatches; },
      get reconnects() { return room.reconnects; },
      get eventsDropped() { return room.timeline?.eventsDropped ?? 0; },
    };
  }

  /** The own seat's number in the room. */
  get me(): number {
    return this.welcome.seat;
  }

  /** The room's name. */
  get name(): string {
    return this.welcome.room;
  }

  /** The own player's name, as the server cleaned it. */
  get player(): string {
    return this.welcome.name;
  }

  get state(): RoomState {
    return this.current;
  }

  /** What there is to know about the state, as of now. */
  get info(): StateInfo {
    const now = this.env.now();
    const i = this.lastInfo;
    i.attempt = this.attempt;
    i.retryInMs = this.current === "reconnecting" && this.link === null ? Math.max(0, this.retryAt - now) : 0;
    i.graceLeftMs = this.current === "reconnecting" ? Math.max(0, this.deadline() - now) : 0;
    return i;
  }

  /** All entities shown, as of the last view. */
  get entities(): readonly Entity[] {
    return this.timeline?.entities ?? [];
  }

  /** The entity that the own seat plays, if it is shown. */
  get ownEntity(): Entity | null {
    const t = this.timeline;
    return t === null || t.ownID === 0 ? null : (t.get(t.ownID) ?? null);
  }

  /** All entities of one type, as of the last view. It throws for a type that the world does not have. */
  all<K extends keyof S["entities"] & string>(type: K): readonly (S["entities"][K] & Entity)[] {
    return this.kind(type).live as (S["entities"][K] & Entity)[];
  }

  private kind(type: string): EntityKind {
    const k = this.timeline?.kind(type);
    if (k === undefined) throw new Error(`drumline: no entity type "${type}"; there are: ${this.timeline?.kinds.map((t) => t.name).join(", ") ?? "none"}`);
    return k;
  }

  /** Calls f when the room goes live, loses its link or closes. It returns what ends that. */
  onState(f: (state: RoomState, info: StateInfo) => void): () => void {
    return add(this.stateHandlers, f);
  }

  /** Calls f for each entity of a type that comes to be shown, those that are shown already at once. It returns what ends that. */
  onEnter<K extends keyof S["entities"] & string>(type: K, f: (e: S["entities"][K] & Entity) => void): () => void {
    for (const e of this.kind(type).live) guard(f, e as S["entities"][K] & Entity);
    return addTo(this.enterHandlers, type, f);
  }

  /** Calls f for each entity of a type that is shown no more; it still has its last values. It returns what ends that. */
  onLeave<K extends keyof S["entities"] & string>(type: K, f: (e: S["entities"][K] & Entity) => void): () => void {
    this.kind(type);
    return addTo(this.leaveHandlers, type, f);
  }

  /**
   * Calls f for each event of a name when the render clock passes its tick, after the entities were moved there. The event is
   * valid during the call. It returns what ends that.
   */
  onEvent<K extends keyof S["events"] & string>(name: K, f: (event: S["events"][K], tick: number) => void): () => void {
    if (!this.timeline?.hasEvent(name)) throw new Error(`drumline: no event "${name}"`);
    return addTo(this.eventHandlers, name, f);
  }

  /** Moves what is shown to now (default: the present; a timestamp of requestAnimationFrame will do) and plays what is due. */
  view(now: number = this.env.now()): View<S> {
    if (this.timeline !== null) this.rendered = this.timeline.advance(now);
    this.pump(this.env.now());
    return this.shown;
  }

  /** Calls draw on each animation frame, with ms since the frame before. It returns what ends that. */
  frame(draw: (view: View<S>, now: number, dtMs: number) => void): () => void {
    let last = -1;
    let id = 0;
    const loop = (now: number): void => {
      id = requestAnimationFrame(loop);
      const dt = last < 0 ? 0 : now - last;
      last = now;
      draw(this.view(now), now, dt);
    };
    id = requestAnimationFrame(loop);
    return () => cancelAnimationFrame(id);
  }

  /**
   * Sets fields of the current input; the others stay as they are. The library samples it for each step and sends it. It throws
   * for a field that the world's input does not have.
   */
  input(fields: Partial<S["input"]>): void {
    const s = this.sampler;
    if (s === null || this.current === "closed") return;
    const now = this.env.now();
    const running = this.running();
    // What was held until now belongs to the steps until now.
    if (running) s.sampleTo(this.inputClock.label(now));
    let changed = !this.wanted;
    this.wanted = true;
    for (const name in fields) {
      const i = s.codec.field(name);
      if (i < 0) throw new Error(`drumline: no input field "${name}"; there are: ${s.codec.fields.map((f) => f.name).join(", ")}`);
      if (s.set(i, Number((fields as Record<string, number | boolean>)[name]))) changed = true;
    }
    if (changed && this.welcome.hz === 0) this.pumpNoBeat(now, true);
    else if (!running) this.startSending();
  }

  /**
   * Sends a command to the world, at most 4,096 bytes. It returns false if it was not sent because the link is lost; one sent
   * just before a loss may not have arrived.
   */
  command(bytes: Uint8Array): boolean {
    if (bytes.length > MAX_COMMAND_BYTES) throw new RangeError(`drumline: a command of ${bytes.length} bytes, at most ${MAX_COMMAND_BYTES}`);
    if (this.current !== "live" || this.link === null) return false;
    const b = new Uint8Array(bytes.length + 1);
    b[0] = KIND_COMMAND;
    b.set(bytes, 1);
    this.link.send(b);
    return true;
  }

  /** Tries to come back now instead of waiting for the next try. */
  retryNow(): void {
    if (this.current === "reconnecting" && this.link === null) this.connect();
  }

  /** Gives up the seat and closes. */
  leave(): void {
    if (this.current === "closed") return;
    this.link?.send(new Uint8Array([KIND_LEAVE]));
    this.link?.leave();
    this.link = null;
    this.forget();
    this.close({ reason: "left", code: 1000, text: "You left.", retry: "new", retryMs: 0 });
  }

  // Links.

  /** @internal */
  $start(): Promise<void> {
    this.load();
    this.unwatch = this.env.onPage((change) => this.page(change));
    return new Promise((resolve, reject) => {
      this.settle = { resolve, reject };
      this.connect();
    });
  }

  private connect(): void {
    this.env.clearTimeout(this.retryTimer);
    this.retryTimer = null;
    this.attempt++;
    this.helloAt = this.env.now();
    const handler = {
      open: () => this.hello(),
      message: (msg: Uint8Array) => this.message(msg),
      closed: (why: Goodbye) => this.ended(why),
    };
    // In this order: the socket may be refused before it returns.
    this.linkTimer = this.env.setTimeout(() => this.link?.drop({ ...unreachable(), reason: "timeout", text: "The server does not answer." }), CONNECT_MS);
    try {
      this.link = new Link(this.env, this.url, handler);
    } catch {
      this.ended({ ...unreachable(), retry: "never", retryMs: 0 });
      return;
    }
    if (this.current === "reconnecting") this.tell();
  }

  private hello(): void {
    this.helloAt = this.env.now();
    const h: Hello = { protocol: PROTOCOL_VERSION, world: this.world };
    const room = this.token !== "" ? this.savedRoom : this.options.room;
    if (room) h.room = room;
    if (this.options.name) h.name = this.options.name;
    if (this.options.verify) h.verify = true;
    if (this.token !== "") {
      h.token = this.token;
      h.cursors = this.cursors();
    }
    this.link!.send(encodeJSON(KIND_HELLO, h));
  }

  private cursors(): number[] {
    return this.decoders.length === 0 ? this.savedCursors : this.decoders.map((d) => d?.cursor() ?? 0);
  }

  private message(msg: Uint8Array): void {
    const now = this.env.now();
    this.heardAt = now;
    if (this.current === "live") {
      if (msg[0] === KIND_STATE) this.statePacket(msg, now);
    } else if (msg[0] === KIND_WELCOME) {
      let w: Welcome;
      try {
        w = decodeWelcome(msg);
        this.setUp(w, now);
      } catch {
        this.link!.drop(NOT_UNDERSTOOD);
        return;
      }
      this.live(w);
    }
  }

  private setUp(w: Welcome, now: number): void {
    const schema = JSON.stringify([w.hz, w.sendHz, w.ordered, w.inputs, w.feeds]);
    const again = w.resumed && schema === this.schema && this.timeline !== null;
    const rtt = now - this.helloAt;
    if (again) {
      if (w.epoch !== this.epoch) this.newEpoch(w.epoch);
    } else {
      const codec = new InputCodec(w.inputs);
      const tickMs = w.hz > 0 ? 1000 / w.hz : 0;
      const decoders: (SnapDecoder | null)[] = w.feeds.map((f) => (f.kind === "snap" ? new SnapDecoder(f.schema) : null));
      const snap = decoders.find((d) => d !== null) ?? null;
      this.timeline?.clear();
      this.arrivals = new Arrivals(tickMs);
      this.clock = new RenderClock(this.arrivals, w.sendHz, w.ordered);
      this.timeline = new Timeline(snap?.types ?? [], snap?.events ?? [], this.clock, tickMs, {
        enter: (e) => this.fire(this.enterHandlers, e.type, e),
        leave: (e) => this.fire(this.leaveHandlers, e.type, e),
        event: (name, values, tick) => this.fire(this.eventHandlers, name, values, tick),
      });
      if (snap !== null) this.wire(snap, this.timeline);
      this.decoders = decoders;
      this.snap = snap;
      this.sampler = new Sampler(codec);
      this.schema = schema;
      this.epoch = w.epoch;
      this.newest = -1;
    }
    this.at.tick = w.tick;
    this.arrivals.reset();
    this.inputClock = new InputClock(this.arrivals, rtt, Math.max(1, Math.min(MAX_INPUTS, w.hz / SENDS_PER_SEC)));
    this.sampler!.restart();
    this.sentLabels.fill(0);
    this.lastInputAck = -1;
    this.margin = MARGIN_NONE;
    this.acks = new Acks();
    this.acked = 0;
    this.rttCount = 0;
    this.noteRTT(rtt);
  }

  private wire(snap: SnapDecoder, timeline: Timeline): void {
    snap.onEnter = (e, tick) => timeline.enter(e.type, e.id, e.numbers, e.texts, tick);
    snap.onUpdate = (e, tick) => timeline.update(e.id, e.numbers, e.texts, tick);
    snap.onLeave = (e, tick) => timeline.leave(e.id, tick);
    snap.onEvent = (e) => timeline.event(e.type, e.numbers, e.texts, e.tick);
  }

  private live(w: Welcome): void {
    this.env.clearTimeout(this.linkTimer);
    const first = this.current === "joining";
    if (!first) this.reconnects++;
    this.welcome = w;
    this.token = w.token;
    this.savedRoom = w.room;
    this.current = "live";
    this.attempt = 0;
    this.lostAt = 0;
    this.lastInfo.resumed = w.resumed;
    this.windowAt = this.env.now();
    this.bytes = this.packets = 0;
    this.bytesRate = this.packetsRate = -1;
    this.save(false);
    this.watchSilence();
    this.sentAt = -Infinity;
    if (this.wanted) this.startSending();
    this.settle?.resolve();
    this.settle = null;
    this.tell();
  }

  private ended(why: Goodbye): void {
    this.link = null;
    this.env.clearTimeout(this.linkTimer);
    this.env.clearTimeout(this.sendTimer);
    this.linkTimer = this.sendTimer = null;
    if (this.current === "closed") return;
    if (this.current === "joining") {
      if (why.retry === "new" && this.token !== "") {
        // The seat from before the reload is gone: come in as anybody else.
        this.forget();
        this.connect();
        return;
      }
      if (why.retry === "never" && why.reason !== "version") this.forget();
      this.close(why);
      return;
    }
    this.lastInfo.why = new Refused(why);
    if (why.retry === "never" || why.retry === "new") {
      if (why.reason !== "version") this.forget();
      this.close(why);
      return;
    }
    const now = this.env.now();
    if (this.lostAt === 0) {
      this.lostAt = now;
      this.attempt = 0;
    }
    const left = this.deadline() - now;
    if (left <= 0) {
      this.forget();
      this.close({ ...why, text: why.reason === "draining" ? why.text : "The connection could not be made again in time.", retry: "new" });
      return;
    }
    const backoff = Math.min(MAX_BACKOFF_MS, BACKOFF_MS * 2 ** this.attempt) * (0.5 + this.env.random() / 2);
    const wait = Math.min(left, Math.max(backoff, this.current === "live" || why.retry === "later" ? why.retryMs : 0));
    this.current = "reconnecting";
    this.retryAt = now + wait;
    this.retryTimer = this.env.setTimeout(() => this.connect(), wait);
    this.tell();
  }

  private deadline(): number {
    return this.lostAt + this.welcome.graceMs;
  }

  private close(why: Goodbye): void {
    this.current = "closed";
    this.env.clearTimeout(this.linkTimer);
    this.env.clearTimeout(this.retryTimer);
    this.env.clearTimeout(this.sendTimer);
    this.unwatch?.();
    const refused = new Refused(why);
    this.lastInfo.why = refused;
    this.settle?.reject(refused);
    this.settle = null;
    this.tell();
  }

  private tell(): void {
    for (const f of this.stateHandlers) guard(f, this.current, this.info);
  }

  private watchSilence(): void {
    // Without a beat a room may have nothing to say for hours; there the browser has to notice.
    if (this.welcome.hz === 0) return;
    const check = (planned: number): void => {
      const now = this.env.now();
      const quiet = now - this.heardAt;
      // After a sleep what has arrived in the meantime is still to be handled.
      if (quiet >= SILENT_MS && now - planned < 1000) {
        this.link?.drop(lost());
        return;
      }
      const wait = quiet >= SILENT_MS ? 500 : SILENT_MS - quiet;
      this.linkTimer = this.env.setTimeout(() => check(now + wait), wait);
    };
    check(this.env.now());
  }

  private page(change: PageChange): void {
    switch (change) {
      case "hidden":
        // Keys that go up while another page is in front are not heard of.
        if (this.current === "live" && this.wanted && this.sampler !== null) {
          this.sampler.sampleTo(this.inputClock.label(this.env.now()));
          this.sampler.release();
          if (this.welcome.hz === 0) this.pumpNoBeat(this.env.now(), true);
          else {
            this.sampler.sampleTo(this.sampler.label + 1);
            this.sendInputs(this.env.now());
          }
        }
        this.env.clearTimeout(this.sendTimer);
        this.sendTimer = null;
        break;
      case "visible":
        if (this.current === "live" && this.wanted) this.startSending();
        this.retryNow();
        break;
      case "online":
        this.retryNow();
        break;
      case "leaving":
        if (this.current === "live" || this.current === "reconnecting") this.save(true);
        break;
    }
  }

  // State.

  private statePacket(msg: Uint8Array, now: number): void {
    const h = this.header;
    this.count(msg.length, now);
    const before = this.acks.newest;
    this.begun = this.old = false;
    try {
      parseState(msg, h, this.section);
      if (!this.begun) this.begin();
    } catch (e) {
      // Overtaken, or in need of a keyframe that was overtaken: on an unordered link that happens.
      if (e instanceof DecodeError && e.fault !== "corrupt" && !this.welcome.ordered) return;
      this.decodeErrors++;
      // What an ordered link lost never comes again; a new link starts with a keyframe.
      this.badInRow++;
      if (this.welcome.ordered || this.badInRow > 20) this.link?.drop(this.badInRow % 3 === 0 ? NOT_UNDERSTOOD : lost());
      return;
    }
    if (this.old) return;
    this.badInRow = 0;
    this.acks.note(h.seq);
    const missed = !this.welcome.ordered && this.newest >= 0 && ((h.seq - before) & 0xffff) > 1;
    this.newest = Math.max(this.newest, this.at.tick);
    this.arrivals.note(this.at.tick, now);
    this.clock.arrive(this.at.tick, missed);
    if (this.snap !== null && this.timeline !== null) this.timeline.ownID = this.snap.own;
    if (h.hasHash && this.hash() !== h.hash) this.mismatches++;
    this.margins(h, now);
    this.timeline?.idle(now);
    // Timers sleep in hidden pages; packets do not.
    this.pump(now);
    if (!this.running() && now - this.sentAt >= ACK_MS && this.acked !== this.acks.newest) {
      this.sentAt = now;
      this.acked = this.acks.newest;
      this.link?.send(encodeAck(this.acks));
    }
  }

  // One feed's part of the packet. A feed that this client cannot read is left out.
  private readonly section = (feed: number, body: Uint8Array): void => {
    if (!this.begun) this.begin();
    if (!this.old) this.decoders[feed]?.decode(this.at, body);
  };

  // Takes in the packet's header, once; old: the packet was here before.
  private begin(): void {
    const h = this.header;
    this.begun = true;
    if (!this.acks.isNew(h.seq)) {
      this.old = true;
      return;
    }
    if (h.epoch !== this.epoch) this.newEpoch(h.epoch);
    const at = this.at;
    at.tick = near16(at.tick, h.tick16);
    if (at.tick < 0) at.tick = h.tick16;
    at.seq = h.seq;
    at.epoch = h.epoch;
    at.ack = h.ack;
    at.acks = h.acks;
    this.timeline?.packet(at.tick);
  }

  // As the server folds it: over all state feeds, in order.
  private hash(): number {
    if (this.decoders.length === 1) return this.snap?.hash() ?? 0;
    let hash = 0;
    for (const d of this.decoders) hash = (Math.imul(hash, 16777619) ^ (d?.hash() ?? 0)) >>> 0;
    return hash;
  }

  private newEpoch(epoch: number): void {
    this.epoch = epoch;
    this.newest = -1;
    this.at.tick = 0;
    this.timeline?.clear();
    this.arrivals.reset();
    this.clock.reset();
    this.sampler?.restart();
    this.sentLabels.fill(0);
    this.lastInputAck = -1;
  }

  private margins(h: StateHeader, now: number): void {
    if (h.margin === MARGIN_NONE || this.sampler === null || this.sampler.label === 0) return;
    this.margin = h.margin;
    const label = near16(this.sampler.label, h.inputAck);
    if (label === this.lastInputAck) return;
    this.lastInputAck = label;
    this.inputClock.margin(h.margin, label, this.sampler.label);
    if (this.sentLabels[label & 255] === label) this.noteRTT(now - this.sentTimes[label & 255]!);
  }

  private fire(map: Map<string, Set<Handler>>, name: string, a: unknown, b?: unknown): void {
    const set = map.get(name);
    if (set !== undefined) for (const f of set) guard(f, a, b);
  }

  // Inputs.

  private running(): boolean {
    return this.wanted && this.current === "live" && !this.env.hidden();
  }

  private startSending(): void {
    this.env.clearTimeout(this.sendTimer);
    this.sendTimer = null;
    if (!this.running()) return;
    const period = 1000 / SENDS_PER_SEC;
    let due = this.env.now();
    const tick = (): void => {
      const now = this.env.now();
      this.pump(now);
      due = Math.max(due + period, now);
      this.sendTimer = this.env.setTimeout(tick, due - now);
    };
    tick();
  }

  private pump(now: number): void {
    if (!this.running()) return;
    if (this.welcome.hz === 0) {
      this.pumpNoBeat(now, false);
      return;
    }
    this.sampler!.sampleTo(this.inputClock.label(now));
    // Frames come every 16.7 ms; without some slack each message would wait for one frame more.
    const period = Math.max(1000 / SENDS_PER_SEC - 4, 0);
    if (now - this.sentAt >= period || this.sampler!.fresh >= MAX_INPUTS) this.sendInputs(now);
  }

  private sendInputs(now: number): void {
    const s = this.sampler!;
    if (this.link === null || this.link.buffered > MAX_WAITING_BYTES) return;
    const msg = s.message(this.acks, this.welcome.ordered ? REPEAT : REPEAT_UNORDERED);
    if (msg === null) return;
    this.sentAt = now;
    this.acked = this.acks.newest;
    this.sentLabels[s.label & 255] = s.label;
    this.sentTimes[s.label & 255] = now;
    this.link.send(msg);
  }

  // Without a beat the room steps for each input: what changed is sent, nothing is repeated.
  private pumpNoBeat(now: number, changed: boolean): void {
    const s = this.sampler!;
    if (this.link === null || this.current !== "live" || !(changed || this.dirty || s.pending)) return;
    const wait = this.sentAt + 1000 / Math.max(1, this.welcome.sendHz) - now;
    if (wait > 0) {
      this.dirty = true;
      this.env.clearTimeout(this.sendTimer);
      this.sendTimer = this.env.setTimeout(() => this.pumpNoBeat(this.env.now(), false), wait);
      return;
    }
    this.dirty = false;
    s.sample();
    this.sendInputs(now);
    if (s.pending) this.pumpNoBeat(now, true);
  }

  // Figures.

  private count(bytes: number, now: number): void {
    this.bytes += bytes;
    this.packets++;
    const s = (now - this.windowAt) / 1000;
    if (s < 1) return;
    this.bytesRate = this.bytes / s;
    this.packetsRate = this.packets / s;
    this.bytes = this.packets = 0;
    this.windowAt = now;
  }

  private rate(r: number): number {
    return this.current !== "live" || r < 0 ? 0 : r;
  }

  private noteRTT(ms: number): void {
    this.rtts[this.rttCount++ & 15] = ms;
  }

  // The least of the last ones: each waits for the server's next send tick, the luckiest hardly at all.
  private rtt(): number {
    if (this.rttCount === 0) return 0;
    let least = Infinity;
    for (let i = Math.min(this.rttCount, 16) - 1; i >= 0; i--) least = Math.min(least, this.rtts[i]!);
    return least;
  }

  // The seat in the tab's storage. It is only used after the page has gone away: a copy of the tab must not take the seat.

  private key(): string {
    return `drumline ${this.url} ${this.world}`;
  }

  private save(leaving: boolean): void {
    if (this.options.resume === false) return;
    const s: Saved = { token: this.token, room: this.savedRoom, cursors: this.cursors(), leftAt: leaving ? this.env.wall() : 0, graceMs: this.welcome.graceMs };
    try {
      this.env.storage?.setItem(this.key(), JSON.stringify(s));
    } catch {
      // Storage is full or forbidden: a reload will be a new player.
    }
  }

  private load(): void {
    if (this.options.resume === false) return;
    try {
      const s = JSON.parse(this.env.storage?.getItem(this.key()) ?? "null") as Saved | null;
      if (s === null || typeof s.token !== "string" || s.leftAt === 0) return;
      if (this.env.wall() - s.leftAt > s.graceMs + 5000) return;
      if (this.options.room && this.options.room !== s.room) return;
      this.token = s.token;
      this.savedRoom = s.room;
      this.savedCursors = Array.isArray(s.cursors) ? s.cursors : [];
    } catch {
      // Not ours, or no storage.
    }
  }

  private forget(): void {
    this.token = "";
    this.savedRoom = "";
    try {
      this.env.storage?.removeItem(this.key());
    } catch {
      // As above.
    }
  }
}

interface Saved {
  token: string;
  room: string;
  cursors: number[];
  /** Wall clock when the page went away; 0: it is still there. */
  leftAt: number;
  graceMs: number;
}

function add<F>(set: Set<F>, f: F): () => void {
  set.add(f);
  return () => set.delete(f);
}

function addTo(map: Map<string, Set<Handler>>, name: string, f: Handler): () => void {
  let set = map.get(name);
  if (set === undefined) map.set(name, (set = new Set()));
  return add(set, f);
}

// A handler's fault is reported like any other of the page, and stops nothing here.
function guard<A extends unknown[]>(f: (...args: A) => void, ...args: A): void {
  try {
    f(...args);
  } catch (e) {
    reportError(e);
  }
}
