package kubernetes

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
)

// fake is an API server with a scheduler and machines behind it, as far as pods
// are concerned. It behaves: versions rise, watches say what happened since,
// pods take a moment to run and to go, and machines fill up.
type fake struct {
	t      testing.TB
	server *httptest.Server
	hook   *hook

	mu      sync.Mutex
	objects map[string]map[string]obj // by path of the collection, by name
	version int
	history []change
	changed chan struct{} // closed at every change
	boot    time.Duration
	room    int             // pods that may still be scheduled; -1: any number
	admit   map[string]bool // pods that may be scheduled; nil: all
	reuse   bool            // the room of pods that go is free again
	quota   int             // pods that may still be created; -1: any number
	ips     int
	denied  []string                                   // what the account may not: "pods/" or "pods/exec", or "delete persistentvolumeclaims"
	cleaned []string                                   // machine and folder that was emptied
	reviews int                                        // how often it was asked what the account may
	refuse  func(pod obj) (status int, message string) // an admission rule
	onBoot  func(pod obj)                              // another fate than running; changes status
}

type change struct {
	version int
	kind    string // ADDED, MODIFIED, DELETED
	path    string
	object  obj
}

// hook stands between client and API server and makes trouble.
type hook struct {
	mu   sync.Mutex
	f    func(w http.ResponseWriter, r *http.Request, next http.Handler) (handled bool)
	next http.Handler
	gone chan struct{} // closed when the trouble ends
}

func (h *hook) set(f func(http.ResponseWriter, *http.Request, http.Handler) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.f = f
	if h.gone != nil {
		close(h.gone)
	}
	h.gone = make(chan struct{})
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	f := h.f
	h.mu.Unlock()
	if f == nil || !f(w, r, h.next) {
		h.next.ServeHTTP(w, r)
	}
}

func startFake(t testing.TB) *fake {
	f := &fake{t: t, objects: map[string]map[string]obj{}, version: 1, changed: make(chan struct{}), room: -1, quota: -1, boot: 2 * time.Millisecond}
	f.hook = &hook{next: f}
	f.server = httptest.NewServer(f.hook)
	t.Cleanup(func() {
		f.hook.set(nil)
		f.server.CloseClientConnections()
		f.server.Close()
	})
	f.addNode("node-1", nil, map[string]string{"cpu": "64", "memory": "256Gi"})
	f.addClass("standard", true, false, "")
	return f
}

// contexts are those of a kubeconfig that names these servers, the first one
// current.
func contexts(t testing.TB, servers map[string]string, current string) *Contexts {
	home := t.TempDir()
	config := obj{"apiVersion": "v1", "kind": "Config", "current-context": current}
	var clusters, users, ctxs []any
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		clusters = append(clusters, obj{"name": name + "-cluster", "cluster": obj{"server": servers[name]}})
		users = append(users, obj{"name": name + "-user", "user": obj{"token": "secret"}})
		ctxs = append(ctxs, obj{"name": name, "context": obj{"cluster": name + "-cluster", "user": name + "-user", "namespace": "team"}})
	}
	config["clusters"], config["users"], config["contexts"] = clusters, users, ctxs
	os.MkdirAll(filepath.Join(home, ".kube"), 0o700)
	if err := os.WriteFile(filepath.Join(home, ".kube", "config"), []byte(jsonOf(config)), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("KUBECONFIG") != "" || inCluster() {
		t.Skip("the environment names a cluster of its own")
	}
	return NewContexts(home)
}

func (f *fake) addNode(name string, labels map[string]string, capacity map[string]string) {
	have := texts(capacity)
	f.put("/api/v1/nodes", obj{
		"apiVersion": "v1", "kind": "Node", "metadata": obj{"name": name, "labels": texts(labels)},
		"status": obj{"capacity": have, "allocatable": have, "conditions": []any{obj{"type": "Ready", "status": "True"}},
			"addresses": []any{obj{"type": "InternalIP", "address": "10.1.0." + strconv.Itoa(len(f.objects["/api/v1/nodes"])+1)}}},
	})
}

