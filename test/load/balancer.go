package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
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

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/balancer/feed"
)

// proxies measures the load balancer beside nginx, with the same replica and the
// same clients, in turns, since other work of the machine changes over time.
type proxies struct {
	binary  string
	clients int
	time    time.Duration // of each turn
	rounds  int
	idle    int

	dir     string
	replica net.Listener
	direct  string
	nginx   string
	sky     string
	skyPID  int
	ngxPID  int
}

const answerBytes = 1 << 10

func (p *proxies) run(ctx context.Context) (err error) {
	if p.dir, err = os.MkdirTemp("", "sky-load-"); err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	if p.replica, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	defer p.replica.Close()
	p.direct = p.replica.Addr().String()
	go p.serveReplica()
	stopNginx, err := p.startNginx()
	if err != nil {
		return err
	}
	defer stopNginx()
	stopSky, err := p.startSky(ctx)
	if err != nil {
		return err
	}
	defer stopSky()
	defer busyness("after")
	busyness("before")
	for _, step := range []func() error{p.throughput, p.firstBytes, p.webSockets, p.eventStreams} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// busyness prints the load average: what a machine that does other work measures says
// little.
func busyness(when string) {
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Printf("load average %s: %s\n", when, strings.Join(strings.Fields(string(text))[:3], " "))
	}
}

