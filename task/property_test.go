package task

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// same compares Dags by what they say.
func same(a, b *Dag) string {
	return cmp.Diff(a, b,
		cmpopts.IgnoreUnexported(Dag{}, Task{}), cmpopts.EquateEmpty(),
		cmp.Comparer(func(x, y Secret) bool { return x.Reveal() == y.Reveal() }))
}

func maybe[T any](t *rapid.T, g *rapid.Generator[T]) (v T) {
	if rapid.IntRange(0, 3).Draw(t, "given") == 0 {
		return g.Draw(t, "value")
	}
	return v
}

func maybePtr[T any](t *rapid.T, g *rapid.Generator[T]) *T {
	if rapid.IntRange(0, 3).Draw(t, "given") == 0 {
		v := g.Draw(t, "value")
		return &v
	}
	return nil
}

// anyText is hostile: quotes, breaks, variables, YAML marks, other scripts.
var anyText = rapid.OneOf(
	rapid.SampledFrom([]string{
		"yes", "1e3", "22:30", "a: b", "- x", "# x", "x #y", "'", `"`, `\`, "a\nb", "a\n", "\n", " a", "a ", "${A}", "$A}", "{a}", "[1]", "~", "null",
		"*", "&a", "!x", "%", "@", "`", "|", ">", "---", "...", "a\n---\nb", "\t", "a\tb\n", "é日本", "\u2028", "\u0085", "\ufeff", "a\r\nb", "<<", "=", "a\n\n", "\x00\x07", "?", "? a", ":", ": a",
		"  a\nb", "a\n  b\n", "a \nb \n", "#\n#\n", "😀", "-", "- ", "0x10", "2020-01-01", "1_000", ".5", "-.inf", "a:", ":a",
	}),
	rapid.StringN(1, 40, -1),
	rapid.StringMatching(`[a-z$]{1,3}([ :#\n"'\\][a-z]{0,3}){0,6}`),
)

var word = rapid.StringMatching(`[a-zA-Z][a-zA-Z0-9]{0,6}`)

func textMapOf(keys *rapid.Generator[string]) *rapid.Generator[map[string]string] {
	return rapid.MapOfN(keys, anyText, 0, 4)
}

