package task

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Kinds of volumes.
const (
	VolumeClaim    = "k8s-pvc"
	VolumeHostPath = "k8s-hostpath"
	VolumeRunPod   = "runpod-network-volume"
)

// VolumeTypes are the kinds of volumes, in the order in which lists show them.
var VolumeTypes = []string{VolumeClaim, VolumeHostPath, VolumeRunPod}

// How often and where a volume may be mounted at once.
const (
	ReadWriteOnce    = "ReadWriteOnce"
	ReadWriteOncePod = "ReadWriteOncePod"
	ReadWriteMany    = "ReadWriteMany"
	ReadOnlyMany     = "ReadOnlyMany"
)

// AccessModes are all of them.
var AccessModes = []string{ReadWriteOnce, ReadWriteOncePod, ReadWriteMany, ReadOnlyMany}

// minRunPodVolume is the smallest network volume of RunPod, in GB.
const minRunPodVolume = 10

// Volume is a disk as a file, the options of a command or a call of the API
// describe it.
type Volume struct {
	Name, Type  string
	Infra       string // as written; "": the cloud of the type
	Size        string // as written; "": whatever it has
	UseExisting bool
	Labels      map[string]string
	Config      map[string]any
}

// VolumeDetails are what a volume comes down to.
type VolumeDetails struct {
	Place        Infra // with the cloud of the type, if none was named
	GB           int   // 0: whatever it has
	StorageClass string
	AccessMode   string
	Namespace    string
	HostPath     string
	// CleanupOnDeletion says that deleting removes the content of HostPath.
	CleanupOnDeletion bool
}

// volumeLanguage returns the schema of a volume's file, built once.
var volumeLanguage = sync.OnceValue(func() *schema.Spec {
	s := volumeSchema()
	s.Title = "a volume"
	return s
})

func volumeSchema() *schema.Spec {
	return object(
		field{name: "name", is: text(), doc: "Name of the volume.", example: "data"},
		field{name: "type", is: choice(VolumeTypes...), doc: "Kind of volume.", example: VolumeClaim},
		field{name: "infra", is: text(), doc: "Where it is.", example: "k8s/my-context"},
		field{name: "size", is: text().Or(yaml11.Int), doc: "Size in GB.", example: "100"},
		field{name: "use_existing", is: boolean(), doc: "Whether it exists already, and is never deleted.", example: "true"},
		field{name: "labels", is: mapOf(text()), doc: "Labels on the volume.", example: "{team: vision}"},
		field{name: "config", is: volumeConfigSchema(), doc: "Settings of the volume.", example: "{access_mode: ReadWriteMany}"},
	)
}

func volumeConfigSchema() *schema.Spec {
	return object(
		field{name: "storage_class_name", is: text(), doc: "Storage class.", example: "fast"},
		field{name: "access_mode", is: choice(AccessModes...), doc: "How often it may be mounted at once.", def: "ReadWriteOnce", example: "ReadWriteMany"},
		field{name: "namespace", is: text(), doc: "Namespace it is in.", example: "ml"},
		field{name: "host_path", is: text(), doc: "Folder of the machines.", example: "/mnt/data"},
		field{name: "cleanup_on_deletion", is: boolean(), doc: "Whether deleting removes the folder's content.", def: "false", example: "true"},
	)
}

// ParseVolume reads the file of a volume. Mistakes are [*Error]s that say where.
// What only the whole description shows is the business of [Volume.Check], since
// options may complete a file.
func ParseVolume(name string, data []byte) (*Volume, error) {
	src := newSource(name, data)
	docs, err := src.documents()
	if err != nil {
		return nil, err
	}
	b := &builder{validator: validator{source: src}}
	switch {
	case len(docs) == 0 || docs[0].IsNull():
		return &Volume{}, nil
	case len(docs) > 1:
		b.at(docs[1], "", "a volume's file describes one volume; write one file for each")
		return nil, joined(b.errs)
	case docs[0].Kind != yaml11.Map:
		b.at(docs[0], "", "a volume is a map of fields such as \"name: data\", not %s", docs[0].Describe())
		return nil, joined(b.errs)
	}
	doc := *docs[0]
	doc.Entries = slices.DeleteFunc(slices.Clone(doc.Entries), func(e yaml11.Entry) bool { return e.Value.IsNull() })
	b.check(&doc, volumeLanguage())
	if len(b.errs) > 0 {
		return nil, joined(b.errs)
	}
	v := &Volume{
		Name: textOf(doc.Get("name")), Type: textOf(doc.Get("type")), Infra: textOf(doc.Get("infra")),
		Labels: textMap(doc.Get("labels")), Config: mapOfAny(doc.Get("config")),
	}
	if size := doc.Get("size"); size != nil {
		v.Size = size.NumberText()
	}
	if use := boolOf(doc.Get("use_existing")); use != nil {
		v.UseExisting = *use
	}
	return v, nil
}

