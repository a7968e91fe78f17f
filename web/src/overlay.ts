// The overlay of figures: how well the link and the page do, what a stutter came from, and, for developers, a worse network.

import { DevNetwork, Recording } from "./devtools.ts";
import type { Gaps } from "./meter.ts";
import { RECENT } from "./meter.ts";
import type { Room } from "./room.ts";

const TEXT_MS = 500;
const DRAW_MS = 200;
/** A tap that toggles is in the upper left corner, and short. */
const CORNER_PX = 44;
const TAP_MS = 350;
/** For how long a stutter is spoken of. */
const TOLD_MS = 15_000;
/** Nobody stops for longer: what has come in meanwhile waits in memory. */
const PAUSE_MS = 60_000;

const KEY = "F2";
/** On a screen narrower than this it begins as one line. */
const NARROW = "(width < 640px)";

/** The last second's figures as plain numbers; `window.__drumline.perf()` returns them. */
export interface Perf {
  fps: number;
  frameP99Ms: number;
  frameMaxMs: number;
  longTasks: number;
  rttMs: number;
  stateAgeMs: number;
  bufferMs: number;
  underruns: number;
  jumps: number;
  joltP99: number;
  rollbacks: number;
  starved: number;
  /** Since the join: packets that could not be read, for want of an earlier one, and stutters by cause. */
  decodeErrors: number;
  baseless: number;
  stuttersServer: number;
  stuttersNetwork: number;
  stuttersPage: number;
  packetsPerSec: number;
  bytesPerSec: number;
}

/** The figures of a room, copied. */
export function perf(room: Room<any>): Perf {
  const q = room.quality;
  return {
    fps: q.fps, frameP99Ms: q.frameP99Ms, frameMaxMs: q.frameMaxMs, longTasks: q.longTasks, rttMs: q.rttMs, stateAgeMs: q.stateAgeMs, bufferMs: q.bufferMs,
    underruns: q.underruns, jumps: q.jumps, joltP99: q.joltP99, rollbacks: q.rollbacks, starved: q.starved, decodeErrors: q.decodeErrors,
    baseless: q.baseless, stuttersServer: q.stutters.server, stuttersNetwork: q.stutters.network, stuttersPage: q.stutters.page,
    packetsPerSec: q.packetsPerSec, bytesPerSec: q.bytesPerSec,
  };
}

/** One line: how it goes, and if not well, why. */
export function verdict(room: Room<any>): { text: string; well: boolean } {
  const q = room.quality;
  if (room.state !== "live") return { text: "There is no link.", well: false };
  if (q.cause !== null && q.causeAgoMs < TOLD_MS) {
    const why = { server: "the server stopped", network: "the network held packets up", page: "this page was busy" }[q.cause];
    return { text: `Stuttered ${Math.round(q.causeAgoMs / 1000)} s ago: ${why}.`, well: false };
  }
  if (q.fps > 0 && q.fps < 45 && q.frameP99Ms > 25) return { text: `This page draws only ${Math.round(q.fps)} frames a second.`, well: false };
  if (q.underruns > 2) return { text: "The network: packets come later than the buffer hides.", well: false };
  if (q.starved > 2) return { text: "The network: inputs come too late for their steps.", well: false };
  if (q.rttMs > 250) return { text: "The server is far away.", well: false };
  return { text: "It runs smoothly.", well: true };
}

/** A room's overlay of figures. */
export interface Overlay {
  readonly shown: boolean;
  toggle(): void;
  /** Takes it away for good, and the keys with it. */
  close(): void;
}

/**
 * Makes a room's overlay: F2, or a tap in the upper left corner of a touch screen, shows and hides it. On a narrow screen it begins as one line, which a tap
 * unfolds. With net it has the devtools as well,
 * which change what the page gets.
 */
export function overlay(room: Room<any>, net: DevNetwork | null = null): Overlay {
  let box: Box | null = null;
  const toggle = (): void => {
    if (box === null) box = new Box(room, tools, toggle);
    else {
      box.close();
      box = null;
    }
  };
  const tools = net === null ? null : new Tools(room, net);
  const key = (e: KeyboardEvent): void => {
    if (e.key !== KEY || e.repeat || e.ctrlKey || e.altKey || e.metaKey) return;
    e.preventDefault();
    toggle();
  };
  let downAt = -Infinity;
  const corner = (e: PointerEvent): boolean => e.pointerType === "touch" && e.clientX < CORNER_PX && e.clientY < CORNER_PX;
  const down = (e: PointerEvent): void => {
    downAt = corner(e) ? e.timeStamp : -Infinity;
  };
  const up = (e: PointerEvent): void => {
    if (corner(e) && e.timeStamp - downAt < TAP_MS) toggle();
    downAt = -Infinity;
  };
  // Before the game, which may keep events to itself.
  addEventListener("keydown", key, true);
  addEventListener("pointerdown", down, true);
  addEventListener("pointerup", up, true);
  return {
    get shown() {
      return box !== null;
    },
    toggle,
    close() {
      removeEventListener("keydown", key, true);
      removeEventListener("pointerdown", down, true);
      removeEventListener("pointerup", up, true);
      box?.close();
      box = null;
      tools?.close();
    },
  };
}

