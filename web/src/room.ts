// A seat in a room, as a page sees it: joining, sending inputs, and what is shown.

import { Arrivals, RenderClock } from "./clock.ts";
import { type Env, type SocketLike, browserEnv, cancelFrame, report, requestFrame, socketURL } from "./env.ts";
import { Feeds } from "./feeds.ts";
import { Corrections, type PredictionFigures, Rates, RoundTrip } from "./figures.ts";
import { Inputs } from "./inputs.ts";
import { lost } from "./link.ts";
import { Meter } from "./meter.ts";
import {
  KIND_COMMAND, KIND_RELIABLE, KIND_STATE, MARGIN_NONE, MAX_COMMAND_BYTES, ReliableHeader, StateHeader, type Welcome, encodeReport, near16, parseReliable,
  parseState,
} from "./packet.ts";
import { type PredictOptions, Predictor } from "./predict.ts";
import type { Cause } from "./quality.ts";
import { NOT_UNDERSTOOD, Refused, type RoomState, Session, type StateInfo } from "./session.ts";
import { DecodeError, type SnapDecoder } from "./snap.ts";
import { type Entity, type EntityKind, Timeline } from "./timeline.ts";

export { Refused };
export type { RoomState, StateInfo };

/** A link that has this many bytes waiting gets no report: it has more to do. */
const MAX_WAITING_BYTES = 16 << 10;
/** After so many packets in a row that cannot be read, an unordered link is given up. */
const MAX_BAD = 20;

/** What a page knows of its world's data: its entity types, event types and input. All optional. */
export interface Shape {
  /** By type name, what an entity has. */
  entities: object;
  /** By event name, what an event has. */
  events: object;
  /** The fields of an input. */
  input: object;
}

/** The shape of a world that the page has not described. */
export interface AnyShape {
  entities: Record<string, Record<string, any>>;
  events: Record<string, Record<string, any>>;
  input: Record<string, number | boolean>;
}

/** What {@link join} is given; only the world must be named. */
export interface JoinOptions {
  /** The world's name, as in its address. */
  world: string;
  /** The room to join, opened if need be. Empty: any with a free seat, else a new one. */
  room?: string;
  /** The player's name. Empty: the server makes one. */
  name?: string;
  /** The server's address, http(s) or ws(s). Empty: the one that served the page. */
  url?: string;
  /** Come back to the seat that this tab had before a reload. Default true. */
  resume?: boolean;
  /**
   * When the seat is gone after a lost link (the server has restarted, the room broke down, the grace is over), join the same room
   * anew instead of closing: the room goes live with info.resumed false. Default false; `enter` of drumline/ui sets it.
   */
  rejoin?: boolean;
  /** Ask for a hash in each packet and count mismatches; only laboratory servers grant it. */
  verify?: boolean;
  /** The WebSocket class, where there is none of that name: in Node before 22. */
  webSocket?: new (url: string) => SocketLike;
  /** @internal For tests. */
  env?: Env;
}

/** What is shown at one moment. The object and its arrays are the same each time; read them, do not keep them. */
export interface View<S extends Shape = AnyShape> {
  /** The tick shown, with fraction. */
  readonly tick: number;
  /** All entities shown, in the order in which they came. */
  readonly entities: readonly Entity[];
  /** The entity that the own seat plays, if it is shown. Of several types its `type` tells which. */
  readonly own: (S["entities"][keyof S["entities"]] & Entity) | null;
  /** All entities of one type. */
  all<K extends keyof S["entities"] & string>(type: K): readonly (S["entities"][K] & Entity)[];
  /** The entity of an id, if it is shown. */
  get(id: number): Entity | undefined;
}

