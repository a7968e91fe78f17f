package ws

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/link/linktest"
)

func TestMain(m *testing.M) { linktest.Main(m) }

// server is a handler on a loopback address that gives each connection a recorder.
type server struct {
	*httptest.Server
	t     testing.TB
	conns chan accepted
}

type accepted struct {
	link drumline.Link
	peer drumline.Peer
	rec  *linktest.Recorder
}

func serve(t testing.TB, o Options) *server { return serveWith(t, o, false) }

func serveWith(t testing.TB, o Options, useTLS bool) *server {
	t.Helper()
	s := &server{t: t, conns: make(chan accepted, 4096)}
	h, err := HandlerFunc(func(l drumline.Link, p drumline.Peer) Receiver {
		a := accepted{l, p, linktest.NewRecorder(t)}
		s.conns <- a
		return a.rec
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewUnstartedServer(h)
	s.Config.ReadHeaderTimeout = 10 * time.Second
	if useTLS {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *server) addr() string { return s.Listener.Addr().String() }

func (s *server) url() string { return "ws" + strings.TrimPrefix(s.URL, "http") }

// accepted waits for the next connection; it is ended with the test.
func (s *server) accepted() accepted {
	s.t.Helper()
	select {
	case a := <-s.conns:
		s.t.Cleanup(func() { a.link.Close(1000, ""); a.rec.Wait() })
		return a
	case <-time.After(linktest.Patience):
		s.t.Fatal("no connection was accepted")
		return accepted{}
	}
}

func (s *server) dial(o DialOptions) *ClientConn {
	s.t.Helper()
	if o.TLS == nil && s.TLS != nil {
		o.TLS = s.Client().Transport.(*http.Transport).TLSClientConfig
	}
	c, err := Dial(context.Background(), s.url(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

// client makes a ClientConn a client of the suite.
type client struct {
	*ClientConn
	once sync.Once
}

func (c *client) Send(msg []byte) error { return c.Write(msg) }
func (c *client) Recv() ([]byte, error) {
	msg, err := c.Read()
	if e := (*CloseError)(nil); errors.As(err, &e) {
		return nil, &linktest.Closed{Code: e.Code, Reason: e.Reason}
	}
	return msg, err
}
func (c *client) Cut() {
	c.once.Do(func() {
		if tcp, ok := bare(c.NetConn()).(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset: no FIN that could pass for an end
		}
		_ = bare(c.NetConn()).Close()
	})
}

func pairOver(t *testing.T, o Options, useTLS bool) linktest.Pair {
	s := serveWith(t, o, useTLS)
	c := s.dial(DialOptions{Deflate: o.Deflate == DeflateOn})
	a := s.accepted()
	if c.Deflate() != (o.Deflate == DeflateOn) {
		t.Errorf("compression agreed upon: %v", c.Deflate())
	}
	return linktest.Pair{Link: a.link, Recorder: a.rec, Client: &client{ClientConn: c}, Largest: 8 << 10}
}

func TestLink(t *testing.T) {
	t.Run("tcp", func(t *testing.T) {
		linktest.Run(t, func(t *testing.T) linktest.Pair {
			return pairOver(t, Options{CloseTimeout: 500 * time.Millisecond}, false)
		})
	})
	t.Run("deflate", func(t *testing.T) {
		linktest.Run(t, func(t *testing.T) linktest.Pair {
			return pairOver(t, Options{CloseTimeout: 500 * time.Millisecond, Deflate: DeflateOn}, false)
		})
	})
	t.Run("tls", func(t *testing.T) {
		linktest.Run(t, func(t *testing.T) linktest.Pair {
			return pairOver(t, Options{CloseTimeout: 500 * time.Millisecond}, true)
		})
	})
}
