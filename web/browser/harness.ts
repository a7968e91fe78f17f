// What the browser tests share: servers, a network between page and server that can fail, a browser, and scenes.
//
// A scene is a test that cleans up after itself, fails on whatever a page complains about (console, faults, requests, content
// security policy), and on failure saves pictures and prints what the pages said.

import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { type Browser, type BrowserContext, type Page, chromium } from "playwright-core";

/** The longest wait for anything that must happen: CI machines are slow. */
export const PATIENCE_MS = 20_000;
const POLL_MS = 30;

const root = (() => {
  let dir = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(dir, "go.mod"))) {
    if (dirname(dir) === dir) throw new Error("no go.mod above the test");
    dir = dirname(dir);
  }
  return dir;
})();

/** A screen to test on. */
export interface Device {
  name: "desktop" | "phone";
  width: number;
  height: number;
  touch: boolean;
}

export const DESKTOP: Device = { name: "desktop", width: 1280, height: 800, touch: false };
export const PHONE: Device = { name: "phone", width: 390, height: 844, touch: true };
export const DEVICES: readonly Device[] = [DESKTOP, PHONE];

/** Waits until f returns something; says what was waited for if it does not. */
export async function until<T>(what: string, f: () => Promise<T> | T, patienceMs = PATIENCE_MS): Promise<NonNullable<T>> {
  const end = Date.now() + patienceMs;
  for (;;) {
    const v = await f();
    if (v) return v;
    if (Date.now() > end) throw new Error(`waited ${patienceMs / 1000} s for ${what}`);
    await new Promise((r) => setTimeout(r, POLL_MS));
  }
}

function within<T>(what: string, p: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout>;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited ${PATIENCE_MS / 1000} s for ${what}`)), PATIENCE_MS);
  });
  return Promise.race([p, late]).finally(() => clearTimeout(timer));
}

// Programs.

const bin = join(root, "web/.build/bin");
// Before the tests and outside of their time: the first build on a clean machine compiles everything. Go links again only what has
// changed, so each test file may ask.
mkdirSync(bin, { recursive: true });
execFileSync("go", ["build", "-o", bin + "/", "./cmd/drumline", "./examples/dots"], { cwd: root, stdio: ["ignore", "inherit", "inherit"] });

function program(name: "drumline" | "dots"): string {
  return join(bin, process.platform === "win32" ? `${name}.exe` : name);
}

/** Runs a subcommand of drumline to its end and returns what it printed. */
export function run(...args: string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(program("drumline"), args, { stdio: ["ignore", "pipe", "pipe"] });
    let out = "";
    for (const s of [child.stdout, child.stderr]) s.setEncoding("utf8").on("data", (d: string) => (out += d));
    child.once("error", reject);
    child.once("exit", (code) => (code === 0 ? resolve(out) : reject(new Error(`drumline ${args.join(" ")} ended with ${code}:\n${out}`))));
  });
}

/** A server of its own process. */
export class Server {
  readonly port: number;
  readonly said: () => string;
  private readonly child: ChildProcess;

  private constructor(child: ChildProcess, port: number, said: () => string) {
    this.child = child;
    this.port = port;
    this.said = said;
  }

  /** Starts one on a free port, or on the one given. */
  static async start(name: "drumline" | "dots" = "drumline", port = 0, ...args: string[]): Promise<Server> {
    const child = spawn(program(name), ["serve", "--addr", `127.0.0.1:${port}`, "--priority", "none", ...args], { stdio: ["ignore", "pipe", "pipe"] });
    let out = "";
    const listening = new Promise<number>((resolve, reject) => {
      for (const s of [child.stdout, child.stderr]) {
        s.setEncoding("utf8").on("data", (d: string) => {
          out += d;
          const m = /^listening http:\/\/[^\s/]*:(\d+)/m.exec(out);
          if (m) resolve(Number(m[1]));
        });
      }
      child.once("error", reject);
      child.once("exit", (code) => reject(new Error(`the server ended with ${code}:\n${out}`)));
    });
    try {
      return new Server(child, await within("the server", listening), () => out);
    } catch (e) {
      child.kill("SIGKILL");
      throw e;
    }
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/`;
  }

  /** Asks it to end; gone resolves when it has. */
  terminate(): void {
    this.child.kill("SIGTERM");
  }

  get gone(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return Promise.resolve();
    return within("the server's end", new Promise((resolve) => this.child.once("exit", () => resolve())));
  }

  /** Stops its process where it is, or lets it go on. */
  freeze(on: boolean): void {
    this.child.kill(on ? "SIGSTOP" : "SIGCONT");
  }

  async stop(): Promise<void> {
    this.terminate();
    try {
      await this.gone;
    } catch (e) {
      this.child.kill("SIGKILL");
      throw e;
    }
    // A fault in a room is not always seen by a page.
    assert.doesNotMatch(this.said(), /panic|level=ERROR|DATA RACE/, "the server's log");
  }
}

