package app

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/flags.md anew")

func parseServe(t *testing.T, vars map[string]string, args ...string) (*serveConfig, error) {
	t.Helper()
	e, _, _ := testEnv(vars)
	c := newServeConfig()
	return c, parseFlags(e, serveCommand(), c.flags(), args)
}

func TestFlagsAndEnvironment(t *testing.T) {
	c, err := parseServe(t, map[string]string{
		"DRUMLINE_ADDR":            ":9000",
		"DRUMLINE_SEND_HZ":         "10",
		"DRUMLINE_LAB":             "true",
		"DRUMLINE_DRAIN_TIMEOUT":   "2s",
		"DRUMLINE_TRUSTED_PROXIES": "10.1.2.3/8, ::1",
		"DRUMLINE_OPS_TOKEN":       "0123456789abcdef",
		"DRUMLINE_SEED":            "18446744073709551615",
		"DRUMLINE_ORIGINS":         "", // as good as not set
	}, "--send-hz", "30", "--origins", "a.example, *.b.example")
	if err != nil {
		t.Fatal(err)
	}
	if c.addr != ":9000" || c.sendHz != 30 || !c.lab || c.drainTimeout != 2*time.Second || c.opsToken != "0123456789abcdef" || c.seed != 1<<64-1 {
		t.Errorf("%+v", c)
	}
	if got := fmt.Sprint(c.trustedProxies, c.origins); got != "[10.0.0.0/8 ::1/128] [a.example *.b.example]" {
		t.Error(got)
	}
}

// A flag equal to its default still wins over the environment.
func TestFlagWinsOverEnvironment(t *testing.T) {
	c, err := parseServe(t, map[string]string{"DRUMLINE_ADDR": ":9000"}, "--addr", ":8080")
	if err != nil || c.addr != ":8080" {
		t.Error(c.addr, err)
	}
}

func TestBadEnvironment(t *testing.T) {
	for name, value := range map[string]string{"DRUMLINE_SEND_HZ": "many", "DRUMLINE_LAB": "perhaps", "DRUMLINE_DRAIN_TIMEOUT": "5", "DRUMLINE_TRUSTED_PROXIES": "home"} {
		_, err := parseServe(t, map[string]string{name: value})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

// Every flag has a text and a default that parses back, and names only what exists.
func TestFlagTables(t *testing.T) {
	for _, c := range commands() {
		if c.flags == nil {
			continue
		}
		seen := map[string]bool{}
		section := ""
		for _, s := range c.flags() {
			if s.name == "" {
				section = s.section
				continue
			}
			_, _, usage := s.describe()
			if section == "" || !strings.HasSuffix(usage, ".") {
				t.Errorf("%s --%s: a section and a sentence are wanted: %q", c.name, s.name, usage)
			}
			if seen[s.name] {
				t.Errorf("%s --%s stands twice in the table", c.name, s.name)
			}
			seen[s.name] = true
		}
	}
}

func flagsPage() string {
	var b strings.Builder
	b.WriteString(`# Commands, flags and environment variables

A flag --foo-bar can also be given as DRUMLINE_FOO_BAR in the environment; the command line wins. An empty variable counts as not
set. Exit codes: 0 it went well, 1 it failed, 2 the command line was wrong.

This page is made from the code by "make docs", and a test compares them.
`)
	for _, c := range commands() {
		fmt.Fprintf(&b, "\n## drumline %s\n\n%s\n", c.name, c.about)
		if c.flags == nil {
			continue
		}
		for _, s := range c.flags() {
			if s.name == "" {
				fmt.Fprintf(&b, "\n### %s\n\n| flag | default | meaning |\n|---|---|---|\n", s.section)
				continue
			}
			spelling, def, usage := s.describe()
			if def != "" {
				def = "`" + def + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", spelling, def, strings.ReplaceAll(usage, "|", `\|`))
		}
	}
	return b.String()
}

func TestDocs(t *testing.T) {
	const file = "../docs/flags.md"
	want := flagsPage()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the code says; make docs writes it anew", file)
	}
}
