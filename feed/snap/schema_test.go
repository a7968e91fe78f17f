package snap

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drumline-engine/drumline/feed"
)

type base struct {
	Level uint8
}

func TestSchema(t *testing.T) {
	type car struct {
		base
		Pos      vec     `drumline:"q=0.1,range=-100:100,move=Vel,tol=0.5,lod"`
		Secret   int8    `drumline:"owner"`
		Vel      vec     `drumline:"q=0.5,range=-8:8,turn=Yaw,frame=body"`
		Yaw      float64 `drumline:"angle" json:"heading,omitempty"`
		Plate    string  `drumline:"once,max=8"`
		URLPath  bool
		HP       uint16 `drumline:"range=5:12"`
		Mine     string `drumline:"once,max=1,owner"`
		ID       EntityID
		Colour   int32   `drumline:"range=-1:1,once"`
		internal float64 `drumline:"-"`
	}
	f := New(Options{Name: "cars", Weight: 3})
	Add[car](f, "car")
	AddEvent[bang](f, "bang")
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	_ = car{internal: 1}
	info := f.Info()
	if info.Kind != "snap" || info.Name != "cars" || info.Weight != 3 || info.Lane != feed.State {
		t.Errorf("%+v", info)
	}
	var s schema
	if err := json.Unmarshal(info.Schema, &s); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range s.Types[0].Fields {
		got = append(got, fmt.Sprintf("%s %s %d %d %v %d owner=%v once=%v move=%s turn=%s frame=%s lod=%v tol=%v",
			f.Name, kindNames[f.Kind], f.Bits, f.Min, f.Q, f.Max, f.Owner, f.Once, f.Move, f.Turn, f.Frame, f.Lod, f.Tol))
	}
	want := []string{
		"level uint 8 0 1 0 owner=false once=false move= turn= frame= lod=false tol=0",
		"pos.x float 11 -1000 0.1 0 owner=false once=false move=vel.x turn= frame= lod=true tol=0.5",
		"pos.y float 11 -1000 0.1 0 owner=false once=false move=vel.y turn= frame= lod=true tol=0.5",
		"vel.x float 6 -16 0.5 0 owner=false once=false move= turn=heading frame=body lod=false tol=0",
		"vel.y float 6 -16 0.5 0 owner=false once=false move= turn=heading frame=body lod=false tol=0",
		"heading angle 12 0 0.0015339807878856412 0 owner=false once=false move= turn= frame= lod=false tol=0",
		"urlPath bool 1 0 1 0 owner=false once=false move= turn= frame= lod=false tol=0",
		"hp uint 3 5 1 0 owner=false once=false move= turn= frame= lod=false tol=0",
		"id uint 32 0 1 0 owner=false once=false move= turn= frame= lod=false tol=0",
		"colour int 2 -1 1 0 owner=false once=true move= turn= frame= lod=false tol=0",
		"secret int 8 -128 1 0 owner=true once=false move= turn= frame= lod=false tol=0",
		"plate text 4 0 1 8 owner=false once=true move= turn= frame= lod=false tol=0",
		"mine text 1 0 1 1 owner=true once=true move= turn= frame= lod=false tol=0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if s.Hash == 0 || s.Version != 1 || s.Events[0].Name != "bang" {
		t.Errorf("%+v", s)
	}
	g := New(Options{})
	Add[car](g, "car")
	if AddEvent[bang](g, "bang"); string(g.Info().Schema) != string(info.Schema) {
		t.Error("the same declarations gave another schema")
	}
	h := New(Options{})
	Add[car](h, "cart")
	AddEvent[bang](h, "bang")
	var s2 schema
	if _ = json.Unmarshal(h.Info().Schema, &s2); s2.Hash == s.Hash {
		t.Error("another schema has the same hash")
	}
}

// mistakes adds T and returns what Err says.
func mistakes[T any](event bool) string {
	f := New(Options{})
	if event {
		AddEvent[T](f, "thing")
	} else {
		Add[T](f, "thing")
	}
	if err := f.Err(); err != nil {
		return err.Error()
	}
	return ""
}

type many struct {
	A, B, C, D, E, F, G, H, I, J, K uint8
}

