package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/task"
)

func TestLaunchQuestion(t *testing.T) {
	me := api.User{ID: "1", Name: "ann"}
	tests := []struct {
		name    string
		records []api.StatusRecord
		want    string
	}{
		{"new", nil, "Launching a new cluster 'c'. Proceed?"},
		{"own, up", []api.StatusRecord{{Status: api.ClusterUp, UserHash: "1", UserName: "ann"}}, ""},
		{"own, stopped", []api.StatusRecord{{Status: api.ClusterStopped, UserHash: "1"}}, "Restarting the stopped cluster 'c'. Proceed?"},
		{"somebody's, up", []api.StatusRecord{{Status: api.ClusterUp, UserHash: "2", UserName: "bob"}}, "Cluster 'c' was created by another user 'bob'. Reusing the cluster. Proceed?"},
		{"somebody's, stopped", []api.StatusRecord{{Status: api.ClusterStopped, UserHash: "2", UserName: "bob"}}, "Restarting the stopped cluster 'c' created by another user 'bob'. Proceed?"},
		{"a namesake's", []api.StatusRecord{{Status: api.ClusterUp, UserHash: "2", UserName: "ann"}}, "Cluster 'c' was created by another user 'ann' (hash: 2). Reusing the cluster. Proceed?"},
	}
	for _, tt := range tests {
		if got := launchQuestion("c", tt.records, me); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestTargets(t *testing.T) {
	records := []api.StatusRecord{{Name: "a"}, {Name: "b"}, {Name: "sky-jobs-controller-1"}}
	tests := []struct {
		s    selection
		want string
	}{
		{selection{names: []string{"a"}}, "a b"}, // the server has already filtered
		{selection{all: true}, "a b"},
		{selection{names: []string{"*"}}, "a b"},
		{selection{names: []string{"sky-jobs-controller-1"}}, "a b sky-jobs-controller-1"},
	}
	for _, tt := range tests {
		if got := strings.Join(namesOf(tt.s.targets(records)), " "); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.s, got, tt.want)
		}
	}
	if (selection{verb: "down"}).check() == nil {
		t.Error("a selection of nothing was taken")
	}
	one := []api.StatusRecord{{Name: "sky-serve-controller-1"}}
	for _, tt := range []struct {
		doing  string
		picked []api.StatusRecord
		want   string
	}{
		{"Terminating", records[:2], ""}, {"Terminating", one, ""}, {"Stopping", one, "currently not supported"},
		{"Terminating", records, "Please omit the controller(s)"}, {"Terminating", append(one, records[2]), "only one controller"},
	} {
		if got := controllerProblem(tt.doing, tt.picked); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s %v: %q", tt.doing, namesOf(tt.picked), got)
		}
	}
}

