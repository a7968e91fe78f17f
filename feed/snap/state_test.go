package snap

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/drumline-engine/drumline/feed"
)

// withSum puts the checksum behind a state's body.
func withSum(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(slices.Clone(body), crc32.ChecksumIEEE(body))
}

func TestStateGoesOnAlike(t *testing.T) {
	a := newRig(t, 1)
	for range 20 {
		a.spawn()
	}
	for range 40 {
		a.step(3)
	}
	a.f.capture(a.tick)
	state, err := a.f.AppendState([]byte("head"))
	if err != nil {
		t.Fatal(err)
	}
	b := newRig(t, 77)
	for range 9 {
		b.step(2)
	}
	if err := b.f.RestoreState(state[4:]); err != nil {
		t.Fatal(err)
	}
	b.tick, b.emitted = a.tick, slices.Clone(a.emitted)
	// From here on both must do the same, ids and iteration included.
	a.rnd, b.rnd = rand.New(rand.NewPCG(5, 5)), rand.New(rand.NewPCG(5, 5))
	for n := range 60 {
		a.step(3)
		b.step(3)
		a.f.capture(a.tick)
		b.f.capture(b.tick)
		x, _ := a.f.AppendState(nil)
		y, _ := b.f.AppendState(nil)
		if !slices.Equal(x, y) {
			t.Fatalf("states differ after %d steps", n)
		}
	}
}

func TestRestoreIsAllOrNothing(t *testing.T) {
	a := newRig(t, 1)
	for range 10 {
		a.step(2)
	}
	state, _ := a.f.AppendState(nil)
	b := newRig(t, 2)
	id := b.players.Spawn(player{Name: "stays", cool: 3})
	p := b.players.Get(id)
	before, _ := b.f.AppendState(nil)
	bad := func(what string, src []byte) {
		t.Helper()
		if err := b.f.RestoreState(src); !errors.Is(err, errState) {
			t.Errorf("%s: error %v", what, err)
		}
		if now, _ := b.f.AppendState(nil); !slices.Equal(now, before) || b.players.Get(id) != p || p.Name != "stays" {
			t.Fatalf("%s: something changed", what)
		}
	}
	for k := range state {
		bad("cut", state[:k])
		flip := slices.Clone(state)
		flip[k] ^= 0x10
		bad("flipped", flip)
		if k < len(state)-4 {
			bad("cut under a good checksum", withSum(state[:k]))
		}
	}
	bad("longer", withSum(append(slices.Clone(state[:len(state)-4]), 0)))
	other := New(Options{})
	Add[player](other, "player")
	o, _ := other.AppendState(nil)
	bad("of other types", o)
}

func TestStateKeepsEveryKindOfField(t *testing.T) {
	type inner struct {
		a int8
		b []string
	}
	type kit struct {
		Seen  bool
		f     float32            `drumline:"-"`
		m     map[string]float64 `drumline:"-"`
		mi    map[int16][]inner  `drumline:"-"`
		mu    map[uint8]bool     `drumline:"-"`
		mb    map[bool]string    `drumline:"-"`
		arr   [3]inner           `drumline:"-"`
		nils  []int              `drumline:"-"`
		empty []int              `drumline:"-"`
		units []struct{}         `drumline:"-"`
		rng   rand.PCG           `drumline:"-"`
		at    time.Time          `drumline:"-"`
		u     uint64             `drumline:"-"`
		ptr   *int               `drumline:"-,unsaved"`
		_     int32
	}
	one := 1
	v := kit{
		Seen: true, f: 1.5, m: map[string]float64{"b": 2, "a": 0.1, "": -1}, mi: map[int16][]inner{-3: nil, 4: {{1, []string{"x", ""}}, {}}},
		mu: map[uint8]bool{9: true, 3: false}, mb: map[bool]string{true: "t", false: "f"}, arr: [3]inner{1: {b: []string{}}}, nils: nil, empty: []int{},
		units: make([]struct{}, 5), at: time.Unix(5, 6).UTC(), u: 1 << 63, ptr: &one,
	}
	v.rng.Seed(4, 5)
	f := New(Options{})
	set := Add[kit](f, "kit")
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	id := set.Spawn(v)
	state, err := f.AppendState(nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if again, _ := f.AppendState(nil); !slices.Equal(again, state) {
			t.Fatal("the same state gave other bytes")
		}
	}
	set.Remove(id)
	if err := f.RestoreState(state); err != nil {
		t.Fatal(err)
	}
	got := set.Get(id)
	v.ptr = nil
	if got == nil || !reflect.DeepEqual(*got, v) {
		t.Errorf("got  %+v\nwant %+v", got, v)
	}
	for k := range len(state) - 4 {
		if err := f.RestoreState(withSum(state[:k])); err == nil {
			t.Fatalf("cut to %d was taken", k)
		}
	}
}

// TestRestoreUnderClients turns a running room back and forth under its clients.
func TestRestoreUnderClients(t *testing.T) {
	g := newRig(t, 1)
	for range 12 {
		g.spawn()
	}
	c := join(t, g.f, 0, feed.Ordered)
	var state []byte
	emitted := 0
	for n := range 60 {
		g.step(1)
		if n == 20 {
			state, _ = g.f.AppendState(nil)
			emitted = len(g.emitted)
		}
		epoch := uint8(0)
		if n >= 40 {
			epoch = 1
		}
		if n == 40 {
			if err := g.f.RestoreState(state); err != nil {
				t.Fatal(err)
			}
			c.bangs, c.last = nil, 0 // another timeline: its numbers have gone back
			g.bangs.Emit(bang{uint32(emitted + 1)})
			g.emitted = append(g.emitted[:emitted], uint32(emitted+1))
		}
		fr := g.f.capture(g.tick)
		b, w := c.st.Append(nil, fr, 1<<16)
		c.seq++
		if err := c.d.Decode(feed.Packet{Seq: c.seq, Epoch: epoch, Tick: fr.tick}, b); err != nil {
			t.Fatal(n, err)
		}
		c.st.Delivered(w.Receipt)
		sameView(t, "", c.d, fr, 0)
		c.inOrder(t, g)
		if w.Keyframe != (n == 0 || n == 40) {
			t.Errorf("step %d: keyframe %v", n, w.Keyframe)
		}
		fr.Release()
	}
	if len(c.bangs) == 0 || c.bangs[0] != uint32(emitted+1) {
		t.Errorf("events after the restore: %v", c.bangs)
	}
}
