package sky_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// reaches are the rows of the table in docs/administrators.md: all that a task or
// a request can make the server execute, open or connect to.
var reaches = []string{
	`event_callback of a managed job`,
	`setup, run, hooks, post_provision_runcmd`,
	"ports of a service's replicas: probes and requests of its users",
	`ssh_proxy_command, use_ssm, proxy_command of a pool`,
	`~/.ssh/config of the server`,
	`credential plugins of a kubeconfig`,
	"namespaces, roles and service accounts (`kubernetes.namespace`, `aws.remote_identity`, …)",
	`credential_process and profiles of AWS`,
	"another server in place of a cloud's API (`SKY_<CLOUD>_ENDPOINT`)",
	`jobs.controller: a cluster for everybody's jobs`,
	"files that the configuration names (`catalogs`, `logs`, keys of pools)",
	"a folder of price lists that a plan is made on (`--catalog-dir`)",
	"addresses that the configuration names (admin_policy, catalogs, tracing, the OAuth2 proxy, `nebius.domain`)",
	"the command for encryption keys (`SKY_ENCRYPTION_KMS_COMMAND`)",
	`git repositories and https:// sources`,
	`buckets`,
	`container images and logins to registries`,
	`sky local up, sky local down`,
	`sky ssh up, sky ssh down, the state of a pool`,
	`config section of a task`,
	`replicas of a service`,
}

// tests are the names of all tests of the module.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	sources(t, func(file, text string) {
		if strings.HasSuffix(file, "_test.go") {
			for _, m := range declared.FindAllStringSubmatch(text, -1) {
				out[m[1]] = true
			}
		}
	})
	return out
}

// sources calls f with every Go file of the module.
func sources(t *testing.T, f func(file, text string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") {
			return err
		}
		text, err := os.ReadFile(file)
		if err == nil {
			f(filepath.ToSlash(file), string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryReachOfTheServerIsDocumentedAndTested(t *testing.T) {
	text, err := os.ReadFile("docs/administrators.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## What the server executes, opens and connects to\n")
	section, _, _ = strings.Cut(section, "\n## ")
	known, named := tests(t), regexp.MustCompile("`(Test\\w+)`")
	var rows []string
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 5 || cells[0] == "| What" {
			continue
		}
		row := strings.TrimPrefix(cells[0], "| ")
		rows = append(rows, row)
		of := named.FindAllStringSubmatch(cells[4], -1)
		if len(of) == 0 {
			t.Errorf("%s: no test", row)
		}
		for _, m := range of {
			if !known[m[1]] {
				t.Errorf("%s: there is no test %s", row, m[1])
			}
		}
	}
	if !slices.Equal(rows, reaches) {
		t.Errorf("the rows of docs/administrators.md are\n%q, here they are\n%q", rows, reaches)
	}
}

// ways out are what starts programs and opens connections.
var wayOut = regexp.MustCompile(`exec\.Command(Context)?\(|net\.Dial(Timeout)?\(|net\.Dialer\{|http\.Client\{|http\.DefaultClient|http\.DefaultTransport|http\.(Get|Post|Head)\(`)

// waysOut are the files of the server's that have one, and who chooses the program
// or the address there. An address that a request may choose needs a dialer that
// refuses this machine, link-local addresses and the metadata services of clouds,
// after the name was resolved; there is none such yet.
var waysOut = map[string]string{
	"internal/jobs/callbackhere.go":           "the administrator's runner; the owner's script where nobody logs in",
	"internal/remote/sshconn/proxycommand.go": "the administrator's configuration",
	"internal/remote/sshconn/dial.go":         "the provider's node, or the administrator's pool",
	"internal/remote/sshconn/auth.go":         "the server's ssh agent",
	"internal/remote/docker.go":               "a node of the engine on this machine",
	"internal/agentclient/client.go":          "a node's agent",
	"internal/serve/probe/prober.go":          "a replica of a service, where its cluster's provider says it is",
	"internal/controller/controller.go":       "the jobs controller, through its agent",
	"internal/daemon/policy.go":               "the administrator's admin_policy",
	"internal/config/policy/policy.go":        "the administrator's admin_policy",
	"internal/auth/oauth2.go":                 "the administrator's environment",
	"internal/catalog/store.go":               "the administrator's catalogs",
	"internal/catalog/fetch/fetch.go":         "fixed addresses of clouds",
	"internal/envelope/kms.go":                "the administrator's environment",
	"internal/trace/export.go":                "the administrator's tracing",
	"internal/cloud/docker/engine.go":         "the engine's socket on this machine",
	"internal/cloud/docker/docker.go":         "nvidia-smi",
	"internal/cloud/local/machine.go":         "nvidia-smi and sysctl",
	"internal/cloud/rest/rest.go":             "the administrator's environment, and files of credentials",
	"internal/googleauth/googleauth.go":       "Google, for tokens, and the metadata service of a machine of Google's; what the user's credentials file names",
	"internal/azureauth/token.go":             "Microsoft Entra ID and the metadata service of the machine; what the server's environment and the user's files of az name",
	"internal/azureauth/cli.go":               "az, where it has encrypted its tokens",
	"internal/storage/scoped/scoped.go":       "the user's credentials; the token services of AWS and Google, or an endpoint that the administrator's environment names",
	"internal/storage/transport.go":           "the user's credentials; an endpoint that the administrator's environment or files name",
	"internal/proc/proc_darwin.go":            "ps",
	"internal/serve/balancer/balancer.go":     "the controller of services: replicas, which are their owners' nodes",
	"internal/serve/balancer/scrape.go":       "the controller of services: replicas, which are their owners' nodes",
}

// elsewhere are folders whose programs are not the server.
var elsewhere = []string{"internal/agent/", "internal/cli/", "internal/remote/nodeagent/", "internal/remote/container/", "internal/remote/agents/", "internal/cloud/fluffycloud/serve/",
	"internal/cloud/fluffycloud/machine/", "internal/mutate/", "internal/mount/", "internal/destination/", "internal/testbed/", "internal/porttest/", "internal/remote/sshconn/sshtest/", "test/", "cmd/", "examples/"}

func TestEveryWayOutIsKnown(t *testing.T) {
	found := map[string]bool{}
	sources(t, func(file, text string) {
		if strings.HasSuffix(file, "_test.go") || !strings.Contains(file, "/") || slices.ContainsFunc(elsewhere, func(dir string) bool { return strings.HasPrefix(file, dir) }) {
			return
		}
		var code strings.Builder
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(strings.TrimSpace(line), "//") {
				code.WriteString(line)
			}
		}
		if wayOut.MatchString(code.String()) {
			found[file] = true
			if waysOut[file] == "" {
				t.Errorf("%s starts a program or connects somewhere: say in waysOut who chooses it, and in docs/administrators.md how it is confined", file)
			}
		}
	})
	for file := range waysOut {
		if !found[file] {
			t.Errorf("%s has no way out any more", file)
		}
	}
}
