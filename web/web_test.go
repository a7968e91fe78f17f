package web

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

var quiet = slog.New(slog.DiscardHandler)

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func sample() fstest.MapFS {
	return fstest.MapFS{
		"main.ts":           file(`import { join } from "drumline"; import { keys } from "drumline/input"; import { say } from "./lib/say"; say(join, keys);`),
		"lib/say.ts":        file(`export function say(...all: unknown[]): void { console.log("sample says", all.length as number); }`),
		"style.css":         file(`body { background: url(dot.svg) #abcdef }`),
		"dot.svg":           file(`<svg xmlns="http://www.w3.org/2000/svg"/>`),
		"body.html":         file(`<div id="stage"></div>`),
		"static/a.txt":      file("static text"),
		"static/deep/b.bin": file("\x00\x01"),
		"secret.txt":        file("not served"),
	}
}

func newSite(t *testing.T, o Options) *Site {
	t.Helper()
	o.Logger = quiet
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func get(t *testing.T, h http.Handler, url string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest("GET", url, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	scriptRef = regexp.MustCompile(`<script type="module" src="([^"]+)"></script>`)
	styleRef  = regexp.MustCompile(`<link rel="stylesheet" href="([^"]+)">`)
)

func TestWorldPage(t *testing.T) {
	s := newSite(t, Options{Worlds: []World{{Name: "dots", Title: "Dots & <more>", About: "Many dots.", FS: sample()}}})
	r := get(t, s, "/w/dots/?room=r1")
	page := text(t, r)
	if r.StatusCode != 200 {
		t.Fatalf("status %d: %s", r.StatusCode, page)
	}
	for _, want := range []string{
		`<html lang="en" data-drumline="../../" data-world="dots">`, `<title>Dots &amp; &lt;more&gt; · drumline</title>`,
		`<meta name="description" content="Many dots.">`, `<div id="stage"></div>`, `name="viewport"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("page lacks %s:\n%s", want, page)
		}
	}
	if got := r.Header.Get("Cache-Control"); got != "no-cache" {
		t.Errorf("page Cache-Control %q", got)
	}
	js := scriptRef.FindStringSubmatch(page)
	css := styleRef.FindStringSubmatch(page)
	if js == nil || css == nil {
		t.Fatalf("page has no script or no style sheet:\n%s", page)
	}
	for _, ref := range []string{js[1], css[1]} {
		path, ok := strings.CutPrefix(ref, "../../")
		if !ok {
			t.Fatalf("%s is not relative", ref)
		}
		a := get(t, s, "/"+path)
		body := text(t, a)
		if a.StatusCode != 200 || a.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" {
			t.Errorf("%s: status %d, Cache-Control %q", ref, a.StatusCode, a.Header.Get("Cache-Control"))
		}
		if strings.HasSuffix(ref, ".js") {
			if !strings.Contains(body, "sample says") || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/javascript") {
				t.Errorf("%s: type %q, not the sample's script", ref, a.Header.Get("Content-Type"))
			}
			for _, bad := range []string{"eval(", "new Function"} {
				if strings.Contains(body, bad) {
					t.Errorf("the script contains %s, which the CSP forbids", bad)
				}
			}
		} else if !strings.Contains(body, "#abcdef") || !strings.Contains(body, "data:image/svg+xml") || !strings.Contains(body, ".dl-stick") {
			t.Errorf("style sheet lacks the world's or the library's part: %s", body)
		}
		zipped := get(t, s, "/"+path, "Accept-Encoding", "br, gzip")
		z, err := gzip.NewReader(zipped.Body)
		if err != nil {
			t.Fatalf("%s is not packed: %v", ref, err)
		}
		if plain, err := io.ReadAll(z); err != nil || string(plain) != body {
			t.Errorf("%s: packed body differs (%v)", ref, err)
		}
		if again := get(t, s, "/"+path, "If-None-Match", a.Header.Get("ETag")); again.StatusCode != 304 {
			t.Errorf("%s: status %d for a known ETag", ref, again.StatusCode)
		}
	}
}

func TestHeaders(t *testing.T) {
	s := newSite(t, Options{Worlds: []World{{Name: "dots", FS: sample()}}})
	for _, url := range []string{"/", "/w/dots/", "/w/none/", "/drumline.js", "/favicon.svg", "/w/dots/static/a.txt", "/w/dots"} {
		r := get(t, s, url)
		csp := r.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: CSP %q lacks %s", url, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") {
			t.Errorf("%s: CSP %q", url, csp)
		}
		if r.Header.Get("X-Content-Type-Options") != "nosniff" || r.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: headers %v", url, r.Header)
		}
		if strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") {
			page := text(t, r)
			if regexp.MustCompile(`<style|style=|<script>|\son\w+=|(src|href)="/`).MatchString(page) {
				t.Errorf("%s: inline script or style, or a link from the root:\n%s", url, page)
			}
		}
	}
}

