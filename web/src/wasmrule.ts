// A rule for Room.predict in WebAssembly: the server's own Go code, built as a reactor of WASI (GOOS=wasip1 -buildmode=c-shared).
// docs/client.md has the whole road. It exports:
//
//   rule_layout() → address of a text that ends with a zero byte: the names of what stands in the frame, in three groups with ";" between
//                   them and spaces in them: fields of the entity; fields of the input; bools of the input that were pressed
//   rule_frame()  → address of the frame: a float64 for each name, in order
//   rule_step(u32 tick) → 0: this cannot be foreseen; else the frame holds the entity after the step
//
// Both sides write into the same memory, so a step copies a few numbers and allocates nothing. Such a rule needs nothing of the
// system; what Go's runtime asks for when it starts is answered here, and there are neither files nor network.

/** A rule that was loaded; its step is what Room.predict takes. */
export interface WasmRule {
  /** Names of the entity's fields that the rule reads; those among them that are predicted it may change. */
  readonly state: readonly string[];
  readonly input: readonly string[];
  readonly pressed: readonly string[];
  step(state: any, input: any, tick: number, pressed: any): boolean;
}

const OK = 0;
const BAD_FILE = 8;
const NO_SUCH_CALL = 52;
/** More is no list of names. */
const MAX_LAYOUT_BYTES = 4096;

interface Exports {
  memory: WebAssembly.Memory;
  _initialize?(): void;
  rule_layout(): number;
  rule_frame(): number;
  rule_step(tick: number): number;
}

/**
 * Loads a rule: from an address, an answer to a fetch, or bytes. The page's server must send it as application/wasm, and its policy must
 * allow WebAssembly; a file right under the world's static/ has both. It throws if it cannot be loaded or exports no rule.
 */
export async function loadRule(source: string | URL | Response | BufferSource): Promise<WasmRule> {
  const module = await compile(source);
  let memory: WebAssembly.Memory | null = null;
  const instance = await WebAssembly.instantiate(module, imports(module, () => memory!));
  const exports = instance.exports as unknown as Partial<Exports>;
  if (!(exports.memory instanceof WebAssembly.Memory) || !exports.rule_layout || !exports.rule_frame || !exports.rule_step) {
    throw new TypeError("drumline: this module exports no rule: memory, rule_layout, rule_frame and rule_step");
  }
  memory = exports.memory;
  exports._initialize?.();
  return rule(exports as Exports);
}

async function compile(source: string | URL | Response | BufferSource): Promise<WebAssembly.Module> {
  if (typeof source === "string" || source instanceof URL) source = await fetch(source);
  if (source instanceof Response) {
    if (!source.ok) throw new Error(`drumline: ${source.url}: ${source.status} ${source.statusText}`);
    return WebAssembly.compileStreaming(source);
  }
  return WebAssembly.compile(source);
}

// Where a name such as "pos.x" is kept: an object and a key of it. The objects are the same in each step.
class Fields {
  private root: object | null = null;
  private readonly paths: readonly string[][];
  private readonly hosts: Record<string, number | boolean>[] = [];
  private readonly keys: readonly string[];
  private readonly names: readonly string[];

  constructor(names: readonly string[]) {
    this.names = names;
    this.paths = names.map((n) => n.split("."));
    this.keys = this.paths.map((p) => p[p.length - 1]!);
  }

  get(root: object, frame: Float64Array, at: number): void {
    if (root !== this.root) this.bind(root);
    for (let i = 0; i < this.keys.length; i++) frame[at + i] = Number(this.hosts[i]![this.keys[i]!]);
  }

  // Sets what has changed, for what has not may be nobody's to set.
  set(frame: Float64Array, at: number): void {
    for (let i = 0; i < this.keys.length; i++) {
      const host = this.hosts[i]!;
      const key = this.keys[i]!;
      const v = frame[at + i]!;
      if (Number(host[key]) !== v) host[key] = v;
    }
  }

  private bind(root: object): void {
    this.paths.forEach((path, i) => {
      let host = root as any;
      for (const part of path.slice(0, -1)) host = host?.[part];
      if (host === undefined || host === null || !(this.keys[i]! in host)) throw new Error(`drumline: the rule reads "${this.names[i]}", which this world does not have`);
      this.hosts[i] = host;
    });
    this.root = root;
  }
}

