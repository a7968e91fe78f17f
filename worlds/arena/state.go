package arena

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/drumline-engine/drumline/feed/snap"
)

// The saved game:
//
//	0  u8  version  2
//	1  u16 hatch
//	3  u32 bytes of the past; 0: there is none
//	7  ..  the past, see drumline.Past: of each, f64 x and f64 y
//	.. ..  the feed's state: both sets, ownership, event log
//
// The random source stands before it; see arena.Snapshot.
const (
	stateVersion = 2
	stateHeader  = 7
)

var errState = errors.New("arena: not a saved arena")

func (g *game) appendState(dst []byte) ([]byte, error) {
	dst = append(dst, stateVersion)
	dst = binary.LittleEndian.AppendUint16(dst, g.hatch)
	dst = append(dst, 0, 0, 0, 0)
	at := len(dst)
	if g.past != nil {
		dst = g.past.Append(dst, putPlace)
	}
	binary.LittleEndian.PutUint32(dst[at-4:], uint32(len(dst)-at))
	return g.feed.AppendState(dst)
}

// restoreState replaces the game. After an error nothing has changed.
func (g *game) restoreState(src []byte) error {
	trial := newGame(nil)
	if g.past != nil {
		trial.remember(2) // it reads them all
	}
	if err := trial.load(src); err != nil {
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
	size := uint64(binary.LittleEndian.Uint32(src[3:]))
	src = src[stateHeader:]
	if size > uint64(len(src)) {
		return fmt.Errorf("%w: a past of %d bytes, %d are left", errState, size, len(src))
	}
	if err := g.loadPast(src[:size]); err != nil {
		return err
	}
	if err := g.feed.RestoreState(src[size:]); err != nil {
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

// loadPast reads where everybody was. A game that does not ask leaves it; one that does may do without.
func (g *game) loadPast(src []byte) error {
	if g.past == nil {
		return nil
	}
	g.past.Reset()
	if len(src) == 0 {
		return nil
	}
	rest, err := g.past.Restore(src, getPlace)
	if err != nil {
		return fmt.Errorf("arena: restore: %w", err)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %d bytes after the past", errState, len(rest))
	}
	return nil
}

func putPlace(dst []byte, p place) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(p.x))
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(p.y))
}

// getPlace also refuses what is not a number: it is on no field.
func getPlace(src []byte) (p place, rest []byte, err error) {
	if len(src) < 16 {
		return p, nil, fmt.Errorf("%w: the past is cut off", errState)
	}
	p.x = math.Float64frombits(binary.LittleEndian.Uint64(src))
	p.y = math.Float64frombits(binary.LittleEndian.Uint64(src[8:]))
	if !(p.x >= 0 && p.x <= fieldSize && p.y >= 0 && p.y <= fieldSize) {
		return p, nil, fmt.Errorf("%w: somebody was at %g, %g", errState, p.x, p.y)
	}
	return p, src[16:], nil
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
