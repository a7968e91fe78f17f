// Inputs and acks: when what the player holds goes out, for which step, and what the server says of it.

import { type Arrivals, InputClock } from "./clock.ts";
import type { Env } from "./env.ts";
import type { Link } from "./link.ts";
import { Acks, InputCodec, MARGIN_NONE, MAX_INPUTS, type StateHeader, type Welcome, encodeAck, near16 } from "./packet.ts";
import { Sampler } from "./sampler.ts";

/** Input messages a second, and the inputs in each of them on an ordered link, the newest ones again included. */
const SENDS_PER_SEC = 20;
/** Where messages get lost, the next one must come soon: one a step at 60, each with the newest four inputs. */
const SENDS_PER_SEC_UNORDERED = 60;
const REPEAT = 3;
const REPEAT_UNORDERED = 4;
/** A packet is acked after this long at the latest: by an input that goes out anyhow, else by an ack alone. */
const ACK_MS = 250;
/** A picture older than this is not what the player acts on: the page draws none. */
const PICTURE_MS = 250;
/** A link that has this many bytes waiting takes no more inputs: they would be late. */
const MAX_WAITING_BYTES = 16 << 10;

/** The client's half of one link at a time. */
export class Inputs {
  /** State packets received on this link. */
  acks = new Acks();
  /** Is told of each sample, values as the server gets them. */
  onSample: ((label: number, values: Float64Array) => void) | null = null;
  /** Steps by which the newest input was early, as the server says; negative: late. */
  margin = MARGIN_NONE;
  private readonly env: Env;
  private readonly link: () => Link | null; // null: there is no live one
  private readonly roundTrip: (ms: number) => void;
  private hz = 0;
  private sendHz = 0;
  private ordered = true;
  private sampler: Sampler | null = null;
  private clock: InputClock | null = null;
  private asked = false; // the server wants to know what the player sees
  private picture = 0; // the tick shown
  private pictureAt = -Infinity;
  private behind = 0; // the newest label against the picture it was given before, in ticks; 0: unknown
  private wanted = false; // the page gives inputs
  private dirty = false; // without a beat: a change waits for its turn
  private timer: unknown = null;
  private sentAt = -Infinity;
  private unackedAt = -1; // when the first packet after the newest ack came; -1: none has
  private ackTimer: unknown = null;
  private readonly sentLabels = new Float64Array(256);
  private readonly sentTimes = new Float64Array(256);
  private lastAck = -1;

  constructor(env: Env, link: () => Link | null, roundTrip: (ms: number) => void) {
    this.env = env;
    this.link = link;
    this.roundTrip = roundTrip;
  }

  /** Takes over the room's input fields: what was held is let go. It throws for fields of an unknown kind. */
  describe(w: Welcome): void {
    this.sampler = new Sampler(new InputCodec(w.inputs));
    this.sampler.onSample = (label, values) => this.onSample?.(label, values);
  }

  /** How the room's inputs are encoded; null before the first welcome. */
  get codec(): InputCodec | null {
    return this.sampler?.codec ?? null;
  }

  /** The step that an input given at local time now is for, with the part of it that has passed. */
  at(now: number): number {
    return this.clock?.at(now) ?? 0;
  }

  /** Starts over for a new link. */
  attach(w: Welcome, arrivals: Arrivals, rttMs: number): void {
    this.hz = w.hz;
    this.sendHz = w.sendHz;
    this.ordered = w.ordered;
    this.asked = (w.rewindMs ?? 0) > 0;
    this.behind = 0;
    this.clock = new InputClock(arrivals, rttMs, Math.max(1, Math.min(MAX_INPUTS, w.hz / this.sendsPerSec)));
    this.sampler!.restart();
    this.sentLabels.fill(0);
    this.lastAck = -1;
    this.margin = MARGIN_NONE;
    this.acks = new Acks();
    this.unackedAt = -1;
    this.sentAt = -Infinity;
  }

  /** The page shows tick from now on. */
  shows(tick: number, now: number): void {
    this.picture = tick;
    this.pictureAt = tick > 0 ? now : -Infinity;
  }

  // Takes the samples that are due. What they hold was set by what the page last showed.
  private sample(now: number): void {
    const s = this.sampler!;
    const before = s.label;
    s.sampleTo(this.clock!.label(now));
    if (s.label !== before) this.behind = now - this.pictureAt > PICTURE_MS ? 0 : s.label - this.picture;
  }

  /** Sets fields of the current input. It throws for a field that the world's input does not have. */
  set(fields: Record<string, unknown>): void {
    const s = this.sampler;
    if (s === null) return;
    const now = this.env.now();
    const running = this.running;
    // What was held until now belongs to the steps until now.
    if (running) this.sample(now);
    let changed = !this.wanted;
    this.wanted = true;
    for (const name in fields) {
      const i = s.codec.field(name);
      if (i < 0) throw new Error(`drumline: no input field "${name}"; there are: ${s.codec.fields.map((f) => f.name).join(", ")}`);
      if (s.set(i, Number(fields[name]))) changed = true;
    }
    if (changed && this.hz === 0) this.pumpNoBeat(now, true);
    else if (!running) this.start();
  }

