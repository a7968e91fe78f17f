package motion

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "write ../../wire/testdata/motion.json anew; web/src/clock.ts and timeline.ts must agree")

const vectorFile = "../../wire/testdata/motion.json"

// vectors is testdata/motion.json: what comes when, and what is shown then. Times are ms, ticks are of tickMs.
type vectors struct {
	TickMs float64       `json:"tickMs"`
	SendHz float64       `json:"sendHz"`
	Types  []typ         `json:"types"`
	Cases  []motionCase  `json:"cases"`
	Inputs []inputVector `json:"inputs"`
}

type motionCase struct {
	Name    string       `json:"name"`
	Ordered bool         `json:"ordered"`
	Events  []motionStep `json:"events"`
}

// motionStep is a packet if it has a tick, else a frame.
type motionStep struct {
	At      float64  `json:"at"`
	Tick    int      `json:"tick,omitempty"`
	Enters  []toldOf `json:"enters,omitempty"`
	Updates []toldOf `json:"updates,omitempty"`
	Leaves  []uint32 `json:"leaves,omitempty"`

	// Of a frame: the tick shown, how far behind the clock wants to be, what is shown, by id in the order in which things came.
	Shows float64   `json:"shows,omitempty"`
	Delay float64   `json:"delay,omitempty"`
	Shown []shownOf `json:"shown,omitempty"`
}

type toldOf struct {
	Kind    int       `json:"kind"`
	ID      uint32    `json:"id"`
	Ring    int       `json:"ring"`
	Numbers []float64 `json:"numbers"`
}

type shownOf struct {
	ID      uint32    `json:"id"`
	Numbers []float64 `json:"numbers"`
}

// inputVector is an input clock's life: what packets say, and the label of an input given right then.
type inputVector struct {
	RTTMs float64     `json:"rttMs"`
	Batch float64     `json:"batch"`
	Steps []inputStep `json:"steps"`
}

type inputStep struct {
	At     float64 `json:"at"`
	Tick   float64 `json:"tick"`
	Margin float64 `json:"margin"`
	Acked  float64 `json:"acked"`
	Label  float64 `json:"label"`
}

// vectorTypes are a body, a ball, and something that has no speed and counts. Quanta are short in binary, and so in the file.
func vectorTypes() []typ {
	turn := 2
	const angleQ = math.Pi / 2048
	body := func(side int) *ahead { return &ahead{By: 3, By2: 4, Angle: &turn, Side: side, Mul: 279620, Shift: 29} }
	along := func(by int) *ahead { return &ahead{By: by, Mul: 279620, Shift: 29} }
	f := func(name string, more field) field {
		more.Name = name
		if more.Kind == "" {
			more.Kind = "float"
		}
		if more.Q == 0 {
			more.Q = 1.0 / 64
		}
		if more.Bits == 0 {
			more.Bits = 17
		}
		return more
	}
	lod := []int{0, 0, 3, 5}
	return []typ{
		{"body", []field{f("x", field{Pose: true, Place: true, LOD: lod, Ahead: body(0)}), f("y", field{Pose: true, Place: true, LOD: lod, Ahead: body(1)}),
			f("dir", field{Kind: "angle", Bits: 12, Q: angleQ, Pose: true, Ahead: &ahead{By: 5, Mul: 11390, Shift: 21}}),
			f("go", field{Pose: true, Min: -65536}), f("slip", field{Pose: true, Min: -65536}), f("spin", field{Pose: true, Min: -65536}), f("hp", field{Kind: "uint", Bits: 8, Q: 1})}},
		{"ball", []field{f("x", field{LOD: lod, Ahead: along(2)}), f("y", field{LOD: lod, Ahead: along(3)}), f("vx", field{Min: -65536}), f("vy", field{Min: -65536})}},
		{"dot", []field{f("pos.x", field{}), f("pos.y", field{}), f("aim", field{Kind: "angle", Bits: 12, Q: angleQ}), f("fuel", field{Kind: "uint", Bits: 10, Q: 1, Ahead: &ahead{By: 4, Mul: 279620, Shift: 35}}), f("burn", field{Min: -65536})}},
	}
}

// fleck is a thing of the vectors' world.
type fleck struct {
	kind       int
	id         uint32
	ring       int
	x, y, dir  float64
	v, w, turn float64
	n          float64
	here       bool
	known      bool
}