var genResources = rapid.Custom(func(t *rapid.T) Resources {
	r := Resources{
		Cloud:         maybe(t, rapid.SampledFrom(Clouds)),
		Region:        maybe(t, rapid.OneOf(rapid.Just("us-east-1"), rapid.StringMatching(`[a-z*/ -]{1,8}`))),
		Zone:          maybe(t, rapid.OneOf(rapid.Just("us-east-1a"), rapid.StringMatching(`[a-z*/ -]{1,8}`))),
		InstanceType:  maybe(t, anyText),
		CPUs:          maybe(t, rapid.SampledFrom([]string{"8", "8+", "0.5", "0.5+"})),
		Memory:        maybe(t, rapid.SampledFrom([]string{"16", "16+", "4x", "1.5", "1536+"})),
		UseSpot:       maybePtr(t, rapid.Bool()),
		DiskTier:      maybe(t, rapid.SampledFrom(DiskTiers)),
		NetworkTier:   maybe(t, rapid.SampledFrom(NetworkTiers)),
		LocalDisk:     maybe(t, rapid.SampledFrom([]string{"nvme:100+", "ssd:375", "nvme:0.5"})),
		MaxHourlyCost: maybe(t, rapid.Float64Range(0.001, 1000)),
		Labels:        maybe(t, textMapOf(anyText)),
		Priority:      maybePtr(t, rapid.IntRange(-1000, 1000)),
		PriorityClass: maybe(t, word),
	}
	if rapid.Bool().Draw(t, "accelerator") {
		r.Accelerators = []Accelerator{{
			Name:  rapid.OneOf(rapid.SampledFrom([]string{"80GB+", "nvidia:80GB+", "A100-80GB", "tpu-v3-8"}), word).Draw(t, "name"),
			Count: rapid.SampledFrom([]float64{1, 0.5, 8, 0.001, 16}).Draw(t, "count"),
		}}
	}
	if rapid.IntRange(0, 5).Draw(t, "lists") == 0 {
		r.Region, r.Regions = "", []string{"a", "b"}
	}
	if n := maybe(t, rapid.IntRange(1, 5000)); n != DefaultDiskSize {
		r.DiskSize = n
	}
	r.EphemeralStorage = maybe(t, rapid.IntRange(1, 5000))
	if texts := maybe(t, rapid.SliceOfN(rapid.IntRange(1, 65535), 1, 5)); texts != nil {
		for _, p := range texts {
			r.Ports = append(r.Ports, fmt.Sprint(p))
		}
		r.Ports, _ = ParsePorts(r.Ports...)
	}
	switch rapid.IntRange(0, 8).Draw(t, "image") {
	case 0:
		r.ImageID = map[string]string{"": "ami-1"}
	case 1:
		r.ImageID = map[string]string{"docker": "ubuntu:24.04"}
	case 2:
		r.ImageID = map[string]string{"docker": "x", "us-east-1": "ami-2"}
	case 3:
		r.ImageID = map[string]string{"a": "docker:x", "b": "ami-2"}
	}
	if a := maybePtr(t, rapid.IntRange(0, 100)); a != nil {
		r.Autostop = &Autostop{Enabled: true, IdleMinutes: *a, Down: rapid.Bool().Draw(t, "down"), WaitFor: maybe(t, rapid.SampledFrom(WaitFor))}
		if *a == 7 {
			r.Autostop = &Autostop{}
		}
	}
	if j := maybePtr(t, rapid.IntRange(0, 3)); j != nil {
		r.JobRecovery = &JobRecovery{
			Strategy: maybe(t, rapid.SampledFrom(JobRecoveryStrategies)), MaxRestartsOnErrors: *j,
			RecoverOnExitCodes: maybe(t, rapid.SliceOfNDistinct(rapid.IntRange(0, 255), 1, 4, rapid.ID)),
		}
	}
	if rapid.IntRange(0, 5).Draw(t, "args") == 0 {
		r.AcceleratorArgs = map[string]any{"tpu_vm": true, "runtime_version": anyText.Draw(t, "version")}
	}
	if rapid.IntRange(0, 5).Draw(t, "internal") == 0 {
		r.Internal = map[string]any{"_is_image_managed": true, "_docker_login_config": map[string]any{"username": anyText.Draw(t, "user"), "n": 1, "f": 1.5, "l": []any{nil, "x"}}}
	}
	return r
})