func TestRewrite(t *testing.T) {
	for in, want := range map[string]string{
		"launch -no-d x":             "launch --no-detach-run x",
		"queue -no-d":                "queue -no-d",
		"logs --hook c":              "logs --hook=auto c",
		"logs --hook stop c":         "logs --hook=stop c",
		"logs c --hook down":         "logs c --hook=down",
		"logs c -- --hook stop":      "logs c -- --hook stop",
		"exec c -- -no-d":            "exec c -- -no-d",
		"jobs queue -s":              "jobs queue --bare-s",
		"jobs queue -s --all":        "jobs queue --bare-s --all",
		"jobs queue -s RUNNING":      "jobs queue -s RUNNING",
		"spot launch -no-r task.yml": "spot launch --no-retry-until-up task.yml",
	} {
		if got := strings.Join(rewrite(strings.Fields(in)), " "); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

func TestWhatJobs(t *testing.T) {
	tests := []struct {
		ids           []int
		all, allUsers bool
		want          string
	}{
		{nil, false, false, "the latest running job"}, {nil, true, false, "all your jobs"}, {nil, false, true, "all users' jobs"},
		{[]int{1}, false, false, "job 1"}, {[]int{1, 2}, false, false, "jobs 1 2"}, {[]int{1}, true, false, "all your jobs and job 1"},
	}
	for _, tt := range tests {
		if got := whatJobs(tt.ids, tt.all, tt.allUsers); got != tt.want {
			t.Errorf("%v: %q, want %q", tt, got, tt.want)
		}
	}
}

func TestAutostopOption(t *testing.T) {
	tests := []struct {
		name string
		o    launchOptions
		yaml *task.Autostop
		want *task.Autostop
		ok   bool
	}{
		{"nothing", launchOptions{}, nil, nil, true},
		{"minutes", launchOptions{minutes: new(30)}, nil, &task.Autostop{Enabled: true, IdleMinutes: 30}, true},
		{"at once counts as one minute", launchOptions{minutes: new(0)}, nil, &task.Autostop{Enabled: true, IdleMinutes: 1}, true},
		{"down when all jobs end", launchOptions{down: true}, nil, &task.Autostop{Enabled: true, Down: true}, true},
		{"minutes and down", launchOptions{minutes: new(5), down: true, waitFor: "none"}, nil, &task.Autostop{Enabled: true, IdleMinutes: 5, Down: true, WaitFor: "none"}, true},
		{"never", launchOptions{minutes: new(-1)}, &task.Autostop{Enabled: true}, &task.Autostop{}, true},
		{"wait for, on the file's", launchOptions{waitFor: "jobs"}, &task.Autostop{Enabled: true, IdleMinutes: 9}, &task.Autostop{Enabled: true, IdleMinutes: 9, WaitFor: "jobs"}, true},
		{"wait for nothing", launchOptions{waitFor: "jobs"}, nil, nil, false},
	}
	for _, tt := range tests {
		dag := &task.Task{Resources: []task.Resources{{Autostop: tt.yaml}}}
		err := tt.o.autostop(dag)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
		if d := cmp.Diff(tt.want, dag.Resources[0].Autostop); tt.ok && d != "" {
			t.Errorf("%s: %s", tt.name, d)
		}
	}
}

func TestAutostopPlan(t *testing.T) {
	if p := autostopPlan(nil, false, false); p.minutes != 5 || p.doing != "Scheduling autostop" || !strings.Contains(p.done("c"), "autostopped after 5 minutes") {
		t.Errorf("default: %+v", p)
	}
	if p := autostopPlan(new(1), false, true); p.doing != "Scheduling autodown" || !strings.Contains(p.done("c"), "autodowned after 1 minute of") {
		t.Errorf("down: %+v", p)
	}
	if p := autostopPlan(new(0), false, false); p.minutes != 0 || !strings.Contains(p.done("c"), "after 1 minute of") {
		t.Errorf("%+v", p)
	}
	if p := autostopPlan(nil, true, false); p.minutes != -1 || p.done != nil {
		t.Errorf("cancel: %+v", p)
	}
}

func TestEntrypointFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"task.yaml": "run: echo", "script.sh": "#!/bin/sh\necho hi", "plain": "just words", "broken.yaml": "a: [", "broken.txt": "a: [", "noend": "run: echo"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, isTask := range map[string]bool{"task.yaml": true, "noend": true, "script.sh": false, "plain": false, "broken.yaml": true, "broken.txt": false, "nosuch.yaml": false, ".": false} {
		if got := fileProblem(filepath.Join(dir, name)) == ""; got != isTask {
			t.Errorf("%s counts as a task: %v", name, got)
		}
	}
}

func TestSaveEndpoint(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	const old = "# mine\naws:\n  use_internal_ips: true # keep\napi_server:\n  endpoint: http://old\n  service_account_token: sky_old\n"
	if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ endpoint, token, want string }{
		{"https://new", "sky_t", "# mine\naws:\n  use_internal_ips: true # keep\napi_server:\n  service_account_token: sky_t\n  endpoint: https://new\n"},
		{"https://newer", "", "# mine\naws:\n  use_internal_ips: true # keep\napi_server:\n  endpoint: https://newer\n"},
		{"", "", "# mine\naws:\n  use_internal_ips: true # keep\n"},
	} {
		if err := saveEndpoint(file, step.endpoint, step.token); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(file); string(got) != step.want {
			t.Errorf("%s: got\n%s\nwant\n%s", step.endpoint, got, step.want)
		}
	}
	const broken = "a: ["
	if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := saveEndpoint(file, "http://x", ""); err == nil {
		t.Error("a broken file was accepted")
	}
	if got, _ := os.ReadFile(file); string(got) != broken {
		t.Errorf("a broken file became %q", got)
	}
}

