// A WebSocket for Node before 22, as far as the library uses one: for tests that give a class of their own to join. Binary messages only;
// frames of the server are whole.

import { createHash, randomBytes } from "node:crypto";
import http from "node:http";
import type { Socket } from "node:net";

const CONTINUE = 0;
const BINARY = 2;
const CLOSE = 8;
const PING = 9;
const PONG = 10;

export class NodeSocket {
  binaryType = "";
  onopen: ((e: any) => void) | null = null;
  onmessage: ((e: any) => void) | null = null;
  onclose: ((e: any) => void) | null = null;
  onerror: ((e: any) => void) | null = null;
  private socket: Socket | null = null;
  private unread: Buffer = Buffer.alloc(0);
  private code = 1006;
  private ended = false;

  constructor(url: string) {
    const key = randomBytes(16).toString("base64");
    const req = http.get(url.replace(/^ws/, "http"), {
      headers: { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key },
    });
    req.on("error", () => this.end());
    req.on("response", (res) => {
      res.resume();
      this.end();
    });
    req.on("upgrade", (res, socket, head) => {
      const want = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
      if (res.headers["sec-websocket-accept"] !== want || this.ended) {
        socket.destroy();
        this.end();
        return;
      }
      this.socket = socket;
      socket.on("error", () => this.end());
      socket.on("close", () => this.end());
      socket.on("data", (d: Buffer) => this.read(d));
      this.onopen?.({});
      this.read(head);
    });
  }

  get bufferedAmount(): number {
    return this.socket?.writableLength ?? 0;
  }

  send(data: Uint8Array): void {
    this.write(BINARY, data);
  }

  close(code = 1000): void {
    const b = Buffer.alloc(2);
    b.writeUInt16BE(code);
    this.write(CLOSE, b);
    this.socket?.end();
    this.ended ||= this.socket === null;
  }

  private end(): void {
    if (this.ended) return;
    this.ended = true;
    this.socket?.destroy();
    this.onclose?.({ code: this.code, reason: "" });
  }

  // Clients mask what they send.
  private write(kind: number, data: Uint8Array): void {
    const n = data.length;
    const head = n < 126 ? Buffer.from([0x80 | kind, 0x80 | n]) : Buffer.from([0x80 | kind, 0x80 | 126, n >> 8, n & 255]);
    const mask = randomBytes(4);
    const body = Buffer.from(data);
    for (let i = 0; i < n; i++) body[i]! ^= mask[i & 3]!;
    if (this.socket?.writable) this.socket.write(Buffer.concat([head, mask, body]));
  }

  private read(d: Buffer): void {
    this.unread = Buffer.concat([this.unread, d]);
    for (;;) {
      const b = this.unread;
      if (b.length < 2) return;
      const short = b[1]! & 127;
      const at = short < 126 ? 2 : short === 126 ? 4 : 10;
      if (b.length < at) return;
      const n = short < 126 ? short : short === 126 ? b.readUInt16BE(2) : Number(b.readBigUInt64BE(2));
      if (b.length < at + n) return;
      const kind = b[0]! & 15;
      const body = b.subarray(at, at + n);
      this.unread = b.subarray(at + n);
      if (kind === PING) this.write(PONG, body);
      else if (kind === CLOSE) {
        if (n >= 2) this.code = body.readUInt16BE(0);
        this.end();
        return;
      } else if (kind === BINARY || kind === CONTINUE) {
        if (kind === CONTINUE || (b[0]! & 128) === 0) throw new Error("a message in parts");
        this.onmessage?.({ data: body.buffer.slice(body.byteOffset, body.byteOffset + n) });
      }
    }
  }
}
