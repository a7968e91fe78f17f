// What the player wants, from whatever was used last: keyboard and mouse, two thumbs, or a gamepad.

import { keys, pads, pointer, stick } from "drumline/input";

/** Pushed at least this far, the right thumb fires too. */
const FIRE_PUSH = 0.4;
const RIGHT_BUMPER = 5;
const RIGHT_TRIGGER = 7;
const LOWER_BUTTON = 0;

export interface Wish {
  fire: boolean;
  /** -127 … 127 */
  dx: number;
  dy: number;
  /** 65,536 steps a turn */
  aim: number;
}

export class Controls {
  /** The mouse aims: draw a sight where it points. */
  mouse = false;
  private readonly keys = keys();
  private readonly pads = pads();
  private readonly point;
  private readonly left;
  private readonly right;
  private lastX = -1;
  private lastY = -1;

  constructor(root: HTMLElement) {
    this.left = stick(half("move", root));
    this.right = stick(half("aim", root));
    this.point = pointer(root);
    root.addEventListener("contextmenu", (e) => e.preventDefault());
  }

  get pointerX(): number {
    return this.point.x;
  }

  get pointerY(): number {
    return this.point.y;
  }

  /** Fills wish. (x, y) is where the own player stands on the screen. Call it once a frame. */
  read(wish: Wish, x: number, y: number): void {
    const { point, left, right } = this;
    this.pads.poll();
    const pad = this.pads;

    // The strongest wish to move counts.
    let mx = this.keys.x;
    let my = this.keys.y;
    if (left.active) {
      mx = left.x;
      my = left.y;
    } else if (pad.x !== 0 || pad.y !== 0) {
      mx = pad.x;
      my = pad.y;
    }
    wish.dx = Math.round(mx * 127);
    wish.dy = Math.round(my * 127);

    const moved = point.x !== this.lastX || point.y !== this.lastY;
    this.lastX = point.x;
    this.lastY = point.y;
    // Each is asked every frame, or an old press would count later.
    const click = point.down();
    const space = this.keys.down("Space");
    const trigger = pad.down(RIGHT_TRIGGER);
    const bumper = pad.down(RIGHT_BUMPER);
    const button = pad.down(LOWER_BUTTON);
    wish.fire = click || space || trigger || bumper || button;

    if (right.active) {
      this.mouse = false;
      if (right.x !== 0 || right.y !== 0) wish.aim = steps(right.x, right.y);
      wish.fire ||= Math.hypot(right.x, right.y) >= FIRE_PUSH;
    } else if (pad.aimX !== 0 || pad.aimY !== 0) {
      this.mouse = false;
      wish.aim = steps(pad.aimX, pad.aimY);
    } else if ((moved && this.seen) || click) {
      this.mouse = true;
    } else if (left.active) {
      this.mouse = false;
    }
    this.seen = true;
    if (this.mouse) wish.aim = steps(point.x - x, point.y - y);
    // Who has nothing to aim with shoots where he runs.
    else if (!right.active && pad.aimX === 0 && pad.aimY === 0 && (mx !== 0 || my !== 0)) wish.aim = steps(mx, my);
  }
  private seen = false;
}

function half(side: string, root: HTMLElement): HTMLElement {
  const e = document.createElement("div");
  e.className = `pad ${side}`;
  e.setAttribute("aria-hidden", "true");
  // A finger here belongs to the stick alone; a mouse goes through to the field.
  e.addEventListener("pointerdown", (ev) => {
    if (ev.pointerType !== "mouse") ev.stopPropagation();
  });
  e.addEventListener("pointermove", (ev) => {
    if (ev.pointerType !== "mouse") ev.stopPropagation();
  });
  root.append(e);
  return e;
}

/** A direction in steps of 1/65,536 turn. */
export function steps(x: number, y: number): number {
  return Math.round((Math.atan2(y, x) / (2 * Math.PI)) * 65536) & 0xffff;
}
