//go:build stores

// Package stores runs the drivers of object stores, and what stands on them,
// against real servers on this machine, which setup.sh builds once.
package stores

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/skypilot-go/sky/internal/porttest"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/azure"
	"github.com/skypilot-go/sky/internal/storage/gcs"
	"github.com/skypilot-go/sky/internal/storage/s3"
	"github.com/skypilot-go/sky/internal/storage/storetest"
)

// program is where setup.sh has put the servers.
func program(t testing.TB, name string) string {
	t.Helper()
	file := filepath.Join(folder(t), "bin", name)
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("%s is not there: run test/stores/setup.sh", file)
	}
	return file
}

// folder is where setup.sh puts things.
func folder(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("SKY_TEST_STORES")
	if dir == "" {
		cache := os.Getenv("XDG_CACHE_HOME")
		if cache == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				t.Fatal(err)
			}
			cache = filepath.Join(home, ".cache")
		}
		dir = filepath.Join(cache, "sky-test", "stores")
	}
	return dir
}

// serve starts a server and waits until it takes connections.
func serve(t testing.TB, port int, env []string, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("the server's last words:\n%.4000s", text[max(0, len(text)-4000):])
		}
		log.Close()
	})
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			c.Close()
			return
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the server ended: %s", text)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("the server takes no connections")
		}
	}
}

// minio is the switch that runs all tests of S3 against MinIO: "build" uses what setup.sh
// builds with the same setting, anything else is the path of the program.
func minio() (program string, on bool) {
	program = os.Getenv("SKY_TEST_MINIO")
	return program, program != ""
}

// s3Server starts a server of S3: versitygw, or MinIO where it is switched on.
func s3Server(t testing.TB) (endpoint string) {
	t.Helper()
	if file, on := minio(); on {
		if file == "build" {
			file = program(t, "minio")
		}
		port := porttest.Free(t)
		serve(t, port, []string{"MINIO_ROOT_USER=sky", "MINIO_ROOT_PASSWORD=secret-of-sky", "MINIO_BROWSER=off", "MINIO_UPDATE=off"}, file,
			"server", "--quiet", "--address", fmt.Sprint("127.0.0.1:", port), t.TempDir())
		return ready(t, fmt.Sprint("http://127.0.0.1:", port))
	}
	endpoint, _ = versityAt(t, "--versioning-dir", t.TempDir())
	return endpoint
}

// ready waits until MinIO does more than to take connections.
func ready(t testing.TB, endpoint string) string {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if r, err := http.Get(endpoint + "/minio/health/cluster"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return endpoint
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("MinIO does not become ready")
		}
	}
}

// versityAt starts a server of S3 whose objects are files below a folder.

func versityAt(t testing.TB, options ...string) (endpoint, dir string) {
	t.Helper()
	dir = t.TempDir()
	port := porttest.Free(t)
	serve(t, port, []string{"ROOT_ACCESS_KEY=sky", "ROOT_SECRET_KEY=secret-of-sky"}, program(t, "versitygw"),
		append(append([]string{"--port", fmt.Sprint("127.0.0.1:", port), "--region", "us-east-1", "--quiet", "--keep-alive", "posix"}, options...), dir)...)
	return fmt.Sprint("http://127.0.0.1:", port), dir
}

func s3Options(endpoint string, transport http.RoundTripper) s3.Options {
	return s3.Options{Endpoint: endpoint, Transport: transport, Keys: func(context.Context) (s3.Keys, error) {
		return s3.Keys{AccessKey: "sky", SecretKey: "secret-of-sky"}, nil
	}}
}

// keepVersions is a setting of the bucket that the drivers need not make.
func keepVersions(t *testing.T, endpoint string, b storage.Bucket) {
	t.Helper()
	client := sdk.New(sdk.Options{Region: "us-east-1", BaseEndpoint: &endpoint, UsePathStyle: true, Credentials: credentials.NewStaticCredentialsProvider("sky", "secret-of-sky", "")})
	name := b.Location().Bucket
	if _, err := client.PutBucketVersioning(t.Context(), &sdk.PutBucketVersioningInput{Bucket: &name, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}}); err != nil {
		t.Fatal(err)
	}
}

