package config

import "strings"

// Switch is an environment variable that is on or off.
type Switch struct {
	Name    string
	Default bool
	Doc     string
}

// The switches of client and server. Each is read somewhere.
var (
	Debug                = Switch{"SKYPILOT_DEBUG", false, "Commands show their calls to the server and where they failed; a server started with it logs more."}
	MinimizeLogging      = Switch{"SKYPILOT_MINIMIZE_LOGGING", false, "Launches leave out the list of useful commands at their end."}
	AllowAllContexts     = Switch{"SKYPILOT_ALLOW_ALL_KUBERNETES_CONTEXTS", false, "Use every Kubernetes context when allowed_contexts is absent."}
	AllIncludesInCluster = Switch{"SKYPILOT_ALL_KUBERNETES_CONTEXTS_INCLUDES_IN_CLUSTER", true, "Count the cluster the server runs in among all contexts."}
)

// Switches lists them.
var Switches = []Switch{Debug, MinimizeLogging, AllowAllContexts, AllIncludesInCluster}

// On reads the switch: "true" and "1" are on, in any case, and anything else
// is off. lookup is os.LookupEnv or a request's variables.
func (s Switch) On(lookup func(string) (string, bool)) bool {
	v, ok := lookup(s.Name)
	if !ok {
		return s.Default
	}
	return v == "1" || strings.EqualFold(v, "true")
}
