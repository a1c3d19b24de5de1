package gcp

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// A task can have further disks on its machines: disks of the project, which are made
// if they do not exist and stay when the cluster goes, and local SSDs, which go with the
// machine. Each has a file system and is mounted before anybody can log in.

// defaultDataGB is the size of a disk of the project that is made.
const defaultDataGB = 100

// ssdGB is the size of a local SSD, which is the same for all that are attached.
//
// https://cloud.google.com/compute/docs/disks/local-ssd
const ssdGB = 375

// builtIn are the types of machines that have local SSDs by themselves, and can be given no others.
//
// https://cloud.google.com/compute/docs/disks/local-ssd#lssd_disks_fixed
var builtIn = lazyregexp.New(`-lssd$|^(z3|a2-ultragpu|a3|a4)-`)

// takesSSDs are the types that can be given local SSDs.
//
// https://cloud.google.com/compute/docs/disks/local-ssd#choose_number_local_ssds
var takesSSDs = lazyregexp.New(`^(n1|n2d?|c2d?|a2-highgpu|a2-megagpu|g2|m1|m3)-`)

var (
	diskName = lazyregexp.New(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	diskPath = lazyregexp.New(`^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$`)
)

// validDisks refuses further disks that cannot be.
func (p *Provider) validDisks(spec cloud.LaunchSpec) error {
	if len(spec.Disks) == 0 {
		return nil
	}
	switch {
	case tpuName(spec.Offer) != "":
		return fmt.Errorf("the machines of TPUs take no further disks here; take resources.volumes out of the task")
	case strings.Contains(spec.ImageID, "/machineImages/"):
		return fmt.Errorf("machines from a machine image have the disks of the image; take resources.volumes out of the task")
	}
	paths, names := map[string]bool{}, map[string]bool{}
	for _, d := range spec.Disks {
		switch {
		case !diskPath.MatchString(d.Path):
			return fmt.Errorf("a disk is mounted at a path such as /mnt/data, of letters, digits, dots, dashes and underscores, and not at %q", d.Path)
		case paths[d.Path]:
			return fmt.Errorf("two disks are to be mounted at %s", d.Path)
		case d.Name == "" && d.ReadOnly:
			return fmt.Errorf("the disk inside the machine at %s is new, and nobody could write on it with attach_mode: read_only", d.Path)
		case d.Name == "" && !takesSSDs.MatchString(spec.Offer.InstanceType) && !builtIn.MatchString(spec.Offer.InstanceType):
			return fmt.Errorf("%s takes no local SSDs (storage_type: instance); name a type that does, such as instance_type: n2-standard-8", spec.Offer.InstanceType)
		case d.Name == "":
		case !diskName.MatchString(d.Name):
			return fmt.Errorf("%q is no name of a disk on Google Cloud: it has 1 to 63 small letters, digits and dashes, begins with a letter and ends with no dash", d.Name)
		case names[d.Name]:
			return fmt.Errorf("the disk %s is to be attached twice", d.Name)
		case !d.ReadOnly && spec.Nodes > 1:
			return fmt.Errorf("the disk %s can be written by one machine, and the cluster is to have %d; say attach_mode: read_only if it has its data already", d.Name, spec.Nodes)
		case p.settings(spec).flex(spec.Offer):
			return fmt.Errorf("machines of gcp.managed_instance_group take no disks of the project (%s); use storage_type: instance", d.Name)
		}
		paths[d.Path], names[d.Name] = true, d.Name != ""
	}
	return nil
}

// dataDisk is a disk of the project as a launch found it.
type dataDisk struct {
	cloud.Disk
	link string // of one that exists; "": it is made with the machine
}

// dataDisks finds out which of a launch's disks exist, in its zone.
func (a *account) dataDisks(ctx context.Context, spec cloud.LaunchSpec) (all []dataDisk, err error) {
	at := spec.Offer.Place
	for _, d := range spec.Disks {
		if d.Name == "" {
			all = append(all, dataDisk{d, ""})
			continue
		}
		found, err := rest.Do[struct {
			Link string `json:"selfLink"`
		}](ctx, a.compute, "GET", a.on("/zones/%s/disks/%s", at.Zone, d.Name), nil)
		if err == nil {
			all = append(all, dataDisk{d, partial(found.Link)})
			continue
		}
		if !missing(err) {
			return nil, err
		}
		elsewhere, err := a.named(ctx, "disks", d.Name)
		if err != nil {
			return nil, err
		}
		switch {
		case len(elsewhere) > 0:
			zone := path.Base(elsewhere[0].Zone)
			return nil, &cloud.InvalidError{Place: at, Err: fmt.Errorf("the disk %s is in %s, and machines of other zones cannot use it; say infra: gcp/%s/%s", d.Name, zone, region(zone), zone)}
		case d.ReadOnly:
			return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("the project %s has no disk %s, and one that is made now would have nothing to read", a.project, d.Name)}
		}
		all = append(all, dataDisk{d, ""})
	}
	return all, nil
}

