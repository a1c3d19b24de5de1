package cli

import (
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/task"
)

// checkServicePorts makes sure that every replica opens the one port that the
// service listens on.
func checkServicePorts(t *task.Task) error {
	seen := ""
	for _, r := range t.Resources {
		if t.Service.Ports != 0 {
			want := fmt.Sprint(t.Service.Ports)
			if len(r.Ports) > 0 && !opens(r.Ports, t.Service.Ports) {
				return usageAt(t, "resources.ports", "The service port %s specified in the service section is not found in some resources.", want)
			}
			continue
		}
		switch {
		case len(r.Ports) == 0:
			return usageAt(t, "service", "Must specify at least one port in resources, or `service.ports`: replicas listen on it.")
		case len(r.Ports) > 1 || strings.Contains(r.Ports[0], "-"):
			return usageAt(t, "resources.ports", "Multiple ports specified in resources. Please specify the main port in the `service.ports` field.")
		case seen != "" && seen != r.Ports[0]:
			return usageAt(t, "resources.ports", "Got multiple ports: %s and %s in different resources. All candidates of a service need the same one.", seen, r.Ports[0])
		}
		seen = r.Ports[0]
	}
	return nil
}

// usageAt is a usage error about a task file, with the place in the file.
func usageAt(t *task.Task, field, format string, args ...any) error {
	e := t.ErrorAt(field, format, args...)
	return usagef("%s", strings.TrimSpace(e.Error()+"\n"+e.Snippet()))
}

// opens reports whether a list of ports and ranges has a port.
func opens(ports []string, port int) bool {
	for _, p := range ports {
		var from, to int
		if n, _ := fmt.Sscanf(p, "%d-%d", &from, &to); n == 1 {
			to = from
		}
		if from <= port && port <= to {
			return true
		}
	}
	return false
}