// The network.

/** A TCP relay to a server that can be slow, cut, closed and stalled. */
export class Relay {
  private readonly server: net.Server;
  private readonly pairs = new Set<[net.Socket, net.Socket]>();
  private refusing = false;

  private constructor(to: number, delayMs: number) {
    this.server = net.createServer((near) => {
      if (this.refusing) {
        near.destroy();
        return;
      }
      const far = net.connect(to, "127.0.0.1");
      const pair: [net.Socket, net.Socket] = [near, far];
      this.pairs.add(pair);
      for (const [a, b] of [pair, [far, near] as const]) {
        a.setNoDelay(true);
        if (delayMs === 0) a.pipe(b);
        else a.on("data", (d) => void setTimeout(() => void (b.destroyed || b.write(d)), delayMs));
        a.on("error", () => b.destroy());
        a.on("close", () => {
          b.destroy();
          this.pairs.delete(pair);
        });
      }
    });
  }

  /** delayMs: how long each byte is on its way, either way. */
  static async start(to: number, delayMs = 0): Promise<Relay> {
    const r = new Relay(to, delayMs);
    await new Promise<void>((resolve) => r.server.listen(0, "127.0.0.1", resolve));
    return r;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as net.AddressInfo).port}/`;
  }

  /** Ends all connections at once. */
  cut(): void {
    for (const pair of this.pairs) for (const s of pair) s.resetAndDestroy();
  }

  /** Takes no new connections, or takes them again. */
  refuse(on: boolean): void {
    this.refusing = on;
  }

  /** Passes nothing on any more over the connections that are open; nobody is told. */
  stall(): void {
    for (const [a, b] of this.pairs) {
      a.unpipe(b);
      b.unpipe(a);
      a.resume();
      b.resume();
    }
  }

  /** Keeps what comes, or passes it on again; only without a delay. */
  hold(on: boolean): void {
    for (const [a, b] of this.pairs) {
      if (on) {
        a.unpipe(b);
        b.unpipe(a);
        a.pause();
        b.pause();
      } else {
        a.pipe(b);
        b.pipe(a);
      }
    }
  }

  async stop(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    this.cut();
    await closed;
  }
}

/** An HTTP proxy that serves a server's pages and sockets under a path. */
export class PrefixProxy {
  private readonly server: http.Server;
  private readonly sockets = new Set<net.Socket>();
  private readonly prefix: string;
  /** Paths that were asked for outside of the prefix. */
  readonly outside: string[] = [];

  private constructor(prefix: string, to: number) {
    this.prefix = prefix;
    const cut = (url = ""): string | null => {
      if (url.startsWith(`/${prefix}/`)) return url.slice(prefix.length + 1);
      this.outside.push(url);
      return null;
    };
    const ask = (req: http.IncomingMessage, path: string): http.ClientRequest =>
      http.request({ host: "127.0.0.1", port: to, method: req.method, path, headers: req.headers });
    this.server = http.createServer((req, res) => {
      const path = cut(req.url);
      if (path === null) {
        res.writeHead(404).end();
        return;
      }
      req.pipe(ask(req, path).on("response", (up) => {
        res.writeHead(up.statusCode ?? 502, up.headers);
        up.pipe(res);
      }).on("error", () => res.destroy()));
    });
    this.server.on("upgrade", (req: http.IncomingMessage, near: net.Socket, head: Buffer) => {
      const path = cut(req.url);
      if (path === null) {
        near.destroy();
        return;
      }
      this.sockets.add(near);
      near.on("close", () => this.sockets.delete(near));
      near.on("error", () => near.destroy());
      ask(req, path).on("upgrade", (res, far, first) => {
        const lines = [`HTTP/1.1 101 ${res.statusMessage}`];
        for (let i = 0; i < res.rawHeaders.length; i += 2) lines.push(`${res.rawHeaders[i]}: ${res.rawHeaders[i + 1]}`);
        near.write(lines.join("\r\n") + "\r\n\r\n");
        near.write(first);
        far.write(head);
        near.pipe(far).pipe(near);
        far.on("error", () => near.destroy());
        near.on("close", () => far.destroy());
        far.on("close", () => near.destroy());
      }).on("error", () => near.destroy()).end();
    });
  }

  static async start(prefix: string, to: number): Promise<PrefixProxy> {
    const p = new PrefixProxy(prefix, to);
    await new Promise<void>((resolve) => p.server.listen(0, "127.0.0.1", resolve));
    return p;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as net.AddressInfo).port}/${this.prefix}/`;
  }

  async stop(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    this.server.closeAllConnections();
    for (const s of this.sockets) s.destroy();
    await closed;
  }
}

