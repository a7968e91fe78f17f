// Two clocks over one stream of arrivals: which tick to show now, and which tick an input given now is for.
//
// A packet's offset is its arrival minus its tick's time. The least offset of the last 60 packets is the base: a packet that
// met no delay. Everything above it is jitter. What a packet needs of the render clock is that it has not passed the tick before the
// packet's when the packet comes; the clock stays behind by as much as nearly all packets need, be they late or the ones before them lost.
//
// lab/motion/clock.go is the twin of this file; test/motion.test.ts holds both to wire/testdata/motion.json.

const WINDOW = 60; // packets, 3 s at 20 Hz

/** Longest buffer in ms. Uncapped, a lossy ordered link drives it to 400 ms for stalls that no buffer hides anyway. */
const MAX_DELAY_ORDERED = 250;
const MAX_DELAY_UNORDERED = 400;
/** What was away for this long was not late: no buffer is made for it. */
const PAUSE_MS = 1000;

/** How late packets come, over the last {@link WINDOW} of them. */
export class Arrivals {
  readonly tickMs: number;
  /** The least arrival − tick time seen, in ms. Meaningless while count is 0. */
  base = 0;
  /** The 97th percentile of jitter above base, in ms. */
  jitter = 0;
  count = 0;
  private readonly offsets = new Float64Array(WINDOW);
  private next = 0;

  constructor(tickMs: number) {
    this.tickMs = tickMs;
  }

  reset(): void {
    this.count = 0;
    this.next = 0;
  }

  note(tick: number, now: number): void {
    this.offsets[this.next] = now - tick * this.tickMs;
    this.next = (this.next + 1) % WINDOW;
    if (this.count < WINDOW) this.count++;
    let base = Infinity;
    for (let i = 0; i < this.count; i++) base = Math.min(base, this.offsets[i]!);
    this.base = base;
    this.jitter = high(this.offsets, this.count) - base;
  }
}

// The 97th percentile of the first count numbers: of 60 the third largest.
function high(of: Float64Array, count: number): number {
  let a = -Infinity;
  let b = -Infinity;
  let c = -Infinity;
  for (let i = 0; i < count; i++) {
    const o = of[i]!;
    if (o > a) {
      c = b;
      b = a;
      a = o;
    } else if (o > b) {
      c = b;
      b = o;
    } else if (o > c) {
      c = o;
    }
  }
  return count >= 40 ? c : count >= 20 ? b : a;
}

/**
 * The render clock: turns local time into the tick to show. It runs behind the newest tick by what 97 % of the last
 * packets needed, at least a send period, and 10 ms, at a rate within 5 % of real time, and jumps when it is off by more than 250 ms. In a room without a beat it always
 * shows the newest tick.
 */
export class RenderClock {
  /** The buffer in ms: how far the clock wants to run behind an undelayed packet. */
  delay: number;
  /** The tick shown, with fraction. */
  tick = 0;
  /** The last advance did not continue the one before: the first, or after a pause or a jump. */
  jumped = true;
  private readonly arrivals: Arrivals;
  private readonly periodMs: number;
  private readonly maxDelay: number;
  private last = -Infinity;
  private newest = -1;
  private readonly needs = new Float64Array(WINDOW); // by packet: its arrival − the time of the tick that was the newest until then
  private next = 0;
  private count = 0;
  private shown = 0; // ms of server time
  private running = false; // shown is of this server's time

  constructor(arrivals: Arrivals, sendHz: number, ordered: boolean) {
    this.arrivals = arrivals;
    this.periodMs = 1000 / Math.max(1, sendHz);
    this.delay = this.periodMs + 10;
    this.maxDelay = ordered ? MAX_DELAY_ORDERED : MAX_DELAY_UNORDERED;
  }

  reset(): void {
    this.newest = -1;
    this.running = false;
    this.last = -Infinity;
    this.next = this.count = 0;
    this.delay = this.periodMs + 10;
  }

  /** Notes that a packet has come at local time now, after {@link Arrivals.note}. One that was overtaken helps nobody and is not told. */
  arrive(tick: number, now: number): void {
    if (tick <= this.newest) return;
    const { tickMs, base } = this.arrivals;
    const need = now - this.newest * tickMs;
    if (this.newest >= 0 && need - base < PAUSE_MS) {
      this.needs[this.next] = need;
      this.next = (this.next + 1) % WINDOW;
      if (this.count < WINDOW) this.count++;
    }
    this.newest = tick;
    const want = Math.min(this.maxDelay, Math.max(this.periodMs, high(this.needs, this.count) - base) + 10);
    this.delay += (want - this.delay) * (want > this.delay ? 0.25 : 0.02);
  }

