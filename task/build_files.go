package task

import (
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// fileMounts splits the field: texts are files and URLs, maps are buckets.
func (b *builder) fileMounts(t *Task, n *yaml11.Node) {
	t.FileMounts, t.StorageMounts = map[string]string{}, nil
	if n == nil {
		return
	}
	for _, e := range n.Entries {
		dest, path := e.Key.Text, "file_mounts."+e.Key.Text
		if _, twice := t.FileMounts[dest]; twice || t.hasStorage(dest) {
			b.at(e.Key, path, "%q stands for two mounts once its variables are replaced", dest)
			continue
		}
		if e.Value.IsScalar() {
			t.FileMounts[dest] = e.Value.Text
			continue
		}
		if strings.EqualFold(textOf(e.Value.Get("store")), "volume") {
			b.diskMount(t, dest, e.Value, path)
			continue
		}
		if t.StorageMounts == nil {
			t.StorageMounts = map[string]StorageMount{}
		}
		t.StorageMounts[dest] = b.storage(e.Value, path)
	}
}

// diskMount reads a mount with "store: volume": it is a disk of Google Cloud,
// and its source is copied into a folder on it.
func (b *builder) diskMount(t *Task, dest string, n *yaml11.Node, path string) {
	disk := mapOfAny(n.Get("config"))
	if disk == nil {
		disk = map[string]any{}
	}
	disk["path"] = dest
	if name := n.Get("name"); name != nil {
		disk["name"] = name.Text
	}
	if size, ok := disk["disk_size"]; ok {
		delete(disk, "disk_size")
		gb, _ := ParseDiskSize(yaml11.Of(size).NumberText())
		disk["size"] = gb
	}
	if p := boolOf(n.Get("persistent")); p != nil && !*p {
		disk["auto_delete"] = true
	}
	if disk["storage_type"] != "instance" && disk["name"] == nil {
		b.at(n, path, "%s is a network disk, so it needs a name (or config.storage_type: instance)", path)
	}
	if src := n.Get("source"); src != nil {
		if !src.IsScalar() {
			b.at(src, path+".source", "a disk takes one source, not a list")
			return
		}
		t.FileMounts[dest+"/data"] = src.Text
	}
	for i := range t.Resources {
		r := &t.Resources[i]
		if !slices.ContainsFunc(r.Volumes, func(v map[string]any) bool { return v["path"] == dest }) {
			r.Volumes = append(slices.Clone(r.Volumes), maps.Clone(disk))
		}
	}
}

func (t *Task) hasStorage(dest string) bool {
	_, ok := t.StorageMounts[dest]
	return ok
}

func (b *builder) storage(n *yaml11.Node, path string) StorageMount {
	m := StorageMount{
		Name:       textOf(n.Get("name")),
		Store:      strings.ToUpper(textOf(n.Get("store"))),
		Persistent: true,
		Mode:       strings.ToUpper(textOf(n.Get("mode"))),
		Type:       strings.ToUpper(textOf(n.Get("type"))),
		Config:     mapOfAny(n.Get("config")),
	}
	if m.Mode == "" {
		m.Mode = "MOUNT"
	}
	if p := boolOf(n.Get("persistent")); p != nil {
		m.Persistent = *p
	}
	if src := n.Get("source"); src != nil {
		if src.IsScalar() {
			m.Sources = []string{src.Text}
		} else {
			m.SourceList = true
			for _, item := range src.Items {
				m.Sources = append(m.Sources, item.Text)
			}
		}
	}
	for _, e := range n.Entries {
		if strings.HasPrefix(e.Key.Text, "_") && !e.Value.IsNull() {
			if m.Internal == nil {
				m.Internal = map[string]any{}
			}
			m.Internal[e.Key.Text] = e.Value.Any()
		}
	}
	b.checkStorage(m, n, path)
	return m
}

var scheme = lazyregexp.New(`^([a-zA-Z][a-zA-Z0-9+.-]*)://`)

// IsURL tells a remote source from a local path.
func IsURL(s string) bool { return scheme.MatchString(s) }

var bucketSchemes = []string{"s3", "gs", "r2", "cos", "oci", "nebius", "cw", "vastdata", "hf", "https"}

// bucketURL reports whether a URL is one of a bucket or of something in it.
func bucketURL(s string) bool {
	sch := scheme.FindStringSubmatch(s)
	if sch == nil || !slices.Contains(bucketSchemes, strings.ToLower(sch[1])) {
		return false
	}
	return !strings.EqualFold(sch[1], "https") || azureContainer.MatchString(s)
}

// checkStorage does the checks of a bucket that need no files.
func (b *builder) checkStorage(m StorageMount, n *yaml11.Node, path string) {
	fail := func(at *yaml11.Node, field, class, format string, args ...any) {
		if at == nil {
			at = n
		}
		if !at.Pending {
			b.at(at, join(path, field), format, args...).Class = class
		}
	}
	source := n.Get("source")
	first := source
	if source != nil && source.Kind == yaml11.List {
		first = source.Items[0]
	}
	if at := n.Get("name"); IsURL(m.Name) {
		fail(at, "name", "sky.exceptions.StorageNameError", "name is a bucket's name without a scheme such as s3://; a URL goes under source")
	} else if err := ValidBucketName(m.Store, m.Name); err != nil && at != nil {
		fail(at, "name", "sky.exceptions.StorageNameError", "%s", err)
	} else if m.Store == "" && m.Name != "" {
		if err := nameOfSomeStore(m.Name); err != nil {
			fail(at, "name", "sky.exceptions.StorageNameError", "%s", err)
		}
	}
	if len(m.Sources) == 0 && m.Name == "" {
		fail(nil, "", "sky.exceptions.StorageSpecError", "%s needs a source, or the name of a bucket", path)
	}
	for _, s := range m.Sources {
		remote := IsURL(s)
		switch {
		case s != "/" && strings.HasSuffix(s, "/"):
			fail(first, "source", "sky.exceptions.StorageSourceError", "source should not end in a slash: %s", s)
		case !remote && m.Name == "":
			fail(first, "source", "sky.exceptions.StorageNameError", "a local source needs the name of a bucket to put it in; add name")
		case remote && m.SourceList:
			fail(first, "source", "sky.exceptions.StorageSourceError", "a list of sources holds local paths; %s is a URL", s)
		case remote && m.Name != "" && (m.Store == "" || m.Store == storeOfURL(s)):
			fail(n.Key("name"), "name", "sky.exceptions.StorageSpecError", "a URL as source already names the bucket; remove name")
		}
		if sch := scheme.FindStringSubmatch(s); sch != nil && !slices.Contains(bucketSchemes, strings.ToLower(sch[1])) {
			fail(first, "source", "sky.exceptions.StorageSourceError", "%s:// is not a kind of bucket that sky knows; it knows %s", sch[1], strings.Join(bucketSchemes, ", "))
		} else if sch != nil && strings.EqualFold(sch[1], "https") && !azureContainer.MatchString(s) && !strings.HasSuffix(s, "/") {
			fail(first, "source", "sky.exceptions.StorageSourceError", "of https:// addresses only containers of Azure can be buckets: https://ACCOUNT.blob.core.windows.net/CONTAINER")
		} else if sch != nil && m.Mode != "COPY" && belowBucket(s) {
			fail(first, "source", "sky.exceptions.StorageModeError", "only a whole bucket can be mounted, not a folder in it; use mode: COPY, or the bucket alone as source")
		} else if sch != nil && !m.SourceList && !strings.HasSuffix(s, "/") {
			if err := checkBucketURL(s); err != nil {
				fail(first, "source", "sky.exceptions.StorageNameError", "%s", err)
			}
		}
	}
	if m.Type != "" && m.Mode != "MOUNT_CACHED" {
		fail(n.Key("type"), "type", "sky.exceptions.StorageSpecError", "type is for mode: MOUNT_CACHED; the mode here is %s", m.Mode)
	}
	if m.Config["mount_cached"] != nil && m.Mode != "MOUNT_CACHED" {
		fail(n.Get("config").Key("mount_cached"), "config.mount_cached", "sky.exceptions.StorageSpecError", "config.mount_cached is for mode: MOUNT_CACHED; the mode here is %s", m.Mode)
	}
	if m.Config["mount"] != nil && m.Mode != "MOUNT" {
		fail(n.Get("config").Key("mount"), "config.mount", "sky.exceptions.StorageSpecError", "config.mount is for mode: MOUNT; the mode here is %s", m.Mode)
	}
	if mount, _ := m.Config["mount"].(map[string]any); mount["hf_mount_args"] != nil {
		b.warn("%s.config.mount.hf_mount_args changes nothing: no hf-mount is used", path)
	}
	for _, k := range []string{"disk_size", "disk_tier", "storage_type", "attach_mode"} {
		if m.Config[k] != nil {
			fail(n.Get("config").Key(k), "config."+k, "sky.exceptions.StorageSpecError", "config.%s is for store: volume", k)
		}
	}
}

// storeOfURL is the store that a URL's scheme stands for.
func storeOfURL(url string) string {
	sch, _, _ := strings.Cut(strings.ToLower(url), "://")
	return map[string]string{"s3": "S3", "gs": "GCS", "r2": "R2", "cos": "IBM", "oci": "OCI", "nebius": "NEBIUS", "cw": "COREWEAVE",
		"vastdata": "VASTDATA", "hf": "HF", "https": "AZURE"}[sch]
}

// belowBucket reports whether a URL names something inside a bucket.
func belowBucket(url string) bool {
	sch, rest, _ := strings.Cut(url, "://")
	parts := strings.Split(strings.Trim(rest, "/"), "/")
	switch strings.ToLower(sch) {
	case "hf", "https":
		return false
	case "cos": // region/bucket
		return len(parts) > 2
	}
	return len(parts) > 1
}

func (b *builder) volumes(t *Task, n *yaml11.Node) {
	t.Volumes = nil
	if n == nil || len(n.Entries) == 0 {
		return
	}
	t.Volumes = map[string]VolumeMount{}
	for _, e := range n.Entries {
		dest, path := e.Key.Text, "volumes."+e.Key.Text
		if !e.Key.Pending {
			switch {
			case !strings.HasPrefix(dest, "/") && !strings.HasPrefix(dest, "~"):
				b.at(e.Key, path, "a volume is mounted at an absolute path, beginning with / or ~; not %q", dest)
			case strings.HasSuffix(dest, "/"):
				b.at(e.Key, path, "the path that a volume is mounted at should not end in a slash: %q", dest)
			}
		}
		if e.Value.IsScalar() {
			if e.Value.Text == "" {
				b.at(e.Value, path, "%s should name a volume", path)
			}
			t.Volumes[dest] = VolumeMount{Name: e.Value.Text}
			continue
		}
		v := VolumeMount{
			Name: textOf(e.Value.Get("name")), SubPath: textOf(e.Value.Get("sub_path")), Type: textOf(e.Value.Get("type")),
			Labels: textMap(e.Value.Get("labels")), Config: mapOfAny(e.Value.Get("config")),
		}
		if size := e.Value.Get("size"); size != nil {
			v.Size = size.NumberText()
			if gb, err := ParseVolumeSize(v.Size); err != nil && !size.Pending {
				b.at(size, path+".size", "%s.size %s", path, err)
			} else if v.Name == "" && err == nil {
				v.Size = yaml11.FormatNumber(float64(gb))
			}
		}
		switch {
		case v.Name == "" && v.Size == "":
			b.at(e.Value, path, "%s needs the name of a volume, or a size for one that lives as long as the cluster", path)
		case v.Name != "" && v.Size != "":
			b.at(e.Value, path, "%s has a name (an existing volume) and a size (a new one); keep one of them", path)
		}
		if slices.Contains(strings.Split(v.SubPath, "/"), "..") {
			b.at(e.Value.Get("sub_path"), path+".sub_path", "%s.sub_path should stay inside the volume: .. is not allowed", path)
		}
		t.Volumes[dest] = v
	}
}

var (
	gitHTTP = lazyregexp.New(`^https?://(?:[^@/\s]+@)?[^/:@\s]+(?::[0-9]+)?/[^\s]+$`)
	gitSSH  = lazyregexp.New(`^ssh://(?:[^@/\s]+@)?[^/:@\s]+(?::[0-9]+)?/[^\s]+$`)
	gitSCP  = lazyregexp.New(`^(?:[^@/\s:]+@)?[^/:@\s]+:[^\s:]+$`)
)

// ParseGitURL brings the address of a repository into canonical form: without
// a trailing slash and ".git".
func ParseGitURL(s string) (string, bool) {
	url := strings.TrimSuffix(strings.TrimRight(strings.TrimSpace(s), "/"), ".git")
	ok := gitHTTP.MatchString(url) || gitSSH.MatchString(url) || gitSCP.MatchString(url) && !strings.Contains(url, "://")
	return url, ok
}

func (b *builder) gitURL(n *yaml11.Node, path string) string {
	url, ok := ParseGitURL(textOf(n))
	if !ok && n != nil && !n.Pending {
		b.at(n, path, "%s should be a repository such as https://host/org/project, ssh://git@host/project or git@host:org/project, not %s", path, yaml11.Quote(n.Text)).Class = "sky.exceptions.GitError"
		return n.Text
	}
	return url
}