var genService = rapid.Custom(func(t *rapid.T) *Service {
	seconds := rapid.OneOf(rapid.Float64Range(0, 5000), rapid.Map(rapid.IntRange(0, 5000), func(n int) float64 { return float64(n) }))
	positive := rapid.Float64Range(0.25, 900)
	s := &Service{
		ReadinessProbe: Probe{
			Path: "/" + anyText.Draw(t, "path"), InitialDelaySeconds: seconds.Draw(t, "s"), TimeoutSeconds: seconds.Draw(t, "s"),
			IntervalSeconds: seconds.Draw(t, "s"), FailureThresholdSeconds: seconds.Draw(t, "s"), Headers: maybe(t, textMapOf(anyText)),
			PostData: maybe(t, rapid.SampledFrom([]string{`{"a":1}`, `"x"`, `[1, 2]`})),
		},
		Ports: maybe(t, rapid.IntRange(1, 65535)), StreamTimeoutSeconds: seconds.Draw(t, "s"),
		LoadBalancingPolicy: maybe(t, rapid.SampledFrom(LoadBalancingPolicies[:2])),
	}
	if rapid.Bool().Draw(t, "scales") {
		top, qps := 7, 1.5
		s.Policy = &ReplicaPolicy{Min: 2, Max: &top, TargetQPS: &qps, UpscaleDelaySeconds: seconds.Draw(t, "s"), DownscaleDelaySeconds: seconds.Draw(t, "s"),
			Overprovision: maybe(t, rapid.IntRange(1, 3)), DynamicOndemand: rapid.Bool().Draw(t, "dyn"), SpotPlacer: maybe(t, rapid.SampledFrom(SpotPlacers)),
			TargetInFlight: maybePtr(t, positive), TargetLatencySeconds: maybePtr(t, positive), Predictive: rapid.Bool().Draw(t, "predictive")}
		if rapid.Bool().Draw(t, "metric") {
			s.Policy.Metric = &MetricTarget{Name: "vllm:num_requests_waiting", Target: positive.Draw(t, "target")}
		}
		s.Policy.Schedules = maybe(t, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ReplicaSchedule {
			return ReplicaSchedule{Cron: "0 8 * * 1-5", Timezone: maybe(t, rapid.Just("Europe/Berlin")), DurationSeconds: rapid.IntRange(1, 90000).Draw(t, "d"), Min: rapid.IntRange(0, 7).Draw(t, "n")}
		}), 1, 3))
		if rapid.Bool().Draw(t, "byGPU") {
			s.Policy.TargetQPS, s.Policy.TargetQPSByGPU = nil, map[string]float64{"A100": 2, "H100:8": 4.5}
			s.LoadBalancingPolicy = LoadBalancingPolicies[2]
		}
	} else {
		n := rapid.IntRange(0, 9).Draw(t, "replicas")
		s.Replicas = &n
	}
	switch rapid.IntRange(0, 3).Draw(t, "protocol") {
	case 0:
		s.ReadinessProbe.Protocol, s.ReadinessProbe.Path, s.ReadinessProbe.PostData, s.ReadinessProbe.Headers = "tcp", "", "", nil
	case 1:
		s.ReadinessProbe.Protocol, s.ReadinessProbe.Path, s.ReadinessProbe.PostData, s.ReadinessProbe.GRPCService = "grpc", "", "", maybe(t, anyText)
	}
	number := rapid.IntRange(1, 1000)
	if rapid.Bool().Draw(t, "balancer") {
		s.Balancer = &Balancer{PrefixLoadFactor: maybePtr(t, rapid.Float64Range(1, 9)), QueueRequests: maybePtr(t, number), QueueBytes: maybePtr(t, number),
			QueueSeconds: maybePtr(t, positive), RequestTimeoutSeconds: maybePtr(t, positive), IdleTimeoutSeconds: maybePtr(t, positive),
			MaxHeaderBytes: maybePtr(t, number), MaxBodyBytes: maybePtr(t, number), ReplicaRequests: maybePtr(t, number), Metrics: maybe(t, rapid.Just("/metrics")),
			SlowStartSeconds: maybePtr(t, positive), EjectFailures: maybePtr(t, number), EjectFirstSeconds: maybePtr(t, positive), EjectMaxSeconds: maybePtr(t, positive),
			EjectMaxPercent: maybePtr(t, rapid.Float64Range(1, 100)), Attempts: maybePtr(t, number), RetryAfterSeconds: maybePtr(t, rapid.Float64Range(1, 99)),
			KeepAliveSeconds: maybePtr(t, positive), ReplicaProtocol: maybe(t, rapid.SampledFrom(ReplicaProtocols)), TrustForwarded: rapid.Bool().Draw(t, "trust")}
		if s.LoadBalancingPolicy == "" && rapid.Bool().Draw(t, "sessions") {
			s.LoadBalancingPolicy = "session_affinity"
			s.Balancer.AffinityHeader = "X-Session"
		}
		if *s.Balancer == (Balancer{}) {
			s.Balancer = nil
		}
	}
	if rapid.Bool().Draw(t, "update") {
		s.Update = &ServiceUpdate{CanaryWeight: maybePtr(t, rapid.Float64Range(1, 100)), ErrorMargin: maybePtr(t, rapid.Float64Range(0, 1)), MinRequests: maybePtr(t, number), MaxSurge: maybePtr(t, number)}
		if *s.Update == (ServiceUpdate{}) {
			s.Update = nil
		}
	}
	s.DrainSeconds = maybePtr(t, positive)
	if rapid.Bool().Draw(t, "tls") {
		s.TLSKeyfile, s.TLSCertfile = anyText.Draw(t, "key"), anyText.Draw(t, "cert")
	}
	return s
})

