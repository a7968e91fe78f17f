// The lobby: worlds to play, rooms that are open, and how the server does. It reads api/rooms every two seconds.

import { siteBase } from "./env.ts";
import { guestName, storeName, storedName } from "./name.ts";
import "./lobby.css";
import { List } from "./list.ts";

const POLL_MS = 2000;
const TIMEOUT_MS = 4000;

/** The answer of api/rooms. */
interface Rooms {
  server: { players: number; uptime_s: number; draining: boolean };
  worlds: WorldRow[] | null;
  rooms: RoomRow[] | null;
}

interface WorldRow {
  name: string;
  title: string;
  about: string;
  hz: number;
  send_hz: number;
  seats: number;
  rooms: number;
  max_rooms: number;
  players: number;
  has_page: boolean;
}

interface RoomRow {
  world: string;
  room: string;
  players: number;
  seats: number;
  hz: number;
  beat: { interval_p99_ms: number; skipped: number; dropped: number };
  bytes_per_s: number;
  age_s: number;
}

const base = siteBase();

function byID(id: string): HTMLElement {
  const e = document.getElementById(id);
  if (e === null) throw new Error(`no element #${id}`);
  return e;
}

function el(tag: string, className: string, text = ""): HTMLElement {
  const e = document.createElement(tag);
  if (className !== "") e.className = className;
  if (text !== "") e.textContent = text;
  return e;
}

// Setting a text anew would make screen readers say it again and lose selections.
function set(e: HTMLElement, text: string): void {
  if (e.textContent !== text) e.textContent = text;
}

function plural(n: number, one: string): string {
  return `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;
}

function bytes(n: number): string {
  if (n < 1000) return `${Math.round(n)} B/s`;
  if (n < 1e6) return `${(n / 1e3).toFixed(1)} kB/s`;
  return `${(n / 1e6).toFixed(1)} MB/s`;
}

function duration(s: number): string {
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h`;
  return plural(Math.floor(s / 86400), "day");
}

// A link that looks like a button, or the reason why there is none.
function playLink(text: string): { e: HTMLElement; update(href: string, label: string, refusal: string): void } {
  const e = el("div", "play");
  const a = document.createElement("a");
  a.className = "button main";
  a.textContent = text;
  const no = el("span", "full");
  e.append(a, no);
  return {
    e,
    update(href, label, refusal) {
      if (a.getAttribute("href") !== href) a.href = href;
      a.setAttribute("aria-label", label);
      a.hidden = refusal !== "";
      no.hidden = refusal === "";
      set(no, refusal);
    },
  };
}

function worldCard(): { e: HTMLElement; update(w: WorldRow): void } {
  const e = el("article", "world");
  const title = el("h3", "");
  const about = el("p", "about");
  const facts = el("p", "facts");
  const people = el("span", "");
  const kind = el("span", "");
  facts.append(people, kind);
  const play = playLink("Play");
  e.append(title, about, facts, play.e);
  return {
    e,
    update(w) {
      set(title, w.title);
      set(about, w.about);
      set(people, w.rooms === 0 ? "Nobody is playing yet" : `${plural(w.players, "player")} in ${plural(w.rooms, "room")}`);
      set(kind, `${plural(w.seats, "seat")} a room, ${w.hz > 0 ? `${w.hz} steps a second` : "moves when you do"}`);
      const full = w.rooms >= w.max_rooms && w.players >= w.rooms * w.seats;
      const refusal = !w.has_page ? "For programs only" : full ? "All rooms are full" : "";
      play.update(`${base}w/${encodeURIComponent(w.name)}/`, `Play ${w.title}`, refusal);
    },
  };
}

