package config

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/yaml11"
)

func TestFilesNamedByVariables(t *testing.T) {
	f := newFolder(t)
	f.write(".sky/config.yaml", "aws: {vpc_name: default}")
	f.write(".sky.yaml", "aws: {ssh_user: default}")
	f.write("a.yaml", "aws: {vpc_name: named}")
	f.write("b.yaml", "aws: {ssh_user: named}")
	f.env[EnvGlobalConfig] = "~/a.yaml"
	f.env[EnvProjectConfig] = filepath.Join(f.dir, "b.yaml")
	c := f.load(Client)
	if c.Text("aws", "vpc_name") != "named" || c.Text("aws", "ssh_user") != "named" {
		t.Error("the named files do not replace the default ones:", c.Map())
	}
	if got := c.Origin("aws", "vpc_name").String(); got != "~/a.yaml:1:17" {
		t.Error("origin", got)
	}

	f.write("only.yaml", "aws: {use_ssm: true}")
	f.env[EnvOnlyConfig] = "~/only.yaml"
	c = f.load(Client, "aws.ssh_user=flag")
	if _, ok := c.Get("aws", "vpc_name"); ok || !c.Bool("aws", "use_ssm") || c.Text("aws", "ssh_user") != "flag" {
		t.Error("SKYPILOT_CONFIG replaces files, and nothing else:", c.Map())
	}
	if c := f.load(Server); !c.Bool("aws", "use_ssm") {
		t.Error("SKYPILOT_CONFIG on a server:", c.Map())
	}
}

func TestMissingAndBrokenFiles(t *testing.T) {
	for _, env := range []string{EnvGlobalConfig, EnvProjectConfig, EnvOnlyConfig} {
		f := newFolder(t)
		f.env[env] = "~/nowhere.yaml"
		_, err := Load(f.options(Client))
		wantErr(t, err, env, "~/nowhere.yaml", "unset "+env)
		var e *api.Error
		if !errors.As(err, &e) || e.Type != api.ErrFileNotFound {
			t.Errorf("%s: %v is no FileNotFoundError", env, err)
		}
	}

	f := newFolder(t)
	f.env[EnvGlobalConfig] = "" // as if it were not set
	if c := f.load(Client); len(c.Map()) != 0 {
		t.Error("no files, yet", c.Map())
	}

	f = newFolder(t)
	f.write(".sky/config.yaml", "aws: {vpc_name: a\nb: [")
	f.write(".sky.yaml", "aws: {ssh_user: b}")
	c := f.load(Client)
	if w := c.Warnings(); len(w) != 1 || w[0].Level != slog.LevelError || !strings.Contains(w[0].String(), "~/.sky/config.yaml:") {
		t.Error("a broken file must be reported:", w)
	}
	if c.Text("aws", "ssh_user") != "b" {
		t.Error("a broken file takes the others with it")
	}
	_, err := Load(f.options(Server))
	wantErr(t, err, "~/.sky/config.yaml:", "not valid YAML")

	f = newFolder(t)
	if err := os.MkdirAll(filepath.Join(f.dir, ".sky.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = Load(f.options(Client))
	wantErr(t, err, ".sky.yaml", "folder")
}

func TestEmptyAndCommentOnlyFiles(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "---\n", "---\n# nothing\n...\n", "{}", "\ufeff"} {
		if c := client(t, text); len(c.Map()) != 0 {
			t.Errorf("%q gives %v", text, c.Map())
		}
	}
}

func TestOverrides(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string // YAML
	}{
		{[]string{"aws.vpc_name=a"}, "aws: {vpc_name: a}"},
		{[]string{"aws.vpc_name = a "}, "aws: {vpc_name: a}"},
		{[]string{"aws.labels.x=a=b"}, "aws: {labels: {x: a=b}}"},
		{[]string{"aws.use_ssm=yes"}, "aws: {use_ssm: true}"},
		{[]string{"aws.use_ssm=off"}, "aws: {use_ssm: false}"},
		{[]string{"provision.ssh_timeout=010"}, "provision: {ssh_timeout: 8}"},
		{[]string{"provision.ssh_timeout=0x10"}, "provision: {ssh_timeout: 16}"},
		{[]string{"provision.ssh_timeout=1:30"}, "provision: {ssh_timeout: 90}"},
		{[]string{"kubernetes.pricing.cpu=.5"}, "kubernetes: {pricing: {cpu: 0.5}}"},
		{[]string{"aws.labels={a: b, c: '1'}"}, "aws: {labels: {a: b, c: '1'}}"},
		{[]string{"aws.vpc_names=[a, b]"}, "aws: {vpc_names: [a, b]}"},
		{[]string{"aws.vpc_name=null"}, "aws: {vpc_name: null}"},
		{[]string{"aws.labels.a='1'"}, "aws: {labels: {a: '1'}}"},
		{[]string{"aws.labels.a=1e3"}, "aws: {labels: {a: 1e3}}"},
		{[]string{"aws.labels.a=''"}, "aws: {labels: {a: ''}}"},
		{[]string{"aws.labels.a=1", "aws.labels.a=x"}, "aws: {labels: {a: x}}"},
		{[]string{"aws.labels.a=x", "aws.labels.b=y"}, "aws: {labels: {a: x, b: y}}"},
		{[]string{"kubernetes.pod_config.spec.tolerations=[{key: a}]", "kubernetes.pod_config.spec.tolerations=[{key: b}]"},
			"kubernetes: {pod_config: {spec: {tolerations: [{key: a}, {key: b}]}}}"},
	} {
		got, err := Overrides(test.args, newFolder(t).options(Client))
		if err != nil {
			t.Errorf("%q: %v", test.args, err)
			continue
		}
		if want := values(t, test.want); !yaml11.Equal(fromPlain(got, yaml11.Place{}), fromPlain(want, yaml11.Place{})) {
			t.Errorf("%q gives %v, want %v", test.args, got, want)
		}
	}
	if got, err := Overrides(nil, Options{}); got != nil || err != nil {
		t.Error("no flags:", got, err)
	}
}