  /** Inputs go out by themselves. */
  private get running(): boolean {
    return this.wanted && this.link() !== null && !this.env.hidden();
  }

  /** Sends from now on, if the page gives inputs and is seen. */
  start(): void {
    this.stopTimer();
    if (!this.running) return;
    const period = 1000 / this.sendsPerSec;
    let due = this.env.now();
    const tick = (): void => {
      const now = this.env.now();
      this.pump(now);
      due = Math.max(due + period, now);
      this.timer = this.env.setTimeout(tick, due - now);
    };
    tick();
  }

  /** The link has ended. */
  stop(): void {
    this.stopTimer();
    this.env.clearTimeout(this.ackTimer);
    this.ackTimer = null;
  }

  private stopTimer(): void {
    this.env.clearTimeout(this.timer);
    this.timer = null;
  }

  /** Lets everything go and stops: keys that go up while another page is in front are not heard of. */
  hide(): void {
    const s = this.sampler;
    if (this.link() !== null && this.wanted && s !== null) {
      s.sampleTo(this.clock!.label(this.env.now()));
      s.release();
      if (this.hz === 0) this.pumpNoBeat(this.env.now(), true);
      else {
        s.sampleTo(s.label + 1);
        this.send(this.env.now());
      }
    }
    this.stopTimer();
  }

  private get sendsPerSec(): number {
    return this.ordered ? SENDS_PER_SEC : SENDS_PER_SEC_UNORDERED;
  }

  /** Sends what is due. */
  pump(now: number): void {
    if (!this.running) return;
    if (this.hz === 0) {
      this.pumpNoBeat(now, false);
      return;
    }
    const s = this.sampler!;
    this.sample(now);
    // Frames come every 16.7 ms; without some slack each message would wait for one frame more.
    const period = Math.max(1000 / this.sendsPerSec - 4, 0);
    if (now - this.sentAt >= period || s.fresh >= MAX_INPUTS) this.send(now);
  }

  // Without a beat the room steps for each input: what changed is sent, nothing is repeated.
  private pumpNoBeat(now: number, changed: boolean): void {
    const s = this.sampler!;
    if (this.link() === null || !(changed || this.dirty || s.pending)) return;
    const wait = this.sentAt + 1000 / Math.max(1, this.sendHz) - now;
    if (wait > 0) {
      this.dirty = true;
      this.env.clearTimeout(this.timer);
      this.timer = this.env.setTimeout(() => this.pumpNoBeat(this.env.now(), false), wait);
      return;
    }
    this.dirty = false;
    s.sample();
    this.send(now);
    if (s.pending) this.pumpNoBeat(now, true);
  }

  private send(now: number): void {
    const s = this.sampler!;
    const link = this.link();
    if (link === null || link.buffered > MAX_WAITING_BYTES) return;
    const seen = !this.asked || s.label === 0 ? -1 : this.behind <= 0 ? 0 : Math.max(1, Math.min(0xffff, Math.round(this.behind * 16)));
    const msg = s.message(this.acks, this.ordered ? REPEAT : REPEAT_UNORDERED, seen);
    if (msg === null) return;
    this.sentAt = now;
    this.unackedAt = -1;
    this.sentLabels[s.label & 255] = s.label;
    this.sentTimes[s.label & 255] = now;
    link.send(msg);
  }

  /** Sends what is due after a state packet, since timers sleep in hidden pages and packets do not; at least an ack. */
  afterPacket(now: number): void {
    if (this.unackedAt < 0) this.unackedAt = now;
    this.pump(now);
    this.ack(now);
  }

  // Acks what has waited for long enough, and comes again for what has not.
  private ack(now: number): void {
    const link = this.link();
    if (link === null || this.unackedAt < 0) return;
    let wait = this.unackedAt + ACK_MS - now;
    if (wait <= 0) {
      // Into a link that is stuck they would only pile up.
      if (link.buffered <= MAX_WAITING_BYTES) {
        this.unackedAt = -1;
        link.send(encodeAck(this.acks));
        return;
      }
      wait = ACK_MS;
    }
    this.ackTimer ??= this.env.setTimeout(() => {
      this.ackTimer = null;
      this.ack(this.env.now());
    }, wait);
  }

  /** Takes in what a state packet of that tick says of the inputs. */
  margins(h: StateHeader, tick: number, now: number): void {
    const s = this.sampler;
    if (h.margin === MARGIN_NONE || s === null || s.label === 0) return;
    this.margin = h.margin;
    const label = near16(s.label, h.inputAck);
    this.clock!.margin(h.margin, label, tick, s.label);
    if (label === this.lastAck) return;
    this.lastAck = label;
    if (this.sentLabels[label & 255] === label) this.roundTrip(now - this.sentTimes[label & 255]!);
  }
}
