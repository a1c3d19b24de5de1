package nebiusfake

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// kind is one of resources: a service with Get, GetByName, List, Create and Delete, or
// without those two.
type kind struct {
	name, prefix, parents string
	check                 func(meta, spec dict) error
	status                func(o dict) dict
	removable             func(o dict) error
}

func (f *Fake) keep(service string, k kind) {
	describe := func(o dict) dict {
		out := dict{"metadata": o["metadata"], "status": o["status"]}
		if k.name != "network" {
			out["spec"] = o["spec"]
		}
		if k.status != nil {
			out["status"] = k.status(o)
		} else if o["status"] == nil {
			delete(out, "status")
		}
		return out
	}
	among := func(in dict) (all []dict) {
		return slices.DeleteFunc(f.Things(k.name), func(o dict) bool { return o["parent"] != in["parent_id"] })
	}
	f.call(service+"/Get", k.name+".get", fakehttp.Schema{"!id": word}, func(_ *http.Request, in dict) (any, error) {
		if o := f.Thing(k.name, in["id"]); o != nil {
			return describe(o), nil
		}
		return nil, fakehttp.Missing(in["id"])
	})
	f.call(service+"/GetByName", k.name+".get", byName, func(_ *http.Request, in dict) (any, error) {
		for _, o := range among(in) {
			if o["name"] == in["name"] {
				return describe(o), nil
			}
		}
		return nil, fakehttp.Missing(in["name"])
	})
	f.call(service+"/List", k.name+".list", fakehttp.Schema{"!parent_id": word}, func(_ *http.Request, in dict) (any, error) {
		all := []dict{}
		for _, o := range among(in) {
			all = append(all, describe(o))
		}
		return page(in, "items", all, 100)
	})
	if k.prefix == "" {
		return
	}
	f.call(service+"/Create", k.name+".put", fakehttp.Schema{"!metadata": object, "!spec": object}, func(r *http.Request, in dict) (any, error) {
		meta, spec := in["metadata"].(dict), in["spec"].(dict)
		if id, ok := f.calls[r.Header.Get("X-Idempotency-Key")]; ok {
			return f.operation(r, id)
		}
		known := regionOf(str(meta["parent_id"])) != ""
		if k.parents != "" {
			known = f.Thing(k.parents, meta["parent_id"]) != nil
		}
		if !known {
			return nil, fakehttp.Missing(meta["parent_id"])
		}
		if !resourceName.MatchString(str(meta["name"])) {
			return nil, invalid("metadata.name", "'name' must start with a letter or digit, allow '-', '_', '.', '/', and have a length between 2 and 255 characters.")
		}
		for _, o := range among(meta) {
			if o["name"] == meta["name"] {
				return nil, fluffyapi.Errorf(fluffyapi.NameTaken, "%v exists", o["id"])
			}
		}
		if err := k.check(meta, spec); err != nil {
			return nil, err
		}
		meta["id"], meta["created_at"], meta["resource_version"] = fmt.Sprintf("%s-e00%s", k.prefix, f.NewID()[15:]), time.Now().UTC().Format(time.RFC3339Nano), "1"
		o := f.Put(k.name, dict{"id": meta["id"], "name": meta["name"], "parent": meta["parent_id"], "metadata": meta, "spec": spec, "made": time.Now()})
		return f.once(r, f.begin(str(meta["parent_id"]), str(o["id"]), "Create "+k.name, dict{})), nil
	})
	f.call(service+"/Delete", k.name+".delete", fakehttp.Schema{"!id": word}, func(_ *http.Request, in dict) (any, error) {
		o := f.Thing(k.name, in["id"])
		if o == nil {
			return nil, fakehttp.Missing(in["id"])
		}
		if k.removable != nil {
			if err := k.removable(o); err != nil {
				return nil, err
			}
		}
		return f.describe(f.begin(str(o["parent"]), str(o["id"]), "Delete "+k.name, dict{})), f.Drop(k.name, o["id"])
	})
}

func ready(dict) dict { return dict{"state": "READY"} }

// begin keeps a new operation about a resource. One with a status has ended, another one
// ends with what the instance is in the middle of.
func (f *Fake) begin(parent, id, about string, status any) dict {
	return f.Put("operation", dict{"id": "operation-e00" + f.NewID()[15:], "parent": parent, "resource_id": id, "description": about, "created_at": time.Now().UTC().Format(time.RFC3339Nano), "status": status})
}

