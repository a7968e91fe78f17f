// Package ws carries a drumline link over a WebSocket (RFC 6455).
//
// It exists because a live world needs what general libraries do not give together: a write that never waits, an exact count of
// the bytes that wait in this process, frames that stay whole when the kernel takes half of one, and idle connections that cost
// a few KiB. It is not a general WebSocket library: messages are binary, a message is whole or not there, and of the extensions
// only compression without context takeover is known, which is off by default (Options.Deflate).
//
// The smallest use, beside an http.Server that has a ReadHeaderTimeout (it is the server that cuts connections which never
// send a request; this package begins with the request):
//
//	h, err := ws.Handler(srv, ws.Options{})
//	mux.Handle("/ws", h)
//
// # Goroutines
//
// A connection has one goroutine, its reader, which calls Receive and Closed. net/http's own goroutine and its buffers are
// given back when the handler returns, which it does at once. A writer exists only while the kernel refuses bytes, or while
// bytes are written to a connection that is not plain TCP, such as TLS; it ends when nothing waits. There are no timers: the
// reader's deadline drives pings and the idle limit.
//
// # TLS
//
// A crypto/tls connection cannot take half a record, so there the caller never writes by itself: TrySend hands the frame to a
// writer that is started for it. Everything else is the same.
package ws

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/drumline-engine/drumline"
)

// Options set up a handler. The zero value of each field means its default; wrong values are errors from Handler.
type Options struct {
	// Origins are the sites whose pages may connect: "example.com" (http or https, default port), "example.com:8080",
	// "example.com:*" (any port), "*.example.com" (any depth below, not example.com itself), "https://example.com" (this
	// scheme only), or "*" for all. Default: only pages of the host that the request names in its Host header. A request
	// without an Origin header comes from no browser and is let in.
	Origins []string

	// TrustedProxies are the networks whose X-Forwarded-For is believed: Peer.Addr becomes the rightmost address in it that
	// is in none of them. A connection over a Unix socket counts as from a trusted proxy if there is any. Default: none.
	TrustedProxies []netip.Prefix

	// ReadLimit is the largest message in bytes, its fragments together and inflated; a larger one ends the link with
	// ErrTooBig. At least 128, at most 64 MiB. Default 8 KiB.
	ReadLimit int

	// Deflate compresses messages (permessage-deflate) to and from clients that offer it. Default DeflateOff. It saves about half of
	// JSON from 500 bytes on, and nothing of bit-packed states, which are sent as they are. It costs about 1.2 MiB for each thread
	// that sends, and 10 to 40 µs for each message that is compressed.
	Deflate Deflate

	// PingEvery is how long a connection may be quiet before it is pinged. Default 15 s, or a quarter of IdleTimeout if that
	// is less.
	PingEvery time.Duration
	// IdleTimeout is how long a connection may send no byte, not even a pong, before it is closed with ErrIdle. It must be
	// longer than PingEvery. Default 60 s.
	IdleTimeout time.Duration
	// WriteTimeout is how long waiting bytes may make no progress before the link is given up with ErrStalled. Default 40 s:
	// longer than the engine's StallAfter, which judges a client that still sends by the age of its acks and says so.
	WriteTimeout time.Duration
	// CloseTimeout is how long a closing link goes on writing what was queued. Then it waits at most as long again, and at
	// most a second, for the peer's close frame. Default drumline.CloseTimeout.
	CloseTimeout time.Duration

	// NotSentLowat is the number of unsent bytes at which the kernel takes no more (TCP_NOTSENT_LOWAT, Linux). Without it the
	// kernel hides megabytes of old states in front of a slow client. Default 16 KiB; -1: the system's.
	NotSentLowat int
	// UserTimeout is how long sent bytes may stay unacknowledged, or a peer's window shut, before the kernel gives up
	// (TCP_USER_TIMEOUT, Linux). Default 45 s; -1: the system's.
	UserTimeout time.Duration

	// Refused, if set, is called for each request that is refused for its origin. Handler sets it to Server.Refused. It is
	// called on net/http's goroutine.
	Refused func(p drumline.Peer, why drumline.Reason)
}

