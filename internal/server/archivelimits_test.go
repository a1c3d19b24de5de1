package server

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/state"
)

func TestWhichChunkOfHowMany(t *testing.T) {
	for _, c := range []struct {
		query        string
		index, total int
		good         bool
	}{
		{"", 0, 1, true},
		{"chunk_index=0", 0, 1, true},
		{"chunk_index=1", 0, 0, false},
		{"chunk_index=1&total_chunks=2", 1, 2, true},
		{"chunk_index=2&total_chunks=2", 0, 0, false},
		{"chunk_index=0&total_chunks=0", 0, 0, false},
		{"chunk_index=9999&total_chunks=10000", 9999, 10_000, true},
		{"chunk_index=0&total_chunks=10001", 0, 0, false},
		{"chunk_index=-1&total_chunks=2", 0, 0, false},
		{"chunk_index=x&total_chunks=2", 0, 0, false},
		{"chunk_index=0&total_chunks=x", 0, 0, false},
	} {
		q, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		index, total, problems := chunkRange(q)
		if good := problems == nil; good != c.good || good && (index != c.index || total != c.total) {
			t.Errorf("%q: %d of %d, %v", c.query, index, total, problems)
		}
	}
}

func TestLimitsOfUploadsComeFromTheEnvironment(t *testing.T) {
	names := []string{"SKY_MAX_UPLOADED_BYTES_PER_USER", "SKYPILOT_MAX_STORED_FILE_MOUNTS_BYTES", "SKYPILOT_MAX_UPLOAD_TOTAL_BYTES",
		"SKY_MAX_UPLOAD_ENTRIES", "SKY_MAX_UPLOAD_RATIO", "SKY_UPLOADS_KEEP_FREE_BYTES"}
	most := []string{"2305843009213693951", "2305843009213693951", "2305843009213693951", "10000000", "1000000", "2305843009213693951"}
	read := func(env map[string]string) ([6]int64, error) {
		l, err := UploadLimitsFrom(func(name string) string { return env[name] })
		return [6]int64{l.User, l.All, l.One, int64(l.Entries), l.Ratio, l.KeepFree}, err
	}
	if got, err := read(nil); err != nil || got != [6]int64{} {
		t.Errorf("nothing is set: %v %v", got, err)
	}
	for i, name := range names {
		for value, want := range map[string]int64{"1": 1, " 17 ": 17, most[i]: -1} {
			got, err := read(map[string]string{name: value})
			if want < 0 {
				want = got[i]
			}
			if err != nil || got[i] != want || want == 0 {
				t.Errorf("%s=%s: %v %v", name, value, got, err)
			}
		}
		for _, bad := range []string{"0", "-1", "x", "1.5", most[i] + "0", "2305843009213693952"} {
			if got, err := read(map[string]string{name: bad}); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%s: %v %v", name, bad, got, err)
			}
		}
	}
	for _, beyond := range []string{"10000001", "1000001"} {
		name := map[string]string{"10000001": names[3], "1000001": names[4]}[beyond]
		if _, err := read(map[string]string{name: beyond}); err == nil {
			t.Errorf("%s=%s is taken", name, beyond)
		}
	}
	// Every variable that is wrong is told.
	_, err := read(map[string]string{names[0]: "x", names[5]: "0"})
	if err == nil || !strings.Contains(err.Error(), names[0]) || !strings.Contains(err.Error(), names[5]) {
		t.Error(err)
	}
	if l := (UploadLimits{}).filled(); l != (UploadLimits{User: 53687091200, Entries: 500_000, Ratio: 100, KeepFree: 536870912}) {
		t.Errorf("by default: %+v", l)
	}
	own := UploadLimits{User: 1, All: 2, One: 3, Entries: 4, Ratio: 5, KeepFree: 6}
	if l := own.filled(); l != own {
		t.Errorf("%+v becomes %+v", own, l)
	}
}

