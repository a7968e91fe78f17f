package drumline

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write wire/testdata/packet.json anew")

// The vectors of packet.go and web/src/packet.ts: both read the same file, so that they cannot drift apart.
type packetVectors struct {
	Note    string         `json:"note"`
	States  []stateVector  `json:"states"`
	Rely    []relyVector   `json:"reliable"`
	Inputs  []inputVector  `json:"inputs"`
	Acks    []ackVector    `json:"acks"`
	Reports []reportVector `json:"reports"`
	Fields  []InputField   `json:"fields"`
	Bad     []string       `json:"badStates"`
	Names   map[string]int `json:"kinds"`
}

type stateVector struct {
	Hex      string `json:"hex"`
	Seq      uint16 `json:"seq"`
	Epoch    uint8  `json:"epoch"`
	Tick16   uint16 `json:"tick16"`
	InputAck uint16 `json:"inputAck"`
	Margin   int8   `json:"margin"`
	HasAcks  bool   `json:"hasAcks"`
	Ack      uint16 `json:"ack"`
	Acks     uint32 `json:"acks"`
	HasHash  bool   `json:"hasHash"`
	Hash     uint32 `json:"hash"`
	// Sections are pairs of a feed and its body.
	Sections []sectionVector `json:"sections"`
}

type sectionVector struct {
	Feed int    `json:"feed"`
	Body string `json:"body"`
}

type relyVector struct {
	Hex   string `json:"hex"`
	Feed  int    `json:"feed"`
	Epoch uint8  `json:"epoch"`
	Tick  Tick   `json:"tick"`
	Body  string `json:"body"`
}

// inputVector is a whole input message: values are of the newest input first.
type inputVector struct {
	Hex     string      `json:"hex"`
	Ack     uint16      `json:"ack"`
	History uint32      `json:"history"`
	Label   Tick        `json:"label"`
	Seen    *uint16     `json:"seen,omitempty"` // absent: the message has none
	Values  [][]float64 `json:"values"`
}

// ackVector is what packets were noted, in order, and the ack message that follows from them.
type ackVector struct {
	Seqs []uint16 `json:"seqs"`
	Hex  string   `json:"hex"`
}

// reportVector is a report in the units of the message: ms and 1/8 ms.
type reportVector struct {
	Hex      string  `json:"hex"`
	Stutters [3]int  `json:"stutters"`
	Numbers  [14]int `json:"numbers"` // from span to starved
	Jolt     float64 `json:"jolt"`
}

// vectorInput has a field of each kind.
type vectorInput struct {
	Fire  bool
	DX    int8
	Jump  bool
	Level uint8
	Turn  int16
	Aim   uint16
	At    int32
	Item  uint32
	Speed float32
}

