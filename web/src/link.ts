// A connection to the server: binary messages over one WebSocket, with one end and one reason for it.

import type { Env, SocketLike } from "./env.ts";
import { type Goodbye, KIND_REFUSE, REASONS, decodeGoodbye } from "./packet.ts";

/** The close code of a link that this end gives up although it wants its seat back. 1000 would give up the seat. */
const CLOSE_LOST = 4000;

export interface LinkHandler {
  open(): void;
  message(msg: Uint8Array): void;
  /** The link has ended, with the server's goodbye or one made from its close code. Called once, and last. */
  closed(why: Goodbye): void;
}

export class Link {
  private readonly socket: SocketLike;
  private handler: LinkHandler | null;

  /** Starts to connect. It throws if url is no WebSocket address. */
  constructor(env: Env, url: string, handler: LinkHandler) {
    this.handler = handler;
    const socket = (this.socket = env.socket(url));
    let opened = false;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      opened = true;
      this.handler?.open();
    };
    socket.onmessage = (e: { data: unknown }) => {
      if (!(e.data instanceof ArrayBuffer) || e.data.byteLength === 0) return;
      const msg = new Uint8Array(e.data);
      if (msg[0] === KIND_REFUSE) this.end(decodeGoodbye(msg), 1000);
      else this.handler?.message(msg);
    };
    // An error is always followed by a close.
    socket.onclose = (e: { code: number; reason: string }) => {
      this.finish(opened ? closeGoodbye(e.code, e.reason) : unreachable());
    };
  }

  /** Bytes that wait to be sent. */
  get buffered(): number {
    return this.socket.bufferedAmount;
  }

  /** Sends a message; before open and after the end it is dropped. */
  send(msg: Uint8Array<ArrayBuffer>): void {
    if (this.handler !== null) this.socket.send(msg);
  }

  /** Ends the link because the player leaves; the handler is not called any more. */
  leave(): void {
    this.handler = null;
    this.shut(1000);
  }

  /** Ends the link from this end for `why`, which the handler gets. */
  drop(why: Goodbye): void {
    this.end(why, CLOSE_LOST);
  }

  private end(why: Goodbye, code: number): void {
    this.shut(code);
    this.finish(why);
  }

  private shut(code: number): void {
    this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
    try {
      this.socket.close(code);
    } catch {
      // Some browsers throw while the socket still connects; it ends all the same.
    }
  }

  private finish(why: Goodbye): void {
    const h = this.handler;
    this.handler = null;
    h?.closed(why);
  }
}

/** The connection could not be made. */
export function unreachable(): Goodbye {
  return { reason: "unreachable", code: 1006, text: "The server cannot be reached.", retry: "later", retryMs: 0 };
}

/** The connection is silent or broken. */
export function lost(text = "The connection was lost."): Goodbye {
  return { reason: "link_lost", code: 1006, text, retry: "resume", retryMs: 0 };
}

function closeGoodbye(code: number, text: string): Goodbye {
  const known = REASONS[code];
  // Other codes come from proxies on the way.
  if (known === undefined || code === 1006 || code === 1000) return lost();
  return { reason: known[0], code, text: text || "The server closed the connection.", retry: known[1], retryMs: 0 };
}
