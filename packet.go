package drumline

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/drumline-engine/drumline/feed"
)

// ProtocolVersion is what both ends must agree on. docs/protocol.md describes it; web/src/packet.ts is this file's twin.
const ProtocolVersion = 1

// The first byte of each message.
const (
	KindHello    = 1  // client: JSON Hello
	KindInput    = 2  // client: ack, history, inputs
	KindAck      = 3  // client: ack, history
	KindCommand  = 4  // client: bytes for World.Command
	KindLeave    = 5  // client: goodbye; the seat is given up
	KindReport   = 6  // client: what its page measured; only if the welcome has a ReportMs
	KindWelcome  = 16 // server: JSON Welcome
	KindState    = 17 // server: one state packet
	KindRefuse   = 18 // server: JSON Goodbye, then the link is closed
	KindReliable = 19 // server: a reliable feed's section
)

// Sizes of messages from outside, in bytes.
const (
	MaxHelloBytes   = 4096
	MaxCommandBytes = 4096
	MaxInputs       = 8 // inputs in one KindInput message
)

// Hello is a client's first message.
type Hello struct {
	Protocol int    `json:"protocol"`
	World    string `json:"world"`
	// Room is the room to join, opened if need be. Empty: any room with a free seat, else a new one.
	Room string `json:"room,omitempty"`
	Name string `json:"name,omitempty"`
	// Token takes back a seat that was dropped. Cursors are the decoders' cursors, in the order of the feeds.
	Token   string   `json:"token,omitempty"`
	Cursors []uint64 `json:"cursors,omitempty"`
	// Verify asks for a hash in each state packet. Granted only where Options.Lab is set.
	Verify bool `json:"verify,omitempty"`
}

// Welcome is the server's answer to a Hello that was let in.
type Welcome struct {
	Protocol int    `json:"protocol"`
	World    string `json:"world"`
	Room     string `json:"room"`
	Seat     SeatID `json:"seat"`
	Name     string `json:"name"`
	Token    string `json:"token"`
	Resumed  bool   `json:"resumed"`
	Epoch    uint8  `json:"epoch"`
	Tick     Tick   `json:"tick"`
	Hz       int    `json:"hz"`
	SendHz   int    `json:"sendHz"`
	GraceMs  int    `json:"graceMs"`
	Ordered  bool   `json:"ordered"`
	Verify   bool   `json:"verify"`
	// RewindMs above 0 asks for the moment that the player sees, in each input message: Spec.Rewind.
	RewindMs int `json:"rewindMs,omitempty"`
	// ReportMs above 0 asks for a report (Quality) on the motion shown at most so often.
	ReportMs int `json:"reportMs,omitempty"`
	// TickZeroUs is the wall-clock time in µs since 1970 at which tick 0 was due, were no step ever dropped.
	TickZeroUs int64        `json:"tickZeroUs"`
	Inputs     []InputField `json:"inputs"`
	Feeds      []feed.Info  `json:"feeds"`
}

// InputField is one field of a world's input: bools are bits, in order, of the leading ⌈bools/8⌉ bytes; the others follow in
// order, little-endian.
type InputField struct {
	Name string `json:"name"`
	// Kind is bool, i8, u8, i16, u16, i32, u32 or f32.
	Kind string `json:"kind"`
}

// Goodbye is what a client is told before its link is closed.
type Goodbye struct {
	Reason string `json:"reason"`
	Code   int    `json:"code"`
	Text   string `json:"text"`
	// Retry is never, new, resume or later (Retry); RetryMs the least pause.
	Retry   string `json:"retry"`
	RetryMs int    `json:"retryMs"`
}

// State packet:
//
//	0  u8  kind        17
//	1  u8  flags       1 hash, 2 acks, 4 sections
//	2  u16 seq         of this packet, per seat, from 1, wraps
//	4  u8  epoch
//	5  u16 tick        low 16 bits of the frame's tick
//	7  u16 inputAck    low 16 bits of the newest input label that was received
//	9  i8  margin      steps by which that input was early (negative: late); -128: none yet
//	10 u16 ack         with flag acks: the newest packet known to be received
//	12 u32 history     with flag acks: bit i: packet ack-1-i was received too
//	.. body            flag sections clear: the body of feed 0, or nothing.
//	                   set: { u8 feed, uvarint length, body } repeated
//	.. u32 hash        with flag hash: the last 4 bytes; hash of all state feeds, folded in order
const (
	flagHash     = 1
	flagAcks     = 2
	flagSections = 4

	stateHeaderBytes = 10
	ackEchoBytes     = 6
)

// MarginNone is the margin before the first input.
const MarginNone = -128

// StateHeader is the fixed part of a state packet.
type StateHeader struct {
	Seq      uint16
	Epoch    uint8
	Tick16   uint16
	InputAck uint16
	Margin   int8
	HasAcks  bool
	Ack      uint16
	Acks     uint32
	HasHash  bool
	Hash     uint32
	sections bool
}

func appendStateHeader(dst []byte, h StateHeader) []byte {
	var flags byte
	if h.HasHash {
		flags |= flagHash
	}
	if h.HasAcks {
		flags |= flagAcks
	}
	if h.sections {
		flags |= flagSections
	}
	dst = append(dst, KindState, flags)
	dst = binary.LittleEndian.AppendUint16(dst, h.Seq)
	dst = append(dst, h.Epoch)
	dst = binary.LittleEndian.AppendUint16(dst, h.Tick16)
	dst = binary.LittleEndian.AppendUint16(dst, h.InputAck)
	dst = append(dst, byte(h.Margin))
	if h.HasAcks {
		dst = binary.LittleEndian.AppendUint16(dst, h.Ack)
		dst = binary.LittleEndian.AppendUint32(dst, h.Acks)
	}
	return dst
}

