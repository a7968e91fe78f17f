// What the inspector page is told, and what it makes of that before it is shown. The shapes have a twin in ops/inspect.go; what the
// figures mean is told there and in docs/inspector.md.

export interface Quantiles {
  mean: number;
  p50: number;
  p90: number;
  p99: number;
  max: number;
}

/** The answer of debug/rooms. */
export interface Rooms {
  server: {
    uptime_s: number;
    draining: boolean;
    links: number;
    players: number;
    waiting: number;
    cpu_cores: number;
    rss_mib: number;
    goroutines: number;
  };
  threads: { role: string; priority: string; refused?: string; load_cores: number; rooms: number }[];
  history: Second[];
  rooms: RoomRow[];
  rooms_omitted: number;
}

export interface Second {
  end_ms: number;
  bytes_per_s: number;
  packets_per_s: number;
  wire_bytes_per_s: number;
  age_p99_ms: number;
  encode_p99_us: number;
}

export interface RoomRow {
  world: string;
  room: string;
  age_s: number;
  tick: number;
  hz: number;
  send_hz: number;
  seats: number;
  players: number;
  waiting: number;
  bytes_per_s: number;
  packets_per_s: number;
  held: number;
  encode_us: number;
  skipped: Record<string, number>;
  beat: {
    steps: number;
    late: number;
    skipped: number;
    doubled: number;
    dropped: number;
    stalls: number;
    interval_ms: Quantiles;
    late_ms: Quantiles;
    step_ms: Quantiles;
  };
}

/** The answer of debug/room. */
export interface RoomDetail {
  room: RoomRow;
  steps: Steps;
  seats: Seat[];
  seats_omitted: number;
  spent: Spent;
}

/** The last steps, oldest first, in columns. */
export interface Steps {
  at_ms: number[];
  late_ms: number[];
  interval_ms: number[];
  step_ms: number[];
}

export interface Seat {
  seat: number;
  name: string;
  link: string;
  ordered: boolean;
  since_s: number;
  link_since_s: number;
  ping_ms: number;
  ack_delay_ms: number;
  unacked_ms: number;
  age_ms: number;
  input_margin: number | null;
  queued_bytes: number;
  kernel_bytes: number;
  bytes_per_s: number;
  packets_per_s: number;
  packets: number;
  messages: number;
  bytes: number;
  wire_bytes_out: number;
  wire_bytes_in: number;
  keyframes: number;
  events: number;
  held: number;
  skipped: Record<string, number>;
  dropped: Record<string, number>;
  /** What the seat's page reported last; null: nothing. */
  page: PageFigures | null;
}

/** A page's own word of the motion that it shows: see the report of docs/protocol.md. */
export interface PageFigures {
  ago_s: number;
  fps: number;
  frame_p99_ms: number;
  state_age_ms: number;
  underrun_frames: number;
  jump_frames: number;
  stutters: Record<string, number>;
}

export interface Spent {
  for_s: number;
  packets: number;
  bytes: number;
  rows: SpentRow[];
  rows_omitted: number;
}

export interface SpentRow {
  feed: string;
  label: string;
  bits: number;
  count: number;
}

/** The answer of debug/explain. */
export interface Explained {
  world: string;
  room: string;
  seat: Seat;
  life: Spent;
  window: Spent;
}

/** Bytes with a unit that keeps three digits. */
export function bytes(n: number): string {
  if (n < 999.5) return `${Math.round(n)} B`;
  if (n < 999_500) return `${digits(n / 1e3)} kB`;
  if (n < 999.5e6) return `${digits(n / 1e6)} MB`;
  return `${digits(n / 1e9)} GB`;
}

/** Milliseconds; 0 for unknown values is the caller's matter. */
export function ms(n: number): string {
  if (n < 0.995) return `${n.toFixed(2)} ms`;
  if (n < 9999.5) return `${digits(n)} ms`;
  return `${digits(n / 1000)} s`;
}

function digits(n: number): string {
  return n < 9.995 ? n.toFixed(2) : n < 99.95 ? n.toFixed(1) : n.toFixed(0);
}

