package bots

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/link/ws"
	"github.com/drumline-engine/drumline/worlds/arena"
)

// arenaServer runs the real engine with the arena behind a real socket.
func arenaServer(t testing.TB) (*drumline.Server, string) {
	t.Helper()
	srv, err := drumline.New(drumline.Options{Worlds: []drumline.Definition{arena.World()}, LiftCaps: true, Lab: true, Priority: "none"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	h, err := ws.Handler(srv, ws.Options{})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	return srv, hs.URL
}

func TestAgainstEngine(t *testing.T) {
	for _, portable := range []bool{false, true} {
		srv, url := arenaServer(t)
		f, err := Start(t.Context(), Options{URL: url, World: "arena", NewBot: arena.World().NewBot, Bots: 33, Rooms: 2, Verify: true,
			DecodeEvery: 2, JoinOver: 100 * time.Millisecond, Portable: portable})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.WaitJoined(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.ResetWindow()
		until(t, "packets", func() bool { g := f.Figures(); return g.Verified > 200 && g.Echo.Count() > 20 })
		g := f.Figures()
		if g.Joined != 32 || g.Live != 32 || g.Refused["room_full"] != 1 || len(g.Refused) != 1 || len(g.Closed) != 0 {
			t.Errorf("%d joined, %d live, refused %v, closed %v", g.Joined, g.Live, g.Refused, g.Closed)
		}
		if g.DecodeErrors != 0 || g.Mismatches != 0 || g.Held < 32 || g.Clients != 32 || g.Age.Count() == 0 || g.Inputs == 0 {
			t.Errorf("%+v, for example %s", g, g.FirstError)
		}
		st := srv.Stats()
		if st.Players != 32 || st.Joined != 32 || st.Refused["room_full"] != 1 {
			t.Errorf("the server: %d players, %d joined, refused %v", st.Players, st.Joined, st.Refused)
		}
		f.Close()
		until(t, "goodbyes", func() bool { return srv.Stats().Players == 0 })
		if st := srv.Stats(); st.Closed["left"] != 32 || st.Waiting != 0 {
			t.Errorf("%d waiting, closed %v", st.Waiting, st.Closed)
		}
	}
}
