// Command load measures an API server under load: status round trips, many
// followers of one log, a database with many clusters, and an idle server. It
// starts the binary that it is given in a home folder of its own, and ends it.
//
//	go build -o /tmp/sky ./cmd/sky && go run ./test/load -sky /tmp/sky
//
// With -balancer it measures the load balancer of services beside nginx instead.
//
// With -db URL the server uses that PostgreSQL database in place of its own file.
// Figures go to standard output, one a line.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

func main() {
	var l load
	flag.StringVar(&l.binary, "sky", "", "the binary to measure")
	flag.StringVar(&l.db, "db", "", "address of a PostgreSQL database that is empty; \"\": SQLite")
	flag.IntVar(&l.clients, "clients", 32, "how many clients ask for the status at once")
	flag.DurationVar(&l.time, "time", 10*time.Second, "for how long they ask")
	flag.IntVar(&l.followers, "followers", 1000, "how many follow one log")
	flag.IntVar(&l.clusters, "clusters", 10_000, "how many clusters are in the database")
	var p proxies
	only := flag.Bool("balancer", false, "measure the load balancer of services beside nginx, and nothing else")
	flag.IntVar(&p.rounds, "rounds", 5, "of the load balancer: how often both take turns")
	flag.IntVar(&p.idle, "idle", 10_000, "of the load balancer: how many silent connections")
	flag.Parse()
	if *only {
		p.binary, p.clients, p.time = l.binary, l.clients, l.time
		if err := p.run(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "load:", err)
			os.Exit(1)
		}
		return
	}
	if err := l.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

type load struct {
	binary, db                   string
	clients, followers, clusters int
	time                         time.Duration

	home     string
	endpoint string
	cmd      *exec.Cmd
}

func (l *load) run(ctx context.Context) (err error) {
	if l.binary == "" {
		return fmt.Errorf("say which binary to measure: -sky PATH")
	}
	if l.home, err = os.MkdirTemp("", "sky-load-"); err != nil {
		return err
	}
	defer os.RemoveAll(l.home)
	if err := l.start(ctx); err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	fmt.Printf("idle: %d MiB resident\n", l.resident())
	for _, step := range []func(context.Context) error{l.status, l.follow} {
		if err := step(ctx); err != nil {
			l.stop()
			return err
		}
	}
	l.stop()
	if err := l.fill(ctx); err != nil {
		return err
	}
	if err := l.start(ctx); err != nil {
		return err
	}
	defer l.stop()
	if err := l.page(ctx); err != nil {
		return err
	}
	fmt.Printf("with %d clusters: %d MiB resident\n", l.clusters, l.resident())
	return nil
}

// start starts the server and waits until it answers.
func (l *load) start(ctx context.Context) error {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	l.endpoint = fmt.Sprint("http://127.0.0.1:", port)
	if err := os.MkdirAll(filepath.Join(l.home, ".sky"), 0o700); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(l.home, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	l.cmd = exec.Command(l.binary, "api", "start", "--foreground")
	l.cmd.Env = []string{"HOME=" + l.home, "PATH=" + os.Getenv("PATH"), "USER=load", "SKY_API_PORT=" + strconv.Itoa(port), "SKYPILOT_DB_CONNECTION_URI=" + l.db}
	l.cmd.Stdout, l.cmd.Stderr = log, log
	if err := l.cmd.Start(); err != nil {
		return err
	}
	client, err := l.client()
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if _, err := client.Health(ctx); err == nil {
			return nil
		}
	}
	b, _ := os.ReadFile(filepath.Join(l.home, "log"))
	return fmt.Errorf("the server does not answer:\n%s", b)
}

func (l *load) stop() {
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	_ = l.cmd.Wait()
}

func (l *load) client() (*sky.Client, error) {
	return sky.New(sky.Options{Endpoint: l.endpoint, User: api.User{ID: "10ad", Name: "load"}, Environ: []string{"HOME=" + l.home},
		HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}})
}

// resident is the server's memory in MiB.
func (l *load) resident() int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.cmd.Process.Pid))
	for line := range bytes.Lines(b) {
		if rest, ok := strings.CutPrefix(string(line), "VmRSS:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kib >> 10
		}
	}
	return 0
}

// used is the processor time that the server has taken.
func (l *load) used() time.Duration {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.cmd.Process.Pid))
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // Linux counts hundredths of a second
}

