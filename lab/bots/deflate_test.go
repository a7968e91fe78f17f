package bots

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	gobwas "github.com/gobwas/ws"
	"github.com/gobwas/ws/wsflate"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/link/ws"
)

// plain answers a hello with a welcome and a few states that shrink well.
type plain struct {
	link   drumline.Link
	states sync.WaitGroup
	stop   chan struct{}
}

func (p *plain) Receive(msg []byte) {
	if msg[0] != drumline.KindHello {
		return
	}
	b, _ := drumline.AppendJSON(nil, drumline.KindWelcome, drumline.Welcome{Protocol: drumline.ProtocolVersion, Hz: 60, Feeds: []feed.Info{{Kind: "zeros"}}})
	p.link.Send(b)
	p.states.Go(func() {
		for n := uint16(1); ; n++ {
			p.link.TrySend(state1(n, 3*n, make([]byte, 4000), 0, false))
			select {
			case <-p.stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
}

func (p *plain) Closed(error) {
	close(p.stop)
	p.states.Wait()
}

type zerosDecoder struct{ countDecoder }

func (d *zerosDecoder) Decode(_ feed.Packet, body []byte) error {
	if strings.Trim(string(body), "\x00") != "" || len(body) != 4000 {
		return errMessage
	}
	return nil
}

// What a server compresses is read, and counted as it is and as it came.
func TestDeflate(t *testing.T) {
	for _, portable := range []bool{false, true} {
		for _, offered := range []bool{true, false} {
			h, err := ws.HandlerFunc(func(l drumline.Link, _ drumline.Peer) ws.Receiver { return &plain{link: l, stop: make(chan struct{})} }, ws.Options{Deflate: ws.DeflateOn})
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewServer(h)
			f, err := Start(t.Context(), Options{URL: srv.URL, World: "w", Bots: 2, JoinOver: time.Millisecond, Deflate: offered, Portable: portable,
				Decoders: map[string]NewDecoder{"zeros": func(json.RawMessage) (feed.Decoder, error) { return &zerosDecoder{}, nil }}})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.WaitJoined(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.ResetWindow()
			until(t, "packets", func() bool { return f.Figures().Packets > 20 })
			f.Close()
			srv.Close()
			g := f.Figures()
			if g.DecodeErrors != 0 || g.Joined != 2 || g.Lost != 0 {
				t.Errorf("%+v", g)
			}
			if shrunk := g.WireBytes < g.Bytes/4; shrunk != offered || (g.Deflated == 2) != offered {
				t.Errorf("offered %v: %d bots, %d bytes in %d", offered, g.Deflated, g.Bytes, g.WireBytes)
			}
		}
	}
}

// A server that answers with another way of compressing is not joined.
func TestAgreed(t *testing.T) {
	for want, all := range map[string][]wsflate.Parameters{
		"yes":     {{ServerNoContextTakeover: true}},
		"yes ":    {{ServerNoContextTakeover: true, ClientNoContextTakeover: true, ServerMaxWindowBits: 12}},
		"no":      {},
		"error":   {{}},
		"error ":  {{ServerNoContextTakeover: true, ClientMaxWindowBits: 9}},
		"error  ": {{ServerNoContextTakeover: true}, {ServerNoContextTakeover: true}},
	} {
		var hs gobwas.Handshake
		for _, p := range all {
			hs.Extensions = append(hs.Extensions, p.Option())
		}
		got := "no"
		if ok, err := agreed(hs); err != nil {
			got = "error"
		} else if ok {
			got = "yes"
		}
		if got != strings.TrimSpace(want) {
			t.Errorf("%+v: %s, want %s", all, got, want)
		}
	}
}
