package gcp

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
)

// withDisks is a launch of machines with further disks.
func (b *bed) withDisks(name string, nodes int, disks ...cloud.Disk) cloud.LaunchSpec {
	spec := b.spec(name, nodes)
	spec.Disks, spec.ImageID = disks, plain(here)[0]
	return spec
}

func (b *bed) disksLeft() (all []string) {
	for _, line := range b.fake.Inventory() {
		if strings.HasPrefix(line, "disks ") {
			all = append(all, line)
		}
	}
	return all
}

func TestFurtherDisks(t *testing.T) {
	virtual(t, func(b *bed) {
		b.s.Labels = map[string]string{"team": "ml"}
		data, ssd := cloud.Disk{Path: "/data", Name: "data", GB: 50, Tier: "low"}, cloud.Disk{Path: "/fast", Tier: "best"}
		first := b.withDisks("first", 1, data, ssd)
		b.launch(first)
		has(t, b.fake.last, `"diskName":"data"`, `"diskType":"zones/us-central1-a/diskTypes/pd-standard"`, `"diskSizeGb":"50"`, `"deviceName":"data"`, `"type":"SCRATCH"`, `"diskType":"zones/us-central1-a/diskTypes/local-ssd"`,
			`"interface":"NVME"`, `"key":"user-data"`, "google-data at=/data", "google-local-nvme-ssd-0 at=/fast")
		b.refused(b.withDisks("second", 1, data), "unclear") // it has a machine that writes on it
		b.down(b.withDisks("second", 1).ID)
		b.down(first.ID)
		if left := b.disksLeft(); !slices.Equal(left, []string{"disks data"}) {
			t.Fatalf("left: %v", left)
		}

		// The disk is found again, and read by several machines.
		b.launch(first)
		has(t, b.fake.last, `"source":"projects/`, "/zones/us-central1-a/disks/data", `"mode":"READ_WRITE"`)
		b.down(first.ID)
		data.ReadOnly = true
		many := b.withDisks("many", 3, data, ssd)
		before := b.fake.called("POST", "/bulkInsert")
		b.launch(many)
		has(t, b.fake.last, `"mode":"READ_ONLY"`, `"diskType":"local-ssd"`, "ro,noload")
		if n := b.fake.called("POST", "/bulkInsert") - before; n != 1 {
			t.Errorf("%d calls for all", n)
		}
		b.down(many.ID)

		// Elsewhere it cannot be used, and no other one of the name is made.
		far := b.withDisks("far", 1, cloud.Disk{Path: "/data", Name: "data"})
		far.Offer.Place = cloud.Place{Cloud: Name, Region: "us-central1", Zone: "us-central1-b"}
		b.refused(far, "invalid gcp/us-central1/us-central1-b")
		b.refused(b.withDisks("none", 1, cloud.Disk{Path: "/data", Name: "other", ReadOnly: true}), "invalid gcp")

		// One that is to go with the cluster goes.
		gone := b.withDisks("gone", 1, cloud.Disk{Path: "/x", Name: "scratch", Goes: true})
		b.launch(gone)
		b.down(gone.ID)
		if left := b.disksLeft(); !slices.Equal(left, []string{"disks data"}) {
			t.Errorf("left: %v", left)
		}

		// Machines that have local SSDs by themselves are given no others.
		own := b.withDisks("own", 1, ssd)
		own.Offer.InstanceType, own.Offer.Accelerators = "a3-highgpu-1g", map[string]float64{"H100": 1}
		b.launch(own)
		if strings.Contains(b.fake.last, "SCRATCH") || !strings.Contains(b.fake.last, "google-local-nvme-ssd-0 at=/fast") {
			t.Errorf("asked for: %s", b.fake.last)
		}
	})
}

