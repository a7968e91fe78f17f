package beat

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

func TestGridIsExact(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	check := func(k uint64, hz int) {
		want := new(big.Int).SetUint64(k)
		want.Mul(want, big.NewInt(1e9)).Div(want, big.NewInt(int64(hz)))
		d := at(k, hz)
		if !want.IsInt64() || int64(d) != want.Int64() {
			t.Fatalf("at(%d, %d) = %d, want %v", k, hz, d, want)
		}
		if got := index(d, hz); got != k {
			t.Fatalf("index(at(%d, %d)) = %d", k, hz, got)
		}
		if got := index(at(k+1, hz)-1, hz); got != k {
			t.Fatalf("index just before point %d at %d Hz = %d, want %d", k+1, hz, got, k)
		}
	}
	for hz := 1; hz <= 1000; hz++ {
		for k := range uint64(50) {
			check(k, hz)
		}
		for range 50 {
			// Up to 100 years.
			check(rng.Uint64N(uint64(hz)*3_000_000_000), hz)
		}
	}
}

func TestSlots(t *testing.T) {
	for _, r := range []rates{{60, 20}, {60, 25}, {60, 60}, {60, 30}, {1000, 7}, {1, 1}, {50, 49}} {
		m := newManual(t)
		b := m.add(t, Config{Hz: r.hz, SendHz: r.sendHz, Step: func(uint64, time.Duration) {}})
		var sends uint64
		last := b.Slot(b.base - 1)
		const seconds = 1000
		for k := uint64(1); k <= uint64(seconds*r.hz); k++ {
			slot := b.Slot(b.deadline(k))
			if slot != last {
				sends++
				if slot != last+1 {
					t.Fatalf("%v: slot %d follows %d", r, slot, last)
				}
				// It must be the first step at or after the slot's beginning.
				if begin := b.base + at(slot, r.sendHz); b.deadline(k) < begin || b.deadline(k-1) >= begin+1 {
					t.Fatalf("%v: step %d opens slot %d, which begins at %v", r, k, slot, begin)
				}
			}
			last = slot
		}
		if sends != uint64(seconds*r.sendHz) {
			t.Errorf("%v: %d sends in %d s", r, sends, seconds)
		}
	}
}
