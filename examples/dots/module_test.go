package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A game of somebody else's is a module of its own: the files of dots, one require line, and nothing of this repository beside
// it. It must build there as the README says.
func TestAsAModuleOfItsOwn(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "web"), os.DirFS("web")); err != nil {
		t.Fatal(err)
	}
	copyFile(t, "main.go", filepath.Join(dir, "main.go"))
	copyFile(t, "../../go.sum", filepath.Join(dir, "go.sum"))
	bin := filepath.Join(dir, "mygame.exe")
	for _, args := range [][]string{
		{"mod", "init", "example.com/mygame"},
		{"mod", "edit", "-require=github.com/drumline-engine/drumline@v0.0.0", "-replace=github.com/drumline-engine/drumline=" + root},
		{"build", "-mod=mod", "-o", bin, "."},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	out, err := exec.Command(bin, "help").CombinedOutput()
	if err != nil {
		t.Fatalf("mygame help: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// The README shows this very program.
func TestReadmeShowsTheProgram(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"main.go", "web/main.ts"} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(readme, bytes.TrimSpace(code)) {
			t.Errorf("README.md does not show %s as it is", file)
		}
	}
}
