/**
 * Page pieces that every world needs: the name prompt, and overlays that say clearly what is wrong with the connection and what
 * can be done. They bring their own styles.
 *
 *   import { enter } from "drumline/ui";
 *
 *   const room = await enter<MyShape>();   // asks for a name if need be, joins, retries; keeps an eye on the connection
 */
import { DevNetwork } from "./devtools.ts";
import { browserEnv, siteBase } from "./env.ts";
import { MAX_NAME, guestName, storeName, storedName } from "./name.ts";
import { type Overlay, type Perf, overlay as makeOverlay, perf } from "./overlay.ts";
import { type AnyShape, type JoinOptions, Refused, Room, type Shape, type StateInfo, join } from "./room.ts";
import "./ui.css";

export { MAX_NAME, storeName, storedName };
export type { Overlay, Perf };

/** How long it is said that a seat is gone. */
const NOTE_MS = 8000;
/** For so long after the join a fault of the page's script is one of its start-up. */
const STARTUP_MS = 5000;

/** Options of {@link enter}: by default the world and room come from the page's address. */
export interface EnterOptions extends Partial<JoinOptions> {
  /**
   * Offer the devtools in the overlay of figures: a simulated network, a pause, a recording. Default: only where the page's address has `?dev`
   * (`?dev=7`: by that seed) or the server runs with --dev.
   */
  dev?: boolean;
}

// The simulated network of this page, for developers; null for everybody else.
function devNetwork(dev: boolean | undefined): DevNetwork | null {
  const asked = new URLSearchParams(location.search).get("dev");
  if (!(dev ?? (asked !== null || document.documentElement.dataset["dev"] !== undefined))) return null;
  return new DevNetwork(Number(asked) || 1);
}

/**
 * Shows how well a room and its page do: F2, or a tap in the upper left corner of a touch screen, toggles an overlay of figures, and
 * `window.__drumline.perf()` returns them. {@link enter} does this by itself.
 */
export function overlay(room: Room<any>): Overlay {
  return show(room, null);
}

function show(room: Room<any>, net: DevNetwork | null): Overlay {
  Object.defineProperty(window, "__drumline", { value: Object.freeze({ perf: () => perf(room) }), configurable: true });
  return makeOverlay(room, net);
}

/**
 * Asks for a name if none is known, joins, shows why when that fails, and tries again: by itself where waiting helps, else when
 * the player asks. The room it returns has its {@link status} shown and joins anew by itself when its seat is gone. The room's name goes
 * into the page's address, so that a friend who gets it comes to the same room. A fault of the page's script that nothing catches,
 * from the call until five seconds after the join, is shown on the page, which may be blank for it.
 */
export async function enter<S extends Shape = AnyShape>(options: EnterOptions = {}): Promise<Room<S>> {
  const started = faults();
  const world = options.world ?? document.documentElement.dataset["world"] ?? "";
  const room = options.room ?? new URLSearchParams(location.search).get("room") ?? "";
  const name = options.name ?? (storedName() || (await askName()));
  const net = devNetwork(options.dev);
  const env = net === null ? options.env : net.wrap(options.env ?? browserEnv(options.webSocket));
  for (let tries = 0; ; tries++) {
    try {
      const r = await join<S>({ rejoin: true, ...options, world, room, name, ...(env === undefined ? {} : { env }) });
      if (options.room === undefined) {
        addressRoom(r);
        r.onState(() => addressRoom(r));
      }
      status(r);
      show(r, net);
      setTimeout(started, STARTUP_MS);
      return r;
    } catch (e) {
      if (!(e instanceof Refused)) throw e;
      const wait = e.retry === "later" ? Math.max(e.retryMs, Math.min(10_000, 2000 * 1.5 ** tries)) : 0;
      await refused(e, wait);
    }
  }
}

// Shows the first fault that nothing catches, until what it returns is called: without that a page that fails is blank.
function faults(): () => void {
  const error = (e: ErrorEvent): void => fault(e.error);
  const rejection = (e: PromiseRejectionEvent): void => fault(e.reason);
  const end = (): void => {
    removeEventListener("error", error);
    removeEventListener("unhandledrejection", rejection);
  };
  // What is no Error comes from other sites' scripts, or is the browser's remark.
  const fault = (e: unknown): void => {
    if (!(e instanceof Error)) return;
    end();
    const box = el("section", "dl-fault");
    box.setAttribute("role", "alert");
    const head = el("div", "dl-fault-head");
    const shut = button("Close", false);
    shut.addEventListener("click", () => box.remove());
    head.append(el("h2", "dl-title", "This page has a fault"), shut);
    box.append(head, el("p", "dl-text", `${e.name}: ${e.message}`));
    // Some browsers put the message first.
    const places = (e.stack ?? "").split("\n").filter((l) => /:\d+:\d+\)?$/.test(l)).map((l) => l.trim());
    if (places.length > 0) box.append(el("pre", "dl-stack", places.slice(0, 8).join("\n")));
    for (const type of ["pointerdown", "mousedown", "keydown"]) box.addEventListener(type, (ev) => ev.stopPropagation());
    document.body.append(box);
  };
  addEventListener("error", error);
  addEventListener("unhandledrejection", rejection);
  return end;
}

