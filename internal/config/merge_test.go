package config

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/yaml11"
)

func TestOverlay(t *testing.T) {
	for _, test := range []struct{ name, base, over, want string }{
		{"maps merge key by key", "aws: {vpc_name: a, ssh_user: b}", "aws: {ssh_user: c}", "aws: {vpc_name: a, ssh_user: c}"},
		{"deeply", "aws: {labels: {a: x, b: x}}", "aws: {labels: {b: y, c: y}}", "aws: {labels: {a: x, b: y, c: y}}"},
		{"sections are added", "aws: {use_ssm: true}", "gcp: {enable_gvnic: true}", "aws: {use_ssm: true}\ngcp: {enable_gvnic: true}"},
		{"lists are replaced", "allowed_clouds: [aws, gcp]", "allowed_clouds: [azure]", "allowed_clouds: [azure]"},
		{"an empty list replaces", "kubernetes: {apt_mirrors: [a]}", "kubernetes: {apt_mirrors: []}", "kubernetes: {apt_mirrors: []}"},
		{"null replaces", "aws: {vpc_name: a}", "aws: {vpc_name: ~}", "aws: {vpc_name: ~}"},
		{"a text replaces a map", "aws: {ssh_proxy_command: {r: a}}", "aws: {ssh_proxy_command: b}", "aws: {ssh_proxy_command: b}"},
		{"a map replaces a text", "aws: {ssh_proxy_command: b}", "aws: {ssh_proxy_command: {r: a}}", "aws: {ssh_proxy_command: {r: a}}"},
		{"an empty map changes nothing", "aws: {labels: {a: x}}", "aws: {labels: {}}", "aws: {labels: {a: x}}"},

		{"pod: lists are appended", "kubernetes: {pod_config: {spec: {tolerations: [{key: a}]}}}", "kubernetes: {pod_config: {spec: {tolerations: [{key: a}]}}}",
			"kubernetes: {pod_config: {spec: {tolerations: [{key: a}, {key: a}]}}}"},
		{"metadata: lists are appended", "kubernetes: {custom_metadata: {finalizers: [a]}}", "kubernetes: {custom_metadata: {finalizers: [b]}}",
			"kubernetes: {custom_metadata: {finalizers: [a, b]}}"},
		{"pod: scalars are replaced", "kubernetes: {pod_config: {spec: {hostIPC: true, a: 1}}}", "kubernetes: {pod_config: {spec: {hostIPC: false}}}",
			"kubernetes: {pod_config: {spec: {hostIPC: false, a: 1}}}"},
		{"pod: null replaces", "kubernetes: {pod_config: {spec: {x: [1]}}}", "kubernetes: {pod_config: {spec: {x: ~}}}", "kubernetes: {pod_config: {spec: {x: ~}}}"},
		{"pod: a list replaces what is none", "kubernetes: {pod_config: {x: a}}", "kubernetes: {pod_config: {x: [b]}}", "kubernetes: {pod_config: {x: [b]}}"},

		{"elsewhere pod lists are replaced: ssh", "ssh: {pod_config: {spec: {t: [1]}}}", "ssh: {pod_config: {spec: {t: [2]}}}", "ssh: {pod_config: {spec: {t: [2]}}}"},
		{"elsewhere: ssh metadata", "ssh: {custom_metadata: {f: [1], g: 1}}", "ssh: {custom_metadata: {f: [2]}}", "ssh: {custom_metadata: {f: [2], g: 1}}"},
		{"elsewhere: contexts", "kubernetes: {context_configs: {c: {pod_config: {spec: {t: [1]}}}}}", "kubernetes: {context_configs: {c: {pod_config: {spec: {t: [2]}}}}}",
			"kubernetes: {context_configs: {c: {pod_config: {spec: {t: [2]}}}}}"},
		{"elsewhere: metadata of contexts", "kubernetes: {context_configs: {c: {custom_metadata: {f: [1]}}}}", "kubernetes: {context_configs: {c: {custom_metadata: {f: [2]}}}}",
			"kubernetes: {context_configs: {c: {custom_metadata: {f: [2]}}}}"},
		{"elsewhere: pools", "ssh: {context_configs: {c: {pod_config: {env: [{name: a}]}}}}", "ssh: {context_configs: {c: {pod_config: {env: [{name: b}]}}}}",
			"ssh: {context_configs: {c: {pod_config: {env: [{name: b}]}}}}"},
	} {
		base, over := read(t, test.base), read(t, test.over)
		before := string(emit(base)) + string(emit(over))
		if got, want := overlay(base, over, Keys()), read(t, test.want); !yaml11.Equal(got, want) {
			t.Errorf("%s: got\n%swant\n%s", test.name, emit(got), emit(want))
		}
		if string(emit(base))+string(emit(over)) != before {
			t.Errorf("%s: the layers were changed", test.name)
		}
	}
}

