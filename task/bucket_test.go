package task

import (
	"strings"
	"testing"
)

func TestBucketNames(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, c := range []struct {
		store, good, bad string // names, separated by spaces
	}{
		{"s3", "abc my-bucket a.b.c 1ab", "ab Abc a_b -ab ab- a..b 10.0.0.1 xn--ab ab-s3alias ab--ol-s3 " + long},
		{"R2", "abc", "A"},
		{"GCS", "a_b abc " + long[:63] + "." + long[:63], "ab a..b a.-b a-.b 10.0.0.1 google-x my-g00gle goog1 " + long + " A_b"},
		{"AZURE", "abc a-b 123", "ab a--b a.b A-b -ab " + long},
		{"IBM", "abc a.b", "ab a--b a..b a.-b 1.2.3.4 Ab"},
		{"OCI", "A a_b.C-d " + long, "a/b ü"},
		{"HF", "any/Thing", ""},
	} {
		for _, name := range strings.Fields(c.good) {
			if err := ValidBucketName(c.store, name); err != nil {
				t.Error(err)
			}
		}
		for _, name := range strings.Fields(c.bad) {
			if err := ValidBucketName(c.store, name); err == nil {
				t.Errorf("%s took %q", c.store, name)
			}
		}
	}
}
