package aws

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/aws/awsfake"
)

// TestALaunchSaysWhatItWaitsFor cancels one as soon as it has.
func TestALaunchSaysWhatItWaitsFor(t *testing.T) {
	fake := awsfake.New()
	s := httptest.NewServer(fake)
	t.Cleanup(s.Close)
	t.Cleanup(fake.Restore)
	for k, v := range map[string]string{"AWS_ENDPOINT_URL": s.URL, "AWS_ACCESS_KEY_ID": awsfake.AccessKey, "AWS_SECRET_ACCESS_KEY": awsfake.SecretKey,
		"AWS_EC2_METADATA_DISABLED": "true", "HOME": t.TempDir(), "AWS_REGION": "", "AWS_PROFILE": ""} {
		t.Setenv(k, v)
	}
	fake.Slow(time.Hour)
	p := New(Options{Poll: time.Millisecond, Image: func(context.Context, string, string) (string, bool) { return "ami-1", true }})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var said []string
	ctx = cloud.WithWaitReports(ctx, func(what string) { // called by one goroutine
		said = append(said, what)
		if strings.HasPrefix(what, "2 machines to run (i-") && strings.Contains(what, ": pending, i-") {
			cancel()
		}
	})
	_, err := p.Launch(ctx, cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "c", Hash: "h"}, Nodes: 2, Token: "t",
		Offer: cloud.Offer{Place: use1a, InstanceType: "m6i.large"}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v after %q", err, said)
	}
	if len(said) == 0 || !strings.Contains(said[0], "the role skypilot-v1, which is new") {
		t.Errorf("%q", said)
	}
}

func TestHowLongALaunchMayTake(t *testing.T) {
	p := New(Options{})
	for machine, want := range map[string]time.Duration{
		"t3.micro": 0, "m7i.24xlarge": 0, "p5.48xlarge": 0,
		"c5.metal": 41 * time.Minute, "m7i.metal-24xl": 41 * time.Minute, "u-6tb1.112xlarge": 41 * time.Minute, "mac2.metal": 41 * time.Minute,
	} {
		if got := p.LaunchLimit(cloud.LaunchSpec{Offer: cloud.Offer{InstanceType: machine}}); got != want {
			t.Errorf("%s: %v, want %v", machine, got, want)
		}
	}
}
