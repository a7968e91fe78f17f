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

/** What a page saw in the last seconds, oldest first. Times are local milliseconds. One is filled again and again: read it before the next. */
export class QualityWindow {
  readonly tickMs: number;
  /** Between two packets, as the server sends them. */
  readonly periodMs: number;
  /** The packets that were read, in the order in which they came: how many, their ticks and arrivals. */
  packets = 0;
  readonly ticks = new Float64Array(PACKETS);
  readonly arrivals = new Float64Array(PACKETS);
  /** How many frames, when they were drawn, and how far past the newest packet each of them showed, in ms; 0: not at all. */
  drawn = 0;
  readonly frames = new Float64Array(FRAMES);
  readonly past = new Float64Array(FRAMES);

  /** @internal Scratch of {@link attribute}. */ readonly $gaps = new Float64Array(FRAMES); // before each frame
  /** @internal */ readonly $sorted = new Float64Array(FRAMES);
  /** @internal */ $kept = 0; // packets whose arrival is known
  /** @internal */ readonly $ticks = new Float64Array(PACKETS);
  /** @internal */ readonly $at = new Float64Array(PACKETS);
  /** @internal */ readonly $after = new Float64Array(PACKETS + 1);
  /** @internal */ readonly $rise = new Float64Array(PACKETS);
  /** @internal */ $shift = 0; // by how much packets come later for good
  /** @internal */ $from = -1; // from which one on

  constructor(tickMs: number, periodMs: number) {
    this.tickMs = tickMs;
    this.periodMs = periodMs;
  }
}

/**
 * Says what made the motion stutter in a window, null if nothing did. It is certain about the server half a second after the stutter: until then
 * it may say "network". Where there are several causes it names the one that cost the most time. It changes nothing but the window's scratch.
 */
export function attribute(w: QualityWindow): Cause | null {
  const n = w.drawn;
  // The page: frames that did not come.
  const gaps = w.$gaps;
  gaps[0] = 0;
  for (let i = 1; i < n; i++) w.$sorted[i - 1] = gaps[i] = w.frames[i]! - w.frames[i - 1]!;
  const usual = n < 2 ? 0 : w.$sorted.subarray(0, n - 1).sort()[(n - 1) >> 1]!;
  const blocked = Math.max(HARM_MS, 2.5 * usual); // a longer gap
  let page = 0;
  let visible = false; // the buffer ran dry
  for (let i = 0; i < n; i++) {
    if (gaps[i]! > blocked) page = Math.max(page, gaps[i]! - usual);
    else if (w.past[i]! > DRY_MS) visible = true;
  }
  // What the buffer hid is the fault of neither the server nor the network.
  if (!visible) return page < HARM_MS ? null : "page";
  // Packets that came while the page slept have no arrival; nor have those that waited for it, which are read right after.
  w.$kept = 0;
  for (let k = 0, i = 0; k < w.packets; k++) {
    while (i < n && w.frames[i]! + usual < w.arrivals[k]!) i++;
    if ((i < n && gaps[i]! > blocked) || (i + 1 < n && gaps[i + 1]! > blocked && w.frames[i]! < w.arrivals[k]!)) continue;
    w.$ticks[w.$kept] = w.ticks[k]!;
    w.$at[w.$kept++] = w.arrivals[k]!;
  }
  lasting(w);
  const server = w.$shift >= HARM_MS ? w.$shift : 0;
  const network = holdUp(w, server > 0 ? w.$from : -1);
  const most = Math.max(page, server, network);
  if (most < HARM_MS) return null;
  return most === page ? "page" : most === server ? "server" : "network";
}

// Finds by how much packets come later for good, against their ticks, and from which packet on.
function lasting(w: QualityWindow): void {
  const { $kept: n, $ticks: ticks, $at: at, $after: after, $rise: rise, tickMs } = w;
  after[n] = Infinity; // the least offset from each packet on
  for (let k = n - 1; k >= 0; k--) after[k] = Math.min(after[k + 1]!, at[k]! - ticks[k]! * tickMs);
  let before = Infinity;
  let shift = 0;
  for (let k = 0; k < n; k++) {
    rise[k] = k < SIDE || k > n - SIDE ? 0 : after[k]! - before; // at each packet
    shift = Math.max(shift, rise[k]!);
    before = Math.min(before, at[k]! - ticks[k]! * tickMs);
  }
  let from = 0;
  while (from < n && !(rise[from]! > 0 && rise[from]! > shift - HARM_MS / 2)) from++;
  w.$shift = shift;
  w.$from = from < n ? from : -1;
}

