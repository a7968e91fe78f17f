// The inspector: an operator's look at the rooms, their beat, their seats, and where the bytes go. It reads debug/rooms, debug/room and
// debug/explain once a second while it is visible. Whatever players can choose (names) only ever becomes text.

import { siteBase } from "./env.ts";
import {
  type Bar, type Explained, LATE_BOUNDS, type RoomDetail, type RoomRow, type Rooms, type Seat, type Spent, bars, bytes, count, duration,
  lateHistogram, ms, plural, reasons, spentSince, total, verdict,
} from "./inspector_data.ts";
import { Timeline, Trend } from "./inspector_plots.ts";
import "./lobby.css";
import "./inspector.css";
import { List, type Shown } from "./list.ts";

const POLL_MS = 1000;
const TIMEOUT_MS = 5000;
const HISTORY_S = 120;
/** Over how many answers "lately" goes, for a room. */
const LATELY = 10;
const BARS_SHOWN = 16;

const base = siteBase();

function byID(id: string): HTMLElement {
  const e = document.getElementById(id);
  if (e === null) throw new Error(`no element #${id}`);
  return e;
}

function el<K extends keyof HTMLElementTagNameMap>(tag: K, className = "", text = ""): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  if (className !== "") e.className = className;
  if (text !== "") e.textContent = text;
  return e;
}

function set(e: HTMLElement, text: string): void {
  if (e.textContent !== text) e.textContent = text;
}

/** A column of a table: its head, and the text of a row's cell; alarm marks it. */
interface Column<R> {
  head: string;
  title: string;
  text(r: R): string;
  alarm?(r: R): boolean;
}

/** A table whose first column holds a button. On a narrow screen each row becomes a card. */
class Table<R> {
  private readonly list: List<R>;
  private readonly empty: HTMLElement;
  private readonly table = el("table", "rows");

  constructor(host: HTMLElement, first: { head: string; text(r: R): string; label(r: R): string; pressed?(r: R): boolean }, columns: readonly Column<R>[],
    key: (r: R) => string, press: (r: R) => void, empty: string) {
    const head = el("tr");
    const th = el("th", "", first.head);
    th.scope = "col";
    head.append(th);
    for (const c of columns) {
      const h = el("th", "number", c.head);
      h.scope = "col";
      h.title = c.title;
      head.append(h);
    }
    const thead = el("thead");
    thead.append(head);
    const body = el("tbody");
    this.table.append(thead, body);
    this.empty = el("p", "empty", empty);
    const wrap = el("div", "table");
    wrap.append(this.table);
    host.replaceChildren(wrap, this.empty);
    this.list = new List<R>(body, key, () => {
      const e = el("tr");
      const name = el("th");
      name.scope = "row";
      const b = el("button", "pick");
      b.type = "button";
      name.append(b);
      const cells = columns.map((c) => {
        const td = el("td", "number");
        td.dataset["head"] = c.head;
        return td;
      });
      e.append(name, ...cells);
      let now: R;
      b.addEventListener("click", () => press(now));
      return {
        e,
        update(r) {
          now = r;
          set(b, first.text(r));
          b.setAttribute("aria-label", first.label(r));
          if (first.pressed !== undefined) {
            b.setAttribute("aria-pressed", String(first.pressed(r)));
            e.classList.toggle("is-picked", first.pressed(r));
          }
          columns.forEach((c, i) => {
            set(cells[i]!, c.text(r));
            cells[i]!.classList.toggle("is-bad", c.alarm?.(r) ?? false);
          });
        },
      };
    });
  }

  show(rows: readonly R[]): void {
    this.list.show(rows);
    this.table.parentElement!.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0;
  }
}

/** Where bytes went: two stretches of time to choose from, and a bar for each type and field. */
class SpentView {
  private readonly list: List<WideBar>;
  private readonly words = el("p", "words");
  private readonly more = el("button", "button small");
  private readonly buttons: HTMLButtonElement[] = [];
  private readonly views: { name: string; spent: Spent | null }[];
  private chosen = 0;
  private all = false;

