// The feeds of a room: one decoder each, by the kind that the welcome names.

import type { FeedInfo } from "./packet.ts";
import { SnapDecoder } from "./snap.ts";

/** What a decoder is told about the packet that its section came in. */
export interface FeedPacket {
  /** Of state packets; on the reliable lane, where nothing is lost or overtaken, it is 0. */
  readonly seq: number;
  /** It is raised, in 8 bits, when the room's world was replaced: what was held before is void. */
  readonly epoch: number;
  readonly tick: number;
  /** Unordered links: the newest packet that the server knew to be received, and the history before it. */
  readonly ack: number;
  readonly acks: number;
}

/** Reads what one feed sends: the twin of feed.Decoder. */
export interface FeedDecoder {
  /**
   * Reads one section. When it throws, nothing has changed and the packet is not acked. packet and body are valid during the call. An
   * empty body: the packet has no section of this feed, see everyPacket.
   */
  decode(packet: FeedPacket, body: Uint8Array): void;
  /** A hash over everything held, equal to the server's at the same packet. Only asked of feeds on the state lane. */
  hash(): number;
  /** How far the client got with what must happen once; it is sent when the client comes back. */
  cursor(): number;
  /**
   * On the state lane decode is called for each packet that is accepted: a decoder of acked baselines must not miss what a header tells.
   * Default: only for packets with a section of this feed.
   */
  readonly everyPacket?: boolean;
}

/** What makes a decoder from a feed's schema, by the feed's kind. A page adds kinds of its own before it joins. */
export const decoders = new Map<string, (schema: any) => FeedDecoder>([["snap", (schema: unknown) => new SnapDecoder(schema)]]);

const STATE = 0;
const RELIABLE = 1;
const NOTHING = new Uint8Array(0);

/** The feeds of one welcome. A feed of a kind that has no decoder is left out, with one word to the console. */
export class Feeds {
  /** The first snap feed: what the timeline shows. */
  readonly snap: SnapDecoder | null;
  private readonly infos: readonly FeedInfo[];
  private readonly all: (FeedDecoder | null)[] = [];
  private readonly verifiable: boolean;
  // Feeds whose decoders want every packet, and by feed: it had a section in this one.
  private readonly every: number[] = [];
  private readonly had: boolean[] = [];

  constructor(infos: readonly FeedInfo[]) {
    this.infos = infos;
    const unknown = new Set<string>();
    let verifiable = true;
    for (const f of infos) {
      const make = decoders.get(f.kind);
      this.all.push(make === undefined ? null : make(f.schema));
      if (make !== undefined) continue;
      unknown.add(f.kind);
      if (f.lane === STATE) verifiable = false;
    }
    this.verifiable = verifiable;
    infos.forEach((f, i) => {
      if (f.lane === STATE && this.all[i]?.everyPacket) this.every.push(i);
    });
    if (unknown.size > 0) console.warn(`drumline: this page cannot read feeds of kind ${[...unknown].map((k) => `"${k}"`).join(", ")}; they are left out`);
    this.snap = (this.all.find((d) => d instanceof SnapDecoder) as SnapDecoder | undefined) ?? null;
  }

  /** Begins a state packet. */
  begin(): void {
    for (let i = 0; i < this.every.length; i++) this.had[this.every[i]!] = false;
  }

  /** Decodes a section of a state packet. */
  state(feed: number, packet: FeedPacket, body: Uint8Array): void {
    const d = this.all[feed];
    if (d === undefined || d === null) return;
    if (d.everyPacket) this.had[feed] = true;
    d.decode(packet, body);
  }

  /** Ends a state packet: tells its header to the decoders that had no section but want every packet. */
  end(packet: FeedPacket): void {
    for (let i = 0; i < this.every.length; i++) {
      const feed = this.every[i]!;
      if (!this.had[feed]) this.all[feed]!.decode(packet, NOTHING);
    }
  }

  /** Decodes a section of the reliable lane. It throws a RangeError if that feed is none. */
  reliable(feed: number, packet: FeedPacket, body: Uint8Array): void {
    if (this.infos[feed]?.lane !== RELIABLE) throw new RangeError(`drumline: there is no reliable feed ${feed}`);
    this.all[feed]?.decode(packet, body);
  }

  cursors(): number[] {
    return this.all.map((d) => d?.cursor() ?? 0);
  }

  /** The hash of all feeds on the state lane, folded in order as the server does it; null if one of them cannot be read. */
  hash(): number | null {
    if (!this.verifiable) return null;
    let hash = 0;
    this.infos.forEach((f, i) => {
      // From 0 the first one's hash comes out as it is.
      if (f.lane === STATE) hash = (Math.imul(hash, 16777619) ^ this.all[i]!.hash()) >>> 0;
    });
    return hash;
  }
}
