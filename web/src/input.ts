/**
 * What a player holds: keys, mouse or finger, touch sticks, gamepads. Each helper is read once per frame; a press shorter than a
 * frame still reads as down once. Everything is let go when the page loses the focus.
 *
 *   import { keys, pads, pointer, stick } from "drumline/input";
 */
import "./input.css";

/** Something that listens until it is stopped. */
export interface Stoppable {
  stop(): void;
}

/** Held keys. */
export interface Keys extends Stoppable {
  /** Direction of WASD and the arrow keys, -1 … 1; y grows downwards. A diagonal has length 1. */
  readonly x: number;
  readonly y: number;
  /** Whether a key is down, or was pressed since this was last asked; by KeyboardEvent.code, such as "Space". */
  down(code: string): boolean;
}

/** Mouse or finger over an element, in CSS pixels from its upper left corner. */
export interface Pointer extends Stoppable {
  readonly x: number;
  readonly y: number;
  /** The last movement came from a mouse (or pen), not from a finger. */
  readonly mouse: boolean;
  /** Whether the main button is down, or was pressed since this was last asked. */
  down(): boolean;
}

/** A stick under a thumb. */
export interface Stick extends Stoppable {
  /** -1 … 1; y grows downwards. The length is at most 1. */
  readonly x: number;
  readonly y: number;
  /** A finger is on it. */
  readonly active: boolean;
}

/** The first gamepad in use. */
export interface Pads extends Stoppable {
  /** Reads the gamepad; call it once per frame before the fields. */
  poll(): void;
  readonly connected: boolean;
  /** Left stick, or the cross. */
  readonly x: number;
  readonly y: number;
  /** Right stick. */
  readonly aimX: number;
  readonly aimY: number;
  /** Whether a button is down, by its number in the standard layout; 0 is the lower one of four, 7 the right trigger. */
  down(button: number): boolean;
}

type Undo = Array<() => void>;

function listen<K extends string>(undo: Undo, to: EventTarget, names: readonly K[], f: (e: any) => void, o?: AddEventListenerOptions): void {
  for (const n of names) {
    to.addEventListener(n, f, o);
    undo.push(() => to.removeEventListener(n, f, o));
  }
}

const MOVES: Readonly<Record<string, readonly [x: number, y: number]>> = {
  KeyW: [0, -1], ArrowUp: [0, -1], KeyS: [0, 1], ArrowDown: [0, 1], KeyA: [-1, 0], ArrowLeft: [-1, 0], KeyD: [1, 0], ArrowRight: [1, 0],
};

/** Listens to the keyboard. Keys typed into a text field do not count. */
export function keys(): Keys {
  const held = new Set<string>();
  const fresh = new Set<string>();
  const undo: Undo = [];
  listen(undo, window, ["keydown"], (e: KeyboardEvent) => {
    if (isTyping(e.target) || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.code in MOVES || (e.code === "Space" && !(e.target instanceof HTMLButtonElement))) e.preventDefault(); // no scrolling
    if (!e.repeat) fresh.add(e.code);
    held.add(e.code);
  });
  listen(undo, window, ["keyup"], (e: KeyboardEvent) => held.delete(e.code));
  const release = (): void => {
    held.clear();
    fresh.clear();
  };
  listen(undo, window, ["blur"], release);
  listen(undo, document, ["visibilitychange"], release);
  const axis = (i: 0 | 1): number => {
    let sum = 0;
    for (const code in MOVES) if (held.has(code) || fresh.has(code)) sum += MOVES[code]![i];
    return Math.max(-1, Math.min(1, sum));
  };
  let x = 0;
  let y = 0;
  let readX = false;
  let readY = false;
  const read = (): void => {
    x = axis(0);
    y = axis(1);
    if (x !== 0 && y !== 0) {
      x *= Math.SQRT1_2;
      y *= Math.SQRT1_2;
    }
    for (const code in MOVES) fresh.delete(code);
    readX = readY = false;
  };
  // Both halves of the direction belong to one reading, or a short press would be seen by the first one only.
  return {
    get x() {
      if (readX || !readY) read();
      readX = true;
      return x;
    },
    get y() {
      if (readY || !readX) read();
      readY = true;
      return y;
    },
    down: (code) => fresh.delete(code) || held.has(code),
    stop: () => undo.forEach((f) => f()),
  };
}

function isTyping(t: EventTarget | null): boolean {
  return t instanceof HTMLElement && (t.isContentEditable || t instanceof HTMLTextAreaElement || t instanceof HTMLSelectElement || (t instanceof HTMLInputElement && t.type !== "button"));
}

