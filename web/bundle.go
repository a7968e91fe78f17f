package web

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/evanw/esbuild/pkg/api"
)

// target is something to bundle: a virtual entry file, and the files that it may import beside the library's.
type target struct {
	name  string // for messages; one target per name
	entry string
	files fs.FS // nil: none
}

// bundle is a built target. It is immutable.
type bundle struct {
	js, css *asset // css is nil if there is none
	err     error  // a *BuildError, or nil
}

// BuildError says why a page could not be bundled.
type BuildError struct {
	// Target is what was built, such as "world arena".
	Target   string
	Messages []BuildMessage
}

// BuildMessage is one fault in the sources.
type BuildMessage struct {
	Text string
	// File is empty if the fault has no place. Line counts from 1, Column (in bytes) from 0.
	File         string
	Line, Column int
	// Source is the line itself.
	Source string
}

func (e *BuildError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "web: %s cannot be bundled:", e.Target)
	for _, m := range e.Messages {
		fmt.Fprintf(&b, " %s", m)
	}
	return b.String()
}

// String is "file:line:column: text".
func (m BuildMessage) String() string {
	if m.File == "" {
		return m.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column+1, m.Text)
}

// maxKept is how many bundles' assets stay served. Only with Dev are there more than one per target.
const maxKept = 64

// builder bundles targets, each once, and keeps the results.
type builder struct {
	lib fs.FS
	dev bool
	log *slog.Logger

	// building is held while esbuild runs: it uses all cores, and one build at a time is enough.
	building sync.Mutex

	mu     sync.Mutex
	built  map[string]*slot
	assets map[string]*asset
	order  []string // of assets, oldest first
	builds int      // for tests
}

// slot is one target's newest bundle. done is closed once b is set.
type slot struct {
	sum  [sha256.Size]byte // of the sources; zero without dev
	done chan struct{}
	b    *bundle
}

func newBuilder(lib fs.FS, dev bool, log *slog.Logger) *builder {
	return &builder{lib: lib, dev: dev, log: log, built: make(map[string]*slot), assets: make(map[string]*asset)}
}

// get returns t's bundle, building it if nobody has or, with dev, its sources have changed. Callers that come while it is
// built wait for it.
func (x *builder) get(t target) *bundle {
	var sum [sha256.Size]byte
	if x.dev {
		sum = fingerprint(t.files)
	}
	x.mu.Lock()
	s := x.built[t.name]
	if s != nil && s.sum == sum {
		x.mu.Unlock()
		<-s.done
		return s.b
	}
	s = &slot{sum: sum, done: make(chan struct{})}
	x.built[t.name] = s
	x.builds++
	x.mu.Unlock()

	x.building.Lock()
	b := x.build(t)
	x.building.Unlock()
	if b.err != nil {
		x.log.Error("page cannot be bundled", "target", t.name, "err", b.err)
	}
	// The bundler has grown the heap by tens of megabytes that nothing here will need again.
	debug.FreeOSMemory()

	x.mu.Lock()
	x.keep(b.js)
	x.keep(b.css)
	x.mu.Unlock()
	s.b = b
	close(s.done)
	return b
}

func (x *builder) keep(a *asset) {
	if a == nil || x.assets[a.name] != nil {
		return
	}
	x.assets[a.name] = a
	if x.order = append(x.order, a.name); x.dev && len(x.order) > maxKept {
		delete(x.assets, x.order[0])
		x.order = x.order[1:]
	}
}

// asset returns the asset of a name, or nil.
func (x *builder) asset(name string) *asset {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.assets[name]
}

// fingerprint changes when any file does. Files that cannot be read count as empty: the build will say so.
func fingerprint(files fs.FS) (sum [sha256.Size]byte) {
	h := sha256.New()
	if files != nil {
		_ = fs.WalkDir(files, ".", func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				if d != nil && d.IsDir() && (p == "static" || d.Name() == "node_modules") {
					return fs.SkipDir
				}
				return nil
			}
			b, _ := fs.ReadFile(files, p)
			fmt.Fprintf(h, "%q %d\n", p, len(b))
			h.Write(b)
			return nil
		})
	}
	h.Sum(sum[:0])
	return sum
}

// Namespaces of the bundler: where a module's path is rooted.
const (
	nsLib   = "drumline"
	nsWorld = "page"
)

// Bare names that a page may import.
var modules = map[string]string{"drumline": "index.ts", "drumline/ui": "ui.ts", "drumline/input": "input.ts"}

var loaders = map[string]api.Loader{
	".ts": api.LoaderTS, ".js": api.LoaderJS, ".mjs": api.LoaderJS, ".css": api.LoaderCSS, ".json": api.LoaderJSON, ".txt": api.LoaderText,
	".svg": api.LoaderDataURL, ".png": api.LoaderDataURL, ".jpg": api.LoaderDataURL, ".webp": api.LoaderDataURL, ".woff2": api.LoaderDataURL,
}

