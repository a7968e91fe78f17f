package ws

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	gobwas "github.com/gobwas/ws"
)

// masked makes a client's frame bit by bit, so that it can be wrong.
func masked(first byte, payload string) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n <= 125:
		b = append(b, 0x80|byte(n))
	case n <= 65535:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	mask := [4]byte{0x37, 0xfa, 0x21, 0x3d}
	b = append(b, mask[:]...)
	at := len(b)
	b = append(b, payload...)
	gobwas.Cipher(b[at:], mask, 0)
	return b
}

func closePayload(code int, reason string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(code))) + reason
}

// rfcCase is a client's bytes and what a server makes of them.
type rfcCase struct {
	name   string
	bytes  []byte
	events []string // op and payload
	code   int      // of the close frame that answers an error; 0: no error
	target error
}

const limit = 300 // of the cases

// rfcCases follow RFC 6455, section 5, and this package's own rules.
var rfcCases = []rfcCase{
	// 5.2 base framing
	{"binary", masked(0x82, "Hello"), []string{"2 Hello"}, 0, nil},
	{"the masked frame of 5.7, as binary", []byte{0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58}, []string{"2 Hello"}, 0, nil},
	{"empty", masked(0x82, ""), []string{"2 "}, 0, nil},
	{"125 bytes", masked(0x82, strings.Repeat("a", 125)), []string{"2 " + strings.Repeat("a", 125)}, 0, nil},
	{"126 bytes", masked(0x82, strings.Repeat("b", 126)), []string{"2 " + strings.Repeat("b", 126)}, 0, nil},
	{"the limit", masked(0x82, strings.Repeat("c", limit)), []string{"2 " + strings.Repeat("c", limit)}, 0, nil},
	{"two frames", slices.Concat(masked(0x82, "1"), masked(0x82, "2")), []string{"2 1", "2 2"}, 0, nil},
	{"RSV1", masked(0xc2, "x"), nil, 1002, ErrProtocol},
	{"RSV2", masked(0xa2, "x"), nil, 1002, ErrProtocol},
	{"RSV3", masked(0x92, "x"), nil, 1002, ErrProtocol},
	{"RSV1 on a ping", masked(0xc9, ""), nil, 1002, ErrProtocol},
	{"op 3", masked(0x83, ""), nil, 1002, ErrProtocol},
	{"op 7", masked(0x87, ""), nil, 1002, ErrProtocol},
	{"op 11", masked(0x8b, ""), nil, 1002, ErrProtocol},
	{"op 15", masked(0x8f, ""), nil, 1002, ErrProtocol},
	{"length 5 in 16 bits", []byte{0x82, 0x80 | 126, 0, 5, 0, 0, 0, 0}, nil, 1002, ErrProtocol},
	{"length 300 in 64 bits", []byte{0x82, 0x80 | 127, 0, 0, 0, 0, 0, 0, 1, 44, 0, 0, 0, 0}, nil, 1002, ErrProtocol},
	{"length with the top bit", []byte{0x82, 0x80 | 127, 0x80, 0, 0, 0, 0, 0, 1, 44, 0, 0, 0, 0}, nil, 1002, ErrProtocol},
	{"length of 63 bits", []byte{0x82, 0x80 | 127, 0x7f, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0}, nil, 1009, ErrTooBig},
	{"over the limit, by the header alone", []byte{0x82, 0x80 | 126, 1, 45, 0, 0, 0, 0}, nil, 1009, ErrTooBig},
	// 5.3 masking
	{"unmasked", []byte{0x82, 1, 'x'}, nil, 1002, ErrProtocol},
	{"unmasked ping", []byte{0x89, 0}, nil, 1002, ErrProtocol},
	// 5.4 fragments
	{"two fragments", slices.Concat(masked(0x02, "Hel"), masked(0x80, "lo")), []string{"2 Hello"}, 0, nil},
	{"three, one empty", slices.Concat(masked(0x02, "a"), masked(0x00, ""), masked(0x80, "b")), []string{"2 ab"}, 0, nil},
	{"all empty", slices.Concat(masked(0x02, ""), masked(0x80, "")), []string{"2 "}, 0, nil},
	{"ping between", slices.Concat(masked(0x02, "a"), masked(0x89, "p"), masked(0x80, "b")), []string{"9 p", "2 ab"}, 0, nil},
	{"message after fragments", slices.Concat(masked(0x02, "a"), masked(0x80, "b"), masked(0x82, "c")), []string{"2 ab", "2 c"}, 0, nil},
	{"continuation of nothing", masked(0x80, "x"), nil, 1002, ErrProtocol},
	{"unfinished continuation of nothing", masked(0x00, "x"), nil, 1002, ErrProtocol},
	{"continuation after the end", slices.Concat(masked(0x02, "a"), masked(0x80, "b"), masked(0x80, "c")), []string{"2 ab"}, 1002, ErrProtocol},
	{"new message inside fragments", slices.Concat(masked(0x02, "a"), masked(0x82, "b")), nil, 1002, ErrProtocol},
	{"fragments to the limit", slices.Concat(masked(0x02, strings.Repeat("d", 200)), masked(0x80, strings.Repeat("d", 100))), []string{"2 " + strings.Repeat("d", 300)}, 0, nil},
	{"fragments over the limit", slices.Concat(masked(0x02, strings.Repeat("d", 200)), masked(0x80, strings.Repeat("d", 101))), nil, 1009, ErrTooBig},
	{"empty fragments without end", slices.Concat(masked(0x02, "a"), bytes.Repeat(masked(0x00, ""), maxBare+1)), nil, 1008, ErrProtocol},
	// 5.5 control frames
	{"ping", masked(0x89, "Hello"), []string{"9 Hello"}, 0, nil},
	{"ping of 125 bytes", masked(0x89, strings.Repeat("p", 125)), []string{"9 " + strings.Repeat("p", 125)}, 0, nil},
	{"pong nobody asked for", masked(0x8a, "x"), []string{"10 x"}, 0, nil},
	{"ping of 126 bytes", masked(0x89, strings.Repeat("p", 126)), nil, 1002, ErrProtocol},
	{"unfinished ping", masked(0x09, ""), nil, 1002, ErrProtocol},
	{"unfinished close", masked(0x08, ""), nil, 1002, ErrProtocol},
	{"close of 126 bytes", masked(0x88, closePayload(1000, strings.Repeat("x", 124))), nil, 1002, ErrProtocol},
	// 5.6 data frames
	{"text", masked(0x81, "Hello"), nil, 1003, ErrProtocol},
	{"text in fragments", masked(0x01, "Hel"), nil, 1003, ErrProtocol},
}

