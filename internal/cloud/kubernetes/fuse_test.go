package kubernetes

import (
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
		"no containers":     {map[string]any{"pod_config": map[string]any{"spec": map[string]any{}}}, false},
	} {
		p := New(Options{})
		_, lacks := p.LacksWith(c.section)[cloud.FeatureStorage]
		if lacks == c.may {
			t.Errorf("%s: mounting is possible: %v", name, !lacks)
		}
		if _, lacks := p.Features().Lacks[cloud.FeatureStorage]; !lacks {
			t.Errorf("%s: the configuration of one request holds for all", name)
		}
	}
}
