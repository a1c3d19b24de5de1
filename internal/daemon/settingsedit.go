package daemon

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
)

// edit changes the configuration: decide returns the path of keys and the value
// to put there, nil to remove it; no keys stand for the whole. What would not be
// valid changes nothing. One server at a time edits.
func (s *settings) edit(ctx context.Context, decide func(*config.Config) (keys []string, value any, err error)) error {
	s.editing.Lock()
	defer s.editing.Unlock()
	release, err := s.alone(ctx)
	if err != nil {
		return err
	}
	defer release()
	c := s.fresh()
	keys, value, err := decide(c)
	if err != nil {
		return err
	}
	next := with(c.Map(), keys, value)
	checked, err := config.FromMap(config.Server, config.Origin{Source: "the new configuration"}, next)
	if err != nil {
		return err
	}
	if _, err := rulesOf(checked); err != nil {
		return &api.Error{Type: api.ErrInvalidConfig, Message: err.Error(), Err: err}
	}
	if err := s.write(ctx, keys, value, next); err != nil {
		return err
	}
	s.fresh()
	return nil
}

// fresh is the configuration as it is this moment: another server may just have
// written it.
func (s *settings) fresh() *config.Config {
	s.mu.Lock()
	s.asked = time.Time{}
	s.mu.Unlock()
	return s.asWritten()
}

func (s *settings) write(ctx context.Context, keys []string, value any, whole map[string]any) error {
	switch {
	case s.store != nil:
		return s.store.Settings().Set(ctx, storedConfig, config.EncodeYAML(whole))
	case len(keys) == 0:
		return config.Write(s.file, whole)
	case value == nil:
		return config.Unset(s.file, keys)
	}
	return config.Set(s.file, keys, value)
}

// with is a copy of values with one of them changed.
func with(values map[string]any, keys []string, value any) map[string]any {
	if len(keys) == 0 {
		m, _ := value.(map[string]any)
		return m
	}
	out := maps.Clone(values)
	if out == nil {
		out = map[string]any{}
	}
	below, _ := out[keys[0]].(map[string]any)
	switch {
	case len(keys) > 1:
		if below = with(below, keys[1:], value); len(below) > 0 {
			out[keys[0]] = below
		} else {
			delete(out, keys[0])
		}
	case value == nil:
		delete(out, keys[0])
	default:
		out[keys[0]] = value
	}
	return out
}

// Of the lease that editors in a shared database take turns by.
const (
	editLease = "configuration"
	editTime  = 30 * time.Second
	editRetry = 200 * time.Millisecond
)

// alone waits until no other server edits the configuration.
func (s *settings) alone(ctx context.Context) (release func(), err error) {
	if s.store == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*editTime)
	defer cancel()
	owner := uuid.NewString()
	for {
		lease, ok, err := s.store.Leases().Acquire(ctx, editLease, owner, editTime)
		if err != nil {
			return nil, err
		}
		if ok {
			return func() { _ = s.store.Leases().Release(context.WithoutCancel(ctx), lease) }, nil // else it expires
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another server to finish editing the configuration: %w", ctx.Err())
		case <-time.After(editRetry):
		}
	}
}