func TestContractOnS3(t *testing.T) {
	endpoint, transport := s3Server(t), storage.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	// versitygw makes paths of files of keys.
	cannot := map[string]string{
		"Keys/a/../b": "the key is resolved as a path", "Keys/./a": "the key is resolved as a path", "Keys/a/./b": "the key is resolved as a path",
		"Keys//abs": "the key is resolved as a path", "Keys/a//b": "the key is resolved as a path",
		"Keys/\x01ctl": "lists hold the character as it is, which XML cannot",
	}
	if _, on := minio(); on {
		cannot = map[string]string{"Keys//abs": "the slash at the beginning is dropped"}
	}
	storetest.Run(t, storetest.Harness{
		New: func(t *testing.T, name string) storage.Bucket {
			b, err := s3.Open(t.Context(), storage.Location{Store: storage.S3, Bucket: name}, s3Options(endpoint, transport))
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Cannot:    cannot,
		Versioned: func(t *testing.T, b storage.Bucket) { keepVersions(t, endpoint, b) },
	})
}

// fakeGCS starts a server of Google Cloud Storage.
func fakeGCS(t testing.TB) (host string) {
	t.Helper()
	port := porttest.Free(t)
	host = fmt.Sprint("127.0.0.1:", port)
	serve(t, port, nil, program(t, "fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1", "-port", fmt.Sprint(port), "-public-host", host, "-backend", "memory", "-log-level", "error")
	return host
}

func TestContractOnFakeGCS(t *testing.T) {
	host := fakeGCS(t)
	transport := storage.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	const noXML = "the server has no multipart uploads"
	storetest.Run(t, storetest.Harness{
		New: func(t *testing.T, name string) storage.Bucket {
			b, err := gcs.Open(t.Context(), storage.Location{Store: storage.GCS, Bucket: name}, gcs.Options{Endpoint: "http://" + host, Project: "p", Transport: transport})
			if err != nil {
				t.Fatal(err)
			}
			return withoutUploads{b}
		},
		Cannot: map[string]string{"Multipart": noXML, "MultipartResumed": noXML, "MultipartEnds": noXML,
			"Tags": "the server keeps no labels", "Levels": "its pages repeat prefixes", "Copy": "its copies know no conditions"},
	})
}

// withoutUploads is a store whose unfinished uploads cannot be listed.
type withoutUploads struct{ storage.Bucket }

func (w withoutUploads) Unwrap() storage.Bucket { return w.Bucket }

func (w withoutUploads) Caps() storage.Caps {
	c := w.Bucket.Caps()
	c.Uploads = false
	return c
}

// azurite starts a server of Azure's blobs, and reports how it is reached.
func azurite(t testing.TB, transport http.RoundTripper) azure.Options {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("Azurite needs node: run test/stores/setup.sh")
	}
	port := porttest.Free(t)
	serve(t, port, nil, node, program(t, "../azurite/node_modules/azurite/dist/src/blob/main.js"), "--disableTelemetry", "--silent", "--blobHost", "127.0.0.1", "--blobPort", fmt.Sprint(port),
		"--skipApiVersionCheck", "--location", t.TempDir())
	return azure.Options{
		Endpoint: fmt.Sprint("http://127.0.0.1:", port, "/devstoreaccount1"), Transport: transport,
		Key: "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
	}
}

func TestContractOnAzurite(t *testing.T) {
	transport := storage.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	options := azurite(t, transport)
	storetest.Run(t, storetest.Harness{
		Part:   1 << 10,
		Cannot: map[string]string{"Keys/\x01ctl": "the server fails to list it"},
		New: func(t *testing.T, name string) storage.Bucket {
			b, err := azure.Open(storage.Location{Store: storage.Azure, Account: "devstoreaccount1", Bucket: name}, options)
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
	})
}