// refusedWith is how an error is answered; 200: it is none.
func refusedWith(err error) int {
	if e, ok := errors.AsType[*refusedUpload](err); ok {
		return e.status
	}
	if err != nil {
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

// ledgerOf is a ledger of users who have so much.
func ledgerOf(home string, by map[string]int64) *ledger {
	return &ledger{diskspace.Ledger{Dir: home, Count: func() map[string]int64 { return by }}}
}

// A limit is how much may be there: so much is taken, and no byte more.
func TestUploadsMayTakeAllOfTheirLimits(t *testing.T) {
	const free = 1 // stays free
	home := t.TempDir()
	disk, err := diskspace.Free(home)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		limits UploadLimits
		n      int64
		want   int
	}{
		{"all of a user's", UploadLimits{User: 10, KeepFree: free}, 4, 200},
		{"more than a user's", UploadLimits{User: 10, KeepFree: free}, 5, http.StatusRequestEntityTooLarge},
		{"all of everybody's", UploadLimits{User: 100, All: 13, KeepFree: free}, 4, 200},
		{"more than everybody's", UploadLimits{User: 100, All: 13, KeepFree: free}, 5, http.StatusInsufficientStorage},
		{"what fits beside the rest", UploadLimits{User: math.MaxInt64 / 2, KeepFree: free}, 4, 200},
		{"more than the disk has", UploadLimits{User: math.MaxInt64 / 2, KeepFree: disk}, 1 << 40, http.StatusInsufficientStorage},
	} {
		l := ledgerOf(home, map[string]int64{"ab12": 6, "cd34": 3})
		if got := refusedWith(l.take("ab12", c.n, c.limits)); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		want := int64(6)
		if c.want == 200 {
			want += c.n
		}
		if ab, cd := l.Used("ab12"), l.Used("cd34"); ab != want || cd != 3 {
			t.Errorf("%s: %d and %d are taken", c.name, ab, cd)
		}
	}
}

func TestALedgerCountsWhatIsThere(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.file(BlobDir("ab12", testBlob)+"/x", "12345")
	env.file(clientsDir+"/ab12/uploads/sky-1.parts/part0", "678")
	env.file(clientsDir+"/cd34/uploads/x", "9")
	l := newLedger(env.home)
	l.Give("ab12", 100) // nothing is counted yet
	limits := UploadLimits{}.filled()
	limits.KeepFree = 1
	limits.User = 9
	if err := l.take("ab12", 1, limits); err != nil {
		t.Errorf("8 of 9 bytes are there: %v", err)
	}
	if err := l.take("ab12", 1, limits); err == nil {
		t.Error("a tenth byte of 9 is taken")
	}
	l.Give("ab12", 1)
	if err := l.take("ab12", 1, limits); err != nil {
		t.Errorf("what was given back is not there: %v", err)
	}
	l.Give("ab12", 100) // more than there was
	if err := l.take("ab12", 10, limits); err == nil {
		t.Error("a user has less than nothing")
	}
	l.Recount()
	if err := l.take("ab12", 2, limits); err == nil {
		t.Error("the files are not counted again")
	}
}

// saysSize is an archive of one stored file whose directory claims another size.
func saysSize(t *testing.T, size uint32) []byte {
	t.Helper()
	data := hostileZip(t, zip.FileHeader{Name: "z", Method: zip.Store})
	at := bytes.LastIndex(data, []byte("PK\x01\x02"))
	binary.LittleEndian.PutUint32(data[at+24:], size)
	return data
}

func TestWhatAnArchiveMayHold(t *testing.T) {
	named := func(names ...string) []byte {
		list := []zip.FileHeader{}
		for _, n := range names {
			list = append(list, zipFileOf(n))
		}
		return hostileZip(t, list...)
	}
	folder := func(name string, mode fs.FileMode) []byte {
		h := zip.FileHeader{Name: name}
		h.SetMode(mode)
		return hostileZip(t, h)
	}
	for _, c := range []struct {
		name   string
		data   []byte
		size   int64 // of the archive; 0: as it is
		limits UploadLimits
		want   int
	}{
		{"as many entries as may be", named("a", "b"), 0, UploadLimits{Entries: 2}, 200},
		{"one more", named("a", "b", "c"), 0, UploadLimits{Entries: 2}, http.StatusRequestEntityTooLarge},
		{"as much as may be", named("a", "b"), 0, UploadLimits{One: 8}, 200},
		{"a byte more", named("a", "b"), 0, UploadLimits{One: 7}, http.StatusRequestEntityTooLarge},
		{"a path as deep as may be", named(strings.Repeat("d/", 255) + "f"), 0, UploadLimits{}, 200},
		{"one deeper", named(strings.Repeat("d/", 256) + "f"), 0, UploadLimits{}, http.StatusBadRequest},
		{"a folder as deep as may be", folder(strings.Repeat("d/", 256), fs.ModeDir|0o755), 0, UploadLimits{}, 200},
		{"a path as long as may be", named(strings.Repeat("n", 4095)), 0, UploadLimits{}, 200},
		{"one longer", named(strings.Repeat("n", 4096)), 0, UploadLimits{}, http.StatusBadRequest},
		{"no name", named(""), 0, UploadLimits{}, http.StatusBadRequest},
		{"the folder itself as a file", named("a/.."), 0, UploadLimits{}, http.StatusBadRequest},
		{"a folder that says it is a link", folder("d/", fs.ModeSymlink|0o777), 0, UploadLimits{}, http.StatusBadRequest},
		{"a folder twice", hostileZip(t, zip.FileHeader{Name: "d/"}, zip.FileHeader{Name: "d/"}), 0, UploadLimits{}, 200},
		{"a folder and a file in it", named("d/", "d/f"), 0, UploadLimits{}, 200},
		{"a zero byte in a name", named("a\x00b"), 0, UploadLimits{}, http.StatusBadRequest},
		{"a device", hostileZip(t, zipSpecial("dev", "", fs.ModeDevice)), 0, UploadLimits{}, http.StatusBadRequest},
		{"a pipe", hostileZip(t, zipSpecial("p", "", fs.ModeNamedPipe)), 0, UploadLimits{}, http.StatusBadRequest},
		{"256 MiB of a small archive", saysSize(t, 256<<20), 0, UploadLimits{}, 200},
		{"a byte more of it", saysSize(t, 256<<20+1), 0, UploadLimits{}, http.StatusRequestEntityTooLarge},
		{"the same in a larger one", saysSize(t, 256<<20+1), 3 << 20, UploadLimits{}, 200},
		{"what grows 99 times", saysSize(t, 300<<20-1), 3 << 20, UploadLimits{}, 200},
		{"what grows 100 times", saysSize(t, 300<<20), 3 << 20, UploadLimits{}, http.StatusRequestEntityTooLarge},
		{"what grows 100 times and may", saysSize(t, 300<<20), 3 << 20, UploadLimits{Ratio: 101}, 200},
	} {
		data := c.data
		if c.size > 0 { // an archive may begin with other bytes
			data = append(make([]byte, c.size-int64(len(data))), data...)
		}
		if _, err := readArchive(bytes.NewReader(data), int64(len(data)), c.limits.filled()); refusedWith(err) != c.want {
			t.Errorf("%s: %v, want %d", c.name, err, c.want)
		}
	}
}

func TestNamesThatDifferInCaseAreTwoFilesWhereTheDiskSaysSo(t *testing.T) {
	data := hostileZip(t, zipFileOf("File"), zipFileOf("file"))
	_, err := readArchive(bytes.NewReader(data), int64(len(data)), UploadLimits{}.filled())
	if two := runtime.GOOS != "darwin" && runtime.GOOS != "windows"; two != (err == nil) {
		t.Errorf("on %s: %v", runtime.GOOS, err)
	}
}

// The directory of an archive is not read into memory when it is too large for the
// entries that may be in it.
func TestAnArchiveWithALargeDirectoryIsNotReadWhole(t *testing.T) {
	big := zip.FileHeader{Name: "a", Extra: make([]byte, 60_000)}
	list := []zip.FileHeader{}
	for i := range 60 {
		h := big
		h.Name = strings.Repeat("a", i+1)
		list = append(list, h)
	}
	data := hostileZip(t, list...)
	read := &counted{ReaderAt: bytes.NewReader(data)}
	if _, err := readArchive(read, int64(len(data)), UploadLimits{Entries: 60}.filled()); refusedWith(err) != http.StatusRequestEntityTooLarge {
		t.Error(err)
	}
	if read.n > 2<<20 {
		t.Errorf("%d bytes were read of a directory of %d", read.n, len(data)/2)
	}
	few := hostileZip(t, list[:10]...)
	if _, err := readArchive(bytes.NewReader(few), int64(len(few)), UploadLimits{Entries: 10}.filled()); err != nil {
		t.Errorf("a directory of 600 kB: %v", err)
	}
}

type counted struct {
	io.ReaderAt
	n int
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, off)
	c.n += n
	return n, err
}

