// Prediction of the own entity: the page's rule moves it at once, by the inputs that have not come back from the server yet, and
// each packet is compared with what was predicted for its tick.
//
//   ticks   ── T ──────────────────────────────────── now ──►
//           packet's    inputs that the server has not      the newest input
//           state       answered yet, in a ring
//
// Predicted states are kept by tick. Is the packet's state the one predicted for T, nothing happens; if not, it replaces that one and
// the rule runs again over the ring up to now. What is shown stays where it is, and its distance from the new truth decays.
//
// Everything is bounded and made once: after warm-up a frame allocates nothing here.

import { Corrections } from "./figures.ts";
import { report } from "./env.ts";
import type { InputCodec } from "./packet.ts";
import type { SnapDecoder, SnapEntity } from "./snap.ts";
import { ANGLE, type Entity, type EntityKind, STEP, turn } from "./timeline.ts";
import { ENTITY_NAMES, type FieldSchema } from "./view.ts";

/** Ticks kept of inputs and of predicted states, a power of 2. */
const RING = 128;
/** Steps run in one frame to catch up with the input clock. */
const CATCH_UP = 5;
/** So many steps without a sample of their own repeat the one before them, as the server does; after more prediction starts over. */
const MAX_FILL = 8;
/** Above this the shown time jumps instead of running faster. */
const JUMP_TICKS = 15;
/** The shown time runs at most so much faster or slower than real time to follow the input clock. */
const MAX_RATE = 0.1;
/**
 * Quanta between the predicted value and the server's that mean nothing: half of one in the state that it started from, half in the one
 * that it is compared with, and half for what the rates' own halves have added on the way.
 */
const QUANTA = 1.5;
/** A frame after this long does not continue the one before. */
const PAUSE_MS = 500;

/** What a page gives to {@link Room.predict}. */
export interface PredictOptions<State = any, Input = any> {
  /** The type of the own entity. While the seat plays one of another type nothing is predicted. */
  type: string;
  /** The fields that the rule computes, such as "x" or "pos.x". The others stay what the server says. */
  fields: readonly string[];
  /**
   * One step of the own entity, the server's own rule: it changes the predicted fields of state in place. state has all fields of the
   * type, those that are not predicted as the newest packet has them; input is what the server will get for this step; pressed has the
   * bools of it that went up since the step before. All are the same objects each time. False: this cannot be foreseen, for
   * example since the player is dead; prediction then starts over from the first packet for which the rule does not say so.
   *
   * It runs many times for one step, so it must depend on nothing else and change nothing else.
   */
  step(state: State, input: Input, tick: number, pressed: Input): boolean | void;
  /**
   * By field: how far the server's value may be from the predicted one. Default: one and a half quanta of the wire, and nothing for
   * whole numbers and bools.
   */
  tolerance?: Readonly<Record<string, number>>;
  /** By field: a correction by more than this is shown at once. Default: an eighth of the range of places, no bound for speeds and angles. */
  snap?: Readonly<Record<string, number>>;
  /** The shown error halves in this many ms. Default 80. */
  halfMs?: number;
  /** The most steps computed anew at once, 1 to 120; a packet that would need more snaps. Default 64. */
  maxReplay?: number;
}

/** What is shown of the predicted fields. */
const FROM_TIMELINE = 0;
const FROM_HELD = 1; // where it was when prediction paused, until the timeline is there too
const FROM_RING = 2;

const WAITING = 0; // for a state to start from
const PAUSED = 1; // the rule said false
const RUNNING = 2;

/** @internal */
export class Predictor {
  readonly figures: Corrections;
  readonly options: PredictOptions;
  private readonly halfMs: number;
  private readonly maxReplay: number;

