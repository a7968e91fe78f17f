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

// What the world sends, as "make docs" writes it down. Steps are of 1/60 s: wait is those until a dead player (hp 0) is back, shield
// those in which nothing hits. An angle is 0 to the right, a quarter turn down. A monster that is mad runs at somebody; killer and
// victim are seats, or NOBODY.
export type { Kill, Monster, Player, Shot } from "./types.ts";
