package drumline

import (
	"net/netip"
	"time"

	"github.com/drumline-engine/drumline/feed"
)

// Limits that every link keeps.
const (
	// MaxBacklog is the most bytes that a link's reliable lane holds; see [Link.Send].
	MaxBacklog = 4 << 20
	// CloseTimeout is how long a link that is being closed goes on writing what was queued; see [Link.Close].
	CloseTimeout = 2 * time.Second
)

// Link is one client's connection, whatever carries it. It is message-oriented and has two lanes (feed.Lane). The engine's
// encoder worker, the room and the link's own goroutines call it at the same time, so every method is safe for concurrent use,
// and none of them blocks.
//
// An adapter (link/ws, link/mem) accepts a connection, calls [Server.Accept], and then hands each incoming message to
// [Conn.Receive] from one goroutine and the end to [Conn.Closed]. Package link/linktest checks that an adapter keeps this
// contract.
type Link interface {
	// Delivery says whether the state lane is ordered.
	Delivery() feed.Delivery

	// MaxState is the largest message TrySend takes in bytes; 0: no limit but the link's own read limit at the peer.
	MaxState() int

	// Ready reports whether the link would take a state message now: nothing that was taken before is still waiting inside
	// this process.
	Ready() bool

	// TrySend offers a message on the state lane. It is taken whole (true) or not at all (false: the link is busy or
	// closed); it never waits. Bytes that the operating system does not take at once are kept by the link and written as
	// soon as it does, and until then Ready is false. msg belongs to the caller again on return.
	TrySend(msg []byte) bool

	// Send queues a message on the reliable lane, ahead of no other and behind all before it. It returns ErrBacklog when
	// the lane holds more than MaxBacklog bytes, and ErrLinkClosed after the end. msg belongs to the caller again on
	// return.
	Send(msg []byte) error

	// Queued is the number of bytes taken and not yet given to the operating system.
	Queued() int

	// Close ends the link: what is queued is flushed for at most CloseTimeout, then the peer is told code (a WebSocket
	// close code) and reason (at most 123 bytes), then the connection is closed. It returns at once and only the first call
	// counts. Conn.Closed is called when the link has ended.
	Close(code int, reason string)

	// Counters returns what has gone through the link.
	Counters() LinkCounters
}

// KernelQueuer is implemented by links that can tell how many of their bytes the operating system still holds: memory that a
// link's own Queued does not see.
type KernelQueuer interface {
	KernelQueued() (bytes int, ok bool)
}

// LinkCounters counts since the link began.
type LinkCounters struct {
	MessagesIn, MessagesOut uint64
	// MessageBytes are those of the messages as the engine sees them: before they are compressed and after they are inflated.
	MessageBytesIn, MessageBytesOut uint64
	// Compressed are the messages that travelled compressed.
	CompressedIn, CompressedOut uint64
	// WireBytes are those written to or read from the socket, framing included.
	WireBytesIn, WireBytesOut uint64
}

// Peer is what a transport knows of a connecting client before its first message.
type Peer struct {
	// Addr is the client's address, after trusted proxies.
	Addr netip.AddrPort
	// Transport is the adapter's short name, such as "ws" or "mem".
	Transport string
}
