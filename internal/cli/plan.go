package cli

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/task"
)

// envCatalogDir names a folder of price lists to plan on.
const envCatalogDir = "SKY_CATALOG_DIR"

// planFlags are the options about planning, which go with --dryrun.
type planFlags struct {
	assume, catalogs string
	target           string
	explain          bool
}

func (f flags) plan(p *planFlags) {
	f.text(&p.assume, "assume-enabled", "", "With --dryrun: plan as if these clouds were enabled (aws,gcp,… or all); needs no account.")
	f.text(&p.catalogs, "catalog-dir", "", "With --dryrun: folder of other price lists, as CLOUD/vms.csv. ["+envCatalogDir+"]")
	f.text(&p.target, "optimize-target", "", "What the plan minimizes: cost (the default) or time, by the task's estimated_runtime.")
	f.on(&p.explain, "explain", "", "Say why each alternative was not taken.")
}

// minimize is what the plan minimizes, as the server knows it.
func (p planFlags) minimize() (int, error) {
	switch strings.ToLower(p.target) {
	case "", "cost":
		return 0, nil
	case "time":
		return 1, nil
	}
	return 0, usagef("--optimize-target is cost or time, not %q.", p.target)
}

// options is what goes to the server.
func (p planFlags) options(a *app) (api.PlanOptions, error) {
	o := api.PlanOptions{Explain: p.explain, Columns: a.t.Columns()}
	for _, c := range strings.Split(p.assume, ",") {
		if c = strings.TrimSpace(c); c != "" {
			o.AssumeEnabled = append(o.AssumeEnabled, c)
		}
	}
	dir := p.catalogs
	if dir == "" {
		dir = a.env(envCatalogDir)
	}
	if dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return o, err
		}
		o.CatalogDir = abs
	}
	return o, nil
}

// checkPlan refuses combinations that mean nothing.
func (o launchOptions) checkPlan(a *app) error {
	if _, err := o.plan.minimize(); err != nil {
		return err
	}
	switch {
	case o.dryrun:
	case o.plan.assume != "":
		return usagef("--assume-enabled goes with --dryrun: nothing can be rented from clouds that are only assumed.")
	case o.plan.catalogs != "":
		return usagef("--catalog-dir goes with --dryrun.")
	case a.output != "table" && (!o.detach || !o.yes || o.async):
		return usagef("--output goes with --dryrun, or with -d and -y and without --async: a launch follows its job's output.")
	}
	return nil
}

// launched is a launch as -o json prints it.
type launched struct {
	Cluster string `json:"cluster"`
	JobID   *int   `json:"job_id"` // null: the task has nothing to run
}

// planned is the plan of a dry run as -o json prints it.
type planned struct {
	Task       string                `json:"task"`
	NumNodes   int                   `json:"num_nodes"`
	Chosen     api.PlanOffer         `json:"chosen"`
	Candidates []api.PlanOffer       `json:"candidates"`
	Explained  []api.PlanAlternative `json:"explained,omitempty"`
}

// printPlan asks for the plan alone and prints it for programs.
func (a *app) printPlan(ctx context.Context, c *sky.Client, body api.LaunchBody) error {
	body.WantPlan, body.QuietOptimizer = true, true
	req, err := c.Launch(ctx, body)
	if err != nil {
		return err
	}
	res, err := req.Get(ctx)
	if err != nil {
		return err
	}
	if res.Plan == nil || len(res.Plan.Tasks) == 0 {
		return errors.New("the server made no plan: the cluster exists already, so the task would run there")
	}
	t := res.Plan.Tasks[0]
	_, err = a.emit(planned{Task: t.Task, NumNodes: t.NumNodes, Chosen: t.Chosen, Candidates: t.Candidates, Explained: t.Explained})
	return err
}

// failure is an error as -o json prints it.
type failure struct {
	Kind    string         `json:"kind"`
	Type    string         `json:"type,omitempty"`
	Message string         `json:"message"`
	Hint    string         `json:"hint,omitempty"`
	Reasons any            `json:"reasons,omitempty"`
	Similar any            `json:"similar,omitempty"`
	Where   []failurePlace `json:"where,omitempty"`
}

// failurePlace is a spot in a task file.
type failurePlace struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// asFailure turns any error into what a program can branch on.
func (a *app) asFailure(err error) failure {
	f := failure{Kind: "error", Message: err.Error()}
	for _, e := range task.AllErrors(err) {
		f.Kind = "invalid_task"
		f.Where = append(f.Where, failurePlace{e.File, e.Line, e.Column, e.Field, e.Message})
	}
	if e, ok := asAPIError(err); ok {
		if at := a.placed(e); at != nil {
			f.Where = append(f.Where, failurePlace{at.File, at.Line, at.Column, at.Field, at.Message})
		}
		f.Kind, f.Type, f.Message, f.Hint = "request_failed", e.Type, e.Message, e.Hint
		if kind, ok := e.Details["kind"].(string); ok {
			f.Kind = kind
		}
		f.Reasons, f.Similar = e.Details["reasons"], e.Details["similar"]
	}
	return f
}

// inFormat prints an error as -o asks, and the exit code stays.
func (a *app) inFormat(err error) error {
	if err == nil || a.output == "table" {
		return err
	}
	var usage *usageError
	if errors.As(err, &usage) {
		return err
	}
	if done, perr := a.emit(map[string]failure{"error": a.asFailure(err)}); !done || perr != nil {
		return errors.Join(err, perr)
	}
	return exitError(1)
}