func (c rfcCase) check(t *testing.T, events []string, err error) {
	t.Helper()
	if !slices.Equal(events, c.events) {
		t.Errorf("events %q, want %q", events, c.events)
	}
	if c.code == 0 {
		if err != nil {
			t.Errorf("error %v, want none", err)
		}
		return
	}
	if !errors.Is(err, c.target) {
		t.Errorf("error %v, want %v", err, c.target)
	} else if code := closeCode(err); code != c.code {
		t.Errorf("close code %d, want %d (%v)", code, c.code, err)
	}
}

// decode feeds a decoder from a buffer that grows by step bytes at a time and only when it asks for more.
func decode(d *decoder, b []byte, step int) (events []string, err error) {
	have := make([]byte, 0, len(b))
	need := 0
	for {
		for len(have) < need && len(b) > 0 {
			n := min(step, len(b))
			have, b = append(have, b[:n]...), b[n:]
		}
		ev, used, more, err := d.next(have)
		if err != nil {
			return events, err
		}
		if used == 0 {
			if more <= len(have) {
				return events, fmt.Errorf("the decoder needs %d bytes and has %d", more, len(have))
			}
			if need = more; len(b) == 0 {
				return events, nil
			}
			continue
		}
		if ev.op != 0 {
			if err := ev.unpacked(d.limit, func(payload []byte) error {
				events = append(events, fmt.Sprintf("%d %s", ev.op, payload))
				return nil
			}); err != nil {
				return events, err
			}
		}
		have, need = have[used:], 0
	}
}

func TestRFC(t *testing.T) {
	for _, c := range rfcCases {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			for _, step := range []int{1, 2, 7, 1 << 20} {
				events, err := decode(&decoder{limit: limit, side: gobwas.StateServerSide}, c.bytes, step)
				c.check(t, events, err)
			}
		})
	}
}

func TestParseClose(t *testing.T) {
	for code := range 5100 {
		want := slices.Contains([]int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014}, code) || code >= 3000 && code < 5000
		got, reason, err := ParseClose([]byte(closePayload(code, "why")))
		if ok := err == nil; ok != want || ok && (got != code || reason != "why") {
			t.Errorf("code %d: %d %q %v", code, got, reason, err)
		}
		if b := AppendClose(nil, code, "why"); (len(b) > 0) != want {
			t.Errorf("code %d: a close frame with %q", code, b)
		}
	}
	if code, _, err := ParseClose(nil); code != 1005 || err != nil {
		t.Errorf("empty: %d %v", code, err)
	}
	if _, _, err := ParseClose([]byte{3}); closeCode(err) != 1002 {
		t.Errorf("one byte: %v", err)
	}
	if _, _, err := ParseClose([]byte(closePayload(1000, "a\xffb"))); closeCode(err) != 1007 {
		t.Errorf("not UTF-8: %v", err)
	}
	for reason, want := range map[string]string{
		strings.Repeat("x", 123):       strings.Repeat("x", 123),
		strings.Repeat("x", 124):       strings.Repeat("x", 123),
		strings.Repeat("é", 62):        strings.Repeat("é", 61),
		"a\xffb":                       "a\ufffdb",
		strings.Repeat("x", 122) + "é": strings.Repeat("x", 122),
	} {
		if _, got, err := ParseClose(AppendClose(nil, 4000, reason)); got != want || err != nil {
			t.Errorf("reason %q came out as %q, %v", reason, got, err)
		}
	}
}

