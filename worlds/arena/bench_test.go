package arena

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/link/mem"
)

// BenchmarkMemLinks plays with 32 clients in two rooms over links inside the process: the whole server without sockets. One
// operation is one send period of all clients; the figures beside it are the engine's own.
func BenchmarkMemLinks(b *testing.B) {
	const clients = 32
	srv, err := drumline.New(drumline.Options{Worlds: []drumline.Definition{World()}, LiftCaps: true,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	got := make(chan int, 64*clients)
	var links []*mem.Client
	for i := range clients {
		var c *mem.Client
		ready := make(chan struct{})
		c = mem.Connect(srv, drumline.Peer{Transport: "mem"}, mem.Options{OnMessage: func(msg []byte) {
			<-ready
			if msg[0] != drumline.KindState {
				return
			}
			if err := c.Send(drumline.AppendAck(nil, uint16(msg[2])|uint16(msg[3])<<8, 0)); err != nil {
				return
			}
			select {
			case got <- i:
			default:
			}
		}})
		close(ready)
		links = append(links, c)
		hello, err := drumline.AppendJSON(nil, drumline.KindHello, drumline.Hello{Protocol: drumline.ProtocolVersion, World: "arena", Room: fmt.Sprint("r", i/16)})
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Send(hello); err != nil {
			b.Fatal(err)
		}
	}
	defer func() {
		for _, c := range links {
			c.Cut()
		}
	}()
	round := func() {
		for range clients {
			select {
			case <-got:
			case <-time.After(5 * time.Second):
				b.Fatal("no packet for 5 s")
			}
		}
	}
	round()
	srv.ResetWindow()
	b.ReportAllocs()
	for b.Loop() {
		round()
	}
	w := srv.Window()
	if w.Packets > 0 {
		b.ReportMetric(float64(w.Bytes)/float64(w.Packets), "B/packet")
	}
	b.ReportMetric(w.EncodeUs.P50, "encode-p50-µs")
	b.ReportMetric(w.AgeMs.P99, "age-p99-ms")
	b.ReportMetric(w.StepMs.P50*1000, "step-p50-µs")
}
