package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// clusterFile is what `sky admin deploy` of earlier versions was given: one cluster of
// machines on premises.
type clusterFile struct {
	Cluster struct {
		IPs  clusterIPs `json:"ips"`
		Name string     `json:"name"`
	} `json:"cluster"`
	Auth struct {
		User       string `json:"ssh_user"`
		PrivateKey string `json:"ssh_private_key"`
	} `json:"auth"`
	Python string `json:"python"` // there is no use for one
}

// clusterIPs are several addresses, or one.
type clusterIPs []string

// DecodeYAML implements [yaml11.Decoder].
func (c *clusterIPs) DecodeYAML(n *yaml11.Node) error {
	if n.IsScalar() && !n.IsNull() {
		*c = clusterIPs{n.Text}
		return nil
	}
	return n.Decode((*[]string)(c))
}

// poolOf reads a cluster file as a pool: the cluster's name is the pool's. ok is false if
// it describes pools instead.
func poolOf(n *yaml11.Node) (pools map[string]any, ok bool, err error) {
	if n == nil || n.Lookup("cluster") == nil || n.Lookup("auth") == nil || n.Lookup("auth").Lookup("hosts") != nil {
		return nil, false, nil
	}
	var f clusterFile
	if err := n.DecodeStrictly(&f); err != nil {
		return nil, true, err
	}
	switch {
	case f.Cluster.Name == "":
		return nil, true, errors.New("cluster.name is missing; it becomes the name of the pool")
	case len(f.Cluster.IPs) == 0:
		return nil, true, errors.New("cluster.ips is missing; it lists the addresses of the machines")
	case placeholder(f.Auth.User) || placeholder(f.Auth.PrivateKey):
		return nil, true, fmt.Errorf("auth.ssh_user and auth.ssh_private_key are still to be filled in: write your own login on the machines of %s", f.Cluster.Name)
	}
	hosts := make([]any, len(f.Cluster.IPs))
	for i, ip := range f.Cluster.IPs {
		hosts[i] = ip
	}
	pool := map[string]any{"hosts": hosts}
	if f.Auth.User != "" {
		pool["user"] = f.Auth.User
	}
	if f.Auth.PrivateKey != "" {
		pool["identity_file"] = f.Auth.PrivateKey
	}
	return map[string]any{f.Cluster.Name: pool}, true, nil
}

// placeholder reports whether a value is what `sky admin deploy` put into the copies for users.
func placeholder(v string) bool { return strings.Contains(strings.ToUpper(v), "PLACEHOLDER") }

// adminDeployCommand is `sky ssh up -f` under its earlier name.
func (a *app) adminDeployCommand() *cobra.Command {
	return a.build(command{
		name: "deploy", args: "CLUSTER_YAML", hidden: true, short: "Deprecated; use `sky ssh up -f CLUSTER_YAML`.", min: 1, max: 1, noConfig: true,
		example: "sky ssh up -f cluster.yaml",
		run: func(ctx context.Context, cmd *cobra.Command, args []string) error {
			a.t.Warn("`%s` is deprecated; use `sky ssh up -f %s`. Nothing is installed on the machines: the cluster is a pool of machines, and clusters on it are launched with --infra ssh/NAME.", cmd.CommandPath(), args[0])
			return a.switchPools(ctx, "", args[0], true, false)
		},
	})
}
