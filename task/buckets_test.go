package task

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBucketsAreRefusedWithPosition has a row for each rule about names, sources and modes of
// buckets: what is written, and the line, column and class of the refusal. "^" stands before
// what it points at; only the first refusal of a file counts.
func TestBucketsAreRefusedWithPosition(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"folder", "other/folder"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const name, source, mode, spec = "StorageNameError", "StorageSourceError", "StorageModeError", "StorageSpecError"
	long := strings.Repeat("a", 64)
	type row struct{ text, class string }
	rows := []row{
		// A mount as a text.
		{"^/x/: ./folder", ""},
		{"^/x: ./folder/", ""},
		{"^/x: ./missing", ""},
		{"^/x: ''", ""},
		{"/x: ^5", ""},
		{"/x: ^[a]", ""},
		{"^s3://b/k: ./folder", ""},
		{"^/x: ftp://host/file", source},
		{"^/x: https://example.com/page", source},
		{"^/x: s3://", ""},
		{"^/x: s3://a..b/k", source},
		{"^/x: cos://us-east", source},
		{"^/x: hf://owner", source},
		{"^/x: hf://owner/-model", source},
		{"^/x: hf://datasets/owner", source},
		{"^/x: s3://bucket/key/", ""},
		// Keys of a map.
		{"/x: {name: abc, ^size: 1}", ""},
		{"/x: {name: abc, store: ^FLOPPY}", ""},
		{"/x: {name: abc, mode: ^LINK}", ""},
		{"/x: {name: abc, persistent: ^maybe}", ""},
		{"/x: {name: abc, source: ^[]}", ""},
		{"/x: {name: abc, mode: MOUNT_CACHED, type: ^NOTHING}", ""},
		{"/x: {name: abc, ^type: DATASET_RO}", spec},
		{"/x: {name: abc, mode: COPY, ^type: DATASET_RO}", spec},
		{"/x: {name: abc, config: {^mount_cached: {transfers: 2}}}", spec},
		{"/x: {name: abc, mode: MOUNT_CACHED, config: {^mount: {read_only: true}}}", spec},
		{"/x: {name: abc, mode: COPY, config: {^mount: {read_only: true}}}", spec},
		{"/x: {name: abc, mode: MOUNT_CACHED, config: {mount_cached: {transfers: ^0}}}", ""},
		{"/x: {name: abc, mode: MOUNT_CACHED, config: {mount_cached: {vfs_read_chunk_streams: ^-1}}}", ""},
		{"/x: {name: abc, mode: MOUNT_CACHED, config: {mount_cached: {vfs_cache_max_size: ^much}}}", ""},
		{"/x: {name: abc, mode: MOUNT_CACHED, config: {mount_cached: {vfs_write_back: ^soon}}}", ""},
		{"/x: {name: abc, mode: MOUNT_CACHED, config: {mount_cached: {read_only: ^maybe}}}", ""},
		{"/x: {name: abc, mode: MOUNT_CACHED, config: {mount_cached: {^vfs_other: 1}}}", ""},
		{"/x: {name: abc, config: {^disk_size: 10}}", spec},
		{"/x: {name: abc, config: {^disk_tier: high}}", spec},
		{"/x: {name: abc, config: {^storage_type: network}}", spec},
		{"/x: {name: abc, config: {^attach_mode: read_write}}", spec},
		// Construction.
		{"/x: ^{store: s3}", spec},
		{"/x: ^{mode: COPY}", spec},
		{"/x: {source: ^./folder}", name},
		{"/x: {name: ^s3://abc}", name},
		{"/x: {name: abc, source: ^./folder/}", source},
		{"^/x: {name: abc, source: ./missing}", source},
		{"^/x: {name: abc, source: ./file}", source},
		{"^/x: {name: abc, source: [./folder, ./missing]}", source},
		{"^/x: {name: abc, source: [./folder, ./other/folder]}", source},
		{"/x: {name: abc, source: [^s3://abc]}", source},
		{"/x: {source: ^ftp://host/x, mode: COPY}", source},
		{"/x: {source: ^https://example.com/x, mode: COPY}", source},
		{"/x: {^name: abc, source: s3://other}", spec},
		{"/x: {^name: abc, store: s3, source: s3://other}", spec},
	}
	for _, s := range []string{"s3", "gs", "r2", "oci", "nebius", "cw", "vastdata"} {
		for _, m := range []string{"", ", mode: MOUNT", ", mode: MOUNT_CACHED"} {
			rows = append(rows, row{"/x: {source: ^" + s + "://abc/key" + m + "}", mode})
		}
		rows = append(rows, row{"/x: {source: ^" + s + "://, mode: COPY}", ""}) // ends in a slash
		for _, n := range []string{"a..b", "-ab", "a+b", "a b"} {
			rows = append(rows, row{"/x: {source: ^'" + s + "://" + n + "', mode: COPY}", name}, row{"^/x: '" + s + "://" + n + "/key'", source})
		}
	}
	rows = append(rows, row{"/x: {source: ^cos://us-east/abc/key}", mode}, row{"/x: {source: ^cos://us-east, mode: COPY}", name}, row{"/x: {source: ^hf://owner, mode: COPY}", name},
		row{"/x: {name: ^'a/b'}", name}, row{"/x: {name: ^'a b'}", name})
	// Names, of new buckets and in URLs.
	bad := map[string][]string{
		"s3":    {"ab", "Abc", "a_b", "-ab", "ab-", "a..b", "10.0.0.1", "xn--ab", "ab-s3alias", "ab--ol-s3", long},
		"gcs":   {"ab", "A_b", "-ab", "ab-", "a..b", "a.-b", "a-.b", "10.0.0.1", "goog1", "my-google", "my-g00gle", long, strings.Repeat("ab.", 80) + "a"},
		"azure": {"ab", "Abc", "a_b", "a.b", "a--b", "-ab", "ab-", long},
		"ibm":   {"ab", "Abc", "a_b", "a..b", "a--b", "a.-b", "a-.b", "1.2.3.4", long},
		"oci":   {"a+b", "a$b", strings.Repeat(long, 4) + "a"},
	}
	for _, other := range []string{"r2", "nebius", "coreweave", "vastdata"} {
		bad[other] = bad["s3"]
	}
	for store, names := range bad {
		for _, n := range names {
			rows = append(rows, row{fmt.Sprintf("/x: {store: %s, name: ^'%s'}", store, n), name})
		}
	}
	for _, r := range rows {
		before, after, ok := strings.Cut(r.text, "^")
		if !ok {
			t.Fatalf("%s: no ^", r.text)
		}
		d, err := Parse("task.yaml", []byte("run: x\nfile_mounts:\n  "+before+after+"\n"))
		if err == nil {
			err = d.Check(CheckOptions{Dir: dir})
		}
		all := AllErrors(err)
		if len(all) == 0 {
			t.Errorf("%s is accepted", r.text)
			continue
		}
		e := all[0]
		if e.File != "task.yaml" || e.Line != 3 || e.Column != len([]rune(before))+3 {
			t.Errorf("%s: %s", r.text, e)
		}
		if r.class != "" && e.Class != "sky.exceptions."+r.class {
			t.Errorf("%s: %s is a %s", r.text, e, e.Class)
		}
	}
	// The workdir's own place, and the same with names and sources that are taken.
	for text, want := range map[string]string{
		"run: x\nworkdir: .\nfile_mounts:\n  ~/sky_workdir: ./folder\n": "task.yaml:4:3: ",
	} {
		d, err := Parse("task.yaml", []byte(text))
		if err == nil {
			err = d.Check(CheckOptions{Dir: dir})
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		"/x: s3://My_Old_Bucket/key", "/x: {source: hf://owner/model@v1.0/sub}", "/x: hf://datasets/o/d", "/x: {source: cos://us-east/abc}", "/x: {source: 'oci://A_b@us-x-1'}",
		"/x: {source: https://account.blob.core.windows.net/abc, mode: MOUNT_CACHED}", "/x: {name: abc, source: [./folder, ./file]}", "/x: {name: abc, store: gcs, source: s3://other, mode: COPY}", "/x: skypilot:x",
		"/x: {name: A_b}", // Oracle takes it
	} {
		d, err := Parse("task.yaml", []byte("run: x\nfile_mounts:\n  "+text+"\n"))
		if err == nil {
			err = d.Check(CheckOptions{Dir: dir})
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
