// Command drumline is the engine with its ready worlds in one binary: drumline serve runs them, drumline load measures them,
// drumline help tells the rest. A program with worlds of its own is the same few lines; see package app.
package main

import (
	"github.com/drumline-engine/drumline/app"
	"github.com/drumline-engine/drumline/worlds/arena"
)

func main() { app.Main(arena.World()) }
