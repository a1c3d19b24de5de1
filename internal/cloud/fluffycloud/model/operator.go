package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Machine is an instance as its operator sees it.
type Machine struct {
	fluffyapi.Instance
	Account string    `json:"account"`
	SSHKey  string    `json:"ssh_key"`
	BootAt  time.Time `json:"boot_at"` // a pending machine boots then, not before
	Billed  bool      `json:"billed"`
}

// Machines lists all instances of all accounts, in the order of creation.
func (c *Cloud) Machines() []Machine {
	c.lock()
	defer c.mu.Unlock()
	all := c.inOrder()
	out := make([]Machine, len(all))
	for n, i := range all {
		out[n] = Machine{Instance: i.Instance, Account: i.Account, SSHKey: i.SSHKey, BootAt: i.BootAt, Billed: i.Open != nil}
	}
	return out
}

// Firewalls lists the names of all firewalls of all accounts.
func (c *Cloud) Firewalls() []fluffyapi.Firewall {
	c.lock()
	defer c.mu.Unlock()
	var out []fluffyapi.Firewall
	for _, f := range c.s.Firewalls {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b fluffyapi.Firewall) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// SetMachines makes the machines real of a cloud that has none yet, as Config.Machines does.
func (c *Cloud) SetMachines(m Machines) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg.Machines = m
}

// Booted says that a real machine is up.
func (c *Cloud) Booted(id string) error {
	return c.operate(id, func(i *instance) error {
		if i.State == fluffyapi.Pending {
			c.move(i, fluffyapi.Running, "")
		}
		return nil
	})
}

// Halted says that a real machine has ended.
func (c *Cloud) Halted(id string) error {
	return c.operate(id, func(i *instance) error {
		c.halt(i, i.Reason)
		return nil
	})
}

// Halt switches a machine off from inside, as its user can.
func (c *Cloud) Halt(id string) error {
	return c.operate(id, func(i *instance) error {
		switch i.State {
		case fluffyapi.Pending, fluffyapi.Running:
			switch {
			case c.cfg.Machines == nil:
				c.halt(i, "")
			case i.EndsWhenOff:
				c.terminate(i, switched)
			default:
				c.move(i, fluffyapi.Stopping, switched)
			}
		}
		return nil
	})
}

// Kill destroys a machine with its disk.
func (c *Cloud) Kill(id, reason string) error {
	return c.operate(id, func(i *instance) error {
		c.terminate(i, reason)
		if c.cfg.Machines == nil {
			c.halt(i, i.Reason)
		}
		return nil
	})
}

// Preempt takes a spot instance back after a notice.
func (c *Cloud) Preempt(id string, notice time.Duration) error {
	return c.operate(id, func(i *instance) error {
		if !i.Spot || i.State != fluffyapi.Running {
			return fluffyapi.Errorf(fluffyapi.WrongState, "%s is not a running spot instance", id)
		}
		c.giveNotice(i, notice)
		c.advance(c.s.Now)
		return nil
	})
}

// Skew makes the cloud's clock go wrong by d, as far as customers are told.
func (c *Cloud) Skew(d time.Duration) error {
	c.lock()
	defer c.mu.Unlock()
	c.s.Skew = d
	return c.commit()
}

// SetDelays changes how long boots and halts take from now on.
func (c *Cloud) SetDelays(boot, halt Delay) {
	c.lock()
	defer c.mu.Unlock()
	c.cfg.Boot, c.cfg.Halt = boot, halt
}

// Write puts a file onto the disk of an instance in memory.
func (c *Cloud) Write(id, name, data string) error {
	return c.operate(id, func(i *instance) error {
		if i.Disk == nil {
			i.Disk = map[string]string{}
		}
		i.Disk[name] = data
		return nil
	})
}

// Read returns a file of the disk of an instance in memory.
func (c *Cloud) Read(id, name string) (data string, err error) {
	err = c.operate(id, func(i *instance) error {
		data = i.Disk[name]
		return nil
	})
	return data, err
}

func (c *Cloud) operate(id string, f func(*instance) error) error {
	c.lock()
	defer c.mu.Unlock()
	i := c.s.Instances[id]
	if i == nil {
		return fluffyapi.Errorf(fluffyapi.NotFound, "there is no instance %q", id)
	}
	if err := f(i); err != nil {
		return err
	}
	return c.commit()
}

// Accelerators is what a type of instance has.
func (c *Cloud) Accelerators(instanceType string) map[string]float64 {
	for i := range c.cfg.Types {
		if c.cfg.Types[i].Name == instanceType {
			return c.cfg.Types[i].Accelerators
		}
	}
	return nil
}
