// One timeline for every entity and event: what the decoder brings is kept with its tick and shown when the render clock passes
// it. Between two samples numbers are interpolated. An entity that is not in a packet goes on as both ends expect it to, so after its
// newest sample it is shown as extrapolated from there; past the newest packet all run on for a moment and fade to a stop. Where a later
// sample shows that it was elsewhere, the error is blended out.
//
// lab/motion/timeline.go is the twin of this file, as far as it decides where things are; test/motion.test.ts holds both to
// wire/testdata/motion.json.

import { RenderClock } from "./clock.ts";
import { ENTITY_NAMES, EVENT_NAMES, type FieldSchema, type TypeSchema, type Values, viewClass } from "./view.ts";
import { MAX_AHEAD } from "./wire.ts";

/** Of how many things shown it is measured how they move. */
const MEASURED = 32;
/** Samples kept of an entity: the longest buffer at 60 packets a second, twice over. */
const SAMPLES = 32;
const RINGS = 4;
/** Events that may wait to be shown. */
const MAX_EVENTS = 1024;
/** Past the newest packet motion runs on for RUN_MS, then fades out over FADE_MS. */
const RUN_MS = 100;
const FADE_MS = 150;
/**
 * How fast what was shown comes to what it should have been, near and far: after five times this it is there. Far away nobody sees the
 * difference, but each jolt.
 */
const BLEND_MS = 48;
const BLEND_FAR_MS = 80;
/** What is outside of the innermost ring is told of within this time when it strays. */
const FAR_MS = 200;
/** A page that has not asked for a view for this long is not looking. */
const UNSEEN_MS = 1000;
/** Events older than this when the page wakes up are not played. */
const STALE_MS = 200;
/** Nor are, at any time, those older than this: what happened while the link was lost comes late, and all at once. */
const LATEST_MS = 1000;

// Places in Timeline.work.
const AT = 0; // evaluate: the tick
const AHEAD = 1; // extrapolate: ticks after the sample
const FRAME_MS = 2; // fade: since the frame before
const DIFF = 3; // between two angles

/** @internal How a field is shown between two samples. */
export const STEP = 0;
/** @internal */
export const LINEAR = 1;
/** @internal */
export const ANGLE = 2;

interface Motion {
  mode: Uint8Array;
  /** A change by more than this in one sample is a teleport, and is not interpolated: an eighth of the field's range. */
  leap: Float64Array;
  /** The fields, as bits, that leap together: those of one nested struct, or x, y and z. */
  group: Int32Array;
  /** The field that it goes on along, by field; -1: none. */
  by: Int16Array;
  by2: Int16Array;
  /** The angle along which a body looks; -1: the field is none of a body's. */
  turn: Int16Array;
  side: Uint8Array;
  /** Half of what a number is rounded to, by ring and field. */
  half: Float64Array;
  /** What one unit of by, or of by2, is in a tick. */
  per: Float64Array;
  per2: Float64Array;
  /** The fields that are places: those that something goes on along, else the first x, y and z. */
  places: number[];
  /** The fields that go on, in the order in which they are extrapolated: angles first. */
  order: number[];
}

function motion(fields: readonly FieldSchema[]): Motion {
  const n = fields.length;
  const m: Motion = {
    mode: new Uint8Array(n), leap: new Float64Array(n), group: new Int32Array(n), by: new Int16Array(n).fill(-1), by2: new Int16Array(n),
    turn: new Int16Array(n).fill(-1), side: new Uint8Array(n), half: new Float64Array(RINGS * n), per: new Float64Array(n), per2: new Float64Array(n), places: [], order: [],
  };
  const group = (name: string): string => (name.includes(".") ? name.slice(0, name.lastIndexOf(".")) : /^[xyz]$/.test(name) ? "" : name);
  const pose = fields.some((f) => f.pose);
  fields.forEach((f, i) => {
    m.mode[i] = f.kind === "float" ? LINEAR : f.kind === "angle" ? ANGLE : STEP;
    m.leap[i] = ((2 ** f.bits - 1) * f.q) / 8;
    for (let ring = 0; ring < RINGS; ring++) m.half[ring * n + i] = (f.q * 2 ** (f.lod?.[ring] ?? 0)) / 2;
    fields.forEach((g, j) => {
      if (group(g.name) === group(f.name)) m.group[i]! |= 1 << j;
    });
    const a = f.ahead;
    if (a === undefined || (pose && !f.pose)) return;
    m.by[i] = a.by;
    m.by2[i] = a.by2 ?? 0;
    m.turn[i] = a.angle ?? -1;
    m.side[i] = a.side ?? 0;
    // A rate counts 16ths of its quantum, and two of them are added.
    const gain = (32 * a.mul * f.q) / 2 ** a.shift;
    m.per[i] = gain / fields[a.by]!.q;
    m.per2[i] = gain / fields[a.by2 ?? 0]!.q;
    m.order.push(i);
  });
  m.places = m.order.filter((i) => m.mode[i] === LINEAR);
  if (m.places.length === 0) {
    const first = fields.findIndex((f, i) => m.mode[i] === LINEAR && /(^|\.)[xyz]$/.test(f.name));
    if (first >= 0) m.places = fields.map((_, i) => i).filter((i) => m.mode[i] === LINEAR && (m.group[first]! & (1 << i)) !== 0);
  }
  m.order.sort((i, j) => (m.mode[i] === ANGLE ? 0 : 1) - (m.mode[j] === ANGLE ? 0 : 1));
  return m;
}