func (k *fleck) numbers() []float64 {
	q := func(v, quantum float64) float64 { return math.Round(v/quantum) * quantum }
	bits := math.Exp2([]float64{0, 0, 3, 5}[k.ring]) / 64
	a := q(turn(k.dir), math.Pi/2048)
	switch k.kind {
	case 0:
		return []float64{q(k.x, bits), q(k.y, bits), a, q(k.v, 1.0/64), 0, q(k.turn, 1.0/64), math.Floor(k.n)}
	case 1:
		return []float64{q(k.x, bits), q(k.y, bits), q(k.v, 1.0/64), q(k.w, 1.0/64)}
	}
	return []float64{q(k.x, 1.0/64), q(k.y, 1.0/64), a, math.Floor(k.n), q(k.v, 1.0/64)}
}

// step lets a thing go on for a tick.
func (k *fleck) step(r *rand.Rand) {
	if r.IntN(30) == 0 {
		k.v, k.w, k.turn = 20*r.Float64()-5, 20*r.Float64()-10, 3*r.Float64()-1.5
	}
	switch k.kind {
	case 0:
		k.dir += k.turn / 60
		k.x, k.y = k.x+k.v*math.Cos(k.dir)/60, k.y+k.v*math.Sin(k.dir)/60
	case 1:
		k.x, k.y = k.x+k.v/60, k.y+k.w/60
	case 2:
		k.x, k.y, k.dir, k.n = k.x+k.w/60, k.y+1.0/60, k.dir+0.02, k.n+k.v/60
	}
	if k.n = k.n + 0.1; k.n > 200 {
		k.n = 0
	}
	if r.IntN(150) == 0 { // it is put elsewhere
		k.x = 900 * r.Float64()
	}
}

// makeCase lets a small world send over a bad link, and frames come at sixty a second with some left out.
func makeCase(name string, seed uint64, ordered bool, loss, jitterMs float64) motionCase {
	r := rand.New(rand.NewPCG(seed, 1))
	c := motionCase{Name: name, Ordered: ordered}
	var all []*fleck
	for i := range 6 {
		all = append(all, &fleck{kind: i % 3, id: uint32(i + 1), ring: []int{0, 0, 0, 2, 1, 0}[i], x: 300 + 100*r.Float64(), y: 500, n: 100, here: i != 4})
	}
	last := 0.0
	for t := 1; t <= 240; t++ {
		for _, k := range all {
			k.step(r)
		}
		if t == 60 || t == 150 {
			all[4].here = !all[4].here
		}
		if t%3 != 0 {
			continue
		}
		m := motionStep{Tick: t, At: float64(t)*tickMs + 40 + math.Floor(r.Float64()*jitterMs)}
		lost := r.Float64() < loss
		if lost && ordered {
			m.At, lost = m.At+resendMs, false
		}
		if ordered {
			m.At = max(m.At, last)
		}
		if lost || !ordered && m.At < last {
			continue // gone, or overtaken: nobody reads it
		}
		if t > 180 && t < 200 {
			continue // a hold-up
		}
		last = m.At
		for i, k := range all {
			told := toldOf{k.kind, k.id, k.ring, nil}
			switch {
			case k.here && !k.known:
				told.Numbers, k.known = k.numbers(), true
				m.Enters = append(m.Enters, told)
			case !k.here && k.known:
				k.known = false
				m.Leaves = append(m.Leaves, k.id)
			case k.known && (k.ring == 0 && r.IntN(4) > 0 || k.ring > 0 && (t/3+i)%4 == 0):
				told.Numbers = k.numbers()
				m.Updates = append(m.Updates, told)
			}
		}
		c.Events = append(c.Events, m)
	}
	for i := range 240 {
		at := 100 + float64(i)*1000/60
		if i == 100 || i > 120 && i < 126 {
			continue // the page was busy
		}
		c.Events = append(c.Events, motionStep{At: math.Round(at*8) / 8})
	}
	slices.SortStableFunc(c.Events, func(a, b motionStep) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return b.Tick - a.Tick
	})
	return c
}

// play runs a case; shown is called for each frame, with the entities by id.
func (v *vectors) play(t *testing.T, c *motionCase, shown func(s *motionStep, tick, delay float64, byID []*entity)) {
	schema, err := json.Marshal(map[string]any{"hz": 60, "types": v.Types})
	if err != nil {
		t.Fatal(err)
	}
	kinds, _, err := parseKinds(schema)
	if err != nil {
		t.Fatal(err)
	}
	a := &arrivals{tickMs: v.TickMs}
	clock := newRenderClock(a, v.SendHz, c.Ordered)
	l := newTimeline(kinds, clock, v.TickMs)
	for i := range c.Events {
		s := &c.Events[i]
		if s.Tick == 0 {
			tick := l.advance(s.At)
			byID := slices.Clone(l.entities)
			slices.SortFunc(byID, func(a, b *entity) int { return int(a.id) - int(b.id) })
			shown(s, tick, clock.delay, byID)
			continue
		}
		tick := float64(s.Tick)
		for _, e := range s.Enters {
			l.enter(e.Kind, e.ID, e.Numbers, tick, e.Ring)
		}
		for _, e := range s.Updates {
			l.update(e.ID, e.Numbers, tick, e.Ring)
		}
		for _, id := range s.Leaves {
			l.leave(id, tick)
		}
		a.note(tick, s.At)
		clock.arrive(tick, s.At)
		l.packet(tick)
	}
}

