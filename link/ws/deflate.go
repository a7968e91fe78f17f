package ws

import (
	"compress/flate"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Compression of messages, permessage-deflate (RFC 7692), always without context takeover in either direction: each message is
// compressed by itself, so that a connection keeps no window. What compresses (1.2 MiB a piece) is shared by all connections of a
// handler and bounded in number; docs/decisions/0006-deflate.md has the figures.

// Deflate says whether messages may be compressed.
type Deflate uint8

const (
	// DeflateOff declines compression. Bit-packed states do not shrink, so this is the default.
	DeflateOff Deflate = iota
	// DeflateOn compresses messages to clients that offer permessage-deflate, where that makes them smaller, and takes
	// compressed ones from them.
	DeflateOn
)

const (
	deflateName   = "permessage-deflate"
	deflateAnswer = deflateName + "; server_no_context_takeover; client_no_context_takeover"

	// deflateMin is the size from which a message is worth the try. JSON of 128 bytes shrinks to 109, of 256 to 190, of 784 to
	// 376; a try costs 8 µs at the least.
	deflateMin = 256
	// deflateMax is the size up to which it is: a larger one would hold its sender up for more than a millisecond.
	deflateMax = 128 << 10
	// deflateRest is the most messages in a row that a lane sends without a try when the tries before did not pay.
	deflateRest = 63
	// maxFinals is how many blocks marked as the last a message may have. Nobody needs one, and each costs the decoder a new start.
	maxFinals = 8
	// maxInflateKept is the largest buffer that is kept for the next message.
	maxInflateKept = 64 << 10

	rsv1 = 0x40
	// opDeflated is the first byte of a binary frame with RSV1, less the fin bit: its message is compressed.
	opDeflated = OpBinary | rsv1
)

func deflatable(msg []byte) bool { return len(msg) >= deflateMin && len(msg) <= deflateMax }

// acceptDeflate reports whether one of a request's Sec-WebSocket-Extensions headers offers permessage-deflate in a form that
// deflateAnswer answers. An offer with a parameter that is unknown, doubled, malformed or cannot be kept is passed over, as
// RFC 7692, 5.1 has it; what cannot be parsed offers nothing.
func acceptDeflate(headers []string) bool {
	for _, h := range headers {
		offers, ok := parseExtensions(h)
		if ok && slices.ContainsFunc(offers, extension.acceptable) {
			return true
		}
	}
	return false
}

// maxExtensions bounds the extensions of a header and the parameters of one.
const maxExtensions = 32

// extension is one element of a Sec-WebSocket-Extensions header.
type extension struct {
	name   string
	params []param
}

type param struct {
	name, value string
	given       bool // there is a value
}

// acceptable reports whether e is an offer of permessage-deflate that this package can keep.
func (e extension) acceptable() bool {
	if e.name != deflateName {
		return false
	}
	for i, p := range e.params {
		if slices.ContainsFunc(e.params[:i], func(q param) bool { return q.name == p.name }) {
			return false
		}
		switch p.name {
		case "server_no_context_takeover", "client_no_context_takeover":
			if p.given {
				return false
			}
		case "server_max_window_bits":
			// compress/flate has one window, 32 KiB: a smaller one cannot be promised.
			if p.value != "15" {
				return false
			}
		case "client_max_window_bits":
			if p.given && !windowBits(p.value) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// windowBits reports whether s is 8 to 15, without leading zeros.
func windowBits(s string) bool {
	return s == "8" || s == "9" || len(s) == 2 && s[0] == '1' && s[1] >= '0' && s[1] <= '5'
}

// agreed reports whether e is a server's answer to the offer of a client that keeps no window: RFC 7692, 7.1.
func (e extension) agreed() bool {
	return e.acceptable() && slices.Contains(e.params, param{name: "server_no_context_takeover"}) &&
		!slices.ContainsFunc(e.params, func(p param) bool { return p.name == "client_max_window_bits" }) // was not offered
}

// parseExtensions reads a header of the form `name; param; param=token; param="quoted", name`, RFC 6455, 9.1.
func parseExtensions(s string) (all []extension, ok bool) {
	for {
		if s = skipSpace(s); s == "" || s[0] == ',' { // an empty element of a list means nothing: RFC 9110, 5.6.1
			if s == "" {
				return all, len(all) > 0
			}
			s = s[1:]
			continue
		}
		var e extension
		if e.name, s, ok = cutToken(s); !ok || len(all) == maxExtensions {
			return nil, false
		}
		for s = skipSpace(s); s != "" && s[0] == ';'; s = skipSpace(s) {
			var p param
			if p.name, s, ok = cutToken(skipSpace(s[1:])); !ok || len(e.params) == maxExtensions {
				return nil, false
			}
			if s = skipSpace(s); s != "" && s[0] == '=' {
				p.given = true
				if p.value, s, ok = cutValue(skipSpace(s[1:])); !ok {
					return nil, false
				}
			}
			e.params = append(e.params, p)
		}
		if s != "" && s[0] != ',' {
			return nil, false
		}
		all = append(all, e)
	}
}

func skipSpace(s string) string { return strings.TrimLeft(s, " \t") }

// cutToken splits off the token at the start of s.
func cutToken(s string) (token, rest string, ok bool) {
	n := 0
	for n < len(s) && tokenByte(s[n]) {
		n++
	}
	return s[:n], s[n:], n > 0
}

func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// cutValue splits off a token, or a quoted string that is a token inside.
func cutValue(s string) (value, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return cutToken(s)
	}
	var b []byte
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return string(b), s[i+1:], len(b) > 0
		case c == '\\' && i+1 < len(s) && tokenByte(s[i+1]):
			i++
			b = append(b, s[i])
		case tokenByte(c):
			b = append(b, c)
		default:
			return "", "", false
		}
	}
	return "", "", false
}

// deflater compresses one message at a time.
type deflater struct {
	w   *flate.Writer
	buf []byte
}

// Write implements io.Writer for the flate.Writer.
func (d *deflater) Write(p []byte) (int, error) {
	d.buf = append(d.buf, p...)
	return len(p), nil
}

// deflaters are the compressors of a handler. There are at most so many as goroutines run at once; whoever finds none
// sends its message as it is, since a sender must not wait.
type deflaters struct {
	mu   sync.Mutex
	free []*deflater
	made int
	most int
}

func newDeflaters() *deflaters { return &deflaters{most: runtime.GOMAXPROCS(0)} }

// get returns a compressor, or nil if all are in use.
func (p *deflaters) get() *deflater {
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		d := p.free[n-1] // the one whose tables are still in the cache
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return d
	}
	if p.made == p.most {
		p.mu.Unlock()
		return nil
	}
	p.made++
	p.mu.Unlock()
	d := &deflater{}
	d.w, _ = flate.NewWriter(d, flate.BestSpeed) // fails for a wrong level only
	return d
}

