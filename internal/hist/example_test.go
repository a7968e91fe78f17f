package hist_test

import (
	"fmt"
	"time"

	"github.com/drumline-engine/drumline/internal/hist"
)

func Example() {
	var h hist.Histogram
	for i := 1; i <= 100; i++ {
		h.Record(time.Duration(i) * time.Microsecond)
	}
	fmt.Println(h.Count(), h.Max(), h.Mean())
	// Output: 100 100µs 50.5µs
}
