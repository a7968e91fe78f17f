package snap

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/wire"
)

type base struct {
	Level uint8
}

func TestSchema(t *testing.T) {
	type car struct {
		base
		Pos      vec     `drumline:"q=0.1,range=-100:100,move=Vel,tol=0.5,lod,place"`
		Secret   int8    `drumline:"owner"`
		Vel      vec     `drumline:"q=0.5,range=-8:8,frame=body"`
		Yaw      float64 `drumline:"angle,turn=Spin" json:"heading,omitempty"`
		Spin     float32 `drumline:"q=0.1,range=-3:3"`
		Plate    string  `drumline:"once,max=8"`
		URLPath  bool
		HP       uint16 `drumline:"range=5:12"`
		Mine     string `drumline:"once,max=1,owner"`
		ID       EntityID
		Colour   int32   `drumline:"range=-1:1,once"`
		internal float64 `drumline:"-"`
		groups   uint16  `drumline:"mask"`
	}
	f := New(Options{Name: "cars", Weight: 3})
	Add[car](f, "car")
	AddEvent[bang](f, "bang")
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	_ = car{internal: 1, groups: 1}
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
		got = append(got, say(f))
	}
	want := []string{
		"level uint 8 bits 0..255 q=1 codes=12,12,12,12",
		"pos.x float 11 bits -1000..1000 q=0.1 pose codes=8,8,8,8 lod=0,2,3,4 tolq=5 ahead=3,4 angle=5 side=0 349525/2^27 move=vel.x tol=0.5 place",
		"pos.y float 11 bits -1000..1000 q=0.1 pose codes=8,8,8,8 lod=0,2,3,4 tolq=5 ahead=3,4 angle=5 side=1 349525/2^27 move=vel.y tol=0.5 place",
		"vel.x float 6 bits -16..16 q=0.5 pose codes=9,9,9,9 frame=heading",
		"vel.y float 6 bits -16..16 q=0.5 pose codes=9,9,9,9 frame=heading",
		"heading angle 12 bits 0..4095 q=0.0015339807878856412 pose codes=8,8,8,8 ahead=6 284819/2^23 turn=spin",
		"spin float 6 bits -30..30 q=0.1 pose codes=9,9,9,9",
		"urlPath bool 1 bits 0..1 q=1",
		"hp uint 3 bits 5..12 q=1 codes=9,9,9,9",
		"id uint 32 bits 0..4294967295 q=1 codes=15,15,15,15",
		"colour int 2 bits -1..1 q=1 codes=9,9,9,9 once",
		"secret int 8 bits -128..127 q=1 owner codes=12,12,12,12",
		"plate text 4 bits 0..8 q=1 once",
		"mine text 1 bits 0..1 q=1 owner once",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if s.Hash == 0 || s.Version != schemaVersion || s.Events[0].Name != "bang" {
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

// say writes a field's parts that are not zero.
func say(f fieldSchema) string {
	var b strings.Builder
	four := func(word string, v *[rings]uint8) {
		if v != nil {
			fmt.Fprintf(&b, " %s=%d,%d,%d,%d", word, v[0], v[1], v[2], v[3])
		}
	}
	word := func(given bool, format string, v ...any) {
		if given {
			fmt.Fprintf(&b, " "+format, v...)
		}
	}
	fmt.Fprintf(&b, "%s %s %d bits %d..%d q=%v", f.Name, kindNames[f.Kind], f.Bits, f.Min, f.Max, f.Q)
	word(f.Owner, "owner")
	word(f.Pose, "pose")
	four("codes", f.Codes)
	four("lod", f.Lod)
	word(f.TolQ != 0, "tolq=%d", f.TolQ)
	if a := f.Ahead; a != nil {
		word(true, "ahead=%d", a.By)
		if a.Angle != nil {
			fmt.Fprintf(&b, ",%d angle=%d side=%d", a.By2, *a.Angle, a.Side)
		}
		word(true, "%d/2^%d", a.Mul, a.Shift)
	}
	word(f.Once, "once")
	word(f.Move != "", "move=%s", f.Move)
	word(f.Turn != "", "turn=%s", f.Turn)
	word(f.Frame != "", "frame=%s", f.Frame)
	word(f.Tol != 0, "tol=%v", f.Tol)
	word(f.Place, "place")
	return b.String()
}

// fieldsOf describes T and returns its fields as say writes them.
func fieldsOf[T any](t *testing.T, hz int) string {
	t.Helper()
	d := describe("thing", reflect.TypeFor[T](), false, hz)
	if d.errs != nil {
		t.Fatal(errors.Join(d.errs...))
	}
	s := schema{Version: schemaVersion, Hz: max(hz, 0), Types: []typeSchema{d.schema}}
	if err := s.check(); err != nil {
		t.Error(err)
	}
	if len(d.src) != len(d.schema.Fields) {
		t.Errorf("%d sources of %d fields", len(d.src), len(d.schema.Fields))
	}
	var lines []string
	for _, f := range d.schema.Fields {
		lines = append(lines, say(f))
	}
	return strings.Join(lines, "\n")
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
		{mistakes[bad17](false), "bad17.P: frame=body: no visible field is an angle"},
		{mistakes[bad18](false), "bad18.A: angle is for float32 and float64"},
		{mistakes[bad19](false), "bad19.B: q= and range= are for numbers"},
		{mistakes[bad20](false), "bad20.P: a *int cannot be saved"},
		{mistakes[bad21](true), "bad21.N: owner, move=, turn=, frame=, lod, tol= and place have no meaning on an event; use EmitTo"},
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
		{mistakes[bad32](false), "bad32.P: turn= is for angles: it names the field that says how fast one turns. What names the angle of a body's velocities is frame=body:V"},
		{mistakes[int](false), `"thing": int is not a struct`},
	} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("got %q, want %q in it", c.got, c.want)
		}
	}
}