// own is the processor time that this program has taken: that of the clients.
func own() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// status asks for the status as clients do: a request, then its result.
func (l *load) status(ctx context.Context) error {
	var wg sync.WaitGroup
	took := make([][]time.Duration, l.clients)
	errs := make(chan error, l.clients)
	began, used, ours := time.Now(), l.used(), own()
	for i := range l.clients {
		wg.Go(func() {
			client, err := l.client()
			for err == nil && time.Since(began) < l.time {
				at := time.Now()
				var req *sky.Request[[]api.StatusRecord]
				if req, err = client.Status(ctx, api.StatusBody{}); err == nil {
					_, err = req.Get(ctx)
				}
				took[i] = append(took[i], time.Since(at))
			}
			if err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	all := slices.Concat(took...)
	slices.Sort(all)
	select {
	case err := <-errs:
		return fmt.Errorf("asking for the status: %w", err)
	default:
	}
	each := func(d time.Duration) time.Duration { return (d / time.Duration(len(all))).Round(time.Microsecond) }
	fmt.Printf("status: %d clients, %.0f round trips/s, p50 %v, p99 %v, processor time each: %v of the server, %v of the clients; %d MiB resident\n", l.clients,
		float64(len(all))/time.Since(began).Seconds(), all[len(all)/2].Round(time.Microsecond), all[len(all)*99/100].Round(time.Microsecond),
		each(l.used()-used), each(own()-ours), l.resident())
	return nil
}

// follow lets many follow the log of one request while it prints.
func (l *load) follow(ctx context.Context) error {
	before := l.resident()
	client, err := l.client()
	if err != nil {
		return err
	}
	req, err := client.Launch(ctx, api.LaunchBody{ClusterName: "load", Task: "resources: {infra: local}\nrun: for i in $(seq 1 400); do echo line $i; sleep 0.05; done; echo printed at $(date +%s%N)\n"})
	if err != nil {
		return err
	}
	if _, err := req.Get(ctx); err != nil {
		return err
	}
	defer func() {
		if down, err := client.Down(ctx, api.StopBody{ClusterName: "load"}); err == nil {
			_, _ = down.Get(ctx)
		}
	}()
	var wg sync.WaitGroup
	var whole, most atomic.Int64
	late := make(chan time.Duration, l.followers) // after the job printed its last line
	watch, stop := context.WithCancel(ctx)
	go func() {
		for watch.Err() == nil {
			most.Store(max(most.Load(), int64(l.resident())))
			time.Sleep(200 * time.Millisecond)
		}
	}()
	began := time.Now()
	job := 1
	for range l.followers {
		wg.Go(func() {
			c, err := l.client()
			if err != nil {
				return
			}
			var b tail
			s, err := c.Logs(api.LogsBody{ClusterName: "load", JobID: &job})
			if err == nil {
				err = s.Stream(ctx, &b, sky.StreamOptions{Follow: true})
			}
			if err == nil && bytes.Contains(b, []byte("line 400")) {
				whole.Add(1)
				late <- b.late()
			}
		})
	}
	wg.Wait()
	stop()
	close(late)
	fmt.Printf("followers: %d of %d saw the whole log of %v, the last of them %v after it was printed; %d MiB resident before, at most %d\n",
		whole.Load(), l.followers, time.Since(began).Round(time.Second), latest(late), before, most.Load())
	return nil
}

// tail keeps the end of what is written.
type tail []byte

// late is how long ago the job printed its last line by its own account.
func (t tail) late() time.Duration {
	_, rest, _ := bytes.Cut(t, []byte("printed at "))
	end := bytes.IndexByte(rest, '\n')
	at, err := strconv.ParseInt(string(rest[:max(end, 0)]), 10, 64)
	if err != nil {
		return 0
	}
	return time.Since(time.Unix(0, at))
}

func latest(late <-chan time.Duration) (most time.Duration) {
	for d := range late {
		most = max(most, d)
	}
	return most.Round(time.Millisecond)
}

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	if len(*t) > 2000 {
		*t = slices.Clone((*t)[len(*t)-1000:])
	}
	return len(p), nil
}

// fill writes records of clusters; no server runs.
func (l *load) fill(ctx context.Context) error {
	open := func() (*state.Store, error) {
		return state.Open(ctx, filepath.Join(l.home, ".sky", "api_server", "sky.db"))
	}
	if l.db != "" {
		open = func() (*state.Store, error) { return state.OpenPostgres(ctx, l.db) }
	}
	store, err := open()
	if err != nil {
		return err
	}
	defer store.Close()
	work := make(chan int)
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for range 16 {
		wg.Go(func() {
			for i := range work {
				err := store.Clusters().Create(ctx, &state.Cluster{
					Name: fmt.Sprintf("c%05d", i), Hash: fmt.Sprintf("hash-%05d", i), NameOnCloud: fmt.Sprintf("c%05d-10ad", i), Status: "STOPPED",
					UserHash: "10ad", UserName: "load", Workspace: "default", LaunchedAt: time.Now().Add(-time.Duration(i) * time.Minute),
					Offer:    cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "us-east-1", Zone: "us-east-1a"}, InstanceType: "m6i.large", CPUs: 2, MemoryGiB: 8},
					NumNodes: 1, Nodes: []cloud.Node{{ID: fmt.Sprint("i-", i)}}, AutostopMinutes: -1, CreationYAML: "run: echo hi\n",
				})
				if err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	for i := range l.clusters {
		work <- i
	}
	close(work)
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// page asks for the first page of the status, and for all of it.
func (l *load) page(ctx context.Context) error {
	first := 50
	if err := l.list(ctx, &first); err != nil {
		return err
	}
	return l.list(ctx, nil)
}

// list asks for at most so many clusters; nil: all.
func (l *load) list(ctx context.Context, limit *int) error {
	client, err := l.client()
	if err != nil {
		return err
	}
	var took []time.Duration
	var shown int
	for range 20 {
		at := time.Now()
		req, err := client.Status(ctx, api.StatusBody{Limit: limit})
		if err != nil {
			return err
		}
		records, err := req.Get(ctx)
		if err != nil {
			return err
		}
		shown = len(records)
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	fmt.Printf("status of %d clusters: %d shown, p50 %v\n", l.clusters, shown, took[len(took)/2].Round(time.Microsecond))
	return nil
}
