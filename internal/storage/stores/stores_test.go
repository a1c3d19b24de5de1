package stores

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/storage"
)

// home is a home folder with nothing but these files, and an environment that says
// nothing of clouds.
func home(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		for _, prefix := range []string{"AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_", "HF_", "STORAGE_"} {
			if strings.HasPrefix(name, prefix) {
				t.Setenv(name, "")
			}
		}
	}
	t.Setenv("HOME", dir)
	t.Setenv("USERPROFILE", dir)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, ".aws", "credentials"))
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, ".aws", "config"))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(dir, "none"))
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const keys = "aws_access_key_id = ID\naws_secret_access_key = SECRET\n"

var everybody = map[string]string{
	".aws/credentials": "[default]\n" + keys + "[nebius]\n" + keys, ".cloudflare/r2.credentials": "[r2]\n" + keys, ".cloudflare/accountid": "0a1b",
	".coreweave/cw.credentials": "[cw]\n" + keys, ".vastdata/vastdata.credentials": "[vastdata]\n" + keys, ".oci/s3.credentials": "[oci]\n" + keys,
	".oci/s3.config": "[profile oci]\nregion = eu-frankfurt-1\n", ".ibm/credentials.yaml": "access_key_id: ID\nsecret_access_key: SECRET\n",
}

func TestEveryStoreOpens(t *testing.T) {
	home(t, everybody)
	for _, url := range []string{"s3://bucket", "gs://bucket", "r2://bucket", "cos://eu-de/bucket", "oci://bucket", "nebius://bucket", "cw://bucket", "vastdata://bucket", "https://acct1.blob.core.windows.net/bucket", "hf://me/model", "hf://buckets/me/data"} {
		at, err := storage.Parse(url + "/some/key")
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Endpoint: "http://127.0.0.1:1"}
		b, err := Open(t.Context(), at, o)
		if at.Store == storage.GCS { // an emulator needs no credentials
			if err != nil || b.Location().Bucket != "bucket" {
				t.Errorf("%s: %v", url, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if got := b.Location(); got.Store != at.Store || got.Bucket != at.Bucket || got.Key != "" {
			t.Errorf("%s: %+v", url, got)
		}
	}
	if _, err := Open(t.Context(), storage.Location{Store: "VOLUME", Bucket: "b"}, Options{}); err == nil {
		t.Error("a store that is none was opened")
	}
	_, err := Open(t.Context(), storage.Location{Store: storage.Azure, Bucket: "b"}, Options{})
	if _, ok := errors.AsType[*storage.CredentialsError](err); !ok || !strings.Contains(err.Error(), "no storage account") {
		t.Errorf("Azure without an account: %v", err)
	}
	if b, err := Open(t.Context(), storage.Location{Store: storage.Azure, Bucket: "b"}, Options{Account: "acct2"}); err != nil || b.Location().Account != "acct2" {
		t.Errorf("Azure with a configured account: %v", err)
	}
}

// The token for a container comes from the same credentials as machines are rented with.
func TestTokensForAzureAreOfTheUsersCredentials(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("resource") != "https://storage.azure.com" || r.Header.Get("Metadata") != "true" {
			w.WriteHeader(http.StatusBadRequest)
		}
		fmt.Fprint(w, `{"access_token":"T","expires_in":3600}`)
	}))
	t.Cleanup(s.Close)
	home(t, everybody)
	t.Setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", s.URL)
	token, err := azureToken(t.Context())
	if err != nil || token.Value != "T" || token.Account != "this machine's identity" || token.Expires.IsZero() {
		t.Errorf("%+v, %v", token, err)
	}
}

// regionOf is the region that a request was signed for.
func regionOf(r *http.Request) string {
	_, scope, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	parts := strings.Split(scope, "/")
	if len(parts) < 4 {
		return ""
	}
	return parts[2]
}

func TestFindGoesToTheRightRegion(t *testing.T) {
	home(t, everybody)
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, regionOf(r))
		w.Header().Set("X-Amz-Bucket-Region", "il-central-1")
		if regionOf(r) != "il-central-1" {
			w.WriteHeader(http.StatusMovedPermanently)
		}
	}))
	t.Cleanup(s.Close)
	b, info, err := Find(t.Context(), storage.Location{Store: storage.S3, Bucket: "b"}, Options{Endpoint: s.URL})
	if err != nil || info.Region != "il-central-1" || b.Location().Region != "il-central-1" || fmt.Sprint(asked) != "[us-east-1 il-central-1]" {
		t.Errorf("%+v, %v, asked %v", info, err, asked)
	}
}

