package serve

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/serve/replicas"
	"github.com/skypilot-go/sky/internal/serve/spec"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// version is what a service was asked to be, read.
type version struct {
	*state.ServiceVersion
	task *task.Task
	spec *spec.Spec
}

func readVersion(v *state.ServiceVersion) (*version, error) {
	dag, err := task.ParseSent("task", v.Task)
	if err != nil {
		return nil, fmt.Errorf("the stored task of version %d: %w", v.Number, err)
	}
	if len(dag.Tasks) != 1 {
		return nil, fmt.Errorf("version %d has %d tasks", v.Number, len(dag.Tasks))
	}
	s, err := spec.Of(dag.Tasks[0])
	if err != nil {
		return nil, fmt.Errorf("version %d: %w", v.Number, err)
	}
	return &version{v, dag.Tasks[0], s}, nil
}

// config is the client's configuration that came with the version.
func (v *version) config() (map[string]any, error) {
	if len(v.Config) == 0 {
		return nil, nil
	}
	var sent map[string]any
	err := json.Unmarshal(v.Config, &sent)
	return sent, err
}

// copy is the task for one launch, which may change it.
func (v *version) copy() (*task.Task, error) {
	fresh, err := readVersion(v.ServiceVersion)
	if err != nil {
		return nil, err
	}
	return fresh.task, nil
}

// mode is how a version takes over, and the share of the requests that it gets as a
// canary; 0: as its task says.
func (v *version) mode() (replicas.Mode, float64) {
	mode, weight, _ := strings.Cut(v.Mode, " ")
	if mode == "" {
		return replicas.Rolling, 0
	}
	share, _ := strconv.ParseFloat(weight, 64)
	return replicas.Mode(mode), share
}

// modeText is how a version's row has its mode.
func modeText(mode replicas.Mode, weight float64) string {
	if weight == 0 {
		return string(mode)
	}
	return string(mode) + " " + strconv.FormatFloat(weight, 'f', -1, 64)
}