// How fast field i goes on in a tick, by the numbers of v from off on.
function speed(m: Motion, i: number, v: Float64Array, off: number): number {
  const a = v[off + m.by[i]!]! * m.per[i]!;
  const turn = m.turn[i]!;
  if (turn < 0) return a;
  const b = v[off + m.by2[i]!]! * m.per2[i]!;
  const c = Math.cos(v[off + turn]!);
  const s = Math.sin(v[off + turn]!);
  return m.side[i] === 0 ? c * a - s * b : s * a + c * b;
}

/**
 * An entity as it is shown now. The fields of its type are properties: `e.x`, `e.pos.y`, `e.name`; a field whose name is
 * taken by a property below has a "_" after it. The object is the same from enter to leave; its values change with each frame.
 */
export class Entity implements Values {
  /** The entity's id: another one after its slot was reused. */
  readonly id: number;
  /** The name of its type. */
  readonly type: string;
  /** This entity is the one that the own seat plays. */
  own = false;
  /** In onLeave: it is no more. Else it went out of sight. */
  gone = false;
  /** What is shown now, by field index. */
  readonly numbers: Float64Array;
  /** Likewise its texts. */
  readonly texts: string[];

  /** @internal */ readonly $kind: EntityKind;
  /** @internal */ readonly $ticks = new Float64Array(SAMPLES);
  /** @internal */ readonly $samples: Float64Array;
  /** @internal */ readonly $leaps = new Int32Array(SAMPLES); // fields, as bits, that teleported to this sample
  /** @internal */ $head = -1;
  /** @internal */ $count = 0;
  /** @internal */ $enter = 0;
  /** @internal */ $leave = Infinity;
  /** @internal */ $shown = false;
  /** @internal */ $running = false; // was shown past the newest packet
  /** @internal */ $held = false; // numbers are not all the timeline's: some are predicted
  /** @internal */ $ring = 0;
  /** @internal */ $strayed = false; // a sample came that changes what was shown already
  /** @internal */ $offset: Float64Array | null = null; // from what it should be to what is shown
  /** @internal */ $drift: Float64Array | null = null; // how that changes, in a ms
  /** @internal */ $fading = false;
  /** @internal */ $frames = 0;
  /** @internal */ $way: Float64Array | null = null; // by place: what it moved in the frame before
  /** @internal */ $wayMs = 0; // how long that took; 0: unknown
  /** @internal */ readonly $prev: Float64Array; // what was shown a frame before

  /** @internal */
  constructor(kind: EntityKind, id: number) {
    this.$kind = kind;
    this.id = id;
    this.type = kind.name;
    const n = kind.fields.length;
    this.numbers = new Float64Array(n);
    this.texts = [];
    this.$prev = new Float64Array(n);
    this.$samples = new Float64Array(SAMPLES * n);
  }
}

/** @internal One entity type of the schema. */
export class EntityKind {
  readonly name: string;
  readonly fields: readonly FieldSchema[];
  readonly motion: Motion;
  readonly live: Entity[] = [];
  readonly View: new (kind: EntityKind, id: number) => Entity;

  constructor(t: TypeSchema) {
    this.name = t.name;
    this.fields = t.fields;
    this.motion = motion(t.fields);
    this.View = viewClass(Entity, t.fields, ENTITY_NAMES);
  }
}

