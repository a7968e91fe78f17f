package snap

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/drumline-engine/drumline/feed"
)

var update = flag.Bool("update", false, "write ../../wire/testdata/snap.json anew; web/src/snap.ts must agree")

const goldenFile = "../../wire/testdata/snap.json"

// golden is testdata/snap.json: packets in the order of arrival, and what a decoder holds after each.
type golden struct {
	Cases []goldenCase `json:"cases"`
}

type goldenCase struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Steps  []goldenStep    `json:"steps"`
}

type goldenStep struct {
	Seq   uint16 `json:"seq"`
	Epoch uint8  `json:"epoch"`
	Tick  uint32 `json:"tick"`
	Ack   uint16 `json:"ack"`
	Acks  uint32 `json:"acks"`
	Hex   string `json:"hex"`

	Error    string         `json:"error,omitempty"` // "overtaken", "keyframe", "corrupt"; what is held stays
	Hash     uint32         `json:"hash"`
	Cursor   uint64         `json:"cursor"`
	Own      uint32         `json:"own"`
	Held     int            `json:"held"`
	Entities []goldenEntity `json:"entities,omitempty"` // in every fourth step: all that is held
	Events   []goldenEvent  `json:"events,omitempty"`
}

type goldenEntity struct {
	ID      uint32    `json:"id"`
	Type    int       `json:"type"`
	Values  []int32   `json:"values"`
	Numbers []float64 `json:"numbers"`
	Texts   []string  `json:"texts"`
}

type goldenEvent struct {
	ID      uint64    `json:"id"`
	Tick    uint32    `json:"tick"`
	Type    int       `json:"type"`
	Numbers []float64 `json:"numbers"`
	Texts   []string  `json:"texts"`
}

var faults = map[string]error{"overtaken": ErrOvertaken, "keyframe": ErrNoKeyframe, "corrupt": ErrCorrupt}

// replay plays steps into a decoder.
type replay struct {
	d      *Decoder
	events []goldenEvent
	n      int
}

func newReplay(t *testing.T, schema json.RawMessage) *replay {
	d, err := NewDecoder(schema)
	if err != nil {
		t.Fatal(err)
	}
	p := &replay{d: d}
	d.OnEvent = func(e Event) {
		g := goldenEvent{ID: e.ID, Tick: uint32(e.Tick), Type: e.Type, Numbers: []float64{}, Texts: []string{}}
		for i, f := range e.y.Fields {
			if f.Kind == kindText {
				g.Texts = append(g.Texts, e.Text(i))
			} else {
				g.Numbers = append(g.Numbers, e.Float(i))
			}
		}
		p.events = append(p.events, g)
	}
	return p
}

// step feeds a packet and returns it with what came of it.
func (p *replay) step(t *testing.T, s goldenStep) goldenStep {
	body, err := hex.DecodeString(s.Hex)
	if err != nil {
		t.Fatal(err)
	}
	p.events = nil
	err = p.d.Decode(feed.Packet{Seq: s.Seq, Epoch: s.Epoch, Tick: feed.Tick(s.Tick), Ack: s.Ack, Acks: s.Acks}, body)
	out := goldenStep{Seq: s.Seq, Epoch: s.Epoch, Tick: s.Tick, Ack: s.Ack, Acks: s.Acks, Hex: s.Hex}
	for name, fault := range faults {
		if errors.Is(err, fault) {
			out.Error = name
		}
	}
	if err != nil && out.Error == "" {
		t.Fatalf("unnamed error %v", err)
	}
	out.Hash, out.Cursor, out.Own, out.Held, out.Events = p.d.Hash(), p.d.Cursor(), uint32(p.d.own), p.d.Held(), p.events
	if p.n++; p.n%4 == 1 {
		p.d.Each(func(e Entity) bool {
			g := goldenEntity{ID: uint32(e.ID), Type: e.Type, Values: slices.Clone(e.h.top.cols), Numbers: []float64{}, Texts: []string{}}
			for i, f := range e.y.Fields {
				if f.Kind == kindText {
					g.Texts = append(g.Texts, e.Text(i))
				} else {
					g.Numbers = append(g.Numbers, e.Float(i))
				}
			}
			out.Entities = append(out.Entities, g)
			return true
		})
	}
	return out
}

