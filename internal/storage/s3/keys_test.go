package s3

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/skypilot-go/sky/internal/storage"
)

// home is a home folder with some files; the environment says nothing of AWS.
func home(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("USERPROFILE", dir)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	// The SDK has looked for the home folder already.
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, ".aws", "credentials"))
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, ".aws", "config"))
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

const pair = "aws_access_key_id = ID-%\naws_secret_access_key = SECRET\n"

func profile(name, more string) string {
	return "[" + name + "]\n" + strings.ReplaceAll(pair, "%", name) + more + "\n"
}

func TestWhereKeysAreFound(t *testing.T) {
	for _, c := range []struct {
		name                  string
		at                    storage.Location
		files, env            map[string]string
		o                     Options
		key, endpoint, region string
		pathStyle             bool
	}{
		{"AWS, the default profile", storage.Location{Store: storage.S3}, map[string]string{".aws/credentials": profile("default", ""), ".aws/config": "[default]\nregion = eu-west-1\n"}, nil, Options{}, "ID-default", "", "eu-west-1", false},
		{"AWS, no region", storage.Location{Store: storage.S3}, map[string]string{".aws/credentials": profile("default", "")}, nil, Options{}, "ID-default", "", "us-east-1", false},
		{"AWS, the location's region", storage.Location{Store: storage.S3, Region: "il-central-1"}, map[string]string{".aws/credentials": profile("default", ""), ".aws/config": "[default]\nregion = eu-west-1\n"}, nil, Options{}, "ID-default", "", "il-central-1", false},
		{"AWS, a profile", storage.Location{Store: storage.S3}, map[string]string{".aws/credentials": profile("default", "") + profile("work", "")}, nil, Options{Profile: "work"}, "ID-work", "", "us-east-1", false},
		{"AWS, variables", storage.Location{Store: storage.S3}, nil, map[string]string{"AWS_ACCESS_KEY_ID": "ID-env", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-west-2"}, Options{}, "ID-env", "", "us-west-2", false},
		{"AWS, another server by variable", storage.Location{Store: storage.S3}, nil, map[string]string{"AWS_ACCESS_KEY_ID": "ID-env", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:7070", "AWS_ENDPOINT_URL": "http://elsewhere"}, Options{}, "ID-env", "http://127.0.0.1:7070", "us-east-1", true},
		{"AWS, all of AWS elsewhere", storage.Location{Store: storage.S3}, nil, map[string]string{"AWS_ACCESS_KEY_ID": "ID-env", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": "http://minio:9000"}, Options{}, "ID-env", "http://minio:9000", "us-east-1", true},
		{"AWS, another server by profile", storage.Location{Store: storage.S3}, map[string]string{".aws/credentials": profile("default", ""), ".aws/config": "[default]\nendpoint_url = http://general:1\nservices = mine\n[services mine]\ns3 =\n  endpoint_url = http://special:2\n"}, nil, Options{}, "ID-default", "http://special:2", "us-east-1", true},
		{"the caller's endpoint comes first", storage.Location{Store: storage.S3}, nil, map[string]string{"AWS_ACCESS_KEY_ID": "ID-env", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:7070"}, Options{Endpoint: "http://10.0.0.1:9"}, "ID-env", "http://10.0.0.1:9", "us-east-1", true},
		{"AWS by name keeps the bucket in the host", storage.Location{Store: storage.S3}, nil, map[string]string{"AWS_ACCESS_KEY_ID": "ID-env", "AWS_SECRET_ACCESS_KEY": "s"}, Options{Endpoint: "https://s3.us-east-1.amazonaws.com"}, "ID-env", "https://s3.us-east-1.amazonaws.com", "us-east-1", false},
		{"R2", storage.Location{Store: storage.R2}, map[string]string{".cloudflare/r2.credentials": profile("r2", ""), ".cloudflare/accountid": "0a1b\n"}, nil, Options{}, "ID-r2", "https://0a1b.r2.cloudflarestorage.com", "auto", true},
		{"R2 does not take AWS's variables", storage.Location{Store: storage.R2}, map[string]string{".cloudflare/r2.credentials": profile("r2", ""), ".cloudflare/accountid": "0a1b"}, map[string]string{"AWS_ACCESS_KEY_ID": "ID-env", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}, Options{}, "ID-r2", "https://0a1b.r2.cloudflarestorage.com", "auto", true},
		{"Nebius", storage.Location{Store: storage.Nebius}, map[string]string{".aws/credentials": profile("nebius", ""), ".aws/config": "[profile nebius]\nregion = eu-west1\nendpoint_url = https://storage.eu-west1.nebius.cloud:443\n"}, nil, Options{}, "ID-nebius", "https://storage.eu-west1.nebius.cloud:443", "eu-west1", false},
		{"CoreWeave", storage.Location{Store: storage.CoreWeave}, map[string]string{".coreweave/cw.credentials": profile("cw", "")}, nil, Options{}, "ID-cw", "https://cwobject.com", "US-EAST-01A", false},
		{"CoreWeave, inside", storage.Location{Store: storage.CoreWeave}, map[string]string{".coreweave/cw.credentials": profile("cw", ""), ".coreweave/cw.config": "[profile cw]\nendpoint_url = http://cwlota.com\n"}, nil, Options{}, "ID-cw", "http://cwlota.com", "US-EAST-01A", false},
		{"VastData", storage.Location{Store: storage.VastData}, map[string]string{".vastdata/vastdata.credentials": profile("vastdata", ""), ".vastdata/vastdata.config": "[profile vastdata]\nendpoint_url = https://vast.example.com\n"}, nil, Options{}, "ID-vastdata", "https://vast.example.com", "auto", true},
		{"OCI", storage.Location{Store: storage.OCI}, map[string]string{".oci/s3.credentials": profile("oci", ""), ".oci/s3.config": "[profile oci]\nregion = eu-frankfurt-1\nendpoint_url = https://ns.compat.objectstorage.eu-frankfurt-1.oci.customer-oci.com\n"}, nil, Options{}, "ID-oci", "https://ns.compat.objectstorage.eu-frankfurt-1.oci.customer-oci.com", "eu-frankfurt-1", true},
		{"IBM", storage.Location{Store: storage.IBM, Region: "eu-de"}, map[string]string{".ibm/credentials.yaml": "iam_api_key: x\naccess_key_id: ID-ibm\nsecret_access_key: s\n"}, nil, Options{}, "ID-ibm", "https://s3.eu-de.cloud-object-storage.appdomain.cloud", "eu-de", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			home(t, c.files)
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			c.at.Bucket = "b"
			b := open(t, c.at, c.o)
			keys, err := b.keys.Retrieve(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			o := b.client.Options()
			if keys.AccessKeyID != c.key || aws.ToString(o.BaseEndpoint) != c.endpoint || o.Region != c.region || b.Location().Region != c.region || o.UsePathStyle != c.pathStyle {
				t.Errorf("key %q, endpoint %q, region %q and %q, path style %v", keys.AccessKeyID, aws.ToString(o.BaseEndpoint), o.Region, b.Location().Region, o.UsePathStyle)
			}
		})
	}
}

func TestMissingKeysSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		store storage.Store
		files map[string]string
		words string
	}{
		{storage.R2, nil, "~/.cloudflare/r2.credentials"},
		{storage.R2, map[string]string{".cloudflare/r2.credentials": profile("r2", "")}, "~/.cloudflare/accountid"},
		{storage.R2, map[string]string{".cloudflare/r2.credentials": profile("r2", ""), ".cloudflare/accountid": "evil.example.com/"}, "holds no account's id"},
		{storage.R2, map[string]string{".cloudflare/r2.credentials": "[r2]\nregion = x\n"}, "has no keys"},
		{storage.VastData, map[string]string{".vastdata/vastdata.credentials": profile("vastdata", "")}, "endpoint_url"},
		{storage.OCI, nil, "~/.oci/s3.credentials"},
		{storage.IBM, nil, "~/.ibm/credentials.yaml"},
		{storage.IBM, map[string]string{".ibm/credentials.yaml": "access_key_id: [hidden"}, "not valid YAML"},
		{storage.Nebius, nil, "aws configure --profile nebius"},
	} {
		home(t, c.files)
		_, err := Open(t.Context(), storage.Location{Store: c.store, Bucket: "b"}, Options{})
		if _, ok := errors.AsType[*storage.CredentialsError](err); !ok || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want a CredentialsError with %q", c.store, err, c.words)
		}
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: the error quotes the file: %v", c.store, err)
		}
	}
	// AWS's chain finds out when it is asked.
	home(t, nil)
	b := open(t, storage.Location{Store: storage.S3, Bucket: "b"}, Options{Endpoint: "http://127.0.0.1:1"})
	_, err := b.Head(t.Context())
	if _, ok := errors.AsType[*storage.CredentialsError](err); !ok || !strings.Contains(err.Error(), "aws configure") {
		t.Errorf("AWS: %v", err)
	}
}

// What is sent differs from store to store: checksums, constraints, hosts.
func TestWhatIsSent(t *testing.T) {
	var got *http.Request
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got, body = r, string(text)
		w.Header().Set("ETag", `"e"`)
		if r.URL.Query().Has("delete") {
			io.WriteString(w, "<DeleteResult/>")
		}
	}))
	t.Cleanup(server.Close)
	for _, m := range family {
		b := open(t, storage.Location{Store: m.store, Bucket: "b", Region: "r1"}, fixedOptions(server.URL))
		if _, err := b.Put(t.Context(), "k", strings.NewReader("content"), storage.PutOptions{Metadata: map[string]string{"team": "a"}}); err != nil {
			t.Fatal(err)
		}
		h := got.Header
		if strings.Contains(h.Get("Content-Encoding"), "aws-chunked") || h.Get("X-Amz-Trailer") != "" || got.ContentLength != 7 {
			t.Errorf("%s: the body is sent in chunks: %v", m.store, h)
		}
		if (h.Get("Content-Md5") != "") != (m.checksum == md5Sums) || (h.Get("X-Amz-Checksum-Crc32") != "") != (m.checksum == crc32Sums) {
			t.Errorf("%s: checksums %v", m.store, h)
		}
		if h.Get("X-Amz-Content-Sha256") != "UNSIGNED-PAYLOAD" || h.Get("X-Amz-Meta-Team") != "a" {
			t.Errorf("%s: headers %v", m.store, h)
		}
		if err := b.Remove(t.Context(), []storage.ID{{Key: "a"}, {Key: "b"}}); err != nil {
			t.Errorf("%s: %v", m.store, err)
		}
		if h := got.Header; got.Method != http.MethodPost || (h.Get("Content-Md5") != "") != (m.checksum == md5Sums) || (h.Get("X-Amz-Checksum-Crc32") != "") != (m.checksum == crc32Sums) {
			t.Errorf("%s: %s with the checksums %v", m.store, got.Method, h)
		}
		if m.create == createNever {
			continue
		}
		if err := b.Create(t.Context(), nil); err != nil {
			t.Errorf("%s: %v", m.store, err)
		}
		constraint := map[createMode]string{createAnywhere: "<LocationConstraint>r1</LocationConstraint>", createSmart: "<LocationConstraint>r1-smart</LocationConstraint>"}[m.create]
		if !strings.Contains(body, constraint) || constraint == "" && body != "" {
			t.Errorf("%s: a bucket is made by %q", m.store, body)
		}
	}
}

// Objects are where the SDK looks for the bucket.
func TestWhereObjectsAre(t *testing.T) {
	home(t, map[string]string{
		".aws/credentials": profile("default", "") + profile("nebius", ""), ".cloudflare/r2.credentials": profile("r2", ""), ".cloudflare/accountid": "0a1b",
		".coreweave/cw.credentials": profile("cw", ""), ".ibm/credentials.yaml": "access_key_id: a\nsecret_access_key: s\n",
	})
	for _, c := range []struct {
		at       storage.Location
		endpoint string
		want     string
	}{
		{storage.Location{Store: storage.S3, Bucket: "bucket"}, "", "https://bucket.s3.us-east-1.amazonaws.com"},
		{storage.Location{Store: storage.S3, Bucket: "bucket", Region: "ap-east-1"}, "", "https://bucket.s3.ap-east-1.amazonaws.com"},
		{storage.Location{Store: storage.S3, Bucket: "bucket", Region: "cn-north-1"}, "", "https://bucket.s3.cn-north-1.amazonaws.com.cn"},
		{storage.Location{Store: storage.S3, Bucket: "with.dots"}, "", "https://s3.us-east-1.amazonaws.com/with.dots"},
		{storage.Location{Store: storage.S3, Bucket: "bucket"}, "http://127.0.0.1:9000", "http://127.0.0.1:9000/bucket"},
		{storage.Location{Store: storage.S3, Bucket: "bucket"}, "http://minio:9000/below", "http://minio:9000/below/bucket"},
		{storage.Location{Store: storage.R2, Bucket: "bucket"}, "", "https://0a1b.r2.cloudflarestorage.com/bucket"},
		{storage.Location{Store: storage.Nebius, Bucket: "bucket"}, "", "https://bucket.storage.eu-north1.nebius.cloud"},
		{storage.Location{Store: storage.CoreWeave, Bucket: "bucket"}, "", "https://bucket.cwobject.com"},
		{storage.Location{Store: storage.IBM, Bucket: "bucket", Region: "eu-de"}, "", "https://s3.eu-de.cloud-object-storage.appdomain.cloud/bucket"},
	} {
		if b := open(t, c.at, Options{Endpoint: c.endpoint}); b.objects.Endpoint != c.want {
			t.Errorf("%+v: %s, want %s", c.at, b.objects.Endpoint, c.want)
		}
	}
	if _, err := Open(t.Context(), storage.Location{Store: storage.S3, Bucket: "bucket--use1-az4--x-s3"}, Options{}); err == nil {
		t.Error("a directory bucket was opened")
	}
}
