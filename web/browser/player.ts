// A player of the arena as a test sees one: what the page shows, and hands on keyboard, mouse or glass.

import type { CDPSession, Locator, Page } from "playwright-core";
import { Camera } from "../../worlds/arena/web/camera.ts";
import { type Device, type Scene, until } from "./harness.ts";

/** The arena page's copy of a player. */
export interface Seen {
  id: number;
  seat: number;
  name: string;
  x: number;
  y: number;
  hp: number;
  away: boolean;
  score: number;
}

interface Happened {
  kind: "shot" | "kill";
  tick: number;
  /** Of the shot, or killer. */
  seat: number;
  /** Of the kill. */
  victim: number;
  hit: number;
}

export interface Seat {
  seat: number;
  room: string;
  name: string;
  resumed: boolean;
  state: string;
}

export class Player {
  readonly page: Page;
  readonly device: Device;
  private readonly cam = new Camera();
  private readonly held = new Set<string>();
  private cdp: CDPSession | null = null;
  private touching = false;
  private readonly taps: boolean;

  /** taps: false where Playwright cannot tap, in contexts that are not its own. */
  constructor(page: Page, device: Device, taps = true) {
    this.page = page;
    this.device = device;
    this.taps = taps;
    this.cam.resize(device.width, device.height);
  }

  /** Opens a page on site's arena, gives the name it asks for, and waits until the player stands on the field. */
  static async join(s: Scene, device: Device, site: string, name: string, room = ""): Promise<Player> {
    const p = new Player(await s.page(device), device);
    await p.enter(site, name, room);
    return p;
  }

  async enter(site: string, name: string, room = ""): Promise<void> {
    await this.page.goto(`${site}w/arena/${room === "" ? "" : `?room=${room}`}`);
    await this.introduce(name);
    await this.ready();
  }

  /** Answers the question for the name. */
  async introduce(name: string): Promise<void> {
    await this.page.getByLabel("Your name").fill(name);
    await this.press(this.page.getByRole("button", { name: "Play" }));
  }

  /** Waits until the page shows its own player. */
  async ready(): Promise<Seen> {
    return until("the own player", () => this.me());
  }

  /** Clicks or taps. */
  async press(what: Locator): Promise<void> {
    await (this.device.touch && this.taps ? what.tap() : what.click());
  }

  me(): Promise<Seen | null> {
    return this.look(() => (globalThis as any).__arena?.me() ?? null, null);
  }

  others(): Promise<Seen[]> {
    return this.look(() => (globalThis as any).__arena?.others() ?? [], []);
  }

  // A page on its way to another has nothing to show.
  private async look<T>(f: () => T, nothing: T): Promise<T> {
    try {
      return await this.page.evaluate(f);
    } catch (e) {
      if (/context was destroyed|navigat/.test(String(e))) return nothing;
      throw e;
    }
  }

  async other(name: string): Promise<Seen | undefined> {
    return (await this.others()).find((o) => o.name === name);
  }

  seat(): Promise<Seat> {
    return this.page.evaluate(() => {
      const room = (globalThis as any).__arena.room;
      return { seat: room.me, room: room.name, name: room.player, resumed: room.info.resumed, state: room.state };
    });
  }

  quality(): Promise<{ reconnects: number; eventsDropped: number; decodeErrors: number }> {
    return this.page.evaluate(() => {
      const { reconnects, eventsDropped, decodeErrors } = (globalThis as any).__arena.room.quality;
      return { reconnects, eventsDropped, decodeErrors };
    });
  }

  /** Begins to note shots and kills; happened returns them. */
  async record(): Promise<void> {
    await this.page.evaluate(() => {
      const g = globalThis as any;
      g.__happened = [];
      const note = (e: object): void => void g.__happened.push(e);
      g.__arena.room.onEvent("shot", (s: any, tick: number) => note({ kind: "shot", tick, seat: s.seat, victim: -1, hit: s.hit }));
      g.__arena.room.onEvent("kill", (k: any, tick: number) => note({ kind: "kill", tick, seat: k.killer, victim: k.victim, hit: -1 }));
    });
  }

  happened(): Promise<Happened[]> {
    return this.page.evaluate(() => (globalThis as any).__happened);
  }

  // Hands.

