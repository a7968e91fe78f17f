package snap

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/drumline-engine/drumline/feed"
)

// traffic is the packets of a seat over a few ticks, and for each a decoder that has read those before it.
func traffic(t testing.TB, n int) (schema []byte, packets [][]byte) {
	g := newRig(t, 9)
	for range 8 {
		g.spawn()
	}
	c := join(t, g.f, 0, feed.Ordered)
	for range n {
		g.step(1)
		fr := g.f.capture(g.tick)
		b, _ := c.send(t, fr, 1000)
		packets = append(packets, b)
		fr.Release()
	}
	return g.f.Info().Schema, packets
}

// after is a decoder that has read packets.
func after(t testing.TB, schema []byte, packets [][]byte) *Decoder {
	d, err := NewDecoder(schema)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range packets {
		if err := d.Decode(feed.Packet{Seq: uint16(i), Tick: feed.Tick(i)}, b); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestDamagedPacketsChangeNothing(t *testing.T) {
	schema, packets := traffic(t, 6)
	for n := range packets {
		d := after(t, schema, packets[:n])
		before := snapshotOf(d)
		try := func(b []byte) {
			t.Helper()
			switch err := d.Decode(feed.Packet{Seq: uint16(n), Tick: 9}, b); {
			case err == nil:
				d = after(t, schema, packets[:n]) // valid by chance
			case snapshotOf(d) != before:
				t.Fatalf("packet %d: %v, yet something changed", n, err)
			case !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNoKeyframe) && !errors.Is(err, ErrOvertaken):
				t.Fatalf("packet %d: unnamed error %v", n, err)
			}
		}
		for k := range packets[n] {
			if k > 0 { // nothing at all is a packet without a section
				if err := d.Decode(feed.Packet{Seq: uint16(n)}, packets[n][:k]); err == nil {
					t.Fatalf("packet %d cut to %d of %d bytes was taken", n, k, len(packets[n]))
				}
			}
			for bit := range 8 {
				b := slices.Clone(packets[n])
				b[k] ^= 1 << bit
				try(b)
			}
		}
		try(append(slices.Clone(packets[n]), 0))
		if err := d.Decode(feed.Packet{Seq: uint16(n)}, packets[n]); err != nil {
			t.Fatalf("packet %d after all that: %v", n, err)
		}
	}
}

func TestEpochsAndLives(t *testing.T) {
	g := newRig(t, 2)
	g.spawn()
	d, _ := NewDecoder(g.f.Info().Schema)
	a := g.f.Join(0, feed.Ordered)
	key, w := a.Append(nil, g.f.capture(1), 1000)
	a.Delivered(w.Receipt)
	g.spawn()
	delta, _ := a.Append(nil, g.f.capture(2), 1000)
	b := g.f.Join(0, feed.Ordered)
	key2, _ := b.Append(nil, g.f.capture(3), 1000)

	steps := []struct {
		what  string
		epoch uint8
		seq   uint16
		body  []byte
		want  error
	}{
		{"delta first", 250, 1, delta, ErrNoKeyframe},
		{"keyframe", 250, 2, key, nil},
		{"again", 250, 2, key, ErrOvertaken},
		{"delta of a new epoch", 251, 3, delta, ErrNoKeyframe},
		{"delta of an old epoch", 249, 3, delta, ErrOvertaken},
		{"delta", 250, 3, delta, nil},
		{"new stream, its numbers begin again", 250, 0, key2, nil},
		{"old stream", 250, 9, key, ErrOvertaken},
		{"old epoch", 249, 9, key2, ErrOvertaken},
		{"new epoch over the wrap", 1, 0, key, nil},
	}
	for _, s := range steps {
		if err := d.Decode(feed.Packet{Seq: s.seq, Epoch: s.epoch}, s.body); err != s.want {
			t.Errorf("%s: %v, want %v", s.what, err, s.want)
		}
	}
	if d.Held() != 1 {
		t.Errorf("holds %d after the last keyframe", d.Held())
	}
}

// allocated is how many bytes fn allocates.
func allocated(fn func()) uint64 {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	fn()
	runtime.ReadMemStats(&b)
	return b.TotalAlloc - a.TotalAlloc
}

func FuzzDecode(f *testing.F) {
	schema, packets := traffic(f, 5)
	for n, b := range packets {
		f.Add(uint8(n), b)
	}
	f.Add(uint8(0), []byte{})
	f.Add(uint8(3), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, n uint8, body []byte) {
		k := int(n) % (len(packets) + 1)
		d := after(t, schema, packets[:k])
		before := snapshotOf(d)
		var err error
		p := feed.Packet{Seq: uint16(k), Tick: 7}
		if got := allocated(func() { err = d.Decode(p, body) }); got > 64*uint64(len(body))+16<<10 {
			t.Errorf("%d bytes allocated for %d", got, len(body))
		}
		if err != nil {
			if snapshotOf(d) != before {
				t.Errorf("%v, yet something changed", err)
			}
			return
		}
		n2 := 0
		d.Each(func(e Entity) bool {
			for i := range e.y.Fields {
				e.Float(i)
				e.Int(i)
				e.Text(i)
			}
			n2++
			return true
		})
		if n2 != d.Held() {
			t.Errorf("%d held, %d seen", d.Held(), n2)
		}
		d.Own()
		d.Hash()
	})
}

// goldenPackets are the packets of a case of the golden file, with their headers.
func goldenPackets(t testing.TB, n int) (schema []byte, packets []feed.Packet, bodies [][]byte) {
	t.Helper()
	b, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	var v golden
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	for _, s := range v.Cases[n].Steps {
		body, err := hex.DecodeString(s.Hex)
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, feed.Packet{Seq: s.Seq, Epoch: s.Epoch, Tick: feed.Tick(s.Tick), Ack: s.Ack, Acks: s.Acks})
		bodies = append(bodies, body)
	}
	return v.Cases[n].Schema, packets, bodies
}

