package aws

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func TestFabric(t *testing.T) {
	first := types.InstanceNetworkInterfaceSpecification{DeviceIndex: sdk.Int32(0), Groups: []string{"sg"}, AssociatePublicIpAddress: sdk.Bool(true)}
	for _, tt := range []struct {
		machine  string
		adapters int
		internal bool
		want     string
	}{
		{"g5.8xlarge", 1, true, "efa"},
		{"p4d.24xlarge", 4, false, "efa"},
		{"p4d.24xlarge", 4, true, "efa efa-only efa-only efa-only"},
		{"p5.48xlarge", 9, true, "efa efa-only efa-only efa-only efa efa-only efa-only efa-only efa"},
		{"p6-b300.48xlarge", 2, true, "interface efa-only efa-only"},
		{"p6-b300.48xlarge", 16, false, errPlainFirst.Error()},
	} {
		cards := efaCards(tt.machine, types.NetworkInfo{EfaInfo: &types.EfaInfo{MaximumEfaInterfaces: sdk.Int32(int32(tt.adapters))}})
		list, err := fabric(first, tt.machine, cards, tt.internal)
		var kinds []string
		if err != nil {
			kinds = append(kinds, err.Error())
		}
		for card, n := range list {
			kinds = append(kinds, cmp.Or(sdk.ToString(n.InterfaceType), "interface"))
			if len(list) > 1 && n.AssociatePublicIpAddress != nil {
				t.Errorf("%+v: a public address is mentioned", tt)
			}
			if card > 0 && (*n.NetworkCardIndex != int32(card) || *n.DeviceIndex != 1 || n.Groups[0] != "sg") {
				t.Errorf("%+v: card %d: %+v", tt, card, n)
			}
		}
		if got := strings.Join(kinds, " "); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
	// What EC2 says of single cards counts.
	card := func(index int32, kinds ...types.NetworkCardInterfaceType) types.NetworkCardInfo {
		return types.NetworkCardInfo{NetworkCardIndex: sdk.Int32(index), InterfaceTypes: kinds}
	}
	told := types.NetworkInfo{EfaInfo: &types.EfaInfo{MaximumEfaInterfaces: sdk.Int32(2)}, NetworkCards: []types.NetworkCardInfo{
		card(0, "interface"), card(5, "interface", "efa", "efa-only"), card(1, "efa-only"), card(3, "secondary"), card(9, "efa")}}
	if got := efaCards("p7.48xlarge", told); !slices.Equal(got, []int{1, 5}) {
		t.Errorf("adapters on cards %v", got)
	}
	if *first.AssociatePublicIpAddress != true || first.InterfaceType != nil {
		t.Error("the first was changed")
	}
}

// TestMountingLocalDisks runs the script that machines run at each boot, with
// stand-ins for what needs disks.
func TestMountingLocalDisks(t *testing.T) {
	if _, err := exec.LookPath("awk"); err != nil {
		t.Skip("there is no awk here")
	}
	dir := t.TempDir()
	tool := func(name, script string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tool("lsblk", `printf 'nvme0n1 Amazon Elastic Block Store\nnvme2n1 Amazon EC2 NVMe Instance Storage\nnvme1n1 Amazon EC2 NVMe Instance Storage\nnvme3n1 Amazon EC2 NVMe Instance Storage\n'`)
	tool("findmnt", `[ "$2" = /dev/nvme3n1 ]`) // mounted already
	tool("blkid", `[ "$1" = /dev/nvme2n1 ]`)   // has a file system
	log := filepath.Join(dir, "log")
	for _, name := range []string{"mkfs.ext4", "mount", "chmod", "mkdir"} {
		tool(name, `echo "${0##*/} $*" >>`+log)
	}
	cmd := exec.Command("sh", "-c", mountLocal)
	cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want := `mkfs.ext4 -q /dev/nvme1n1
mkdir -p /mnt/local
mount /dev/nvme1n1 /mnt/local
chmod 1777 /mnt/local
mkdir -p /mnt/local1
mount /dev/nvme2n1 /mnt/local1
chmod 1777 /mnt/local1
`
	if string(got) != want {
		t.Errorf("it did\n%s", got)
	}
}
