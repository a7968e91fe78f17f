package beat_test

import (
	"fmt"
	"time"

	"github.com/drumline-engine/drumline/beat"
)

func Example() {
	g, err := beat.NewGroup(beat.Options{Threads: 1})
	if err != nil {
		panic(err)
	}
	defer g.Close()

	done := make(chan struct{})
	var self *beat.Beat
	var sent int
	lastSlot := ^uint64(0)
	_, err = g.Add(beat.Config{
		Name: "dots", Hz: 60, SendHz: 20, Phase: beat.Auto,
		Bind: func(b *beat.Beat) { self = b },
		Step: func(n uint64, scheduled time.Duration) {
			// Step the world here; on the first step of each send period, capture it.
			if slot := self.Slot(scheduled); slot != lastSlot {
				lastSlot = slot
				sent++
			}
			if n == 12 {
				self.Stop()
				close(done)
			}
		},
	})
	if err != nil {
		panic(err)
	}
	<-done
	self.Stop() // from outside it waits for the last step to return
	s := self.Stats()
	fmt.Println(s.Steps, "steps,", s.State)
	// Output: 12 steps, stopped
}
