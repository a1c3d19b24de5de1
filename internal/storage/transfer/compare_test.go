package transfer

import (
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/storage"
)

func TestCompare(t *testing.T) {
	old := time.Unix(1_700_000_000, 5)
	after := old.Add(time.Hour)
	meta := func(a storage.Attributes) map[string]string { return a.Metadata(nil) }
	md5, other := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	big := int64(100 << 20)
	for _, c := range []struct {
		name   string
		f      local
		o      storage.Object
		reread bool
		want   verdict
	}{
		{"another size", local{size: 1}, storage.Object{Size: 2, MD5: md5}, false, differs},
		{"nothing there", local{size: 0}, storage.Object{Size: -1}, false, differs},
		{"small, with an MD5: read", local{size: 1, mtime: old}, storage.Object{Size: 1, MD5: md5}, false, readLocal},
		{"small, without: ask", local{size: 1, mtime: old}, storage.Object{Size: 1}, false, askStore},
		{"large, with an MD5: ask", local{size: big, mtime: old}, storage.Object{Size: big, MD5: md5}, false, askStore},
		{"the same time", local{size: 1, mtime: old}, storage.Object{Size: 1, Modified: after, Metadata: meta(storage.Attributes{ModTime: old})}, false, same},
		{"the same time, to be read", local{size: 1, mtime: old}, storage.Object{Size: 1, Modified: after, Metadata: meta(storage.Attributes{ModTime: old, Hash: "h"})}, true, readLocal},
		{"the same time, too fresh", local{size: 1, mtime: old}, storage.Object{Size: 1, Modified: old.Add(time.Second), Metadata: meta(storage.Attributes{ModTime: old, Hash: "h"})}, false, readLocal},
		{"the same time, before a power failure", local{size: 1, mtime: old, doubtful: true}, storage.Object{Size: 1, Modified: after, Metadata: meta(storage.Attributes{ModTime: old, Hash: "h"})}, false, readLocal},
		{"the same time, before a power failure, and no hash", local{size: 1, mtime: old, doubtful: true}, storage.Object{Size: 1, Modified: after, Metadata: meta(storage.Attributes{ModTime: old})}, false, same},
		{"another time", local{size: 1, mtime: old.Add(1)}, storage.Object{Size: 1, Modified: after, Metadata: meta(storage.Attributes{ModTime: old, Hash: "h"})}, false, readLocal},
		{"the object's own time", local{size: 1, mtime: old.Truncate(time.Second)}, storage.Object{Size: 1, Modified: old, Metadata: map[string]string{}}, false, same},
		{"not the object's own time", local{size: 1, mtime: old.Add(time.Second)}, storage.Object{Size: 1, Modified: old, Metadata: map[string]string{}}, false, differs},
		{"nothing to compare with", local{size: 1, mtime: old}, storage.Object{Size: 1, Modified: after, Metadata: map[string]string{}}, false, differs},
		{"read: the same MD5", local{size: 1, md5: md5, hash: "h"}, storage.Object{Size: 1, MD5: md5}, false, same},
		{"read: another MD5, which may be none", local{size: 1, md5: md5, hash: "h"}, storage.Object{Size: 1, MD5: other}, false, askStore},
		{"read: the same hash", local{size: 1, md5: md5, hash: "h"}, storage.Object{Size: 1, MD5: other, Metadata: meta(storage.Attributes{Hash: "h"})}, false, same},
		{"read: another hash", local{size: 1, md5: md5, hash: "h"}, storage.Object{Size: 1, MD5: other, Metadata: meta(storage.Attributes{Hash: "i"})}, false, differs},
		{"read: no hash", local{size: 1, hash: "h"}, storage.Object{Size: 1, Metadata: map[string]string{}}, false, differs},
		{"another checksum: read", local{size: big, mtime: old}, storage.Object{Size: big, Digest: "sha256:1", Metadata: map[string]string{}}, false, readLocal},
		{"read: the same checksum", local{size: big, hash: "h", digest: "sha256:1"}, storage.Object{Size: big, Digest: "sha256:1", Metadata: map[string]string{}}, false, same},
		{"read: another checksum", local{size: big, hash: "h", digest: "sha256:2"}, storage.Object{Size: big, Digest: "sha256:1", Metadata: map[string]string{}}, false, differs},
		{"a link", local{size: 0, mtime: old}, storage.Object{Modified: after, Metadata: meta(storage.Attributes{ModTime: old, Link: "x"})}, false, differs},
	} {
		t.Run(c.name, func(t *testing.T) {
			was := chunk
			chunk = 8 << 20
			defer func() { chunk = was }()
			if got := compare(c.f, c.o, c.reread); got != c.want {
				t.Errorf("verdict %d, want %d", got, c.want)
			}
		})
	}
}

func TestLocalPaths(t *testing.T) {
	long := strings.Repeat("n", 255)
	for _, c := range []struct {
		key, prefix, at string
		folder          bool
		why             string
	}{
		{"a", "", "a", false, ""},
		{"p/a/b", "p/", "a/b", false, ""},
		{"p/a/", "p/", "a", true, ""},
		{"p/", "p/", "", true, ""},
		{long, "", long, false, ""},
		{"...", "", "...", false, ""},
		{"..a/b..", "", "..a/b..", false, ""},
		{"q/a", "p/", "", false, "does not begin"},
		{"p//a", "p/", "", false, "begins with a slash"},
		{"/a", "", "", false, "begins with a slash"},
		{"/", "", "", false, "begins with a slash"},
		{"a//b", "", "", false, "two slashes"},
		{"a//", "", "", false, "two slashes"},
		{"..", "", "", false, `".."`},
		{"a/..", "", "", false, `".."`},
		{"a/../../b", "", "", false, `".."`},
		{"p/../b", "p/", "", false, `".."`},
		{"./a", "", "", false, `"."`},
		{"a/./", "", "", false, `"."`},
		{"a\x00b", "", "", false, "zero byte"},
		{long + "n", "", "", false, "256 bytes"},
		{"d/.sky-copy-12-34.part", "", "", false, "unfinished"},
	} {
		at, folder, err := localPath(c.key, c.prefix)
		if c.why != "" {
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%q below %q: %q, %v, want an error with %q", c.key, c.prefix, at, err, c.why)
			}
		} else if at != c.at || folder != c.folder || err != nil {
			t.Errorf("%q below %q: %q, %v, %v, want %q, %v", c.key, c.prefix, at, folder, err, c.at, c.folder)
		}
	}
}

