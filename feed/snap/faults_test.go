package snap

import (
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/drumline-engine/drumline/feed"
)

// Faults that a review once found, each with the sequence that shows it.

type spot struct {
	X float64 `drumline:"q=0.01,range=0:10000,place"`
	Y float64 `drumline:"q=0.01,range=0:10000,place"`
}

type peak struct {
	X, Y, Z float64 `drumline:"q=1,range=0:1000,place"`
}

func listen(t *testing.T, f *Feed, d feed.Delivery) *client {
	t.Helper()
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	dec, err := NewDecoder(f.Info().Schema)
	if err != nil {
		t.Fatal(err)
	}
	return &client{st: f.Join(0, d), d: dec}
}

// A place in the world that a type of three axes had leaves no height behind for one of two.
func TestNoHeightStaysBehind(t *testing.T) {
	f := New(Options{Rings: []Ring{{Radius: 50}}})
	high, flat := Add[peak](f, "high"), Add[spot](f, "flat")
	f.Info()
	var ids []EntityID
	for range 64 {
		ids = append(ids, high.Spawn(peak{1, 1, 900}))
	}
	f.capture(1).Release()
	for _, id := range ids {
		high.Remove(id)
	}
	for range 80 {
		flat.Spawn(spot{1, 1})
	}
	c := listen(t, f, feed.Ordered)
	f.LookAt(0, 1, 1, 0)
	c.send(t, f.capture(2), 10000)
	if c.d.Held() != 80 {
		t.Errorf("holds %d of 80", c.d.Held())
	}
}

// A client that is served every fourth time, or whose link refuses every other packet, gets its turn of every entity of a slow ring.
func TestSlowSeatMissesNoTurn(t *testing.T) {
	for _, refused := range []bool{false, true} {
		f := New(Options{Rings: []Ring{{Radius: 10}, {Radius: 100, Every: 4}}})
		set := Add[spot](f, "spot")
		var ids []EntityID
		for i := range 40 {
			ids = append(ids, set.Spawn(spot{50, float64(i)}))
		}
		c := listen(t, f, feed.Ordered)
		f.LookAt(0, 1, 1, 0)
		c.send(t, f.capture(1), 10000)
		for n := 2; n < 42; n++ {
			for i, id := range ids {
				set.Get(id).X = 50 + float64(i)/4 + float64(n)/8
			}
			fr := f.capture(feed.Tick(n))
			switch {
			case refused && n%2 == 0:
				_, w := c.st.Append(nil, fr, 10000)
				c.st.Lost(w.Receipt)
			case refused || n%4 == 0:
				c.send(t, fr, 10000)
				c.d.Each(func(e Entity) bool {
					if fr.tick-e.Tick() > 4 {
						t.Errorf("refused=%v: entity %x of tick %d at tick %d", refused, e.ID, e.Tick(), fr.tick)
					}
					return !t.Failed()
				})
			}
			fr.Release()
		}
	}
}

// However little fits, and whichever slot it has, the own entity is in each packet.
func TestOwnIsInEachPacket(t *testing.T) {
	for _, limit := range []int{60, 150, 400} {
		f := New(Options{})
		set := Add[spot](f, "spot")
		var ids []EntityID
		for range 600 {
			ids = append(ids, set.Spawn(spot{}))
		}
		c := listen(t, f, feed.Ordered)
		own := ids[len(ids)-1]
		for n := 1; n < 20; n++ {
			c.send(t, f.capture(feed.Tick(n)), 10000)
		}
		f.Own(0, own)
		for n := 20; n < 120; n++ {
			for i, id := range ids {
				v := set.Get(id)
				v.X = math.Mod(v.X+float64((n*7+i*13)%900)/3, 10000)
				v.Y = math.Mod(v.Y+float64((n*5+i*11)%900)/3, 10000)
			}
			fr := f.capture(feed.Tick(n))
			c.send(t, fr, limit)
			if e, _ := c.d.Get(own); e.Tick() != fr.tick {
				t.Fatalf("limit %d, tick %d: the own entity is of tick %d", limit, fr.tick, e.Tick())
			}
			fr.Release()
		}
	}
}

// An entity of a type that was added too late is nobody's own.
func TestLateTypeIsNotOwned(t *testing.T) {
	f := New(Options{})
	set := Add[spot](f, "spot")
	for range 3 {
		set.Spawn(spot{})
	}
	c := listen(t, f, feed.Ordered)
	late := Add[spot](f, "late")
	f.Own(0, late.Spawn(spot{}))
	c.send(t, f.capture(1), 1000)
	if c.d.Held() != 3 || c.d.own != 0 {
		t.Errorf("holds %d, own %x", c.d.Held(), c.d.own)
	}
}

