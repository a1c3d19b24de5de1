package config

import (
	"fmt"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// controllerKinds are the sections that have a controller, and what it looks after.
var controllerKinds = []struct{ section, what string }{{"jobs", "managed jobs"}, {"serve", "services"}}

// ControllerOn says where managed jobs (section jobs) or services (section serve) are
// looked after, [OnServer] or [OnCluster]. Of what a client sends along with a request
// only the mode itself counts, and only if the sender may set it; it was checked on the
// client's side, and any other value is passed over.
func (c *Config) ControllerOn(section string, sent map[string]any, from Sender) string {
	if !takes(Keys().At(section, "controller"), from) {
		sent = nil
	}
	of, _ := sent[section].(map[string]any)
	controller, _ := of["controller"].(map[string]any)
	if mode, _ := controller["mode"].(string); mode == OnServer || mode == OnCluster {
		return mode
	}
	if mode := c.Text(section, "controller", "mode"); mode != "" {
		return mode
	}
	if inside, given := c.Value(section, "controller", "consolidation_mode").(bool); given && !inside {
		return OnCluster
	}
	return OnServer
}

// NoClusterBesideDatabase says why what a section is about cannot be on a cluster of its
// own where servers share a database.
func NoClusterBesideDatabase(section string) string {
	what := ""
	for _, k := range controllerKinds {
		if k.section == section {
			what = k.what
		}
	}
	return fmt.Sprintf("%s cannot be looked after by a cluster where the servers' state is in a database (db): every server on it looks after them, "+
		"and takes over those of a server that dies. Leave %s.controller.mode out, or set it to %s", what, section, OnServer)
}

// onCluster is what says that a cluster looks after something, and the section that it is
// in; nil: nothing does.
func onCluster(n *yaml11.Node) (*yaml11.Node, string) {
	for _, k := range controllerKinds {
		if n == nil || (&Config{root: n}).ControllerOn(k.section, nil, Admin) != OnCluster {
			continue
		}
		if mode := n.Find(k.section, "controller", "mode"); mode != nil {
			return mode, k.section
		}
		return n.Find(k.section, "controller", "consolidation_mode"), k.section
	}
	return nil, ""
}

// CheckControllersBesideDatabase is an error, with its place, if a cluster is to look
// after managed jobs or services although the servers' state is in a database.
func (c *Config) CheckControllersBesideDatabase() error {
	if mode, section := onCluster(c.root); mode != nil && c.db != nil {
		return &Error{Problems: []Problem{ProblemAt(originOf(mode.Place), section+".controller", NoClusterBesideDatabase(section))}}
	}
	return nil
}

// ForController is this configuration, as text and with its secrets, for the server that
// looks after managed jobs or services in this one's place: without what is about this
// server alone, and without what would make that one hand the work on again.
func (c *Config) ForController() []byte {
	n := c.root
	paths := [][]string{{"api_server"}, {"db"}, {"rbac"}, {"daemons"}, {"jobs", "callback_runner"}, {"serve", "balancer"}, {"serve", "host"}}
	for _, k := range controllerKinds {
		for _, key := range []string{"mode", "consolidation_mode", "resources", "autostop", "high_availability"} {
			paths = append(paths, []string{k.section, "controller", key})
		}
	}
	for _, path := range paths {
		if n != nil {
			n = n.Without(path...)
		}
	}
	if n == nil {
		return nil
	}
	return emit(n)
}