func makeInputs() (all []inputVector) {
	for i, batch := range []float64{1, 3} {
		r := rand.New(rand.NewPCG(uint64(i), 7))
		v := inputVector{RTTMs: 80 * float64(i), Batch: batch}
		acked := 0.0
		for p := range 200 {
			tick := float64(3 * (p + 1))
			s := inputStep{At: math.Round(8*(tick*tickMs+40+40*r.Float64())) / 8, Tick: tick}
			if r.IntN(12) > 0 {
				acked = tick + math.Floor(8*r.Float64()) - 1
			}
			s.Acked, s.Margin = acked, math.Floor(9*r.Float64())-1
			if p > 100 { // the way has become short
				s.Margin += 12
				s.Acked += 12
			}
			v.Steps = append(v.Steps, s)
		}
		all = append(all, v)
	}
	return all
}

func (v *inputVector) play(tickMs float64, label func(s *inputStep, l float64)) {
	a := &arrivals{tickMs: tickMs}
	c := newInputClock(a, v.RTTMs, v.Batch)
	sent := 0.0
	for i := range v.Steps {
		s := &v.Steps[i]
		a.note(s.Tick, s.At)
		c.margin(s.Margin, s.Acked, s.Tick, sent)
		l := c.label(s.At)
		sent = max(sent, l)
		label(s, l)
	}
}

// The vectors, which web/test/motion.test.ts reads as well.
func TestVectors(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	b, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Cases) < 3 || len(v.Inputs) < 2 {
		t.Fatalf("%d cases, %d input clocks", len(v.Cases), len(v.Inputs))
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
	for i := range v.Cases {
		c := &v.Cases[i]
		v.play(t, c, func(s *motionStep, tick, delay float64, all []*entity) {
			if !near(tick, s.Shows) || !near(delay, s.Delay) {
				t.Fatalf("%s, %g ms: tick %v with a delay of %v, want %v and %v", c.Name, s.At, tick, delay, s.Shows, s.Delay)
			}
			if s.Shown == nil {
				return
			}
			if len(all) != len(s.Shown) {
				t.Fatalf("%s, %g ms: %d are shown, want %d", c.Name, s.At, len(all), len(s.Shown))
			}
			for k, want := range s.Shown {
				for n, x := range want.Numbers {
					if got := all[k].numbers[n]; all[k].id != want.ID || !near(got, x) && !near(math.Abs(got-x), 2*math.Pi) {
						t.Fatalf("%s, %g ms: %d's field %d is %v, want %v", c.Name, s.At, all[k].id, n, got, x)
					}
				}
			}
		})
	}
	for i := range v.Inputs {
		v.Inputs[i].play(v.TickMs, func(s *inputStep, l float64) {
			if l != s.Label {
				t.Fatalf("input clock %d, %g ms: label %v, want %v", i, s.At, l, s.Label)
			}
		})
	}
}

func writeVectors(t *testing.T) {
	round := func(v float64) float64 { return math.Round(v*1e9) / 1e9 }
	v := vectors{TickMs: tickMs, SendHz: 20, Types: vectorTypes(), Inputs: makeInputs(), Cases: []motionCase{
		makeCase("ordered, hardly any jitter", 1, true, 0, 10),
		makeCase("ordered, 10 % lost", 2, true, 0.1, 60),
		makeCase("unordered, 10 % lost", 3, false, 0.1, 90),
	}}
	for i := range v.Cases {
		n := 0
		v.play(t, &v.Cases[i], func(s *motionStep, tick, delay float64, all []*entity) {
			s.Shows, s.Delay = round(tick), round(delay)
			if n++; n%5 != 0 {
				return
			}
			for _, e := range all {
				o := shownOf{ID: e.id}
				for _, x := range e.numbers {
					o.Numbers = append(o.Numbers, round(x))
				}
				s.Shown = append(s.Shown, o)
			}
		})
	}
	for i := range v.Inputs {
		v.Inputs[i].play(v.TickMs, func(s *inputStep, l float64) { s.Label = l })
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.ReplaceAll(b, []byte(`{"at"`), []byte("\n{\"at\"")) // an event a line
	if err := os.WriteFile(vectorFile, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
