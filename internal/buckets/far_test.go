package buckets

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/storage"
)

func TestWhatIsSaidOfBucketsThatAreFar(t *testing.T) {
	s3 := storage.Location{Store: storage.S3, Bucket: "b", Region: "us-west-2"}
	gcs := func(region string) storage.Location {
		return storage.Location{Store: storage.GCS, Bucket: "b", Region: region}
	}
	for name, c := range map[string]struct {
		at                      storage.Location
		endpoint, cloud, region string
		says                    string // "": nothing
	}{
		"the same region":            {s3, "", "aws", "us-west-2", ""},
		"another region":             {s3, "", "aws", "us-east-1", "s3://b is in us-west-2, and the task runs in us-east-1: what it reads crosses regions"},
		"a region that is not known": {storage.Location{Store: storage.S3, Bucket: "b"}, "", "aws", "us-east-1", ""},
		"another cloud":              {s3, "", "gcp", "us-west1", "leaves that cloud, which charges about $0.09 for each GB"},
		"no cloud":                   {s3, "", "local", "", "leaves that cloud"},
		"a server of one's own":      {s3, "http://minio", "gcp", "us-west1", ""},
		"a store that charges none":  {storage.Location{Store: storage.R2, Bucket: "b", Region: "auto"}, "", "aws", "us-east-1", ""},
		"Google's region":            {gcs("US-CENTRAL1"), "", "gcp", "us-central1", ""},
		"Google's other region":      {gcs("EUROPE-WEST4"), "", "gcp", "us-central1", "crosses regions"},
		"many regions":               {gcs("US"), "", "gcp", "us-central1", ""},
		"many others":                {gcs("EU"), "", "gcp", "us-central1", "crosses regions"},
		"two of them":                {gcs("NAM4"), "", "gcp", "us-central1", ""},
	} {
		got := far(c.at, c.endpoint, c.cloud, c.region)
		if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
