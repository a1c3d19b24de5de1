//go:build stores

package stores

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/s3"
	"github.com/skypilot-go/sky/internal/storage/transfer"
)

// The benchmarks compare with rclone, and with the AWS CLI where it is there, each in turn on
// the same server, and report how many times as fast transfers and mounts are ("x", "x-aws"),
// and how many times as much of the processor rclone takes ("x-cpu"), which others that use the
// machine change less. Files on a disk that is slow to make files are better in memory (TMPDIR).
// SKY_BENCH_SCALE makes the work smaller:
//
//	go test -tags stores -run '^$' -bench . -benchtime 1x -timeout 1h ./test/stores

func scaled(n int) int {
	if f, err := strconv.ParseFloat(os.Getenv("SKY_BENCH_SCALE"), 64); err == nil {
		return max(1, int(float64(n)*f))
	}
	return n
}

// bench is a server of S3, its folder, and a bucket on it.
type bench struct {
	dir, endpoint string
	bucket        storage.Bucket
}

func newBench(b *testing.B) *bench {
	b.Helper()
	x := &bench{}
	x.endpoint, x.dir = versityAt(b)
	transport := storage.NewTransport()
	b.Cleanup(transport.CloseIdleConnections)
	bucket, err := s3.Open(b.Context(), storage.Location{Store: storage.S3, Bucket: "bench"}, s3Options(x.endpoint, transport))
	if err != nil {
		b.Fatal(err)
	}
	if err := bucket.Create(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	x.bucket = bucket
	return x
}

// settle writes what was done before to the disk, so that nobody has to do it for
// somebody else.
func settle() { unix.Sync() }

// rcloneEnv tells the peer of the server.
func (x *bench) rcloneEnv() []string {
	return []string{"RCLONE_CONFIG_V_TYPE=s3", "RCLONE_CONFIG_V_PROVIDER=Other", "RCLONE_CONFIG_V_ACCESS_KEY_ID=sky",
		"RCLONE_CONFIG_V_SECRET_ACCESS_KEY=secret-of-sky", "RCLONE_CONFIG_V_ENDPOINT=" + x.endpoint}
}

// rclone runs the peer and says how long it took.
func (x *bench) rclone(b *testing.B, args ...string) time.Duration {
	b.Helper()
	took, _ := x.run(b, program(b, "rclone"), x.rcloneEnv(), append(args, "--config", "/dev/null"))
	return took
}

// run runs a peer, and says how long it took, in all and of the processor.
func (x *bench) run(b *testing.B, program string, env, args []string) (took, cpu time.Duration) {
	b.Helper()
	settle()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s %v: %v: %s", filepath.Base(program), args, err, out)
	}
	return time.Since(began), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// Those who are compared.
const (
	weAre = iota
	rcloneIs
	awsIs
	contestants
)

// A contest is the same work, done by us and by peers.
type contest struct {
	ours        func(round string) func(context.Context) error
	rclone, aws func(round string) []string // their arguments
	done        func(round string)          // tidies up, if there is need
}

// run repeats the work, with others first each time, and reports.
func (c contest) run(b *testing.B, x *bench, amount float64, unit string) {
	aws, noAWS := exec.LookPath("aws")
	awsEnv := []string{"AWS_ACCESS_KEY_ID=sky", "AWS_SECRET_ACCESS_KEY=secret-of-sky", "AWS_DEFAULT_REGION=us-east-1", "AWS_ENDPOINT_URL=" + x.endpoint,
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true"}
	var took, cpu [contestants]time.Duration
	rounds := 2 * b.N
	for i := range rounds {
		for j := range contestants {
			who := (i + j) % contestants
			round := fmt.Sprint(i, "-", who)
			var t, p time.Duration
			switch who {
			case weAre:
				before := processor(b)
				t = x.ours(b, c.ours(round))
				p = processor(b) - before
			case rcloneIs:
				t, p = x.run(b, program(b, "rclone"), x.rcloneEnv(), append(c.rclone(round), "--config", "/dev/null"))
			case awsIs:
				if noAWS != nil {
					continue
				}
				t, p = x.run(b, aws, awsEnv, append([]string{"--endpoint-url", x.endpoint}, c.aws(round)...)) // versions before 2.13 do not know the variable
			}
			took[who], cpu[who] = took[who]+t, cpu[who]+p
			if c.done != nil {
				c.done(round)
			}
		}
	}
	amount *= float64(rounds) / float64(b.N)
	report(b, amount, unit, took[weAre], took[rcloneIs])
	b.ReportMetric(cpu[rcloneIs].Seconds()/cpu[weAre].Seconds(), "x-cpu")
	if noAWS == nil {
		b.ReportMetric(took[awsIs].Seconds()/took[weAre].Seconds(), "x-aws")
	}
}

// processor is what this process has taken of the processor.
func processor(b *testing.B) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func (x *bench) ours(b *testing.B, f func(context.Context) error) time.Duration {
	b.Helper()
	settle()
	began := time.Now()
	if err := f(b.Context()); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

func upload(dir string, to storage.Bucket, key string) func(context.Context) error {
	return func(ctx context.Context) error {
		src, err := transfer.Local(dir)
		if err != nil {
			return err
		}
		defer src.Close()
		_, err = transfer.Upload(ctx, src, to, key, transfer.Options{})
		return err
	}
}

func download(from storage.Bucket, key, dir string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, _, err := transfer.Download(ctx, from, key, dir, transfer.Options{})
		return err
	}
}

func remove(from storage.Bucket, key string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := transfer.Delete(ctx, from, key, transfer.Options{})
		return err
	}
}

// oneFile is 1 GB in a file, and manyFiles are 20,000 of 4 KB.
func oneFile(b *testing.B) (dir string, amount float64) {
	b.Helper()
	dir = b.TempDir()
	f, err := os.Create(filepath.Join(dir, "one"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	source := rand.NewChaCha8([32]byte{1})
	blocks := scaled(1000)
	for range blocks {
		source.Read(block)
		f.Write(block)
	}
	return dir, float64(blocks)
}

func manyFiles(b *testing.B) (dir string, amount float64) {
	b.Helper()
	dir = b.TempDir()
	files := scaled(20_000)
	source := rand.NewChaCha8([32]byte{2})
	block := make([]byte, 4<<10)
	for i := range files {
		source.Read(block)
		sub := filepath.Join(dir, fmt.Sprintf("%02x", i%256))
		if i < 256 {
			os.Mkdir(sub, 0o755)
		}
		if err := os.WriteFile(filepath.Join(sub, strconv.Itoa(i)), block, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return dir, float64(files)
}

// report says how fast it was and how many times as fast as the peer.
func report(b *testing.B, amount float64, unit string, ours, peer time.Duration) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(amount*float64(b.N)/ours.Seconds(), unit)
	b.ReportMetric(amount*float64(b.N)/peer.Seconds(), "rclone-"+unit)
	b.ReportMetric(peer.Seconds()/ours.Seconds(), "x")
}

// pairs measures work that takes a moment beside the peer's.
func pairs(b *testing.B, amount float64, unit string, ours, peer func() time.Duration) {
	b.Helper()
	mine, theirs, ratio := turns(b, ours, peer)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(amount/mine, unit)
	b.ReportMetric(amount/theirs, "rclone-"+unit)
	b.ReportMetric(ratio, "x")
}

// turns is how many seconds work takes: in nine turns for each of b.N, of which both are
// first by turns. They are the medians, and that of the ratios of each turn, so that a busy
// machine changes them little.
func turns(b *testing.B, ours, peer func() time.Duration) (mine, theirs, ratio float64) {
	b.Helper()
	var all, others, ratios []float64
	for i := range 9 * b.N {
		var o, p time.Duration
		if i%2 == 0 {
			p = peer()
		}
		o = ours()
		if i%2 == 1 {
			p = peer()
		}
		all, others, ratios = append(all, o.Seconds()), append(others, p.Seconds()), append(ratios, p.Seconds()/o.Seconds())
	}
	b.Logf("times as fast, in each turn: %.2f", ratios)
	return median(all), median(others), median(ratios)
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// tidy: what was made is removed at once. File systems are slow to make many files where many
// were removed a moment ago, so those stay.
func benchUpload(b *testing.B, tree func(*testing.B) (string, float64), unit string, tidy bool) {
	x := newBench(b)
	dir, amount := tree(b)
	c := contest{
		ours:   func(round string) func(context.Context) error { return upload(dir, x.bucket, round) },
		rclone: func(round string) []string { return []string{"copy", dir, "v:bench/" + round} },
		aws: func(round string) []string {
			return []string{"s3", "cp", "--quiet", "--recursive", dir, "s3://bench/" + round}
		},
	}
	if tidy {
		c.done = func(round string) {
			if err := os.RemoveAll(filepath.Join(x.dir, "bench", round)); err != nil {
				b.Fatal(err)
			}
		}
	}
	c.run(b, x, amount, unit)
}

func benchDownload(b *testing.B, tree func(*testing.B) (string, float64), unit string, tidy bool) {
	x := newBench(b)
	dir, amount := tree(b)
	x.ours(b, upload(dir, x.bucket, "d"))
	x.benchDownload(b, x.bucket, amount, unit, tidy)
}

func (x *bench) benchDownload(b *testing.B, from storage.Bucket, amount float64, unit string, tidy bool) {
	to := b.TempDir()
	at := func(round string) string { return filepath.Join(to, round) }
	c := contest{
		ours:   func(round string) func(context.Context) error { return download(from, "d/", at(round)) },
		rclone: func(round string) []string { return []string{"copy", "v:bench/d", at(round)} },
		aws: func(round string) []string {
			return []string{"s3", "cp", "--quiet", "--recursive", "s3://bench/d", at(round)}
		},
	}
	if tidy {
		c.done = func(round string) { os.RemoveAll(at(round)) }
	}
	c.run(b, x, amount, unit)
}

func BenchmarkUploadOneFile(b *testing.B)     { benchUpload(b, oneFile, "MiB/s", true) }
func BenchmarkDownloadOneFile(b *testing.B)   { benchDownload(b, oneFile, "MiB/s", true) }
func BenchmarkUploadManyFiles(b *testing.B)   { benchUpload(b, manyFiles, "files/s", false) }
func BenchmarkDownloadManyFiles(b *testing.B) { benchDownload(b, manyFiles, "files/s", false) }

// BenchmarkDownloadOneFileFar is over connections of 20 MB/s, much as those of real stores:
// it is their number that counts.
func BenchmarkDownloadOneFileFar(b *testing.B) {
	near := newBench(b)
	dir, amount := oneFile(b)
	near.ours(b, upload(dir, near.bucket, "d"))
	far := *near
	far.endpoint = slow(b, near.endpoint, 20<<20)
	transport := storage.NewTransport()
	b.Cleanup(transport.CloseIdleConnections)
	bucket, err := s3.Open(b.Context(), storage.Location{Store: storage.S3, Bucket: "bench"}, s3Options(far.endpoint, transport))
	if err != nil {
		b.Fatal(err)
	}
	far.benchDownload(b, bucket, amount, "MiB/s", true)
}

// far puts the server as far away as a delay of each answer.
func (x *bench) far(b *testing.B, delay time.Duration) {
	at, err := url.Parse(x.endpoint)
	if err != nil {
		b.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at); r.Out.Host = r.In.Host },
		ModifyResponse: func(r *http.Response) error {
			time.Sleep(delay)
			return nil
		},
	}
	server := httptest.NewServer(proxy)
	b.Cleanup(server.Close)
	x.endpoint = server.URL
	transport := storage.NewTransport()
	b.Cleanup(transport.CloseIdleConnections)
	if x.bucket, err = s3.Open(b.Context(), storage.Location{Store: storage.S3, Bucket: "bench"}, s3Options(x.endpoint, transport)); err != nil {
		b.Fatal(err)
	}
}

// slow forwards connections to a server, of whose answers so many bytes pass in a second.
func slow(b *testing.B, endpoint string, bytes int) (through string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "http://"))
			if err != nil {
				from.Close()
				return
			}
			go func() { io.Copy(to, from); to.Close() }()
			go func() {
				defer from.Close()
				p := make([]byte, bytes/100)
				next := time.Now()
				for {
					n, err := to.Read(p)
					if n > 0 {
						if _, err := from.Write(p[:n]); err != nil {
							return
						}
						now := time.Now()
						if next.Before(now) {
							next = now
						}
						next = next.Add(time.Duration(n) * time.Second / time.Duration(bytes))
						time.Sleep(time.Until(next))
					}
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// BenchmarkDelete deletes 100,000 objects; the peer a tenth of that.
func BenchmarkDelete(b *testing.B) {
	x := newBench(b)
	objects := scaled(100_000)
	make := func(key string, n int) {
		for i := range n {
			sub := filepath.Join(x.dir, "bench", key, fmt.Sprintf("%03x", i%1024))
			if i < 1024 {
				os.MkdirAll(sub, 0o755)
			}
			if err := os.WriteFile(filepath.Join(sub, strconv.Itoa(i)), nil, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	var ours, peer time.Duration
	for range b.N {
		make("o", objects)
		ours += x.ours(b, remove(x.bucket, "o"))
		make("r", objects/10)
		peer += 10 * x.rclone(b, "delete", "v:bench/r")
	}
	report(b, float64(objects), "objects/s", ours, peer)
}