  /** Moves the clock to local time now (ms) and returns the tick to show. */
  advance(now: number): number {
    const { tickMs, base, count } = this.arrivals;
    if (tickMs === 0 || (count === 0 && !this.running)) {
      this.jumped = this.last === -Infinity;
      this.last = now;
      this.tick = Math.max(0, this.newest);
      return this.tick;
    }
    // On a new link it goes on as it went until a packet tells better: to show the newest tick would be a step back.
    const target = count === 0 ? this.shown + (now - this.last) : now - base - this.delay;
    this.running = true;
    const dt = now - this.last;
    this.last = now;
    const error = target - this.shown - dt;
    if (!(dt >= 0 && dt < 500) || Math.abs(error) > 250) {
      this.jumped = true;
      this.shown = target;
    } else {
      this.jumped = false;
      // 4 ms off goes unseen, and so does a rate within 5 %.
      const rate = Math.abs(error) < 4 ? 1 : 1 + Math.max(-0.05, Math.min(0.05, error / 400));
      this.shown += dt * rate;
    }
    this.tick = this.shown / tickMs;
    return this.tick;
  }

  /** How far what is shown lies behind what an undelayed packet would show now, in ms. */
  behind(now: number): number {
    return this.arrivals.count === 0 || this.arrivals.tickMs === 0 ? 0 : now - this.arrivals.base - this.shown;
  }
}

/**
 * The input clock: which step an input given now is for. It leads the newest tick by the round trip and a margin, and learns
 * the lead from the margins that the server reports: up at once when inputs came late, down slowly.
 */
export class InputClock {
  /** Ticks ahead of the newest tick that an undelayed packet would bring now. */
  lead: number;
  private readonly arrivals: Arrivals;
  private readonly goal: number;
  private holdUntil = 0;
  private least = Infinity;
  private seen = 0;

  /** batch is the number of steps that one input message covers: its oldest input, too, should come in time. */
  constructor(arrivals: Arrivals, rttMs: number, batch: number) {
    this.arrivals = arrivals;
    this.goal = batch + 1;
    // A join may have waited for its room to open. Too little is made good with the first margin, too much only slowly.
    this.lead = arrivals.tickMs === 0 ? 0 : Math.min(rttMs, 100) / arrivals.tickMs + this.goal;
  }

  /** The step that an input given at local time now is for; 0 in rooms without a beat: the next one. */
  label(now: number): number {
    return this.arrivals.tickMs === 0 || this.arrivals.count === 0 ? 0 : Math.max(1, Math.floor(this.at(now)));
  }

  /** The same with the part of the step that has passed. It means nothing before the first packet, and in rooms without a beat. */
  at(now: number): number {
    return (now - this.arrivals.base) / this.arrivals.tickMs + this.lead;
  }

  /**
   * Takes what a state packet of that tick says: the margin of the newest input that had come, and its label; sent is the newest
   * label sent so far. Every packet tells something, also one that acks nothing new.
   */
  margin(steps: number, acked: number, tick: number, sent: number): void {
    // After a change, margins of inputs that were labelled before it would count it twice.
    if (acked < this.holdUntil) return;
    // Of inputs that come together after a hold-up, the newest has a good margin, and one that was lost has none. How far the newest is
    // ahead of the packet's tick shows both.
    const least = this.goal - 1;
    steps = Math.min(steps, acked - tick - 1 + least);
    if (steps < least) {
      this.change(Math.min(30, this.goal - steps), sent);
      return;
    }
    this.least = Math.min(this.least, steps);
    if (++this.seen < WINDOW) return;
    const over = this.least - this.goal;
    if (over > 1) this.change(over > 6 ? 3 - over : -over / 2, sent);
    this.seen = 0;
    this.least = Infinity;
  }

  private change(by: number, sent: number): void {
    // A second of lead at most: more would be a fault, not a distance.
    this.lead = Math.max(0, Math.min(this.lead + by, 1000 / this.arrivals.tickMs));
    this.holdUntil = sent + 1;
    this.seen = 0;
    this.least = Infinity;
  }
}