// once remembers an operation by the idempotency key of the call that began it.
func (f *Fake) once(r *http.Request, op dict) dict {
	if key := r.Header.Get("X-Idempotency-Key"); key != "" {
		f.calls[key] = str(op["id"])
	}
	return f.describe(op)
}

// describe is an operation in Nebius' words: one without a status goes on.
func (f *Fake) describe(op dict) dict {
	out := maps.Clone(op)
	delete(out, "parent")
	if out["status"] == nil && f.Settled(str(op["resource_id"])) {
		out["status"] = dict{}
	}
	if out["status"] == nil {
		delete(out, "status")
	} else {
		out["finished_at"] = time.Now().UTC().Format(time.RFC3339Nano)
	}
	return out
}

func (f *Fake) operation(_ *http.Request, id any) (any, error) {
	if op := f.Thing("operation", id); op != nil {
		return f.describe(op), nil
	}
	return nil, fakehttp.Missing(id)
}

// listOperations lists those of a parent or about a resource, the latest first.
func (f *Fake) listOperations(_ *http.Request, in dict) (any, error) {
	all := []dict{}
	for _, op := range slices.Backward(f.Things("operation")) {
		if op["parent"] == in["parent_id"] || op["resource_id"] == in["resource_id"] {
			all = append(all, f.describe(op))
		}
	}
	return page(in, "operations", all, 100)
}

// page is the part of a list that is asked for.
func page(in dict, field string, all []dict, size int) (any, error) {
	q := url.Values{"page_size": {str(in["page_size"])}, "page_token": {str(in["page_token"])}}
	part, err := fakehttp.Pages{Token: "page_token", Size: "page_size", Usual: size, Most: 1000}.Part(q, all)
	out := dict{field: part.Items}
	if part.Next != nil {
		out["next_page_token"] = part.Next
	}
	return out, err
}

func str(v any) string {
	s, _ := v.(string)
	return s
}

func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

func invalid(field, format string, a ...any) error {
	return fluffyapi.Errorf(fluffyapi.Invalid, field+": "+format, a...)
}

// refusals are the codes of gRPC and of nebius.common.v1.ServiceError, whose details have
// that field.
var refusals = map[fluffyapi.Code]struct {
	grpc        int
	code, field string
}{
	fluffyapi.Unauthorized: {16, "Unauthenticated", ""}, fluffyapi.Forbidden: {7, "PermissionDenied", "permission_denied"}, fluffyapi.NotFound: {5, "ResourceNotFound", "resource_not_found"},
	fluffyapi.Invalid: {3, "BadRequest", "bad_request"}, fluffyapi.NoCapacity: {8, "NotEnoughResources", "not_enough_resources"}, fluffyapi.QuotaExceeded: {8, "QuotaFailure", "quota_failure"},
	fluffyapi.NameTaken: {6, "ResourceAlreadyExists", "resource_already_exists"}, fluffyapi.WrongState: {9, "BadResourceState", "bad_resource_state"}, fluffyapi.InUse: {9, "BadResourceState", "bad_resource_state"},
	fluffyapi.Throttled: {8, "TooManyRequests", "too_many_requests"}, fluffyapi.Internal: {13, "InternalError", "internal_error"},
}

// status is a refusal as a google.rpc.Status (nebius/common/v1/error.proto).
func status(service string, e *fluffyapi.Error) dict {
	r, ok := refusals[e.Code]
	if !ok {
		r.grpc, r.code = 2, string(e.Code)
	}
	detail := dict{"@type": "type.googleapis.com/nebius.common.v1.ServiceError", "service": service, "code": r.code}
	violation := dict{"message": e.Message}
	switch r.field {
	case "bad_resource_state":
		detail[r.field] = violation
	case "bad_request", "quota_failure", "not_enough_resources":
		detail[r.field] = dict{"violations": []dict{violation}}
	case "":
	default:
		detail[r.field] = dict{}
	}
	if e.Code == fluffyapi.Throttled {
		detail["retry_type"] = "CALL"
	}
	return dict{"code": r.grpc, "message": e.Message, "details": []dict{detail}}
}
