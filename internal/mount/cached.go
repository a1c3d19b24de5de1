//go:build linux

package mount

import (
	"log/slog"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/storage"
)

func (m *Mounts) openCached(spec mountapi.Spec, b storage.Bucket, prefix string, log *slog.Logger) (volume, error) {
	return nil, failf(mountapi.Invalid, "there is no mode %q", spec.Mode)
}

func (m *Mounts) waiting(known map[string]bool) []mountapi.Waiting { return nil }
