package storage

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// A Store is a kind of object store, as task files name it.
type Store string

// The stores.
const (
	S3        Store = "S3"
	GCS       Store = "GCS"
	Azure     Store = "AZURE"
	R2        Store = "R2"
	IBM       Store = "IBM"
	OCI       Store = "OCI"
	Nebius    Store = "NEBIUS"
	CoreWeave Store = "COREWEAVE"
	VastData  Store = "VASTDATA"
	HF        Store = "HF"
)

// schemes are what URLs of the stores begin with. Azure's are https URLs.
var schemes = []struct {
	store  Store
	prefix string
}{
	{S3, "s3://"}, {GCS, "gs://"}, {R2, "r2://"}, {IBM, "cos://"}, {OCI, "oci://"},
	{Nebius, "nebius://"}, {CoreWeave, "cw://"}, {VastData, "vastdata://"}, {HF, "hf://"},
}

const azureHost = ".blob.core.windows.net"

// A Location names a bucket, or what is below a key in it.
type Location struct {
	Store   Store
	Account string // Azure's storage account
	// Region is where the bucket is, if that is known. Only the URLs of IBM and,
	// where they name one, OCI carry it.
	Region string
	// Bucket is its name; Hugging Face's has the kind and the owner in it:
	// "buckets/me/data", "datasets/me/set", "spaces/me/app", "me/model".
	Bucket   string
	Revision string // of a Hugging Face repository; "": its default
	Key      string // an object or a prefix, as the store knows it; "": all
}

var (
	bucketName   = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	regionName   = lazyregexp.New(`^[a-z0-9][a-z0-9-]*$`)
	azureAccount = lazyregexp.New(`^[a-z0-9]{3,24}$`)
	hfName       = lazyregexp.New(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,95}$`)
	// Revisions of Hugging Face that hold slashes.
	hfReference = lazyregexp.New(`^refs/(pr/[0-9]+|convert/[a-zA-Z0-9._-]+)(/|$)`)
	hfRevision  = lazyregexp.New(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`)
)

// IsURL reports whether text begins like the URL of a store.
func IsURL(text string) bool {
	_, _, ok := cutScheme(text)
	return ok
}

func cutScheme(text string) (Store, string, bool) {
	for _, s := range schemes {
		if rest, ok := strings.CutPrefix(text, s.prefix); ok {
			return s.store, rest, true
		}
	}
	if rest, ok := strings.CutPrefix(text, "https://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		if strings.HasSuffix(host, azureHost) {
			return Azure, rest, true
		}
	}
	return "", "", false
}

// Parse reads the URL of a bucket or of something in it. Keys stand in URLs as
// they are, except in Azure's, which are percent-encoded.
func Parse(text string) (Location, error) {
	store, rest, ok := cutScheme(text)
	if !ok {
		return Location{}, fmt.Errorf("%q is no URL of a bucket: it begins with s3://, gs://, https://ACCOUNT%s/, r2://, cos://, oci://, nebius://, cw://, vastdata:// or hf://", text, azureHost)
	}
	bad := func(format string, args ...any) (Location, error) {
		return Location{}, fmt.Errorf("%q is no URL of a bucket: "+format, append([]any{text}, args...)...)
	}
	l := Location{Store: store}
	switch store {
	case Azure:
		host, path, _ := strings.Cut(rest, "/")
		if l.Account = strings.TrimSuffix(host, azureHost); !azureAccount.MatchString(l.Account) {
			return bad("an account has 3 to 24 lower-case letters and digits")
		}
		if strings.ContainsAny(path, "?#") {
			return bad("leave out what follows \"?\" or \"#\"; credentials are taken from the environment, never from a URL")
		}
		container, key, _ := strings.Cut(path, "/")
		var err error
		if l.Key, err = url.PathUnescape(key); err != nil {
			return bad("%v", err)
		}
		l.Bucket = container
	case HF:
		return parseHF(text, rest)
	case IBM:
		region, path, _ := strings.Cut(rest, "/")
		if !regionName.MatchString(region) {
			return bad("it is written cos://REGION/BUCKET")
		}
		l.Region = region
		l.Bucket, l.Key, _ = strings.Cut(path, "/")
	case OCI:
		l.Bucket, l.Key, _ = strings.Cut(rest, "/")
		var at bool
		if l.Bucket, l.Region, at = strings.Cut(l.Bucket, "@"); at && !regionName.MatchString(l.Region) {
			return bad("%q is no region", l.Region)
		}
	default:
		l.Bucket, l.Key, _ = strings.Cut(rest, "/")
	}
	if l.Bucket == "" {
		return bad("it names no bucket")
	}
	if !bucketName.MatchString(l.Bucket) || strings.Contains(l.Bucket, "..") {
		return bad("%q cannot be the name of a bucket", l.Bucket)
	}
	return l, nil
}

