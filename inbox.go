package drumline

import "sync"

// inboxSteps is how far ahead of the room an input may be labelled.
const inboxSteps = 64

// inbox holds what one seat wants, by the step it is for. The link's reader fills it and the room takes one input per step;
// neither waits for the other for longer than a copy.
type inbox struct {
	codec  *inputCodec
	hold   uint32 // steps for which an input is repeated
	rewind int    // the farthest that a player may have seen back, in parts of a step; 0: nobody asks

	mu sync.Mutex // guards what follows

	taken  uint32             // the last step that took its input
	labels [inboxSteps]uint32 // by label % inboxSteps: the newest label stored there; 0: none
	data   []byte             // inboxSteps × codec.size
	behind [inboxSteps]uint16 // how long before its step each was seen, in parts; 0: unknown
	newest uint32             // newest label received
	margin int8               // how many steps early it was

	next    []byte // an unlabelled input for the coming step
	hasNext bool

	held        []byte // the newest input at or before the last step
	heldLabel   uint32
	heldSince   uint32 // step at which it was first used
	heldBehind  uint16
	hasHeld     bool
	usedBits    uint32 // bools of the last step's input
	latePressed uint32 // presses that missed their step
	lateSeen    Moment // when the newest of them was seen

	seen Moment // of the last take; the room's alone
}

// newInbox makes the inbox of a seat that joins after step now.
func newInbox(c *inputCodec, hold, now uint32) *inbox {
	buf := make([]byte, (inboxSteps+2)*c.size)
	return &inbox{
		codec: c, hold: max(hold, 1), taken: now, margin: MarginNone,
		data: buf[:inboxSteps*c.size], next: buf[inboxSteps*c.size : (inboxSteps+1)*c.size], held: buf[(inboxSteps+1)*c.size:],
	}
}

// reset forgets everything: the seat has a new link.
func (b *inbox) reset() {
	b.mu.Lock()
	b.labels = [inboxSteps]uint32{}
	b.newest, b.margin, b.hasNext, b.hasHeld, b.usedBits, b.latePressed, b.lateSeen = 0, MarginNone, false, false, 0, 0, 0
	b.mu.Unlock()
}

// bound takes what a client says of how long before its step it saw what it acted on, and returns what is believed: not less than
// one step, for the step's own outcome is not to be seen before it, and not farther back than may be rewound. moved: that is not the same.
func (b *inbox) bound(behind uint16) (believed uint16, moved bool) {
	if b.rewind == 0 || behind == 0 {
		return 0, false
	}
	believed = uint16(max(momentParts, min(int(behind), momentParts+b.rewind)))
	return believed, believed != behind
}

// put stores one valid encoded input for step label (0: the next one).
func (b *inbox) put(label uint32, raw []byte) (d Drop, dropped bool) { return b.putSeen(label, 0, raw) }

// putSeen is put with how long before its step the input was seen, within bound.
func (b *inbox) putSeen(label uint32, behind uint16, raw []byte) (d Drop, dropped bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.taken // not the room's own count: a step that runs has taken its input already
	bits := b.codec.bits(raw)
	if label == 0 {
		if b.hasNext { // overtaken before a step took it: keep its presses
			b.latePressed |= b.codec.bits(b.next) &^ b.usedBits &^ bits
		}
		copy(b.next, raw)
		b.hasNext = true
		return 0, false
	}
	ahead := int32(label - now)
	if ahead > inboxSteps {
		return DropInputFuture, true
	}
	slot := label % inboxSteps
	if b.labels[slot] == label {
		return DropInputRepeat, true
	}
	if int32(label-b.newest) > 0 || b.newest == 0 {
		b.newest = label
		b.margin = int8(max(-127, min(127, ahead-1)))
	}
	if ahead > 0 {
		b.labels[slot], b.behind[slot] = label, behind
		copy(b.data[int(slot)*b.codec.size:], raw)
		return 0, false
	}
	if ahead <= -inboxSteps || int32(b.labels[slot]-label) > 0 && b.labels[slot] != 0 {
		return DropInputLate, true // too old to tell from a repeat
	}
	// Its step is over. A press still fires once, in the next step; and the input is the newest we know if no newer came.
	b.labels[slot], b.behind[slot] = label, behind
	copy(b.data[int(slot)*b.codec.size:], raw)
	carried := b.usedBits // where the press has fired, or will, by another input
	if next := (label + 1) % inboxSteps; b.labels[next] == label+1 {
		carried |= b.codec.bits(b.data[int(next)*b.codec.size:])
	}
	if late := bits &^ carried; late != 0 {
		b.latePressed |= late
		b.lateSeen = momentBefore(label, behind)
	}
	if !b.hasHeld || int32(label-b.heldLabel) > 0 {
		copy(b.held, raw)
		b.heldLabel, b.heldSince, b.heldBehind, b.hasHeld = label, now+1, behind, true
	}
	return DropInputLate, true
}

// take copies the input of step into dst and returns the bools pressed since the last call, the input's age in steps, and
// whether there is none (dst is then zero). seen is then the moment that the player acted on.
func (b *inbox) take(step uint32, dst []byte) (pressed uint32, age int, missing bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = step
	slot := step % inboxSteps
	switch {
	case b.labels[slot] == step:
		copy(b.held, b.data[int(slot)*b.codec.size:])
		b.heldLabel, b.heldSince, b.heldBehind, b.hasHeld = step, step, b.behind[slot], true
	case b.hasNext:
		copy(b.held, b.next)
		b.heldLabel, b.heldSince, b.heldBehind, b.hasHeld = step, step, 0, true
	}
	b.hasNext = false
	// Who holds an input goes on seeing; a press that came late was aimed at what was seen then.
	b.seen = momentBefore(step, b.heldBehind)
	if b.latePressed != 0 && b.lateSeen != 0 {
		b.seen = max(b.lateSeen, momentBefore(step, uint16(momentParts+b.rewind)))
	}
	b.lateSeen = 0
	if !b.hasHeld || step-b.heldSince >= b.hold {
		b.usedBits = 0
		pressed, b.latePressed = b.latePressed, 0
		if pressed == 0 {
			b.seen = 0
		}
		clear(dst[:b.codec.size])
		return pressed, int(step - b.heldSince), true
	}
	copy(dst, b.held)
	bits := b.codec.bits(b.held)
	pressed = bits&^b.usedBits | b.latePressed
	b.usedBits, b.latePressed = bits, 0
	return pressed, int(step - b.heldLabel), false
}

// state returns what a packet's header says of the inputs.
func (b *inbox) state() (newest16 uint16, margin int8) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return uint16(b.newest), b.margin
}