class EventRecord implements Values {
  readonly numbers: Float64Array;
  readonly texts: string[] = [];
  $tick = 0;
  readonly $kind: number;
  constructor(fields: number, kind: number) {
    this.numbers = new Float64Array(fields);
    this.$kind = kind;
  }
}

interface EventKind {
  name: string;
  View: new () => EventRecord;
  free: EventRecord[];
}

/** @internal What a timeline tells its owner, while the render clock advances. */
export interface Listener {
  enter(e: Entity): void;
  leave(e: Entity): void;
  event(name: string, values: Values, tick: number): void;
  /** The own entity has been brought to its tick. */
  own?(e: Entity, tick: number): void;
}

/** @internal Turns decoded packets into what is shown. Times are local milliseconds. */
export class Timeline {
  /** Entities shown now. */
  readonly entities: Entity[] = [];
  readonly kinds: readonly EntityKind[];
  /** The own entity's id; 0: none. */
  ownID = 0;
  /** Events that were not played: older than a pause, or over the limit. */
  eventsDropped = 0;
  private readonly byID = new Map<number, Entity>();
  private readonly byName = new Map<string, EntityKind>();
  private readonly events: readonly EventKind[];
  private readonly clock: RenderClock;
  private readonly tickMs: number;
  private readonly listener: Listener;
  private entering: Entity[] = [];
  private leaving: Entity[] = [];
  private queue: EventRecord[] = [];
  private newest = -1;
  private before = -1;
  private lastTick = -Infinity;
  private lastNewest = -1;
  private lastNow = -Infinity;
  private lastDt = 0;
  private lastSeen = -Infinity;
  private readonly scratch: Float64Array;
  // What the functions for each entity are given beside it, and what they turn: a fraction that is an argument or a result may be a new object.
  private readonly work = new Float64Array(4);

  constructor(types: readonly TypeSchema[], events: readonly TypeSchema[], clock: RenderClock, tickMs: number, listener: Listener) {
    this.kinds = types.map((t) => new EntityKind(t));
    for (const k of this.kinds) this.byName.set(k.name, k);
    this.events = events.map((t, kind) => {
      const Base = class extends EventRecord {
        constructor() {
          super(t.fields.length, kind);
        }
      };
      return { name: t.name, View: viewClass<[], EventRecord>(Base, t.fields, EVENT_NAMES), free: [] };
    });
    this.clock = clock;
    this.tickMs = tickMs;
    this.listener = listener;
    this.scratch = new Float64Array(Math.max(0, ...types.map((t) => t.fields.length)));
  }

  kind(name: string): EntityKind | undefined {
    return this.byName.get(name);
  }

  hasEvent(name: string): boolean {
    return this.events.some((e) => e.name === name);
  }

  get(id: number): Entity | undefined {
    const e = this.byID.get(id);
    return e?.$shown ? e : undefined;
  }

  // What the decoder brings, in any order per packet.

  packet(tick: number): void {
    if (tick > this.newest) {
      this.before = this.newest;
      this.newest = tick;
    }
  }

  enter(kind: number, id: number, numbers: ArrayLike<number>, texts: readonly string[], tick: number, ring = 0): void {
    const old = this.byID.get(id);
    const k = this.kinds[kind];
    if (k === undefined) return;
    if (old !== undefined && old.$kind === k) {
      // A keyframe takes everything away and brings it again, in two packets if it is large.
      const i = this.leaving.indexOf(old);
      if (i >= 0) this.leaving.splice(i, 1);
      old.$leave = Infinity;
      old.gone = false;
      this.sample(old, numbers, texts, tick, ring);
      return;
    }
    const e = new k.View(k, id);
    e.$enter = tick;
    e.$ring = ring;
    this.byID.set(id, e);
    this.push(e, numbers, tick, false);
    setTexts(e.texts, texts);
    this.entering.push(e);
  }

  update(id: number, numbers: ArrayLike<number>, texts: readonly string[], tick: number, ring = 0): void {
    const e = this.byID.get(id);
    if (e !== undefined) this.sample(e, numbers, texts, tick, ring);
  }

  leave(id: number, tick: number, gone = true): void {
    const e = this.byID.get(id);
    if (e === undefined || e.$leave !== Infinity) return;
    e.gone = gone;
    e.$leave = tick;
    this.leaving.push(e);
  }

