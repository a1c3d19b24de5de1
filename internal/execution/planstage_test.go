//go:build unix

package execution_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/table"
	"github.com/skypilot-go/sky/internal/testbed"
	"github.com/skypilot-go/sky/internal/volumes"
)

// another is FluffyCloud with other abilities.
type another struct {
	cloud.Provider
	name       string
	containers bool // its nodes are containers
	agentless  bool // its nodes are no machines
	stays      bool // it cannot be stopped
	checked    error
	offered    error
	lists      []cloud.Offer
}

func (a another) Name() string           { return a.name }
func (a another) Unwrap() cloud.Provider { return a.Provider }

func (a another) Features() cloud.Features {
	f := cloud.Features{MaxNameLength: a.Provider.Features().MaxNameLength, Containers: a.containers}
	if a.stays {
		f.Lacks = map[cloud.Feature]string{cloud.FeatureStop: "it stays", cloud.FeatureAutostop: "it stays"}
	}
	return f
}

func (a another) Check(ctx context.Context) (cloud.Identity, error) {
	if a.checked != nil {
		return nil, a.checked
	}
	return a.Provider.Check(ctx)
}

func (a another) Offers(ctx context.Context) ([]cloud.Offer, error) {
	if a.offered != nil || a.lists != nil {
		return a.lists, a.offered
	}
	return a.Provider.Offers(ctx)
}

func (a another) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	spec.ImageID, spec.DiskTier, spec.NetworkTier = "", "", ""
	nodes, err := a.Provider.Launch(ctx, spec)
	return a.reached(nodes), err
}

func (a another) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	nodes, err := a.Provider.Nodes(ctx, id)
	return a.reached(nodes), err
}

func (a another) reached(nodes []cloud.Node) []cloud.Node {
	for i := range nodes {
		nodes[i].Place.Cloud = a.name
		if a.agentless {
			nodes[i].Reach = cloud.Reach{Method: cloud.ReachNone}
		}
	}
	return nodes
}

// dressed is a server's executor on another cloud.
func dressed(s *testbed.Server, change func(*another)) *execution.Executor {
	var all []cloud.Provider
	for _, p := range s.Providers.All() {
		a := another{Provider: p, name: p.Name()}
		change(&a)
		all = append(all, a)
	}
	d := s.Executor.Deps
	d.Providers = cloud.NewRegistry(all...)
	d.Provision = provision.New("testbed", d.Providers, s.Store, d.Log)
	d.Clusters = cluster.New(cluster.Deps{Store: s.Store, Providers: d.Providers, Provision: d.Provision, Remote: s.Remote, Log: d.Log, ServerID: "local"})
	d.Volumes = volumes.New(volumes.Deps{Store: s.Store, Providers: d.Providers, Installation: "testbed", ServerID: "local", Log: slog.New(slog.DiscardHandler), Config: testbed.Config})
	return execution.New(d)
}

// on runs a launch on an executor.
func on(x *execution.Executor, s *testbed.Server, r *testbed.Request, task string, change ...func(*cluster.Call, *api.LaunchBody)) (*api.LaunchResult, error) {
	call, body := s.Call(r), api.LaunchBody{Task: task, ClusterName: "dev"}
	for _, f := range change {
		f(&call, &body)
	}
	return x.Launch(s.Context(), call, body)
}

