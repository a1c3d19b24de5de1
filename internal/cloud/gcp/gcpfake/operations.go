package gcpfake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// operation is something that takes time.
type operation struct {
	id, kind, scope, target string // scope: "zones/z", "regions/r" or "global"
	targetID, user, group   string
	began, ends             time.Time
	after                   func() bool // it is done, too; nil: by the time alone
	finished                time.Time   // when that was seen
	no                      *opError
	effect                  func() // what is so once it is done
	also                    dict   // further fields
}

// opError is what an operation that failed says:
// https://cloud.google.com/compute/docs/reference/rest/v1/zoneOperations#Operation.FIELDS.error.
type opError struct {
	code, message string
	status        int
	statusText    string
	details       []any
}

// failure makes operations fail.
type failure struct {
	kind string
	no   opError
	left int
}

// origin is how links begin.
const origin = "https://www.googleapis.com/compute/v1/"

// link is the URL of a path "projects/p/…".
func link(path string) string { return origin + path }

// path is that of a whole or partial URL in a project, "projects/p/…".
func path(project, ref string) string {
	for _, base := range []string{origin, "https://compute.googleapis.com/compute/v1/", "https://www.googleapis.com/compute/beta/", "https://compute.googleapis.com/compute/beta/"} {
		ref = strings.TrimPrefix(ref, base)
	}
	if !strings.HasPrefix(ref, "projects/") {
		ref = "projects/" + project + "/" + ref
	}
	return ref
}

func (f *Fake) newID() string {
	f.serial++
	return fmt.Sprint(uint64(7_000_000_000_000_000_000) + f.serial)
}

func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// begin starts an operation about a thing, or makes it fail if tests want that.
func (f *Fake) begin(r *http.Request, kind, scope, target, targetID string) *operation {
	id := f.newID()
	op := &operation{id: id, kind: kind, scope: scope, target: target, targetID: targetID, user: f.tokens.Bearer(r), began: time.Now(), ends: time.Now().Add(f.took)}
	f.operations = append(f.operations, op)
	if q := r.URL.Query().Get("requestId"); q != "" {
		f.requests[r.Method+" "+r.URL.Path+" "+q] = op
	}
	return op
}

func (op *operation) name() string { return "operation-" + op.id }

func (op *operation) path() string {
	return "projects/" + Project + "/" + op.scope + "/operations/" + op.name()
}

// fails takes the failure that tests want of the next such operation; nil: none.
func (f *Fake) fails(kind string) *opError {
	for n, x := range f.failing {
		if x.kind == kind || x.kind == "" {
			if x.left--; x.left <= 0 {
				f.failing = slices.Delete(f.failing, n, n+1)
			}
			no := x.no
			return &no
		}
	}
	return nil
}

// done reports that an operation is, and lets it have its effect.
func (op *operation) done() bool {
	if op.finished.IsZero() && !time.Now().Before(op.ends) && (op.no != nil || op.after == nil || op.after()) {
		op.finished = time.Now()
		if op.effect != nil && op.no == nil {
			op.effect()
		}
	}
	return !op.finished.IsZero()
}

// told is an operation as it is answered.
func (op *operation) told() dict {
	out := dict{
		"kind": "compute#operation", "id": op.id, "name": op.name(), "operationType": op.kind, "targetLink": link(op.target), "targetId": op.targetID, "user": op.user,
		"insertTime": op.began.UTC().Format(time.RFC3339Nano), "startTime": op.began.UTC().Format(time.RFC3339Nano), "selfLink": link(op.path()), "status": "RUNNING", "progress": 0,
	}
	if where, name, ok := strings.Cut(op.scope, "/"); ok {
		out[strings.TrimSuffix(where, "s")] = link("projects/" + Project + "/" + where + "/" + name)
	}
	if op.group != "" {
		out["operationGroupId"] = op.group
	}
	for k, v := range op.also {
		out[k] = v
	}
	if !op.done() {
		return out
	}
	out["status"], out["progress"], out["endTime"] = "DONE", 100, op.finished.UTC().Format(time.RFC3339Nano)
	if op.no != nil {
		e := dict{"code": op.no.code, "message": op.no.message}
		if op.no.details != nil {
			e["errorDetails"] = op.no.details
		}
		out["error"], out["httpErrorStatusCode"], out["httpErrorMessage"] = dict{"errors": []any{e}}, op.no.status, op.no.statusText
	}
	return out
}