// Check says what is wrong with the description of a volume, without asking
// anybody, and what it comes down to.
func (v *Volume) Check() (VolumeDetails, error) {
	var d VolumeDetails
	bad := func(field, format string, args ...any) error {
		return &Error{Field: field, Message: fmt.Sprintf(format, args...)}
	}
	cloud, known := VolumeCloud(v.Type)
	switch {
	case v.Name == "":
		return d, bad("name", "a volume needs a name: put name: NAME into its file, or give --name")
	case v.Type == "":
		return d, bad("type", "a volume needs a type: one of %s (type: in its file, or --type)", strings.Join(VolumeTypes, ", "))
	case !known:
		return d, bad("type", "%q is no type of volume; there are: %s", v.Type, strings.Join(VolumeTypes, ", "))
	}
	if err := ValidVolumeName(v.Name, v.Type); err != nil {
		return d, bad("name", "%v", err)
	}
	d.Place.Cloud = cloud
	if strings.TrimSpace(v.Infra) != "" {
		at, err := ParseInfra(v.Infra)
		switch {
		case err != nil:
			return d, bad("infra", "%v", err)
		case at.Cloud != "" && at.Cloud != cloud:
			return d, bad("infra", "invalid cloud %s for volume type %s: it is a volume of %s (infra: %s)", at.Cloud, v.Type, CloudDisplay(cloud), short(cloud))
		}
		d.Place = Infra{Cloud: cloud, Region: at.Region, Zone: at.Zone}
	}
	if err := v.checkConfig(&d, bad); err != nil {
		return d, err
	}
	return d, v.checkSize(&d, bad)
}

func short(cloud string) string {
	if cloud == facts.Kubernetes {
		return "k8s"
	}
	return cloud
}

func (v *Volume) checkSize(d *VolumeDetails, bad func(field, format string, args ...any) error) (err error) {
	if v.Size != "" {
		if d.GB, err = ParseVolumeSize(v.Size); err != nil {
			return bad("size", "%v", err)
		}
	}
	switch {
	case v.Type == VolumeHostPath:
	case d.GB == 0 && !v.UseExisting:
		return bad("size", "a new volume needs a size: put size: 100 (GB) into its file, or give --size. To use one that exists: use_existing: true, or --use-existing")
	case v.Type == VolumeRunPod && d.GB > 0 && d.GB < minRunPodVolume:
		return bad("size", "a network volume of RunPod has at least %d GB", minRunPodVolume)
	}
	if v.Type == VolumeRunPod && d.Place.Zone == "" {
		return bad("infra", "a network volume of RunPod is in a data center: name it as the zone, infra: runpod/COUNTRY/DATACENTER")
	}
	return nil
}

func (v *Volume) checkConfig(d *VolumeDetails, bad func(field, format string, args ...any) error) error {
	texts := map[string]*string{"storage_class_name": &d.StorageClass, "access_mode": &d.AccessMode, "namespace": &d.Namespace, "host_path": &d.HostPath}
	for _, key := range slices.Sorted(maps.Keys(v.Config)) {
		value := v.Config[key]
		if value == nil {
			continue
		}
		if key == "cleanup_on_deletion" {
			on, ok := value.(bool)
			if !ok {
				return bad("config."+key, "should be true or false, not %v", value)
			}
			d.CleanupOnDeletion = on
			continue
		}
		to, known := texts[key]
		if !known {
			return bad("config."+key, "is no setting of a volume; there are: storage_class_name, access_mode, namespace, host_path, cleanup_on_deletion")
		}
		s, ok := value.(string)
		if !ok {
			return bad("config."+key, "should be a text, not %v", value)
		}
		*to = s
	}
	switch {
	case d.AccessMode != "" && !slices.Contains(AccessModes, d.AccessMode):
		return bad("config.access_mode", "%q is no access mode; there are: %s", d.AccessMode, strings.Join(AccessModes, ", "))
	case v.Type != VolumeHostPath && (d.HostPath != "" || d.CleanupOnDeletion):
		return bad("config.host_path", "config.host_path and config.cleanup_on_deletion are for volumes of the type %s, not %s", VolumeHostPath, v.Type)
	case v.Type != VolumeHostPath:
	case d.HostPath == "":
		return bad("config.host_path", "a volume of the type %s needs one: the folder of the machines, such as /mnt/data", VolumeHostPath)
	case !path.IsAbs(d.HostPath) || slices.Contains(strings.Split(d.HostPath, "/"), ".."):
		return bad("config.host_path", "should be an absolute path without .., such as /mnt/data, not %q", d.HostPath)
	case path.Clean(d.HostPath) == "/":
		return bad("config.host_path", "cannot be the whole file system of the machines; name a folder such as /mnt/data")
	case d.StorageClass != "":
		return bad("config.storage_class_name", "a folder of the machines has no storage class; remove config.storage_class_name")
	}
	return nil
}

// VolumeCloud is the cloud that has volumes of a type; ok is false for an unknown one.
func VolumeCloud(volumeType string) (name string, ok bool) {
	for _, c := range facts.All() {
		if slices.Contains(c.Volumes, volumeType) {
			return c.Name, true
		}
	}
	return "", false
}
