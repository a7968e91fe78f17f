// Whose fault a stutter was: the server's, the network's or the page's own. What tells them apart, in what a page can see:
//
//   server   its steps stopped; after the few that it makes up for it drops the rest, so every later packet comes that much later
//            than its tick says, for good
//   network  packets come late or not at all, and those after them in time again: their ticks went on meanwhile
//   page     frames stopped; what came meanwhile was only looked at afterwards, so it tells nothing of the network
//
// A lasting change of the way through the network by more than HARM_MS looks like a server that stopped: both move the ticks for good.

/** Less than this is not noticed, or the buffer hides it. */
const HARM_MS = 50;
/** Past the newest packet by less than this, what runs on is as good as true. */
const DRY_MS = 34;
/** Packets on each side of a change without which it is not certain to last. */
const SIDE = 8;
/** Frames and packets that a collector keeps: three seconds, at up to 120 frames and 60 packets a second. */
const FRAMES = 360;
const PACKETS = 180;
const KEEP_MS = 3000;
/** A gap between two packets that is not counted into that, and at most so much of it. */
const LONG_GAP_MS = 500;
const MAX_GAP_MS = 6000;

/** What made the motion stutter. */
export type Cause = "server" | "network" | "page";

/** What a page saw in the last seconds, oldest first. Times are local milliseconds. */
export interface QualityWindow {
  tickMs: number;
  /** Between two packets, as the server sends them. */
  periodMs: number;
  /** Of the packets that were read, in the order in which they came: their ticks and arrivals. */
  ticks: ArrayLike<number>;
  arrivals: ArrayLike<number>;
  /** When frames were drawn, and how far past the newest packet each of them showed, in ms; 0: not at all. */
  frames: ArrayLike<number>;
  past: ArrayLike<number>;
}

/**
 * Says what made the motion stutter in a window, null if nothing did. It is certain about the server half a second after the stutter: until then
 * it may say "network". Where there are several causes it names the one that cost the most time. It changes nothing.
 */
export function attribute(w: QualityWindow): Cause | null {
  const n = w.frames.length;
  // The page: frames that did not come.
  const gaps: number[] = [];
  for (let i = 1; i < n; i++) gaps.push(w.frames[i]! - w.frames[i - 1]!);
  const usual = gaps.length === 0 ? 0 : [...gaps].sort((a, b) => a - b)[gaps.length >> 1]!;
  const blocked = (i: number): boolean => i > 0 && gaps[i - 1]! > Math.max(HARM_MS, 2.5 * usual);
  let page = 0;
  let visible = false; // the buffer ran dry
  for (let i = 0; i < n; i++) {
    if (blocked(i)) page = Math.max(page, gaps[i - 1]! - usual);
    else if (w.past[i]! > DRY_MS) visible = true;
  }
  // Packets that came while the page slept have no arrival; nor have those that waited for it, which are read right after.
  const ticks: number[] = [];
  const at: number[] = [];
  for (let k = 0, i = 0; k < w.ticks.length; k++) {
    while (i < n && w.frames[i]! + usual < w.arrivals[k]!) i++;
    if ((i < n && blocked(i)) || (i + 1 < n && blocked(i + 1) && w.frames[i]! < w.arrivals[k]!)) continue;
    ticks.push(w.ticks[k]!);
    at.push(w.arrivals[k]!);
  }
  const { shift, from } = lasting(ticks, at, w.tickMs);
  const server = shift >= HARM_MS && visible ? shift : 0;
  const network = visible ? holdUp(ticks, at, w, server > 0 ? from : -1) : 0;
  const most = Math.max(page, server, network);
  if (most < HARM_MS) return null;
  return most === page ? "page" : most === server ? "server" : "network";
}

// By how much packets come later for good, against their ticks, and from which packet on.
function lasting(ticks: readonly number[], at: readonly number[], tickMs: number): { shift: number; from: number } {
  const n = ticks.length;
  const after = new Float64Array(n + 1).fill(Infinity); // the least offset from each packet on
  for (let k = n - 1; k >= 0; k--) after[k] = Math.min(after[k + 1]!, at[k]! - ticks[k]! * tickMs);
  const rise = new Float64Array(n); // at each packet
  let before = Infinity;
  let shift = 0;
  for (let k = 0; k <= n - SIDE; k++) {
    if (k >= SIDE) shift = Math.max(shift, (rise[k] = after[k]! - before));
    before = Math.min(before, at[k]! - ticks[k]! * tickMs);
  }
  return { shift, from: rise.findIndex((r) => r > 0 && r > shift - HARM_MS / 2) };
}

