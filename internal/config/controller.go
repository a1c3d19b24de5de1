package config

import "github.com/skypilot-go/sky/internal/yaml11"

// JobsOn tells where managed jobs are looked after, [JobsOnServer] or
// [JobsOnCluster]. Of what a client sends along with a request only the mode
// itself counts, and only if the sender may set it; it was checked on the client's
// side, and any other value is passed over.
func (c *Config) JobsOn(sent map[string]any, from Sender) string {
	if !takes(Keys().At("jobs", "controller"), from) {
		sent = nil
	}
	jobs, _ := sent["jobs"].(map[string]any)
	controller, _ := jobs["controller"].(map[string]any)
	if mode, _ := controller["mode"].(string); mode == JobsOnServer || mode == JobsOnCluster {
		return mode
	}
	if mode := c.Text("jobs", "controller", "mode"); mode != "" {
		return mode
	}
	if inside, given := c.Value("jobs", "controller", "consolidation_mode").(bool); given && !inside {
		return JobsOnCluster
	}
	return JobsOnServer
}

// NoClusterBesideDatabase says why managed jobs cannot be on a cluster of their own
// where servers share a database.
const NoClusterBesideDatabase = "managed jobs cannot be looked after by a cluster where the servers' state is in a database (db): every server on it looks after them, " +
	"and takes over those of a server that dies. Leave jobs.controller.mode out, or set it to " + JobsOnServer

// jobsOnCluster is what says that a cluster looks after managed jobs; nil: nothing
// does.
func jobsOnCluster(n *yaml11.Node) *yaml11.Node {
	if n == nil || (&Config{root: n}).JobsOn(nil, Admin) != JobsOnCluster {
		return nil
	}
	if mode := n.Find("jobs", "controller", "mode"); mode != nil {
		return mode
	}
	return n.Find("jobs", "controller", "consolidation_mode")
}

// CheckJobsBesideDatabase is an error, with its place, if a cluster is to look
// after managed jobs although the servers' state is in a database.
func (c *Config) CheckJobsBesideDatabase() error {
	if mode := jobsOnCluster(c.root); mode != nil && c.db != nil {
		return &Error{Problems: []Problem{ProblemAt(originOf(mode.Place), "jobs.controller", NoClusterBesideDatabase)}}
	}
	return nil
}

// ForJobsController is this configuration, as text and with its secrets, for the
// server that looks after managed jobs in this one's place: without what is about
// this server alone, and without what would make that one hand the jobs on again.
func (c *Config) ForJobsController() []byte {
	n := c.root
	for _, path := range [][]string{
		{"api_server"}, {"db"}, {"rbac"}, {"daemons"}, {"jobs", "callback_runner"},
		{"jobs", "controller", "mode"}, {"jobs", "controller", "consolidation_mode"}, {"jobs", "controller", "resources"},
		{"jobs", "controller", "autostop"}, {"jobs", "controller", "high_availability"},
	} {
		if n != nil {
			n = n.Without(path...)
		}
	}
	if n == nil {
		return nil
	}
	return emit(n)
}
