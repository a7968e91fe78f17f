package snap

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/wire"
)

// randomType is a type that may come from outside: nothing that check allows is too strange.
func randomType(r *rand.Rand, name string) typeSchema {
	t := typeSchema{Name: name}
	owned := r.IntN(3) == 0
	n, body := 1+r.IntN(9), r.IntN(2) == 0 // of the first three
	for i := range n {
		f := fieldSchema{Name: fmt.Sprint("f", i), Q: 1, Pose: r.IntN(2) == 0, Owner: owned && i > n/2}
		k := r.IntN(8)
		if i < 3 && body {
			k = []int{1, 7, 7}[i]
		}
		switch k {
		case 0:
			f.Kind, f.Max, f.Bits = kindBool, 1, 1
		case 1:
			f.Kind, f.Max, f.Bits, f.Q = kindAngle, wire.AngleSteps-1, wire.AngleBits, wire.AngleQ
		case 2:
			f.Kind, f.Max = kindUint, math.MaxUint32
		case 3:
			f.Kind, f.Min, f.Max = kindInt, math.MinInt32, math.MaxInt32
		default:
			// Often a rate's range, that others are extrapolated along.
			f.Kind, f.Q = []kind{kindFloat, kindInt}[r.IntN(2)], 0.5
			f.Min = -int64(r.Uint32() >> (12 + r.IntN(20)))
			f.Max = f.Min + 1 + int64(r.Uint32()>>(12+r.IntN(20)))
		}
		f.Bits = uint(bits.Len64(uint64(f.Max - f.Min)))
		if f.Bits > 1 {
			f.Codes = &[rings]uint8{}
			for k := range f.Codes {
				f.Codes[k] = uint8(r.IntN(numCodes))
			}
		}
		if f.ordered() && f.Max <= maxCoarse && r.IntN(3) == 0 {
			f.Lod = &[rings]uint8{}
			for k := 1; k < rings; k++ {
				f.Lod[k] = uint8(r.IntN(int(f.maxLod()) + 1))
			}
		}
		if f.ordered() && r.IntN(4) == 0 {
			f.TolQ = int32(r.IntN(20))
		}
		f.Pose = f.Pose || f.Lod != nil || f.TolQ != 0
		t.Fields = append(t.Fields, f)
	}
	for i := range t.Fields {
		f := &t.Fields[i]
		if r.IntN(2) == 0 || f.Bits == 1 || !f.ordered() {
			continue
		}
		pose := f.Pose
		f.Pose = true
		if r.IntN(2) == 0 {
			t.Fields[r.IntN(n)].Pose = true // something to go along
		}
		for try := 0; ; try++ {
			f.Ahead = &ahead{By: r.IntN(n), Mul: 1 + r.Int64N(1<<19-1)>>r.IntN(19), Shift: 1 + uint(r.IntN(60))}
			if a := 0; try%2 == 0 && body && n > 3 && i > 2 {
				f.Ahead.By, f.Ahead.Angle, f.Ahead.By2, f.Ahead.Side = 1, &a, 2, r.IntN(2)
				t.Fields[0].Pose, t.Fields[1].Pose, t.Fields[2].Pose = true, true, true
			}
			if t.check(false) == nil {
				break
			} else if try == 60 {
				f.Ahead, f.Pose = nil, pose
				break
			}
		}
	}
	for _, owner := range []bool{false, true} {
		if r.IntN(3) == 0 && (owned || !owner) {
			m := int64(1 + r.IntN(40))
			t.Fields = append(t.Fields, fieldSchema{Name: fmt.Sprint("t", owner), Kind: kindText, Q: 1, Max: m, Bits: uint(bits.Len(uint(m))), Owner: owner})
		}
	}
	return t
}

// randomRow fills row with values of the columns, often those at an edge or near the ones before.
func randomRow(r *rand.Rand, y *layout, row, before []int32) {
	for k := range row {
		f := &y.Fields[k]
		v := f.Min + r.Int64N(f.Max-f.Min+1)
		switch r.IntN(6) {
		case 0:
			v = f.Min
		case 1:
			v = f.Max
		case 2:
			v = max(f.Min, min(f.Max, 0))
		case 3, 4:
			v = max(f.Min, min(f.Max, y.whole(k, before[k])+int64([]int{0, 0, 0, 1, -1, 2, -3}[r.IntN(7)])))
		}
		row[k] = int32(uint32(v))
	}
}

// handmade is a frame without a world.
type handmade struct {
	f  *Feed
	fr *frame
}

func newHandmade(f *Feed, types int) *handmade {
	f.seal()
	h := &handmade{f: f, fr: &frame{feed: f, n: types, live: []uint64{1<<types - 1}, oldest: firstEvent, newest: firstEvent - 1,
		own: []EntityID{0}, eyes: []eye{{ok: true, mask: math.MaxUint32}}, at: make([][3]float32, types), mask: make([]uint32, types)}}
	fr := h.fr
	fr.refs.Store(1)
	for i, t := range f.tables {
		fr.ids, fr.typ = append(fr.ids, makeID(i, 1)), append(fr.typ, uint8(i))
		fr.off, fr.toff = append(fr.off, uint32(len(fr.vals))), append(fr.toff, uint32(len(fr.texts)))
		fr.vals, fr.texts = append(fr.vals, make([]int32, t.cols)...), append(fr.texts, make([]string, t.texts)...)
	}
	return h
}