// The longest that a packet was missed for, beyond a period: because it was late, or those before it were lost. From packet `from` on the
// ticks are later than before, for which the network can do nothing; -1: nowhere.
function holdUp(ticks: readonly number[], at: readonly number[], w: QualityWindow, from: number): number {
  const base = (a: number, b: number): number => {
    let least = Infinity;
    for (let k = a; k < b; k++) least = Math.min(least, at[k]! - ticks[k]! * w.tickMs);
    return least;
  };
  const n = ticks.length;
  const first = base(0, from < 0 ? n : from);
  const second = from < 0 ? first : base(from, n);
  let most = 0;
  for (let k = 1; k < n; k++) {
    if (from >= 0 && k >= from - 1 && k < from + SIDE) continue;
    most = Math.max(most, at[k]! - (from >= 0 && k >= from ? second : first) - ticks[k - 1]! * w.tickMs - w.periodMs);
  }
  return most;
}

/**
 * Keeps what {@link attribute} needs, of the last three seconds. It allocates nothing until it is asked.
 *
 *   packet(tick, now)      after each state packet that was read
 *   frame(now, past)       after each view; past: (tick shown − newest tick) · tickMs
 *   interrupt()            when the page was hidden or the link lost: what was before says nothing of what comes
 *   cause()                about half a second after a stutter, or once a second
 */
export class QualityWatch {
  private readonly tickMs: number;
  private readonly periodMs: number;
  private readonly ticks = new Float64Array(PACKETS);
  private readonly arrivals = new Float64Array(PACKETS);
  private readonly frames = new Float64Array(FRAMES);
  private readonly past = new Float64Array(FRAMES);
  private packetCount = 0;
  private frameCount = 0;

  /** Without a beat (tickMs 0) it never finds a cause. */
  constructor(tickMs: number, sendHz: number) {
    this.tickMs = tickMs;
    this.periodMs = 1000 / Math.max(1, sendHz);
  }

  packet(tick: number, now: number): void {
    const i = this.packetCount++ % PACKETS;
    this.ticks[i] = tick;
    this.arrivals[i] = now;
  }

  frame(now: number, past: number): void {
    const i = this.frameCount++ % FRAMES;
    this.frames[i] = now;
    this.past[i] = Math.max(0, past);
  }

  interrupt(): void {
    this.packetCount = this.frameCount = 0;
  }

  /** What made the motion stutter in the last three seconds before now; null: nothing did. */
  cause(now: number): Cause | null {
    return this.tickMs === 0 ? null : attribute(this.window(now));
  }

  window(now: number): QualityWindow {
    let since = now - KEEP_MS;
    // A long gap must not leave nothing of before it.
    let later = now;
    for (let k = this.packetCount - 1; k >= Math.max(0, this.packetCount - PACKETS) && later >= since; k--) {
      const at = this.arrivals[k % PACKETS]!;
      if (later - at > LONG_GAP_MS && now - since < KEEP_MS + MAX_GAP_MS) since -= later - at;
      later = at;
    }
    const packets = recent(this.arrivals, this.packetCount, since);
    const frames = recent(this.frames, this.frameCount, since);
    return {
      tickMs: this.tickMs, periodMs: this.periodMs,
      ticks: packets.map((i) => this.ticks[i]!), arrivals: packets.map((i) => this.arrivals[i]!),
      frames: frames.map((i) => this.frames[i]!), past: frames.map((i) => this.past[i]!),
    };
  }
}

// The places in a ring of what came since a time, oldest first.
function recent(times: Float64Array, count: number, since: number): number[] {
  const all: number[] = [];
  for (let k = Math.max(0, count - times.length); k < count; k++) {
    const i = k % times.length;
    if (times[i]! >= since) all.push(i);
  }
  return all;
}
