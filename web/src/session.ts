// A seat's way through its links: the first one, the loss of it, the tries to come back, the end.

import type { Env, PageChange } from "./env.ts";
import { Link, lost, unreachable } from "./link.ts";
import {
  type Goodbye, type Hello, KIND_HELLO, KIND_LEAVE, KIND_WELCOME, PROTOCOL_VERSION, type Retry, type Welcome, decodeWelcome, encodeJSON,
} from "./packet.ts";
import { SavedSeat } from "./saved.ts";

/** A try to connect, from the first packet to the welcome, may take this long. */
const CONNECT_MS = 5000;
/** A room with a beat says something at least once a second; after this long without a word the link is lost. */
const SILENT_MS = 5000;
/** Pauses between tries to come back: from the first, doubled, to the last. */
const BACKOFF_MS = 200;
const MAX_BACKOFF_MS = 3000;

/** A link says something that this page cannot read, again and again. */
export const NOT_UNDERSTOOD: Goodbye = { reason: "version", code: 4003, text: "This page is older or newer than the server. Reload it.", retry: "never", retryMs: 0 };

/** Why a player was not let in, or may not stay. */
export class Refused extends Error {
  /** "Refused", as errors have it. */
  override name = "Refused";
  /** Such as "room_full"; docs/protocol.md lists them. "unreachable": there was no server. */
  readonly reason: string;
  /** The close code, by reason. */
  readonly code: number;
  /** For the player. */
  readonly text: string;
  /** What may help: nothing, joining as a new player, coming back with the token, or waiting. */
  readonly retry: Retry;
  /** The least pause before the next try. */
  readonly retryMs: number;

  /** @internal */
  constructor(g: Goodbye) {
    super(`${g.reason}: ${g.text}`);
    this.reason = g.reason;
    this.code = g.code;
    this.text = g.text;
    this.retry = g.retry;
    this.retryMs = g.retryMs;
  }
}

/** joining: no seat yet. live: playing. reconnecting: the link is lost, the seat waits. closed: it is over. */
export type RoomState = "joining" | "live" | "reconnecting" | "closed";

/** What there is to know about a room's state, see Room.info. The object is the same each time. */
export interface StateInfo {
  /** Why the link was lost, or what holds up the way back; null at first. It stays after the way back. */
  why: Refused | null;
  /** live: the seat is the one from before. */
  resumed: boolean;
  /** reconnecting: as far as is known the seat waits. Else the way back is a join as a new player. */
  kept: boolean;
  /** reconnecting: tries so far. */
  attempt: number;
  /** reconnecting: until the next try; 0: it is running. */
  retryInMs: number;
  /** reconnecting: until the seat is given up. */
  graceLeftMs: number;
}

/** What a session asks for. */
export interface SessionOptions {
  world: string;
  room: string;
  name: string;
  verify: boolean;
  resume: boolean;
  rejoin: boolean;
}

export interface SessionOwner {
  /** How far the decoders got; null: there are none yet. */
  cursors(): number[] | null;
  /** A new link, rttMs after its hello. When this throws, the page does not understand the server. */
  welcome(w: Welcome, rttMs: number): void;
  /** The link is live. */
  live(): void;
  /** A message of the live link. */
  message(msg: Uint8Array, now: number): void;
  /** The link has ended, or the session has. */
  down(): void;
  page(change: PageChange): void;
  /** The state has changed, or a try to come back has begun. */
  changed(): void;
}

export class Session {
  readonly url: string;
  welcome!: Welcome;
  state: RoomState = "joining";
  /** Links made after the first. */
  reconnects = 0;
  private readonly env: Env;
  private readonly options: SessionOptions;
  private readonly owner: SessionOwner;
  private readonly seat: SavedSeat;
  private readonly lastInfo: StateInfo = { why: null, resumed: false, kept: false, attempt: 0, retryInMs: 0, graceLeftMs: 0 };
  private link: Link | null = null;
  private settle: { resolve(): void; reject(e: Refused): void } | null = null;
  private unwatch: (() => void) | null = null;
  private linkTimer: unknown = null; // connecting: the limit; live: silence
  private retryTimer: unknown = null;
  private retryAt = 0;
  private lostAt = 0;
  private cause: Goodbye | null = null; // what ended the last live link
  private attempt = 0;
  private heardAt = 0;
  private helloAt = 0;

