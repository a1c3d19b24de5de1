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

// cloudVariables go along with requests to a server on the same machine.
var cloudVariables = map[string]bool{
	"AWS_PROFILE": true, "AWS_DEFAULT_PROFILE": true, "AWS_ACCESS_KEY_ID": true, "AWS_SECRET_ACCESS_KEY": true, "AWS_SESSION_TOKEN": true,
	"AZURE_CLIENT_ID": true, "AZURE_CLIENT_SECRET": true, "AZURE_TENANT_ID": true, "AZURE_SUBSCRIPTION_ID": true,
	"GOOGLE_APPLICATION_CREDENTIALS": true, "KUBECONFIG": true,
}

// RequestVariables picks what a client sends along from its environment, given
// as os.Environ does. local says that the server runs on the same machine.
func RequestVariables(environ []string, local bool) map[string]string {
	out := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case EnvGlobalConfig, EnvProjectConfig, EnvOnlyConfig, EnvDatabase:
			continue
		}
		if strings.HasPrefix(name, "SKYPILOT_") && !strings.HasPrefix(name, "SKYPILOT_SERVER_") || local && cloudVariables[name] {
			out[name] = value
		}
	}
	return out
}
