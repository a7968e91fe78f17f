package app

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// checkAddr refuses what net.Listen would only explain in its own words.
func checkAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return usagef("--addr %q: give HOST:PORT or :PORT, such as :8080 or 127.0.0.1:8080", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return usagef("--addr %q: the port must be a number from 0 to 65535 (0: any free one)", addr)
	}
	return nil
}

// listenError says what to do about an address that could not be had.
func listenError(addr string, err error) error {
	host, port, _ := net.SplitHostPort(addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, errAddrInUse):
		return fmt.Errorf("port %s is in use, perhaps by another drumline: end that program, or choose another port with "+
			"--addr %s (or --addr %s for any free one)", port, net.JoinHostPort(host, otherPort(port)), net.JoinHostPort(host, "0"))
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("this user may not listen on port %s: choose one over 1023, such as --addr %s", port, net.JoinHostPort(host, "8080"))
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this machine: choose one that is, or --addr :%s for all", addr, port)
	}
	return fmt.Errorf("cannot listen on %s: %w", addr, err)
}

// otherPort is one that is worth a try when port is taken.
func otherPort(port string) string {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n < 1024 || n == 65535 {
		return "8081"
	}
	return strconv.FormatUint(n+1, 10)
}

// urls returns where a listener can be reached: first for this machine, then for others on its network.
func urls(bound netip.AddrPort, lan []netip.Addr) (local string, others []string) {
	url := func(a netip.Addr) string {
		return "http://" + netip.AddrPortFrom(a, bound.Port()).String()
	}
	host := bound.Addr().Unmap()
	if !host.IsUnspecified() {
		return url(host), nil
	}
	for _, a := range lan {
		others = append(others, url(a))
	}
	return url(netip.AddrFrom4([4]byte{127, 0, 0, 1})), others
}

// lanAddrs returns this machine's addresses that others on its network can use, IPv4 first, without those of container
// bridges.
func lanAddrs() []netip.Addr {
	ifaces, err := net.Interfaces()
	if err != nil {
		return nil // a machine that hides its interfaces still serves
	}
	var found []netip.Addr
	for _, i := range ifaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 || bridge(i.Name) {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
				found = append(found, p.Addr().Unmap())
			}
		}
	}
	slices.SortFunc(found, func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(a.BitLen(), b.BitLen()), a.Compare(b))
	})
	return found[:min(len(found), 4)]
}

func bridge(name string) bool {
	return slices.ContainsFunc([]string{"docker", "br-", "veth", "virbr", "cni", "lxc"}, func(p string) bool {
		return strings.HasPrefix(name, p)
	})
}