// Any key is refused or is the path of a file below the folder, and of no other key.
func TestLocalPathsAreKeys(t *testing.T) {
	key := rapid.OneOf(rapid.String(), rapid.StringMatching(`([a-b.]{0,2}/){0,4}[a-b.]{0,2}`))
	rapid.Check(t, func(t *rapid.T) {
		k, prefix := key.Draw(t, "key"), rapid.SampledFrom([]string{"", "a/"}).Draw(t, "prefix")
		at, folder, err := localPath(prefix+k, prefix)
		if err != nil {
			return
		}
		back := at
		if folder && at != "" {
			back += "/"
		}
		if back != k {
			t.Errorf("%q became %q", k, at)
		}
		for name := range strings.SplitSeq(at, "/") {
			if name == ".." || name == "." || strings.ContainsRune(name, 0) || name == "" && at != "" {
				t.Errorf("%q became %q", k, at)
			}
		}
	})
}

func TestFilesInPlaceOfFolders(t *testing.T) {
	for _, c := range []struct {
		keys, bad string // in order
	}{
		{"a b c", ""},
		{"a a-b a.c a/b", "a/b"},
		{"a a-b a-b/c a.c a/b/c", "a-b/c a/b/c"},
		{"a/b a/b/c a/c", "a/b/c"},
		{"ab abc abc/d ab/e", "abc/d ab/e"},
		{"a/b ab/c", ""},
	} {
		var seen tree
		var bad []string
		for _, k := range strings.Fields(c.keys) {
			if err := seen.add(k); err != nil {
				bad = append(bad, k)
			}
		}
		if fmt.Sprint(bad) != fmt.Sprint(strings.Fields(c.bad)) {
			t.Errorf("%s: refused %q, want %q", c.keys, bad, c.bad)
		}
	}
}

func TestWindowsNames(t *testing.T) {
	for _, name := range strings.Split(`a:b|a\b|a*|CON|con.txt|Com1|lpt9.log|nul |dot.|space |tab	x|"q"`, "|") {
		if checkWindows(name) == nil {
			t.Errorf("%q is taken", name)
		}
	}
	for _, name := range []string{"a", "com", "com10", "console", "COMX", "a.b", ".hidden", "x y"} {
		if err := checkWindows(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestPartSizes(t *testing.T) {
	was := chunk
	chunk = 8 << 20
	defer func() { chunk = was }()
	caps := storage.Caps{MinPart: 5 << 20, MaxParts: 10_000}
	for _, c := range []struct{ size, want int64 }{{100 << 20, 8 << 20}, {80_000 << 20, 8 << 20}, {80_001 << 20, 16 << 20}, {5 << 40, 528 << 20}} {
		got := partSize(c.size, 8<<20, caps)
		if got != c.want || (c.size+got-1)/got > 10_000 {
			t.Errorf("%d MiB: parts of %d MiB, want %d", c.size>>20, got>>20, c.want>>20)
		}
	}
	if got := partSize(1, 8<<20, storage.Caps{MinPart: 20 << 20}); got != 24<<20 {
		t.Errorf("a store of large parts: %d", got)
	}
}

// A hash stays what it is: objects carry it.
func TestHashes(t *testing.T) {
	abc := sumOf([]byte("abc"))
	for _, c := range []struct {
		got, want string
	}{
		{hashOf([]sum{sumOf(nil)}), "b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
		{hashOf([]sum{abc}), "b3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"},
	} {
		if c.got != c.want {
			t.Errorf("hash %s, want %s", c.got, c.want)
		}
	}
	two := sumOf(append(abc[:], abc[:]...))
	if got := hashOf([]sum{abc, abc}); got != fmt.Sprintf("b3x8m:%x", two) {
		t.Errorf("hash of two pieces %s", got)
	}
}

func TestDigests(t *testing.T) {
	for like, want := range map[string]string{
		"sha256:x": "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		"git:x":    "git:f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f",
	} {
		h := digester(like, 3)
		h.Write([]byte("abc"))
		if got := digest(like, h); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if digester("crc:1", 3) != nil || digester("", 3) != nil {
		t.Error("a digest of an unknown kind")
	}
}

func TestCRCsOfPieces(t *testing.T) {
	if got := crcOf([]uint32{crc32.Checksum([]byte("123456789"), castagnoli)}, 9); got != "e3069283" {
		t.Errorf("crc %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, 5*chunk+1).Draw(t, "size")
		text := []byte(content(int(size), uint64(rapid.IntRange(0, 1000).Draw(t, "seed"))))
		var crcs []uint32
		for at := int64(0); at < size || len(crcs) == 0; at += chunk {
			crcs = append(crcs, crc32.Checksum(text[at:min(at+chunk, size)], castagnoli))
		}
		if got, want := crcOf(crcs, size), fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli)); got != want {
			t.Errorf("%d bytes: %s, want %s", size, got, want)
		}
	})
}
