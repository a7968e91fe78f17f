# `make` prints this menu. README.md tells the two commands that most people need: `make run` and `make test`.
.DEFAULT_GOAL := help
.PHONY: help run test test-go test-web test-browser bench soak fmt docs npm wasm setup clean

# Flags for `make run`, such as ARGS='--addr :9000 --dev'.
ARGS ?=
# What `make bench` runs, a regular expression, and for how long each.
BENCH ?= .
BENCHTIME ?= 1s
# How long `make soak` keeps the beat on the real clock.
SOAK ?= 5m

help: ## print this menu
	@echo "Usage: make TARGET"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

run: ## serve the worlds on :8080 (needs Go only; ARGS='--addr :9000')
	go run ./cmd/drumline serve $(ARGS)

test: ## everything that CI runs; installs what it needs (npm's lock file; Debian's Chromium if root)
	@scripts/test all

test-go: ## Go: format, vet (also windows, darwin, arm64), staticcheck, tests with -race, each benchmark once
	@scripts/test go

test-web: ## TypeScript: types and tests
	@scripts/test web

test-browser: ## pages in headless Chromium
	@scripts/test browser

bench: ## Go benchmarks (BENCH=Step BENCHTIME=3s)
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) ./...

soak: ## the beat on the real clock for SOAK=5m (fails at a drift of 10 ppm); 1,000 worlds of each kind over lossy links
	DRUMLINE_SOAK=$(SOAK) go test -count=1 -timeout 0 -v -run Soak ./beat
	go test -count=1 -timeout 0 ./feed/snap -seeds 1000 -packets 120

fmt: ## format the Go code
	gofmt -w $$(git ls-files --cached --others --exclude-standard '*.go')

docs: ## write the generated pages anew: docs/flags.md, docs/metrics.md, docs/api.md, types of the worlds' pages
	go test -count=1 ./app ./ops -run Docs -update
	scripts/setup web
	node scripts/api.mjs

npm: ## make the client library an npm package in web/.build/npm (npm pack there makes the archive)
	scripts/setup web
	node scripts/npm.mjs

wasm: ## build the arena's rule as WebAssembly into its page (then /w/arena/?rule=wasm predicts with it)
	mkdir -p worlds/arena/web/static
	GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 go build -trimpath -buildmode=c-shared -ldflags='-s -w' -o worlds/arena/web/static/move.wasm ./worlds/arena/rulewasm

setup: ## install what the tests need
	@scripts/setup all

clean: ## remove what builds and tests leave in the tree
	rm -rf bin node_modules web/.build worlds/arena/web/static