// oneByOne reports whether each machine is made by a call of its own, since it has a disk
// that no other one has.
func (p *plan) oneByOne() bool {
	return p.machineImage || slices.ContainsFunc(p.disks, func(d dataDisk) bool { return d.Name != "" && (d.link == "" || !d.ReadOnly) })
}

// attachments are the further disks in the body of a call. kinds is before the names of
// types of disks: "", or where calls want their URLs.
func (p *plan) attachments(spec cloud.LaunchSpec, kinds string) (out []any) {
	for _, d := range p.disks {
		switch {
		case d.Name == "" && builtIn.MatchString(spec.Offer.InstanceType): // it is there anyway
		case d.Name == "":
			out = append(out, map[string]any{"type": "SCRATCH", "mode": "READ_WRITE", "autoDelete": true, "interface": "NVME", "initializeParams": map[string]any{"diskType": kinds + "local-ssd"}})
		default:
			disk := map[string]any{"type": "PERSISTENT", "mode": "READ_WRITE", "autoDelete": d.Goes, "deviceName": d.Name}
			if d.ReadOnly {
				disk["mode"] = "READ_ONLY"
			}
			if d.link != "" {
				disk["source"] = d.link
			} else {
				kind, iops := diskType(spec.Offer, d.Tier)
				made := map[string]any{"diskName": d.Name, "diskType": kinds + kind, "diskSizeGb": fmt.Sprint(cmp.Or(d.GB, defaultDataGB))}
				if len(p.settings.Labels) > 0 {
					made["labels"] = p.settings.Labels
				}
				if iops > 0 {
					made["provisionedIops"] = fmt.Sprint(iops)
				}
				disk["initializeParams"] = made
			}
			out = append(out, disk)
		}
	}
	return out
}

// bootDisks is what cloud-init does at each boot before anybody can log in: it mounts the
// further disks, and makes file systems on those that are blank. Where one cannot be
// mounted there is no folder, so that nothing is written on the system disk instead.
func bootDisks(disks []cloud.Disk) string {
	var b strings.Builder
	b.WriteString("#cloud-config\nbootcmd:\n")
	ssd := 0
	for _, d := range disks {
		device, options := "google-"+d.Name, "defaults"
		if d.Name == "" {
			device = fmt.Sprintf("google-local-nvme-ssd-%d", ssd)
			ssd++
		}
		if d.ReadOnly {
			options = "ro,noload"
		}
		script := fmt.Sprintf("dev=/dev/disk/by-id/%s at=%s options=%s\n%s", device, d.Path, options, mountDisk)
		b.WriteString("- [sh, -c, " + strconv.Quote(script) + "]\n")
	}
	return b.String()
}

// mountDisk mounts one, by the variables dev, at and options. Only a disk whose first
// megabytes hold nothing but zeros gets a file system.
const mountDisk = `n=0; until [ -e "$dev" ] || [ $n -ge 60 ]; do sleep 1; n=$((n+1)); done
mountpoint -q "$at" && exit 0
fresh=
if [ "$options" = defaults ] && ! blkid -p "$dev" >/dev/null && [ "$(head -c 4194304 "$dev" | tr -d '\0' | wc -c)" = 0 ] && [ "$(head -c 4194304 "$dev" | wc -c)" = 4194304 ]; then
  mkfs.ext4 -q -m 0 "$dev" && fresh=1
fi
mkdir -p "$at"
if mount -o "$options" "$dev" "$at"; then
  [ -z "$fresh" ] || chmod 1777 "$at"
else
  rmdir "$at"; echo "sky: $dev could not be mounted at $at"
fi
`

// diskNeeds are what the further disks take of a region's quotas.
func diskNeeds(spec cloud.LaunchSpec) (out []need) {
	ssds := 0
	for _, d := range spec.Disks {
		if d.Name == "" && !builtIn.MatchString(spec.Offer.InstanceType) { // the others may be there already
			ssds++
		}
	}
	if ssds > 0 {
		out = append(out, need{[]string{"LOCAL_SSD_TOTAL_GB"}, float64(ssds * ssdGB)})
	}
	return out
}
