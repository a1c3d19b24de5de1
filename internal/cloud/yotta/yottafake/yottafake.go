// Package yottafake is Yotta Labs' API, https://api.yottalabs.ai, as a server for tests: the
// clusters of pods that SkyPilot's provider uses (/openapi/v1, whose facts are from that
// provider: skypilot-org/skypilot, sky/provision/yotta/yotta_utils.py) and version 2, which
// Yotta documents (yottalabsai/YottaML, docs/openapi.yaml). Types of instances are named as
// in SkyPilot's catalog. The codes of success, of an unknown cluster and of bad keys are
// public (10000, 44003, 40001); the others, and how a lack of room is reported, are not, so they
// are made up: a cluster for which there is no room is TERMINATED.
package yottafake

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Key and Org are those of the only account.
const Key, Org = "fake-yotta-key-0123456789", "org-fake"

type dict = fakehttp.Dict

// Fake is the whole of Yotta. Its things are "clusters" and, by their names, the pods of those
// that were "released".
type Fake struct{ *fakehttp.Fake }

var regions = map[string]string{"us-east-2": "US East 2", "us-central-2": "US Central 2"}

var kinds = map[string]struct {
	gpu             string
	gpus, cpus, ram int
	price           float64
}{
	"1x14v119g_NVIDIA_GeForce_RTX_5090_32G_SECURE": {"NVIDIA_RTX_5090_32G", 1, 14, 119, 0.65},
	"2x28v238g_NVIDIA_GeForce_RTX_5090_32G_SECURE": {"NVIDIA_RTX_5090_32G", 2, 28, 238, 1.3},
	"8x128v1440g_NVIDIA_H100_80G_SECURE":           {"NVIDIA_H100_80G", 8, 128, 1440, 18},
}

// success is the code of answers that are no refusals.
const success, noCluster = 10000, 44003

// words are statuses of version 2, and codes. In version 1 refusals with status 400 have
// status 200: they are in the body only.
var words = map[fluffyapi.Code]struct {
	status, code int
	message      string
}{
	fluffyapi.Unauthorized: {401, 40001, ""}, fluffyapi.Forbidden: {403, 40003, ""}, fluffyapi.NotFound: {404, 40400, ""}, fluffyapi.Invalid: {400, 40000, ""}, fluffyapi.NoCapacity: {400, 44010, "insufficient resources"},
	fluffyapi.QuotaExceeded: {400, 44011, "the quota is exceeded"}, fluffyapi.WrongState: {400, 44012, ""}, fluffyapi.NameTaken: {400, 44013, ""}, fluffyapi.Throttled: {429, 42900, "too many requests"}, fluffyapi.Internal: {500, 50000, ""},
}

func refusal(r *http.Request, _ string, e *fluffyapi.Error) *fakehttp.Reply {
	w, ok := words[e.Code]
	if !ok { // of faults
		w.status, w.code, w.message = 400, 49999, fakehttp.Coded(string(e.Code), e.Message)
	}
	reply := &fakehttp.Reply{Status: w.status, Body: dict{"code": w.code, "message": cmp.Or(w.message, e.Message), "data": nil}}
	if w.status == http.StatusTooManyRequests {
		reply.Header = map[string]string{"Retry-After": "1"}
	} else if w.status == http.StatusBadRequest && strings.HasPrefix(r.URL.Path, "/openapi/v1/") {
		reply.Status = http.StatusOK
	}
	return reply
}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	api := fakehttp.API{
		Regions: slices.Sorted(maps.Keys(regions)), Linger: 10 * time.Minute, Noun: "pod", Remembers: true, Records: []string{"released"}, Login: fakehttp.Header("X-API-KEY", Key), Refusal: refusal,
		ID:   func(n uint64) string { return fmt.Sprint(341020000 + n) },
		Wrap: func(data any) any { return dict{"code": success, "message": "success", "data": data} },
	}
	for name, k := range kinds {
		api.Types = append(api.Types, fakehttp.Type(name, k.cpus, k.gpu, k.gpus, k.price))
	}
	f := &Fake{fakehttp.New(api)}
	// SkyPilot, yotta_utils.py
	f.Route("GET", "/openapi/key/check", "account", nil, func(r *http.Request, _ dict) (any, error) { return r.URL.Query().Get("orgId") == Org, nil })
	f.Route("POST", "/openapi/v1/pods/cluster/create", "clusters.put", fakehttp.Schema{
		"!clusterName": name, "!instanceType": fakehttp.Filled, "!region": fakehttp.Filled, "!imageName": fakehttp.Filled, "expose": exposed, "publicKey": fakehttp.Filled, "sshUser": fakehttp.Filled, "!nodeNum": `[1-9]\d*`, "clusterType": `[12]`, "source": `\d+`, "containerVolumeInGb": `[1-9]\d*`,
	}, f.newCluster)
	f.Keep(fakehttp.Kind{Name: "clusters", Path: "/openapi/v1/pods/cluster/status", Noun: "cluster", NoList: true, Describe: func(o dict) dict { return dict{"status": clusterStatus(o)} }})
	f.Route("POST", "/openapi/v1/pods/cluster/create/pod", "instances.create", fakehttp.Schema{
		"!name": name, "!image": fakehttp.Filled, "!clusterId": fakehttp.Filled, "!clusterName": fakehttp.Filled, "imagePublicType": `"(?:PUBLIC|PRIVATE)"`, "expose": exposed, "initializationCommand": fakehttp.String, "imageRegistryUsername": fakehttp.Filled, "imageRegistryToken": fakehttp.Filled,
	}, f.newPodOfCluster)
	f.Route("POST", "/openapi/v1/pods/cluster/pods/list", "instances.list", fakehttp.Schema{"!clusterName": fakehttp.Filled, "source": `\d+`}, f.podsOfCluster)
	f.Route("POST", "/openapi/v1/pods/cluster/release", "instances.terminate", fakehttp.Schema{"!clusterName": fakehttp.Filled}, f.release)
	// docs/openapi.yaml, "Virtual Machines" and "Pods"
	f.Route("GET", "/v2/vms/types", "offers", nil, f.types)
	f.Route("GET", "/v2/pods", "instances.list", nil, f.pods)
	f.Route("POST", "/v2/pods", "instances.create", fakehttp.Schema{
		"!name": name, "!image": fakehttp.Filled, "!gpuType": fakehttp.Filled, "!gpuCount": `(?:1|2|4|8|16)`, "regions": fakehttp.List(fakehttp.Filled), "imageRegistry": fakehttp.Filled, "containerRegistryAuthId": `\d+`, "imagePublicType": `"(?:PUBLIC|PRIVATE)"`, "resourceType": `"(?:GPU|CPU)"`,
		"minSingleCardVcpu": `[1-9]\d*`, "minSingleCardRamInGb": `[1-9]\d*`, "containerVolumeInGb": `[1-9]\d*`, "initializationCommand": fakehttp.String, "environmentVars": fakehttp.List(`\{"key":` + fakehttp.Filled + `,"value":` + fakehttp.String + `\}`), "expose": exposed,
	}, f.newPod)
	f.Show("/v2/pods/{id}", func(i fluffyapi.Instance) any { return f.view(i, false) })
	done := func(fluffyapi.Instance) any { return true }
	f.Turn("DELETE", "/v2/pods/{id}", "instances.terminate", nil, done)
	f.Turn("POST", "/v2/pods/{id}/pause", "instances.stop", nil, done)
	f.Turn("POST", "/v2/pods/{id}/resume", "instances.start", nil, done)
	return f
}

