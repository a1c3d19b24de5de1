package task

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// bucketRule is what a store allows in the names of buckets.
type bucketRule struct {
	min, max int
	pattern  *lazyregexp.Regexp
	words    string   // the pattern for people
	without  []string // what a name may not contain
	prefixes []string // nor begin with
	suffixes []string // nor end with
	anIP     bool     // it may look like an IP address
	part     int      // longest part between dots; 0: any
}

var (
	s3Bucket = &bucketRule{
		min: 3, max: 63, pattern: lazyregexp.New(`^[a-z0-9][-a-z0-9.]*[a-z0-9]$`), words: "lower-case letters, digits, . and -, beginning and ending with a letter or digit",
		without: []string{".."}, prefixes: []string{"xn--"}, suffixes: []string{"-s3alias", "--ol-s3"},
	}
	bucketRules = map[string]*bucketRule{
		"S3": s3Bucket, "R2": s3Bucket, "NEBIUS": s3Bucket, "COREWEAVE": s3Bucket, "VASTDATA": s3Bucket,
		"GCS": {
			min: 3, max: 222, pattern: lazyregexp.New(`^[a-z0-9][-a-z0-9._]*[a-z0-9]$`), words: "lower-case letters, digits, . _ and -, beginning and ending with a letter or digit",
			without: []string{"..", ".-", "-.", "google", "g00gle", "go0gle", "g0ogle"}, prefixes: []string{"goog"}, part: 63,
		},
		"AZURE": {
			min: 3, max: 63, pattern: lazyregexp.New(`^[a-z0-9][-a-z0-9]*[a-z0-9]$`), words: "lower-case letters, digits and -, beginning and ending with a letter or digit",
			without: []string{"--"}, anIP: true,
		},
		"IBM": {
			min: 3, max: 63, pattern: lazyregexp.New(`^[a-z0-9][-a-z0-9.]*[a-z0-9]$`), words: "lower-case letters, digits, . and -, beginning and ending with a letter or digit",
			without: []string{"..", "--", ".-", "-."},
		},
		"OCI": {min: 1, max: 256, pattern: lazyregexp.New(`^[A-Za-z0-9-._]+$`), words: "letters, digits, - . and _", anIP: true},
	}
	azureContainer = lazyregexp.New(`^https://([a-z0-9]{3,24})\.blob\.core\.windows\.net(/[^/]+)+$`)
)

// ValidBucketName refuses names that a bucket in store ("S3", in any case)
// cannot have. Stores without rules take any name.
func ValidBucketName(store, name string) error {
	r := bucketRules[strings.ToUpper(store)]
	if r == nil {
		return nil
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%q cannot name a bucket in %s: "+format, append([]any{name, strings.ToUpper(store)}, args...)...)
	}
	if len(name) < r.min || len(name) > r.max {
		return bad("a name has %d to %d characters", r.min, r.max)
	}
	if !r.pattern.MatchString(name) {
		return bad("a name has %s", r.words)
	}
	for _, s := range r.without {
		if strings.Contains(name, s) {
			return bad("a name does not contain %q", s)
		}
	}
	for _, s := range r.prefixes {
		if strings.HasPrefix(name, s) {
			return bad("a name does not begin with %q", s)
		}
	}
	for _, s := range r.suffixes {
		if strings.HasSuffix(name, s) {
			return bad("a name does not end with %q", s)
		}
	}
	if ip, err := netip.ParseAddr(name); !r.anIP && err == nil && ip.Is4() {
		return bad("a name is not an IP address")
	}
	for part := range strings.SplitSeq(name, ".") {
		if r.part > 0 && len(part) > r.part {
			return bad("what stands between dots has up to %d characters", r.part)
		}
	}
	return nil
}