// TestFrames: what one side appends, the other reads, in pieces of any size.
func TestFrames(t *testing.T) {
	var server, client []byte
	var want []string
	for i, n := range []int{0, 1, 125, 126, 127, 65535, 65536, 70000} {
		op, payload := OpBinary, bytes.Repeat([]byte{byte('a' + i)}, n)
		if n <= maxControl {
			op = OpPing
		}
		server = AppendServerFrame(server, op, payload)
		client = AppendClientFrame(client, op, payload, [4]byte{byte(i), 2, 3, 4})
		want = append(want, fmt.Sprintf("%d %s", op, payload))
		if got := frameSize(n); got != len(AppendServerFrame(nil, op, payload)) {
			t.Errorf("frameSize(%d) is %d", n, got)
		}
	}
	for _, step := range []int{1, 3, 1000, 1 << 20} {
		got, err := decode(&decoder{limit: 1 << 20, side: gobwas.StateServerSide}, client, step)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("client frames in steps of %d: %d events, %v", step, len(got), err)
		}
		got, err = feedAll(server, step, 1<<20)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("server frames in steps of %d: %d events, %v", step, len(got), err)
		}
	}
}

func feedAll(b []byte, step, limit int) (events []string, err error) {
	r := FrameReader{Limit: limit}
	for len(b) > 0 && err == nil {
		n := min(step, len(b))
		err = r.Feed(b[:n], func(op Op, payload []byte) error {
			events = append(events, fmt.Sprintf("%d %s", op, payload))
			return nil
		})
		b = b[n:]
	}
	return events, err
}

func TestFrameReaderErrors(t *testing.T) {
	var r FrameReader
	calls := 0
	stop := errors.New("stop")
	frame := AppendServerFrame(AppendServerFrame(nil, OpText, []byte("a")), OpBinary, []byte("b"))
	err := r.Feed(frame, func(Op, []byte) error { calls++; return stop })
	if err != stop || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	if err := r.Feed(frame, nil); err != stop {
		t.Errorf("%v after an error", err)
	}
	r = FrameReader{Limit: 10}
	if err := r.Feed([]byte{0x82, 11}, nil); !errors.Is(err, ErrTooBig) {
		t.Errorf("%v for 11 bytes, limit 10", err)
	}
	r = FrameReader{}
	if err := r.Feed(masked(0x82, "x"), nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("%v for a masked frame from a server", err)
	}
}

// part makes a server's frame bit by bit, so that it can be wrong.
func part(first byte, payload string) []byte {
	b := AppendServerFrame(nil, OpBinary, []byte(payload))
	b[0] = first
	return b
}

// What a client makes of a server's bytes, in pieces of any size.
func TestFrameReader(t *testing.T) {
	for _, c := range []rfcCase{
		{"nothing", nil, nil, 0, nil},
		{"empty", part(0x82, ""), []string{"2 "}, 0, nil},
		{"two and a half", slices.Concat(part(0x82, "a"), part(0x89, "b"), []byte{0x82}), []string{"2 a", "9 b"}, 0, nil},
		{"fragments with a ping between", slices.Concat(part(0x02, "a"), part(0x89, ""), part(0x00, "b"), part(0x80, "c")), []string{"9 ", "2 abc"}, 0, nil},
		{"text", part(0x81, "a"), []string{"1 a"}, 0, nil},
		{"close", part(0x88, closePayload(1000, "")), []string{"8 \x03\xe8"}, 0, nil},
		{"half of a frame", part(0x82, "abc")[:4], nil, 0, nil},

		{"reserved bit", part(0xc2, ""), nil, 1002, ErrProtocol},
		{"op 3", part(0x83, ""), nil, 1002, ErrProtocol},
		{"op 11", part(0x8b, ""), nil, 1002, ErrProtocol},
		{"unfinished ping", part(0x09, ""), nil, 1002, ErrProtocol},
		{"ping of 126 bytes", []byte{0x89, 126, 0, 126}, nil, 1002, ErrProtocol},
		{"length 125 in 16 bits", []byte{0x82, 126, 0, 125}, nil, 1002, ErrProtocol},
		{"length 65535 in 64 bits", []byte{0x82, 127, 0, 0, 0, 0, 0, 0, 255, 255}, nil, 1002, ErrProtocol},
		{"length of 64 bits", []byte{0x82, 127, 255, 255, 255, 255, 255, 255, 255, 255}, nil, 1002, ErrProtocol},
		{"over the limit, by the header alone", []byte{0x82, 127, 0, 0, 0, 0, 0, 32, 0, 0}, nil, 1009, ErrTooBig},
		{"fragments over the limit", slices.Concat(part(0x02, strings.Repeat("d", 200)), part(0x80, strings.Repeat("d", 101))), nil, 1009, ErrTooBig},
		{"continuation of nothing", part(0x80, ""), nil, 1002, ErrProtocol},
		{"message inside a message", slices.Concat(part(0x02, ""), part(0x82, "")), nil, 1002, ErrProtocol},
		{"after good ones, masked", slices.Concat(part(0x82, "a"), masked(0x82, "b")), []string{"2 a"}, 1002, ErrProtocol},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			for _, step := range []int{1, 2, 3, 7, 1 << 20} {
				events, err := feedAll(c.bytes, step, limit)
				c.check(t, events, err)
			}
		})
	}
}

