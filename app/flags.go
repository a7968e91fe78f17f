package app

import (
	"encoding"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// flagSpec is one flag of a subcommand, or a heading if only section is set. Tables of them are the only place where a flag
// is named, described and given its default: the parser, the environment variables, help and docs/flags.md are made from
// them.
type flagSpec struct {
	section string
	// name is the flag's name without dashes. A flag foo-bar can also be given as DRUMLINE_FOO_BAR; the command line wins.
	name string
	// into points at a string, bool, int, uint64, time.Duration, or something that marshals to text and back. What it
	// points at is the default.
	into any
	// usage is one or two plain sentences; the word in back quotes stands for the value.
	usage string
	// some: a value that is given must be at least 1; the default 0 stands for something that the text says.
	some bool
	// most is the largest value of an int that must be at least 1; 0: nobody here bounds it.
	most int
	// secret flags exist as an environment variable only: a command line can be read by every user of the machine.
	secret bool
}

// envName is the environment variable of a flag.
func envName(flag string) string {
	return "DRUMLINE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// parseFlags fills what specs point at: defaults first, then the environment, then args. It prints help and returns
// flag.ErrHelp when args ask for it; other errors are usage errors.
func parseFlags(e *env, c command, specs []flagSpec, args []string) error {
	_, err := parseTyped(e, c, specs, args)
	return err
}

// parseTyped is parseFlags, and returns the names of the flags that stand in args, in the order of specs.
func parseTyped(e *env, c command, specs []flagSpec, args []string) (typed []string, err error) {
	fs, secrets := newFlagSet(c.name, specs)
	var given = map[string]bool{}
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		printFlags(e.stdout, c)
		return nil, err
	} else if err != nil {
		return nil, &usageError{explain(specs, err.Error())}
	}
	if fs.NArg() > 0 {
		return nil, usagef("%q is not a flag", fs.Arg(0))
	}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, s := range specs {
		if s.name != "" && given[s.name] {
			typed = append(typed, s.name)
		}
	}
	for _, s := range specs {
		if s.name == "" || given[s.name] {
			continue
		}
		text, ok := e.lookupEnv(envName(s.name))
		if !ok || text == "" {
			continue
		}
		set := fs
		if s.secret {
			set = secrets
		}
		if err := set.Set(s.name, text); err != nil {
			if s.secret {
				return nil, usagef("environment variable %s: the value is not valid", envName(s.name))
			}
			return nil, usagef("environment variable %s=%q: %s", envName(s.name), text, s.want(text, err.Error()))
		}
		given[s.name] = true
	}
	for _, s := range specs {
		if given[s.name] {
			if err := s.check(); err != nil {
				return nil, err
			}
		}
	}
	return typed, nil
}

// check finds a value that was given but cannot be meant.
func (s flagSpec) check() error {
	if n, ok := s.into.(*int); ok && s.some && (*n < 1 || s.most > 0 && *n > s.most) {
		return outOfRange(s.name, *n, s.most)
	}
	return nil
}

// outOfRange is the usage error for a number that must be 1 to most (0: no bound) and may be left out.
func outOfRange(name string, value, most int) error {
	if most == 0 {
		return usagef("--%s %d: must be at least 1; leave it out for the default", name, value)
	}
	return usagef("--%s %d: want 1 to %d; leave it out for the default", name, value, most)
}

// Bounds of flags that several commands have.
const (
	maxSendHz  = 1000
	maxThreads = 1024 // what package beat takes
)

// What package flag says of a wrong value, and of a missing one.
var (
	badValue = regexp.MustCompile(`^invalid (?:boolean )?value "(.*)" for (?:flag )?-([^:]+): (.*)$`)
	noValue  = regexp.MustCompile(`^flag needs an argument: -(.*)$`)
)

// explain turns a message of package flag into one that says what to type instead.
func explain(specs []flagSpec, msg string) string {
	if m := badValue.FindStringSubmatch(msg); m != nil {
		for _, s := range specs {
			if s.name == m[2] {
				return fmt.Sprintf("--%s %s: %s", s.name, m[1], s.want(m[1], m[3]))
			}
		}
	}
	if m := noValue.FindStringSubmatch(msg); m != nil {
		return fmt.Sprintf("--%s needs a value", m[1])
	}
	return strings.ReplaceAll(msg, "flag provided but not defined: -", "there is no flag --")
}

// want says what a value that could not be read should be like; reason is the parser's word.
func (s flagSpec) want(text, reason string) string {
	_, err := strconv.ParseFloat(text, 64)
	switch s.into.(type) {
	case *time.Duration:
		if err == nil {
			return "needs a unit, such as " + text + "s"
		}
		return "want a time such as 5s or 1m30s"
	case *int:
		return "want a whole number"
	case *uint64:
		return "want a whole number that is not negative"
	case *bool:
		return "want true or false"
	}
	return reason
}

// newFlagSet makes the standard library's form of a table, with the secret ones apart.
func newFlagSet(name string, specs []flagSpec) (public, secrets *flag.FlagSet) {
	public, secrets = flag.NewFlagSet(name, flag.ContinueOnError), flag.NewFlagSet(name, flag.ContinueOnError)
	public.SetOutput(io.Discard)
	public.Usage = func() {}
	for _, s := range specs {
		if s.name == "" {
			continue
		}
		fs := public
		if s.secret {
			fs = secrets
		}
		switch p := s.into.(type) {
		case *string:
			fs.StringVar(p, s.name, *p, s.usage)
		case *bool:
			fs.BoolVar(p, s.name, *p, s.usage)
		case *int:
			fs.IntVar(p, s.name, *p, s.usage)
		case *uint64:
			fs.Uint64Var(p, s.name, *p, s.usage)
		case *time.Duration:
			fs.DurationVar(p, s.name, *p, s.usage)
		case textValue:
			fs.TextVar(p, s.name, p, s.usage)
		default:
			panic(fmt.Sprintf("app: flag %s: cannot parse into a %T", s.name, s.into))
		}
	}
	return public, secrets
}

type textValue interface {
	encoding.TextMarshaler
	encoding.TextUnmarshaler
}

// describe splits a flag into what help and docs show: its spelling, its default (empty: none) and its text.
func (s flagSpec) describe() (spelling, def, usage string) {
	public, secrets := newFlagSet("", []flagSpec{s})
	f := public.Lookup(s.name)
	if s.secret {
		f = secrets.Lookup(s.name)
	}
	arg, usage := flag.UnquoteUsage(f)
	spelling = "--" + s.name
	if arg != "" {
		spelling += " " + arg
	}
	if s.secret {
		spelling = envName(s.name)
	}
	def = f.DefValue
	if arg == "" || def == "0" || def == "0s" { // switches are off; zeros mean what their text says
		def = ""
	}
	return spelling, def, usage
}

func printFlags(w io.Writer, c command) {
	var specs []flagSpec
	if c.flags != nil {
		specs = c.flags()
	}
	fmt.Fprintf(w, "Usage: %s %s", program(), c.name)
	if len(specs) > 0 {
		fmt.Fprint(w, " [flags]")
	}
	fmt.Fprintf(w, "\n\n%s\n", wrap(c.about, "", 100))
	for _, s := range specs {
		if s.name == "" {
			fmt.Fprintf(w, "\n%s:\n", s.section)
			continue
		}
		spelling, def, usage := s.describe()
		if def != "" {
			usage += " Default: " + def + "."
		}
		fmt.Fprintf(w, "  %s\n%s\n", spelling, wrap(usage, "        ", 100))
	}
	if len(specs) > 0 {
		fmt.Fprintf(w, "\nA flag --foo-bar can also be given as DRUMLINE_FOO_BAR in the environment; the command line wins.\n")
	}
}

// wrap breaks text into lines of at most width, each with the indent before it.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	col := 0
	for _, word := range strings.Fields(text) {
		switch {
		case col == 0:
			b.WriteString(indent + word)
			col = len(indent) + len(word)
		case col+1+len(word) > width:
			b.WriteString("\n" + indent + word)
			col = len(indent) + len(word)
		default:
			b.WriteString(" " + word)
			col += 1 + len(word)
		}
	}
	return b.String()
}