  constructor(env: Env, url: string, options: SessionOptions, owner: SessionOwner) {
    this.env = env;
    this.url = url;
    this.options = options;
    this.owner = owner;
    this.seat = new SavedSeat(env, url, options.world, options.resume);
  }

  /** The link, while it is live. */
  get liveLink(): Link | null {
    return this.state === "live" ? this.link : null;
  }

  get info(): StateInfo {
    const now = this.env.now();
    const i = this.lastInfo;
    i.attempt = this.attempt;
    i.retryInMs = this.state === "reconnecting" && this.link === null ? Math.max(0, this.retryAt - now) : 0;
    const seat = this.state === "reconnecting" && this.seat.token !== "";
    i.graceLeftMs = seat ? Math.max(0, this.deadline() - now) : 0;
    i.kept = seat && this.cause?.retry === "resume";
    return i;
  }

  /** Joins. The promise fails with a Refused. */
  start(): Promise<void> {
    this.seat.load(this.options.room, this.options.name);
    this.unwatch = this.env.onPage((change) => this.page(change));
    return new Promise((resolve, reject) => {
      this.settle = { resolve, reject };
      this.connect();
    });
  }

  /** Tries to come back now instead of waiting for the next try. */
  retryNow(): void {
    if (this.state === "reconnecting" && this.link === null) this.connect();
  }

  /** Gives up the seat and closes. */
  leave(): void {
    if (this.state === "closed") return;
    this.link?.send(new Uint8Array([KIND_LEAVE]));
    this.link?.leave();
    this.link = null;
    this.seat.forget();
    this.close({ reason: "left", code: 1000, text: "You left.", retry: "new", retryMs: 0 });
  }

  /** Closes and keeps the seat. */
  hangUp(): void {
    if (this.state === "closed") return;
    if (this.state !== "joining") this.save(true);
    const { link } = this;
    this.close({ reason: "left", code: 1000, text: "You left.", retry: "resume", retryMs: 0 });
    link?.drop(lost());
  }

  /** Ends the link from this end. */
  drop(why: Goodbye): void {
    this.link?.drop(why);
  }

  private connect(): void {
    this.env.clearTimeout(this.retryTimer);
    this.retryTimer = null;
    this.attempt++;
    this.helloAt = this.env.now();
    const handler = {
      open: () => this.hello(),
      message: (msg: Uint8Array) => this.message(msg),
      closed: (why: Goodbye) => this.ended(why),
    };
    // In this order: the socket may be refused before it returns.
    this.linkTimer = this.env.setTimeout(() => this.link?.drop({ ...unreachable(), reason: "timeout", text: "The server does not answer." }), CONNECT_MS);
    try {
      this.link = new Link(this.env, this.url, handler);
    } catch {
      this.ended({ ...unreachable(), retry: "never", retryMs: 0 });
      return;
    }
    if (this.state === "reconnecting") this.owner.changed();
  }

  private hello(): void {
    this.helloAt = this.env.now();
    const h: Hello = { protocol: PROTOCOL_VERSION, world: this.options.world };
    const room = this.seat.room || this.options.room;
    if (room) h.room = room;
    if (this.options.name) h.name = this.options.name;
    if (this.options.verify) h.verify = true;
    if (this.seat.token !== "") {
      h.token = this.seat.token;
      h.cursors = this.owner.cursors() ?? this.seat.cursors;
    }
    this.link!.send(encodeJSON(KIND_HELLO, h));
  }

  private message(msg: Uint8Array): void {
    const now = this.env.now();
    this.heardAt = now;
    if (this.state === "live") {
      this.owner.message(msg, now);
    } else if (msg[0] === KIND_WELCOME) {
      let w: Welcome;
      try {
        w = decodeWelcome(msg);
        this.owner.welcome(w, now - this.helloAt);
      } catch {
        this.link!.drop(NOT_UNDERSTOOD);
        return;
      }
      this.live(w);
    }
  }

  private live(w: Welcome): void {
    this.env.clearTimeout(this.linkTimer);
    if (this.state !== "joining") this.reconnects++;
    this.welcome = w;
    this.seat.token = w.token;
    this.seat.room = w.room;
    this.state = "live";
    this.attempt = 0;
    this.lastInfo.resumed = w.resumed;
    if (this.cause !== null) this.lastInfo.why = new Refused(this.cause);
    this.save(false);
    this.watchSilence();
    this.owner.live();
    this.settle?.resolve();
    this.settle = null;
    this.owner.changed();
  }

