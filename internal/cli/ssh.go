package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/cli/shell"
	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

func (a *app) sshCommand() *cobra.Command {
	var node int
	var tty, stdio, only bool
	var ports portFlags
	cmd := a.build(command{
		name: "ssh", args: "CLUSTER [-- COMMAND...]", short: "Open a shell on a cluster, or manage SSH node pools.", min: 1, max: -1,
		long: "Without COMMAND a login shell is opened. The exit code is that of the shell or COMMAND.\n\n" +
			"Ports are forwarded through the API server to every kind of node, while the shell is open;\n" +
			"with -N without a shell, until Ctrl-C.",
		example: "sky ssh dev\nsky ssh dev --node 1\nsky ssh dev -- nvidia-smi\necho hello | sky ssh dev -- cat\n" +
			"sky ssh dev -p 8888                             # http://localhost:8888 is the node's port 8888\n" +
			"sky ssh dev -N -L 8080:80 -L 5432:db.internal:5432",
		complete: a.completer(sky.CompleteClusters),
		flags: func(f flags) {
			f.IntVar(&node, "node", 0, "Number of the node; 0 is the head.")
			f.ports(&ports)
			f.texts(&ports.local, "local-forward", "L", "As --port-forward (may be repeated).")
			f.on(&only, "no-shell", "N", "Only forward ports, until Ctrl-C.")
			f.on(&tty, "tty", "", "Give COMMAND a terminal, too.")
			f.on(&stdio, "stdio", "", "Pass bytes between this command and the node's sshd, or the server where the node has none: for a ProxyCommand of ssh.")
		},
		group: []*cobra.Command{a.sshPoolsCommand(true), a.sshPoolsCommand(false)},
		run: func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if node < 0 {
				return usagef("Invalid value for '--node': %d is negative.", node)
			}
			if cmd.ArgsLenAtDash() == 0 {
				return usagef("Missing argument 'CLUSTER'.")
			}
			switch {
			case stdio && (only || len(ports.all()) > 0):
				return usagef("--stdio goes with no forwarded ports.")
			case only && len(ports.all()) == 0:
				return usagef("-N (--no-shell) needs a port to forward: -p PORT.")
			case only && (len(args) > 1 || tty):
				return usagef("-N (--no-shell) goes with no COMMAND and no --tty.")
			}
			defer ports.close()
			if err := ports.listen(ctx); err != nil {
				return err
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			if stdio {
				return a.sshStdio(ctx, c, args[0], node)
			}
			command := strings.Join(args[1:], " ")
			return a.shellAndPorts(ctx, c, sky.ShellOptions{
				Cluster: args[0], Node: node, Command: command,
				TTY: !only && (command == "" || tty) && a.t.InTTY && a.t.OutTTY, Term: a.env("TERM"),
			}, &ports, only)
		},
	})
	cmd.Annotations["open"] = "yes"
	return cmd
}

// sshStdio carries bytes between stdin, stdout and the sshd of a node, which the
// server reaches, until the sshd hangs up.
func (a *app) sshStdio(ctx context.Context, c *sky.Client, cluster string, node int) error {
	conn, err := c.SSH(ctx, cluster, node)
	if err != nil {
		return err
	}
	defer conn.Close()
	var over atomic.Bool // ssh needs this command no longer
	go func() {
		_, err := io.Copy(conn, a.t.In)
		over.Store(err == nil)
		conn.Close()
	}()
	if _, err := io.Copy(a.t.Out, conn); err != nil && !errors.Is(err, net.ErrClosed) && !over.Load() {
		return fmt.Errorf("the connection to cluster '%s' broke: %w. It cannot be taken up again; connect anew", cluster, err)
	}
	return nil
}

// shell connects this terminal, and its input or another one, with a shell on a node.
func (a *app) shell(ctx context.Context, c *sky.Client, o sky.ShellOptions, input io.Reader) error {
	o.Cols, o.Rows = a.t.Size()
	conn, err := c.Shell(ctx, o)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := shell.Session{Conn: conn, Stdin: input, Stdout: a.t.Out, Stderr: a.t.Err, Size: a.t.Size}
	if o.TTY {
		restore, err := a.t.Raw()
		if err != nil {
			return err
		}
		defer restore()
		s.Resized = shell.Resizes(ctx)
	}
	code, err := s.Run(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("the connection to cluster '%s' broke: %w. It cannot be taken up again; connect anew with: sky ssh %[1]s", o.Cluster, err)
	case code != 0:
		return exitError(code)
	}
	return nil
}

// sshPoolsCommand is ssh up or ssh down.
func (a *app) sshPoolsCommand(up bool) *cobra.Command {
	var infra, file string
	var async bool
	c := command{name: "down", example: "sky ssh down\nsky ssh down --infra my-pool", short: "Check that nothing of sky is left on the machines of SSH node pools.", noConfig: true, max: 0}
	if up {
		c.name, c.short, c.example = "up", "Make SSH node pools usable.", "sky ssh up\nsky ssh up --infra my-pool\nsky ssh up -f pools.yaml"
		c.long = "Pools are described in ~/.sky/ssh_node_pools.yaml, or in the file that -f names. A file for\n" +
			"`sky admin deploy` of earlier versions is taken as one pool."
	}
	c.flags = func(f flags) {
		f.text(&infra, "infra", "", "Name of the pool; without it, all pools.")
		if up {
			f.text(&file, "file", "f", "File that describes the pools.")
		}
		f.switchable(&async, "async", "", "")
		f.hide("async")
	}
	c.run = func(ctx context.Context, _ *cobra.Command, _ []string) error {
		return a.switchPools(ctx, infra, file, up, async)
	}
	return a.build(c)
}

// switchPools looks whether pools can be used, with up, or whether sky has left them. With
// a file its pools are given to the server first.
func (a *app) switchPools(ctx context.Context, infra, file string, up, async bool) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	if file != "" {
		pools, err := readPools(expandHome(file, a.home))
		if err != nil {
			return err
		}
		if err := client.SetSSHPools(ctx, pools); err != nil {
			return err
		}
	}
	req, err := client.SwitchSSHPools(ctx, strings.TrimPrefix(infra, "ssh/"), up)
	if err != nil {
		return err
	}
	if async {
		a.t.Println("Request submitted with ID: " + req.ID())
		return nil
	}
	_, err = wait(ctx, a, req, nil)
	return err
}

func readPools(path string) (map[string]any, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the node pools: %w", err)
	}
	n, err := (&yaml11.Source{Name: path, Text: string(data)}).ReadOne()
	if err != nil {
		return nil, err
	}
	pools, ok, err := poolOf(n)
	if err == nil && !ok && n != nil {
		err = schema.Dict("", schema.Free).Validate(n)
		pools, _ = n.Any().(map[string]any)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the node pools of %s: %w", path, err)
	}
	return pools, nil
}
