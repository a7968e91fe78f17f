// What is shown for a moment: tracers, sparks and rings. All of it lives in arrays of fixed size; the oldest gives way.

export const TRACER_MS = 140;
export const SPARK_MS = 220;
export const RING_MS = 520;

/** A line from a gun to what it hit, or a mark at one place. */
export class Mark {
  born = -1e9;
  x = 0;
  y = 0;
  toX = 0;
  toY = 0;
  /** For a tracer: the own player's. For a ring: a player's, not a monster's. */
  strong = false;
}

class Ring {
  readonly marks: Mark[] = [];
  private next = 0;

  constructor(n: number) {
    for (let i = 0; i < n; i++) this.marks.push(new Mark());
  }

  add(now: number, x: number, y: number, toX: number, toY: number, strong: boolean): void {
    const m = this.marks[this.next]!;
    this.next = (this.next + 1) % this.marks.length;
    m.born = now;
    m.x = x;
    m.y = y;
    m.toX = toX;
    m.toY = toY;
    m.strong = strong;
  }
}

export class Effects {
  readonly tracers = new Ring(96);
  readonly sparks = new Ring(64);
  readonly rings = new Ring(32);
}

/** How an entity looks beside its state: kept from enter to leave. */
export class Look {
  hp = 0;
  /** When it was last hurt. */
  hurtAt = -1e9;
  bornAt = 0;

  /** Notes this frame's hit points. It returns how many were lost. */
  see(hp: number, now: number): number {
    const lost = this.hp - hp;
    this.hp = hp;
    if (lost <= 0) return 0;
    this.hurtAt = now;
    return lost;
  }
}
