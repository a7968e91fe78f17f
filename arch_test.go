package drumline_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/drumline-engine/drumline"

// houseRule is a line of the import map.
type houseRule struct {
	// pkg is a package's path inside the module ("." is the root), as a pattern of path.Match.
	pkg string
	// ours are the packages of this module that it may import, as patterns; internal/* is allowed to all.
	ours []string
	// modules are the modules of others that it may import: one package per technology.
	modules []string
}

// house is the import map: an arrow points only to what is named here. A new package needs a line, and that it fits into one
// is the point. The first line that matches counts.
var house = []houseRule{
	{pkg: ".", ours: []string{"beat", "wire", "feed"}},

	// Pure parts: they know no socket, no file and no engine.
	{pkg: "beat", modules: []string{"golang.org/x/sys"}},
	{pkg: "wire"},
	{pkg: "feed"},
	{pkg: "feed/*", ours: []string{"feed", "wire"}},
	{pkg: "dmx"},
	{pkg: "internal/*", modules: []string{"golang.org/x/sys"}},

	// Adapters: each brings one technology and none knows another.
	{pkg: "link/ws", ours: []string{".", "feed"}, modules: []string{"github.com/gobwas/ws", "golang.org/x/sys"}},
	{pkg: "link/*", ours: []string{".", "feed"}},
	{pkg: "store/*", ours: []string{"."}},
	{pkg: "fleet", ours: []string{"."}},
	{pkg: "ops", ours: []string{".", "feed"}, modules: []string{"github.com/prometheus/client_golang"}},
	{pkg: "web", modules: []string{"github.com/evanw/esbuild"}},
	{pkg: "gate"},

	{pkg: "worlds/*", ours: []string{".", "feed", "feed/*", "dmx", "worlds/*/move"}},
	// What a page computes as well as its server, and the same as WebAssembly: nothing that a page would have to load for nothing.
	{pkg: "worlds/*/move"},
	{pkg: "worlds/*/rulewasm", ours: []string{"worlds/*/move"}},
	// The lab measures from outside, and only app imports it, since no other line names it.
	{pkg: "lab/*", ours: []string{".", "beat", "wire", "feed", "feed/*", "link/*", "store/*", "fleet", "ops", "web", "gate",
		"dmx", "worlds/*", "lab/*"}, modules: []string{"github.com/gobwas/ws", "golang.org/x/sys"}},

	// Programs.
	{pkg: "app", ours: []string{".", "beat", "wire", "feed", "feed/*", "link/*", "store/*", "fleet", "ops", "web", "gate",
		"dmx", "worlds/*", "lab/*"}, modules: []string{"golang.org/x/sys"}},
	{pkg: "cmd/*", ours: []string{"app", "gate", "worlds/*"}},
	// What a user's own program looks like.
	{pkg: "examples/*", ours: []string{".", "feed", "feed/*", "app"}},
}

// listed is what go list tells about a package.
type listed struct {
	Dir, ImportPath, Name   string
	GoFiles, IgnoredGoFiles []string
	Imports                 []string
}

// platforms are those whose files may differ.
var platforms = []string{"linux", "windows", "darwin"}

// goList runs go list for an operating system.
func goList(t *testing.T, goos string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list %s for %s: %v\n%s", strings.Join(args, " "), goos, err, exit.Stderr)
		}
		t.Fatal(err)
	}
	return out
}

// packages returns the module's packages as an operating system sees them.
func packages(t *testing.T, goos string) []listed {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(goList(t, goos, "-json=Dir,ImportPath,Name,GoFiles,IgnoredGoFiles,Imports", "./..."))))
	var all []listed
	for {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		// npm packages may hold Go files; folders of test files alone have nothing to check.
		if !strings.Contains(p.ImportPath, "/node_modules/") && len(p.GoFiles)+len(p.IgnoredGoFiles) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// inHouse returns an import's path inside the module ("." for the root).
func inHouse(imp string) (string, bool) {
	if imp == modulePath {
		return ".", true
	}
	return strings.CutPrefix(imp, modulePath+"/")
}

func matches(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, pkg)
		return ok && err == nil
	})
}

