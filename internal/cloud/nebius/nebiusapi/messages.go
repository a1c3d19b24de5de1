package nebiusapi

import "cmp"

// Messages of nebius.compute.v1.
type (
	Instance struct {
		Metadata Metadata     `pb:"1"`
		Spec     InstanceSpec `pb:"2"`
		Status   struct {
			State      int32 `pb:"1"`
			Interfaces []struct {
				Private address `pb:"3"`
				Public  address `pb:"4"`
			} `pb:"2"`
			Reconciling bool `pb:"5"`
		} `pb:"3"`
	}
	address struct {
		Address string `pb:"1"`
	}
	InstanceSpec struct {
		Resources struct {
			Platform string `pb:"1"`
			Preset   string `pb:"2"`
		} `pb:"2"`
		GPUCluster  *ByID              `pb:"3"`
		Interfaces  []NetworkInterface `pb:"4"`
		Boot        *AttachedDisk      `pb:"5"`
		Filesystems []Filesystem       `pb:"7"`
		UserData    string             `pb:"8"`
		Stopped     bool               `pb:"13"` // somebody asked for it
		Recovery    int32              `pb:"15"`
		Preemptible *Preemptible       `pb:"19"`
	}
	NetworkInterface struct {
		Subnet  string    `pb:"1"`
		Name    string    `pb:"2"`
		Private *struct{} `pb:"3"`
		Public  *PublicIP `pb:"4"`
		Groups  []ByID    `pb:"7"`
	}
	PublicIP struct {
		Static bool `pb:"3"`
	}
	AttachedDisk struct {
		Mode int32 `pb:"1"`
		Disk ByID  `pb:"2"`
	}
	Filesystem struct {
		Mode int32  `pb:"1"`
		Tag  string `pb:"2"`
		Of   ByID   `pb:"3"`
	}
	Preemptible struct {
		OnPreemption int32 `pb:"1"`
		Priority     int32 `pb:"2"`
	}
	Disk struct {
		Metadata Metadata `pb:"1"`
		Status   struct {
			State    int32  `pb:"1"`
			Why      string `pb:"2"`
			Attached string `pb:"3"` // to a machine
		} `pb:"3"`
	}
	DiskSpec struct {
		GiB    int64   `pb:"4"`
		Type   int32   `pb:"6"`
		Image  string  `pb:"8"`
		Family *Family `pb:"10"`
	}
	Family struct {
		Name string `pb:"1"`
	}
)

const (
	ReadOnly, ReadWrite = 1, 2 // AttachMode
	OnPreemptionStop    = 1    // PreemptionPolicy
	DiskReady           = 2    // DiskStatus.State
	DiskError           = 5    //
	Fail                = 1    // InstanceRecoveryPolicy: what powers off stays off
)

// The services of machines and their disks.
const (
	Instances = "nebius.compute.v1.InstanceService"
	Disks     = "nebius.compute.v1.DiskService"
)

// Messages of nebius.vpc.v1, and of GPU clusters.
type (
	Subnet struct {
		Metadata Metadata  `pb:"1"`
		Spec     InNetwork `pb:"2"`
	}
	InNetwork struct {
		Network string `pb:"1"`
	}
	Named struct {
		Metadata Metadata `pb:"1"`
	}
	Rule struct {
		Metadata Metadata `pb:"1"`
		Spec     RuleSpec `pb:"2"`
	}
	RuleSpec struct {
		Access   int32    `pb:"1"`
		Protocol int32    `pb:"3"`
		Ingress  *Traffic `pb:"4"`
		Egress   *Traffic `pb:"5"`
	}
	Traffic struct {
		Group string   `pb:"1"`
		CIDRs []string `pb:"2"`
		Ports []int32  `pb:"3"`
	}
	FabricSpec struct {
		Fabric string `pb:"1"`
	}
)

// The services of networks and GPU clusters.
const (
	Subnets  = "nebius.vpc.v1.SubnetService"
	Groups   = "nebius.vpc.v1.SecurityGroupService"
	Rules    = "nebius.vpc.v1.SecurityRuleService"
	GpuGroup = "nebius.compute.v1.GpuClusterService"
)

const (
	Allow    = 1 // RuleAccessAction
	Anything = 1 // RuleProtocol
	TCP      = 2 //
)

// project is where the machines of a region are.
type Project struct {
	Metadata Metadata `pb:"1"`
	Spec     struct {
		Region string `pb:"1"`
	} `pb:"2"`
	Status struct {
		Region string `pb:"4"`
	} `pb:"3"`
}

func (p Project) Region() string { return cmp.Or(p.Status.Region, p.Spec.Region) }

// advice is what Nebius says about the room for a preset.
type Advice struct {
	Spec struct {
		Region  string `pb:"1"`
		Fabric  string `pb:"2"`
		Machine struct {
			Platform string `pb:"1"`
			Preset   struct {
				Name string `pb:"1"`
			} `pb:"2"`
		} `pb:"10"`
	} `pb:"2"`
	Status struct {
		OnDemand    Room `pb:"2"`
		Preemptible Room `pb:"3"`
	} `pb:"3"`
}

type Room struct {
	State     int32  `pb:"1"` // of the data
	Available uint32 `pb:"2"`
	Limit     uint32 `pb:"4"` // the quota
}

const Fresh = 1 // room.State