  // By the room's schema; null: it has no such entity.
  private type = -1;
  private tickMs = 0;
  private n = 0; // predicted fields
  private index = new Int32Array(0); // predicted field → field of the type
  private mode = new Uint8Array(0);
  private size = new Uint8Array(0); // it counts for the size of a correction
  private tolerance = new Float64Array(0);
  private half = new Float64Array(0); // a quantum's half, of places
  private leap = new Float64Array(0);
  private bools = new Uint8Array(0); // input field → is a bool

  // What the rule sees.
  private readonly texts: string[] = [];
  private current = new Float64Array(0); // by field of the type
  private input = new Float64Array(0);
  private pressed = new Float64Array(0);
  private stateView: object = {};
  private inputView: object = {};
  private pressedView: object = {};

  // The rings.
  private inputs = new Float64Array(0);
  private readonly labels = new Float64Array(RING);
  private sampled = 0; // newest label; 0: none
  private states = new Float64Array(0);
  private from = 0; // states are of ticks from … at
  private at = 0;

  // The newest state of the server.
  private truth = new Float64Array(0);
  private truthTick = -1;
  private truthID = 0;
  private fresh = false;

  private phase = WAITING;
  private frozen = false;
  private id = 0; // of what is predicted
  private last = -Infinity; // ms, of the last frame
  private shownTick = 0;
  private showFrom = -Infinity; // after a pause: when the timeline is there
  private source = FROM_TIMELINE;
  private held = new Float64Array(0);
  private heldUntil = -Infinity; // tick of the timeline
  private offset = new Float64Array(0);
  private shown = new Float64Array(0); // the last shown, with the offset; of shownID
  private shownID = 0;
  private raw = new Float64Array(0);
  private before = new Float64Array(0);

  constructor(options: PredictOptions, figures: Corrections) {
    this.options = options;
    this.figures = figures;
    this.halfMs = options.halfMs ?? 80;
    this.maxReplay = options.maxReplay ?? 64;
    if (!(this.halfMs > 0) || !Number.isFinite(this.halfMs)) throw new RangeError(`drumline: predict: halfMs is ${this.halfMs}, must be above 0`);
    if (!Number.isInteger(this.maxReplay) || this.maxReplay < 1 || this.maxReplay > 120) throw new RangeError(`drumline: predict: maxReplay is ${this.maxReplay}, must be 1 to 120`);
  }

  /** Fits the rule to a room's schema. It throws when the room does not have what the page names. */
  describe(snap: SnapDecoder | null, kinds: readonly EntityKind[], codec: InputCodec, hz: number): void {
    const o = this.options;
    this.type = -1;
    if (hz === 0) throw new Error("drumline: predict: this room has no beat (Hz 0), so an input is for no step that could be foreseen");
    const type = kinds.findIndex((k) => k.name === o.type);
    const kind = kinds[type];
    if (snap === null || kind === undefined) throw new Error(`drumline: predict: no entity type "${o.type}"; there are: ${kinds.map((k) => k.name).join(", ") || "none"}`);
    const n = o.fields.length;
    if (n === 0 || new Set(o.fields).size !== n) throw new Error("drumline: predict: fields must name at least one field, and none twice");
    for (const by of [o.tolerance ?? {}, o.snap ?? {}]) {
      for (const name in by) if (!o.fields.includes(name) || !(by[name]! >= 0)) throw new Error(`drumline: predict: "${name}" is not predicted, or its bound is no number from 0`);
    }
    this.n = n;
    this.tickMs = 1000 / hz;
    this.index = Int32Array.from(o.fields, (name) => {
      const i = kind.fields.findIndex((f) => f.name === name);
      if (i < 0 || kind.fields[i]!.kind === "text") throw new Error(`drumline: predict: ${o.type} has no field "${name}" with a number; there are: ${kind.fields.filter((f) => f.kind !== "text").map((f) => f.name).join(", ") || "none"}`);
      return i;
    });
    const fields = Array.from(this.index, (i) => kind.fields[i]!);
    this.mode = Uint8Array.from(this.index, (i) => kind.motion.mode[i]!);
    const ahead = fields.some((f) => f.ahead !== undefined && f.kind === "float");
    this.size = Uint8Array.from(fields, (f) => (f.kind === "float" && (!ahead || f.ahead !== undefined) ? 1 : 0));
    this.tolerance = Float64Array.from(fields, (f, k) => o.tolerance?.[f.name] ?? (this.mode[k] === STEP ? 0 : f.q * QUANTA));
    this.half = Float64Array.from(fields, (f, k) => (this.size[k] ? f.q / 2 : 0));
    // A speed may well be another one from one step to the next: only places are far from each other.
    this.leap = Float64Array.from(fields, (f, k) => o.snap?.[f.name] ?? (this.size[k] ? kind.motion.leap[this.index[k]!]! : Infinity));

    const all = kind.fields.length;
    this.current = new Float64Array(all);
    this.truth = new Float64Array(all);
    const ni = codec.fields.length;
    this.bools = Uint8Array.from(codec.fields, (_, i) => (codec.isBool(i) ? 1 : 0));
    this.input = new Float64Array(ni);
    this.pressed = new Float64Array(ni);
    this.stateView = record(kind.fields, (i) => this.index.includes(i), this.current, this.texts, ENTITY_NAMES, "which is not in fields");
    this.inputView = record(codec.fields, () => false, this.input, this.texts, [], "which is of the input");
    this.pressedView = record(codec.fields, () => false, this.pressed, this.texts, [], "which is of the input");
    this.inputs = new Float64Array(RING * ni);
    this.states = new Float64Array(RING * n);
    for (const name of ["held", "offset", "shown", "raw", "before"] as const) this[name] = new Float64Array(n);
    this.type = type;
    this.shownID = 0;
    this.forget();
  }