// mistake says what is wrong with an import of a package, or nothing.
func (r houseRule) mistake(imp string) string {
	if pkg, ours := inHouse(imp); ours {
		if !matches(append([]string{"internal/*"}, r.ours...), pkg) {
			return "may not import " + pkg
		}
		return ""
	}
	first, _, _ := strings.Cut(imp, "/")
	if !strings.Contains(first, ".") { // the standard library
		return ""
	}
	if !slices.ContainsFunc(r.modules, func(m string) bool { return imp == m || strings.HasPrefix(imp, m+"/") }) {
		return "may not import " + imp + ", which is another package's technology or a new dependency"
	}
	return ""
}

func ruleFor(pkg string) (houseRule, bool) {
	for _, r := range house {
		if matches([]string{r.pkg}, pkg) {
			return r, true
		}
	}
	return houseRule{}, false
}

// The import map holds on all platforms, for all files but tests.
func TestImportMap(t *testing.T) {
	for _, goos := range platforms {
		for _, p := range packages(t, goos) {
			pkg, _ := inHouse(p.ImportPath)
			r, ok := ruleFor(pkg)
			if !ok {
				t.Errorf("package %s has no line in the import map of arch_test.go", pkg)
				continue
			}
			for _, imp := range p.Imports {
				if wrong := r.mistake(imp); wrong != "" {
					t.Errorf("%s: %s %s", goos, pkg, wrong)
				}
			}
		}
	}
}

// Each package says once what it is, so that nobody has to look for it and no two files say different things.
func TestOnePackageComment(t *testing.T) {
	for _, p := range packages(t, "linux") {
		pkg, _ := inHouse(p.ImportPath)
		var docs []string
		for _, name := range append(slices.Clone(p.GoFiles), p.IgnoredGoFiles...) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Errorf("%s: %v", pkg, err)
				continue
			}
			if text := docText(f); text != "" {
				docs = append(docs, name)
				if want := openings(p); !slices.ContainsFunc(want, func(s string) bool { return strings.HasPrefix(text, s) }) {
					t.Errorf("%s: the package comment in %s should begin with one of %q", pkg, name, want)
				}
			}
		}
		if len(docs) != 1 {
			t.Errorf("%s has %d package comments, want one: %v", pkg, len(docs), docs)
		}
	}
}

func docText(f *ast.File) string {
	if f.Doc == nil {
		return ""
	}
	return strings.TrimSpace(f.Doc.Text()) // without directives
}

func openings(p listed) []string {
	if base := path.Base(p.ImportPath); p.Name == "main" {
		return []string{"Command " + base + " ", strings.ToUpper(base[:1]) + base[1:] + " "}
	}
	return []string{"Package " + p.Name + " "}
}

// The rule itself is tested, since a map that allows everything would pass.
func TestImportRule(t *testing.T) {
	for _, c := range []struct {
		pkg, imp string
		ok       bool
	}{
		{".", modulePath + "/beat", true},
		{".", modulePath + "/internal/hist", true},
		{".", "net/http", true},
		{".", modulePath + "/link/ws", false},
		{".", "github.com/gobwas/ws", false},
		{"feed", modulePath, false},
		{"feed/snap", modulePath + "/wire", true},
		{"feed/snap", modulePath + "/feed/tree", false},
		{"link/ws", "github.com/gobwas/ws/wsutil", true},
		{"link/ws", "github.com/gobwas/wsother", false},
		{"link/mem", modulePath + "/link/ws", false},
		{"ops", "github.com/evanw/esbuild/pkg/api", false},
		{"worlds/arena", modulePath + "/app", false},
		{"worlds/arena/move", modulePath + "/feed", false},
		{"worlds/arena/rulewasm", modulePath + "/worlds/arena/move", true},
		{"lab/bots", modulePath + "/app", false},
		{"ops", modulePath + "/lab/bots", false},
		{"app", modulePath + "/lab/bots", true},
		{"app", modulePath + "/cmd/drumline", false},
		{"cmd/drumline", modulePath + "/app", true},
	} {
		r, ok := ruleFor(c.pkg)
		if !ok {
			t.Errorf("no rule for %s", c.pkg)
			continue
		}
		if wrong := r.mistake(c.imp); (wrong == "") != c.ok {
			t.Errorf("%s importing %s: %q", c.pkg, c.imp, wrong)
		}
	}
	if _, ok := ruleFor("brandnew"); ok {
		t.Error("a package that nobody has thought of has a rule")
	}
}