// Nodes that are records of an emulator come up without agents; nothing is brought
// there, and everybody is told.
func TestALaunchOfNodesThatAreNoMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		x := dressed(s, func(a *another) { a.agentless = true })
		r := testbed.NewRequest()
		got, err := on(x, s, r, "resources: {infra: fluffycloud}\n")
		if err != nil || got.JobID != nil || !strings.Contains(r.Out.String(), "without_agents is set for fluffycloud: the nodes of cluster dev count as records") {
			t.Fatalf("%+v, %v\n%s", got, err, r.Out)
		}
		if c := b.Cluster("dev"); c.Status != api.ClusterUp || c.LastEvent != "all machines run" {
			t.Errorf("%s: %s", c.Status, c.LastEvent)
		}
		_, err = on(x, s, testbed.NewRequest(), "resources: {infra: fluffycloud}\nrun: x\n")
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Type != api.ErrNotSupported || !strings.HasSuffix(e.Hint, "The cluster stays up. If you do not need it, give it back: sky down dev") {
			t.Errorf("a launch with a job: %#v", err)
		}
		exec := func(task string) error {
			_, err := x.Exec(s.Context(), s.Call(testbed.NewRequest()), api.ExecBody{Task: task, ClusterName: "dev"}, idle)
			return err
		}
		if err := exec("run: x\n"); !isType(err, api.ErrNotSupported) {
			t.Errorf("an exec: %v", err)
		}
		if err := exec("name: nothing\n"); err != nil {
			t.Errorf("an exec of nothing: %v", err)
		}
	})
}

// The configuration's commands run on each container before anything else; a launch
// whose commands fail says where and what they said, and leaves nothing.
func TestCommandsForNewContainers(t *testing.T) {
	for _, tt := range []struct {
		name       string
		containers bool
		commands   []any
		code       int
		answers    bool // the nodes run commands at all
		want       string
	}{
		{"they run", true, []any{"pip install x"}, 0, true, ""},
		{"they fail", true, []any{"pip install x"}, 3, true, "post_provision_runcmd of the configuration failed on node "},
		{"nobody runs them", true, []any{"pip install x"}, 0, false, "no commands are run on this node"},
		{"there are none", true, nil, 3, true, ""},
		{"machines run them by themselves", false, []any{"pip install x"}, 3, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := testbed.New(t)
				s := b.Boot(failpoint.Endless)
				x := dressed(s, func(a *another) { a.name, a.containers = "kubernetes", tt.containers })
				s.Tell(func(step string) {
					if step != "agent.configure" || !tt.answers {
						return
					}
					for _, m := range b.Cloud.Machines() {
						if n := b.Node(m.ID); n != nil {
							n.Commands(func(command string) (string, int) {
								if !strings.Contains(command, "pip install x") {
									return "what is this?", 9
								}
								return "one\ntwo\nthree\nfour\n", tt.code
							})
						}
					}
				})
				cfg, err := config.FromMap(config.Server, config.Origin{}, map[string]any{"kubernetes": map[string]any{"post_provision_runcmd": tt.commands}})
				if err != nil {
					t.Fatal(err)
				}
				_, err = on(x, s, testbed.NewRequest(), "num_nodes: 2\nresources: {infra: k8s}\n", func(c *cluster.Call, _ *api.LaunchBody) { c.Config = cfg })
				if tt.want == "" {
					if err != nil {
						t.Error(err)
					}
					b.WantMachines("dev running", "dev running")
					return
				}
				if err == nil || !strings.Contains(err.Error(), tt.want) || tt.code != 0 && !strings.Contains(err.Error(), "with exit code 3: two; three; four") {
					t.Errorf("got %v", err)
				}
				b.WantNothingLeft("dev")
			})
		})
	}
}

// A cloud that does not answer is left out of a plan, which says so; one that is not
// enabled is left out silently. Without any there is no plan, and each says why.
func TestAPlanLeavesOutCloudsThatDoNotAnswer(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*another)
		told   bool
		says   string
	}{
		{"its credentials are refused", func(a *another) { a.checked = &cloud.AuthError{Err: errors.New("no token")} }, false, "no token"},
		{"it does not answer", func(a *another) { a.checked = errors.New("no route") }, true, "no route"},
		{"it does not say what it offers", func(a *another) { a.offered = errors.New("no list") }, true, "asking what it offers: no list"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := testbed.New(t)
			s := b.Boot(failpoint.Endless)
			x := dressed(s, tt.change)
			r := testbed.NewRequest()
			_, err := on(x, s, r, "run: x\n")
			if !isType(err, api.ErrNoCloudAccess) || !strings.Contains(err.Error(), "FluffyCloud: ") || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v", tt.name, err)
			}
			if strings.Contains(r.Out.String(), "FluffyCloud is left out of the plan: ") != tt.told {
				t.Errorf("%s:\n%s", tt.name, r.Out)
			}
			b.WantNothingLeft("dev")
		})
	}
}

