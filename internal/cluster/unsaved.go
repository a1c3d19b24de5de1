package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
)

// unsavedNamed is how many files are named that are not in their buckets.
const unsavedNamed = 10

// mounts notes what an agent says of the buckets that are mounted on its node.
func (m *Manager) mounts(ctx context.Context, name, hash string, rank int, i *agentapi.MountsInfo, notes *bounded.Pace) {
	if i != nil && i.NeedCredentials && m.NeedMounts != nil {
		m.NeedMounts(hash)
	}
	if i == nil {
		return
	}
	c, err := m.Store.Clusters().Get(ctx, name)
	if err != nil || c.Hash != hash {
		return
	}
	is, was := unsavedOf(i), c.Notes.Unsaved[rank]
	// Small steps are not worth a write, as it is told again every few seconds.
	if is.Files == was.Files && is.Bytes == was.Bytes && is.Error == was.Error || is.Files > 0 && was.Files > 0 && !notes.Allow() {
		return
	}
	_, err = m.Store.Clusters().Update(ctx, name, hash, func(c *state.Cluster) error {
		setUnsaved(c, rank, is)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		m.Log.WarnContext(ctx, "what a node has not saved is not noted", "cluster", name, "err", err)
	}
}

func setUnsaved(c *state.Cluster, rank int, u state.Unsaved) {
	next := maps.Clone(c.Notes.Unsaved)
	if next == nil {
		next = map[int]state.Unsaved{}
	}
	next[rank] = u
	if u.Files == 0 {
		delete(next, rank)
	}
	c.Notes.Unsaved = next
}

// unsavedOf sums up what a node's mounts have that their buckets do not.
func unsavedOf(i *agentapi.MountsInfo) (u state.Unsaved) {
	if i == nil {
		return u
	}
	u.Files, u.Bytes = i.Dirty()
	for _, x := range i.Mounts {
		for _, f := range x.Unsaved {
			if len(u.Names) < unsavedNamed {
				u.Names = append(u.Names, x.Path+"/"+f)
			}
		}
		if x.DirtyFiles > 0 && u.Error == "" {
			u.Error = x.Error
		}
	}
	return u
}

// unsaved sums up what the nodes of a cluster have not saved; nil: nothing.
func unsaved(c *state.Cluster) *api.Unsaved {
	var out *api.Unsaved
	for rank := range max(c.Machines(), len(c.Nodes)) {
		u := c.Notes.Unsaved[rank]
		if u.Files == 0 {
			continue
		}
		if out == nil {
			out = &api.Unsaved{}
		}
		out.Files, out.Bytes = out.Files+u.Files, out.Bytes+u.Bytes
		out.Names = append(out.Names, u.Names...)
		if out.Error == "" {
			out.Error = u.Error
		}
	}
	return out
}

// amount is a number of files with their size, in words.
func amount(files int, bytes int64) string {
	if files == 1 {
		return fmt.Sprintf("1 file (%s)", diskspace.Bytes(bytes))
	}
	return fmt.Sprintf("%d files (%s)", files, diskspace.Bytes(bytes))
}

// leftUnsaved says, and notes in the cluster's history, what a node that ends could not
// store in its mounted buckets.
func (m *Manager) leftUnsaved(ctx context.Context, out io.Writer, c *state.Cluster, rank int, down bool, i *agentapi.MountsInfo) {
	u := unsavedOf(i)
	if _, err := m.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error { setUnsaved(c, rank, u); return nil }); err != nil && ctx.Err() == nil {
		m.Log.WarnContext(ctx, "what a node has not saved is not noted", "cluster", c.Name, "err", err)
	}
	if u.Files == 0 {
		return
	}
	what := "stay on its disk, and are uploaded when the cluster is started again"
	if down {
		what = "are lost with it"
	}
	text := fmt.Sprintf("%s of cluster %s could not upload %s to mounted buckets, which %s: %s", remote.NodeName(rank), c.Name, amount(u.Files, u.Bytes), what, strings.Join(u.Names, ", "))
	if u.Error != "" {
		text += " (" + u.Error + ")"
	}
	if out != nil {
		fmt.Fprintln(out, "WARNING: "+text)
	}
	m.event(ctx, c, "STATUS_CHANGE", c.Status, text)
}
