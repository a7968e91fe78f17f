package ws

import (
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
)

// benchPair is a link over a loopback connection whose peer is a plain socket.
func benchPair(tb testing.TB) (*conn, net.Conn) { return benchPairOf(tb, Options{}) }

// benchPairOf is benchPair with options; with Deflate, compression is agreed upon.
func benchPairOf(tb testing.TB, o Options) (*conn, net.Conn) {
	tb.Helper()
	s, err := o.settings()
	if err != nil {
		tb.Fatal(err)
	}
	l, err := Listen(tb.Context(), "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	nc, err := l.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	c := newConn(nc, s, s.Deflate == DeflateOn)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(func(drumline.Link, drumline.Peer) Receiver { return discard{} }, drumline.Peer{}, nil)
	}()
	tb.Cleanup(func() {
		_ = peer.Close()
		<-done
	})
	return c, peer
}

func BenchmarkTrySend(b *testing.B) {
	for _, size := range []int{100, 600, 1200} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			l, peer := benchPair(b)
			go func() {
				buf := make([]byte, 256<<10)
				for {
					if _, err := peer.Read(buf); err != nil {
						return
					}
				}
			}()
			msg := make([]byte, size)
			b.ReportAllocs()
			var busy time.Duration
			for b.Loop() {
				for !l.Ready() { // the reader in this process is behind: not TrySend's time
					runtime.Gosched()
				}
				start := time.Now()
				if !l.TrySend(msg) {
					b.Fatal("refused")
				}
				busy += time.Since(start)
			}
			b.ReportMetric(float64(busy.Nanoseconds())/float64(b.N), "ns/send")
		})
	}
}

// BenchmarkReceive: what a client's message costs the reader, the system call aside.
func BenchmarkReceive(b *testing.B) {
	l, peer := benchPair(b)
	frame := AppendClientFrame(nil, OpBinary, make([]byte, 40), [4]byte{1, 2, 3, 4})
	batch := []byte(strings.Repeat(string(frame), 100))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := peer.Write(batch); err != nil {
			b.Fatal(err)
		}
	}
	want := uint64(b.N) * 100
	for l.Counters().MessagesIn < want {
		runtime.Gosched()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(want), "ns/msg")
}

// BenchmarkIdleMemory: 1,000 idle connections that came through net/http, each after one message either way. The peers are plain
// sockets in the same process; what they cost (some 0.7 KiB each) is in the figures.
func BenchmarkIdleMemory(b *testing.B) {
	if _, ok := rss(); !ok {
		b.Log("no /proc/self/statm here")
		return
	}
	const conns = 1000
	got := make(chan drumline.Link, conns)
	h, err := HandlerFunc(func(l drumline.Link, _ drumline.Peer) Receiver { return idleReceiver{l, got} }, Options{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s := httptest.NewServer(h)
		debug.FreeOSMemory()
		before, _ := rss()
		var m0, m1 runtime.MemStats
		runtime.ReadMemStats(&m0)
		peers := make([]net.Conn, conns)
		one := make([]byte, 1000)
		for i := range peers {
			nc, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			peers[i] = nc
			if _, err := nc.Write([]byte(request + "\r\n")); err != nil {
				b.Fatal(err)
			}
			if _, err := nc.Read(one); err != nil {
				b.Fatal(err)
			}
			if _, err := nc.Write(masked(0x82, strings.Repeat("x", 40))); err != nil {
				b.Fatal(err)
			}
			_ = (<-got).Send(one[:600])
		}
		runtime.GC()
		after, _ := rss()
		debug.FreeOSMemory()
		freed, _ := rss()
		runtime.ReadMemStats(&m1)
		per := func(bytes int) float64 { return float64(bytes) / 1024 / conns }
		b.ReportMetric(per(after-before), "KiB/conn")
		b.ReportMetric(per(freed-before), "KiB/conn-freed")
		b.ReportMetric(per(int(m1.StackInuse-m0.StackInuse)), "stack-KiB/conn")
		b.ReportMetric(per(int(m1.HeapAlloc-m0.HeapAlloc)), "heap-KiB/conn")
		for _, nc := range peers {
			_ = nc.Close()
		}
		s.Close()
	}
}

// idleReceiver passes its link on when the first message has come.
type idleReceiver struct {
	l   drumline.Link
	got chan drumline.Link
}

func (r idleReceiver) Receive([]byte) { r.got <- r.l }
func (r idleReceiver) Closed(error)   {}

// rss is the resident size of this process, in bytes.
func rss() (int, bool) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, false
	}
	var size, resident int
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return 0, false
	}
	return resident * os.Getpagesize(), true
}
