//go:build e2e && linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/test/harness"
)

// TestAUserReadsNoFileOfTheServer lets a user who logs in name files of the server
// wherever a task names files. What she uploaded arrives on her nodes, and
// nothing else does.
func TestAUserReadsNoFileOfTheServer(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		readNoFileOfTheServer(t, nil)
	})
	if os.Getenv("SKY_TEST_POSTGRES") != "" {
		t.Run("PostgreSQL", func(t *testing.T) {
			t.Parallel()
			readNoFileOfTheServer(t, harness.NewDatabase(t))
		})
	}
}

// refusal is how the server says that a path is not in an upload, or that there is no
// such upload.
var refusal = regexp.MustCompile(`was not uploaded|outside of the upload|leads out of the uploaded files|must be 64 hexadecimal digits|^/a does not exist`)

func readNoFileOfTheServer(t *testing.T, database *harness.Database) {
	f := newFluffy(t, 50*time.Millisecond)
	w := f.workstation
	if database != nil {
		w.write(".sky/config.yaml", "db: "+database.URL.String()+"\n")
	}
	w.write(".sky/.server.yaml", "auth: {external_proxy: {enabled: true, header_name: X-Test}}\n")
	own, kept := "only uma's own file says this", "only the server's file says this"
	w.write("kept/file", kept+"\n")
	dir := filepath.Join(w.home, "kept")
	shadow, err := os.ReadFile("/etc/shadow")
	if err != nil {
		t.Fatal(err)
	}
	root, _, _ := strings.Cut(string(shadow), "\n")
	w.sky("api", "start")
	uma, err := sky.New(sky.Options{Endpoint: fmt.Sprintf("http://127.0.0.1:%d", w.port), HTTPClient: &http.Client{Transport: throughProxy("uma")}, Environ: []string{"HOME=" + t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()

	file := func(name, text string) sky.UploadFile {
		return sky.UploadFile{Name: name, Mode: 0o600, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	}
	link := func(name, to string) sky.UploadFile {
		return sky.UploadFile{Name: name, Mode: fs.ModeSymlink, Target: to}
	}
	upload, err := uma.Upload(ctx, []sky.UploadFile{file("work/own", own+"\n"), file("work/d/x", "x"), link("work/near", "own")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := uma.Upload(ctx, []sky.UploadFile{link("e", "/etc"), file("e/shadow", "x")}, nil); err == nil || !strings.Contains(err.Error(), "cannot be used") {
		t.Errorf("a file through a link was taken: %v", err)
	}
	for name, links := range map[string][]sky.UploadFile{ // links are taken as they are, and never followed: see below
		"a chain of two":   {link("d/L", "../.."), link("e", "d/L/../..")},
		"an absolute link": {link("e", "/etc")},
		"a link above":     {link("d/e", "../../x")},
	} {
		if _, err := uma.Upload(ctx, append(links, file("ok", "x")), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What links that lead out of an upload must not be good for.
	blobs, err := filepath.Glob(filepath.Join(w.home, ".sky/api_server/clients/*/file_mounts/blobs", upload, "work"))
	if err != nil || len(blobs) != 1 {
		t.Fatalf("the upload is in %v: %v", blobs, err)
	}
	for at, to := range map[string]string{"d/L": "../..", "e": "d/L/../..", "abs": dir} {
		if err := os.Symlink(to, filepath.Join(blobs[0], at)); err != nil {
			t.Fatal(err)
		}
	}

	var heard bytes.Buffer // all that uma is told
	wait := func(what string, id string, get func(context.Context) error, err error) error {
		t.Helper()
		if err == nil {
			_ = uma.StreamRequest(ctx, id, &heard, sky.StreamOptions{})
			err = get(ctx)
		}
		if err != nil {
			fmt.Fprintln(&heard, err)
			if !refusal.MatchString(err.Error()) {
				t.Errorf("%s: refused for another reason: %v", what, err)
			}
		}
		return err
	}
	const on = "resources: {infra: fluffycloud, cpus: 1}\n"
	launch := func(cluster, task, blob string) error {
		b := api.LaunchBody{ClusterName: cluster, Task: on + task}
		if blob != "" {
			b.FileMountsBlobID = &blob
		}
		r, err := uma.Launch(ctx, b)
		if err != nil {
			return wait("launch", "", nil, err)
		}
		return wait("launch", r.ID(), func(ctx context.Context) error { _, err := r.Get(ctx); return err }, nil)
	}
	// exec runs a task to its end and returns what it printed.
	exec := func(task, blob string) (string, error) {
		b := api.ExecBody{ClusterName: "umas", Task: on + task}
		if blob != "" {
			b.FileMountsBlobID = &blob
		}
		r, err := uma.Exec(ctx, b)
		if err != nil {
			return "", wait("exec", "", nil, err)
		}
		var job int
		err = wait("exec", r.ID(), func(ctx context.Context) error {
			got, err := r.Get(ctx)
			if err == nil && got.JobID != nil {
				job = *got.JobID
			}
			return err
		}, nil)
		if err != nil {
			return "", err
		}
		logs, err := uma.Logs(api.LogsBody{ClusterName: "umas", JobID: &job})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := logs.Stream(ctx, &out, sky.StreamOptions{}); err != nil {
			t.Errorf("logs of %q: %v", task, err)
		}
		heard.Write(out.Bytes())
		return out.String(), nil
	}
	job := func(task, blob string) (int, error) {
		b := api.JobsLaunchBody{Task: "name: j\n---\nname: t\n" + on + task}
		if blob != "" {
			b.FileMountsBlobID = &blob
		}
		r, err := uma.LaunchJob(ctx, b)
		if err != nil {
			return 0, wait("jobs launch", "", nil, err)
		}
		id := 0
		err = wait("jobs launch", r.ID(), func(ctx context.Context) error {
			got, err := r.Get(ctx)
			if err == nil {
				id = got.JobID[0]
			}
			return err
		}, nil)
		return id, err
	}
	logOf := func(id int) string {
		logs, err := uma.JobLogs(api.JobsLogsBody{JobID: &id})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := logs.Stream(ctx, &out, sky.StreamOptions{}); err != nil {
			t.Errorf("logs of job %d: %v", id, err)
		}
		heard.Write(out.Bytes())
		return out.String()
	}

	// What is hers arrives: whatever does not below was kept from arriving.
	mine := "workdir: /work\nfile_mounts: {~/mount: /work/near}\nfile_mounts_mapping: {/work: work, /work/near: work/own}\nrun: cat own ~/mount\n"
	if err := launch("umas", mine, upload); err != nil {
		t.Fatal(err)
	}
	if out, err := exec(mine, upload); err != nil || strings.Count(out, own) != 2 {
		t.Errorf("exec with an upload: %v\n%s", err, out)
	}
	id, err := job(mine, upload)
	if err != nil {
		t.Fatal(err)
	}
	if out := logOf(id); strings.Count(out, own) != 2 {
		t.Errorf("a job with an upload printed:\n%s", out)
	}

	up := strings.Repeat("../", 12)
	for _, a := range []struct{ name, task, blob string }{
		{"a file mount", "file_mounts: {~/stolen: /etc/shadow}\nrun: cat ~/stolen\n", ""},
		{"a file mount beside an upload", "file_mounts: {~/stolen: " + dir + "/file}\nrun: cat ~/stolen\n", upload},
		{"a file mount below the server's home", "file_mounts: {~/stolen: ~/kept/file}\nrun: cat ~/stolen\n", ""},
		{"a workdir", "workdir: " + dir + "\nrun: cat file\n", ""},
		{"a workdir beside an upload", "workdir: " + dir + "\nrun: cat file\n", upload},
		{"a relative workdir", "workdir: " + up + dir + "\nrun: cat file\n", ""},
		{"the server's folder as a workdir", "workdir: ~/.sky\nrun: find . -name sky.db | xargs head -c 15\n", ""},
		{"a mapping to an absolute path", "workdir: /a\nfile_mounts_mapping: {/a: " + dir + "}\nrun: cat file\n", upload},
		{"a mapping above", "workdir: /a\nfile_mounts_mapping: {/a: " + up + dir + "}\nrun: cat file\n", upload},
		{"a mapping of something else", "workdir: " + dir + "\nfile_mounts_mapping: {/work: work}\nrun: cat file\n", upload},
		{"a mapping through an absolute link", "workdir: /a\nfile_mounts_mapping: {/a: work/abs}\nrun: cat file\n", upload},
		{"a mapping through a chain of links", "workdir: /a\nfile_mounts_mapping: {/a: work/e" + up + dir + "}\nrun: cat file\n", upload},
		{"a mapping to a chain of links", "workdir: /a\nfile_mounts_mapping: {/a: work/e}\nrun: find .\n", upload},
		{"a file mount through a link", "file_mounts: {~/stolen: /a}\nfile_mounts_mapping: {/a: work/abs/file}\nrun: cat ~/stolen\n", upload},
		{"an upload that is none", "workdir: /a\nfile_mounts_mapping: {/a: .}\nrun: cat file\n", "../../../../../../kept"},
	} {
		if err := launch("umas", a.task, a.blob); err == nil {
			t.Errorf("%s: launch was accepted", a.name)
		}
		if _, err := job(a.task, a.blob); err == nil {
			t.Errorf("%s: jobs launch was accepted", a.name)
		}
		// An exec brings the workdir only.
		if _, err := exec(a.task, a.blob); err == nil && strings.Contains(a.task, "workdir") {
			t.Errorf("%s: exec was accepted", a.name)
		}
	}
	secrets := map[string]string{"the server's file": kept, "/etc/shadow": root, "the server's database": "SQLite format 3\x00"}
	leaks, err := harness.Scan(secrets, nil, filepath.Join(f.cloud.Dir, "machines"))
	if err != nil {
		t.Error(err)
	}
	for _, l := range leaks {
		t.Errorf("on a node: %s", l)
	}
	for name, text := range secrets {
		if strings.Contains(heard.String(), text) {
			t.Errorf("%s is in what uma was told", name)
		}
	}
}