func TestWhereLinksOfAnUploadMayLead(t *testing.T) {
	for _, c := range []struct {
		name    string
		entries []zip.FileHeader
		good    bool
	}{
		{"a file", []zip.FileHeader{zipFileOf("f"), zipLink("l", "f")}, true},
		{"up, but inside", []zip.FileHeader{zipFileOf("f"), zipLink("d/l", "../f")}, true},
		{"the folder itself", []zip.FileHeader{zipLink("l", ".")}, true},
		{"nothing", []zip.FileHeader{zipLink("l", "none")}, true},
		{"each other", []zip.FileHeader{zipLink("a", "b"), zipLink("b", "a")}, true},
		{"below a file", []zip.FileHeader{zipFileOf("f"), zipLink("l", "f/x")}, true},
		{"a long way", []zip.FileHeader{zipLink("l", strings.Repeat("./", 2047)+"f")}, true},
		{"a way that is too long", []zip.FileHeader{zipLink("l", strings.Repeat("./", 2048)+"f")}, false},
		{"no target", []zip.FileHeader{zipLink("l", "")}, false},
		{"out", []zip.FileHeader{zipLink("l", "..")}, true},
		{"out of a folder", []zip.FileHeader{zipLink("d/l", "../../x")}, true},
		{"out over another link", []zip.FileHeader{zipFileOf("d/e/f"), zipLink("d/e/L", "../.."), zipLink("e", "d/e/L/../..")}, true},
		{"an absolute path", []zip.FileHeader{zipLink("l", "/etc")}, true},
		{"a path of Windows", []zip.FileHeader{zipLink("l", `..\x`)}, true},
		{"a zero byte", []zip.FileHeader{zipLink("l", "a\x00b")}, false},
		{"in place of a folder", []zip.FileHeader{zipFileOf("l/f"), zipLink("l", "x")}, false},
		{"below a file's name", []zip.FileHeader{zipFileOf("f"), zipLink("f/l", "x")}, false},
	} {
		data := hostileZip(t, c.entries...)
		a, err := readArchive(bytes.NewReader(data), int64(len(data)), UploadLimits{}.filled())
		if err == nil {
			err = a.unpack(t.TempDir())
		}
		want := http.StatusBadRequest
		if c.good {
			want = 200
		}
		if refusedWith(err) != want {
			t.Errorf("to %s: %v", c.name, err)
		}
	}
}

