//go:build unix

package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/registry"
)

// script is a docker whose images and containers are files in a folder. It refuses a
// command for which there is a file of what it says then; one that is also in once-…
// is said once.
const script = `#!/bin/sh
D=%q
if [ "$1" = --config ]; then cp "$2/config.json" "$D/login"; shift 2; fi
cmd=$1; shift
if [ -e "$D/locked" ] && [ -z "$ROOT" ]; then echo "permission denied while trying to connect" >&2; exit 1; fi
if [ -s "$D/refuse-$cmd" ]; then
	cat "$D/refuse-$cmd" >&2
	if [ -e "$D/once-$cmd" ]; then rm "$D/refuse-$cmd" "$D/once-$cmd"; fi
	exit 1
fi
key() { printf %%s "$1" | tr '/:@' '___'; }
none() { echo "Error response from daemon: No such container: $1" >&2; exit 1; }
case $cmd in
version) cat "$D/arch" ;;
image) cat "$D/image-$(key "$4")" 2>/dev/null || { echo "Error response from daemon: No such image: $4" >&2; exit 1; } ;;
pull)
	echo "aaaaaaaaaaaa: Pulling fs layer"; echo "aaaaaaaaaaaa: Pull complete"
	cp "$D/registry-$(key "$1")" "$D/image-$(key "$1")" 2>/dev/null || { echo "manifest unknown" >&2; exit 1; }
	echo x >>"$D/pulls" ;;
container) cat "$D/container-$4" 2>/dev/null || none "$4" ;;
create) echo '{"Status":"created","ExitCode":0}' >"$D/container-$2"; echo x >>"$D/creates" ;;
start|unpause) [ -e "$D/container-$1" ] || none "$1"; echo '{"Status":"running"}' >"$D/container-$1" ;;
rm) [ -e "$D/container-$3" ] || none "$3"; rm "$D/container-$3" ;;
wait)
	echo x >"$D/waiting"
	while grep -q running "$D/container-$1" 2>/dev/null; do sleep 0.02; done
	[ -e "$D/container-$1" ] || none "$1"
	sed 's/.*"ExitCode":\([0-9]*\).*/\1/' "$D/container-$1" ;;
exec) cat; echo "$*"; exit 5 ;;
esac
`

// fakeDocker is a machine with Docker.
type fakeDocker struct {
	t         *testing.T
	dir, home string
}

