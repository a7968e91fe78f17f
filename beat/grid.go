package beat

import "time"

// at is the time of point k of a grid of hz points a second. It is exact to the nanosecond however large k is: k/hz in whole
// seconds and the rest in integers, never a period rounded once and added up (at 60 Hz that would lose 40 ns a second).
func at(k uint64, hz int) time.Duration {
	h := uint64(hz)
	return time.Duration(k/h)*time.Second + time.Duration(k%h*uint64(time.Second)/h)
}

// index is the newest point of the grid at or before d, which must not be negative.
func index(d time.Duration, hz int) uint64 {
	s, r := uint64(d/time.Second), uint64(d%time.Second)
	h := uint64(hz)
	// at(k) <= d  ⇔  floor(k·1e9/h) <= d  ⇔  k < (d+1)·h/1e9
	return s*h + ((r+1)*h+uint64(time.Second)-1)/uint64(time.Second) - 1
}
