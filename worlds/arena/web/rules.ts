// What the page must know of the rules; move.go, shoot.go and game.go have the same figures, and a Go test compares them.

export const FIELD_SIZE = 1000;
export const PLAYER_RADIUS = 14;
export const MONSTER_RADIUS = 12;
export const PLAYER_HP = 100;
export const MONSTER_HP = 60;
export const RESPAWN_STEPS = 150;
export const SHIELD_STEPS = 240;
export const HZ = 60;
/** In a kill event: a monster instead of a seat. */
export const NOBODY = 16;
export const MAX_SEATS = 16;
/** What a shot hit, see Shot.hit. */
export const HIT_NOTHING = 0;
export const HIT_STONE = 1;
export const HIT_MONSTER = 2;
export const HIT_PLAYER = 3;

/** x, y and radius of each. */
export const PILLARS: readonly (readonly [number, number, number])[] = [
  [500, 500, 46],
  [270, 250, 34],
  [730, 250, 34],
  [270, 750, 34],
  [730, 750, 34],
];

/** An entity of type "player", as the library shows it. Steps are of 1/60 s. */
export interface Player {
  readonly id: number;
  readonly type: string;
  readonly own: boolean;
  readonly x: number;
  readonly y: number;
  readonly vx: number;
  readonly vy: number;
  /** Radians, 0 right, a quarter turn down. */
  readonly aim: number;
  /** 0: dead. */
  readonly hp: number;
  /** Steps until a dead player is back. */
  readonly wait: number;
  /** Steps in which nothing hits. */
  readonly shield: number;
  readonly away: boolean;
  readonly seat: number;
  readonly score: number;
  readonly name: string;
}

/** An entity of type "monster". */
export interface Monster {
  readonly id: number;
  readonly type: string;
  readonly x: number;
  readonly y: number;
  readonly vx: number;
  readonly vy: number;
  readonly hp: number;
  /** It runs at somebody. */
  readonly mad: boolean;
}

/** The event "shot". */
export interface Shot {
  readonly seat: number;
  readonly aim: number;
  readonly reach: number;
  readonly hit: number;
}

/** The event "kill": seats, or NOBODY. */
export interface Kill {
  readonly killer: number;
  readonly victim: number;
  readonly x: number;
  readonly y: number;
}
