package app

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/link/ws"
	"github.com/drumline-engine/drumline/ops"
	"github.com/drumline-engine/drumline/web"
)

// routes puts together what the server answers: /ws to the engine, the operator's pages to package ops, and the rest (the
// lobby, the worlds' pages, scripts) to package web.
func (c *serveConfig) routes(srv *drumline.Server, worlds []drumline.Definition, g *connGuard, log *slog.Logger) (http.Handler, error) {
	o := ws.Options{Origins: c.origins, TrustedProxies: c.trustedProxies}
	if c.deflate {
		o.Deflate = ws.DeflateOn
	}
	links, err := ws.Handler(srv, o)
	if err != nil {
		return nil, usagef("--origins %s: %v", strings.Join(c.origins, ","), strings.TrimPrefix(err.Error(), "ws: Options.Origins: "))
	}
	pages := web.Options{Dev: c.dev || len(c.web) > 0, Logger: log}
	for _, d := range worlds {
		s := d.Spec()
		pages.Worlds = append(pages.Worlds, web.World{Name: s.Name, Title: s.Title, About: s.About, FS: s.Web})
	}
	site, err := web.New(pages)
	if err != nil {
		return nil, err
	}
	operator, err := ops.Handler(srv, ops.Options{Token: c.opsToken, TrustedProxies: c.trustedProxies, Inspector: site.Inspector(),
		Conns: g.stats, Logger: log})
	if err != nil {
		return nil, usagef("the operator's token (%s or --ops-token-file): %v", envName("ops-token"), strings.TrimPrefix(err.Error(), "ops: "))
	}
	mux := http.NewServeMux()
	mux.Handle("/ws", links)
	mux.Handle("/health", operator)
	mux.Handle("/metrics", operator)
	mux.Handle("/debug/", operator)
	mux.Handle("/api/rooms", operator)
	mux.Handle("/", site)
	return mux, nil
}
