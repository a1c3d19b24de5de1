package credentials

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

// A node is a home folder.
type node struct {
	t    *testing.T
	home string
}

func (n node) write(name, text string) {
	n.t.Helper()
	file := filepath.Join(n.home, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n node) read(name string) string {
	b, err := os.ReadFile(filepath.Join(n.home, name))
	if err != nil {
		return "none"
	}
	return string(b)
}

// takes runs the script with files, as names and contents in turns.
func (n node) takes(files ...string) string {
	n.t.Helper()
	var in strings.Builder
	for i := 0; i < len(files); i += 2 {
		in.WriteString(files[i] + " " + base64.StdEncoding.EncodeToString([]byte(files[i+1])) + "\n")
	}
	return n.run(in.String() + ".\n")
}

func (n node) run(in string) string {
	n.t.Helper()
	c := exec.Command("sh", "-c", script)
	c.Env, c.Stdin = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + n.home}, strings.NewReader(in)
	out, _ := c.CombinedOutput()
	return string(out)
}

func TestFilesAreTheUsersAlone(t *testing.T) {
	n := node{t, t.TempDir()}
	secret := "key = a'b\"$c\nwith lines\n" + strings.Repeat("x", 100000)
	for range 2 {
		if out := n.takes(".aws/credentials", secret, ".config/gcloud/x.json", "{}"); out != mark+"done\n" {
			t.Fatalf("%q", out)
		}
	}
	if got := n.read(".aws/credentials"); got != secret {
		t.Errorf("%.40q", got)
	}
	for name, want := range map[string]os.FileMode{".aws/credentials": 0o600, ".config/gcloud/x.json": 0o600, ".aws": 0o700 | os.ModeDir, ".sky/credentials": 0o600} {
		if info, err := os.Stat(filepath.Join(n.home, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestFilesThatAreTheNodesOwnStay(t *testing.T) {
	n := node{t, t.TempDir()}
	n.write(".aws/config", "theirs")
	out := n.takes(".aws/config", "ours", ".aws/credentials", "ours")
	if out != mark+"kept .aws/config\n"+mark+"done\n" || n.read(".aws/config") != "theirs" || n.read(".aws/credentials") != "ours" {
		t.Errorf("%q %q", out, n.read(".aws/config"))
	}
	n.takes()
	if n.read(".aws/config") != "theirs" || n.read(".aws/credentials") != "none" {
		t.Errorf("after the end: %q %q", n.read(".aws/config"), n.read(".aws/credentials"))
	}
}

func TestFilesChangeAndGo(t *testing.T) {
	n := node{t, t.TempDir()}
	n.takes("a", "1", "b", "2")
	n.takes("b", "3")
	if n.read("a") != "none" || n.read("b") != "3" || n.read(".sky/credentials") != "b\n" {
		t.Errorf("a %q, b %q, list %q", n.read("a"), n.read("b"), n.read(".sky/credentials"))
	}
	if out := n.run("b MQ==\n"); strings.Contains(out, "done") || n.read("b") != "1" { // the connection broke
		t.Errorf("input without an end: %q", out)
	}
	n.run("c NQ==\n+\n")
	if n.read("b") != "1" || n.read("c") != "5" || n.read(".sky/credentials") != "c\nb\n" {
		t.Errorf("b %q, c %q, list %q", n.read("b"), n.read("c"), n.read(".sky/credentials"))
	}
	n.takes("b", "4")
	if n.read("b") != "4" {
		t.Errorf("b %q", n.read("b"))
	}
}

// provider is a cloud that lends what it says.
type provider struct {
	cloud.Provider
	name  string
	files map[string][]byte
	until time.Time
	err   error
}

func (p provider) Name() string        { return p.name }
func (p provider) DisplayName() string { return strings.ToUpper(p.name) }
func (p provider) LendCredentials(context.Context) (map[string][]byte, time.Time, error) {
	return p.files, p.until, p.err
}

func TestWhatIsLent(t *testing.T) {
	home, soon := node{t, t.TempDir()}, time.Now().Add(time.Hour)
	home.write(".cloudflare/accountid", "id")
	m := New(Deps{Home: home.home, Providers: cloud.NewRegistry(
		provider{name: "aws", files: map[string][]byte{".aws/credentials": []byte("k")}, until: soon},
		provider{name: "gcp", err: errors.New("they belong to this machine")},
		provider{name: "azure", err: &cloud.AuthError{Cloud: "azure", Err: errors.New("none")}},
		provider{name: "lambda", files: map[string][]byte{".lambda_cloud/lambda_keys": []byte("k")}},
	)})
	cfg, err := config.FromMap(config.Server, config.Origin{}, map[string]any{"allowed_clouds": []any{"aws", "gcp", "azure", "cloudflare"}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := m.Gather(t.Context(), cfg, cfg.ActiveWorkspace())
	if err != nil || strings.Join(l.Clouds, " ") != "AWS Cloudflare" || len(l.Files) != 2 || string(l.Files[".cloudflare/accountid"]) != "id" || !l.Until.Equal(soon) {
		t.Errorf("%+v, %v", l, err)
	}
	if len(l.Notes) != 1 || !strings.Contains(l.Notes[0], "GCP cannot be used on nodes: they belong to this machine") {
		t.Errorf("%q", l.Notes)
	}
	for _, tt := range []struct {
		section map[string]any
		scope   *state.Scope
		says    string
	}{
		{map[string]any{"remote_identity": "local_credentials"}, nil, "Nodes get your credentials of AWS, Cloudflare (lambda.remote_identity).\n"},
		{map[string]any{"remote_identity": "LOCAL_CREDENTIALS"}, &state.Scope{}, "Nodes get none of this server's credentials, which only tasks of its administrators have.\n"},
		{map[string]any{"remote_identity": []any{map[string]any{"dev-*": "LOCAL_CREDENTIALS"}}}, nil, "Nodes get your credentials of AWS, Cloudflare (lambda.remote_identity).\n"},
		{map[string]any{"remote_identity": []any{map[string]any{"prod-*": "LOCAL_CREDENTIALS"}}}, nil, ""},
		{map[string]any{"remote_identity": "SERVICE_ACCOUNT"}, nil, ""},
		{nil, nil, ""},
	} {
		out := &output{}
		if err := m.Announce(t.Context(), cluster.Call{Scope: tt.scope, Out: out}, cfg, tt.section, "dev-1", "lambda"); err != nil || out.String() != tt.says {
			t.Errorf("%v: %q, %v", tt.section, out, err)
		}
	}
}

type output struct{ bytes.Buffer }

func (*output) Spin(string) {}
func (*output) StopSpin()   {}

func TestOnlyAdministratorsRunJobsBesideCredentials(t *testing.T) {
	lent, plain := &state.Cluster{Name: "c", Notes: state.ClusterNotes{Credentials: "h"}}, &state.Cluster{Name: "c"}
	others := cluster.Call{Scope: &state.Scope{}}
	if err := May(cluster.Call{}, lent); err != nil {
		t.Error(err)
	}
	if err := May(others, plain); err != nil {
		t.Error(err)
	}
	if e, ok := errors.AsType[*api.Error](May(others, lent)); !ok || e.Type != api.ErrPermissionDenied {
		t.Errorf("%v", e)
	}
}
