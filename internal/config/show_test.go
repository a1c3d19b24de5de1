package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/yaml11"
)

const withSecrets = `
db: postgres://u:hunter2@h/d
api_server: {endpoint: 'http://ann:hunter2@h', service_account_token: sky_hunter2}
docker: {run_options: ['-e', 'HF_TOKEN=hunter2', --gpus all]}
vast: {create_instance_kwargs: {login: -u a -p hunter2, api_key: {x: hunter2}, image: i}}
plugins: {aws_secret_access_key: hunter2, Password: hunter2, n: 5, empty: ~}
kubernetes: {pod_config: {spec: {containers: [{env: [{name: MY_SECRET, value: hunter2}, {name: A, value: shown}]}]}}}
admin_policy: https://p/x?token=hunter2&v=1
aws: {labels: {token: shown, a: ''}, vpc_names: [], post_provision_runcmd: [[export, 'API_KEY=hunter2']]}
`

func TestNothingShowsSecrets(t *testing.T) {
	c := client(t, withSecrets)
	var shown strings.Builder
	for _, s := range c.Show() {
		fmt.Fprintln(&shown, s.Path, s.Value, s.Text, s.Origin)
	}
	for name, text := range map[string]string{"Show": shown.String(), "YAML": string(c.YAML()), "JSON": string(c.JSON()), "WithoutSecrets": fmt.Sprint(c.WithoutSecrets()["api_server"], c.WithoutSecrets()["vast"])} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s tells secrets:\n%s", name, text)
		}
		if name != "WithoutSecrets" && !strings.Contains(text, "shown") {
			t.Errorf("%s hides what is no secret:\n%s", name, text)
		}
	}
	if c.Token() != "sky_hunter2" || !strings.Contains(fmt.Sprint(c.Map()), "hunter2") {
		t.Error("the program itself needs the secrets")
	}
}

func TestShow(t *testing.T) {
	f := newFolder(t)
	f.write(".sky/config.yaml", "aws:\n  labels: {a: 'yes'}\n  vpc_names: [x, 'y z']\nssh: {pod_config: {}}\n")
	f.env[EnvEndpoint] = "http://e"
	var got strings.Builder
	for _, s := range f.load(Client, "gcp.vpc_name=~").Show() {
		fmt.Fprintf(&got, "%s = %s (%s, %s)\n", s.Path, s.Text, s.Origin.Layer, s.Origin)
	}
	const want = `aws.labels.a = 'yes' (user, ~/.sky/config.yaml:2:15)
aws.vpc_names = [x, y z] (user, ~/.sky/config.yaml:3:14)
ssh.pod_config = {} (user, ~/.sky/config.yaml:4:19)
gcp.vpc_name = null (command line, --config gcp.vpc_name)
api_server.endpoint = http://e (environment, SKYPILOT_API_SERVER_ENDPOINT)
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", &got, want)
	}
	if len(client(t, "").Show()) > 0 || string(client(t, "").YAML()) != "{}\n" || string(client(t, "").JSON()) != "{}\n" {
		t.Error("an empty configuration shows something")
	}
}

func TestDumpsReadBack(t *testing.T) {
	c := client(t, "aws: {labels: {a: 'yes', b: '010'}, use_ssm: on}\nplugins: {x: 1.0, y: [~, {}]}\n")
	again := client(t, string(c.YAML()))
	if string(again.YAML()) != string(c.YAML()) || !yaml11.Equal(again.root, c.root) {
		t.Errorf("%s", c.YAML())
	}
	var m map[string]any
	if err := json.Unmarshal(c.JSON(), &m); err != nil {
		t.Error(err)
	}
}

func TestReplaceKeepsSecretsAndOrigins(t *testing.T) {
	f := newFolder(t)
	f.write(".sky/config.yaml", "api_server: {endpoint: http://a, service_account_token: sky_x}\naws: {vpc_name: a, ssh_user: u}\ndb: d\n")
	c := f.load(Client)
	shown := c.WithoutSecrets()
	shown["aws"].(map[string]any)["vpc_name"] = "b"
	out, err := c.Replace(Origin{Layer: LayerPolicy, Source: "the policy"}, shown)
	if err != nil {
		t.Fatal(err)
	}
	if out.Token() != "sky_x" || out.DatabaseURI() != "d" || out.Text("aws", "vpc_name") != "b" || out.ForRequest()["aws"].(map[string]any)["vpc_name"] != "b" {
		t.Error(out.Map())
	}
	if got := out.Origin("aws", "vpc_name").String(); got != "the policy" {
		t.Error("origin of what changed:", got)
	}
	if got := out.Origin("aws", "ssh_user").String(); got != "~/.sky/config.yaml:2:30" {
		t.Error("origin of what did not change:", got)
	}
	_, err = c.Replace(Origin{Source: "the policy"}, map[string]any{"awz": 1})
	wantErr(t, err, "the policy: unknown field \"awz\"")
}
