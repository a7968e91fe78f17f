package bots

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/gobwas/ws"
)

// frameLog writes down what it is given.
type frameLog struct {
	log  []string
	fail bool
}

func (l *frameLog) frame(op ws.OpCode, p []byte) error {
	if len(p) > 20 {
		l.log = append(l.log, fmt.Sprintf("%d:%d bytes", op, len(p)))
	} else {
		l.log = append(l.log, fmt.Sprintf("%d:%s", op, p))
	}
	if l.fail {
		return errors.New("enough")
	}
	return nil
}

// frame makes a server's frame.
func serverFrame(fin bool, op ws.OpCode, p []byte) []byte {
	return ws.MustCompileFrame(ws.NewFrame(op, fin, p))
}

// readFrame reads a client's frame and unmasks it.
func readFrame(r io.Reader) (ws.Header, []byte, error) {
	h, err := ws.ReadHeader(r)
	if err != nil || h.Length > maxMessage {
		return h, nil, err
	}
	p := make([]byte, h.Length)
	_, err = io.ReadFull(r, p)
	if h.Masked {
		ws.Cipher(p, h.Mask, 0)
	}
	return h, p, err
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestFrames(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 300)
	huge := bytes.Repeat([]byte("y"), 70_000)
	masked := ws.MustCompileFrame(ws.MaskFrame(ws.NewBinaryFrame([]byte("a"))))
	for _, c := range []struct {
		name string
		in   []byte
		want []string
		err  error
	}{
		{"nothing", nil, nil, nil},
		{"one", serverFrame(true, ws.OpBinary, []byte("a")), []string{"2:a"}, nil},
		{"empty", serverFrame(true, ws.OpBinary, nil), []string{"2:"}, nil},
		{"two and a half", join(serverFrame(true, ws.OpBinary, []byte("a")), serverFrame(true, ws.OpPing, []byte("b")), []byte{0x82}), []string{"2:a", "9:b"}, nil},
		{"16 and 64 bits", join(serverFrame(true, ws.OpBinary, long), serverFrame(true, ws.OpBinary, huge)), []string{"2:300 bytes", "2:70000 bytes"}, nil},
		{"fragments with a ping between", join(serverFrame(false, ws.OpBinary, []byte("a")), serverFrame(true, ws.OpPing, nil),
			serverFrame(false, ws.OpContinuation, []byte("b")), serverFrame(true, ws.OpContinuation, []byte("c"))), []string{"9:", "2:abc"}, nil},
		{"text", serverFrame(true, ws.OpText, []byte("a")), []string{"1:a"}, nil}, // refused by the bot
		{"close", serverFrame(true, ws.OpClose, []byte{3, 232}), []string{"8:\x03\xe8"}, nil},

		{"masked", masked, nil, errFrame},
		{"reserved bit", []byte{0xc2, 0}, nil, errFrame},
		{"reserved opcode", []byte{0x83, 0}, nil, errFrame},
		{"reserved control opcode", []byte{0x8b, 0}, nil, errFrame},
		{"control in fragments", []byte{0x09, 0}, nil, errFrame},
		{"long control", []byte{0x89, 126, 0, 126}, nil, errFrame},
		{"16 bits for a small size", []byte{0x82, 126, 0, 125}, nil, errFrame},
		{"64 bits for a small size", []byte{0x82, 127, 0, 0, 0, 0, 0, 0, 255, 255}, nil, errFrame},
		{"a size of 2 MiB", []byte{0x82, 127, 0, 0, 0, 0, 0, 32, 0, 0}, nil, errTooBig},
		{"a negative size", []byte{0x82, 127, 255, 255, 255, 255, 255, 255, 255, 255}, nil, errTooBig},
		{"a continuation of nothing", serverFrame(true, ws.OpContinuation, nil), nil, errFragment},
		{"a message inside a message", join(serverFrame(false, ws.OpBinary, nil), serverFrame(true, ws.OpBinary, nil)), nil, errFragment},
	} {
		for _, step := range []int{1, 2, 3, 7, len(c.in) + 1} {
			var f frames
			var l frameLog
			var err error
			for at := 0; at < len(c.in) && err == nil; at += step {
				err = f.read(c.in[at:min(at+step, len(c.in))], &l)
			}
			if err != c.err || fmt.Sprint(l.log) != fmt.Sprint(c.want) {
				t.Errorf("%s, %d bytes at a time: %q, %v; want %q, %v", c.name, step, l.log, err, c.want, c.err)
			}
		}
	}
}

