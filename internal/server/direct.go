package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// direct puts the check of the body, if the route has one, before the handler;
// the handler reads it again with [decode].
func (rt Route) direct(s *Server, w http.ResponseWriter, r *http.Request) {
	if rt.Body == nil {
		if s.noteDirect(w, r, nil) {
			rt.handle(s, w, r)
		}
		return
	}
	raw, ok := rt.readTyped(w, r)
	if !ok {
		return
	}
	head := headOf(raw)
	_, err := s.mayAsk(r, rt, s.scope(r), head.about())
	if err == nil {
		err = s.ownPaths(r, head)
	}
	if err != nil {
		s.failed(w, r, err)
		return
	}
	if !s.noteDirect(w, r, raw) {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	rt.handle(s, w, r)
}

// socket puts the checks that others make of a body before a websocket's
// handler; what it is about is in the query.
func (rt Route) socket(s *Server, w http.ResponseWriter, r *http.Request) {
	c, err := s.mayTouch(r.Context(), s.scope(r), r.URL.Query().Get("cluster_name"), true)
	if u := loggedIn(r); err == nil && c != nil && u != nil {
		err = c.MayRun(u.ID)
	}
	if err != nil {
		s.failed(w, r, err)
		return
	}
	if s.noteDirect(w, r, nil) {
		rt.handle(s, w, r)
	}
}

// decode reads a body whose type was checked, and who sent it. It reports
// whether the call goes on.
func decode[T any](s *Server, w http.ResponseWriter, r *http.Request) (b T, u state.User, ok bool) {
	raw, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(raw, &b)
	}
	if err == nil {
		u, err = s.caller(r, headOf(raw))
	}
	if err != nil {
		s.failed(w, r, err)
	}
	return b, u, err == nil
}

// validate checks a Dag before anything is uploaded. Its failures are always a
// 400: clients take no other status for one.
func (s *Server) validate(w http.ResponseWriter, r *http.Request) {
	b, user, ok := decode[api.DagBody](s, w, r)
	if !ok {
		return
	}
	b.ClientAPIVersion, b.ClientVersion = nil, nil
	if v := versionsOf(r); v.api > 0 {
		b.ClientAPIVersion, b.ClientVersion = &v.api, &v.version
	}
	var err error
	if s.Validate != nil {
		err = s.Validate(r.Context(), b, user)
	}
	answerCheck(w, err)
}

func (s *Server) validateVolume(w http.ResponseWriter, r *http.Request) {
	b, user, ok := decode[api.VolumeValidateBody](s, w, r)
	if !ok {
		return
	}
	err := notSupported(r.URL.Path)
	if s.ValidateVolume != nil {
		err = s.ValidateVolume(r.Context(), b, user)
	}
	answerCheck(w, err)
}

func answerCheck(w http.ResponseWriter, err error) {
	if err != nil {
		writeJSON(w, http.StatusBadRequest, detail{exceptionJSON(errorRecord(err))})
		return
	}
	writeJSON(w, http.StatusOK, nil)
}

// maxCompletions is more than a shell shows.
const maxCompletions = 1000

func (s *Server) complete(w http.ResponseWriter, r *http.Request, names func(ctx context.Context, prefix string) ([]string, error)) {
	list := []string{}
	if names != nil {
		found, err := names(r.Context(), r.URL.Query().Get("incomplete"))
		if err != nil {
			s.failed(w, r, err)
			return
		}
		list = append(list, found...)
	}
	slices.Sort(list)
	writeJSON(w, http.StatusOK, list)
}

func (s *Server) completeCluster(w http.ResponseWriter, r *http.Request) {
	s.complete(w, r, func(ctx context.Context, prefix string) (names []string, err error) {
		clusters, err := s.Store.Clusters().List(ctx, state.ClusterFilter{})
		scope := s.scope(r)
		for _, c := range clusters {
			if scope.Sees(c.Workspace) && strings.HasPrefix(c.Name, prefix) && len(names) < maxCompletions {
				names = append(names, c.Name)
			}
		}
		return names, err
	})
}

func (s *Server) completeStorage(w http.ResponseWriter, r *http.Request) {
	s.complete(w, r, s.seen(r, s.StorageNames))
}

// seen completes with what the caller sees; nil: nothing is known.
func (s *Server) seen(r *http.Request, names func(context.Context, *state.Scope, string) ([]string, error)) func(context.Context, string) ([]string, error) {
	if names == nil {
		return nil
	}
	scope := s.scope(r)
	return func(ctx context.Context, prefix string) ([]string, error) { return names(ctx, scope, prefix) }
}

func (s *Server) completeVolume(w http.ResponseWriter, r *http.Request) {
	s.complete(w, r, s.seen(r, s.VolumeNames))
}

func (s *Server) completeRequest(w http.ResponseWriter, r *http.Request) {
	s.complete(w, r, func(ctx context.Context, prefix string) (ids []string, err error) {
		filter := state.RequestFilter{Limit: maxCompletions, Scope: s.scope(r)}
		if prefix != "" {
			filter.IDPrefixes = []string{prefix}
		}
		list, err := s.Engine.List(ctx, filter)
		for _, q := range list {
			ids = append(ids, q.ID)
		}
		return ids, err
	})
}