// TestRoundTripOfAnySchema tells random rows of random types, from one ring to another, any time apart: what is decoded is the rounded
// state.
func TestRoundTripOfAnySchema(t *testing.T) {
	worlds := int(long(150, 20_000))
	ahead, bodies := 0, 0
	for seed := range worlds {
		r := rand.New(rand.NewPCG(uint64(seed), 5))
		f := New(Options{Rings: []Ring{{10, 1}, {20, 1}, {30, 1}, {40, 1}}})
		types := 1 + r.IntN(4)
		for i := range types {
			ts := randomType(r, fmt.Sprint("t", i))
			f.tables = append(f.tables, &table{layout: newLayout(ts), axes: []int{0}})
			for _, x := range ts.Fields {
				if x.Ahead != nil {
					ahead++
					if x.Ahead.Angle != nil {
						bodies++
					}
				}
			}
		}
		h := newHandmade(f, types)
		fr := h.fr
		st := f.Join(0, feed.Delivery(seed%2)).(*stream)
		d, err := NewDecoder(f.Info().Schema)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		fr.tick = feed.Tick(r.Uint32())
		for step := range uint16(8) {
			fr.tick += []feed.Tick{0, 1, 1, 3, 3, 60, 255, 256, 1 << 31, math.MaxUint32}[r.IntN(10)]
			fr.net.built = false
			fr.own[0] = EntityID(0)
			if r.IntN(2) == 0 {
				fr.own[0] = fr.ids[r.IntN(types)]
			}
			before := append([]int32(nil), fr.vals...)
			for i, tb := range f.tables {
				fr.at[i][0] = []float32{5, 15, 25, 35}[r.IntN(4)]
				off := fr.off[i]
				if step == 0 || r.IntN(5) > 0 {
					randomRow(r, tb.layout, fr.vals[off:][:tb.cols], before[off:][:tb.cols])
				}
				for k := range tb.texts {
					fr.texts[int(fr.toff[i])+k] = "ÄäÖöÜüßéèêñõ0123456"[:min(tb.tmax[k]&^1, 2*r.IntN(10))]
				}
			}
			b, w := st.Append(nil, fr, 1<<14)
			if w.More {
				t.Fatalf("seed %d: no room", seed)
			}
			if w.Receipt == 0 {
				continue
			}
			if err := d.Decode(feed.Packet{Seq: step + 1, Tick: fr.tick, Ack: step, Acks: math.MaxUint32}, b); err != nil {
				t.Fatalf("seed %d, step %d: %v\n%s", seed, step, err, f.Info().Schema)
			}
			if st.Hash() != d.Hash() {
				t.Fatalf("seed %d, step %d: hashes differ", seed, step)
			}
			st.Delivered(w.Receipt)
			told := map[EntityID]bool{}
			for _, slot := range d.told {
				told[d.at(slot).id] = true
			}
			for i, tb := range f.tables {
				e := d.byID[fr.ids[i]]
				if e == nil {
					t.Fatalf("seed %d: %x is not there", seed, fr.ids[i])
				}
				mine := fr.own[0] == fr.ids[i]
				ring := uint8(fr.at[i][0] / 10)
				if mine {
					ring = 0
				}
				now := make([]int32, tb.cols)
				tb.extrapolate(now, e.top.cols, &e.top.version, fr.tick)
				for k := range tb.cols {
					c := &tb.col[k]
					v := fr.vals[int(fr.off[i])+k]
					want := rounded(v, c, ring)
					if c.owner && !mine {
						want = 0
					}
					off := int64(now[k]) - int64(want)
					if c.angle {
						off = (off+4096+2048)%4096 - 2048
					}
					if off != 0 && (told[e.id] || ring == 0 || off > int64(c.tol) || off < -int64(c.tol)) || e.top.ring != ring {
						t.Fatalf("seed %d, step %d: column %d of type %d in ring %d (has %d) is %d, want %d of %d\n%s", seed, step, k, i, ring, e.top.ring, now[k],
							want, v, f.Info().Schema)
					}
				}
				for k := range tb.texts {
					want := fr.texts[int(fr.toff[i])+k]
					if k >= tb.tpub && !mine {
						want = ""
					}
					if e.texts[k] != want {
						t.Fatalf("seed %d, step %d: text %q, want %q", seed, step, e.texts[k], want)
					}
				}
			}
		}
	}
	if ahead < worlds || bodies < worlds/5 {
		t.Errorf("%d columns extrapolated, %d along a body: this tests too little", ahead, bodies)
	}
}
