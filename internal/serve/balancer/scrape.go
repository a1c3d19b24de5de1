package balancer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/balancer/policy"
)

// A scraper reads what replicas show of their queues and caches.
type scraper struct {
	next map[*replica]time.Time
	wg   sync.WaitGroup
}

const (
	scrapeTimeout = 2 * time.Second
	maxMetrics    = 4 << 20
	muteInterval  = 30 * time.Second // between questions to replicas that show no metrics
)

func newScraper() *scraper { return &scraper{next: map[*replica]time.Time{}} }

// start reads the metrics of those replicas whose turn it is.
func (c *scraper) start(ctx context.Context, s *service, replicas []*replica, now time.Time) {
	conf := s.conf.Load()
	every := max(time.Second, conf.Policy.MetricsInterval.Or(2*time.Second))
	for _, r := range replicas {
		s.mu.Lock()
		wanted := conf.Policy.Metrics != "" && r.row.State == balancerapi.Ready
		if !wanted {
			r.reported = nil
		}
		pause := every
		if r.mute { // it may show none; asking often would only fill its log
			pause = max(every, muteInterval)
		}
		s.mu.Unlock()
		if !wanted || now.Before(c.next[r]) {
			continue
		}
		c.next[r] = now.Add(pause)
		c.wg.Go(func() {
			s.mu.Lock()
			own := float64(r.inFlight)
			s.mu.Unlock()
			got, err := scrape(ctx, r.dial, "http://"+r.Address+conf.Policy.Metrics)
			if err != nil {
				s.log.Debug("metrics of a replica cannot be read", "replica", r.ID, "err", err)
			} else if got != nil {
				got.Sent = own
			}
			s.mu.Lock()
			r.reported = got // of one that says nothing only its requests are known
			r.mute = got == nil
			s.mu.Unlock()
		})
	}
	for r, at := range c.next {
		if now.Sub(at) > time.Minute {
			delete(c.next, r)
		}
	}
}

func (c *scraper) wait() { c.wg.Wait() }

// scrape reads the metrics of a replica.
func scrape(ctx context.Context, dial dialFunc, url string) (*policy.Reported, error) {
	client := http.Client{
		Timeout: scrapeTimeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", resp.Status)
	}
	return reported(bounded.Reader(resp.Body, maxMetrics, "the metrics of a replica"))
}

// reported finds the load in metrics of vLLM or SGLang; nil: there is none.
func reported(r io.Reader) (*policy.Reported, error) {
	var out policy.Reported
	found := false
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		name := line
		if i := strings.IndexAny(line, "{ "); i > 0 {
			name = line[:i]
		}
		switch name {
		case "vllm:num_requests_running", "sglang:num_running_reqs", "vllm:num_requests_waiting", "sglang:num_queue_reqs",
			"vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc", "sglang:token_usage":
		default:
			continue
		}
		value := line[strings.LastIndexByte(line, ' ')+1:]
		if i := strings.LastIndexByte(line, '}'); i >= 0 { // a time may follow the value
			value, _, _ = strings.Cut(strings.TrimSpace(line[i+1:]), " ")
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || v != v || v < 0 || v > 1e9 {
			continue
		}
		found = true
		switch name { // several engines in one replica add up
		case "vllm:num_requests_running", "sglang:num_running_reqs":
			out.Requests += v
		case "vllm:num_requests_waiting", "sglang:num_queue_reqs":
			out.Requests += v
			out.Waiting += v
		default:
			out.Cache = max(out.Cache, min(v, 1))
		}
	}
	if err := lines.Err(); err != nil || !found {
		return nil, err
	}
	return &out, nil
}
