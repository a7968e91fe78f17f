// Package feed is the contract between the engine and what it sends.
//
// A feed answers one question: which bytes does this seat get now, inside this budget? Entities (feed/snap), documents
// (feed/tree), drawings (feed/canvas) and opaque newest-only bytes (feed/latest) are four answers to it. A feed knows no
// socket, file or clock; the engine calls it, and everything it needs arrives as arguments.
//
// Three roles, three owners:
//
//   - [Feed] belongs to a room and is called on the room's goroutine only. Once per send tick its Capture turns the
//     world into an immutable [Frame].
//   - [Stream] is one seat's view of one feed. It is called by one encoder worker only, never by two at once, and never by
//     the room. It turns frames into bytes and learns what became of them.
//   - [Decoder] is the stream's other end, for bots and tests; the browser has a twin of it in TypeScript.
//
// The smallest use is a fake: see example_test.go.
package feed

import "encoding/json"

// Tick is the number of a step of a room, counted from 1 since the room opened; a new epoch does not reset it. It advances by one
// per executed step; steps that were dropped after a stall are not counted. It wraps after 2.2 years at 60 Hz.
type Tick uint32

// SeatID is a seat's index in its room, 0 … Seats-1. It is reused after its seat has left.
type SeatID uint16

// Lane says which guarantees a feed's bytes need.
type Lane uint8

const (
	// State is newest-only: each message replaces the one before, a busy link skips it, and on an unordered link it may
	// be lost or overtaken.
	State Lane = iota
	// Reliable arrives complete and in order, or the link is closed. It is queued by the link, byte-counted and bounded.
	Reliable
)

// String returns "state" or "reliable".
func (l Lane) String() string {
	if l == Reliable {
		return "reliable"
	}
	return "state"
}

// Info describes a feed in the welcome. It does not change while the room lives.
type Info struct {
	// Kind names the decoder that reads this feed, such as "snap".
	Kind string `json:"kind"`
	// Name tells feeds of one room apart. Empty: Kind.
	Name string `json:"name"`
	// Lane is the lane of all bytes of this feed.
	Lane Lane `json:"lane"`
	// Weight is the feed's share of a seat's byte budget against the other feeds of its lane; what one leaves goes to the
	// next. 0 means 1.
	Weight int `json:"-"`
	// Schema is whatever the decoder needs to read the bytes, as JSON.
	Schema json.RawMessage `json:"schema"`
}

// Frame is an immutable picture of what a feed shows at one tick. It is reference-counted: the engine calls Retain before it
// hands a frame to another goroutine and Release when that one is done; the creator starts with one reference. After the last
// Release the feed may reuse the memory. Retain and Release may be called from any goroutine.
type Frame interface {
	Tick() Tick
	Retain()
	Release()
}

// Delivery says what a stream may expect of the packets it writes into.
type Delivery uint8

const (
	// Ordered: what was written arrives, in order, or the link ends. The baseline of a delta is the last written version.
	Ordered Delivery = iota
	// Unordered: packets may be lost, doubled or overtaken. The baseline is the newest acked version; both ends derive it
	// from the ack and its 32-bit history in the packet's header. A link that keeps the order can be treated like this, too.
	Unordered
)

// Receipt stands for one Append: the engine hands it back when it knows what became of those bytes. It has a meaning only to
// the stream that returned it.
type Receipt uint64

// Written is what an Append did beside its bytes.
type Written struct {
	Receipt Receipt
	// More: something due did not fit into the limit.
	More bool
	// Keyframe: the bytes can be read without any earlier packet.
	Keyframe bool
	// Held is the number of items (entities, documents, nodes) that the client holds once it has these bytes.
	Held int
	// Events is the number of events among the bytes.
	Events int
}

// Feed is one kind of content of a room. All methods are called on the room's goroutine.
type Feed interface {
	// Info is called once, when the room opens; a feed that is [Tunable] may have been tuned before.
	Info() Info
	// Capture makes the frame of tick t. It is called on send ticks, must not block, and should not allocate once warm.
	Capture(t Tick) Frame
	// Join makes the stream of a seat. The stream's first Append is a keyframe. d is about the feed's own lane, so a
	// Reliable feed always gets Ordered.
	Join(seat SeatID, d Delivery) Stream
	// Leave forgets a seat. The engine has closed or is about to close its stream, on the encoder's own thread.
	Leave(seat SeatID)
}

// Tuning are switches of a measuring run, which show what a feed's savings are worth. The zero value, for every other
// run, leaves the feed as it is. A client reads what a tuned feed sends as it reads anything else.
type Tuning struct {
	// Whole has every item that a packet tells written whole: no deltas, nothing left out because it is as expected.
	Whole bool
	// Plain has differences told as they are: nothing is extrapolated, rounded by distance or left to a tolerance, and no code is
	// fitted to its field. It is what a careful hand-made delta format sends.
	Plain bool
	// NoRings gives everybody everything at the full rate, however far away it is.
	NoRings bool
	// Trace, if set, is told each residual that is written, for choosing codes.
	Trace Tracer
}

