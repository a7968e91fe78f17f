package drumline_test

import (
	"slices"
	"strings"
	"testing"
)

// Whoever imports the root gets the engine and nothing else: no WebSocket library, no bundler, no metrics client. This test
// prints what they get, and fails when a module is added to it.
func TestRootDependencies(t *testing.T) {
	allowed := []string{modulePath, "golang.org/x/sys"}
	for _, goos := range platforms {
		out := string(goList(t, goos, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}{{end}}", "."))
		for line := range strings.Lines(out) {
			pkg, module, _ := strings.Cut(strings.TrimSpace(line), " ")
			if pkg == "" {
				continue
			}
			t.Logf("%s: %s", goos, pkg)
			if !slices.Contains(allowed, module) {
				t.Errorf("%s: the root package depends on %s of module %s; only the standard library and golang.org/x/sys are wanted there", goos, pkg, module)
			}
		}
	}
}
