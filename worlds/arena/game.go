package arena

import (
	"math/rand/v2"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
)

// The rules' figures. Times are in steps of 1/60 s.
const (
	maxSeats    = 16
	maxMonsters = 32

	playerHP     = 100
	respawnSteps = 150 // dead, 2.5 s
	shieldSteps  = 240 // after a join or respawn, or until the first shot
	resumeSteps  = 60  // after a dropped link came back
	calmSteps    = 240 // unhurt for so long, hit points come back,
	healSteps    = 8   // one each so many steps
	orphanSteps  = 30 * hz

	monsterScore = 1
	playerScore  = 3

	hatchSteps = 8   // between two new monsters
	nobody     = 16  // in Kill: a monster
	edge       = 60  // no body appears nearer to a wall
	tries      = 8   // places looked at for a new body
	roomy      = 240 // a place with nobody that near is as good as any
)

// Input is what a player's page sends for each step.
type Input struct {
	// Fire is held for a shot whenever the gun is ready; a short press is kept until it is.
	Fire bool `json:"fire"`
	// DX and DY are the stick: -127 … 127, right and down.
	DX int8 `json:"dx"`
	DY int8 `json:"dy"`
	// Aim is the gun's direction: 65,536 steps a turn, 0 right, a quarter down.
	Aim uint16 `json:"aim"`
}

// Player is one player as clients see it, and below it what only the rules know.
type Player struct {
	Body
	Aim float64 `drumline:"angle"`
	// HP is 0 while dead; then Wait counts the steps to the return.
	HP   uint8 `drumline:"range=0:100"`
	Wait uint8 `drumline:"range=0:150"`
	// Shield counts the steps in which nothing hits, Away says that the link is down (nothing hits either).
	Shield uint8 `drumline:"range=0:240"`
	Away   bool
	Seat   uint8 `drumline:"range=0:15"`
	Score  uint16
	Name   string `drumline:"once,max=96"`

	AimStep uint16 `drumline:"-"`
	Cool    uint8  `drumline:"-"` // steps until the gun is ready
	Trigger bool   `drumline:"-"` // a press that waits for it
	Calm    uint16 `drumline:"-"` // steps since the last wound
	Orphan  uint16 `drumline:"-"` // steps without a seat, after a Restore
}

// touchable says whether shots and teeth do anything.
func (p *Player) touchable() bool { return p.HP > 0 && p.Shield == 0 && !p.Away && p.Orphan == 0 }

// Monster is one monster.
type Monster struct {
	Body
	HP uint8 `drumline:"range=0:60"`
	// Mad: it has seen somebody.
	Mad bool

	Heading uint16 `drumline:"-"`
	Turn    int16  `drumline:"-"` // a step
	Think   uint8  `drumline:"-"` // steps until it turns otherwise
	Bite    uint8  `drumline:"-"` // steps until it can bite again
}

// What a shot hit.
const (
	hitNothing = iota
	hitStone   // a wall or pillar
	hitMonster
	hitPlayer
)

// Shot is the event of one shot: from the middle of its player in the direction of Aim, Reach units long.
type Shot struct {
	Seat  uint8   `drumline:"range=0:15"`
	Aim   float64 `drumline:"angle"`
	Reach float64 `drumline:"q=4,range=0:400"`
	Hit   uint8   `drumline:"range=0:3"`
}

// Kill is the event of a death. Killer and Victim are seats, or 16 for a monster.
type Kill struct {
	Killer uint8   `drumline:"range=0:16"`
	Victim uint8   `drumline:"range=0:16"`
	X      float64 `drumline:"q=1,range=0:1000"`
	Y      float64 `drumline:"q=1,range=0:1000"`
}

// command is what one seat wants in a step.
type command struct {
	seat    int
	name    string // for a seat that has no player: after a Restore from before it joined
	in      Input
	pressed bool // Fire went down
	missing bool // nothing has come for a while: the player stands still
	seen    drumline.Moment
}

// game is the arena without the engine: the same seed, joins, leaves and commands make the same states. Everything that
// lasts from step to step is in the feed's sets, in rng and in hatch.
type game struct {
	feed     *snap.Feed
	players  *snap.Set[Player]
	monsters *snap.Set[Monster]
	shots    *snap.Events[Shot]
	kills    *snap.Events[Kill]
	rng      *rand.Rand
	hatch    uint16 // steps until the next monster may appear

	tick drumline.Tick
	past *drumline.Past[place] // where everybody was; nil: shots hit what is there when they are fired

	seats [maxSeats]snap.EntityID // derived from players; 0: free

	// Scratch of one step. Filled in slot order and seat order, so that a restored game goes through them alike.
	live   [maxSeats]*Player
	prey   []*Player
	pack   []*Monster
	packID []snap.EntityID
	push   [maxMonsters]struct{ x, y float64 }
	quarry [maxMonsters]quarry
	cmd    [maxSeats]command
	seated [maxSeats]bool
}