func TestMistakes(t *testing.T) {
	type bad1 struct{ X float64 }
	type bad2 struct {
		X float64 `drumline:"q=0.1"`
	}
	type bad3 struct {
		X float64 `drumline:"q=-1,range=0:1"`
	}
	type bad4 struct {
		X float32 `drumline:"q=1,range=5:5"`
	}
	type bad5 struct {
		X float32 `drumline:"q=1e-9,range=0:1000"`
	}
	type bad6 struct {
		X float32 `drumline:"q=1,rnage=0:1"`
	}
	type bad7 struct{ x uint8 }
	type bad8 struct{ N int }
	type bad9 struct {
		N uint8 `drumline:"range=0:256"`
	}
	type bad10 struct {
		N int64 `drumline:"range=-1:4294967295"`
	}
	type bad11 struct{ S string }
	type bad12 struct {
		S string `drumline:"once,max=5000"`
	}
	type bad13 struct {
		T []int
	}
	type bad14 struct {
		A, B, C many
	}
	type bad15 struct {
		X   uint8 `json:"pos"`
		Pos uint8
	}
	type bad16 struct {
		P float32 `drumline:"q=1,range=0:9,move=Speed"`
	}
	type bad17 struct {
		P float32 `drumline:"q=1,range=0:9,frame=body"`
	}
	type bad18 struct {
		A int `drumline:"angle"`
	}
	type bad19 struct {
		B bool `drumline:"range=0:1"`
	}
	type bad20 struct {
		P *int `drumline:"-"`
	}
	type bad21 struct {
		N uint8 `drumline:"owner"`
	}
	type bad22 struct {
		A float32 `drumline:"angle,q=1"`
	}
	type bad23 struct {
		P float32 `drumline:"q=1,range=0:9,move=V"`
		V float32 `drumline:"q=1,range=0:9,owner"`
	}
	type bad24 struct {
		T time.Time
	}
	type bad25 struct {
		N int8 `drumline:"-,owner"`
	}
	type bad26 struct {
		M map[float64]int `drumline:"-"`
	}
	type bad27 struct {
		N uint8 `drumline:"owner=yes"`
	}
	type bad28 struct {
		P float32 `drumline:"q=1,range=0:9,move="`
	}
	type bad29 struct {
		N int8 `drumline:"range=0.5:2"`
	}
	type bad30 struct {
		N int8 `drumline:"unsaved"`
	}
	type bad31 struct {
		X float64 `drumline:"q=NaN,range=0:1"`
	}
	type bad32 struct {
		P float32 `drumline:"q=1,range=0:9,turn=V"`
		V float32 `drumline:"q=1,range=0:9"`
	}
	_ = bad7{x: 1}
	for _, c := range []struct{ got, want string }{
		{mistakes[bad1](false), "bad1.X: a float needs a quantum and a range, such as"},
		{mistakes[bad2](false), "bad2.X: a float needs a quantum and a range"},
		{mistakes[bad3](false), `bad3.X: word "q=-1" in the tag: must be above 0`},
		{mistakes[bad4](false), `bad4.X: word "range=5:5" in the tag: lo must be below hi`},
		{mistakes[bad5](false), "bad5.X: range 0 to 1000 has more than 2^31 steps of 1e-09; take a larger q="},
		{mistakes[bad6](false), `bad6.X: unknown word "rnage=0:1" in the tag; words are`},
		{mistakes[bad7](false), "bad7.x: is not exported: export it, or tag it"},
		{mistakes[bad8](false), "bad8.N: int is too wide: add a range="},
		{mistakes[bad9](false), "bad9.N: range=0:256 does not fit into uint8"},
		{mistakes[bad10](false), "bad10.N: range= must fit into an int32 or a uint32"},
		{mistakes[bad11](false), "bad11.S: a string is sent on enter and when it changes, with a bound"},
		{mistakes[bad12](false), `bad12.S: word "max=5000" in the tag: want 1 to 1024 bytes`},
		{mistakes[bad13](false), "bad13.T: clients cannot see a []int: use"},
		{mistakes[bad14](false), "bad14 has 33 visible fields; at most 32 a type"},
		{mistakes[bad15](false), `bad15.Pos: is called "pos" like X; rename one`},
		{mistakes[bad16](false), "bad16.P: move=Speed: there is no such visible field"},
		{mistakes[bad17](false), "bad17.P: frame=body needs turn="},
		{mistakes[bad18](false), "bad18.A: angle is for float32 and float64"},
		{mistakes[bad19](false), "bad19.B: q= and range= are for numbers"},
		{mistakes[bad20](false), "bad20.P: a *int cannot be saved"},
		{mistakes[bad21](true), "bad21.N: owner, move=, turn=, frame=, lod and tol= have no meaning on an event; use EmitTo"},
		{mistakes[bad22](false), "bad22.A: an angle has 4096 steps a turn: leave out q= and range="},
		{mistakes[bad23](false), "bad23.P: move=V: V is the owner's alone"},
		{mistakes[bad24](false), "bad24.T.wall: is not exported"},
		{mistakes[bad25](false), `bad25.N: tag "-,owner": only "unsaved" may stand beside "-"`},
		{mistakes[bad26](false), "bad26.M: a map with keys of type float64 cannot be saved"},
		{mistakes[bad27](false), `bad27.N: word "owner=yes" in the tag takes no value`},
		{mistakes[bad28](false), `bad28.P: word "move=" in the tag wants a value`},
		{mistakes[bad29](false), "bad29.N: range= of an integer wants whole numbers"},
		{mistakes[bad30](false), `bad30.N: word "unsaved" in the tag: only for server-only fields`},
		{mistakes[bad31](false), `bad31.X: word "q=NaN" in the tag: not finite`},
		{mistakes[bad32](false), "bad32.P: turn=V: V is no angle"},
		{mistakes[int](false), `"thing": int is not a struct`},
	} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("got %q, want %q in it", c.got, c.want)
		}
	}
}

