package config

import (
	"maps"
	"reflect"
	"slices"
	"testing"
)

const manyPlaces = `
active_workspace: team
aws:
  labels: {a: b}
  security_group_name: [{'train-*': sg-train}, {'*': sg-rest}]
  remote_identity: [{'train-*': role}]
  ssh_proxy_command: {us-east-1: jump, us-west-2: ~}
  capabilities: [compute]
gcp: {ssh_proxy_command: jump %h}
kubernetes:
  namespace: cloud
  provision_timeout: 20
  kueue: {local_queue_name: cloud-kueue}
  allowed_contexts: [a, b]
  custom_metadata: {labels: {x: '1'}, finalizers: [f1]}
  pod_config:
    spec: {containers: [{env: [{name: A, value: cloud}, {name: B, value: cloud}]}], tolerations: [t1]}
  pricing: {cpu: 0.1, accelerators: {A100: 2, H100: 4}}
  remote_identity: {east: sa-east}
  ports: ingress
  context_configs:
    east:
      namespace: context
      provision_timeout: 30
      quota: {queue: context-quota}
      kueue: {local_queue_name: context-kueue}
      custom_metadata: {finalizers: [f2]}
      pod_config:
        spec: {containers: [{env: [{name: B, value: context}]}], tolerations: [t2]}
      pricing: {cpu: 0.2, accelerators: {A100: 3}}
ssh:
  provision_timeout: 1
  pod_config: {spec: {a: 1, b: [1]}}
  context_configs: {pool: {provision_timeout: 2, pod_config: {spec: {b: [2]}}}}
slurm:
  sbatch_options: {mem: cloud, qos: cloud, time: cloud}
  pricing: {cpu: 1, accelerators: {A100: 1}}
  cpu_partition: cloud
  gpu_partition_map: {A100: cloud, H100: cloud}
  cluster_configs:
    c1:
      workdir: /shared
      cpu_partition: cluster
      sbatch_options: {qos: cluster, time: cluster}
      gpu_partition_map: {A100: [p, q]}
      partition_configs:
        p: {sbatch_options: {time: partition}, pricing: {cpu: 3}}
oci: {region_configs: {default: {vcn_subnet: rest, image_tag_gpu: img}, eu: {vcn_subnet: eu}}}
nebius: {domain: d, region_configs: {r: {fabric: f, domain: region}}}
workspaces:
  team:
    aws: {profile: prod, capabilities: [storage], remote_identity: team-role}
    kubernetes: {namespace: workspace, allowed_contexts: all, context_configs: {east: {namespace: workspace-context, kueue: {local_queue_name: wc}}}}
    nebius: {domain: team}
    lambda: {disabled: true}
  other: {kubernetes: {quota: {queue: other}}}
  none: {}
`

