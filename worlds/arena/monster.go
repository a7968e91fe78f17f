package arena

const (
	monsterHP    = 60
	prowlSpeed   = 70.0
	chaseSpeed   = 118.0
	monsterGrip  = 0.07
	sight        = 200.0
	hunters      = maxMonsters / maxSeats // run at one player at a time: as many as each would have in a full room
	bitReach     = playerRadius + monsterRadius + 4
	biteDamage   = 4
	biteSteps    = 60
	elbow        = 2*monsterRadius + 6 // nearer than that, two monsters shun each other
	elbowSpeed   = 60.0
	wallShun     = 70.0
	maxTurn      = 420 // aim steps a step
	thinkAtLeast = 40
	thinkSpread  = 80
)

// spawnMonster adds a monster far from the players. gather must have been called.
func (g *game) spawnMonster() {
	m := Monster{HP: monsterHP, Heading: uint16(g.rng.Uint32())}
	m.X, m.Y = g.place(monsterRadius, false)
	g.monsters.Spawn(m)
}

// prowl moves all monsters. They never stand: they wander in curves, a few of them run at a player in sight, and circle
// around one that they can bite.
func (g *game) prowl() {
	g.shun()
	g.hunt()
	for i, m := range g.pack {
		if m.Bite > 0 {
			m.Bite--
		}
		var wx, wy float64
		p, d := g.quarry[i].who, g.quarry[i].far
		// An earlier one's bite may have been the last.
		m.Mad = p != nil && p.HP > 0
		if m.Mad {
			dx, dy := 1.0, 0.0
			if d > 1e-6 {
				dx, dy = (p.X-m.X)/d, (p.Y-m.Y)/d
			}
			if d > bitReach {
				wx, wy = float64(dx*chaseSpeed), float64(dy*chaseSpeed)
			} else {
				wx, wy = float64(-dy*prowlSpeed), float64(dx*prowlSpeed)
				if m.Bite == 0 {
					m.Bite = biteSteps
					g.hurt(p, biteDamage, nobody)
				}
			}
		} else {
			wx, wy = g.wander(m)
		}
		glide(&m.Body, wx+g.push[i].x, wy+g.push[i].y, monsterGrip, monsterRadius)
	}
}

// quarry is whom a monster runs at, nil for nobody, and how far off he is.
type quarry struct {
	who *Player
	far float64
}

// hunt fills quarry: each monster wants the nearest player in sight, and each player gets the nearest few of those who want
// him. The others let him pass; else all thirty-two would come at somebody who is alone.
func (g *game) hunt() {
	for i, m := range g.pack {
		g.quarry[i].who, g.quarry[i].far = g.nearest(m.X, m.Y)
	}
	for i := range g.pack {
		q := &g.quarry[i]
		if q.who == nil {
			continue
		}
		// Those who have given up are not counted, but who is farther off than one of them is so than enough others.
		nearer := 0
		for j := range g.pack {
			if o := &g.quarry[j]; o.who == q.who && (o.far < q.far || o.far == q.far && j < i) {
				nearer++
			}
		}
		if nearer >= hunters {
			q.who = nil
		}
	}
}

// nearest is the nearest player in sight of a place who can be bitten, and how far off.
func (g *game) nearest(x, y float64) (*Player, float64) {
	var who *Player
	near := float64(sight * sight)
	for _, p := range g.prey {
		dx, dy := p.X-x, p.Y-y
		if d := float64(dx*dx) + float64(dy*dy); d < near && p.HP > 0 {
			who, near = p, d
		}
	}
	if who == nil {
		return nil, 0
	}
	return who, length(who.X-x, who.Y-y)
}

// wander is the velocity that a monster without prey wants.
func (g *game) wander(m *Monster) (x, y float64) {
	if m.Think > 0 {
		m.Think--
	} else {
		m.Think = uint8(thinkAtLeast + g.rng.Uint32N(thinkSpread))
		m.Turn = int16(int(g.rng.Uint32N(2*maxTurn+1)) - maxTurn)
	}
	m.Heading += uint16(m.Turn)
	x, y = direction(m.Heading)
	// Near a wall the wish bends inwards, the more the nearer.
	x += inward(m.X)
	y += inward(m.Y)
	return float64(x * prowlSpeed), float64(y * prowlSpeed)
}

// inward is -1.5 … 1.5, away from the wall that is nearer than wallShun.
func inward(at float64) float64 {
	switch {
	case at < wallShun:
		return 1.5 - float64(at*(1.5/wallShun))
	case at > fieldSize-wallShun:
		return float64((fieldSize-at)*(1.5/wallShun)) - 1.5
	}
	return 0
}

// shun fills push: how monsters that stand too close want to get apart.
func (g *game) shun() {
	for i := range g.pack {
		g.push[i].x, g.push[i].y = 0, 0
	}
	for i, a := range g.pack {
		for j := i + 1; j < len(g.pack); j++ {
			b := g.pack[j]
			dx, dy := b.X-a.X, b.Y-a.Y
			if dx > elbow || dx < -elbow || dy > elbow || dy < -elbow {
				continue
			}
			d := length(dx, dy)
			if d > elbow || d < 1e-6 {
				continue
			}
			f := float64((elbow-d)*(elbowSpeed/elbow)) / d
			x, y := float64(dx*f), float64(dy*f)
			g.push[i].x -= x
			g.push[i].y -= y
			g.push[j].x += x
			g.push[j].y += y
		}
	}
}
