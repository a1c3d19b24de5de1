package task

import (
	"slices"
	"strings"
)

// WithoutSecrets is tasks in the form that travels, as [Dag.YAML] writes them,
// with [Redacted] in the place of each secret: for a record of what has ended.
func WithoutSecrets(text []byte) ([]byte, error) {
	d, err := Parse("task", text)
	if err != nil {
		return nil, err
	}
	var values []string
	for _, t := range d.Tasks {
		values = append(values, t.secretValues()...)
		for name := range t.Secrets {
			t.Secrets[name] = NewSecret(Redacted)
		}
		for name := range t.Envs {
			if SecretName(name) {
				t.Envs[name] = Redacted
			}
		}
	}
	out, err := d.YAML()
	if err != nil {
		return nil, err
	}
	// A variable may have been put into another field.
	if hidden := []byte(hideIn(string(out), values)); string(hidden) != string(out) {
		if _, err := Parse("task", hidden); err == nil {
			return hidden, nil
		}
	}
	return out, nil
}

// SecretsIn is the values of the secrets of tasks, as a text in the form that
// travels holds them, less those that are too short to be told from other words.
func SecretsIn(text []byte) []string {
	d, err := Parse("task", text)
	if err != nil {
		return nil
	}
	var values []string
	for _, t := range d.Tasks {
		values = append(values, t.secretValues()...)
	}
	values = slices.DeleteFunc(values, func(v string) bool { return len(v) < hideable || v == Redacted })
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	return values
}

// hideable is the length of the shortest value that is replaced wherever it
// stands: shorter ones would garble the text.
const hideable = 6

func hideIn(text string, values []string) string {
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	for _, v := range values {
		if len(v) >= hideable && v != Redacted {
			text = strings.ReplaceAll(text, v, Redacted)
		}
	}
	return text
}

// displayed is the text of a task that somebody sent for display, without its
// secrets: other clients than ours leave them in.
func displayed(text string) string {
	if !strings.Contains(text, "secrets") && !strings.Contains(text, "envs") {
		return text
	}
	d, err := Parse("task", []byte(text))
	if err != nil || len(d.Tasks) == 0 {
		return ""
	}
	var parts []string
	for _, t := range d.Tasks {
		if t.origin == nil {
			return ""
		}
		parts = append(parts, t.origin.display())
	}
	return strings.Join(parts, "---\n")
}