// Only the page of a world that has a module may compile one.
func TestWasm(t *testing.T) {
	with := sample()
	with["static/rule.wasm"] = file("\x00asm\x01\x00\x00\x00")
	s := newSite(t, Options{Worlds: []World{{Name: "dots", FS: sample()}, {Name: "rule", FS: with}}})
	for url, may := range map[string]bool{"/": false, "/w/dots/": false, "/w/rule/": true, "/w/none/": false, "/w/rule/static/rule.wasm": false} {
		csp := get(t, s, url).Header.Get("Content-Security-Policy")
		if strings.Contains(csp, "script-src 'self' 'wasm-unsafe-eval';") != may || strings.Count(csp, "unsafe") > 1 || strings.Contains(csp, "'unsafe") {
			t.Errorf("%s: %s", url, csp)
		}
	}
	r := get(t, s, "/w/rule/static/rule.wasm")
	if r.StatusCode != 200 || r.Header.Get("Content-Type") != "application/wasm" {
		t.Errorf("%d, %s", r.StatusCode, r.Header.Get("Content-Type"))
	}
}

func TestRoutes(t *testing.T) {
	s := newSite(t, Options{Worlds: []World{{Name: "dots", FS: sample()}, {Name: "bare"}}})
	for _, c := range []struct {
		url    string
		status int
		body   string
	}{
		{"/", 200, `id="world-list"`},
		{"/index.html", 200, `id="world-list"`},
		{"/w/dots/static/a.txt", 200, "static text"},
		{"/w/dots/static/deep/b.bin", 200, "\x00\x01"},
		{"/w/dots/static/", 404, "nothing here"},
		{"/w/dots/static/deep", 404, "nothing here"},
		{"/w/dots/secret.txt", 404, "nothing here"},
		{"/w/dots/main.ts", 404, "nothing here"},
		{"/w/dots/static/../secret.txt", 404, "nothing here"},
		{"/w/bare/", 404, "no page"},
		{"/w/none/", 404, `href="../../"`},
		{"/assets/0123.js", 404, `href="../"`},
		{"/nothing", 404, `href="./"`},
	} {
		r := get(t, s, c.url)
		if body := text(t, r); r.StatusCode != c.status || !strings.Contains(body, c.body) {
			t.Errorf("%s: status %d, want %d with %q:\n%s", c.url, r.StatusCode, c.status, c.body, body)
		}
	}
	r := get(t, s, "/w/dots?room=a%20b")
	if r.StatusCode != 308 || r.Header.Get("Location") != "dots/?room=a%20b" {
		t.Errorf("without a slash: status %d to %q", r.StatusCode, r.Header.Get("Location"))
	}
	post := httptest.NewRecorder()
	s.ServeHTTP(post, httptest.NewRequest("POST", "/", nil))
	if post.Code != 405 || post.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: status %d, Allow %q", post.Code, post.Header().Get("Allow"))
	}
	head := httptest.NewRecorder()
	s.ServeHTTP(head, httptest.NewRequest("HEAD", "/", nil))
	if head.Code != 200 || head.Body.Len() != 0 || head.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: status %d, %d bytes", head.Code, head.Body.Len())
	}
}

