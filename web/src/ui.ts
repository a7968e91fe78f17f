/**
 * Page pieces that every world needs: the name prompt, and overlays that say clearly what is wrong with the connection and what
 * can be done. They bring their own styles.
 *
 *   import { enter } from "drumline/ui";
 *
 *   const room = await enter<MyShape>();   // asks for a name if need be, joins, retries; keeps an eye on the connection
 */
import { siteBase } from "./env.ts";
import { MAX_NAME, storeName, storedName } from "./name.ts";
import { type AnyShape, type JoinOptions, Refused, Room, type Shape, join } from "./room.ts";
import "./ui.css";

export { MAX_NAME, storeName, storedName };

/** Options of {@link enter}: by default the world and room come from the page's address. */
export type EnterOptions = Partial<JoinOptions>;

/**
 * Asks for a name if none is known, joins, shows why when that fails, and tries again: by itself where waiting helps, else when
 * the player asks. The room it returns has its {@link status} shown.
 */
export async function enter<S extends Shape = AnyShape>(options: EnterOptions = {}): Promise<Room<S>> {
  const world = options.world ?? document.documentElement.dataset["world"] ?? "";
  const room = options.room ?? new URLSearchParams(location.search).get("room") ?? "";
  const name = options.name ?? (storedName() || (await askName()));
  for (let tries = 0; ; tries++) {
    try {
      const r = await join<S>({ ...options, world, room, name });
      status(r);
      return r;
    } catch (e) {
      if (!(e instanceof Refused)) throw e;
      const wait = e.retry === "later" ? Math.max(e.retryMs, Math.min(10_000, 2000 * 1.5 ** tries)) : 0;
      await refused(e, wait);
    }
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
      const name = field.value.trim() || `Guest ${100 + Math.floor(Math.random() * 900)}`;
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
 * Shows a message while the room's link is lost, with a countdown and a button to try at once, and a dialog when it is over.
 * rejoin is what "Join again" does; by default the page is loaded again.
 */
export function status(room: Room<any>, rejoin: () => void = () => location.reload()): Status {
  let timer: ReturnType<typeof setInterval> | undefined;
  let bar: HTMLElement | null = null;
  let open: { close(): void } | null = null;
  const clear = (): void => {
    clearInterval(timer);
    bar?.remove();
    bar = null;
    open?.close();
    open = null;
  };
  const reconnecting = (): void => {
    if (bar !== null) return;
    clear();
    bar = el("div", "dl-bar");
    bar.setAttribute("role", "status");
    const text = el("span", "dl-bar-text");
    const now = button("Try now", false);
    now.addEventListener("click", () => room.retryNow());
    bar.append(text, now);
    const update = (): void => {
      const i = room.info;
      const why = i.why?.text ?? "The connection was lost.";
      const next = i.retryInMs > 0 ? `Trying again in ${seconds(i.retryInMs)}` : "Trying to come back …";
      set(text, `${why} ${next} Your seat is kept for ${seconds(i.graceLeftMs)}`);
      now.disabled = i.retryInMs === 0;
    };
    update();
    timer = setInterval(update, 250);
    // A hiccup that heals by itself needs no words.
    const shown = bar;
    setTimeout(() => {
      if (bar === shown) document.body.append(shown);
    }, 600);
  };
  const change = (): void => {
    switch (room.state) {
      case "reconnecting":
        reconnecting();
        return;
      case "closed": {
        clear();
        const why = room.info.why;
        if (why === null || why.reason === "left") return;
        const actions = document.createElement("div");
        actions.className = "dl-actions";
        const again = button(why.reason === "version" ? "Reload" : "Join again", true);
        again.addEventListener("click", rejoin);
        actions.append(again, lobbyLink());
        open = dialog(title(why), why.text, actions);
        again.focus();
        return;
      }
      default:
        clear();
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

// Shows a refusal until the player, or the countdown, wants to try again.
function refused(why: Refused, waitMs: number): Promise<void> {
  return new Promise((resolve) => {
    const actions = document.createElement("div");
    actions.className = "dl-actions";
    const again = button(why.reason === "version" ? "Reload" : "Try again", true);
    const count = el("p", "dl-count");
    let d: { close(): void };
    const go = (): void => {
      clearInterval(timer);
      if (why.reason === "version") {
        location.reload();
        return;
      }
      d.close();
      resolve();
    };
    again.addEventListener("click", go);
    actions.append(again, lobbyLink());
    const until = performance.now() + waitMs;
    const update = (): void => {
      const left = until - performance.now();
      if (left <= 0) go();
      else set(count, `Trying again in ${seconds(left)}`);
    };
    const timer = waitMs > 0 ? setInterval(update, 250) : undefined;
    d = dialog(title(why), why.text, ...(waitMs > 0 ? [count, actions] : [actions]));
    if (waitMs > 0) update();
    again.focus();
  });
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
  no_world: "No such world",
  no_room: "No such room",
  room_error: "The room broke down",
  room_hung: "The room broke down",
  room_closed: "The room was closed",
  world: "You cannot play now",
};

function title(why: Refused): string {
  return TITLES[why.reason] ?? (why.retry === "new" ? "You lost your seat" : "The connection ended");
}

function lobbyLink(): HTMLElement {
  const a = document.createElement("a");
  a.className = "dl-button";
  a.href = siteBase();
  a.textContent = "Back to the lobby";
  return a;
}

function dialog(heading: string, text: string, ...content: HTMLElement[]): { close(): void } {
  const d = document.createElement("dialog");
  d.className = "dl-dialog";
  const h = el("h2", "dl-title", heading);
  h.id = `dl-${++dialogs}`;
  d.setAttribute("aria-labelledby", h.id);
  d.append(h, el("p", "dl-text", text), ...content);
  // Escape would leave the player with a dead page.
  d.addEventListener("cancel", (e) => e.preventDefault());
  document.body.append(d);
  d.showModal();
  return { close: () => d.remove() };
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
  return `${Math.max(1, Math.ceil(ms / 1000))}\u00a0s.`;
}
