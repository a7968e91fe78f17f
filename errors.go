package drumline

import (
	"errors"
	"fmt"
	"time"
)

// Errors of links and of the server.
var (
	// ErrBacklog is returned when a link's reliable lane is full. The message was not queued.
	ErrBacklog = errors.New("drumline: the link's reliable lane is full")
	// ErrLinkClosed is returned by calls on a link that has ended.
	ErrLinkClosed = errors.New("drumline: the link is closed")
	// ErrClosed is returned by calls on a server or room that has ended.
	ErrClosed = errors.New("drumline: closed")
)

// Reason says why a client was refused or a link closed. Each has a close code, a name for counters, a text for people and
// advice whether to come back; see reasons. docs/protocol.md lists them.
type Reason uint8

// The reasons. Their order is not part of the protocol; codes and names are.
const (
	ReasonLeft          Reason = iota // the client said goodbye, or closed the link by itself
	ReasonLinkLost                    // the link broke without a word; the seat waits for its grace
	ReasonVersion                     // the client speaks another protocol version
	ReasonOrigin                      // a page of another site tried to connect
	ReasonNoWorld                     // there is no world of that name
	ReasonNoRoom                      // there is no such room, or its name is not valid
	ReasonRoomFull                    // all seats of the room are taken
	ReasonServerFull                  // the server, or the world, holds as many as it may
	ReasonTooFast                     // joins from one address, or messages on one link, came too fast
	ReasonSilent                      // no hello within HelloTimeout
	ReasonIdle                        // nothing was heard for IdleTimeout
	ReasonBadMessage                  // a message that the protocol does not know or that is malformed
	ReasonTooBig                      // a message over the read limit
	ReasonBadAck                      // an ack for a packet that was never sent
	ReasonStalled                     // no ack for StallTimeout: the client does not read
	ReasonBacklog                     // the reliable lane grew over its limits
	ReasonReplaced                    // the same seat came back on another link
	ReasonResumeUnknown               // the resume token belongs to no seat here
	ReasonResumeExpired               // the seat was given up when its grace had passed
	ReasonWorld                       // the world's rules refused
	ReasonRoomError                   // the world panicked or could not open; the room is closed
	ReasonRoomHung                    // a step did not return in time; the room is closed
	ReasonRoomClosed                  // the room was closed
	ReasonDraining                    // the server is shutting down
	numReasons
)

// Retry says what a client may do after a refusal or close.
type Retry uint8

const (
	RetryNever  Retry = iota // coming back the same way will fail again; a person has to act
	RetryNew                 // join again as a new player
	RetryResume              // come back with the token: the seat is kept
	RetryLater               // try again after a pause
)

var retryNames = [...]string{"never", "new", "resume", "later"}

func (r Retry) String() string { return retryNames[r] }

type reasonInfo struct {
	name  string
	code  int
	retry Retry
	text  string
}

var reasons = [numReasons]reasonInfo{
	ReasonLeft:          {"left", 1000, RetryNew, "You left."},
	ReasonLinkLost:      {"link_lost", 1006, RetryResume, "The connection was lost."},
	ReasonVersion:       {"version", 4003, RetryNever, "This page is older or newer than the server. Reload it."},
	ReasonOrigin:        {"origin", 4004, RetryNever, "This server does not take connections from that site."},
	ReasonNoWorld:       {"no_world", 4005, RetryNever, "There is no such world here."},
	ReasonNoRoom:        {"no_room", 4006, RetryNever, "There is no such room here."},
	ReasonRoomFull:      {"room_full", 4010, RetryLater, "This room is full."},
	ReasonServerFull:    {"server_full", 4011, RetryLater, "The server is full."},
	ReasonTooFast:       {"too_fast", 4012, RetryLater, "Too many requests in a short time."},
	ReasonSilent:        {"silent", 4013, RetryLater, "The connection said nothing."},
	ReasonIdle:          {"idle", 4014, RetryResume, "Nothing was heard for too long."},
	ReasonBadMessage:    {"bad_message", 4015, RetryNever, "The server did not understand a message."},
	ReasonTooBig:        {"too_big", 1009, RetryNever, "A message was too big."},
	ReasonBadAck:        {"bad_ack", 4016, RetryNever, "A message acknowledged what was never sent."},
	ReasonStalled:       {"stalled", 4017, RetryResume, "The connection was too slow for too long."},
	ReasonBacklog:       {"backlog", 4018, RetryResume, "The connection was too slow for what had to arrive."},
	ReasonReplaced:      {"replaced", 4019, RetryNever, "You are playing in another window."},
	ReasonResumeUnknown: {"resume_unknown", 4020, RetryNew, "Your seat is not known here any more."},
	ReasonResumeExpired: {"resume_expired", 4021, RetryNew, "Your seat was given up while you were away."},
	ReasonWorld:         {"world", 4022, RetryNever, "The game did not let you in."},
	ReasonRoomError:     {"room_error", 4023, RetryLater, "The room broke down and was closed."},
	ReasonRoomHung:      {"room_hung", 4024, RetryLater, "The room hung and was closed."},
	ReasonRoomClosed:    {"room_closed", 4025, RetryNew, "The room was closed."},
	ReasonDraining:      {"draining", 1001, RetryLater, "The server is restarting."},
}