// makeGolden plays worlds and keeps the packets.
func makeGolden(t *testing.T) golden {
	var out golden
	add := func(name string, g *rig, make func(keep func(feed.Packet, []byte))) {
		schema := g.f.Info().Schema
		p := newReplay(t, schema)
		c := goldenCase{Name: name, Schema: schema}
		make(func(k feed.Packet, b []byte) {
			c.Steps = append(c.Steps, p.step(t, goldenStep{Seq: k.Seq, Epoch: k.Epoch, Tick: uint32(k.Tick), Ack: k.Ack, Acks: k.Acks, Hex: hex.EncodeToString(b)}))
		})
		out.Cases = append(out.Cases, c)
	}

	g := newRig(t, 21)
	add("ordered, with a resume", g, func(keep func(feed.Packet, []byte)) {
		for range 6 {
			g.spawn()
		}
		st := g.f.Join(0, feed.Ordered)
		var cursor uint64
		for n := range 24 {
			g.step(1)
			if n == 12 {
				st.Resume(cursor, feed.Ordered)
			}
			fr := g.f.capture(g.tick)
			b, w := st.Append(nil, fr, 300)
			keep(feed.Packet{Seq: uint16(n % 12), Tick: fr.tick}, b)
			cursor = fr.newest
			st.Delivered(w.Receipt)
			fr.Release()
		}
	})

	h := newRig(t, 22)
	add("unordered: lost, doubled, overtaken", h, func(keep func(feed.Packet, []byte)) {
		for range 4 {
			h.spawn()
		}
		st := h.f.Join(1, feed.Unordered)
		h.f.Own(1, h.players.Spawn(player{Name: "näme", Note: "own ✓"}))
		var held []byte
		var open []receipt
		known := feed.Packet{Ack: 65519} // what the server knows to be read
		seen := func(seq uint16) {
			shift := seq - known.Ack
			known.Ack, known.Acks = seq, known.Acks<<shift|1<<(shift-1)
		}
		for n := range uint16(40) {
			h.step(2)
			fr := h.f.capture(h.tick)
			b, w := st.Append(nil, fr, 220)
			p := feed.Packet{Seq: 65520 + n, Epoch: 3, Tick: fr.tick, Ack: known.Ack, Acks: known.Acks}
			fr.Release()
			if w.Receipt == 0 {
				continue
			}
			fate := n % 7
			switch fate {
			case 2: // lost
			case 3: // overtaken by the next
				held = b
			case 5: // doubled
				keep(p, b)
				keep(p, b)
			default:
				keep(p, b)
			}
			if fate == 4 {
				keep(feed.Packet{Seq: p.Seq - 1, Epoch: 3, Tick: p.Tick - 1, Ack: known.Ack, Acks: known.Acks}, held)
			}
			if open = append(open, receipt{n, w.Receipt}); len(open) > 3 {
				if f := open[0].seq % 7; f == 2 || f == 3 {
					st.Lost(open[0].r)
				} else {
					st.Delivered(open[0].r)
					seen(65520 + open[0].seq)
				}
				open = open[1:]
			}
		}
	})

	k := newRig(t, 23)
	add("damaged", k, func(keep func(feed.Packet, []byte)) {
		k.spawn()
		k.spawn()
		st := k.f.Join(0, feed.Ordered)
		seq := uint16(0)
		for n := range 5 {
			k.step(1)
			fr := k.f.capture(k.tick)
			b, w := st.Append(nil, fr, 1000)
			st.Delivered(w.Receipt)
			if n != 2 {
				for i := range 12 {
					bad := slices.Clone(b)
					at := (i*7919 + n) % (len(b) * 8)
					if i%3 == 0 {
						bad = bad[:at/8]
					} else {
						bad[at/8] ^= 1 << (at % 8)
					}
					// Damage that passes for a packet stays in what is held: both decoders must be misled alike.
					seq++
					keep(feed.Packet{Seq: seq, Tick: fr.tick}, bad)
				}
			}
			seq++
			keep(feed.Packet{Seq: seq, Tick: fr.tick}, b)
			fr.Release()
		}
	})
	return out
}

func TestGolden(t *testing.T) {
	b, err := json.Marshal(makeGolden(t))
	if err != nil {
		t.Fatal(err)
	}
	b = append(bytes.ReplaceAll(b, []byte(`},{"seq"`), []byte("},\n{\"seq\"")), '\n') // a step a line
	if *update {
		if err := os.WriteFile(goldenFile, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(have, b) {
		t.Errorf("%s is not what this code makes; if that is meant, run with -update and mend web/src/snap.ts", goldenFile)
	}
	var v golden
	if err := json.Unmarshal(have, &v); err != nil {
		t.Fatal(err)
	}
	for _, c := range v.Cases {
		p := newReplay(t, c.Schema)
		for n, s := range c.Steps {
			got, _ := json.Marshal(p.step(t, s))
			if want, _ := json.Marshal(s); string(got) != string(want) {
				t.Fatalf("%s, step %d:\ngot  %s\nwant %s", c.Name, n, got, want)
			}
		}
	}
}
