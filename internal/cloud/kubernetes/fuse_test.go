package kubernetes

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Pods mount buckets only where the configuration gives them the right to.
func TestWhichPodsMount(t *testing.T) {
	main := func(c map[string]any) map[string]any {
		return map[string]any{"pod_config": map[string]any{"spec": map[string]any{"containers": []any{c}}}}
	}
	admin := map[string]any{"capabilities": map[string]any{"add": []any{"SYS_ADMIN"}}}
	fuse := map[string]any{"limits": map[string]any{"smarter-devices/fuse": 1}}
	for name, c := range map[string]struct {
		section map[string]any
		may     bool
	}{
		"nothing":           {nil, false},
		"another setting":   {main(map[string]any{"env": []any{}}), false},
		"privileged":        {main(map[string]any{"securityContext": map[string]any{"privileged": true}}), true},
		"not privileged":    {main(map[string]any{"securityContext": map[string]any{"privileged": false}}), false},
		"without a device":  {main(map[string]any{"securityContext": admin}), false},
		"without the right": {main(map[string]any{"resources": fuse}), false},
		"both":              {main(map[string]any{"securityContext": admin, "resources": fuse}), true},
		"of another one":    {main(map[string]any{"name": "sidecar", "securityContext": map[string]any{"privileged": true}}), false},
		"by its name":       {main(map[string]any{"name": "ray-node", "securityContext": map[string]any{"privileged": true}}), true},
		"by a broker":       {map[string]any{"mount_broker": true}, true},
		"by none":           {map[string]any{"mount_broker": false}, false},
		"no containers":     {map[string]any{"pod_config": map[string]any{"spec": map[string]any{}}}, false},
	} {
		p := New(Options{})
		_, lacks := p.LacksWith(c.section)[cloud.FeatureStorage]
		if lacks == c.may {
			t.Errorf("%s: mounting is possible: %v", name, !lacks)
		}
		if by := p.MountsBy(c.section); (by != "") != c.may {
			t.Errorf("%s: the plan says %q", name, by)
		}
		if _, lacks := p.Features().Lacks[cloud.FeatureStorage]; !lacks {
			t.Errorf("%s: the configuration of one request holds for all", name)
		}
	}
}

// The plan tells the ways apart.
func TestThePlanSaysHowPodsMount(t *testing.T) {
	spec := func(more map[string]any, container map[string]any) map[string]any {
		more["containers"] = []any{container}
		return map[string]any{"mount_broker": true, "pod_config": map[string]any{"spec": more}}
	}
	privileged := map[string]any{"securityContext": map[string]any{"privileged": true}}
	plugin := map[string]any{"securityContext": map[string]any{"capabilities": map[string]any{"add": []any{"CAP_SYS_ADMIN"}}}, "resources": map[string]any{"limits": map[string]any{"github.com/fuse": 1}}}
	for want, section := range map[string]map[string]any{
		"their container is privileged":                           spec(map[string]any{}, privileged),
		"the capability SYS_ADMIN and a fuse device (kubernetes.": spec(map[string]any{}, plugin),
		"in a user namespace of their own":                        spec(map[string]any{"hostUsers": false}, plugin),
		"the broker of sky-mount":                                 spec(map[string]any{"hostUsers": true}, map[string]any{}),
	} {
		if got := New(Options{}).MountsBy(section); !strings.Contains(got, want) {
			t.Errorf("%s: %q", want, got)
		}
	}
}

// Only with the setting, pods reach the broker.
func TestPodsReachTheBroker(t *testing.T) {
	for _, on := range []bool{true, false} {
		w := &podRequest{conf: settings{MountBroker: on}, spec: cloud.LaunchSpec{Nodes: 1}}
		text := jsonOf(w.describe(0, "pod"))
		for _, part := range []string{`{"hostPath":{"path":"/run/sky-mount","type":"DirectoryOrCreate"},"name":"sky-mount-broker"}`, `{"mountPath":"/run/sky-mount","name":"sky-mount-broker","readOnly":true}`} {
			if strings.Contains(text, part) != on {
				t.Errorf("with mount_broker %v: %s", on, text)
			}
		}
	}
}
