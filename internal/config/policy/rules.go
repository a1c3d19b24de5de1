package policy

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/skypilot-go/sky/internal/config"
)

// maxCost bounds how long one rule may compute.
const maxCost = 200_000

// rules are conditions in CEL over these variables:
//
//	task        the task as written, a map
//	candidates  the resources the task can run on, a list of maps: any_of and
//	            ordered spelled out, [{}] when the task asks for nothing
//	config      the configuration, a map
//	request     {name, options, at_client_side, client_api_version, client_version}
//	user        {id, name}, both "" on the client: rules about users belong
//	            in the server's configuration
//
// A key that may be absent is read as task.?workdir.orValue("").
type rules []rule

type rule struct {
	expr, message string
	program       cel.Program
}

func compile(items []any, at config.Origin) (rules, error) {
	env, err := cel.NewEnv(
		cel.OptionalTypes(),
		cel.Variable("task", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("candidates", cel.ListType(cel.MapType(cel.StringType, cel.DynType))),
		cel.Variable("config", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("request", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("user", cel.MapType(cel.StringType, cel.StringType)),
	)
	if err != nil {
		return nil, err
	}
	var out rules
	var problems []config.Problem
	for i, item := range items {
		m := item.(map[string]any)
		r := rule{expr: m["expr"].(string), message: m["message"].(string)}
		if r.program, err = compileOne(env, r.expr); err != nil {
			problems = append(problems, config.ProblemAt(at, fmt.Sprintf("admin_policy.cel[%d].expr", i), err.Error()))
		}
		out = append(out, r)
	}
	if len(problems) > 0 {
		return nil, &config.Error{Problems: problems}
	}
	return out, nil
}

func compileOne(env *cel.Env, expr string) (cel.Program, error) {
	ast, issues := env.Compile(expr)
	if issues.Err() != nil {
		e := issues.Errors()[0]
		return nil, fmt.Errorf("%s (character %d of %q)", e.Message, e.Location.Column()+1, expr)
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("is %v, not true or false: %q", t, expr)
	}
	return env.Program(ast, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(1000))
}

func (rs rules) task(ctx context.Context, r Request, yaml string, values map[string]any) (string, map[string]any, error) {
	v, err := config.DecodeYAML([]byte(yaml), "task")
	if err != nil {
		return "", nil, err
	}
	task, ok := v.(map[string]any)
	if !ok {
		task = map[string]any{}
	}
	vars := map[string]any{
		"task": task, "candidates": candidates(task["resources"]), "config": values,
		"request": requestVariable(r), "user": map[string]string{"id": "", "name": ""},
	}
	if r.User != nil {
		vars["user"] = map[string]string{"id": r.User.ID, "name": r.User.Name}
	}
	for _, rule := range rs {
		result, _, err := rule.program.ContextEval(ctx, vars)
		if err != nil {
			hint := ""
			if strings.HasPrefix(err.Error(), "no such key") {
				hint = `; read a key that may be absent as task.?name.orValue("")`
			}
			return "", nil, &CallError{"rule " + rule.expr, fmt.Errorf("%w%s", err, hint)}
		}
		switch result {
		case types.True:
		case types.False:
			return "", nil, &RejectedError{"rule " + rule.expr, rule.message}
		default:
			return "", nil, &CallError{"rule " + rule.expr, fmt.Errorf("is %v, not true or false", result.Type())}
		}
	}
	return yaml, values, nil
}

// candidates spells out what a task's resources allow.
func candidates(resources any) []map[string]any {
	base, _ := resources.(map[string]any)
	var alternatives []any
	common := map[string]any{}
	for key, v := range base {
		if list, ok := v.([]any); ok && (key == "any_of" || key == "ordered") {
			alternatives = list
			continue
		}
		common[key] = v
	}
	if len(alternatives) == 0 {
		return []map[string]any{common}
	}
	var out []map[string]any
	for _, alternative := range alternatives {
		candidate := map[string]any{}
		for key, v := range common {
			candidate[key] = v
		}
		fields, _ := alternative.(map[string]any)
		for key, v := range fields {
			candidate[key] = v
		}
		out = append(out, candidate)
	}
	return out
}

func requestVariable(r Request) map[string]any {
	v := map[string]any{"name": r.Name, "at_client_side": r.AtClientSide, "options": nil, "client_api_version": nil, "client_version": nil}
	if o := r.Options; o != nil {
		options := map[string]any{"down": o.Down, "dryrun": o.DryRun, "cluster_name": nil, "idle_minutes_to_autostop": nil}
		if o.ClusterName != nil {
			options["cluster_name"] = *o.ClusterName
		}
		if o.IdleMinutesToAutostop != nil {
			options["idle_minutes_to_autostop"] = *o.IdleMinutesToAutostop
		}
		v["options"] = options
	}
	if r.ClientAPIVersion != nil {
		v["client_api_version"] = *r.ClientAPIVersion
	}
	if r.ClientVersion != nil {
		v["client_version"] = *r.ClientVersion
	}
	return v
}
