package snap

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func TestTypeScript(t *testing.T) {
	type inner struct {
		Deep vec `drumline:"q=0.1,range=-0.3:100"`
		On   bool
	}
	type car struct {
		Pos  vec     `drumline:"q=0.1,range=-100:100,move=Vel"`
		Vel  vec     `drumline:"q=0.5,range=-8:8,frame=body"`
		Yaw  float64 `drumline:"angle,turn=Spin" json:"type"`
		Spin float32 `drumline:"q=0.1,range=-3:3"`
		In   inner   `json:"größe"`
		Key  bool    `drumline:"owner"`
		Fuel uint8   `drumline:"owner"`
		Of   EntityID
		Name string `drumline:"once,max=8"`
		Note string `drumline:"once,max=9,owner"`
	}
	type empty struct{}
	f := schema{Hz: 60}
	var errs []error
	for _, d := range []described{describe("fast-car", reflect.TypeFor[car](), false, 60), describe("world", reflect.TypeFor[empty](), false, 60),
		describe("fastCar", reflect.TypeFor[empty](), false, 60)} {
		f.Types, errs = append(f.Types, d.schema), append(errs, d.errs...)
	}
	for _, d := range []described{describe("fast_car", reflect.TypeFor[bang](), true, 60), describe("events", reflect.TypeFor[empty](), true, 60),
		describe("fastCar", reflect.TypeFor[empty](), true, 60)} {
		f.Events, errs = append(f.Events, d.schema), append(errs, d.errs...)
	}
	if errs != nil {
		t.Fatal(errors.Join(errs...))
	}
	got, err := TypeScript(f.seal(), "World")
	if err != nil {
		t.Fatal(err)
	}
	want := `/** An entity of type "fast-car". */
export interface FastCar {
  readonly id: number;
  readonly type: "fast-car";
  /** It is the one that the own seat plays. */
  readonly own: boolean;
  /** Once it has left: it is no more, else it went out of sight. */
  readonly gone: boolean;
  readonly pos: {
    /** -100 to 100 in steps of 0.1; moves along vel.x. */
    readonly x: number;
    /** -100 to 100 in steps of 0.1; moves along vel.y. */
    readonly y: number;
  };
  readonly vel: {
    /** -8 to 8 in steps of 0.5; seen from a body that looks along type. */
    readonly x: number;
    /** -8 to 8 in steps of 0.5; seen from a body that looks along type. */
    readonly y: number;
  };
  /** Radians; turns with spin. */
  readonly type_: number;
  /** -3 to 3 in steps of 0.1. */
  readonly spin: number;
  readonly "größe": {
    readonly deep: {
      /** -0.3 to 100 in steps of 0.1. */
      readonly x: number;
      /** -0.3 to 100 in steps of 0.1. */
      readonly y: number;
    };
    readonly on: boolean;
  };
  /** Whole, 0 to 4294967295. */
  readonly of: number;
  /** False unless own. */
  readonly key: boolean;
  /** Whole, 0 to 255; 0 unless own. */
  readonly fuel: number;
  /** At most 8 bytes. */
  readonly name: string;
  /** At most 9 bytes; empty unless own. */
  readonly note: string;
}

/** An entity of type "world". */
export interface WorldEntity {
  readonly id: number;
  readonly type: "world";
  /** It is the one that the own seat plays. */
  readonly own: boolean;
  /** Once it has left: it is no more, else it went out of sight. */
  readonly gone: boolean;
}

/** An entity of type "fastCar". */
export interface FastCarEntity {
  readonly id: number;
  readonly type: "fastCar";
  /** It is the one that the own seat plays. */
  readonly own: boolean;
  /** Once it has left: it is no more, else it went out of sight. */
  readonly gone: boolean;
}

/** The entity types by name. */
export interface Entities {
  "fast-car": FastCar;
  world: WorldEntity;
  fastCar: FastCarEntity;
}

/** An event of type "fast_car". */
export interface FastCarEvent {
  /** Whole, 0 to 4294967295. */
  readonly n: number;
}

/** An event of type "events". */
export interface EventsEvent {
}

/** An event of type "fastCar". */
export interface FastCarEvent2 {
}

/** The event types by name. */
export interface Events {
  fast_car: FastCarEvent;
  events: EventsEvent;
  fastCar: FastCarEvent2;
}
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A schema from outside cannot leave its comment or its string.
func TestTypeScriptOfStrangeNames(t *testing.T) {
	s := schema{Version: schemaVersion, Hz: 60, Types: []typeSchema{{Name: "*/ 9\"\n", Fields: []fieldSchema{
		{Name: "a*/\n\"", Kind: kindUint, Bits: 8, Max: 255, Q: 1, Move: "*/", Codes: &[rings]uint8{}}}}, {Name: ""}}}
	got, err := TypeScript(mustJSON(&s))
	if err != nil {
		t.Fatal(err)
	}
	// Of a comment with a string in it only the end counts: both must end where they seem to.
	for _, line := range strings.Split(got, "\n") {
		if at := strings.Index(line, "*/"); strings.HasPrefix(strings.TrimSpace(line), "/*") && at != len(line)-2 {
			t.Errorf("a comment goes on behind its end: %q", line)
		}
	}
	for _, want := range []string{"interface Type9 {", "interface Type {", `readonly "a*/\n\"": number;`, `/** Whole, 0 to 255; moves along * /. */`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	for _, bad := range []string{"", "{}", `{"version":1}`} {
		if _, err := TypeScript(json.RawMessage(bad)); err == nil {
			t.Errorf("taken: %s", bad)
		}
	}
}

// The names that the library takes for itself are written down twice.
func TestNamesOfTheLibrary(t *testing.T) {
	src, err := os.ReadFile("../../web/src/view.ts")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{"ENTITY_NAMES": entityNames, "EVENT_NAMES": eventNames} {
		m := regexp.MustCompile(name + `: readonly string\[\] = (\[.*\]);`).FindSubmatch(src)
		if m == nil {
			t.Fatalf("view.ts has no %s", name)
		}
		var got []string
		if err := json.Unmarshal(m[1], &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %s, here %v (%v)", name, m[1], want, err)
		}
	}
}