func TestOverridesFromAFile(t *testing.T) {
	f := newFolder(t)
	path := f.write("over.yaml", "aws:\n  ssh_user: file\n")
	c := f.load(Client, path)
	if got := c.Origin("aws", "ssh_user"); got.Source != path || got.Line != 2 || got.Layer != LayerCommandLine {
		t.Error("origin", got)
	}
	if c := f.load(Client, "~/over.yaml"); c.Text("aws", "ssh_user") != "file" {
		t.Error("~ in --config")
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"two files":      {[]string{path, path}, "must be the only --config"},
		"file and value": {[]string{path, "aws.ssh_user=x"}, "must be the only --config"},
		"value and file": {[]string{"aws.ssh_user=x", path}, "neither a file that exists nor of the form"},
		"broken file":    {[]string{f.write("broken.yaml", "a: [")}, "broken.yaml:1:4: not valid YAML"},
		"invalid file":   {[]string{f.write("invalid.yaml", "awz: {}")}, "invalid.yaml:1:1: unknown field \"awz\" in the configuration; did you mean \"aws\"?"},
	} {
		_, err := Load(f.options(Client, test.args...))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "--config takes") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWorkspaceFlag(t *testing.T) {
	f := newFolder(t)
	f.write(".sky/config.yaml", "active_workspace: a")
	o := f.options(Client, "active_workspace=b")
	o.Workspace = "c"
	c, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	if c.ActiveWorkspace() != "c" || c.Origin("active_workspace").String() != "--workspace" {
		t.Error(c.ActiveWorkspace(), c.Origin("active_workspace"))
	}
}

func TestVariablesStandForKeys(t *testing.T) {
	f := newFolder(t)
	f.write(".sky/config.yaml", "api_server: {endpoint: http://a, service_account_token: sky_a}")
	f.env[EnvEndpoint] = "https://b/"
	c := f.load(Client, "api_server.endpoint=http://flag")
	if c.Endpoint() != "https://b" || c.Origin("api_server", "endpoint").String() != EnvEndpoint {
		t.Error(c.Endpoint(), c.Origin("api_server", "endpoint"))
	}
	if c.Token() != "sky_a" {
		t.Error("token", c.Token())
	}
	f.env[EnvToken] = "sky_b"
	if got := f.load(Client).Token(); got != "sky_b" {
		t.Error("token", got)
	}
	f.env[EnvToken] = "hunter2"
	_, err := Load(f.options(Client))
	wantErr(t, err, EnvToken+": api_server.service_account_token should be a token that begins with sky_, not what was given")
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("the token is in the error")
	}
}

func TestDatabase(t *testing.T) {
	f := newFolder(t)
	f.write(".sky/config.yaml", "db: postgres://u:secret@h/d\nrbac: {default_role: user}\n")
	o := f.options(Server)
	asked := ""
	o.Stored = func(db string) ([]byte, error) {
		asked = db
		return []byte("rbac: {default_role: viewer}\naws: {ssh_user: x}\n"), nil
	}
	c, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	if asked != "postgres://u:secret@h/d" || c.DatabaseURI() != asked {
		t.Error("database", asked, c.DatabaseURI())
	}
	if _, ok := c.Get("db"); ok {
		t.Error("db must leave the configuration")
	}
	if got := c.Origin("rbac", "default_role").String(); c.Text("rbac", "default_role") != "viewer" || got != "database:1:22" {
		t.Error("the stored configuration lies over the file:", c.Map(), got)
	}
	if got := c.Origin("db").String(); got != "~/.sky/config.yaml:1:5" {
		t.Error("origin of db", got)
	}

	f.env[EnvDatabase] = "postgres://env/d"
	if c := f.load(Server); c.DatabaseURI() != "postgres://env/d" {
		t.Error("the variable wins over the file")
	}
	delete(f.env, EnvDatabase)

	o.Stored = func(string) ([]byte, error) { return []byte("awz: {}"), nil }
	_, err = Load(o)
	wantErr(t, err, "database:1:1: unknown field \"awz\"")
	o.Stored = func(string) ([]byte, error) { return []byte("a: ["), nil }
	_, err = Load(o)
	wantErr(t, err, "database:1:4: not valid YAML")
	o.Stored = func(string) ([]byte, error) { return nil, errors.New("connection refused") }
	_, err = Load(o)
	wantErr(t, err, "the configuration in the database: connection refused")
	o.Stored = func(string) ([]byte, error) { return nil, nil }
	if _, err := Load(o); err != nil {
		t.Error("nothing stored:", err)
	}

	f.write(".sky/config.yaml", "db: x\naws: {}\ngcp: {}\n")
	_, err = Load(f.options(Server))
	wantErr(t, err, "~/.sky/config.yaml:3:1: gcp: beside a database the file may hold one other key")
	if c := f.load(Client); c.DatabaseURI() != "x" || c.ForRequest()["db"] != nil {
		t.Error("a client shares the file with its local server:", c.Map())
	}
}
