// How a player moves: the twin of move/move.go, to the last bit. Both reproduce the walks in move/testdata, so what a page foresees is what
// the server does.

import { FIELD_SIZE, HZ, PILLARS, PLAYER_RADIUS } from "./rules.ts";

export const PLAYER_SPEED = 210;
/** The part of the difference to the wanted velocity that one step closes. */
export const PLAYER_GRIP = 0.22;

/** What moves. Positions are in units, velocities in units a second. */
export interface Body {
  x: number;
  y: number;
  vx: number;
  vy: number;
}

/** Moves a player by one step. dx and dy are the stick, 127 is full. */
export function walk(b: Body, dx: number, dy: number): void {
  let x = dx / 127;
  let y = dy / 127;
  const l = Math.sqrt(x * x + y * y);
  if (l > 1) {
    x /= l;
    y /= l;
  }
  b.vx += (x * PLAYER_SPEED - b.vx) * PLAYER_GRIP;
  b.vy += (y * PLAYER_SPEED - b.vy) * PLAYER_GRIP;
  b.x += b.vx / HZ;
  b.y += b.vy / HZ;
  confine(b, PLAYER_RADIUS);
}

/** Puts a body of radius r beside what is solid and takes the velocity that points into it. */
export function confine(b: Body, r: number): void {
  for (let i = 0; i < PILLARS.length; i++) {
    const p = PILLARS[i]!;
    const dx = b.x - p[0];
    const dy = b.y - p[1];
    const gap = p[2] + r;
    if (dx >= gap || dx <= -gap || dy >= gap || dy <= -gap) continue;
    const d = Math.sqrt(dx * dx + dy * dy);
    if (d >= gap) continue;
    let nx = 1; // in its very middle any way out is as good
    let ny = 0;
    if (d > 1e-6) {
      nx = dx / d;
      ny = dy / d;
    }
    b.x = p[0] + nx * gap;
    b.y = p[1] + ny * gap;
    const into = b.vx * nx + b.vy * ny;
    if (into < 0) {
      b.vx -= nx * into;
      b.vy -= ny * into;
    }
  }
  if (b.x < r) {
    b.x = r;
    b.vx = Math.max(b.vx, 0);
  } else if (b.x > FIELD_SIZE - r) {
    b.x = FIELD_SIZE - r;
    b.vx = Math.min(b.vx, 0);
  }
  if (b.y < r) {
    b.y = r;
    b.vy = Math.max(b.vy, 0);
  } else if (b.y > FIELD_SIZE - r) {
    b.y = FIELD_SIZE - r;
    b.vy = Math.min(b.vy, 0);
  }
}

interface Mover extends Body {
  readonly hp: number;
}

/** The rule that the page gives to Room.predict: where nobody knows the dead to come back, nothing is foreseen. */
export function step(p: Mover, input: { readonly dx: number; readonly dy: number }): boolean {
  if (p.hp === 0) return false;
  walk(p, input.dx, input.dy);
  return true;
}