// codes are what drumline train found for 16 bots: nothing here moves evenly, so telling zero in a bit of its own does not pay.
const codes = "monster.vx=3 monster.vy=3 player.vx=3 player.vy=3 player.aim=5"

// newGame makes the feed and no monsters yet. populate makes the first ones.
func newGame(rng *rand.Rand) *game {
	s := snap.New(snap.Options{Hz: hz, Codes: codes})
	return &game{
		feed:     s,
		players:  snap.Add[Player](s, "player"),
		monsters: snap.Add[Monster](s, "monster"),
		shots:    snap.AddEvent[Shot](s, "shot"),
		kills:    snap.AddEvent[Kill](s, "kill"),
		rng:      rng,
		prey:     make([]*Player, 0, maxSeats),
		pack:     make([]*Monster, 0, maxMonsters),
		packID:   make([]snap.EntityID, 0, maxMonsters),
	}
}

// place is where something stood.
type place struct{ x, y float64 }

// remember has shots judged by what their shooters saw, up to so many steps back.
func (g *game) remember(steps int) {
	g.past = drumline.NewPast(steps, func(a, b place, f float64) place {
		return place{a.x + float64((b.x-a.x)*f), a.y + float64((b.y-a.y)*f)}
	})
}

// record notes where everybody is at the end of the step: what its packet will show. The dead are nowhere, so that nothing
// is between the place where one fell and that where it came back.
func (g *game) record() {
	if g.past == nil {
		return
	}
	g.past.Begin(g.tick)
	for _, id := range g.seats {
		if id != 0 {
			if p := g.players.Get(id); p.HP > 0 {
				g.past.Put(uint32(id), place{p.X, p.Y})
			}
		}
	}
	for id, m := range g.monsters.All() {
		g.past.Put(uint32(id), place{m.X, m.Y})
	}
}

// at is where a body stood for who saw it at a moment.
func (g *game) at(id snap.EntityID, b *Body, seen drumline.Moment) (x, y float64) {
	if g.past != nil && seen != 0 {
		if was, ok := g.past.At(uint32(id), seen); ok {
			return was.x, was.y
		}
	}
	return b.X, b.Y
}

func (g *game) populate() {
	for range maxMonsters {
		g.gather()
		g.spawnMonster()
	}
}

// join puts a seat's player on the field. A seat that has one already (a restored world) keeps it if the name is the same.
func (g *game) join(seat int, name string) {
	if id := g.seats[seat]; id != 0 {
		if p := g.players.Get(id); p.Name == name {
			p.Away, p.Orphan = false, 0
			p.Shield = max(p.Shield, resumeSteps)
			return
		}
		g.leave(seat)
	}
	g.gather()
	p := Player{HP: playerHP, Shield: shieldSteps, Seat: uint8(seat), Name: name}
	p.X, p.Y = g.place(playerRadius, true)
	p.AimStep = uint16(g.rng.Uint32())
	p.Aim = radians(p.AimStep)
	id := g.players.Spawn(p)
	g.seats[seat] = id
	g.own(seat, id)
}

// leave takes a seat's player away.
func (g *game) leave(seat int) {
	if id := g.seats[seat]; id != 0 {
		g.own(seat, 0)
		g.players.Remove(id)
		g.seats[seat] = 0
	}
}

// away marks a player whose link has dropped, or come back.
func (g *game) away(seat int, gone bool) {
	id := g.seats[seat]
	if id == 0 {
		return
	}
	p := g.players.Get(id)
	if p.Away && !gone {
		p.Shield = max(p.Shield, resumeSteps)
	}
	p.Away, p.Trigger = gone, false
}

// gather fills the scratch lists from the sets.
func (g *game) gather() {
	for i, id := range g.seats {
		g.live[i] = nil
		if id != 0 {
			g.live[i] = g.players.Get(id)
		}
	}
	g.pack, g.packID = g.pack[:0], g.packID[:0]
	for id, m := range g.monsters.All() {
		g.pack, g.packID = append(g.pack, m), append(g.packID, id)
	}
}