func TestMotion(t *testing.T) {
	type plain struct {
		X   int32   `drumline:"range=0:1000,move=V"`
		V   int8    // units a second
		Far uint8   `drumline:"lod=1"`
		A   float32 `drumline:"angle,lod=3:12,tol=0.1"`
		ID  EntityID
	}
	type tuned struct {
		base `drumline:"tol=2"` // an integer too has near and far
		P    struct {
			X, Y, Z float32
			On      bool
			Name    string  `drumline:"once,max=3"`
			Dir     float32 `drumline:"angle"`
		} `drumline:"q=1,range=0:7,lod=2:3:3,tol=1,place"`
		Priv float32 `drumline:"q=0.5,range=0:9,move=PV,owner"`
		PV   float32 `drumline:"q=1,range=-9:9,owner"`
		Ref  struct {
			Of EntityID
			N  int8
		} `drumline:"lod=1,tol=1"`
	}
	type two struct {
		Hull, Gun struct{ A, B float32 } `drumline:"q=1,range=0:100"`
		HullV     struct{ A, B float32 } `drumline:"q=1,range=-9:9,frame=body:HullYaw"`
		GunV      struct{ A, B float32 } `drumline:"q=0.5,range=-9:9,frame=body:GunYaw"`
		HullYaw   float64                `drumline:"angle"`
		GunYaw    float64                `drumline:"angle"`
		X         float64                `drumline:"q=1,range=0:100,move=GunV.B"`
		Y         float64                `drumline:"q=1,range=0:100,move=GunV.A"`
	}
	type still struct {
		Pos vec     `drumline:"q=1,range=0:100,move=Vel"`
		Vel vec     `drumline:"q=1,range=-1:1,frame=body"`
		Yaw float64 `drumline:"angle"`
		N   uint8
	}
	for _, c := range []struct{ name, got, want string }{
		{"plain", fieldsOf[plain](t, 60), `
x uint 10 bits 0..1000 q=1 pose codes=8,8,8,8 ahead=1 279620/2^29 move=v
v int 8 bits -128..127 q=1 pose codes=10,10,10,10
far uint 8 bits 0..255 q=1 pose codes=9,8,8,8 lod=0,1,1,1
a angle 12 bits 0..4095 q=0.0015339807878856412 pose codes=11,8,8,8 lod=0,3,12,12 tolq=65 tol=0.1
id uint 32 bits 0..4294967295 q=1 codes=15,15,15,15`},
		{"tuned", fieldsOf[tuned](t, 20), `
level uint 8 bits 0..255 q=1 pose codes=9,9,9,9 tolq=2 tol=2
p.x float 3 bits 0..7 q=1 pose codes=9,8,8,8 lod=0,2,2,2 tolq=1 tol=1 place
p.y float 3 bits 0..7 q=1 pose codes=9,8,8,8 lod=0,2,2,2 tolq=1 tol=1 place
p.z float 3 bits 0..7 q=1 pose codes=9,8,8,8 lod=0,2,2,2 tolq=1 tol=1 place
p.on bool 1 bits 0..1 q=1
p.dir angle 12 bits 0..4095 q=0.0015339807878856412 pose codes=11,9,8,8 lod=0,2,3,3 tolq=651 tol=1
ref.of uint 32 bits 0..4294967295 q=1 codes=15,15,15,15
ref.n int 8 bits -128..127 q=1 pose codes=9,8,8,8 lod=0,1,1,1 tolq=1 tol=1
priv float 5 bits 0..18 q=0.5 owner pose codes=8,8,8,8 ahead=9 419430/2^27 move=pv
pv float 5 bits -9..9 q=1 owner pose codes=9,9,9,9
p.name text 2 bits 0..3 q=1 once`},
		{"two", fieldsOf[two](t, 1), `
hull.a float 7 bits 0..100 q=1 codes=11,11,11,11
hull.b float 7 bits 0..100 q=1 codes=11,11,11,11
gun.a float 7 bits 0..100 q=1 codes=11,11,11,11
gun.b float 7 bits 0..100 q=1 codes=11,11,11,11
hullV.a float 5 bits -9..9 q=1 codes=10,10,10,10 frame=hullYaw
hullV.b float 5 bits -9..9 q=1 codes=10,10,10,10 frame=hullYaw
gunV.a float 6 bits -18..18 q=0.5 pose codes=9,9,9,9 frame=gunYaw
gunV.b float 6 bits -18..18 q=0.5 pose codes=9,9,9,9 frame=gunYaw
hullYaw angle 12 bits 0..4095 q=0.0015339807878856412 pose codes=11,11,11,11
gunYaw angle 12 bits 0..4095 q=0.0015339807878856412 pose codes=11,11,11,11
x float 7 bits 0..100 q=1 pose codes=8,8,8,8 ahead=6,7 angle=9 side=1 262144/2^24 move=gunV.b
y float 7 bits 0..100 q=1 pose codes=8,8,8,8 ahead=6,7 angle=9 side=0 262144/2^24 move=gunV.a`},
		{"no beat", fieldsOf[still](t, NoBeat), `
pos.x float 7 bits 0..100 q=1 pose codes=9,9,9,9 move=vel.x
pos.y float 7 bits 0..100 q=1 pose codes=9,9,9,9 move=vel.y
vel.x float 2 bits -1..1 q=1 pose codes=9,9,9,9 frame=yaw
vel.y float 2 bits -1..1 q=1 pose codes=9,9,9,9 frame=yaw
yaw angle 12 bits 0..4095 q=0.0015339807878856412 pose codes=11,11,11,11
n uint 8 bits 0..255 q=1 codes=12,12,12,12`},
	} {
		if want := c.want[1:]; c.got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, c.got, want)
		}
	}
}

