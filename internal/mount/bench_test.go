//go:build linux

package mount

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/storage"
)

// benchSize is how many bytes the large file of the benchmarks has; SKY_BENCH_MB says
// otherwise.
func benchSize() int {
	if n, err := strconv.Atoi(os.Getenv("SKY_BENCH_MB")); err == nil {
		return n << 20
	}
	return 1 << 30
}

// memory is what the helper takes now, and took at most, in MB.
func (r *rig) memory() (now, most float64) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.helper.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "VmRSS:":
			now = kb / 1024
		case "VmHWM:":
			most = kb / 1024
		}
	}
	return now, most
}

func (r *rig) put(key string, data []byte) {
	r.t.Helper()
	if _, err := r.bucket().Put(r.t.Context(), key, bytes.NewReader(data), storage.PutOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) remount(q mountapi.MountRequest) {
	r.t.Helper()
	waitFor(r.t, "the unmount", func() bool {
		return r.client.Unmount(r.t.Context(), mountapi.UnmountRequest{Path: q.Spec.Path}) == nil
	})
	r.mount(q)
}

// Reading one large file from its beginning to its end, each time anew.
func BenchmarkSequentialRead(b *testing.B) {
	for _, mode := range []mountapi.Mode{mountapi.Direct, mountapi.Cached} {
		b.Run(string(mode), func(b *testing.B) {
			r := newRig(b)
			data := make([]byte, benchSize())
			r.put("large", data)
			q := r.request()
			q.Spec.Mode = mode
			buf := make([]byte, 1<<20)
			b.SetBytes(int64(len(data)))
			n := 0
			for b.Loop() {
				b.StopTimer()
				n++
				r.put("large", append(data[:len(data)-1], byte(n))) // nothing of it is known
				r.remount(q)
				b.StartTimer()
				f, err := os.Open(r.file("large"))
				if err != nil {
					b.Fatal(err)
				}
				for total := 0; ; {
					k, err := f.Read(buf)
					total += k
					if err == io.EOF {
						if total != len(data) {
							b.Fatalf("%d bytes", total)
						}
						break
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				f.Close()
			}
			_, most := r.memory()
			b.ReportMetric(most, "MB-at-most")
		})
	}
}

// Writing one large file straight into the bucket.
func BenchmarkSequentialWrite(b *testing.B) {
	r := newRig(b)
	r.mount(r.request())
	size := benchSize()
	buf := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	b.SetBytes(int64(size))
	for b.Loop() {
		f, err := os.Create(r.file("large"))
		if err != nil {
			b.Fatal(err)
		}
		for n := 0; n < size; n += len(buf) {
			if _, err := f.Write(buf); err != nil {
				b.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
	_, most := r.memory()
	b.ReportMetric(most, "MB-at-most")
}

// The time from open to the first byte of a large file that nothing is known of.
func BenchmarkFirstByte(b *testing.B) {
	r := newRig(b)
	r.put("large", make([]byte, 256<<20))
	r.mount(r.request())
	p := make([]byte, 1)
	for b.Loop() {
		f, err := os.Open(r.file("large"))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.Read(p); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		f.Close()
		r.remount(r.request())
		b.StartTimer()
	}
}

// Listing a folder of 10,000 entries that nothing is known of.
func BenchmarkList10000(b *testing.B) {
	r := newRig(b)
	for i := range 10_000 {
		r.put(fmt.Sprintf("dir/file-%05d", i), []byte("x"))
	}
	r.mount(r.request())
	for b.Loop() {
		f, err := os.Open(r.file("dir"))
		if err != nil {
			b.Fatal(err)
		}
		names, err := f.Readdirnames(-1)
		f.Close()
		if err != nil || len(names) != 10_000 {
			b.Fatalf("%d names, %v", len(names), err)
		}
		b.StopTimer()
		r.remount(r.request())
		b.StartTimer()
	}
}

// Writing one large file and syncing it: the disk itself, and the cache upon it.
func BenchmarkCachedWrite(b *testing.B) {
	r := newRig(b)
	q := r.cached(time.Hour)
	r.mount(q)
	size := benchSize()
	buf := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	write := func(b *testing.B, dir string) {
		b.SetBytes(int64(size))
		for b.Loop() {
			f, err := os.Create(filepath.Join(dir, "large"))
			if err != nil {
				b.Fatal(err)
			}
			for n := 0; n < size; n += len(buf) {
				if _, err := f.Write(buf); err != nil {
					b.Fatal(err)
				}
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
			f.Close()
			b.StopTimer()
			os.Remove(filepath.Join(dir, "large"))
			b.StartTimer()
		}
	}
	b.Run("disk", func(b *testing.B) { write(b, b.TempDir()) })
	b.Run("cache", func(b *testing.B) { write(b, r.path) })
}

// Making many small files, each of which is safe when its close returns.
func BenchmarkCachedSmallFiles(b *testing.B) {
	r := newRig(b)
	r.mount(r.cached(time.Hour))
	text := bytes.Repeat([]byte("x"), 4096)
	n := 0
	for b.Loop() {
		n++
		if err := os.WriteFile(r.file(strconv.Itoa(n)), text, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "files/s")
}

// From the moment that the store has the last byte to the end of the flush.
func BenchmarkBarrier(b *testing.B) {
	r := newRig(b)
	r.mount(r.cached(time.Hour))
	var late time.Duration
	n := 0
	for b.Loop() {
		n++
		name := "file" + strconv.Itoa(n)
		if err := os.WriteFile(r.file(name), []byte("text"), 0o644); err != nil {
			b.Fatal(err)
		}
		if _, err := r.client.Flush(b.Context(), mountapi.FlushRequest{}); err != nil {
			b.Fatal(err)
		}
		x, err := r.bucket().Stat(b.Context(), name)
		if err != nil {
			b.Fatal(err)
		}
		late += time.Since(x.Modified)
	}
	b.ReportMetric(float64(late.Milliseconds())/float64(n), "ms-after-the-last-byte")
}

// A flush without anything to wait for, and what an idle mount takes.
func BenchmarkEmptyFlush(b *testing.B) {
	r := newRig(b)
	r.mount(r.cached(time.Second))
	for b.Loop() {
		if _, err := r.client.Flush(b.Context(), mountapi.FlushRequest{}); err != nil {
			b.Fatal(err)
		}
	}
	now, _ := r.memory()
	b.ReportMetric(now, "MB-idle")
}
