package bots

import (
	"encoding/json"

	"github.com/drumline-engine/drumline/feed"
	"github.com/drumline-engine/drumline/feed/snap"
)

// defaultDecoders are those of this module's feeds, by kind.
func defaultDecoders() map[string]NewDecoder {
	return map[string]NewDecoder{
		"snap": func(schema json.RawMessage) (feed.Decoder, error) { return snap.NewDecoder(schema) },
	}
}
