package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// folder is a home folder with files in it; it is also the current folder.
type folder struct {
	t   *testing.T
	dir string
	env map[string]string
}

func newFolder(t *testing.T) *folder {
	return &folder{t, t.TempDir(), map[string]string{}}
}

func (f *folder) write(name, text string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

func (f *folder) options(side Side, overrides ...string) Options {
	return Options{Side: side, Home: f.dir, Dir: f.dir, Overrides: overrides, Env: func(name string) (string, bool) {
		v, ok := f.env[name]
		return v, ok
	}}
}

func (f *folder) load(side Side, overrides ...string) *Config {
	f.t.Helper()
	c, err := Load(f.options(side, overrides...))
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// client is a client's configuration whose user file holds text.
func client(t *testing.T, text string, overrides ...string) *Config {
	t.Helper()
	f := newFolder(t)
	f.write(".sky/config.yaml", text)
	return f.load(Client, overrides...)
}

// server is a server's configuration.
func server(t *testing.T, text string) *Config {
	t.Helper()
	f := newFolder(t)
	f.write(".sky/config.yaml", text)
	return f.load(Server)
}

func read(t *testing.T, text string) *yaml11.Node {
	t.Helper()
	n, err := parse([]byte(text), newSource(LayerUser, "f"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// values reads YAML into plain values.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	m, _ := read(t, text).Any().(map[string]any)
	return m
}

func wantErr(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q lacks %q", err, p)
		}
	}
}

func TestLayers(t *testing.T) {
	f := newFolder(t)
	f.write(".sky/config.yaml", "aws: {vpc_name: user, ssh_user: user, disk_encrypted: true}\ndocker: {run_options: [a]}\n")
	f.write(".sky.yaml", "aws:\n  ssh_user: project\n  labels: {a: b}\ndocker: {run_options: [b]}\n")
	c := f.load(Client, "aws.labels.c=d", "docker.run_options=x y")
	for _, want := range []struct{ path, value, origin string }{
		{"aws.vpc_name", "user", "~/.sky/config.yaml:1:17"},
		{"aws.ssh_user", "project", f.dir + "/.sky.yaml:2:13"},
		{"aws.labels.a", "b", f.dir + "/.sky.yaml:3:15"},
		{"aws.labels.c", "d", "--config aws.labels.c"},
		{"docker.run_options", "x y", "--config docker.run_options"},
	} {
		path := strings.Split(want.path, ".")
		if got := c.Text(path...); got != want.value {
			t.Errorf("%s = %q, want %q", want.path, got, want.value)
		}
		if got := filepath.ToSlash(c.Origin(path...).String()); got != filepath.ToSlash(want.origin) {
			t.Errorf("%s comes from %q, want %q", want.path, got, want.origin)
		}
	}
	if !c.Bool("aws", "disk_encrypted") {
		t.Error("a key that only the lowest layer has is lost")
	}
	if c.Origin("aws", "use_ssm") != (Origin{}) {
		t.Error("a value that nobody wrote has an origin")
	}
}

func TestDefaultsAndKinds(t *testing.T) {
	c := client(t, "provision: {ssh_timeout: 3.0}\nkubernetes: {pricing: {cpu: 0.5, memory: 1}}\nlogs: {store: gcp, gcp: {credentials_file: ~/x}}\n")
	if got := c.Int("provision", "ssh_timeout"); got != 3 {
		t.Error("a whole float is an integer, got", got)
	}
	if !c.Bool("provision", "install_conda") {
		t.Error("default of install_conda")
	}
	if got := c.Int("api_server", "daemon_log_max_bytes"); got != 134217728 {
		t.Error("default of daemon_log_max_bytes", got)
	}
	if got := c.Float("kubernetes", "pricing", "cpu"); got != 0.5 {
		t.Error("cpu price", got)
	}
	if got := c.Path("logs", "gcp", "credentials_file"); got != filepath.Join(c.home, "x") {
		t.Error("~ is not expanded:", got)
	}
	if got := c.Value("jobs", "controller", "resources").(map[string]any)["memory"]; got != "4x" {
		t.Error("default resources of the jobs controller", got)
	}
	if got := c.Texts("kubernetes", "apt_mirrors"); len(got) != 2 {
		t.Error("default mirrors", got)
	}
	if v, ok := c.Get("serve", "controller", "autostop"); ok || v != nil {
		t.Error("Get must not answer with defaults", v)
	}
	if got := c.Texts("docker", "run_options"); got != nil {
		t.Error("absent list", got)
	}
	if got := client(t, "docker: {run_options: --gpus all}").Texts("docker", "run_options"); len(got) != 1 || got[0] != "--gpus all" {
		t.Error("one text as a list", got)
	}
}

func TestUnknownKeyInCodePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("reading a key that does not exist must be noticed")
		}
	}()
	client(t, "").Bool("provision", "instal_conda")
}

func TestMutatingAnswersChangesNothing(t *testing.T) {
	c := client(t, "aws: {labels: {a: b}}")
	v, _ := c.Get("aws", "labels")
	v.(map[string]any)["a"] = "changed"
	c.Map()["aws"].(map[string]any)["labels"] = nil
	if got := c.Text("aws", "labels", "a"); got != "b" {
		t.Error("a caller changed the configuration to", got)
	}
}

func TestErrorsTravelAsAPIErrors(t *testing.T) {
	f := newFolder(t)
	f.write(".sky/config.yaml", "awz: {}")
	_, err := Load(f.options(Client))
	var e *api.Error
	if !errors.As(err, &e) || e.Type != api.ErrInvalidConfig || !strings.Contains(e.Message, "awz") {
		t.Errorf("%v is not an InvalidSkyPilotConfigError", err)
	}
}