/** Listens to the mouse or a finger over element. */
export function pointer(element: HTMLElement): Pointer {
  const undo: Undo = [];
  const p = { x: 0, y: 0, mouse: true, held: false, fresh: false };
  const at = (e: PointerEvent): void => {
    const box = element.getBoundingClientRect();
    p.x = e.clientX - box.left;
    p.y = e.clientY - box.top;
    p.mouse = e.pointerType !== "touch";
  };
  listen(undo, element, ["pointermove"], at);
  listen(undo, element, ["pointerdown"], (e: PointerEvent) => {
    at(e);
    if (e.button !== 0) return;
    p.held = p.fresh = true;
    if (element.setPointerCapture) element.setPointerCapture(e.pointerId);
  });
  listen(undo, element, ["pointerup", "pointercancel"], (e: PointerEvent) => {
    if (e.type === "pointercancel" || e.button === 0) p.held = false;
  });
  listen(undo, window, ["blur"], () => (p.held = p.fresh = false));
  return {
    get x() { return p.x; },
    get y() { return p.y; },
    get mouse() { return p.mouse; },
    down() {
      const d = p.held || p.fresh;
      p.fresh = false;
      return d;
    },
    stop: () => undo.forEach((f) => f()),
  };
}

/**
 * Makes element a touch stick: it appears where a finger goes down on element and follows that finger. Mice are ignored. Give
 * the element the area that a thumb reaches, for example a half of the screen.
 */
export function stick(element: HTMLElement, radiusPx = 56): Stick {
  const undo: Undo = [];
  const ring = document.createElement("div");
  ring.className = "dl-stick";
  ring.hidden = true;
  ring.setAttribute("aria-hidden", "true");
  const knob = document.createElement("div");
  knob.className = "dl-knob";
  ring.append(knob);
  element.append(ring);
  element.classList.add("dl-stick-area");
  ring.style.width = ring.style.height = `${2 * radiusPx}px`;
  let finger = -1;
  let fromX = 0;
  let fromY = 0;
  let x = 0;
  let y = 0;
  const move = (e: PointerEvent): void => {
    x = (e.clientX - fromX) / radiusPx;
    y = (e.clientY - fromY) / radiusPx;
    const n = Math.hypot(x, y);
    if (n > 1) {
      x /= n;
      y /= n;
    } else if (n < 0.12) {
      x = y = 0; // a resting thumb trembles
    }
    knob.style.transform = `translate(${x * radiusPx}px, ${y * radiusPx}px)`;
  };
  const end = (): void => {
    finger = -1;
    x = y = 0;
    ring.hidden = true;
  };
  listen(undo, element, ["pointerdown"], (e: PointerEvent) => {
    if (e.pointerType === "mouse" || finger >= 0) return;
    e.preventDefault();
    finger = e.pointerId;
    element.setPointerCapture(finger);
    fromX = e.clientX;
    fromY = e.clientY;
    const box = element.getBoundingClientRect();
    ring.style.left = `${fromX - box.left - radiusPx}px`;
    ring.style.top = `${fromY - box.top - radiusPx}px`;
    ring.hidden = false;
    move(e);
  });
  listen(undo, element, ["pointermove"], (e: PointerEvent) => {
    if (e.pointerId === finger) move(e);
  });
  listen(undo, element, ["pointerup", "pointercancel", "lostpointercapture"], (e: PointerEvent) => {
    if (e.pointerId === finger) end();
  });
  listen(undo, window, ["blur"], end);
  return {
    get x() { return x; },
    get y() { return y; },
    get active() { return finger >= 0; },
    stop() {
      undo.forEach((f) => f());
      ring.remove();
      element.classList.remove("dl-stick-area");
    },
  };
}

/** Reads gamepads. */
export function pads(): Pads {
  const p = { connected: false, x: 0, y: 0, aimX: 0, aimY: 0, buttons: 0, fresh: 0 };
  // A stick at rest is never quite at zero.
  const dead = (v: number | undefined): number => (v === undefined || Math.abs(v) < 0.18 ? 0 : Math.max(-1, Math.min(1, v)));
  return {
    poll() {
      p.connected = false;
      p.x = p.y = p.aimX = p.aimY = 0;
      let buttons = 0;
      const all = navigator.getGamepads?.() ?? [];
      for (let i = 0; i < all.length; i++) {
        const g = all[i];
        if (!g?.connected || g.mapping !== "standard") continue;
        p.connected = true;
        p.x = dead(g.axes[0]);
        p.y = dead(g.axes[1]);
        p.aimX = dead(g.axes[2]);
        p.aimY = dead(g.axes[3]);
        for (let b = 0; b < g.buttons.length && b < 31; b++) if (g.buttons[b]!.pressed) buttons |= 1 << b;
        if (buttons & (1 << 12)) p.y = -1;
        if (buttons & (1 << 13)) p.y = 1;
        if (buttons & (1 << 14)) p.x = -1;
        if (buttons & (1 << 15)) p.x = 1;
        const n = Math.hypot(p.x, p.y);
        if (n > 1) {
          p.x /= n;
          p.y /= n;
        }
        break;
      }
      p.fresh |= buttons & ~p.buttons;
      p.buttons = buttons;
    },
    get connected() { return p.connected; },
    get x() { return p.x; },
    get y() { return p.y; },
    get aimX() { return p.aimX; },
    get aimY() { return p.aimY; },
    down(button) {
      const bit = 1 << button;
      const d = ((p.buttons | p.fresh) & bit) !== 0;
      p.fresh &= ~bit;
      return d;
    },
    stop() {},
  };
}