func TestPrefix(t *testing.T) {
	s := newSite(t, Options{Worlds: []World{{Name: "dots", FS: sample()}}})
	mux := http.NewServeMux()
	mux.Handle("/games/", http.StripPrefix("/games", s))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	// A real client follows the relative redirect and the page's relative links.
	r, err := srv.Client().Get(srv.URL + "/games/w/dots")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	page := text(t, r)
	if r.StatusCode != 200 || r.Request.URL.Path != "/games/w/dots/" {
		t.Fatalf("status %d at %s", r.StatusCode, r.Request.URL)
	}
	ref := scriptRef.FindStringSubmatch(page)
	script, err := r.Request.URL.Parse(ref[1])
	if err != nil {
		t.Fatal(err)
	}
	js, err := srv.Client().Get(script.String())
	if err != nil {
		t.Fatal(err)
	}
	defer js.Body.Close()
	if js.StatusCode != 200 || !strings.HasPrefix(script.Path, "/games/assets/") {
		t.Errorf("script at %s: status %d", script, js.StatusCode)
	}
}

func TestBuildErrors(t *testing.T) {
	for _, c := range []struct {
		name, main string
		want       []string
	}{
		{"syntax", "const ok = 1;\n\tconst = <2>;", []string{"main.ts:2", "\tconst = &lt;2&gt;;", "\t      ^"}},
		{"missing file", `import "./gone.ts";`, []string{"main.ts:1", "there is no such file"}},
		{"outside", `import "../../etc/passwd";`, []string{"main.ts:1", "outside the page&#39;s folder"}},
		{"package", `import "react";`, []string{"main.ts:1", "cannot be imported"}},
		{"library inside", `import "lib:lobby.ts";`, []string{"main.ts:1", "cannot be imported"}},
		{"kind of file", `import "./thing.xyz";`, []string{"thing.xyz", "put it under static/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			s, err := New(Options{
				Worlds: []World{{Name: "dots", FS: fstest.MapFS{"main.ts": file(c.main), "thing.xyz": file("")}}},
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				r := get(t, s, "/w/dots/")
				page := text(t, r)
				if r.StatusCode != 500 {
					t.Fatalf("status %d", r.StatusCode)
				}
				for _, want := range c.want {
					if !strings.Contains(page, want) {
						t.Errorf("page lacks %q:\n%s", want, page)
					}
				}
			}
			if n := strings.Count(log.String(), "page cannot be bundled"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, log.String())
			}
			var failed *BuildError
			if err := s.Warm(); !errors.As(err, &failed) || failed.Target != "world dots" {
				t.Errorf("Warm: %v", err)
			}
		})
	}
}

func TestConcurrentFirstVisits(t *testing.T) {
	s := newSite(t, Options{Worlds: []World{{Name: "dots", FS: sample()}}})
	var wg sync.WaitGroup
	pages := make([]string, 16)
	for i := range pages {
		wg.Go(func() {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest("GET", "/w/dots/", nil))
			pages[i] = w.Body.String()
		})
	}
	wg.Wait()
	for i, p := range pages {
		if p != pages[0] || scriptRef.FindString(p) == "" {
			t.Errorf("visit %d got another page:\n%s", i, p)
		}
	}
	if s.builder.builds != 1 {
		t.Errorf("built %d times", s.builder.builds)
	}
}

func TestDev(t *testing.T) {
	files := sample()
	for _, dev := range []bool{false, true} {
		t.Run(fmt.Sprint(dev), func(t *testing.T) {
			s := newSite(t, Options{Dev: dev, Worlds: []World{{Name: "dots", FS: files}}})
			before := scriptRef.FindStringSubmatch(text(t, get(t, s, "/w/dots/")))[1]
			if again := scriptRef.FindStringSubmatch(text(t, get(t, s, "/w/dots/")))[1]; again != before || s.builder.builds != 1 {
				t.Fatalf("built again without a change")
			}
			old := files["lib/say.ts"]
			files["lib/say.ts"] = file(`export function say(): void { console.log("changed") }`)
			defer func() { files["lib/say.ts"] = old }()
			after := scriptRef.FindStringSubmatch(text(t, get(t, s, "/w/dots/")))[1]
			if (after != before) != dev {
				t.Errorf("script before %s, after %s", before, after)
			}
			// A page that was loaded before the change may still ask for its script.
			if r := get(t, s, "/"+strings.TrimPrefix(before, "../../")); r.StatusCode != 200 {
				t.Errorf("the script from before: status %d", r.StatusCode)
			}
		})
	}
}

