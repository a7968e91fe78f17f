package motion

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/drumline-engine/drumline/wire"
)

// The twin of web/src/timeline.ts, as far as it decides where things are shown: no texts and no events. Whoever changes one changes
// the other; wire/testdata/motion.json holds both to it. Ticks are float64, as they are there.

const (
	// samples are kept of an entity: four times as many as there, for looking back at what was shown.
	samples = 128
	// Past the newest packet motion runs on for runMs, then fades out over fadeMs.
	runMs  = 100
	fadeMs = 150
	// blendMs is how fast what was shown comes to what it should have been, near and far: after five times this it is there. Far away nobody
	// sees the difference, but each jolt.
	blendMs    = 48
	blendFarMs = 80
	// farMs is within what time something outside of the innermost ring is told of when it strays.
	farMs = 200
)

type mode uint8

const (
	step mode = iota
	linear
	angle
)

// field is what of a schema's field a timeline needs.
type field struct {
	Name  string  `json:"name"`
	Kind  string  `json:"kind"`
	Bits  uint    `json:"bits"`
	Min   float64 `json:"min"`
	Q     float64 `json:"q"`
	Pose  bool    `json:"pose,omitempty"`
	Place bool    `json:"place,omitempty"`
	LOD   []int   `json:"lod,omitempty"`
	Ahead *ahead  `json:"ahead,omitempty"`
}

type ahead struct {
	By    int  `json:"by"`
	By2   int  `json:"by2,omitempty"`
	Angle *int `json:"angle,omitempty"`
	Side  int  `json:"side,omitempty"`
	Mul   int  `json:"mul"`
	Shift int  `json:"shift"`
}

type typ struct {
	Name   string  `json:"name"`
	Fields []field `json:"fields"`
}

// span is how far apart its values may be.
func (f *field) span() float64 { return (math.Pow(2, float64(f.Bits)) - 1) * f.Q }

// kind is an entity type with how it moves.
type kind struct {
	typ
	number    int
	mode      []mode
	leap      []float64
	group     []uint32
	by, by2   []int
	turn      []int
	side      []int
	per, per2 []float64
	order     []int
}

func newKind(t typ) (*kind, error) {
	n := len(t.Fields)
	if n > 32 {
		return nil, fmt.Errorf("motion: type %q has %d fields", t.Name, n)
	}
	k := &kind{typ: t, mode: make([]mode, n), leap: make([]float64, n), group: make([]uint32, n), by: make([]int, n), by2: make([]int, n),
		turn: make([]int, n), side: make([]int, n), per: make([]float64, n), per2: make([]float64, n)}
	pose := slices.ContainsFunc(t.Fields, func(f field) bool { return f.Pose })
	for i, f := range t.Fields {
		switch f.Kind {
		case "float":
			k.mode[i] = linear
		case "angle":
			k.mode[i] = angle
		}
		k.leap[i] = f.span() / 8
		for j, g := range t.Fields {
			if groupOf(g.Name) == groupOf(f.Name) {
				k.group[i] |= 1 << j
			}
		}
		k.by[i], k.turn[i] = -1, -1
		a := f.Ahead
		if a == nil || pose && !f.Pose {
			continue
		}
		if a.By < 0 || a.By >= n || a.By2 < 0 || a.By2 >= n || a.Angle != nil && (*a.Angle < 0 || *a.Angle >= n) {
			return nil, fmt.Errorf("motion: type %q: field %q follows one that is not there", t.Name, f.Name)
		}
		k.by[i], k.by2[i], k.side[i] = a.By, a.By2, a.Side
		if a.Angle != nil {
			k.turn[i] = *a.Angle
		}
		// A rate counts 16ths of its quantum, and two of them are added.
		gain := 32 * float64(a.Mul) * f.Q / math.Pow(2, float64(a.Shift))
		k.per[i], k.per2[i] = gain/t.Fields[a.By].Q, gain/t.Fields[a.By2].Q
		k.order = append(k.order, i)
	}
	slices.SortStableFunc(k.order, func(i, j int) int { return rank(k.mode[i]) - rank(k.mode[j]) })
	return k, nil
}

