package ws

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// origins decides which pages may connect. Browsers send cookies along with WebSocket requests of any page, and only the server
// can tell them apart.
type origins struct {
	any  bool
	list []originPattern // empty, and not any: same host
}

type originPattern struct {
	scheme string // empty: http and https
	host   string // in lower case, without port
	below  bool   // hosts below host instead of host
	port   string // empty: the scheme's own; "*": all
}

func parseOrigins(patterns []string) (o origins, err error) {
	for _, s := range patterns {
		if s == "*" {
			o.any = true
			continue
		}
		p, ok := parseOriginPattern(s)
		if !ok {
			return o, fmt.Errorf("ws: Options.Origins: %q is not an origin; want host, host:port, host:*, *.host, scheme://host or *", s)
		}
		o.list = append(o.list, p)
	}
	return o, nil
}

func parseOriginPattern(s string) (p originPattern, ok bool) {
	rest := strings.ToLower(s)
	if scheme, after, found := strings.Cut(rest, "://"); found {
		if scheme != "http" && scheme != "https" {
			return p, false
		}
		p.scheme, rest = scheme, after
	}
	rest, p.below = strings.CutPrefix(rest, "*.")
	p.host, p.port = splitPort(rest)
	if p.host == "" || strings.ContainsAny(p.host, "*/?#@ ,\\") {
		return p, false
	}
	if strings.HasSuffix(rest, ":") || p.port != "*" && strings.Trim(p.port, "0123456789") != "" {
		return p, false
	}
	if strings.Contains(p.host, ":") != strings.HasPrefix(p.host, "[") || strings.HasPrefix(p.host, ".") {
		return p, false
	}
	return p, true
}

// splitPort splits "host:port"; an IPv6 address keeps its brackets.
func splitPort(s string) (host, port string) {
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		return s[:i], s[i+1:]
	}
	return s, ""
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

func (o *origins) allow(r *http.Request) bool {
	given := r.Header["Origin"]
	if o.any || len(given) == 0 {
		return true
	}
	if len(given) > 1 {
		return false
	}
	u, err := url.Parse(given[0])
	if err != nil || u.Host == "" || defaultPorts[u.Scheme] == "" { // "null", for one
		return false
	}
	host, port := splitPort(strings.ToLower(u.Host))
	if port == defaultPorts[u.Scheme] {
		port = ""
	}
	if len(o.list) == 0 {
		own, ownPort := splitPort(strings.ToLower(r.Host))
		if ownPort == defaultPorts[u.Scheme] {
			ownPort = ""
		}
		return host == own && port == ownPort
	}
	for _, p := range o.list {
		if p.scheme != "" && p.scheme != u.Scheme {
			continue
		}
		if p.port != "*" && p.port != port && !(port == "" && p.port == defaultPorts[u.Scheme]) {
			continue
		}
		if host == p.host && !p.below || p.below && strings.HasSuffix(host, "."+p.host) {
			return true
		}
	}
	return false
}