func buildVectors() packetVectors {
	v := packetVectors{Note: "written by `go test -run Vectors -update .`; read by packet_test.go and web/test/packet.test.ts",
		Names: map[string]int{"hello": KindHello, "input": KindInput, "ack": KindAck, "command": KindCommand, "leave": KindLeave, "report": KindReport,
			"welcome": KindWelcome, "state": KindState, "refuse": KindRefuse, "reliable": KindReliable}}
	headers := []StateHeader{
		{Seq: 1, Epoch: 1, Tick16: 3, Margin: MarginNone},
		{Seq: 65535, Epoch: 255, Tick16: 65535, InputAck: 65535, Margin: 127},
		{Seq: 77, Epoch: 2, Tick16: 1000, InputAck: 999, Margin: -127, HasHash: true, Hash: 0xfedcba98},
		{Seq: 300, Epoch: 1, Tick16: 9, HasAcks: true, Ack: 299, Acks: 0x80000001},
		{Seq: 301, Epoch: 1, Tick16: 9, HasAcks: true, Ack: 300, Acks: 0xffffffff, HasHash: true, Hash: 1},
	}
	bodies := [][]sectionVector{nil, {{0, "00"}}, {{0, "0102030405"}}, {{1, ""}, {3, "ff"}}, {{0, "aa"}, {2, hex.EncodeToString(bytes.Repeat([]byte{7}, 300))}, {255, "01"}}}
	for _, h := range headers {
		for _, sections := range bodies {
			h.sections = len(sections) > 1
			b := appendStateHeader(nil, h)
			for _, s := range sections {
				body, _ := hex.DecodeString(s.Body)
				if h.sections {
					b = append(b, byte(s.Feed), byte(len(body))|0x80, byte(len(body)>>7)|0x80, byte(len(body)>>14))
				}
				b = append(b, body...)
			}
			if h.HasHash {
				b = append(b, byte(h.Hash), byte(h.Hash>>8), byte(h.Hash>>16), byte(h.Hash>>24))
			}
			if sections == nil {
				sections = []sectionVector{}
			}
			v.States = append(v.States, stateVector{hex.EncodeToString(b), h.Seq, h.Epoch, h.Tick16, h.InputAck, h.Margin,
				h.HasAcks, h.Ack, h.Acks, h.HasHash, h.Hash, sections})
		}
	}
	good := func(flags byte, rest ...byte) []byte {
		return append([]byte{KindState, flags, 1, 0, 1, 1, 0, 0, 0, 0}, rest...)
	}
	for _, b := range [][]byte{{}, {KindState}, good(0)[:9], good(8), good(flagHash, 1, 2, 3), good(flagAcks, 1, 2, 3, 4, 5),
		good(flagAcks|flagHash, 1, 2, 3, 4, 5, 6, 7), good(flagSections, 0), good(flagSections, 0, 2, 1), good(flagSections, 1, 0, 1, 0),
		good(flagSections, 1, 0, 0, 0), good(flagSections, 0, 0x80), append([]byte{KindWelcome}, good(0)[1:]...)} {
		v.Bad = append(v.Bad, hex.EncodeToString(b))
	}
	for _, h := range []ReliableHeader{{0, 1, 0}, {7, 255, 0xffffffff}} {
		for _, body := range []string{"", "00ff"} {
			b, _ := hex.DecodeString(body)
			v.Rely = append(v.Rely, relyVector{hex.EncodeToString(append(AppendReliable(nil, h), b...)), h.Feed, h.Epoch, h.Tick, body})
		}
	}
	codec, err := newInputCodec(reflect.TypeFor[vectorInput]())
	if err != nil {
		panic(err)
	}
	v.Fields = codec.describe()
	ins := []vectorInput{{}, {Fire: true, DX: -128, Level: 255, Turn: -32768, Aim: 65535, At: -1 << 31, Item: 1<<32 - 1, Speed: 1.5},
		{Jump: true, DX: 127, Turn: 32767, At: 1<<31 - 1, Speed: -0.25}}
	bit := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	unknown, behind := uint16(0), uint16(0xfedc)
	for i, seen := range []*uint16{nil, nil, nil, &unknown, &behind} {
		n := i%len(ins) + 1
		m := inputVector{Ack: uint16(40001 + i), History: 0xa0000005, Label: Tick(1<<31 + i + 1), Seen: seen}
		b := AppendInputHeader(nil, m.Ack, m.History, n, m.Label)
		if seen != nil {
			b = AppendInputHeaderSeen(nil, m.Ack, m.History, n, m.Label, *seen)
		}
		for _, in := range ins[:n] {
			b = codec.append(b, reflect.ValueOf(in))
			m.Values = append(m.Values, []float64{bit(in.Fire), bit(in.Jump), float64(in.DX), float64(in.Level), float64(in.Turn), float64(in.Aim),
				float64(in.At), float64(in.Item), float64(in.Speed)})
		}
		m.Hex = hex.EncodeToString(b)
		v.Inputs = append(v.Inputs, m)
	}
	for _, a := range []struct {
		seqs    []uint16
		ack     uint16
		history uint32
	}{
		{[]uint16{}, 0, 0}, {[]uint16{1}, 1, 0}, {[]uint16{1, 2, 3}, 3, 0b11}, {[]uint16{1, 4, 3}, 4, 0b101}, {[]uint16{65535, 0, 1}, 1, 0b11},
		{[]uint16{1, 33}, 33, 1 << 31}, {[]uint16{1, 34}, 34, 0}, {[]uint16{50, 18, 17}, 50, 1 << 31},
	} {
		v.Acks = append(v.Acks, ackVector{a.seqs, hex.EncodeToString(AppendAck(nil, a.ack, a.history))})
	}
	for i, q := range []Quality{
		{Span: 2 * time.Second, Frames: 120, FrameP99: 16750 * time.Microsecond, FrameMax: 250 * time.Millisecond, LongTasks: 1, Ping: 45125 * time.Microsecond,
			Age: 90 * time.Millisecond, Buffer: 60 * time.Millisecond, Underruns: 3, Jumps: 2, Rollbacks: 1, Unreadable: 4, Baseless: 5, Starved: 6, JoltP99: 0.125,
			Stutters: [NumCauses]int{1, 0, 2}},
		{},
		{Span: time.Hour, Frames: 1 << 20, FrameP99: time.Minute, FrameMax: time.Minute, Starved: 70000, JoltP99: 1e6, Stutters: [NumCauses]int{300, 255, 0}},
	} {
		b := AppendReport(nil, q)
		m := reportVector{Hex: hex.EncodeToString(b), Jolt: q.JoltP99}
		for c := range m.Stutters {
			m.Stutters[c] = q.Stutters[c]
		}
		for k := range m.Numbers {
			m.Numbers[k] = int(binary.LittleEndian.Uint16(b[4+2*k:]))
			if i == 2 && m.Numbers[k] == 65535 {
				m.Numbers[k] = 70000 // which is sent as the most that there is room for
			}
		}
		v.Reports = append(v.Reports, m)
	}
	return v
}

