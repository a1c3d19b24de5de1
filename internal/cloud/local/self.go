package local

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/skypilot-go/sky/internal/mount/mountpoints"
	"github.com/skypilot-go/sky/internal/proc"
)

// Self is a node as its own agent sees it: what it needs to switch itself off
// or give itself back when nobody else is there to do it.
type Self struct{ dir string }

// NewSelf returns the node whose folder is dir (the value of [EnvNode]).
func NewSelf(dir string) *Self { return &Self{dir: dir} }

// Stop switches the node off: everything else that runs in it ends; the caller
// is expected to exit next.
func (s *Self) Stop(ctx context.Context) error {
	r, err := readRecord(s.dir)
	if err != nil {
		return err
	}
	r.On, r.Reason = false, "autostopped"
	if err := r.write(s.dir); err != nil {
		return err
	}
	return s.endOthers(ctx)
}

// Terminate removes the node, and the cluster's folder with the last of them.
func (s *Self) Terminate(ctx context.Context) error {
	r, err := readRecord(s.dir)
	if err != nil {
		return err
	}
	r.On, r.Reason = false, "autodowned"
	if err := r.write(s.dir); err != nil {
		return err
	}
	if err := s.endOthers(ctx); err != nil {
		return err
	}
	if err := mountpoints.RemoveAll(s.dir); err != nil {
		return err
	}
	os.Remove(filepath.Dir(s.dir)) // fails while other nodes are there
	return nil
}

func (s *Self) endOthers(ctx context.Context) error {
	return proc.End(ctx, func() []int {
		return slices.DeleteFunc(proc.Marked(EnvNode, s.dir), func(pid int) bool { return pid == os.Getpid() })
	}, proc.Grace)
}