/** A count with its noun: "1 player", "1,200 players". */
export function plural(n: number, one: string): string {
  return `${count(n)} ${one}${n === 1 ? "" : "s"}`;
}

export function count(n: number): string {
  return n.toLocaleString("en");
}

export function duration(s: number): string {
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.floor(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} days`;
}

export function total(counts: Record<string, number>): number {
  let n = 0;
  for (const k in counts) n += counts[k]!;
  return n;
}

/** "busy 3, slow 12": the reasons that have happened, most often first; "none" if there is none. */
export function reasons(counts: Record<string, number>): string {
  const some = Object.entries(counts).filter(([, n]) => n > 0).sort(([a, n], [b, m]) => m - n || a.localeCompare(b));
  return some.length === 0 ? "none" : some.map(([k, n]) => `${k.replaceAll("_", " ")} ${count(n)}`).join(", ");
}

/** Upper bounds of the lateness histogram's bars in ms; the last bar has none. */
export const LATE_BOUNDS: readonly number[] = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20];

/** How many steps were late by how much: one more count than LATE_BOUNDS has entries. */
export function lateHistogram(late: readonly number[]): number[] {
  const out = new Array<number>(LATE_BOUNDS.length + 1).fill(0);
  for (const v of late) {
    let i = 0;
    while (i < LATE_BOUNDS.length && v > LATE_BOUNDS[i]!) i++;
    out[i]!++;
  }
  return out;
}

/** Whether a step began late (by over half a period), and whether its interval was a skip or a double, as the server counts them. */
export function verdict(late: number, interval: number, period: number): "late" | "skipped" | "doubled" | "" {
  if (interval > 1.5 * period) return "skipped";
  if (late > period / 2) return "late";
  if (interval > 0 && interval < period / 2) return "doubled";
  return "";
}

/** One bar of a list of where bytes went. */
export interface Bar {
  key: string;
  label: string;
  /** Who says so: the feed, or the engine. */
  feed: string;
  share: number; // of all bytes
  bytesPerS: number;
  bitsEach: number;
  count: number;
}

const OWN: Readonly<Record<string, string>> = { packet: "packet heads", message: "message heads" };
const THEIRS: Readonly<Record<string, string>> = { header: "section heads" };

/** Makes a list of where bytes went, most first. Rows without a bit are left out. */
export function bars(s: Spent): Bar[] {
  let all = 0;
  for (const r of s.rows) all += r.bits;
  all = Math.max(all, s.bytes * 8, 1);
  return s.rows.filter((r) => r.bits > 0).map((r) => ({
    key: `${r.feed}/${r.label}`,
    label: r.feed === "" ? (OWN[r.label] ?? r.label) : (THEIRS[r.label] ?? r.label),
    feed: r.feed === "" ? "engine" : r.feed,
    share: r.bits / all,
    bytesPerS: s.for_s > 0 ? r.bits / 8 / s.for_s : 0,
    bitsEach: r.count > 0 ? r.bits / r.count : 0,
    count: r.count,
  })).sort((a, b) => b.share - a.share || a.key.localeCompare(b.key));
}

/** What was spent since an earlier answer about the same room. */
export function spentSince(now: Spent, old: Spent): Spent {
  const before = new Map(old.rows.map((r) => [`${r.feed}/${r.label}`, r]));
  const rows = now.rows.map((r) => {
    const b = before.get(`${r.feed}/${r.label}`);
    return b === undefined ? r : { ...r, bits: Math.max(0, r.bits - b.bits), count: Math.max(0, r.count - b.count) };
  });
  return {
    for_s: Math.max(0, now.for_s - old.for_s), packets: Math.max(0, now.packets - old.packets), bytes: Math.max(0, now.bytes - old.bytes),
    rows: rows.filter((r) => r.bits > 0), rows_omitted: now.rows_omitted,
  };
}

/** A round number at or above n, for the end of an axis. */
export function ceiling(n: number): number {
  if (!(n > 0)) return 1;
  const p = 10 ** Math.floor(Math.log10(n));
  for (const m of [1, 2, 2.5, 5, 10]) if (n <= m * p * 1.0001) return m * p;
  return 10 * p;
}