  event(kind: number, numbers: ArrayLike<number>, texts: readonly string[], tick: number): void {
    const k = this.events[kind];
    if (k === undefined) return;
    if (this.queue.length >= MAX_EVENTS) {
      const r = this.queue.shift()!;
      this.events[r.$kind]!.free.push(r);
      this.eventsDropped++;
    }
    const r = k.free.pop() ?? new k.View();
    for (let i = 0; i < r.numbers.length; i++) r.numbers[i] = numbers[i]!;
    setTexts(r.texts, texts);
    r.$tick = tick;
    this.queue.push(r);
  }

  private sample(e: Entity, numbers: ArrayLike<number>, texts: readonly string[], tick: number, ring: number): void {
    setTexts(e.texts, texts);
    e.$ring = ring;
    const last = e.$ticks[e.$head]!;
    if (tick < last) return;
    const before = tick > this.newest ? this.newest : this.before;
    if (before > last && before < tick) {
      // It was not in the packets between. In the innermost ring it went on as expected until the last of them. Farther out it may have
      // strayed from that before, though not long before.
      const from = ring === 0 ? before : Math.min(before, tick - FAR_MS / this.tickMs);
      if (from > last) {
        this.work[AHEAD] = from - last;
        this.extrapolate(e, e.$head, this.scratch);
        this.push(e, this.scratch, from, false);
      }
    }
    if (last < this.lastTick && this.tickMs > 0) e.$strayed = true;
    this.push(e, numbers, tick, tick === last);
  }

  private push(e: Entity, numbers: ArrayLike<number>, tick: number, replace: boolean): void {
    const n = e.numbers.length;
    const prev = e.$head;
    if (!replace) {
      e.$head = (e.$head + 1) % SAMPLES;
      if (e.$count < SAMPLES) e.$count++;
    }
    const at = e.$head * n;
    const m = e.$kind.motion;
    let leap = 0;
    for (let i = 0; i < n; i++) {
      const v = numbers[i]!;
      if (!replace && prev >= 0 && m.mode[i] === LINEAR && Math.abs(v - e.$samples[prev * n + i]!) > m.leap[i]!) leap |= m.group[i]!;
      e.$samples[at + i] = v;
      if (m.mode[i] === ANGLE) turnAt(e.$samples, at + i);
    }
    e.$ticks[e.$head] = tick;
    if (!replace && prev >= 0) this.settle(e, prev, leap);
    if (!replace) e.$leaps[e.$head] = leap;
  }

  // Takes the rounding out of the newest sample. What was sent is anywhere within half a step of what was told; of those places it takes the
  // nearest to where the rates lead from the sample before. Else each sample would be a small jolt, and far away a large one.
  private settle(e: Entity, prev: number, leap: number): void {
    const n = e.numbers.length;
    const s = e.$samples;
    const a = prev * n;
    const b = e.$head * n;
    const m = e.$kind.motion;
    const dt = Math.min(e.$ticks[e.$head]! - e.$ticks[prev]!, MAX_AHEAD);
    for (let k = 0; k < m.order.length; k++) {
      const i = m.order[k]!;
      if (m.mode[i] === STEP || (leap & (1 << i)) !== 0) continue;
      const half = e.$ring < RINGS ? m.half[e.$ring * n + i]! : 0;
      this.work[DIFF] = s[a + i]! + ((speed(m, i, s, a) + speed(m, i, s, b)) / 2) * dt - s[b + i]!;
      if (m.mode[i] === ANGLE) turnAt(this.work, DIFF);
      s[b + i]! += Math.max(-half, Math.min(half, this.work[DIFF]!));
      if (m.mode[i] === ANGLE) turnAt(s, b + i);
    }
  }

  /** Moves to local time now: brings every shown entity up to date and plays what is due. It returns the tick shown. */
  advance(now: number): number {
    return this.move(now, false);
  }

