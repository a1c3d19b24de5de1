//go:build unix

package docker

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeEngine behaves as a container engine does, without containers.
type fakeEngine struct {
	socket string

	mu         sync.Mutex
	containers map[string]*fakeContainer // by id
	networks   map[string]map[string]string
	images     map[string]bool
	last       int
	stopped    chan struct{}                                     // closed by the first stop, unless nil
	fail       func(w http.ResponseWriter, r *http.Request) bool // answers instead
}

type fakeContainer struct {
	id, name, state, network, ip, status string
	labels                               map[string]string
	created                              time.Time
	spec                                 map[string]any
}

func startFake(t testing.TB) *fakeEngine {
	f := &fakeEngine{
		socket:     filepath.Join(t.TempDir(), "s"),
		containers: map[string]*fakeContainer{}, networks: map[string]map[string]string{}, images: map[string]bool{DefaultImage: true},
	}
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	handle := func(route string, h func(w http.ResponseWriter, r *http.Request)) {
		mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			f.mu.Lock()
			fail := f.fail
			f.mu.Unlock()
			if fail != nil && fail(w, r) {
				return
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			h(w, r)
		})
	}
	handle("GET /info", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, Info{ID: "E:1", Name: "here", NCPU: 4, MemTotal: 16 << 30, OSType: "linux", Architecture: "x86_64"})
	})
	handle("GET /images/{name...}", func(w http.ResponseWriter, r *http.Request) {
		if !f.images[strings.TrimSuffix(r.PathValue("name"), "/json")] {
			answer(w, 404, map[string]string{"message": "No such image"})
		}
	})
	handle("POST /images/create", func(w http.ResponseWriter, r *http.Request) {
		image := r.FormValue("fromImage")
		switch {
		case strings.HasPrefix(image, "absent"):
			answer(w, 404, map[string]string{"message": "manifest unknown"})
		case strings.HasPrefix(image, "broken"):
			answer(w, 200, map[string]string{"status": "Pulling"})
			answer(w, 0, map[string]string{"error": "the registry went away"})
		default:
			f.images[image] = true
			answer(w, 200, map[string]string{"status": "done, " + r.FormValue("tag")})
		}
	})
	handle("GET /networks/{name}", func(w http.ResponseWriter, r *http.Request) {
		if f.networks[r.PathValue("name")] == nil {
			answer(w, 404, map[string]string{"message": "no such network"})
		}
	})
	handle("GET /networks", func(w http.ResponseWriter, r *http.Request) {
		out := []map[string]string{}
		for name, labels := range f.networks {
			if matches(r, labels) {
				out = append(out, map[string]string{"Id": name})
			}
		}
		answer(w, 200, out)
	})
	handle("POST /networks/create", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Name   string
			Labels map[string]string
		}
		json.NewDecoder(r.Body).Decode(&in)
		if f.networks[in.Name] != nil {
			answer(w, 409, map[string]string{"message": "it exists"})
			return
		}
		f.networks[in.Name] = in.Labels
		answer(w, 201, map[string]string{"Id": in.Name})
	})
	handle("DELETE /networks/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		for _, c := range f.containers {
			if c.network == name {
				answer(w, 403, map[string]string{"message": "the network has active endpoints"})
				return
			}
		}
		delete(f.networks, name)
		w.WriteHeader(204)
	})
	handle("GET /containers/json", func(w http.ResponseWriter, r *http.Request) {
		out := []map[string]any{}
		for _, id := range slices.Sorted(maps.Keys(f.containers)) {
			c := f.containers[id]
			if !matches(r, c.labels) {
				continue
			}
			ip := c.ip
			if c.state != "running" {
				ip = ""
			}
			out = append(out, map[string]any{
				"Id": c.id, "State": c.state, "Status": c.status, "Created": c.created.Unix(), "Labels": c.labels,
				"NetworkSettings": map[string]any{"Networks": map[string]any{c.network: map[string]string{"IPAddress": ip}}},
			})
		}
		answer(w, 200, out)
	})
	handle("POST /containers/create", f.create)
	handle("POST /containers/{id}/{verb}", func(w http.ResponseWriter, r *http.Request) {
		c := f.find(r.PathValue("id"))
		if c == nil {
			answer(w, 404, map[string]string{"message": "no such container"})
			return
		}
		switch r.PathValue("verb") {
		case "start", "unpause":
			if strings.Contains(fmt.Sprint(c.spec["Image"]), "shell-less") {
				answer(w, 400, map[string]string{"message": `exec: "/bin/sh": stat /bin/sh: no such file or directory`})
				return
			}
			c.state, c.status = "running", "Up"
		case "stop":
			c.state, c.status = "exited", "Exited (0) just now"
			if f.stopped != nil {
				close(f.stopped)
			}
		}
		w.WriteHeader(204)
	})
	handle("DELETE /containers/{id}", func(w http.ResponseWriter, r *http.Request) {
		c := f.find(r.PathValue("id"))
		if c == nil {
			answer(w, 404, map[string]string{"message": "no such container"})
			return
		}
		delete(f.containers, c.id)
		w.WriteHeader(204)
	})
	srv := &http.Server{Handler: mux}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return f
}

func (f *fakeEngine) create(w http.ResponseWriter, r *http.Request) {
	in := map[string]any{}
	json.NewDecoder(r.Body).Decode(&in)
	name := r.FormValue("name")
	if f.find(name) != nil {
		answer(w, 409, map[string]string{"message": "the name is in use"})
		return
	}
	f.last++
	c := &fakeContainer{
		id: fmt.Sprintf("%x", sha256.Sum256([]byte{byte(f.last), byte(f.last >> 8)})), name: name, state: "created", status: "Created", labels: map[string]string{},
		ip: fmt.Sprintf("172.30.%d.%d", f.last/250, 1+f.last%250), created: time.Now(), spec: in,
	}
	for k, v := range in["Labels"].(map[string]any) {
		c.labels[k] = v.(string)
	}
	c.network = in["HostConfig"].(map[string]any)["NetworkMode"].(string)
	f.containers[c.id] = c
	answer(w, 201, map[string]string{"Id": c.id})
}

func (f *fakeEngine) find(idOrName string) *fakeContainer {
	for _, c := range f.containers {
		if c.id == idOrName || c.name == idOrName || len(idOrName) == 12 && strings.HasPrefix(c.id, idOrName) {
			return c
		}
	}
	return nil
}

// matches applies the label filters of a list.
func matches(r *http.Request, labels map[string]string) bool {
	var filters struct{ Label []string }
	json.Unmarshal([]byte(r.FormValue("filters")), &filters)
	for _, want := range filters.Label {
		key, value, exact := strings.Cut(want, "=")
		have, ok := labels[key]
		if !ok || exact && have != value {
			return false
		}
	}
	return true
}

func answer(w http.ResponseWriter, code int, v any) {
	if code != 0 {
		w.WriteHeader(code)
	}
	json.NewEncoder(w).Encode(v)
}

func (f *fakeEngine) set(fail func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}