func rank(m mode) int {
	if m == angle {
		return 0
	}
	return 1
}

func groupOf(name string) string {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i]
	}
	if name == "x" || name == "y" || name == "z" {
		return ""
	}
	return name
}

// speed is how fast field i goes on in a tick, by the numbers v.
func (k *kind) speed(i int, v []float64) float64 {
	a := v[k.by[i]] * k.per[i]
	turn := k.turn[i]
	if turn < 0 {
		return a
	}
	b := v[k.by2[i]] * k.per2[i]
	s, c := math.Sincos(v[turn])
	if k.side[i] == 0 {
		return float64(c*a) - float64(s*b)
	}
	return float64(s*a) + float64(c*b)
}

// entity is one as it is shown.
type entity struct {
	kind    *kind
	id      uint32
	numbers []float64

	ticks   [samples]float64
	samples []float64
	leaps   [samples]uint32
	head    int
	count   int
	enter   float64
	leave   float64
	shown   bool
	running bool
	strayed bool      // a sample came that changes what was shown already
	offset  []float64 // from what it should be to what is shown
	drift   []float64 // how that changes, in a ms
	prev    []float64 // what was shown a frame before
	fading  bool
	seen    int // frames
	ring    int

	path *path // what is measured of it; nil: nothing
}

func (e *entity) at(sample int) []float64 {
	n := len(e.numbers)
	return e.samples[sample*n : (sample+1)*n]
}

// timeline turns samples into what is shown.
type timeline struct {
	kinds    []*kind
	entities []*entity // shown
	byID     map[uint32]*entity

	clock      *renderClock
	tickMs     float64
	entering   []*entity
	leaving    []*entity
	newest     float64
	before     float64
	lastTick   float64
	lastNewest float64
	lastNow    float64
	lastDt     float64
	scratch    []float64
	past       []float64

	corrections uint64 // errors left behind by running on, that were blended out
}

