//go:build unix

package filesync

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	benchFolders = 200
	benchFiles   = 100 // in each
)

// sourceOfManyFiles makes 20,000 files of 1 to 4 KiB that look like program
// text.
func sourceOfManyFiles(b *testing.B) string {
	b.Helper()
	src := b.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	var text bytes.Buffer
	for text.Len() < 64<<10 {
		fmt.Fprintf(&text, "%x ", r.Uint32N(1<<(r.UintN(30)+2)))
	}
	for i := range benchFolders {
		dir := filepath.Join(src, fmt.Sprintf("pkg%d/module%d", i/20, i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range benchFiles {
			at, size := r.IntN(60<<10), 1024+r.IntN(3072)
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file_%d.py", j)), text.Bytes()[at:at+size], 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	return src
}

// BenchmarkFirst and BenchmarkUnchanged have rsync -a beside them.
func BenchmarkFirst(b *testing.B) {
	src := sourceOfManyFiles(b)
	top := b.TempDir()
	b.Run("sky", func(b *testing.B) {
		conn := serve(b, top)
		defer cpu(b)()
		for i := 0; b.Loop(); i++ {
			dst := filepath.Join(top, fmt.Sprintf("sky%d-%d", b.N, i))
			if _, err := Send(b.Context(), conn, Options{Src: Local(src), Dst: dst}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("rsync", func(b *testing.B) {
		rsync := findRsync(b)
		defer cpu(b)()
		for i := 0; b.Loop(); i++ {
			runRsync(b, rsync, src, filepath.Join(top, fmt.Sprintf("rsync%d-%d", b.N, i)))
		}
	})
}

func BenchmarkUnchanged(b *testing.B) {
	src := sourceOfManyFiles(b)
	dst := filepath.Join(b.TempDir(), "dst")
	conn := serve(b, dst)
	o := Options{Src: Local(src), Dst: dst}
	if _, err := Send(b.Context(), conn, o); err != nil {
		b.Fatal(err)
	}
	b.Run("sky", func(b *testing.B) {
		defer cpu(b)()
		for b.Loop() {
			if st, err := Send(b.Context(), conn, o); err != nil || st.Sent != 0 {
				b.Fatal(st, err)
			}
		}
	})
	b.Run("rsync", func(b *testing.B) {
		rsync := findRsync(b)
		defer cpu(b)()
		for b.Loop() {
			runRsync(b, rsync, src, dst)
		}
	})
}

// BenchmarkLarge sends one file of 256 MiB that does not compress.
func BenchmarkLarge(b *testing.B) {
	src, top := b.TempDir(), b.TempDir()
	write(b, src, map[string]string{"f": strings.Repeat(noise(1<<20-1), 256)})
	b.Run("sky", func(b *testing.B) {
		b.SetBytes(256 << 20)
		conn := serve(b, top)
		defer cpu(b)()
		for i := 0; b.Loop(); i++ {
			if _, err := Send(b.Context(), conn, Options{Src: Local(src), Dst: filepath.Join(top, fmt.Sprintf("sky%d-%d", b.N, i))}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("rsync", func(b *testing.B) {
		b.SetBytes(256 << 20)
		rsync := findRsync(b)
		defer cpu(b)()
		for i := 0; b.Loop(); i++ {
			runRsync(b, rsync, src, filepath.Join(top, fmt.Sprintf("rsync%d-%d", b.N, i)))
		}
	})
}

// cpu reports the processor time of both ends together, which says more than
// the clock when the machine is busy. Its result is to be called at the end.
func cpu(b *testing.B) func() {
	used := func() (d time.Duration) {
		for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
			var u syscall.Rusage
			if err := syscall.Getrusage(who, &u); err != nil {
				b.Fatal(err)
			}
			d += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
		return d
	}
	before := used()
	return func() { b.ReportMetric(float64((used()-before).Microseconds())/1000/float64(b.N), "cpu-ms/op") }
}

func findRsync(b *testing.B) string {
	path, err := exec.LookPath("rsync")
	if err != nil {
		b.Skip("rsync is not installed, so there is nothing to compare with")
	}
	return path
}

func runRsync(b *testing.B, rsync, src, dst string) {
	if out, err := exec.Command(rsync, "-a", src+"/", dst+"/").CombinedOutput(); err != nil {
		b.Fatalf("rsync: %v: %s", err, out)
	}
}