function roomRow(titles: ReadonlyMap<string, WorldRow>): { e: HTMLElement; update(r: RoomRow): void } {
  const e = el("article", "room");
  const name = el("h3", "");
  const facts = el("dl", "figures");
  const figure = (label: string): HTMLElement => {
    const box = el("div", "");
    const value = el("dd", "");
    box.append(el("dt", "", label), value);
    facts.append(box);
    return value;
  };
  const players = figure("Players");
  const beat = figure("Beat p99");
  const skipped = figure("Skipped");
  const traffic = figure("Traffic");
  const age = figure("Open for");
  const seats = document.createElement("progress");
  seats.className = "seats";
  seats.setAttribute("aria-hidden", "true"); // the figure beside it says the same
  const join = playLink("Join");
  e.append(name, facts, join.e, seats);
  return {
    e,
    update(r) {
      const w = titles.get(r.world);
      set(name, `${w?.title ?? r.world} / ${r.room}`);
      set(players, `${r.players}/${r.seats}`);
      set(beat, r.hz > 0 ? `${r.beat.interval_p99_ms.toFixed(1)} ms` : "none");
      set(skipped, r.hz > 0 ? (r.beat.skipped + r.beat.dropped).toLocaleString("en") : "none");
      set(traffic, bytes(r.bytes_per_s));
      set(age, duration(r.age_s));
      seats.max = r.seats;
      seats.value = r.players;
      const full = r.players >= r.seats;
      e.classList.toggle("is-full", full);
      join.update(
        `${base}w/${encodeURIComponent(r.world)}/?room=${encodeURIComponent(r.room)}`,
        `Join room ${r.room} of ${w?.title ?? r.world}`,
        full ? "Full" : w !== undefined && !w.has_page ? "No page" : "",
      );
    },
  };
}

function isRooms(v: unknown): v is Rooms {
  return typeof v === "object" && v !== null && typeof (v as Rooms).server === "object" && (v as Rooms).server !== null;
}

function run(): void {
  const field = byID("name") as HTMLInputElement;
  field.value = storedName() || guestName();
  field.addEventListener("focus", () => field.select());
  field.addEventListener("input", () => storeName(field.value.trim()));
  // The name that is shown is the one to play under: the world's page need not ask.
  const take = (e: Event): void => {
    if (e.target instanceof Element && e.target.closest(".play a") !== null) storeName(field.value.trim() || guestName());
  };
  for (const type of ["click", "auxclick"]) document.addEventListener(type, take);
  byID("who").addEventListener("submit", (e) => {
    e.preventDefault();
    document.querySelector<HTMLElement>(".world a.button:not([hidden])")?.focus();
  });

  const worldList = byID("world-list");
  const roomList = byID("room-list");
  const noWorlds = el("p", "empty", "This server runs no worlds.");
  const noRooms = el("p", "empty", "No room is open. The first one to play opens one.");
  const titles = new Map<string, WorldRow>();
  let worlds: List<WorldRow> | null = null;
  let rooms: List<RoomRow> | null = null;

  const show = (data: Rooms): void => {
    if (worlds === null || rooms === null) {
      worldList.replaceChildren();
      roomList.replaceChildren();
      worldList.removeAttribute("aria-busy");
      roomList.removeAttribute("aria-busy");
      worlds = new List(worldList, (w) => w.name, worldCard);
      rooms = new List(roomList, (r) => `${r.world}/${r.room}`, () => roomRow(titles));
    }
    const w = data.worlds ?? [];
    const r = data.rooms ?? [];
    titles.clear();
    for (const row of w) titles.set(row.name, row);
    worlds.show(w);
    rooms.show(r);
    toggle(worldList, noWorlds, w.length === 0);
    toggle(roomList, noRooms, r.length === 0);
    set(byID("server"), `${plural(data.server.players, "player")} online · up ${duration(data.server.uptime_s)}`);
    notice(data.server.draining ? "The server is about to restart. New players are let in again in a moment." : "");
  };
  const notice = (text: string): void => {
    const n = byID("notice");
    set(n, text);
    n.hidden = text === "";
  };

  let timer: ReturnType<typeof setTimeout> | undefined;
  let asking = false;
  const poll = async (): Promise<void> => {
    if (asking) return;
    asking = true;
    clearTimeout(timer);
    try {
      const answer = await fetch(new URL("api/rooms", base), { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
      const data: unknown = answer.headers.get("content-type")?.includes("json") ? await answer.json() : null;
      if (!isRooms(data)) throw new Error(`status ${answer.status}`);
      show(data);
      document.body.classList.remove("is-stale");
    } catch {
      notice("The server does not answer. Trying again …");
      document.body.classList.add("is-stale");
    }
    asking = false;
    if (document.visibilityState !== "hidden") timer = setTimeout(poll, POLL_MS);
  };
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState !== "hidden") void poll();
  });
  void poll();
}

function toggle(host: HTMLElement, e: HTMLElement, on: boolean): void {
  if (on && e.parentElement !== host) host.append(e);
  if (!on) e.remove();
}

// Pages of words alone use the style sheet of the lobby but none of its elements.
if (document.getElementById("world-list") !== null) run();
