package controller

import (
	"context"
	"fmt"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// A Kind is what a controller looks after.
type Kind struct {
	section string // of the configuration
	name    string // of the controller, for people
	what    string // it looks after, at the beginning of a sentence
	prefix  string // of the cluster's name
	dir     string // on the head node, below its home folder
	job     string // of the cluster, which runs the server
	routes  map[string]route
	ports   []string // that clients reach there
	none    *api.Error
	wakes   string // how one that rests is started, for people; "": by new work alone
	// unfinished is why a controller that runs may not end; nil: it may.
	unfinished func(*Controller, context.Context, *state.Cluster) error
	// before is what this server looks after itself from before the controller; "": nothing.
	before func(*Controller, context.Context, *state.Scope) string
}

// LastPort is the last port at which services on a controller are reached; the first one
// is that of all services.
const LastPort = 30020

// The kinds of controllers.
var (
	Jobs = &Kind{
		section: "jobs", name: "jobs controller", what: "Managed jobs", prefix: "sky-jobs-controller-",
		dir: ".sky/jobs_controller", job: "sky-jobs-controller",
		routes: map[string]route{
			"sky.jobs.launch":        {path: "/jobs/launch", talks: true, launches: true},
			"sky.jobs.queue_v2":      {path: "/jobs/queue/v2", empty: `{"jobs":[],"total":0,"total_no_filter":0,"status_counts":{}}`},
			"sky.jobs.queue":         {path: "/jobs/queue", empty: `[]`},
			"sky.jobs.cancel":        {path: "/jobs/cancel", talks: true},
			"sky.jobs.schedules":     {path: "/jobs/schedules", empty: `[]`},
			"sky.jobs.end_schedules": {path: "/jobs/end_schedules", talks: true},
			"sky.jobs.wait":          {path: "/jobs/wait"},
			"sky.jobs.events":        {path: "/jobs/events"},
			"sky.jobs.download_logs": {path: "/jobs/download_logs", talks: true, gathers: true},
			"sky.jobs.logs":          {path: "/jobs/logs", log: true, exits: true},
		},
		none: &api.Error{Type: api.ErrValue, Message: "There are no managed jobs: none was launched since jobs.controller.mode is cluster. " +
			"Those from before are shown by: sky jobs queue --config jobs.controller.mode=server"},
		wakes:      "To see its jobs start it: sky jobs queue --refresh (a new job starts it, too)",
		unfinished: (*Controller).unfinishedJobs, before: (*Controller).jobsBefore,
	}
	Services = &Kind{
		section: "serve", name: "serve controller", what: "Services", prefix: "sky-serve-controller-",
		dir: ".sky/serve_controller", job: "sky-serve-controller",
		routes: map[string]route{
			"sky.serve.up":                {path: "/serve/up", talks: true, launches: true},
			"sky.serve.update":            {path: "/serve/update", talks: true, launches: true, only: true},
			"sky.serve.down":              {path: "/serve/down", talks: true},
			"sky.serve.terminate_replica": {path: "/serve/terminate-replica", talks: true},
			"sky.serve.promote":           {path: "/serve/promote", talks: true},
			"sky.serve.rollback":          {path: "/serve/rollback", talks: true},
			"sky.serve.status":            {path: "/serve/status", empty: `[]`},
			"sky.serve.sync_down_logs":    {path: "/serve/sync-down-logs", talks: true, gathers: true},
			"sky.serve.logs":              {path: "/serve/logs", log: true},
		},
		ports: []string{fmt.Sprintf("30001-%d", LastPort)},
		none: &api.Error{Type: api.ErrValue, Message: "There are no services: none was started since serve.controller.mode is cluster. " +
			"Those from before are shown by: sky serve status --config serve.controller.mode=server"},
		unfinished: (*Controller).unfinishedServices, before: (*Controller).servicesBefore,
	}
)

// Section is that of the configuration about it.
func (k *Kind) Section() string { return k.section }

// homeDir is the home folder of the far server, below that of its node: a machine of
// one's own keeps its files.
func (k *Kind) homeDir() string { return k.dir + "/home" }

// Forwarded maps the names of the requests that the controller's server answers
// to their paths.
func (k *Kind) Forwarded() map[string]string {
	out := map[string]string{}
	for name, r := range k.routes {
		out[name] = r.path
	}
	return out
}

// Launches are the names of the requests that bring the controller up.
func (k *Kind) Launches() []string {
	var out []string
	for name, r := range k.routes {
		if r.launches {
			out = append(out, name)
		}
	}
	return out
}