// put stores an object as the API server would.
func (f *fake) put(path string, o obj) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store(path, o)
}

func (f *fake) store(path string, o obj) {
	meta := asObj(o["metadata"])
	kind := "MODIFIED"
	if f.objects[path] == nil {
		f.objects[path] = map[string]obj{}
	}
	if _, there := f.objects[path][meta["name"].(string)]; !there {
		kind = "ADDED"
	}
	f.version++
	meta["resourceVersion"] = strconv.Itoa(f.version)
	if meta["uid"] == nil {
		meta["uid"] = fmt.Sprintf("%08x-uid", f.version)
		meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	}
	f.objects[path][meta["name"].(string)] = o
	f.note(kind, path, o)
}

func (f *fake) drop(path, name string) {
	if o := f.objects[path][name]; o != nil {
		f.version++
		delete(f.objects[path], name)
		f.note("DELETED", path, o)
		if path == podsPath {
			f.letGo()
		}
	}
}

func (f *fake) note(kind, path string, o obj) {
	f.history = append(f.history, change{f.version, kind, path, copyOf(o)})
	close(f.changed)
	f.changed = make(chan struct{})
}

func copyOf(o obj) obj {
	var out obj
	json.Unmarshal([]byte(jsonOf(o)), &out)
	return out
}

// update changes a stored object if it is still there.
func (f *fake) update(path, name string, change func(obj)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.objects[path][name]; o != nil {
		o = copyOf(o)
		change(o)
		f.store(path, o)
	}
}

func refuseWith(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	io.WriteString(w, jsonOf(obj{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code}))
}

func say(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	io.WriteString(w, jsonOf(v))
}

// ServeHTTP is the REST API. A path ends in a collection or in a name of it.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	collection, name := r.URL.Path, ""
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	n := len(parts)
	plain := map[string]bool{"pods": true, "nodes": true, "services": true, "events": true, "persistentvolumeclaims": true, "ingresses": true, "runtimeclasses": true, "secrets": true,
		"persistentvolumes": true, "ingressclasses": true, "storageclasses": true}
	if n > 1 && !plain[parts[n-1]] {
		collection, name = "/"+strings.Join(parts[:n-1], "/"), parts[n-1]
	}
	q := r.URL.Query()
	switch {
	case r.Method == "GET" && q.Get("watch") != "":
		f.watch(w, r, collection)
	case r.Method == "GET" && name == "":
		f.list(w, r, collection)
	case r.Method == "GET":
		f.mu.Lock()
		defer f.mu.Unlock()
		if o := f.objects[collection][name]; o != nil {
			say(w, 200, o)
			return
		}
		refuseWith(w, 404, "NotFound", name+" not found")
	case r.Method == "POST" && parts[n-1] == "selfsubjectaccessreviews":
		var q obj
		json.NewDecoder(r.Body).Decode(&q)
		about := asObj(asObj(q["spec"])["resourceAttributes"])
		f.mu.Lock()
		defer f.mu.Unlock()
		f.reviews++
		q["status"] = obj{"allowed": !slices.Contains(f.denied, text(about["resource"])+"/"+text(about["subresource"])) &&
			!slices.Contains(f.denied, text(about["verb"])+" "+text(about["resource"]))}
		say(w, 201, q)
	case r.Method == "POST":
		f.create(w, r, collection)
	case r.Method == "PATCH":
		f.patch(w, r, collection, name)
	case r.Method == "DELETE":
		f.remove(w, r, collection, name)
	default:
		refuseWith(w, 405, "MethodNotAllowed", r.Method)
	}
}

