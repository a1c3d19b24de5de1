// Package yottafake is Yotta Labs' API, https://api.yottalabs.ai, as a server for tests: the
// clusters of pods that SkyPilot's provider uses (/openapi/v1, whose facts are from that
// provider: skypilot-org/skypilot, sky/provision/yotta/yotta_utils.py) and version 2, which
// Yotta documents (yottalabsai/YottaML, docs/openapi.yaml). Types of instances are named as
// in SkyPilot's catalog. The codes of success, of an unknown cluster and of bad keys are
// public (10000, 44003, 40001); the others, and how a lack of room is reported, are not, so they
// are made up: a cluster for which there is no room is TERMINATED.
package yottafake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// Key and Org are those of the only account.
const Key, Org = "fake-yotta-key-0123456789", "org-fake"

type dict = fakehttp.Dict

// Fake is the whole of Yotta.
type Fake struct {
	*fakehttp.Fake
	released map[string][]string // pods by the names of clusters that were released
	resumed  map[string]bool     // pods that were paused
}

var regions = map[string]string{"us-east-2": "US East 2", "us-central-2": "US Central 2"}

var kinds = map[string]struct {
	gpu       string
	gpus      int
	cpus, ram int
	price     float64
}{
	"1x14v119g_NVIDIA_GeForce_RTX_5090_32G_SECURE": {"NVIDIA_RTX_5090_32G", 1, 14, 119, 0.65},
	"2x28v238g_NVIDIA_GeForce_RTX_5090_32G_SECURE": {"NVIDIA_RTX_5090_32G", 2, 28, 238, 1.3},
	"8x128v1440g_NVIDIA_H100_80G_SECURE":           {"NVIDIA_H100_80G", 8, 128, 1440, 18},
}

// success is the code of answers that are no refusals.
const success, noCluster = 10000, 44003

var codes = map[fluffyapi.Code]int{
	fluffyapi.Unauthorized: 40001, fluffyapi.Forbidden: 40003, fluffyapi.NotFound: 40400, fluffyapi.Invalid: 40000, fluffyapi.NoCapacity: 44010, fluffyapi.QuotaExceeded: 44011,
	fluffyapi.WrongState: 44012, fluffyapi.NameTaken: 44013, fluffyapi.Internal: 50000,
}

