package arena

import (
	"encoding/binary"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/worlds/arena/move"
)

var update = flag.Bool("update", false, "write testdata anew")

// rig is a game with its own random source and players that act by another.
type rig struct {
	*game
	pcg   *rand.PCG
	hands *rand.Rand // the players'
	cmds  []command
	stick [maxSeats]struct {
		dx, dy int8
		aim    uint16
		fire   bool
	}
}

// names are made once: a benchmark must not count them.
var names = func() (n [maxSeats]string) {
	for i := range n {
		n[i] = fmt.Sprint("player ", i)
	}
	return n
}()

func newRig(seed uint64, players int) *rig {
	pcg := rand.NewPCG(seed, 1)
	r := &rig{game: newGame(rand.New(pcg)), pcg: pcg, hands: rand.New(rand.NewPCG(seed, 2))}
	r.populate()
	for i := range players {
		r.join(i, names[i])
	}
	return r
}

// play makes one command for each seat that has a player; they change their mind now and then, and see what was a quarter of a second ago.
func (r *rig) play() {
	r.cmds = r.cmds[:0]
	for i, id := range r.seats {
		if id == 0 {
			continue
		}
		s := &r.stick[i]
		if r.hands.IntN(20) == 0 {
			s.dx, s.dy = int8(r.hands.IntN(255)-127), int8(r.hands.IntN(255)-127)
			s.fire = r.hands.IntN(3) == 0
		}
		s.aim += uint16(r.hands.IntN(900))
		r.cmds = append(r.cmds, command{seat: i, name: names[i], seen: drumline.MomentAt(r.tick+1-15, 7), in: Input{
			Fire: s.fire, DX: s.dx, DY: s.dy, Aim: s.aim,
		}})
	}
	r.tick++
	r.step(r.cmds)
}