// replayed is a decoder that has read the first n packets, whatever came of it.
func replayed(t testing.TB, schema []byte, packets []feed.Packet, bodies [][]byte, n int) *Decoder {
	d, err := NewDecoder(schema)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		d.Decode(packets[i], bodies[i])
	}
	return d
}

// TestDamagedGoldenPackets cuts each golden packet everywhere and turns each of its bits: an error and nothing has changed, or a packet
// that could be one.
func TestDamagedGoldenPackets(t *testing.T) {
	for n := range 2 {
		t.Run(fmt.Sprint("case=", n), func(t *testing.T) {
			t.Parallel()
			damageGolden(t, n)
		})
	}
}

func damageGolden(t *testing.T, n int) {
	schema, packets, bodies := goldenPackets(t, n)
	errs, lucky := 0, 0
	for k := range packets {
		if k%12 > 0 && !soaking() {
			continue
		}
		d := replayed(t, schema, packets, bodies, k)
		before := digest(d)
		try := func(body []byte) bool {
			err := d.Decode(packets[k], body)
			switch {
			case err == nil:
				lucky++
				n := 0
				d.Each(func(Entity) bool { n++; return true })
				if n != d.Held() {
					t.Fatalf("packet %d: %d held, %d there", k, d.Held(), n)
				}
				d = replayed(t, schema, packets, bodies, k)
				return true
			case digest(d) != before:
				t.Fatalf("packet %d: %v, yet something changed", k, err)
			case !errors.Is(err, ErrCorrupt) && err != ErrNoKeyframe && err != ErrOvertaken:
				t.Fatalf("packet %d: unnamed error %v", k, err)
			}
			errs++
			return false
		}
		for cut := 1; cut < len(bodies[k]); cut++ {
			if try(bodies[k][:cut]) {
				t.Fatalf("packet %d cut to %d of %d bytes was taken", k, cut, len(bodies[k]))
			}
		}
		for bit := range len(bodies[k]) * 8 {
			b := slices.Clone(bodies[k])
			b[bit/8] ^= 1 << (bit % 8)
			try(b)
		}
	}
	if errs < 500 || lucky < 100 {
		t.Errorf("case %d: %d refused, %d taken: this tests too little", n, errs, lucky)
	}
}

// FuzzDecodeAcked is FuzzDecode with acked baselines: the header matters, too.
func FuzzDecodeAcked(f *testing.F) {
	schema, packets, bodies := goldenPackets(f, 1)
	for k := range packets {
		p := packets[k]
		f.Add(uint8(k), p.Seq, p.Ack, p.Acks, uint32(p.Tick), bodies[k])
		f.Add(uint8(k), p.Seq+1, p.Ack, uint32(0), uint32(p.Tick), bodies[k])
		f.Add(uint8(k), p.Seq, p.Ack+40, p.Acks, uint32(p.Tick), []byte{})
	}
	f.Fuzz(func(t *testing.T, n uint8, seq, ack uint16, acks, tick uint32, body []byte) {
		k := int(n) % (len(packets) + 1)
		d := replayed(t, schema, packets, bodies, k)
		p := feed.Packet{Seq: seq, Epoch: 3, Tick: feed.Tick(tick), Ack: ack, Acks: acks}
		before := digest(d)
		var err error
		if got := allocated(func() { err = d.Decode(p, body) }); got > 64*uint64(len(body))+16<<10 {
			t.Errorf("%d bytes allocated for %d", got, len(body))
		}
		if err != nil && digest(d) != before {
			t.Errorf("%v, yet something changed", err)
		}
		n2 := 0
		d.Each(func(e Entity) bool {
			for i := range e.y.Fields {
				e.Float(i)
				e.Text(i)
				e.Ahead(i, p.Tick+5)
			}
			n2++
			return true
		})
		if n2 != d.Held() {
			t.Errorf("%d held, %d seen", d.Held(), n2)
		}
		// What comes after must not find it broken.
		if k < len(packets) {
			d.Decode(packets[k], bodies[k])
		}
		d.Hash()
	})
}

func FuzzRestoreState(f *testing.F) {
	g := newRig(f, 4)
	for range 5 {
		g.spawn()
	}
	for range 5 {
		g.step(2)
	}
	state, err := g.f.AppendState(nil)
	if err != nil {
		f.Fatal(err)
	}
	empty, _ := newRig(f, 0).f.AppendState(nil)
	// The checksum stops almost all damage, so the fuzzer works on what is under it.
	f.Add(state[:len(state)-4])
	f.Add(empty[:len(empty)-4])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		g := newRig(t, 5)
		g.spawn()
		before, _ := g.f.AppendState(nil)
		sealed := withSum(body)
		if err := g.f.RestoreState(sealed); err != nil {
			if now, _ := g.f.AppendState(nil); !slices.Equal(now, before) {
				t.Fatalf("%v, yet something changed", err)
			}
			return
		}
		a, err := g.f.AppendState(nil)
		if err != nil {
			t.Fatal(err)
		}
		h := newRig(t, 6)
		if err := h.f.RestoreState(a); err != nil {
			t.Fatalf("what was restored cannot be restored again: %v", err)
		}
		if b, _ := h.f.AppendState(nil); !slices.Equal(a, b) {
			t.Fatal("a second round differs")
		}
		for range 3 {
			g.step(1)
		}
		g.f.capture(1)
	})
}