var statuses = map[fluffyapi.Code]int{fluffyapi.Unauthorized: 401, fluffyapi.Forbidden: 403, fluffyapi.NotFound: 404, fluffyapi.Internal: 500, fluffyapi.Throttled: 429}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	api := fakehttp.API{
		Regions: slices.Sorted(maps.Keys(regions)), Linger: 10 * time.Minute,
		ID:    func(n uint64) string { return fmt.Sprint(341020000 + n) },
		Login: func(r *http.Request) bool { return r.Header.Get("X-API-KEY") == Key },
		Wrap:  func(data any) any { return dict{"code": success, "message": "success", "data": data} },
		Refusal: func(r *http.Request, _ string, e *fluffyapi.Error) *fakehttp.Reply {
			status, code, header := 400, any(codes[e.Code]), map[string]string(nil)
			if s, ok := statuses[e.Code]; ok {
				status = s
			} else if strings.HasPrefix(r.URL.Path, "/openapi/v1/") {
				status = http.StatusOK // refusals of that version are in the body only
			}
			message := e.Message
			switch {
			case e.Code == fluffyapi.Throttled:
				code, message, header = 42900, "too many requests", map[string]string{"Retry-After": "1"}
			case code == 0:
				code, message = 49999, string(e.Code)+": "+message
			case e.Code == fluffyapi.NoCapacity:
				message = "insufficient resources"
			case e.Code == fluffyapi.QuotaExceeded:
				message = "the quota is exceeded"
			}
			return &fakehttp.Reply{Status: status, Header: header, Body: dict{"code": code, "message": message, "data": nil}}
		},
	}
	for name, k := range kinds {
		api.Types = append(api.Types, model.Type{Name: name, CPUs: k.cpus, Accelerators: map[string]float64{k.gpu: float64(k.gpus)}, Price: k.price})
	}
	f := &Fake{Fake: fakehttp.New(api), released: map[string][]string{}, resumed: map[string]bool{}}
	// SkyPilot, yotta_utils.py
	f.Route("GET", "/openapi/key/check", "account", nil, func(r *http.Request, _ dict) (any, error) { return r.URL.Query().Get("orgId") == Org, nil })
	f.Route("POST", "/openapi/v1/pods/cluster/create", "clusters.put", fakehttp.Schema{
		"!clusterName": name, "!instanceType": word, "!region": word, "!imageName": word, "expose": exposed, "publicKey": word, "sshUser": word, "!nodeNum": `[1-9]\d*`, "clusterType": `[12]`, "source": `\d+`, "containerVolumeInGb": `[1-9]\d*`,
	}, f.newCluster)
	f.Route("GET", "/openapi/v1/pods/cluster/status/{id}", "clusters.get", nil, func(r *http.Request, _ dict) (any, error) {
		if o := f.Thing("clusters", r.PathValue("id")); o != nil {
			return dict{"status": f.clusterStatus(r, o)}, nil
		}
		return nil, fakehttp.Missing("cluster " + r.PathValue("id"))
	})
	f.Route("POST", "/openapi/v1/pods/cluster/create/pod", "instances.create", fakehttp.Schema{
		"!name": name, "!image": word, "!clusterId": word, "!clusterName": word, "imagePublicType": `"(?:PUBLIC|PRIVATE)"`, "expose": exposed, "initializationCommand": fakehttp.String, "imageRegistryUsername": word, "imageRegistryToken": word,
	}, f.newPodOfCluster)
	f.Route("POST", "/openapi/v1/pods/cluster/pods/list", "instances.list", fakehttp.Schema{"!clusterName": word, "source": `\d+`}, f.podsOfCluster)
	f.Route("POST", "/openapi/v1/pods/cluster/release", "instances.terminate", fakehttp.Schema{"!clusterName": word}, f.release)
	// docs/openapi.yaml, "Virtual Machines" and "Pods"
	f.Route("GET", "/v2/vms/types", "offers", nil, f.types)
	f.Route("GET", "/v2/pods", "instances.list", nil, f.pods)
	f.Route("POST", "/v2/pods", "instances.create", fakehttp.Schema{
		"!name": name, "!image": word, "!gpuType": word, "!gpuCount": `(?:1|2|4|8|16)`, "regions": fakehttp.List(word), "imageRegistry": word, "containerRegistryAuthId": `\d+`, "imagePublicType": `"(?:PUBLIC|PRIVATE)"`, "resourceType": `"(?:GPU|CPU)"`,
		"minSingleCardVcpu": `[1-9]\d*`, "minSingleCardRamInGb": `[1-9]\d*`, "containerVolumeInGb": `[1-9]\d*`, "initializationCommand": fakehttp.String, "environmentVars": fakehttp.List(`\{"key":` + word + `,"value":` + fakehttp.String + `\}`), "expose": exposed,
	}, f.newPod)
	f.Route("GET", "/v2/pods/{id}", "instances.get", nil, func(r *http.Request, _ dict) (any, error) {
		i, err := f.pod(r)
		if err != nil {
			return nil, err
		}
		return f.view(i, false), nil
	})
	change := func(method, path, op string, do func(*http.Request, string) (fluffyapi.Instance, error)) {
		f.Route(method, path, op, nil, func(r *http.Request, _ dict) (any, error) {
			i, err := f.pod(r)
			if err == nil {
				_, err = do(r, i.ID)
			}
			return true, err
		})
	}
	change("DELETE", "/v2/pods/{id}", "instances.terminate", f.Terminate)
	change("POST", "/v2/pods/{id}/pause", "instances.stop", f.Stop)
	change("POST", "/v2/pods/{id}/resume", "instances.start", func(r *http.Request, id string) (fluffyapi.Instance, error) {
		f.resumed[id] = true
		return f.Start(r, id)
	})
	return f
}

var (
	word    = `"` + fakehttp.Char + `+"`
	name    = `"` + fakehttp.Char + `{1,255}"`
	exposed = fakehttp.List(`\{"port":\d+,"protocol":"(?:TCP|SSH|HTTP|tcp|ssh|http)"\}`)
)

