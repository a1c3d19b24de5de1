package buckets

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/task"
)

// A mount is an entry of a task's file_mounts that has to do with a bucket.
type mount struct {
	dst string
	// name of a bucket that has a record; "": the task gives the bucket's URL.
	name string
	// from is the bucket that the task gives: what is copied to nodes, or into the bucket
	// of that name.
	from   storage.Location
	given  bool // from is
	folder bool // it stands for a folder, and not for an object

	spec task.StorageMount // of a storage map
}

// sub is below which keys a bucket's files are.
func (u mount) sub() string {
	s, _ := u.spec.Internal["_bucket_sub_path"].(string)
	return strings.Trim(s, "/")
}

// read lists what a task wants of buckets, in the order of the destinations.
func read(t *task.Task) ([]mount, error) {
	var out []mount
	for _, dst := range slices.Sorted(maps.Keys(t.FileMounts)) {
		src := t.FileMounts[dst]
		if !strings.Contains(src, "://") {
			continue
		}
		from, err := parse(dst, src)
		if err != nil {
			return nil, inField(err, t, dst, "")
		}
		out = append(out, mount{dst: dst, from: from, given: true})
	}
	for _, dst := range slices.Sorted(maps.Keys(t.StorageMounts)) {
		u, err := readMap(dst, t.StorageMounts[dst])
		if err != nil {
			return nil, inField(err, t, dst, "")
		}
		out = append(out, u)
	}
	return out, nil
}

func parse(dst, src string) (storage.Location, error) {
	if !storage.IsURL(src) {
		return storage.Location{}, &api.Error{Type: api.ErrNotSupported,
			Message: fmt.Sprintf("file_mounts.%s: %s cannot be copied: of URLs, those of buckets can be (s3://, gs://, r2://, cos://, oci://, nebius://, cw://, vastdata://, hf://, https://ACCOUNT.blob.core.windows.net/).", dst, src),
			Hint:    "Fetch other URLs in setup, with curl say."}
	}
	from, err := storage.Parse(src)
	if err != nil {
		return from, invalid(api.ErrStorageSource, "file_mounts.%s: %v", dst, err)
	}
	return from, nil
}

func readMap(dst string, s task.StorageMount) (mount, error) {
	u := mount{dst: dst, spec: s, folder: true}
	if u.mounted() {
		if _, _, err := howMounted(s, nil); err != nil {
			return u, invalid(api.ErrStorageSpec, "file_mounts.%s: %v", dst, err)
		}
	}
	if len(s.Sources) > 0 && task.IsURL(s.Sources[0]) {
		from, err := parse(dst, s.Sources[0])
		if err != nil {
			return u, err
		}
		u.from, u.given = from, true
		if s.Name == "" && (s.Store == "" || s.Store == string(from.Store)) {
			u.folder = false // a URL says what it says
			return u, nil
		}
		if u.name = s.Name; u.name == "" {
			u.name = path.Base(from.Bucket)
		}
		return u, nil
	}
	u.name = s.Name
	if s.Store == string(storage.HF) || s.Store == string(storage.CoreWeave) && len(s.Sources) == 0 {
		return u, invalid(api.ErrStorageSpec, "file_mounts.%s: sky makes no buckets of %s; make it there, and give its URL as source.", dst, s.Store)
	}
	return u, nil
}

// mounted reports whether it is a mount, and not a copy.
func (u *mount) mounted() bool {
	return u.spec.Mode == string(agentapi.MountDirect) || u.spec.Mode == string(agentapi.MountCached)
}

// key is what of the mount names the bucket.
func (u *mount) key() string {
	if u.name != "" {
		return "name"
	}
	return "source"
}

// where is how messages name the mount, with the bucket if the task gives it.
func (u *mount) where() string {
	if u.given {
		return fmt.Sprintf("file_mounts.%s: %v", u.dst, u.from)
	}
	return "file_mounts." + u.dst
}
