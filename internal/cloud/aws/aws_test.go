package aws_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/aws"
	"github.com/skypilot-go/sky/internal/cloud/aws/awsfake"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
)

// start runs a fake of AWS and lets the SDK find it by its ordinary settings.
func start(t testing.TB) *awsfake.Cloud {
	return startBehind(t, func(fake http.Handler) http.Handler { return fake })
}

func startBehind(t testing.TB, through func(fake http.Handler) http.Handler) *awsfake.Cloud {
	fake := awsfake.New()
	s := httptest.NewServer(through(fake))
	t.Cleanup(s.Close)
	t.Cleanup(fake.Restore)
	t.Setenv("AWS_ENDPOINT_URL", s.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", awsfake.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", awsfake.SecretKey)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		t.Setenv(name, t.TempDir()+"/none")
	}
	t.Setenv("AWS_PROFILE", "")
	t.Setenv("AWS_REGION", "")
	return fake
}

func images(_ context.Context, tag, region string) (string, bool) { return "ami-" + region, true }

func provider() *aws.Provider {
	return aws.New(aws.Options{Image: images, Poll: 5 * time.Millisecond, Retries: 2, Backoff: time.Millisecond})
}

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "us-east-1", Zone: "us-east-1a"}, InstanceType: "m6i.large", CPUs: 2, MemoryGiB: 8, HourlyPrice: 0.096}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "us-west-2", Zone: "us-west-2b"}, InstanceType: "m6i.large", CPUs: 2, MemoryGiB: 8, HourlyPrice: 0.096}
	spot      = cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "us-east-1", Zone: "use1-az2"}, InstanceType: "m6i.large", CPUs: 2, MemoryGiB: 8, HourlyPrice: 0.03, Spot: true}
)

var shared = regexp.MustCompile(`^(sg-\w+ sky-sg-[0-9a-f]{10}|role skypilot-v1|instance profile skypilot-v1)$`)

// action is what EC2 calls an effect.
var action = map[cloudtest.Effect]string{
	cloudtest.Creating: "RunInstances", cloudtest.Starting: "StartInstances",
	cloudtest.Stopping: "StopInstances", cloudtest.Terminating: "TerminateInstances",
	cloudtest.Imaging: "CreateImage", cloudtest.Dropping: "DeregisterImage",
}

func TestConformance(t *testing.T) {
	cloudtest.Run(t, func(t testing.TB) cloudtest.Harness {
		var process cloudtest.Death
		fake := startBehind(t, func(fake http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { process.Serve(fake, w, r) })
		})
		return cloudtest.Harness{
			Die:       func(_ testing.TB, call int, dead func()) { process.At(call, dead) },
			Provider:  provider(),
			Spec:      cloud.LaunchSpec{Offer: here, MachineSpec: cloud.MachineSpec{DiskGB: 50}, AuthorizedKey: "ssh-ed25519 AAAA test"},
			Spot:      &spot,
			Elsewhere: &elsewhere,
			Beside:    cloudtest.In(here, "us-east-1b"),
			Another:   func(testing.TB) cloud.Provider { return provider() },
			Restore:   func(testing.TB) { process.Over(); fake.Restore() },
			Fill: func(_ testing.TB, o cloud.Offer, left int) {
				fake.Fill(o.Zone, o.InstanceType, o.Spot, left)
			},
			Quota: func(_ testing.TB, o cloud.Offer, left int) {
				fake.Allow(o.Zone, o.InstanceType, o.Spot, left)
			},
			Throttle:    func(testing.TB) { fake.Throttle() },
			Refuse:      func(testing.TB) { fake.Refuse() },
			Forbid:      func(testing.TB) { fake.Forbid() },
			Cut:         func(testing.TB) { fake.Cut() },
			Hang:        func(testing.TB) { fake.Hang() },
			Slow:        func(_ testing.TB, boot time.Duration) { fake.Slow(boot) },
			LoseAnswers: func(_ testing.TB, to cloudtest.Effect, times int) { fake.Lose(action[to], times) },
			Odd:         func(_ testing.TB, to cloudtest.Effect) { fake.Odd(action[to], cloudtest.OddCode, 1000) },
			Lacking: func(testing.TB) func() int {
				return fake.Odd(action[cloudtest.Creating], "InvalidInstanceID.NotFound", 1000)
			},
			Conflict: func(_ testing.TB, times int) { fake.Odd("DeleteSecurityGroup", "DependencyViolation", times) },
			HideNew:  func(_ testing.TB, lists int) { fake.Hide(lists) },
			Lie:      func(_ testing.TB, n cloud.Node, state string) { fake.Lie(n.ID, state) },
			Kill:     func(_ testing.TB, n cloud.Node) { fake.Kill(n.ID) },
			Halt:     func(_ testing.TB, n cloud.Node) { fake.Halt(n.ID) },
			Preempt:  func(_ testing.TB, n cloud.Node, in time.Duration) { fake.Preempt(n.ID, in) },
			Skew:     func(_ testing.TB, by time.Duration) { fake.Skew(by) },
			Seed: func(_ testing.TB, id cloud.ClusterID) {
				tags := id.Tags()
				tags[cloud.TagRank] = "0"
				fake.Seed("us-west-2", "us-west-2a", "m6i.large", tags)
			},
			MadeFrom: func(_ testing.TB, n cloud.Node) string { return fake.Image(n.ID) },
			Billed:   func(_ testing.TB, n cloud.Node) bool { return fake.Billed(n.ID) },
			// The security group that all clusters of an installation share stays.
			Inventory: func(testing.TB) []string {
				return slices.DeleteFunc(fake.Inventory(), func(thing string) bool { return shared.MatchString(thing) })
			},
			OpenPorts: func(_ testing.TB, n cloud.Node) []string { return fake.Open(n.ID) },
		}
	})
}

// TestRecordsAreForEmulators refuses real machines that nothing could run on.
func TestRecordsAreForEmulators(t *testing.T) {
	start(t)
	p := aws.New(aws.Options{Image: images, Poll: 5 * time.Millisecond, Settings: func() aws.Settings { return aws.Settings{WithoutAgents: true} }})
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "c", Hash: "h"}, Offer: here, Nodes: 1, Token: "t"}
	if err := p.Prepare(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	nodes, err := p.Launch(t.Context(), spec)
	if err != nil || len(nodes) != 1 || nodes[0].Reach.Method != cloud.ReachNone {
		t.Errorf("%v, %v", nodes, err)
	}
	t.Setenv("AWS_ENDPOINT_URL", "https://ec2.us-east-1.amazonaws.com")
	var invalid *cloud.InvalidError
	if err := p.Prepare(t.Context(), spec); !errors.As(err, &invalid) {
		t.Errorf("on AWS itself: %v", err)
	}
	if _, err := p.Launch(t.Context(), spec); !errors.As(err, &invalid) {
		t.Errorf("on AWS itself: %v", err)
	}
}
