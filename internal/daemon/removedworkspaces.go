package daemon

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/workspaces"
)

// An administrator who edits the server's configuration by hand may take a workspace out
// of it in which something still lives. Its users must not be shut out of that, nor
// anybody else be let in. So the settings of every workspace are on record in
// the database, and the last ones of a workspace that is no longer in the
// configuration go on to hold for what is in it.

// recordPrefix begins the names of the settings that hold workspaces, as JSON.
const recordPrefix = "workspace/"

// recordTime bounds how long reading or writing the record may take.
const recordTime = 5 * time.Second

// record is the workspaces on record.
type record struct {
	store *state.Settings
	known map[string]string // JSON by name, as last read or written
}

// readRecord reads the record, and begins it for workspaces of things that exist
// and that neither it nor the configuration knows: those stay with their owners.
func readRecord(ctx context.Context, store *state.Store, c *config.Config) (*record, error) {
	r := &record{store: store.Settings()}
	if err := r.read(ctx); err != nil {
		return nil, err
	}
	tenants, err := store.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	all := workspaces.Of(c)
	for name, ids := range tenants {
		if _, known := r.known[name]; known || all[name] != nil || name == "" {
			continue
		}
		allowed := make([]any, len(ids))
		for i, id := range ids {
			allowed[i] = id
		}
		if err := r.write(ctx, name, map[string]any{"private": true, "allowed_users": allowed}); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *record) read(ctx context.Context) error {
	values, err := r.store.List(ctx, recordPrefix)
	if err != nil {
		return err
	}
	r.known = map[string]string{}
	for key, text := range values {
		r.known[strings.TrimPrefix(key, recordPrefix)] = string(text)
	}
	return nil
}

func (r *record) write(ctx context.Context, name string, settings map[string]any) error {
	text, err := json.Marshal(settings)
	if err != nil || r.known[name] == string(text) {
		return err
	}
	if err := r.store.Set(ctx, recordPrefix+name, text); err != nil {
		return err
	}
	r.known[name] = string(text)
	return nil
}

// keep brings the record up to date with a configuration and returns that
// together with the workspaces which it has no longer. Those hold by what is
// known, even if the database does not answer.
func (r *record) keep(c *config.Config) (*config.Config, error) {
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	err := r.read(ctx) // what other servers wrote
	all := workspaces.Of(c)
	for name, settings := range all {
		if err == nil {
			err = r.write(ctx, name, settings)
		}
	}
	removed := map[string]map[string]any{}
	for name, text := range r.known {
		if all[name] != nil {
			continue
		}
		var settings map[string]any
		if jerr := json.Unmarshal([]byte(text), &settings); jerr != nil {
			settings = map[string]any{"private": true} // administrators only
		}
		removed[name] = settings
	}
	return c.WithRemoved(removed), err
}