// chosen applies the selectors of a request.
func chosen(r *http.Request, o obj) bool {
	s, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return false
	}
	meta := asObj(o["metadata"])
	set := labels.Set{}
	for k, v := range asObj(meta["labels"]) {
		set[k] = v.(string)
	}
	if !s.Matches(set) {
		return false
	}
	for _, term := range strings.Split(r.URL.Query().Get("fieldSelector"), ",") {
		if want, ok := strings.CutPrefix(term, "metadata.name="); ok && meta["name"] != want {
			return false
		}
		if unwanted, ok := strings.CutPrefix(term, "status.phase!="); ok && asObj(o["status"])["phase"] == unwanted {
			return false
		}
	}
	return true
}

func (f *fake) list(w http.ResponseWriter, r *http.Request, collection string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	items := []any{}
	for _, path := range slices.Sorted(maps.Keys(f.objects)) {
		// A list over all namespaces has no namespace in its path.
		if path != collection && !(collection == "/api/v1/pods" && strings.HasSuffix(path, "/pods")) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(f.objects[path])) {
			if o := f.objects[path][name]; chosen(r, o) {
				items = append(items, o)
			}
		}
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	meta := obj{"resourceVersion": strconv.Itoa(f.version)}
	items = items[min(from, len(items)):]
	if limit > 0 && len(items) > limit {
		items = items[:limit]
		meta["continue"] = strconv.Itoa(from + limit)
	}
	say(w, 200, obj{"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items})
}

func (f *fake) watch(w http.ResponseWriter, r *http.Request, collection string) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(200)
	w.(http.Flusher).Flush()
	e := json.NewEncoder(w)
	next := 0
	for {
		f.mu.Lock()
		news := f.history[next:]
		next = len(f.history)
		changed := f.changed
		f.mu.Unlock()
		for _, c := range news {
			if c.version > from && c.path == collection && chosen(r, c.object) {
				e.Encode(obj{"type": c.kind, "object": c.object})
			}
		}
		w.(http.Flusher).Flush()
		f.hook.mu.Lock()
		trouble := f.hook.gone
		f.hook.mu.Unlock()
		select {
		case <-r.Context().Done():
			return
		case <-trouble: // whatever began or ended, connections break
			return
		case <-changed:
		}
	}
}

func (f *fake) create(w http.ResponseWriter, r *http.Request, collection string) {
	var o obj
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		refuseWith(w, 400, "BadRequest", err.Error())
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name, _ := asObj(o["metadata"])["name"].(string)
	isPod, isClaim := strings.HasSuffix(collection, "/pods"), collection == claimsPath
	if f.refuse != nil && isPod {
		if code, message := f.refuse(o); code != 0 {
			refuseWith(w, code, map[int]string{403: "Forbidden", 422: "Invalid", 400: "BadRequest", 500: "InternalError"}[code], message)
			return
		}
	}
	if f.objects[collection][name] != nil {
		refuseWith(w, 409, "AlreadyExists", fmt.Sprintf("%q already exists", name))
		return
	}
	if isPod && f.quota == 0 {
		refuseWith(w, 403, "Forbidden", fmt.Sprintf("pods %q is forbidden: exceeded quota: team-quota, requested: pods=1, used: pods=2, limited: pods=2", name))
		return
	}
	if isPod && f.quota > 0 {
		f.quota--
	}
	meta := asObj(o["metadata"])
	meta["namespace"] = parts(collection, 3)
	if isPod {
		o["status"] = obj{"phase": "Pending"}
	}
	if isClaim {
		f.newClaim(o)
	}
	f.store(collection, o)
	if isPod {
		f.schedule(collection, name)
	}
	if isClaim {
		f.provision(name, false)
	}
	say(w, 201, o)
}

func parts(path string, i int) string { return strings.Split(strings.Trim(path, "/"), "/")[i] }

// schedule lets a pod run after a moment, if there is room.
func (f *fake) schedule(collection, name string) {
	uid := asObj(f.objects[collection][name]["metadata"])["uid"]
	time.AfterFunc(f.boot, func() { f.run(collection, name, uid) })
}

func (f *fake) run(collection, name string, uid any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.objects[collection][name]
	if o != nil && asObj(o["metadata"])["uid"] == uid && asObj(asObj(o["metadata"])["labels"])[labelCleans] != nil {
		f.clean(copyOf(o))
		return
	}
	if o == nil || asObj(o["metadata"])["uid"] != uid || asObj(o["status"])["phase"] != "Pending" || asObj(o["spec"])["nodeName"] != nil {
		return
	}
	o = copyOf(o)
	if f.admit != nil && !f.admit[name] {
		f.schedule(collection, name)
		return
	}
	if f.room == 0 {
		o["status"] = obj{"phase": "Pending", "conditions": []any{obj{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
			"message": "0/1 nodes are available: 1 Insufficient cpu."}}}
		f.store(collection, o)
		return
	}
	if message := f.lacksVolumes(o); message != "" {
		o["status"] = obj{"phase": "Pending", "conditions": []any{obj{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}}}
		f.store(collection, o)
		f.schedule(collection, name)
		return
	}
	if f.room > 0 {
		f.room--
	}
	f.ips++
	asObj(o["spec"])["nodeName"] = "node-1"
	if strings.Contains(jsonOf(o), nvidiaKey) {
		asObj(o["spec"])["nodeName"] = "gpu-1"
	}
	o["status"] = obj{"phase": "Running", "podIP": fmt.Sprintf("10.2.%d.%d", f.ips/200, f.ips%200+1),
		"conditions":        []any{obj{"type": "PodScheduled", "status": "True"}},
		"containerStatuses": []any{obj{"name": mainContainer, "ready": true, "state": obj{"running": obj{}}}}}
	if f.onBoot != nil {
		f.onBoot(o)
	}
	f.store(collection, o)
}

// placed is how many pods have a node.
func (f *fake) placed() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path, all := range f.objects {
		for _, o := range all {
			if strings.HasSuffix(path, "/pods") && asObj(o["spec"])["nodeName"] != nil {
				n++
			}
		}
	}
	return n
}

