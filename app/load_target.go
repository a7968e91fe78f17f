package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/drumline-engine/drumline"
	"github.com/drumline-engine/drumline/ops"
)

// The figures of the server under load, over HTTP or from this process.

// loadTarget is where the server tells its figures.
type loadTarget struct {
	url, token string
	own        bool
	srv        *drumline.Server // of this process; nil: at url
}

func (t *loadTarget) do(ctx context.Context, method string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, t.url+"/debug/window", nil)
	if err != nil {
		return nil, err
	}
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	// Not kept alive: a connection that idles is one more that the server's figures would show.
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, req.URL, err)
	}
	if res.StatusCode/100 != 2 {
		hint := ""
		if res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusUnauthorized {
			hint = "; it tells them to its own machine, or to who gives its token (--ops-token-file)"
		}
		return nil, fmt.Errorf("%s %s: %s%s", method, req.URL, res.Status, hint)
	}
	return b, nil
}

func (t *loadTarget) reset(ctx context.Context) error {
	if t.srv != nil {
		t.srv.ResetWindow()
		return nil
	}
	_, err := t.do(ctx, http.MethodPost)
	return err
}

// window returns what the server has measured. A server of this process tells nothing about processor and memory.
func (t *loadTarget) window(ctx context.Context) (*ops.DebugWindow, error) {
	if t.srv != nil {
		return &ops.DebugWindow{Window: t.srv.Window(), Stats: t.srv.Stats()}, nil
	}
	b, err := t.do(ctx, http.MethodGet)
	if err != nil {
		return nil, err
	}
	w := &ops.DebugWindow{}
	if err := json.Unmarshal(b, w); err != nil {
		return nil, fmt.Errorf("the server's figures: %w", err)
	}
	return w, nil
}
