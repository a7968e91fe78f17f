package drumline

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Every reason stands in docs/protocol.md with its code and advice.
func TestReasonsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range Reasons() {
		row := fmt.Sprintf("| `%s` | %d | %s |", r.Name(), r.Code(), r.Retry())
		if !strings.Contains(string(doc), row) {
			t.Errorf("docs/protocol.md has no row %s", row)
		}
		if r.Name() == "" || reasons[r].text == "" || seen[r.Name()] {
			t.Errorf("reason %d: name %q, text %q", r, r.Name(), reasons[r].text)
		}
		seen[r.Name()] = true
	}
	for d := range numDrops {
		if d.Name() == "" || seen[d.Name()] {
			t.Errorf("drop %d is called %q", d, d.Name())
		}
		seen[d.Name()] = true
	}
}