// hash is over everything that the rules read again.
func (r *rig) hash() uint64 {
	h := fnv.New64a()
	var b []byte
	u := func(vs ...uint64) {
		for _, v := range vs {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	flag := func(v bool) uint64 {
		if v {
			return 1
		}
		return 0
	}
	body := func(o *Body) {
		u(math.Float64bits(o.X), math.Float64bits(o.Y), math.Float64bits(o.VX), math.Float64bits(o.VY))
	}
	u(uint64(r.hatch))
	for id, p := range r.players.All() {
		body(&p.Body)
		u(uint64(id), math.Float64bits(p.Aim), uint64(p.HP), uint64(p.Wait), uint64(p.Shield), flag(p.Away), uint64(p.Seat),
			uint64(p.Score), uint64(p.AimStep), uint64(p.Cool), flag(p.Trigger), uint64(p.Calm), uint64(p.Orphan))
		b = append(b, p.Name...)
	}
	for id, m := range r.monsters.All() {
		body(&m.Body)
		u(uint64(id), uint64(m.HP), flag(m.Mad), uint64(m.Heading), uint64(uint16(m.Turn)), uint64(m.Think), uint64(m.Bite))
	}
	state, err := r.pcg.MarshalBinary()
	if err != nil {
		panic(err)
	}
	h.Write(append(b, state...))
	return h.Sum64()
}

func (r *rig) save(t testing.TB) []byte {
	b, err := r.appendState(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The trace holds a hash a second of a game in which players join, drop, come back and leave.
func TestTrace(t *testing.T) {
	const seconds = 40
	var got strings.Builder
	r := newRig(7, 3)
	for s := 1; s <= seconds; s++ {
		switch {
		case s <= 13:
			r.join(s+2, names[s+2])
		case s%7 == 0:
			r.leave(s % maxSeats)
		case s%7 == 1:
			r.away(s%maxSeats, true)
		case s%7 == 3:
			r.away((s-2)%maxSeats, false)
		case s%7 == 4:
			r.join((s-4)%maxSeats, fmt.Sprint("player ", (s-4)%maxSeats))
		}
		for range hz {
			r.play()
		}
		fmt.Fprintf(&got, "%d %016x\n", s*hz, r.hash())
	}
	name := filepath.Join("testdata", "trace.txt")
	if *update {
		if err := os.WriteFile(name, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	a, b := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("the rules have changed: line %d of %s is %q, the game says %q (go test -update takes it over)", i+1, name, b[i], a[i])
		}
	}
	if len(a) != len(b) {
		t.Fatalf("%s has %d lines, want %d", name, len(b), len(a))
	}
}

func TestSnapshotRestore(t *testing.T) {
	a := newRig(11, 12)
	for range 700 {
		a.play()
	}
	a.away(3, true)
	a.play()
	saved := a.save(t)
	state, err := a.pcg.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}

	b := newRig(99, 5) // in the middle of another game
	for range 50 {
		b.play()
	}
	if err := b.restoreState(saved); err != nil {
		t.Fatal(err)
	}
	if err := b.pcg.UnmarshalBinary(state); err != nil {
		t.Fatal(err)
	}
	if a.hash() != b.hash() {
		t.Fatal("the restored game is another")
	}
	b.hands, a.hands = rand.New(rand.NewPCG(5, 5)), rand.New(rand.NewPCG(5, 5))
	b.stick = a.stick
	for i := range 600 {
		switch i {
		case 100:
			a.away(3, false)
			b.away(3, false)
		case 200:
			a.leave(4)
			b.leave(4)
		case 300:
			a.join(4, "again")
			b.join(4, "again")
		}
		a.play()
		b.play()
		if a.hash() != b.hash() {
			t.Fatalf("after %d steps the restored game is another", i+1)
		}
	}
}

// A world restored on a new server waits for its players; who comes back in time has kept score and place.
func TestOrphans(t *testing.T) {
	a := newRig(3, 4)
	for range 300 {
		a.play()
	}
	a.players.Get(a.seats[1]).Score = 42
	b := newRig(4, 0)
	if err := b.restoreState(a.save(t)); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		b.step(nil)
	}
	if p := b.players.Get(b.seats[1]); p.touchable() || p.VX != 0 {
		t.Error("an orphan can be hit or moves")
	}
	b.join(1, "player 1")
	b.join(2, "somebody else")
	if p := b.players.Get(b.seats[1]); p.Score != 42 || p.Orphan != 0 {
		t.Errorf("the player came back to %+v", p)
	}
	if p := b.players.Get(b.seats[2]); p.Name != "somebody else" || p.Score != 0 {
		t.Errorf("a new player inherited %+v", p)
	}
	for range orphanSteps {
		b.step([]command{{seat: 1, name: "player 1"}, {seat: 2, name: "somebody else"}})
	}
	if n := b.players.Len(); n != 2 {
		t.Errorf("%d players are left, want 2", n)
	}
}

// Restored under players who joined after the snapshot: they get a new body at once.
func TestRestoreUnderPlayers(t *testing.T) {
	a := newRig(3, 2)
	saved := a.save(t)
	a.join(9, "late")
	if err := a.restoreState(saved); err != nil {
		t.Fatal(err)
	}
	if a.seats[9] != 0 {
		t.Fatal("the snapshot knew the late player")
	}
	a.step([]command{{seat: 0}, {seat: 1}, {seat: 9, name: "late"}})
	if id := a.seats[9]; id == 0 || a.players.Get(id).Name != "late" {
		t.Error("the late player has no body")
	}
}

func TestRestoreRefusesRubbish(t *testing.T) {
	a := newRig(5, 6)
	for range 200 {
		a.play()
	}
	good := a.save(t)
	before := a.hash()
	bad := map[string]func(g *game){
		"seat":        func(g *game) { g.players.Get(g.seats[2]).Seat = 77 },
		"two on one":  func(g *game) { g.players.Get(g.seats[2]).Seat = 1 },
		"hit points":  func(g *game) { g.players.Get(g.seats[2]).HP = 101 },
		"undead":      func(g *game) { p := g.players.Get(g.seats[2]); p.HP, p.Wait = 0, 0 },
		"no number":   func(g *game) { g.players.Get(g.seats[2]).X = math.NaN() },
		"outside":     func(g *game) { g.players.Get(g.seats[2]).Y = -3 },
		"speed":       func(g *game) { g.players.Get(g.seats[2]).VX = math.Inf(1) },
		"aim":         func(g *game) { g.players.Get(g.seats[2]).Aim = math.NaN() },
		"shield":      func(g *game) { g.players.Get(g.seats[2]).Shield = 255 },
		"hatch":       func(g *game) { g.hatch = 9999 },
		"monster":     func(g *game) { g.monsters.Spawn(Monster{}) },
		"many":        func(g *game) { g.monsters.Spawn(Monster{HP: 1, Body: Body{X: 100, Y: 100}}) },
		"monster at":  func(g *game) { g.pack[0].X = math.NaN() },
		"monster way": func(g *game) { g.pack[0].Turn = 30000 },
	}
	for name, spoil := range bad {
		b := newRig(6, 0)
		if err := b.restoreState(good); err != nil {
			t.Fatal(err)
		}
		for b.monsters.Len() < maxMonsters {
			b.spawnMonster()
		}
		b.gather()
		spoil(b.game)
		if err := a.restoreState(b.save(t)); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if a.hash() != before {
			t.Fatalf("%s: refused, but the game has changed", name)
		}
	}
	for n := range len(good) {
		if err := a.restoreState(good[:n]); err == nil {
			t.Errorf("accepted the first %d of %d bytes", n, len(good))
		}
	}
	if a.hash() != before {
		t.Error("refused, but the game has changed")
	}
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{stateVersion, 0, 0})
	for _, n := range []int{0, 1, 16} {
		for _, steps := range []int{0, 3} {
			r := newRig(uint64(n), n)
			if steps > 0 {
				r.remember(steps)
			}
			for range 100 {
				r.play()
			}
			f.Add(r.save(f))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		r := newRig(1, 2)
		r.remember(5)
		before := r.hash()
		if err := r.restoreState(src); err != nil {
			if r.hash() != before {
				t.Fatal("refused, but the game has changed")
			}
		}
		for range 30 {
			r.play()
		}
		again := newRig(2, 0)
		again.remember(5)
		if err := again.restoreState(r.save(t)); err != nil {
			t.Fatalf("a game that was taken in cannot be saved: %v", err)
		}
	})
}

// Everybody stays in the field and out of the pillars, figures stay in their ranges, and the monsters are there.
func TestInvariants(t *testing.T) {
	r := newRig(21, maxSeats)
	deaths, kills := 0, 0
	var dead [maxSeats]bool
	for i := range 60 * hz {
		if i%97 == 0 {
			s := r.hands.IntN(maxSeats)
			if r.seats[s] != 0 {
				r.leave(s)
			} else {
				r.join(s, names[s])
			}
		}
		r.play()
		for id, p := range r.players.All() {
			if err := p.check(); err != nil {
				t.Fatalf("step %d: %v: %+v", i, err, p)
			}
			if r.seats[p.Seat] != id {
				t.Fatalf("step %d: seat %d is not its player's", i, p.Seat)
			}
			inStone(t, &p.Body, playerRadius)
			if p.HP == 0 && !dead[p.Seat] {
				deaths++
			}
			dead[p.Seat] = p.HP == 0
			kills += 0
		}
		for _, m := range r.monsters.All() {
			if err := m.check(); err != nil {
				t.Fatalf("step %d: %v: %+v", i, err, m)
			}
			inStone(t, &m.Body, monsterRadius)
		}
		if n := r.monsters.Len(); n > maxMonsters || n < maxMonsters-6 {
			t.Fatalf("step %d: %d monsters", i, n)
		}
	}
	if deaths == 0 {
		t.Error("nobody died in a minute")
	}
	if r.feed.Err() != nil {
		t.Error(r.feed.Err())
	}
}

func inStone(t *testing.T, b *Body, r float64) {
	for _, p := range move.Pillars {
		if d := length(b.X-p.X, b.Y-p.Y); d < p.R+r-1e-6 {
			t.Fatalf("a body is %v deep in a pillar", p.R+r-d)
		}
	}
}

// alone is a game without monsters with players at given places.
func alone(at ...[2]float64) *rig {
	pcg := rand.NewPCG(1, 1)
	r := &rig{game: newGame(rand.New(pcg)), pcg: pcg}
	for i, p := range at {
		r.join(i, names[i])
		q := r.players.Get(r.seats[i])
		q.X, q.Y, q.Shield = p[0], p[1], 0
	}
	r.hatch = hatchSteps
	return r
}

// run steps n times with the same commands; no monsters appear.
func (r *rig) run(n int, cmds ...command) {
	for range n {
		r.hatch = hatchSteps
		r.step(cmds)
	}
}

func (r *rig) player(seat int) *Player { return r.players.Get(r.seats[seat]) }

func TestWalk(t *testing.T) {
	for _, c := range []struct {
		name   string
		dx, dy int8
		vx, vy float64
	}{
		{"right", 127, 0, playerSpeed, 0},
		{"up", 0, -127, 0, -playerSpeed},
		{"two keys", 127, 127, playerSpeed / math.Sqrt2, playerSpeed / math.Sqrt2},
		{"half", 64, 0, playerSpeed * 64 / 127, 0},
		{"the most negative", -128, 0, -playerSpeed, 0},
	} {
		r := alone([2]float64{450, 700})
		r.run(40, command{in: Input{DX: c.dx, DY: c.dy}})
		if p := r.player(0); math.Abs(p.VX-c.vx) > 0.1 || math.Abs(p.VY-c.vy) > 0.1 {
			t.Errorf("%s: velocity %v, %v, want %v, %v", c.name, p.VX, p.VY, c.vx, c.vy)
		}
		r.run(60, command{missing: true, in: Input{DX: c.dx, DY: c.dy}})
		if p := r.player(0); math.Abs(p.VX) > 0.1 || math.Abs(p.VY) > 0.1 {
			t.Errorf("%s: a player without input still moves", c.name)
		}
	}
	r := alone([2]float64{500, 900})
	r.run(300, command{in: Input{DY: -127}}) // against the middle pillar
	if p := r.player(0); p.Y < 500 {
		t.Errorf("walked through a pillar to %v", p.Y)
	}
}

func TestShots(t *testing.T) {
	const right = 0
	fire := command{seat: 0, in: Input{Fire: true, Aim: right}}
	idle := command{seat: 1}

	r := alone([2]float64{400, 400}, [2]float64{600, 400})
	r.run(1, fire, idle)
	if hp := r.player(1).HP; hp != playerHP-shotDamage {
		t.Fatalf("after one shot %d hp", hp)
	}
	r.run(shotSteps-1, fire, idle)
	if hp := r.player(1).HP; hp != playerHP-shotDamage {
		t.Fatalf("the gun was ready before its time: %d hp", hp)
	}
	r.run(1, fire, idle)
	if hp := r.player(1).HP; hp != playerHP-2*shotDamage {
		t.Fatalf("after two shots %d hp", hp)
	}
	r.run(3*shotSteps, fire, idle)
	if p := r.player(1); p.HP != 0 || p.Wait == 0 || r.player(0).Score != playerScore {
		t.Fatalf("not dead of five shots: %+v", p)
	}
	r.run(respawnSteps, command{seat: 0}, idle)
	if p := r.player(1); p.HP != playerHP || p.Shield == 0 {
		t.Fatalf("not back: %+v", p)
	}

	// A press while the gun is not ready is kept; one shot for one press.
	r = alone([2]float64{400, 400}, [2]float64{600, 400})
	r.run(1, fire, idle)
	r.run(1, command{seat: 0, pressed: true}, idle)
	r.run(40, command{seat: 0}, idle)
	if hp := r.player(1).HP; hp != playerHP-2*shotDamage {
		t.Errorf("a short press: %d hp", hp)
	}

	for name, c := range map[string]struct {
		prepare func(r *rig)
		at      [2]float64
	}{
		"behind":   {nil, [2]float64{200, 400}},
		"beside":   {nil, [2]float64{600, 420}},
		"too far":  {nil, [2]float64{400 + shotReach + 30, 400}},
		"shielded": {func(r *rig) { r.player(1).Shield = 90 }, [2]float64{600, 400}},
		"away":     {func(r *rig) { r.away(1, true) }, [2]float64{600, 400}},
	} {
		r = alone([2]float64{400, 400}, c.at)
		if c.prepare != nil {
			c.prepare(r)
		}
		r.run(20, fire, command{seat: 1, missing: r.player(1).Away})
		if hp := r.player(1).HP; hp != playerHP {
			t.Errorf("%s: hit: %d hp", name, hp)
		}
	}
	r = alone([2]float64{400, 500}, [2]float64{600, 500}) // a pillar between them
	r.run(20, fire, idle)
	if hp := r.player(1).HP; hp != playerHP {
		t.Errorf("shot through a pillar: %d hp", hp)
	}
	// The shield ends with one's own first shot.
	r.player(0).Shield = 50
	r.run(shotSteps, fire, idle)
	if r.player(0).Shield != 0 {
		t.Error("shoots from behind a shield")
	}
}

func TestHealing(t *testing.T) {
	r := alone([2]float64{400, 400})
	r.player(0).HP = 50
	r.run(calmSteps-1, command{})
	if hp := r.player(0).HP; hp != 50 {
		t.Errorf("%d hp before the time", hp)
	}
	r.run(50*healSteps, command{})
	if hp := r.player(0).HP; hp != playerHP {
		t.Errorf("%d hp after the time", hp)
	}
}

func TestMonsters(t *testing.T) {
	r := alone([2]float64{400, 400})
	r.monsters.Spawn(Monster{HP: monsterHP, Body: Body{X: 400, Y: 600}})
	r.run(120, command{})
	hp := r.player(0).HP
	if hp >= playerHP {
		t.Fatal("a monster in sight did not bite")
	}
	r.away(0, true)
	r.run(200, command{missing: true})
	if r.player(0).HP < hp {
		t.Error("it bit a player whose link was down")
	}
	r.away(0, false)
	if r.player(0).Shield == 0 {
		t.Error("a player came back without protection")
	}
	for range 2000 {
		r.run(1, command{})
		if r.player(0).HP == 0 {
			return
		}
	}
	t.Error("the monster did not finish its meal")
}

// Clients must not see who it was by seat index alone: the own entity is told by the feed.
func TestOwn(t *testing.T) {
	r := newRig(1, 3)
	r.leave(1)
	r.join(1, "another")
	if r.seats[1] == 0 || r.player(1).Name != "another" {
		t.Error("the seat was not taken again")
	}
	var _ feed.Feed = r.feed
}

func TestStepAllocatesNothing(t *testing.T) {
	r := newRig(1, maxSeats)
	r.remember(20)
	for range 600 {
		r.play()
	}
	if n := testing.AllocsPerRun(600, func() {
		r.play()
		r.feed.Capture(0).Release()
	}); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

func BenchmarkStep(b *testing.B) {
	r := newRig(1, maxSeats)
	r.remember(20)
	frame := func() { r.feed.Capture(0).Release() } // as the engine does, so that the event log is used up
	for range 600 {
		r.play()
		frame()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		r.play()
		if i%3 == 0 {
			frame()
		}
	}
}
