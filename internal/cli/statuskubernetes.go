package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/table"
)

// kubernetesCluster is a row of status-kubernetes.
type kubernetesCluster struct {
	Name         string            `json:"cluster_name"`
	User         string            `json:"user"`
	Status       api.ClusterStatus `json:"status"`
	ResourcesStr string            `json:"resources_str"`
	LaunchedAt   float64           `json:"launched_at"`
}

func (a *app) statusKubernetes(ctx context.Context, verbose bool) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	req, err := c.StatusKubernetes(ctx)
	parts, err := wait(ctx, a, req, err)
	if err != nil {
		return err
	}
	var managed, unmanaged []kubernetesCluster
	var kubeContext *string
	for i, to := range []any{&managed, &unmanaged, nil, &kubeContext} {
		if i < len(parts) && to != nil {
			if err := json.Unmarshal(parts[i], to); err != nil {
				return fmt.Errorf("the API server's list of Kubernetes clusters is not understood: %w", err)
			}
		}
	}
	if kubeContext != nil {
		a.t.Println("Kubernetes context: " + *kubeContext)
	}
	if verbose {
		managed = append(managed, unmanaged...)
	}
	a.t.Println(a.t.Style(term.Title, "SkyPilot clusters"))
	if len(managed) == 0 {
		a.t.Println("No existing clusters.")
		return nil
	}
	a.t.Print(a.t.Table(kubernetesTable(a.t, managed, a.now())))
	return nil
}

func kubernetesTable(t *term.Term, list []kubernetesCluster, now time.Time) *table.Table {
	tab := table.New("USER", "NAME", "RESOURCES", "STATUS", "LAUNCHED").Whole("NAME", "STATUS").Optional("LAUNCHED", "USER", "RESOURCES")
	for _, k := range list {
		tab.Add(format.OrDash(k.User), k.Name, format.OrDash(k.ResourcesStr), clusterStatusCell(t, k.Status), format.Ago(k.LaunchedAt, now))
	}
	return tab
}
