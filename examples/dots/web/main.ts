import { keys, pointer } from "drumline/input";
import { enter } from "drumline/ui";

interface Place { x: number; y: number }
interface Dots { // or as `drumline types` writes it
  entities: { dot: Place & { coins: number; name: string }; coin: Place };
  events: {};
  input: { right: number; down: number };
}

const SIZE = 600; // of the field
const room = await enter<Dots>();
const held = keys();
document.body.style.cssText = "margin: 0; height: 100dvh; display: grid; place-items: center; background: #05080c";
const canvas = document.body.appendChild(document.createElement("canvas"));
canvas.style.touchAction = "none"; // a finger steers
const hand = pointer(canvas);
const c = canvas.getContext("2d")!;

room.frame((view) => {
  const side = Math.min(innerWidth, innerHeight) - 20;
  const scale = side / SIZE;
  if (canvas.width !== side) canvas.width = canvas.height = side;
  let right = held.x;
  let down = held.y;
  if (hand.down() && view.own) {
    // Toward the hand, slower when it is near.
    const x = hand.x / scale - view.own.x;
    const y = hand.y / scale - view.own.y;
    const far = Math.max(Math.hypot(x, y), 40);
    right = x / far;
    down = y / far;
  }
  room.input({ right: right * 127, down: down * 127 });
  c.setTransform(scale, 0, 0, scale, 0, 0);
  c.fillStyle = "#101820";
  c.fillRect(0, 0, SIZE, SIZE);
  c.font = `${13 / Math.min(scale, 1)}px system-ui`; // never tiny
  for (const coin of view.all("coin")) dot(coin.x, coin.y, 5, "#f0e442");
  for (const p of view.all("dot")) {
    dot(p.x, p.y, 11, p.own ? "#56b4e9" : "#e69f00");
    c.fillText(`${p.name}: ${p.coins}`, p.x + 14, p.y);
  }
});

function dot(x: number, y: number, r: number, colour: string): void {
  c.fillStyle = colour;
  c.beginPath();
  c.arc(x, y, r, 0, 7);
  c.fill();
}