/** How well the connection does, and the page. The object is the same each time; what is of "the last second" changes once a second. */
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
  /** Packets on an unordered link that could not be read for want of an earlier one, which was lost or overtaken. They are no fault. */
  readonly baseless: number;
  /** Frames in the last second, and the 99th percentile and the longest of the times between them. */
  readonly fps: number;
  readonly frameP99Ms: number;
  readonly frameMaxMs: number;
  /** Tasks that held up the page for over 50 ms in the last second; 0 also where the browser does not tell. */
  readonly longTasks: number;
  /** Frames of the last second that showed more than 34 ms past the newest packet. */
  readonly underruns: number;
  /** Frames of the last second in which something moved otherwise than it was told to. */
  readonly jumps: number;
  /** 99th percentile, in the last second, of the second difference of the places shown, in the world's units. */
  readonly joltP99: number;
  /** Corrections of the own entity in the last second. */
  readonly rollbacks: number;
  /** Packets of the last second which said that the newest input had come too late for its step. */
  readonly starved: number;
  /** What the last stutter of the motion came from, null: there was none; how long ago it was judged, and how many there were of each. */
  readonly cause: Cause | null;
  readonly causeAgoMs: number;
  readonly stutters: Readonly<Record<Cause, number>>;
  /** Links made after the first. */
  readonly reconnects: number;
  /** Events that were not played: too old after a pause, or too many. */
  readonly eventsDropped: number;
  /** How well the own entity is foreseen, once Room.predict was called. */
  readonly prediction: PredictionFigures;
}

/** An entity as a rule of Room.predict gets it: with fields to change. */
export type Changing<E> = { -readonly [F in keyof E]: E[F] extends object ? Changing<E[F]> : E[F] };

type Handler = (...args: any[]) => void;

/** Joins a world. It throws Refused when the player is not let in or the server cannot be reached. */
export async function join<S extends Shape = AnyShape>(options: JoinOptions): Promise<Room<S>> {
  const room = new Room<S>(options);
  await room.$session.start();
  return room;
}

/** One seat's connection to a room. It is made by {@link join}. */
export class Room<S extends Shape = AnyShape> {
  /** The world's name, as given to {@link join}. */
  readonly world: string;
  /** @internal */
  readonly $session: Session;

  private readonly env: Env;
  private readonly inputs: Inputs;

  // One epoch of one room.
  private arrivals = new Arrivals(0);
  private clock = new RenderClock(this.arrivals, 20, true);
  private timeline: Timeline | null = null;
  private feeds: Feeds | null = null;
  private predictor: Predictor | null = null;
  private schema = "";
  private epoch = 0;
  private hz = 0;
  private newest = -1; // tick; -1: none yet
  private rendered = 0;

  // The message being read.
  private readonly header = new StateHeader();
  private readonly reliableHeader = new ReliableHeader();
  private readonly at = { seq: 0, epoch: 0, tick: 0, ack: 0, acks: 0 };
  private readonly reliableAt = { seq: 0, epoch: 0, tick: 0, ack: 0, acks: 0 };
  private begun = false;
  private old = false;

  // Handlers of the page.
  private readonly stateHandlers = new Set<(state: RoomState, info: StateInfo) => void>();
  private readonly enterHandlers = new Map<string, Set<Handler>>();
  private readonly leaveHandlers = new Map<string, Set<Handler>>();
  private readonly eventHandlers = new Map<string, Set<Handler>>();

  // Figures.
  private readonly roundTrip = new RoundTrip();
  private readonly rates = new Rates();
  private decodeErrors = 0;
  private badInRow = 0;
  private badReliable = 0;
  private mismatches = 0;
  private readonly corrections = new Corrections();
  private lastView = -Infinity;
  private saidAck = -1; // of the input whose margin was counted
  private unwatch: (() => void) | null = null;
  /** @internal What the overlay draws. */
  readonly $meter: Meter;
  /** @internal Gets each message of the live link; for recordings. */
  $tap: ((msg: Uint8Array, now: number) => void) | null = null;
  private frozen = false;
  private readonly shown: View<S>;
  /** How well the connection does; always the same object. */
  readonly quality: Quality;