// free lets another pod have the room of one that went.
func (f *fake) free(o obj) {
	if !f.reuse || asObj(o["spec"])["nodeName"] == nil {
		return
	}
	f.room++
	for path, all := range f.objects {
		if strings.HasSuffix(path, "/pods") {
			for name := range all {
				f.schedule(path, name)
			}
		}
	}
}

// more lets pods be scheduled that found no room.
func (f *fake) more(room int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room = room
	for path, all := range f.objects {
		if strings.HasSuffix(path, "/pods") {
			for name := range all {
				f.schedule(path, name)
			}
		}
	}
}

func (f *fake) patch(w http.ResponseWriter, r *http.Request, collection, name string) {
	var over obj
	json.NewDecoder(r.Body).Decode(&over)
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.objects[collection][name]
	if o == nil {
		refuseWith(w, 404, "NotFound", name)
		return
	}
	if v := asObj(over["metadata"])["resourceVersion"]; v != nil && v != asObj(o["metadata"])["resourceVersion"] {
		refuseWith(w, 409, "Conflict", "the object has been modified")
		return
	}
	o = copyOf(o)
	var lay func(a, b obj)
	lay = func(a, b obj) {
		for k, v := range b {
			if m, ok := v.(obj); ok && a[k] != nil {
				lay(asObj(a[k]), m)
				continue
			}
			a[k] = v
		}
	}
	lay(o, over)
	f.store(collection, o)
	say(w, 200, o)
}