  private save(leaving: boolean): void {
    this.seat.cursors = this.owner.cursors() ?? this.seat.cursors;
    this.seat.save(this.options.name, this.welcome.graceMs, leaving);
  }

  private ended(why: Goodbye): void {
    this.link = null;
    this.env.clearTimeout(this.linkTimer);
    this.linkTimer = null;
    this.owner.down();
    if (this.state === "closed") return;
    if (this.state === "joining") {
      if (why.retry === "new" && this.seat.token !== "") {
        // The seat from before the reload is gone: come in as anybody else.
        this.seat.forget();
        this.connect();
        return;
      }
      if (why.retry === "never" && why.reason !== "version") this.seat.forget();
      this.close(why);
      return;
    }
    const now = this.env.now();
    const live = this.state === "live";
    if (live || this.cause === null) {
      this.cause = why;
      this.lostAt = now;
      this.attempt = 0;
    }
    const { cause } = this;
    this.lastInfo.why = new Refused(telling(cause, why));
    if (this.options.rejoin && this.seat.token !== "" && seatGone(why)) {
      this.seat.vacate();
    } else if (why.retry === "never" || why.retry === "new") {
      if (why.reason !== "version") this.seat.forget();
      this.close(seatGone(why) ? { ...why, text: `${cause.text} ${why.text}` } : why);
      return;
    }
    let left = this.seat.token !== "" ? this.deadline() - now : Infinity;
    if (left <= 0) {
      if (!this.options.rejoin) {
        this.seat.forget();
        const late = "The connection could not be made again in time.";
        this.close({ ...why, text: cause.reason === "link_lost" ? late : `${cause.text} ${late}`, retry: "new" });
        return;
      }
      this.seat.vacate();
      left = Infinity;
    }
    // Others were quicker; who did not ask for this room may play in another.
    if (why.reason === "room_full" && this.seat.token === "") this.seat.room = "";
    const backoff = Math.min(MAX_BACKOFF_MS, BACKOFF_MS * 2 ** this.attempt) * (0.5 + this.env.random() / 2);
    const wait = Math.min(left, Math.max(backoff, live || why.retry === "later" ? why.retryMs : 0));
    this.state = "reconnecting";
    this.retryAt = now + wait;
    this.retryTimer = this.env.setTimeout(() => this.connect(), wait);
    this.owner.changed();
  }

  private deadline(): number {
    return this.lostAt + this.welcome.graceMs;
  }

  private close(why: Goodbye): void {
    this.state = "closed";
    this.env.clearTimeout(this.linkTimer);
    this.env.clearTimeout(this.retryTimer);
    this.owner.down();
    this.unwatch?.();
    const refused = new Refused(why);
    this.lastInfo.why = refused;
    this.settle?.reject(refused);
    this.settle = null;
    this.owner.changed();
  }

  private watchSilence(): void {
    // Without a beat a room may have nothing to say for hours; there the browser has to notice.
    if (this.welcome.hz === 0) return;
    const check = (planned: number): void => {
      const now = this.env.now();
      const quiet = now - this.heardAt;
      // After a sleep what has arrived in the meantime is still to be handled.
      if (quiet >= SILENT_MS && now - planned < 1000) {
        this.link?.drop(lost());
        return;
      }
      const wait = quiet >= SILENT_MS ? 500 : SILENT_MS - quiet;
      this.linkTimer = this.env.setTimeout(() => check(now + wait), wait);
    };
    check(this.env.now());
  }

  private page(change: PageChange): void {
    this.owner.page(change);
    if (change === "visible" || change === "online") this.retryNow();
    else if (change === "leaving" && (this.state === "live" || this.state === "reconnecting")) this.save(true);
  }
}

function seatGone(why: Goodbye): boolean {
  return why.reason === "resume_unknown" || why.reason === "resume_expired";
}

// Which of two reasons a player should read: what ended the game, or what the newest try to come back met. A server that does not
// answer is no news of one that restarts, and that a seat is gone is the consequence.
function telling(cause: Goodbye, why: Goodbye): Goodbye {
  if (seatGone(why)) return cause;
  const silent = why.reason === "unreachable" || why.reason === "timeout" || why.reason === "link_lost";
  return silent && cause.reason !== "link_lost" ? cause : why;
}