  /** The room has another schema than the rule: nothing is predicted. */
  disable(): void {
    this.type = -1;
    this.figures.active = false;
  }

  /** Forgets inputs and states: for a new link. What is shown stays until the next state. */
  forget(): void {
    this.labels.fill(-1);
    this.sampled = 0;
    this.truthTick = -1;
    this.fresh = false;
    this.wait();
  }

  // Starts over from the next state; freeze: what was shown stays until then.
  private wait(freeze = true): void {
    this.phase = WAITING;
    this.frozen = freeze;
    this.showFrom = -Infinity;
    this.figures.active = false;
  }

  /** Takes in what the page holds in the step label. */
  sample(label: number, values: Float64Array): void {
    if (this.type < 0 || label <= this.sampled) return;
    const gap = this.sampled === 0 ? 0 : label - this.sampled - 1;
    if (gap > MAX_FILL) {
      // A page that was away: the server has had nothing, or let go of what was held.
      this.labels.fill(-1);
      this.wait();
    } else {
      for (let i = gap; i > 0; i--) this.keep(label - i, this.inputs, (this.sampled % RING) * this.input.length);
    }
    this.keep(label, values, 0);
    this.sampled = label;
  }

  private keep(label: number, values: Float64Array, off: number): void {
    const n = this.input.length;
    const to = (label % RING) * n;
    for (let i = 0; i < n; i++) this.inputs[to + i] = values[off + i]!;
    this.labels[label % RING] = label;
  }

  /** Takes in a packet: the own entity as it is at its tick, told or extrapolated. */
  packet(tick: number, e: SnapEntity | undefined, snap: SnapDecoder): void {
    if (this.type < 0 || tick <= this.truthTick) return;
    if (e === undefined || e.type !== this.type) {
      this.truthID = 0;
      if (this.phase !== WAITING) this.wait();
      return;
    }
    snap.extrapolate(e, tick, this.truth);
    for (let i = 0; i < e.texts.length; i++) this.texts[i] = e.texts[i]!;
    this.truthTick = tick;
    this.truthID = e.id;
    this.fresh = true;
  }

