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

var (
	urlBucket  = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	hfSegment  = lazyregexp.New(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,95}$`)
	storeNames = []string{"S3", "GCS", "AZURE", "R2", "IBM", "OCI", "NEBIUS", "COREWEAVE", "VASTDATA"}
)

// bucketOfURL is the name of the bucket in a URL of one; of Hugging Face "OWNER/NAME".
func bucketOfURL(url string) string {
	sch, rest, _ := strings.Cut(url, "://")
	parts := strings.Split(rest, "/")
	at := func(i int) string {
		if i < len(parts) {
			return parts[i]
		}
		return ""
	}
	switch strings.ToLower(sch) {
	case "cos", "https":
		return at(1)
	case "oci":
		name, _, _ := strings.Cut(at(0), "@")
		return name
	case "hf":
		i := 0
		switch at(0) {
		case "buckets", "datasets", "spaces", "models":
			i = 1
		}
		name, _, _ := strings.Cut(at(i+1), "@")
		return at(i) + "/" + name
	}
	return at(0)
}

// checkBucketURL refuses URLs that name no bucket. The bucket exists already and may be older
// than the rules for names of new ones, so its name has only to be one.
func checkBucketURL(url string) error {
	name, store := bucketOfURL(url), storeOfURL(url)
	if store == "HF" {
		owner, repository, _ := strings.Cut(name, "/")
		if !hfSegment.MatchString(owner) || !hfSegment.MatchString(repository) {
			return fmt.Errorf("%s names no repository: it is written hf://OWNER/MODEL[@REVISION], hf://datasets/OWNER/NAME, hf://spaces/OWNER/NAME or hf://buckets/OWNER/NAME", url)
		}
		return nil
	}
	if name == "" {
		if store == "IBM" {
			return fmt.Errorf("%s names no bucket: it is written cos://REGION/BUCKET", url)
		}
		return fmt.Errorf("%s names no bucket", url)
	}
	if !urlBucket.MatchString(name) || strings.Contains(name, "..") {
		return fmt.Errorf("%q cannot name a bucket", name)
	}
	return nil
}

// nameOfSomeStore refuses names that a bucket can have in no store.
func nameOfSomeStore(name string) error {
	for _, store := range storeNames {
		if ValidBucketName(store, name) == nil {
			return nil
		}
	}
	return fmt.Errorf("%q cannot name a bucket in any store: use lower-case letters, digits and -", name)
}

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
