//go:build e2e

package balancer

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// An upload of 200 MB takes no more memory than one of 20.
func TestUploadOf200MB(t *testing.T) {
	b := newBalancer(t, Options{})
	apply(t, b, balancerapi.Service{}, backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}))
	const size = 200 << 20
	before := peak(t)
	req, _ := http.NewRequest("PUT", url(b), io.LimitReader(zeros{}, size))
	req.ContentLength = size
	begin := time.Now()
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if string(body) != fmt.Sprint(size, error(nil)) {
		t.Errorf("%s", body)
	}
	grown := peak(t) - before
	t.Logf("200 MB in %v, %d KiB more memory", time.Since(begin).Round(time.Millisecond), grown)
	if grown > 32<<10 {
		t.Errorf("it took %d KiB of memory", grown)
	}
}

// peak is the most memory that the process has had, in KiB.
func peak(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	var n int
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	fmt.Sscan(after, &n)
	return n
}

// A stream of tokens goes on for 10 minutes (SKY_E2E_STREAM: another time) after
// its replica was removed from the table in a rolling update.
func TestLongStreamThroughAnUpdate(t *testing.T) {
	length := 10 * time.Minute
	if d, err := time.ParseDuration(os.Getenv("SKY_E2E_STREAM")); err == nil {
		length = d
	}
	b := newBalancer(t, Options{})
	row := balancerapi.Service{Drain: balancerapi.Seconds(2 * length.Seconds())}
	old := backend(t, 1, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i, end := 0, time.Now().Add(length); time.Now().Before(end); i++ {
			fmt.Fprintf(w, "data: %d\n\n", i)
			http.NewResponseController(w).Flush()
			time.Sleep(50 * time.Millisecond)
		}
		io.WriteString(w, "data: [DONE]\n\n")
	})
	apply(t, b, row, old)
	resp, err := (&http.Client{}).Get(url(b))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines, n, last := bufio.NewScanner(resp.Body), 0, ""
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		if n == 3 {
			apply(t, b, row, named(t, 2))
		}
		if last = lines.Text(); last != "data: [DONE]" && last != fmt.Sprint("data: ", n) {
			t.Fatalf("event %d is %q", n, last)
		}
		n++
	}
	if lines.Err() != nil || last != "data: [DONE]" {
		t.Errorf("the stream ended after %d events with %q, %v", n, last, lines.Err())
	}
	if got := spread(t, b, 3); got["2"] != 3 {
		t.Errorf("new requests went to %v", got)
	}
}