func TestFindLooksInAllRegionsOfIBM(t *testing.T) {
	home(t, everybody)
	for _, c := range []struct {
		where  string
		status int
		check  func(storage.Bucket, error) bool
	}{
		{"jp-tok", 404, func(b storage.Bucket, err error) bool { return err == nil && b.Location().Region == "jp-tok" }},
		{"nowhere", 404, func(_ storage.Bucket, err error) bool {
			_, ok := errors.AsType[*storage.NotFoundError](err)
			return ok
		}},
		{"nowhere", 500, func(_ storage.Bucket, err error) bool { return storage.Temporary(err) }},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if regionOf(r) == "eu-gb" && c.status != 404 {
				w.WriteHeader(c.status)
			} else if regionOf(r) != c.where {
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		t.Cleanup(s.Close)
		b, _, err := Find(t.Context(), storage.Location{Store: storage.IBM, Bucket: "b"}, Options{Endpoint: s.URL})
		if !c.check(b, err) {
			t.Errorf("%s, else %d: %v", c.where, c.status, err)
		}
	}
}

// What is public is found without credentials, and what is not is reported as it was
// with them.
func TestFindWhatIsPublic(t *testing.T) {
	home(t, nil)
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=acct1;AccountKey=c2VjcmV0")
	for _, public := range []bool{true, false} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" || !public {
				w.Header().Set("X-Ms-Error-Code", "AuthorizationFailure")
				w.WriteHeader(http.StatusForbidden)
				return
			}
			fmt.Fprint(w, "<EnumerationResults/>")
		}))
		t.Cleanup(s.Close)
		b, _, err := Find(t.Context(), storage.Location{Store: storage.Azure, Account: "acct1", Bucket: "c"}, Options{Endpoint: s.URL})
		denied, ok := errors.AsType[*storage.DeniedError](err)
		if public && (err != nil || b == nil) || !public && (!ok || denied.Account != "the key of acct1") {
			t.Errorf("public %v: %v", public, err)
		}
	}
}

// Credentials are tried without a bucket of one's own.
func TestCheckTriesCredentials(t *testing.T) {
	status, body := http.StatusNotFound, ""
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "sky-check-") {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer store.Close()
	s3 := func(code string) string { return "<Error><Code>" + code + "</Code></Error>" }
	files := maps.Clone(everybody)
	files[".cache/huggingface/token"] = "hf_x"
	for _, tt := range []struct {
		name   string
		store  storage.Store
		status int
		body   string
		found  bool
		works  bool
		none   bool // no credentials are there
	}{
		{"S3", storage.S3, 404, s3("NoSuchBucket"), true, true, false},
		{"S3, one that may do little", storage.S3, 403, s3("AccessDenied"), true, true, false},
		{"S3, a wrong key", storage.S3, 403, s3("InvalidAccessKeyId"), true, false, false},
		{"S3, out of order", storage.S3, 503, s3("ServiceUnavailable"), true, false, false},
		{"R2", storage.R2, 404, s3("NoSuchBucket"), true, true, false},
		{"R2, a wrong secret", storage.R2, 403, s3("SignatureDoesNotMatch"), true, false, false},
		{"IBM", storage.IBM, 404, s3("NoSuchBucket"), true, true, false},
		{"OCI", storage.OCI, 404, s3("NoSuchBucket"), true, true, false},
		{"Hugging Face", storage.HF, 404, "", true, true, false},
		{"Hugging Face, an old token", storage.HF, 401, "", true, false, false},
		{"nobody of R2", storage.R2, 404, "", false, false, true},
		{"nobody of Hugging Face", storage.HF, 404, "", false, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if home(t, files); tt.none {
				home(t, nil)
			}
			status, body = tt.status, tt.body
			found, err := Check(t.Context(), tt.store, Options{Endpoint: store.URL})
			if found != tt.found || (err == nil) != tt.works {
				t.Errorf("%v, %v", found, err)
			}
			if refused, ok := errors.AsType[*storage.CredentialsError](err); tt.none && (!ok || refused.Fix == "") {
				t.Errorf("not told how to set it up: %v", err)
			}
		})
	}
}
