package arena

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/link/mem"
)

// aimAt is the aim from one place to another.
func aimAt(x, y, tx, ty float64) uint16 {
	return uint16(int(math.Round(math.Atan2(ty-y, tx-x)/aimAngle)) & (aimSteps - 1))
}

// step is a rig's step with its tick.
func (r *rig) tock(cmds ...command) {
	r.tick++
	r.run(1, cmds...)
}

// A target crosses at full speed; the shooter sees it 16 steps late and aims at what he sees.
func TestRewind(t *testing.T) {
	const late = 16
	shoot := func(steps int, tell func(now drumline.Tick) drumline.Moment) (hurt bool) {
		r := alone([2]float64{400, 400}, [2]float64{600, 150})
		if steps > 0 {
			r.remember(steps)
		}
		var ys []float64
		for range 60 {
			r.tock(command{seat: 0}, command{seat: 1, in: Input{DY: 127}})
			ys = append(ys, r.player(1).Y)
		}
		seen := ys[len(ys)-late]
		now := r.tick + 1 // the step of the shot
		if d := r.player(1).Y - seen; d < 45 {
			t.Fatalf("the target has only moved %v", d)
		}
		r.tock(command{seat: 0, pressed: true, seen: tell(now), in: Input{Aim: aimAt(400, 400, 600, seen)}},
			command{seat: 1, in: Input{DY: 127}})
		return r.player(1).HP < playerHP
	}
	as := func(now drumline.Tick) drumline.Moment { return drumline.MomentAt(now-late, 0) }
	if !shoot(20, as) {
		t.Error("missed what was seen")
	}
	if shoot(0, as) {
		t.Error("hit though nothing is rewound")
	}
	if shoot(20, func(drumline.Tick) drumline.Moment { return 0 }) {
		t.Error("hit though nobody says what was seen")
	}
	if shoot(6, as) {
		t.Error("hit farther back than is remembered")
	}
}

// Who fell and came back was nowhere between, and who has just appeared is where it is.
func TestRewindOverDeath(t *testing.T) {
	r := alone([2]float64{400, 400}, [2]float64{600, 400})
	r.remember(20)
	for range 30 {
		r.tock(command{seat: 0}, command{seat: 1})
	}
	id := r.seats[1]
	q := r.player(1)
	q.HP, q.Wait = 0, 3
	for range 3 {
		r.tock(command{seat: 0}, command{seat: 1})
	}
	if q.HP != playerHP {
		t.Fatalf("%d hp, wait %d", q.HP, q.Wait)
	}
	alive := r.tick
	for m := drumline.MomentAt(alive-6, 0); m <= drumline.MomentAt(alive, 0); m++ {
		x, y := r.at(id, &q.Body, m)
		if old, now := x == 600 && y == 400, x == q.X && y == q.Y; !old && !now {
			t.Errorf("at %d+%v it stood at %v, %v", m.Tick(), m.Part(), x, y)
		}
	}
}

