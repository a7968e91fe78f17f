package arena

import (
	"math"

	"github.com/drumline-engine/drumline/worlds/arena/move"
)

// Package move is what both ends compute. Its names here:

const (
	fieldSize     = move.FieldSize
	playerRadius  = move.PlayerRadius
	monsterRadius = 12.0
	hz            = move.Hz
	playerSpeed   = move.PlayerSpeed
)

// Body is what moves.
type Body = move.Body

func walk(b *Body, dx, dy int8)              { move.Walk(b, dx, dy) }
func glide(b *Body, wx, wy, grip, r float64) { move.Glide(b, wx, wy, grip, r) }
func confine(b *Body, r float64)             { move.Confine(b, r) }
func length(x, y float64) float64            { return move.Length(x, y) }

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
