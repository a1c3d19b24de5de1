// Package facts describes clouds by name, one file each: what they are called, how
// their price lists read, what they charge for data that leaves them, which settings
// they have, and what they cannot do. Everything that must know a cloud without
// having its provider (the task language, the configuration, planning) asks here, and
// nothing else lists clouds.
package facts

import (
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/schema"
)

// Cloud is what is known of one. The zero value of a field is what most have.
type Cloud struct {
	Name    string   // in task files, lower case
	Display string   // as it writes itself
	Aliases []string // what users also write
	Wrong   []string // what users write by mistake: it is refused, with the name

	// StoresOnly: it rents no machines; what it has are object stores.
	StoresOnly bool
	// Ours: clients of SkyPilot do not know the name, and one unknown name breaks
	// their whole listing.
	Ours bool
	// Hardware says whose its machines are.
	Hardware Hardware
	// SharesFiles: its nodes share the file system of the machine that they are on with
	// everything else there.
	SharesFiles bool
	// Pods: its nodes are pods of Kubernetes.
	Pods bool
	// Prices is how its price list reads; nil: it has none, and its provider says
	// what there is. A list may be in use though nothing is rented there.
	Prices *Prices
	// Lacks is what plans may assume that it cannot do while no provider says so.
	Lacks []Feature
	// Egress is what it charges for data that leaves it: nothing if empty.
	Egress []Tier
	// Schemes of URLs of its object stores, and the suffix of their hosts in https
	// URLs.
	Schemes    []string
	StoreHosts string
	// StoreFiles, below the home folder, are the credentials of its object stores, where it
	// has no provider that knows them.
	StoreFiles []string
	// StoreKeys: its object stores have credentials of their own, and not those by which it
	// rents machines.
	StoreKeys bool
	// Regions says what its regions are and who lists them; "": its published price list.
	Regions string
	// Volumes are the types of volumes that it has, in the words of volume files.
	Volumes []string
	// Disks: a task can attach existing disks to its machines (resources.volumes).
	Disks bool
	// Notices says where its machines learn that they are taken back.
	Notices Notices
	// Proven is what its provider has been run against; "": a fake of ours.
	Proven string
	// Label says why it would refuse a label; nil: it takes all.
	Label func(key, value string) string

	// Settings describe its section of the configuration, and Workspace that of a
	// workspace (disabled is added). Nil: there is none.
	Settings  func() *schema.Spec
	Workspace func() *schema.Spec
	// Narrower are the paths below its section of settings for one region, widest
	// first; nil: none.
	Narrower func(region, partition string) [][]string
	// Merge says how a narrower setting that is a map meets the wider one.
	Merge Merge
	// TaskExample is shown where the task's config section is described.
	TaskExample string
}

// Hardware says whose machines they are.
type Hardware int

const (
	Rented Hardware = iota
	Own             // the user's, and each region is another set of them
	Here            // the machine that sky runs on: the last resort of a plan
)

// Notices are ways by which a machine learns that it is taken back.
type Notices int

const (
	NoNotices      Notices = iota
	EC2Metadata            // spot/instance-action and rebalance of EC2's metadata service
	PodEnding              // the pod's containers are asked to end
	GoogleMetadata         // instance/preempted of Google Cloud's metadata service
	AzureMetadata          // scheduled events of Azure's metadata service
)

// Merge is a way of laying a map over another.
type Merge int

const (
	Replace  Merge = iota
	OneLevel       // key by key
	Patch          // as Kubernetes patches an object
)

// Tier is a price for data that leaves a cloud: $ per GB for the part of the amount
// up to UpTo GB.
type Tier struct{ UpTo, Price float64 }

// SharesFiles reports that of a cloud by its name.
func SharesFiles(name string) bool {
	c, ok := Find(name)
	return ok && c.SharesFiles
}

// All lists the clouds in the order of their introduction, in which also ties between
// equal offers are decided. Callers must not change it.
func All() []*Cloud { return all }

var all = []*Cloud{
	&aws, &azure, &gcp, &ibm, &lambda, &scp, &oci, &kubernetes, &runpod, &vast, &vsphere, &cudo, &fluidstack, &paperspace,
	&primeintellect, &do, &nebius, &ssh, &slurm, &hyperbolic, &seeweb, &shadeform, &yotta, &mithril, &verda,
	&local, &fluffycloud, &docker,
	&cloudflare, &coreweave, &vastdata, &huggingface,
}

// Find returns the cloud of that name, in any case.
func Find(name string) (*Cloud, bool) {
	name = strings.ToLower(name)
	i := slices.IndexFunc(all, func(c *Cloud) bool { return c.Name == name })
	if i < 0 {
		return nil, false
	}
	return all[i], true
}

// Of returns the cloud of that name; one that nobody knows has the name and the usual
// facts.
func Of(name string) *Cloud {
	if c, ok := Find(name); ok {
		return c
	}
	return &Cloud{Name: name, Display: name, Ours: true}
}

// Names lists the clouds that f wants.
func Names(f func(*Cloud) bool) []string {
	var names []string
	for _, c := range all {
		if f(c) {
			names = append(names, c.Name)
		}
	}
	return names
}

// Rents reports whether tasks can name the cloud.
func (c *Cloud) Rents() bool { return !c.StoresOnly }

// Stores reports whether it has object stores.
func (c *Cloud) Stores() bool { return len(c.Schemes) > 0 || c.StoreHosts != "" }

// Priced reports whether plans can be made from a price list, whether or not there is
// a provider.
func (c *Cloud) Priced() bool { return c.Prices != nil && c.Prices.Hosted }

// PoolPrefix is what makes the name of a pool of own machines a region. Clients also
// send it after ssh/, so a pool whose own name begins with it is ssh/ssh-ssh-NAME.
const PoolPrefix = "ssh-"

// InPlace is a region as people write it after its cloud: [Cloud.RegionName], unless the
// pool's own name begins with the prefix, which would be read as it.
func InPlace(cloud, region string) string {
	if name := Of(cloud).RegionName(region); !strings.HasPrefix(name, PoolPrefix) {
		return name
	}
	return region
}

// RegionName is a region as people write it: of own machines it is the name of their
// pool.
func (c *Cloud) RegionName(region string) string {
	if c == &ssh {
		return strings.TrimPrefix(region, PoolPrefix)
	}
	return region
}
