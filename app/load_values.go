package app

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/drumline-engine/drumline/lab/bots"
)

// The values of load's flags that are no plain numbers.

// fraction is a share 1/n as a flag's value; its number is n.
type fraction int

func (f fraction) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "1/%d", max(int(f), 1)), nil }

func (f *fraction) UnmarshalText(b []byte) error {
	s := strings.TrimSpace(string(b))
	if s == "1" {
		s = "1/1"
	}
	rest, ok := strings.CutPrefix(s, "1/")
	n, err := strconv.Atoi(rest)
	if !ok || err != nil || n < 1 || n > bots.MaxBots {
		return fmt.Errorf("%q: want a share such as 1/10", s)
	}
	*f = fraction(n)
	return nil
}

// bitRate is a rate such as 16kbit as a flag's value; its number is bytes a second, 0 for none.
type bitRate int

func (r bitRate) MarshalText() ([]byte, error) {
	bits := int64(r) * 8
	switch {
	case r == 0:
		return nil, nil
	case bits%1_000_000 == 0:
		return fmt.Appendf(nil, "%dmbit", bits/1_000_000), nil
	case bits%1000 == 0:
		return fmt.Appendf(nil, "%dkbit", bits/1000), nil
	}
	return fmt.Appendf(nil, "%dbit", bits), nil
}

func (r *bitRate) UnmarshalText(b []byte) error {
	s := strings.ToLower(strings.TrimSpace(string(b)))
	if s == "" || s == "0" {
		*r = 0
		return nil
	}
	scale := 1.0
	number := s
	for _, unit := range []struct {
		name  string
		scale float64
	}{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}} {
		if rest, ok := strings.CutSuffix(s, unit.name); ok {
			number, scale = rest, unit.scale
			break
		}
		number = ""
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	bytes := v * scale / 8
	if err != nil || !(bytes >= 1) || bytes > 1<<30 {
		return fmt.Errorf("%q: want a rate such as 16kbit or 2mbit, at least 8bit", s)
	}
	*r = bitRate(bytes)
	return nil
}