// A saved game shoots on as the one that goes on.
func TestPastIsSaved(t *testing.T) {
	play := func(r *rig, steps int) {
		for range steps {
			r.play()
		}
	}
	a := newRig(5, 6)
	a.remember(20)
	play(a, 400)
	saved := a.save(t)
	source, err := a.pcg.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	restore := func(keep bool) *rig {
		b := newRig(5, 6)
		b.remember(20)
		// Its players' hands have to be where the others' are.
		play(b, 400)
		if err := b.restoreState(saved); err != nil {
			t.Fatal(err)
		}
		if err := b.pcg.UnmarshalBinary(source); err != nil {
			t.Fatal(err)
		}
		if !keep {
			b.past.Reset()
		}
		return b
	}
	b := restore(true)
	if !bytes.Equal(b.save(t), saved) {
		t.Error("a restored game saves itself otherwise")
	}
	play(a, 400)
	play(b, 400)
	if a.hash() != b.hash() || !bytes.Equal(a.save(t), b.save(t)) {
		t.Error("a restored game goes another way")
	}
	c := restore(false)
	play(c, 400)
	if c.hash() == a.hash() {
		t.Error("the past makes no difference: this test proves nothing")
	}

	// A game without a past takes what one with it has saved, and the other way round.
	plain := newRig(5, 6)
	if err := plain.restoreState(saved); err != nil {
		t.Error(err)
	}
	if err := a.restoreState(plain.save(t)); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(b []byte){
		"more than there is": func(b []byte) { binary.LittleEndian.PutUint32(b[3:], 1<<31) },
		"cut off":            func(b []byte) { binary.LittleEndian.PutUint32(b[3:], 30) },
		"off the field":      func(b []byte) { binary.LittleEndian.PutUint64(b[stateHeader+16:], math.Float64bits(-1)) },
		"no number":          func(b []byte) { binary.LittleEndian.PutUint64(b[stateHeader+16:], math.Float64bits(math.NaN())) },
	} {
		bad := bytes.Clone(saved)
		spoil(bad)
		if a.restoreState(bad) == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// duel is an arena without monsters: the target on seat 1 walks up and down in front of the shooter on seat 0, and does not heal.
type duel struct {
	*arena
	hits int
}

func (d *duel) Step(st *drumline.Step[Input]) {
	g := d.game
	for id := range g.monsters.All() {
		g.monsters.Remove(id)
	}
	g.hatch = hatchSteps
	if g.seats[0] != 0 && g.seats[1] != 0 {
		a, b := g.players.Get(g.seats[0]), g.players.Get(g.seats[1])
		a.X, a.Y = 40, 400 // left of all pillars
		if b.Shield > 0 {
			b.X, b.Y, b.Shield = 200, 200, 0
		}
		if b.HP < playerHP {
			d.hits++
			b.HP = playerHP
		}
	}
	d.arena.Step(st)
}

// Over the engine, 75 ms each way: the shooter aims at each packet's target and says so.
func TestRewindOnTheEngine(t *testing.T) {
	// 4.5 steps on the way here, as many back, and a margin.
	const lead = 14
	for name, c := range map[string]struct {
		rewind time.Duration
		lead   int
		seen   uint16
		hit    bool
		moved  bool // what is told is out of bounds
	}{
		"as seen":             {rewind, lead, lead * 16, true, false},
		"without rewind":      {0, lead, lead * 16, false, false},
		"does not tell":       {rewind, lead, 0, false, false},
		"a lie: the future":   {rewind, lead, 1, false, true},
		"a lie: the far past": {rewind, 30, 60000, false, true},
		"too far away":        {rewind, 30, 30 * 16, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			var d *duel
			world := drumline.Define(drumline.Kind[Input]{
				Spec: drumline.Spec{Name: "arena", Hz: hz, Rewind: c.rewind},
				Open: func(r *drumline.Room) (drumline.World[Input], error) {
					d = &duel{arena: open(r, c.rewind)}
					return d, nil
				},
			})
			inBubble(t, world, func(t *testing.T, srv *drumline.Server) {
				ann := joinServer(t, srv, drumline.Hello{Name: "ann"})
				bob := joinServer(t, srv, drumline.Hello{Name: "bob", Room: ann.welcome.Room})
				ann.link.Cut()
				ann.link = mem.Connect(srv, drumline.Peer{}, mem.Options{Down: mem.Path{Delay: 75 * time.Millisecond}, Up: mem.Path{Delay: 75 * time.Millisecond}})
				hello, _ := drumline.AppendJSON(nil, drumline.KindHello, drumline.Hello{Protocol: drumline.ProtocolVersion, World: "arena", Token: ann.welcome.Token})
				defer ann.link.Cut()
				ann.send(hello)
				ann.dec = nil
				ann.until("the welcome", func() bool { return ann.dec != nil })

				// The target walks up and down, far enough from the ends of its way.
				bob.bot = func(dst []byte, v drumline.BotView) []byte {
					own, _ := bob.dec.Own()
					dy := int8(127)
					if bob.number(own, "player", "vy") < 0 && bob.number(own, "player", "y") > 120 || bob.number(own, "player", "y") > 680 {
						dy = -127
					}
					return append(dst, 0, byte(0), byte(dy), 0, 0)
				}
				shots := 0
				ann.each = func(h drumline.StateHeader) []byte {
					label := ann.tick + drumline.Tick(c.lead)
					in := []byte{0, 0, 0, 0, 0}
					for e := range ann.dec.Each {
						own, _ := ann.dec.Own()
						if e.ID == own.ID || ann.tick%9 != 0 {
							continue
						}
						vy := ann.number(e, "player", "vy")
						if y := e.Ahead(ann.dec.Field(e.Type, "y"), ann.tick); math.Abs(vy) > 200 && y > 200 && y < 600 {
							aim := aimAt(40, 400, ann.number(e, "player", "x"), y)
							in = []byte{1, 0, 0, byte(aim), byte(aim >> 8)}
							shots++
						}
					}
					msg := drumline.AppendInputHeader(nil, h.Seq, 0, 1, label)
					if c.rewind > 0 {
						msg = drumline.AppendInputHeaderSeen(nil, h.Seq, 0, 1, label, c.seen)
					}
					return append(msg, in...)
				}
				end := ann.tick + 16*hz
				for ann.tick < end {
					bob.until("a packet", func() func() bool {
						now := bob.tick
						return func() bool { return bob.tick > now }
					}())
					ann.until("a packet", func() func() bool {
						now := ann.tick
						return func() bool { return ann.tick > now }
					}())
				}
				if shots < 15 || c.hit && d.hits < shots*9/10 || !c.hit && d.hits > shots/10 {
					t.Errorf("%d hits of %d shots", d.hits, shots)
				}
				if moved := srv.Stats().Dropped["input_seen"]; c.moved != (moved > 0) {
					t.Errorf("%d moments out of bounds counted", moved)
				}
				bob.link.Cut()
			})
		})
	}
}
