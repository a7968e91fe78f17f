// Objects with named fields over arrays of numbers: what a page sees of entities and events. The classes are made at run time
// from the schema with property accessors (no generated code: it must run under a strict CSP).

/** One field of an entity or event type, as the schema of feed/snap has it. */
export interface FieldSchema {
  /** "hp", or "pos.x" for a field of a nested struct. */
  name: string;
  /** float, int, uint, bool, angle or text */
  kind: string;
  bits: number;
  min: number;
  q: number;
  /** It says where and how, not what. */
  pose?: boolean;
  /** Low bits that are rounded away, by ring; absent: none. */
  lod?: number[];
  /** How it goes on between packets, see SnapAhead; absent: it stays. */
  ahead?: { by: number; by2?: number; angle?: number; side?: number; mul: number; shift: number };
}

export interface TypeSchema {
  name: string;
  fields: FieldSchema[];
}

/** Numbers and texts of one thing, both by field index of its type. */
export interface Values {
  numbers: Float64Array;
  texts: string[];
}

/** Names that the library's own properties have; a field of that name gets a "_" after it. */
export const ENTITY_NAMES: readonly string[] = ["id", "type", "own", "gone", "numbers", "texts", "constructor"];
export const EVENT_NAMES: readonly string[] = ["numbers", "texts", "constructor"];

/** Gives host, a class's prototype or an object, one accessor for each field, and an object for each nested struct. */
function define(host: object, fields: readonly FieldSchema[], prefix: string, taken: readonly string[], values: (self: any) => Values, nest: (name: string, host: object) => void): void {
  const done = new Set<string>();
  fields.forEach((f, i) => {
    if (!f.name.startsWith(prefix)) return;
    const rest = f.name.slice(prefix.length);
    const dot = rest.indexOf(".");
    if (dot >= 0) {
      const name = rest.slice(0, dot);
      if (!done.has(name)) nest(name, host);
      done.add(name);
      return;
    }
    const name = prefix === "" && taken.includes(rest) ? rest + "_" : rest;
    const get =
      f.kind === "text" ? function (this: object): string { return values(this).texts[i] ?? ""; }
      : f.kind === "bool" ? function (this: object): boolean { return values(this).numbers[i] !== 0; }
      : function (this: object): number { return values(this).numbers[i]!; };
    Object.defineProperty(host, name, { get, enumerable: true, configurable: true });
  });
}

/**
 * Derives a class from base with an accessor per field: `p.hp`, `p.pos.x`. The objects of nested structs are made once, with
 * the entity.
 */
export function viewClass<A extends unknown[], B extends Values>(base: new (...args: A) => B, fields: readonly FieldSchema[], taken: readonly string[]): new (...args: A) => B {
  interface Nested { key: string; proto: object; inner: Nested[] }
  const build = (prefix: string, host: object, values: (self: any) => Values): Nested[] => {
    const nested: Nested[] = [];
    define(host, fields, prefix, taken, values, (name) => {
      const proto = {};
      nested.push({ key: prefix === "" && taken.includes(name) ? name + "_" : name, proto, inner: build(prefix + name + ".", proto, nestedValues) });
    });
    return nested;
  };
  const attach = (to: object, of: Values, nested: readonly Nested[]): void => {
    for (const n of nested) {
      const o = Object.create(n.proto) as { $: Values };
      Object.defineProperty(o, "$", { value: of });
      attach(o, of, n.inner);
      Object.defineProperty(to, n.key, { value: o, enumerable: true });
    }
  };
  // TypeScript cannot see that a class derived from a constructor parameter is one.
  const Base = base as unknown as new (...args: any[]) => Values;
  let nested: Nested[] = [];
  class View extends Base {
    constructor(...args: any[]) {
      super(...args);
      attach(this, this, nested);
    }
  }
  nested = build("", View.prototype, (self: Values) => self);
  return View as unknown as new (...args: A) => B;
}

function nestedValues(self: { $: Values }): Values {
  return self.$;
}
