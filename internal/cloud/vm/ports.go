package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Change makes a change to what belongs to a cluster, while no other call of this
// process does. Its error is one of package cloud.
func (p *Provider) Change(ctx context.Context, id cloud.ClusterID, change func() error) error {
	done, err := p.turns.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	return p.refusal(ctx, p.at(""), change())
}

// PortRange is one of a task's, from its first port to its last.
type PortRange struct{ First, Last int }

// String is the only port, or the first and the last.
func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// PortRanges are those of a task. What is none is an error for the whole cloud.
func PortRanges(cloudName string, ports []string) (all []PortRange, err error) {
	for _, p := range ports {
		from, to, err := cloud.PortRange(p)
		if err != nil {
			return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: cloudName}, Err: err}
		}
		all = append(all, PortRange{from, to})
	}
	return all, nil
}

// Lacking are those of a task that are not open yet.
func Lacking(cloudName string, ports []string, open []PortRange) (lacks []PortRange, err error) {
	all, err := PortRanges(cloudName, ports)
	for _, r := range all {
		if !slices.Contains(open, r) && !slices.Contains(lacks, r) {
			lacks = append(lacks, r)
		}
	}
	return lacks, err
}

// EachPort are the numbers of the ports of a task, for a machine that has so many at most
// besides that of ssh.
func EachPort(displayName string, most int, ports []string) ([]int, error) {
	all, err := cloud.EachPort(ports)
	if err == nil && len(all) > most {
		err = fmt.Errorf("a machine on %s has up to %d ports besides that of ssh, not %d", displayName, most, len(all))
	}
	return all, err
}

// MapPort notes that a port of the machine is reached at another of a host. By that of ssh the
// machine is.
func (m *Machine) MapPort(inside int, host string, outside int) {
	if m.Ports == nil {
		m.Ports = map[int]string{}
	}
	if m.Ports[inside] = net.JoinHostPort(host, strconv.Itoa(outside)); inside == 22 {
		m.PublicIP, m.Reach.Host, m.Reach.Port = host, host, outside
	}
}

// OpenIn adds ports to what each of a cluster's groups lets in, wherever they are; none: there is
// no cluster.
func OpenIn[T any](ctx context.Context, p *Provider, id cloud.ClusterID, groups func() ([]T, error), allow func(T) error) error {
	return p.Change(ctx, id, func() error {
		all, err := groups()
		if err == nil && len(all) == 0 {
			err = &cloud.InvalidError{Place: p.at(""), Err: fmt.Errorf("there is no cluster %s", id.Name)}
		}
		for _, g := range all {
			err = errors.Join(err, allow(g))
		}
		return err
	})
}

// PortProvider is a Provider whose machines get their ports when they are made, and are
// reached at others than those: Machine.Ports says where.
type PortProvider struct{ *Provider }

// StopPortProvider is a PortProvider whose machines can be switched off.
type StopPortProvider struct{ StopProvider }

// OpenPorts is success for ports that machines were made with.
func (p StopPortProvider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	return PortProvider{p.Provider}.OpenPorts(ctx, id, ports)
}

// Endpoints are where the head's ports are reached.
func (p StopPortProvider) Endpoints(ctx context.Context, id cloud.ClusterID, ports []int) (at map[int]string, why string, err error) {
	return PortProvider{p.Provider}.Endpoints(ctx, id, ports)
}

// OpenPorts is success for ports that machines were made with.
func (p PortProvider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	machines, err := p.Machines(ctx, id)
	if err != nil {
		return err
	}
	machines = slices.DeleteFunc(machines, func(m Machine) bool { return !m.State.exists() })
	for _, ports := range ports {
		from, to, err := cloud.PortRange(ports)
		for port := from; port <= to && err == nil; port++ {
			if len(machines) == 0 || machines[0].Ports[port] == "" {
				err = fmt.Errorf("port %d is not open: %s", port, p.o.PortsLater)
			}
		}
		if err != nil {
			return &cloud.InvalidError{Place: p.at(""), Err: err}
		}
	}
	return nil
}

// Endpoints are where the head's ports are reached.
func (p PortProvider) Endpoints(ctx context.Context, id cloud.ClusterID, ports []int) (at map[int]string, why string, err error) {
	machines, err := p.Machines(ctx, id)
	if err != nil {
		return nil, "", err
	}
	at = map[int]string{}
	for _, m := range machines {
		for _, port := range ports {
			if to := m.Ports[port]; m.rank == 0 && m.State == Running && to != "" {
				at[port] = to
			}
		}
	}
	if len(at) < len(ports) {
		why = p.o.DisplayName + " lists no way in to the other ports yet; " + p.o.PortsLater
	}
	return at, why, nil
}
