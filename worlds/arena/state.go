package arena

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/drumline-engine/drumline/feed/snap"
)

// The saved game:
//
//	0  u8  version  1
//	1  u16 hatch
//	3  ..  the feed's state: both sets, ownership, event log
//
// The random source stands before it; see arena.Snapshot.
const (
	stateVersion = 1
	stateHeader  = 3
)

var errState = errors.New("arena: not a saved arena")

func (g *game) appendState(dst []byte) ([]byte, error) {
	dst = append(dst, stateVersion)
	dst = binary.LittleEndian.AppendUint16(dst, g.hatch)
	return g.feed.AppendState(dst)
}

// restoreState replaces the game. After an error nothing has changed.
func (g *game) restoreState(src []byte) error {
	if err := newGame(nil).load(src); err != nil {
		return err
	}
	return g.load(src)
}

func (g *game) load(src []byte) error {
	if len(src) < stateHeader {
		return fmt.Errorf("%w: %d bytes", errState, len(src))
	}
	if src[0] != stateVersion {
		return fmt.Errorf("%w of version %d: version %d", errState, stateVersion, src[0])
	}
	hatch := binary.LittleEndian.Uint16(src[1:])
	if hatch > hatchSteps {
		return fmt.Errorf("%w: hatch %d", errState, hatch)
	}
	if err := g.feed.RestoreState(src[stateHeader:]); err != nil {
		return fmt.Errorf("arena: restore: %w", err)
	}
	g.hatch = hatch
	g.seats = [maxSeats]snap.EntityID{}
	for id, p := range g.players.All() {
		if err := p.check(); err != nil {
			return err
		}
		if g.seats[p.Seat] != 0 {
			return fmt.Errorf("%w: two players on seat %d", errState, p.Seat)
		}
		g.seats[p.Seat] = id
	}
	if n := g.monsters.Len(); n > maxMonsters {
		return fmt.Errorf("%w: %d monsters", errState, n)
	}
	for _, m := range g.monsters.All() {
		if err := m.check(); err != nil {
			return err
		}
	}
	for seat, id := range g.seats {
		g.own(seat, id)
	}
	return nil
}

func (p *Player) check() error {
	if err := checkBody(&p.Body, playerRadius); err != nil {
		return err
	}
	if p.Seat >= maxSeats || p.HP > playerHP || (p.HP == 0) != (p.Wait > 0) || p.Wait > respawnSteps ||
		p.Shield > shieldSteps || p.Cool > shotSteps || p.Calm > calmSteps || p.Orphan >= orphanSteps ||
		p.Aim != radians(p.AimStep) {
		return fmt.Errorf("%w: player on seat %d", errState, p.Seat)
	}
	return nil
}

func (m *Monster) check() error {
	if err := checkBody(&m.Body, monsterRadius); err != nil {
		return err
	}
	if m.HP == 0 || m.HP > monsterHP || m.Turn > maxTurn || m.Turn < -maxTurn || m.Think > thinkAtLeast+thinkSpread ||
		m.Bite > biteSteps {
		return fmt.Errorf("%w: monster", errState)
	}
	return nil
}

// checkBody also refuses what is not a number: it is in no range.
func checkBody(b *Body, r float64) error {
	in := func(v, low, high float64) bool { return v >= low && v <= high }
	if !in(b.X, r, fieldSize-r) || !in(b.Y, r, fieldSize-r) || !in(b.VX, -300, 300) || !in(b.VY, -300, 300) {
		return fmt.Errorf("%w: a body at %g, %g moving %g, %g", errState, b.X, b.Y, b.VX, b.VY)
	}
	return nil
}