func TestLookup(t *testing.T) {
	c := server(t, manyPlaces)
	east := Scope{Cloud: "kubernetes", Region: "east", Workspace: "none"}
	for _, test := range []struct {
		name  string
		scope Scope
		path  []string
		want  any
	}{
		{"a cloud's value", Scope{Cloud: "aws"}, []string{"labels"}, map[string]any{"a": "b"}},
		{"below a cloud's value", Scope{Cloud: "aws"}, []string{"labels", "a"}, "b"},
		{"nothing", Scope{Cloud: "aws"}, []string{"vpc_name"}, nil},
		{"a cloud without section", Scope{Cloud: "lambda"}, []string{"labels"}, nil},
		{"a cloud nobody knows", Scope{Cloud: "acme"}, []string{"labels"}, nil},
		{"a default", Scope{Cloud: "aws"}, []string{"ssh_user"}, "ubuntu"},

		{"by cluster: first match", Scope{Cloud: "aws", Cluster: "train-1"}, []string{"security_group_name"}, "sg-train"},
		{"by cluster: the rest", Scope{Cloud: "aws", Cluster: "dev"}, []string{"security_group_name"}, "sg-rest"},
		{"by cluster: no match is the default", Scope{Cloud: "aws", Cluster: "dev", Workspace: "none"}, []string{"remote_identity"}, "LOCAL_CREDENTIALS"},
		{"by cluster", Scope{Cloud: "aws", Cluster: "train-x", Workspace: "none"}, []string{"remote_identity"}, "role"},
		{"the workspace wins", Scope{Cloud: "aws", Cluster: "train-x"}, []string{"remote_identity"}, "team-role"},

		{"by region", Scope{Cloud: "aws", Region: "us-east-1"}, []string{"ssh_proxy_command"}, "jump"},
		{"by region: null", Scope{Cloud: "aws", Region: "us-west-2"}, []string{"ssh_proxy_command"}, nil},
		{"by region: absent", Scope{Cloud: "aws", Region: "eu"}, []string{"ssh_proxy_command"}, nil},
		{"by region: for all", Scope{Cloud: "gcp", Region: "eu"}, []string{"ssh_proxy_command"}, "jump %h"},

		{"workspace: only there", Scope{Cloud: "aws"}, []string{"profile"}, "prod"},
		{"workspace: another", Scope{Cloud: "aws", Workspace: "none"}, []string{"profile"}, nil},
		{"workspace over cloud", Scope{Cloud: "aws"}, []string{"capabilities"}, []any{"storage"}},
		{"cloud", Scope{Cloud: "aws", Workspace: "none"}, []string{"capabilities"}, []any{"compute"}},
		{"workspace: disabled", Scope{Cloud: "lambda"}, []string{"disabled"}, true},
		{"workspace: not disabled", Scope{Cloud: "aws"}, []string{"disabled"}, false},

		{"context over cloud", east, []string{"provision_timeout"}, 30},
		{"cloud where the context is silent", Scope{Cloud: "kubernetes", Region: "west", Workspace: "none"}, []string{"provision_timeout"}, 20},
		{"a choice of the cloud", east, []string{"ports"}, "ingress"},
		{"by context", east, []string{"remote_identity"}, "sa-east"},
		{"by context: default", Scope{Cloud: "kubernetes", Region: "west"}, []string{"remote_identity"}, "SERVICE_ACCOUNT"},
		{"context patches the pod", east, []string{"pod_config"}, map[string]any{"spec": map[string]any{
			"containers":  []any{map[string]any{"env": []any{map[string]any{"name": "A", "value": "cloud"}, map[string]any{"name": "B", "value": "context"}}}},
			"tolerations": []any{"t1", "t2"}}}},
		{"context patches metadata", east, []string{"custom_metadata"}, map[string]any{"labels": map[string]any{"x": "1"}, "finalizers": []any{"f1", "f2"}}},
		{"prices merge one level", east, []string{"pricing"}, map[string]any{"cpu": 0.2, "accelerators": map[string]any{"A100": 3}}},
		{"prices of the cloud", Scope{Cloud: "kubernetes"}, []string{"pricing", "accelerators", "H100"}, 4},
		{"allowed contexts of the workspace", Scope{Cloud: "kubernetes"}, []string{"allowed_contexts"}, "all"},
		{"allowed contexts", Scope{Cloud: "kubernetes", Workspace: "none"}, []string{"allowed_contexts"}, []any{"a", "b"}},

		{"a pool", Scope{Cloud: "ssh", Region: "pool"}, []string{"provision_timeout"}, 2},
		{"a pool by its context", Scope{Cloud: "ssh", Region: "ssh-pool"}, []string{"provision_timeout"}, 2},
		{"a pool replaces", Scope{Cloud: "ssh", Region: "pool"}, []string{"pod_config"}, map[string]any{"spec": map[string]any{"b": []any{2}}}},
		{"another pool", Scope{Cloud: "ssh", Region: "x"}, []string{"provision_timeout"}, 1},

		{"slurm", Scope{Cloud: "slurm"}, []string{"sbatch_options"}, map[string]any{"mem": "cloud", "qos": "cloud", "time": "cloud"}},
		{"slurm cluster", Scope{Cloud: "slurm", Region: "c1"}, []string{"sbatch_options"}, map[string]any{"mem": "cloud", "qos": "cluster", "time": "cluster"}},
		{"slurm partition", Scope{Cloud: "slurm", Region: "c1", Partition: "p"}, []string{"sbatch_options"}, map[string]any{"mem": "cloud", "qos": "cluster", "time": "partition"}},
		{"slurm prices", Scope{Cloud: "slurm", Region: "c1", Partition: "p"}, []string{"pricing"}, map[string]any{"cpu": 3, "accelerators": map[string]any{"A100": 1}}},
		{"slurm scalars", Scope{Cloud: "slurm", Region: "c1"}, []string{"cpu_partition"}, "cluster"},
		{"slurm partitions", Scope{Cloud: "slurm", Region: "c1"}, []string{"gpu_partition_map"}, map[string]any{"A100": []any{"p", "q"}, "H100": "cloud"}},

		{"oci region", Scope{Cloud: "oci", Region: "eu"}, []string{"vcn_subnet"}, "eu"},
		{"oci default region", Scope{Cloud: "oci", Region: "us"}, []string{"vcn_subnet"}, "rest"},
		{"oci default for a silent region", Scope{Cloud: "oci", Region: "eu"}, []string{"image_tag_gpu"}, "img"},
		{"nebius region", Scope{Cloud: "nebius", Region: "r"}, []string{"fabric"}, "f"},
		{"nebius region over cloud", Scope{Cloud: "nebius", Region: "r", Workspace: "none"}, []string{"domain"}, "region"},
		{"nebius workspace over region", Scope{Cloud: "nebius", Region: "r"}, []string{"domain"}, "team"},
	} {
		var got any
		if v, ok := c.For(test.scope).Get(test.path...); ok {
			got = v
		} else if s := c.For(test.scope); s.spec(test.path) != nil {
			got = s.Value(test.path...)
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %#v, want %#v", test.name, got, test.want)
		}
	}
}

