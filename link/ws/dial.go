package ws

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	gobwas "github.com/gobwas/ws"

	"github.com/drumline-engine/drumline"
)

// DialOptions set up a client. The zero value of each field means its default.
type DialOptions struct {
	// Header is sent with the request, such as an Origin. Host and the headers of the upgrade are set by Dial.
	Header http.Header
	// TLS is used for wss addresses. Default: the system's roots and the address's host name.
	TLS *tls.Config
	// NetDial makes the TCP connection. Default: a net.Dialer.
	NetDial func(ctx context.Context, network, addr string) (net.Conn, error)
	// ReadLimit is the largest message in bytes, inflated. Default drumline.MaxBacklog.
	ReadLimit int
	// Deflate offers compression without context takeover (permessage-deflate). What this end sends is never compressed: a
	// client's messages are small.
	Deflate bool
}

// HandshakeError is returned by Dial when the server did not upgrade the connection.
type HandshakeError struct {
	Status int    // 0: the answer was not a proper upgrade
	Text   string // the start of the body
}

func (e *HandshakeError) Error() string {
	return fmt.Sprintf("ws: not upgraded: %d %s: %s", e.Status, http.StatusText(e.Status), e.Text)
}

// CloseError is returned by ClientConn.Read when the server closed the connection with a close frame.
type CloseError struct {
	Code   int // 1005: none given
	Reason string
}

func (e *CloseError) Error() string {
	return fmt.Sprintf("ws: closed by the server: %d %s", e.Code, e.Reason)
}

// ClientConn is a client's connection: small, for Go clients and tests. Read may be called by one goroutine at a time; the other
// methods by any.
type ClientConn struct {
	nc net.Conn

	// Owned by the goroutine that reads.
	d        decoder
	buf      []byte
	from, to int
	readErr  error
	inflated []byte // the last compressed message

	wmu    sync.Mutex
	wbuf   []byte // guarded by wmu
	closed bool   // guarded by wmu: a close frame was sent
}

const notOffered = "the server chose what was not offered"

// maxRefusal is how much of a refusal's body is read.
const maxRefusal = 1 << 10

// Dial connects to a ws or wss address. The context bounds the dial and the handshake, not the connection. Its errors are the
// network's or a *HandshakeError.
func Dial(ctx context.Context, address string, o DialOptions) (*ClientConn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("ws: %w", err)
	}
	port := map[string]string{"ws": "80", "wss": "443"}[u.Scheme]
	if port == "" || u.Host == "" {
		return nil, fmt.Errorf("ws: %q is not a ws or wss address", address)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	if o.ReadLimit < 0 {
		return nil, fmt.Errorf("ws: DialOptions.ReadLimit is %d", o.ReadLimit)
	}
	if o.ReadLimit == 0 {
		o.ReadLimit = drumline.MaxBacklog
	}
	if o.NetDial == nil {
		o.NetDial = new(net.Dialer).DialContext
	}
	nc, err := o.NetDial(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, fmt.Errorf("ws: %w", err)
	}
	// The context ends whatever the handshake waits for.
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	c, err := handshake(ctx, nc, u, o)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = nc.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("ws: %w", ctx.Err())
		}
		return nil, err
	}
	return c, nil
}

func handshake(ctx context.Context, nc net.Conn, u *url.URL, o DialOptions) (*ClientConn, error) {
	if u.Scheme == "wss" {
		conf := new(tls.Config)
		if o.TLS != nil {
			conf = o.TLS.Clone()
		}
		if conf.ServerName == "" {
			conf.ServerName = u.Hostname()
		}
		conf.NextProtos = []string{"http/1.1"}
		t := tls.Client(nc, conf)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("ws: %w", err)
		}
		nc = t
	}
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	key := base64.StdEncoding.EncodeToString(nonce[:])
	r := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: o.Header.Clone(), ProtoMajor: 1, ProtoMinor: 1}
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Sec-WebSocket-Version", "13")
	r.Header.Set("Sec-WebSocket-Key", key)
	r.Header.Del("Sec-WebSocket-Extensions")
	if o.Deflate {
		r.Header.Set("Sec-WebSocket-Extensions", deflateAnswer) // the offer reads like the answer
	}
	if err := r.Write(nc); err != nil {
		return nil, fmt.Errorf("ws: %w", err)
	}
	br := bufio.NewReader(nc)
	answer, err := http.ReadResponse(br, r)
	if err != nil {
		return nil, fmt.Errorf("ws: %w", err)
	}
	switch h := answer.Header; {
	case answer.StatusCode != http.StatusSwitchingProtocols:
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
		_ = answer.Body.Close()
		return nil, &HandshakeError{answer.StatusCode, strings.TrimSpace(string(text))}
	case !hasToken(h["Upgrade"], "websocket"), !hasToken(h["Connection"], "upgrade"),
		h.Get("Sec-WebSocket-Accept") != acceptKey(key):
		return nil, &HandshakeError{Text: "the answer does not belong to the request"}
	case len(h["Sec-Websocket-Protocol"]) > 0:
		return nil, &HandshakeError{Text: notOffered}
	}
	deflate := false
	if given := answer.Header["Sec-Websocket-Extensions"]; len(given) > 0 {
		all, ok := parseExtensions(strings.Join(given, ","))
		if deflate = o.Deflate && ok && len(all) == 1 && all[0].agreed(); !deflate {
			return nil, &HandshakeError{Text: notOffered}
		}
	}
	c := &ClientConn{nc: nc, d: decoder{limit: o.ReadLimit, side: gobwas.StateClientSide, text: true, deflate: deflate}}
	early, _ := br.Peek(br.Buffered())
	c.buf = append(make([]byte, 0, max(2<<10, len(early))), early...)
	c.to, c.buf = len(early), c.buf[:cap(c.buf)]
	return c, nil
}

