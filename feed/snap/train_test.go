package snap

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/drumline-engine/drumline/feed"
)

// walker moves by leaps, so that the default codes of its place are poor ones.
type walker struct {
	X, Y float64 `drumline:"q=0.01,range=0:1000,place"`
	HP   uint8
	On   bool
	Name string `drumline:"once,max=8"`
	Idle uint16
}

// walk plays a small world with these codes and returns its schema; t, if not nil, is told what is written.
func walk(tb testing.TB, codes string, t *Trainer) (schema json.RawMessage, written int) {
	tb.Helper()
	f := New(Options{Codes: codes})
	if t != nil {
		f.Tune(feed.Tuning{Trace: t})
	}
	set := Add[walker](f, "walker")
	if err := f.Err(); err != nil {
		tb.Fatal(err)
	}
	for i := range 20 {
		set.Spawn(walker{X: 500, Y: 500, HP: uint8(i)})
	}
	s := f.Join(0, feed.Ordered)
	for tick := range feed.Tick(100) {
		for id, w := range set.All() {
			n := uint64(tick)*2654435761 ^ uint64(id)*40503
			w.X, w.Y = 500+float64(n%97)/10, 500+float64(n%31)
			if n%7 == 0 {
				w.HP++
			}
		}
		frame := f.Capture(tick + 1)
		b, w := s.Append(nil, frame, math.MaxInt32)
		frame.Release()
		s.Delivered(w.Receipt)
		written += len(b)
	}
	s.Close()
	return f.Info().Schema, written
}

func sums(fields []Training) (numbers, now, best uint64) {
	for _, f := range fields {
		numbers, now, best = numbers+f.Numbers, now+f.NowBits, best+f.BestBits
	}
	return numbers, now, best
}

// What a trainer says would be saved is saved when its text is pasted back, to the bit, and then there is nothing more to find.
func TestTrainer(t *testing.T) {
	var before Trainer
	schema, bytes := walk(t, "", &before)
	fields, codes, err := before.Choose(schema, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range fields {
		names = append(names, f.Field)
		if f.BestBits > f.NowBits || (f.Best == f.Now) != (f.BestBits == f.NowBits) {
			t.Errorf("%+v", f)
		}
		if f.Numbers == 0 && f.Best != f.Now {
			t.Errorf("nothing is known about %s, and it gets %v", f.Field, f.Best)
		}
	}
	if got := strings.Join(names, " "); got != "walker.hp walker.idle walker.x walker.y" {
		t.Errorf("fields %s", got)
	}
	numbers, now, best := sums(fields)
	if numbers == 0 || best >= now || !strings.Contains(codes, "walker.x=") {
		t.Fatalf("%d numbers, %d bits, %d with %q", numbers, now, best, codes)
	}

	var after Trainer
	schema, fewer := walk(t, codes, &after)
	again, same, err := after.Choose(schema, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, then, _ := sums(again)
	if n != numbers || then != best || same != codes {
		t.Errorf("%d numbers in %d bits with %q, want %d in %d with %q", n, then, same, numbers, best, codes)
	}
	for i, f := range again {
		if f.Now != fields[i].Best || f.Best != f.Now {
			t.Errorf("%s is %v, want %v, and should be %v", f.Field, f.Now, fields[i].Best, f.Best)
		}
	}
	// Each of the 100 packets ends at a whole byte.
	if saved := bytes - fewer; math.Abs(float64(saved)-float64(now-best)/8) > 100 {
		t.Errorf("%d bytes fewer, want about %d", saved, (now-best)/8)
	}
	if plain, b := walk(t, codes, nil); string(plain) != string(schema) || b != fewer {
		t.Error("a tracer changes what is sent")
	}

	after.Reset()
	if again, same, err = after.Choose(schema, 0); err != nil || same != codes {
		t.Errorf("knowing nothing: %q, %v", same, err)
	} else if n, _, _ := sums(again); n != 0 {
		t.Errorf("%d numbers after Reset", n)
	}
}

func TestTrainerChoice(t *testing.T) {
	schema, _ := walk(t, "walker.hp=14 walker.idle=3", nil)
	var tr Trainer
	tell := func(field string, ring int, u uint32, n int) {
		for range n {
			tr.Residual(field, ring, u)
		}
	}
	tell("walker.x", 1, 0, 100) // one bit each; code 9, the one of now, has the same
	tell("walker.y", 1, 5, 50)
	tell("walker.y", 3, 100, 50)
	tell("walker.hp", 0, 0, 991) // best with any flag: as it is
	tell("walker.hp", 0, 1, 9)
	tell("cat.x", 0, 77, 1000) // of another feed
	for least, want := range map[float64]string{
		0:   "walker.hp=8 walker.idle=3 walker.y=1,1,1,7",
		.03: "walker.hp=8 walker.idle=3 walker.y=1,1,1,7",
		.9:  "walker.hp=14 walker.idle=3",
	} {
		fields, codes, err := tr.Choose(schema, least)
		if err != nil || codes != want {
			t.Errorf("least %v: %q, %v, want %q", least, codes, err, want)
		}
		if n, _, _ := sums(fields); n != 1200 || len(fields) != 4 {
			t.Errorf("%d numbers of %d fields", n, len(fields))
		}
	}
	for _, bad := range []string{"", "{", `{"version":1}`, `{"version":2,"types":[{"name":"a","fields":[{"name":"b","bits":40}]}]}`} {
		if _, _, err := tr.Choose(json.RawMessage(bad), 0); err == nil {
			t.Errorf("%q is taken for a schema", bad)
		}
	}
	if s := (CodeSet{8, 8, 8, 8}).String() + " " + (CodeSet{8, 8, 8, 7}).String(); s != "8 8,8,8,7" {
		t.Error(s)
	}
}