// A reader that waits for a frame holds no more than the start of one, and nothing large between two.
func TestFrameReaderKeepsLittle(t *testing.T) {
	var r FrameReader
	n := 0
	each := func(Op, []byte) error { n++; return nil }
	big := AppendServerFrame(nil, OpBinary, make([]byte, 10_000))
	for i := range 3 {
		if err := errors.Join(r.Feed(big[:5000], each), r.Feed(big[5000:], each)); err != nil || n != i+1 {
			t.Fatalf("%d messages, %v", n, err)
		}
		if cap(r.held) > maxKept || r.d.joined != nil {
			t.Errorf("%d + %d bytes are kept", cap(r.held), len(r.d.joined))
		}
	}
}

// FuzzDecoder: no input panics, breaks the limit or depends on where it was cut.
func FuzzDecoder(f *testing.F) {
	for _, c := range rfcCases {
		f.Add(c.bytes, uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		whole, err1 := decode(&decoder{limit: limit, side: gobwas.StateServerSide}, b, len(b)+1)
		parts, err2 := decode(&decoder{limit: limit, side: gobwas.StateServerSide}, b, int(step)+1)
		if !slices.Equal(whole, parts) || fmt.Sprint(err1) != fmt.Sprint(err2) {
			t.Errorf("whole: %q, %v\nparts of %d: %q, %v", whole, err1, step+1, parts, err2)
		}
		for _, ev := range whole {
			if len(ev) > limit+3 {
				t.Errorf("an event of %d bytes", len(ev))
			}
		}
	})
}

func FuzzFrameReader(f *testing.F) {
	f.Add(AppendServerFrame(AppendServerFrame(nil, OpBinary, []byte("Hello")), OpClose, []byte{3, 232}), uint8(1))
	f.Add([]byte{0x01, 3, 'H', 'e', 'l', 0x89, 0, 0x80, 2, 'l', 'o'}, uint8(2))
	f.Add([]byte{0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0}, uint8(3))
	f.Add(slices.Concat(part(0x02, "a"), part(0x89, ""), part(0x80, "b")), uint8(4))
	f.Add(part(0x82, strings.Repeat("x", 290)), uint8(5))
	f.Add([]byte{0xff, 0xff, 0xff}, uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		kept := bytes.Clone(b)
		whole, err1 := feedAll(b, len(b)+1, limit)
		parts, err2 := feedAll(b, int(step)+1, limit)
		if !slices.Equal(whole, parts) || fmt.Sprint(err1) != fmt.Sprint(err2) {
			t.Errorf("whole: %q, %v\nparts of %d: %q, %v", whole, err1, step+1, parts, err2)
		}
		if !bytes.Equal(b, kept) {
			t.Error("the input was changed")
		}
		r := FrameReader{Limit: limit}
		_ = r.Feed(b, func(Op, []byte) error { return nil })
		if n := len(r.held) + len(r.d.joined); n > len(b) {
			t.Errorf("%d bytes are kept of %d", n, len(b))
		}
	})
}

func BenchmarkFrameReader(b *testing.B) {
	frame := AppendServerFrame(nil, OpBinary, make([]byte, 600))
	var in []byte
	for range 20 {
		in = append(in, frame...)
	}
	var r FrameReader
	each := func(Op, []byte) error { return nil }
	b.ReportAllocs()
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		// Cut inside a frame, as reads are.
		if r.Feed(in[:5000], each) != nil || r.Feed(in[5000:], each) != nil {
			b.Fatal("broken")
		}
	}
}