func TestPatch(t *testing.T) {
	for _, test := range []struct{ name, base, over, want string }{
		{"containers by name", "containers: [{name: a, image: x}, {name: b}]", "containers: [{name: b, image: y}]", "containers: [{name: a, image: x}, {name: b, image: y}]"},
		{"a new container", "containers: [{name: a}]", "containers: [{name: b}]", "containers: [{name: a}, {name: b}]"},
		{"a container without name is the first", "containers: [{name: a, image: x}, {name: b}]", "containers: [{image: y, tty: true}]", "containers: [{name: a, image: y, tty: true}, {name: b}]"},
		{"… or new if there is none", "containers: []", "containers: [{image: y}]", "containers: [{image: y}]"},
		{"two containers without name", "containers: [{a: 1}]", "containers: [{b: 2}, {c: 3}]", "containers: [{a: 1, b: 2, c: 3}]"},
		{"initContainers by name", "initContainers: [{name: a, x: 1}]", "initContainers: [{name: a, x: 2}, {name: b}]", "initContainers: [{name: a, x: 2}, {name: b}]"},
		{"an initContainer without name is new", "initContainers: [{name: a}]", "initContainers: [{x: 1}]", "initContainers: [{name: a}, {x: 1}]"},
		{"ephemeralContainers by name", "ephemeralContainers: [{name: a, x: 1}]", "ephemeralContainers: [{name: a, y: 2}]", "ephemeralContainers: [{name: a, x: 1, y: 2}]"},
		{"volumes by name", "volumes: [{name: a, emptyDir: {}}]", "volumes: [{name: a, emptyDir: {medium: Memory}}]", "volumes: [{name: a, emptyDir: {medium: Memory}}]"},
		{"resourceClaims by name", "resourceClaims: [{name: a, x: 1}]", "resourceClaims: [{name: a, x: 2}]", "resourceClaims: [{name: a, x: 2}]"},
		{"env by name", "env: [{name: A, value: '1'}, {name: B, value: '1'}]", "env: [{name: B, value: '2'}, {name: C}]", "env: [{name: A, value: '1'}, {name: B, value: '2'}, {name: C}]"},
		{"claims by name", "claims: [{name: a, request: x}]", "claims: [{name: a, request: y}]", "claims: [{name: a, request: y}]"},
		{"volumeMounts by mountPath", "volumeMounts: [{name: a, mountPath: /x}]", "volumeMounts: [{name: b, mountPath: /x}, {name: a, mountPath: /y}]", "volumeMounts: [{name: b, mountPath: /x}, {name: a, mountPath: /y}]"},
		{"ports by containerPort", "ports: [{containerPort: 80, name: a}]", "ports: [{containerPort: 80, protocol: UDP}, {containerPort: 81}]", "ports: [{containerPort: 80, name: a, protocol: UDP}, {containerPort: 81}]"},
		{"volumeDevices by devicePath", "volumeDevices: [{devicePath: /d, name: a}]", "volumeDevices: [{devicePath: /d, name: b}]", "volumeDevices: [{devicePath: /d, name: b}]"},
		{"hostAliases by ip", "hostAliases: [{ip: 1.2.3.4, hostnames: [a]}]", "hostAliases: [{ip: 1.2.3.4, hostnames: [b]}]", "hostAliases: [{ip: 1.2.3.4, hostnames: [a, b]}]"},
		{"topologySpreadConstraints by topologyKey", "topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1}]", "topologySpreadConstraints: [{topologyKey: zone, maxSkew: 2}, {topologyKey: host}]",
			"topologySpreadConstraints: [{topologyKey: zone, maxSkew: 2}, {topologyKey: host}]"},
		{"args are replaced", "args: [a, b]", "args: [c]", "args: [c]"},
		{"command is replaced", "command: [a, b]", "command: [c]", "command: [c]"},
		{"the first imagePullSecret goes into the first", "imagePullSecrets: [{name: a}, {name: b}]", "imagePullSecrets: [{name: c}, {name: d}]", "imagePullSecrets: [{name: c}, {name: b}, {name: d}]"},
		{"imagePullSecrets where there are none", "imagePullSecrets: []", "imagePullSecrets: [{name: c}]", "imagePullSecrets: [{name: c}]"},
		{"lists of scalars under a patched key", "volumes: [a]", "volumes: [b, {name: c}]", "volumes: [a, b, {name: c}]"},
		{"other lists are appended", "tolerations: [{key: a}]", "tolerations: [{key: b}]", "tolerations: [{key: a}, {key: b}]"},
		{"all the way down", "spec: {containers: [{name: a, env: [{name: X, value: '1'}], args: [x], ports: [{containerPort: 1}]}]}",
			"spec: {containers: [{env: [{name: X, value: '2'}, {name: Y}], args: [y], ports: [{containerPort: 2}]}]}",
			"spec: {containers: [{name: a, env: [{name: X, value: '2'}, {name: Y}], args: [y], ports: [{containerPort: 1}, {containerPort: 2}]}]}"},
	} {
		if got, want := patch(read(t, test.base), read(t, test.over)), read(t, test.want); !yaml11.Equal(got, want) {
			t.Errorf("%s: got\n%swant\n%s", test.name, emit(got), emit(want))
		}
	}
}