  /** @internal Use {@link join}. */
  constructor(options: JoinOptions) {
    this.world = options.world;
    const env = (this.env = options.env ?? browserEnv(options.webSocket));
    const session = (this.$session = new Session(
      env,
      socketURL(options.url ?? ""),
      {
        world: options.world, room: options.room ?? "", name: options.name ?? "", verify: options.verify === true, resume: options.resume !== false,
        rejoin: options.rejoin === true,
      },
      {
        cursors: () => this.feeds?.cursors() ?? null,
        welcome: (w, rttMs) => this.setUp(w, rttMs),
        live: () => {
          this.rates.reset(env.now());
          this.$meter.interrupt(env.now());
          this.unwatch ??= env.longTasks?.(() => this.$meter.longTask()) ?? null;
          this.inputs.start();
        },
        message: (msg, now) => {
          this.$tap?.(msg, now);
          this.message(msg, now);
        },
        down: () => this.inputs.stop(),
        page: (change) => {
          if (change === "hidden" || change === "visible") this.$meter.interrupt(env.now());
          if (change === "hidden") this.inputs.hide();
          else if (change === "visible") this.inputs.start();
        },
        changed: () => {
          if (this.state === "closed") {
            this.unwatch?.();
            this.unwatch = null;
          }
          for (const f of this.stateHandlers) guard(f, this.state, this.info);
        },
      },
    ));
    this.inputs = new Inputs(env, () => session.liveLink, (ms) => {
      this.roundTrip.note(ms);
      this.$meter.roundTrip(ms, env.now());
    });
    this.inputs.onSample = (label, values) => this.predictor?.sample(label, values);
    const room = this;
    const meter = (this.$meter = new Meter({
      pingMs: () => this.roundTrip.ms,
      stateAgeMs: () => this.quality.stateAgeMs,
      bufferMs: () => this.clock.delay,
      rollbacks: () => this.corrections.rollbacks,
    }));
    const { second } = meter;
    this.shown = {
      get tick() { return room.rendered; },
      get entities() { return room.entities; },
      get own() { return room.ownEntity as View<S>["own"]; },
      all: (type) => room.all(type),
      get: (id) => room.timeline?.get(id),
    };
    this.quality = {
      get rttMs() { return room.roundTrip.ms; },
      get stateAgeMs() { return room.arrivals.count === 0 ? 0 : Math.max(0, room.clock.behind(env.now()) + room.roundTrip.ms / 2); },
      get bytesPerSec() { return room.state === "live" ? room.rates.bytesPerSec : 0; },
      get packetsPerSec() { return room.state === "live" ? room.rates.packetsPerSec : 0; },
      get bufferMs() { return room.clock.delay; },
      get inputMargin() { return room.inputs.margin; },
      get decodeErrors() { return room.decodeErrors; },
      get mismatches() { return room.mismatches; },
      get baseless() { return meter.baseless; },
      get fps() { return second.fps; },
      get frameP99Ms() { return second.frameP99Ms; },
      get frameMaxMs() { return second.frameMaxMs; },
      get longTasks() { return second.longTasks; },
      get underruns() { return second.underruns; },
      get jumps() { return second.jumps; },
      get joltP99() { return second.joltP99; },
      get rollbacks() { return second.rollbacks; },
      get starved() { return second.starved; },
      get cause() { return meter.cause; },
      get causeAgoMs() { return meter.cause === null ? 0 : env.now() - meter.causeAt; },
      stutters: meter.stutters,
      get reconnects() { return session.reconnects; },
      get eventsDropped() { return room.timeline?.eventsDropped ?? 0; },
      prediction: this.corrections,
    };
  }

