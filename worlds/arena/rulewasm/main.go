//go:build wasip1

// Command rulewasm is package move as WebAssembly, for a page that predicts with the server's own code in place of a twin:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w" -o move.wasm ./worlds/arena/rulewasm
//
// "make wasm" puts it where the arena's page finds it; docs/client.md says what it exports and how a page loads it. It has no memory of
// its own from step to step, does no input or output, and allocates nothing in a step, so that its garbage collector never runs.
package main

import (
	"unsafe"

	"github.com/drumline-engine/drumline/worlds/arena/move"
)

// layout names what stands in frame: fields of the own entity; then of the input; and then, here none, of its bools that were pressed. It
// ends with a zero byte.
var layout = []byte("x y vx vy hp;dx dy;\x00")

// frame is what both sides read and write.
var frame struct {
	x, y, vx, vy, hp float64
	dx, dy           float64
}

//go:wasmexport rule_layout
func ruleLayout() uint32 { return uint32(uintptr(unsafe.Pointer(&layout[0]))) }

//go:wasmexport rule_frame
func ruleFrame() uint32 { return uint32(uintptr(unsafe.Pointer(&frame))) }

// ruleStep runs one step on frame. It returns 0 if that cannot be foreseen.
//
//go:wasmexport rule_step
func ruleStep(tick uint32) uint32 {
	if frame.hp == 0 {
		return 0
	}
	b := move.Body{X: frame.x, Y: frame.y, VX: frame.vx, VY: frame.vy}
	move.Walk(&b, int8(frame.dx), int8(frame.dy))
	frame.x, frame.y, frame.vx, frame.vy = b.X, b.Y, b.VX, b.VY
	return 1
}

func main() {}