// serveReplica answers with as little work as can be, so that the proxies are what
// is measured. /events begins an event stream, and an upgrade is agreed to.
func (p *proxies) serveReplica() {
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " + strconv.Itoa(answerBytes) + "\r\n\r\n" + strings.Repeat("x", answerBytes))
	for {
		c, err := p.replica.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			r := bufio.NewReaderSize(c, 1<<10)
			for {
				events, upgrade := false, false
				for n := 0; ; n++ {
					line, err := r.ReadSlice('\n')
					if err != nil {
						return
					}
					events = events || n == 0 && bytes.HasPrefix(line, []byte("GET /events"))
					upgrade = upgrade || bytes.HasPrefix(line, []byte("Upgrade:"))
					if len(line) <= 2 {
						break
					}
				}
				switch {
				case upgrade:
					io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
					io.Copy(io.Discard, c)
					return
				case events:
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndata: 1\n\r\n")
					io.Copy(io.Discard, c)
					return
				}
				if _, err := c.Write(answer); err != nil {
					return
				}
			}
		}()
	}
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (p *proxies) startNginx() (stop func(), err error) {
	if p.nginx, err = freeAddress(); err != nil {
		return nil, err
	}
	conf := fmt.Sprintf(`daemon off; worker_processes auto; pid %[1]s/nginx.pid; error_log %[1]s/error.log;
events { worker_connections 4096; }
http { access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
 keepalive_requests 100000000;
 upstream replica { server %[3]s; keepalive 64; keepalive_requests 100000000; }
 server { listen %[2]s; location / { proxy_pass http://replica; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering on;
  proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; } } }
`, p.dir, p.nginx, p.direct)
	file := filepath.Join(p.dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("nginx", "-c", file, "-e", filepath.Join(p.dir, "error.log"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting nginx (apt-get install nginx-light): %w", err)
	}
	p.ngxPID = cmd.Process.Pid
	stop = func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() }
	return stop, reachable(p.nginx)
}

func reachable(addr string) error {
	for range 300 {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return c.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("nothing listens at %s", addr)
}

func (p *proxies) startSky(ctx context.Context) (stop func(), err error) {
	if p.sky, err = freeAddress(); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(p.sky)
	n, _ := strconv.Atoi(port)
	source := feed.NewSource(func(balancerapi.Report) balancerapi.Receipt { return balancerapi.Receipt{} }, nil)
	source.Publish(balancerapi.Table{Version: 1, Services: []balancerapi.Service{{
		Name: "load", Host: "127.0.0.1", Port: n, Replicas: []balancerapi.Replica{{ID: 1, Address: p.direct, State: balancerapi.Ready}}}}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go http.Serve(l, source)
	cmd := exec.Command(p.binary, "serve", "balancer", "--server", "http://"+l.Addr().String(), "--state-dir", filepath.Join(p.dir, "state"), "--drain-seconds", "1")
	cmd.Env = append(os.Environ(), "HOME="+p.dir)
	log, err := os.Create(filepath.Join(p.dir, "balancer.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.skyPID = cmd.Process.Pid
	stop = func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait(); l.Close() }
	return stop, reachable(p.sky)
}

// oneCall sends a request and reads its answer.
func oneCall(c net.Conn, r *bufio.Reader, request []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	length := -1
	for n := 0; ; n++ {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if n == 0 && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			return fmt.Errorf("answer %q", line)
		}
		if name, v, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(name, []byte("Content-Length")) {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
		if len(line) <= 2 {
			break
		}
	}
	if length < 0 {
		return fmt.Errorf("an answer without Content-Length")
	}
	_, err := r.Discard(length)
	return err
}

// turn sends requests for a while, as many as it can or at a rate, and returns how
// many a second were answered and the time that 99 of 100 took at most.
func (p *proxies) turn(addr string, rate float64) (perSecond float64, p99 time.Duration, err error) {
	request := []byte("GET /hello HTTP/1.1\r\nHost: " + addr + "\r\nUser-Agent: load\r\nAccept: */*\r\n\r\n")
	var n atomic.Int64
	var mu sync.Mutex
	var times []time.Duration
	var g sync.WaitGroup
	failed := make(chan error, p.clients)
	begin := time.Now()
	end := begin.Add(p.time)
	for i := range p.clients {
		g.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				failed <- err
				return
			}
			defer c.Close()
			r := bufio.NewReader(c)
			var own []time.Duration
			gap := time.Duration(0)
			if rate > 0 {
				gap = time.Duration(float64(p.clients) / rate * 1e9)
			}
			due := begin.Add(gap * time.Duration(i) / time.Duration(p.clients))
			for due.Before(end) {
				if gap > 0 {
					time.Sleep(time.Until(due))
				} else if due = time.Now(); !due.Before(end) {
					break
				}
				if err := oneCall(c, r, request); err != nil {
					failed <- err
					return
				}
				own = append(own, time.Since(due))
				due = due.Add(gap)
			}
			n.Add(int64(len(own)))
			mu.Lock()
			times = append(times, own...)
			mu.Unlock()
		})
	}
	g.Wait()
	select {
	case err := <-failed:
		return 0, 0, err
	default:
	}
	slices.Sort(times)
	return float64(n.Load()) / time.Since(begin).Seconds(), times[len(times)*99/100], nil
}

// processorTime is what a process and its children have used, those that ended
// without being waited for apart.
func processorTime(pid int) time.Duration {
	all := map[int]time.Duration{}
	parent := map[int]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range dirs {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		id, _ := strconv.Atoi(strings.Split(file, "/")[2])
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		parent[id], _ = strconv.Atoi(f[1])
		user, _ := strconv.Atoi(f[11])
		system, _ := strconv.Atoi(f[12])
		all[id] = time.Duration(user+system) * 10 * time.Millisecond // 100 ticks a second
	}
	sum := all[pid]
	for id, t := range all {
		if parent[id] == pid {
			sum += t
		}
	}
	return sum
}

// busy is a turn as fast as can be, and the processor time that the proxy took for
// each request.
func (p *proxies) busy(addr string, pid int) (perSecond, micros float64, err error) {
	before := processorTime(pid)
	perSecond, _, err = p.turn(addr, 0)
	if err != nil {
		return 0, 0, err
	}
	return perSecond, (processorTime(pid) - before).Seconds() * 1e6 / (perSecond * p.time.Seconds()), nil
}

func (p *proxies) throughput() error {
	var ratios, works, differences []float64
	for i := range p.rounds {
		nginx, nginxWork, err := p.busy(p.nginx, p.ngxPID)
		if err != nil {
			return fmt.Errorf("nginx: %w", err)
		}
		sky, skyWork, err := p.busy(p.sky, p.skyPID)
		if err != nil {
			return fmt.Errorf("sky: %w", err)
		}
		direct, _, err := p.turn(p.direct, 0)
		if err != nil {
			return err
		}
		_, nginx99, err := p.turn(p.nginx, sky/2)
		if err != nil {
			return err
		}
		_, sky99, err := p.turn(p.sky, sky/2)
		if err != nil {
			return err
		}
		ratios, works = append(ratios, sky/nginx), append(works, skyWork/nginxWork)
		differences = append(differences, (sky99-nginx99).Seconds()*1e3)
		fmt.Printf("round %d: nginx %.0f/s (%.1f µs), sky %.0f/s (%.1f µs; %.2f), direct %.0f/s; at %.0f/s p99 nginx %.2f ms, sky %.2f ms\n", i+1, nginx, nginxWork,
			sky, skyWork, sky/nginx, direct, sky/2, nginx99.Seconds()*1e3, sky99.Seconds()*1e3)
	}
	fmt.Printf("requests a second, sky to nginx: %.2f (goal 0.8); processor time of a request: %.2f; p99 at half the load: %+.2f ms (goal +1)\n",
		median(ratios), median(works), median(differences))
	return nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// firstBytes measures when the first event of a stream comes.
func (p *proxies) firstBytes() error {
	one := func(addr string) (float64, error) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		begin := time.Now()
		if _, err := io.WriteString(c, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return 0, err
		}
		var got []byte
		buf := make([]byte, 4<<10)
		for !bytes.Contains(got, []byte("data: 1")) {
			n, err := c.Read(buf)
			if err != nil {
				return 0, err
			}
			got = append(got, buf[:n]...)
		}
		return time.Since(begin).Seconds() * 1e3, nil
	}
	var direct, through, nginx []float64
	for range 500 {
		for _, way := range []struct {
			addr string
			to   *[]float64
		}{{p.direct, &direct}, {p.sky, &through}, {p.nginx, &nginx}} {
			ms, err := one(way.addr)
			if err != nil {
				return err
			}
			*way.to = append(*way.to, ms)
		}
	}
	fmt.Printf("first byte of a stream, over new connections: direct %.3f ms, sky %.3f ms (%+.3f; goal +0.3), nginx %.3f ms\n",
		median(direct), median(through), median(through)-median(direct), median(nginx))
	return nil
}

func (p *proxies) webSockets() error {
	return p.open("WebSockets", "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", "101")
}

func (p *proxies) eventStreams() error {
	return p.open("event streams", "GET /events HTTP/1.1\r\nHost: x\r\n\r\n", "200")
}

// open measures what silent connections cost.
func (p *proxies) open(what, request, status string) error {
	before, err := rss(p.skyPID)
	if err != nil {
		return err
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	if most := (int(files.Max) - 150) / 2; most < p.idle { // both ends of a connection are here
		fmt.Printf("%d open files are allowed, so there are %d connections in place of %d\n", files.Max, most, p.idle)
		p.idle = most
	}
	var all []net.Conn
	defer func() {
		for _, c := range all {
			c.Close()
		}
		time.Sleep(2 * time.Second)
	}()
	for range p.idle {
		c, err := net.Dial("tcp", p.sky)
		if err != nil {
			return err
		}
		all = append(all, c)
		c.SetReadDeadline(time.Now().Add(time.Minute))
		io.WriteString(c, request)
		var b [64]byte
		if n, err := c.Read(b[:]); err != nil || !bytes.Contains(b[:n], []byte(status)) {
			return fmt.Errorf("%s: %q: %w", what, b[:n], err)
		}
	}
	at := []int{}
	for range 5 {
		time.Sleep(2 * time.Second)
		after, err := rss(p.skyPID)
		if err != nil {
			return err
		}
		at = append(at, (after-before)/p.idle)
	}
	fmt.Printf("%d silent %s: %.1f KiB each at once, %.1f KiB after 10 s (goal 30)\n", p.idle, what, float64(at[0])/1024, float64(at[len(at)-1])/1024)
	return nil
}

// rss is the resident memory of a process in bytes.
func rss(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	return pages * os.Getpagesize(), err
}