// Tracer is told what a feed writes. Encoder workers call it at the same time.
type Tracer interface {
	// Residual is one number of a field, such as "player.pos.x", in an interest ring, after zigzag.
	Residual(field string, ring int, u uint32)
}

// Tunable is implemented by feeds that know the switches; for the others a Tuning means nothing.
type Tunable interface {
	// Tune is called at most once, before Info, on the room's goroutine, and only with a Tuning that is not zero.
	Tune(Tuning)
}

// Sized is implemented by feeds that know how large their items can become.
type Sized interface {
	// Largest is the item that may be the largest, such as "entity sign", and its bytes at most. The engine warns when a room opens
	// whose packets have no room for it. It is called after Info.
	Largest() (item string, bytes int)
}

// Paced is implemented by feeds whose clients go on between two packets as things move.
type Paced interface {
	// StepHz is the number of steps a second that the feed reckons with, 0 if it does not matter. The engine opens no room that has
	// another.
	StepHz() int
}

// Stream is one seat's view of a feed, owned by one encoder worker.
type Stream interface {
	// Append writes what the seat gets of frame f into dst, at most limit bytes, and returns the longer slice. It returns
	// dst unchanged when there is nothing to send. What it wrote counts only once Delivered is called; until then the
	// stream must be able to go on as if the bytes had never left. f is valid during the call; a stream that needs it longer
	// retains it. A limit that is too small for the smallest useful part yields nothing and More.
	Append(dst []byte, f Frame, limit int) ([]byte, Written)
	// Delivered says that the bytes of r are with the client: written, on an ordered link; acked, on an unordered one.
	// Each receipt of an Append that wrote something gets exactly one of Delivered and Lost. On an ordered link that
	// happens before the next Append; on an unordered one receipts are told as their fate becomes known, which need not be
	// in their order, and always before the Append whose packet header echoes the ack that told it. So at each Append
	// the packets that were told Delivered are exactly those that this header and the earlier ones name as received.
	Delivered(r Receipt)
	// Lost says that the bytes of r are not known to have arrived: refused by the link, or passed over by the ack history.
	Lost(r Receipt)
	// Resume starts over on a new link: the client holds nothing any more, except that cursor says how far it got with
	// things that must happen once (its Decoder's Cursor; 0: nothing). Receipts still open are void.
	Resume(cursor uint64, d Delivery)
	// Dirty reports whether Append would write anything for f. Rooms without a beat send only to dirty seats.
	Dirty(f Frame) bool
	// Hash is the hash that the client's Decoder.Hash must give when it has read the packet of the last Append. On an Ordered
	// delivery it covers everything that the client then holds; on an Unordered one only what that Append wrote, since which
	// other versions have arrived is not known yet. 0: unknown for this packet, and not compared. It is called on links where
	// each packet is verified, after the Append of that packet, and may be slow.
	Hash() uint32
	// Account adds the bits written since the last call to a.
	Account(a *Account)
	// Close releases what the stream holds. No other method is called after it.
	Close()
}

// Packet is what a decoder is told about the packet that its section came in.
type Packet struct {
	Seq   uint16 // the packet's sequence number
	Epoch uint8
	Tick  Tick // the frame's tick, full width
	// Ack and Acks are the header's, if it has them (Unordered): the newest packet that the server knew to be received, and bit i:
	// packet Ack-1-i was received too. Else 0.
	Ack  uint16
	Acks uint32
}

// Decoder reads what a Stream wrote. It is not safe for concurrent use.
type Decoder interface {
	// Decode reads one section. On the state lane it is called for every packet that is accepted, also for one that has no
	// section of this feed: then body is empty, and p tells which packets the server knows to be received by now, which a decoder of
	// acked baselines must not miss. On the reliable lane it is called for each section. On an error nothing has changed
	// and the packet must not be acked. body is valid during the call.
	Decode(p Packet, body []byte) error
	// Hash is a hash over everything the decoder holds or, with acked baselines, over what the last packet brought: equal to
	// Stream.Hash at the same packet, unless that is 0.
	Hash() uint32
	// Cursor is how far the client got with what must happen once; it is sent when the client resumes.
	Cursor() uint64
	// Held is the number of items held.
	Held() int
}

// Account collects where bytes went, by a label such as "player.pos". The zero value is ready to use. Not safe for
// concurrent use.
type Account struct {
	Rows map[string]Row
}

// Row is one line of an Account.
type Row struct {
	Bits  uint64 `json:"bits"`
	Count uint64 `json:"count"`
}

// Add adds n writes of bits in total to the row of label.
func (a *Account) Add(label string, bits, n uint64) {
	if bits == 0 && n == 0 {
		return
	}
	if a.Rows == nil {
		a.Rows = make(map[string]Row)
	}
	r := a.Rows[label]
	r.Bits += bits
	r.Count += n
	a.Rows[label] = r
}
