package task

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/similar"
)

// JobRecoveryStrategies are the ways a managed job comes back.
var JobRecoveryStrategies = []string{"EAGER_NEXT_REGION", "FAILOVER"}

// checkResources looks at what the candidates say together and each by itself.
func (t *Task) checkResources() []*Error {
	var errs []*Error
	add := func(e *Error) {
		if !slices.ContainsFunc(errs, func(x *Error) bool { return x.Message == e.Message }) {
			errs = append(errs, e)
		}
	}
	fail := func(key, format string, args ...any) { add(t.errorUnder("resources", key, format, args...)) }
	for i := range t.Resources {
		r, first := &t.Resources[i], &t.Resources[0]
		r.check(fail)
		if !reflect.DeepEqual(r.Priority, first.Priority) {
			fail("priority", "every candidate of a task should have the same priority")
		}
		if r.PriorityClass != first.PriorityClass {
			fail("priority_class", "every candidate of a task should have the same priority_class")
		}
		if !reflect.DeepEqual(r.Autostop, first.Autostop) {
			fail("autostop", "every candidate of a task should have the same autostop")
		}
		if !reflect.DeepEqual(r.JobRecovery, first.JobRecovery) {
			fail("job_recovery", "every candidate of a task should have the same job_recovery")
		}
		if t.Service != nil {
			t.checkServiceCandidate(r, fail, func(key, format string, args ...any) {
				add(t.ErrorAt("service."+key, format, args...))
			})
		}
		if t.Pool != nil && len(r.Ports) > 0 {
			fail("ports", "a pool opens no ports; remove resources.ports")
		}
	}
	if t.Pool != nil && t.Preference == Ordered && len(t.Resources) > 1 {
		fail("ordered", "a pool cannot have ordered candidates; use any_of")
	}
	return errs
}

func (t *Task) checkServiceCandidate(r *Resources, fail, failService func(string, string, ...any)) {
	s := t.Service
	switch {
	case s.Ports == 0 && (len(r.Ports) != 1 || strings.Contains(r.Ports[0], "-")):
		fail("ports", "a service needs exactly one port in resources.ports, or service.ports to say which one it serves on")
	case s.Ports != 0 && len(r.Ports) > 0 && !covers(r.Ports, s.Ports):
		fail("ports", "resources.ports should contain %d, the port of service.ports", s.Ports)
	}
	if r.JobRecovery != nil {
		fail("job_recovery", "a service brings its replicas back by itself; remove job_recovery")
	}
	if p := s.Policy; p != nil && !spot(r) {
		for _, k := range []struct {
			name string
			set  bool
		}{{"spot_placer", p.SpotPlacer != ""}, {"dynamic_ondemand_fallback", p.DynamicOndemand}, {"base_ondemand_fallback_replicas", p.BaseOndemandFallback > 0}} {
			if k.set {
				failService("replica_policy."+k.name, "%s is for services on spot machines; add resources.use_spot: true, or remove it", k.name)
			}
		}
	}
	if spot(r) != spot(&t.Resources[0]) {
		fail("use_spot", "the candidates of a service should all be spot machines, or none of them")
	}
}

func spot(r *Resources) bool { return r.UseSpot != nil && *r.UseSpot }

func covers(ports []string, port int) bool {
	return slices.ContainsFunc(ports, func(p string) bool {
		r, err := parsePortRange(p)
		return err == nil && r.from <= port && port <= r.to
	})
}

func (r *Resources) check(fail func(key, format string, args ...any)) {
	if j := r.JobRecovery; j != nil && j.Strategy != "" && !slices.Contains(JobRecoveryStrategies, j.Strategy) {
		hint := ""
		if near := similar.Names(j.Strategy, JobRecoveryStrategies); len(near) > 0 {
			hint = fmt.Sprintf("; did you mean %s?", near[0])
		}
		fail("job_recovery", "%s is not a way of recovery; there are %s%s", j.Strategy, strings.Join(JobRecoveryStrategies, ", "), hint)
	}
	if r.Priority != nil && (*r.Priority < -1000 || *r.Priority > 1000) {
		fail("priority", "priority should be from -1000 to 1000, not %d", *r.Priority)
	}
	onPods := facts.Of(r.Cloud).Pods
	if r.EphemeralStorage != 0 && r.Cloud != "" && !onPods {
		fail("ephemeral_storage", "ephemeral_storage is for Kubernetes, not for %s", CloudDisplay(r.Cloud))
	}
	for region, image := range r.ImageID {
		vm := region != "docker" && !strings.HasPrefix(image, "docker:")
		if vm && r.Cloud == "" && !strings.HasPrefix(image, "skypilot:") {
			fail("image_id", "%q is the image of a machine, so the cloud must be given as well (or write docker:IMAGE for a container)", image)
		}
	}
	if _, any := r.ImageID[""]; r.Region != "" && len(r.ImageID) > 0 && !any {
		_, here := r.ImageID[r.Region]
		_, container := r.ImageID["docker"]
		if !here && (!container || len(r.ImageID) > 1) {
			fail("image_id", "image_id has no image for the region %s", r.Region)
		}
	}
	if len(r.Volumes) > 0 && !facts.Of(r.Cloud).Disks {
		if r.Cloud == "" {
			fail("volumes", "resources.volumes is for Google Cloud; add infra: gcp, or use the top-level field volumes")
		} else {
			fail("volumes", "resources.volumes is for Google Cloud, not for %s; use the top-level field volumes", CloudDisplay(r.Cloud))
		}
	}
	for _, v := range r.Volumes {
		if v["name"] != nil && r.Region == "" && r.Zone == "" && facts.Of(r.Cloud).Disks {
			fail("volumes", "the disk %v is in some region or zone; say which, as in infra: gcp/REGION", v["name"])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(r.Labels)) {
		if reason := LabelProblem(r.Cloud, k, r.Labels[k]); reason != "" {
			fail("labels", "%s takes no label %s: %s; %s", CloudDisplay(r.Cloud), strconv.Quote(k), r.Labels[k], reason)
		}
	}
}

// LabelProblem says why a cloud would refuse a label; "" if it would not.
func LabelProblem(cloud, key, value string) string {
	if takes := facts.Of(cloud).Label; takes != nil {
		return takes(key, value)
	}
	return ""
}
