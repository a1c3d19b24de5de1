package remote

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
)

// Where a home folder is mounted noexec, as on Container-Optimized OS, programs are put into a
// folder of which that is not so, and are found and brought anew by the same path.
func TestProgramsOfHomesThatAreNoexec(t *testing.T) {
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("mount namespaces take root and unshare: %v: %s", err, out)
	}
	home := t.TempDir()
	const program = "#!/bin/sh\necho h1\n"
	for _, tt := range []struct {
		name   string
		mounts string // besides the home
		where  string // "": an error
	}{
		{name: "as on Container-Optimized OS", mounts: "mount -t tmpfs -o noexec none /var/lib && mkdir /var/lib/toolbox && mount -t tmpfs none /var/lib/toolbox", where: "/var/lib/toolbox/"},
		{name: "an ordinary one", mounts: "mount -t tmpfs none /var/lib", where: "/var/lib/"},
		{name: "nowhere", mounts: "mount -t tmpfs -o noexec none /var/lib && mount -t tmpfs -o noexec none /opt"},
	} {
		dst := filepath.Join(home, ".sky", "runtime", "b1", "sky")
		u := upload{dst: dst, bin: &binary{id: "b1", hash: "h1"}}
		again := upload{dst: filepath.Join(home, ".sky", "runtime", "b2", "sky"), bin: &binary{id: "b2", hash: "h1"}}
		put := func(u upload) string { return "printf %s " + sshconn.Quote(program) + " | " + u.command("cat") }
		script := fmt.Sprintf(`mount -t tmpfs -o noexec none %[1]s && %[2]s || exit 99
%[3]s || exit
readlink %[1]s/.sky/runtime && %[4]s agent --hash || exit 98
rm -rf "$(readlink %[1]s/.sky/runtime)" # somebody cleaned up
%[3]s && %[4]s agent --hash || exit 97
mkdir -p %[1]s/.sky/mount/x && printf '#!/bin/sh\necho "mounts $1"\n' >%[1]s/.sky/mount/x/sky-mount && chmod 700 %[1]s/.sky/mount/x/sky-mount || exit 96
for i in 1 2; do HOME=%[1]s sh -c '%[7]s now' || exit 95; done
%[5]s && ls %[1]s/.sky/runtime && ls -d "$(dirname "$(readlink %[1]s/.sky/runtime)")"/%[6]s*
`, home, tt.mounts, put(u), dst, put(again), folder.RuntimePrefix, mountCommand(".sky/mount/x/sky-mount"))
		out, err := exec.Command("unshare", "--mount", "sh", "-c", script).CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if tt.where == "" {
			if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 126 {
				t.Errorf("%s: %v, want exit code 126: %s", tt.name, err, out)
			}
			continue
		}
		if err != nil || len(lines) != 7 || !strings.HasPrefix(lines[0], tt.where+folder.RuntimePrefix) || lines[1] != "h1" || lines[2] != "h1" || lines[3] != "mounts now" || lines[4] != lines[3] || lines[5] != "b2" || lines[6] == lines[0] {
			t.Errorf("%s: %v\n%s", tt.name, err, out)
		}
	}
	if left, _ := os.ReadDir(home); len(left) > 0 {
		t.Errorf("a mount was seen outside: %v", left)
	}
}

// Where programs run from the home folder, they stay there.
func TestProgramsStayInTheHome(t *testing.T) {
	home := t.TempDir()
	u := upload{dst: filepath.Join(home, ".sky", "runtime", "b1", "sky"), bin: &binary{id: "b1", hash: "h1"}, sudo: true}
	cmd := exec.Command("sh", "-c", u.command("cat"))
	cmd.Stdin = strings.NewReader("#!/bin/sh\necho h1\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	st, err := os.Lstat(filepath.Join(home, ".sky", "runtime"))
	if err != nil || !st.IsDir() {
		t.Errorf("%v, %v", st, err)
	}
	if left, _ := filepath.Glob(filepath.Join(home, ".sky", "runtime", ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
