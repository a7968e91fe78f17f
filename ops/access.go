package ops

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
)

// Who may see /metrics and /debug: the holder of the token, or a program on this machine. The second is only believed when
// nothing at all speaks against it, because the usual mistake is a proxy on the same machine, which makes the whole
// internet look like loopback:
//
//   - the connection comes from a loopback address;
//   - no header says that the request was forwarded, or the proxy is a trusted one and each address in X-Forwarded-For is
//     loopback as well;
//   - the Host header names loopback, so that a page elsewhere cannot get here through a name that resolves to 127.0.0.1.
type access struct {
	tokenHash [sha256.Size]byte
	hasToken  bool
	proxies   []netip.Prefix
	// refused counts by the index in refusals.
	refused [numRefusals]atomic.Uint64
}

type refusal int

const (
	refusedRemote refusal = iota
	refusedForwarded
	refusedHost
	refusedToken
	numRefusals
)

var refusals = [numRefusals]struct{ name, text string }{
	refusedRemote:    {"remote", "the request came from another machine"},
	refusedForwarded: {"forwarded", "the request came through a proxy"},
	refusedHost:      {"host", "the Host header does not name this machine (localhost, 127.0.0.1 or [::1])"},
	refusedToken:     {"token", "the token is wrong"},
}

// Headers by which proxies say that they forward. One of them is enough to disbelieve loopback.
var forwardHeaders = []string{"Forwarded", "X-Real-Ip", "X-Client-Ip", "X-Forwarded-Host", "X-Forwarded-Proto",
	"X-Forwarded-Server", "X-Forwarded-Port", "Via", "True-Client-Ip", "Cf-Connecting-Ip", "Cf-Ray", "Fly-Client-Ip"}

func newAccess(token string, proxies []netip.Prefix) *access {
	a := &access{hasToken: token != "", proxies: slices.Clone(proxies)}
	// Hashes are compared so that the time taken tells neither the token's bytes nor its length.
	a.tokenHash = sha256.Sum256([]byte(token))
	return a
}

// check reports whether r may pass, and if not, why.
func (a *access) check(r *http.Request) (why refusal, ok bool) {
	if auth := r.Header.Get("Authorization"); auth != "" && a.hasToken {
		scheme, token, _ := strings.Cut(auth, " ")
		hash := sha256.Sum256([]byte(strings.TrimSpace(token)))
		if strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(hash[:], a.tokenHash[:]) == 1 {
			return 0, true
		}
		return refusedToken, false
	}
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !remote.Addr().Unmap().IsLoopback() {
		return refusedRemote, false
	}
	if !a.direct(r, remote.Addr().Unmap()) {
		return refusedForwarded, false
	}
	if !loopbackHost(r.Host) {
		return refusedHost, false
	}
	return 0, true
}

// direct reports whether no proxy brought the request from elsewhere.
func (a *access) direct(r *http.Request, remote netip.Addr) bool {
	hops := r.Header.Values("X-Forwarded-For")
	forwarded := len(hops) > 0
	for _, name := range forwardHeaders {
		forwarded = forwarded || len(r.Header.Values(name)) > 0
	}
	if !forwarded {
		return true
	}
	if len(hops) == 0 || !slices.ContainsFunc(a.proxies, func(p netip.Prefix) bool { return p.Contains(remote) }) {
		return false
	}
	for _, line := range hops {
		for hop := range strings.SplitSeq(line, ",") {
			addr, err := netip.ParseAddr(strings.TrimSpace(hop))
			if err != nil || !addr.Unmap().IsLoopback() {
				return false
			}
		}
	}
	return true
}

func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// guard lets next answer those who may pass, and tells the others why not.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		why, ok := a.check(r)
		if ok {
			next.ServeHTTP(w, r)
			return
		}
		a.refused[why].Add(1)
		hint := "No token is set on this server."
		if a.hasToken {
			hint = "With the token it answers from anywhere: send the header Authorization: Bearer TOKEN (never in the URL)."
		}
		http.Error(w, "403 This page answers only on the server's own machine, directly: "+refusals[why].text+".\n"+hint,
			http.StatusForbidden)
	})
}