// A file that is longer or shorter than the directory of its archive says is
// damaged.
func TestFilesHaveTheSizeThatTheirArchiveSays(t *testing.T) {
	for _, more := range []int{-1, 0, 1} {
		data := hostileZip(t, zip.FileHeader{Name: "z", Comment: "some text", Method: zip.Store})
		at := bytes.LastIndex(data, []byte("PK\x01\x02"))
		binary.LittleEndian.PutUint32(data[at+24:], uint32(len("some text")+more))
		a, err := readArchive(bytes.NewReader(data), int64(len(data)), UploadLimits{}.filled())
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := a.unpack(dir); (err == nil) != (more == 0) || refusedWith(err) == 500 {
			t.Errorf("%d bytes more: %v", more, err)
		}
		if n := sizeOf(dir); n > a.size {
			t.Errorf("%d bytes more: %d are written and %d were told", more, n, a.size)
		}
	}
}

func TestUnpackingOverWhatIsThereIsRefused(t *testing.T) {
	for _, c := range []struct{ name, there string }{
		{"a file in place of a file", "f"}, {"a file below a file", "d"}, {"a folder in place of a file", "e"}, {"a link in place of a file", "l"},
	} {
		data := hostileZip(t, zip.FileHeader{Name: "e/"}, zipFileOf("f"), zipFileOf("d/f"), zipLink("l", "f"))
		a, err := readArchive(bytes.NewReader(data), int64(len(data)), UploadLimits{}.filled())
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.there), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := a.unpack(dir); refusedWith(err) != http.StatusBadRequest {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := new(zipFile).unpack(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("unpacked into no folder")
	}
}

func TestRefusedUploadsSayHowMuchThereIsAndMayBe(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	db, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Blobs().Begin(t.Context(), state.Blob{Name: sharedUploads + "ab12/x/part0", Stream: "s", UserID: "ab12", Size: 3 * mib}); err != nil {
		t.Fatal(err)
	}
	take := func(n int64, l UploadLimits) error {
		return ledgerOf(t.TempDir(), map[string]int64{"ab12": 3 * mib}).take("ab12", n, l)
	}
	archive := func(l UploadLimits) error {
		data := saysSize(t, 300*mib)
		data = append(make([]byte, 3*mib-len(data)), data...)
		_, err := readArchive(bytes.NewReader(data), int64(len(data)), l.filled())
		return err
	}
	room := func(l UploadLimits) error {
		return (&Uploads{Store: db.AsShared(), Limits: l}).sharedRoom(t.Context(), "ab12")
	}
	for _, c := range []struct {
		err  error
		says []string
	}{
		{take(2*mib, UploadLimits{User: 4 * mib}), []string{" take 5 MiB ", " 4 MiB is the limit for one user"}},
		{take(2*mib, UploadLimits{User: 9 * mib, All: 4 * mib}), []string{" take 3 MiB", " 4 MiB is the limit for all users"}},
		{take(2*mib, UploadLimits{User: 9 * mib, KeepFree: 1 << 60}), []string{" 1099511627776 MiB stay free"}},
		{archive(UploadLimits{One: 200 * mib}), []string{" take 300 MiB unpacked", " 200 MiB is the limit for one upload"}},
		{archive(UploadLimits{}), []string{" from 3 MiB to 300 MiB ", " more than 100 times"}},
		{archive(UploadLimits{Entries: 1, One: mib}), []string{" 1 MiB "}},
		{room(UploadLimits{User: 2 * mib}), []string{" take 3 MiB ", " 2 MiB is the limit for one user"}},
		{room(UploadLimits{All: 2 * mib}), []string{" take 3 MiB", " 2 MiB is the limit for all users"}},
		{(&Uploads{Home: t.TempDir(), Limits: UploadLimits{One: 2 * mib}}).at("ab12", testBlob, 1).keep(0, bytes.NewReader(make([]byte, 3*mib))), []string{" larger than 2 MiB"}},
	} {
		if refusedWith(c.err) < 400 || refusedWith(c.err) == http.StatusInternalServerError {
			t.Errorf("%v, want %q", c.err, c.says)
			continue
		}
		for _, text := range c.says {
			if !strings.Contains(c.err.Error(), text) {
				t.Errorf("%v, want %q", c.err, text)
			}
		}
	}
}
