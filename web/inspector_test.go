package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestInspector(t *testing.T) {
	s := newSite(t, Options{})
	w := httptest.NewRecorder()
	s.Inspector().ServeHTTP(w, httptest.NewRequest("GET", "/debug/inspector", nil))
	page := w.Body.String()
	if w.Code != http.StatusOK || !strings.Contains(page, `data-drumline="../"`) || !strings.Contains(page, "<title>Inspector · drumline</title>") {
		t.Fatalf("%d %s", w.Code, page)
	}
	csp := w.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "form-action 'none'", "frame-ancestors 'none'"} {
		if !strings.Contains(csp, want) {
			t.Errorf("the policy %q lacks %s", csp, want)
		}
	}
	for _, bad := range []string{"<script>", "<style", " style=", " onclick=", "javascript:", "http:", "https:"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	js, css := scriptRef.FindStringSubmatch(page), styleRef.FindStringSubmatch(page)
	if js == nil || css == nil {
		t.Fatalf("no script or style sheet: %s", page)
	}
	for _, ref := range []string{js[1], css[1]} {
		path, ok := strings.CutPrefix(ref, "../")
		if !ok {
			t.Fatalf("%s is not beside the page's folder", ref)
		}
		body := text(t, get(t, s, "/"+path))
		// Names come from players: nothing may turn text into elements, or into code.
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "localStorage", "sessionStorage"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s contains %s", ref, bad)
			}
		}
	}
	// It is not one of the site's own pages: only the program puts it somewhere.
	if r := get(t, s, "/debug/inspector"); r.StatusCode != http.StatusNotFound {
		t.Errorf("the site serves it: %d", r.StatusCode)
	}
}
