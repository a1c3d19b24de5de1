package buckets

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/task"
)

// A bucket is made in the region of the task, if that is one of the store's cloud.
func TestABucketIsMadeInTheRegionOfTheTask(t *testing.T) {
	for infra, want := range map[string]string{
		"aws/eu-west-1": "eu-west-1", "AWS/ap-east-1": "ap-east-1", "gcp/europe-west4": "us-east-1", "aws": "us-east-1", "local": "us-east-1",
	} {
		b := newBed(t)
		cloud, region, _ := strings.Cut(infra, "/")
		x := b.with("regional")
		x.Resources = []task.Resources{{Cloud: cloud, Region: region}}
		b.must(b.Check(t.Context(), b.call, x, true))
		if !strings.Contains(b.out.String(), "is made in "+want+";") {
			t.Errorf("%s: %s", infra, b.out)
		}
		b.must(b.prepare(x))
		if rec := b.record("regional"); rec.Region != want {
			t.Errorf("%s: it is on record in %s, want %s", infra, rec.Region, want)
		}
	}
}
