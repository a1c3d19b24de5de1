// Package policy applies an administrator's policy to requests: a service that
// is asked over HTTP and may change them, or rules in the configuration that
// each task must fulfil.
//
// It lives apart from package config because the rules' language takes time to
// start, which a command that needs no policy should not pay for.
package policy

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/skypilot-go/sky/internal/config"
)

// Names of requests, as policies know them.
const (
	Validate              = "validate"
	Optimize              = "optimize"
	Launch                = "launch"
	Exec                  = "exec"
	JobsLaunch            = "jobs.launch"
	JobsLaunchController  = "jobs.launch_controller"
	JobsLaunchCluster     = "jobs.launch_cluster"
	JobsPoolApply         = "jobs.pool_apply"
	ServeUp               = "serve.up"
	ServeUpdate           = "serve.update"
	ServeLaunchController = "serve.launch_controller"
	ServeLaunchReplica    = "serve.launch_replica"
)

// Request is what a policy judges: the tasks of one request and around it.
type Request struct {
	Name         string   // one of the names above
	Tasks        []string // YAML, one per task of the Dag
	Options      *Options // nil for jobs and services
	AtClientSide bool
	// Known to the server only.
	User             *User
	ClientAPIVersion *int
	ClientVersion    *string
}

// Options are the options of a launch.
type Options struct {
	ClusterName           *string `json:"cluster_name"`
	IdleMinutesToAutostop *int    `json:"idle_minutes_to_autostop"`
	Down                  bool    `json:"down"`
	DryRun                bool    `json:"dryrun"`
}

// User is who asks.
type User struct{ ID, Name string }

// Policy is an administrator's policy, ready to be asked by many goroutines.
type Policy struct {
	name  string
	judge judge
}

// judge answers one task with the task and the configuration to go on with.
type judge interface {
	task(ctx context.Context, r Request, yaml string, values map[string]any) (string, map[string]any, error)
}

// New returns the policy that a configuration asks for, or nil if it asks for
// none. A mistake in the policy itself is a [*config.Error]. client is for the
// HTTP form; nil means [http.DefaultClient].
func New(c *config.Config, client *http.Client) (*Policy, error) {
	value, ok := c.Get("admin_policy")
	if !ok {
		return nil, nil
	}
	if rules, ok := value.(map[string]any); ok {
		j, err := compile(rules["cel"].([]any), c.Origin("admin_policy", "cel"))
		if err != nil {
			return nil, err
		}
		return &Policy{"the rules in " + c.Origin("admin_policy").String(), j}, nil
	}
	name := c.AdminPolicyURL()
	if !config.IsURL(name) {
		return nil, &config.Error{Problems: []config.Problem{config.ProblemAt(c.Origin("admin_policy"), "admin_policy", config.PythonPolicy(name))}}
	}
	if client == nil {
		client = http.DefaultClient
	}
	w := &webhook{url: name, client: client}
	return &Policy{w.shown(), w}, nil
}

// String names the policy for logs and messages.
func (p *Policy) String() string { return p.name }

// Apply asks the policy about each task and returns the tasks and the
// configuration to go on with. All tasks must be answered with the same
// configuration. Secrets of the configuration are not shown to the policy.
//
// A refusal is a [*RejectedError]; a policy that cannot be asked or understood
// is a [*CallError].
func (p *Policy) Apply(ctx context.Context, c *config.Config, r Request) ([]string, *config.Config, error) {
	var tasks []string
	var answer map[string]any
	var text string
	for i, yaml := range r.Tasks {
		task, values, err := p.judge.task(ctx, r, yaml, c.WithoutSecrets())
		if err != nil {
			return nil, nil, err
		}
		tasks = append(tasks, task)
		this := string(config.EncodeYAML(values))
		if i > 0 && this != text {
			return nil, nil, &CallError{p.name, errors.New(
				"it answered the tasks of one request with different configurations; they must be the same for all. Ask your administrator")}
		}
		answer, text = values, this
	}
	if answer == nil || text == string(config.EncodeYAML(c.WithoutSecrets())) {
		return tasks, c, nil
	}
	changed, err := c.Replace(config.Origin{Layer: config.LayerPolicy, Source: p.name}, answer)
	if err != nil {
		return nil, nil, &CallError{p.name, fmt.Errorf("its configuration is not valid: %w", err)}
	}
	return tasks, changed, nil
}