// step advances the game by 1/60 s. cmds holds at most one command a seat.
func (g *game) step(cmds []command) {
	g.seated = [maxSeats]bool{}
	for i := range cmds {
		c := &cmds[i]
		if g.seats[c.seat] == 0 {
			g.join(c.seat, c.name)
		}
		g.seated[c.seat], g.cmd[c.seat] = true, *c
	}
	for seat, id := range g.seats {
		if id != 0 && !g.seated[seat] && g.orphan(g.players.Get(id)) {
			g.leave(seat)
		}
	}
	g.gather()

	for seat, p := range g.live {
		if p != nil && g.seated[seat] {
			g.act(p, &g.cmd[seat])
		}
	}
	g.prey = g.prey[:0]
	for _, p := range g.live {
		if p != nil && p.touchable() {
			g.prey = append(g.prey, p)
		}
	}
	g.prowl()
	for _, p := range g.live {
		if p != nil && p.Trigger && p.Cool == 0 && p.HP > 0 {
			g.fire(p, g.cmd[p.Seat].seen)
		}
	}
	for i, m := range g.pack {
		if m.HP == 0 {
			g.monsters.Remove(g.packID[i])
		}
	}
	if g.hatch > 0 {
		g.hatch--
	} else if g.monsters.Len() < maxMonsters {
		g.gather()
		g.spawnMonster()
		g.hatch = hatchSteps
	}
	g.record()
}

// orphan counts the steps of a player that came out of a snapshot and whose seat nobody has taken; true: long enough.
func (g *game) orphan(p *Player) bool {
	p.Orphan++
	p.VX, p.VY, p.Trigger = 0, 0, false
	return p.Orphan >= orphanSteps
}

// act is one player's step but for the shot itself.
func (g *game) act(p *Player, c *command) {
	p.Orphan = 0
	if p.Away && !c.missing { // away in the snapshot that was restored, and here now
		g.away(int(p.Seat), false)
	}
	if p.HP == 0 {
		p.VX, p.VY = 0, 0
		if p.Wait--; p.Wait == 0 {
			p.X, p.Y = g.place(playerRadius, true)
			p.HP, p.Shield, p.Cool, p.Calm = playerHP, shieldSteps, 0, 0
		}
		return
	}
	if p.Shield > 0 {
		p.Shield--
	}
	if p.Cool > 0 {
		p.Cool--
	}
	p.Calm = min(p.Calm+1, calmSteps)
	if p.Calm == calmSteps && p.HP < playerHP {
		p.HP++
		p.Calm -= healSteps
	}
	if c.missing || p.Away {
		p.Trigger = false
		walk(&p.Body, 0, 0)
		return
	}
	p.AimStep = c.in.Aim
	p.Aim = radians(c.in.Aim)
	p.Trigger = p.Trigger || c.in.Fire || c.pressed
	walk(&p.Body, c.in.DX, c.in.DY)
}

// hurt wounds a player. killer is the seat that did it, or nobody.
func (g *game) hurt(p *Player, damage, killer uint8) {
	p.Calm = 0
	if p.HP > damage {
		p.HP -= damage
		return
	}
	p.HP, p.Wait, p.Trigger = 0, respawnSteps, false
	p.VX, p.VY = 0, 0
	if killer != nobody {
		g.score(g.live[killer], playerScore)
	}
	g.kills.EmitAt(p.X, p.Y, Kill{Killer: killer, Victim: p.Seat, X: p.X, Y: p.Y})
}

func (g *game) score(p *Player, n uint16) {
	if p.Score <= 1<<16-1-n {
		p.Score += n
	}
}

// place finds room for a body of radius r: of some random places the one with the nearest enemy farthest off. To a player
// everybody is an enemy, to a monster the players.
func (g *game) place(r float64, player bool) (x, y float64) {
	best := -1.0
	for range tries {
		b := Body{X: g.coordinate(), Y: g.coordinate()}
		confine(&b, r)
		near := float64(roomy)
		for _, p := range g.live {
			if p != nil && p.HP > 0 {
				near = min(near, length(p.X-b.X, p.Y-b.Y))
			}
		}
		if player {
			for _, m := range g.pack {
				near = min(near, length(m.X-b.X, m.Y-b.Y))
			}
		}
		if near > best {
			best, x, y = near, b.X, b.Y
		}
	}
	return x, y
}

func (g *game) coordinate() float64 {
	return edge + float64(g.rng.Float64()*(fieldSize-2*edge))
}

func (g *game) own(seat int, id snap.EntityID) { g.feed.Own(feed.SeatID(seat), id) }
