package config

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/yaml11"
	"github.com/skypilot-go/sky/task"
)

// PythonPolicy says what is wrong with an admin policy of an earlier kind.
func PythonPolicy(name string) string {
	return fmt.Sprintf("%q names a Python class, which sky cannot run: serve the policy over HTTP and give its URL, or write rules under admin_policy.cel", name)
}

// IsURL reports whether an admin policy is the address of a service.
func IsURL(policy string) bool {
	return strings.HasPrefix(policy, "http://") || strings.HasPrefix(policy, "https://")
}

// unusable finds values that have the right form and with which no launch can work.
// They are no reason to refuse everything else, so only [Check] looks for them.
func unusable(root *yaml11.Node) []Problem {
	var out []Problem
	wrong := func(n *yaml11.Node, path, format string, args ...any) {
		out = append(out, ProblemAt(originOf(n.Place), path, fmt.Sprintf(format, args...)))
	}
	if n := root.Find("admin_policy"); n != nil && n.Kind == Text && !IsURL(asText(n)) {
		wrong(n, "admin_policy", "%s", PythonPolicy(asText(n)))
	}
	if n := root.Find("allowed_clouds"); n != nil && n.Kind == List && len(n.Items) == 0 {
		wrong(n, "allowed_clouds", "is empty, so there is no cloud to launch on; list clouds, or remove the key to allow all")
	}
	if n := root.Find("active_workspace"); n != nil && n.Kind == Text {
		if err := task.ValidWorkspaceName(asText(n)); err != nil {
			wrong(n, "active_workspace", "%v", err)
		}
	}
	for _, k := range controllerKinds {
		out = append(out, controllerMachine(root, k.section)...)
	}
	if n := root.Find("api_server", "endpoint"); n != nil && n.Kind == Text {
		u, err := url.Parse(asText(n))
		if err != nil || u.Hostname() == "" {
			wrong(n, "api_server.endpoint", "names no host; write a URL such as http://HOST:46580")
		} else if port, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || port < 1 || port > 65535) {
			wrong(n, "api_server.endpoint", "has the port %s; ports are 1 to 65535", u.Port())
		}
	}
	return out
}

// controllerMachine finds what no task could have as resources in the resources and the
// autostop of a controller: its machine is launched as a task's is.
func controllerMachine(root *yaml11.Node, section string) []Problem {
	controller := root.Find(section, "controller")
	resources, autostop := controller.Find("resources"), controller.Find("autostop")
	asked := yaml11.NewMap()
	if resources != nil && resources.Kind == Map {
		asked = resources
	}
	if autostop != nil && autostop.Kind != Null {
		asked = asked.With("autostop", autostop.Place, autostop)
	}
	if len(asked.Entries) == 0 {
		return nil
	}
	_, err := task.Parse(section+".controller", emit(yaml11.Nest([]string{"resources"}, asked.Place, asked)))
	var out []Problem
	for _, e := range task.AllErrors(err) {
		field := strings.TrimPrefix(e.Field, "resources.")
		at, path := asked, section+".controller.resources"
		if key, _, _ := strings.Cut(strings.ReplaceAll(field, "[", "."), "."); asked.Find(key) != nil {
			at = asked.Find(key)
			if key == "autostop" && at == autostop {
				path = section + ".controller"
			}
			path += "." + field
		}
		out = append(out, ProblemAt(originOf(at.Place), path, strings.TrimLeft(strings.TrimPrefix(e.Message, e.Field), ": ")))
	}
	return out
}