// settle lets operations that are over have their effects.
func (f *Fake) settle() {
	for _, op := range f.operations {
		op.done()
	}
}

// operationRoutes are those of
// https://cloud.google.com/compute/docs/reference/rest/v1/zoneOperations, regionOperations and globalOperations.
func (f *Fake) operationRoutes() {
	for _, at := range []struct{ path, permission string }{{"/zones/{zone}", "zone"}, {"/regions/{region}", "region"}, {"/global", "global"}} {
		base := "/compute/{version}/projects/{project}" + at.path + "/operations"
		f.on("GET", base, "operations.list", "compute."+at.permission+"Operations.list", nil, func(r *http.Request, _ dict) (any, error) {
			var all []dict
			for _, op := range f.operations {
				if op.scope == scopeOf(r) {
					all = append(all, op.told())
				}
			}
			return f.page(r, "compute#operationList", all)
		})
		f.on("GET", base+"/{name}", "operations.get", "compute."+at.permission+"Operations.get", nil, func(r *http.Request, _ dict) (any, error) {
			op, no := f.operation(r)
			if no != nil {
				return nil, no
			}
			return op.told(), nil
		})
		// The wait is for two minutes at most, and may end before the operation does.
		f.on("POST", base+"/{name}/wait", "operations.wait", "compute."+at.permission+"Operations.get", nil, func(r *http.Request, _ dict) (any, error) {
			op, no := f.operation(r)
			if no != nil {
				return nil, no
			}
			for end := time.Now().Add(2 * time.Minute); !op.done() && time.Now().Before(end); {
				if err := f.Pause(r, 5*time.Millisecond); err != nil {
					return nil, err
				}
			}
			return op.told(), nil
		})
		f.on("DELETE", base+"/{name}", "operations.delete", "compute."+at.permission+"Operations.delete", nil, func(r *http.Request, _ dict) (any, error) {
			op, no := f.operation(r)
			if no != nil {
				return nil, no
			}
			f.operations = slices.DeleteFunc(f.operations, func(o *operation) bool { return o == op })
			return &fakehttp.Reply{Status: 204}, nil
		})
	}
	f.on("GET", "/compute/{version}/projects/{project}/aggregated/operations", "operations.list", "compute.globalOperations.list", nil, func(r *http.Request, _ dict) (any, error) {
		var all []scoped
		for _, op := range f.operations {
			if !strings.HasPrefix(op.scope, "projects/") { // which is another service's
				all = append(all, scoped{op.scope, op.told()})
			}
		}
		return f.aggregate(r, "compute#operationAggregatedList", "operations", all)
	})
}

func (f *Fake) operation(r *http.Request) (*operation, error) {
	for _, op := range f.operations {
		if (op.name() == r.PathValue("name") || op.id == r.PathValue("name")) && op.scope == scopeOf(r) {
			return op, nil
		}
	}
	return nil, notFound("projects/" + r.PathValue("project") + "/" + scopeOf(r) + "/operations/" + r.PathValue("name"))
}

func notFound(path string) *fakehttp.Reply {
	return refuse(404, "notFound", "The resource '%s' was not found", path)
}

// scopeOf is where a call is: a zone, a region, or global.
func scopeOf(r *http.Request) string {
	switch {
	case r.PathValue("zone") != "":
		return "zones/" + r.PathValue("zone")
	case r.PathValue("region") != "":
		return "regions/" + r.PathValue("region")
	}
	return "global"
}

