// What a page measures of the motion it shows, second by second; what it tells the server of it (quality.go is the other end); and whose
// fault a stutter was. Nothing is allocated per frame.

import { type Report, clearReport, newReport } from "./packet.ts";
import { type Cause, QualityWatch } from "./quality.ts";

const SECOND_MS = 1000;
/** How often a stutter is looked for, and how long after one is found it is judged: by then a server that stopped is known from a network that did. */
const LOOK_MS = 500;
const JUDGE_MS = 600;
/** After a join, a lost link or a hidden page, nothing is judged for this long: code is read, and the buffer finds its size. */
const SETTLE_MS = 2000;
/** A round trip that has become longer by this, and stays so, is the network's doing. */
const FARTHER_MS = 35;
const TRIPS = 64;
/** A pause between two frames that is none: the page was not shown, or the machine slept. */
const AWAY_MS = 5000;
/** A report over a longer time is not sent. */
const LONGEST_MS = 10_000;
/** Past the newest packet by more than this, what runs on is not as good as true. */
const DRY_MS = 34;
const GAPS = 512;
/** Jolts are counted in steps of 9 %, from a millionth to a million. */
const PER_OCTAVE = 8;
const JOLTS = 40 * PER_OCTAVE;
const LEAST_JOLT = 1e-6;
/** What the overlay draws. */
export const RECENT = 120;

/** Numbers of the last whole second. */
export interface Second {
  fps: number;
  frameP99Ms: number;
  frameMaxMs: number;
  longTasks: number;
  underruns: number;
  jumps: number;
  joltP99: number;
  rollbacks: number;
  unreadable: number;
  baseless: number;
  starved: number;
}

/** The last times between two things, oldest first; see {@link Gaps.at}. */
export class Gaps {
  private readonly ring = new Float64Array(RECENT);
  private n = 0;
  private last = -1;

  note(now: number): void {
    if (this.last >= 0 && now > this.last) this.ring[this.n++ % RECENT] = now - this.last;
    this.last = now;
  }

  /** What comes next does not continue this. */
  interrupt(): void {
    this.last = -1;
  }

  get count(): number {
    return Math.min(this.n, RECENT);
  }

  at(i: number): number {
    return this.ring[(this.n - this.count + i) % RECENT]!;
  }
}

/** What the meter asks of its room when a second is over. */
export interface Standing {
  pingMs(): number;
  stateAgeMs(): number;
  bufferMs(): number;
  rollbacks(): number;
}

export class Meter {
  readonly second: Second = {
    fps: 0, frameP99Ms: 0, frameMaxMs: 0, longTasks: 0, underruns: 0, jumps: 0, joltP99: 0, rollbacks: 0, unreadable: 0, baseless: 0, starved: 0,
  };
  /** What the last stutter came from, and when it was judged; null: there was none. */
  cause: Cause | null = null;
  causeAt = -Infinity;
  /** Stutters, by cause, since the join. */
  readonly stutters: Record<Cause, number> = { server: 0, network: 0, page: 0 };
  readonly frames = new Gaps();
  readonly packets = new Gaps();
  /** Packets refused since the join. */
  unreadable = 0;
  baseless = 0;
  /** What was measured since the report before. */
  private readonly report: Report = newReport();
  private reportedAt = -1;
  private watch = new QualityWatch(0, 20);
  private readonly standing: Standing;

  // The second that goes on.
  private since = -1;
  private readonly gaps = new Float64Array(GAPS);
  private gapCount = 0;
  private drawn = 0;
  private lastFrame = -1;
  private readonly jolts = new Uint32Array(JOLTS + 1);
  private joltCount = 0;
  private jumped = false;
  private lookAt = 0;
  private pending: Cause | null = null;
  private pendingAt = 0;
  private settled = false;
  private settleAt = 0;
  private readonly trips = new Float64Array(TRIPS);
  private readonly tripAt = new Float64Array(TRIPS);
  private tripCount = 0;
  private rollbacksBefore = 0;
  private readonly now: Second = { ...this.second };

  constructor(standing: Standing) {
    this.standing = standing;
  }

  /** Another room, or one that sends otherwise. */
  describe(tickMs: number, sendHz: number): void {
    this.watch = new QualityWatch(tickMs, sendHz);
  }

  /** The page was hidden or the link lost: what was before says nothing of what comes. */
  interrupt(now: number): void {
    this.watch.interrupt();
    this.frames.interrupt();
    this.packets.interrupt();
    this.pending = null;
    this.settled = false;
    this.settleAt = now + SETTLE_MS;
    this.tripCount = 0;
    this.lastFrame = -1;
    this.reset(now);
    clearReport(this.report);
    this.reportedAt = now;
  }

  packet(tick: number, now: number): void {
    this.watch.packet(tick, now);
    this.packets.note(now);
  }

  /** A round trip was measured. */
  roundTrip(ms: number, now: number): void {
    const i = this.tripCount++ % TRIPS;
    this.trips[i] = ms;
    this.tripAt[i] = now;
  }

  /** A packet was refused. */
  refused(baseless: boolean): void {
    if (baseless) {
      this.baseless++;
      this.now.baseless++;
    } else {
      this.unreadable++;
      this.now.unreadable++;
    }
  }

  /** The server says that the newest input came too late. */
  starved(): void {
    this.now.starved++;
  }

  longTask(): void {
    this.now.longTasks++;
  }

