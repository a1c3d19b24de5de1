package scp

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Samsung's cloud for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// server is a virtual server as the API has it.
type server struct {
	ID      string    `json:"virtualServerId"`
	Name    string    `json:"virtualServerName"`
	State   string    `json:"virtualServerState"`
	Zone    string    `json:"serviceZoneId"`
	Type    string    `json:"serverType"`
	VPC     string    `json:"vpcId"`
	IP      string    `json:"ip"`
	Created time.Time `json:"createdDt"`
}

// states are Samsung's words for what a server does.
var states = map[string]vm.State{
	"CREATING": vm.Pending, "EDITING": vm.Pending, "STARTING": vm.Pending, "RESTARTING": vm.Pending, "RUNNING": vm.Running, "STOPPING": vm.Stopping, "STOPPED": vm.Stopped,
	"TERMINATING": vm.Ending, "TERMINATED": vm.Ended,
}

const servers = "/virtual-server/v2/virtual-servers"

type tag struct {
	Key   string `json:"tagKey"`
	Value string `json:"tagValue"`
}

// List reads the list of all servers. What it does not say is asked for each of ours: tags
// where all clusters are listed, else the address that the world reaches it at.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) (found []vm.Machine, err error) {
	c, keys, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := list[server](ctx, c, servers, "")
	if err != nil || len(all) == 0 {
		return nil, err
	}
	zones, err := d.zones(ctx, c, d.Stamp(keys))
	for i := 0; err == nil && i < len(all); i++ {
		s, tags := all[i], map[string]string(nil)
		tags, err = names.Tags(id, s.Name, func() (map[string]string, error) {
			return vm.Remember(&d.memo, d.Stamp(keys), "tags "+s.ID, func() (map[string]string, error) { return d.tags(ctx, c, s.ID) })
		})
		if tags == nil {
			continue
		}
		m := vm.Machine{ID: s.ID, Region: s.Zone, State: states[s.State], RawState: s.State, Type: s.Type, Tags: tags, Created: s.Created, PrivateIP: s.IP, Detail: s}
		if n := slices.IndexFunc(zones, func(z zone) bool { return z.ID == s.Zone }); n >= 0 {
			m.Region = zones[n].Name
		}
		m.Reach = cloud.Reach{Method: "ssh", Host: s.IP, Port: 22, User: "root"}
		if id.Name != "" && m.State == vm.Running {
			m.PublicIP, err = d.address(ctx, c, s.ID)
			m.Reach.Host = m.PublicIP
		}
		found = append(found, m)
	}
	return found, err
}

// tags are those of a server, none if it has ended. Those of a new one may come late.
func (d driver) tags(ctx context.Context, c *rest.Client, id string) (map[string]string, error) {
	all, err := list[tag](ctx, c, "/tag/v2/resources/"+url.PathEscape(id)+"/tags", "")
	tags := map[string]string{}
	for _, t := range all {
		tags[t.Key] = t.Value
	}
	if d.Kind(err) == vm.Missing {
		err = nil
	}
	return tags, err
}

// address is the public one of a server, "" if it has none yet.
func (d driver) address(ctx context.Context, c *rest.Client, id string) (string, error) {
	type card struct {
		Public string `json:"natIp"`
	}
	all, err := list[card](ctx, c, servers+"/"+url.PathEscape(id)+"/nics", "")
	if d.Kind(err) == vm.Missing { // it has ended meanwhile
		err = nil
	}
	n := slices.IndexFunc(all, func(n card) bool { return n.Public != "" })
	return append(all, card{})[max(n, 0)].Public, err
}

