package gcp

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// refusal is an answer of one of Google's services that had no effect.
type refusal struct {
	answer
	service string // such as compute.googleapis.com
}

type answer = rest.Error

// reads reads the refusals of a service. Compute Engine gives a reason, the others a
// status, and both more exact reasons beside it.
//
// https://cloud.google.com/apis/design/errors, https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-using-errors
func reads(host string) func(status int, header http.Header, body []byte) error {
	return func(status int, header http.Header, body []byte) error {
		var e struct {
			Error struct {
				Message string `json:"message"`
				Status  string `json:"status"`
				Errors  []struct {
					Reason string `json:"reason"`
				} `json:"errors"`
				Details []detail `json:"details"`
			} `json:"error"`
		}
		if json.Unmarshal(body, &e) != nil || e.Error.Message == "" && e.Error.Status == "" {
			err := rest.ReadError(status, header, body)
			if r, ok := err.(*rest.Error); ok {
				return &refusal{*r, host + ".googleapis.com"}
			}
			return err
		}
		r := &refusal{answer{Status: status, Code: e.Error.Status, Message: e.Error.Message}, host + ".googleapis.com"}
		if len(e.Error.Errors) > 0 && e.Error.Errors[0].Reason != "" && host != "tpu" {
			r.Code = e.Error.Errors[0].Reason
		}
		r.sharpen(host, e.Error.Details)
		if status >= 500 && refusals.Kind(r) == vm.Lost {
			return nil // it proves nothing
		}
		return r
	}
}

// detail is more that a refusal says.
type detail struct {
	Type     string            `json:"@type"`
	Reason   string            `json:"reason"`
	Metadata map[string]string `json:"metadata"`
}

// Codes that this package derives: quotas over all regions, those of TPUs, which share
// a code with a lack of room, and the same code meaning another thing for TPUs.
const (
	quotaEverywhere = "QUOTA_EXCEEDED_GLOBALLY"
	tpuQuota        = "TPU_QUOTA_EXCEEDED"
	tpuCode         = "tpu/"
)

// sharpen makes the code more exact.
func (r *refusal) sharpen(host string, details []detail) {
	quota := r.Code == "QUOTA_EXCEEDED" || r.Code == "quotaExceeded"
	if host == "tpu" {
		r.Code = tpuCode + r.Code
	}
	for _, d := range details {
		switch {
		case strings.HasSuffix(d.Type, "/google.rpc.QuotaFailure") && host == "tpu":
			r.Code = tpuQuota
		case strings.HasSuffix(d.Type, "/google.rpc.ErrorInfo"):
			if _, ok := refusals.Codes[d.Reason]; ok {
				r.Code = d.Reason
			}
			if s := d.Metadata["service"]; s != "" {
				r.service = s
			}
		}
	}
	if host == "tpu" && r.Code == tpuCode+"RESOURCE_EXHAUSTED" && strings.Contains(strings.ToLower(r.Message), "quota") {
		r.Code = tpuQuota
	}
	// "Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally."
	if quota && (strings.Contains(r.Message, "_ALL_REGIONS'") || strings.Contains(r.Message, "globally")) {
		r.Code = quotaEverywhere
	}
}

// operation is what Compute Engine is doing for a call.
type operation struct {
	Name     string         `json:"name"`
	Status   string         `json:"status"`
	Zone     string         `json:"zone"`
	Region   string         `json:"region"`
	Type     string         `json:"operationType"`
	Target   string         `json:"targetLink"`
	TargetID string         `json:"targetId"`
	Time     time.Time      `json:"insertTime"`
	HTTP     int            `json:"httpErrorStatusCode"`
	Error    operationError `json:"error"`
}

type operationError struct {
	Errors []operationFault `json:"errors"`
}

type operationFault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// minCount is what a bulk insertion says that came to nothing, besides the reason if it has one.
const minCount = "VM_MIN_COUNT_NOT_REACHED"

// scope is where the operation is, as paths have it.
func (o operation) scope() string {
	switch {
	case o.Zone != "":
		return "/zones/" + url.PathEscape(path.Base(o.Zone))
	case o.Region != "":
		return "/regions/" + url.PathEscape(path.Base(o.Region))
	}
	return "/global"
}

// failure is why the operation came to nothing; nil: it did not, so far.
func (o operation) failure() error {
	if len(o.Error.Errors) == 0 {
		return nil
	}
	first := o.Error.Errors[0]
	if i := slices.IndexFunc(o.Error.Errors, func(e operationFault) bool { return e.Code != minCount }); i >= 0 { // it comes first, and says nothing
		first = o.Error.Errors[i]
	}
	r := &refusal{answer{Status: o.HTTP, Code: first.Code}, "compute.googleapis.com"}
	if o.HTTP == http.StatusBadRequest { // which says nothing beside the code
		r.Status = 0
	}
	said := map[string]bool{}
	var all []string
	for _, e := range o.Error.Errors {
		if e.Message != "" && !said[e.Message] { // the same for each machine
			said[e.Message] = true
			all = append(all, e.Message)
		}
	}
	r.Message = strings.Join(all, "; ")
	r.sharpen("compute", nil)
	return r
}

const (
	// mostWait is a little longer than the service keeps a caller that waits for an
	// operation.
	mostWait = 150 * time.Second
	// waitPause is between two of those calls.
	waitPause = 5 * time.Second
)

// done waits until what a call began is done, and returns why it came to nothing.
func (a *account) done(ctx context.Context, project string, o operation, err error) error {
	if err != nil {
		return err
	}
	if o.Status != "DONE" {
		o, err = rest.Await(ctx, waitPause, func(ctx context.Context) (operation, bool, error) {
			now, err := rest.Send[operation](ctx, a.compute, rest.Call{Method: "POST", Path: a.in(project, "") + o.scope() + "/operations/" + url.PathEscape(o.Name) + "/wait", Timeout: mostWait})
			return now, now.Status == "DONE", err
		})
		if err != nil {
			return err
		}
	}
	return o.failure()
}

// begin makes a call that begins an operation of the project.
func (a *account) begin(ctx context.Context, method, path string, body any) (operation, error) {
	return rest.Do[operation](ctx, a.compute, method, path, body)
}

// finish makes such a call and waits until it is done.
func (a *account) finish(ctx context.Context, project, method, path string, body any) error {
	o, err := a.begin(ctx, method, path, body)
	return a.done(ctx, project, o, err)
}

// pages reads all pages of a list.
func pages[T any](ctx context.Context, c *rest.Client, path string, query url.Values, items func(T) (token string)) error {
	_, err := rest.All(ctx, func(ctx context.Context, token string) ([]struct{}, string, error) {
		q := url.Values{}
		for k, v := range query {
			q[k] = v
		}
		if token != "" {
			q.Set("pageToken", token)
		}
		page, err := rest.Send[T](ctx, c, rest.Call{Method: "GET", Path: path, Query: q})
		if err != nil {
			return nil, "", err
		}
		return nil, items(page), nil
	})
	return err
}

// said reports whether an error has one of the codes.
func said(err error, codes ...string) bool {
	r, ok := err.(*refusal)
	if !ok {
		return false
	}
	for _, c := range codes {
		if r.Code == c {
			return true
		}
	}
	return false
}

// missing reports whether what a call was about does not exist.
func missing(err error) bool {
	r, ok := err.(*refusal)
	return ok && r.Status == http.StatusNotFound
}

// exists reports whether what was to be made is there already.
func exists(err error) bool {
	return said(err, "alreadyExists", "RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS", tpuCode+"ALREADY_EXISTS")
}
