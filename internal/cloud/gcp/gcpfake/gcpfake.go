// Package gcpfake is the part of Google Cloud that sky uses, as a server for tests:
// Compute Engine, Cloud TPU, Resource Manager, Service Usage, IAM and the places that
// hand out tokens. Its facts are from Google's REST references and discovery documents,
// whose page stands at each group of routes.
package gcpfake

import (
	"crypto/rsa"
	"fmt"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// Project is the only one that the account has; Number is its other name.
const Project, Number = "fake-project-1", "123456789012"

type dict = fakehttp.Dict

// hostOf is what sky puts behind the name of a TPU for its other machines.
var hostOf = regexp.MustCompile(`-w[0-9]+$`)

// Fake is the whole of Google Cloud. As a transport it answers for all hosts that it
// knows; served at one address it tells services apart by their paths.
type Fake struct {
	*fakehttp.Fake

	// All below is used while [fakehttp.Fake.Locked].
	items      map[string]dict // what is kept, by its path "projects/p/…"
	standing   map[string]bool // of items: what every project has
	vms        map[string]*vm  // by the model's id
	operations []*operation
	requests   map[string]*operation // by requestId and who asked
	lag        int                   // calls for which what is new does not exist
	young      map[string]int        // such calls that are left, by path
	pageSize   int                   // of lists at most; 0: 500
	took       time.Duration         // by operations about other things than machines
	dark       map[string]bool       // zones that cannot be reached
	eachZone   bool                  // queued resources are listed zone by zone only
	denied     map[string]bool       // permissions
	asked      map[string]bool       // that calls took
	readOnly   bool
	services   map[string]bool // that are enabled
	gpus       int             // GPUs that the project may have anywhere; -1: any number
	quotaHTTP  bool            // quotas are refused in the answer, not in the operation
	roomHTTP   bool            // so is capacity
	failing    []*failure
	policy     dict // of the project
	serial     uint64
	inactive   bool // the project is being deleted
	tokens     fakehttp.Tokens
	keys       map[string]*rsa.PublicKey // of service accounts, by e-mail
	nodes      map[string]*node          // TPUs, by their paths
	queued     map[string]*queued        // requests for them, by their paths
	resizes    map[string]*resize        // of groups, by their paths
}

// zonesOf are the zones of each region.
var zonesOf = map[string][]string{
	"us-central2": {"us-central2-b"}, "us-central1": {"us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"}, "us-east1": {"us-east1-b", "us-east1-c", "us-east1-d"},
	"us-east5": {"us-east5-a", "us-east5-b", "us-east5-c"}, "us-west1": {"us-west1-a", "us-west1-b", "us-west1-c"}, "us-west4": {"us-west4-a", "us-west4-b", "us-west4-c"},
	"europe-west4": {"europe-west4-a", "europe-west4-b", "europe-west4-c"}, "asia-east1": {"asia-east1-a", "asia-east1-b", "asia-east1-c"},
}

var regions = slices.Sorted(maps.Keys(zonesOf))

func regionOf(zone string) string {
	region := zone[:max(strings.LastIndex(zone, "-"), 0)]
	if !slices.Contains(zonesOf[region], zone) {
		return ""
	}
	return region
}

// machineType is one of those that there are. A gpu comes with the type.
type machineType struct {
	cpus, memory int // MiB
	gpu          string
	gpus         int
}

var machineTypes = func() map[string]machineType {
	all := map[string]machineType{"f1-micro": {1, 614, "", 0}, "e2-micro": {2, 1024, "", 0}, "e2-small": {2, 2048, "", 0}, "e2-medium": {2, 4096, "", 0}}
	for family, cpus := range map[string][]int{
		"n1": {1, 2, 4, 8, 16, 32, 64, 96}, "n2": {2, 4, 8, 16, 32, 48, 64, 80, 96, 128}, "n4": {2, 4, 8, 16, 32, 48, 64, 80}, "e2": {2, 4, 8, 16, 32}, "n2d": {2, 4, 8, 16, 32}, "c3": {4, 8, 22, 44, 88, 176},
	} {
		for _, n := range cpus {
			for kind, perCPU := range map[string]int{"standard": 4096, "highmem": 8192, "highcpu": 1024} {
				if kind == "standard" || family[0] == 'n' && n > 1 {
					all[fmt.Sprintf("%s-%s-%d", family, kind, n)] = machineType{n, n * perCPU, "", 0}
				}
			}
		}
	}
	for _, n := range []int{1, 2, 4, 8} {
		all[fmt.Sprintf("a2-highgpu-%dg", n)] = machineType{12 * n, 87040 * n, "nvidia-tesla-a100", n}
		all[fmt.Sprintf("a2-ultragpu-%dg", n)] = machineType{12 * n, 174080 * n, "nvidia-a100-80gb", n}
		all[fmt.Sprintf("a3-highgpu-%dg", n)] = machineType{26 * n, 239616 * n, "nvidia-h100-80gb", n}
	}
	for cpus, n := range map[int]int{4: 1, 8: 1, 12: 1, 16: 1, 32: 1, 24: 2, 48: 4, 96: 8} {
		all[fmt.Sprintf("g2-standard-%d", cpus)] = machineType{cpus, cpus * 4096, "nvidia-l4", n}
	}
	all["a2-megagpu-16g"] = machineType{96, 1392640, "nvidia-tesla-a100", 16}
	all["a3-edgegpu-8g"] = machineType{208, 1916928, "nvidia-h100-80gb", 8}
	all["a3-megagpu-8g"] = machineType{208, 1916928, "nvidia-h100-mega-80gb", 8}
	all["a3-ultragpu-8g"] = machineType{224, 3022848, "nvidia-h200-141gb", 8}
	all["a4-highgpu-8g"] = machineType{224, 4063232, "nvidia-b200", 8}
	return all
}()

// attached are the accelerators that n1 machines can be given, and how many.
var attached = map[string][]int{"nvidia-tesla-t4": {1, 2, 4}, "nvidia-tesla-v100": {1, 2, 4, 8}, "nvidia-tesla-p100": {1, 2, 4}, "nvidia-tesla-p4": {1, 2, 4}}

// modelType is the model's name of a machine type with so many of an accelerator.
func modelType(machine, gpu string, n int) string {
	if gpu == "" || machineTypes[machine].gpu != "" {
		return machine
	}
	return fmt.Sprintf("%s+%d %s", machine, n, gpu)
}

// accelerators are the names of quotas by those of accelerators.
var accelerators = map[string]string{
	"nvidia-tesla-t4": "NVIDIA_T4_GPUS", "nvidia-tesla-v100": "NVIDIA_V100_GPUS", "nvidia-tesla-p100": "NVIDIA_P100_GPUS", "nvidia-tesla-p4": "NVIDIA_P4_GPUS",
	"nvidia-l4": "NVIDIA_L4_GPUS", "nvidia-tesla-a100": "NVIDIA_A100_GPUS", "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS", "nvidia-h100-80gb": "NVIDIA_H100_GPUS",
	"nvidia-h100-mega-80gb": "NVIDIA_H100_MEGA_GPUS", "nvidia-h200-141gb": "NVIDIA_H200_GPUS", "nvidia-b200": "NVIDIA_B200_GPUS",
}

// place finds the accelerator of an offer among those that can be attached: offers name
// it in sky's words (T4) and the machine that it is attached to by its type.
func place(o cloud.Offer) (at, instanceType string) {
	at, instanceType = o.Region, o.InstanceType
	if o.Zone != "" {
		at = o.Zone
	}
	for name, n := range o.Accelerators {
		if tpu := strings.TrimPrefix(name, "tpu-"); tpuTypes[tpu] > 0 {
			return at, tpu
		}
		for gpu := range attached {
			if strings.EqualFold(strings.TrimPrefix(gpu, "nvidia-tesla-"), name) || gpu == name {
				return at, modelType(instanceType, gpu, int(n))
			}
		}
	}
	return at, instanceType
}

// New returns a project that has the default network and nothing else.
func New() *Fake {
	f := &Fake{
		items: map[string]dict{}, standing: map[string]bool{}, vms: map[string]*vm{}, requests: map[string]*operation{}, young: map[string]int{}, dark: map[string]bool{}, denied: map[string]bool{}, asked: map[string]bool{}, services: map[string]bool{}, nodes: map[string]*node{}, queued: map[string]*queued{}, resizes: map[string]*resize{},
		took: 10 * time.Millisecond, gpus: -1,
		policy: dict{"version": 1, "etag": "BwWWja0YfJA=", "bindings": []any{dict{"role": "roles/owner", "members": []any{"user:" + User}}}},
	}
	f.keys = map[string]*rsa.PublicKey{}
	api := fakehttp.API{
		Regions: regions, Zones: func(region string) []string { return zonesOf[region] }, Place: place, Protects: "firewalls",
		ID: func(n uint64) string { return fmt.Sprint(4_000_000_000_000_000_000 + n) },
		Is: func(m model.Machine, id string) bool {
			if tpu, ok := strings.CutPrefix(m.Name, m.Zone+"/tpu/"); ok {
				id = hostOf.ReplaceAllString(id, "") // of a slice of several machines
				return id == tpu || strings.HasSuffix(id, "/locations/"+m.Zone+"/nodes/"+tpu) || strings.HasPrefix(id, tpu+"/")
			}
			return m.Name == id || strings.TrimPrefix(m.Name, m.Zone+"/") == id || strings.HasSuffix(id, "/zones/"+strings.Replace(m.Name, "/", "/instances/", 1))
		},
		Login:   func(r *http.Request) bool { return open(r.URL.Path) || f.tokens.Good(r) },
		Before:  before,
		Refusal: f.refusal,
		// https://cloud.google.com/compute/api-quota has 1500 of each kind of call.
		Limits: []fakehttp.Limit{{Path: "/compute/v1/", Every: time.Minute, Calls: 1500}},
	}
	for name, t := range machineTypes {
		mt := model.Type{Name: name, CPUs: t.cpus, MemoryGiB: float64(t.memory) / 1024, Price: float64(t.cpus) / 20}
		if t.gpu != "" {
			mt.Accelerators = map[string]float64{t.gpu: float64(t.gpus)}
		}
		api.Types = append(api.Types, mt)
		if strings.HasPrefix(name, "n1-") {
			for gpu, counts := range attached {
				for _, n := range counts {
					mt.Name, mt.Accelerators = modelType(name, gpu, n), map[string]float64{gpu: float64(n)}
					api.Types = append(api.Types, mt)
				}
			}
		}
	}
	for name, hosts := range tpuTypes {
		generation, _, _ := strings.Cut(name, "-")
		api.Types = append(api.Types, model.Type{Name: name, CPUs: hosts, Accelerators: map[string]float64{"tpu-" + generation: float64(hosts)}, Price: float64(hosts)})
	}
	f.Fake = fakehttp.New(api)
	for _, s := range []string{"compute", "cloudresourcemanager", "iam", "tpu", "serviceusage", "storage"} {
		f.services[s+".googleapis.com"] = true
	}
	f.imagesOf("ubuntu-os-cloud", 10, "ubuntu-2204-lts", "ubuntu-2404-lts-amd64", "ubuntu-2404-lts-arm64")
	f.imagesOf("debian-cloud", 10, "debian-12")
	f.imagesOf("deeplearning-platform-release", 50, "common-cu128-ubuntu-2204-nvidia-570")
	f.imagesOf("cos-cloud", 10, "cos-105-lts")
	f.standNetwork()
	f.routes()
	return f
}

// imagesOf makes an image in each family.
func (f *Fake) imagesOf(project string, gb int, families ...string) {
	for _, family := range families {
		f.AddImage(project, family+"-v20260601", family, gb)
	}
}

// hosts are the services' by how paths begin.
var hosts = []struct{ path, host string }{
	{"/compute/", "compute.googleapis.com"}, {"/v2/projects/", "tpu.googleapis.com"}, {"/v2alpha1/projects/", "tpu.googleapis.com"}, {"/token", "oauth2.googleapis.com"}, {"/v1/token", "sts.googleapis.com"},
	{"/oauth2/", "www.googleapis.com"}, {"/tokeninfo", "oauth2.googleapis.com"}, {"/computeMetadata/", "metadata.google.internal"}, {"/v1/projects/-/serviceAccounts", "iamcredentials.googleapis.com"},
	{"/v3/projects", "cloudresourcemanager.googleapis.com"}, {"/v1/projects", ""}, {"/v1/operations/", ""}, {"/v1/services", ""},
}

// before refuses what is sent to the wrong host.
func before(r *http.Request) *fakehttp.Reply {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" || net.ParseIP(host) != nil {
		return nil
	}
	for _, h := range hosts {
		if strings.HasPrefix(r.URL.Path, h.path) {
			ok := host == h.host || host == "www.googleapis.com" && h.path == "/compute/" || h.path == "/token" && host == "accounts.google.com"
			if h.host == "" {
				ok = slices.Contains([]string{"cloudresourcemanager.googleapis.com", "serviceusage.googleapis.com", "iam.googleapis.com"}, host)
			}
			if ok {
				return nil
			}
			break
		}
	}
	return &fakehttp.Reply{Status: 404, Body: "there is no " + r.URL.Path + " at " + host}
}

