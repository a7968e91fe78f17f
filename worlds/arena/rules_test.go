package arena

import (
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

// ruleFiles are what must compute the same on every machine.
var ruleFiles = []string{"move/move.go", "move.go", "game.go", "monster.go", "shoot.go", "state.go"}

// Imports that rules may use, and of those that are named, the only members they may touch.
var ruleImports = map[string][]string{
	"math":                                {"Sqrt", "Inf", "Pi", "Cos", "Round", "Float64bits", "Float64frombits"}, // Cos and Round: for the table, which has its own test
	"math/rand/v2":                        {"Rand"},
	"encoding/binary":                     nil,
	"errors":                              nil,
	"fmt":                                 nil,
	"github.com/drumline-engine/drumline": {"Tick", "Moment", "Past", "NewPast"},
	"github.com/drumline-engine/drumline/feed":              nil,
	"github.com/drumline-engine/drumline/feed/snap":         nil,
	"github.com/drumline-engine/drumline/worlds/arena/move": nil,
}

// forbidden lists what breaks determinism in a rule file.
func forbidden(t *testing.T, name string, src any) []string {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	report := func(n ast.Node, what string) { found = append(found, fset.Position(n.Pos()).String()+": "+what) }
	members := map[string][]string{}
	for _, im := range file.Imports {
		path, _ := strconv.Unquote(im.Path.Value)
		only, ok := ruleImports[path]
		if !ok || im.Name != nil {
			report(im, "import of "+path)
			continue
		}
		if only != nil {
			short := path[strings.LastIndex(path, "/")+1:]
			if path == "math/rand/v2" {
				short = "rand"
			}
			members[short] = only
		}
	}
	rounded := map[ast.Node]bool{} // products that are a conversion's operand, or part of a product or comparison
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n, "a goroutine")
		case *ast.SelectStmt:
			report(n, "a select")
		case *ast.MapType:
			report(n, "a map (its order is random)")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && members[x.Name] != nil {
				allowed := false
				for _, m := range members[x.Name] {
					allowed = allowed || m == n.Sel.Name
				}
				if !allowed {
					report(n, x.Name+"."+n.Sel.Name)
				}
			}
		case *ast.GenDecl:
			if n.Tok == token.CONST {
				return false // computed exactly, by the compiler
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && len(n.Args) == 1 {
				switch f.Name {
				case "float64", "int", "uint8", "uint16", "int16":
					rounded[ast.Unparen(n.Args[0])] = true
				}
			}
		case *ast.AssignStmt:
			if n.Tok == token.MUL_ASSIGN {
				report(n, "a product without a conversion")
			}
		case *ast.BinaryExpr:
			if n.Op == token.MUL {
				if !rounded[n] && !constant(n) {
					report(n, "a product without a conversion: it may be fused with a sum")
				}
				rounded[ast.Unparen(n.X)], rounded[ast.Unparen(n.Y)] = true, true
			}
		}
		return true
	})
	return found
}

// constant says whether an expression names only figures and the rules' constants.
func constant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.ParenExpr:
		return constant(e.X)
	case *ast.BinaryExpr:
		return constant(e.X) && constant(e.Y)
	case *ast.Ident:
		return ruleConstants[e.Name]
	}
	return false
}

var ruleConstants = map[string]bool{"fieldSize": true, "edge": true, "tableOne": true, "maxTurn": true, "sight": true}

func TestRulesAreDeterministic(t *testing.T) {
	for _, name := range ruleFiles {
		for _, f := range forbidden(t, name, nil) {
			t.Error(f)
		}
	}
}

// Each file of the package is either a rule file or named here, so that a new one is not forgotten.
func TestEveryFileIsJudged(t *testing.T) {
	other := map[string]bool{"arena.go": true, "bot.go": true}
	for _, f := range ruleFiles {
		other[f] = true
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if n := e.Name(); strings.HasSuffix(n, ".go") && !strings.HasSuffix(n, "_test.go") && !other[n] {
			t.Errorf("%s is neither among the rule files nor among the others", n)
		}
	}
}

func TestForbiddenIsFound(t *testing.T) {
	for src, want := range map[string]string{
		`import "time"`:                                                 "import of time",
		`import r "math/rand/v2"`:                                       "import of math/rand/v2",
		"import \"math/rand/v2\"\nvar a = rand.IntN(3)":                 "rand.IntN",
		"import \"math\"\nvar a = math.Exp(3)":                          "math.Exp",
		"func f() { go f() }":                                           "a goroutine",
		"var m map[int]int":                                             "a map",
		"func f(a, b, c float64) float64 { return a*b + c }":            "a product",
		"func f(a, b, c float64) float64 { return a + (b*c) }":          "a product",
		"func f(a, b, c float64) float64 { t := a*b; return t + c }":    "a product",
		"func f(a, b float64) { a *= b }":                               "a product",
		"func f(a, b, c float64) float64 { return float64(a*b*c) + 1 }": "",
	} {
		got := strings.Join(forbidden(t, "x.go", "package x\n"+src), "\n")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s\nfound %q, want %q", src, got, want)
		}
	}
}

// The table must be the same on every machine: its hash is fixed, and no entry lies so near to a half that the last bit of
// a machine's own cosine could round it the other way.
func TestCircle(t *testing.T) {
	h := fnv.New64a()
	for i, v := range circle {
		h.Write([]byte{byte(v), byte(v >> 8)})
		exact := math.Cos(float64(i)*2*math.Pi/tableSteps) * tableOne
		if _, frac := math.Modf(math.Abs(exact)); math.Abs(frac-0.5) < 1e-9 {
			t.Errorf("entry %d is %v before it is rounded", i, exact)
		}
	}
	if got := h.Sum64(); got != circleHash {
		t.Errorf("hash %#x, want %#x", got, uint64(circleHash))
	}
	for _, c := range []struct {
		aim  uint16
		x, y float64
	}{{0, 1, 0}, {1 << 14, 0, 1}, {1 << 15, -1, 0}, {3 << 14, 0, -1}} {
		if x, y := direction(c.aim); x != c.x || y != c.y {
			t.Errorf("direction(%d) = %v, %v", c.aim, x, y)
		}
	}
}

const circleHash = 0x7350e675bb259af5