function addressRoom(room: Room<any>): void {
  const u = new URL(location.href);
  if (room.state !== "live" || u.searchParams.get("room") === room.name) return;
  u.searchParams.set("room", room.name);
  history.replaceState(history.state, "", u);
}

/**
 * Makes a button that hands the page's address, with its room, to somebody else: on a touch screen by what the device shares
 * with, else by the clipboard. Style and place are the page's.
 */
export function inviteButton(): HTMLButtonElement {
  const b = document.createElement("button");
  b.type = "button";
  const touch = matchMedia("(pointer: coarse)").matches && typeof navigator.share === "function";
  const label = touch ? "Invite" : "Copy link";
  b.textContent = label;
  let timer: ReturnType<typeof setTimeout> | undefined;
  b.addEventListener("click", async () => {
    const url = location.href;
    if (touch) {
      // Whoever thinks better of it is not told anything.
      await navigator.share({ title: document.title, url }).catch(() => undefined);
    } else if (await copy(url)) {
      set(b, "Copied");
      clearTimeout(timer);
      timer = setTimeout(() => set(b, label), 2000);
    } else {
      prompt("Copy this link:", url);
    }
    b.blur(); // the space bar is for the game
  });
  return b;
}

// Only pages from https or from this machine have a clipboard; the others have the old way.
async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "dl-copy";
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

/** Asks for a name and remembers it. */
export function askName(): Promise<string> {
  return new Promise((resolve) => {
    const form = document.createElement("form");
    const label = el("label", "dl-label", "Your name");
    const field = document.createElement("input");
    field.className = "dl-field";
    field.maxLength = MAX_NAME;
    field.setAttribute("autocomplete", "nickname");
    field.enterKeyHint = "go";
    field.value = storedName();
    label.append(field);
    const play = button("Play", true);
    play.type = "submit";
    form.append(label, play);
    const d = dialog("Who are you?", "Others see this name.", form);
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      const name = field.value.trim() || guestName();
      storeName(name);
      d.close();
      resolve(name);
    });
    field.focus();
  });
}

/** Overlays of a room; close takes them away. */
export interface Status {
  close(): void;
}

/**
 * Shows a message while the room's link is lost, with a countdown and a button to try at once, another when the player has come
 * back as somebody new, and a dialog when it is over.
 * rejoin is what "Join again" does; by default the page is loaded again.
 */
export function status(room: Room<any>, rejoin: () => void = () => location.reload()): Status {
  let timer: ReturnType<typeof setInterval> | undefined;
  let bar: HTMLElement | null = null;
  let open: { close(): void } | null = null;
  let lost = false;
  const clear = (): void => {
    clearInterval(timer);
    bar?.remove();
    bar = null;
    open?.close();
    open = null;
  };
  const reconnecting = (): void => {
    lost = true;
    if (bar !== null) return;
    clear();
    bar = el("div", "dl-bar");
    bar.setAttribute("role", "status");
    const text = el("span", "dl-bar-text");
    const now = button("Try now", false);
    now.addEventListener("click", () => room.retryNow());
    bar.append(text, now);
    const update = (): void => {
      set(text, waiting(room.info));
      now.disabled = room.info.retryInMs === 0;
    };
    update();
    timer = setInterval(update, 250);
    // A hiccup that heals by itself needs no words.
    const shown = bar;
    setTimeout(() => {
      if (bar === shown) document.body.append(shown);
    }, 600);
  };
  // Says why the player is somebody new.
  const anew = (why: Refused | null): void => {
    clear();
    bar = el("div", "dl-bar dl-note", `${why?.text ?? "The connection was lost."} Your seat is gone, so you start anew.`);
    bar.setAttribute("role", "status");
    document.body.append(bar);
    timer = setTimeout(clear, NOTE_MS);
  };
  const change = (): void => {
    switch (room.state) {
      case "reconnecting":
        // The note of before is over.
        if (!lost) clear();
        reconnecting();
        return;
      case "closed": {
        clear();
        const why = room.info.why;
        if (why === null || why.reason === "left") return;
        open = tell(why, why.reason === "replaced" ? "Play here" : "Join again", rejoin);
        return;
      }
      default:
        clear();
        if (lost && !room.info.resumed) anew(room.info.why);
        lost = false;
    }
  };
  const off = room.onState(change);
  change();
  return {
    close() {
      off();
      clear();
    },
  };
}

// What the bar says while the link is lost.
function waiting(i: StateInfo): string {
  const next = i.retryInMs > 0 ? `Trying again in ${seconds(i.retryInMs)}.` : "Trying to come back …";
  const text = `${i.why?.text ?? "The connection was lost."} ${next}`;
  if (!i.kept) return text;
  const silent = i.why?.reason === "unreachable" || i.why?.reason === "timeout";
  return `${text} Your seat is kept for ${seconds(i.graceLeftMs)}${silent ? ", if the server still runs" : ""}.`;
}