// Name is the reason's name in messages, counters and logs, such as "room_full".
func (r Reason) Name() string { return reasons[r].name }

// String is Name.
func (r Reason) String() string { return reasons[r].name }

// Text says the reason to the player, in a sentence.
func (r Reason) Text() string { return reasons[r].text }

// Code is the WebSocket close code that goes with the reason.
func (r Reason) Code() int { return reasons[r].code }

// Retry is what the client may do.
func (r Reason) Retry() Retry { return reasons[r].retry }

// Reasons returns all reasons, for documentation and for counters that start at zero.
func Reasons() []Reason {
	all := make([]Reason, numReasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}

// Refusal is a Reason with what else the client should know. It is the error that Join and admission return.
type Refusal struct {
	Reason Reason
	// Text replaces the reason's own text if not empty. It is shown to the player.
	Text string
	// RetryAfter is the least pause before the next try; 0: none.
	RetryAfter time.Duration
}

// Refuse makes a Refusal by the world's own rules: ReasonWorld with a text for the player.
func Refuse(text string) *Refusal { return &Refusal{Reason: ReasonWorld, Text: text} }

func (r *Refusal) Error() string {
	if r.Text != "" {
		return fmt.Sprintf("drumline: refused: %s: %s", r.Reason.Name(), r.Text)
	}
	return "drumline: refused: " + r.Reason.Name()
}

// Drop is a counter's name for something that was left out without ending the link.
type Drop uint8

// What can be left out. Skips are state packets not sent; the others are parts of client messages not used.
const (
	SkipBusy        Drop = iota // packet: the link still holds bytes of the one before
	SkipSlow                    // packet: lower rate, the newest ack is older than SlowAfter
	SkipQuiet                   // packet: keep-alive only, the newest ack is older than QuietAfter
	SkipQueued                  // packet: the reliable lane holds more than QueuedHigh
	SkipEncoder                 // packets: the encoder had not finished the room's previous frame
	SkipClean                   // packet: nothing to say, in a room without a beat
	SkipWindow                  // packet: as many are under way as their acks can be told apart
	DropInputLate               // input for a step that has been run
	DropInputFuture             // input for a step too far ahead
	DropInputRepeat             // input that was known already (redundancy; no fault)
	DropCommand                 // command: the seat's queue was full
	DropInputSeen               // what an input said of the moment seen: it was out of bounds, and was moved to the bound
	DropReport                  // report: it came too soon, or said nothing
	DropReportBound             // a number of a report: it was out of bounds, and was moved to the bound
	numDrops

	firstDropped = DropInputLate // those before are packets
)

var dropNames = [numDrops]string{"busy", "slow", "quiet", "queued", "encoder", "clean", "window",
	"input_late", "input_future", "input_repeat", "command", "input_seen", "report", "report_bounds"}

// Name is the drop's name in counters.
func (d Drop) Name() string { return dropNames[d] }