// Of many alternatives a person sees the first, and how many there are.
func TestTheAlternativesOfAPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		x := dressed(s, func(a *another) {
			for i := range 40 {
				a.lists = append(a.lists, cloud.Offer{Place: cloud.Place{Region: "r", Zone: fmt.Sprintf("z%d", i)}, InstanceType: "small", CPUs: 8, MemoryGiB: 32, HourlyPrice: float64(i + 1), Spot: i == 3})
			}
			a.lists = append(a.lists, cloud.Offer{Place: cloud.Place{Region: "nozone"}, InstanceType: "tiny", CPUs: 8, MemoryGiB: 32, HourlyPrice: 0.5})
		})
		explained := func(change func(*api.LaunchBody), task string) (string, *api.LaunchResult) {
			t.Helper()
			r := testbed.NewRequest()
			got, err := on(x, s, r, task, func(_ *cluster.Call, l *api.LaunchBody) {
				l.Dryrun, l.Explain = true, true
				if change != nil {
					change(l)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			return r.Out.String(), got
		}
		out, got := explained(nil, "num_nodes: 2\nresources: {cpus: 2+}\nrun: x\n")
		lines := strings.Split(out, "\n")
		line := func(with string) string {
			for _, l := range lines[slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Alternatives for ") }):] {
				if strings.Contains(l, with) {
					return l
				}
			}
			return ""
		}
		if got == nil || *got != (api.LaunchResult{}) {
			t.Errorf("nobody asked for the plan itself: %+v", got)
		}
		narrow, _ := explained(func(l *api.LaunchBody) { l.Columns = 56 }, "num_nodes: 2\nresources: {cpus: 2+}\nrun: x\n")
		for _, l := range strings.Split(narrow, "\n") {
			if table.Width(l) > 56 {
				t.Errorf("a line is wider than 56 columns:\n%s", narrow)
				break
			}
		}
		for with, want := range map[string][]string{
			"Alternatives":         {"Alternatives for the task:"},
			"fluffycloud/nozone ":  {"tiny", "1.00", "chosen"},
			"fluffycloud/r/z0 ":    {"small", "2.00", "dearer: "},
			"more; all of them wi": {"… and 10 more"},
		} {
			for _, w := range want {
				if l := line(with); !strings.Contains(l, w) {
					t.Errorf("%q is not in %q of\n%s", w, l, out)
				}
			}
		}
		if l := line("[Spot]"); l != "" {
			t.Errorf("spot was not asked for: %s", l)
		}
		out, got = explained(func(l *api.LaunchBody) { l.WantPlan, l.QuietOptimizer = true, true }, "name: train\nresources: {cpus: 2+, use_spot: true}\nrun: x\n")
		if !strings.Contains(out, "Alternatives for train:") || !strings.Contains(out, "small[Spot]") || strings.Contains(out, "Considered resources") || strings.Contains(out, " more; all of them") {
			t.Errorf("on spot:\n%s", out)
		}
		p := got.Plan.Tasks[0]
		if p.Task != "train" || p.NumNodes != 1 || p.Chosen.Zone == nil || *p.Chosen.Zone != "z3" || !p.Chosen.UseSpot || p.Chosen.TotalHourlyPrice != 4 || len(p.Candidates) != 1 || len(p.Explained) == 0 || got.Plan.TotalCost <= 0 || got.Plan.TotalTime <= 0 {
			t.Errorf("%+v", got.Plan)
		}
		out, got = explained(func(l *api.LaunchBody) { l.WantPlan, l.Explain = true, false }, "resources: {cpus: 2+}\nrun: x\n")
		if strings.Contains(out, "Alternatives") || !strings.Contains(out, "Considered resources (1 node)") || got.Plan.Tasks[0].Explained != nil || got.Plan.Tasks[0].Chosen.Zone != nil {
			t.Errorf("not explained: %+v\n%s", got.Plan, out)
		}
		b.WantNothingLeft("dev")
	})
}

