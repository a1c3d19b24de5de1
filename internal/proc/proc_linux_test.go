package proc

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	rest := " 7 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 9876 1 1\n"
	for name, line := range map[string]string{
		"plain":        "42 (sh) S" + rest,
		"spaces":       "42 (a b) S" + rest,
		"parentheses":  "42 (a) S (b)) S" + rest,
		"a lying name": "42 (x) Z 1 1 1 (y) S" + rest,
	} {
		e, ok := parseStat(42, []byte(line))
		if !ok || e.ppid != 7 || e.session != 42 || e.zombie || e.start != shortBoot()+".9876" {
			t.Errorf("%s: %+v, %v", name, e, ok)
		}
	}
	for _, line := range []string{"", "42 (sh", "42 (sh) S 1"} {
		if _, ok := parseStat(42, []byte(line)); ok {
			t.Errorf("%q was accepted", line)
		}
	}
	if e, _ := parseStat(42, []byte("42 (sh) Z"+rest)); !e.zombie || e.exiting {
		t.Errorf("a zombie is %+v", e)
	}
	if e, _ := parseStat(42, []byte("42 (sh) R 7 42 42 0 -1 4194308 1 0 0 0 0 0 0 0 20 0 1 0 9876 1 1\n")); !e.exiting {
		t.Error("an end is not seen as one")
	}
}

// A process whose environment is gone already, and that still gives back its memory or has
// its files open, is not gone.
func TestEndWaitsForWhatIsExiting(t *testing.T) {
	for range 5 {
		value := marker(t)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SKY_TEST="+value, touches+"=1")
		up, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(up, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		err = End(t.Context(), func() []int { return Marked("SKY_TEST", value) }, 0)
		if alive := Alive(cmd.Process.Pid, ""); alive || err != nil {
			t.Errorf("it lives: %v, %v", alive, err)
		}
		_ = cmd.Wait()
	}
}

// touches makes this test binary a process whose memory takes a while to be given back.
const touches = "SKY_TEST_TOUCHES"

func TestMain(m *testing.M) {
	if os.Getenv(touches) == "" {
		os.Exit(m.Run())
	}
	memory, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	_ = unix.Madvise(memory, unix.MADV_NOHUGEPAGE)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	os.Stdout.WriteString("x")
	select {}
}

// A cgroup holds even what has left session, parents and environment behind.
func TestCgroupHoldsWhatGetsAway(t *testing.T) {
	path, err := NewCgroup(marker(t))
	if err != nil {
		t.Skip("this machine lets us make no cgroup of version 2")
	}
	defer RemoveCgroup(path)
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("sh", "-c", "env -i setsid sh -c 'sleep 60 & exit' & sleep 0.1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	pids := InCgroup(path)
	if len(pids) != 1 {
		t.Fatalf("processes %v, want one", pids)
	}
	if err := End(t.Context(), func() []int { return InCgroup(path) }, time.Second); err != nil {
		t.Fatal(err)
	}
	RemoveCgroup(path)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the cgroup is still there: %v", err)
	}
}