  constructor(host: HTMLElement, names: readonly string[]) {
    this.views = names.map((name) => ({ name, spent: null }));
    const choice = el("div", "choice");
    choice.setAttribute("role", "group");
    choice.setAttribute("aria-label", "Over which time");
    names.forEach((name, i) => {
      const b = el("button", "", name);
      b.type = "button";
      b.addEventListener("click", () => {
        this.chosen = i;
        this.draw();
      });
      this.buttons.push(b);
      choice.append(b);
    });
    const ol = el("ol", "bars");
    this.more.type = "button";
    this.more.addEventListener("click", () => {
      this.all = !this.all;
      this.draw();
    });
    host.append(choice, this.words, ol, this.more);
    this.list = new List<WideBar>(ol, (b) => b.key, bar);
  }

  show(...spent: (Spent | null)[]): void {
    this.views.forEach((v, i) => (v.spent = spent[i] ?? null));
    this.draw();
  }

  private draw(): void {
    this.buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(i === this.chosen)));
    const s = this.views[this.chosen]!.spent;
    if (s === null) {
      set(this.words, "A moment: this needs two answers.");
      this.list.show([]);
      this.more.hidden = true;
      return;
    }
    const rows = bars(s);
    const most = rows[0]?.share ?? 1;
    const rate = s.for_s > 0 ? `, ${bytes(s.bytes / s.for_s)}/s` : "";
    const each = s.packets > 0 ? `, ${bytes(s.bytes / s.packets)} each` : "";
    set(this.words, `${bytes(s.bytes)} in ${duration(s.for_s)}${rate}: ${count(s.packets)} packets${each}.`);
    this.list.show((this.all ? rows : rows.slice(0, BARS_SHOWN)).map((b) => ({ ...b, width: b.share / most })));
    this.more.hidden = rows.length <= BARS_SHOWN;
    set(this.more, this.all ? "Show the largest only" : `Show all ${rows.length}`);
  }
}

/** A bar and its length against the longest. */
type WideBar = Bar & { width: number };

function bar(): Shown<WideBar> {
  const e = el("li");
  const label = el("span", "bar-label");
  const name = el("span", "");
  const feed = el("span", "bar-feed");
  label.append(name, feed);
  const track = el("span", "bar-track");
  const fill = el("span", "bar-fill");
  track.append(fill);
  const share = el("span", "bar-share");
  const facts = el("span", "bar-facts");
  e.append(label, share, track, facts);
  return {
    e,
    update(b) {
      set(name, b.label);
      set(feed, b.feed);
      e.classList.toggle("is-engine", b.feed === "engine");
      fill.style.width = `${(b.width * 100).toFixed(2)}%`;
      set(share, b.share < 0.001 ? "< 0.1 %" : `${(b.share * 100).toFixed(1)} %`);
      set(facts, `${bytes(b.bytesPerS)}/s · ${b.bitsEach.toFixed(1)} bits × ${count(b.count)}`);
    },
  };
}

/** Label and value pairs. */
class Facts {
  readonly e = el("dl", "facts-list");
  private readonly values = new Map<string, HTMLElement>();

  show(facts: readonly (readonly [string, string])[]): void {
    for (const [label, text] of facts) {
      let v = this.values.get(label);
      if (v === undefined) {
        const box = el("div");
        v = el("dd");
        box.append(el("dt", "", label), v);
        this.e.append(box);
        this.values.set(label, v);
      }
      set(v, text);
    }
  }
}

/** The server did not let the page see its figures. */
class Forbidden extends Error {}

/** There is no such room or seat (any more). */
class Missing extends Error {}

let token = ""; // in memory only

