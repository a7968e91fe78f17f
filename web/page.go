package web

import (
	"bytes"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
)

var (
	pages = template.Must(template.ParseFS(embedded, "pages/*.html"))
	icon  = newAsset(must(embedded.ReadFile("pages/favicon.svg")), ".svg")
)

func must(b []byte, err error) []byte {
	if err != nil {
		panic("web: " + err.Error()) // the file is embedded
	}
	return b
}

// page is what the templates are filled with.
type page struct {
	Title, About string
	// Base is the relative way to the site's root.
	Base  string
	World string
	// Dev offers the devtools in the overlay of figures.
	Dev bool
	// JS and CSS are asset names; empty: none.
	JS, CSS string
	Body    template.HTML
	// Heading, Text and Errors make a page of words alone.
	Heading, Text string
	Errors        []BuildMessage
}

func (s *Site) serveLobby(w http.ResponseWriter, r *http.Request) {
	s.serveBundle(w, r, s.lobby, "lobby.html", page{
		Title: "drumline", About: "Live worlds in the browser: pick one and play.", Base: "./",
	})
}

// Inspector returns the page that shows an operator the server's rooms, for the address debug/inspector beside the site's root. It
// holds no figures itself: its script, which is served with the other assets, asks debug/rooms, debug/room and debug/explain for them
// (package ops), with a token if they want one.
func (s *Site) Inspector() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		s.serveBundle(w, r, s.inspector, "inspector.html", page{Title: "Inspector", Base: "../"})
	})
}

func (s *Site) serveWorld(w http.ResponseWriter, r *http.Request, world *World) {
	p := page{Title: world.Title, About: world.About, Base: "../../", World: world.Name, Dev: s.builder.dev}
	t, ok := s.pages[world.Name]
	if !ok {
		p.Heading, p.Text = "This world has no page", "It can be joined by programs, but there is nothing to see here."
		s.servePage(w, r, http.StatusNotFound, p)
		return
	}
	body, err := fs.ReadFile(world.FS, "body.html")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.Heading, p.Text = "This page cannot be read", err.Error()
		s.servePage(w, r, http.StatusInternalServerError, p)
		return
	}
	p.Body = template.HTML(body) // the world's author wrote it, like its scripts
	if modules, _ := fs.Glob(world.FS, "static/*.wasm"); len(modules) > 0 {
		allowWasm(w.Header())
	}
	s.serveBundle(w, r, t, "world.html", p)
}

func (s *Site) serveBundle(w http.ResponseWriter, r *http.Request, t target, name string, p page) {
	b := s.builder.get(t)
	var failed *BuildError
	if errors.As(b.err, &failed) {
		p.Heading, p.Text = "This page cannot be built", "The bundler found these faults in the sources of "+failed.Target+"."
		p.Errors = failed.Messages
		s.servePage(w, r, http.StatusInternalServerError, p)
		return
	}
	p.JS = b.js.name
	if b.css != nil {
		p.CSS = b.css.name
	}
	s.render(w, r, http.StatusOK, name, p)
}

// servePage answers with a page of words.
func (s *Site) servePage(w http.ResponseWriter, r *http.Request, status int, p page) {
	if b := s.builder.get(s.lobby); b.css != nil {
		p.CSS = b.css.name
	}
	s.render(w, r, status, "message.html", p)
}

func (s *Site) render(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, p); err != nil {
		s.builder.log.Error("page cannot be rendered", "page", name, "err", err)
		http.Error(w, "this page cannot be rendered", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		// An error means that the client has gone.
		_, _ = w.Write(b.Bytes())
	}
}

// Place is where the fault is, for the page.
func (m BuildMessage) Place() string {
	if m.File == "" {
		return ""
	}
	return m.File + ":" + strconv.Itoa(m.Line)
}

// Caret stands below the column of Source.
func (m BuildMessage) Caret() string {
	var b strings.Builder
	for i, c := range m.Source {
		if i >= m.Column {
			break
		}
		if c != '\t' {
			c = ' '
		}
		b.WriteRune(c)
	}
	return b.String() + "^"
}
