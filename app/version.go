package app

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/drumline-engine/drumline"
)

func versionCommand() command {
	return command{
		name:    "version",
		summary: "print what this binary was built from",
		about:   "Prints the versions of the program, of drumline, of its protocol and of Go.",
		flags:   func() []flagSpec { return nil },
		run: func(_ context.Context, e *env, args []string) error {
			if err := parseFlags(e, versionCommand(), nil, args); err != nil {
				return err
			}
			info, _ := debug.ReadBuildInfo()
			fmt.Fprintf(e.stdout, "%s\nprotocol %d, %s %s/%s\n", buildVersion(info), drumline.ProtocolVersion,
				runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}

const enginePath = "github.com/drumline-engine/drumline"

// buildVersion tells the main module's version with its revision and, if the program is somebody else's, the engine's.
func buildVersion(info *debug.BuildInfo) string {
	if info == nil {
		return "drumline (unknown build)"
	}
	describe := func(m *debug.Module) string {
		for m.Replace != nil {
			m = m.Replace
		}
		return cmp.Or(m.Version, "(unknown version)")
	}
	s := info.Main.Path + " " + describe(&info.Main)
	settings := map[string]string{}
	for _, kv := range info.Settings {
		settings[kv.Key] = kv.Value
	}
	if rev := settings["vcs.revision"]; rev != "" {
		s += ", revision " + rev[:min(12, len(rev))]
		if settings["vcs.modified"] == "true" {
			s += " with changes"
		}
	}
	for _, m := range info.Deps {
		if m.Path == enginePath {
			s += "\n" + enginePath + " " + describe(m)
		}
	}
	return s
}
