package ws

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/link/linktest"
)

type input struct{ Go bool }

// shut is a world that opens for nobody.
var shut = drumline.Define(drumline.Kind[input]{
	Spec: drumline.Spec{Name: "shut"},
	Open: func(*drumline.Room) (drumline.World[input], error) { return nil, drumline.Refuse("shut") },
})

// TestServer: a real engine behind Handler answers a client, and counts what this package refuses or ends.
func TestServer(t *testing.T) {
	srv, err := drumline.New(drumline.Options{
		Priority: "none",
		Worlds:   []drumline.Definition{shut},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	h, err := Handler(srv, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	defer s.Close()
	url := "ws" + strings.TrimPrefix(s.URL, "http")
	dial := func() *ClientConn {
		c, err := Dial(context.Background(), url, DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.CloseNow() })
		return c
	}
	end := func(c *ClientConn, code int) {
		t.Helper()
		for {
			_, err := c.Read()
			if err == nil {
				continue
			}
			if e := (*CloseError)(nil); !errors.As(err, &e) || e.Code != code {
				t.Errorf("the end: %v, want %d", err, code)
			}
			return
		}
	}
	c := dial()
	hello, err := drumline.AppendJSON(nil, drumline.KindHello, drumline.Hello{Protocol: drumline.ProtocolVersion, World: "nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(hello); err != nil {
		t.Fatal(err)
	}
	if msg, err := c.Read(); err != nil || len(msg) == 0 || msg[0] != drumline.KindRefuse {
		t.Fatalf("the answer to a hello: %q, %v", msg, err)
	}
	end(c, drumline.ReasonNoWorld.Code())

	c = dial()
	if err := c.Write(make([]byte, 8<<10+1)); err != nil {
		t.Fatal(err)
	}
	end(c, 1009)
	if _, err := Dial(context.Background(), url, DialOptions{Header: http.Header{"Origin": {"http://evil.test"}}}); err == nil {
		t.Error("a page of another origin was let in")
	}
	linktest.Eventually(t, "the counters", func() bool {
		st := srv.Stats()
		return st.Refused["no_world"] == 1 && st.Refused["too_big"] == 1 && st.Refused["origin"] == 1 && st.Links == 0
	})
}
