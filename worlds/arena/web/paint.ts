// Draws one frame on a 2-D canvas. No objects are made per frame: colours and fonts are constant strings.

import type { Camera } from "./camera.ts";
import { type Effects, type Look, RING_MS, SPARK_MS, TRACER_MS } from "./effects.ts";
import { FIELD_SIZE, MONSTER_HP, MONSTER_RADIUS, type Monster, PILLARS, PLAYER_HP, PLAYER_RADIUS, type Player } from "./rules.ts";

// After Okabe and Ito: told apart with any kind of colour sight, and by shape and outline as well.
const VOID = "#07090d";
const FLOOR = "#10161f";
const GRID = "#1a2330";
const WALL = "#4a6078";
const STONE = "#263445";
const STONE_EDGE = "#5d7690";
const OWN = "#56b4e9";
const OTHER = "#e69f00";
const MONSTER = "#009e73";
const MONSTER_MAD = "#d55e00";
const INK = "#07090d";
const LIGHT = "#f4f7fa";
const TRACER = "#f0e442";
const DIM = "#8a99a8";
const HP_BACK = "#2a3542";
const HP_LOW = "#f0e442";

/** Said of a player whose link is down. */
const AWAY = "connection lost";
const AWAY_DASHES: number[] = [5, 5];
const SOLID: number[] = [];
const GRID_UNITS = 50;
const FLASH_MS = 130;
const HURT_MS = 350;
const TAU = 2 * Math.PI;

/** Ends of the eight arms of a monster, around a unit circle. */
const STAR: readonly (readonly [number, number])[] = Array.from({ length: 16 }, (_, i) => {
  const r = i % 2 === 0 ? 1.22 : 0.86;
  return [Math.cos((i / 16) * TAU) * r, Math.sin((i / 16) * TAU) * r] as const;
});

export class Painter {
  private readonly canvas: HTMLCanvasElement;
  private readonly c: CanvasRenderingContext2D;
  private ratio = 1;
  private nameFont = "";
  private vignette: CanvasGradient | null = null;
  private now = 0;

  constructor(canvas: HTMLCanvasElement) {
    const c = canvas.getContext("2d", { alpha: false });
    if (c === null) throw new Error("This browser has no 2-D canvas.");
    this.canvas = canvas;
    this.c = c;
  }

  /** Takes over the view's size in CSS pixels. More than two device pixels each are not worth their time. */
  resize(cam: Camera, ratio: number): void {
    this.ratio = Math.min(Math.max(ratio, 1), 2);
    this.canvas.width = Math.round(cam.width * this.ratio);
    this.canvas.height = Math.round(cam.height * this.ratio);
    const px = Math.round(Math.min(Math.max(12 * cam.scale, 11), 16));
    this.nameFont = `600 ${px}px system-ui, sans-serif`;
    const far = Math.hypot(cam.width, cam.height) / 2;
    this.vignette = this.c.createRadialGradient(cam.width / 2, cam.height / 2, far * 0.45, cam.width / 2, cam.height / 2, far);
    this.vignette.addColorStop(0, "rgba(213, 94, 0, 0)");
    this.vignette.addColorStop(1, "rgba(213, 94, 0, 0.55)");
  }

  /** Begins a frame: the floor, in field units from here on. */
  begin(cam: Camera, now: number): void {
    const { c } = this;
    this.now = now;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.globalAlpha = 1;
    c.fillStyle = VOID;
    c.fillRect(0, 0, cam.width, cam.height);
    const k = this.ratio * cam.scale;
    c.setTransform(k, 0, 0, k, this.ratio * cam.toX(0), this.ratio * cam.toY(0));
    c.fillStyle = FLOOR;
    c.fillRect(0, 0, FIELD_SIZE, FIELD_SIZE);
    c.strokeStyle = GRID;
    c.lineWidth = 1;
    c.beginPath();
    for (let at = GRID_UNITS; at < FIELD_SIZE; at += GRID_UNITS) {
      c.moveTo(at, 0);
      c.lineTo(at, FIELD_SIZE);
      c.moveTo(0, at);
      c.lineTo(FIELD_SIZE, at);
    }
    c.stroke();
    c.fillStyle = STONE;
    c.strokeStyle = STONE_EDGE;
    c.lineWidth = 2.5;
    for (let i = 0; i < PILLARS.length; i++) {
      const p = PILLARS[i]!;
      c.beginPath();
      c.arc(p[0], p[1], p[2], 0, TAU);
      c.fill();
      c.stroke();
    }
    c.strokeStyle = WALL;
    c.lineWidth = 5;
    c.strokeRect(-2.5, -2.5, FIELD_SIZE + 5, FIELD_SIZE + 5);
  }