func (p *deflaters) put(d *deflater) {
	if cap(d.buf) > maxInflateKept {
		d.buf = nil
	}
	p.mu.Lock()
	p.free = append(p.free, d)
	p.mu.Unlock()
}

var deflateTail = []byte{0, 0, 0xff, 0xff}

// pack returns msg compressed, or nil if that is not at least a sixteenth smaller. The result is valid until the next call.
func (d *deflater) pack(msg []byte) []byte {
	d.buf = d.buf[:0]
	d.w.Reset(d)
	_, _ = d.w.Write(msg) // cannot fail: d takes everything
	_ = d.w.Flush()
	// A flush ends with an empty stored block, whose last four bytes are not sent: RFC 7692, 7.2.1.
	n := len(d.buf) - len(deflateTail)
	if n > len(msg)-len(msg)/16 {
		return nil
	}
	return d.buf[:n]
}

// lane remembers whether a lane's messages are worth compressing. Concurrent use costs at most a wrong guess.
type lane struct {
	rest atomic.Uint32 // messages to send without a try
	last atomic.Uint32 // what rest began with
}

// due reports whether the next message is to be tried.
func (l *lane) due() bool {
	for {
		n := l.rest.Load()
		if n == 0 {
			return true
		}
		if l.rest.CompareAndSwap(n, n-1) {
			return false
		}
	}
}

// learn takes in how a try went.
func (l *lane) learn(paid bool) {
	if paid {
		l.last.Store(0)
		return
	}
	n := min(2*l.last.Load()+1, deflateRest)
	l.last.Store(n)
	l.rest.Store(n)
}

// inflater inflates one message at a time. It takes 40 KiB and has no state between two.
type inflater struct {
	r   io.ReadCloser // also a flate.Resetter
	src tailed
	buf []byte
}

var inflaters = sync.Pool{New: func() any {
	in := &inflater{buf: make([]byte, 0, 1<<10)}
	in.r = flate.NewReader(&in.src)
	return in
}}

func (in *inflater) free() {
	in.src = tailed{}
	if cap(in.buf) <= maxInflateKept {
		inflaters.Put(in)
	}
}

// inflate appends what msg inflates to, at most limit bytes, to dst. The error wraps ErrTooBig or ErrProtocol.
func (in *inflater) inflate(dst, msg []byte, limit int) ([]byte, error) {
	start := len(dst)
	in.src = tailed{msg, inflateTail}
	for range maxFinals {
		// A block that is marked as the last ends the decoder's stream, but not the message: RFC 7692, 7.2.3.4.
		_ = in.r.(flate.Resetter).Reset(&in.src, dst[max(start, len(dst)-maxWindow):]) // never fails
		for {
			if len(dst) == cap(dst) {
				// The last step of growing gets one byte more, to see whether the message is over.
				dst = slices.Grow(dst, min(max(len(dst)-start, 256), limit-(len(dst)-start)+1))
			}
			n, err := in.r.Read(dst[len(dst):cap(dst)])
			dst = dst[:len(dst)+n]
			if len(dst)-start > limit {
				return dst[:start], fmt.Errorf("%w: inflates to more than %d bytes", ErrTooBig, limit)
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return dst[:start], protocolError("a compressed message is damaged")
			}
		}
		if in.src.empty() {
			return dst, nil
		}
	}
	return dst[:start], protocolError("too many final blocks in a compressed message")
}

const maxWindow = 32 << 10

// inflateTail is the end of the last block, which senders leave out, and a last block of our own, at which the decoder stops.
var inflateTail = []byte{0, 0, 0xff, 0xff, 1, 0, 0, 0xff, 0xff}

// tailed reads one slice after the other, and never more than it is asked for.
type tailed [2][]byte

func (t *tailed) empty() bool { return len(t[0])+len(t[1]) == 0 }

// Read implements io.Reader.
func (t *tailed) Read(p []byte) (int, error) {
	n := copy(p, t[0])
	m := copy(p[n:], t[1])
	t[0], t[1] = t[0][n:], t[1][m:]
	if n+m == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n + m, nil
}

// ReadByte implements io.ByteReader.
func (t *tailed) ReadByte() (byte, error) {
	for i := range t {
		if b := t[i]; len(b) > 0 {
			t[i] = b[1:]
			return b[0], nil
		}
	}
	return 0, io.EOF
}

// packedLimit is the largest compressed form that is read of a message of at most n bytes: what does not compress grows a little.
func packedLimit(n int) int { return n + n/8 + 64 }