  private move(now: number, unseen: boolean): number {
    const tick = this.clock.advance(now);
    const dt = now - this.lastNow;
    this.lastNow = now;
    const jumped = this.clock.jumped;
    const late = jumped || now - this.lastSeen > UNSEEN_MS;
    if (!unseen) this.lastSeen = now;

    let n = 0;
    for (let k = 0; k < this.entering.length; k++) {
      const e = this.entering[k]!;
      if (e.$enter > tick && !(e.$leave <= tick)) {
        this.entering[n++] = e;
        continue;
      }
      // Whatever came and went in a pause was never there.
      if (e.$leave <= tick) continue;
      e.$shown = true;
      e.own = e.id === this.ownID;
      this.entities.push(e);
      e.$kind.live.push(e);
      this.work[AT] = tick;
      this.evaluate(e);
      if (e.own) this.listener.own?.(e, tick);
      this.listener.enter(e);
    }
    this.entering.length = n;

    // An iterator would leave an object behind for each.
    for (let k = 0; k < this.entities.length; k++) {
      const e = this.entities[k]!;
      e.own = e.id === this.ownID;
      if (jumped) e.$fading = false;
      else if ((e.$strayed || (e.$running && this.newest !== this.lastNewest)) && e.$frames > 0 && !e.$held) this.startFade(e);
      e.$strayed = false;
      e.$prev.set(e.numbers);
      e.$frames++;
      this.work[AT] = tick; // not that of startFade
      this.evaluate(e);
      this.work[FRAME_MS] = dt;
      if (e.$fading) this.fade(e);
      if (e.own) this.listener.own?.(e, tick);
    }
    this.lastDt = dt;
    this.lastTick = tick;
    this.lastNewest = this.newest;

    if (this.queue.length > 0) this.play(tick, unseen ? Infinity : this.tickMs > 0 ? tick - (late ? STALE_MS : LATEST_MS) / this.tickMs : -Infinity);

    n = 0;
    for (let k = 0; k < this.leaving.length; k++) {
      const e = this.leaving[k]!;
      if (e.$leave > tick) {
        this.leaving[n++] = e;
        continue;
      }
      if (this.byID.get(e.id) === e) this.byID.delete(e.id);
      if (!e.$shown) continue;
      this.remove(e);
      this.listener.leave(e);
    }
    this.leaving.length = n;
    return tick;
  }

  /**
   * Says of the things shown how they moved since the frame before, dt ms ago: the second difference of their places, were all frames as
   * long as this one, and whether they jumped: moved otherwise than their speeds say, or for want of those than before, by more than half of that
   * and 2.5 quanta. Call it after advance. Teleports are the world's own.
   */
  measure(dt: number, moved: (jolt: number, jumped: boolean) => void): void {
    const ticks = this.clock.jumped || this.tickMs === 0 ? 0 : dt / this.tickMs;
    const n = Math.min(MEASURED, this.entities.length);
    for (let k = 0; k < n; k++) {
      const e = this.entities[k]!;
      const m = e.$kind.motion;
      const { places } = m;
      if (places.length === 0) continue;
      const way = (e.$way ??= new Float64Array(places.length));
      if (ticks <= 0 || e.$frames < 1) {
        e.$wayMs = 0;
        continue;
      }
      const ratio = e.$wayMs > 0 ? dt / e.$wayMs : 0;
      let jolt = 0;
      let on = 0; // what it moved beside what each of its speeds says
      let before = 0;
      let after = 0;
      let told = 0;
      let q = 0;
      let leap = false;
      for (let j = 0; j < places.length; j++) {
        const i = places[j]!;
        const step = e.numbers[i]! - e.$prev[i]!;
        if (Math.abs(step) > m.leap[i]!) leap = true;
        const last = way[j]! * ratio;
        jolt += (step - last) ** 2;
        const p = m.by[i]! >= 0 ? speed(m, i, e.$prev, 0) * ticks : last;
        const s = m.by[i]! >= 0 ? speed(m, i, e.numbers, 0) * ticks : last;
        before += (step - p) ** 2;
        after += (step - s) ** 2;
        on += (step - (p + s) / 2) ** 2;
        told += ((p + s) / 2) ** 2;
        q = Math.max(q, e.$kind.fields[i]!.q);
        way[j] = step;
      }
      e.$wayMs = leap ? 0 : dt;
      if (leap || ratio === 0) continue;
      const off = Math.sqrt(Math.min(on, before, after));
      moved(Math.sqrt(jolt), off > Math.sqrt(told) / 2 && off > 2.5 * q);
    }
  }

  /** Keeps a page that draws nothing from falling behind; call it after a packet. Nothing is replayed later. */
  idle(now: number): void {
    if (now - this.lastSeen > UNSEEN_MS && now - this.lastNow > UNSEEN_MS) this.move(now, true);
  }

  private remove(e: Entity): void {
    e.$shown = false;
    e.own = false;
    this.entities.splice(this.entities.indexOf(e), 1);
    e.$kind.live.splice(e.$kind.live.indexOf(e), 1);
  }