func (f *Fake) newCluster(r *http.Request, in dict) (any, error) {
	kind, region := in["instanceType"].(string), in["region"].(string)
	switch {
	case kinds[kind].cpus == 0:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "instanceType %s does not exist", kind)
	case regions[region] == "":
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "region %s does not exist", region)
	case f.cluster(in["clusterName"]) != nil:
		return nil, fluffyapi.Errorf(fluffyapi.NameTaken, "cluster %v already exists", in["clusterName"])
	}
	in["id"], in["name"], in["made"], in["pods"] = fmt.Sprint("cluster-", f.NewID()), in["clusterName"], time.Now(), []string{}
	in["room"] = f.Free(r, region, kind) >= int(in["nodeNum"].(float64))
	return dict{"clusterId": f.Put("clusters", in)["id"]}, nil
}

func (f *Fake) cluster(name any) dict {
	for _, o := range f.Things("clusters") {
		if o["name"] == name {
			return o
		}
	}
	return nil
}

func (f *Fake) clusterStatus(_ *http.Request, o dict) string {
	switch {
	case o["room"] == false:
		return "TERMINATED"
	case time.Since(o["made"].(time.Time)) < 10*time.Millisecond:
		return "INITIALIZE"
	}
	return "RUNNING"
}

func (f *Fake) newPodOfCluster(r *http.Request, in dict) (any, error) {
	o := f.Thing("clusters", in["clusterId"])
	switch {
	case o == nil || o["name"] != in["clusterName"]:
		return nil, fakehttp.Missing("cluster " + in["clusterId"].(string))
	case f.clusterStatus(r, o) != "RUNNING":
		return nil, fluffyapi.Errorf(fluffyapi.WrongState, "cluster %v is not RUNNING", o["name"])
	case len(o["pods"].([]string)) >= int(o["nodeNum"].(float64)):
		return nil, fluffyapi.Errorf(fluffyapi.WrongState, "cluster %v has all its pods", o["name"])
	}
	in["cluster"] = o["name"]
	i, err := f.Create(r, o["region"].(string), o["instanceType"].(string), in)
	if err != nil {
		return nil, err
	}
	o["pods"] = append(o["pods"].([]string), i.ID)
	return number(i.ID), nil
}

func number(id string) int {
	n, _ := strconv.Atoi(id)
	return n
}

// podsOfCluster lists pods, for a while after their end, too.
func (f *Fake) podsOfCluster(r *http.Request, in dict) (any, error) {
	instances, err := f.Instances(r)
	if err != nil {
		return nil, err
	}
	all := []dict{}
	for _, i := range instances {
		if fakehttp.Asked(i)["cluster"] == in["clusterName"] {
			all = append(all, f.view(i, true))
		}
	}
	if len(all) == 0 && f.cluster(in["clusterName"]) == nil {
		return nil, &fakehttp.Reply{Status: http.StatusOK, Body: dict{"code": noCluster, "message": "cluster not found", "data": nil}}
	}
	return all, nil
}

// release ends a cluster with all its pods.
func (f *Fake) release(r *http.Request, in dict) (any, error) {
	o := f.cluster(in["clusterName"])
	ids := f.released[in["clusterName"].(string)]
	if o != nil {
		ids = o["pods"].([]string)
	} else if ids == nil {
		return nil, &fakehttp.Reply{Status: http.StatusOK, Body: dict{"code": noCluster, "message": "cluster not found", "data": nil}}
	}
	for _, id := range ids {
		if m, ok := f.Machine(id); ok && m.State != fluffyapi.Terminated {
			if _, err := f.Terminate(r, id); err != nil {
				return nil, err
			}
		}
	}
	f.released[in["clusterName"].(string)] = ids
	if o != nil {
		_ = f.Drop("clusters", o["id"])
	}
	return true, nil
}

// types are the GPUs, and where they are to be had.
func (f *Fake) types(r *http.Request, _ dict) (any, error) {
	all := []dict{}
	for n, gpu := range []string{"NVIDIA_H100_80G", "NVIDIA_RTX_5090_32G"} {
		in := []dict{}
		for m, region := range slices.Sorted(maps.Keys(regions)) {
			free := 0
			for name, k := range kinds {
				if k.gpu == gpu {
					free += f.Free(r, region, name)
				}
			}
			in = append(in, dict{"region": region, "regionName": regions[region], "available": free > 0, "vmTypeId": 10*n + m})
		}
		all = append(all, dict{"gpuType": gpu, "regions": in})
	}
	return all, nil
}