// parseKinds reads a snap feed's schema.
func parseKinds(schema json.RawMessage) (kinds []*kind, hz int, err error) {
	var s struct {
		Hz    int   `json:"hz"`
		Types []typ `json:"types"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, 0, fmt.Errorf("motion: schema: %w", err)
	}
	for i, t := range s.Types {
		k, err := newKind(t)
		if err != nil {
			return nil, 0, err
		}
		k.number = i
		kinds = append(kinds, k)
	}
	return kinds, s.Hz, nil
}

func newTimeline(kinds []*kind, c *renderClock, tickMs float64) *timeline {
	most := 0
	for _, k := range kinds {
		most = max(most, len(k.Fields))
	}
	return &timeline{kinds: kinds, byID: map[uint32]*entity{}, clock: c, tickMs: tickMs, newest: -1, before: -1, lastTick: math.Inf(-1),
		lastNewest: -1, lastNow: math.Inf(-1), scratch: make([]float64, most), past: make([]float64, most)}
}

// What the decoder brings, in any order per packet.

func (l *timeline) packet(tick float64) {
	if tick > l.newest {
		l.before, l.newest = l.newest, tick
	}
}

func (l *timeline) enter(k int, id uint32, numbers []float64, tick float64, ring int) {
	if k < 0 || k >= len(l.kinds) {
		return
	}
	if old := l.byID[id]; old != nil && old.kind == l.kinds[k] {
		// A keyframe takes everything away and brings it again, in two packets if it is large.
		if i := slices.Index(l.leaving, old); i >= 0 {
			l.leaving = slices.Delete(l.leaving, i, i+1)
		}
		old.leave = math.Inf(1)
		l.sample(old, numbers, tick, ring)
		return
	}
	n := len(l.kinds[k].Fields)
	e := &entity{kind: l.kinds[k], id: id, numbers: make([]float64, n), prev: make([]float64, n), samples: make([]float64, samples*n), head: -1, enter: tick, leave: math.Inf(1), ring: ring}
	l.byID[id] = e
	l.push(e, numbers, tick, false)
	l.entering = append(l.entering, e)
}

func (l *timeline) update(id uint32, numbers []float64, tick float64, ring int) {
	if e := l.byID[id]; e != nil {
		l.sample(e, numbers, tick, ring)
	}
}

func (l *timeline) leave(id uint32, tick float64) {
	e := l.byID[id]
	if e == nil || !math.IsInf(e.leave, 1) {
		return
	}
	e.leave = tick
	l.leaving = append(l.leaving, e)
}

func (l *timeline) sample(e *entity, numbers []float64, tick float64, ring int) {
	e.ring = ring
	last := e.ticks[e.head]
	if tick < last {
		return
	}
	before := l.before
	if tick > l.newest {
		before = l.newest
	}
	if before > last && before < tick {
		// It was not in the packets between. In the innermost ring it went on as expected until the last of them. Farther out it may
		// have strayed from that before, though not long before.
		from := before
		if ring != 0 {
			from = min(before, tick-farMs/l.tickMs)
		}
		if from > last {
			out := l.scratch[:len(e.numbers)]
			l.extrapolate(e, e.head, from-last, out)
			l.push(e, out, from, false)
		}
	}
	if last < l.lastTick && l.tickMs > 0 {
		e.strayed = true
	}
	l.push(e, numbers, tick, tick == last)
}

func (l *timeline) push(e *entity, numbers []float64, tick float64, replace bool) {
	prev := e.head
	if !replace {
		e.head = (e.head + 1) % samples
		e.count = min(e.count+1, samples)
	}
	at := e.at(e.head)
	k := e.kind
	var leap uint32
	for i := range at {
		v := numbers[i]
		if k.mode[i] == angle {
			v = turn(v)
		}
		if !replace && prev >= 0 && k.mode[i] == linear && math.Abs(v-e.at(prev)[i]) > k.leap[i] {
			leap |= k.group[i]
		}
		at[i] = v
	}
	if !replace && prev >= 0 {
		l.settle(e, prev, leap, tick-e.ticks[prev])
	}
	e.ticks[e.head] = tick
	if !replace {
		e.leaps[e.head] = leap
	}
}

// settle takes the rounding out of the newest sample. What was sent is anywhere within half a step of what was told; of those places it takes
// the nearest to where the rates lead from the sample before. Else each sample would be a small jolt, and far away a large one.
func (l *timeline) settle(e *entity, prev int, leap uint32, ticks float64) {
	k := e.kind
	a, b := e.at(prev), e.at(e.head)
	dt := min(ticks, wire.MaxAhead)
	for _, i := range k.order {
		if k.mode[i] == step || leap&(1<<i) != 0 {
			continue
		}
		f := &k.Fields[i]
		half := f.Q / 2
		if e.ring < len(f.LOD) {
			half *= float64(int(1) << f.LOD[e.ring])
		}
		d := a[i] + (k.speed(i, a)+k.speed(i, b))/2*dt - b[i]
		if k.mode[i] == angle {
			d = turn(d)
			b[i] = turn(b[i] + max(-half, min(half, d)))
			continue
		}
		b[i] += max(-half, min(half, d))
	}
}

// advance moves to local time now: brings every shown entity up to date. It returns the tick shown.
func (l *timeline) advance(now float64) float64 {
	tick := l.clock.advance(now)
	dt := now - l.lastNow
	l.lastNow = now
	jumped := l.clock.jumped

	n := 0
	for _, e := range l.entering {
		if e.enter > tick && !(e.leave <= tick) {
			l.entering[n] = e
			n++
			continue
		}
		// Whatever came and went in a pause was never there.
		if e.leave <= tick {
			continue
		}
		e.shown = true
		l.entities = append(l.entities, e)
		l.evaluate(e, tick)
	}
	l.entering = l.entering[:n]

	for _, e := range l.entities {
		if (e.strayed || e.running && l.newest != l.lastNewest) && e.seen > 0 && !jumped {
			l.startFade(e)
		}
		e.strayed = false
		if jumped {
			e.fading = false
		}
		copy(e.prev, e.numbers)
		e.seen++
		l.evaluate(e, tick)
		if e.fading {
			l.fade(e, dt)
		}
	}
	l.lastTick, l.lastNewest, l.lastDt = tick, l.newest, dt

	n = 0
	for _, e := range l.leaving {
		if e.leave > tick {
			l.leaving[n] = e
			n++
			continue
		}
		if l.byID[e.id] == e {
			delete(l.byID, e.id)
		}
		if e.shown {
			e.shown = false
			i := slices.Index(l.entities, e)
			l.entities = slices.Delete(l.entities, i, i+1)
		}
	}
	l.leaving = l.leaving[:n]
	return tick
}

// fade lets what is left of an error decay like a critically damped spring, which starts with the speed that it has and stops
// without a jolt.
func (l *timeline) fade(e *entity, dt float64) {
	w := 1.0 / blendMs
	if e.ring != 0 {
		w = 1.0 / blendFarMs
	}
	decay := math.Exp(-w * dt)
	left := false
	for i, d := range e.offset {
		if d == 0 && e.drift[i] == 0 {
			continue
		}
		v := e.drift[i]
		k := v + w*d
		d = (d + k*dt) * decay
		v = (v - w*k*dt) * decay
		if small := e.kind.Fields[i].Q / 16; math.Abs(d) < small && math.Abs(v) < small*w {
			d, v = 0, 0
		} else {
			left = true
		}
		e.offset[i], e.drift[i] = d, v
		e.numbers[i] += d
		if e.kind.mode[i] == angle {
			e.numbers[i] = turn(e.numbers[i])
		}
	}
	e.fading = left
}

// startFade: what was shown goes on from where it is, as fast as it does, and comes to what it should be.
func (l *timeline) startFade(e *entity) {
	k := e.kind
	n := len(e.numbers)
	if e.offset == nil {
		e.offset, e.drift = make([]float64, n), make([]float64, n)
	}
	shown, now := l.scratch[:n], e.numbers
	copy(shown, now)
	l.evaluate(e, l.lastTick-l.lastDt/l.tickMs)
	copy(e.drift, now)
	l.evaluate(e, l.lastTick)
	leap := false
	for i := range n {
		d := shown[i] - now[i]
		way := (shown[i] - e.prev[i]) - (now[i] - e.drift[i])
		switch k.mode[i] {
		case linear:
			leap = leap || math.Abs(d) > k.leap[i]
		case angle:
			d, way = turn(d), turn(way)
		default:
			d, way = 0, 0
		}
		e.offset[i] = d
		if e.drift[i] = 0; l.lastDt > 0 && e.seen > 1 {
			e.drift[i] = way / l.lastDt
		}
	}
	e.fading = !leap
	l.corrections++
}

func (l *timeline) evaluate(e *entity, tick float64) {
	k := e.kind
	b := e.head
	over := tick - l.newest
	e.running = over > 0
	if tick >= e.ticks[b] {
		if over > 0 {
			run := runOn(over * l.tickMs)
			l.extrapolate(e, b, l.newest-e.ticks[b]+run/l.tickMs, e.numbers)
			if e.ticks[b] == l.newest {
				l.carry(e, run)
			}
		} else {
			l.extrapolate(e, b, tick-e.ticks[b], e.numbers)
		}
		return
	}
	a := b
	for left := e.count - 1; left > 0 && e.ticks[a] > tick; left-- {
		b = a
		a = (a + samples - 1) % samples
	}
	ta, tb := e.ticks[a], e.ticks[b]
	hold := tick <= ta || tb <= ta
	f := 0.0
	if !hold {
		f = (tick - ta) / (tb - ta)
	}
	pa, pb := e.at(a), e.at(b)
	for i, va := range pa {
		d := pb[i] - va
		follows := k.by[i] >= 0
		if hold || e.leaps[b]&(1<<i) != 0 || k.mode[i] == step && !follows {
			e.numbers[i] = va
			continue
		}
		p, q := 0.0, 0.0
		if follows {
			p, q = k.speed(i, pa)*(tb-ta), k.speed(i, pb)*(tb-ta)
		}
		if k.mode[i] == angle {
			// It may have turned round more than once.
			about := (p + q) / 2
			by := about + turn(d-about)
			if follows {
				e.numbers[i] = turn(va + hermite(f, by, p, q))
			} else {
				e.numbers[i] = turn(va + by*f)
			}
			continue
		}
		v := va + d*f
		if follows {
			v = va + hermite(f, d, p, q)
		}
		if k.mode[i] == step {
			v = math.Floor(v + 0.5)
		}
		e.numbers[i] = v
	}
}

// known is what an entity was at a tick, by all samples that have come since; false: it teleported then, or they do not tell. What
// is shown stays as it is. It is valid until the next call.
func (l *timeline) known(e *entity, tick float64) ([]float64, bool) {
	oldest := (e.head + samples - e.count + 1) % samples
	if tick < e.ticks[oldest] || tick > l.newest {
		return nil, false
	}
	for b := e.head; e.ticks[b] > tick; b = (b + samples - 1) % samples {
		if e.leaps[b] != 0 && e.ticks[(b+samples-1)%samples] <= tick {
			return nil, false
		}
	}
	shown, running := e.numbers, e.running
	e.numbers = l.past[:len(shown)]
	l.evaluate(e, tick)
	e.numbers, e.running = shown, running
	return l.past[:len(shown)], true
}

// clear forgets everything.
func (l *timeline) clear() {
	l.entering, l.leaving, l.entities = l.entering[:0], l.leaving[:0], l.entities[:0]
	clear(l.byID)
	l.newest, l.before = -1, -1
	l.lastTick = math.Inf(-1)
}

// extrapolate writes to out what an entity is some ticks after a sample if it goes on as expected.
func (l *timeline) extrapolate(e *entity, sample int, ticks float64, out []float64) {
	k := e.kind
	s := e.at(sample)
	copy(out, s)
	dt := min(ticks, wire.MaxAhead)
	for _, i := range k.order {
		v := out[i] + (k.speed(i, s)+k.speed(i, out))/2*dt
		switch k.mode[i] {
		case angle:
			v = turn(v)
		case step:
			v = math.Floor(v + 0.5)
		}
		out[i] = v
	}
}

// runOn is for how many ms of motion something runs on, ms past the newest packet.
func runOn(ms float64) float64 {
	fade := min(fadeMs, max(0, ms-runMs))
	return min(ms, runMs) + fade - fade*fade/(2*fadeMs)
}

// carry moves on what nothing is extrapolated along, by the way from the sample before.
func (l *timeline) carry(e *entity, ms float64) {
	b := e.head
	a := (b + samples - 1) % samples
	span := (e.ticks[b] - e.ticks[a]) * l.tickMs
	if e.count < 2 || span <= 0 {
		return
	}
	k := e.kind
	for i := range e.numbers {
		if k.mode[i] != linear || k.by[i] >= 0 || e.leaps[b]&(1<<i) != 0 {
			continue
		}
		e.numbers[i] += (e.at(b)[i] - e.at(a)[i]) * ms / span
	}
}

// hermite is the cubic from 0 to d with slopes p and q per interval.
func hermite(f, d, p, q float64) float64 {
	f2 := f * f
	f3 := f2 * f
	return (f3-2*f2+f)*p + (3*f2-2*f3)*d + (f3-f2)*q
}

// turn is an angle in -π … π.
func turn(a float64) float64 {
	if a > math.Pi {
		return a - 2*math.Pi*math.Ceil((a-math.Pi)/(2*math.Pi))
	}
	if a < -math.Pi {
		return a + 2*math.Pi*math.Ceil((-math.Pi-a)/(2*math.Pi))
	}
	return a
}