const (
	defaultReadLimit    = 8 << 10
	defaultPingEvery    = 15 * time.Second
	defaultIdleTimeout  = 60 * time.Second
	defaultWriteTimeout = 40 * time.Second
	defaultNotSentLowat = 16 << 10
	defaultUserTimeout  = 45 * time.Second
	keepAlive           = 15 * time.Second
	handshakeTimeout    = 10 * time.Second

	minReadLimit = 128
	maxReadLimit = 64 << 20
)

// settings are Options with defaults filled in, shared by all connections of a handler and never changed.
type settings struct {
	Options
	origins   origins
	deflaters *deflaters    // if Deflate is on
	peerWait  time.Duration // for the peer's close frame
}

func (o Options) settings() (*settings, error) {
	s := &settings{Options: o}
	var errs []error
	number := func(name string, v *int, def, least, most int) {
		if *v == 0 {
			*v = def
		}
		if *v < least || *v > most {
			errs = append(errs, fmt.Errorf("ws: Options.%s is %d, want %d to %d", name, *v, least, most))
		}
	}
	duration := func(name string, v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
		if *v < 0 {
			errs = append(errs, fmt.Errorf("ws: Options.%s is %v, want more than 0", name, *v))
		}
	}
	number("ReadLimit", &s.ReadLimit, defaultReadLimit, minReadLimit, maxReadLimit)
	if s.NotSentLowat != -1 {
		number("NotSentLowat", &s.NotSentLowat, defaultNotSentLowat, 1, 1<<30)
	}
	duration("IdleTimeout", &s.IdleTimeout, defaultIdleTimeout)
	duration("PingEvery", &s.PingEvery, min(defaultPingEvery, s.IdleTimeout/4))
	duration("WriteTimeout", &s.WriteTimeout, defaultWriteTimeout)
	duration("CloseTimeout", &s.CloseTimeout, drumline.CloseTimeout)
	if s.UserTimeout != -1 {
		duration("UserTimeout", &s.UserTimeout, defaultUserTimeout)
	}
	if s.PingEvery >= s.IdleTimeout {
		errs = append(errs, fmt.Errorf("ws: Options.PingEvery is %v, want less than IdleTimeout, %v", s.PingEvery, s.IdleTimeout))
	}
	for _, p := range o.TrustedProxies {
		if !p.IsValid() {
			errs = append(errs, errors.New("ws: Options.TrustedProxies holds a prefix that is not valid"))
			break
		}
	}
	var err error
	if s.origins, err = parseOrigins(o.Origins); err != nil {
		errs = append(errs, err)
	}
	switch o.Deflate {
	case DeflateOff:
	case DeflateOn:
		s.deflaters = newDeflaters()
	default:
		errs = append(errs, fmt.Errorf("ws: Options.Deflate is %d, want DeflateOff or DeflateOn", o.Deflate))
	}
	s.peerWait = min(time.Second, s.CloseTimeout)
	return s, errors.Join(errs...)
}

// Receiver is the other end of a link, a *drumline.Conn.
type Receiver interface {
	// Receive takes one message. Calls come one after the other on the reader's goroutine; msg is valid during the call.
	Receive(msg []byte)
	// Closed is called once, last, when reader and writer have ended. err is nil if the end came from Link.Close, io.EOF if
	// the peer closed cleanly, one of this package's errors, or the network's.
	Closed(err error)
}

// Handler returns a handler that upgrades requests to links of srv.
func Handler(srv *drumline.Server, o Options) (http.Handler, error) {
	if srv == nil {
		return nil, errors.New("ws: the server is nil")
	}
	if o.Refused == nil {
		o.Refused = srv.Refused
	}
	return HandlerFunc(func(l drumline.Link, p drumline.Peer) Receiver { return srv.Accept(l, p) }, o)
}

// HandlerFunc is Handler for any receiver. accept is called on the new link's reader goroutine, before the first Receive; it
// may use the link at once and must not return nil.
func HandlerFunc(accept func(l drumline.Link, p drumline.Peer) Receiver, o Options) (http.Handler, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	if accept == nil {
		return nil, errors.New("ws: accept is nil")
	}
	return &handler{s, accept}, nil
}
