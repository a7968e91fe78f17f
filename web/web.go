// Package web serves the pages of a drumline server: the lobby, one page per world, and the TypeScript client library they are
// made of. It bundles them itself, from embedded sources and the world's own files, the first time somebody asks; there is no
// build step and no Node at run time.
//
// The smallest use:
//
//	site, err := web.New(web.Options{Worlds: []web.World{{Name: "dots", Title: "Dots", FS: files}}})
//	http.Handle("/", site)
//
// where files holds a main.ts (or main.js) that imports "drumline". A file style.css is taken in by itself; body.html is put
// into the page's body; what lies under static/ is served as it is. A page with a .wasm file right under static/ may compile
// WebAssembly, others may not.
//
// All links are relative, so the site works under any path prefix that a proxy takes away. It answers only for its own paths;
// the room list (api/rooms) and the WebSocket (ws) that its scripts use are served by the program beside it.
//
// The operator's page, the inspector, is not among them: it is a handler of its own, for the program to put behind its guard.
//
// Not here: sockets, rooms, anything of the engine. The package starts no goroutine that outlives a call.
package web

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed src/*.ts src/*.css pages
var embedded embed.FS

// World is a world that has a place in the lobby.
type World struct {
	// Name stands in the address: lower-case letters, digits and dashes, 1 to 32. Required.
	Name string
	// Title is shown to people. Default: Name.
	Title string
	// About is one sentence for the page's description. Default: a general one.
	About string
	// FS holds the page's files with main.ts or main.js as the entry. Nil: the world has no page.
	FS fs.FS
}

// Options set up a Site.
type Options struct {
	// Worlds are the worlds with a page.
	Worlds []World
	// Dev looks for changed files on each visit of a page and bundles again.
	Dev bool
	// Logger receives build errors. Default slog.Default().
	Logger *slog.Logger
}

// Site is an http.Handler for the pages. It is safe for concurrent use.
type Site struct {
	worlds    map[string]*World
	builder   *builder
	lobby     target
	inspector target
	library   target
	pages     map[string]target
}

var worldName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// New makes a Site. It returns an error for a world whose name is not possible or taken, or that has files but no entry.
func New(o Options) (*Site, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	src, err := fs.Sub(embedded, "src")
	if err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	s := &Site{
		worlds:    make(map[string]*World),
		builder:   newBuilder(src, o.Dev, o.Logger),
		lobby:     target{name: "the lobby", entry: `import "lib:lobby.ts";`},
		inspector: target{name: "the inspector", entry: `import "lib:inspector.ts";`},
		library:   target{name: "the library", entry: `export * from "drumline";`},
		pages:     make(map[string]target),
	}
	for _, w := range o.Worlds {
		if !worldName.MatchString(w.Name) {
			return nil, fmt.Errorf("web: world name %q: use 1 to 32 lower-case letters, digits and dashes", w.Name)
		}
		if s.worlds[w.Name] != nil {
			return nil, fmt.Errorf("web: two worlds are named %q", w.Name)
		}
		if w.Title == "" {
			w.Title = w.Name
		}
		if w.About == "" {
			w.About = w.Title + ", a live world in the browser."
		}
		if w.FS != nil {
			t, err := worldTarget(w)
			if err != nil {
				return nil, err
			}
			s.pages[w.Name] = t
		}
		s.worlds[w.Name] = &w
	}
	return s, nil
}

func worldTarget(w World) (target, error) {
	t := target{name: "world " + w.Name, files: w.FS}
	for _, name := range []string{"main.ts", "main.js"} {
		_, err := fs.Stat(w.FS, name)
		if err == nil {
			// The bundler takes a style sheet that main imports, too, only once.
			if _, err := fs.Stat(w.FS, "style.css"); err == nil {
				t.entry = `import "./style.css";`
			}
			t.entry += fmt.Sprintf("import %q;", "./"+name)
			return t, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return t, fmt.Errorf("web: world %q: %w", w.Name, err)
		}
	}
	return t, fmt.Errorf("web: world %q has files but neither main.ts nor main.js", w.Name)
}

// Warm bundles everything now instead of on the first visit and returns the build errors, joined.
func (s *Site) Warm() error {
	targets := []target{s.lobby, s.inspector, s.library}
	for _, name := range slices.Sorted(mapKeys(s.pages)) {
		targets = append(targets, s.pages[name])
	}
	var errs []error
	for _, t := range targets {
		if b := s.builder.get(t); b.err != nil {
			errs = append(errs, b.err)
		}
	}
	return errors.Join(errs...)
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// LibraryJS returns the client library as one ES module: what /drumline.js serves.
func (s *Site) LibraryJS() ([]byte, error) {
	b := s.builder.get(s.library)
	if b.err != nil {
		return nil, b.err
	}
	return slices.Clone(b.js.body), nil
}

// ServeHTTP answers for the lobby (/), a world's page (/w/NAME/) and its static files (/w/NAME/static/…), bundles
// (/assets/HASH.js), the library (/drumline.js) and the icon.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are answered here", http.StatusMethodNotAllowed)
		return
	}
	p := strings.TrimPrefix(r.URL.Path, "/")
	switch p {
	case "", "index.html":
		s.serveLobby(w, r)
		return
	case "drumline.js":
		s.serveLibrary(w, r)
		return
	case "favicon.svg", "favicon.ico":
		w.Header().Set("Cache-Control", "public, max-age=86400")
		write(w, r, icon)
		return
	}
	if name, ok := strings.CutPrefix(p, "assets/"); ok {
		if a := s.builder.asset(name); a != nil {
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
			write(w, r, a)
			return
		}
	}
	if rest, ok := strings.CutPrefix(p, "w/"); ok {
		name, file, slash := strings.Cut(rest, "/")
		if world := s.worlds[name]; world != nil {
			switch {
			case !slash:
				// A relative redirect: only the browser knows the prefix.
				to := name + "/"
				if r.URL.RawQuery != "" {
					to += "?" + r.URL.RawQuery
				}
				w.Header().Set("Location", to)
				w.WriteHeader(http.StatusPermanentRedirect)
				return
			case file == "":
				s.serveWorld(w, r, world)
				return
			case world.FS != nil && strings.HasPrefix(file, "static/") && fs.ValidPath(file):
				if s.serveStatic(w, r, world, file) {
					return
				}
			}
		}
	}
	s.servePage(w, r, http.StatusNotFound, page{
		Title: "Not found", Heading: "There is nothing here", Text: "The address may be wrong, or the world is not on this server.",
		Base: up(p),
	})
}

// up is the relative way from a page's path to the root.
func up(p string) string {
	if n := strings.Count(p, "/"); n > 0 {
		return strings.Repeat("../", n)
	}
	return "./"
}

func (s *Site) serveLibrary(w http.ResponseWriter, r *http.Request) {
	b := s.builder.get(s.library)
	if b.err != nil {
		http.Error(w, b.err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	write(w, r, b.js)
}

func (s *Site) serveStatic(w http.ResponseWriter, r *http.Request, world *World, file string) bool {
	info, err := fs.Stat(world.FS, file)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	w.Header().Set("Cache-Control", "public, max-age=300")
	if t := contentTypes[path.Ext(file)]; t != "" {
		w.Header().Set("Content-Type", t)
	}
	http.ServeFileFS(w, r, world.FS, file)
	return true
}