  /** Runs what is due at local time now; stepNow is the input clock's step with its fraction. */
  frame(now: number, stepNow: number): void {
    if (this.type < 0) return;
    const dt = now - this.last;
    this.last = now;
    const paused = !(dt >= 0 && dt < PAUSE_MS);
    if (paused) this.offset.fill(0);
    else {
      const decay = 0.5 ** (dt / this.halfMs);
      for (let k = 0; k < this.n; k++) this.offset[k] = Math.abs(this.offset[k]!) < 1e-9 ? 0 : this.offset[k]! * decay;
    }
    if (this.phase === RUNNING && !paused) this.moveTime(dt, stepNow - 1);
    if (this.sampled > 0 && this.fresh) {
      this.fresh = false;
      this.reconcile(stepNow);
    }
    if (this.phase !== RUNNING) return;
    if (this.sampled - this.at > this.maxReplay) {
      this.wait();
      return;
    }
    for (let i = 0; i < CATCH_UP && this.at < this.sampled; i++) {
      if (!this.run(this.at + 1)) {
        this.pause();
        return;
      }
    }
    if (paused) this.shownTick = stepNow - 1;
  }

  // The input clock moves by whole steps when it learns; what is shown runs after it, a little faster or slower.
  private moveTime(dt: number, target: number): void {
    const error = target - this.shownTick - dt / this.tickMs;
    if (Math.abs(error) > JUMP_TICKS) {
      this.look(this.before);
      this.shownTick = target;
      this.look(this.raw);
      if (this.source === FROM_RING) this.smooth();
      return;
    }
    const rate = Math.abs(error) < 0.2 ? 1 : 1 + Math.max(-MAX_RATE, Math.min(MAX_RATE, error / 20));
    this.shownTick += (dt / this.tickMs) * rate;
  }

  // Compares the server's newest state with what was predicted for its tick.
  private reconcile(stepNow: number): void {
    const T = this.truthTick;
    if (this.truthID !== this.id) {
      this.id = this.truthID;
      this.wait();
    }
    if (this.phase !== RUNNING) {
      this.start(stepNow);
      return;
    }
    if (T < this.from) {
      this.wait();
      this.start(stepNow);
      return;
    }
    if (T > this.at) {
      // The server is ahead, or this page has drawn nothing for a while: there is nothing to compare, and from here it is a shorter way.
      this.look(this.before);
      this.place(T, false);
      this.from = T;
      this.look(this.raw);
      if (this.source === FROM_RING) this.smooth();
      return;
    }
    const at = (T % RING) * this.n;
    let differs = false;
    for (let k = 0; k < this.n && !differs; k++) differs = this.differs(k, this.states[at + k]!);
    if (!differs) {
      this.nudge(T);
      return;
    }

    const steps = this.at - T;
    const beyond = steps > this.maxReplay;
    const end = this.at;
    this.look(this.before);
    if (beyond) {
      this.place(end, false);
      this.from = end;
    } else {
      this.place(T, true);
      this.at = T;
      // Not from the newest: what is shown may lie before T.
      while (this.at < end) {
        if (!this.run(this.at + 1)) {
          this.figures.rollbacks++;
          this.pause();
          return;
        }
      }
    }
    this.figures.rollbacks++;
    if (!beyond) this.figures.replayedSteps += steps;
    this.look(this.raw);
    let size = 0;
    for (let k = 0; k < this.n; k++) if (this.size[k]) size += (this.before[k]! - this.raw[k]!) ** 2;
    if (this.source !== FROM_RING) return;
    if (!beyond && this.smooth()) {
      this.figures.note(Math.sqrt(size));
    } else {
      this.offset.fill(0);
      this.figures.snaps++;
    }
  }