func TestLibraryJS(t *testing.T) {
	s := newSite(t, Options{})
	js, err := s.LibraryJS()
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`export\s*\{[^}]*\bjoin\b`).Match(js) {
		t.Error("the library does not export join")
	}
	r := get(t, s, "/drumline.js")
	if body := text(t, r); body != string(js) || r.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("/drumline.js: %d bytes, Cache-Control %q", len(body), r.Header.Get("Cache-Control"))
	}
	z := get(t, s, "/drumline.js", "Accept-Encoding", "gzip")
	packed := len(text(t, z))
	t.Logf("library: %d bytes, %d packed", len(js), packed)
	if packed > 30<<10 { // prediction and its loader of WebAssembly are 4 of them, what is measured for the server and the overlay 2
		t.Errorf("the library has grown to %d bytes packed", packed)
	}
}

func TestNewErrors(t *testing.T) {
	for _, c := range []struct {
		worlds []World
		want   string
	}{
		{[]World{{Name: "Dots"}}, "lower-case"},
		{[]World{{Name: ""}}, "lower-case"},
		{[]World{{Name: strings.Repeat("a", 33)}}, "lower-case"},
		{[]World{{Name: "a"}, {Name: "a"}}, "two worlds"},
		{[]World{{Name: "a", FS: fstest.MapFS{"x.ts": file("")}}}, "neither main.ts nor main.js"},
		{[]World{{Name: "a", FS: brokenFS{}}}, "disk on fire"},
	} {
		if _, err := New(Options{Worlds: c.worlds}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%v): %v, want %q", c.worlds, err, c.want)
		}
	}
}

type brokenFS struct{}

func (brokenFS) Open(string) (fs.File, error) { return nil, errors.New("disk on fire") }

func FuzzPath(f *testing.F) {
	for _, p := range []string{"/", "/w/dots/", "/w/dots/static/a.txt", "/w/dots/static/../secret.txt", "/assets/", "//", "/w//", "/w/dots/static//a.txt", "/w/../x"} {
		f.Add(p)
	}
	s, err := New(Options{Logger: quiet, Worlds: []World{{Name: "dots", FS: sample()}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, p string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.Path = p
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if strings.Contains(w.Body.String(), "not served") {
			t.Errorf("%q serves what is not public", p)
		}
		if w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%q: no CSP", p)
		}
	})
}

func TestTakesGzip(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "gzip": true, "br": false, "br, gzip": true, "gzip;q=0": false, "gzip; q=0.5": true, "*": true, "GZIP": true, "*;q=0": false, "gzip;q=x": true,
	} {
		if got := takesGzip(accept); got != want {
			t.Errorf("takesGzip(%q) = %v", accept, got)
		}
	}
}

func TestMainJS(t *testing.T) {
	s := newSite(t, Options{Worlds: []World{{Name: "js", FS: fstest.MapFS{"main.js": file(`import { join } from "drumline"; console.log("plain", join)`)}}}})
	ref := scriptRef.FindStringSubmatch(text(t, get(t, s, "/w/js/")))
	if ref == nil {
		t.Fatal("no script")
	}
	if js := text(t, get(t, s, "/"+strings.TrimPrefix(ref[1], "../../"))); !strings.Contains(js, "plain") {
		t.Error("not the world's script")
	}
}

func ExampleNew() {
	site, err := New(Options{Worlds: []World{{Name: "dots", Title: "Dots", FS: fstest.MapFS{"main.js": file(`console.log("hi")`)}}}})
	if err != nil {
		panic(err)
	}
	w := httptest.NewRecorder()
	site.ServeHTTP(w, httptest.NewRequest("GET", "/w/dots/", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 200 text/html; charset=utf-8
}
