package bots

import (
	"bytes"
	"errors"
	"fmt"

	gobwas "github.com/gobwas/ws"
	"github.com/gobwas/ws/wsflate"
)

// Messages that the server compresses (permessage-deflate, RFC 7692), each for itself. What a bot sends is short and is not
// compressed, which the extension leaves to each end.

// offer is what a bot asks for: neither end keeps a window from message to message.
var offer = wsflate.Parameters{ServerNoContextTakeover: true, ClientNoContextTakeover: true}

var errOffer = errors.New("bots: the server compresses in a way that was not offered")

// agreed reports whether the server took the offer.
func agreed(hs gobwas.Handshake) (bool, error) {
	for _, o := range hs.Extensions {
		var p wsflate.Parameters
		if err := p.Parse(o); err != nil {
			return false, fmt.Errorf("%w: %w", errOffer, err)
		}
		if len(hs.Extensions) != 1 || !bytes.Equal(o.Name, wsflate.ExtensionNameBytes) || !p.ServerNoContextTakeover || p.ClientMaxWindowBits.Defined() {
			return false, errOffer
		}
	}
	return len(hs.Extensions) == 1, nil
}
