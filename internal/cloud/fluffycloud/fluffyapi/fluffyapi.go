// Package fluffyapi is the public API of FluffyCloud: its words, its errors, and
// a client that speaks it over HTTP.
//
// FluffyCloud is a small cloud that does everything large ones do to their
// users: it fills up, keeps quotas, takes spot machines back, slows down, loses
// answers. [API] has two faces: package model answers it in memory, and the
// command fluffycloud serves it with machines that are processes.
package fluffyapi

import (
	"context"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// State is where an instance is in its life.
type State string

const (
	Pending     State = "pending" // being created or started
	Running     State = "running"
	Stopping    State = "stopping"
	Stopped     State = "stopped" // off; the disk and the name are kept
	Terminating State = "terminating"
	Terminated  State = "terminated" // listed for a while as a proof
)

// Instance is one machine.
type Instance struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"` // unique among the account's instances that are not terminated
	Region    string            `json:"region"`
	Zone      string            `json:"zone"`
	Type      string            `json:"type"`
	Spot      bool              `json:"spot"`
	State     State             `json:"state"`
	Reason    string            `json:"reason,omitempty"` // why it is off or gone, if nobody asked for it
	Tags      map[string]string `json:"tags,omitempty"`
	PrivateIP string            `json:"private_ip"`
	PublicIP  string            `json:"public_ip,omitempty"` // may change with every start
	SSHPort   int               `json:"ssh_port"`
	SSHUser   string            `json:"ssh_user"`
	HostKey   string            `json:"host_key,omitempty"` // in authorized_keys form
	Firewall  string            `json:"firewall,omitempty"`
	DiskGB    int               `json:"disk_gb,omitempty"`
	Image     string            `json:"image,omitempty"`
	Created   time.Time         `json:"created"`
	// EndsWhenOff says that the instance is terminated when it switches itself
	// off, instead of stopped.
	EndsWhenOff bool `json:"ends_when_off,omitempty"`
	// TakenBack is when a spot instance will be, once that is decided.
	TakenBack *time.Time `json:"taken_back,omitempty"`
}

// Create asks for one instance.
type Create struct {
	// ClientToken makes the call repeatable: the same token gives the same
	// instance, whatever has become of it. It may not be used for another
	// request.
	ClientToken string            `json:"client_token"`
	Name        string            `json:"name"`
	Zone        string            `json:"zone"`
	Type        string            `json:"type"`
	Spot        bool              `json:"spot,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
	SSHKey      string            `json:"ssh_key,omitempty"` // authorized_keys lines for the login user
	Firewall    string            `json:"firewall,omitempty"`
	DiskGB      int               `json:"disk_gb,omitempty"`
	Image       string            `json:"image,omitempty"`
}

// Start asks for an instance to be switched on.
type Start struct {
	SSHKey string `json:"ssh_key,omitempty"` // replaces the key; empty keeps it
}

// WhenOff is what becomes of an instance that switches itself off.
type WhenOff struct {
	Ends bool `json:"ends"` // it is terminated; else it is stopped
}

// Image is a copy of an instance's disk, from which instances of its region can be made.
type Image struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"` // unique among the account's images
	Region  string            `json:"region"`
	State   State             `json:"state"` // Pending or Running
	Tags    map[string]string `json:"tags,omitempty"`
	DiskGB  int               `json:"disk_gb,omitempty"`
	Created time.Time         `json:"created"`
}

// CreateImage asks for an image of the disk of an instance that is stopped.
type CreateImage struct {
	Name     string            `json:"name"`
	Instance string            `json:"instance"`
	Tags     map[string]string `json:"tags,omitempty"`
}

// Query selects from a list, which comes in pages.
type Query struct {
	Tags  map[string]string // all must match
	Limit int               // 0: as many as the server likes
	Page  string            // the Next of the page before
}

// Page is one page of a list. Next is empty on the last one.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// Offer is a type of instance in a zone.
type Offer struct {
	Region       string             `json:"region"`
	Zone         string             `json:"zone"`
	Type         string             `json:"type"`
	CPUs         float64            `json:"cpus"`
	MemoryGiB    float64            `json:"memory_gib"`
	Accelerators map[string]float64 `json:"accelerators,omitempty"`
	Price        float64            `json:"price"`      // $ an hour
	SpotPrice    float64            `json:"spot_price"` // $ an hour; 0: not sold as spot
}

// Quota is how much of something the account may have in a region.
type Quota struct {
	Region string `json:"region"`
	Name   string `json:"name"`  // "cpus" or an accelerator, after "spot-" for spot instances
	Limit  int    `json:"limit"` // -1: as much as there is
	Used   int    `json:"used"`
}

// Firewall says which ports of its instances the world may reach. It can be
// deleted once its instances are terminated.
type Firewall struct {
	Name  string            `json:"name"`
	Ports []string          `json:"ports"` // "8080" or "8000-8010"
	Tags  map[string]string `json:"tags,omitempty"`
}

// Account is who the token belongs to.
type Account struct {
	ID   string `json:"id"`
	Role string `json:"role"` // "owner", or "reader": may look and not touch
}

// API is what FluffyCloud can be asked. Refusals are [*Error]; everything that
// leaves open whether the call had an effect is [*NoAnswerError].
type API interface {
	Account(ctx context.Context) (Account, error)
	Offers(ctx context.Context, q Query) (Page[Offer], error)
	// Available is how many more of a type the zone could give now.
	Available(ctx context.Context, zone, instanceType string, spot bool) (int, error)
	Quotas(ctx context.Context, region string) ([]Quota, error)

	Create(ctx context.Context, c Create) (Instance, error)
	Instance(ctx context.Context, id string) (Instance, error)
	Instances(ctx context.Context, q Query) (Page[Instance], error)
	Start(ctx context.Context, id string, s Start) (Instance, error)
	Stop(ctx context.Context, id string) (Instance, error)
	Terminate(ctx context.Context, id string) (Instance, error)
	// SetWhenOff says what becomes of an instance that switches itself off.
	SetWhenOff(ctx context.Context, id string, w WhenOff) (Instance, error)

	// CreateImage begins to copy the disk of an instance.
	CreateImage(ctx context.Context, c CreateImage) (Image, error)
	Images(ctx context.Context, q Query) (Page[Image], error)
	// DeleteImage deletes an image. Instances that were made from it keep their disks.
	DeleteImage(ctx context.Context, id string) error

	// PutFirewall creates the firewall or replaces its ports.
	PutFirewall(ctx context.Context, f Firewall) error
	Firewalls(ctx context.Context, q Query) (Page[Firewall], error)
	DeleteFirewall(ctx context.Context, name string) error
}

// All reads every page of a list.
func All[T any](ctx context.Context, q Query, list func(context.Context, Query) (Page[T], error)) ([]T, error) {
	return rest.All(ctx, func(ctx context.Context, page string) ([]T, string, error) {
		q.Page = page
		p, err := list(ctx, q)
		return p.Items, p.Next, err
	})
}