function rule(x: Exports): WasmRule {
  const at = x.rule_layout() >>> 0;
  const bytes = new Uint8Array(x.memory.buffer); // after the call, which may have grown the memory
  const end = bytes.indexOf(0, at);
  if (at === 0 || end < at || end - at > MAX_LAYOUT_BYTES) throw new TypeError("drumline: the rule's layout is no text");
  const groups = new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(at, end)).split(";").map((g) => g.split(" ").filter((n) => n !== ""));
  if (groups.length !== 3 || groups[0]!.length === 0) throw new TypeError(`drumline: the rule's layout has ${groups.length} groups, not fields, inputs and presses`);
  const [state, input, pressed] = groups as [string[], string[], string[]];
  const count = state.length + input.length + pressed.length;
  const address = x.rule_frame() >>> 0;
  if (address === 0 || address % 8 !== 0 || address + 8 * count > x.memory.buffer.byteLength) throw new TypeError("drumline: the rule's frame is outside its memory");
  let frame = new Float64Array(x.memory.buffer, address, count);
  const fields = new Fields(state);
  const inputs = new Fields(input);
  const presses = new Fields(pressed);
  return {
    state, input, pressed,
    step(s, i, tick, p): boolean {
      // When memory grows, the old view is empty.
      if (frame.length === 0) frame = new Float64Array(x.memory.buffer, address, count);
      fields.get(s, frame, 0);
      inputs.get(i, frame, state.length);
      presses.get(p, frame, state.length + input.length);
      if (x.rule_step(tick) === 0) return false;
      if (frame.length === 0) frame = new Float64Array(x.memory.buffer, address, count);
      fields.set(frame, 0);
      return true;
    },
  };
}

// What Go's runtime asks of the system: a clock and chance for its start, and a place to say that it dies. No arguments, no environment, no
// files. Anything else is a call that does not exist.
function imports(module: WebAssembly.Module, memory: () => WebAssembly.Memory): WebAssembly.Imports {
  const view = (): DataView => new DataView(memory().buffer);
  let line = "";
  const known: Record<string, (...a: any[]) => number> = {
    args_sizes_get: none,
    environ_sizes_get: none,
    args_get: () => OK,
    environ_get: () => OK,
    sched_yield: () => OK,
    fd_close: () => BAD_FILE,
    fd_fdstat_get: () => BAD_FILE,
    fd_fdstat_set_flags: () => BAD_FILE,
    fd_prestat_get: () => BAD_FILE,
    fd_prestat_dir_name: () => BAD_FILE,
    clock_time_get(_id: number, _precision: bigint, out: number): number {
      view().setBigUint64(out, BigInt(Math.round(performance.now() * 1e6)), true);
      return OK;
    },
    random_get(at: number, n: number): number {
      crypto.getRandomValues(new Uint8Array(memory().buffer, at, n));
      return OK;
    },
    fd_write(_fd: number, parts: number, n: number, written: number): number {
      const v = view();
      let total = 0;
      for (let i = 0; i < n; i++) {
        const at = v.getUint32(parts + 8 * i, true);
        const size = v.getUint32(parts + 8 * i + 4, true);
        line += new TextDecoder().decode(new Uint8Array(memory().buffer, at, size));
        total += size;
      }
      v.setUint32(written, total, true);
      const end = line.lastIndexOf("\n");
      if (end >= 0) {
        console.error(line.slice(0, end));
        line = line.slice(end + 1);
      }
      return OK;
    },
    // A wait is over at once: nothing here waits for anything.
    poll_oneoff(_in: number, _out: number, n: number, events: number): number {
      view().setUint32(events, n, true);
      return OK;
    },
    proc_exit(code: number): number {
      throw new Error(`drumline: the rule has ended with ${code}`);
    },
  };
  function none(count: number, size: number): number {
    const v = view();
    v.setUint32(count, 0, true);
    v.setUint32(size, 0, true);
    return OK;
  }
  const all: Record<string, Record<string, WebAssembly.ImportValue>> = {};
  for (const i of WebAssembly.Module.imports(module)) {
    if (i.kind !== "function") throw new TypeError(`drumline: the rule imports ${i.module}.${i.name}, which is no function`);
    (all[i.module] ??= {})[i.name] = (i.module === "wasi_snapshot_preview1" ? known[i.name] : undefined) ?? (() => NO_SUCH_CALL);
  }
  return all;
}
