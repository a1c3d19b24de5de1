package task

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

var secretName = lazyregexp.New(`(?i)(token|.key|password|passwd|secret|credentials?)$`)

// SecretName reports whether a variable of that name is taken for a secret wherever
// it stands: HF_TOKEN, AWS_SECRET_ACCESS_KEY, SKYPILOT_DOCKER_PASSWORD.
func SecretName(name string) bool { return secretName.MatchString(name) }

// secretValues are the values of the task's secrets, and of the variables under envs
// whose names look like those of secrets.
func (t *Task) secretValues() []string {
	var values []string
	for _, s := range t.Secrets {
		values = append(values, s.Reveal())
	}
	for name, v := range t.Envs {
		if SecretName(name) {
			values = append(values, v)
		}
	}
	return values
}

// Variables are the task's variables as a job gets them: those under envs whose names
// look like those of secrets are among the secrets.
func (t *Task) Variables() (envs, secrets map[string]string) {
	envs, secrets = map[string]string{}, map[string]string{}
	for name, v := range t.Envs {
		if SecretName(name) {
			secrets[name] = v
		} else {
			envs[name] = v
		}
	}
	for name, s := range t.Secrets {
		secrets[name] = s.Reveal()
	}
	return envs, secrets
}

// secretWarnings says which variables are better written as secrets. A login to a registry
// is complete under either.
func (t *Task) secretWarnings() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(t.Envs)) {
		if SecretName(name) && !slices.Contains(dockerLogin, name) && t.Envs[name] != "" {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("%s under envs: looks like a secret and is hidden like one; write it under secrets: (or give it with --secret %[1]s), as other variables are visible to the workspace", names[0])}
	}
	return []string{fmt.Sprintf("%s under envs: look like secrets and are hidden like them; write them under secrets: (or give them with --secret), as other variables are visible to the workspace", strings.Join(names, ", "))}
}