// A password in the endpoint stays where it is: no argument and no file gets it.
func TestSSHProxyNamesTheServerButNoPassword(t *testing.T) {
	const name = "SKYPILOT_API_SERVER_ENDPOINT="
	for endpoint, want := range map[string]string{
		"":                                   "",
		"http://127.0.0.1:46580":             "",
		"https://sky.example.com/a%20b/":     "env " + name + "'https://sky.example.com/a%%20b' ",
		"https://ann:s3cret@sky.example.com": "",
	} {
		a := &app{environ: []string{"HOME=" + t.TempDir(), name + endpoint}}
		var err error
		if a.client, err = sky.New(sky.Options{Endpoint: endpoint, Environ: a.environ}); err != nil {
			t.Fatal(err)
		}
		got := a.sshProxy()
		if strings.Contains(got, "s3cret") || !strings.HasPrefix(got, want) || strings.Contains(got, name) != (want != "") {
			t.Errorf("%s: %q, want it to begin with %q", endpoint, got, want)
		}
		if elsewhere := strings.Contains(endpoint, "example.com"); strings.HasSuffix(got, " ssh --stdio") != elsewhere {
			t.Errorf("%s: %q", endpoint, got)
		}
	}
}

func TestSSHEntry(t *testing.T) {
	r := api.StatusRecord{
		Name: "c", Handle: &api.Handle{StableIPs: [][2]string{{"10.0.0.1", "1.1.1.1"}, {"10.0.0.2", "1.1.1.2"}}, StableSSHPorts: []int{22, 2222}},
		Credentials: &api.Credentials{User: "ubuntu", KeyContent: "KEY", PrivateKey: "/server/key"},
	}
	text, key := sshEntry(r, "/home/me", "")
	if key != "KEY" || !strings.Contains(text, "Host c\n  HostName 1.1.1.1\n  User ubuntu\n") || !strings.Contains(text, "Host c-worker1\n  HostName 1.1.1.2\n") ||
		!strings.Contains(text, "Port 2222") || !strings.Contains(text, "ssh-keys/c.key") || strings.Contains(text, "/server/key") {
		t.Errorf("%s key %q", text, key)
	}
	for _, none := range []*api.Credentials{nil, {}} {
		r.Credentials = none
		if text, _ := sshEntry(r, "/home/me", ""); text != "" {
			t.Errorf("without credentials: %s", text)
		}
	}
	r.Handle.SSHUser = new("me")
	if text, key := sshEntry(r, "/home/me", ""); !strings.Contains(text, "User me\n") || strings.Contains(text, "IdentityFile") || key != "" {
		t.Errorf("with a key of one's own: %s, %s", text, key)
	}
}

func TestIncludeSSH(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".ssh", "config")
	for range 2 {
		if err := includeSSH(path); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil || strings.Count(string(b), sshInclude) != 1 {
		t.Errorf("%q, %v", b, err)
	}
}

func TestErrorsOfOneCluster(t *testing.T) {
	for _, err := range []error{&api.Error{Type: api.ErrNotSupported}, &api.Error{Type: api.ErrClusterNotUp}, &api.Error{Type: "ValueError"}} {
		if !perCluster(err) {
			t.Errorf("%v ends the command", err)
		}
	}
	if perCluster(errors.New("no network")) || perCluster(&api.Error{Type: "NoWorkspaceAccessError"}) {
		t.Error("these concern everything")
	}
}

func TestShellJoin(t *testing.T) {
	if got := shellJoin([]string{"exec", "c", "echo hi", "it's", ""}); got != `exec c 'echo hi' 'it'"'"'s' ''` {
		t.Errorf("got %s", got)
	}
}

func TestSortedNumbers(t *testing.T) {
	if got := sortedNumbers(map[string]int{"10": 0, "9": 0, "1": 0}); !slices.Equal(got, []string{"1", "9", "10"}) {
		t.Errorf("got %v", got)
	}
}

func TestSecretsAreNotInTheCommand(t *testing.T) {
	for in, want := range map[string]string{
		"launch --secret KEY=s3cret x":       "launch --secret KEY=<redacted> x",
		"launch --secret=KEY=s3cret x":       "launch --secret=KEY=<redacted> x",
		"launch --secret KEY x":              "launch --secret KEY x",
		"launch --env KEY=open x":            "launch --env KEY=open x",
		"launch --env HF_TOKEN=s3cret x":     "launch --env HF_TOKEN=<redacted> x",
		"launch --env=HF_TOKEN=s3cret x":     "launch --env=HF_TOKEN=<redacted> x",
		"launch --env HF_TOKEN x":            "launch --env HF_TOKEN x",
		"api login --token sky_abc":          "api login --token <redacted>",
		"exec c -- tool --secret KEY=theirs": "exec c -- tool --secret KEY=theirs",
		"launch --secret":                    "launch --secret",
	} {
		if got := strings.Join(withoutSecrets(strings.Fields(in)), " "); got != want {
			t.Errorf("%s is shown as %s", in, got)
		}
	}
}