func TestMask(t *testing.T) {
	type seen struct {
		N     uint8
		inner struct {
			teams uint16 `drumline:"mask"`
		} `drumline:"lod"`
	}
	_ = seen{}.inner.teams
	type team uint32
	type named struct {
		Teams team `drumline:"mask"`
	}
	type none struct{ N uint8 }
	for _, c := range []struct {
		d      described
		fields int
		want   *source
	}{
		{describe("a", reflect.TypeFor[named](), false, 60), 0, &source{kind: reflect.Uint32, field: kindUint, max: math.MaxUint32}},
		{describe("a", reflect.TypeFor[none](), false, 60), 1, nil},
	} {
		if c.d.errs != nil || len(c.d.schema.Fields) != c.fields || !reflect.DeepEqual(c.d.mask, c.want) {
			t.Errorf("%+v", c.d)
		}
	}
	type deep struct {
		N  uint8
		In struct {
			Teams uint16 `drumline:"mask"`
		} `drumline:"lod"`
	}
	d := describe("a", reflect.TypeFor[deep](), false, 60)
	if d.errs != nil || len(d.schema.Fields) != 1 || *d.mask != (source{off: 2, kind: reflect.Uint16, field: kindUint, max: math.MaxUint16}) {
		t.Errorf("%+v", d)
	}
	// It is saved like other server-only fields.
	type hidden struct {
		N     uint8
		teams uint8 `drumline:"mask"`
	}
	_ = hidden{}.teams
	c, err := makeCodec(reflect.TypeFor[hidden](), "hidden")
	if err != nil {
		t.Fatal(err)
	}
	type bare struct{ N uint8 }
	b, err := makeCodec(reflect.TypeFor[bare](), "bare")
	if err != nil {
		t.Fatal(err)
	}
	if c.layout == b.layout {
		t.Error("a mask is not saved")
	}
}

// wrong describes T and returns all mistakes, a line each.
func wrong[T any]() string {
	return errors.Join(describe("thing", reflect.TypeFor[T](), false, 60).errs...).Error()
}

