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