  /** What the server said when it let us in. */
  get welcome(): Welcome {
    return this.$session.welcome;
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

  /** Where the connection stands; onState tells of changes. */
  get state(): RoomState {
    return this.$session.state;
  }

  /** What there is to know about the state, as of now. */
  get info(): StateInfo {
    return this.$session.info;
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

  /**
   * Calls f when it is over against the player's will: the server closed the room, or the way back was refused; at once if that was
   * before. What {@link join} itself is refused, it throws. It returns what ends that.
   */
  onRefused(f: (why: Refused) => void): () => void {
    const tell = (): void => {
      const { why } = this.info;
      if (this.state === "closed" && why !== null && why.reason !== "left") guard(f, why);
    };
    tell();
    return add(this.stateHandlers, tell);
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
    // What the page has set until now was meant for what it last saw.
    this.inputs.pump(this.env.now());
    if (this.frozen) return this.shown;
    this.predictor?.frame(now, this.inputs.at(now));
    if (this.timeline !== null) {
      this.rendered = this.timeline.advance(now);
      const dt = now - this.lastView;
      if (dt > 0) this.timeline.measure(dt, this.$meter.moved);
      this.lastView = now;
    }
    this.inputs.shows(this.rendered, now);
    this.measured(now);
    return this.shown;
  }

  // A frame was shown.
  private measured(now: number): void {
    if (this.state !== "live" || this.env.hidden()) return;
    const { tickMs } = this.arrivals;
    this.$meter.frame(now, this.newest < 0 || tickMs === 0 ? 0 : (this.rendered - this.newest) * tickMs);
    this.$meter.roll(now);
    this.report();
  }

  // Tells the server, if it wants to know and it is time.
  private report(): void {
    const every = this.welcome.reportMs ?? 0;
    const link = this.$session.liveLink;
    if (!(every > 0) || link === null || link.buffered > MAX_WAITING_BYTES) return;
    const r = this.$meter.due(every);
    if (r === null) return;
    link.send(encodeReport(r));
    this.$meter.reported();
  }

  /** @internal Stops what is shown, and lets it go on: where it would be by then. Inputs and packets go on meanwhile. */
  $freeze(on: boolean): void {
    this.frozen = on;
    if (!on) this.$meter.interrupt(this.env.now());
  }

  /**
   * Shows the own entity where it is once the server has had all inputs: the page gives the server's rule for one step, and the fields
   * that it computes; docs/client.md tells the whole. From then on these fields of the own entity are the predicted ones in each
   * view; the server's word corrects them. It returns what ends that. It throws in a room without a beat, for a type or field
   * that the world does not have, and while another rule is in use.
   */
  predict<K extends keyof S["entities"] & string>(options: PredictOptions<Changing<S["entities"][K]>, Readonly<S["input"]>> & { type: K }): () => void {
    if (this.predictor !== null) throw new Error("drumline: predict: there is a rule already; end that one first");
    const p = new Predictor(options, this.corrections);
    this.describe(p);
    this.predictor = p;
    return () => {
      if (this.predictor !== p) return;
      p.disable();
      this.predictor = null;
      const own = this.ownEntity;
      if (own !== null) own.$held = false;
    };
  }

  private describe(p: Predictor): void {
    const { timeline, inputs } = this;
    if (timeline === null || inputs.codec === null) throw new Error("drumline: predict: join first");
    p.describe(this.feeds?.snap ?? null, timeline.kinds, inputs.codec, this.hz);
  }

  /**
   * Calls draw on each animation frame, with ms since the frame before (0 at first). Where nothing is painted, as in Node, it is called
   * 60 times a second. It returns what ends that.
   */
  frame(draw: (view: View<S>, now: number, dtMs: number) => void): () => void {
    let last = -1;
    let id: unknown;
    const loop = (now: number): void => {
      id = requestFrame(loop);
      const dt = last < 0 ? 0 : now - last;
      last = now;
      draw(this.view(now), now, dt);
    };
    id = requestFrame(loop);
    return () => cancelFrame(id);
  }

  /**
   * Sets fields of the current input; the others stay as they are. The library samples it for each step and sends it. It throws
   * for a field that the world's input does not have.
   */
  input(fields: Partial<S["input"]>): void {
    if (this.state !== "closed") this.inputs.set(fields as Record<string, unknown>);
  }

  /**
   * Sends a command to the world, at most 4,096 bytes. It returns false if it was not sent because the link is lost; one sent
   * just before a loss may not have arrived.
   */
  command(bytes: Uint8Array): boolean {
    if (bytes.length > MAX_COMMAND_BYTES) throw new RangeError(`drumline: a command of ${bytes.length} bytes, at most ${MAX_COMMAND_BYTES}`);
    const link = this.$session.liveLink;
    if (link === null) return false;
    const b = new Uint8Array(bytes.length + 1);
    b[0] = KIND_COMMAND;
    b.set(bytes, 1);
    link.send(b);
    return true;
  }

  /** Tries to come back now instead of waiting for the next try. */
  retryNow(): void {
    this.$session.retryNow();
  }

  /** Closes, but keeps the seat for its grace, as when the page goes away: the same tab's next {@link join} comes back to it. */
  close(): void {
    this.$session.hangUp();
  }

  /** Gives up the seat and closes. */
  leave(): void {
    this.$session.leave();
  }

  private setUp(w: Welcome, rttMs: number): void {
    const schema = JSON.stringify([w.hz, w.sendHz, w.ordered, w.inputs, w.feeds]);
    if (w.resumed && schema === this.schema && this.timeline !== null) {
      if (w.epoch !== this.epoch || w.tick < this.newest) this.startOver(w.epoch);
      if (w.tick < this.newest) {
        // The room was opened anew elsewhere, and counts from there.
        this.newest = -1;
        this.clock.reset();
      }
    } else {
      const tickMs = w.hz > 0 ? 1000 / w.hz : 0;
      const feeds = new Feeds(w.feeds);
      this.inputs.describe(w);
      this.timeline?.clear();
      this.arrivals = new Arrivals(tickMs);
      this.clock = new RenderClock(this.arrivals, w.sendHz, w.ordered);
      const { snap } = feeds;
      this.timeline = new Timeline(snap?.types ?? [], snap?.events ?? [], this.clock, tickMs, {
        enter: (e) => this.fire(this.enterHandlers, e.type, e),
        leave: (e) => this.fire(this.leaveHandlers, e.type, e),
        event: (name, values, tick) => this.fire(this.eventHandlers, name, values, tick),
        own: (e, tick) => this.predictor?.overlay(e, tick),
      });
      if (snap !== null) wire(snap, this.timeline);
      this.feeds = feeds;
      this.hz = w.hz;
      if (this.predictor !== null) {
        try {
          this.describe(this.predictor);
        } catch (e) {
          // A later server with another world: the game goes on without.
          this.predictor.disable();
          console.error(e);
        }
      }
      this.$meter.describe(tickMs, w.sendHz);
      this.schema = schema;
      this.epoch = w.epoch;
      this.newest = -1;
    }
    this.at.tick = w.tick;
    this.arrivals.reset();
    this.inputs.attach(w, this.arrivals, rttMs);
    this.predictor?.forget();
    this.roundTrip.reset();
    this.roundTrip.note(rttMs);
  }

  // A message of the live link. A welcome here is out of place, and kinds of later servers are not for this client.
  private message(msg: Uint8Array, now: number): void {
    if (msg[0] === KIND_STATE) this.statePacket(msg, now);
    else if (msg[0] === KIND_RELIABLE) this.reliable(msg, now);
  }

  private statePacket(msg: Uint8Array, now: number): void {
    const h = this.header;
    const { acks } = this.inputs;
    const { ordered } = this.welcome;
    this.rates.note(msg.length, 1, now);
    this.begun = this.old = false;
    try {
      parseState(msg, h, this.section);
      if (!this.begun) this.begin();
      if (!this.old) this.feeds?.end(this.at);
    } catch (e) {
      // Overtaken, or in need of a keyframe that was overtaken: on an unordered link that happens.
      if (e instanceof DecodeError && e.fault !== "corrupt" && !ordered) {
        if (e.fault === "keyframe") this.$meter.refused(true);
        return;
      }
      this.decodeErrors++;
      this.$meter.refused(false);
      // What an ordered link lost never comes again; a new link starts with a keyframe.
      this.badInRow++;
      if (ordered || this.badInRow > MAX_BAD) this.giveUp(this.badInRow);
      return;
    }
    if (this.old) return;
    this.badInRow = 0;
    acks.note(h.seq);
    this.newest = Math.max(this.newest, this.at.tick);
    this.arrivals.note(this.at.tick, now);
    this.clock.arrive(this.at.tick, now);
    this.$meter.packet(this.at.tick, now);
    if (h.margin < 0 && h.margin !== MARGIN_NONE && h.inputAck !== this.saidAck) this.$meter.starved();
    this.saidAck = h.inputAck;
    const { timeline, feeds } = this;
    timeline?.packet(this.at.tick);
    const snap = feeds?.snap ?? null;
    if (timeline !== null && snap !== null) timeline.ownID = snap.own;
    if (snap !== null) this.predictor?.packet(this.at.tick, snap.ownEntity, snap);
    // 0: the server does not know.
    if (h.hasHash && h.hash !== 0) {
      const hash = feeds?.hash() ?? null;
      if (hash !== null && hash !== h.hash) this.mismatches++;
    }
    this.inputs.margins(h, this.at.tick, now);
    if (!this.frozen) timeline?.idle(now);
    this.inputs.afterPacket(now);
  }

  // One feed's part of the packet. A feed that this client cannot read is left out.
  private readonly section = (feed: number, body: Uint8Array): void => {
    if (!this.begun) this.begin();
    if (!this.old) this.feeds?.state(feed, this.at, body);
  };

  // Takes in the packet's header, once; old: the packet was here before, or tells of a world that was replaced.
  private begin(): void {
    const h = this.header;
    this.begun = true;
    this.old = !this.inputs.acks.isNew(h.seq) || !this.enterEpoch(h.epoch);
    if (this.old) return;
    const at = this.at;
    at.tick = near16(at.tick, h.tick16);
    if (at.tick < 0) at.tick = h.tick16;
    at.seq = h.seq;
    at.epoch = h.epoch;
    at.ack = h.ack;
    at.acks = h.acks;
    this.feeds?.begin();
  }

  // A section of the reliable lane. It is complete and in order, so one that cannot be read ends the link.
  private reliable(msg: Uint8Array, now: number): void {
    this.rates.note(msg.length, 0, now);
    const h = this.reliableHeader;
    try {
      const body = parseReliable(msg, h);
      if (!this.enterEpoch(h.epoch)) return;
      const at = this.reliableAt;
      at.epoch = h.epoch;
      at.tick = h.tick;
      this.feeds?.reliable(h.feed, at, body);
      this.badReliable = 0;
    } catch {
      this.decodeErrors++;
      this.$meter.refused(false);
      this.giveUp(++this.badReliable);
    }
  }

  // Ends a link that cannot be read any more; a page that never understands it does not try for ever.
  private giveUp(times: number): void {
    this.$session.drop(times % 3 === 0 ? NOT_UNDERSTOOD : lost());
  }

  // Follows a message's epoch. It returns false for one from before: that is dropped without an ack.
  private enterEpoch(epoch: number): boolean {
    const ahead = ((epoch - this.epoch) << 24) >> 24;
    if (ahead > 0) this.startOver(epoch);
    return ahead >= 0;
  }

  // The world was replaced: what was shown is void, and keyframes follow. Packets, acks, ticks and inputs go on as they were.
  private startOver(epoch: number): void {
    this.epoch = epoch;
    this.timeline?.clear();
  }

  private fire(map: Map<string, Set<Handler>>, name: string, a: unknown, b?: unknown): void {
    const set = map.get(name);
    if (set !== undefined) for (const f of set) guard(f, a, b);
  }
}

function wire(snap: SnapDecoder, timeline: Timeline): void {
  snap.onEnter = (e, tick) => timeline.enter(e.type, e.id, e.numbers, e.texts, tick, e.ring);
  snap.onUpdate = (e, tick) => timeline.update(e.id, e.numbers, e.texts, tick, e.ring);
  snap.onLeave = (e, tick, gone) => timeline.leave(e.id, tick, gone);
  snap.onEvent = (e) => timeline.event(e.type, e.numbers, e.texts, e.tick);
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
    report(e);
  }
}
