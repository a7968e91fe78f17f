import { keys } from "drumline/input";
import { enter } from "drumline/ui";

const room = await enter();
const held = keys();
const canvas = document.body.appendChild(document.createElement("canvas"));
canvas.width = canvas.height = 600;
const c = canvas.getContext("2d")!;

room.frame((view) => {
  room.input({ right: held.x * 127, down: held.y * 127 });
  c.fillStyle = "#101820";
  c.fillRect(0, 0, 600, 600);
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
