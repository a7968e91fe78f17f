package wire_test

import (
	"fmt"

	"github.com/drumline-engine/drumline/wire"
)

func Example() {
	var w wire.Writer
	w.Reset(nil)
	w.Bits(5, 3)
	w.Uvarint(300)
	b := w.Finish()

	r := wire.NewReader(b)
	fmt.Println(r.Bits(3), r.Uvarint(), r.End())
	// Output: 5 300 <nil>
}

func ExampleQuant() {
	z, _ := wire.NewQuant(0.01, 0, 1000) // centimetres on a kilometre
	k, ok := z.Quantise(12.3456)
	fmt.Println(k, ok, z.Dequantise(k), z.Bits(), "bits")
	k, ok = z.Quantise(-1)
	fmt.Println(k, ok)
	// Output:
	// 1235 true 12.35 17 bits
	// 0 false
}
