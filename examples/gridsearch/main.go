// Command gridsearch is a grid search with the Go client: a managed job for each pair of
// parameters, all at once, and the best of them in the end.
//
//	go run ./examples/gridsearch -infra local
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
)

// train is the task; in place of the few lines of awk stands the training.
const train = `name: %s
resources: {infra: %q, cpus: 1+}
envs: {RATE: "%g", BATCH: "%d"}
run: |
  awk -v rate="$RATE" -v batch="$BATCH" 'BEGIN {
    x = 4
    for (step = 0; step < 1000 / batch; step++) x -= rate * 2 * (x - 1)
    printf "loss=%%g\n", (x - 1) ^ 2
  }'
`

func main() {
	infra := flag.String("infra", "*", "where, as in a task; *: wherever it is cheapest")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := search(ctx, *infra); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// trial is one point of the grid.
type trial struct {
	rate  float64
	batch int
	job   int
	loss  float64
}

func search(ctx context.Context, infra string) error {
	c, err := sky.New(sky.Options{}) // the server of sky api login, or the one on this machine
	if err != nil {
		return err
	}
	var trials []trial
	for _, rate := range []float64{0.01, 0.1, 0.4} {
		for _, batch := range []int{16, 64} {
			trials = append(trials, trial{rate: rate, batch: batch})
		}
	}
	// All are submitted before any is waited for: they run beside each other.
	for i := range trials {
		t := &trials[i]
		req, err := c.LaunchJob(ctx, api.JobsLaunchBody{Task: fmt.Sprintf(train, "grid-"+strconv.Itoa(i), infra, t.rate, t.batch)})
		if err != nil {
			return err
		}
		result, err := req.Get(ctx)
		if err != nil {
			return err
		}
		t.job = result.JobID[0]
		fmt.Printf("job %d: rate %g, batch %d\n", t.job, t.rate, t.batch)
	}
	best := trial{loss: math.Inf(1)}
	for _, t := range trials {
		if t.loss, err = outcome(ctx, c, t.job); err != nil {
			return fmt.Errorf("job %d (rate %g, batch %d): %w", t.job, t.rate, t.batch, err)
		}
		fmt.Printf("job %d: loss %g\n", t.job, t.loss)
		if t.loss < best.loss {
			best = t
		}
	}
	fmt.Printf("best: rate %g, batch %d, loss %g\n", best.rate, best.batch, best.loss)
	return nil
}

// outcome waits for a job and reads the loss from its log.
func outcome(ctx context.Context, c *sky.Client, job int) (float64, error) {
	req, err := c.WaitJob(ctx, api.JobsWaitBody{JobID: &job})
	if err != nil {
		return 0, err
	}
	code, err := req.Get(ctx)
	if err != nil {
		return 0, err
	}
	if code != 0 {
		return 0, fmt.Errorf("it ended with exit code %d; see: sky jobs logs %d", code, job)
	}
	logs, err := c.JobLogs(api.JobsLogsBody{JobID: &job})
	if err != nil {
		return 0, err
	}
	var text bytes.Buffer
	if err := logs.Stream(ctx, &text, sky.StreamOptions{}); err != nil {
		return 0, err
	}
	_, loss, ok := strings.Cut(text.String(), "loss=")
	if !ok {
		return 0, fmt.Errorf("its log tells no loss:\n%s", text.String())
	}
	loss, _, _ = strings.Cut(loss, "\n")
	return strconv.ParseFloat(strings.TrimSpace(loss), 64)
}
