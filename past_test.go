package drumline

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"
	"time"
)

func mixFloats(a, b float64, f float64) float64 { return a + float64((b-a)*f) }

func putFloat(dst []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
}

func getFloat(src []byte) (float64, []byte, error) {
	if len(src) < 8 {
		return 0, nil, errPast
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(src)), src[8:], nil
}

// record makes a past of steps 1 to newest: 7 stands at 10 × tick, 8 is there from step 18 on, 9 up to step 15.
func record(steps int, newest Tick) *Past[float64] {
	p := NewPast(steps, mixFloats)
	for tick := Tick(1); tick <= newest; tick++ {
		p.Begin(tick)
		if tick <= 15 {
			p.Put(9, 1)
		}
		p.Put(7, float64(tick)*10)
		if tick >= 18 {
			p.Put(8, 5)
		}
	}
	return p
}

func TestPast(t *testing.T) {
	p := record(10, 20) // 11 to 20
	for _, c := range []struct {
		id   uint32
		m    Moment
		want float64
		ok   bool
	}{
		{7, MomentAt(15, 0), 150, true},
		{7, MomentAt(15, 8), 155, true},
		{7, MomentAt(15, 15), 159.375, true},
		{7, MomentAt(11, 0), 110, true},
		{7, MomentAt(10, 15), 110, true}, // before all
		{7, 1, 110, true},
		{7, 0, 200, true}, // unknown
		{7, MomentAt(20, 0), 200, true},
		{7, MomentAt(19, 8), 195, true},
		{7, MomentAt(20, 9), 200, true}, // still to come
		{7, MomentAt(1<<32-1, 15), 200, true},
		{8, MomentAt(17, 0), 0, false},
		{8, MomentAt(17, 4), 5, true}, // only after
		{9, MomentAt(15, 4), 1, true}, // only before
		{9, MomentAt(16, 0), 0, false},
		{6, MomentAt(15, 4), 0, false},
	} {
		if v, ok := p.At(c.id, c.m); v != c.want || ok != c.ok {
			t.Errorf("%d at %d+%v: %v %v, want %v %v", c.id, c.m.Tick(), c.m.Part(), v, ok, c.want, c.ok)
		}
	}
	if _, ok := NewPast(3, mixFloats).At(7, 5); ok {
		t.Error("something was there before the first step")
	}
	p.Begin(25) // a gap: what was before is no past
	p.Put(7, 1)
	if v, ok := p.At(7, MomentAt(19, 0)); v != 1 || !ok {
		t.Errorf("after a gap: %v %v", v, ok)
	}
	p.Reset()
	if _, ok := p.At(7, 0); ok {
		t.Error("something is left after a reset")
	}
	if allocs := testing.AllocsPerRun(100, func() {
		p.Begin(p.newest + 1)
		p.Put(7, 1)
		p.Put(8, 2)
		p.At(8, MomentAt(p.newest-1, 3))
	}); allocs != 0 {
		t.Errorf("%v allocations a step", allocs)
	}
}

func TestPastIsSaved(t *testing.T) {
	p := record(10, 20)
	saved := p.Append([]byte("x"), putFloat)[1:]
	for _, steps := range []int{10, 4, 30} {
		q := record(steps, 3)
		rest, err := q.Restore(append(bytes.Clone(saved), 1, 2), getFloat)
		if err != nil || !bytes.Equal(rest, []byte{1, 2}) {
			t.Fatalf("%d steps: rest %v, %v", steps, rest, err)
		}
		for m := MomentAt(21-Tick(min(steps, 10)), 0); m <= MomentAt(20, 0); m++ {
			for id := uint32(6); id < 10; id++ {
				a, was := p.At(id, m)
				if b, is := q.At(id, m); a != b || was != is {
					t.Fatalf("%d steps: %d at %d: %v %v, saved was %v %v", steps, id, m, b, is, a, was)
				}
			}
		}
	}
	for n := range saved {
		q := record(10, 20)
		if _, err := q.Restore(saved[:n], getFloat); err == nil {
			t.Fatalf("%d of %d bytes were taken", n, len(saved))
		}
		if _, ok := q.At(7, 0); ok {
			t.Fatal("after an error something is left")
		}
	}
	if _, err := record(10, 20).Restore(NewPast(3, mixFloats).Append(nil, putFloat), getFloat); err != nil {
		t.Errorf("an empty past: %v", err)
	}
}

