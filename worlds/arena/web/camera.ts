// Where the view stands: units of the field to CSS pixels.

import { FIELD_SIZE } from "./rules.ts";

/** The view shows an area of about this side, squared, whatever the window's shape: nobody sees farther than another. */
const VIEW_UNITS = 740;
/** Free space shown beyond the field's walls, in units. */
const MARGIN = 48;
/**
 * CSS pixels under the upper edge that the texts of hud.ts may take, a player's own name included, and above the lower one. Where the
 * field ends, the view goes on so far beyond it that nobody stands under them.
 */
const TEXTS_PX = 136;
const HELP_PX = 56;

export class Camera {
  width = 1;
  height = 1;
  /** CSS pixels a unit. */
  scale = 1;
  /** The point in the middle of the view. */
  x = FIELD_SIZE / 2;
  y = FIELD_SIZE / 2;
  private placed = false;
  private top = TEXTS_PX;

  /** texts is where the texts begin: lower than 10 pixels where a phone's camera is in the way. */
  resize(width: number, height: number, texts = 10): void {
    this.top = TEXTS_PX - 10 + texts;
    this.width = Math.max(width, 1);
    this.height = Math.max(height, 1);
    this.scale = Math.sqrt(this.width * this.height) / VIEW_UNITS;
  }

  /** Nears the point (x, y); the first time, and over a long way (a respawn), it is there at once. */
  follow(x: number, y: number, dtMs: number): void {
    const far = Math.hypot(x - this.x, y - this.y) > 350;
    const f = !this.placed || far ? 1 : 1 - Math.exp(-dtMs / 90);
    this.placed = true;
    const { scale } = this;
    const halfX = this.width / 2 / scale - MARGIN;
    const halfY = this.height / 2 / scale;
    this.x = within(this.x + (x - this.x) * f, halfX, FIELD_SIZE - halfX);
    this.y = within(this.y + (y - this.y) * f, halfY - this.top / scale, FIELD_SIZE - halfY + HELP_PX / scale);
  }

  toX(x: number): number {
    return (x - this.x) * this.scale + this.width / 2;
  }

  toY(y: number): number {
    return (y - this.y) * this.scale + this.height / 2;
  }
}

// Between low and high; halfway where all of the field fits in.
function within(at: number, low: number, high: number): number {
  return low >= high ? (low + high) / 2 : Math.min(Math.max(at, low), high);
}
