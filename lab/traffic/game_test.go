package traffic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
)

// crowd is a game that bots play, each with a client of its own on an ordered link.
type crowd struct {
	*game
	pcg     *rand.PCG
	tick    feed.Tick
	bots    []func(drumline.BotView) Input
	views   []drumline.BotView
	streams []feed.Stream
	events  map[int]int // that the last client got, by type
	buf     []byte
	seq     uint16
	bytes   int // of all packets
	held    int
	cmds    []command
	keep    [][]command // of each step, if not nil
}

// newCrowd spreads the clients over the seats, so that half of them drive.
func newCrowd(t testing.TB, seed uint64, o Options, clients int) *crowd {
	t.Helper()
	pcg := rand.NewPCG(seed, 1)
	c := &crowd{game: newGame(rand.New(pcg), o), pcg: pcg, events: map[int]int{}}
	c.populate()
	info := c.feed.Info()
	if err := c.feed.Err(); err != nil {
		t.Fatal(err)
	}
	for i := range clients {
		seat := i * seats / clients
		c.join(seat, fmt.Sprint("bot ", seat))
		dec, err := snap.NewDecoder(info.Schema)
		if err != nil {
			t.Fatal(err)
		}
		if i == clients-1 {
			dec.OnEvent = func(e snap.Event) { c.events[e.Type]++ }
		}
		c.bots = append(c.bots, NewBot(seed+uint64(i), o))
		c.views = append(c.views, drumline.BotView{Seat: feed.SeatID(seat), Decoders: []feed.Decoder{dec}})
		c.streams = append(c.streams, c.feed.Join(feed.SeatID(seat), feed.Ordered))
	}
	return c
}

// one makes one step; before the first of three a packet has come.
func (c *crowd) one() {
	c.tick++
	if c.tick%(hz/sendHz) == 1 {
		c.cmds = c.cmds[:0]
		for i, bot := range c.bots {
			seat := int(c.views[i].Seat)
			c.cmds = append(c.cmds, command{seat: seat, name: fmt.Sprint("bot ", seat), in: bot(c.views[i])})
		}
	}
	if c.keep != nil {
		c.keep = append(c.keep, append([]command(nil), c.cmds...))
	}
	c.feed.Stepping(c.tick)
	c.step(c.cmds)
}

// run steps three times and sends once.
func (c *crowd) run(t testing.TB) {
	t.Helper()
	for range hz / sendHz {
		c.one()
	}
	c.send(t)
}

func (c *crowd) send(t testing.TB) {
	t.Helper()
	fr := c.feed.Capture(c.tick)
	c.seq++
	for i, s := range c.streams {
		var w feed.Written
		c.buf, w = s.Append(c.buf[:0], fr, 1<<16)
		if len(c.buf) > 0 {
			c.bytes += len(c.buf)
			s.Delivered(w.Receipt)
			if err := c.views[i].Decoders[0].Decode(feed.Packet{Seq: c.seq, Tick: c.tick}, c.buf); err != nil {
				t.Fatalf("tick %d, seat %d: %v", c.tick, i, err)
			}
		}
		c.held += c.views[i].Decoders[0].Held()
		c.views[i].Tick = c.tick
	}
	fr.Release()
}

