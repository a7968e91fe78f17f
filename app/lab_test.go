package app

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/drumline-engine/drumline"
)

func names(worlds []drumline.Definition) (out []string) {
	for _, d := range worlds {
		out = append(out, d.Spec().Name)
	}
	return out
}

// The worlds of the lab are there with --lab only, behind the program's own, and give way to them.
func TestLabWorlds(t *testing.T) {
	e, _, _ := testEnv(nil)
	e.lab = labWorlds()
	for _, c := range []struct {
		lab    bool
		sendHz int
		own    []string
		want   []string
	}{
		{false, 0, []string{"dots"}, []string{"dots"}},
		{true, 0, []string{"dots"}, []string{"dots", "traffic", "traffic-far", "traffic-spread"}},
		{true, 0, []string{"traffic", "dots"}, []string{"traffic", "dots", "traffic-far", "traffic-spread"}},
		{true, 100, []string{"traffic"}, []string{"traffic"}},
	} {
		e.worlds = nil
		for _, n := range c.own {
			d := testWorld(n)
			if c.sendHz > 0 {
				d = d.With(func(s *drumline.Spec) { s.Hz = c.sendHz })
			}
			e.worlds = append(e.worlds, d)
		}
		s := newServeConfig()
		s.lab, s.sendHz = c.lab, c.sendHz
		got, err := s.definitions(e)
		if err != nil || !slices.Equal(names(got), c.want) {
			t.Errorf("%+v: %v, %v", c, names(got), err)
		}
		for _, d := range got {
			if err := d.Err(); err != nil {
				t.Error(err)
			}
		}
	}

	var usage *usageError
	if _, err := e.find("world", "chess"); !errors.As(err, &usage) || !strings.Contains(err.Error(), "traffic-far") {
		t.Errorf("looking for chess: %v", err)
	}
	c := newLoadConfig()
	c.world, c.sendHz = "traffic-far", 100
	if _, err := c.check(e); !errors.As(err, &usage) || !strings.Contains(err.Error(), "60 steps") {
		t.Errorf("100 states a second of 60 steps: %v", err)
	}
}

// Nobody who comes to play sees them.
func TestLabWorldsHaveNoPage(t *testing.T) {
	e, _, _ := testEnv(nil)
	e.lab = labWorlds()
	s := newServeConfig()
	s.lab = true
	worlds, err := s.definitions(e)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	srv, err := drumline.New(drumline.Options{Worlds: worlds, Lab: true, Priority: "none", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	h, err := s.routes(srv, worlds[:len(e.worlds)], newConnGuard(maxWaitingConns), log)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	if w := get("/"); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "traffic") {
		t.Errorf("the lobby: %d\n%s", w.Code, w.Body)
	}
	if w := get("/traffic/"); w.Code != http.StatusNotFound {
		t.Errorf("the page of traffic: %d", w.Code)
	}
}