// on is a route of Compute Engine for those who have a permission in the project.
func (f *Fake) on(method, path, op, permission string, s fakehttp.Schema, do fakehttp.Handler) {
	f.Route(method, path, op, nil, func(r *http.Request, _ dict) (any, error) {
		zone, region := r.PathValue("zone"), r.PathValue("region")
		target := strings.TrimPrefix(r.URL.Path, "/compute/"+r.PathValue("version")+"/")
		switch {
		case r.PathValue("version") != "v1" && r.PathValue("version") != "beta":
			return nil, notFound(r.URL.Path)
		case r.PathValue("project") != Project && !(method == "GET" && f.items["public/"+r.PathValue("project")] != nil):
			return nil, refuse(403, "forbidden", "Required '%s' permission for '%s'", permission, target)
		case !f.services["compute.googleapis.com"]:
			return nil, disabled("compute.googleapis.com", "Compute Engine API")
		case !f.may(permission):
			return nil, refuse(403, "forbidden", "Required '%s' permission for '%s'", permission, target)
		case zone != "" && regionOf(zone) == "":
			return nil, refuse(400, "invalid", "Invalid value for field 'zone': '%s'. Unknown zone.", zone)
		case region != "" && zonesOf[region] == nil:
			return nil, refuse(400, "invalid", "Invalid value for field 'region': '%s'. Unknown region.", region)
		}
		f.settle()
		var in dict
		if method != "GET" && method != "DELETE" {
			var no error
			if in, no = body(r, s); no != nil {
				return nil, no
			}
		}
		if id := r.URL.Query().Get("requestId"); id != "" && method != "GET" {
			if !uuid.MatchString(id) || strings.Trim(id, "0-") == "" {
				return nil, refuse(400, "invalid", "Invalid value for field 'requestId': '%s'. The request ID must be a valid UUID, and not the zero UUID.", id)
			}
			// The reference says that a second request with the id is ignored, and
			// nothing of one that asks for something else.
			if before := f.requests[r.Method+" "+r.URL.Path+" "+id]; before != nil {
				return before.told(), nil
			}
		}
		return do(r, in)
	})
}

// may reports whether the account has a permission.
func (f *Fake) may(permission string) bool {
	f.asked[permission] = true
	if f.denied[permission] {
		return false
	}
	verb := permission[strings.LastIndex(permission, ".")+1:]
	return !f.readOnly || strings.HasPrefix(verb, "get") || strings.HasPrefix(verb, "list")
}

func disabled(service, title string) *fakehttp.Reply {
	at := "https://console.developers.google.com/apis/api/" + service + "/overview?project=" + Project
	message := fmt.Sprintf("%s has not been used in project %s before or it is disabled. Enable it by visiting %s then retry. If you enabled this API recently, wait a few minutes for the action to propagate to our systems and retry.", title, Project, at)
	return &fakehttp.Reply{Status: 403, Body: dict{"error": dict{
		"code": 403, "message": message, "status": "PERMISSION_DENIED", "errors": []any{dict{"message": message, "domain": "usageLimits", "reason": "accessNotConfigured", "extendedHelp": at}},
		"details": []any{dict{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED", "domain": "googleapis.com", "metadata": dict{"service": service, "consumer": "projects/" + Project}}},
	}}}
}

// out is the error that a machine's creation ends with.
func out(zone string, e *fluffyapi.Error, quota func() *opError) *opError {
	switch e.Code {
	case fluffyapi.NoCapacity:
		return &opError{code: "ZONE_RESOURCE_POOL_EXHAUSTED", status: 503, statusText: "SERVICE UNAVAILABLE",
			message: fmt.Sprintf("The zone 'projects/%s/zones/%s' does not have enough resources available to fulfill the request.  Try a different zone, or try again later.", Project, zone)}
	case fluffyapi.QuotaExceeded:
		return quota()
	}
	return &opError{code: "INTERNAL_ERROR", status: 500, statusText: "INTERNAL SERVER ERROR", message: "Internal error. Please try again or contact Google Support. (Code: '" + e.Message + "')"}
}