  monster(m: Monster, look: Look): void {
    const { c } = this;
    const flash = this.now - look.hurtAt < FLASH_MS;
    const grow = Math.min((this.now - look.bornAt) / 250, 1);
    const r = MONSTER_RADIUS * (0.4 + 0.6 * grow);
    const face = Math.atan2(m.vy, m.vx);
    const cos = Math.cos(face);
    const sin = Math.sin(face);
    c.fillStyle = flash ? LIGHT : m.mad ? MONSTER_MAD : MONSTER;
    c.beginPath();
    for (let i = 0; i < STAR.length; i++) {
      const s = STAR[i]!;
      const x = m.x + (s[0] * cos - s[1] * sin) * r;
      const y = m.y + (s[0] * sin + s[1] * cos) * r;
      if (i === 0) c.moveTo(x, y);
      else c.lineTo(x, y);
    }
    c.closePath();
    c.fill();
    c.fillStyle = INK;
    c.beginPath();
    const eye = m.mad ? 2.6 : 1.9;
    c.arc(m.x + (cos * 5 + sin * 4.5), m.y + (sin * 5 - cos * 4.5), eye, 0, TAU);
    c.arc(m.x + (cos * 5 - sin * 4.5), m.y + (sin * 5 + cos * 4.5), eye, 0, TAU);
    c.fill();
    if (m.hp < MONSTER_HP) this.bar(m.x, m.y - MONSTER_RADIUS - 9, 24, m.hp / MONSTER_HP, m.mad ? MONSTER_MAD : MONSTER);
  }

  /** Draws a player with the gun at aim, in radians. */
  player(p: Player, look: Look, aim: number): void {
    if (p.hp === 0) return;
    const { c } = this;
    const r = PLAYER_RADIUS;
    const flash = this.now - look.hurtAt < FLASH_MS;
    const colour = p.own ? OWN : OTHER;
    const cos = Math.cos(aim);
    const sin = Math.sin(aim);
    c.globalAlpha = p.away ? 0.35 : 1;
    c.strokeStyle = flash ? LIGHT : colour;
    c.lineWidth = 6;
    c.lineCap = "round";
    c.beginPath();
    c.moveTo(p.x + cos * r * 0.6, p.y + sin * r * 0.6);
    c.lineTo(p.x + cos * (r + 9), p.y + sin * (r + 9));
    c.stroke();
    c.fillStyle = flash ? LIGHT : colour;
    c.beginPath();
    c.arc(p.x, p.y, r, 0, TAU);
    c.fill();
    c.strokeStyle = p.own ? LIGHT : INK;
    c.lineWidth = p.own ? 2.5 : 2;
    c.stroke();
    c.fillStyle = INK;
    c.beginPath();
    c.arc(p.x + cos * 4, p.y + sin * 4, 4.5, 0, TAU);
    c.fill();
    if (p.shield > 0) {
      c.strokeStyle = LIGHT;
      c.globalAlpha *= 0.35 + 0.35 * Math.sin(this.now / 90);
      c.lineWidth = 2;
      c.beginPath();
      c.arc(p.x, p.y, r + 7, 0, TAU);
      c.stroke();
      c.globalAlpha = p.away ? 0.35 : 1;
    }
    if (p.away) {
      c.strokeStyle = colour;
      c.lineWidth = 1.5;
      c.setLineDash(AWAY_DASHES);
      c.beginPath();
      c.arc(p.x, p.y, r + 6, 0, TAU);
      c.stroke();
      c.setLineDash(SOLID);
    }
    this.bar(p.x, p.y - r - 10, 32, p.hp / PLAYER_HP, p.hp <= PLAYER_HP * 0.3 ? HP_LOW : colour);
    c.globalAlpha = 1;
  }

  private bar(x: number, y: number, w: number, f: number, colour: string): void {
    const { c } = this;
    c.fillStyle = HP_BACK;
    c.fillRect(x - w / 2, y, w, 4);
    c.fillStyle = colour;
    c.fillRect(x - w / 2, y, w * f, 4);
  }