// claims is a cloud that has volumes.
type claims struct {
	another
	ready bool
}

func (c claims) DisplayName() string { return "Kubernetes" }

func (c claims) CheckVolume(cloud.Volume) error { return nil }
func (c claims) MakeVolume(_ context.Context, v cloud.Volume) (cloud.Volume, error) {
	return v, nil
}
func (c claims) DeleteVolume(context.Context, cloud.Volume) error { return nil }
func (c claims) LookAtVolumes(_ context.Context, vs []cloud.Volume) ([]cloud.VolumeState, error) {
	out := make([]cloud.VolumeState, len(vs))
	for i := range out {
		out[i] = cloud.VolumeState{Exists: true, Ready: c.ready, Reason: "no disk"}
	}
	return out, nil
}

// A plan is bound to the place of a task's volumes: what is elsewhere is left out where
// they are made with the cluster, and refused where they are there.
func TestAPlanIsMadeWhereTheVolumesAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		p, _ := s.Providers.Get("fluffycloud")
		offer := []cloud.Offer{{Place: cloud.Place{Region: "ctx"}, InstanceType: "pod", CPUs: 8, MemoryGiB: 32}}
		plain := dressed(s, func(*another) {})
		d := plain.Deps
		d.Providers = cloud.NewRegistry(p, claims{another: another{Provider: p, name: "kubernetes", lists: offer}, ready: true})
		d.Volumes = volumes.New(volumes.Deps{Store: s.Store, Providers: d.Providers, Installation: "testbed", ServerID: "local", Log: d.Log, Config: testbed.Config})
		x := execution.New(d)
		there := &state.Volume{Name: "disk", Hash: "h", Stage: state.VolumeThere, UserHash: testbed.Ann.ID, UserName: "ann", Workspace: "default", LaunchedAt: time.Now()}
		there.Is = cloud.Volume{Place: cloud.Place{Cloud: "kubernetes", Region: "ctx"}, Name: "disk", NameOnCloud: "disk", Type: "k8s-pvc", AccessMode: cloud.ReadWriteOnce}
		there.Asked = there.Is
		if err := s.Store.Volumes().Create(t.Context(), there); err != nil {
			t.Fatal(err)
		}
		dry := func(_ *cluster.Call, l *api.LaunchBody) { l.Dryrun, l.WantPlan = true, true }
		for _, tt := range []struct{ name, task, kind, says string }{
			{"its place", "volumes: {/data: disk}\nrun: x\n", "", ""},
			{"elsewhere", "resources: {infra: fluffycloud}\nvolumes: {/data: disk}\nrun: x\n", api.ErrVolumeTopology, "the task asks for"},
			{"made with the cluster", "resources: {any_of: [{infra: fluffycloud}, {infra: k8s}]}\nvolumes: {/data: {size: 5Gi}}\nrun: x\n", "", "Left out of the plan: "},
			{"made with the cluster, elsewhere", "resources: {infra: fluffycloud}\nvolumes: {/data: {size: 5Gi}}\nrun: x\n", api.ErrVolumeTopology, "made with its cluster"},
			{"too many nodes", "num_nodes: 2\nvolumes: {/data: disk}\nrun: x\n", api.ErrValue, "multi-node"},
		} {
			r := testbed.NewRequest()
			got, err := on(x, s, r, tt.task, dry)
			checked := x.CheckVolumes(s.Context(), s.Call(testbed.NewRequest()), tt.task)
			r2 := testbed.NewRequest()
			_, optimized := x.Optimize(s.Context(), s.Call(r2), api.DagBody{Dag: tt.task})
			if tt.kind == "" {
				if err != nil || got.Plan.Tasks[0].Chosen.Cloud != "kubernetes" || !strings.Contains(r.Out.String(), tt.says) || checked != nil || optimized != nil || !strings.Contains(r2.Out.String(), "pod") {
					t.Errorf("%s: %+v, %v, %v, %v\n%s", tt.name, got, err, checked, optimized, r.Out)
				}
				continue
			}
			for _, err := range []error{err, checked, optimized} {
				if !isType(err, tt.kind) || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%s: %v", tt.name, err)
				}
			}
		}
		if err := x.CheckVolumes(s.Context(), s.Call(testbed.NewRequest()), "run: [\n"); !isType(err, api.ErrValue) {
			t.Errorf("a bad task: %v", err)
		}
		if err := execution.NoNamedVolumes("run: [\n"); !isType(err, api.ErrValue) {
			t.Errorf("a bad task: %v", err)
		}
		if err := execution.NoNamedVolumes("volumes: {/data: {size: 5Gi}}\nrun: x\n"); err != nil {
			t.Errorf("a volume of its own: %v", err)
		}
		// A plan over clouds that are only assumed asks for no volume.
		_, err := on(x, s, testbed.NewRequest(), "volumes: {/data: nothing}\nrun: x\n", dry, func(_ *cluster.Call, l *api.LaunchBody) { l.AssumeEnabled, l.CatalogDir = []string{"aws"}, t.TempDir() })
		if !isType(err, api.ErrRuntime) || !strings.Contains(err.Error(), "price list") {
			t.Errorf("assumed: %v", err)
		}
		// A cluster that exists gets no more volumes, and says so.
		if _, err := s.Launch(testbed.NewRequest(), "dev", "resources: {infra: fluffycloud}\n"); err != nil {
			t.Fatal(err)
		}
		with := "volumes: {/data: disk}\nrun: sleep 1s\n"
		r := testbed.NewRequest()
		if _, err := on(x, s, r, with); err != nil || !strings.Contains(r.Out.String(), "it does not get: ") {
			t.Errorf("a launch: %v\n%s", err, r.Out)
		}
		r = testbed.NewRequest()
		if _, err := x.Exec(s.Context(), s.Call(r), api.ExecBody{Task: with, ClusterName: "dev"}, idle); err != nil || !strings.Contains(r.Out.String(), "it does not get: ") {
			t.Errorf("an exec: %v\n%s", err, r.Out)
		}
		if strings.Count(r.Out.String(), "does not get") != 1 {
			t.Errorf("%s", r.Out)
		}
	})
}