  // Starts, or tries to after a pause, from the server's newest state.
  private start(stepNow: number): void {
    const T = this.truthTick;
    const wasPaused = this.phase === PAUSED;
    const steps = Math.max(0, this.sampled - T);
    if (steps > this.maxReplay) {
      this.wait(false); // so far away that there is nothing to foresee
      return;
    }
    this.place(T, false);
    this.from = T;
    for (let l = T + 1; l <= Math.max(T + 1, this.sampled); l++) {
      // The rule is asked once at least, so that nothing is predicted of the dead between two inputs.
      if (!this.run(l)) {
        this.pause();
        return;
      }
    }
    if (this.at > this.sampled) this.at = Math.max(T, this.sampled);
    this.figures.replayedSteps += steps;
    this.phase = RUNNING;
    this.figures.active = true;
    this.showFrom = wasPaused ? T : -Infinity;
    this.shownTick = stepNow - 1;
  }

  // The rule knows no further: shown is where it ended, until the timeline gets there.
  private pause(): void {
    const again = this.phase === PAUSED;
    this.phase = PAUSED;
    this.figures.active = false;
    if (again) return;
    for (let k = 0; k < this.n; k++) this.held[k] = this.states[(this.at % RING) * this.n + k]!;
    this.heldUntil = this.at;
  }

  private differs(k: number, value: number): boolean {
    const d = this.truth[this.index[k]!]! - value;
    return !(Math.abs(this.mode[k] === ANGLE ? turn(d) : d) <= this.tolerance[k]!);
  }

  // A place that was predicted well, but which the wire would not have rounded to what it says, is moved until it would, now as then.
  // Without that the halves of quanta in what it started from would stay for ever, and grow in a bend.
  private nudge(tick: number): void {
    for (let k = 0; k < this.n; k++) {
      const half = this.half[k]!;
      if (half === 0) continue;
      const d = this.truth[this.index[k]!]! - this.states[(tick % RING) * this.n + k]!;
      const by = d > half ? d - half : d < -half ? d + half : 0;
      if (by === 0) continue;
      for (let t = tick; t <= this.at; t++) this.states[(t % RING) * this.n + k]! += by;
    }
  }

  // Makes the server's state that of a tick. keep: what was predicted well enough stays, being finer than the wire.
  private place(tick: number, keep: boolean): void {
    const at = (tick % RING) * this.n;
    for (let k = 0; k < this.n; k++) {
      if (!keep || this.differs(k, this.states[at + k]!)) this.states[at + k] = this.truth[this.index[k]!]!;
    }
    this.at = tick;
  }

  // Runs the rule for the step after at. It returns false if that cannot be predicted.
  private run(tick: number): boolean {
    const { n, current, input, pressed } = this;
    current.set(this.truth);
    const src = ((tick - 1) % RING) * n;
    for (let k = 0; k < n; k++) current[this.index[k]!] = this.states[src + k]!;
    const ni = input.length;
    const slot = tick % RING;
    const old = (tick - 1) % RING;
    const has = this.labels[slot] === tick;
    const had = this.labels[old] === tick - 1;
    for (let i = 0; i < ni; i++) {
      const v = has ? this.inputs[slot * ni + i]! : 0;
      input[i] = v;
      pressed[i] = this.bools[i] && v !== 0 && !(had && this.inputs[old * ni + i] !== 0) ? 1 : 0;
    }
    let known = false;
    try {
      known = this.options.step(this.stateView, this.inputView, tick, this.pressedView) !== false;
    } catch (e) {
      this.disable(); // it would fail in each step
      report(e);
      return false;
    }
    const dst = slot * n;
    for (let k = 0; k < n && known; k++) known = Number.isFinite(current[this.index[k]!]!);
    if (!known) return false;
    for (let k = 0; k < n; k++) this.states[dst + k] = current[this.index[k]!]!;
    this.at = tick;
    if (tick - this.from >= RING) this.from = tick - RING + 1;
    return true;
  }

