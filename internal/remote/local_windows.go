package remote

import (
	"context"
	"errors"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

type localTransport Connector

func (t *localTransport) start(context.Context, *state.Cluster, cloud.Node, *spread, *Containers) (string, error) {
	return "", errors.New("nodes on this machine need Linux or macOS")
}