var (
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
	case f.ThingBy("clusters", "name", in["clusterName"]) != nil:
		return nil, fluffyapi.Errorf(fluffyapi.NameTaken, "cluster %v already exists", in["clusterName"])
	}
	in["id"], in["name"], in["made"], in["pods"] = fmt.Sprint("cluster-", f.NewID()), in["clusterName"], time.Now(), []string{}
	in["room"] = f.Free(r, region, kind) >= int(in["nodeNum"].(float64))
	return dict{"clusterId": f.Put("clusters", in)["id"]}, nil
}

func clusterStatus(o dict) string {
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
	case clusterStatus(o) != "RUNNING":
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
	return json.Number(i.ID), nil
}

// unknown is the answer about a cluster that does not exist.
var unknown = &fakehttp.Reply{Status: http.StatusOK, Body: dict{"code": noCluster, "message": "cluster not found", "data": nil}}

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
	if len(all) == 0 && f.ThingBy("clusters", "name", in["clusterName"]) == nil {
		return unknown, nil
	}
	return all, nil
}

// release ends a cluster with all its pods.
func (f *Fake) release(r *http.Request, in dict) (any, error) {
	o, again := f.ThingBy("clusters", "name", in["clusterName"]), f.Thing("released", in["clusterName"])
	if o == nil && again == nil {
		return unknown, nil
	} else if o == nil {
		o = again
	}
	for _, id := range o["pods"].([]string) {
		if m, ok := f.Machine(id); ok && m.State != fluffyapi.Terminated {
			if _, err := f.Terminate(r, id); err != nil {
				return nil, err
			}
		}
	}
	_ = f.Drop("released", in["clusterName"])
	f.Put("released", dict{"id": in["clusterName"], "pods": o["pods"]})
	_ = f.Drop("clusters", o["id"])
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

// pods are those of the regions and in the states that are asked for.
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

// states are those of pods in the first version; second, where they differ in the second one.
var (
	states = fakehttp.States{
		fluffyapi.Pending: "INITIALIZE", fluffyapi.Running: "RUNNING", fluffyapi.Stopping: "PAUSING", fluffyapi.Stopped: "PAUSED", fluffyapi.Terminating: "TERMINATING", fluffyapi.Terminated: "TERMINATED",
	}
	second = map[fluffyapi.State]string{fluffyapi.Pending: "INITIALIZING", fluffyapi.Stopping: "STOPPING", fluffyapi.Stopped: "STOPPED"}
)

// view is a pod in Yotta's words: its ports are reached at others of a host, which it has for itself here.
func (f *Fake) view(i fluffyapi.Instance, first bool) dict {
	asked, k, status := fakehttp.Asked(i), kinds[i.Type], states.Of(i.State)
	if !first {
		status = cmp.Or(second[i.State], status)
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
		"id": json.Number(i.ID), "name": asked["name"], "status": status, "image": asked["image"], "region": i.Region, "gpuType": k.gpu, "gpuDisplayName": strings.ReplaceAll(k.gpu, "_", " "), "gpuCount": k.gpus,
		"createdAt": i.Created.UnixMilli(), "expose": expose, "sshCmd": ssh,
	}
	if first {
		out["podName"], out["internalIp"] = asked["name"], private
	}
	return out
}