func (x *builder) build(t target) *bundle {
	result := api.Build(api.BuildOptions{
		Stdin:             &api.StdinOptions{Contents: t.entry, Sourcefile: "entry", ResolveDir: "/", Loader: api.LoaderJS},
		Bundle:            true,
		Write:             false,
		Outdir:            "/",
		Format:            api.FormatESModule,
		Target:            api.ES2022,
		Platform:          api.PlatformBrowser,
		Charset:           api.CharsetUTF8,
		LegalComments:     api.LegalCommentsNone,
		MinifyWhitespace:  !x.dev,
		MinifyIdentifiers: !x.dev,
		MinifySyntax:      true,
		LogLevel:          api.LogLevelSilent,
		TsconfigRaw:       `{"compilerOptions":{"useDefineForClassFields":true}}`,
		Plugins:           []api.Plugin{{Name: "drumline", Setup: func(b api.PluginBuild) { x.plugin(b, t) }}},
	})
	if len(result.Errors) > 0 {
		e := &BuildError{Target: t.name}
		for _, m := range result.Errors {
			bm := BuildMessage{Text: m.Text}
			if l := m.Location; l != nil && l.Line > 0 {
				bm.File = strings.TrimPrefix(strings.TrimPrefix(l.File, nsWorld+":"), "/")
				bm.Line, bm.Column, bm.Source = l.Line, l.Column, l.LineText
			}
			e.Messages = append(e.Messages, bm)
		}
		return &bundle{err: e}
	}
	b := &bundle{}
	for _, f := range result.OutputFiles {
		// The outputs are slices of larger memory; the copy lets go of it.
		body := append([]byte(nil), f.Contents...)
		switch ext := path.Ext(strings.ReplaceAll(f.Path, `\`, "/")); ext {
		case ".js":
			b.js = newAsset(body, ext)
		case ".css":
			b.css = newAsset(body, ext)
		}
	}
	if b.js == nil {
		b.err = &BuildError{Target: t.name, Messages: []BuildMessage{{Text: "the bundler wrote no script"}}}
	}
	return b
}

func (x *builder) plugin(b api.PluginBuild, t target) {
	b.OnResolve(api.OnResolveOptions{Filter: `.*`}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
		if strings.HasPrefix(a.Path, "data:") {
			return api.OnResolveResult{Path: a.Path, External: true}, nil
		}
		if file, ok := modules[a.Path]; ok {
			return api.OnResolveResult{Path: file, Namespace: nsLib}, nil
		}
		inEntry := a.Importer == "" || a.Importer == "entry" || a.Namespace == "" || a.Namespace == "file"
		if file, ok := strings.CutPrefix(a.Path, "lib:"); ok && inEntry {
			return api.OnResolveResult{Path: file, Namespace: nsLib}, nil
		}
		if !strings.HasPrefix(a.Path, "./") && !strings.HasPrefix(a.Path, "../") {
			// In style sheets an address without a dot is relative, too.
			if a.Kind != api.ResolveCSSURLToken && a.Kind != api.ResolveCSSImportRule {
				return api.OnResolveResult{}, fmt.Errorf(`%q cannot be imported: a page may import its own files ("./…"), %q, %q and %q`,
					a.Path, "drumline", "drumline/ui", "drumline/input")
			}
		}
		ns, dir := nsWorld, "."
		if !inEntry {
			ns, dir = a.Namespace, path.Dir(a.Importer)
		}
		files := x.lib
		if ns == nsWorld {
			files = t.files
		}
		file, err := find(files, path.Join(dir, a.Path))
		if err != nil {
			return api.OnResolveResult{}, fmt.Errorf("%q: %w", a.Path, err)
		}
		return api.OnResolveResult{Path: file, Namespace: ns}, nil
	})
	load := func(files fs.FS) func(api.OnLoadArgs) (api.OnLoadResult, error) {
		return func(a api.OnLoadArgs) (api.OnLoadResult, error) {
			loader, ok := loaders[path.Ext(a.Path)]
			if !ok {
				return api.OnLoadResult{}, fmt.Errorf("files like %s cannot be imported; put it under static/ and fetch it", a.Path)
			}
			body, err := fs.ReadFile(files, a.Path)
			if err != nil {
				return api.OnLoadResult{}, err
			}
			contents := string(body)
			return api.OnLoadResult{Contents: &contents, Loader: loader}, nil
		}
	}
	b.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: nsLib}, load(x.lib))
	b.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: nsWorld}, load(t.files))
}

// find returns the file that an import means: itself, or with an ending, or a folder's index.
func find(files fs.FS, name string) (string, error) {
	if files == nil || !fs.ValidPath(name) {
		return "", errors.New("this file is outside the page's folder")
	}
	for _, ending := range []string{"", ".ts", ".js", ".json", "/index.ts", "/index.js"} {
		if info, err := fs.Stat(files, name+ending); err == nil && info.Mode().IsRegular() {
			return name + ending, nil
		}
	}
	return "", errors.New("there is no such file")
}
