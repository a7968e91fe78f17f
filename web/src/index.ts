/**
 * drumline's client: joins a room, shows its entities between two snapshots, sends inputs, and comes back after a lost link.
 *
 *   import { join } from "drumline";
 *
 *   const room = await join({ world: "dots", name: "Ann" });
 *   room.frame((view) => {
 *     room.input({ dx: keys.x, dy: keys.y });
 *     for (const p of view.all("player")) draw(p.x, p.y, p.name, p.own);
 *   });
 *   room.onEvent("shot", (s) => flash(s.x, s.y));
 *
 * `drumline/ui` has the overlays for names, refusals and lost links, `drumline/input` keys, touch sticks and gamepads.
 */
export { join, Refused, Room } from "./room.ts";
export type { AnyShape, Changing, JoinOptions, Quality, RoomState, Shape, StateInfo, View } from "./room.ts";
export { decoders } from "./feeds.ts";
export type { FeedDecoder, FeedPacket } from "./feeds.ts";
export type { SocketLike } from "./env.ts";
export type { Entity } from "./timeline.ts";
export type { PredictionFigures } from "./figures.ts";
export type { PredictOptions } from "./predict.ts";
export type { Cause } from "./quality.ts";
export type { FeedInfo, Goodbye, InputField, Retry, Welcome } from "./packet.ts";
export { siteBase } from "./env.ts";
export { loadRule } from "./wasmrule.ts";
export type { WasmRule } from "./wasmrule.ts";