// The longest that a packet was missed for, beyond a period: because it was late, or those before it were lost. From packet `from` on the
// ticks are later than before, for which the network can do nothing; -1: nowhere.
function holdUp(w: QualityWindow, from: number): number {
  const { $kept: n, $ticks: ticks, $at: at, tickMs } = w;
  const first = least(w, 0, from < 0 ? n : from);
  const second = from < 0 ? first : least(w, from, n);
  let most = 0;
  for (let k = 1; k < n; k++) {
    if (from >= 0 && k >= from - 1 && k < from + SIDE) continue;
    most = Math.max(most, at[k]! - (from >= 0 && k >= from ? second : first) - ticks[k - 1]! * tickMs - w.periodMs);
  }
  return most;
}

// The least offset of packets a up to b.
function least(w: QualityWindow, a: number, b: number): number {
  let least = Infinity;
  for (let k = a; k < b; k++) least = Math.min(least, w.$at[k]! - w.$ticks[k]! * w.tickMs);
  return least;
}

/**
 * Keeps what {@link attribute} needs, of the last three seconds. It allocates nothing, and where nothing was amiss it
 * is cheap to ask.
 *
 *   packet(tick, now)      after each state packet that was read
 *   frame(now, past)       after each view; past: (tick shown − newest tick) · tickMs
 *   interrupt()            when the page was hidden or the link lost: what was before says nothing of what comes
 *   cause()                about half a second after a stutter, or once a second
 */
export class QualityWatch {
  private readonly view: QualityWindow;
  private readonly ticks = new Float64Array(PACKETS);
  private readonly arrivals = new Float64Array(PACKETS);
  private readonly frames = new Float64Array(FRAMES);
  private readonly past = new Float64Array(FRAMES);
  private packetCount = 0;
  private frameCount = 0;
  private amiss = -1; // the newest frame that came late, or showed too far past the newest packet; without one there is no cause

  /** Without a beat (tickMs 0) it never finds a cause. */
  constructor(tickMs: number, sendHz: number) {
    this.view = new QualityWindow(tickMs, 1000 / Math.max(1, sendHz));
  }

  packet(tick: number, now: number): void {
    const i = this.packetCount++ % PACKETS;
    this.ticks[i] = tick;
    this.arrivals[i] = now;
  }

  frame(now: number, past: number): void {
    const k = this.frameCount++;
    const i = k % FRAMES;
    if (past > DRY_MS || (k > 0 && now - this.frames[(k - 1) % FRAMES]! > HARM_MS)) this.amiss = k;
    this.frames[i] = now;
    this.past[i] = Math.max(0, past);
  }

  interrupt(): void {
    this.packetCount = this.frameCount = 0;
    this.amiss = -1;
  }

  /** What made the motion stutter in the last three seconds before now; null: nothing did. */
  cause(now: number): Cause | null {
    if (this.view.tickMs === 0 || this.amiss < Math.max(0, this.frameCount - FRAMES)) return null;
    const since = this.since(now);
    return this.frames[this.amiss % FRAMES]! < since ? null : attribute(this.fill(since));
  }

  /** What was seen in the last three seconds before now, or longer where packets did not come. The object is the same each time. */
  window(now: number): QualityWindow {
    return this.fill(this.since(now));
  }

  private since(now: number): number {
    let since = now - KEEP_MS;
    // A long gap must not leave nothing of before it.
    let later = now;
    for (let k = this.packetCount - 1; k >= Math.max(0, this.packetCount - PACKETS) && later >= since; k--) {
      const at = this.arrivals[k % PACKETS]!;
      if (later - at > LONG_GAP_MS && now - since < KEEP_MS + MAX_GAP_MS) since -= later - at;
      later = at;
    }
    return since;
  }

  private fill(since: number): QualityWindow {
    const w = this.view;
    w.packets = recent(this.arrivals, this.ticks, this.packetCount, since, w.arrivals, w.ticks);
    w.drawn = recent(this.frames, this.past, this.frameCount, since, w.frames, w.past);
    return w;
  }
}

// Copies from a ring what came since a time, oldest first, with what stands beside it. It returns how much that is.
function recent(times: Float64Array, beside: Float64Array, count: number, since: number, toTimes: Float64Array, toBeside: Float64Array): number {
  let n = 0;
  for (let k = Math.max(0, count - times.length); k < count; k++) {
    const i = k % times.length;
    if (times[i]! < since) continue;
    toTimes[n] = times[i]!;
    toBeside[n++] = beside[i]!;
  }
  return n;
}
