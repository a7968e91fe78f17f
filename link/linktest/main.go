package linktest

import (
	"testing"

	"github.com/drumline-engine/drumline/internal/leak"
)

// Main runs a package's tests and fails if goroutines of this module are left when they are over:
//
//	func TestMain(m *testing.M) { linktest.Main(m) }
func Main(m *testing.M) { leak.Main(m) }