func TestPacketVectors(t *testing.T) {
	const file = "wire/testdata/packet.json"
	want := buildVectors()
	if *update {
		b, err := json.MarshalIndent(want, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var v packetVectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("%s is not what the code writes: the protocol has changed; raise ProtocolVersion and run with -update", file)
	}
	for i, s := range v.States {
		msg, _ := hex.DecodeString(s.Hex)
		got := []sectionVector{}
		h, err := ParseState(msg, func(_ StateHeader, f int, body []byte) error {
			got = append(got, sectionVector{f, hex.EncodeToString(body)})
			return nil
		})
		if err != nil || h.Seq != s.Seq || h.Epoch != s.Epoch || h.Tick16 != s.Tick16 || h.InputAck != s.InputAck || h.Margin != s.Margin ||
			h.HasAcks != s.HasAcks || h.Ack != s.Ack || h.Acks != s.Acks || h.HasHash != s.HasHash || h.Hash != s.Hash || !reflect.DeepEqual(got, s.Sections) {
			t.Errorf("state %d: %+v %v %v", i, h, got, err)
		}
	}
	for _, s := range v.Bad {
		msg, _ := hex.DecodeString(s)
		if _, err := ParseState(msg, func(StateHeader, int, []byte) error { return nil }); err == nil {
			t.Errorf("%s was taken", s)
		}
	}
	for _, r := range v.Rely {
		msg, _ := hex.DecodeString(r.Hex)
		h, body, err := ParseReliable(msg)
		if err != nil || h != (ReliableHeader{r.Feed, r.Epoch, r.Tick}) || hex.EncodeToString(body) != r.Body {
			t.Errorf("reliable %s: %+v %x %v", r.Hex, h, body, err)
		}
	}
	if _, _, err := ParseReliable([]byte{KindReliable, 0, 0, 0, 0, 0}); err == nil {
		t.Error("a reliable message that is cut short was taken")
	}
}