  // Plays what is due; events before tick stale are not worth it any more.
  private play(tick: number, stale: number): void {
    let i = 0;
    for (; i < this.queue.length; i++) {
      const r = this.queue[i]!;
      if (r.$tick > tick) break;
      const kind = this.events[r.$kind]!;
      if (r.$tick < stale) this.eventsDropped++;
      else this.listener.event(kind.name, r, r.$tick);
      kind.free.push(r);
    }
    if (i > 0) {
      this.queue.copyWithin(0, i);
      this.queue.length -= i;
    }
  }

  // Lets what is left of an error decay like a critically damped spring, which starts with the speed that it has and stops without a jolt.
  private fade(e: Entity): void {
    const dt = this.work[FRAME_MS]!;
    const off = e.$offset!;
    const drift = e.$drift!;
    const { fields, motion: m } = e.$kind;
    const w = 1 / (e.$ring === 0 ? BLEND_MS : BLEND_FAR_MS);
    const decay = Math.exp(-w * dt);
    let left = false;
    for (let i = 0; i < off.length; i++) {
      if (off[i] === 0 && drift[i] === 0) continue;
      const k = drift[i]! + w * off[i]!;
      const d = (off[i]! + k * dt) * decay;
      const v = (drift[i]! - w * k * dt) * decay;
      const small = fields[i]!.q / 16;
      const done = Math.abs(d) < small && Math.abs(v) < small * w;
      off[i] = done ? 0 : d;
      drift[i] = done ? 0 : v;
      if (!done) left = true;
      e.numbers[i]! += off[i]!;
      if (m.mode[i] === ANGLE) turnAt(e.numbers, i);
    }
    e.$fading = left;
  }

  // What was shown goes on from where it is, as fast as it does, and comes to what it should be.
  private startFade(e: Entity): void {
    const n = e.numbers.length;
    const off = (e.$offset ??= new Float64Array(n));
    const drift = (e.$drift ??= new Float64Array(n));
    const m = e.$kind.motion;
    off.set(e.numbers);
    this.work[AT] = this.lastTick - this.lastDt / this.tickMs;
    this.evaluate(e);
    drift.set(e.numbers);
    this.work[AT] = this.lastTick;
    this.evaluate(e);
    let leap = false;
    for (let i = 0; i < n; i++) {
      drift[i] = off[i]! - e.$prev[i]! - (e.numbers[i]! - drift[i]!);
      off[i]! -= e.numbers[i]!;
      if (m.mode[i] === LINEAR) {
        if (Math.abs(off[i]!) > m.leap[i]!) leap = true;
      } else if (m.mode[i] === ANGLE) {
        turnAt(off, i);
        turnAt(drift, i);
      } else {
        off[i] = drift[i] = 0;
      }
      drift[i] = this.lastDt > 0 && e.$frames > 1 ? drift[i]! / this.lastDt : 0;
    }
    e.$fading = !leap;
  }

  private evaluate(e: Entity): void {
    const tick = this.work[AT]!;
    const n = e.numbers.length;
    const s = e.$samples;
    const m = e.$kind.motion;
    let b = e.$head;
    const over = tick - this.newest;
    e.$running = over > 0;
    if (tick >= e.$ticks[b]!) {
      const run = over > 0 ? this.run(over * this.tickMs) : 0;
      this.work[AHEAD] = over > 0 ? this.newest - e.$ticks[b]! + run / this.tickMs : tick - e.$ticks[b]!;
      this.extrapolate(e, b, e.numbers);
      if (over > 0 && e.$ticks[b] === this.newest) this.runOn(e, run);
      return;
    }
    let a = b;
    for (let left = e.$count - 1; left > 0 && e.$ticks[a]! > tick; left--) {
      b = a;
      a = (a + SAMPLES - 1) % SAMPLES;
    }
    const ta = e.$ticks[a]!;
    const tb = e.$ticks[b]!;
    const hold = tick <= ta || tb <= ta;
    const leaps = e.$leaps[b]!;
    const f = hold ? 0 : (tick - ta) / (tb - ta);
    const pa = a * n;
    const pb = b * n;
    for (let i = 0; i < n; i++) {
      const va = s[pa + i]!;
      const d = s[pb + i]! - va;
      const mode = m.mode[i]!;
      const ahead = m.by[i]! >= 0;
      if (hold || (leaps & (1 << i)) !== 0 || (mode === STEP && !ahead)) {
        e.numbers[i] = va;
        continue;
      }
      const p = ahead ? speed(m, i, s, pa) * (tb - ta) : 0;
      const q = ahead ? speed(m, i, s, pb) * (tb - ta) : 0;
      if (mode === ANGLE) {
        // It may have turned round more than once.
        const about = (p + q) / 2;
        this.work[DIFF] = d - about;
        turnAt(this.work, DIFF);
        const by = about + this.work[DIFF]!;
        e.numbers[i] = va + (ahead ? hermite(f, by, p, q) : by * f);
        turnAt(e.numbers, i);
      } else {
        const v = va + (ahead ? hermite(f, d, p, q) : d * f);
        e.numbers[i] = mode === STEP ? Math.round(v) : v;
      }
    }
  }

