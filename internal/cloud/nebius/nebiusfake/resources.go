package nebiusfake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
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
	inUse                 func(o dict) bool
}

func (f *Fake) keep(service string, k kind) {
	tell := func(o dict) dict {
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
			return tell(o), nil
		}
		return nil, fakehttp.Missing(in["id"])
	})
	f.call(service+"/GetByName", k.name+".get", byName, func(_ *http.Request, in dict) (any, error) {
		for _, o := range among(in) {
			if o["name"] == in["name"] {
				return tell(o), nil
			}
		}
		return nil, fakehttp.Missing(in["name"])
	})
	f.call(service+"/List", k.name+".list", fakehttp.Schema{"!parent_id": word}, func(_ *http.Request, in dict) (any, error) {
		all := []dict{}
		for _, o := range among(in) {
			all = append(all, tell(o))
		}
		return page(in, "items", all, 100), nil
	})
	if k.prefix == "" {
		return
	}
	f.call(service+"/Create", k.name+".put", fakehttp.Schema{"!metadata": object, "!spec": object}, func(r *http.Request, in dict) (any, error) {
		meta, spec := in["metadata"].(dict), in["spec"].(dict)
		if id, ok := f.calls[r.Header.Get("X-Idempotency-Key")]; ok {
			return f.operation(r, id)
		}
		known := slices.Contains(slices.Collect(maps.Values(Projects)), str(meta["parent_id"]))
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
		op := f.begin(str(meta["parent_id"]), str(o["id"]), "Create "+k.name, dict{})
		if key := r.Header.Get("X-Idempotency-Key"); key != "" {
			f.calls[key] = str(op["id"])
		}
		return f.tell(op), nil
	})
	f.call(service+"/Delete", k.name+".delete", fakehttp.Schema{"!id": word}, func(_ *http.Request, in dict) (any, error) {
		o := f.Thing(k.name, in["id"])
		if o == nil {
			return nil, fakehttp.Missing(in["id"])
		}
		if k.inUse != nil && k.inUse(o) {
			return nil, fluffyapi.Errorf(fluffyapi.InUse, "%v is in use", o["id"])
		}
		return f.tell(f.begin(str(o["parent"]), str(o["id"]), "Delete "+k.name, dict{})), f.Drop(k.name, o["id"])
	})
}

// begin keeps a new operation about a resource; one with a status has ended.
func (f *Fake) begin(parent, id, about string, status any) dict {
	op := dict{"id": "operation-e00" + f.NewID()[15:], "parent": parent, "resource_id": id, "description": about, "created_at": time.Now().UTC().Format(time.RFC3339Nano), "status": status}
	f.operations = append(f.operations, op)
	return op
}

// tell is an operation in Nebius' words: one without a status goes on.
func (f *Fake) tell(op dict) dict {
	out := maps.Clone(op)
	delete(out, "parent")
	delete(out, "watch")
	if m, ok := f.Machine(str(op["watch"])); op["watch"] != nil && (!ok || m.State == fluffyapi.Running || m.State == fluffyapi.Stopped || m.State == fluffyapi.Terminated) {
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
	for _, op := range f.operations {
		if op["id"] == id {
			return f.tell(op), nil
		}
	}
	return nil, fakehttp.Missing(id)
}

// listOperations lists those of a parent or about a resource, the latest first.
func (f *Fake) listOperations(_ *http.Request, in dict) (any, error) {
	all := []dict{}
	for _, op := range slices.Backward(f.operations) {
		if op["parent"] == in["parent_id"] || op["resource_id"] == in["resource_id"] {
			all = append(all, f.tell(op))
		}
	}
	return page(in, "operations", all, 100), nil
}

// page is the part of a list that is asked for.
func page(in dict, field string, all []dict, size int) dict {
	if n, _ := strconv.Atoi(str(in["page_size"])); n > 0 {
		size = min(n, 1000)
	}
	part, next := fakehttp.PageAfter(all, str(in["page_token"]), size)
	out := dict{field: part}
	if next != nil {
		out["next_page_token"] = next
	}
	return out
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