func withDocker(t *testing.T) *fakeDocker {
	t.Helper()
	d := &fakeDocker{t: t, dir: t.TempDir(), home: t.TempDir()}
	bin := t.TempDir()
	for name, text := range map[string]string{
		"docker": fmt.Sprintf(script, d.dir),
		"sudo":   "#!/bin/sh\nshift\nROOT=1 exec \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if err := os.MkdirAll(filepath.Join(d.home, ".sky", "runtime", "b1"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.write("arch", "amd64")
	d.write("registry-img_1", "amd64")
	return d
}

func (d *fakeDocker) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text+"\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// has is the content of a file; "": there is none.
func (d *fakeDocker) has(name string) string {
	text, _ := os.ReadFile(filepath.Join(d.dir, name))
	return string(text)
}

// is is the status of the container.
func (d *fakeDocker) is() string {
	var c condition
	_ = json.Unmarshal([]byte(d.has("container-c")), &c)
	return c.Status
}

// contain makes the container run; it returns the last line and what was kept.
func (d *fakeDocker) contain(change func(*Spec)) (last Line, said string, kept int) {
	d.t.Helper()
	s := Spec{Name: "c", Image: "img:1", Home: d.home, Create: true}
	if change != nil {
		change(&s)
	}
	in, _ := json.Marshal(s)
	var out bytes.Buffer
	code := Contain(d.t.Context(), bytes.NewReader(in), &out, func(Spec) error { kept++; return nil })
	said = out.String()
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || !last.Done || (code == 0) != (last.Error == "") {
		d.t.Errorf("exit %d: %s", code, said)
	}
	return last, said, kept
}

func TestAContainerIsMadeOnceAndFoundAgain(t *testing.T) {
	d := withDocker(t)
	for range 3 {
		if last, said, kept := d.contain(nil); last.Error != "" || kept != 1 || d.is() != "running" {
			t.Fatalf("%s: %s", d.is(), said)
		}
	}
	if d.has("pulls") != "x\n" || d.has("creates") != "x\n" {
		t.Errorf("pulls %q, creates %q", d.has("pulls"), d.has("creates"))
	}
	if info, err := os.Stat(filepath.Join(d.home, ".sky", "runtime")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the programs cannot be read inside: %v, %v", info.Mode(), err)
	}
	if err := Remove(t.Context(), d.home); err != nil || d.is() != "" {
		t.Errorf("%q is left: %v", d.is(), err)
	}
	if err := Remove(t.Context(), d.home); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := Remove(t.Context(), t.TempDir()); err != nil {
		t.Errorf("of a folder without one: %v", err)
	}
}

func TestWhateverBecameOfAContainerItRunsAgainUnlessItsMachineGoes(t *testing.T) {
	ago := func(d time.Duration) string { return time.Now().Add(-d).Format(time.RFC3339Nano) }
	for _, tt := range []struct {
		name, was string
		exists    bool // it must: it may not be made
		want      string
		creates   int
	}{
		{"its machine was off", `{"Status":"exited","ExitCode":0}`, true, "", 0},
		{"it is paused", `{"Status":"paused"}`, true, "", 0},
		{"it was never started", `{"Status":"created"}`, true, "", 0},
		{"it is dead", `{"Status":"dead"}`, false, "", 1},
		{"it is dead and may not be made", `{"Status":"dead"}`, true, "is not there any more", 0},
		{"it is not there and may not be made", "", true, "is not there any more", 0},
		{"its machine is just being given back", `{"Status":"exited","ExitCode":77,"FinishedAt":"` + ago(time.Minute) + `"}`, true, "is being given back", 0},
		{"its machine is just being stopped", `{"Status":"exited","ExitCode":78,"FinishedAt":"` + ago(time.Minute) + `"}`, true, "is being given back", 0},
		{"its machine was stopped and is on again", `{"Status":"exited","ExitCode":78,"FinishedAt":"` + ago(time.Hour) + `"}`, true, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := withDocker(t)
			if tt.was != "" {
				d.write("container-c", tt.was)
			}
			last, said, kept := d.contain(func(s *Spec) { s.Create = !tt.exists })
			if tt.want != "" {
				if !strings.Contains(last.Error, tt.want) || kept != 0 {
					t.Errorf("kept %d: %s", kept, said)
				}
				return
			}
			if last.Error != "" || d.is() != "running" || kept != 1 || strings.Count(d.has("creates"), "x") != tt.creates {
				t.Errorf("it is %s, made %q, kept %d: %s", d.is(), d.has("creates"), kept, said)
			}
		})
	}
}

func TestWhatKeepsAContainerFromRunningIsSaid(t *testing.T) {
	for _, tt := range []struct {
		name, refused, says string
		want                string
		full                bool
		left                string // status of the container
	}{
		{"GPUs", "start", "could not select device driver", "NVIDIA Container Toolkit", false, ""},
		{"another processor", "start", "exec format error", "for another processor", false, ""},
		{"no shell", "start", `exec: "/bin/sh": no such file`, "has no shell", false, ""},
		{"something at the start", "start", "oh no", "starting the container of img:1", false, ""},
		{"no room", "create", "no space left on device", "does not fit", true, ""},
		{"odd options", "create", "unknown flag: --foo", "docker.run_options", false, ""},
		{"something when it is made", "create", "oh no", "making a container of img:1", false, ""},
		{"no room for the image", "pull", "no space left on device", "does not fit", true, ""},
		{"the engine is odd", "version", "oh no", "Docker does not answer on the machine", false, ""},
		{"the engine is odd later", "container", "oh no", "oh no", false, ""},
		{"the image cannot be looked at", "image", "oh no", "oh no", false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := withDocker(t)
			d.write("refuse-"+tt.refused, tt.says)
			last, said, kept := d.contain(nil)
			if !strings.Contains(last.Error, tt.want) || last.NoSpace != tt.full || kept != 0 || d.is() != tt.left {
				t.Errorf("it is %q: %s", d.is(), said)
			}
		})
	}
}

