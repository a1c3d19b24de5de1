package buckets

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/pki"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/task"
)

func cachedMount(kind string, keys map[string]any) task.StorageMount {
	s := task.StorageMount{Mode: "MOUNT_CACHED", Type: kind}
	if keys != nil {
		s.Config = map[string]any{"mount_cached": keys}
	}
	return s
}

func TestTheKeysOfCachedMountsMeanWhatTheyDoToRclone(t *testing.T) {
	for name, c := range map[string]struct {
		s        task.StorageMount
		settings map[string]any
		want     agentapi.MountConfig
		readOnly bool
	}{
		"nothing":         {s: cachedMount("", nil)},
		"a type":          {s: cachedMount("MODEL_CHECKPOINT_RW", nil), want: agentapi.MountConfig{Transfers: 8, ReadChunkSize: 32 << 20, ReadChunkStreams: 16}},
		"to read only":    {s: cachedMount("DATASET_RO", nil), want: agentapi.MountConfig{ReadChunkSize: 8 << 20}, readOnly: true},
		"keys over it":    {s: cachedMount("DATASET_RW", map[string]any{"transfers": 3}), want: agentapi.MountConfig{Transfers: 3, ReadChunkSize: 8 << 20}},
		"sizes and times": {s: cachedMount("", map[string]any{"vfs_cache_max_size": "50G", "buffer_size": 16, "vfs_read_ahead": "2b", "vfs_write_back": "5", "vfs_cache_max_age": "1h30m"}), want: agentapi.MountConfig{CacheMaxSize: 50 << 30, BufferSize: 16 << 10, ReadAhead: 2, WriteBack: 5 * time.Second, CacheMaxAge: 90 * time.Minute}},
		"days and ms":     {s: cachedMount("", map[string]any{"vfs_cache_max_age": "1d", "vfs_write_back": "1.5s500ms"}), want: agentapi.MountConfig{CacheMaxAge: 24 * time.Hour, WriteBack: 2 * time.Second}},
		"one at a time":   {s: cachedMount("", nil), settings: map[string]any{"data": map[string]any{"mount_cached": map[string]any{"sequential_upload": true}}}, want: agentapi.MountConfig{Transfers: 1}},
		"not if said":     {s: cachedMount("MODEL_CHECKPOINT_RW", nil), settings: map[string]any{"data": map[string]any{"mount_cached": map[string]any{"sequential_upload": true}}}, want: agentapi.MountConfig{Transfers: 8, ReadChunkSize: 32 << 20, ReadChunkStreams: 16}},
		"MOUNT":           {s: task.StorageMount{Mode: "MOUNT", Config: map[string]any{"mount": map[string]any{"read_only": true}}}, readOnly: true},
	} {
		got, readOnly, err := howMounted(c.s, settings(t, c.settings)())
		if err != nil || !reflect.DeepEqual(got, c.want) || readOnly != c.readOnly {
			t.Errorf("%s: %+v, read-only %v, %v", name, got, readOnly, err)
		}
	}
	for _, keys := range []map[string]any{{"vfs_cache_max_size": "10X"}, {"vfs_cache_max_size": "999999999P"}, {"vfs_write_back": "5x"}, {"vfs_write_back": "h"}, {"transfers": "1.5"}} {
		if _, _, err := howMounted(cachedMount("", keys), nil); err == nil {
			t.Errorf("%v is taken", keys)
		}
	}
}

func mounted(m *task.StorageMount) { m.Mode = "MOUNT" }

