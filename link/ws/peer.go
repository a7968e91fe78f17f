package ws

import (
	"net/http"
	"net/netip"
	"strings"
)

// maxForwarded bounds how many addresses of X-Forwarded-For are looked at; a client can send any number.
const maxForwarded = 32

// peerAddr is the client's address: the connection's, or, behind trusted proxies, the rightmost that none of them vouches for.
// What stands left of it was written by the client and is worth nothing.
func (s *settings) peerAddr(r *http.Request) netip.AddrPort {
	addr, _ := netip.ParseAddrPort(r.RemoteAddr) // not valid for a Unix socket
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	if len(s.TrustedProxies) == 0 || addr.IsValid() && !s.trusted(addr.Addr()) {
		return addr
	}
	list := r.Header["X-Forwarded-For"]
	seen := 0
	for i := len(list) - 1; i >= 0; i-- {
		for rest := list[i]; ; {
			at := strings.LastIndexByte(rest, ',')
			next, ok := parseForwarded(rest[at+1:])
			if seen++; !ok || seen > maxForwarded {
				return addr // the last that a trusted proxy named
			}
			if addr = next; !s.trusted(addr.Addr()) {
				return addr
			}
			if at < 0 {
				break
			}
			rest = rest[:at]
		}
	}
	return addr
}

func (s *settings) trusted(a netip.Addr) bool {
	for _, p := range s.TrustedProxies {
		if p.Contains(a.WithZone("")) {
			return true
		}
	}
	return false
}

// parseForwarded reads an address with or without a port, as proxies write it.
func parseForwarded(s string) (netip.AddrPort, bool) {
	s = strings.TrimSpace(s)
	if a, err := netip.ParseAddrPort(s); err == nil {
		return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port()), true
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a.Unmap().WithZone(""), 0), true
}
