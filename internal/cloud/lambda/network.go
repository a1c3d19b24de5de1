package lambda

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

type sshKey struct {
	ID        string `json:"id,omitempty"`
	Name      string `json:"name"`
	PublicKey string `json:"public_key"`
}

// ensureKey returns the name of the account's ssh key with this public half, which
// it makes if it is missing. Keys are shared by all clusters and stay. A name that
// two keys have is good for nothing: all but one of those that sky made go.
func (c *client) ensureKey(ctx context.Context, public string) (string, error) {
	c.keys.Lock()
	defer c.keys.Unlock()
	want := strings.Join(strings.Fields(public)[:2], " ")
	name := fmt.Sprintf("sky-key-%x", sha256.Sum256([]byte(want)))[:24]
	for made := false; ; made = true {
		all, err := call[[]sshKey](ctx, c, "GET", "/ssh-keys", nil)
		if err != nil {
			return "", err
		}
		slices.SortFunc(all, func(a, b sshKey) int { return cmp.Compare(a.ID, b.ID) })
		count := map[string]int{}
		for _, k := range all {
			if count[k.Name]++; k.Name == name && count[name] > 1 {
				if _, err := call[any](ctx, c, "DELETE", "/ssh-keys/"+url.PathEscape(k.ID), nil); err != nil {
					return "", err
				}
				count[name]--
			}
		}
		for _, k := range all {
			if count[k.Name] == 1 && strings.HasPrefix(k.PublicKey+" ", want+" ") {
				return k.Name, nil
			}
		}
		if made {
			return "", &rest.NoAnswerError{Cloud: "Lambda", Err: fmt.Errorf("the ssh key %s is not listed", name)}
		}
		if _, err := call[sshKey](ctx, c, "POST", "/ssh-keys", sshKey{Name: name, PublicKey: want}); err != nil {
			return "", err
		}
	}
}

// ruleset is what may reach the machines that were launched with it.
type ruleset struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Region named  `json:"region"`
	Rules  []rule `json:"rules"`
}

type rule struct {
	Protocol    string `json:"protocol"`
	Ports       []int  `json:"port_range,omitempty"`
	Source      string `json:"source_network"`
	Description string `json:"description"`
}

// allow is the rule that lets everybody reach ports, as "8080" or "8000-8010".
func allow(ports string) (rule, error) {
	from, to, ok := strings.Cut(ports, "-")
	if !ok {
		to = from
	}
	a, err1 := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	return rule{Protocol: "tcp", Ports: []int{a, b}, Source: "0.0.0.0/0", Description: "opened by sky"}, errors.Join(err1, err2)
}

// rulesets are the cluster's own, by the name that only it has.
func (c *client) rulesets(ctx context.Context, id cloud.ClusterID) ([]ruleset, error) {
	all, err := call[[]ruleset](ctx, c, "GET", "/firewall-rulesets", nil)
	return slices.DeleteFunc(all, func(r ruleset) bool { return r.Name != rulesetName(id) }), err
}

func rulesetName(id cloud.ClusterID) string {
	sum := sha256.Sum256([]byte(id.Installation + "\x00" + id.Name + "\x00" + id.Hash))
	return fmt.Sprintf("%s-%x", id.Name[:min(len(id.Name), 40)], sum[:6])
}

// Connect makes the cluster's ruleset, if it has ports besides that of ssh. Machines
// have the rules of the account as well.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	c, err := d.api()
	if err != nil || len(spec.Ports) == 0 {
		return err
	}
	have, err := c.rulesets(ctx, spec.ID)
	if err != nil {
		return err
	}
	if len(have) > 0 {
		return c.open(ctx, have[0], spec.Ports)
	}
	rules, err := missing(nil, append([]string{"22"}, spec.Ports...))
	if err != nil {
		return &cloud.InvalidError{Place: spec.Offer.Place, Err: err}
	}
	return cloud.Settled(ctx, func(ctx context.Context) error {
		_, err := call[ruleset](ctx, c, "POST", "/firewall-rulesets", map[string]any{"name": rulesetName(spec.ID), "region": spec.Offer.Region, "rules": rules})
		return err
	})
}

// OpenPorts adds ports to the cluster's ruleset. A machine keeps the rulesets that
// it was launched with.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	at := cloud.Place{Cloud: Name}
	done, err := p.Take(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	c, err := p.api()
	if err != nil {
		return err
	}
	have, err := c.rulesets(ctx, id)
	if err != nil {
		return translate(ctx, at, err)
	}
	if len(have) == 0 {
		return &cloud.InvalidError{Place: at, Err: fmt.Errorf("%s was launched without ports, and Lambda's machines keep the firewall that they were launched with; launch it anew with them", id.Name)}
	}
	return translate(ctx, at, c.open(ctx, have[0], ports))
}

// open adds what a ruleset lacks.
func (c *client) open(ctx context.Context, r ruleset, ports []string) error {
	more, err := missing(r.Rules, ports)
	if err != nil || len(more) == 0 {
		return err
	}
	_, err = call[ruleset](ctx, c, "PATCH", "/firewall-rulesets/"+url.PathEscape(r.ID), map[string]any{"rules": append(r.Rules, more...)})
	return err
}

// missing are the rules for ports that nothing lets in yet.
func missing(have []rule, ports []string) ([]rule, error) {
	var out []rule
	for _, p := range ports {
		r, err := allow(p)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(have, func(h rule) bool {
			return h.Protocol == r.Protocol && h.Source == r.Source && slices.Equal(h.Ports, r.Ports)
		}) {
			out = append(out, r)
		}
	}
	return out, nil
}

// Disconnect removes the cluster's rulesets.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) (left []string, err error) {
	c, err := d.api()
	if err != nil {
		return nil, err
	}
	have, err := c.rulesets(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, r := range have {
		_, err := call[any](ctx, c, "DELETE", "/firewall-rulesets/"+url.PathEscape(r.ID), nil)
		var refused *rest.Error
		switch {
		case !errors.As(err, &refused):
			if err != nil {
				return nil, err
			}
		case refused.Code == "firewall-rulesets/firewall-ruleset-in-use":
			left = append(left, "the firewall ruleset "+r.Name)
		case refused.Code != "global/object-does-not-exist":
			return nil, err
		}
	}
	return left, nil
}
