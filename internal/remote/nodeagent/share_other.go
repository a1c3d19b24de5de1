//go:build unix && !linux

package nodeagent

import (
	"context"
	"errors"

	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
)

func confineToShare(context.Context, string, *folder.Share) error {
	return errors.New("the share's CPUs and memory are counted only: this system cannot enforce them")
}