// A full cloud is told to the user each time that it is asked, and asked less and less
// often.
func TestWhoWaitsForRoomIsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		b.Inject(full("instances.create"))
		r := testbed.NewRequest()
		var pauses []time.Duration
		cfg, err := config.FromMap(config.Server, config.Origin{}, map[string]any{"provision": map[string]any{"retry_hours": 1}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = on(s.Executor, s, r, train(t, 1), func(c *cluster.Call, l *api.LaunchBody) {
			c.Config, l.RetryUntilUp = cfg, true
			c.Rest = func(wait func()) {
				from := time.Now()
				wait()
				pauses = append(pauses, time.Since(from))
			}
		})
		if !isType(err, api.ErrResourcesUnavailable) || time.Since(began) < time.Hour || time.Since(began) > 62*time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if told := strings.Count(r.Out.String(), "could not get a machine"); told != len(pauses) || len(pauses) < 10 {
			t.Errorf("told %d times, rested %v:\n%s", told, pauses, r.Out)
		}
		for i, p := range pauses[:len(pauses)-1] { // the last one ends with the patience
			if most := min(5*time.Second<<i, 5*time.Minute); p > most || p < most/2 {
				t.Errorf("pause %d: %v", i, p)
			}
		}
		b.WantNothingLeft("dev")
		// Nothing is waited for that no waiting mends.
		b.Cloud.Remove("full")
		f := full("instances.create")
		f.Code = fluffyapi.Invalid
		b.Inject(f)
		began = time.Now()
		if _, err := on(s.Executor, s, testbed.NewRequest(), train(t, 1), func(_ *cluster.Call, l *api.LaunchBody) { l.RetryUntilUp = true }); err == nil || time.Since(began) > 10*time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