  /** How one thing moved in this frame: the second difference of its place, and whether it moved otherwise than it was told to. */
  readonly moved = (jolt: number, jumped: boolean): void => {
    if (jumped) this.jumped = true;
    const i = jolt <= LEAST_JOLT ? 0 : Math.min(JOLTS, 1 + Math.floor(Math.log2(jolt / LEAST_JOLT) * PER_OCTAVE));
    this.jolts[i]!++;
    this.joltCount++;
  };

  /** A frame was shown, so many ms past the newest packet, after {@link moved} was told of it. */
  frame(now: number, past: number): void {
    if (now <= this.lastFrame) {
      // A page may look twice.
      this.jumped = false;
      return;
    }
    if (this.lastFrame >= 0 && now - this.lastFrame < AWAY_MS && this.gapCount < GAPS) this.gaps[this.gapCount++] = now - this.lastFrame;
    this.lastFrame = now;
    this.drawn++;
    if (past > DRY_MS) this.now.underruns++;
    if (this.jumped) this.now.jumps++;
    this.jumped = false;
    this.frames.note(now);
    this.watch.frame(now, past);
  }

  /** Closes the second if it is over. Call it with each frame and packet. */
  roll(now: number): void {
    if (this.since < 0) this.reset(now);
    if (this.reportedAt < 0) this.reportedAt = now;
    if (now >= this.lookAt) this.look(now);
    const ms = now - this.since;
    if (ms < SECOND_MS) return;
    const n = this.now;
    const rollbacks = this.standing.rollbacks();
    n.rollbacks = Math.max(0, rollbacks - this.rollbacksBefore);
    this.rollbacksBefore = rollbacks;
    n.fps = (this.drawn * 1000) / ms;
    const sorted = this.gaps.subarray(0, this.gapCount).sort();
    n.frameMaxMs = this.gapCount === 0 ? 0 : sorted[this.gapCount - 1]!;
    n.frameP99Ms = this.gapCount === 0 ? 0 : sorted[Math.ceil(this.gapCount * 0.99) - 1]!;
    n.joltP99 = this.joltHigh();
    Object.assign(this.second, n);

    const r = this.report;
    r.frames += this.drawn;
    r.frameP99Ms = Math.max(r.frameP99Ms, n.frameP99Ms);
    r.frameMaxMs = Math.max(r.frameMaxMs, n.frameMaxMs);
    r.longTasks += n.longTasks;
    r.stateAgeMs = Math.max(r.stateAgeMs, this.standing.stateAgeMs());
    r.underruns += n.underruns;
    r.jumps += n.jumps;
    r.rollbacks += n.rollbacks;
    r.unreadable += n.unreadable;
    r.baseless += n.baseless;
    r.starved += n.starved;
    r.joltP99 = Math.max(r.joltP99, n.joltP99);
    this.reset(now);
  }

  /**
   * What to tell the server, if everyMs have passed since the report before; null: nothing yet, or the page draws nothing. The object is the same
   * each time; reported takes note that it was sent.
   */
  due(everyMs: number): Report | null {
    const r = this.report;
    // Whole seconds: that which goes on is for the next one.
    if (this.since - this.reportedAt < everyMs || r.frames === 0) return null;
    r.spanMs = this.since - this.reportedAt;
    if (r.spanMs > LONGEST_MS) {
      // It drew, or could tell, too seldom.
      this.reported();
      return null;
    }
    r.pingMs = this.standing.pingMs();
    r.bufferMs = this.standing.bufferMs();
    return r;
  }

  reported(): void {
    clearReport(this.report);
    this.reportedAt = this.since;
  }

  private reset(now: number): void {
    this.since = now;
    this.gapCount = this.drawn = this.joltCount = 0;
    this.jolts.fill(0);
    const n = this.now;
    n.fps = n.frameP99Ms = n.frameMaxMs = n.longTasks = n.underruns = n.jumps = n.joltP99 = n.rollbacks = n.unreadable = n.baseless = n.starved = 0;
  }

  private look(now: number): void {
    this.lookAt = now + LOOK_MS;
    if (!this.settled) {
      if (now < this.settleAt) return;
      this.settled = true;
      this.watch.interrupt();
    }
    const found = this.watch.cause(now);
    const was = this.pending;
    if (was === null) {
      this.pending = found;
      this.pendingAt = now;
      if (found !== null) this.lookAt = now + JUDGE_MS;
      return;
    }
    let cause = found ?? was;
    // Ticks that come later for good: steps that were not made, or a longer way. The way back tells.
    if (cause === "server" && this.farther()) cause = "network";
    this.pending = null;
    this.cause = cause;
    this.causeAt = now;
    this.stutters[cause]++;
    this.report[cause]++;
    // It is told once.
    this.watch.interrupt();
  }

  // The least round trip since a stutter was found is longer than the least of before.
  private farther(): boolean {
    let before = Infinity;
    let since = Infinity;
    for (let k = Math.max(0, this.tripCount - TRIPS); k < this.tripCount; k++) {
      const ms = this.trips[k % TRIPS]!;
      if (this.tripAt[k % TRIPS]! >= this.pendingAt) since = Math.min(since, ms);
      else before = Math.min(before, ms);
    }
    return before < Infinity && since < Infinity && since - before > FARTHER_MS;
  }

  private joltHigh(): number {
    let left = Math.ceil(this.joltCount * 0.01);
    if (this.joltCount === 0) return 0;
    for (let i = JOLTS; i > 0; i--) {
      left -= this.jolts[i]!;
      if (left <= 0) return LEAST_JOLT * 2 ** ((i - 0.5) / PER_OCTAVE);
    }
    return 0;
  }
}
