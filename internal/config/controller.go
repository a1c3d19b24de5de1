package config

// JobsOn tells where managed jobs are looked after, [JobsOnServer] or
// [JobsOnCluster]. Of what a client sends along with a request only the mode
// itself counts; it was checked on the client's side, and any other value is
// passed over.
func (c *Config) JobsOn(sent map[string]any) string {
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

// ForJobsController is this configuration, as text and with its secrets, for the
// server that looks after managed jobs in this one's place: without what is about
// this server alone, and without what would make that one hand the jobs on again.
func (c *Config) ForJobsController() []byte {
	n := c.root
	for _, path := range [][]string{
		{"api_server"}, {"db"}, {"rbac"}, {"daemons"},
		{"jobs", "controller", "mode"}, {"jobs", "controller", "consolidation_mode"}, {"jobs", "controller", "resources"},
		{"jobs", "controller", "autostop"}, {"jobs", "controller", "high_availability"},
	} {
		if n != nil {
			n = n.without(path...)
		}
	}
	if n == nil {
		return nil
	}
	return emit(n)
}
