package drumline

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// fireOnly has one bool and one number: 2 bytes.
type fireOnly struct {
	Fire bool
	N    uint8
}

func newFireInbox(t testing.TB, hold int) *inbox {
	c, err := newInputCodec(reflect.TypeFor[fireOnly]())
	if err != nil {
		t.Fatal(err)
	}
	return newInbox(c, uint32(hold), 0)
}

func TestInbox(t *testing.T) {
	type put struct {
		label, now uint32
		fire       bool
		n          byte
		drop       Drop
		dropped    bool
	}
	type take struct {
		step    uint32
		n       byte
		fire    bool // held
		pressed bool
		age     int
		missing bool
	}
	p := func(label, now uint32, fire bool, n byte) put { return put{label: label, now: now, fire: fire, n: n} }
	drop := func(q put, d Drop) put { q.drop, q.dropped = d, true; return q }
	cases := []struct {
		name string
		ops  []any
	}{
		{"in time", []any{p(11, 10, true, 1), take{11, 1, true, true, 0, false}}},
		{"a repeated input fires once", []any{p(11, 10, true, 1), take{11, 1, true, true, 0, false}, take{12, 1, true, false, 1, false},
			p(13, 12, true, 2), take{13, 2, true, false, 0, false}}},
		{"held, let go, pressed again", []any{p(1, 0, true, 0), p(2, 0, false, 0), p(3, 0, true, 0),
			take{1, 0, true, true, 0, false}, take{2, 0, false, false, 0, false}, take{3, 0, true, true, 0, false}}},
		{"out of order", []any{p(13, 10, false, 3), p(11, 10, true, 1), p(12, 10, false, 2),
			take{11, 1, true, true, 0, false}, take{12, 2, false, false, 0, false}, take{13, 3, false, false, 0, false}}},
		{"known already", []any{p(11, 10, true, 1), drop(p(11, 10, false, 9), DropInputRepeat), take{11, 1, true, true, 0, false},
			drop(p(11, 11, false, 9), DropInputRepeat), take{12, 1, true, false, 1, false}}},
		{"late: a press still fires once", []any{p(10, 9, false, 1), take{10, 1, false, false, 0, false}, take{11, 1, false, false, 1, false},
			drop(p(11, 11, true, 2), DropInputLate), drop(p(11, 11, true, 2), DropInputRepeat),
			take{12, 2, true, true, 1, false}, take{13, 2, true, false, 2, false}}},
		{"late tap: pressed and let go before it came", []any{take{10, 0, false, false, 10, true},
			drop(p(9, 10, true, 1), DropInputLate), drop(p(10, 10, false, 2), DropInputLate), take{11, 2, false, true, 1, false}, take{12, 2, false, false, 2, false}}},
		{"late, and the input after it carried the press", []any{p(10, 9, true, 2), take{10, 2, true, true, 0, false}, p(11, 10, false, 3),
			take{11, 3, false, false, 0, false}, drop(p(9, 11, true, 1), DropInputLate), take{12, 3, false, false, 1, false}}},
		{"for the step that runs", []any{take{10, 0, false, false, 10, true}, drop(p(10, 10, true, 4), DropInputLate), take{11, 4, true, true, 1, false}}},
		{"late and older than what is held", []any{p(10, 9, false, 5), take{10, 5, false, false, 0, false},
			drop(p(9, 10, false, 4), DropInputLate), take{11, 5, false, false, 1, false}}},
		{"very late", []any{p(100, 99, false, 1), take{100, 1, false, false, 0, false}, drop(p(20, 100, true, 9), DropInputLate), take{101, 1, false, false, 1, false}}},
		{"far future", []any{drop(p(200, 100, true, 9), DropInputFuture), p(164, 100, false, 3), take{101, 0, false, false, 101, true}}},
		{"without a label", []any{p(0, 10, true, 1), take{11, 1, true, true, 0, false}, take{12, 1, true, false, 1, false}}},
		{"without a label, overtaken: its press stays", []any{p(0, 10, true, 1), p(0, 10, false, 2), take{11, 2, false, true, 0, false}, take{12, 2, false, false, 1, false}}},
		{"held for four steps, then nothing", []any{p(1, 0, true, 7), take{1, 7, true, true, 0, false}, take{2, 7, true, false, 1, false},
			take{3, 7, true, false, 2, false}, take{4, 7, true, false, 3, false}, take{5, 0, false, false, 4, true},
			p(6, 5, true, 8), take{6, 8, true, true, 0, false}}},
		{"labels wrap around the ring", []any{p(64, 63, false, 1), take{64, 1, false, false, 0, false}, p(128, 127, false, 2), take{128, 2, false, false, 0, false}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newFireInbox(t, 4)
			for i, op := range c.ops {
				switch o := op.(type) {
				case put:
					b.taken = o.now
					raw := []byte{0, o.n}
					if o.fire {
						raw[0] = 1
					}
					if d, dropped := b.put(o.label, raw); dropped != o.dropped || dropped && d != o.drop {
						t.Fatalf("op %d %+v: dropped %v (%v)", i, o, dropped, d.Name())
					}
				case take:
					raw := make([]byte, 2)
					pressed, age, missing := b.take(o.step, raw)
					got := take{o.step, raw[1], raw[0] == 1, pressed == 1, age, missing}
					if got != o {
						t.Fatalf("op %d: %+v, want %+v", i, got, o)
					}
				}
			}
		})
	}
}

// However inputs are lost, doubled, late or out of order: every press that arrives within the ring fires exactly once, and an
// input is never older than one used before.
func TestInboxRandom(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	for run := range 200 {
		b := newFireInbox(t, 15)
		type msg struct {
			at    uint32
			label uint32
		}
		var flight []msg
		fires := func(label uint32) bool { return label%7 == 0 } // one step long
		arrived := map[uint32]bool{}
		got := 0
		lastN := -1
		raw := make([]byte, 2)
		for now := uint32(0); now < 600; now++ {
			if now < 500 {
				for copies := rnd.IntN(3); copies >= 0; copies-- { // 1 to 3 copies, some lost
					if rnd.IntN(10) > 0 {
						flight = append(flight, msg{now + uint32(rnd.IntN(12)), now + 4})
					}
				}
			}
			rest := flight[:0]
			for _, m := range flight {
				if m.at > now {
					rest = append(rest, m)
					continue
				}
				in := []byte{0, byte(m.label / 4)}
				if fires(m.label) {
					in[0] = 1
				}
				arrived[m.label] = true
				b.put(m.label, in)
			}
			flight = rest
			pressed, _, missing := b.take(now+1, raw)
			if pressed != 0 {
				got++
			}
			if !missing {
				if n := int(raw[1]); n < lastN {
					t.Fatalf("seed %d run %d: step %d went back from %d to %d", seed, run, now+1, lastN, n)
				} else {
					lastN = n
				}
			}
		}
		want := 0
		for l := range arrived {
			if fires(l) {
				want++
			}
		}
		// Two late presses may fall into one step, or one onto a press that is still held; never does one fire twice.
		if got > want {
			t.Fatalf("seed %d run %d: %d presses fired, %d arrived", seed, run, got, want)
		}
		if got < want*3/4 {
			t.Fatalf("seed %d run %d: only %d of %d presses fired", seed, run, got, want)
		}
	}
}
