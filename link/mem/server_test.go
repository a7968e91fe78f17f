package mem

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/drumline-engine/drumline"
)

type input struct{ Go bool }

// shut is a world that opens for nobody.
var shut = drumline.Define(drumline.Kind[input]{
	Spec: drumline.Spec{Name: "shut"},
	Open: func(*drumline.Room) (drumline.World[input], error) { return nil, drumline.Refuse("shut") },
})

// TestConnect: a real engine in a bubble answers a client, after exactly the time that the path takes.
func TestConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := drumline.New(drumline.Options{
			Priority: "none",
			Worlds:   []drumline.Definition{shut},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		path := Path{Delay: 40 * time.Millisecond}
		c := Connect(srv, drumline.Peer{}, Options{Down: path, Up: path})
		hello, err := drumline.AppendJSON(nil, drumline.KindHello, drumline.Hello{Protocol: drumline.ProtocolVersion, World: "nowhere"})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := c.Send(hello); err != nil {
			t.Fatal(err)
		}
		msg, err := c.Next(t.Context())
		if err != nil || msg[0] != drumline.KindRefuse {
			t.Fatalf("the answer to a hello: %q, %v", msg, err)
		}
		if took := time.Since(begin); took != 80*time.Millisecond {
			t.Errorf("the answer took %v over a path of 80ms", took)
		}
		if _, err := c.Next(t.Context()); err == nil || c.CloseCode() != drumline.ReasonNoWorld.Code() {
			t.Errorf("then %v, code %d", err, c.CloseCode())
		}
		<-c.Done()
	})
}
