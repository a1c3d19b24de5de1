package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A testMachine has folders of root's and commands that note how they are called.
type testMachine struct {
	t   *testing.T
	dir string
}

func newTestMachine(t *testing.T, folders ...string) *testMachine {
	t.Helper()
	m := &testMachine{t, t.TempDir()}
	for _, f := range append(folders, "bin", "home", "proc/sys/fs") {
		if err := os.MkdirAll(filepath.Join(m.dir, f), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.command("systemctl", "")
	m.command("timeout", `shift; "$@"`)
	return m
}

func (m *testMachine) command(name, script string) {
	m.write("bin/"+name, "#!/bin/sh\necho \"${0##*/} $*\" >>"+m.dir+"/calls\n"+script+"\n")
}

func (m *testMachine) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

func (m *testMachine) read(name string) string {
	b, _ := os.ReadFile(filepath.Join(m.dir, name))
	return string(b)
}

// run runs a script whose absolute paths are the machine's.
func (m *testMachine) run(script string, args ...string) string {
	m.t.Helper()
	script = strings.NewReplacer("/etc/", m.dir+"/etc/", "/run/", m.dir+"/run/", "/proc/", m.dir+"/proc/").Replace(script)
	c := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	c.Env = []string{"PATH=" + m.dir + "/bin:" + os.Getenv("PATH"), "HOME=" + m.dir + "/home"}
	out, err := c.CombinedOutput()
	if err != nil {
		m.t.Errorf("%v: %s", err, out)
	}
	return string(out)
}

func TestUpdatesAreSwitchedOff(t *testing.T) {
	m := newTestMachine(t, "etc/apt/apt.conf.d", "run/systemd/system")
	m.run(QuietUpdates)
	if conf := m.read("etc/apt/apt.conf.d/99sky"); !strings.Contains(conf, `DPkg::Lock::Timeout "600"`) || !strings.Contains(conf, `APT::Periodic::Enable "0"`) {
		t.Errorf("%q", conf)
	}
	for _, want := range []string{"disable apt-daily-upgrade.timer", "disable unattended-upgrades.service", "--no-block stop apt-daily-upgrade.service", "timeout 30 systemctl stop apt-daily.service"} {
		if calls := m.read("calls"); !strings.Contains(calls, want) {
			t.Errorf("%s is not among\n%s", want, calls)
		}
	}
}

func TestMachinesWithoutSystemdAreLeftAlone(t *testing.T) {
	m := newTestMachine(t, "etc/apt/apt.conf.d", "etc/security/limits.d")
	m.run(QuietUpdates)
	m.run(raiseLimits, "1000", "1048576")
	if calls := m.read("calls") + m.read("etc/apt/apt.conf.d/99sky") + m.read("etc/security/limits.d/99-sky.conf"); calls != "" {
		t.Error(calls)
	}
}

func TestLimitsAreRaisedAsFarAsTheKernelAllows(t *testing.T) {
	for most, want := range map[string]string{"2000000": "1048576", "65536": "65536", "": "1048576"} {
		m := newTestMachine(t, "etc/security/limits.d", "run/systemd/system")
		if most != "" {
			m.write("proc/sys/fs/nr_open", most+"\n")
		}
		m.run(raiseLimits, "1000", "1048576")
		if got := m.read("etc/security/limits.d/99-sky.conf"); got != "* - nofile "+want+"\nroot - nofile "+want+"\n" {
			t.Errorf("at most %s: %q", most, got)
		}
		if calls := m.read("calls"); calls != "systemctl set-property user-1000.slice TasksMax=infinity\n" {
			t.Error(calls)
		}
	}
}

func TestAMachineIsPreparedOnce(t *testing.T) {
	m := newTestMachine(t)
	m.command("id", "echo 1000")
	m.command("sudo", "echo 'sudo: a password is required' >&2; exit 1")
	if said := m.run(Preparation()); said != "sudo: a password is required\n" {
		t.Errorf("without sudo: %q", said)
	}
	m.command("sudo", "echo a warning >&2")
	for range 2 {
		if said := m.run(Preparation()); !strings.HasSuffix(said, "prepared\n") {
			t.Errorf("%q", said)
		}
	}
	calls := m.read("calls")
	if n := strings.Count(calls, "sudo -n sh -c "); n != 3 { // the refused one, and one for each script
		t.Errorf("%d calls of sudo:\n%s", n, calls)
	}
	if !strings.Contains(calls, "timeout 30 systemctl stop apt-daily.service") || !strings.Contains(calls, "TasksMax=infinity\nexit 0 sh 1000 1048576\n") {
		t.Errorf("root is asked for\n%s", calls)
	}
}

// Limits of scripts are in bytes, as clouds count them.
func TestTheLengthOfAScriptCountsBytes(t *testing.T) {
	plain, err := StartScript("ssh-ed25519 AAAA user", false, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := StartScript("ssh-ed25519 AAAA user", false, len(plain)); err != nil {
		t.Error(err)
	}
	if _, err := StartScript("ssh-ed25519 AAAA üser", false, len(plain)); err == nil {
		t.Error("a script with one byte more is taken")
	}
}
