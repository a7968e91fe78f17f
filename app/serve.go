package app

import "context"

func serveCommand() command {
	return command{
		name:    "serve",
		summary: "run the worlds: pages, rooms and metrics",
		run:     func(context.Context, *env, []string) error { return nil },
	}
}
