package execution

import (
	"errors"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/registry"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// Variables of a task that log in to the registry of its image.
const (
	dockerUsername = "SKYPILOT_DOCKER_USERNAME"
	dockerPassword = "SKYPILOT_DOCKER_PASSWORD"
	dockerServer   = "SKYPILOT_DOCKER_SERVER"
)

// containers says how containers on the cluster's machines are made.
func containers(call cluster.Call, t *task.Task, cfg *config.Config, c *state.Cluster) (remote.Containers, error) {
	var out remote.Containers
	if c.Notes.Container == "" {
		return out, nil
	}
	for _, d := range c.Machine.Disks { // which are mounted on the machine
		out.Options = append(out.Options, "--volume="+d.Path+":"+d.Path)
	}
	for _, text := range cfg.Texts("docker", "run_options") {
		words, err := splitWords(text)
		if err != nil {
			return out, &api.Error{Type: api.ErrValue, Message: "docker.run_options: " + err.Error() + ": " + text}
		}
		out.Options = append(out.Options, words...)
	}
	for _, s := range t.StorageMounts {
		out.Mounts = out.Mounts || s.Mode != "COPY"
	}
	out.Login = login(t)
	out.Doing = func(text string) { call.Out.Spin(c.Name + ": " + text) }
	return out, nil
}

// login is the task's login to a registry; nil: it has none.
func login(t *task.Task) *registry.Login {
	value := func(name string) string {
		if v, ok := t.Secrets[name]; ok {
			return v.Reveal()
		}
		return t.Envs[name]
	}
	l := registry.Login{Username: value(dockerUsername), Password: value(dockerPassword), Server: value(dockerServer)}
	if l.Username == "" || l.Server == "" {
		return nil
	}
	return &l
}

// loginOf is the login for a cluster's images where its nodes are containers: the
// task's, or only the registry, of which they have the login already.
func loginOf(t *task.Task, c *state.Cluster) *registry.Login {
	if l := login(t); l != nil {
		return l
	}
	if server := c.Notes.Registry; server != "" {
		return &registry.Login{Server: server}
	}
	return nil
}

// splitWords splits a text into words as a shell does, which expands nothing.
func splitWords(text string) ([]string, error) {
	var words []string
	var word []rune
	inWord := false
	var quote rune
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		switch {
		case r == '\\' && quote != '\'' && i+1 == len(runes):
			return nil, errors.New("it ends with a backslash")
		case r == '\\' && (quote == 0 || quote == '"' && (runes[i+1] == '"' || runes[i+1] == '\\')):
			i++
			word, inWord = append(word, runes[i]), true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inWord = r, true
		case quote == 0 && (r == ' ' || r == '\t' || r == '\n'):
			if inWord {
				words = append(words, string(word))
			}
			word, inWord = nil, false
		default:
			word, inWord = append(word, r), true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if inWord {
		words = append(words, string(word))
	}
	return words, nil
}