// A job that goes on elsewhere finds what it wrote, and not what it was given at first.
func TestAJobsMountedBucketIsFilledOnce(t *testing.T) {
	b := newBed(t)
	job := state.JobHolder(7)
	again := func(by state.Holder) string {
		t.Helper()
		b.must(b.Prepare(t.Context(), b.call, b.with("mine-1", mounted), state.Holder{Kind: state.HeldByRequest, ID: "r1"}, by))
		if rec := b.record("mine-1"); rec.Status != api.StorageReady {
			t.Errorf("the bucket is %s", rec.Status)
		}
		return b.object("mine-1", "a")
	}
	if got := again(job); got != "A" {
		t.Errorf("filled with %q", got)
	}
	if _, err := b.s3.Bucket("mine-1").Put(t.Context(), "a", strings.NewReader("written by the job"), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := again(job); got != "written by the job" {
		t.Errorf("after a recovery the bucket has %q", got)
	}
	if got := again(state.JobHolder(8)); got != "A" {
		t.Errorf("another job finds %q", got)
	}
}

func (b *bed) object(bucket, key string) string {
	b.t.Helper()
	r, err := b.s3.Bucket(bucket).Get(b.t.Context(), key, storage.GetOptions{})
	b.must(err)
	defer r.Close()
	text, err := io.ReadAll(r)
	b.must(err)
	return string(text)
}

// The list says which clusters mount a bucket, wherever in it; a bucket of the same name on
// another server is another one.
func TestTheListSaysWhichClustersMountABucket(t *testing.T) {
	b := newBed(t)
	for _, name := range []string{"mine-1", "mine-2"} {
		b.must(b.prepare(b.with(name, mounted)))
	}
	server := b.record("mine-1").Endpoint
	for name, mounts := range map[string][]agentapi.MountSpec{
		"train": {{Path: "/a", URL: "s3://mine-1", Endpoint: server}, {Path: "/b", URL: "s3://mine-1", SubPath: "part", Endpoint: server}},
		"other": {{Path: "/a", URL: "s3://mine-2", Endpoint: "http://elsewhere.example"}},
		"none":  nil,
	} {
		c := &state.Cluster{Name: name, Hash: name, NameOnCloud: name, Status: api.ClusterUp, UserHash: "u1", Workspace: "default", NumNodes: 1}
		c.Notes.Mounts = mounts
		b.must(b.Store.Clusters().Create(t.Context(), c))
	}
	list, err := b.List(t.Context(), b.call)
	b.must(err)
	by := map[string][]string{}
	for _, s := range list {
		by[s.Name] = s.MountedBy
	}
	if len(list) != 2 || !slices.Equal(by["mine-1"], []string{"train"}) || by["mine-2"] != nil {
		t.Errorf("%v", by)
	}
}

// A bucket that cannot be opened any more keeps no credentials from the others.
func TestCredentialsOfTheOtherMounts(t *testing.T) {
	b := newBed(t)
	b.must(b.prepare(b.with("mine-1", mounted)))
	cl := &state.Cluster{Name: "train"}
	cl.Notes.Mounts = []agentapi.MountSpec{
		{Path: "/a", URL: "nothing://mine-0"},
		{Path: "/b", URL: "s3://mine-1", Region: "us-east-1", Endpoint: b.record("mine-1").Endpoint},
	}
	got, err := b.withCredentials(t.Context(), cl)
	if err == nil || len(got) != 1 || got[0].Spec.Path != "/b" || got[0].Credentials.AccessKey != "ID" {
		t.Errorf("%+v, %v", got, err)
	}
	var lost noWay
	b.Remote = remote.New(remote.Options{Transports: map[string]remote.Transport{"none": &lost}})
	certs, err := pki.NewAuthority("h")
	b.must(err)
	cl.Certs = state.Seal(certs)
	cl.Hash, cl.Nodes = "h", []cloud.Node{{Reach: cloud.Reach{Method: "none", Agent: "192.0.2.1:1"}}}
	if err := b.Remount(t.Context(), cl); err == nil || !strings.Contains(err.Error(), "nothing://mine-0") || lost == 0 {
		t.Errorf("mounted again with %d calls: %v", lost, err)
	}
}

// noWay leads to no node, and counts who tried.
type noWay int

func (*noWay) Start(context.Context, *state.Cluster, cloud.Node) (string, error) {
	return "", errors.New("no way")
}

func (n *noWay) Dial(context.Context, cloud.Node, string) (net.Conn, error) {
	*n++
	return nil, errors.New("no way")
}

// What is mounted needs no source, and writing is tried before anything is rented.
func TestMountsAreCheckedBeforehand(t *testing.T) {
	b := newBed(t)
	empty := func(m *task.StorageMount) { m.Mode, m.Sources = "MOUNT", nil }
	b.must(b.Check(t.Context(), b.call, b.with("mine-1", empty), true))
	if says := b.out.String(); !strings.Contains(says, "is mounted at ~/x; nodes get the server's own credentials") {
		t.Errorf("%s", says)
	}
	b.must(b.prepare(b.with("mine-1", empty)))
	if !b.has("mine-1") || b.record("mine-1").Status != api.StorageReady {
		t.Error("the empty bucket is not made")
	}
	b.must(b.s3.Bucket("theirs").Create(t.Context(), nil))
	if err := b.Check(t.Context(), b.call, b.with("theirs", empty), false); kind(err) != api.ErrStorageSpec {
		t.Errorf("a bucket that sky did not make, by its name: %v", err)
	}
	url := func(mode string) *task.Task {
		return &task.Task{StorageMounts: map[string]task.StorageMount{"~/x": {Sources: []string{"s3://theirs"}, Mode: mode}}}
	}
	for _, mode := range []string{"MOUNT", "MOUNT_CACHED"} {
		b.must(b.Check(t.Context(), b.call, url(mode), false))
	}
	page, err := b.s3.Bucket("theirs").List(t.Context(), storage.ListOptions{})
	if err != nil || len(page.Objects) > 0 {
		t.Errorf("the look has left %v, %v", page.Objects, err)
	}
}