// Shows a refusal until the player, or the countdown, wants to try again.
function refused(why: Refused, waitMs: number): Promise<void> {
  return new Promise((resolve) => {
    const count = el("p", "dl-count");
    const go = (): void => {
      clearInterval(timer);
      d.close();
      resolve();
    };
    const d = tell(why, "Try again", go, ...(waitMs > 0 ? [count] : []));
    const until = performance.now() + waitMs;
    const update = (): void => {
      const left = until - performance.now();
      if (left <= 0) go();
      else set(count, `Trying again in ${seconds(left)}.`);
    };
    const timer = waitMs > 0 ? setInterval(update, 250) : undefined;
    if (waitMs > 0) update();
  });
}

// A dialog about an end or refusal, with the ways out of it: the one that makes most sense first.
function tell(why: Refused, retry: string, again: () => void, ...content: HTMLElement[]): { close(): void } {
  const actions = el("div", "dl-actions");
  const reload = why.reason === "version";
  // What fails again for sure is not offered first.
  const hopeless = why.retry === "never" && !reload;
  const b = button(reload ? "Reload" : retry, !hopeless);
  b.addEventListener("click", reload ? () => location.reload() : again);
  const lobby = lobbyLink(hopeless);
  const ways = hopeless ? [lobby, b] : [b, lobby];
  if (why.reason === "room_full" && new URLSearchParams(location.search).has("room")) {
    const other = wayTo("Another room", location.pathname, false);
    ways.splice(1, 0, other);
  }
  actions.append(...ways);
  const d = dialog(title(why), why.text, ...content, actions);
  ways[0]!.focus();
  return d;
}

const TITLES: Readonly<Record<string, string>> = {
  room_full: "This room is full",
  server_full: "The server is full",
  too_fast: "Not so fast",
  draining: "The server is restarting",
  version: "A new version is out",
  replaced: "You are playing elsewhere",
  unreachable: "No connection",
  timeout: "No answer",
  no_world: "Wrong address",
  no_room: "Wrong address",
  room_error: "The room broke down",
  room_hung: "The room broke down",
  room_closed: "The room was closed",
  world: "You cannot play now",
};

function title(why: Refused): string {
  return TITLES[why.reason] ?? (why.retry === "new" ? "You lost your seat" : "The connection ended");
}

function lobbyLink(main: boolean): HTMLElement {
  return wayTo("Back to the lobby", siteBase(), main);
}

function wayTo(text: string, href: string, main: boolean): HTMLElement {
  const a = document.createElement("a");
  a.className = main ? "dl-button dl-main" : "dl-button";
  a.href = href;
  a.textContent = text;
  return a;
}

function dialog(heading: string, text: string, ...content: HTMLElement[]): { close(): void } {
  const d = document.createElement("dialog");
  d.className = "dl-dialog";
  // A text that only says the heading at greater length takes its place.
  const same = text.startsWith(heading);
  const h = el("h2", "dl-title", same ? text.replace(/\.$/, "") : heading);
  h.id = `dl-${++dialogs}`;
  d.setAttribute("aria-labelledby", h.id);
  d.append(h, ...(same ? [] : [el("p", "dl-text", text)]), ...content);
  document.body.append(d);
  const done = insist(d);
  d.showModal();
  return {
    close() {
      done();
      d.remove();
    },
  };
}

// Keeps a dialog open until what it returns is called: without it the page is dead. Browsers let a user close any dialog with
// Escape, some only at the second time, and with other gestures on phones.
function insist(d: HTMLDialogElement): () => void {
  d.setAttribute("closedby", "none"); // newer browsers do as told
  d.addEventListener("cancel", (e) => e.preventDefault());
  let focused: Element | null = null;
  d.addEventListener("focusin", (e) => (focused = e.target as Element));
  const reopen = (): void => {
    if (!d.isConnected || d.open) return;
    const back = focused;
    d.showModal();
    (back as HTMLElement | null)?.focus();
  };
  d.addEventListener("close", reopen);
  return () => d.removeEventListener("close", reopen);
}
let dialogs = 0;

function button(text: string, main: boolean): HTMLButtonElement {
  const b = document.createElement("button");
  b.type = "button";
  b.className = main ? "dl-button dl-main" : "dl-button";
  b.textContent = text;
  return b;
}

function el(tag: string, className: string, text = ""): HTMLElement {
  const e = document.createElement(tag);
  e.className = className;
  e.textContent = text;
  return e;
}

// Screen readers say a text again whenever it is set.
function set(e: HTMLElement, text: string): void {
  if (e.textContent !== text) e.textContent = text;
}

function seconds(ms: number): string {
  return `${Math.max(1, Math.ceil(ms / 1000))}\u00a0s`;
}
