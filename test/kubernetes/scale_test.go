//go:build kubernetes && linux

package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
)

// simulated is the provider over machines that only the API server knows, with
// 8 H100 each. SKY_TEST_MACHINES says how many.
func simulated(t testing.TB) (*kubernetes.Provider, catalog.Sections) {
	t.Helper()
	mustScript(t, "fake", place, cmp.Or(os.Getenv("SKY_TEST_MACHINES"), "20"))
	dir := t.TempDir()
	sections := func(string) map[string]any {
		return map[string]any{"allowed_nodes": map[string]any{"label_selector": map[string]any{"type": "kwok"}}, "provision_timeout": 120}
	}
	return kubernetes.New(kubernetes.Options{Contexts: kubernetes.NewContexts(dir), Dir: filepath.Join(dir, "places"), Sections: func() catalog.Sections { return sections }}), sections
}

func BenchmarkAHundredPodsWithGPUs(b *testing.B) {
	p, sections := simulated(b)
	id := cloud.ClusterID{Installation: "scale", Name: "hundred", Hash: "h1"}
	spec := cloud.LaunchSpec{ID: id, Nodes: 100, Token: "t", Settings: sections(""),
		Offer: cloud.Offer{Place: cloud.Place{Cloud: kubernetes.Name, Region: "real"}, InstanceType: "4CPU--16GB--H100:1"}}
	before, rounds := cpu(b), 0
	for b.Loop() {
		rounds++
		nodes, err := p.Launch(b.Context(), spec)
		if err != nil || len(nodes) != 100 {
			b.Fatalf("%d nodes, %v", len(nodes), err)
		}
		b.StopTimer()
		if err := p.Terminate(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	for name, seconds := range cpu(b) {
		b.ReportMetric((seconds-before[name])/float64(rounds), name+"-cpu-s/op")
	}
}

// cpu is the processor time in seconds that the cluster's programs and this
// process ("own") have taken; for 100 pods that is to launch and to remove them,
// and what 500 machines take meanwhile.
func cpu(t testing.TB) map[string]float64 {
	t.Helper()
	const tick = 100 // a second's, on every Linux that Go runs on
	out := map[string]float64{}
	for _, name := range []string{"own", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "etcd", "kwok"} {
		of := "self"
		if name != "own" {
			b, err := os.ReadFile(filepath.Join(place, name+".pid"))
			if err != nil {
				t.Fatal(err)
			}
			of = strings.TrimSpace(string(b))
		}
		stat, err := os.ReadFile(filepath.Join("/proc", of, "stat"))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:])) // from the third one on
		user, err1 := strconv.ParseFloat(fields[11], 64)
		system, err2 := strconv.ParseFloat(fields[12], 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		out[name] = (user + system) / tick
	}
	return out
}

func BenchmarkListingGPUs(b *testing.B) {
	_, sections := simulated(b)
	for b.Loop() {
		p := kubernetes.New(kubernetes.Options{Contexts: kubernetes.NewContexts("")}) // it has seen nothing yet
		if _, err := p.Available(b.Context(), sections, kubernetes.GPUFilter{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExec(b *testing.B) {
	p := provider(b, b.TempDir())
	id := cloud.ClusterID{Installation: "scale", Name: "one", Hash: "h1"}
	nodes, err := p.Launch(b.Context(), small(id, 1))
	if err != nil {
		b.Fatal(err)
	}
	defer p.Terminate(context.Background(), id)
	contexts := kubernetes.NewContexts("")
	for b.Loop() {
		if res, err := contexts.Exec(b.Context(), nodes[0].Reach.Host, []string{"true"}, nil); err != nil || res.Code != 0 {
			b.Fatal(res, err)
		}
	}
}

// What a user waits for who asks a server that runs.
func BenchmarkListingGPUsCommand(b *testing.B) {
	simulated(b)
	w := newWorkstation(b, "\n  allowed_contexts: [real]\n")
	w.sky([]string{"H100"}, "gpus", "list", "--infra", "kubernetes")
	for b.Loop() {
		w.sky(nil, "gpus", "list", "--infra", "kubernetes")
	}
}

// The first question to a server that knows nothing yet.
func BenchmarkListingGPUsCommandCold(b *testing.B) {
	simulated(b)
	w := newWorkstation(b, "\n  allowed_contexts: [real]\n")
	for b.Loop() {
		b.StopTimer()
		w.run("api", "stop")
		w.sky(nil, "api", "start")
		b.StartTimer()
		w.sky(nil, "gpus", "list", "--infra", "kubernetes")
	}
}

// BenchmarkExecCommand is a job of a cluster that runs, from the command's start
// to the end of its log; "detached" only until it is queued.
func BenchmarkExecCommand(b *testing.B) {
	w := newWorkstation(b, settings)
	w.sky(nil, "launch", "-y", "-c", "one", w.task("task.yaml", "localhost/shell:1", "run: 'true'\n"))
	for name, flags := range map[string][]string{"followed": nil, "detached": {"-d"}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w.sky(nil, append(append([]string{"exec", "one"}, flags...), "--", "true")...)
			}
		})
	}
}