  effects(fx: Effects): void {
    const { c, now } = this;
    c.lineCap = "round";
    const { marks: tracers } = fx.tracers;
    for (let i = 0; i < tracers.length; i++) {
      const m = tracers[i]!;
      const age = (now - m.born) / TRACER_MS;
      if (age >= 1 || age < 0) continue;
      // The tail catches up with the head.
      const tail = age * age;
      c.globalAlpha = 1 - tail;
      c.strokeStyle = m.strong ? OWN : TRACER;
      c.lineWidth = m.strong ? 3 : 2.2;
      c.beginPath();
      c.moveTo(m.x + (m.toX - m.x) * tail, m.y + (m.toY - m.y) * tail);
      c.lineTo(m.toX, m.toY);
      c.stroke();
    }
    c.lineWidth = 2;
    const { marks: sparks } = fx.sparks;
    for (let i = 0; i < sparks.length; i++) {
      const m = sparks[i]!;
      const age = (now - m.born) / SPARK_MS;
      if (age >= 1 || age < 0) continue;
      c.globalAlpha = 1 - age;
      c.strokeStyle = m.strong ? LIGHT : DIM;
      c.beginPath();
      for (let k = 0; k < 6; k++) {
        const a = (k / 6) * TAU + m.x; // the place makes each a little different
        const from = 3 + age * 8;
        c.moveTo(m.x + Math.cos(a) * from, m.y + Math.sin(a) * from);
        c.lineTo(m.x + Math.cos(a) * (from + 5), m.y + Math.sin(a) * (from + 5));
      }
      c.stroke();
    }
    const { marks: rings } = fx.rings;
    for (let i = 0; i < rings.length; i++) {
      const m = rings[i]!;
      const age = (now - m.born) / RING_MS;
      if (age >= 1 || age < 0) continue;
      const out = 1 - (1 - age) * (1 - age);
      c.globalAlpha = 1 - age;
      c.strokeStyle = m.strong ? LIGHT : MONSTER;
      c.lineWidth = m.strong ? 5 * (1 - age) + 1 : 3;
      c.beginPath();
      c.arc(m.x, m.y, 6 + out * (m.strong ? 54 : 26), 0, TAU);
      c.stroke();
    }
    c.globalAlpha = 1;
  }

  /** From here on the frame is in CSS pixels: for texts, which must not shrink with the field. */
  overlay(): void {
    const { c } = this;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.font = this.nameFont;
    c.textAlign = "center";
    c.textBaseline = "bottom";
    c.lineJoin = "round";
  }

  name(p: Player, cam: Camera): void {
    if (p.hp === 0) return;
    const { c } = this;
    const x = cam.toX(p.x);
    const y = cam.toY(p.y - PLAYER_RADIUS - 12);
    if (x < -80 || y < 0 || x > cam.width + 80 || y > cam.height + 80) return;
    c.globalAlpha = p.away ? 0.5 : 1;
    c.strokeStyle = VOID;
    c.lineWidth = 3;
    c.strokeText(p.name, x, y);
    c.fillStyle = p.own ? LIGHT : OTHER;
    c.fillText(p.name, x, y);
    c.globalAlpha = 1;
    if (!p.away) return;
    const below = cam.toY(p.y + PLAYER_RADIUS) + 20;
    c.strokeText(AWAY, x, below);
    c.fillStyle = DIM;
    c.fillText(AWAY, x, below);
  }

  /** Reddens the rim after a wound, or all the time near death. */
  wound(look: Look, cam: Camera): void {
    const age = (this.now - look.hurtAt) / HURT_MS;
    const low = look.hp > 0 && look.hp <= PLAYER_HP * 0.3 ? 0.35 : 0;
    const a = Math.max(age >= 0 && age < 1 ? 1 - age : 0, low);
    if (a === 0 || this.vignette === null) return;
    const { c } = this;
    c.globalAlpha = a;
    c.fillStyle = this.vignette;
    c.fillRect(0, 0, cam.width, cam.height);
    c.globalAlpha = 1;
  }

  /** A small cross where the mouse aims. */
  sight(x: number, y: number): void {
    const { c } = this;
    c.strokeStyle = LIGHT;
    c.globalAlpha = 0.8;
    c.lineWidth = 1.5;
    c.beginPath();
    c.arc(x, y, 9, 0, TAU);
    c.moveTo(x - 13, y);
    c.lineTo(x - 5, y);
    c.moveTo(x + 5, y);
    c.lineTo(x + 13, y);
    c.moveTo(x, y - 13);
    c.lineTo(x, y - 5);
    c.moveTo(x, y + 5);
    c.lineTo(x, y + 13);
    c.stroke();
    c.globalAlpha = 1;
  }
}