// The browser.

function chromiumPath(): string {
  const named = process.env["DRUMLINE_CHROMIUM"];
  if (named) return named;
  const names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
  const dirs = [...(process.env["PATH"] ?? "").split(":"), "/usr/bin", "/snap/bin"];
  const places = names.flatMap((n) => dirs.map((d) => join(d, n)));
  places.push("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome", "/Applications/Chromium.app/Contents/MacOS/Chromium");
  const found = places.find((p) => existsSync(p));
  if (found === undefined) throw new Error("There is no Chromium: install it, or name one by DRUMLINE_CHROMIUM.");
  return found;
}

const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

let shared: Promise<Browser> | undefined;

function browser(): Promise<Browser> {
  shared ??= chromium.launch({ executablePath: chromiumPath(), args: FLAGS });
  return shared;
}

after(async () => {
  await (await shared)?.close();
});

/**
 * A browser whose tabs really hide each other. Playwright keeps all pages of its own contexts visible and focused, which is what
 * most tests want.
 */
async function browserWithTabs(): Promise<{ browser: Browser; stop(): Promise<void> }> {
  const profile = mkdtempSync(join(tmpdir(), "drumline-browser-"));
  const child = spawn(chromiumPath(), [...FLAGS, "--remote-debugging-port=0", `--user-data-dir=${profile}`, "about:blank"], { stdio: ["ignore", "ignore", "pipe"] });
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const stop = async (): Promise<void> => {
    await within("the browser's end", gone).catch(() => child.kill("SIGKILL"));
    rmSync(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  };
  try {
    const address = await within("the browser", new Promise<string>((resolve, reject) => {
      let out = "";
      child.stderr.setEncoding("utf8").on("data", (d: string) => {
        out += d;
        const m = /listening on (ws:\S+)/.exec(out);
        if (m) resolve(m[1]!);
      });
      child.once("error", reject);
      child.once("exit", () => reject(new Error(`the browser ended:\n${out}`)));
    }));
    const browser = await chromium.connectOverCDP(address, { noDefaults: true });
    return {
      browser,
      async stop() {
        // Browser.close of Playwright only lets go of a browser that it has not started.
        const session = await browser.newBrowserCDPSession();
        await session.send("Browser.close").catch(() => undefined); // the answer may not make it
        await stop();
      },
    };
  } catch (e) {
    child.kill("SIGTERM");
    await stop();
    throw e;
  }
}

interface Watched {
  page: Page;
  said: string[];
  wrong: string[];
}

/** One test's stage. */
export class Scene {
  private readonly stops: Array<() => Promise<void>> = [];
  private readonly pages: Watched[] = [];
  private readonly expected: RegExp[] = [];

  /** Has something stopped at the end; the last one first. */
  async keep<T extends { stop(): Promise<void> }>(started: Promise<T>): Promise<T> {
    const x = await started;
    this.stops.push(() => x.stop());
    return x;
  }

  /** Opens a page in a context of its own, as another person would. prepare sees it before it loads anything. */
  async page(device: Device, prepare?: (c: BrowserContext) => Promise<unknown>): Promise<Page> {
    const context = await (await browser()).newContext({
      viewport: { width: device.width, height: device.height }, hasTouch: device.touch, isMobile: device.touch,
      deviceScaleFactor: device.touch ? 2 : 1, colorScheme: "light", locale: "en-GB",
    });
    this.stops.push(() => context.close());
    await prepare?.(context);
    return this.watch(await context.newPage());
  }

  /** Opens a page of a browser whose tabs hide each other, and another tab. */
  async tabs(device: Device): Promise<{ page: Page; other: Page }> {
    const b = await this.keep(browserWithTabs());
    const context = b.browser.contexts()[0]!;
    const page = await this.watch(context.pages()[0] ?? (await context.newPage()));
    const other = await context.newPage();
    await page.setViewportSize({ width: device.width, height: device.height });
    await page.bringToFront();
    return { page, other };
  }

  /** What a page may complain about in this scene. */
  expect(...patterns: RegExp[]): void {
    this.expected.push(...patterns);
  }

  private async watch(page: Page): Promise<Page> {
    const w: Watched = { page, said: [], wrong: [] };
    this.pages.push(w);
    page.setDefaultTimeout(PATIENCE_MS);
    const note = (bad: boolean, text: string): void => {
      w.said.push(text);
      if (bad) w.wrong.push(text);
    };
    page.on("console", (m) => note(m.type() === "error" || m.type() === "warning", `console ${m.type()}: ${m.text()} (${m.location().url})`));
    page.on("pageerror", (e) => note(true, `fault: ${e.stack ?? e.message}`));
    page.on("crash", () => note(true, "the page crashed"));
    // A page that goes away takes its requests with it.
    page.on("requestfailed", (r) => note(r.failure()?.errorText !== "net::ERR_ABORTED", `request failed: ${r.method()} ${r.url()}: ${r.failure()?.errorText}`));
    page.on("response", (r) => note(r.status() >= 400, `answer: ${r.status()} ${r.url()}`));
    await page.addInitScript(() => {
      addEventListener("securitypolicyviolation", (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`));
    });
    return page;
  }

  /** Fails if a page complained. */
  check(): void {
    for (const w of this.pages) {
      assert.deepEqual(w.wrong.filter((text) => !this.expected.some((e) => e.test(text))), [], `what ${w.page.url()} complained about`);
    }
  }

  /** Prints what the pages said and saves how they look. */
  async report(name: string): Promise<void> {
    const dir = mkdtempSync(join(tmpdir(), "drumline-failed-"));
    for (const [i, w] of this.pages.entries()) {
      const file = join(dir, `${name.replace(/[^a-z0-9]+/gi, "-")}-${i}.png`);
      console.error(`--- page ${i}: ${w.page.url()}`);
      for (const line of w.said) console.error(`    ${line}`);
      try {
        await w.page.screenshot({ path: file, timeout: 5000, scale: "css" });
        console.error(`    picture: ${file}`);
      } catch (e) {
        console.error(`    no picture: ${e instanceof Error ? e.message : String(e)}`);
      }
    }
  }

  async end(): Promise<void> {
    const faults: unknown[] = [];
    for (const stop of this.stops.reverse()) await stop().catch((e: unknown) => faults.push(e));
    if (faults.length > 0) throw faults[0];
  }
}

/** Declares a test. */
export function scene(name: string, play: (s: Scene) => Promise<void>): void {
  test(name, { timeout: 90_000 }, async () => {
    const s = new Scene();
    try {
      await play(s);
      s.check();
    } catch (e) {
      await s.report(name);
      throw e;
    } finally {
      await s.end();
    }
  });
}

/** Saves a picture for the documentation, only when DRUMLINE_SCREENSHOTS=1: tests do not touch the tree. */
export const picturing = process.env["DRUMLINE_SCREENSHOTS"] === "1";

export async function picture(page: Page, name: string): Promise<void> {
  if (!picturing) return;
  const dir = join(root, "docs/screenshots");
  mkdirSync(dir, { recursive: true });
  await page.screenshot({ path: join(dir, `${name}.png`), scale: "css" });
}
