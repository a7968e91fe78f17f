// The arena's page: joins, draws what the room shows, and sends what the player wants.

import { type Room, type View, loadRule } from "drumline";
import { enter } from "drumline/ui";
import { Camera } from "./camera.ts";
import { Controls } from "./controls.ts";
import { Effects, Look } from "./effects.ts";
import { Hud } from "./hud.ts";
import { step } from "./move.ts";
import { Painter } from "./paint.ts";
import { HIT_MONSTER, HIT_NOTHING, HIT_PLAYER, type Kill, MAX_SEATS, NOBODY, PLAYER_RADIUS, type Player, type Shot } from "./rules.ts";
import type { World as Arena } from "./types.ts";

/** The muzzle's distance from the middle of a player. */
const MUZZLE = PLAYER_RADIUS + 9;
const STEP_ANGLE = (2 * Math.PI) / 65536;
/** A correction by more than this, a quarter of a second's way, is no slip: the player is elsewhere. */
const ELSEWHERE = 60;
/** Between two updates of scoreboard and figures. */
const SLOW_MS = 500;

class Game {
  private readonly room: Room<Arena>;
  private readonly root: HTMLElement;
  private readonly cam = new Camera();
  private readonly painter: Painter;
  private readonly controls: Controls;
  private readonly hud: Hud;
  private readonly fx = new Effects();
  private readonly looks = new Map<number, Look>();
  private readonly seats: (Player | null)[] = new Array(MAX_SEATS).fill(null);
  private readonly wish = { fire: false, dx: 0, dy: 0, aim: 0 };
  private now = 0;
  private slowAt = 0;
  private frames = 0;
  fps = 0;
  shots = 0;

  constructor(room: Room<Arena>, root: HTMLElement, rule: typeof step) {
    this.room = room;
    this.root = root;
    const canvas = document.createElement("canvas");
    canvas.className = "field";
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "The arena, seen from above");
    root.append(canvas);
    this.painter = new Painter(canvas);
    this.controls = new Controls(root);
    this.hud = new Hud(root);
    this.hud.firstVisit(matchMedia("(pointer: coarse)").matches);

    const resize = (): void => {
      this.cam.resize(root.clientWidth, root.clientHeight, this.hud.root.offsetTop);
      this.painter.resize(this.cam, devicePixelRatio);
    };
    new ResizeObserver(resize).observe(root);
    resize();

