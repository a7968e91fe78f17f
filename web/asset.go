package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
)

// asset is a file that is served from memory, packed once. It is immutable.
type asset struct {
	name        string // hash and extension
	contentType string
	etag        string
	body        []byte
	gzip        []byte // nil: not worth it
}

// Types that must not depend on what the machine's registry says.
var contentTypes = map[string]string{
	".js":    "text/javascript; charset=utf-8",
	".css":   "text/css; charset=utf-8",
	".html":  "text/html; charset=utf-8",
	".json":  "application/json",
	".svg":   "image/svg+xml",
	".png":   "image/png",
	".jpg":   "image/jpeg",
	".webp":  "image/webp",
	".woff2": "font/woff2",
	".wasm":  "application/wasm",
	".mp3":   "audio/mpeg",
	".ogg":   "audio/ogg",
	".glb":   "model/gltf-binary",
	".txt":   "text/plain; charset=utf-8",
}

func newAsset(body []byte, ext string) *asset {
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:10])
	a := &asset{name: hash + ext, contentType: contentTypes[ext], etag: `"` + hash + `"`, body: body}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		panic("web: " + err.Error()) // the level is a constant
	}
	// A bytes.Buffer takes everything.
	_, _ = z.Write(body)
	_ = z.Close()
	if b.Len() < len(body)*9/10 {
		a.gzip = bytes.Clone(b.Bytes())
	}
	return a
}

// write answers with an asset; the caller has set Cache-Control.
func write(w http.ResponseWriter, r *http.Request, a *asset) {
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("ETag", a.etag)
	h.Set("Vary", "Accept-Encoding")
	if m := r.Header.Get("If-None-Match"); m != "" && (m == "*" || strings.Contains(m, a.etag)) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := a.body
	if a.gzip != nil && takesGzip(r.Header.Get("Accept-Encoding")) {
		body = a.gzip
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		// An error means that the client has gone.
		_, _ = w.Write(body)
	}
}

func takesGzip(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		coding, params, _ := strings.Cut(part, ";")
		if c := strings.TrimSpace(coding); !strings.EqualFold(c, "gzip") && c != "*" {
			continue
		}
		q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
		v, err := strconv.ParseFloat(q, 64)
		return !ok || err != nil || v > 0
	}
	return false
}

// allowWasm lets a page compile WebAssembly: scripts still come from here alone, and none is made from text.
func allowWasm(h http.Header) {
	h.Set("Content-Security-Policy", strings.Replace(h.Get("Content-Security-Policy"), "script-src 'self'", "script-src 'self' 'wasm-unsafe-eval'", 1))
}

// secure sets the headers that every answer has. Pages work without any inline script or style, and load nothing from elsewhere.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "+
		"font-src 'self' data:; media-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}
