package snap

import (
	"hash/fnv"
	"sync"
	"testing"

	"github.com/drumline-engine/drumline/feed"
)

// TestEncodersInParallelWriteTheSame has the seats of a city served one after the other, and then each by an encoder of its own that lags
// behind the room: every seat gets the same bytes. It is for the race detector, too, as a frame's net is built when somebody asks.
func TestEncodersInParallelWriteTheSame(t *testing.T) {
	const seats, packets = 6, 60
	play := func(parallel bool) (sums [seats]uint64) {
		c := newCity(t, 5, cityHalf)
		var serve [seats]func(fr *frame, n int)
		for i := range seats {
			st := c.f.Join(feed.SeatID(i%citySeats), feed.Unordered)
			sum := fnv.New64a()
			var open []feed.Receipt
			serve[i] = func(fr *frame, n int) {
				defer fr.Release()
				b, w := st.Append(nil, fr, 600)
				sum.Write(b)
				sums[i] = sum.Sum64()
				if w.Receipt != 0 {
					open = append(open, w.Receipt)
				}
				if len(open) <= i { // acks come so many packets late, and every fifth is lost
					return
				}
				if n%5 == 4 {
					st.Lost(open[0])
				} else {
					st.Delivered(open[0])
				}
				open = open[1:]
			}
		}
		var wg sync.WaitGroup
		var in [seats]chan func()
		for i := range in {
			if in[i] = make(chan func(), 3); parallel {
				wg.Go(func() {
					for do := range in[i] {
						do()
					}
				})
			}
		}
		for n := range packets {
			for range 3 {
				c.drive()
			}
			fr := c.capture()
			for i := range seats {
				fr.Retain()
				if do := func() { serve[i](fr, n) }; parallel {
					in[i] <- do
				} else {
					do()
				}
			}
			fr.Release()
		}
		for i := range in {
			close(in[i])
		}
		wg.Wait()
		return sums
	}
	if one, many := play(false), play(true); one != many {
		t.Errorf("one after the other %x, in parallel %x", one, many)
	}
}