func TestMistakesOfMotion(t *testing.T) {
	type pos = struct{ X, Y float64 }
	type moved struct {
		P float64 `drumline:"q=1,range=0:9,move=A"`
		A float64 `drumline:"angle"`
		B bool
		Q float64 `drumline:"q=1,range=0:9,move=B"`
		R float64 `drumline:"q=1,range=0:9,move=R"`
		S float64 `drumline:"angle,move=P"`
		T bool    `drumline:"move=P"`
		U EntityID
		V float64  `drumline:"q=1,range=0:9,move=U"`
		W EntityID `drumline:"lod,tol=2"`
		X float64  `drumline:"q=1,range=0:1,move=Y"`
		Y float64  `drumline:"q=1,range=0:1"`
		Z string   `drumline:"once,max=2,place"`
	}
	type chained struct {
		Pos float64 `drumline:"q=1,range=0:9,move=Vel"`
		Vel float64 `drumline:"q=1,range=0:9,move=Acc"`
		Acc float64 `drumline:"q=1,range=0:9"`
	}
	type fast struct {
		Pos float64 `drumline:"q=1,range=0:9,move=Vel"`
		Vel float64 `drumline:"q=0.001,range=-1048:1048.577"`
	}
	type ratio struct {
		A float64 `drumline:"q=1e-9,range=0:1,move=V"`
		V float64 `drumline:"q=1e9,range=0:1e10"`
		B float64 `drumline:"q=1e9,range=0:1e10,move=W"`
		W float64 `drumline:"q=1e-9,range=0:1e-8"`
	}
	type spun struct {
		A float64 `drumline:"angle,turn=I"`
		I int8
		B float64 `drumline:"angle,turn=A"`
		C float64 `drumline:"angle,turn=None"`
		D float64 `drumline:"angle,turn=S"`
		S float64 `drumline:"q=1,range=0:9,owner"`
	}
	type oneOf struct {
		V   float64 `drumline:"q=1,range=0:9,frame=body"`
		Yaw float64 `drumline:"angle"`
	}
	type threeOf struct {
		V, W, Z float64 `drumline:"q=1,range=0:9,frame=body"`
		Yaw     float64 `drumline:"angle"`
	}
	type twoAngles struct {
		V        pos     `drumline:"q=1,range=0:9,frame=body"`
		Yaw, Gun float64 `drumline:"angle"`
	}
	type privateAngle struct {
		V   pos     `drumline:"q=1,range=0:9,frame=body"`
		W   pos     `drumline:"q=1,range=0:9,frame=body:Yaw"`
		Yaw float64 `drumline:"angle,owner"`
	}
	type noSuchAngle struct {
		V pos     `drumline:"q=1,range=0:9,frame=body:Yaw"`
		W pos     `drumline:"q=1,range=0:9,frame=body:N"`
		A float64 `drumline:"angle,frame=body"`
		N uint8
	}
	type quanta struct {
		V   float64 `drumline:"q=1,range=0:9,frame=body"`
		W   float64 `drumline:"q=2,range=0:9,frame=body"`
		Yaw float64 `drumline:"angle"`
	}
	type sameSide struct {
		X, Y float64 `drumline:"q=1,range=0:9,move=V"`
		V, W float64 `drumline:"q=1,range=0:9,frame=body"`
		Yaw  float64 `drumline:"angle"`
	}
	type halfPrivate struct {
		X   float64 `drumline:"q=1,range=0:9,move=V"`
		V   float64 `drumline:"q=1,range=0:9,frame=body"`
		W   float64 `drumline:"q=1,range=0:9,frame=body,owner"`
		Yaw float64 `drumline:"angle"`
	}
	type lods struct {
		A float64 `drumline:"q=1,range=0:9,lod=3:2"`
		B float64 `drumline:"q=1,range=0:9,lod=1:2:3:4"`
		C float64 `drumline:"q=1,range=0:9,lod=32"`
		D float64 `drumline:"q=1,range=0:9,lod=x"`
		E float64 `drumline:"q=1,range=0:9,lod="`
		F float64 `drumline:"q=1,range=0:9,lod=5"`
		G bool    `drumline:"lod"`
		H float64 `drumline:"angle,lod=13"`
		I float64 `drumline:"q=1,range=0:9,lod=-1"`
	}
	type tols struct {
		A float64 `drumline:"q=1,range=0:9,tol=0.5"`
		B float64 `drumline:"q=1,range=0:9,tol=-1"`
		C float64 `drumline:"q=1,range=0:9,tol=9"`
		D bool    `drumline:"tol=1"`
		E float64 `drumline:"angle,tol=0.001"`
		F float64 `drumline:"angle,tol=3.2"`
		G float64 `drumline:"q=1,range=0:9,tol=0"`
		H string  `drumline:"once,max=2,tol=1"`
		I uint32  `drumline:"tol=1"`
	}
	type place1 struct {
		X float64 `drumline:"q=1,range=0:9,place"`
	}
	type place4 struct {
		X, Y pos `drumline:"q=1,range=0:9,place"`
	}
	type places struct {
		X int8    `drumline:"place"`
		Y float64 `drumline:"q=1,range=0:9,place,owner"`
		Z float64 `drumline:"angle,place"`
	}
	type masks struct {
		A uint8  `drumline:"mask"`
		B uint8  `drumline:"mask"`
		C int8   `drumline:"mask"`
		D uint64 `drumline:"mask"`
		E uint8  `drumline:"mask,owner"`
		F uint8  `drumline:"mask,-"`
		G pos    `drumline:"mask"`
		H uint8  `drumline:"mask=3"`
		I uint8  `drumline:"-,mask"`
	}
	type maskedEvent struct {
		A uint8 `drumline:"mask"`
	}
	type placed struct {
		P pos `drumline:"q=1,range=0:9,place"`
	}
	type names struct {
		A   uint8 `json:"pos"`
		Pos pos   `drumline:"q=1,range=0:9"`
		B   uint8 `json:"a.b"`
		C   uint8 `json:"9"`
	}
	type frames struct {
		A pos `drumline:"q=1,range=0:9,frame=head"`
		B pos `drumline:"q=1,range=0:9,frame=body:"`
	}
	type oneStep struct {
		A float64 `drumline:"q=1,range=4.0000001:4.0000002"`
	}
	// A field with a mistake is known by its name: what refers to it does not add another.
	type quiet struct {
		Pos pos     `drumline:"q=1,range=0:9,move=Vel"`
		Vel pos     `drumline:"q=0,range=0:9,frame=body"`
		Yaw float64 `drumline:"angel"`
		Bad float64 `drumline:"q=-1,range=2:1,tol=x"`
		W   float64 `drumline:"q=1,range=0:9,frame=body"`
	}
	for _, c := range []struct {
		got  string
		want []string // all of it, in order
	}{
		{wrong[moved](), []string{
			"moved.S: move= is for positions; an angle turns: write turn=P",
			"moved.T: move= is for floats, angles and integers of at most 2^31-1: what has no near and far",
			"moved.W: lod is for floats, angles and integers of at most 2^31-1: what has no near and far cannot be a little wrong; tol= is for floats",
			"moved.X: move=Y: a field of one bit has nowhere to go",
			"moved.Z: a string takes once, max= and owner only",
			"moved.P: move=A: A is an angle, not units a second",
			"moved.Q: move=B: B is no signed number",
			"moved.R: move=R: a field cannot refer to itself",
			"moved.V: move=U: U is no signed number",
		}},
		{wrong[chained](), []string{"chained.Pos: move=Vel: Vel is extrapolated itself, along Acc; only one step is possible"}},
		{wrong[fast](), []string{"fast.Pos: move=Vel: Vel has -1048000 to 1048577 quanta; what others are extrapolated along must stay within ±1048575: take a larger q="}},
		{wrong[ratio](), []string{"ratio.A: a quantum of 1e-09 along V with one of 1e+09 at 60 steps a second: ratio",
			"ratio.B: a quantum of 1e+09 is so large against the 1e-09 of W that nothing would move"}},
		{wrong[spun](), []string{"spun.A: turn=I: I is no float in radians a second", "spun.B: turn=A: A is no float in radians a second",
			"spun.C: turn=None: there is no such visible field beside it", "spun.D: turn=S: S is the owner's alone"}},
		{wrong[oneOf](), []string{"oneOf.V: frame=body is on 1 field, all turned by Yaw; it wants exactly two fields: the speed ahead, then"}},
		{wrong[threeOf](), []string{"threeOf.V: frame=body is on 3 fields, all turned by Yaw; it wants exactly two"}},
		{wrong[twoAngles](), []string{"twoAngles.V.X: frame=body: Yaw and Gun are angles; name the one that turns it: frame=body:Yaw", "twoAngles.V.Y: frame=body: Yaw and Gun"}},
		{wrong[privateAngle](), []string{"privateAngle.V.X: frame=body: no visible field is an angle that everybody who gets this may know; add one", "privateAngle.V.Y: frame=body: no visible",
			"privateAngle.W.X: frame=body:Yaw: Yaw is the owner's alone, so others could not follow", "privateAngle.W.Y: frame=body:Yaw: Yaw is the owner's"}},
		{wrong[noSuchAngle](), []string{"noSuchAngle.A: frame= is for velocities, not for an angle", "noSuchAngle.V.X: frame=body:Yaw: there is no such visible field beside it",
			"noSuchAngle.V.Y: frame=body:Yaw: there", "noSuchAngle.W.X: frame=body:N: N is no angle", "noSuchAngle.W.Y: frame=body:N: N is no angle"}},
		{wrong[quanta](), []string{"quanta.W: has a quantum of 2 and V one of 1; two velocities of one body need the same q="}},
		{wrong[sameSide](), []string{"sameSide.Y: moves along V like X; in a body's frame one position moves by each of V and W"}},
		{wrong[halfPrivate](), []string{"halfPrivate.X: move=v: that is a body's velocity, and of the body W is the owner's alone"}},
		{wrong[lods](), []string{
			`lods.A: word "lod=3:2" in the tag: a ring farther out cannot be finer`,
			`lods.B: word "lod=1:2:3:4" in the tag: want at most 3 shifts, those of rings 1 to 3`,
			`lods.C: word "lod=32" in the tag: want low bits to round away, 0 to 31`,
			`lods.D: word "lod=x" in the tag: want low bits`,
			`lods.E: word "lod=" in the tag wants a value`,
			"lods.F: lod rounds 5 bits away in ring 1, of 4; at that many the field is not told at all",
			"lods.G: lod is for floats, angles and integers",
			"lods.H: lod rounds 13 bits away in ring 1, of 12",
			`lods.I: word "lod=-1" in the tag: want low bits`,
		}},
		{wrong[tols](), []string{
			"tols.A: tol=0.5 is below one quantum of 1, which is the error of any value; leave it out",
			`tols.B: word "tol=-1" in the tag: must not be negative`,
			"tols.C: tol=9 is as wide as the range: nothing would ever be told",
			"tols.D: tol= is for floats, angles and integers",
			"tols.E: tol=0.001 is below one quantum of 0.0015",
			"tols.F: tol=3.2 is as wide as the range",
			"tols.G: tol=0 is below one quantum",
			"tols.H: a string takes once, max= and owner only",
			"tols.I: tol= is for floats, angles and integers",
		}},
		{wrong[place1](), []string{"place1: place is on X; a place has 2 or 3 axes"}},
		{wrong[place4](), []string{"place4: place is on X.X, X.Y, Y.X, Y.Y; a place has 2 or 3 axes"}},
		{wrong[places](), []string{"places.X: place is for floats that everybody may know", "places.Y: place is for floats that", "places.Z: place is for floats that"}},
		{wrong[masks](), []string{
			"masks.B: A is the mask already; a type has one",
			"masks.C: mask is for uint8, uint16 and uint32, a bit for each group that sees the entity, not int8",
			"masks.D: mask is for uint8, uint16 and uint32, a bit for each group that sees the entity, not uint64",
			`masks.E: tag "mask,owner": no other word may stand beside mask, which clients never see`,
			`masks.F: word "-" in the tag: must come first; tag "mask,-": no other word may stand beside mask`,
			"masks.G: mask is for uint8, uint16 and uint32",
			`masks.H: word "mask=3" in the tag takes no value; tag "mask=3"`,
			`masks.I: tag "-,mask": no other word may stand beside mask`,
		}},
		{mistakes[maskedEvent](true), []string{"maskedEvent.A: mask has no meaning on an event; use EmitTo"}},
		{mistakes[placed](true), []string{"placed.P.X: owner, move=, turn=, frame=, lod, tol= and place have no meaning on an event", "placed.P.Y: owner"}},
		{wrong[names](), []string{
			`names.B: is called "a.b" in the browser; want a letter, then letters, digits and underscores`,
			`names.C: is called "9" in the browser`,
			`names.Pos.X: stands in "pos", which is what A is called; rename one`, `names.Pos.Y: stands in "pos"`,
		}},
		{wrong[frames](), []string{`frames.A: word "frame=head" in the tag: the only frame beside the world's is body, or body:Yaw to name the angle`, `frames.B: word "frame=body:" in the tag: the only`}},
		{wrong[oneStep](), []string{"oneStep.A: range=4.0000001:4.0000002 holds one multiple of q=1; take a smaller q="}},
		{wrong[quiet](), []string{
			`quiet.Vel: word "q=0" in the tag: must be above 0`,
			`quiet.Yaw: unknown word "angel" in the tag; words are`,
			`quiet.Bad: word "q=-1" in the tag: must be above 0; word "range=2:1" in the tag: lo must be below hi; word "tol=x" in the tag`,
		}},
	} {
		got := strings.Split(c.got, "\n")
		ok := len(got) == len(c.want)
		for i := range got {
			ok = ok && strings.Contains(got[i], "snap."+c.want[i])
		}
		if !ok {
			t.Errorf("got\n%s\nwant\n%s", c.got, strings.Join(c.want, "\n"))
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

// aBody is a schema with all kinds of fields, as JSON, to be damaged.
func aBody(t testing.TB) string {
	type thing struct {
		Pos  vec     `drumline:"q=0.1,range=-100:100,move=Vel,tol=0.5,lod,place"`
		Vel  vec     `drumline:"q=0.5,range=-8:8,frame=body"`
		Yaw  float64 `drumline:"angle,turn=Spin"`
		Spin float32 `drumline:"q=0.1,range=-3:3"`
		On   bool
		ID   EntityID
		Mine int16  `drumline:"owner"`
		Name string `drumline:"once,max=8"`
	}
	d, e := describe("thing", reflect.TypeFor[thing](), false, 60), describe("bang", reflect.TypeFor[bang](), true, 60)
	if err := errors.Join(append(d.errs, e.errs...)...); err != nil {
		t.Fatal(err)
	}
	s := schema{Hz: 60, Types: []typeSchema{d.schema}, Events: []typeSchema{e.schema}}
	return string(s.seal())
}

func TestBadSchemas(t *testing.T) {
	good := aBody(t)
	check := func(text string) error {
		var s schema
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return err
		}
		return s.check()
	}
	if err := check(good); err != nil {
		t.Fatal(err, good)
	}
	// Each row damages one thing: what stands after the field's name, and by what it is replaced.
	for _, c := range []struct{ field, old, new, want string }{
		{"", `"version":2`, `"version":1`, "schema version 1, this decoder reads 2"},
		{"", `"hz":60`, `"hz":-1`, "-1 steps a second, want 1 to 1000"},
		{"", `"hz":60`, `"hz":1001`, "1001 steps a second"},
		{"", `"hz":60`, `"hz":0`, `field "pos.x" is extrapolated without a beat`},
		{"pos.x", `"kind":"float"`, `"kind":"sound"`, `unknown kind "sound"`},
		{"pos.x", `"kind":"float"`, `"kind":"angle"`, "range -1000 to 1000 in 11 bits is not possible for kind angle"},
		{"pos.x", `"bits":11`, `"bits":12`, "range -1000 to 1000 in 12 bits is not possible for kind float"},
		{"pos.x", `"bits":11`, `"bits":10`, "in 10 bits"},
		{"pos.x", `"bits":11`, `"bits":0`, "in 0 bits"},
		{"pos.x", `"min":-1000`, `"min":1000`, "range 1000 to 1000"},
		{"pos.x", `"min":-1000`, `"min":-3000000000`, "range -3000000000 to 1000"},
		{"pos.x", `"max":1000`, `"max":9223372036854775807`, "range -1000 to 9223372036854775807"},
		{"pos.x", `"q":0.1`, `"q":0`, "quantum 0"},
		{"pos.x", `"q":0.1`, `"q":-1`, "quantum -1"},
		{"pos.x", `"codes":[8,8,8,8]`, `"codes":[1,0,0,16]`, "code 16, want 0 to 15"},
		{"pos.x", `"codes":[8,8,8,8],`, ``, "a number has codes unless it has one bit"},
		{"pos.x", `"lod":[0,2,3,4]`, `"lod":[0,2,3,11]`, "11 of 11 bits rounded away"},
		{"pos.x", `"tolq":5`, `"tolq":-5`, "tolerance -5"},
		{"pos.x", `"by":2`, `"by":-1`, "extrapolated along field -1, which is no column"},
		{"pos.x", `"by":2`, `"by":10`, "extrapolated along field 10, which is no column"},
		{"pos.x", `"by":2`, `"by":9`, "extrapolated along field 9, which is no column"},
		{"pos.x", `"by":2`, `"by":1`, `extrapolated along "pos.y", which is extrapolated itself`},
		{"pos.x", `"by":2`, `"by":0`, `extrapolated along "pos.x", which is extrapolated itself`},
		{"pos.x", `"by":2`, `"by":6`, `extrapolated along "on", bool`},
		{"pos.x", `"by":2`, `"by":7`, `extrapolated along "id", uint`},
		{"pos.x", `"by":2`, `"by":8`, `extrapolated along "mine", which is the owner's alone`},
		{"pos.x", `"by2":3`, `"by2":8`, `extrapolated along "mine", which is the owner's alone`},
		{"pos.x", `"by2":3`, `"by2":4`, `extrapolated along "yaw", which is extrapolated itself`},
		{"pos.x", `"by2":3`, `"by2":99`, "extrapolated along field 99, which is no column"},
		{"pos.x", `"angle":4`, `"angle":5`, `field "spin" is a body's angle for a field of kind float`},
		{"pos.x", `"angle":4`, `"angle":9`, "extrapolated along field 9, which is no column"},
		{"pos.x", `"angle":4,`, ``, "a side of a body without an angle"},
		{"pos.y", `"side":1`, `"side":2`, "side 2 of a body"},
		{"pos.x", `"mul":349525`, `"mul":0`, "extrapolated by 0 / 2^27"},
		{"pos.x", `"mul":349525`, `"mul":524288`, "extrapolated by 524288 / 2^27"},
		{"pos.x", `"shift":27`, `"shift":0`, "extrapolated by 349525 / 2^0"},
		{"pos.x", `"shift":27`, `"shift":61`, "extrapolated by 349525 / 2^61"},
		{"vel.x", `"bits":6,"min":-16,"max":16`, `"bits":22,"min":-1048576,"max":1048575`, `extrapolated along "vel.x", float from -1048576 to 1048575`},
		{"yaw", `"min":0`, `"min":1`, "an angle of 12 bits from 1"},
		{"yaw", `"bits":12`, `"bits":11`, "in 11 bits"},
		{"yaw", `"by":5`, `"by":4`, `extrapolated along "yaw", which is extrapolated itself`},
		{"on", `"q":1`, `"q":1,"codes":[0,0,0,0]`, "a number has codes unless it has one bit"},
		{"on", `"q":1`, `"q":1,"lod":[0,1,1,1]`, "lod, tolerance or extrapolation of a bool"},
		{"on", `"q":1`, `"q":1,"ahead":{"by":2,"mul":1,"shift":1}`, "lod, tolerance or extrapolation of a bool"},
		{"spin", `"bits":6,"min":-30,"max":30,"q":0.1,"pose":true,"codes":[9,9,9,9]`, `"bits":1,"min":0,"max":1,"q":0.1,"ahead":{"by":2,"mul":1,"shift":1}`, "extrapolated"},
		{"id", `"q":1`, `"q":1,"tolq":3`, "lod, tolerance or extrapolation of a uint up to 4294967295"},
		{"id", `"max":4294967295`, `"max":4294967296`, "range 0 to 4294967296"},
		{"mine", `"owner":true,`, ``, ""},
		{"id", `"q":1`, `"q":1,"owner":true`, ""},
		{"on", `"q":1`, `"q":1,"owner":true`, `field "id" stands in the wrong place`},
		{"name", `"max":8`, `"max":99`, "a text of 99 bytes with a length of 4 bits"},
		{"name", `"bits":4,"min":0,"max":8`, `"bits":11,"min":0,"max":1025`, "a text of 1025 bytes"},
		{"name", `"q":1`, `"q":1,"tolq":1`, "a text has no pose"},
		{"n", `"q":1`, `"q":1,"owner":true`, "no field of an event is an owner's"},
		{"n", `"q":1`, `"q":1,"codes":[1,1,1,1]`, ""},
	} {
		at := 0
		if c.field != "" {
			at = strings.Index(good, `"name":"`+c.field+`"`)
		}
		if at < 0 || !strings.Contains(good[at:], c.old) {
			t.Fatalf("%s has no %s in %s", c.field, c.old, good)
		}
		bad := good[:at] + strings.Replace(good[at:], c.old, c.new, 1)
		switch err := check(bad); {
		case c.want == "" && err != nil:
			t.Errorf("%s %s: %v", c.field, c.new, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s %s instead of %s: %v, want %q in it", c.field, c.new, c.old, err, c.want)
		}
		if _, err := NewDecoder(json.RawMessage(bad)); (err == nil) != (c.want == "") {
			t.Errorf("NewDecoder with %s %s: %v", c.field, c.new, err)
		}
	}
	field := func(f string) string {
		return `{"version":2,"hz":60,"types":[{"name":"a","fields":[` + f + `]}],"events":[]}`
	}
	for _, s := range []string{
		``, `[]`, `{}`, `{"version":1}`,
		`{"version":2,"hz":60,"types":[` + strings.Repeat(`{},`, 64) + `{}]}`,
		field(`{"name":"x","kind":"sound","bits":1,"q":1}`),
		field(`{"name":"x","kind":"uint","bits":33,"q":1}`),
		field(`{"name":"x","kind":"uint","bits":0,"q":1}`),
		field(`{"name":"x","kind":"uint","bits":8,"q":0}`),
		field(`{"name":"x","kind":"uint","bits":8,"q":1,"min":99999999999}`),
		field(`{"name":"x","kind":"text","bits":4,"q":1,"max":99}`),
		field(`{"name":"x","kind":"uint","bits":8,"max":255,"codes":[1,1,1,1],"q":1,"owner":true},{"name":"y","kind":"uint","bits":8,"max":255,"codes":[1,1,1,1],"q":1}`),
		field(strings.Repeat(`{"name":"x","kind":"uint","bits":8,"max":255,"codes":[1,1,1,1],"q":1},`, 32) + `{"name":"x","kind":"uint","bits":8,"max":255,"codes":[1,1,1,1],"q":1}`),
	} {
		if _, err := NewDecoder(json.RawMessage(s)); err == nil {
			t.Errorf("taken: %.120s", s)
		}
	}
	if _, err := NewDecoder(json.RawMessage(field(`{"name":"x","kind":"uint","bits":8,"max":255,"codes":[1,1,1,1],"q":1}`))); err != nil {
		t.Error(err)
	}
}

// FuzzSchema feeds a decoder with schemas: whatever comes, it says no or works.
func FuzzSchema(f *testing.F) {
	f.Add(aBody(f))
	f.Add(`{"version":2,"hz":60,"types":[{"name":"a","fields":[{"name":"x","kind":"uint","bits":8,"max":255,"q":1,"codes":[1,2,3,4]}]}],"events":[]}`)
	f.Add(`{"version":2,"types":[{"fields":[{"ahead":{"by":3}}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := NewDecoder(json.RawMessage(text))
		if (d == nil) != (err != nil) {
			t.Fatalf("%v with %v", d, err)
		}
		var s schema
		if json.Unmarshal([]byte(text), &s) != nil || s.check() != nil {
			return
		}
		for _, typ := range slices.Concat(s.Types, s.Events) {
			l := newLayout(typ)
			for i, c := range l.col {
				if s := c.lod[rings-1]; c.angle {
					if y := wire.RoundAngle(c.max, uint(s)); y < 0 || y > c.max {
						t.Fatalf("angle %d rounded by %d is %d", c.max, s, y)
					}
				} else if f := &typ.Fields[i]; f.ordered() {
					for _, x := range []int32{c.min, c.max, c.def} {
						if y := wire.Round(x, uint(s), c.min, c.max); y < c.min || y > c.max {
							t.Fatalf("%d rounded by %d is %d, in %d to %d", x, s, y, c.min, c.max)
						}
					}
				}
				if a := c.ahead; a != nil {
					if l.col[a.By].ahead != nil || a.Angle != nil && (l.col[a.By2].ahead != nil || !l.col[*a.Angle].angle) {
						t.Fatal("extrapolated along what is extrapolated")
					}
				}
			}
		}
	})
}
