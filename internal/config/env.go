package config

import "strings"

// Switch is an environment variable that is on or off.
type Switch struct {
	Name    string
	Default bool
	Doc     string
}

// The switches of client, server and controllers.
var (
	Debug                = Switch{"SKYPILOT_DEBUG", false, "Log everything."}
	Developer            = Switch{"SKYPILOT_DEV", false, "Developer mode."}
	MinimizeLogging      = Switch{"SKYPILOT_MINIMIZE_LOGGING", true, "Keep output short."}
	SuppressSensitiveLog = Switch{"SKYPILOT_SUPPRESS_SENSITIVE_LOG", false, "Leave details that may be private out of logs."}
	SkipIdentityCheck    = Switch{"SKYPILOT_SKIP_CLOUD_IDENTITY_CHECK", false, "Do not check who owns a cluster in the cloud."}
	EnableGRPC           = Switch{"SKYPILOT_ENABLE_GRPC", false, "Has no effect: agents always speak their own protocol."}
	AllowAllContexts     = Switch{"SKYPILOT_ALLOW_ALL_KUBERNETES_CONTEXTS", false, "Use every Kubernetes context when allowed_contexts is absent."}
	AllIncludesInCluster = Switch{"SKYPILOT_ALL_KUBERNETES_CONTEXTS_INCLUDES_IN_CLUSTER", true, "Count the cluster the server runs in among all contexts."}
	DisableUsage         = Switch{"SKYPILOT_DISABLE_USAGE_COLLECTION", false, "Collect no usage data."}
	DisableLatency       = Switch{"SKYPILOT_SSH_DISABLE_LATENCY_MEASUREMENT", false, "Do not measure the latency of ssh through the server."}
	IsServer             = Switch{"IS_SKYPILOT_SERVER", false, "The process is an API server."}
	IsJobController      = Switch{"IS_SKYPILOT_JOB_CONTROLLER", false, "The process is a controller of managed jobs."}
	IsServeController    = Switch{"IS_SKYPILOT_SERVE_CONTROLLER", false, "The process is a controller of services."}
	BasicAuth            = Switch{"ENABLE_BASIC_AUTH", false, "Users log in with name and password."}
	NoBasicAuthCheck     = Switch{"SKYPILOT_DISABLE_BASIC_AUTH_MIDDLEWARE", false, "Something in front of the server checks name and password."}
	IngressBasicAuth     = Switch{"SKYPILOT_INGRESS_BASIC_AUTH_ENABLED", false, "The ingress checks name and password."}
	OAuth2Proxy          = Switch{"SKYPILOT_AUTH_OAUTH2_PROXY_ENABLED", false, "An oauth2-proxy in front of the server logs users in."}
	ServiceAccounts      = Switch{"ENABLE_SERVICE_ACCOUNTS", false, "Service account tokens are accepted."}
	Metrics              = Switch{"SKY_API_SERVER_METRICS_ENABLED", false, "The server offers metrics."}
	RollingUpdate        = Switch{"SKYPILOT_ROLLING_UPDATE_ENABLED", false, "Several servers may overlap during an update."}
	ServerStorage        = Switch{"SKYPILOT_API_SERVER_STORAGE_ENABLED", false, "The server's files outlive it."}
	RequestDebugLogging  = Switch{"SKYPILOT_SERVER_ENABLE_REQUEST_DEBUG_LOGGING", false, "Keep a debug log of each request."}
)

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
