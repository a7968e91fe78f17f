package snap

import (
	"errors"
	"reflect"
	"testing"
)

func TestCodes(t *testing.T) {
	type car struct {
		Pos  vec `drumline:"q=0.1,range=-100:100,move=Vel,lod"`
		Vel  vec `drumline:"q=0.5,range=-8:8"`
		HP   uint8
		On   bool
		Name string `drumline:"once,max=8"`
	}
	d := describe("car", reflect.TypeFor[car](), false, 60)
	if d.errs != nil {
		t.Fatal(d.errs)
	}
	codes := func(text string) (*typeSchema, string) {
		b, errs := parseCodes(text)
		ts := d.schema
		ts.Fields = append([]fieldSchema(nil), ts.Fields...)
		errs = append(errs, b.apply(&ts)...)
		if err := errors.Join(append(errs, b.rest()...)...); err != nil {
			return &ts, err.Error()
		}
		return &ts, ""
	}
	ts, err := codes(" car.pos.x=2,1,1,0\n\tcar.hp=15 ")
	if err != "" {
		t.Fatal(err)
	}
	for i, want := range map[int][rings]uint8{0: {2, 1, 1, 0}, 4: {15, 15, 15, 15}, 1: {8, 8, 8, 8}} {
		if got := *ts.Fields[i].Codes; got != want {
			t.Errorf("%s has %v, want %v", ts.Fields[i].Name, got, want)
		}
	}
	if got := *d.schema.Fields[0].Codes; got != [rings]uint8{8, 8, 8, 8} {
		t.Errorf("the declared type has changed too: %v", got)
	}
	if _, err := codes(""); err != "" {
		t.Error(err)
	}
	_, err = codes("car.hp=16 car.hp=-1 car.hp=1,2 car.hp=1,2,3,4,5 car.hp=x car.hp= car.hp car=1 .hp=1 car.=1 car.hp=3 car.hp=4 " +
		"cat.hp=3 car.hq=3 car.on=3 car.name=3")
	const want = `snap: Options.Codes: "car.hp=16": want codes 0 to 15
snap: Options.Codes: "car.hp=-1": want codes 0 to 15
snap: Options.Codes: "car.hp=1,2": want one code for all rings, or 4
snap: Options.Codes: "car.hp=1,2,3,4,5": want one code for all rings, or 4
snap: Options.Codes: "car.hp=x": want codes 0 to 15
snap: Options.Codes: "car.hp=": want codes 0 to 15
snap: Options.Codes: "car.hp": want type.field=code, such as player.pos.x=2,1,1,0
snap: Options.Codes: "car=1": want type.field=code, such as player.pos.x=2,1,1,0
snap: Options.Codes: ".hp=1": want type.field=code, such as player.pos.x=2,1,1,0
snap: Options.Codes: "car.=1": want type.field=code, such as player.pos.x=2,1,1,0
snap: Options.Codes: "car.hp=4": the field has codes already
snap: Options.Codes: "car.hq=3": car has no such field; those with codes are pos.x, pos.y, vel.x, vel.y, hp
snap: Options.Codes: "car.on=3": a text or a field of one bit has no codes
snap: Options.Codes: "car.name=3": a text or a field of one bit has no codes
snap: Options.Codes: "cat.hp=3": there is no entity type "cat"`
	if err != want {
		t.Errorf("got\n%s\nwant\n%s", err, want)
	}
	// A type with mistakes has no fields; what the codes say of them is not another mistake.
	b, _ := parseCodes("car.hp=3")
	if errs := append(b.apply(&typeSchema{Name: "car"}), b.rest()...); errs != nil {
		t.Error(errs)
	}
}

func TestDefaultCodesAreCodes(t *testing.T) {
	for bits := uint(1); bits <= 32; bits++ {
		for _, lod := range [][rings]uint8{{}, defaultLod, {0, 31, 31, 31}} {
			ts := typeSchema{Fields: []fieldSchema{{Kind: kindInt, Bits: bits, Lod: &lod}, {Kind: kindInt, Bits: bits, Pose: true, Lod: &lod},
				{Kind: kindInt, Bits: bits, Ahead: &ahead{By: 0}, Lod: &lod}, {Kind: kindText, Bits: bits}}}
			setDefaultCodes(&ts)
			for _, f := range ts.Fields {
				if (f.Codes == nil) != (f.Kind == kindText || bits == 1) {
					t.Fatalf("%d bits: codes %v of kind %s", bits, f.Codes, kindNames[f.Kind])
				}
				for r := 1; f.Codes != nil && r < rings; r++ {
					if f.Codes[r] >= numCodes || f.Codes[r] > f.Codes[r-1] {
						t.Fatalf("%d bits: codes %v", bits, f.Codes)
					}
				}
			}
		}
	}
}
