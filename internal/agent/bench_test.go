//go:build unix

package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
)

// BenchmarkDrain queues jobs that do nothing and waits until all have ended.
func BenchmarkDrain(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		c := newCluster(b, 1, agentapi.Capacity{CPUs: 2}, false)
		const jobs = 1000
		begin := time.Now()
		for range jobs {
			c.submit(agentapi.JobSpec{Run: "true"})
		}
		submitted := time.Since(begin)
		b.StartTimer()
		drained := time.Now()
		for {
			info, err := c.head.Info(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			if info.Jobs[string(api.JobSucceeded)] == jobs {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		b.ReportMetric(jobs/submitted.Seconds(), "submits/s")
		b.ReportMetric(jobs/(submitted+time.Since(drained)).Seconds(), "jobs/s")
		b.ReportMetric(float64(residentKiB(c.nodes[0].cmd.Process.Pid))/1024, "MiB-agent")
		b.StopTimer()
		c.clear()
		c.nodes = nil
		b.StartTimer()
	}
}

// BenchmarkCancelAll cancels a thousand queued jobs at once.
func BenchmarkCancelAll(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		c := newCluster(b, 1, agentapi.Capacity{CPUs: 2}, true)
		for range 1000 {
			c.submit(agentapi.JobSpec{Run: "sleep 1000", CPUs: 2})
		}
		b.StartTimer()
		resp, err := c.head.Cancel(context.Background(), agentapi.CancelRequest{All: true})
		if err != nil || len(resp.Cancelled) != 1000 {
			b.Fatalf("%d cancelled, %v", len(resp.Cancelled), err)
		}
	}
}

// residentKiB is the memory of a process, 0 if the system does not tell.
func residentKiB(pid int) (kib int) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var total, resident int
	_, _ = fmt.Sscan(string(data), &total, &resident)
	return resident * os.Getpagesize() / 1024
}

// BenchmarkFirstLine is the time from Submit to the first line of the job's
// output at a follower.
func BenchmarkFirstLine(b *testing.B) {
	c := newCluster(b, 1, agentapi.Capacity{CPUs: 2}, true)
	for b.Loop() {
		id := c.submit(agentapi.JobSpec{Run: "echo hello"})
		c.follow(id)
	}
}

// BenchmarkOutput is how fast what a job prints reaches a follower.
func BenchmarkOutput(b *testing.B) {
	c := newCluster(b, 1, agentapi.Capacity{CPUs: 2}, false)
	const size = 256 << 20
	b.SetBytes(size)
	for b.Loop() {
		id := c.submit(agentapi.JobSpec{Run: fmt.Sprintf("yes 'this is a line of output of a job, of usual length' | head -c %d", size)})
		rc, _, err := c.head.Log(context.Background(), id, agentclient.LogOptions{Follow: true})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, rc); err != nil {
			b.Fatal(err)
		}
		rc.Close()
	}
	b.ReportMetric(float64(residentKiB(c.nodes[0].cmd.Process.Pid))/1024, "MiB-agent")
}

// BenchmarkFollowers is what followers of one quiet log cost the agent.
func BenchmarkFollowers(b *testing.B) {
	const followers = 100
	for b.Loop() {
		c := newCluster(b, 1, agentapi.Capacity{CPUs: 2}, false)
		id := c.submit(agentapi.JobSpec{Run: "while :; do echo tick; sleep 0.2; done"})
		c.awaitStatus(id, api.JobRunning)
		time.Sleep(500 * time.Millisecond)
		before := residentKiB(c.nodes[0].cmd.Process.Pid)
		ctx, cancel := context.WithCancel(context.Background())
		for range followers {
			rc, _, err := c.head.Log(ctx, id, agentclient.LogOptions{Follow: true})
			if err != nil {
				b.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, rc); rc.Close() }()
		}
		time.Sleep(2 * time.Second)
		after := residentKiB(c.nodes[0].cmd.Process.Pid)
		b.ReportMetric(float64(before)/1024, "MiB-before")
		b.ReportMetric(float64(after)/1024, "MiB-agent")
		cancel()
		_, _ = c.head.Cancel(context.Background(), agentapi.CancelRequest{All: true})
		c.clear()
		c.nodes = nil
	}
	runtime.KeepAlive(b)
}

func BenchmarkMergeRender(b *testing.B) {
	data := make([]byte, 0, pieceSize)
	for len(data) < pieceSize-60 {
		data = append(data, "this is a line of output of a job, of usual length\n"...)
	}
	b.SetBytes(int64(len(data)))
	var out []byte
	for b.Loop() {
		out = piece{prefix: true}.render(out[:0], data, "(worker1, rank=1, pid=12345, ip=10.0.0.7) ")
	}
}

// BenchmarkIdle is what an agent costs that has nothing to do: its memory and
// the share of one CPU that it uses with a listener, a follower of a silent job
// and an autostop.
func BenchmarkIdle(b *testing.B) {
	for b.Loop() {
		c := newCluster(b, 1, agentapi.Capacity{CPUs: 2}, false)
		for range 50 {
			c.submit(agentapi.JobSpec{Run: "true"})
		}
		id := c.submit(agentapi.JobSpec{Run: "sleep 1000"})
		c.awaitStatus(id, api.JobRunning)
		_, _ = c.head.Autostop(context.Background(), agentapi.Autostop{IdleMinutes: 5})
		ctx, cancel := context.WithCancel(context.Background())
		go func() { _ = c.head.Events(ctx, func(agentapi.Event) error { return nil }) }()
		rc, _, err := c.head.Log(ctx, id, agentclient.LogOptions{Follow: true})
		if err != nil {
			b.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, rc) }()
		time.Sleep(time.Second)
		pid := c.nodes[0].cmd.Process.Pid
		const span = 10 * time.Second
		before := cpuTicks(pid)
		time.Sleep(span)
		b.ReportMetric(float64(cpuTicks(pid)-before)/(100*span.Seconds())*100, "%cpu")
		b.ReportMetric(float64(residentKiB(pid))/1024, "MiB-agent")
		cancel()
		_, _ = c.head.Cancel(context.Background(), agentapi.CancelRequest{All: true})
		c.clear()
		c.nodes = nil
	}
}

// cpuTicks is the CPU time of a process in hundredths of a second.
func cpuTicks(pid int) (ticks int) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	for _, i := range []int{11, 12} { // utime and stime
		n, _ := strconv.Atoi(string(f[i]))
		ticks += n
	}
	return ticks
}
