package motion

import (
	"testing"

	"github.com/drumline-engine/drumline/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