var errPacket = errors.New("drumline: malformed packet")

// ParseState splits a state packet. It calls section for each feed's body, in order; bodies are slices of msg. An error means
// that the packet is malformed or that section returned it; the packet must then not be acked.
func ParseState(msg []byte, section func(h StateHeader, feed int, body []byte) error) (StateHeader, error) {
	var h StateHeader
	if len(msg) < stateHeaderBytes || msg[0] != KindState || msg[1]&^(flagHash|flagAcks|flagSections) != 0 {
		return h, errPacket
	}
	flags := msg[1]
	h.HasHash, h.HasAcks, h.sections = flags&flagHash != 0, flags&flagAcks != 0, flags&flagSections != 0
	h.Seq = binary.LittleEndian.Uint16(msg[2:])
	h.Epoch = msg[4]
	h.Tick16 = binary.LittleEndian.Uint16(msg[5:])
	h.InputAck = binary.LittleEndian.Uint16(msg[7:])
	h.Margin = int8(msg[9])
	b := msg[stateHeaderBytes:]
	if h.HasAcks {
		if len(b) < ackEchoBytes {
			return h, errPacket
		}
		h.Ack = binary.LittleEndian.Uint16(b)
		h.Acks = binary.LittleEndian.Uint32(b[2:])
		b = b[ackEchoBytes:]
	}
	if h.HasHash {
		if len(b) < 4 {
			return h, errPacket
		}
		h.Hash = binary.LittleEndian.Uint32(b[len(b)-4:])
		b = b[:len(b)-4]
	}
	if !h.sections {
		if len(b) == 0 {
			return h, nil
		}
		return h, section(h, 0, b)
	}
	for last := -1; len(b) > 0; {
		id := int(b[0])
		n, used := binary.Uvarint(b[1:])
		if used <= 0 || id <= last || n > uint64(len(b)-1-used) {
			return h, errPacket
		}
		last = id
		b = b[1+used:]
		if err := section(h, id, b[:n]); err != nil {
			return h, err
		}
		b = b[n:]
	}
	return h, nil
}

// Reliable message, a section of a feed on the reliable lane; it follows the state of its tick:
//
//	0  u8  kind   19
//	1  u8  feed
//	2  u8  epoch
//	3  u32 tick
//	7  body
const reliableHeaderBytes = 7

// ReliableHeader is the fixed part of a reliable message.
type ReliableHeader struct {
	Feed  int
	Epoch uint8
	Tick  Tick
}

// AppendReliable appends the head of a reliable message; the feed's section follows it.
func AppendReliable(dst []byte, h ReliableHeader) []byte {
	return binary.LittleEndian.AppendUint32(append(dst, KindReliable, byte(h.Feed), h.Epoch), uint32(h.Tick))
}

// ParseReliable splits a reliable message. The body is a slice of msg.
func ParseReliable(msg []byte) (h ReliableHeader, body []byte, err error) {
	if len(msg) < reliableHeaderBytes || msg[0] != KindReliable {
		return h, nil, errPacket
	}
	h = ReliableHeader{Feed: int(msg[1]), Epoch: msg[2], Tick: Tick(binary.LittleEndian.Uint32(msg[3:]))}
	return h, msg[reliableHeaderBytes:], nil
}

// AppendAck appends a client's ack-only message.
func AppendAck(dst []byte, ack uint16, history uint32) []byte {
	dst = append(dst, KindAck)
	dst = binary.LittleEndian.AppendUint16(dst, ack)
	return binary.LittleEndian.AppendUint32(dst, history)
}

// Input message:
//
//	0  u8  kind     2
//	1  u16 ack      newest state packet received; 0 before the first
//	3  u32 history  bit i: packet ack-1-i was received too
//	7  u8  count    1 … 8; 128 is added if seen is there
//	8  u32 label    the step the newest input is for; 0: the next one
//	12 u16 seen     with 128: how long before its step each input's player saw what he acted on, in 1/16 steps; 0: unknown
//	.. count × input, newest first, for steps label, label-1, …
const (
	inputHeaderBytes = 12
	inputSeenBytes   = 2
	inputSeenFlag    = 128
)

// AppendInputHeader appends the head of an input message; count encoded inputs (Definition.EncodeInput) follow it.
func AppendInputHeader(dst []byte, ack uint16, history uint32, count int, label Tick) []byte {
	dst = append(dst, KindInput)
	dst = binary.LittleEndian.AppendUint16(dst, ack)
	dst = binary.LittleEndian.AppendUint32(dst, history)
	dst = append(dst, byte(count))
	return binary.LittleEndian.AppendUint32(dst, uint32(label))
}

// AppendInputHeaderSeen is AppendInputHeader for rooms whose welcome has a RewindMs: behind is how long before its step each input's
// player saw what he acted on, in 1/16 steps; 0: unknown. label is not 0.
func AppendInputHeaderSeen(dst []byte, ack uint16, history uint32, count int, label Tick, behind uint16) []byte {
	dst = AppendInputHeader(dst, ack, history, count|inputSeenFlag, label)
	return binary.LittleEndian.AppendUint16(dst, behind)
}

// AppendJSON appends a message of one kind byte and JSON.
func AppendJSON(dst []byte, kind byte, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return dst, fmt.Errorf("drumline: message %d: %w", kind, err)
	}
	return append(append(dst, kind), b...), nil
}