  // Writes to out what an entity is AHEAD ticks after a sample if it goes on as expected: in fractions what both ends reckon in integers.
  private extrapolate(e: Entity, sample: number, out: Float64Array): void {
    const n = e.numbers.length;
    const s = e.$samples;
    const at = sample * n;
    const m = e.$kind.motion;
    for (let i = 0; i < n; i++) out[i] = s[at + i]!;
    const dt = Math.min(this.work[AHEAD]!, MAX_AHEAD);
    for (let k = 0; k < m.order.length; k++) {
      const i = m.order[k]!;
      const v = out[i]! + ((speed(m, i, s, at) + speed(m, i, out, 0)) / 2) * dt;
      out[i] = m.mode[i] === STEP ? Math.round(v) : v;
      if (m.mode[i] === ANGLE) turnAt(out, i);
    }
  }

  // For how many ms of motion something runs on, ms past the newest packet.
  private run(ms: number): number {
    const fade = Math.min(FADE_MS, Math.max(0, ms - RUN_MS));
    return Math.min(ms, RUN_MS) + fade - (fade * fade) / (2 * FADE_MS);
  }

  // Moves on what nothing is extrapolated along, by the way from the sample before.
  private runOn(e: Entity, ms: number): void {
    const n = e.numbers.length;
    const b = e.$head;
    const a = (b + SAMPLES - 1) % SAMPLES;
    const span = (e.$ticks[b]! - e.$ticks[a]!) * this.tickMs;
    const m = e.$kind.motion;
    if (e.$count < 2 || span <= 0) return;
    for (let i = 0; i < n; i++) {
      if (m.mode[i] !== LINEAR || m.by[i]! >= 0 || (e.$leaps[b]! & (1 << i)) !== 0) continue;
      e.numbers[i]! += ((e.$samples[b * n + i]! - e.$samples[a * n + i]!) * ms) / span;
    }
  }

  /** Forgets everything: each shown entity leaves at once, and events that wait are not played. */
  clear(): void {
    this.entering.length = 0;
    this.leaving.length = 0;
    this.byID.clear();
    this.eventsDropped += this.queue.length;
    this.queue.length = 0;
    this.newest = this.before = -1;
    this.lastTick = -Infinity;
    while (this.entities.length > 0) {
      const e = this.entities[this.entities.length - 1]!;
      this.remove(e);
      this.listener.leave(e);
    }
  }
}

function setTexts(dst: string[], src: readonly string[]): void {
  for (let i = 0; i < src.length; i++) dst[i] = src[i]!;
}

// Cubic from 0 to d with slopes p and q per interval.
function hermite(f: number, d: number, p: number, q: number): number {
  const f2 = f * f;
  const f3 = f2 * f;
  return (f3 - 2 * f2 + f) * p + (3 * f2 - 2 * f3) * d + (f3 - f2) * q;
}

/** @internal An angle in -π … π. */
export function turn(a: number): number {
  if (a > Math.PI) return a - 2 * Math.PI * Math.ceil((a - Math.PI) / (2 * Math.PI));
  if (a < -Math.PI) return a + 2 * Math.PI * Math.ceil((-Math.PI - a) / (2 * Math.PI));
  return a;
}

// The same in place.
function turnAt(a: Float64Array, i: number): void {
  const v = a[i]!;
  if (v > Math.PI) a[i] = v - 2 * Math.PI * Math.ceil((v - Math.PI) / (2 * Math.PI));
  else if (v < -Math.PI) a[i] = v + 2 * Math.PI * Math.ceil((-Math.PI - v) / (2 * Math.PI));
}
