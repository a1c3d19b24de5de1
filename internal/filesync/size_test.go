//go:build unix

package filesync

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zeebo/blake3"
)

func TestCompressedWhenTheWayIsSlow(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	text := map[string]string{"noise": noise(1 << 20)}
	for i := range 400 {
		text[fmt.Sprint(i)] = strings.Repeat(fmt.Sprintf("line %d of a text\n", i), 500)
	}
	text["log"] = strings.Repeat("a longer text, over and over again\n", 100_000)
	write(t, src, text)
	a, b := net.Pipe()
	done := make(chan error)
	go func() { done <- Serve(t.Context(), b, home) }()
	slow := &tap{Conn: a, onWrite: func() { time.Sleep(time.Millisecond) }}
	var last Progress
	st, err := Send(t.Context(), slow, Options{Src: Local(src), Dst: "d", Progress: func(p Progress) { last = p }})
	must(t, err)
	a.Close()
	must(t, <-done)
	equal(t, src, filepath.Join(home, "d"))
	if st.WireBytes > st.SentBytes/2 {
		t.Errorf("%+v", st)
	}
	if last.Files != st.Files || last.Sent != st.Sent || last.Done != st.Bytes || last.WantedBytes != st.Bytes {
		t.Errorf("the last progress was %+v, the end %+v", last, st)
	}
}

func TestManyZeros(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	const size = 100<<20 + 5
	path := filepath.Join(src, "sparse")
	write(t, src, map[string]string{"sparse": "start"})
	must(t, os.Truncate(path, size))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("middle"), 50<<20)
	must(t, err)
	must(t, f.Close())
	st, err := Send(t.Context(), serve(t, home), Options{Src: Local(src), Dst: "d"})
	must(t, err)
	if st.WireBytes > 1<<20 || st.SentBytes != size {
		t.Errorf("%+v", st)
	}
	copied := filepath.Join(home, "d/sparse")
	info, err := os.Stat(copied)
	must(t, err)
	if info.Size() != size || info.Sys().(*syscall.Stat_t).Blocks > 4096 {
		t.Errorf("%d bytes in %d blocks", info.Size(), info.Sys().(*syscall.Stat_t).Blocks)
	}
	if sumOf(t, path) != sumOf(t, copied) {
		t.Error("the content differs")
	}
}

func sumOf(t testing.TB, path string) hash {
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	h := blake3.New()
	_, err = io.Copy(h, f)
	must(t, err)
	var sum hash
	h.Sum(sum[:0])
	return sum
}

func TestNumbersBeyond32Bits(t *testing.T) {
	c := chunk{block: 1, item: 2, flags: chunkZero, offset: 1 << 41, zeros: chunkBytes}
	got, err := readChunk(appendChunk(nil, &c))
	if err != nil || got.offset != c.offset || got.len() != chunkBytes {
		t.Errorf("%+v, %v", got, err)
	}
	b := block{path: "a", items: []item{{name: "n", size: 5 << 40, mtime: -1 << 60}, {name: "m", mtime: 1 << 62, kind: kindLink, target: "t"}}}
	d := decoder{b: appendBlock(nil, &b)}
	if got := readBlock(&d); d.end() != nil || fmt.Sprint(*got) != fmt.Sprint(b) {
		t.Errorf("%+v, %v", got, d.err)
	}
}