func (f *fake) remove(w http.ResponseWriter, r *http.Request, collection, name string) {
	var options struct {
		GracePeriodSeconds *int64
		DryRun             []string
		Preconditions      struct{ UID string }
	}
	json.NewDecoder(r.Body).Decode(&options)
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.objects[collection][name]
	if o == nil {
		refuseWith(w, 404, "NotFound", name+" not found")
		return
	}
	uid := asObj(o["metadata"])["uid"]
	if options.Preconditions.UID != "" && options.Preconditions.UID != uid {
		refuseWith(w, 409, "Conflict", "the UID in the precondition does not match")
		return
	}
	if len(options.DryRun) > 0 {
		say(w, 200, obj{"kind": "Status", "status": "Success"})
		return
	}
	if collection == claimsPath {
		f.removeClaim(name)
	} else if !strings.HasSuffix(collection, "/pods") || options.GracePeriodSeconds != nil && *options.GracePeriodSeconds == 0 {
		f.drop(collection, name)
	} else if asObj(o["metadata"])["deletionTimestamp"] == nil {
		o = copyOf(o)
		asObj(o["metadata"])["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		f.store(collection, o)
		time.AfterFunc(time.Millisecond, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if o := f.objects[collection][name]; o != nil && asObj(o["metadata"])["uid"] == uid {
				f.drop(collection, name)
				f.free(o)
			}
		})
	}
	say(w, 200, obj{"kind": "Status", "status": "Success"})
}

// inventory is what there is besides nodes.
func (f *fake) inventory() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for path, all := range f.objects {
		if !strings.HasSuffix(path, "/nodes") && path != classesPath && path != eventsPath {
			for name := range all {
				out = append(out, path+"/"+name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// troubles are the hooks of the conformance suite that need no help of the
// cluster: they stand before the API server, a fake or a real one.
func (h *hook) troubles(harness *cloudtest.Harness) {
	always := func(f func(w http.ResponseWriter, r *http.Request)) func(testing.TB) {
		return func(testing.TB) {
			h.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool { f(w, r); return true })
		}
	}
	harness.Restore = func(testing.TB) { h.set(nil) }
	harness.Cut = always(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	harness.Hang = always(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // a server sees that a client went only when it has read what was sent
		<-r.Context().Done()
	})
	harness.Refuse = always(func(w http.ResponseWriter, _ *http.Request) { refuseWith(w, 401, "Unauthorized", "Unauthorized") })
	harness.Throttle = always(func(w http.ResponseWriter, _ *http.Request) {
		refuseWith(w, 429, "TooManyRequests", "the server has received too many requests")
	})
	harness.Forbid = func(testing.TB) {
		h.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if r.Method == "GET" {
				return false
			}
			refuseWith(w, 403, "Forbidden", `pods is forbidden: User "ann" cannot create resource "pods" in API group "" in the namespace "team"`)
			return true
		})
	}
	harness.Odd = func(testing.TB, cloudtest.Effect) {
		h.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			pods := r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/pods")
			if pods {
				refuseWith(w, 418, cloudtest.OddCode, cloudtest.OddCode)
			}
			return pods
		})
	}
	harness.LoseAnswers = func(_ testing.TB, to cloudtest.Effect, times int) {
		method := map[cloudtest.Effect]string{cloudtest.Creating: "POST", cloudtest.Terminating: "DELETE"}[to]
		var mu sync.Mutex
		left := times
		h.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			mu.Lock()
			lose := r.Method == method && left > 0
			if lose {
				left--
			}
			mu.Unlock()
			if lose {
				next.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			return false
		})
	}
	harness.Lie = func(_ testing.TB, n cloud.Node, word string) {
		_, _, pod, _ := Locate(n.Reach.Host)
		h.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			if r.Method != "GET" || r.URL.Query().Get("watch") != "" {
				return false
			}
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			var o obj
			if json.Unmarshal(rec.Body.Bytes(), &o) == nil {
				for _, item := range asList(o["items"]) {
					if i := asObj(item); asObj(i["metadata"])["name"] == pod {
						asObj(i["status"])["phase"] = word
					}
				}
			}
			say(w, rec.Code, o)
			return true
		})
	}
}

// troublesFor takes the API server away for a moment; then runs, and is back.
func (h *hook) troublesFor(then func()) {
	h.set(func(http.ResponseWriter, *http.Request, http.Handler) bool { panic(http.ErrAbortHandler) })
	time.Sleep(20 * time.Millisecond) // so that a try or two fails; more or fewer do not matter
	then()
	h.set(nil)
}
