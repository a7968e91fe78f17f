// How well a link does: round trips and rates.

const WINDOW_MS = 1000;
const ROUND_TRIPS = 16;

/** The round trip, from the last few. */
export class RoundTrip {
  private readonly last = new Float64Array(ROUND_TRIPS);
  private count = 0;

  reset(): void {
    this.count = 0;
  }

  note(ms: number): void {
    this.last[this.count++ % ROUND_TRIPS] = ms;
  }

  /** The least of the last ones: each waits for the server's next send tick, the luckiest hardly at all. 0: none is known. */
  get ms(): number {
    if (this.count === 0) return 0;
    let least = Infinity;
    for (let i = Math.min(this.count, ROUND_TRIPS) - 1; i >= 0; i--) least = Math.min(least, this.last[i]!);
    return least;
  }
}

/** Bytes and packets a second, of the last whole second; 0 before there is one. */
export class Rates {
  bytesPerSec = 0;
  packetsPerSec = 0;
  private since = 0;
  private bytes = 0;
  private packets = 0;

  reset(now: number): void {
    this.since = now;
    this.bytes = this.packets = this.bytesPerSec = this.packetsPerSec = 0;
  }

  note(bytes: number, packets: number, now: number): void {
    this.bytes += bytes;
    this.packets += packets;
    const ms = now - this.since;
    if (ms < WINDOW_MS) return;
    this.bytesPerSec = (this.bytes / ms) * 1000;
    this.packetsPerSec = (this.packets / ms) * 1000;
    this.bytes = this.packets = 0;
    this.since = now;
  }
}

/** How well prediction foresees what the server decides; see Room.predict. Sizes are in the units of the predicted places. */
export interface PredictionFigures {
  /** What is shown of the own entity is predicted at present. */
  readonly active: boolean;
  /** Packets that told otherwise than was predicted: the steps since were computed anew. */
  readonly rollbacks: number;
  /** Steps computed anew, starts included. */
  readonly replayedSteps: number;
  /** Corrections too large to be smoothed, or with too many steps to be computed anew. */
  readonly snaps: number;
  /** How far the corrections moved what was shown, summed, and the largest of them; snaps are not in it. */
  readonly correction: number;
  readonly correctionMax: number;
}

/** What a predictor counts, over all links of a room. */
export class Corrections implements PredictionFigures {
  active = false;
  rollbacks = 0;
  replayedSteps = 0;
  snaps = 0;
  correction = 0;
  correctionMax = 0;

  note(size: number): void {
    this.correction += size;
    if (size > this.correctionMax) this.correctionMax = size;
  }
}
