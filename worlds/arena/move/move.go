// Package move is what both ends of an arena compute: a player's movement and the shape of the field.
//
// The server runs it, pages run its twin in web/move.ts or this very package as WebAssembly (rulewasm), and testdata/move.json
// holds walks that all of them reproduce to the last bit. For that it uses float64 with each product rounded by a conversion (else some
// machines fuse it with the sum that follows and round once less), and the square root, which IEEE 754 defines exactly.
//
// It imports nothing of the engine, so that a page need not load any of it, and keeps no state.
package move

import "math"

// The field, in units. One unit is about a pixel on a small screen.
const (
	FieldSize    = 1000.0
	PlayerRadius = 14.0
	// Hz is the number of steps a second.
	Hz = 60
)

// Speeds in units a second; the grip is the part of the difference to the wanted velocity that one step closes.
const (
	PlayerSpeed = 210.0
	PlayerGrip  = 0.22
)

// Pillar is a round thing that stops bodies and shots.
type Pillar struct{ X, Y, R float64 }

// Pillars are all that there are.
var Pillars = [...]Pillar{
	{500, 500, 46},
	{270, 250, 34},
	{730, 250, 34},
	{270, 750, 34},
	{730, 750, 34},
}

// Body is what moves. Positions are in units from the field's upper left corner, y downwards; velocities in units a second.
type Body struct {
	X  float64 `drumline:"q=0.1,range=0:1000,move=VX"`
	Y  float64 `drumline:"q=0.1,range=0:1000,move=VY"`
	VX float64 `drumline:"q=1,range=-300:300"`
	VY float64 `drumline:"q=1,range=-300:300"`
}

// Walk moves a player by one step. dx and dy are the stick, 127 is full; a stick pushed beyond the unit circle (two keys at
// once) counts as full.
func Walk(b *Body, dx, dy int8) {
	x, y := float64(dx)/127, float64(dy)/127
	if l := Length(x, y); l > 1 {
		x, y = x/l, y/l
	}
	Glide(b, float64(x*PlayerSpeed), float64(y*PlayerSpeed), PlayerGrip, PlayerRadius)
}

// Glide moves a body of radius r by one step: its velocity nears (wx, wy), and what is solid stops it.
func Glide(b *Body, wx, wy, grip, r float64) {
	b.VX += float64((wx - b.VX) * grip)
	b.VY += float64((wy - b.VY) * grip)
	b.X += b.VX / Hz
	b.Y += b.VY / Hz
	Confine(b, r)
}

// Confine puts a body of radius r beside what is solid and takes the velocity that points into it.
func Confine(b *Body, r float64) {
	for i := range Pillars {
		p := &Pillars[i]
		dx, dy := b.X-p.X, b.Y-p.Y
		gap := p.R + r
		if dx >= gap || dx <= -gap || dy >= gap || dy <= -gap {
			continue
		}
		d := Length(dx, dy)
		if d >= gap {
			continue
		}
		nx, ny := 1.0, 0.0 // in its very middle any way out is as good
		if d > 1e-6 {
			nx, ny = dx/d, dy/d
		}
		b.X = p.X + float64(nx*gap)
		b.Y = p.Y + float64(ny*gap)
		if into := float64(b.VX*nx) + float64(b.VY*ny); into < 0 {
			b.VX -= float64(nx * into)
			b.VY -= float64(ny * into)
		}
	}
	if b.X < r {
		b.X, b.VX = r, max(b.VX, 0)
	} else if b.X > FieldSize-r {
		b.X, b.VX = FieldSize-r, min(b.VX, 0)
	}
	if b.Y < r {
		b.Y, b.VY = r, max(b.VY, 0)
	} else if b.Y > FieldSize-r {
		b.Y, b.VY = FieldSize-r, min(b.VY, 0)
	}
}

// Length is the length of a vector. math.Hypot is not used: some machines have their own.
func Length(x, y float64) float64 {
	return math.Sqrt(float64(x*x) + float64(y*y))
}
