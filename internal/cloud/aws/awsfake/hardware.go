package awsfake

import "encoding/base64"

// Hardware is what stands behind instances. It looks at [Cloud.Machines] and
// tells the cloud when a machine is where it is to be.
type Hardware interface {
	// Address is where the machine with that id will be reached.
	Address(id string) string
}

// Machine is an instance as its hardware sees it.
type Machine struct {
	ID       string
	Address  string
	State    string // what it is in or goes through: pending, running, stopping, ...
	UserData string // as cloud-init reads it
	Spot     bool
}

// Machines lists all instances that are not over.
func (c *Cloud) Machines() []Machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	var out []Machine
	for _, i := range c.instances {
		if i.state != "terminated" {
			data, _ := base64.StdEncoding.DecodeString(i.userData)
			out = append(out, Machine{i.id, i.address, i.state, string(data), i.spot})
		}
	}
	return out
}

// Arrived says that a machine is in the state that it was to change to: on, off
// or taken apart.
func (c *Cloud) Arrived(id, from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.find(id); i != nil && i.state == from {
		i.arrived = true
	}
}