    // The own player moves at once, by the server's own rule.
    room.predict({ type: "player", fields: ["x", "y", "vx", "vy"], step: rule, snap: { x: ELSEWHERE, y: ELSEWHERE } });
    room.onEnter("player", (p) => {
      this.enter(p.id, p.hp);
      this.seats[p.seat] = p;
    });
    room.onEnter("monster", (m) => this.enter(m.id, m.hp));
    room.onLeave("player", (p) => {
      this.looks.delete(p.id);
      if (this.seats[p.seat] === p) this.seats[p.seat] = null;
    });
    room.onLeave("monster", (m) => this.looks.delete(m.id));
    room.onEvent("shot", (s) => this.shot(s));
    room.onEvent("kill", (k) => this.kill(k));
    room.frame((view, now, dt) => this.frame(view, now, dt));
  }

  private enter(id: number, hp: number): void {
    const look = new Look();
    look.hp = hp;
    look.bornAt = this.now;
    this.looks.set(id, look);
  }

  private shot(s: Shot): void {
    const p = this.seats[s.seat];
    if (!p) return;
    this.shots++;
    const cos = Math.cos(s.aim);
    const sin = Math.sin(s.aim);
    const x = p.x + cos * s.reach;
    const y = p.y + sin * s.reach;
    const from = Math.min(MUZZLE, s.reach);
    this.fx.tracers.add(this.now, p.x + cos * from, p.y + sin * from, x, y, p.own);
    if (s.hit !== HIT_NOTHING) this.fx.sparks.add(this.now, x, y, 0, 0, s.hit === HIT_PLAYER || s.hit === HIT_MONSTER);
  }

  private kill(k: Kill): void {
    this.fx.rings.add(this.now, k.x, k.y, 0, 0, k.victim !== NOBODY);
    if (k.victim === NOBODY) return;
    const victim = this.seats[k.victim];
    const killer = k.killer === NOBODY ? null : this.seats[k.killer];
    const who = k.killer === NOBODY ? "A monster" : (killer?.name ?? "Somebody");
    this.hud.death(who, victim?.name ?? "somebody", victim?.own === true || killer?.own === true);
    if (victim?.own) this.hud.killedBy(who);
  }

  private frame(view: View<Arena>, now: number, dt: number): void {
    this.now = now;
    const players = view.all("player");
    const monsters = view.all("monster");
    const own = view.own as unknown as Player | null;
    if (own !== null) {
      this.cam.follow(own.x, own.y, dt);
      this.hud.own(own);
      this.controls.read(this.wish, this.cam.toX(own.x), this.cam.toY(own.y));
      this.room.input(this.wish);
    }

    const { painter, cam } = this;
    painter.begin(cam, now);
    for (let i = 0; i < monsters.length; i++) {
      const m = monsters[i]!;
      const look = this.looks.get(m.id);
      if (look === undefined) continue;
      look.see(m.hp, now);
      painter.monster(m, look);
    }
    for (let i = 0; i < players.length; i++) {
      const p = players[i]!;
      const look = this.looks.get(p.id);
      if (look === undefined) continue;
      look.see(p.hp, now);
      if (!p.own) painter.player(p, look, p.aim);
    }
    const mine = own === null ? undefined : this.looks.get(own.id);
    // Above all others, and aiming where the hand does, not where the server knew it to a moment ago.
    if (own !== null && mine !== undefined) painter.player(own, mine, this.wish.aim * STEP_ANGLE);
    painter.effects(this.fx);
    painter.overlay();
    for (let i = 0; i < players.length; i++) painter.name(players[i]!, cam);
    if (mine !== undefined) painter.wound(mine, cam);
    if (this.controls.mouse && own !== null && own.hp > 0) painter.sight(this.controls.pointerX, this.controls.pointerY);

    this.frames++;
    if (now - this.slowAt >= SLOW_MS) {
      if (this.slowAt > 0) this.fps = (this.frames * 1000) / (now - this.slowAt);
      this.slowAt = now;
      this.frames = 0;
      this.root.classList.toggle("mouse", this.controls.mouse);
      this.hud.slow(players, { rttMs: this.room.quality.rttMs, players: players.length, fps: this.fps });
    }
  }

  /** Everybody else. */
  *others(): Iterable<Player> {
    for (const p of this.room.all("player")) if (!p.own) yield p;
  }
}

/** What tests and the curious may read. */
export interface Peek {
  readonly room: Room<Arena>;
  me(): object | null;
  others(): object[];
  stats(): object;
}

// A plain copy, for entities change with each frame.
function copy(p: Player): object {
  const { id, seat, name, x, y, vx, vy, aim, hp, wait, shield, away, score, own } = p;
  return { id, seat, name, x, y, vx, vy, aim, hp, wait, shield, away, score, own };
}

// With ?rule=wasm the server's own code, where "make wasm" has put it, and else its twin.
async function rule(): Promise<typeof step> {
  if (new URLSearchParams(location.search).get("rule") !== "wasm") return step;
  try {
    const wasm = await loadRule("static/move.wasm");
    return (p, input) => wasm.step(p, input, 0, input);
  } catch (e) {
    console.warn("arena: without WebAssembly,", e);
    return step;
  }
}

async function main(): Promise<void> {
  const root = document.querySelector<HTMLElement>(".arena")!; // body.html
  const room = await enter<Arena>({ world: "arena" });
  const game = new Game(room, root, await rule());
  const peek: Peek = {
    room,
    me: () => (room.ownEntity === null ? null : copy(room.ownEntity as unknown as Player)),
    others: () => Array.from(game.others(), copy),
    stats: () => ({
      fps: game.fps, shots: game.shots, players: room.all("player").length, monsters: room.all("monster").length, state: room.state,
      rttMs: room.quality.rttMs, stateAgeMs: room.quality.stateAgeMs, bytesPerSec: room.quality.bytesPerSec,
      prediction: { ...room.quality.prediction },
    }),
  };
  Object.defineProperty(window, "__arena", { value: Object.freeze(peek) });
}

void main();
