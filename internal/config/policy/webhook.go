package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/config"
)

const (
	callTimeout = 30 * time.Second
	maxAnswer   = 16 << 20
)

// webhook is a policy behind a URL. Body and answer are JSON texts that hold
// JSON: the protocol encodes twice.
type webhook struct {
	url    string
	client *http.Client
}

type question struct {
	Task             string   `json:"task"`            // YAML
	Config           string   `json:"skypilot_config"` // YAML
	Name             string   `json:"request_name"`
	Options          *Options `json:"request_options"`
	AtClientSide     bool     `json:"at_client_side"`
	User             string   `json:"user"` // YAML, "" when unknown
	ClientAPIVersion *int     `json:"client_api_version"`
	ClientVersion    *string  `json:"client_version"`
}

type answer struct {
	Task   *string `json:"task"`
	Config *string `json:"skypilot_config"`
}

// shown is the URL without its password and query, for messages.
func (w *webhook) shown() string {
	u, err := url.Parse(w.url)
	if err != nil {
		return "at an unreadable URL"
	}
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}

func (w *webhook) task(ctx context.Context, r Request, yaml string, values map[string]any) (string, map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, err := w.post(ctx, r, yaml, values)
	if err != nil {
		return "", nil, err
	}
	task, changed, err := decode(text)
	if err != nil {
		return "", nil, &CallError{w.shown(), fmt.Errorf("its answer cannot be read: %w", err)}
	}
	return task, changed, nil
}

func (w *webhook) post(ctx context.Context, r Request, yaml string, values map[string]any) ([]byte, error) {
	body, err := encode(r, yaml, values)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return nil, &CallError{w.shown(), errors.New("its URL is not valid")}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) { // it repeats the URL, password and all
			err = at.Err
		}
		return nil, &CallError{w.shown(), err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, &CallError{w.shown(), err}
	case resp.StatusCode == http.StatusBadRequest:
		return nil, &RejectedError{w.shown(), strings.TrimSpace(string(text))}
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, &CallError{w.shown(), fmt.Errorf("HTTP status %s: %s", resp.Status, firstLine(text))}
	case len(text) > maxAnswer:
		return nil, &CallError{w.shown(), fmt.Errorf("its answer is larger than %d MiB", maxAnswer>>20)}
	}
	return text, nil
}

func encode(r Request, yaml string, values map[string]any) ([]byte, error) {
	q := question{
		Task: yaml, Config: string(config.EncodeYAML(values)), Name: r.Name, Options: r.Options,
		AtClientSide: r.AtClientSide, ClientAPIVersion: r.ClientAPIVersion, ClientVersion: r.ClientVersion,
	}
	if r.User != nil {
		q.User = string(config.EncodeYAML(map[string]any{"id": r.User.ID, "name": r.User.Name}))
	}
	inner, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(string(inner))
}

func decode(text []byte) (task string, values map[string]any, err error) {
	var inner string
	if err := json.Unmarshal(text, &inner); err != nil {
		inner = string(text) // encoded once only: what it says is clear all the same
	}
	var a answer
	if err := json.Unmarshal([]byte(inner), &a); err != nil {
		return "", nil, err
	}
	if a.Task == nil || a.Config == nil {
		return "", nil, errors.New("task or skypilot_config is missing")
	}
	v, err := config.DecodeYAML([]byte(*a.Config), "skypilot_config")
	if err != nil {
		return "", nil, err
	}
	values, ok := v.(map[string]any)
	if v != nil && !ok {
		return "", nil, errors.New("skypilot_config is not a section")
	}
	if values == nil {
		values = map[string]any{}
	}
	return *a.Task, values, nil
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line[:min(len(line), 300)]
}
