package snap

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// TypeScript returns what a page sees of a feed's entities and events as TypeScript: an exported interface for each type, named
// like it ("fire-ball" becomes FireBall), and the interfaces Entities and Events, which map the types' names to them. An event
// type that is called like an entity type becomes FireBallEvent. So do types that would be called Entities, Events or one of
// reserved, which are the names that the caller's own part of the file has: an entity type becomes WorldEntity.
//
// from is the Schema of the feed's Info. Another version's is an error.
func TypeScript(from json.RawMessage, reserved ...string) (string, error) {
	var s schema
	if err := json.Unmarshal(from, &s); err != nil {
		return "", fmt.Errorf("snap: schema: %w", err)
	}
	if err := s.check(); err != nil {
		return "", fmt.Errorf("snap: schema: %w", err)
	}
	var b strings.Builder
	taken := slices.Concat(reserved, []string{"Entities", "Events"})
	for _, list := range []struct {
		types             []typeSchema
		word, suffix, all string
		own               []string // names of the library's
	}{
		{s.Types, "entity", "Entity", "Entities", entityNames},
		{s.Events, "event", "Event", "Events", eventNames},
	} {
		var index strings.Builder
		for _, t := range list.types {
			name := interfaceName(t.Name, list.suffix, taken)
			taken = append(taken, name)
			fmt.Fprintf(&index, "  %s: %s;\n", property(t.Name), name)
			fmt.Fprintf(&b, "/** An %s of type %s. */\nexport interface %s {\n", list.word, comment(strconv.Quote(t.Name)), name)
			if list.suffix == "Entity" {
				fmt.Fprintf(&b, "  readonly id: number;\n  readonly type: %s;\n  /** It is the one that the own seat plays. */\n  readonly own: boolean;\n"+
					"  /** Once it has left: it is no more, else it went out of sight. */\n  readonly gone: boolean;\n", quoted(t.Name))
			}
			writeFields(&b, t.Fields, "", "  ", list.own)
			b.WriteString("}\n\n")
		}
		fmt.Fprintf(&b, "/** The %s types by name. */\nexport interface %s {\n%s}\n\n", list.word, list.all, &index)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// The properties that the library's own objects have: ENTITY_NAMES and EVENT_NAMES of web/src/view.ts. A field of that name gets a
// "_" after it.
var (
	entityNames = []string{"id", "type", "own", "gone", "numbers", "texts", "constructor"}
	eventNames  = []string{"numbers", "texts", "constructor"}
)

// interfaceName is a type's name in TypeScript, none of taken.
func interfaceName(name, suffix string, taken []string) string {
	var b strings.Builder
	up := true
	for _, r := range name {
		switch {
		case r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r):
			up = true
			continue
		case up:
			r = unicode.ToUpper(r)
		}
		b.WriteRune(r)
		up = false
	}
	base := b.String()
	if base == "" || unicode.IsDigit(rune(base[0])) {
		base = "Type" + base
	}
	try := base
	for n := 1; slices.Contains(taken, try); n++ {
		if try = base + suffix; n > 1 {
			try = fmt.Sprint(base, suffix, n)
		}
	}
	return try
}

// writeFields writes the fields that begin with prefix: those of one struct, nested ones where the first of them stands.
func writeFields(b *strings.Builder, fields []fieldSchema, prefix, indent string, reserved []string) {
	done := map[string]bool{}
	for i := range fields {
		f := &fields[i]
		rest, ok := strings.CutPrefix(f.Name, prefix)
		if !ok {
			continue
		}
		name, _, nested := strings.Cut(rest, ".")
		key := name
		if prefix == "" && slices.Contains(reserved, name) {
			key += "_"
		}
		switch {
		case !nested:
			if s := f.comment(); s != "" {
				fmt.Fprintf(b, "%s/** %s */\n", indent, comment(s))
			}
			fmt.Fprintf(b, "%sreadonly %s: %s;\n", indent, property(key), f.pick("number", "boolean", "string"))
		case !done[name]:
			done[name] = true
			fmt.Fprintf(b, "%sreadonly %s: {\n", indent, property(key))
			writeFields(b, fields, prefix+name+".", indent+"  ", reserved)
			fmt.Fprintf(b, "%s};\n", indent)
		}
	}
}

// pick returns the word for the field's type in TypeScript.
func (f *fieldSchema) pick(number, boolean, text string) string {
	switch f.Kind {
	case kindBool:
		return boolean
	case kindText:
		return text
	}
	return number
}

// comment says what a field's values are.
func (f *fieldSchema) comment() string {
	var s []string
	switch f.Kind {
	case kindFloat:
		s = append(s, fmt.Sprintf("%.10g to %.10g in steps of %.10g", float64(f.Min)*f.Q, float64(f.Max)*f.Q, f.Q))
	case kindInt, kindUint:
		s = append(s, fmt.Sprintf("Whole, %d to %d", f.Min, f.Max))
	case kindAngle:
		s = append(s, "Radians")
	case kindText:
		s = append(s, fmt.Sprintf("At most %d bytes", f.Max))
	}
	if f.Move != "" {
		s = append(s, "moves along "+f.Move)
	}
	if f.Turn != "" {
		s = append(s, "turns with "+f.Turn)
	}
	if f.Frame != "" {
		s = append(s, "seen from a body that looks along "+f.Frame)
	}
	if f.Owner {
		s = append(s, f.pick("0", "false", "empty")+" unless own")
	}
	if s == nil {
		return ""
	}
	text := strings.Join(s, "; ") + "."
	return strings.ToUpper(text[:1]) + text[1:]
}

var identifierRE = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

// property writes a name as a key.
func property(name string) string {
	if identifierRE.MatchString(name) {
		return name
	}
	return quoted(name)
}

// quoted writes a string of TypeScript: JSON's are.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic("snap: " + err.Error()) // a string always marshals
	}
	return string(b)
}

// comment keeps a text within a comment of one line.
func comment(s string) string {
	return strings.NewReplacer("*/", "* /", "\n", " ", "\r", " ", "\u2028", " ", "\u2029", " ").Replace(s)
}
