// What the library needs from its surroundings: a page, a worker, a program in Node, or a test. Nothing here is touched before it is needed,
// so the library can be imported anywhere.

/** The part of a WebSocket that is used: what browsers, workers and Node 22 have, or a class with the same look. */
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

/** What happens to a page; there is none in workers, and only "online" in some of them. */
export type PageChange = "hidden" | "visible" | "online" | "leaving";

/** A page and its machine, as the library uses them. */
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
  /** Calls f for each task that held up the page for over 50 ms, where the browser tells; returns what ends that. */
  longTasks?(f: (ms: number) => void): () => void;
  /** Calls f when the page changes; returns what ends that. */
  onPage(f: (change: PageChange) => void): () => void;
}

/**
 * The surroundings in a page, a worker or Node. It throws where there is no WebSocket and none is given.
 */
export function browserEnv(webSocket?: new (url: string) => SocketLike): Env {
  const Socket = webSocket ?? (typeof WebSocket === "undefined" ? undefined : (WebSocket as unknown as new (url: string) => SocketLike));
  if (Socket === undefined) throw new Error("drumline: there is no WebSocket here; give one to join: webSocket");
  return {
    now: () => performance.now(),
    wall: () => Date.now(),
    random: () => Math.random(),
    setTimeout: (f, ms) => setTimeout(f, ms),
    clearTimeout: (t) => clearTimeout(t as number),
    socket: (url) => new Socket(url),
    storage: sessionStorageOrNull(),
    hidden: () => inPage() && document.visibilityState === "hidden",
    longTasks,
    onPage(f) {
      const visibility = (): void => f(document.visibilityState === "hidden" ? "hidden" : "visible");
      const online = (): void => f("online");
      const leaving = (): void => f("leaving");
      if (typeof addEventListener === "undefined") return () => undefined;
      if (inPage()) document.addEventListener("visibilitychange", visibility);
      addEventListener("online", online);
      addEventListener("pagehide", leaving);
      return () => {
        if (inPage()) document.removeEventListener("visibilitychange", visibility);
        removeEventListener("online", online);
        removeEventListener("pagehide", leaving);
      };
    },
  };
}

function inPage(): boolean {
  return typeof document !== "undefined";
}

/** Calls f before the next picture, or 60 times a second where nothing is painted. It returns what {@link cancelFrame} takes. */
export function requestFrame(f: (now: number) => void): unknown {
  return typeof requestAnimationFrame === "undefined" ? setTimeout(() => f(performance.now()), 1000 / 60) : requestAnimationFrame(f);
}

export function cancelFrame(id: unknown): void {
  if (typeof cancelAnimationFrame === "undefined") clearTimeout(id as number);
  else cancelAnimationFrame(id as number);
}

/** Tells of a fault in a handler of the page as the surroundings tell of faults; nothing stops. */
export function report(e: unknown): void {
  if (typeof reportError === "function") reportError(e);
  else console.error(e);
}

function longTasks(f: (ms: number) => void): () => void {
  if (typeof PerformanceObserver === "undefined" || !PerformanceObserver.supportedEntryTypes?.includes("longtask")) return () => undefined;
  const o = new PerformanceObserver((list) => {
    for (const e of list.getEntries()) f(e.duration);
  });
  o.observe({ type: "longtask" });
  return () => o.disconnect();
}

// Reading the property throws where the browser forbids storage, and where there is none.
function sessionStorageOrNull(): StorageLike | null {
  try {
    return sessionStorage;
  } catch {
    return null;
  }
}

/**
 * The address of the site's root, with any path prefix of a proxy: what the page names in `<html data-drumline>`, or else the
 * folder that this script came from. In Node there is none: it throws.
 */
export function siteBase(): string {
  const named = inPage() ? document.documentElement.dataset["drumline"] : undefined;
  if (!inPage() && import.meta.url.startsWith("file:")) throw new Error("drumline: outside of a page join needs the server's address: url");
  return named !== undefined ? new URL(named, document.baseURI).href : new URL(".", import.meta.url).href;
}

/** The WebSocket address of the server behind `url`, an http(s) or ws(s) address; empty: the one that served the page. */
export function socketURL(url: string): string {
  const u = url === "" ? new URL("ws", siteBase()) : new URL(url, inPage() ? document.baseURI : typeof location === "undefined" ? undefined : location.href);
  if (u.pathname.endsWith("/")) u.pathname += "ws";
  u.protocol = u.protocol.replace("http", "ws");
  u.hash = "";
  return u.href;
}
