//go:build e2e && linux

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Whole commands, as a user waits for them.
//
//	go test -tags e2e -run '^$' -bench . ./test/e2e

func BenchmarkHelp(b *testing.B) {
	w := newWorkstation(b)
	for b.Loop() {
		w.sky("--help")
	}
}

func BenchmarkStatusWarm(b *testing.B) {
	w := newWorkstation(b)
	w.sky("launch", "-y", "-d", "-c", "c1", "--", "true")
	for b.Loop() {
		w.sky("status")
	}
}

func BenchmarkLaunchFresh(b *testing.B) {
	w := newWorkstation(b)
	w.sky("api", "start")
	i := 0
	for b.Loop() {
		i++
		w.sky("launch", "-y", "-c", fmt.Sprintf("c%d", i), "--", "echo hi")
	}
}

// BenchmarkLaunchFirst includes the start of the server.
func BenchmarkLaunchFirst(b *testing.B) {
	w := newWorkstation(b)
	i := 0
	for b.Loop() {
		i++
		w.sky("launch", "-y", "-c", fmt.Sprintf("c%d", i), "--", "echo hi")
		b.StopTimer()
		w.sky("api", "stop")
		b.StartTimer()
	}
}

// The way to a gang job's first output on FluffyCloud, whose machines start at
// once: rent, reach over ssh, install the agents, run.
func BenchmarkFluffyLaunch1(b *testing.B)  { fluffyLaunch(b, 1) }
func BenchmarkFluffyLaunch16(b *testing.B) { fluffyLaunch(b, 16) }

func fluffyLaunch(b *testing.B, nodes int) {
	f := newFluffy(b, 0)
	f.sky("api", "start")
	i := 0
	for b.Loop() {
		i++
		name := fmt.Sprintf("b%d", i)
		c := f.command("launch", "-y", "-c", name, "--infra", "fluffycloud", "--cpus", "1", "--num-nodes", fmt.Sprint(nodes), "--", "echo out-$SKYPILOT_NODE_RANK")
		out, err := c.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		seen := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if !seen && strings.Contains(lines.Text(), "out-") && !strings.Contains(lines.Text(), "echo") {
				seen = true
				b.ReportMetric(time.Since(start).Seconds(), "s/first-output")
			}
		}
		if err := c.Wait(); err != nil || !seen {
			b.Fatalf("%v, output seen: %t", err, seen)
		}
		b.StopTimer()
		f.sky("down", "-y", name)
		b.StartTimer()
	}
}

func BenchmarkExec(b *testing.B) {
	w := newWorkstation(b)
	w.sky("launch", "-y", "-d", "-c", "c1", "--", "true")
	for b.Loop() {
		w.sky("exec", "c1", "--", "echo hi")
	}
}

// BenchmarkIdle reports what the server and an agent hold when nothing happens,
// and how much CPU they use in ten seconds of it.
func BenchmarkIdle(b *testing.B) {
	w := newWorkstation(b)
	w.sky("launch", "-y", "-d", "-c", "c1", "--", "true")
	time.Sleep(5 * time.Second)
	agent, server := w.agents()[0], w.serverPID()
	for b.Loop() {
		a0, s0 := ticks(agent), ticks(server)
		time.Sleep(10 * time.Second)
		b.ReportMetric(float64(ticks(agent)-a0), "agent-ticks/10s")
		b.ReportMetric(float64(ticks(server)-s0), "server-ticks/10s")
		b.ReportMetric(float64(rss(agent))/1000, "agent-MB")
		b.ReportMetric(float64(rss(server))/1000, "server-MB")
	}
}

// BenchmarkFollowers reports what 100 followers of one log add to the server
// and to the agent.
func BenchmarkFollowers(b *testing.B) {
	w := newWorkstation(b)
	w.sky("launch", "-y", "-d", "-c", "c1", "--", "for i in $(seq 1 100000); do echo line $i; sleep 0.05; done")
	time.Sleep(3 * time.Second)
	agent, server := w.agents()[0], w.serverPID()
	for b.Loop() {
		a0, s0 := rss(agent), rss(server)
		var followers []*exec.Cmd
		for range 100 {
			c := exec.Command("curl", "-sN", "-X", "POST", "-H", "Content-Type: application/json",
				"-d", `{"cluster_name":"c1"}`, fmt.Sprintf("http://127.0.0.1:%d/logs", w.port))
			c.Stdout = io.Discard
			if err := c.Start(); err != nil {
				b.Fatal(err)
			}
			followers = append(followers, c)
		}
		time.Sleep(5 * time.Second)
		b.ReportMetric(float64(rss(agent)-a0)/1000, "agent-MB")
		b.ReportMetric(float64(rss(server)-s0)/1000, "server-MB")
		for _, c := range followers {
			c.Process.Kill()
			c.Wait()
		}
	}
}

// ticks is the CPU time of a process in clock ticks (10 ms).
func ticks(pid int) int {
	var u, s int
	fields := strings.Fields(tailOf(fmt.Sprintf("/proc/%d/stat", pid), 4096))
	if len(fields) > 15 {
		fmt.Sscan(fields[13], &u)
		fmt.Sscan(fields[14], &s)
	}
	return u + s
}