// The overlay while it is shown.
class Box {
  private readonly room: Room<any>;
  private readonly root = el("aside", "dl-overlay");
  private readonly line = el("button", "dl-verdict") as HTMLButtonElement;
  private readonly cells: HTMLElement[] = [];
  private readonly frames: Spark;
  private readonly packets: Spark;
  private readonly timer: ReturnType<typeof setInterval>;
  private textAt = -Infinity;
  private folded = false;

  constructor(room: Room<any>, tools: Tools | null, hide: () => void) {
    this.room = room;
    this.root.setAttribute("aria-label", "How well it runs");
    const shut = el("button", "dl-shut", "×") as HTMLButtonElement;
    shut.type = "button";
    shut.title = `Hide (${KEY})`;
    shut.setAttribute("aria-label", "Hide");
    shut.addEventListener("click", hide);
    this.line.type = "button";
    this.line.title = "More, or less";
    this.fold(matchMedia(NARROW).matches);
    this.line.addEventListener("click", () => this.fold(!this.folded));
    const table = el("dl", "dl-figures");
    for (const label of LABELS) {
      const cell = el("dd", "");
      table.append(el("dt", "", label), cell);
      this.cells.push(cell);
    }
    const { $meter } = room;
    this.frames = new Spark("Frame times", $meter.frames, 1000 / 60);
    this.packets = new Spark("Packet gaps", $meter.packets, 1000 / Math.max(1, room.welcome.sendHz));
    const head = el("div", "dl-head");
    head.append(this.line, shut);
    this.root.append(head, table, this.frames.root, this.packets.root);
    if (tools !== null) this.root.append(tools.root);
    // What is done here is not for the game.
    for (const type of ["pointerdown", "mousedown", "touchstart", "wheel", "click"]) this.root.addEventListener(type, (e) => e.stopPropagation());
    this.root.addEventListener("keydown", (e) => {
      if (e.target !== this.root) e.stopPropagation();
    });
    document.body.append(this.root);
    this.update();
    this.timer = setInterval(() => this.update(), DRAW_MS);
  }

  close(): void {
    clearInterval(this.timer);
    this.root.remove();
  }

  // Leaves one line of it, or shows all again.
  private fold(on: boolean): void {
    this.folded = on;
    this.root.classList.toggle("dl-short", on);
    this.line.setAttribute("aria-expanded", `${!on}`);
    this.line.blur(); // keys are for the game
    this.textAt = -Infinity;
  }

  private update(): void {
    if (!this.folded) {
      this.frames.draw();
      this.packets.draw();
    }
    const now = performance.now();
    if (now - this.textAt < TEXT_MS) return;
    this.textAt = now;
    const v = verdict(this.room);
    const q = this.room.quality;
    set(this.line, this.folded ? `${q.fps.toFixed(0)} fps, ${q.rttMs.toFixed(0)} ms · ${v.text}` : v.text);
    this.line.classList.toggle("dl-ill", !v.well);
    if (this.folded) return;
    const s = q.stutters;
    const texts = [
      `${q.fps.toFixed(0)}`, `${q.frameP99Ms.toFixed(1)} / ${q.frameMaxMs.toFixed(1)} ms`, `${q.longTasks}`,
      q.rttMs === 0 ? "–" : `${q.rttMs.toFixed(0)} ms`, `${q.stateAgeMs.toFixed(0)} ms`, `${q.bufferMs.toFixed(0)} ms`, `${q.underruns}`,
      `${q.rollbacks} / ${q.prediction.snaps}`, `${q.jumps}`, small(q.joltP99), `${q.decodeErrors} / ${q.baseless}`, `${q.starved}`,
      `${q.packetsPerSec.toFixed(0)}/s, ${(q.bytesPerSec / 1024).toFixed(1)} KiB/s`, `${s.server} · ${s.network} · ${s.page}`,
    ];
    for (let i = 0; i < texts.length; i++) set(this.cells[i]!, texts[i]!);
  }
}

const LABELS = [
  "Frames/s", "Frame p99 / max", "Long tasks", "Ping", "State age", "Buffer", "Buffer dry, frames", "Rollbacks/s, snaps", "Jump frames", "Jolt p99",
  "Unread / baseless", "Inputs late", "Packets", "Server · network · page",
];

function small(v: number): string {
  return v === 0 ? "0" : v < 10 ? v.toPrecision(2) : v.toFixed(0);
}