func FuzzPastRestore(f *testing.F) {
	f.Add(record(10, 20).Append(nil, putFloat))
	f.Add(NewPast(3, mixFloats).Append(nil, putFloat))
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, src []byte) {
		p := NewPast(5, mixFloats)
		if _, err := p.Restore(src, getFloat); err != nil {
			return
		}
		q := NewPast(5, mixFloats)
		once := p.Append(nil, putFloat)
		if _, err := q.Restore(once, getFloat); err != nil || !bytes.Equal(q.Append(nil, putFloat), once) {
			t.Fatalf("what was restored cannot be saved again: %v", err)
		}
	})
}

func BenchmarkPastAt(b *testing.B) {
	p := NewPast(20, mixFloats)
	for tick := Tick(1); tick <= 20; tick++ {
		p.Begin(tick)
		for id := range uint32(48) {
			p.Put(id, float64(id))
		}
	}
	b.ReportAllocs()
	for i := range b.N {
		p.At(uint32(i%48), MomentAt(12, 5))
	}
}

func TestInboxSeen(t *testing.T) {
	raw := make([]byte, 2)
	take := func(b *inbox, step uint32) Moment {
		b.take(step, raw)
		return b.seen
	}
	fresh := func() *inbox {
		b := newFireInbox(t, 4)
		b.rewind, b.taken = 10*momentParts, 99
		return b
	}

	b := fresh()
	for behind, want := range map[uint16]uint16{0: 0, 1: 16, 15: 16, 16: 16, 17: 17, 176: 176, 177: 176, 65535: 176} {
		if got, moved := b.bound(behind); got != want || moved != (got != behind) {
			t.Errorf("%d parts behind: %d, %v", behind, got, moved)
		}
	}
	b.rewind = 0
	if got, moved := b.bound(40); got != 0 || moved {
		t.Errorf("without a rewind: %d, %v", got, moved)
	}

	// One input, and the steps that repeat it: who holds it goes on seeing. Then nothing.
	b = fresh()
	b.putSeen(100, 40, []byte{1, 7})
	for step, want := range []Moment{100*16 - 40, 101*16 - 40, 102*16 - 40, 103*16 - 40, 0} {
		if got := take(b, uint32(100+step)); got != want {
			t.Errorf("step %d: %d, want %d", 100+step, got, want)
		}
	}

	// A press that comes late was aimed at what was seen then; the next step is as ever.
	b = fresh()
	b.putSeen(100, 40, []byte{0, 0})
	take(b, 100)
	take(b, 101)
	b.putSeen(102, 40, []byte{0, 0})
	take(b, 102)
	if d, dropped := b.putSeen(101, 48, []byte{1, 0}); !dropped || d != DropInputLate {
		t.Fatalf("%v %v", d, dropped)
	}
	if got, want := take(b, 103), Moment(101*16-48); got != want {
		t.Errorf("a late press: %d, want %d", got, want)
	}
	if got, want := take(b, 104), Moment(104*16-40); got != want {
		t.Errorf("after it: %d, want %d", got, want)
	}
	// But not farther back than the bound.
	b = fresh()
	b.putSeen(139, 176, []byte{0, 0})
	take(b, 139)
	b.putSeen(110, 176, []byte{1, 0})
	if got, want := take(b, 140), Moment(140*16-176); got != want {
		t.Errorf("a very late press: %d, want %d", got, want)
	}

	// One that says nothing.
	b = fresh()
	b.put(100, []byte{1, 0})
	if got := take(b, 100); got != 0 {
		t.Errorf("an input that does not say: %d", got)
	}
	// Before the room's beginning there was nothing to see.
	b = fresh()
	b.taken = 1
	b.putSeen(2, 40, []byte{1, 0})
	if got := take(b, 2); got != 0 {
		t.Errorf("before the first step: %d", got)
	}
}

