package provision

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

func failedAt(where, machine string, took time.Duration, err error) *AttemptError {
	o := cloud.Offer{Place: place(where), InstanceType: machine, HourlyPrice: 2}
	return &AttemptError{Offer: o, Outcome: Outcome(err), Took: took, Err: err}
}

func TestFewPlacesAreListedOneByOne(t *testing.T) {
	e := &UnplacedError{Cluster: "train", Nodes: 4, Closed: 2, Attempts: []*AttemptError{
		failedAt("aws/us-east-1/a", "p4d", 3*time.Second, &cloud.CapacityError{Err: errors.New("InsufficientInstanceCapacity")}),
		failedAt("gcp/us-central1/a", "a2", 75*time.Second, &cloud.QuotaError{Err: errors.New("GPUS_ALL_REGIONS exceeded")}),
		failedAt("lambda/us-west-1", "gpu_8x", 0, &cloud.AuthError{Cloud: "lambda", Fix: "put a new key into ~/.lambda_cloud/lambda_keys", Err: errors.New("401")}),
		failedAt("aws/us-west-2/a", "p4d", 15*time.Minute, &TimeoutError{Step: stepLaunch, After: 15 * time.Minute}),
	}}
	want := `could not get 4 machines for cluster train in any of 4 places:
  ✗ aws/us-east-1/a — p4d — no capacity (3s): InsufficientInstanceCapacity
  ✗ gcp/us-central1/a — a2 — quota (1m 15s): GPUS_ALL_REGIONS exceeded
  ✗ lambda/us-west-1 — gpu_8x — credentials (at once): 401
  ✗ aws/us-west-2/a — p4d — we could not tell (15m 00s): the step "launch" did not end within 15m0s
  2 more offers were not tried, because what was refused rules them out
No capacity: wait and try again, or allow more places, other machines or on-demand ones in the task's resources.
Quota: ask gcp for more, or give back what you no longer need.
Credentials: put a new key into ~/.lambda_cloud/lambda_keys
We could not tell: aws gave no proper answer; see whether it works with: sky check aws`
	if got := e.Error(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestManyPlacesAreListedBriefly(t *testing.T) {
	e := &UnplacedError{Cluster: "c", Nodes: 1}
	for r := range 6 {
		for _, z := range []string{"a", "b"} {
			region := fmt.Sprintf("us-east-%d", r)
			e.Attempts = append(e.Attempts, failedAt("aws/"+region+"/"+region+z, "p4d", time.Second, &cloud.CapacityError{Err: errors.New("full")}))
		}
	}
	e.Attempts = append(e.Attempts, failedAt("azure/eastus", "ND96", time.Second, &cloud.QuotaError{Err: errors.New("no cores left")}))
	want := `could not get a machine for cluster c in any of 13 places:
  ✗ aws: us-east-0 (a, b), us-east-1 (a, b), us-east-2 (a, b), us-east-3 (a, b) and 2 regions more — p4d — no capacity: full
  ✗ azure: eastus — ND96 — quota: no cores left
No capacity: wait and try again, or allow more places, other machines or on-demand ones in the task's resources.
Quota: ask azure for more, or give back what you no longer need.`
	if got := e.Error(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestProgramsGetAllOfIt(t *testing.T) {
	full, quota, auth := &cloud.CapacityError{Err: errors.New("full")}, &cloud.QuotaError{Err: errors.New("q")}, &cloud.AuthError{Err: errors.New("401")}
	bad, mute, bug := &cloud.InvalidError{Err: errors.New("bad")}, &cloud.UnreachableError{Err: errors.New("?")}, errors.New("bug")
	for _, tt := range []struct {
		errs      []error
		kind      string
		retryable bool
	}{
		{[]error{full}, "no_capacity", true},
		{[]error{auth, auth, full}, "no_capacity", true},
		{[]error{quota}, "quota", true},
		{[]error{auth}, "credentials", false},
		{[]error{bad, auth, bad}, "invalid_request", false},
		{[]error{mute}, "unknown", true},
		{[]error{bug}, "unknown", false},
	} {
		e := &UnplacedError{Cluster: "c", Nodes: 1}
		for _, err := range tt.errs {
			e.Attempts = append(e.Attempts, failedAt("aws/east/a", "p4", 2*time.Second, err))
		}
		text, err := json.Marshal(e.Details())
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Kind      string
			Retryable bool
			Attempts  []struct {
				Zone, Message, Class string
				Seconds              float64
			}
			Advice map[string]string
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if got.Kind != tt.kind || got.Retryable != tt.retryable || len(got.Attempts) != len(tt.errs) || got.Attempts[0].Seconds != 2 || got.Attempts[0].Zone != "a" || len(got.Advice) == 0 {
			t.Errorf("%v: %s", tt.errs, text)
		}
		if strings.Contains(got.Attempts[0].Message, "no capacity in") {
			t.Errorf("our words around the cloud's: %s", got.Attempts[0].Message)
		}
	}
}

func TestEveryAttemptCanBeFound(t *testing.T) {
	e := &UnplacedError{Attempts: []*AttemptError{
		failedAt("aws/east/a", "p4", 0, &cloud.CapacityError{Err: errors.New("full")}),
		failedAt("gcp/us/a", "a2", 0, &cloud.AuthError{Cloud: "gcp", Err: errors.New("401")}),
	}}
	if !is[*cloud.CapacityError](e) || !is[*cloud.AuthError](e) || is[*cloud.QuotaError](e) {
		t.Error("kinds of attempts are lost")
	}
}