var genTask = rapid.Custom(func(t *rapid.T) *Task {
	k := &Task{
		Name: maybe(t, word), NumNodes: rapid.IntRange(1, 9).Draw(t, "nodes"),
		Setup: maybe(t, anyText), Run: maybe(t, anyText), EventCallback: maybe(t, anyText),
		Envs: textMapOf(rapid.SampledFrom([]string{"A", "B", "_x", "HOME"})).Draw(t, "envs"), SecretRefs: maybe(t, rapid.Just([]string{"HF", "personal.X"})),
		FileMounts: rapid.MapOfN(anyText, anyText, 0, 3).Draw(t, "mounts"),
		UserYAML:   maybe(t, anyText), Preference: AnyOf,
	}
	for name, v := range maybe(t, textMapOf(rapid.SampledFrom([]string{"S", "A", "x y", "ü"}))) {
		if k.Secrets == nil {
			k.Secrets = map[string]Secret{}
		}
		k.Secrets[name] = NewSecret(v)
	}
	if rapid.Bool().Draw(t, "git") {
		k.Git = &GitWorkdir{URL: "https://github.com/a/b", Ref: maybe(t, anyText)}
	} else {
		k.Workdir = maybe(t, anyText)
	}
	k.Resources = rapid.SliceOfNDistinct(genResources, 1, 3, func(r Resources) string {
		var w yaml11.Writer
		w.Document(r.tree(false))
		return w.String()
	}).Draw(t, "resources")
	if len(k.Resources) > 1 && rapid.Bool().Draw(t, "ordered") {
		k.Preference = Ordered
	}
	if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
		k.Service = genService.Draw(t, "service")
	} else if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
		n := 3
		k.Pool = &Pool{Workers: &n}
	}
	if rapid.Bool().Draw(t, "extras") {
		off := false
		k.APIServerAccess = &off
		k.Inputs = &DataSize{URI: "s3://x", GB: 1.5}
		k.ManagedSecrets = []ManagedSecret{{Name: "K", MountPath: "/etc/k"}, {Name: "L"}}
		k.StorageMounts = map[string]StorageMount{"/bucket-of-mine": {Name: "b-1", Sources: []string{"./x", "./y"}, SourceList: true, Persistent: true, Mode: "MOUNT_CACHED", Type: "DATASET_RO",
			Config: map[string]any{"mount_cached": map[string]any{"transfers": 3}}, Internal: map[string]any{"_is_sky_managed": true}}}
		k.Volumes = map[string]VolumeMount{"/v": {Name: "a", SubPath: "x/y"}, "/w": {Size: "10", Type: "k8s-pvc", Labels: map[string]string{"a": "1"}}, "/z": {Name: "true"}}
		k.Config = map[string]any{"hooks": []any{map[string]any{"run": "echo", "timeout": 5}}, "kubernetes": map[string]any{"pod_config": map[string]any{"a": []any{1, 1.5, "x", nil, true}}}}
		k.Hooks = []Hook{{Run: "echo", Timeout: 5, Events: HookEvents}}
		k.Metadata = map[string]any{"git_commit": "abc"}
		k.FileMountsMapping = map[string]string{"/a": "b"}
		k.MaxDuration = rapid.IntRange(1, 1e6).Draw(t, "max_duration")
	}
	return k
})

var genDag = rapid.Custom(func(t *rapid.T) *Dag {
	d := &Dag{Name: maybe(t, word), Execution: Serial, Tasks: rapid.SliceOfN(genTask, 1, 3).Draw(t, "tasks")}
	if rapid.IntRange(0, 3).Draw(t, "group") == 0 {
		d.Execution, d.Name = Parallel, "group"
		for i, k := range d.Tasks {
			k.Name = fmt.Sprintf("job%d", i)
		}
		d.PrimaryTasks = maybe(t, rapid.Just([]string{"job0"}))
		d.TerminationDelay = maybe(t, rapid.SampledFrom([]map[string]int{{"default": 5}, {"job0": 7}, {"default": 1, "job0": 2}}))
	}
	if d.Execution == Serial && rapid.Bool().Draw(t, "order") {
		for i, k := range d.Tasks { // each may wait for those before it
			k.Name, k.DependsOn = fmt.Sprintf("job%d", i), []string{}
			for h := range i {
				if rapid.Bool().Draw(t, "after") {
					k.DependsOn = append(k.DependsOn, d.Tasks[h].Name)
				}
			}
		}
	}
	d.Schedule = maybe(t, rapid.SampledFrom([]*Schedule{
		{Cron: "@daily", Missed: MissedOnce, Overlap: OverlapSkip}, {Cron: "5 * * * 1-5", Timezone: "Asia/Tokyo", Missed: MissedAll, Overlap: OverlapAllow},
	}))
	return d
})

func TestWireFormIsReadBackTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := genDag.Draw(t, "dag")
		text, err := d.YAML()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse("wire", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := same(d, back); diff != "" {
			t.Fatalf("%s\n%s", diff, text)
		}
		again, err := back.YAML()
		if err != nil || string(again) != string(text) {
			t.Fatalf("written differently the second time (%v):\n%s\n---- was\n%s", err, again, text)
		}
	})
}

func TestSecretsAreNeverShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := genDag.Draw(t, "dag")
		for _, k := range d.Tasks {
			k.Secrets = map[string]Secret{"TOKEN": NewSecret("tOp-sEcReT")}
			k.Envs = map[string]string{"SKYPILOT_DOCKER_PASSWORD": "tOp-sEcReT"}
		}
		shown, err := d.DisplayYAML()
		if err != nil || strings.Contains(string(shown), "tOp-sEcReT") {
			t.Fatalf("shown (%v):\n%s", err, shown)
		}
		if s := fmt.Sprintf("%v %+v %#v", *d.Tasks[0], d.Tasks[0].Secrets, d.Tasks[0].Secrets); strings.Contains(strings.ReplaceAll(s, fmt.Sprint(d.Tasks[0].Envs), ""), "tOp-sEcReT") {
			t.Fatalf("printed: %s", s)
		}
	})
}

// genTree is any YAML value.
func genTree(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 7
		if depth <= 0 {
			kinds = 5
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return rapid.Int().Draw(t, "int")
		case 1:
			return rapid.Float64().Draw(t, "float")
		case 2:
			return rapid.Bool().Draw(t, "bool")
		case 5:
			return rapid.MapOfN(anyText, genTree(depth-1), 0, 4).Draw(t, "map")
		case 6:
			return rapid.SliceOfN(genTree(depth-1), 0, 4).Draw(t, "list")
		}
		return anyText.Draw(t, "text")
	})
}

func TestFormatKeepsWhatTextMeans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w yaml11.Writer
		doc := yaml11.Of(rapid.MapOfN(anyText, genTree(3), 0, 5).Draw(t, "doc"))
		someInOneLine(t, doc)
		w.Document(doc)
		first, err := Format([]byte(w.String()))
		if err != nil {
			t.Fatalf("%v\n%s", err, w.String())
		}
		second, err := Format(first)
		if err != nil || string(second) != string(first) {
			t.Fatalf("not stable (%v):\n%s----\n%s", err, first, second)
		}
	})
}

// someInOneLine sets the style of some collections.
func someInOneLine(t *rapid.T, n *yaml11.Node) {
	n.Flow = rapid.Bool().Draw(t, "flow")
	for _, e := range n.Entries {
		someInOneLine(t, e.Value)
	}
	for _, item := range n.Items {
		someInOneLine(t, item)
	}
}

func TestFormatKeepsTasksAndComments(t *testing.T) {
	for name, data := range exampleFiles(t) {
		out, err := Format(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		before, err1 := Parse(name, data)
		after, err2 := Parse(name, out)
		if err1 != nil || err2 != nil {
			t.Errorf("%s: %v, formatted: %v", name, err1, err2)
			continue
		}
		if diff := same(before, after); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if string(out) != string(data) {
			t.Errorf("%s is not formatted; go test -update does it", name)
		}
		if again, err := Format(out); err != nil || string(again) != string(out) {
			t.Errorf("%s: not stable (%v):\n%s\n----\n%s", name, err, out, again)
		}
		if a, b := commentLines(data), commentLines(out); !slices.Equal(a, b) {
			t.Errorf("%s: comments were %q, are %q", name, a, b)
		}
	}
}

// commentLines are the lines that hold only a comment, sorted.
func commentLines(data []byte) []string {
	var out []string
	for line := range strings.Lines(string(data)) {
		if s := strings.TrimSpace(line); strings.HasPrefix(s, "#") {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}