func welcomed(t *testing.T, l *fakeLink) (w Welcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.other) == 0 || l.other[0][0] != KindWelcome {
		t.Fatal("no welcome")
	}
	if err := json.Unmarshal(l.other[0][1:], &w); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestSeenReachesTheWorld(t *testing.T) {
	bubble(t, Spec{Hz: 60, Rewind: 250 * time.Millisecond}, Options{}, nil, func(ts *testServer) {
		l := ts.join("r")
		pause(time.Second)
		if welcomed(t, l).RewindMs != 250 {
			t.Errorf("the welcome says %d ms", welcomed(t, l).RewindMs)
		}
		w := ts.world("r")
		now := Tick(l.conn.seat.Load().room.tickNow.Load())
		body := []byte{1, 7, 0, 0, 0, 0, 0, 0}
		at := func(tick Tick) Input[testInput] { return w.inputs[int(tick)-int(w.steps-len(w.inputs))-1] }
		cases := []struct {
			behind uint16
			want   Moment
		}{
			{100, MomentAt(now+5, -100)},
			{3, MomentAt(now+6, -16)},           // what is still to come
			{65535, MomentAt(now+7, -16-15*16)}, // the far past
			{0, 0},
		}
		for i, c := range cases {
			l.send(append(AppendInputHeaderSeen(nil, 0, 0, 1, now+5+Tick(i), c.behind), body...))
		}
		pause(time.Second)
		for i, c := range cases {
			if in := at(now + 5 + Tick(i)); in.Seen != c.want {
				t.Errorf("%d parts behind step %d: %d, want %d", c.behind, now+5+Tick(i), in.Seen, c.want)
			}
		}
		if st := ts.Stats(); st.Dropped["input_seen"] != 2 || st.Dropped["input_late"] != 0 {
			t.Errorf("counted %v", st.Dropped)
		}
		if l.isClosed() {
			t.Errorf("closed with %s", l.reason)
		}
		l.send(append(AppendInputHeaderSeen(nil, 0, 0, 1, 0, 5), body...)) // behind which step?
		pause(time.Second)
		if !l.isClosed() || l.reason != "bad_message" {
			t.Errorf("a moment without a label: closed %v, %s", l.isClosed(), l.reason)
		}
	})
	// Nobody asked: it is not believed, and does no harm.
	bubble(t, Spec{Hz: 60}, Options{}, nil, func(ts *testServer) {
		l := ts.join("r")
		pause(time.Second)
		if welcomed(t, l).RewindMs != 0 {
			t.Errorf("the welcome says %d ms", welcomed(t, l).RewindMs)
		}
		now := Tick(l.conn.seat.Load().room.tickNow.Load())
		l.send(append(AppendInputHeaderSeen(nil, 0, 0, 1, now+2, 100), 1, 7, 0, 0, 0, 0, 0, 0))
		pause(time.Second)
		w := ts.world("r")
		heard := false
		for _, in := range w.inputs {
			heard = heard || in.Value.DX == 7
			if in.Seen != 0 {
				t.Fatalf("%+v", in)
			}
		}
		if !heard {
			t.Error("the input was not heard")
		}
	})
}

func TestRewindIsChecked(t *testing.T) {
	for _, s := range []Spec{{Hz: 60, Rewind: -1}, {Hz: 60, Rewind: time.Second + 1}, {Rewind: time.Millisecond}} {
		s.Name = "x"
		if err := s.fill(); err == nil {
			t.Errorf("Hz %d, Rewind %v was taken", s.Hz, s.Rewind)
		}
	}
}