func TestSettingsKinds(t *testing.T) {
	c := server(t, manyPlaces)
	aws := c.For(Scope{Cloud: "aws", Region: "us-east-1"})
	if !maps.Equal(aws.TextMap("labels"), map[string]string{"a": "b"}) || aws.TextMap("vpc_name") != nil {
		t.Error("labels", aws.TextMap("labels"))
	}
	if got := aws.Texts("capabilities"); !slices.Equal(got, []string{"storage"}) {
		t.Error("capabilities", got)
	}
	if got := aws.Origin("profile").String(); got != "~/.sky/config.yaml:52:20" {
		t.Error("origin", got)
	}
	if got := c.For(Scope{Cloud: "kubernetes"}).Float("pricing", "cpu"); got != 0.1 {
		t.Error("price", got)
	}
	if c.For(Scope{Cloud: "slurm"}).Text("pricing") != "" || c.For(Scope{Cloud: "acme"}).Bool("labels") {
		t.Error("a value of another kind is none")
	}
	defer func() {
		if recover() == nil {
			t.Error("reading a key that does not exist must be noticed")
		}
	}()
	aws.Text("no_such_key")
}

func TestProxyCommand(t *testing.T) {
	c := server(t, manyPlaces)
	for _, test := range []struct {
		cloud   string
		written any
		regions []string
	}{
		{"aws", map[string]any{"us-east-1": "jump", "us-west-2": nil}, []string{"us-east-1", "us-west-2"}},
		{"gcp", "jump %h", nil},
		{"azure", nil, nil},
	} {
		at := c.For(Scope{Cloud: test.cloud})
		if got := at.Written()["ssh_proxy_command"]; !reflect.DeepEqual(got, test.written) {
			t.Errorf("%s: as written: %v", test.cloud, got)
		}
		if got, some := at.ProxyRegions(); !slices.Equal(got, test.regions) || some != (test.regions != nil) {
			t.Errorf("%s: %q %v", test.cloud, got, some)
		}
	}
	// What is looked up later is not decided before.
	by := server(t, "aws: {security_group_name: [{train-*: t}, {'*': rest}]}").For(Scope{Cloud: "aws"}).Written()["security_group_name"]
	if list, ok := by.([]any); !ok || len(list) != 2 {
		t.Errorf("groups by cluster: %v", by)
	}
}

func TestNamespaceAndQueue(t *testing.T) {
	c := server(t, manyPlaces)
	for _, test := range []struct{ workspace, context, namespace, queue string }{
		{"team", "east", "workspace-context", "wc"},
		{"team", "west", "workspace", "cloud-kueue"},
		{"none", "east", "context", "context-quota"},
		{"none", "west", "cloud", "cloud-kueue"},
		{"other", "east", "context", "other"},
		{"", "east", "workspace-context", "wc"},
		{"none", "", "cloud", "cloud-kueue"},
	} {
		s := Scope{Workspace: test.workspace, Region: test.context}
		if got := c.Namespace(s); got != test.namespace {
			t.Errorf("namespace of %+v is %q, want %q", s, got, test.namespace)
		}
		if got := c.Queue(s); got != test.queue {
			t.Errorf("queue of %+v is %q, want %q", s, got, test.queue)
		}
	}
	if none := server(t, ""); none.Namespace(Scope{}) != "" || none.Queue(Scope{Region: "x"}) != "" {
		t.Error("nothing is configured")
	}
}

func TestWildcard(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "abc", true}, {"abc", "abc", true}, {"abc", "ABC", false}, {"", "", true}, {"", "a", false},
		{"a*", "a", true}, {"a*", "ba", false}, {"*a", "bca", true}, {"*b*", "abc", true}, {"a*c*e", "abcde", true}, {"a*c*f", "abcde", false},
		{"?", "a", true}, {"?", "", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"[ab]x", "bx", true}, {"[ab]x", "cx", false}, {"[!ab]x", "cx", true}, {"[!ab]x", "ax", false}, {"[a-c]", "b", true}, {"[a-c]", "d", false},
		{"[]]", "]", true}, {"[", "[", true}, {"[a", "[a", true}, {"a[", "a[", true}, {"[a-]", "-", true}, {"*[0-9]", "train-7", true}, {"**", "a", true}, {"é?", "éa", true},
	} {
		if got := wildcard(test.pattern, test.name); got != test.want {
			t.Errorf("wildcard(%q, %q) = %v", test.pattern, test.name, got)
		}
	}
}

func TestSectionIsWhatHoldsInAPlace(t *testing.T) {
	c := server(t, manyPlaces)
	got := c.For(Scope{Cloud: "kubernetes", Workspace: DefaultWorkspace, Region: "east"}).Section()
	for key, want := range map[string]any{
		"namespace": "context", "ports": "ingress", "remote_identity": "sa-east",
		"kueue": map[string]any{"local_queue_name": "context-quota"},
	} {
		if !reflect.DeepEqual(got[key], want) {
			t.Errorf("%s: %v, want %v", key, got[key], want)
		}
	}
	for _, absent := range []string{"context_configs", "quota", "autoscaler", "disabled"} {
		if v, ok := got[absent]; ok {
			t.Errorf("%s: %v", absent, v)
		}
	}
}