func TestWhichImageIsTaken(t *testing.T) {
	t.Run("one for another processor", func(t *testing.T) {
		d := withDocker(t)
		d.write("registry-img_1", "arm64")
		if last, said, _ := d.contain(nil); !strings.Contains(last.Error, "is for arm64, and the machine is amd64") || d.has("creates") != "" {
			t.Error(said)
		}
	})
	t.Run("the newest cannot be had", func(t *testing.T) {
		d := withDocker(t)
		d.write("image-img", "amd64")
		if last, said, _ := d.contain(func(s *Spec) { s.Image = "img" }); last.Error != "" || !strings.Contains(said, "the one that is on the machine is used") {
			t.Error(said)
		}
	})
	t.Run("the network breaks off", func(t *testing.T) {
		d := withDocker(t)
		d.write("refuse-pull", "connection reset by peer")
		d.write("once-pull", "")
		if last, said, _ := d.contain(nil); last.Error != "" || !strings.Contains(said, "again") || d.has("pulls") != "x\n" {
			t.Error(said)
		}
	})
	t.Run("with a login", func(t *testing.T) {
		d := withDocker(t)
		d.write("registry-r.io_img_1", "amd64")
		last, said, _ := d.contain(func(s *Spec) { s.Login = &registry.Login{Username: "u", Password: "hush", Server: "r.io"} })
		if last.Error != "" || !strings.Contains(d.has("login"), `"r.io"`) || strings.Contains(said, "hush") {
			t.Errorf("login %q: %s", d.has("login"), said)
		}
	})
}

func TestTheEngineLetsUsIn(t *testing.T) {
	t.Run("as root", func(t *testing.T) {
		d := withDocker(t)
		d.write("locked", "")
		if last, said, _ := d.contain(nil); last.Error != "" || d.is() != "running" {
			t.Error(said)
		}
	})
	t.Run("as nobody", func(t *testing.T) {
		d := withDocker(t)
		d.write("locked", "")
		d.write("refuse-version", "permission denied")
		if last, said, _ := d.contain(nil); !strings.Contains(last.Error, "sudo usermod -aG docker") {
			t.Error(said)
		}
	})
	t.Run("when it has booted", func(t *testing.T) {
		d := withDocker(t)
		d.write("refuse-version", "Cannot connect to the Docker daemon")
		d.write("once-version", "")
		if last, said, _ := d.contain(nil); last.Error != "" || !strings.Contains(said, "waiting for Docker to start") {
			t.Error(said)
		}
	})
	t.Run("not, as the caller leaves", func(t *testing.T) {
		withDocker(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		if _, err := askEngine(ctx); err == nil || !strings.Contains(err.Error(), "enough") {
			t.Error(err)
		}
	})
}

func TestTheAgentIsStartedInside(t *testing.T) {
	withDocker(t)
	var out bytes.Buffer
	code, err := StartAgent(t.Context(), "c", "b1", strings.NewReader("how\n"), &out, io.Discard)
	if err != nil || code != 5 || out.String() != "how\n--interactive c /opt/sky/b1/sky agent --start\n" {
		t.Errorf("exit %d, %v: %q", code, err, out.String())
	}
}

// switchedOff is a machine's switch; the first try fails.
type switchedOff struct {
	how   string
	tries int
}

func (m *switchedOff) do(how string) error {
	if m.tries++; m.tries == 1 {
		return errors.New("not now")
	}
	m.how = how
	return nil
}
func (m *switchedOff) Stop(context.Context) error      { return m.do("stop") }
func (m *switchedOff) Terminate(context.Context) error { return m.do("terminate") }

// The keeper does with the machine what the container ended with, and nothing for any
// other end.
func TestTheMachineGoesAsTheContainerSays(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for ended, want := range map[string]string{
		`{"Status":"exited","ExitCode":77}`: "terminate", `{"Status":"exited","ExitCode":78}`: "stop",
		`{"Status":"exited","ExitCode":0}`: "", `{"Status":"exited","ExitCode":137}`: "", "": "",
	} {
		t.Run(want+ended, func(t *testing.T) {
			d := withDocker(t)
			d.write("container-c", `{"Status":"running"}`)
			m := &switchedOff{}
			done := make(chan error, 1)
			go func() { done <- Keep(t.Context(), d.home, "c", m, log) }()
			second := &switchedOff{}
			for d.has("waiting") == "" {
				time.Sleep(time.Millisecond)
			}
			if err := Keep(t.Context(), d.home, "c", second, log); err != nil { // one is enough
				t.Error(err)
			}
			if ended == "" {
				os.Remove(filepath.Join(d.dir, "container-c"))
			} else {
				d.write("container-c", ended)
			}
			if err := <-done; err != nil || m.how != want || second.tries != 0 {
				t.Errorf("machine %q, want %q: %v", m.how, want, err)
			}
		})
	}
}
