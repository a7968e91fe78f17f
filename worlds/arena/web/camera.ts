// Where the view stands: units of the field to CSS pixels.

import { FIELD_SIZE } from "./rules.ts";

/** The view shows an area of about this side, squared, whatever the window's shape: nobody sees farther than another. */
const VIEW_UNITS = 740;
/** Free space shown beyond the field's walls. */
const MARGIN = 48;

export class Camera {
  width = 1;
  height = 1;
  /** CSS pixels a unit. */
  scale = 1;
  /** The point in the middle of the view. */
  x = FIELD_SIZE / 2;
  y = FIELD_SIZE / 2;
  private placed = false;

  resize(width: number, height: number): void {
    this.width = Math.max(width, 1);
    this.height = Math.max(height, 1);
    this.scale = Math.sqrt(this.width * this.height) / VIEW_UNITS;
  }

  /** Nears the point (x, y); the first time, and over a long way (a respawn), it is there at once. */
  follow(x: number, y: number, dtMs: number): void {
    const far = Math.hypot(x - this.x, y - this.y) > 350;
    const f = !this.placed || far ? 1 : 1 - Math.exp(-dtMs / 90);
    this.placed = true;
    this.x = within(this.x + (x - this.x) * f, this.width / this.scale);
    this.y = within(this.y + (y - this.y) * f, this.height / this.scale);
  }

  toX(x: number): number {
    return (x - this.x) * this.scale + this.width / 2;
  }

  toY(y: number): number {
    return (y - this.y) * this.scale + this.height / 2;
  }
}

// Keeps the middle of a view of so many units such that little beyond the walls is seen.
function within(at: number, units: number): number {
  const half = units / 2 - MARGIN;
  if (half >= FIELD_SIZE / 2) return FIELD_SIZE / 2;
  return Math.min(Math.max(at, half), FIELD_SIZE - half);
}
