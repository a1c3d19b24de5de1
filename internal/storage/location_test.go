package storage

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		url  string
		want Location
	}{
		{"s3://b", Location{Store: S3, Bucket: "b"}},
		{"s3://b/", Location{Store: S3, Bucket: "b"}},
		{"s3://my.bucket-1/a/b c%20?#", Location{Store: S3, Bucket: "my.bucket-1", Key: "a/b c%20?#"}},
		{"s3://b//x", Location{Store: S3, Bucket: "b", Key: "/x"}},
		{"s3://b/../x", Location{Store: S3, Bucket: "b", Key: "../x"}},
		{"s3://b/dir/", Location{Store: S3, Bucket: "b", Key: "dir/"}},
		{"gs://b_1/k", Location{Store: GCS, Bucket: "b_1", Key: "k"}},
		{"r2://b/k", Location{Store: R2, Bucket: "b", Key: "k"}},
		{"nebius://b/k", Location{Store: Nebius, Bucket: "b", Key: "k"}},
		{"cw://b/k", Location{Store: CoreWeave, Bucket: "b", Key: "k"}},
		{"vastdata://b/k", Location{Store: VastData, Bucket: "b", Key: "k"}},
		{"oci://b/k", Location{Store: OCI, Bucket: "b", Key: "k"}},
		{"oci://b@eu-frankfurt-1/k@2", Location{Store: OCI, Bucket: "b", Region: "eu-frankfurt-1", Key: "k@2"}},
		{"cos://eu-de/b", Location{Store: IBM, Region: "eu-de", Bucket: "b"}},
		{"cos://eu-de/b/k/l", Location{Store: IBM, Region: "eu-de", Bucket: "b", Key: "k/l"}},
		{"https://acct1.blob.core.windows.net/c", Location{Store: Azure, Account: "acct1", Bucket: "c"}},
		{"https://acct1.blob.core.windows.net/c/a%20b/%C3%BC", Location{Store: Azure, Account: "acct1", Bucket: "c", Key: "a b/ü"}},
		{"hf://me/model", Location{Store: HF, Bucket: "me/model"}},
		{"hf://models/me/model", Location{Store: HF, Bucket: "me/model"}},
		{"hf://me/model@v1.0/sub/x", Location{Store: HF, Bucket: "me/model", Revision: "v1.0", Key: "sub/x"}},
		{"hf://me/model/sub@x", Location{Store: HF, Bucket: "me/model", Key: "sub@x"}},
		{"hf://datasets/me/set@refs/pr/12/data", Location{Store: HF, Bucket: "datasets/me/set", Revision: "refs/pr/12", Key: "data"}},
		{"hf://datasets/me/set@refs%2Fconvert%2Fparquet/data", Location{Store: HF, Bucket: "datasets/me/set", Revision: "refs/convert/parquet", Key: "data"}},
		{"hf://spaces/me/app", Location{Store: HF, Bucket: "spaces/me/app"}},
		{"hf://buckets/me/data/sub", Location{Store: HF, Bucket: "buckets/me/data", Key: "sub"}},
	} {
		if got, err := Parse(c.url); err != nil || got != c.want {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", c.url, got, err, c.want)
		}
		if !IsURL(c.url) {
			t.Errorf("IsURL(%q) is false", c.url)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ url, why string }{
		{"", "begins with"},
		{"b/k", "begins with"},
		{"https://example.com/x", "begins with"},
		{"S3://b", "begins with"},
		{"file:///etc/passwd", "begins with"},
		{"s3://", "names no bucket"},
		{"s3:///k", "names no bucket"},
		{"s3://../k", "cannot be the name"},
		{"s3://a..b/k", "cannot be the name"},
		{"s3://b?x/k", "cannot be the name"},
		{"s3://b\x00/k", "cannot be the name"},
		{"s3://user:pass@b/k", "cannot be the name"},
		{"cos://b", "names no bucket"},
		{"cos:///b", "REGION"},
		{"cos://../b", "REGION"},
		{"oci://b@", "no region"},
		{"oci://b@../k", "no region"},
		{"https://acct1.blob.core.windows.net", "names no bucket"},
		{"https://ACCT.blob.core.windows.net/c", "3 to 24"},
		{"https://a.b.blob.core.windows.net/c", "3 to 24"},
		{"https://evil@acct1.blob.core.windows.net/c", "3 to 24"},
		{"https://acct1.blob.core.windows.net/c?sv=2024&sig=secret", "leave out"},
		{"https://acct1.blob.core.windows.net/c/%zz", "escape"},
		{"hf://model", "it is written hf://"},
		{"hf://me/", "it is written hf://"},
		{"hf://me/model@", "cannot be a revision"},
		{"hf://me/model@..", "cannot be a revision"},
		{"hf://me/mo del", "it is written hf://"},
		{"hf://datasets/me", "it is written hf://"},
		{"hf://buckets/me/data@rev", "it is written hf://"},
	} {
		got, err := Parse(c.url)
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("Parse(%q) = %+v, %v; want an error with %q", c.url, got, err, c.why)
		}
	}
}

// TestLocationsRoundTrip writes any location and reads it back.
func TestLocationsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Location{
			Store:  rapid.SampledFrom([]Store{S3, GCS, Azure, R2, IBM, OCI, Nebius, CoreWeave, VastData, HF}).Draw(t, "store"),
			Bucket: rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?`).Draw(t, "bucket"),
			Key:    rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z./@%+ ?#]{0,8}`)).Draw(t, "key"),
		}
		switch l.Store {
		case Azure:
			l.Account = rapid.StringMatching(`[a-z0-9]{3,24}`).Draw(t, "account")
		case IBM:
			l.Region = rapid.SampledFrom([]string{"us-east", "eu-de"}).Draw(t, "region")
		case OCI:
			l.Region = rapid.SampledFrom([]string{"", "eu-frankfurt-1"}).Draw(t, "region")
		case HF:
			kind := rapid.SampledFrom([]string{"", "datasets/", "spaces/", "buckets/"}).Draw(t, "kind")
			l.Bucket = kind + "me/" + l.Bucket
			if kind != "buckets/" {
				l.Revision = rapid.SampledFrom([]string{"", "main", "v1.2", "refs/pr/7", "refs/convert/parquet"}).Draw(t, "revision")
			}
		}
		got, err := Parse(l.String())
		if err != nil {
			t.Fatalf("%q: %v", l.String(), err)
		}
		if got != l {
			t.Errorf("%q is read as %+v, was %+v", l.String(), got, l)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"s3://b/k", "https://acct1.blob.core.windows.net/c/k", "hf://me/m@refs/pr/1/x", "oci://b@r/k", "cos://r/b/k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse(text)
		if err != nil {
			return
		}
		back, err := Parse(l.String())
		if err != nil || back != l {
			t.Errorf("%q is %+v, and its URL %q is %+v, %v", text, l, l.String(), back, err)
		}
	})
}