// state is all of the game with its random source.
func (c *crowd) state(t testing.TB) []byte {
	t.Helper()
	b, err := c.pcg.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if b, err = c.appendState(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// What clients see of a thing is as much as in a real game.
func TestFields(t *testing.T) {
	var schema struct {
		Types []struct {
			Name   string
			Fields []struct{ Name string }
		}
	}
	if err := json.Unmarshal(newCrowd(t, 1, Options{}, 0).feed.Info().Schema, &schema); err != nil {
		t.Fatal(err)
	}
	if len(schema.Types) != 3 {
		t.Errorf("%d types", len(schema.Types))
	}
	for _, typ := range schema.Types {
		if n := len(typ.Fields); n < 12 || n > 16 {
			t.Errorf("%d fields of %s", n, typ.Name)
		}
	}
}

func TestDeterministic(t *testing.T) {
	play := func(seed uint64) []byte {
		c := newCrowd(t, seed, Options{}, 8)
		for range 200 {
			c.run(t)
		}
		return c.state(t)
	}
	a := play(1)
	if !bytes.Equal(a, play(1)) {
		t.Error("the same seed and inputs made another state")
	}
	if bytes.Equal(a, play(2)) {
		t.Error("another seed made the same state")
	}
}

// A restored game saves itself alike, and goes on alike.
func TestRestore(t *testing.T) {
	a := newCrowd(t, 3, Options{}, 8)
	for range 40 {
		a.run(t)
	}
	saved := a.state(t)
	a.keep = [][]command{}
	for range 60 {
		a.run(t)
	}

	b := newCrowd(t, 4, Options{}, 0)
	rest, err := b.pcg.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.pcg.UnmarshalBinary(saved[:len(rest)]); err != nil {
		t.Fatal(err)
	}
	if err := b.restoreState(saved[len(rest):]); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.state(t), saved) {
		t.Fatal("a restored game saves itself otherwise")
	}
	for i, cmds := range a.keep {
		b.feed.Stepping(feed.Tick(121 + i))
		b.step(cmds)
	}
	if !bytes.Equal(a.state(t), b.state(t)) {
		t.Error("a restored game went on otherwise")
	}
	// Nobody has come: the players go, the cars drive on by themselves.
	b.step(nil)
	if n := b.players.Len(); n != 0 {
		t.Errorf("%d players without seats", n)
	}
	for _, c := range b.game.cars.All() {
		if c.Driver != 0 {
			t.Errorf("car %d is driven by %x", c.Number, c.Driver)
		}
	}

	// What cannot be is refused, and changes nothing.
	before := b.state(t)
	head := len(rest)
	for n := range 40 {
		if b.restoreState(saved[head:head+n]) == nil {
			t.Errorf("restored from %d bytes", n)
		}
	}
	for what, harm := range map[string]func(*game){
		"a car's route":    func(g *game) { g.cars.Get(g.carIDs[5]).Route.I = 200 },
		"a car's number":   func(g *game) { g.cars.Get(g.carIDs[5]).Number = 6 },
		"a car's speed":    func(g *game) { g.cars.Get(g.carIDs[5]).Speed = math.NaN() },
		"a car's driver":   func(g *game) { g.cars.Get(g.carIDs[40]).Driver = g.seats[0] },
		"a player's place": func(g *game) { g.players.Get(g.seats[20]).X = -1 },
		"a player's seat":  func(g *game) { g.players.Get(g.seats[20]).Seat = 24 },
		"a player's car":   func(g *game) { g.players.Get(g.seats[4]).Car = 0 },
		"a person's way": func(g *game) {
			for _, p := range g.people.All() {
				p.To.SX = 0
				return
			}
		},
		"a missing car": func(g *game) { g.cars.Remove(g.carIDs[9]) },
	} {
		g := newGame(nil, Options{})
		if err := g.load(saved[head:]); err != nil {
			t.Fatal(err)
		}
		harm(g)
		bad, err := g.appendState(nil)
		if err != nil {
			t.Fatal(err)
		}
		if b.restoreState(bad) == nil {
			t.Errorf("restored with %s changed", what)
		}
	}
	if newGame(nil, Options{Spread: true}).load(saved[head:]) == nil {
		t.Error("restored into another city")
	}
	if !bytes.Equal(before, b.state(t)) {
		t.Error("a refused restore has changed the game")
	}
}

// Cars stay on the streets, speed up and brake as cars do; people walk; nothing leaves its range.
func TestMotion(t *testing.T) {
	for _, o := range []Options{{}, {Spread: true}} {
		steps := 2000
		if o.Spread {
			steps = 900
		}
		c := newCrowd(t, 7, o, 8)
		var was [cars]Velocity
		var spun, sped float64
		stops := 0
		for step := range steps {
			if c.one(); c.tick%(hz/sendHz) == 0 {
				c.send(t)
			}
			for n, id := range c.carIDs[:cars] {
				car := c.cars.Get(id)
				v := math.Hypot(car.Vel.Ahead, car.Vel.Left)
				off := c.city.offStreet(car.X, car.Z)
				if most := map[bool]float64{true: 12, false: 5}[car.Driver != 0]; off > most {
					t.Fatalf("%+v, step %d: car %d is %.1f m from a street's axis", o, step, n, off)
				}
				if v > topSpeed+0.2 {
					t.Fatalf("step %d: car %d goes %.1f m/s", step, n, v)
				}
				if a := math.Abs(v-math.Hypot(was[n].Ahead, was[n].Left)) * hz; car.Driver == 0 && a > pull+2 { // noise is a part of it
					t.Fatalf("step %d: car %d pulls %.1f m/s²", step, n, a)
				}
				if math.Abs(car.Y-rideHeight) > 0.05 || math.Abs(car.Pitch) > 0.1 || math.Abs(car.Roll) > 0.2 {
					t.Fatalf("step %d: car %d: height %.3f, pitch %.3f, roll %.3f", step, n, car.Y, car.Pitch, car.Roll)
				}
				was[n] = car.Vel
				spun, sped = max(spun, math.Abs(car.Spin)), sped+v
				if v < 0.1 {
					stops++
				}
			}
			for _, p := range c.people.All() {
				if p.Vel.Ahead < 0 || p.Vel.Ahead > 1.61 || c.city.offStreet(p.X, p.Z) > paveOff+2 {
					t.Fatalf("step %d: somebody walks %.2f m/s at %.1f, %.1f", step, p.Vel.Ahead, p.X, p.Z)
				}
			}
		}
		if s := c.feed.Stats(); s.Clamped != 0 || s.TextsCut != 0 {
			t.Errorf("%+v: %d numbers and %d texts did not fit: %v", o, s.Clamped, s.TextsCut, s.Fields)
		}
		mean, still := sped/float64(steps*cars), float64(stops)/float64(steps*cars)
		t.Logf("%+v: cars go %.1f m/s on average, %.0f %% of the time they stand; most spin %.2f rad/s", o, mean, 100*still, spun)
		if mean < 5 || still < 0.005 || still > 0.4 || spun < 0.5 {
			t.Error("that is no traffic")
		}
	}
}

// Drivers get about, walkers run, shoot a few times a second in all, and somebody honks.
func TestBotsPlay(t *testing.T) {
	c := newCrowd(t, 11, Options{}, seats)
	var far [seats]float64
	looks := 0
	was := [seats]float64{}
	const seconds = 10
	for range seconds * sendHz {
		c.run(t)
		for i, id := range c.seats {
			p := c.players.Get(id)
			if car := c.cars.Get(p.Car); car != nil {
				far[i] += math.Abs(car.Vel.Ahead) / sendHz
				continue
			}
			far[i] += math.Hypot(p.VX, p.VZ) / sendHz
			if p.Yaw != was[i] {
				looks++
			}
			was[i] = p.Yaw
		}
	}
	drove := 0.0
	for i, d := range far {
		if d < 1.5*seconds {
			t.Errorf("bot %d went %.0f m in %d s", i, d, seconds)
		}
		if i < drivers {
			drove += d / drivers
		}
	}
	if drove < 5*seconds {
		t.Errorf("drivers went %.0f m in %d s", drove, seconds)
	}
	if f := float64(looks) / ((seats - drivers) * seconds * sendHz); f < 0.5 {
		t.Errorf("walkers look elsewhere in %.0f %% of the packets", 100*f)
	}
	shots, honks := float64(c.events[0])/seconds, float64(c.events[1])/seconds
	n := float64(int(c.seq) * seats)
	t.Logf("%.1f shots and %.1f honks a second; %.0f B a packet, %.1f held; %.0f m", shots, honks, float64(c.bytes)/n, float64(c.held)/n, far)
	if shots < 0.5 || shots > 15 || honks == 0 {
		t.Errorf("%.1f shots and %.1f honks a second", shots, honks)
	}
}

func TestLeave(t *testing.T) {
	c := newCrowd(t, 1, Options{}, seats)
	for range 20 {
		c.run(t)
	}
	driver, walker := c.seats[3], c.seats[20]
	c.leave(3)
	c.leave(20)
	c.leave(20) // nobody is there
	if c.players.Get(driver) != nil || c.players.Get(walker) != nil || c.cars.Get(c.carIDs[3]).Driver != 0 {
		t.Error("a player stayed")
	}
	if c.feed.Owned(3) != 0 || c.feed.Owned(20) != 0 {
		t.Error("a seat still owns something")
	}
	for range 20 {
		c.run(t) // the bots still send, so they are taken in again
	}
	if c.seats[3] == 0 || c.feed.Owned(3) != c.carIDs[3] || c.feed.Owned(20) != c.seats[20] {
		t.Error("who came back does not play")
	}
}

func TestBotAllocatesNothing(t *testing.T) {
	c := newCrowd(t, 1, Options{}, seats)
	for range 50 {
		c.run(t)
	}
	for _, i := range []int{0, seats - 1} {
		if n := testing.AllocsPerRun(1000, func() { c.views[i].Tick++; c.bots[i](c.views[i]) }); n != 0 {
			t.Errorf("bot %d: %v allocations an input", i, n)
		}
	}
}

// A bot that has got nothing yet still sends something.
func TestBotBeforeFirstPacket(t *testing.T) {
	c := newCrowd(t, 1, Options{}, 1)
	bot := NewBot(9, Options{})
	for range 10 {
		if in := bot(drumline.BotView{}); in != (Input{}) {
			t.Errorf("%+v without a decoder", in)
		}
		if in := bot(c.views[0]); in != (Input{}) {
			t.Errorf("%+v without an own entity", in)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	c := newCrowd(b, 1, Options{}, seats)
	for range 50 {
		c.run(b)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.feed.Stepping(c.tick)
		c.step(c.cmds)
	}
}

func BenchmarkCapture(b *testing.B) {
	c := newCrowd(b, 1, Options{}, seats)
	for range 50 {
		c.run(b)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.tick += hz / sendHz
		c.feed.Capture(c.tick).Release()
	}
}