func parseHF(text, rest string) (Location, error) {
	l := Location{Store: HF}
	kind, path, _ := strings.Cut(rest, "/")
	switch kind {
	case "buckets", "datasets", "spaces":
		l.Bucket = kind + "/"
	case "models":
		// The long way to write what has no kind.
	default:
		kind, path = "models", rest
	}
	owner, path, _ := strings.Cut(path, "/")
	// A revision may hold a slash, so it is cut off before the path is split.
	name, after, at := strings.Cut(path, "@")
	if strings.Contains(name, "/") { // the "@" belongs to the path
		at = false
	}
	if at && kind != "buckets" {
		path = name
		if ref := hfReference.FindString(after); ref != "" {
			l.Revision = strings.TrimSuffix(ref, "/")
		} else {
			l.Revision, _, _ = strings.Cut(after, "/")
			if unescaped, err := url.PathUnescape(l.Revision); err == nil && hfReference.MatchString(unescaped) {
				after, l.Revision = unescaped+after[len(l.Revision):], unescaped
			}
		}
		if l.Revision == "" || !hfRevision.MatchString(l.Revision) && hfReference.FindString(l.Revision) != l.Revision {
			return Location{}, fmt.Errorf("%q is no URL of a bucket: %q cannot be a revision", text, l.Revision)
		}
		l.Key = strings.TrimPrefix(after[len(l.Revision):], "/")
	} else {
		path, l.Key, _ = strings.Cut(path, "/")
	}
	if !hfName.MatchString(owner) || !hfName.MatchString(path) {
		return Location{}, fmt.Errorf("%q is no URL of a bucket: it is written hf://OWNER/MODEL[@REVISION], hf://datasets/OWNER/NAME, hf://spaces/OWNER/NAME or hf://buckets/OWNER/NAME", text)
	}
	l.Bucket += owner + "/" + path
	return l, nil
}

// String is the URL; Parse reads it back, without the region where the URLs of
// the store have none.
func (l Location) String() string {
	var b strings.Builder
	for _, s := range schemes {
		if s.store == l.Store {
			b.WriteString(s.prefix)
		}
	}
	key := l.Key
	switch l.Store {
	case Azure:
		b.WriteString("https://" + l.Account + azureHost + "/" + l.Bucket)
		parts := strings.Split(key, "/")
		for i, p := range parts {
			parts[i] = url.PathEscape(p)
		}
		key = strings.Join(parts, "/")
	case IBM:
		b.WriteString(l.Region + "/" + l.Bucket)
	case OCI:
		b.WriteString(l.Bucket)
		if l.Region != "" {
			b.WriteString("@" + l.Region)
		}
	case HF:
		b.WriteString(l.Bucket)
		if l.Revision != "" {
			b.WriteString("@" + l.Revision)
		}
	default:
		b.WriteString(l.Bucket)
	}
	if key != "" {
		b.WriteString("/" + key)
	}
	return b.String()
}

// At is the location of a key of the same bucket.
func (l Location) At(key string) Location {
	l.Key = key
	return l
}
