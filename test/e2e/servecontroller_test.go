//go:build e2e && linux

package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestServicesGoOnWhileTheLaptopSleeps runs a service through a controller on FluffyCloud:
// it answers while no server runs here, and everything about it works through one that is
// killed meanwhile.
func TestServicesGoOnWhileTheLaptopSleeps(t *testing.T) {
	t.Parallel()
	f := newFluffy(t, 0)
	f.write(".sky/config.yaml", `
serve: {controller: {mode: cluster, resources: {infra: fluffycloud, cpus: 1+, memory: 1+}, autostop: 10m}}
allowed_clouds: [fluffycloud]
`)
	if list := f.services(); len(list) != 0 {
		t.Fatalf("services before there are any: %+v", list)
	}
	if len(f.machines()) != 0 {
		t.Fatal("asking for services rents a machine")
	}
	// What the task brings goes to the controller, and from there to replicas.
	f.write("work/data.txt", "from-the-workdir\n")
	task := func(version string) string {
		text := servedTask(t, "fluffycloud", version, "replicas: 2") + "workdir: " + filepath.Join(f.home, "work") + "\n"
		return f.write("chat.yaml", strings.Replace(text, "run: exec", "run: cat data.txt && exec", 1))
	}
	t.Cleanup(func() { f.run("serve", "down", "-y", "--purge", "chat") })
	out, code := f.bring("serve", "up", "-y", "-n", "chat", task("v1"))
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, out)
	}
	wants(t, out, "The serve controller is ready.", "Service chat is starting")
	s := f.serves("two replicas", 2, nil)
	var records []struct{ Name string }
	if err := json.Unmarshal([]byte(f.stdout("status", "-o", "json")), &records); err != nil || len(records) != 1 || !strings.HasPrefix(records[0].Name, "sky-serve-controller-") {
		t.Fatalf("clusters: %+v, %v", records, err)
	}
	name := records[0].Name
	// The endpoint is one of the controller's machine.
	u, err := url.Parse(f.endpoint())
	if err != nil || u.Hostname() == "127.0.0.1" || u.Hostname() == "" {
		t.Fatalf("the endpoint is %s (%v)", u, err)
	}
	if err := os.RemoveAll(filepath.Join(f.home, "work")); err != nil {
		t.Fatal(err)
	}
	q := f.ask(4, u.String())
	q.seen(t, "v1")
	if out, code := f.run("down", "-y", name); code == 0 {
		t.Errorf("the controller of a service goes:\n%s", out)
	}

	// No server runs here, and a replica is lost.
	f.sky("api", "stop")
	for _, m := range f.machines() {
		if strings.HasPrefix(m.Name, fmt.Sprintf("chat-%d-", s.Replicas[0].ID)) {
			f.operate("POST", "instances/"+m.ID+"/kill", nil)
		}
	}
	q.more(t, 100)
	if pid := f.serverPID(); pid != 0 {
		t.Errorf("a server runs here (pid %d)", pid)
	}
	f.serves("two replicas, one in the place of the lost one", 2, nil)

	// An update whose server here is killed.
	f.write("work/data.txt", "from-the-second-workdir\n")
	update := f.command("serve", "update", "-y", "chat", task("v2"))
	if err := update.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	f.killServer()
	if err := update.Wait(); err != nil {
		t.Errorf("the update: %v", err)
	}
	s = f.serves("the second version", 2, ofVersion(2))
	q.seen(t, "v2")
	q.end(t)
	wants(t, f.sky("serve", "logs", "--no-follow", "chat", fmt.Sprint(s.Replicas[0].ID)), "from-the-second-workdir", "serving v2 on")
	wants(t, f.sky("serve", "logs", "--controller", "--no-follow", "chat"), "Version 2 begins")
	_, dir, _ := strings.Cut(f.sky("serve", "logs", "-s", "chat"), "Service chat logs: ~/")
	if text, err := os.ReadFile(filepath.Join(f.home, strings.TrimSpace(dir), "controller.log")); err != nil || len(text) == 0 {
		t.Errorf("the downloaded log: %q %v", text, err)
	}
	f.fails(1, []string{"already running"}, "serve", "up", "-y", "-n", "chat", f.write("again.yaml", servedTask(t, "fluffycloud", "v3", "replicas: 1")))
	f.sky("serve", "down", "-y", "chat")
	if list := f.services(); len(list) != 0 {
		t.Errorf("left: %+v", list)
	}
	f.sky("down", "-y", name)
	f.nothingLeft()
}