async function get<T>(path: string, query: Record<string, string> = {}): Promise<T> {
  const u = new URL(`debug/${path}`, base);
  for (const [k, v] of Object.entries(query)) u.searchParams.set(k, v);
  const headers: Record<string, string> = token === "" ? {} : { Authorization: `Bearer ${token}` };
  const answer = await fetch(u, { headers, signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store", credentials: "same-origin" });
  if (answer.status === 401 || answer.status === 403) throw new Forbidden(await answer.text());
  if (answer.status === 404) throw new Missing(path);
  if (!answer.ok || !(answer.headers.get("content-type") ?? "").includes("json")) throw new Error(`status ${answer.status}`);
  return (await answer.json()) as T;
}

const unknown = "–";
const known = (n: number, text: (n: number) => string): string => (n > 0 ? text(n) : unknown);

const ROOM_COLUMNS: readonly Column<RoomRow>[] = [
  { head: "Seats", title: "Taken seats of all; away: without a link", text: (r) => `${r.players}/${r.seats}${r.waiting > 0 ? `, ${r.waiting} away` : ""}` },
  { head: "Step p50 / p99", title: "How long a step takes, of the last 1,200", text: (r) => known(r.hz > 0 ? r.beat.step_ms.p99 : 0, (p99) => `${r.beat.step_ms.p50.toFixed(2)} / ${ms(p99)}`), alarm: (r) => r.hz > 0 && r.beat.step_ms.p99 > 1000 / r.hz },
  { head: "Interval p99", title: "Between the starts of steps, of the last 1,200", text: (r) => known(r.hz > 0 ? r.beat.interval_ms.p99 : 0, ms), alarm: (r) => r.hz > 0 && r.beat.interval_ms.p99 > 1500 / r.hz },
  { head: "Skipped", title: "Intervals over 1.5 periods, and steps never run, since the room opened", text: (r) => (r.hz > 0 ? count(r.beat.skipped + r.beat.dropped) : unknown), alarm: (r) => r.beat.skipped + r.beat.dropped > 0 },
  { head: "Doubled", title: "Intervals under half a period, since the room opened", text: (r) => (r.hz > 0 ? count(r.beat.doubled) : unknown), alarm: (r) => r.beat.doubled > 0 },
  { head: "Bytes/s", title: "Packets of all seats in the last second, without framing", text: (r) => bytes(r.bytes_per_s) },
  { head: "Held", title: "Items that a client holds, on average", text: (r) => r.held.toFixed(0) },
];

const SLOW_MS = 1000; // the default of Options.SlowAfter
const FULL_BYTES = 256 << 10; // from here on a seat gets no state

const queue = (s: Seat): number => s.queued_bytes + Math.max(s.kernel_bytes, 0);

const SEAT_COLUMNS: readonly Column<Seat>[] = [
  { head: "Link", title: "The transport", text: (s) => s.link || "away" },
  { head: "Ping", title: "The least of the last 16 times from a packet to its ack", text: (s) => known(s.ping_ms, ms) },
  { head: "Unacked", title: "How long the oldest packet without an ack has waited", text: (s) => known(s.unacked_ms, ms), alarm: (s) => s.unacked_ms > SLOW_MS },
  { head: "Age", title: "The oldest state written in the last second: from its step's deadline until it was written", text: (s) => known(s.age_ms, ms) },
  { head: "Queue", title: "Bytes that wait in this process and in the kernel", text: (s) => (s.link === "" ? unknown : bytes(queue(s))), alarm: (s) => s.queued_bytes > FULL_BYTES },
  { head: "Bytes/s", title: "In the last second, without framing", text: (s) => bytes(s.bytes_per_s) },
  { head: "Held", title: "Items that the client holds", text: (s) => count(s.held) },
  { head: "Skips", title: "Packets not sent since the seat was taken", text: (s) => count(total(s.skipped)) },
];

function run(): void {
  const notice = (text: string): void => {
    const n = byID("notice");
    set(n, text);
    n.hidden = text === "";
  };

  // The door.
  const door = byID("door") as HTMLFormElement;
  const field = byID("token") as HTMLInputElement;
  const view = byID("view");
  const ask = (text: string): void => {
    set(byID("door-text"), text);
    if (!door.hidden) return;
    door.hidden = false;
    view.hidden = true;
    drawer.close();
    set(byID("server"), "");
    field.focus();
  };
  door.addEventListener("submit", (e) => {
    e.preventDefault();
    token = field.value.trim();
    field.value = "";
    void poll();
  });

  // The last two minutes.
  const trends = ([
    ["Sent", (n: number) => `${bytes(n)}/s`, (d: Rooms) => d.history.map((s) => s.bytes_per_s)],
    ["State age p99", (n: number) => known(n, ms), (d: Rooms) => d.history.map((s) => s.age_p99_ms)],
    ["Packet built p99", (n: number) => known(n, (v) => `${v < 100 ? v.toFixed(1) : v.toFixed(0)} µs`), (d: Rooms) => d.history.map((s) => s.encode_p99_us)],
  ] as const).map(([name, format, values]) => {
    const e = el("figure", "card");
    const caption = el("figcaption", "", name);
    const now = el("strong", "", unknown);
    caption.append(now);
    const plot = new Trend(name, HISTORY_S, format);
    e.append(caption, plot.e);
    byID("live").append(e);
    return (d: Rooms): void => {
      const v = values(d);
      set(now, v.length > 0 ? format(v[v.length - 1]!) : unknown);
      plot.show(v);
    };
  });

  // Rooms, one of them chosen.
  let chosen = /^#([a-z0-9-]{1,32})\/([a-z0-9-]{1,32})$/.exec(location.hash)?.slice(1, 3).join("/") ?? "";
  let looked = ""; // the room whose figures are shown
  let old: Spent[] = [];
  const key = (r: RoomRow): string => `${r.world}/${r.room}`;
  const choose = (k: string): void => {
    chosen = k;
    history.replaceState(null, "", `#${k}`);
    void poll();
  };
  const rooms = new Table<RoomRow>(byID("room-list"),
    { head: "Room", text: (r) => `${r.world} / ${r.room}`, label: (r) => `Look into room ${r.room} of ${r.world}`, pressed: (r) => key(r) === chosen },
    ROOM_COLUMNS, key, (r) => choose(key(r)), "No room is open. The first one to play opens one.");
  const omitted = el("p", "words");
  byID("room-list").append(omitted);

  // The beat of one room.
  let steps: RoomDetail | null = null;
  const readout = el("span", "readout");
  const timeline = new Timeline((i) => {
    const d = steps;
    if (d === null) return;
    if (i < 0) {
      const b = d.room.beat;
      set(readout, d.room.hz === 0 ? "" : `p99 ${ms(b.interval_ms.p99)}, longest ${ms(b.interval_ms.max)}`);
      return;
    }
    const s = d.steps;
    const what = verdict(s.late_ms[i]!, s.interval_ms[i]!, 1000 / d.room.hz);
    set(readout, `${duration(Math.max(0, -s.at_ms[i]! / 1000))} ago: interval ${ms(s.interval_ms[i]!)}, late ${ms(s.late_ms[i]!)}, step ${ms(s.step_ms[i]!)}${what === "" ? "" : ` (${what})`}`);
  });
  {
    const caption = el("figcaption", "", "The last steps");
    caption.append(readout);
    byID("timeline").append(caption, timeline.e);
  }
  const lateCaption = el("figcaption", "", "How late they began");
  const lateWorst = el("span", "readout");
  lateCaption.append(lateWorst);
  const lateList = el("ol", "bars late");
  byID("lateness").append(lateCaption, lateList);
  const lateBars = [...LATE_BOUNDS, Infinity].map((bound, i) => {
    const e = el("li");
    const label = el("span", "bar-label", bound === Infinity ? `> ${LATE_BOUNDS[i - 1]} ms` : `≤ ${bound} ms`);
    const track = el("span", "bar-track");
    const fill = el("span", "bar-fill");
    const n = el("span", "bar-share");
    track.append(fill);
    e.append(label, track, n);
    lateList.append(e);
    return (v: number, all: number, late: boolean): void => {
      // The root lets a single late step be seen beside a thousand on time.
      fill.style.width = `${(all > 0 ? Math.sqrt(v / all) * 100 : 0).toFixed(1)}%`;
      e.classList.toggle("is-late", late);
      set(n, count(v));
    };
  });

  // Seats, and one of them explained.
  const seats = new Table<Seat>(byID("seat-list"),
    { head: "Seat", text: (s) => `${s.seat} ${s.name}`, label: (s) => `Where did the bytes of seat ${s.seat}, ${s.name}, go?` },
    SEAT_COLUMNS, (s) => String(s.seat), (s) => drawer.open(s), "Nobody plays here.");
  const seatsOmitted = el("p", "words");
  byID("seat-list").append(seatsOmitted);
  const roomSpent = new SpentView(byID("spent"), ["Lately", "Since the room opened"]);

  const drawer = new Drawer(() => void poll());

  const showRooms = (d: Rooms): void => {
    for (const t of trends) t(d);
    const beats = d.threads.filter((t) => t.role === "beat").map((t) => t.load_cores);
    const encoders = d.threads.filter((t) => t.role === "encoder").map((t) => t.load_cores);
    const load = (v: number[]): string => `${(v.reduce((a, b) => a + b, 0) * 100).toFixed(0)} %`;
    set(byID("server"), `${plural(d.server.players, "player")} · ${plural(d.server.links, "link")} · up ${duration(d.server.uptime_s)} · ${d.server.rss_mib.toFixed(0)} MiB · ` +
      `${d.server.cpu_cores.toFixed(2)} cores (beat ${load(beats)}, encoders ${load(encoders)})`);
    const list = d.rooms;
    // A room that was looked at stays, closed; an address of one that is not there does not.
    const wrong = looked !== chosen && d.rooms_omitted === 0 && !list.some((r) => key(r) === chosen);
    if (chosen === "" || wrong) chosen = list[0] === undefined ? "" : key(list[0]);
    rooms.show(list);
    omitted.hidden = d.rooms_omitted === 0;
    set(omitted, `and ${plural(d.rooms_omitted, "room")} with fewer players.`);
    notice(d.server.draining ? "The server is draining: it takes nobody in any more and ends soon." : "");
  };

  const showRoom = (d: RoomDetail): void => {
    const r = d.room;
    if (looked !== key(r)) old = [];
    looked = key(r);
    steps = d;
    byID("room").hidden = false;
    set(byID("room-title"), `Room ${r.world} / ${r.room}`);
    set(byID("room-words"), `${r.hz > 0 ? `${r.hz} steps and ${r.send_hz} states a second` : `Moves when its players do, at most ${r.send_hz} states a second`} · open for ${duration(r.age_s)} · ` +
      `tick ${count(r.tick)} · packets not sent: ${reasons(r.skipped)}`);
    byID("room").querySelector<HTMLElement>(".pair")!.hidden = r.hz === 0;
    timeline.show(d.steps, r.hz);
    const hist = lateHistogram(d.steps.late_ms);
    const all = d.steps.late_ms.length;
    const half = r.hz > 0 ? 500 / r.hz : Infinity;
    const tooLate = lateHistogram(d.steps.late_ms.filter((v) => v > half));
    hist.forEach((n, i) => lateBars[i]!(n, all, tooLate[i]! > 0));
    set(lateWorst, `p99 ${ms(r.beat.late_ms.p99)}, most ${ms(d.steps.late_ms.reduce((a, b) => Math.max(a, b), 0))}`);
    seats.show(d.seats);
    seatsOmitted.hidden = d.seats_omitted === 0;
    set(seatsOmitted, `and ${count(d.seats_omitted)} seats that do better.`);
    old.push(d.spent);
    if (old.length > LATELY + 1) old.shift();
    roomSpent.show(old.length > 1 ? spentSince(d.spent, old[0]!) : null, d.spent);
  };

  const closed = (): void => {
    steps = null;
    byID("room").hidden = looked === "" && chosen === "";
    set(byID("room-words"), chosen === "" ? "" : "This room has closed. What is shown below is how it was.");
  };

  // Asking.
  let timer: ReturnType<typeof setTimeout> | undefined;
  let asking = false;
  let again = false;
  let since = 0; // when the server last answered
  const poll = async (): Promise<void> => {
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    clearTimeout(timer);
    try {
      const d = await get<Rooms>("rooms");
      door.hidden = true;
      view.hidden = false;
      showRooms(d);
      if (chosen === "") closed();
      else {
        const [world, room] = chosen.split("/") as [string, string];
        const lookInto = get<RoomDetail>("room", { world, room }).then(showRoom, (e: unknown) => {
          if (!(e instanceof Missing)) throw e;
          closed();
        });
        await Promise.all([lookInto, drawer.update(world, room)]);
      }
      since = performance.now();
      document.body.classList.remove("is-stale");
    } catch (e) {
      if (e instanceof Forbidden) {
        notice("");
        ask(token !== "" ? "The server does not know this token." : "From here the server shows its figures only to the holder of the operator’s token (serve --ops-token-file).");
        token = "";
      } else {
        // A text that changed every second would be read out every second.
        const s = Math.floor((performance.now() - since) / 10_000) * 10;
        const gone = since === 0 ? "" : s === 0 ? " for some seconds" : ` for ${duration(s)}`;
        notice(`The server has not answered${gone}. What is shown is how it was. Trying again …`);
        document.body.classList.add("is-stale");
      }
    }
    asking = false;
    if (again) {
      again = false;
      void poll();
      return;
    }
    if (document.visibilityState !== "hidden" && door.hidden) timer = setTimeout(poll, POLL_MS);
  };
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.visibilityState !== "hidden" && door.hidden) void poll();
  });
  void poll();
}

