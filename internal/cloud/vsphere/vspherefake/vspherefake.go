// Package vspherefake is VMware's vCenter simulator for tests, with what it lacks: rooms that
// are full, guests that boot and have addresses, machines behind VMs, users and passwords, and
// faults. Calls are checked against the schema of the API, the order of elements included.
//
// The simulator has its inventory in variables of its package: a process has one at a time.
package vspherefake

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// The account, and what there is.
const (
	Vcenter, User, Password = "vcenter.example.com", "sky@vsphere.local", "secret"
	Zone, Other             = "DC0_C0", "DC0_C1" // clusters
	Template, GPUTemplate   = "SKYPILOT-CPU", "ubuntu-cuda"
	GPUs                    = 4 // A100 of the first host of Zone
)

// Credentials is a file with the account.
const Credentials = "vcenters:\n- name: " + Vcenter + "\n  username: " + User + "\n  password: " + Password + "\n"

// Hardware are machines that VMs are, each with its address.
type Hardware interface{ Address(name string) string }

// Machine is a VM as the hardware behind it sees it.
type Machine struct {
	Name, UserData string
	State          fluffyapi.State
}

// guest is what the simulator does not know of a VM.
type guest struct {
	name    string
	vm      *simulator.VirtualMachine
	spec    types.VirtualMachineCloneSpec
	bootAt  time.Time
	on      bool            // the machine is, and not only the VM
	halting bool            // off is wanted
	task    *simulator.Task // that ends when the machine is off; nil: the guest was asked
	gone    bool
	hidden  int             // lists that it is missing in
	ending  *simulator.Task // that ends after so many lists
	lingers int
}

// Fake is a vCenter. Its methods may be called concurrently.
type Fake struct {
	Hardware Hardware // nil: VMs boot by themselves
	Version  string   // of the API; "": 8.0.2.0

	once  sync.Once
	model *simulator.Model
	mux   http.Handler

	mu       sync.Mutex
	guests   []*guest
	full     map[string]int // MiB that are left in a cluster
	boot     time.Duration
	sessions map[string]bool
	process  cloudtest.Death // of the process that calls
	trouble  trouble
	calls    []string
}

// trouble is what goes wrong.
type trouble struct {
	cut, throttle, refuse, forbid, lack, tools bool
	odd                                        cloudtest.Effect
	lacking                                    int
	lose                                       map[cloudtest.Effect]int
	hideNew, linger                            int
	hang                                       chan struct{}
	refusal                                    map[string]string // faults, by method
	taskRefusal                                map[string]types.BaseMethodFault
}

// dynamicBacking is a device that vCenter picks, which the simulator is too old to know.
type dynamicBacking struct {
	types.VirtualDeviceDeviceBackingInfo
	AllowedDevice []struct {
		VendorID int32 `xml:"vendorId"`
		DeviceID int32 `xml:"deviceId"`
	} `xml:"allowedDevice"`
}

const bootTime = 20 * time.Millisecond

// New returns a vCenter with two clusters of two hosts.
func New() *Fake {
	return &Fake{full: map[string]int{}, sessions: map[string]bool{}, boot: bootTime, trouble: trouble{lose: map[cloudtest.Effect]int{}}}
}

// begin makes the simulator, which is the last one of the process from then on.
func (f *Fake) begin() {
	f.once.Do(func() {
		types.Add("VirtualPCIPassthroughDynamicBackingInfo", reflect.TypeFor[dynamicBacking]())
		m := simulator.VPX()
		m.ServiceContent.About.ApiVersion = "8.0.2.0"
		if f.Version != "" {
			m.ServiceContent.About.ApiVersion = f.Version
		}
		m.Host, m.Cluster, m.ClusterHost, m.Machine, m.Autostart = 0, 2, 2, 1, false
		if err := m.Create(); err != nil {
			panic(err)
		}
		f.model = m
		m.Service.RegisterSDK(simulator.Map)
		f.mux = m.Service.ServeMux
		for i, h := range hosts() {
			h.Summary.Hardware.NumCpuCores, h.Summary.Hardware.CpuMhz, h.Summary.Hardware.MemorySize = 1024, 2400, 4<<40
			h.Runtime.ConnectionState = types.HostSystemConnectionStateConnected
			h.Hardware.PciDevice, h.Config = nil, &types.HostConfigInfo{}
			for n := range GPUs {
				if i > 0 {
					break
				}
				id := fmt.Sprintf("0000:%02x:00.0", 0x3b+n)
				h.Hardware.PciDevice = append(h.Hardware.PciDevice, types.HostPciDevice{Id: id, ClassId: 0x0302, VendorId: 0x10de, DeviceId: 0x20b5, VendorName: "NVIDIA Corporation", DeviceName: "GA100 [A100 PCIe 80GB]"})
				h.Config.PciPassthruInfo = append(h.Config.PciPassthruInfo, &types.HostPciPassthruInfo{Id: id, PassthruEnabled: true, PassthruCapable: true, PassthruActive: true})
			}
		}
		for i, v := range machines() {
			v.Name, v.Config.Template = []string{Template, GPUTemplate}[i], true
			v.Config.Name, v.Config.Annotation = v.Name, []string{"", "made by hand: GPU-A100-80GB\nsee the wiki"}[i]
			v.Config.Files.VmPathName = "[LocalDS_0] " + v.Name + "/" + v.Name + ".vmx" // of which those of clones are made
			for _, d := range v.Config.Hardware.Device {
				if disk, ok := d.(*types.VirtualDisk); ok {
					disk.CapacityInKB, disk.CapacityInBytes = 40<<20, 40<<30
				}
			}
		}
	})
}

