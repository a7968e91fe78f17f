// Everything around the field, as elements: own state, scoreboard, deaths, figures, help. Texts change only when what they say
// does, and always as text, so that a name is never markup.

import { siteBase } from "drumline";
import { inviteButton } from "drumline/ui";
import { HZ, PLAYER_HP, type Player } from "./rules.ts";

const TOP = 5;
const FEED_LINES = 5;
const FEED_MS = 6000;
const HELP_MS = 20000;
const HELP_KEY = "arena-help-seen";

function el<K extends keyof HTMLElementTagNameMap>(tag: K, className: string, parent: Node): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  e.className = className;
  parent.appendChild(e);
  return e;
}

/** Sets a text if it is another than before. */
function say(e: HTMLElement, text: string): void {
  if (e.textContent !== text) e.textContent = text;
}

/** A name in a sentence: its direction of writing must not turn the rest around. */
function named(name: string): HTMLElement {
  const e = document.createElement("bdi");
  e.textContent = name;
  return e;
}

interface Line {
  root: HTMLElement;
  rank: HTMLElement;
  name: HTMLElement;
  score: HTMLElement;
}

export interface Figures {
  rttMs: number;
  players: number;
  fps: number;
}

export class Hud {
  readonly root: HTMLElement;
  private readonly life: HTMLElement;
  private readonly lifeFill: HTMLElement;
  private readonly lifeText: HTMLElement;
  private readonly score: HTMLElement;
  private readonly figures: HTMLElement;
  private readonly lines: Line[] = [];
  private readonly feed: HTMLElement;
  private readonly dead: HTMLElement;
  private readonly deadBy: HTMLElement;
  private readonly deadIn: HTMLElement;
  private readonly help: HTMLElement;
  private hp = -1;
  private points = -1;
  private seconds = -1;
  private readonly order: Player[] = [];

  constructor(parent: HTMLElement) {
    this.root = el("div", "hud", parent);
    const mine = el("div", "mine", this.root);
    this.life = el("div", "life", mine);
    this.life.setAttribute("role", "meter");
    this.life.setAttribute("aria-label", "Hit points");
    this.life.setAttribute("aria-valuemin", "0");
    this.life.setAttribute("aria-valuemax", String(PLAYER_HP));
    this.lifeFill = el("div", "life-fill", this.life);
    this.lifeText = el("span", "life-text", this.life);
    this.score = el("div", "score", mine);
    this.figures = el("div", "figures", mine);
    const ways = el("div", "ways", mine);
    const lobby = el("a", "way", ways);
    lobby.href = siteBase();
    lobby.textContent = "Lobby";
    const invite = ways.appendChild(inviteButton());
    invite.className = "way";
    ways.addEventListener("pointerdown", (e) => e.stopPropagation()); // no shot

    const right = el("div", "right", this.root);
    const board = el("ol", "board", right);
    board.setAttribute("aria-label", "Best players");
    for (let i = 0; i <= TOP; i++) {
      const root = el("li", "place", board);
      root.hidden = true;
      this.lines.push({
        root, rank: el("span", "place-rank", root), name: el("bdi", "place-name", root), score: el("span", "place-score", root),
      });
    }
    this.feed = el("div", "feed", right);
    this.feed.setAttribute("role", "log");
    this.feed.setAttribute("aria-label", "Deaths");

    this.dead = el("div", "dead", this.root);
    this.dead.setAttribute("role", "status");
    this.dead.hidden = true;
    this.deadBy = el("div", "dead-by", this.dead);
    this.deadIn = el("div", "dead-in", this.dead);

    this.help = el("div", "help", this.root);
    this.help.hidden = true;
  }

  /** Shows the own player's state; call it each frame. */
  own(p: Player): void {
    if (p.hp !== this.hp) {
      this.hp = p.hp;
      this.lifeFill.style.transform = `scaleX(${p.hp / PLAYER_HP})`;
      this.life.classList.toggle("low", p.hp <= PLAYER_HP * 0.3);
      this.life.setAttribute("aria-valuenow", String(p.hp));
      say(this.lifeText, String(p.hp));
    }
    if (p.score !== this.points) {
      this.points = p.score;
      say(this.score, p.score === 1 ? "1 point" : `${p.score} points`);
    }
    const seconds = p.hp === 0 ? Math.ceil(p.wait / HZ) : 0;
    if (seconds !== this.seconds) {
      this.seconds = seconds;
      this.dead.hidden = seconds === 0;
      if (seconds > 0) say(this.deadIn, `Back in ${seconds} s`);
      else say(this.deadBy, "");
    }
  }

  /** Says who killed the own player. */
  killedBy(who: string): void {
    this.deadBy.replaceChildren(named(who), " got you");
  }

  /** Adds a line to the list of deaths. mine: the own player had a part in it. */
  death(killer: string, victim: string, mine: boolean): void {
    const line = document.createElement("div");
    line.className = mine ? "death involved" : "death";
    line.append(named(killer), " got ", named(victim));
    this.feed.append(line);
    while (this.feed.childElementCount > FEED_LINES) this.feed.firstElementChild!.remove();
    setTimeout(() => line.remove(), FEED_MS);
  }

  /** Shows the five best, the own player below them if he is not among them, and the figures; call it a few times a second. */
  slow(players: Iterable<Player>, f: Figures): void {
    const { order } = this;
    order.length = 0;
    for (const p of players) order.push(p);
    order.sort((a, b) => b.score - a.score || a.seat - b.seat);
    const own = order.findIndex((p) => p.own);
    for (let i = 0; i <= TOP; i++) {
      const line = this.lines[i]!;
      const at = i < TOP ? i : own;
      const p = at < i ? undefined : order[at];
      line.root.hidden = p === undefined;
      if (p === undefined) continue;
      line.root.classList.toggle("own", p.own);
      line.root.classList.toggle("away", p.away);
      say(line.rank, String(at + 1));
      say(line.name, p.name);
      say(line.score, String(p.score));
    }
    order.length = 0;
    const ping = Number.isFinite(f.rttMs) && f.rttMs > 0 ? `${Math.round(f.rttMs)} ms` : "– ms";
    say(this.figures, `${ping} · ${f.players} ${f.players === 1 ? "player" : "players"} · ${Math.round(f.fps)} fps`);
  }

  /** On the first visit: how to play, for a while. */
  firstVisit(touch: boolean): void {
    try {
      if (localStorage.getItem(HELP_KEY) !== null) return;
      localStorage.setItem(HELP_KEY, "1");
    } catch {
      // Storage may be forbidden; then the line is shown each time.
    }
    this.help.textContent = touch
      ? "Left thumb moves, right thumb aims and fires. Tap the upper left corner to see how well it runs."
      : "WASD or arrows move, the mouse aims and fires. Gamepads work too. F2 shows how well it runs.";
    this.help.hidden = false;
    setTimeout(() => (this.help.hidden = true), HELP_MS);
  }
}
