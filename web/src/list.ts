// Lists whose rows come anew every second.

/** What one row of a list is and how it is brought up to date. */
export interface Shown<R> {
  e: HTMLElement;
  update(r: R): void;
}

/** Keeps one element per row in place, so that focus and selection survive an update. */
export class List<R> {
  private readonly shown = new Map<string, Shown<R>>();
  private readonly host: HTMLElement;
  private readonly key: (r: R) => string;
  private readonly make: (r: R) => Shown<R>;

  constructor(host: HTMLElement, key: (r: R) => string, make: (r: R) => Shown<R>) {
    this.host = host;
    this.key = key;
    this.make = make;
  }

  show(rows: readonly R[]): void {
    const gone = new Set(this.shown.keys());
    let at = 0;
    for (const r of rows) {
      const k = this.key(r);
      gone.delete(k);
      let s = this.shown.get(k);
      if (s === undefined) {
        s = this.make(r);
        this.shown.set(k, s);
      }
      s.update(r);
      if (this.host.children[at] !== s.e) this.host.insertBefore(s.e, this.host.children[at] ?? null);
      at++;
    }
    for (const k of gone) {
      this.shown.get(k)!.e.remove();
      this.shown.delete(k);
    }
  }
}