  /** Holds a direction (of eight on a keyboard, any on a stick), and where to aim and fire if anywhere. */
  async hold(dx: number, dy: number, aim: { dx: number; dy: number; me: Seen } | null = null): Promise<void> {
    if (this.device.touch) await this.thumbs(dx, dy, aim);
    else {
      await this.keys(dx, dy);
      if (aim !== null) {
        // The camera follows softly; near enough for a shot.
        this.cam.follow(aim.me.x, aim.me.y, 1e9);
        const n = Math.hypot(aim.dx, aim.dy) || 1;
        await this.page.mouse.move(this.cam.toX(aim.me.x) + (aim.dx / n) * 150, this.cam.toY(aim.me.y) + (aim.dy / n) * 150);
        if (!this.touching) await this.page.mouse.down();
      } else if (this.touching) await this.page.mouse.up();
      this.touching = aim !== null;
    }
  }

  /** Lets everything go. */
  release(): Promise<void> {
    return this.hold(0, 0);
  }

  private async keys(dx: number, dy: number): Promise<void> {
    const want = new Set<string>();
    const n = Math.hypot(dx, dy) || 1;
    if (Math.abs(dx / n) > 0.3) want.add(dx > 0 ? "KeyD" : "ArrowLeft");
    if (Math.abs(dy / n) > 0.3) want.add(dy > 0 ? "ArrowDown" : "KeyW");
    for (const k of this.held) if (!want.has(k)) await this.page.keyboard.up(k);
    for (const k of want) if (!this.held.has(k)) await this.page.keyboard.down(k);
    this.held.clear();
    for (const k of want) this.held.add(k);
  }

  private async thumbs(dx: number, dy: number, aim: { dx: number; dy: number } | null): Promise<void> {
    this.cdp ??= await this.page.context().newCDPSession(this.page);
    const { width, height } = this.device;
    const unit = (x: number, y: number): [number, number] => {
      const n = Math.hypot(x, y) || 1;
      return [(x / n) * 50, (y / n) * 50];
    };
    const left = { x: width * 0.25, y: height * 0.75, id: 1 };
    const right = { x: width * 0.75, y: height * 0.75, id: 2 };
    const [lx, ly] = unit(dx, dy);
    const [rx, ry] = aim === null ? [0, 0] : unit(aim.dx, aim.dy);
    const touch = async (type: "touchStart" | "touchMove" | "touchEnd", touchPoints: Array<{ x: number; y: number; id: number }>): Promise<void> => {
      await this.cdp!.send("Input.dispatchTouchEvent", { type, touchPoints });
    };
    const idle = dx === 0 && dy === 0 && aim === null;
    if (idle) {
      if (this.touching) await touch("touchEnd", []);
      this.touching = false;
      return;
    }
    if (!this.touching) {
      await touch("touchStart", [left]);
      await touch("touchStart", [left, right]);
    }
    this.touching = true;
    await touch("touchMove", [{ ...left, x: left.x + lx, y: left.y + ly }, { ...right, x: right.x + rx, y: right.y + ry }]);
  }

  /** Runs after somebody and fires until done; both may die on the way, and go on. */
  async hunt(name: string, done: () => Promise<boolean>): Promise<void> {
    let side = 0;
    const last = { x: 0, y: 0, same: 0 };
    await until(`${name} to be shot`, async () => {
      if (await done()) return true;
      const [me, prey] = [await this.me(), await this.other(name)];
      if (me === null || prey === undefined || me.hp === 0 || prey.hp === 0) {
        await this.release();
        return false;
      }
      const dx = prey.x - me.x;
      const dy = prey.y - me.y;
      const far = Math.hypot(dx, dy);
      // Stuck at a pillar: around it.
      last.same = far > 120 && Math.hypot(me.x - last.x, me.y - last.y) < 2 ? last.same + 1 : 0;
      last.x = me.x;
      last.y = me.y;
      if (last.same > 8) {
        side = 12;
        last.same = 0;
      }
      if (side > 0) side--;
      const go = far < 70 ? [0, 0] : side > 0 ? [-dy / far, dx / far] : [dx / far, dy / far];
      await this.hold(go[0]!, go[1]!, { dx, dy, me });
      return false;
    }, 45_000);
    await this.release();
  }
}