// A line of bars, one per gap; those over twice what is due stand out.
class Spark {
  readonly root = el("figure", "dl-spark");
  private readonly gaps: Gaps;
  private readonly due: number;
  private readonly most = el("span", "");
  private readonly canvas = document.createElement("canvas");
  private readonly context: CanvasRenderingContext2D | null;

  constructor(label: string, gaps: Gaps, due: number) {
    this.gaps = gaps;
    this.due = due;
    this.canvas.width = RECENT * 2;
    this.canvas.height = 56;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", label);
    this.context = this.canvas.getContext("2d");
    const caption = el("figcaption", "");
    caption.append(el("span", "", label), this.most);
    this.root.append(caption, this.canvas);
  }

  draw(): void {
    const { gaps, due, context: c } = this;
    if (c === null) return;
    const { width, height } = this.canvas;
    let most = 0;
    for (let i = 0; i < gaps.count; i++) most = Math.max(most, gaps.at(i));
    const scale = height / Math.max(3 * due, most);
    c.clearRect(0, 0, width, height);
    c.fillStyle = "rgb(255 255 255 / 28%)";
    c.fillRect(0, height - due * scale, width, 1);
    const left = width - 2 * gaps.count;
    for (let i = 0; i < gaps.count; i++) {
      const g = gaps.at(i);
      c.fillStyle = g > 2 * due ? "#ff9d5c" : "#7cc7ff";
      const h = Math.max(1, g * scale);
      c.fillRect(left + 2 * i, height - h, 1.5, h);
    }
    set(this.most, gaps.count === 0 ? "" : `to ${most.toFixed(0)} ms`);
  }
}

// What developers have beside: it goes on while the overlay is hidden.
class Tools {
  readonly root = el("details", "dl-tools") as HTMLDetailsElement;
  private readonly room: Room<any>;
  private readonly recording = new Recording();
  private readonly freeze = el("button", "dl-tool", "Pause") as HTMLButtonElement;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private frozen = false;

  constructor(room: Room<any>, net: DevNetwork) {
    this.room = room;
    net.ordered = () => room.welcome.ordered;
    room.$tap = (msg, now) => this.recording.add(msg, now);
    this.root.open = true;
    this.root.append(el("summary", "", "Network, made worse"));
    const slider = (label: string, unit: string, max: number, step: number, value: number, apply: (v: number) => void, off = ""): void => {
      const row = el("label", "dl-slide");
      const input = document.createElement("input");
      input.type = "range";
      input.min = "0";
      input.max = `${max}`;
      input.step = `${step}`;
      input.value = `${value}`;
      const out = el("output", "");
      const change = (): void => {
        const v = Number(input.value);
        set(out, v === 0 && off !== "" ? off : `${v} ${unit}`);
        apply(v);
      };
      input.addEventListener("input", change);
      change();
      row.append(el("span", "", label), input, out);
      this.root.append(row);
    };
    slider("Latency", "ms", 400, 10, net.latencyMs, (v) => (net.latencyMs = v));
    slider("Jitter", "ms", 200, 5, net.jitterMs, (v) => (net.jitterMs = v));
    slider("Loss", "%", 30, 1, net.lossPct, (v) => (net.lossPct = v));
    slider("Bandwidth", "kbit/s", 512, 8, net.kbitPerSec, (v) => (net.kbitPerSec = v), "all");
    if (room.welcome.ordered) this.root.append(el("p", "dl-hint", "This link keeps its order: a loss is a delay, by a resend."));
    const save = el("button", "dl-tool", "Save packets") as HTMLButtonElement;
    save.title = "The last 20 seconds of what came";
    for (const b of [this.freeze, save]) b.type = "button";
    this.freeze.addEventListener("click", () => this.pause(!this.frozen));
    save.addEventListener("click", () => this.save());
    const row = el("div", "dl-row");
    row.append(this.freeze, save);
    this.root.append(row);
  }

  close(): void {
    this.pause(false);
    this.room.$tap = null;
  }

  private pause(on: boolean): void {
    clearTimeout(this.timer);
    if (on) this.timer = setTimeout(() => this.pause(false), PAUSE_MS);
    if (on === this.frozen) return;
    this.frozen = on;
    this.room.$freeze(on);
    set(this.freeze, on ? "Go on" : "Pause");
  }

  private save(): void {
    const { token: _, ...welcome } = this.room.welcome;
    const url = URL.createObjectURL(new Blob([this.recording.file({ welcome })], { type: "application/octet-stream" }));
    const a = document.createElement("a");
    a.href = url;
    a.download = `${this.room.world}-${this.room.name}-${new Date().toISOString().replace(/[:.]/g, "-")}.packets`;
    a.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}

function el(tag: string, className: string, text = ""): HTMLElement {
  const e = document.createElement(tag);
  if (className !== "") e.className = className;
  e.textContent = text;
  return e;
}

function set(e: HTMLElement, text: string): void {
  if (e.textContent !== text) e.textContent = text;
}
