package ws

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/drumline-engine/drumline"
)

type handler struct {
	*settings
	accept func(drumline.Link, drumline.Peer) Receiver
}

// ServeHTTP checks a request, answers it, starts the link's reader and returns: what net/http holds for the request, some 10 KiB
// of stack and buffers, dies with this call.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	peer := drumline.Peer{Addr: h.peerAddr(r), Transport: "ws"}
	if status, text := checkUpgrade(w.Header(), r); status != 0 {
		http.Error(w, text, status)
		return
	}
	if !h.origins.allow(r) {
		if h.Refused != nil {
			h.Refused(peer, drumline.ReasonOrigin)
		}
		http.Error(w, "pages of this origin may not connect", http.StatusForbidden)
		return
	}
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "this connection cannot be upgraded", http.StatusInternalServerError)
		return
	}
	// The server's deadlines were for requests.
	_ = nc.SetDeadline(time.Time{})
	_ = nc.SetWriteDeadline(time.Now().Add(min(h.WriteTimeout, handshakeTimeout)))
	answer := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
		acceptKey(r.Header.Get("Sec-WebSocket-Key")) + "\r\n"
	pack := h.Deflate == DeflateOn && acceptDeflate(r.Header["Sec-Websocket-Extensions"])
	if pack {
		answer += "Sec-WebSocket-Extensions: " + deflateAnswer + "\r\n"
	}
	answer += "\r\n"
	if _, err := nc.Write([]byte(answer)); err != nil {
		_ = nc.Close()
		return
	}
	_ = nc.SetWriteDeadline(time.Time{})
	// A client need not wait for the answer before its first frame.
	var early []byte
	if n := rw.Reader.Buffered(); n > 0 {
		b, _ := rw.Reader.Peek(n)
		early = bytes.Clone(b)
	}
	go newConn(nc, h.settings, pack).run(h.accept, peer, early)
}

// checkUpgrade returns the status and text to refuse r with, or 0. It sets the headers that go with the status.
func checkUpgrade(header http.Header, r *http.Request) (status int, text string) {
	switch {
	case r.ProtoMajor != 1 || r.ProtoMinor < 1:
		return http.StatusUpgradeRequired, "a WebSocket needs HTTP/1.1, this request came by " + r.Proto
	case r.Method != http.MethodGet:
		header.Set("Allow", http.MethodGet)
		return http.StatusMethodNotAllowed, "a WebSocket begins with GET"
	case !hasToken(r.Header["Upgrade"], "websocket") || !hasToken(r.Header["Connection"], "upgrade"):
		header.Set("Upgrade", "websocket")
		header.Set("Connection", "Upgrade")
		return http.StatusUpgradeRequired, "this address takes WebSockets only"
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		header.Set("Sec-WebSocket-Version", "13")
		return http.StatusUpgradeRequired, "WebSocket version 13 is needed"
	case r.ContentLength != 0:
		// Its bytes would be taken for frames. Without close, net/http would wait for them before it answers.
		header.Set("Connection", "close")
		return http.StatusBadRequest, "a WebSocket request has no body"
	}
	if keys := r.Header["Sec-Websocket-Key"]; len(keys) != 1 {
		return http.StatusBadRequest, "Sec-WebSocket-Key must be given once"
	} else if key, err := base64.StdEncoding.DecodeString(keys[0]); err != nil || len(key) != 16 {
		return http.StatusBadRequest, "Sec-WebSocket-Key is not 16 bytes in base64"
	}
	return 0, ""
}

// acceptKey answers a client's key; RFC 6455, 4.2.2.
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// hasToken reports whether one of the comma-separated lists holds token, in any case.
func hasToken(lists []string, token string) bool {
	for _, list := range lists {
		for item := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(item), token) {
				return true
			}
		}
	}
	return false
}