// Read returns the next message, binary or text. It is valid until the next Read. Pings and the server's close frame are
// answered; after the latter the error is a *CloseError and the connection is closed. After any error but a read deadline the
// same error comes again.
func (c *ClientConn) Read() (msg []byte, err error) {
	for c.readErr == nil {
		ev, used, need, err := c.d.next(c.buf[c.from:c.to])
		switch {
		case err != nil:
			c.end(err)
		case used == 0:
			if err := c.fill(need); err != nil {
				var timeout net.Error
				if errors.As(err, &timeout) && timeout.Timeout() {
					return nil, err // the bytes so far are kept
				}
				c.readErr = lost(err)
				_ = c.nc.Close()
			}
		default:
			c.from += used
			switch ev.op {
			case OpBinary, OpText:
				err := ev.unpacked(c.d.limit, func(payload []byte) error {
					if ev.packed {
						c.inflated = append(c.inflated[:0], payload...)
						payload = c.inflated
					}
					msg = payload
					return nil
				})
				if err == nil {
					return msg, nil
				}
				c.end(err)
			case OpPing:
				_ = c.WriteFrame(OpPong, ev.payload)
			case OpClose:
				code, reason, err := ParseClose(ev.payload)
				if c.readErr = err; err == nil {
					c.readErr = &CloseError{code, reason}
				}
				_ = c.closeWith(code, "")
				_ = c.nc.Close()
			}
		}
	}
	return nil, c.readErr
}

// end closes the connection for an error in what was read.
func (c *ClientConn) end(err error) {
	c.readErr = err
	_ = c.closeWith(closeCode(err), closeText(err))
	_ = c.nc.Close()
}

// Deflate reports whether compression was agreed upon. A FrameReader that reads the connection must be told.
func (c *ClientConn) Deflate() bool { return c.d.deflate }

// fill reads once, into a buffer that can hold a frame of need bytes.
func (c *ClientConn) fill(need int) error {
	if need > len(c.buf)-c.from {
		buf := c.buf
		if need > len(buf) && c.to-c.from == len(buf) {
			buf = make([]byte, min(need, 2*len(buf)))
		}
		c.to = copy(buf, c.buf[c.from:c.to])
		c.from, c.buf = 0, buf
	} else if c.from == c.to {
		c.from, c.to = 0, 0
	}
	n, err := c.nc.Read(c.buf[c.to:])
	c.to += n
	if n > 0 {
		return nil
	}
	return err
}

// Write sends a binary message. It waits until the kernel has taken it.
func (c *ClientConn) Write(msg []byte) error { return c.WriteFrame(OpBinary, msg) }

// WriteFrame sends a frame of any kind, such as a ping.
func (c *ClientConn) WriteFrame(op Op, payload []byte) error {
	if op.control() && len(payload) > maxControl {
		return fmt.Errorf("ws: control frame with %d bytes, limit %d", len(payload), maxControl)
	}
	var mask [4]byte
	_, _ = rand.Read(mask[:])
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.closed {
		return drumline.ErrLinkClosed
	}
	c.closed = op == OpClose
	if c.wbuf = AppendClientFrame(c.wbuf[:0], op, payload, mask); cap(c.wbuf) > maxDirect {
		defer func() { c.wbuf = nil }()
	}
	_, err := c.nc.Write(c.wbuf)
	return err
}

func (c *ClientConn) closeWith(code int, reason string) error {
	_ = c.nc.SetWriteDeadline(time.Now().Add(drumline.CloseTimeout))
	return c.WriteFrame(OpClose, AppendClose(nil, code, reason))
}

// Close sends a close frame and gives the server up to drumline.CloseTimeout to answer, which a goroutine that is in Read will
// see as a *CloseError. It does not wait; CloseNow ends the connection.
func (c *ClientConn) Close(code int, reason string) error {
	err := c.closeWith(code, reason)
	_ = c.nc.SetReadDeadline(time.Now().Add(drumline.CloseTimeout))
	return err
}

// CloseNow closes the connection without a word.
func (c *ClientConn) CloseNow() error { return c.nc.Close() }

// NetConn is the connection below, for deadlines and socket options. Bytes read from it or written to it are lost to the
// protocol.
func (c *ClientConn) NetConn() net.Conn { return c.nc }
