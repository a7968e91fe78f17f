// From what the player holds down to one input per step.

import { type Acks, type InputCodec, MAX_INPUTS, MAX_INPUT_HEADER_BYTES, putInputHeader } from "./packet.ts";

/**
 * Samples the current input once per step and keeps the newest {@link MAX_INPUTS} samples for sending. A press is never lost: a
 * bool that goes up and down between two samples is up in the next one, and one that goes down and up again is down in the next
 * one and up in the one after.
 */
export class Sampler {
  /** The newest label sampled. */
  label = 0;
  /** Samples not yet sent at all. */
  fresh = 0;
  readonly codec: InputCodec;
  /** Is called with each sample that is for a step, values as the server gets them. They are valid during the call. */
  onSample: ((label: number, values: Float64Array) => void) | null = null;
  private readonly current: Float64Array;
  private readonly told: Float64Array;
  private readonly shown: Float64Array;
  private readonly presses: Uint8Array;
  private readonly ring: Uint8Array;
  private readonly top = new Uint8Array(MAX_INPUT_HEADER_BYTES); // of the message that is being written
  private count = 0;
  private head = 0; // slot of the newest

  constructor(codec: InputCodec) {
    this.codec = codec;
    const n = codec.fields.length;
    this.current = new Float64Array(n);
    this.shown = new Float64Array(n);
    this.told = new Float64Array(n);
    this.presses = new Uint8Array(n);
    this.ring = new Uint8Array(MAX_INPUTS * codec.size);
  }

  /** Sets field i from now on. It returns whether that changed anything. */
  set(i: number, value: number): boolean {
    if (this.codec.isBool(i)) {
      value = value ? 1 : 0;
      if (value === 1 && this.current[i] === 0 && this.presses[i]! < 3) this.presses[i]!++;
    }
    if (this.current[i] === value) return false;
    this.current[i] = value;
    return true;
  }

  /** Lets everything go: zero from now on, presses that were not sampled included. */
  release(): void {
    this.current.fill(0);
    this.presses.fill(0);
  }

  /** The next sample will differ from the last one. */
  get pending(): boolean {
    for (let i = 0; i < this.presses.length; i++) if (this.presses[i] !== 0 || this.current[i] !== this.shown[i]) return true;
    return false;
  }

  /** Takes the samples of all steps up to label that have none yet. */
  sampleTo(label: number): void {
    if (label <= this.label) return;
    let n = label - this.label;
    // After a pause only the newest can be sent; and the history before the gap has labels that do not follow.
    if (this.label === 0 || n > MAX_INPUTS) {
      n = this.label === 0 ? 1 : MAX_INPUTS;
      this.count = 0;
      this.fresh = 0;
    }
    this.label = label;
    for (; n > 0; n--) this.take(label - n + 1);
  }

  /** Takes one sample without a step of its own: in rooms without a beat. */
  sample(): void {
    this.count = 0;
    this.fresh = 0;
    this.take(0);
  }

  private take(label: number): void {
    for (let i = 0; i < this.shown.length; i++) {
      let v = this.current[i]!;
      if (this.presses[i] !== 0) {
        v = this.shown[i] === 0 ? 1 : 0;
        if (v === 1) this.presses[i]!--;
      }
      this.shown[i] = v;
    }
    this.head = (this.head + 1) % MAX_INPUTS;
    this.codec.encode(this.shown, this.ring, this.head * this.codec.size);
    if (label > 0 && this.onSample !== null) {
      this.codec.decode(this.ring, this.head * this.codec.size, this.told);
      this.onSample(label, this.told);
    }
    if (this.count < MAX_INPUTS) this.count++;
    if (this.fresh < MAX_INPUTS) this.fresh++;
  }

  /**
   * Encodes a message with all fresh samples and at least `least` of the newest, as far as there are any, and what putInputHeader says of
   * seen. Null: none yet.
   */
  message(acks: Acks, least: number, seen = -1): Uint8Array<ArrayBuffer> | null {
    const n = Math.min(this.count, Math.max(this.fresh, least));
    if (n === 0) return null;
    const size = this.codec.size;
    let at = putInputHeader(this.top, acks, n, this.label, seen);
    const b = new Uint8Array(at + n * size);
    for (let i = 0; i < at; i++) b[i] = this.top[i]!;
    for (let i = 0; i < n; i++) {
      const slot = (this.head + MAX_INPUTS - i) % MAX_INPUTS;
      for (let k = 0; k < size; k++) b[at++] = this.ring[slot * size + k]!;
    }
    this.fresh = 0;
    return b;
  }

  /** Forgets labels and history, for a new link or epoch; the current input and waiting presses stay. */
  restart(): void {
    this.label = 0;
    this.count = 0;
    this.fresh = 0;
  }
}