// statuses are google.rpc's names of HTTP's.
var statuses = map[int]string{400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ALREADY_EXISTS", 412: "FAILED_PRECONDITION", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE"}

// refuse is the body of Compute Engine's errors:
// https://cloud.google.com/compute/docs/api/how-tos/api-requests-responses#handling_api_errors.
func refuse(status int, reason, format string, args ...any) *fakehttp.Reply {
	message, domain := fmt.Sprintf(format, args...), "global"
	if reason == "quotaExceeded" || reason == "rateLimitExceeded" || reason == "accessNotConfigured" {
		domain = "usageLimits"
	}
	e := dict{"code": status, "message": message, "errors": []any{dict{"message": message, "domain": domain, "reason": reason}}}
	switch {
	case reason == "rateLimitExceeded":
		e["status"] = statuses[status]
		e["details"] = []any{dict{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RATE_LIMIT_EXCEEDED", "domain": "googleapis.com", "metadata": dict{"service": "compute.googleapis.com", "consumer": "projects/" + Number}}}
	case status == 401 || status == 403 || status >= 500:
		e["status"] = statuses[status]
	}
	return &fakehttp.Reply{Status: status, Body: dict{"error": e}}
}

// rpc is the body of the errors of newer services: google.rpc.Status,
// https://cloud.google.com/apis/design/errors#http_mapping.
func rpc(status int, details []any, format string, args ...any) *fakehttp.Reply {
	e := dict{"code": status, "message": fmt.Sprintf(format, args...), "status": statuses[status]}
	if details != nil {
		e["details"] = details
	}
	return &fakehttp.Reply{Status: status, Body: dict{"error": e}}
}

const (
	unauthenticated = "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project."
	tooMany         = "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service 'compute.googleapis.com' for consumer 'project_number:" + Number + "'."
)

// refusal is what faults, and the model, say.
func (f *Fake) refusal(r *http.Request, op string, e *fluffyapi.Error) *fakehttp.Reply {
	compute := strings.HasPrefix(r.URL.Path, "/compute/")
	say := func(status int, reason, message string) *fakehttp.Reply {
		if compute {
			return refuse(status, reason, "%s", message)
		}
		return rpc(status, nil, "%s", message)
	}
	switch e.Code {
	case fluffyapi.Unauthorized:
		if open(r.URL.Path) {
			return &fakehttp.Reply{Status: 400, Body: dict{"error": "invalid_grant", "error_description": "Token has been expired or revoked."}}
		}
		return say(401, "authError", unauthenticated)
	case fluffyapi.Forbidden:
		return say(403, "forbidden", fmt.Sprintf("Required '%s' permission for '%s'", op, strings.TrimPrefix(r.URL.Path, "/compute/v1/")))
	case fluffyapi.Throttled:
		if open(r.URL.Path) {
			return &fakehttp.Reply{Status: 429, Body: dict{"error": "rate_limit_exceeded"}}
		}
		if compute {
			return refuse(403, "rateLimitExceeded", "%s", tooMany)
		}
		return rpc(429, nil, "%s", tooMany)
	case fluffyapi.NotFound:
		return say(404, "notFound", fmt.Sprintf("The resource '%s' was not found", strings.TrimPrefix(r.URL.Path, "/compute/v1/")))
	case fluffyapi.InUse:
		return say(400, "resourceInUseByAnotherResource", fmt.Sprintf("The resource '%s' is already being used by another resource", strings.TrimPrefix(r.URL.Path, "/compute/v1/")))
	case fluffyapi.Invalid:
		return say(400, "invalid", e.Message)
	case fluffyapi.WrongState:
		return say(400, "resourceNotReady", e.Message)
	case fluffyapi.Internal:
		return say(503, "backendError", "Internal error. Please try again or contact Google Support. (Code: '0')")
	}
	return say(400, string(e.Code), e.Message)
}