// prepared is what servers of a launch are made with but their names, and the subnets that
// they may be in.
func (d driver) prepared(ctx context.Context, c *rest.Client, spec cloud.LaunchSpec) (body map[string]any, subnets []string, err error) {
	zone, nets, err := d.networks(ctx, c, spec.ID, spec.Offer.Region)
	if err != nil {
		return nil, nil, err
	}
	if nets[0].group == "" {
		return nil, nil, &rest.Error{Status: http.StatusNotFound, Message: "there is no security group " + groupName(spec.ID)}
	}
	key, err := keyPair(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	from, err := image(ctx, c, zone, spec.Offer)
	if err != nil {
		return nil, nil, err
	}
	script, err := vm.StartScript(spec.AuthorizedKey, false, 0)
	disk := min((max(spec.DiskGB, 100)+9)/10*10, 300) // what disks may have
	return map[string]any{
		"serviceZoneId": zone, "serverType": spec.Offer.InstanceType, "imageId": from, "keyPairId": key, "contractId": "None", "deletionProtectionEnabled": false, "securityGroupIds": []string{nets[0].group},
		"blockStorage":  map[string]any{"blockStorageName": "skystorage", "diskSize": disk, "encryptEnabled": false, "productId": "PRODUCT-sRlJ34iBr9hOxN9J5PrQxo"},
		"initialScript": map[string]any{"encodingType": "base64", "initialScriptShell": "bash", "initialScriptType": "text", "initialScriptContent": base64.StdEncoding.EncodeToString([]byte(script))},
	}, nets[0].subnets, err
}

// Create makes a server of each rank, in the first public subnet that takes it.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	body, subnets, err := d.prepared(ctx, c, l.Spec)
	if err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (id string, err error) {
		one := map[string]any{"virtualServerName": names.Of(l.Spec.ID, rank)}
		var tags []tag
		for k, v := range l.Spec.NodeTags(rank) {
			tags = append(tags, tag{k, v})
		}
		one["tags"] = tags
		for k, v := range body {
			one[k] = v
		}
		for _, subnet := range subnets {
			one["nic"] = map[string]any{"natEnabled": true, "subnetId": subnet}
			if id, err = d.do(ctx, c, "POST", "/virtual-server/v4/virtual-servers", one); d.Means(err) != vm.Invalid {
				break
			}
		}
		return id, err
	})
}

// do asks for a change, again while another one is being made to the same thing. It returns
// the id of what the change is about.
func (d driver) do(ctx context.Context, c *rest.Client, method, path string, body any) (string, error) {
	tries := 0
	return rest.Await(ctx, d.Tuning.Poll, func(ctx context.Context) (string, bool, error) {
		answer, err := rest.Do[struct {
			ID string `json:"resourceId"`
		}](ctx, c, method, path, body)
		var e *rest.Error
		if tries++; errors.As(err, &e) && (e.Status == http.StatusPreconditionFailed || strings.Contains(e.Message, "ongoing request")) && tries < 50 {
			return "", false, nil
		}
		return answer.ID, true, err
	})
}

// act asks for something to be done to servers. One that is on its way to another state can
// be told so only later.
func (d driver) act(ctx context.Context, machines []vm.Machine, method, action string, body any) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		_, err := d.do(ctx, c, method, servers+"/"+url.PathEscape(m.ID)+action, body)
		if d.Means(err) == vm.Invalid && (m.State == vm.Pending || m.State == vm.Stopping) {
			err = errors.Join(&rest.Error{Status: http.StatusPreconditionFailed, Message: m.ID + " is " + m.RawState}, err)
		}
		return err
	})
}

// Start switches servers on.
func (d driver) Start(ctx context.Context, _ cloud.LaunchSpec, machines []vm.Machine) error {
	return d.act(ctx, machines, "POST", "/start", struct{}{})
}

// Stop switches servers off.
func (d driver) Stop(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.act(ctx, machines, "POST", "/stop", struct{}{})
}

// Delete begins to delete servers. Their rules of firewalls go first, as their addresses may
// soon be those of others; what is left of those Disconnect removes.
func (d driver) Delete(ctx context.Context, id cloud.ClusterID, machines []vm.Machine) error {
	_, _ = d.shut(ctx, id)
	return d.act(ctx, machines, "DELETE", "", nil)
}
