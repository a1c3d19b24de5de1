package cluster

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/diskspace"
)

// tarOf makes an archive.
func tarOf(t *testing.T, entries ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// What a node sends as logs takes bounded room.
func TestUntarIsBounded(t *testing.T) {
	many := make([]tar.Header, 40)
	for i := range many {
		many[i] = tar.Header{Name: fmt.Sprint("f", i)}
	}
	for _, c := range []struct {
		name    string
		archive io.Reader
		bytes   int64
		entries int
		fits    bool
	}{
		{"what fits", tarOf(t, tar.Header{Name: "1-job/run.log", Size: 100}), 2*entryBytes + 100, 2, true},
		{"a byte too many", tarOf(t, tar.Header{Name: "1-job/run.log", Size: 100}), 2*entryBytes + 99, 2, false},
		{"a file too many", tarOf(t, many...), 1 << 30, 39, false},
		{"empty files", tarOf(t, many...), 39 * entryBytes, 100, false},
		{"a deep folder", tarOf(t, tar.Header{Name: strings.Repeat("n/", 50), Typeflag: tar.TypeDir}), 1 << 30, 49, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			room := &diskspace.Share{
				Ledger: &diskspace.Ledger{Dir: t.TempDir(), Count: func() map[string]int64 { return nil }},
				User:   "ann", Limits: diskspace.Limits{User: c.bytes, All: 1 << 50, KeepFree: 1},
			}
			left := c.entries
			err := untar(c.archive, filepath.Join(t.TempDir(), "out"), room, &left)
			_, full := errors.AsType[*diskspace.NoRoomError](err)
			_, many := errors.AsType[*bounded.TooMuchError](err)
			if c.fits && err != nil || !c.fits && !full && !many {
				t.Errorf("got %v", err)
			}
			room.Return()
			if used := room.Ledger.Used("ann"); used != 0 {
				t.Errorf("%d bytes are still taken", used)
			}
		})
	}
}

func TestUntarStaysInItsFolder(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	left := mostEntries
	if err := untar(tarOf(t, tar.Header{Name: "../x", Size: 1}), out, nil, &left); err == nil {
		t.Error("a file outside")
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(out), "x")); err == nil {
		t.Error("it is there")
	}
}
