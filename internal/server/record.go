package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/server/pickle"
	"github.com/skypilot-go/sky/internal/state"
)

const (
	statusUnknown   = http.StatusNotFound
	statusAmbiguous = http.StatusBadRequest
)

// resolveStatus is how a route answers when an id cannot be resolved.
func resolveStatus(err error) int {
	if errors.Is(err, state.ErrNotFound) {
		return statusUnknown
	}
	if _, ok := errors.AsType[*requests.AmbiguousError](err); ok {
		return statusAmbiguous
	}
	return statusOf(err)
}

// statusOf is how a route answers an error that no record can carry. A 503 tells
// the client that nothing was recorded and that it should repeat the call.
func statusOf(err error) int {
	switch {
	case errors.Is(err, requests.ErrShutdown), errors.Is(err, requests.ErrRecording):
		return http.StatusServiceUnavailable
	case errors.Is(err, state.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, state.ErrConflict):
		return http.StatusConflict
	}
	if state.Full(err) {
		return http.StatusInsufficientStorage
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		switch e.Type {
		case api.ErrClusterDoesNotExist, api.ErrFileNotFound:
			return http.StatusNotFound
		case api.ErrPermissionDenied:
			return http.StatusForbidden
		}
		return http.StatusBadRequest
	}
	if _, ok := errors.AsType[*requests.QuotaError](err); ok {
		return http.StatusTooManyRequests
	}
	if _, ok := errors.AsType[*requests.UnknownError](err); ok {
		return http.StatusBadRequest
	}
	if _, ok := errors.AsType[*identityError](err); ok {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// payload is what both forms of a record share. Clients unpickle entrypoint and
// body of the one and print them of the other, so each form fills in its own.
func payload(r *state.Request) api.RequestPayload {
	p := api.RequestPayload{
		RequestID: r.ID, Name: r.Name, Status: r.Status, CreatedAt: unix(r.CreatedAt), UserID: r.UserID,
		ReturnValue: "null", Error: "null", RequestBody: "null", Entrypoint: shortName(r.Name), ScheduleType: r.Schedule,
		UserName: optional(r.UserName), ClusterName: optional(r.ClusterName), StatusMsg: optional(r.StatusMsg),
	}
	if !r.FinishedAt.IsZero() {
		at := unix(r.FinishedAt)
		p.FinishedAt = &at
	}
	return p
}

// fullPayload is a record with its result, in the form a client of that version
// reads.
func fullPayload(r *state.Request, clientAPI int) (api.RequestPayload, error) {
	p := payload(r)
	p.Entrypoint, p.RequestBody = pickle.None, pickle.None
	var err error
	if r.Status == api.RequestSucceeded {
		if p.ReturnValue, err = resultFor(shortName(r.Name), clientAPI, r.ReturnValue); err != nil {
			return p, err
		}
	}
	if r.Status == api.RequestFailed {
		p.Error, err = failure(r.Error)
	}
	return p, err
}

// failure is a stored error with the pickle that SkyPilot's clients read.
func failure(stored []byte) (string, error) {
	e := api.ErrorRecord{Type: api.ErrRuntime, Message: "The request failed, and its server did not say why."}
	if len(stored) > 0 {
		if err := decodeNumbers(stored, &e); err != nil {
			return "", err
		}
	}
	var err error
	if e.Object, err = pickledException(e); err != nil {
		return "", err
	}
	b, err := json.Marshal(e)
	return string(b), err
}

// shownFields are the fields of a body that a list of requests shows: they say which
// things a request is about. Task files and variables may hold secrets.
var shownFields = setOf(`cluster_name cluster_names cluster job_id job_ids name names service_name service_names pool_name pool_names
	request_ids refresh all_users down dryrun idle_minutes workspace_name replica_id port`)

// shownBody is a body without what might be secret.
func shownBody(raw []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return "null"
	}
	for k := range fields {
		if !shownFields()[k] {
			delete(fields, k)
		}
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return "null"
	}
	return string(b)
}