  // The predicted fields at the shown time.
  private look(out: Float64Array): void {
    const { n, states } = this;
    const tick = Math.max(this.from, Math.min(this.at, this.shownTick));
    const a = Math.floor(tick);
    const f = tick - a;
    const pa = (a % RING) * n;
    const pb = (Math.min(a + 1, this.at) % RING) * n;
    for (let k = 0; k < n; k++) {
      const v = states[pa + k]!;
      const d = states[pb + k]! - v;
      // A rule that puts it elsewhere is no motion.
      out[k] = this.mode[k] === STEP || Math.abs(d) > this.leap[k]! ? v : this.mode[k] === ANGLE ? turn(v + turn(d) * f) : v + d * f;
    }
  }

  // Lets the offset carry what is shown from before to raw. It returns false, and there is no offset, if that is too far.
  private smooth(): boolean {
    for (let k = 0; k < this.n; k++) {
      if (this.mode[k] === STEP) continue;
      let d = this.before[k]! - this.raw[k]!;
      if (this.mode[k] === ANGLE) d = turn(d);
      if (Math.abs(d) > this.leap[k]!) {
        this.offset.fill(0);
        return false;
      }
      this.offset[k] = this.offset[k]! + d;
    }
    return true;
  }

  /** Puts what is predicted into the own entity, which the timeline has just brought to its tick. */
  overlay(e: Entity, tick: number): void {
    e.$held = false;
    if (this.type < 0) return;
    const { n, raw } = this;
    const same = e.id === this.shownID;
    let source = FROM_TIMELINE;
    if (e.id === this.id) {
      if (this.phase === RUNNING && tick >= this.showFrom) source = FROM_RING;
      else if (this.phase === PAUSED && tick < this.heldUntil && this.source !== FROM_TIMELINE) source = FROM_HELD;
      else if (this.phase === WAITING && this.frozen && this.source !== FROM_TIMELINE && same) {
        this.freeze(e);
        return;
      }
    }
    if (source === FROM_RING) this.look(raw);
    else for (let k = 0; k < n; k++) raw[k] = source === FROM_HELD ? this.held[k]! : e.numbers[this.index[k]!]!;
    if (!same) this.offset.fill(0);
    else if (source !== this.source) {
      this.before.set(this.shown);
      this.offset.fill(0);
      this.smooth();
    }
    this.source = source;
    this.shownID = e.id;
    e.$held = source !== FROM_TIMELINE;
    for (let k = 0; k < n; k++) {
      const i = this.index[k]!;
      let v = raw[k]! + this.offset[k]!;
      if (this.mode[k] === ANGLE) v = turn(v);
      e.numbers[i] = this.shown[k] = v;
    }
  }

  // Between two starts it stays where it is: the timeline is a good part of a second behind.
  private freeze(e: Entity): void {
    e.$held = true;
    for (let k = 0; k < this.n; k++) e.numbers[this.index[k]!] = this.shown[k]!;
  }
}

interface Named {
  name: string;
  kind: string;
}

// An object with a property for each field, and one for each nested struct, over numbers and texts. A rule that sets one which is not
// writable is told why.
function record(fields: readonly (Named | FieldSchema)[], writable: (i: number) => boolean, numbers: Float64Array, texts: string[], taken: readonly string[], why: string): object {
  const root: Record<string, any> = {};
  fields.forEach((f, i) => {
    const path = f.name.split(".");
    let host = root;
    for (const [depth, part] of path.entries()) {
      const name = depth === 0 && taken.includes(part) ? part + "_" : part;
      if (depth < path.length - 1) {
        host = host[name] ??= {};
        continue;
      }
      const property: PropertyDescriptor = { enumerable: true, get: () => numbers[i] };
      if (f.kind === "text") property.get = () => texts[i] ?? "";
      else if (f.kind === "bool") property.get = () => numbers[i] !== 0;
      if (writable(i)) property.set = f.kind === "bool" ? (v: unknown) => void (numbers[i] = v ? 1 : 0) : (v: number) => void (numbers[i] = v);
      else {
        property.set = () => {
          throw new TypeError(`drumline: predict: the rule sets ${f.name}, ${why}`);
        };
      }
      Object.defineProperty(host, name, property);
    }
  });
  return root;
}
