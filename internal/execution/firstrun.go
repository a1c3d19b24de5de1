package execution

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/state"
)

// firstRunKey holds commands for new nodes. Rented machines run them by
// themselves when they boot for the first time; for containers, which do not
// boot, it is done here.
const firstRunKey = "post_provision_runcmd"

// firstRun runs the configured commands on every container of the cluster that
// has not run them: its marker is written after the last one.
func (x *Executor) firstRun(ctx context.Context, call cluster.Call, c *state.Cluster, section map[string]any) error {
	p, ok := x.Providers.Get(c.Offer.Cloud)
	script := firstRunScript(section[firstRunKey])
	if !ok || !p.Features().Containers || script == "" || remote.Agentless(c) {
		return nil
	}
	call.Out.Spin("Running " + firstRunKey + " on cluster " + c.Name)
	head, err := x.Remote.Head(c)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	for rank := range c.Nodes {
		g.Go(func() error {
			said, code, err := head.Run(gctx, agentapi.ShellQuery{Command: script, Node: rank})
			if err != nil {
				return err
			}
			if code != 0 {
				return &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("%s of the configuration failed on node %d with exit code %d: %s", firstRunKey, rank, code, lastLines(said))}
			}
			return nil
		})
	}
	return g.Wait()
}

// firstRunScript runs commands, each a line for a shell or a list of arguments,
// until one fails; "" if there are none.
func firstRunScript(v any) string {
	list, _ := v.([]any)
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("done=$HOME/.sky/agent/first_run\n[ ! -e \"$done\" ] || exit 0\nset -e\n")
	for _, item := range list {
		words, ok := item.([]any)
		if !ok {
			fmt.Fprintf(&b, "sh -c %s\n", sshconn.Quote(fmt.Sprint(item)))
			continue
		}
		for i, w := range words {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(sshconn.Quote(fmt.Sprint(w)))
		}
		b.WriteByte('\n')
	}
	b.WriteString(": >\"$done\"\n")
	return b.String()
}

// lastLines are the last three lines of an output.
func lastLines(said []byte) string {
	lines := strings.Split(string(bytes.TrimSpace(said)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}
