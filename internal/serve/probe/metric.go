package probe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// metricTimeout bounds reading the metrics of a replica, and mostMetrics their size.
const (
	metricTimeout = 5 * time.Second
	mostMetrics   = 4 << 20
)

// Metric reads a metric of Prometheus from /metrics of the replica at a host and port:
// the sum over all its labels. ok is false if the replica does not show it.
func (p Prober) Metric(ctx context.Context, address, name string) (value float64, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, metricTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, false, err
	}
	client, done := p.client(nil)
	defer done()
	res, err := client.Do(req)
	if err != nil {
		return 0, false, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, false, fmt.Errorf("GET /metrics answered %d", res.StatusCode)
	}
	return sum(io.LimitReader(res.Body, mostMetrics), name)
}

// sum adds up the samples of a metric in Prometheus' text format.
func sum(r io.Reader, name string) (value float64, ok bool, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rest, found := strings.CutPrefix(lines.Text(), name)
		if !found || rest == "" || rest[0] != '{' && rest[0] != ' ' && rest[0] != '\t' {
			continue
		}
		if i := strings.LastIndexByte(rest, '}'); i >= 0 {
			rest = rest[i+1:]
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		x, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return 0, false, fmt.Errorf("the metric %s is %q", name, fields[0])
		}
		value, ok = value+x, true
	}
	return value, ok, lines.Err()
}
