package policy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
)

// ruled is a configuration with one rule.
func ruled(t *testing.T, expr string) *config.Config {
	return load(t, string(config.EncodeYAML(map[string]any{
		"admin_policy": map[string]any{"cel": []any{map[string]any{"expr": expr, "message": "Not here."}}},
		"aws":          map[string]any{"labels": map[string]any{"team": "a"}},
	})))
}

func TestRules(t *testing.T) {
	const task = `
name: train
num_nodes: 2
resources:
  infra: aws
  any_of:
    - {accelerators: 'A100:8', use_spot: true}
    - {accelerators: 'H100:8', use_spot: false, infra: gcp}
run: echo
`
	r := Request{Name: Launch, Tasks: []string{task}, User: &User{"12ab", "ann"}, ClientAPIVersion: ptr(53),
		Options: &Options{ClusterName: ptr("dev"), IdleMinutesToAutostop: ptr(10)}}
	for _, test := range []struct {
		expr string
		ok   bool
	}{
		{`true`, true},
		{`false`, false},
		{`task.num_nodes <= 4`, true},
		{`task.num_nodes > 4`, false},
		{`candidates.all(c, c.?use_spot.orValue(false))`, false},
		{`candidates.exists(c, c.?use_spot.orValue(false))`, true},
		{`candidates.all(c, c.infra in ["aws", "gcp"])`, true},
		{`candidates.size() == 2 && candidates[0].infra == "aws" && candidates[1].infra == "gcp"`, true},
		{`candidates.all(c, !c.accelerators.startsWith("H100"))`, false},
		{`user.name == "ann" && user.id == "12ab"`, true},
		{`request.name == "launch" && !request.at_client_side && request.client_api_version >= 53`, true},
		{`request.options.cluster_name.startsWith("dev") && request.options.idle_minutes_to_autostop <= 60`, true},
		{`request.client_version == null`, true},
		{`config.aws.labels.team == "a"`, true},
		{`has(task.name) && !has(task.workdir)`, true},
		{`task.?workdir.orValue("none") == "none"`, true},
		{`task.name.matches("^[a-z]+$")`, true},
	} {
		c := ruled(t, test.expr)
		tasks, changed, err := newPolicy(t, c).Apply(t.Context(), c, r)
		if test.ok {
			if err != nil || tasks[0] != task || changed != c {
				t.Errorf("%s: %v", test.expr, err)
			}
			continue
		}
		var e *api.Error
		if err == nil || !strings.HasSuffix(err.Error(), "Not here.") || !errors.As(err, &e) || e.Type != "UserRequestRejectedByPolicy" {
			t.Errorf("%s: %v", test.expr, err)
		}
	}
}

func TestRulesOfTasksThatAskForNothing(t *testing.T) {
	c := ruled(t, `candidates == [{}] && user.name == ""`)
	for _, task := range []string{"", "run: x", "resources: ~", "resources: {any_of: []}"} {
		if _, _, err := newPolicy(t, c).Apply(t.Context(), c, Request{Tasks: []string{task}}); err != nil {
			t.Errorf("%q: %v", task, err)
		}
	}
}

func TestRulesThatDoNotCompile(t *testing.T) {
	for _, test := range []struct{ expr, want string }{
		{`task.`, `admin_policy.cel[0].expr: `},
		{`tsak.name == "a"`, `undeclared reference to 'tsak'`},
		{`"text"`, `is string, not true or false`},
		{`1 + "a"`, `no matching overload`},
	} {
		_, err := New(ruled(t, test.expr), nil)
		var e *config.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "~/config.yaml:") {
			t.Errorf("%s: %v", test.expr, err)
		}
	}
}

// A rule that cannot be judged refuses, and says why.
func TestRulesThatFail(t *testing.T) {
	list := "[" + strings.Repeat("1,", 100) + "1]"
	for _, test := range []struct{ expr, want string }{
		{`task.workdir == "a"`, `no such key: workdir; read a key that may be absent as task.?name.orValue("")`},
		{`task.name`, `is string, not true or false`},
		{list + ".all(a, " + list + ".all(b, " + list + ".all(c, " + list + ".all(d, true))))", "cost limit"},
	} {
		c := ruled(t, test.expr)
		_, _, err := newPolicy(t, c).Apply(t.Context(), c, Request{Tasks: []string{"name: x"}})
		var e *CallError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.60s: %v", test.expr, err)
		}
	}
}

func TestRulesEndWhenCancelled(t *testing.T) {
	list := "[" + strings.Repeat("1,", 50) + "1]"
	c := ruled(t, list+".all(a, "+list+".all(b, "+list+".all(c, true)))")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := newPolicy(t, c).Apply(ctx, c, Request{Tasks: []string{"name: x"}}); err == nil {
		t.Error("it goes on")
	}
}

func BenchmarkRules(b *testing.B) {
	rs, err := compile([]any{map[string]any{"expr": `candidates.all(c, c.?use_spot.orValue(false)) && task.num_nodes < 4`, "message": "m"}}, config.Origin{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := rs.task(b.Context(), Request{}, "num_nodes: 2\nresources: {use_spot: true}", nil); err != nil {
			b.Fatal(err)
		}
	}
}
