// Package app is what a program's main calls to get the whole of drumline around its worlds: a server with pages, metrics
// and a load test, in one binary.
//
//	func main() { app.Main(dots) }
//
// Main owns the process: it reads os.Args, handles signals and exits. A program that wants drumline as a part of its own
// server uses the root package, link/ws and, if it likes, web and ops by themselves.
//
// Each subcommand is a file. Its flags are a table (flags.go), which help, docs/flags.md and the environment variables are
// made from.
package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/lab/traffic"
)

// Exit codes of a drumline binary.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// command is a subcommand.
type command struct {
	name, summary string
	// run does the work until it is done or ctx ends. A *usageError makes the exit code 2; flag.ErrHelp, 0 without a word;
	// any other error is printed.
	run func(ctx context.Context, env *env, args []string) error
	// flags returns the table of flags with their defaults, for help and docs/flags.md. Nil: run prints its own on --help.
	flags func() []flagSpec
	// about is shown above the flags.
	about string
}

// env is what a command may use of the process around it.
type env struct {
	worlds []drumline.Definition
	// lab are the worlds for measuring. They have no page and no place in the lobby, and only servers with --lab run them.
	lab            []drumline.Definition
	stdout, stderr io.Writer
	// lookup reads an environment variable. Nil: os.LookupEnv.
	lookup func(name string) (string, bool)
}

// labWorlds are what every program has beside its own worlds.
func labWorlds() []drumline.Definition {
	return []drumline.Definition{
		traffic.World(traffic.Options{}), traffic.World(traffic.Options{Far: true}), traffic.World(traffic.Options{Spread: true}),
	}
}

// all returns the program's worlds and then those of the lab, but for names that the program uses itself.
func (e *env) all() []drumline.Definition {
	out := slices.Clone(e.worlds)
	for _, d := range e.lab {
		if !slices.ContainsFunc(e.worlds, func(w drumline.Definition) bool { return w.Spec().Name == d.Spec().Name }) {
			out = append(out, d)
		}
	}
	return out
}

// find returns the world of that name, one of the lab's included, or a usage error that names flag and the worlds there are.
func (e *env) find(flag, name string) (drumline.Definition, error) {
	var names []string
	for _, d := range e.all() {
		if d.Spec().Name == name {
			return d, nil
		}
		names = append(names, d.Spec().Name)
	}
	there := "there are: " + strings.Join(names, ", ")
	if len(names) == 1 {
		there = "there is " + names[0]
	}
	return drumline.Definition{}, usagef("--%s %q: there is no such world; %s", flag, name, there)
}

func (e *env) lookupEnv(name string) (string, bool) {
	if e.lookup != nil {
		return e.lookup(name)
	}
	return os.LookupEnv(name)
}

// sameSignal is how long after the first signal others are taken for echoes of it.
const sameSignal = 300 * time.Millisecond

// Main runs the subcommand that os.Args names, with these worlds, and exits the process: 0 when it went well, 1 when it
// failed, 2 when the command line was wrong. SIGINT and SIGTERM end the command cleanly; a second one, at once.
func Main(worlds ...drumline.Definition) {
	os.Exit(process(commands(), worlds))
}

// process is Main for any commands; it returns the exit code.
func process(cmds []command, worlds []drumline.Definition) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		// What comes right behind the first signal is the same wish: timeout(1) and process managers signal both the process
		// and its group. After that the default action is back, so that a second one ends the process whatever it is doing.
		time.Sleep(sameSignal)
		stop()
	})
	return run(ctx, &env{worlds: worlds, lab: labWorlds(), stdout: os.Stdout, stderr: os.Stderr}, cmds, os.Args[1:])
}

// commands are all subcommands, in the order of the help text.
func commands() []command {
	return []command{
		serveCommand(),
		loadCommand(),
		benchCommand(),
		trainCommand(),
		typesCommand(),
		versionCommand(),
	}
}

// usageError is returned when the command line, not the work, was wrong.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// run runs one subcommand and returns the process's exit code.
func run(ctx context.Context, e *env, cmds []command, args []string) int {
	if len(args) == 0 {
		printCommands(e.stderr, cmds)
		return exitUsage
	}
	name, rest := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(rest) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, rest[0]) {
			printCommands(e.stdout, cmds)
			return exitOK
		}
		name, rest = rest[0], []string{"--help"}
	case "-version", "--version":
		name = "version"
	}
	for _, c := range cmds {
		if c.name == name {
			return exitCode(e, name, c.run(ctx, e, rest))
		}
	}
	fmt.Fprintf(e.stderr, "%s: there is no command %q\n\n", program(), name)
	printCommands(e.stderr, cmds)
	return exitUsage
}

func exitCode(e *env, name string, err error) int {
	var usage *usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(e.stderr, "%s %s: %v\nFor all flags: %s help %s\n", program(), name, err, program(), name)
		return exitUsage
	}
	fmt.Fprintf(e.stderr, "%s %s: %v\n", program(), name, err)
	return exitFailed
}

// program is the binary's own name, since worlds of others come in binaries of theirs.
func program() string {
	name := filepath.Base(os.Args[0])
	if name = strings.TrimSuffix(name, ".exe"); name == "" || name == "." || strings.HasSuffix(name, ".test") {
		return "drumline"
	}
	return name
}

func printCommands(w io.Writer, cmds []command) {
	fmt.Fprintf(w, "Usage: %s COMMAND [flags]\n\nCommands:\n", program())
	for _, c := range cmds {
		fmt.Fprintf(w, "  %-9s %s\n", c.name, c.summary)
	}
	fmt.Fprintf(w, "  %-9s %s\n\nTo play on this machine: %s serve\n", "help", "explain a command and list its flags", program())
}

// plural is a number of things, such as "1 join" and "2 joins".
func plural[N int | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