/** The explanation of one seat, beside or over the page. */
class Drawer {
  private readonly e = byID("drawer") as HTMLDialogElement;
  private readonly title = el("h2");
  private readonly words = el("p", "words");
  private readonly facts = new Facts();
  private readonly spent: SpentView;
  private seat = -1;
  private readonly poll: () => void;

  constructor(poll: () => void) {
    this.poll = poll;
    const close = el("button", "button small", "Close");
    close.type = "button";
    close.addEventListener("click", () => this.close());
    this.title.id = "drawer-title";
    const head = el("div", "drawer-head");
    head.append(this.title, close);
    const h = el("h3", "", "Where did this client’s bytes go?");
    const spent = el("div");
    this.spent = new SpentView(spent, ["Lately", "Since it came"]);
    this.e.append(head, this.words, this.facts.e, h, spent);
    this.e.addEventListener("close", () => (this.seat = -1));
    this.e.addEventListener("click", (e) => {
      if (e.target === this.e) this.close(); // beside it
    });
  }

  open(s: Seat): void {
    this.seat = s.seat;
    set(this.title, s.name);
    set(this.words, "");
    this.show(s);
    this.spent.show(null, null);
    if (!this.e.open) this.e.showModal();
    this.poll();
  }

  close(): void {
    if (this.e.open) this.e.close();
  }