// drawNode makes any value of bounded depth.
func drawNode(t *rapid.T, depth int) *yaml11.Node {
	kinds := []Kind{Null, Bool, Int, Float, Text}
	if depth > 0 {
		kinds = append(kinds, Map, Map, List)
	}
	n := &yaml11.Node{Kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
	switch n.Kind {
	case Null:
		return yaml11.NewScalar(nil)
	case Bool:
		return yaml11.NewScalar(rapid.Bool().Draw(t, "bool"))
	case Int:
		return yaml11.NewScalar(rapid.Int().Draw(t, "int"))
	case Float:
		return yaml11.NewScalar(rapid.Float64().Draw(t, "float"))
	case Text:
		return yaml11.NewScalar(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"yes", "1e3", "010", "22:30", "0o7", " a", "a: b", "# c", "- x", "~", "", "2020-01-01", "'", "\"", "a\nb", "\u2028"})).Draw(t, "text"))
	case List:
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			n.Items = append(n.Items, drawNode(t, depth-1))
		}
	case Map:
		for _, key := range rapid.SliceOfNDistinct(rapid.OneOf(rapid.StringN(0, 4, 8), rapid.SampledFrom([]string{"containers", "name", "env", "1", "on"})), 0, 4, rapid.ID).Draw(t, "keys") {
			n.Entries = append(n.Entries, yaml11.Entry{Key: yaml11.KeyNode(key, yaml11.Place{}), Value: drawNode(t, depth-1)})
		}
	}
	return n
}

func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawNode(t, 3), drawNode(t, 3), drawNode(t, 3)
		if !yaml11.Equal(overlay(a, nil, nil), a) || !yaml11.Equal(overlay(nil, a, nil), a) {
			t.Fatal("nothing is no neutral layer")
		}
		if !yaml11.Equal(overlay(a, a, nil), a) {
			t.Fatalf("a layer over itself changes it: %s", emit(a))
		}
		maps := a.Kind == Map && b.Kind == Map && c.Kind == Map
		if left, right := overlay(overlay(a, b, nil), c, nil), overlay(a, overlay(b, c, nil), nil); maps && plainMaps(a, b, c) && !yaml11.Equal(left, right) {
			t.Fatalf("order of merging matters:\n%s\n%s", emit(left), emit(right))
		}
		patch(a, b)
	})
}

// plainMaps says whether no key is a section in one value and something else in
// another: replacing a section by a scalar and that by a section is the one way
// in which merging depends on the order.
func plainMaps(nodes ...*yaml11.Node) bool {
	kinds := map[string]Kind{}
	below := map[string][]*yaml11.Node{}
	for _, n := range nodes {
		for _, e := range n.Entries {
			kinds[e.Key.Text] |= e.Value.Kind
			below[e.Key.Text] = append(below[e.Key.Text], e.Value)
		}
	}
	for key, k := range kinds {
		if k&Map != 0 && (k != Map || !plainMaps(below[key]...)) {
			return false
		}
	}
	return true
}

func TestEmittedTextReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t, 4)
		text := emit(n)
		got, err := parse(text, newSource("", ""))
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if got == nil {
			got = yaml11.NewScalar(nil)
		}
		if !identical(got, n) {
			t.Fatalf("%#v reads back as %#v from\n%s", n.Any(), got.Any(), text)
		}
	})
}

// identical is same, but for kinds too, and not a number is itself.
func identical(a, b *yaml11.Node) bool {
	if a.Kind != b.Kind || len(a.Entries) != len(b.Entries) || len(a.Items) != len(b.Items) {
		return false
	}
	for i := range a.Entries {
		if a.Entries[i].Key.Text != b.Entries[i].Key.Text || !identical(a.Entries[i].Value, b.Entries[i].Value) {
			return false
		}
	}
	for i := range a.Items {
		if !identical(a.Items[i], b.Items[i]) {
			return false
		}
	}
	return a.Value == b.Value || a.Kind == Float && a.Number() != a.Number() && b.Number() != b.Number()
}