func (f *Fake) newPod(r *http.Request, in dict) (any, error) {
	kind, at := "", slices.Sorted(maps.Keys(regions))
	for name, k := range kinds {
		if k.gpu == in["gpuType"] && float64(k.gpus) == in["gpuCount"] {
			kind = name
		}
	}
	if kind == "" {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "there is no pod with %v of %v", in["gpuCount"], in["gpuType"])
	}
	if in["regions"] != nil {
		at = nil
		for _, region := range fakehttp.Items(in["regions"]) {
			if at = append(at, region.(string)); regions[region.(string)] == "" {
				return nil, fluffyapi.Errorf(fluffyapi.Invalid, "region %v does not exist", region)
			}
		}
	}
	err := error(fluffyapi.Errorf(fluffyapi.Invalid, "regions: there is none"))
	for _, region := range at { // the first one that has room
		var i fluffyapi.Instance
		if i, err = f.Create(r, region, kind, in); err == nil {
			return f.view(i, false), nil
		}
	}
	return nil, err
}

func (f *Fake) pod(r *http.Request) (fluffyapi.Instance, error) {
	i, err := f.Owner.Instance(r.Context(), r.PathValue("id"))
	if err != nil {
		return i, fakehttp.Missing("pod " + r.PathValue("id"))
	}
	return i, nil
}

func (f *Fake) pods(r *http.Request, _ dict) (any, error) {
	instances, err := f.Instances(r)
	all, q := []dict{}, r.URL.Query()
	in := func(list, value string) bool { return list == "" || slices.Contains(strings.Split(list, ","), value) }
	for _, i := range instances {
		if t := f.view(i, false); i.State != fluffyapi.Terminated && in(q.Get("regionList"), i.Region) && in(q.Get("statusList"), t["status"].(string)) {
			all = append(all, t)
		}
	}
	return all, err
}

// words are the states of pods in the first version and in the second one.
var words = map[fluffyapi.State][2]string{
	fluffyapi.Pending: {"INITIALIZE", "INITIALIZING"}, fluffyapi.Running: {"RUNNING", "RUNNING"}, fluffyapi.Stopping: {"PAUSING", "STOPPING"}, fluffyapi.Stopped: {"PAUSED", "STOPPED"},
	fluffyapi.Terminating: {"TERMINATING", "TERMINATING"}, fluffyapi.Terminated: {"TERMINATED", "TERMINATED"},
}

// view is a pod in Yotta's words: its ports are reached at others of a host, which it has for itself here.
func (f *Fake) view(i fluffyapi.Instance, first bool) dict {
	asked, k, status := fakehttp.Asked(i), kinds[i.Type], string(i.State)
	if w, ok := words[i.State]; ok {
		status = w[map[bool]int{true: 0, false: 1}[first]]
	}
	public, private := f.Addresses(i)
	expose, ssh := []dict{}, ""
	for n, e := range fakehttp.Items(asked["expose"]) {
		e := e.(dict)
		o := dict{"port": e["port"], "protocol": e["protocol"], "healthy": false, "serviceName": fmt.Sprint(e["protocol"], " Port")}
		if public != "" && (i.State == fluffyapi.Pending || i.State == fluffyapi.Running) {
			o["host"], o["proxyPort"], o["healthy"] = public, 30000+n, i.State == fluffyapi.Running
			if strings.EqualFold(fmt.Sprint(e["protocol"]), "SSH") {
				ssh = fmt.Sprintf("ssh root@%s -p %d -i <private key file>", public, o["proxyPort"])
				o["ingressUrl"] = ssh
			}
		}
		expose = append(expose, o)
	}
	out := dict{
		"id": number(i.ID), "name": asked["name"], "status": status, "image": asked["image"], "region": i.Region, "gpuType": k.gpu, "gpuDisplayName": strings.ReplaceAll(k.gpu, "_", " "), "gpuCount": k.gpus,
		"createdAt": i.Created.UnixMilli(), "expose": expose, "sshCmd": ssh,
	}
	if first {
		out["podName"], out["internalIp"] = asked["name"], private
	}
	return out
}