  /** Asks for the seat that is open, if one is. */
  async update(world: string, room: string): Promise<void> {
    const seat = this.seat;
    if (seat < 0) return;
    try {
      const x = await get<Explained>("explain", { world, room, seat: String(seat) });
      if (this.seat !== seat) return;
      set(this.title, x.seat.name);
      set(this.words, `Seat ${seat} of ${world} / ${room}, ${x.seat.link === "" ? "whose player is away" : `by ${x.seat.link}, ${x.seat.ordered ? "in order" : "acked"}`}, taken ${duration(x.seat.since_s)} ago`);
      this.show(x.seat);
      this.spent.show(x.window, x.life);
    } catch (e) {
      if (!(e instanceof Missing)) throw e;
      set(this.words, `Nobody has seat ${seat} of ${world} / ${room} any more. What is shown is how it was.`);
    }
  }

  private show(s: Seat): void {
    this.facts.show([
      ["Ping", known(s.ping_ms, ms)],
      ["Ack delay", known(s.ack_delay_ms, ms)],
      ["Unacked for", known(s.unacked_ms, ms)],
      ["State age", known(s.age_ms, ms)],
      ["Sent", `${bytes(s.bytes_per_s)}/s`],
      ["Packets", `${s.packets_per_s.toFixed(1)}/s`],
      ["Queued here", s.link === "" ? unknown : bytes(s.queued_bytes)],
      ["In the kernel", s.kernel_bytes < 0 ? unknown : bytes(s.kernel_bytes)],
      ["Held", count(s.held)],
      ["Keyframes", count(s.keyframes)],
      ["Inputs early", s.input_margin === null ? unknown : `${s.input_margin} steps`],
      ["On the wire", s.wire_bytes_out > 0 ? bytes(s.wire_bytes_out) : unknown],
      ["Its page", s.page ? `${count(s.page.fps)} frames/s, p99 ${ms(s.page.frame_p99_ms)}, shows what is ${ms(s.page.state_age_ms)} old` : unknown],
      ["Stutters by", s.page ? reasons(s.page.stutters) : unknown],
      ["Not sent", reasons(s.skipped)],
      ["Not used", reasons(s.dropped)],
    ]);
  }
}

run();
