// The inspector's drawings. Each plot owns a canvas, draws when it is told something new or its size changes, and keeps nothing but
// the last figures.

import { ceiling, type Steps, verdict } from "./inspector_data.ts";

/** Makes a canvas that is drawn in CSS pixels and draws itself anew when its size or the colours change. */
abstract class Plot {
  readonly e: HTMLCanvasElement = document.createElement("canvas");

  constructor(className: string) {
    this.e.className = className;
    this.e.setAttribute("role", "img");
    new ResizeObserver(() => this.draw()).observe(this.e);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Says in words what is drawn. */
  protected say(text: string): void {
    this.e.setAttribute("aria-label", text);
  }

  protected draw(): void {
    const w = this.e.clientWidth;
    const h = this.e.clientHeight;
    const c = this.e.getContext("2d");
    if (w === 0 || h === 0 || c === null) return;
    const dpr = Math.min(devicePixelRatio, 3);
    const pw = Math.round(w * dpr);
    const ph = Math.round(h * dpr);
    if (this.e.width !== pw || this.e.height !== ph) {
      this.e.width = pw;
      this.e.height = ph;
    }
    c.setTransform(dpr, 0, 0, dpr, 0, 0);
    c.clearRect(0, 0, w, h);
    c.font = "12px system-ui, sans-serif";
    this.paint(c, w, h, getComputedStyle(this.e));
  }

  protected abstract paint(c: CanvasRenderingContext2D, w: number, h: number, style: CSSStyleDeclaration): void;
}

function colour(style: CSSStyleDeclaration, name: string): string {
  return style.getPropertyValue(name).trim();
}

function line(c: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  c.beginPath();
  c.moveTo(x0, y0);
  c.lineTo(x1, y1);
  c.stroke();
}

/** A figure over the last two minutes, a value a second. */
export class Trend extends Plot {
  private values: readonly number[] = [];
  private readonly name: string;
  private readonly format: (n: number) => string;
  private readonly seconds: number;

  constructor(name: string, seconds: number, format: (n: number) => string) {
    super("trend");
    this.name = name;
    this.seconds = seconds;
    this.format = format;
  }

  show(values: readonly number[]): void {
    this.values = values;
    const top = values.reduce((a, b) => Math.max(a, b), 0);
    this.say(values.length === 0 ? `${this.name}: nothing yet` : `${this.name}: now ${this.format(values[values.length - 1]!)}, at most ${this.format(top)}`);
    this.draw();
  }

  protected override paint(c: CanvasRenderingContext2D, w: number, h: number, style: CSSStyleDeclaration): void {
    const bottom = h - 16;
    const top = 16;
    const max = ceiling(this.values.reduce((a, b) => Math.max(a, b), 0));
    c.strokeStyle = colour(style, "--line");
    c.lineWidth = 1;
    line(c, 0, Math.round(bottom) + 0.5, w, Math.round(bottom) + 0.5);
    line(c, 0, Math.round(top) + 0.5, w, Math.round(top) + 0.5);
    c.fillStyle = colour(style, "--soft");
    c.textBaseline = "bottom";
    c.fillText(this.format(max), 0, top - 1);
    c.textBaseline = "alphabetic";
    c.fillText(`${this.seconds / 60} min ago`, 0, h - 3);
    c.textAlign = "right";
    c.fillText("now", w, h - 3);
    c.textAlign = "left";
    const n = this.values.length;
    if (n < 1) return;
    const step = w / (this.seconds - 1);
    const x = (i: number): number => w - (n - 1 - i) * step;
    const y = (v: number): number => bottom - (v / max) * (bottom - top);
    c.beginPath();
    for (let i = 0; i < n; i++) c.lineTo(x(i), y(this.values[i]!));
    c.strokeStyle = colour(style, "--main");
    c.lineWidth = 2;
    c.lineJoin = "round";
    c.stroke();
    c.lineTo(x(n - 1), bottom);
    c.lineTo(x(0), bottom);
    c.closePath();
    c.globalAlpha = 0.15;
    c.fillStyle = colour(style, "--main");
    c.fill();
    c.globalAlpha = 1;
  }
}

const AXIS = 62;

/**
 * The last 1,200 steps: above, the intervals between their starts, with the period and the limits from which on one counts as skipped
 * or doubled; below, how long they took, on a logarithmic scale that ends above the deadline.
 */
export class Timeline extends Plot {
  private steps: Steps = { at_ms: [], late_ms: [], interval_ms: [], step_ms: [] };
  private period = 0;
  private pointer = -1; // x; -1: it is elsewhere
  private readonly told: (sample: number) => void;

  /** told is called with the index of the step under the pointer, or -1. */
  constructor(told: (sample: number) => void) {
    super("timeline");
    this.told = told;
    this.e.addEventListener("pointermove", (e) => this.point(e.offsetX));
    this.e.addEventListener("pointerdown", (e) => this.point(e.offsetX));
    this.e.addEventListener("pointerleave", () => this.point(-1));
  }

  show(steps: Steps, hz: number): void {
    this.steps = steps;
    this.period = hz > 0 ? 1000 / hz : 0;
    const n = steps.at_ms.length;
    let bad = 0;
    for (let i = 0; i < n; i++) if (verdict(steps.late_ms[i]!, steps.interval_ms[i]!, this.period) !== "") bad++;
    this.say(`Intervals and times of the last ${n} steps; ${bad} of them late, skipped or doubled`);
    this.draw();
    this.told(this.nearest());
  }