func TestMistakesOfFeeds(t *testing.T) {
	f := New(Options{EventLog: -1, Weight: -1})
	Add[bang](f, "bang")
	Add[bang](f, "bang")
	Add[bang](f, "Bang!")
	AddEvent[bang](f, "bang")
	AddEvent[bang](f, "bang")
	f.Info()
	late := Add[bang](f, "late")
	lateEvent := AddEvent[bang](f, "lateEvent")
	err := f.Err()
	for _, want := range []string{"EventLog is -1", "Weight is -1", `two entity types are called "bang"`, `name "Bang!"`,
		`two event types are called "bang"`, `"late" was added after the room opened`, `event "lateEvent" was added after`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	// What was added too late works on the server and is never sent.
	if id := late.Spawn(bang{3}); late.Get(id).N != 3 {
		t.Error("late set")
	}
	lateEvent.Emit(bang{})
	if fr := f.capture(1); fr.n != 0 || fr.newest >= fr.oldest {
		t.Error("late types are sent")
	}
	if _, err := f.AppendState(nil); err == nil {
		t.Error("a feed with mistakes gave a state")
	}
	if err := f.RestoreState(nil); err == nil {
		t.Error("a feed with mistakes took a state")
	}
	g := New(Options{})
	for i := range maxTypes + 1 {
		Add[bang](g, fmt.Sprint("t", i)).Spawn(bang{})
	}
	if err := g.Err(); err == nil || !strings.Contains(err.Error(), `"t64" is one entity type too many`) {
		t.Error(err)
	}
}

func TestBadSchemas(t *testing.T) {
	field := func(f string) string {
		return `{"version":1,"types":[{"name":"a","fields":[` + f + `]}],"events":[]}`
	}
	for _, s := range []string{
		``, `[]`, `{}`, `{"version":2}`,
		field(`{"name":"x","kind":"sound","bits":1,"q":1}`),
		field(`{"name":"x","kind":"uint","bits":33,"q":1}`),
		field(`{"name":"x","kind":"uint","bits":0,"q":1}`),
		field(`{"name":"x","kind":"uint","bits":8,"q":0}`),
		field(`{"name":"x","kind":"uint","bits":8,"q":1,"min":99999999999}`),
		field(`{"name":"x","kind":"text","bits":4,"q":1,"max":99}`),
		field(`{"name":"x","kind":"uint","bits":8,"q":1,"owner":true},{"name":"y","kind":"uint","bits":8,"q":1}`),
		field(strings.Repeat(`{"name":"x","kind":"uint","bits":8,"q":1},`, 32) + `{"name":"x","kind":"uint","bits":8,"q":1}`),
	} {
		if _, err := NewDecoder(json.RawMessage(s)); err == nil {
			t.Errorf("taken: %.120s", s)
		}
	}
	if _, err := NewDecoder(json.RawMessage(field(`{"name":"x","kind":"uint","bits":8,"q":1}`))); err != nil {
		t.Error(err)
	}
}
