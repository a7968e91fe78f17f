package move

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "write testdata anew")

// traces are walks that the rule in Go, its twin in web/move.ts and the rule as WebAssembly all reproduce bit by bit.
type traces struct {
	Note string `json:"note"`
	// Every: a state is noted after so many steps.
	Every int     `json:"every"`
	Walks []trace `json:"walks"`
}

type trace struct {
	// Start is x, y, vx and vy, each as the 16 hex digits of its bits.
	Start [4]string `json:"start"`
	// Sticks has a byte dx and a byte dy for each step, in hex.
	Sticks string      `json:"sticks"`
	States [][4]string `json:"states"`
}

func (b *Body) bits() (s [4]string) {
	for i, v := range [4]float64{b.X, b.Y, b.VX, b.VY} {
		s[i] = fmt.Sprintf("%016x", math.Float64bits(v))
	}
	return s
}

func buildTraces() traces {
	const steps = 360
	t := traces{Note: "written by `go test -update ./worlds/arena/move`; read by it and by web/test/arena.test.ts", Every: 20}
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 8 {
		b := Body{X: r.Float64() * FieldSize, Y: r.Float64() * FieldSize}
		if n == 0 {
			b = Body{X: 400.03, Y: 499.97, VX: 12, VY: -3} // nearly head-on into the middle pillar
		}
		Confine(&b, PlayerRadius)
		w := trace{Start: b.bits()}
		var sticks []byte
		var dx, dy int8
		for i := range steps {
			switch {
			case n == 0:
				dx, dy = 127, 0
			case n == 1:
				dx, dy = -128, -128 // into a corner
			case r.IntN(12) == 0:
				dx, dy = int8(r.IntN(256)-128), int8(r.IntN(256)-128)
				if r.IntN(3) == 0 {
					dx, dy = int8(127*(r.IntN(3)-1)), int8(127*(r.IntN(3)-1))
				}
			}
			sticks = append(sticks, byte(dx), byte(dy))
			Walk(&b, dx, dy)
			if (i+1)%t.Every == 0 {
				w.States = append(w.States, b.bits())
			}
		}
		w.Sticks = hex.EncodeToString(sticks)
		t.Walks = append(t.Walks, w)
	}
	return t
}

func TestTraces(t *testing.T) {
	name := filepath.Join("testdata", "move.json")
	got := buildTraces()
	if *update {
		out, err := json.MarshalIndent(got, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, append(out, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	src, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var want traces
	if err := json.Unmarshal(src, &want); err != nil {
		t.Fatal(err)
	}
	if len(want.Walks) != len(got.Walks) || want.Every != got.Every {
		t.Fatalf("%d walks, noted every %d steps", len(want.Walks), want.Every)
	}
	for n, w := range want.Walks {
		g := got.Walks[n]
		if w.Start != g.Start || w.Sticks != g.Sticks {
			t.Errorf("walk %d is another one: run the test with -update", n)
			continue
		}
		for i := range w.States {
			if !slices.Equal(w.States[i][:], g.States[i][:]) {
				t.Errorf("walk %d after %d steps: %v, want %v", n, (i+1)*want.Every, g.States[i], w.States[i])
				break
			}
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	b.ReportAllocs()
	body := Body{X: 400, Y: 500}
	for i := range b.N {
		Walk(&body, int8(i), int8(i>>8))
	}
}
