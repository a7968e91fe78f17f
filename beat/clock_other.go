//go:build !linux

package beat

func newSystemClock() Clock { return PortableClock() }