// Close removes the files of the simulator.
func (f *Fake) Close() {
	if f.model != nil {
		f.model.Remove()
	}
}

func datacenter() *simulator.Datacenter {
	return simulator.Map.Any("Datacenter").(*simulator.Datacenter)
}

// machines and hosts are those of the simulator, in the order of their names.
func machines() (all []*simulator.VirtualMachine) {
	for _, to := range simulator.Map.Get(datacenter().VmFolder).(*simulator.Folder).ChildEntity {
		if v, ok := simulator.Map.Get(to).(*simulator.VirtualMachine); ok {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *simulator.VirtualMachine) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func hosts() (all []*simulator.HostSystem) {
	for _, to := range simulator.Map.Get(datacenter().HostFolder).(*simulator.Folder).ChildEntity {
		if c, ok := simulator.Map.Get(to).(*simulator.ClusterComputeResource); ok {
			for _, h := range c.Host {
				all = append(all, simulator.Map.Get(h).(*simulator.HostSystem))
			}
		}
	}
	slices.SortFunc(all, func(a, b *simulator.HostSystem) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// clusterOf is the name of the cluster of a host.
func clusterOf(h *simulator.HostSystem) string {
	return simulator.Map.Get(*h.Parent).(*simulator.ClusterComputeResource).Name
}

func poweredOn(v *simulator.VirtualMachine) bool {
	return v.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff
}

// settle lets time pass: guests boot, hosts say what they use.
func (f *Fake) settle() {
	for _, g := range f.guests {
		if !g.gone && poweredOn(g.vm) && !g.on && !g.halting && f.Hardware == nil && !time.Now().Before(g.bootAt) {
			f.booted(g)
		}
	}
	used := map[types.ManagedObjectReference]int{}
	for _, v := range machines() {
		if poweredOn(v) {
			used[*v.Runtime.Host] += int(v.Config.Hardware.MemoryMB)
		}
	}
	first := map[string]bool{}
	for _, h := range hosts() {
		zone, mib := clusterOf(h), used[h.Self]
		if left, ok := f.full[zone]; ok {
			if mib = int(h.Summary.Hardware.MemorySize >> 20); !first[zone] {
				mib -= left
			}
			first[zone] = true
		}
		h.Summary.QuickStats.OverallMemoryUsage = int32(mib)
	}
}

// address is that of a machine.
func (f *Fake) address(name string) string {
	if f.Hardware != nil {
		return f.Hardware.Address(name)
	}
	i := slices.IndexFunc(f.guests, func(g *guest) bool { return g.name == name })
	return fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250)
}

// booted gives a VM its address, beside one that its guest made for containers.
func (f *Fake) booted(g *guest) {
	ip := f.address(g.name)
	g.on = true
	g.vm.Guest.IpAddress = "172.17.0.1"
	g.vm.Guest.Net = []types.GuestNicInfo{{IpAddress: []string{"172.17.0.1"}, DeviceConfigId: -1}, {Network: "VM Network", IpAddress: []string{"fe80::1", ip}, Connected: true, DeviceConfigId: 4000}}
}

// halt is what a VM does that was asked to be off.
func (f *Fake) halt(g *guest, task *simulator.Task) {
	g.halting, g.task = true, task
	if f.Hardware == nil || !g.on {
		f.halted(g)
	}
}

func (f *Fake) halted(g *guest) {
	g.vm.Runtime.PowerState, g.vm.Summary.Runtime.PowerState = types.VirtualMachinePowerStatePoweredOff, types.VirtualMachinePowerStatePoweredOff
	g.vm.Guest.IpAddress, g.vm.Guest.Net = "", nil
	g.on, g.halting = false, false
	if g.task != nil {
		g.task.Info.State, g.task = types.TaskInfoStateSuccess, nil
	}
}