func TestFramesBoundsJoinedFragments(t *testing.T) {
	var f frames
	var l frameLog
	part := make([]byte, 64<<10)
	err := f.read(serverFrame(false, ws.OpBinary, part), &l)
	for i := 0; err == nil; i++ {
		if i > 20 {
			t.Fatal("fragments grow without end")
		}
		err = f.read(serverFrame(false, ws.OpContinuation, part), &l)
	}
	if err != errTooBig || len(f.msg) > maxMessage {
		t.Errorf("%v with %d bytes", err, len(f.msg))
	}
}

func TestFramesStopsOnError(t *testing.T) {
	var f frames
	l := frameLog{fail: true}
	two := join(serverFrame(true, ws.OpBinary, []byte("a")), serverFrame(true, ws.OpBinary, []byte("b")))
	if err := f.read(two, &l); err == nil || len(l.log) != 1 {
		t.Errorf("%v after %q", err, l.log)
	}
}

func TestFramesKeepsNothing(t *testing.T) {
	var f frames
	var l frameLog
	whole := serverFrame(true, ws.OpBinary, make([]byte, 10_000))
	for range 3 {
		f.read(whole[:5000], &l)
		f.read(whole[5000:], &l)
	}
	if len(l.log) != 3 || cap(f.rest) > 4096 || cap(f.msg) > 0 {
		t.Errorf("%d messages, %d + %d bytes kept", len(l.log), cap(f.rest), cap(f.msg))
	}
}

func TestAppendFrame(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 4096, 65535} {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(i)
		}
		b := appendFrame([]byte("before"), ws.OpBinary, 0xdeadbeef, p)
		h, got, err := readFrame(bytes.NewReader(b[len("before"):]))
		if err != nil || !h.Masked || !h.Fin {
			t.Fatalf("%d bytes: %+v, %v", n, h, err)
		}
		if !bytes.Equal(got, p) {
			t.Errorf("%d bytes come out as %d others", n, len(got))
		}
		if size := len(b) - len("before"); size != ws.HeaderSize(h)+n {
			t.Errorf("%d bytes in a frame of %d", n, size)
		}
	}
}

// Whatever comes, reading it in pieces or at once gives the same messages and the same end.
func FuzzFrames(f *testing.F) {
	f.Add(serverFrame(true, ws.OpBinary, []byte("hello")), uint64(1))
	f.Add(join(serverFrame(false, ws.OpBinary, []byte("a")), serverFrame(true, ws.OpPing, nil), serverFrame(true, ws.OpContinuation, []byte("b"))), uint64(2))
	f.Add(serverFrame(true, ws.OpBinary, make([]byte, 300)), uint64(3))
	f.Add([]byte{0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0}, uint64(4))
	f.Add([]byte{0xff, 0xff, 0xff}, uint64(5))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		var whole, pieces frames
		var a, b frameLog
		errA := whole.read(data, &a)
		rnd := rand.New(rand.NewPCG(seed, 0))
		var errB error
		for rest := data; len(rest) > 0 && errB == nil; {
			n := 1 + rnd.IntN(len(rest))
			errB = pieces.read(rest[:n], &b)
			rest = rest[n:]
		}
		if errA != errB || fmt.Sprint(a.log) != fmt.Sprint(b.log) {
			t.Errorf("at once %q, %v; in pieces %q, %v", a.log, errA, b.log, errB)
		}
		if kept := len(whole.rest) + len(whole.msg); kept > len(data) {
			t.Errorf("%d bytes kept of %d", kept, len(data))
		}
	})
}

func BenchmarkFramesRead(b *testing.B) {
	data := join(serverFrame(true, ws.OpBinary, make([]byte, 170)), serverFrame(true, ws.OpBinary, make([]byte, 170)))
	var f frames
	var h discard
	b.ReportAllocs()
	for b.Loop() {
		if err := f.read(data, h); err != nil {
			b.Fatal(err)
		}
	}
}

type discard struct{}

func (discard) frame(ws.OpCode, []byte) error { return nil }
