// What the library needs from its surroundings, so that tests can replace it.

/** The part of a WebSocket that is used. */
export interface SocketLike {
  binaryType: string;
  readonly bufferedAmount: number;
  onopen: ((e: any) => void) | null;
  onmessage: ((e: any) => void) | null;
  onclose: ((e: any) => void) | null;
  onerror: ((e: any) => void) | null;
  send(data: Uint8Array<ArrayBuffer>): void;
  close(code?: number, reason?: string): void;
}

/** Storage that survives a reload of the tab. */
export interface StorageLike {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

export type PageChange = "hidden" | "visible" | "online" | "leaving";

export interface Env {
  /** Monotonic milliseconds. */
  now(): number;
  /** Milliseconds since 1970. */
  wall(): number;
  random(): number;
  setTimeout(f: () => void, ms: number): unknown;
  clearTimeout(timer: unknown): void;
  socket(url: string): SocketLike;
  storage: StorageLike | null;
  hidden(): boolean;
  /** Calls f when the page changes; returns what ends that. */
  onPage(f: (change: PageChange) => void): () => void;
}

/** The surroundings in a browser page. */
export function browserEnv(): Env {
  return {
    now: () => performance.now(),
    wall: () => Date.now(),
    random: () => Math.random(),
    setTimeout: (f, ms) => setTimeout(f, ms),
    clearTimeout: (t) => clearTimeout(t as number),
    socket: (url) => new WebSocket(url) as unknown as SocketLike,
    storage: sessionStorageOrNull(),
    hidden: () => document.visibilityState === "hidden",
    onPage(f) {
      const visibility = (): void => f(document.visibilityState === "hidden" ? "hidden" : "visible");
      const online = (): void => f("online");
      const leaving = (): void => f("leaving");
      document.addEventListener("visibilitychange", visibility);
      addEventListener("online", online);
      addEventListener("pagehide", leaving);
      return () => {
        document.removeEventListener("visibilitychange", visibility);
        removeEventListener("online", online);
        removeEventListener("pagehide", leaving);
      };
    },
  };
}

// Reading the property throws where the browser forbids storage.
function sessionStorageOrNull(): StorageLike | null {
  try {
    return sessionStorage;
  } catch {
    return null;
  }
}

/**
 * The address of the site's root, with any path prefix of a proxy: what the page names in `<html data-drumline>`, or else the
 * folder that this script came from.
 */
export function siteBase(): string {
  const named = document.documentElement.dataset["drumline"];
  return named !== undefined ? new URL(named, document.baseURI).href : new URL(".", import.meta.url).href;
}

/** The WebSocket address of the server behind `url`, an http(s) or ws(s) address; empty: the one that served the page. */
export function socketURL(url: string): string {
  const u = url === "" ? new URL("ws", siteBase()) : new URL(url, typeof document === "undefined" ? undefined : document.baseURI);
  if (u.pathname.endsWith("/")) u.pathname += "ws";
  u.protocol = u.protocol.replace("http", "ws");
  u.hash = "";
  return u.href;
}
