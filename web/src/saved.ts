// The seat in the tab's storage, for a reload. It is only used after the page has gone away: a copy of the tab must not take it.

import type { Env } from "./env.ts";

/** After the grace a seat may still be asked for as long as a slow page takes to load. */
const SLACK_MS = 5000;

interface Saved {
  token: string;
  room: string;
  /** As the player gave it. */
  name: string;
  cursors: number[];
  /** Wall clock when the page went away; 0: it is still there. */
  leftAt: number;
  graceMs: number;
}

/** The seat that this tab has, or had before a reload. */
export class SavedSeat {
  /** Empty: there is none. */
  token = "";
  room = "";
  cursors: number[] = [];
  private readonly env: Env;
  private readonly key: string;
  private readonly enabled: boolean;

  /** enabled false: nothing is read or written. */
  constructor(env: Env, url: string, world: string, enabled: boolean) {
    this.env = env;
    this.key = `drumline ${url} ${world}`;
    this.enabled = enabled;
  }

  /** Writes the seat down; leaving: the page goes away. */
  save(name: string, graceMs: number, leaving: boolean): void {
    if (!this.enabled) return;
    const s: Saved = { token: this.token, room: this.room, name, cursors: this.cursors, leftAt: leaving ? this.env.wall() : 0, graceMs };
    try {
      this.env.storage?.setItem(this.key, JSON.stringify(s));
    } catch {
      // Storage is full or forbidden: a reload will be a new player.
    }
  }

  /**
   * Takes up what a page before this one left, if its grace is not over and it is of `room` (empty: of any). Under another name the
   * player wants to be somebody new.
   */
  load(room: string, name: string): void {
    if (!this.enabled) return;
    try {
      const s = JSON.parse(this.env.storage?.getItem(this.key) ?? "null") as Saved | null;
      if (s === null || typeof s.token !== "string" || s.leftAt === 0) return;
      if (this.env.wall() - s.leftAt > s.graceMs + SLACK_MS) return;
      if (room !== "" && room !== s.room || name !== s.name) return;
      this.token = s.token;
      this.room = s.room;
      this.cursors = Array.isArray(s.cursors) ? s.cursors : [];
    } catch {
      // Not ours, or no storage.
    }
  }

  /** The seat is lost; its room is where to go back to. */
  vacate(): void {
    const { room } = this;
    this.forget();
    this.room = room;
  }

  forget(): void {
    this.token = "";
    this.room = "";
    try {
      this.env.storage?.removeItem(this.key);
    } catch {
      // As above.
    }
  }
}