  private span(): number {
    // A whole second at the end of the axis, so that it does not tremble.
    const first = -(this.steps.at_ms[0] ?? 0);
    return Math.max(1000, Math.ceil(first / 1000) * 1000);
  }

  private point(x: number): void {
    if (x === this.pointer && x < 0) return;
    this.pointer = x;
    this.draw();
    this.told(this.nearest());
  }

  private nearest(): number {
    const at = this.steps.at_ms;
    if (this.pointer < 0 || at.length === 0) return -1;
    const t = ((this.pointer - AXIS) / (this.e.clientWidth - AXIS - 1) - 1) * this.span();
    let lo = 0;
    let hi = at.length - 1;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (at[mid]! < t) lo = mid + 1;
      else hi = mid;
    }
    return lo > 0 && t - at[lo - 1]! < at[lo]! - t ? lo - 1 : lo;
  }

  protected override paint(c: CanvasRenderingContext2D, w: number, h: number, style: CSSStyleDeclaration): void {
    const { at_ms: at, late_ms: late, interval_ms: interval, step_ms: step } = this.steps;
    const period = this.period;
    const n = at.length;
    if (n === 0 || period === 0) return;
    const soft = colour(style, "--soft");
    const grid = colour(style, "--line");
    const main = colour(style, "--main");
    const good = colour(style, "--good");
    const bad = colour(style, "--bad");
    const span = this.span();
    const x = (ms: number): number => AXIS + (1 + ms / span) * (w - AXIS - 1);

    // Above: intervals. What is out of the picture is drawn at its edge.
    const topA = 24;
    const endA = Math.round(h * 0.54);
    const worst = interval.reduce((a, b) => Math.max(a, b), 0);
    const max = Math.min(Math.max(2 * period, worst * 1.1), 8 * period);
    const yA = (ms: number): number => endA - (Math.min(ms, max) / max) * (endA - topA);
    // Below: step times.
    const topB = endA + 34;
    const endB = h - 20;
    const low = 0.01;
    const high = period * 2;
    const yB = (ms: number): number => endB - (Math.log(Math.max(ms, low) / low) / Math.log(high / low)) * (endB - topB);

    c.lineWidth = 1;
    c.textBaseline = "middle";
    c.textAlign = "right";
    const rule = (y: number, text: string, stroke: string, dash: number[] = []): void => {
      c.strokeStyle = stroke;
      c.setLineDash(dash);
      line(c, AXIS, Math.round(y) + 0.5, w, Math.round(y) + 0.5);
      c.setLineDash([]);
      c.fillStyle = stroke === grid ? soft : stroke;
      c.fillText(text, AXIS - 6, y);
    };
    rule(yA(0), "0", grid);
    rule(yA(period / 2), "", grid, [3, 4]);
    rule(yA(period * 1.5), "", grid, [3, 4]);
    rule(yA(period), `${period.toFixed(1)} ms`, good);
    rule(yA(max), `${max.toFixed(0)} ms`, grid);
    for (let ms = low; ms < period * 0.6; ms *= 10) rule(yB(ms), `${ms}`.slice(0, 4) + " ms", grid);
    rule(yB(period), "deadline", bad);

    // Time below.
    c.textBaseline = "alphabetic";
    c.fillStyle = soft;
    const every = w < 500 ? 5000 : span > 12_000 ? 2000 : 1000;
    for (let ms = 0; ms <= span; ms += every) {
      c.textAlign = ms === 0 ? "right" : "center";
      if (ms > 0 && x(-ms) < AXIS + 8) continue;
      c.fillText(ms === 0 ? "now" : `−${ms / 1000} s`, x(-ms), h - 4);
    }
    c.textAlign = "left";
    c.fillText("Interval between the starts of steps", AXIS, topA - 10);
    c.fillText("Time of a step", AXIS, topB - 10);

    // Marks of bad ones go over both, below the rest.
    const wide = Math.max(1, ((w - AXIS) / n) * 0.8);
    c.fillStyle = bad;
    c.globalAlpha = 0.25;
    for (let i = 0; i < n; i++) {
      if (verdict(late[i]!, interval[i]!, period) !== "") c.fillRect(x(at[i]!) - 1, topA, 2, endB - topA);
    }
    c.globalAlpha = 1;
    c.fillStyle = main;
    c.globalAlpha = 0.75;
    for (let i = 0; i < n; i++) {
      const y = yB(step[i]!);
      c.fillRect(x(at[i]!) - wide / 2, y, wide, Math.max(endB - y, 1));
    }
    c.globalAlpha = 1;
    for (let i = 0; i < n; i++) {
      if (interval[i] === 0) continue;
      const isBad = verdict(late[i]!, interval[i]!, period) !== "";
      const size = isBad ? 4 : 2;
      c.fillStyle = isBad ? bad : main;
      c.fillRect(x(at[i]!) - size / 2, yA(interval[i]!) - size / 2, size, size);
    }

    const under = this.nearest();
    if (under >= 0) {
      c.strokeStyle = soft;
      const px = Math.round(x(at[under]!)) + 0.5;
      line(c, px, topA, px, endB);
    }
  }
}
