package arena

import "math"

// This file is what both ends may compute: a player's movement and the shape of the field; web/rules.ts repeats the figures. It uses
// float64 with each product rounded by a conversion (else some machines fuse it with the sum that follows and round once
// less), the square root, which IEEE 754 defines exactly, and a table for the circle.

// The field, in units. One unit is about a pixel on a small screen.
const (
	fieldSize     = 1000.0
	playerRadius  = 14.0
	monsterRadius = 12.0
	hz            = 60
)

// Speeds in units a second; grip is the part of the difference to the wanted velocity that one step closes.
const (
	playerSpeed = 210.0
	playerGrip  = 0.22
)

// pillar is a round thing that stops bodies and shots.
type pillar struct{ x, y, r float64 }

var pillars = [...]pillar{
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

// walk moves a player by one step. dx and dy are the stick, 127 is full; a stick pushed beyond the unit circle (two keys at
// once) counts as full.
func walk(b *Body, dx, dy int8) {
	x, y := float64(dx)/127, float64(dy)/127
	if l := length(x, y); l > 1 {
		x, y = x/l, y/l
	}
	glide(b, float64(x*playerSpeed), float64(y*playerSpeed), playerGrip, playerRadius)
}

// glide moves a body of radius r by one step: its velocity nears (wx, wy), and what is solid stops it.
func glide(b *Body, wx, wy, grip, r float64) {
	b.VX += float64((wx - b.VX) * grip)
	b.VY += float64((wy - b.VY) * grip)
	b.X += b.VX / hz
	b.Y += b.VY / hz
	confine(b, r)
}

// confine puts a body of radius r beside what is solid and takes the velocity that points into it.
func confine(b *Body, r float64) {
	for i := range pillars {
		p := &pillars[i]
		dx, dy := b.X-p.x, b.Y-p.y
		gap := p.r + r
		if dx >= gap || dx <= -gap || dy >= gap || dy <= -gap {
			continue
		}
		d := length(dx, dy)
		if d >= gap {
			continue
		}
		nx, ny := 1.0, 0.0 // in its very middle any way out is as good
		if d > 1e-6 {
			nx, ny = dx/d, dy/d
		}
		b.X = p.x + float64(nx*gap)
		b.Y = p.y + float64(ny*gap)
		if into := float64(b.VX*nx) + float64(b.VY*ny); into < 0 {
			b.VX -= float64(nx * into)
			b.VY -= float64(ny * into)
		}
	}
	if b.X < r {
		b.X, b.VX = r, max(b.VX, 0)
	} else if b.X > fieldSize-r {
		b.X, b.VX = fieldSize-r, min(b.VX, 0)
	}
	if b.Y < r {
		b.Y, b.VY = r, max(b.VY, 0)
	} else if b.Y > fieldSize-r {
		b.Y, b.VY = fieldSize-r, min(b.VY, 0)
	}
}

// length is the length of a vector. math.Hypot is not used: some machines have their own.
func length(x, y float64) float64 {
	return math.Sqrt(float64(x*x) + float64(y*y))
}

// A turn has 65,536 steps of aim and 4,096 in the table; 0 points right, a quarter of a turn down.
const (
	aimSteps   = 1 << 16
	tableSteps = 1 << 12
	tableOne   = 1 << 14

	tableAngle = 2 * math.Pi / tableSteps
	aimAngle   = 2 * math.Pi / aimSteps
)

// circle holds the cosine of each step of the table, times tableOne. Rounded to whole numbers it is the same on every
// machine, whatever the last bit of its math.Cos is; a test holds its hash.
var circle = func() (t [tableSteps]int16) {
	for i := range t {
		t[i] = int16(math.Round(float64(math.Cos(float64(float64(i)*tableAngle)) * tableOne)))
	}
	return t
}()

// direction is the unit vector (to 1/16,384) of an aim.
func direction(aim uint16) (x, y float64) {
	i := int(aim) >> 4
	return unit(circle[i]), unit(circle[(i-tableSteps/4)&(tableSteps-1)])
}

// unit is a table entry as a part of one. A compiler makes a product of a quotient by a power of two; hence the conversion,
// though that product is exact.
func unit(v int16) float64 { return float64(float64(v) / tableOne) }

// radians is an aim as the angle that clients get.
func radians(aim uint16) float64 { return float64(float64(aim) * aimAngle) }
