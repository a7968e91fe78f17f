package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestParseExpectations(t *testing.T) {
	all, err := ParseExpectations(" beat.skipped==0, beat.interval_ms.p99 <= 17.2,a!=-1,b<1e3,c>.5,d>=2,, ")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(all); got != "[beat.skipped==0 beat.interval_ms.p99<=17.2 a!=-1 b<1000 c>0.5 d>=2]" {
		t.Error(got)
	}
	if all, err := ParseExpectations(""); len(all) != 0 || err != nil {
		t.Error(all, err)
	}
	for _, bad := range []string{"beat", "beat.skipped", "==0", "a=0", "a=<0", "a!0", "a==", "a==b", "a==0x", "a b==0", "a===0", "a==NaN", "a<>1"} {
		if all, err := ParseExpectations(bad); err == nil {
			t.Errorf("%q is taken as %v", bad, all)
		} else if !strings.Contains(err.Error(), "want") && !strings.Contains(err.Error(), "no figure") {
			t.Errorf("%q: %v does not say what is wanted", bad, err)
		}
	}
}

func TestCheck(t *testing.T) {
	r := New(measured())
	for _, c := range []struct {
		list string
		ok   bool
		out  string
	}{
		{"", true, ""},
		{"beat.skipped==2", true, "PASS beat.skipped==2: it is 2\n"},
		{"beat.skipped==0", false, "FAIL beat.skipped==0: it is 2\n"},
		{"beat.interval_ms.p99<=17.2,beat.interval_ms.p99<16.77", false, "PASS beat.interval_ms.p99<=17.2: it is 16.77\nFAIL beat.interval_ms.p99<16.77: it is 16.77\n"},
		{"bots.joined>=207,bots.joined>207", false, "PASS bots.joined>=207: it is 207\nFAIL bots.joined>207: it is 207\n"},
		{"bots.lost!=0", true, "PASS bots.lost!=0: it is 1\n"},
		// Reasons that were not counted are 0; words that are no reasons do not exist.
		{"bots.refused.room_full==1,bots.refused.server_full==0,bots.closed.stalled==0", true, "PASS bots.refused.room_full==1: it is 1\nPASS bots.refused.server_full==0: it is 0\nPASS bots.closed.stalled==0: it is 0\n"},
		{"bots.refused.rom_full==0", false, "FAIL bots.refused.rom_full==0: there is no such figure\n"},
		{"snapshot.skipped.encoder==0,snapshot.skipped.room_full==0", false, "PASS snapshot.skipped.encoder==0: it is 0\nFAIL snapshot.skipped.room_full==0: there is no such figure; there is bots.refused.room_full\n"},
		{"inputs.unused.input_late<=7,inputs.unused.input_future==0,inputs.unused.stalled==0", false, "PASS inputs.unused.input_late<=7: it is 7\nPASS inputs.unused.input_future==0: it is 0\nFAIL inputs.unused.stalled==0: there is no such figure; there is pause.closed.stalled\n"},
		{"pause.closed.stalled==8,pause.open==0", true, "PASS pause.closed.stalled==8: it is 8\nPASS pause.open==0: it is 0\n"},
		{"skipped==0", false, "FAIL skipped==0: there is no such figure; there is beat.skipped\n"},
		{"machine.cpu==0", false, "FAIL machine.cpu==0: there is no such figure\n"},
	} {
		var b bytes.Buffer
		ok, err := Check(&b, r, c.list)
		if err != nil || ok != c.ok || b.String() != c.out {
			t.Errorf("%q: %v, %v\n%swant %v\n%s", c.list, ok, err, b.String(), c.ok, c.out)
		}
	}
	if _, err := Check(&bytes.Buffer{}, r, "beat"); err == nil {
		t.Error("a list that cannot be read is taken")
	}
	// What the server did not tell cannot pass.
	m := measured()
	m.Window = nil
	var b bytes.Buffer
	if ok, err := Check(&b, New(m), "beat.skipped==0,snapshot.skipped.busy==0"); ok || err != nil || strings.Contains(b.String(), "PASS") {
		t.Errorf("%v, %v, %s", ok, err, b.String())
	}
}

func FuzzParseExpectations(f *testing.F) {
	for _, s := range []string{"beat.skipped==0,b<=1.5", "a!=-1e3", "==", "a==,", ",,", "a>=Inf"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		all, err := ParseExpectations(s)
		if err != nil {
			return
		}
		var again []string
		for _, e := range all {
			again = append(again, e.String())
		}
		same, err := ParseExpectations(strings.Join(again, ","))
		if err != nil || fmt.Sprint(same) != fmt.Sprint(all) {
			t.Errorf("%q: %v, read again %v, %v", s, all, same, err)
		}
	})
}
