package arena

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/drumline-engine/drumline/worlds/arena/move"
)

// web/rules.ts repeats what the page must know of the rules.
func TestPageKnowsTheRules(t *testing.T) {
	src, err := fs.ReadFile(files, "web/rules.ts")
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]any{
		"FIELD_SIZE": fieldSize, "PLAYER_RADIUS": playerRadius, "MONSTER_RADIUS": monsterRadius, "PLAYER_HP": playerHP,
		"MONSTER_HP": monsterHP, "RESPAWN_STEPS": respawnSteps, "SHIELD_STEPS": shieldSteps, "HZ": hz, "NOBODY": nobody,
		"MAX_SEATS": maxSeats, "HIT_NOTHING": hitNothing, "HIT_STONE": hitStone, "HIT_MONSTER": hitMonster, "HIT_PLAYER": hitPlayer,
	} {
		if want := fmt.Sprintf("export const %s = %v;", name, v); !strings.Contains(string(src), want) {
			t.Errorf("rules.ts lacks %q", want)
		}
	}
	_, list, _ := strings.Cut(string(src), "PILLARS")
	list, _, _ = strings.Cut(list, "];")
	var want []string
	for _, p := range move.Pillars {
		want = append(want, fmt.Sprintf("[%v, %v, %v]", p.X, p.Y, p.R))
	}
	got := regexp.MustCompile(`\[\d+, \d+, \d+\]`).FindAllString(list, -1)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("rules.ts has the pillars %v, the rules %v", got, want)
	}
}

// The page must work under a strict policy: no style or script in its markup.
func TestPageMarkup(t *testing.T) {
	body, err := fs.ReadFile(files, "web/body.html")
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`(?i)<script|<style|\sstyle=|\son\w+=`).Match(body) {
		t.Errorf("body.html has a script or style of its own: %s", body)
	}
	err = fs.WalkDir(files, "web", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".ts") {
			return err
		}
		src, err := fs.ReadFile(files, path)
		if bad := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|setAttribute\("style"|\beval\b|new Function`).Find(src); bad != nil {
			t.Errorf("%s uses %s", path, bad)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
