package traffic

import (
	"math"
	"math/rand/v2"
)

// The streets, in metres.
const (
	worldSize = 900.0
	block     = 90.0 // from one street's axis to the next
	crossing  = 9.0  // from a crossing's middle to where its arcs begin
	laneOff   = 2.5  // from a street's axis to the middle of a lane; traffic keeps right
	kerbOff   = 5.2  // … of a parked car
	paveOff   = 7.0  // … of a pavement
	wayLen    = block - 2*crossing
)

// city is a square grid of streets with crossings (i, j), i along x and j along z, both 0 to blocks.
type city struct {
	blocks uint8
	origin float64 // axis of the first street
}

func newCity(spread bool) city {
	c := city{blocks: 5}
	if spread {
		c.blocks = 9
	}
	c.origin = (worldSize - block*float64(c.blocks)) / 2
	return c
}

// axis is where street i runs.
func (c city) axis(i uint8) float64 { return c.origin + block*float64(i) }

// dir is a quarter turn: 0 along x, 1 along z, and back. Yaw is counted the same way, so dir+1 is to the left.
type dir uint8

var dirX, dirZ = [4]float64{1, 0, -1, 0}, [4]float64{0, 1, 0, -1}

func (d dir) turn(by uint8) dir { return (d + dir(by)) & 3 }
func (d dir) yaw() float64      { return wrap(float64(d) * (math.Pi / 2)) }

// next is the crossing that follows (i, j) in a direction; false: the city ends there.
func (c city) next(i, j uint8, d dir) (uint8, uint8, bool) {
	i, j = i+uint8(int8(dirX[d])), j+uint8(int8(dirZ[d])) // below 0 they wrap to far above blocks
	return i, j, i <= c.blocks && j <= c.blocks
}

// Turns at a crossing, in quarters to the left.
const (
	ahead = 0
	left  = 1
	right = 3
)

// Route is where a car is on its way: on the straight before crossing (I, J), or inside of it.
type Route struct {
	I, J   uint8
	Dir    uint8 // dir in which it comes to the crossing
	Turn   uint8 // what it does there
	Inside bool
	S      float64 // metres on the straight, or inside
}

// radius is that of the arc inside the crossing, 0 for a straight one.
func (r *Route) radius() float64 {
	switch r.Turn {
	case left:
		return crossing + laneOff
	case right:
		return crossing - laneOff
	}
	return 0
}

// length is that of the piece of way that the car is on.
func (r *Route) length() float64 {
	switch {
	case !r.Inside:
		return wayLen
	case r.Turn == ahead:
		return 2 * crossing
	}
	return r.radius() * math.Pi / 2
}

// at is the place, the direction of the way there, and its curvature, positive to the left.
func (r *Route) at(c city) (x, z, yaw, curve float64) {
	d := dir(r.Dir)
	x, z, yaw = c.axis(r.I), c.axis(r.J), d.yaw()
	along, aside := -crossing-wayLen+r.S, -laneOff // ahead and to the left of the crossing
	if r.Inside {
		along = -crossing + r.S
		if rad := r.radius(); rad > 0 {
			a, side := r.S/rad, 1.0
			if r.Turn == right {
				side = -1
			}
			along = -crossing + rad*math.Sin(a)
			aside += side * rad * (1 - math.Cos(a))
			yaw, curve = wrap(yaw+side*a), side/rad
		}
	}
	l := d.turn(left)
	return x + dirX[d]*along + dirX[l]*aside, z + dirZ[d]*along + dirZ[l]*aside, yaw, curve
}

// advance goes on by ds and reports whether a new straight has begun.
func (r *Route) advance(c city, rng *rand.Rand, ds float64) bool {
	r.S += ds
	if r.S < r.length() {
		return false
	}
	r.S -= r.length()
	if !r.Inside {
		r.Inside = true
		return false
	}
	r.Inside = false
	d := dir(r.Dir).turn(r.Turn)
	r.Dir = uint8(d)
	r.I, r.J, _ = c.next(r.I, r.J, d) // there is one: the turn was chosen so
	r.choose(c, rng)
	return true
}

// choose picks what to do at the crossing ahead: half go straight on.
func (r *Route) choose(c city, rng *rand.Rand) {
	turns := [4]uint8{ahead, left, right, ahead}
	k := rng.IntN(4)
	for n := range 4 { // in a corner one of them is left
		r.Turn = turns[(k+n)&3]
		if _, _, ok := c.next(r.I, r.J, dir(r.Dir).turn(r.Turn)); ok {
			return
		}
	}
}

// anyRoute is a random place on a straight.
func (c city) anyRoute(rng *rand.Rand) (r Route) {
	for {
		d := dir(rng.IntN(4))
		i, j := uint8(rng.IntN(int(c.blocks)+1)), uint8(rng.IntN(int(c.blocks)+1))
		if ni, nj, ok := c.next(i, j, d); ok {
			r = Route{I: ni, J: nj, Dir: uint8(d), S: rng.Float64() * wayLen}
			r.choose(c, rng)
			return r
		}
	}
}

// Corner is a corner of a crossing where pavements meet: SX and SZ are -1 or 1.
type Corner struct {
	I, J   uint8
	SX, SZ int8
}

func (c city) anyCorner(rng *rand.Rand) Corner {
	k := rng.IntN(4)
	return Corner{uint8(rng.IntN(int(c.blocks) + 1)), uint8(rng.IntN(int(c.blocks) + 1)), int8(k&1)*2 - 1, int8(k&2) - 1}
}

// at is the corner's place for somebody who keeps off metres from the middle of the pavement.
func (p Corner) at(c city, off float64) (x, z float64) {
	w := paveOff + off
	return c.axis(p.I) + w*float64(p.SX), c.axis(p.J) + w*float64(p.SZ)
}

// next is another corner to walk to: along a block or, less often, across a street. It is not from, which one came from.
func (p Corner) next(c city, rng *rand.Rand, from Corner) Corner {
	for {
		q := p
		switch rng.IntN(6) {
		case 0, 1:
			q.I, q.SX = uint8(int8(p.I)+p.SX), -p.SX
		case 2, 3:
			q.J, q.SZ = uint8(int8(p.J)+p.SZ), -p.SZ
		case 4:
			q.SX = -p.SX
		case 5:
			q.SZ = -p.SZ
		}
		if q != from && q.I <= c.blocks && q.J <= c.blocks {
			return q
		}
	}
}

// offStreet is the distance from the nearest street's axis; what is within a crossing is near two.
func (c city) offStreet(x, z float64) float64 {
	near := func(u float64) float64 {
		k := math.Round((u - c.origin) / block)
		return math.Abs(u - c.origin - block*min(max(k, 0), float64(c.blocks)))
	}
	return min(near(x), near(z))
}

// wrap brings an angle to -π … π.
func wrap(a float64) float64 {
	for a > math.Pi {
		a -= 2 * math.Pi
	}
	for a < -math.Pi {
		a += 2 * math.Pi
	}
	return a
}

// toward is v brought nearer to want by at most step.
func toward(v, want, step float64) float64 { return v + clamp(want-v, step) }

// clamp brings v to -most … most.
func clamp(v, most float64) float64 { return min(max(v, -most), most) }
