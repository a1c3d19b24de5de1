package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// clusterFile is what `sky admin deploy` of earlier versions was given: one cluster of
// machines on premises.
func clusterFile() *schema.Spec {
	ips := schema.Written("Addresses of the machines, or one.").Or(schema.ListKind).Of(schema.Written("An address."))
	return schema.Section("",
		schema.New("cluster", schema.Section("", schema.New("ips", ips), schema.New("name", schema.Written(""))).Or(schema.NullKind)),
		schema.New("auth", schema.Section("", schema.New("ssh_user", schema.Written("")), schema.New("ssh_private_key", schema.Written(""))).Or(schema.NullKind)),
		schema.New("python", schema.Written("There is no use for one.")))
}

// poolOf reads a cluster file as a pool: the cluster's name is the pool's. ok is false if
// it describes pools instead.
func poolOf(n *yaml11.Node) (pools map[string]any, ok bool, err error) {
	if n == nil || n.Lookup("cluster") == nil || n.Lookup("auth") == nil || n.Lookup("auth").Lookup("hosts") != nil {
		return nil, false, nil
	}
	if err := clusterFile().Validate(n); err != nil {
		return nil, true, err
	}
	var hosts []any
	if ip := n.TextAt("cluster", "ips"); ip != "" {
		hosts = []any{ip}
	}
	for _, ip := range n.Lookup("cluster").List("ips") {
		hosts = append(hosts, ip.TextAt())
	}
	name, user, key := n.TextAt("cluster", "name"), n.TextAt("auth", "ssh_user"), n.TextAt("auth", "ssh_private_key")
	switch {
	case name == "":
		return nil, true, errors.New("cluster.name is missing; it becomes the name of the pool")
	case len(hosts) == 0:
		return nil, true, errors.New("cluster.ips is missing; it lists the addresses of the machines")
	case placeholder(user) || placeholder(key):
		return nil, true, fmt.Errorf("auth.ssh_user and auth.ssh_private_key are still to be filled in: write your own login on the machines of %s", name)
	}
	pool := map[string]any{"hosts": hosts}
	if user != "" {
		pool["user"] = user
	}
	if key != "" {
		pool["identity_file"] = key
	}
	return map[string]any{name: pool}, true, nil
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