// An event that fits into no packet costs itself, and is counted.
func TestEventTooLargeBlocksNobody(t *testing.T) {
	type speech struct {
		A string `drumline:"once,max=1000"`
		B string `drumline:"once,max=1000"`
	}
	f := New(Options{})
	speeches, bangs := AddEvent[speech](f, "speech"), AddEvent[bang](f, "bang")
	c := listen(t, f, feed.Ordered)
	if item, n := f.Largest(); item != "event speech" || n < 2000 || n > 2040 {
		t.Errorf("the largest is %s of %d bytes", item, n)
	}
	got := 0
	c.d.OnEvent = func(Event) { got++ }
	long := strings.Repeat("x", 1000)
	speeches.Emit(speech{long, long})
	for n := 1; n <= 100; n++ {
		bangs.Emit(bang{1})
		c.send(t, f.capture(feed.Tick(n)), 1100)
	}
	if s := f.Stats(); got != 100 || s.TooLarge != 1 {
		t.Errorf("%d of 100 events came, %d too large", got, s.TooLarge)
	}
}

// Who sees what survives a restore: a world that hides things must not show them to the first who comes.
func TestEyesAreSaved(t *testing.T) {
	type hidden struct {
		X, Y float64 `drumline:"q=1,range=0:1000,place"`
		Mask uint32  `drumline:"mask"`
	}
	make := func() (*Feed, *Set[hidden]) {
		f := New(Options{Rings: []Ring{{Radius: 50}}})
		return f, Add[hidden](f, "hidden")
	}
	f, set := make()
	set.Spawn(hidden{X: 1, Mask: 2})
	set.Spawn(hidden{X: 2, Mask: 1})
	set.Spawn(hidden{X: 900, Mask: 1})
	f.See(3, 1)
	f.LookAt(3, 5, 0, 0)
	f.See(9, 2)
	state, err := f.AppendState(nil)
	if err != nil {
		t.Fatal(err)
	}
	g, _ := make()
	if err := g.RestoreState(state); err != nil {
		t.Fatal(err)
	}
	if again, _ := g.AppendState(nil); string(again) != string(state) {
		t.Error("the state of the restored feed differs")
	}
	for _, f := range []*Feed{f, g} {
		if _, w := f.Join(3, feed.Ordered).Append(nil, f.capture(1), 1000); w.Held != 1 {
			t.Errorf("seat 3 holds %d, want the one that it may see and is near", w.Held)
		}
	}
}

// A client that never acks, in a world that moves more than fits, costs what its packets hold, 64 times over.
func TestSilentClientCostsLittle(t *testing.T) {
	f := New(Options{})
	set := Add[spot](f, "spot")
	var ids []EntityID
	for range 1000 {
		ids = append(ids, set.Spawn(spot{}))
	}
	f.Info()
	st := f.Join(0, feed.Unordered).(*stream)
	var open []feed.Receipt
	for n := 1; n <= 200; n++ {
		for i, id := range ids {
			set.Get(id).X = float64((n*7 + i*13) % 9000)
		}
		if len(open) == flights-1 {
			st.Lost(open[0])
			open = open[1:]
		}
		fr := f.capture(feed.Tick(n))
		_, w := st.Append(nil, fr, 1638)
		open = append(open, w.Receipt)
		fr.Release()
	}
	most, have := 0, 0
	for _, fl := range append(st.flying[:], f.flights.free...) {
		if fl != nil {
			most = max(most, len(fl.items)*int(unsafe.Sizeof(item{}))+len(fl.vals)*4)
			have += cap(fl.items)*int(unsafe.Sizeof(item{})) + cap(fl.vals)*4
		}
	}
	// One is where all that is due was looked at.
	if all := 2 * 1000 * (int(unsafe.Sizeof(item{})) + 8); have > 2*flights*most+all {
		t.Errorf("%d KiB in flights, the largest of which holds %d", have>>10, most>>10)
	}
}

// Slots that wait for acks of their leaves do not run over.
func TestSlotsRunOut(t *testing.T) {
	f := New(Options{})
	set := Add[spot](f, "spot")
	var ids []EntityID
	for range 40000 {
		ids = append(ids, set.Spawn(spot{}))
	}
	f.Info()
	st := f.Join(0, feed.Unordered).(*stream)
	_, w := st.Append(nil, f.capture(1), 1<<20)
	st.Delivered(w.Receipt)
	for _, id := range ids {
		set.Remove(id)
	}
	for range 40000 {
		set.Spawn(spot{})
	}
	for n := 2; n < 5; n++ {
		_, w = st.Append(nil, f.capture(feed.Tick(n)), 1<<20)
		if !w.More || w.Held != maxSlots-40000 || st.leaving != 40000 {
			t.Fatalf("%+v, %d leaving", w, st.leaving)
		}
	}
	st.Delivered(w.Receipt)
	for n := 5; n < 7; n++ {
		_, w = st.Append(nil, f.capture(feed.Tick(n)), 1<<20)
		st.Delivered(w.Receipt)
	}
	if w.More || w.Held != 40000 || st.leaving != 0 {
		t.Errorf("in the end %+v, %d leaving", w, st.leaving)
	}
}
