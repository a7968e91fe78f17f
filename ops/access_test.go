package ops

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

const testToken = "correct-horse-battery-staple"

func TestAccess(t *testing.T) {
	prefix := netip.MustParsePrefix
	loopbackProxy := []netip.Prefix{prefix("127.0.0.0/8"), prefix("10.0.0.0/8")}
	for _, c := range []struct {
		name    string
		remote  string
		host    string // default: localhost:8080
		header  map[string]string
		token   string
		proxies []netip.Prefix
		why     string // empty: let in
	}{
		{name: "loopback", remote: "127.0.0.1:1"},
		{name: "all of 127/8", remote: "127.9.9.9:1", host: "127.9.9.9"},
		{name: "IPv6 loopback", remote: "[::1]:1", host: "[::1]:8080"},
		{name: "IPv4 in IPv6", remote: "[::ffff:127.0.0.1]:1"},
		{name: "remote", remote: "203.0.113.9:1", why: "remote"},
		{name: "the private network", remote: "192.168.0.7:1", why: "remote"},
		{name: "no address (a Unix socket)", remote: "@", why: "remote"},
		{name: "a name that resolves to loopback", remote: "127.0.0.1:1", host: "evil.example:8080", why: "host"},
		{name: "a name with localhost in it", remote: "127.0.0.1:1", host: "localhost.evil.example", why: "host"},
		{name: "no host", remote: "127.0.0.1:1", host: " ", why: "host"},

		{name: "a proxy that nobody trusts", remote: "127.0.0.1:1", header: map[string]string{"X-Forwarded-For": "203.0.113.9"}, why: "forwarded"},
		{name: "a claim that nobody vouches for", remote: "127.0.0.1:1", header: map[string]string{"X-Forwarded-For": "127.0.0.1"}, why: "forwarded"},
		{name: "another kind of proxy", remote: "127.0.0.1:1", header: map[string]string{"Forwarded": "for=203.0.113.9"}, why: "forwarded"},
		{name: "a proxy that only says its name", remote: "127.0.0.1:1", header: map[string]string{"Via": "1.1 edge"}, why: "forwarded"},
		{name: "X-Real-IP", remote: "127.0.0.1:1", header: map[string]string{"X-Real-IP": "127.0.0.1"}, proxies: loopbackProxy, why: "forwarded"},
		{name: "a trusted proxy, a client elsewhere", remote: "127.0.0.1:1", proxies: loopbackProxy, header: map[string]string{"X-Forwarded-For": "203.0.113.9"}, why: "forwarded"},
		{name: "a trusted proxy, a client here", remote: "127.0.0.1:1", proxies: loopbackProxy, header: map[string]string{"X-Forwarded-For": "127.0.0.1"}},
		{name: "a forged hop in front", remote: "127.0.0.1:1", proxies: loopbackProxy, header: map[string]string{"X-Forwarded-For": "127.0.0.1, 203.0.113.9"}, why: "forwarded"},
		{name: "a forged hop behind a trusted network", remote: "127.0.0.1:1", proxies: loopbackProxy, header: map[string]string{"X-Forwarded-For": "127.0.0.1, 10.0.0.5"}, why: "forwarded"},
		{name: "a trusted proxy elsewhere, its own client", remote: "10.0.0.5:1", proxies: loopbackProxy, header: map[string]string{"X-Forwarded-For": "127.0.0.1"}, why: "remote"},
		{name: "an empty list", remote: "127.0.0.1:1", proxies: loopbackProxy, header: map[string]string{"X-Forwarded-For": ""}, why: "forwarded"},
		{name: "garbage", remote: "127.0.0.1:1", proxies: loopbackProxy, header: map[string]string{"X-Forwarded-For": "unknown"}, why: "forwarded"},

		{name: "the token from elsewhere", remote: "203.0.113.9:1", host: "play.example.com", token: testToken, header: map[string]string{"Authorization": "Bearer " + testToken}},
		{name: "the scheme's case", remote: "203.0.113.9:1", token: testToken, header: map[string]string{"Authorization": "bearer " + testToken}},
		{name: "the token through a proxy", remote: "127.0.0.1:1", token: testToken, header: map[string]string{"X-Forwarded-For": "203.0.113.9", "Authorization": "Bearer " + testToken}},
		{name: "a wrong token", remote: "203.0.113.9:1", token: testToken, header: map[string]string{"Authorization": "Bearer " + testToken + "x"}, why: "token"},
		{name: "a wrong token from here", remote: "127.0.0.1:1", token: testToken, header: map[string]string{"Authorization": "Bearer guess"}, why: "token"},
		{name: "another scheme", remote: "203.0.113.9:1", token: testToken, header: map[string]string{"Authorization": "Basic " + testToken}, why: "token"},
		{name: "an empty token against none", remote: "203.0.113.9:1", header: map[string]string{"Authorization": "Bearer "}, why: "remote"},
		{name: "loopback needs no token", remote: "127.0.0.1:1", token: testToken},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHandler(t, newSource(), Options{Token: c.token, TrustedProxies: c.proxies})
			for _, path := range []string{"/metrics", "/debug/stats", "/debug/pprof/"} {
				r := local("GET", path)
				r.RemoteAddr = c.remote
				r.Host = "localhost:8080"
				if c.host != "" {
					r.Host = strings.TrimSpace(c.host)
				}
				for k, v := range c.header {
					r.Header.Set(k, v)
				}
				w := do(h, r)
				body := w.Body.String()
				switch {
				case c.why == "" && w.Code != http.StatusOK:
					t.Errorf("%s: %d %s", path, w.Code, body)
				case c.why != "" && w.Code != http.StatusForbidden:
					t.Errorf("%s: %d, want 403", path, w.Code)
				case c.why != "" && !strings.Contains(body, textOf(c.why)):
					t.Errorf("%s: %q does not say %q", path, body, textOf(c.why))
				}
				if c.token != "" && strings.Contains(body, c.token) {
					t.Error("the answer holds the token")
				}
			}
		})
	}
}

func textOf(why string) string {
	for _, r := range refusals {
		if r.name == why {
			return r.text
		}
	}
	return "no such refusal: " + why
}

// The token counts in the header only: URLs end up in logs and histories.
func TestTokenInURL(t *testing.T) {
	h := newHandler(t, newSource(), Options{Token: testToken})
	for _, path := range []string{"/metrics?token=", "/metrics?access_token=", "/debug/stats?ops-token="} {
		if w := do(h, remote("GET", path+testToken)); w.Code != http.StatusForbidden {
			t.Errorf("%s…: %d", path, w.Code)
		}
	}
}

func TestRefusalsAreCounted(t *testing.T) {
	h := newHandler(t, newSource(), Options{})
	for range 3 {
		do(h, remote("GET", "/debug/"))
	}
	r := local("GET", "/metrics")
	if got := do(h, r).Body.String(); !strings.Contains(got, `drumline_ops_refusals_total{reason="remote"} 3`+"\n") ||
		!strings.Contains(got, `drumline_ops_refusals_total{reason="token"} 0`+"\n") {
		t.Error("refusals are not in /metrics")
	}
}