func TestValidDisks(t *testing.T) {
	for _, tt := range []struct {
		what  string
		nodes int
		image string
		disks []cloud.Disk
		want  string
	}{
		{"fine", 2, "", []cloud.Disk{{Path: "/mnt/data", Name: "d", ReadOnly: true}, {Path: "/fast"}, {Path: "/faster"}}, ""},
		{"a relative path", 1, "", []cloud.Disk{{Path: "data"}}, "is mounted at a path"},
		{"the root", 1, "", []cloud.Disk{{Path: "/"}}, "is mounted at a path"},
		{"upwards", 1, "", []cloud.Disk{{Path: "/a/../etc"}}, "is mounted at a path"},
		{"a command", 1, "", []cloud.Disk{{Path: "/a;reboot"}}, "is mounted at a path"},
		{"the same path", 1, "", []cloud.Disk{{Path: "/a"}, {Path: "/a", Name: "d"}}, "two disks"},
		{"an odd name", 1, "", []cloud.Disk{{Path: "/a", Name: "My_Disk"}}, "is no name of a disk"},
		{"twice", 1, "", []cloud.Disk{{Path: "/a", Name: "d"}, {Path: "/b", Name: "d"}}, "attached twice"},
		{"several writers", 2, "", []cloud.Disk{{Path: "/a", Name: "d"}}, "attach_mode: read_only"},
		{"an SSD to read", 1, "", []cloud.Disk{{Path: "/a", ReadOnly: true}}, "nobody could write"},
		{"a machine image", 1, "projects/p/global/machineImages/m", []cloud.Disk{{Path: "/a"}}, "disks of the image"},
	} {
		spec := cloud.LaunchSpec{ID: cloud.ClusterID{Name: "web"}, Offer: here, AuthorizedKey: key, Nodes: tt.nodes, ImageID: tt.image, MachineSpec: cloud.MachineSpec{Disks: tt.disks}}
		if err := New(Options{}).valid(spec); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.what, err, tt.want)
		}
	}
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Name: "web"}, Offer: here, AuthorizedKey: key, Nodes: 1, MachineSpec: cloud.MachineSpec{Disks: []cloud.Disk{{Path: "/a"}}}}
	for instanceType, fits := range map[string]bool{"n2-standard-4": true, "c3-standard-8-lssd": true, "a4-highgpu-8g": true, "n4-standard-4": false, "e2-standard-2": false, "c3-standard-8": false} {
		spec.Offer.InstanceType = instanceType
		if err := New(Options{}).valid(spec); (err == nil) != fits {
			t.Errorf("a local SSD on %s: %v", instanceType, err)
		}
	}
	spec.Offer.InstanceType, spec.Disks[0].Name = here.InstanceType, "d"
	spec.Offer.Accelerators = map[string]float64{"L4": 1}
	spec.Settings = map[string]any{"managed_instance_group": map[string]any{"run_duration": 7200}}
	if err := New(Options{}).valid(spec); err == nil || !strings.Contains(err.Error(), "storage_type: instance") {
		t.Errorf("in a group: %v", err)
	}
}

// TestMountingDisks runs what machines run at each boot, with the tools that it calls as
// scripts that note their arguments.
func TestMountingDisks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the script is for Linux")
	}
	blank, data := make([]byte, 4<<20), bytes.Repeat([]byte("x"), 4<<20)
	for _, tt := range []struct {
		name            string
		content         []byte
		known, readOnly bool // known: blkid knows what is on it
		refuses         bool // to be mounted
		want            string
		folder          bool
	}{
		{"a blank disk", blank, false, false, false, "mkfs.ext4 -q -m 0 DEV;mount -o defaults DEV AT;", true},
		{"one with a file system", data, true, false, false, "mount -o defaults DEV AT;", true},
		{"one with data that nobody knows", data, false, false, true, "mount -o defaults DEV AT;", false},
		{"one that is too short to be sure", blank[:1000], false, false, true, "mount -o defaults DEV AT;", false},
		{"one that is only read", blank, false, true, false, "mount -o ro,noload DEV AT;", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			at, dev, log := filepath.Join(dir, "at"), filepath.Join(dir, "google-d"), filepath.Join(dir, "log")
			tools := map[string]string{"blkid": "exit 2", "mkfs.ext4": `echo "mkfs.ext4 $*" >> ` + log, "mount": `echo "mount $*" >> ` + log, "mountpoint": "exit 1"}
			if tt.known {
				tools["blkid"] = "exit 0"
			}
			if tt.refuses {
				tools["mount"] += "; exit 32"
			}
			for name, text := range tools {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(dev, tt.content, 0o600); err != nil {
				t.Fatal(err)
			}
			whole := bootDisks([]cloud.Disk{{Path: "/at", Name: "d", ReadOnly: tt.readOnly}})
			var boot struct{ Bootcmd [][]string }
			cloudtest.ReadYAML(t, whole, &boot)
			if !strings.HasPrefix(whole, "#cloud-config\n") || len(boot.Bootcmd) != 1 {
				t.Fatalf("cloud-init does not read this:\n%s", whole)
			}
			args := boot.Bootcmd[0]
			script := strings.NewReplacer("dev=/dev/disk/by-id/google-d", "dev="+dev, "at=/at", "at="+at).Replace(args[2])
			cmd := exec.CommandContext(t.Context(), args[0], args[1], script)
			cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			text, _ := os.ReadFile(log)
			got := strings.NewReplacer(dev, "DEV", at, "AT", "\n", ";").Replace(string(text))
			if got != tt.want {
				t.Errorf("it did %q, want %q", got, tt.want)
			}
			if _, err := os.Stat(at); (err == nil) != tt.folder {
				t.Errorf("the folder: %v", err)
			}
		})
	}
}
