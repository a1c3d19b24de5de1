package task

import (
	"maps"
	"slices"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// setVariables merges the variables of flags and files and replaces ${VAR}
// anew with them.
func (t *Task) setVariables(o Overrides) error {
	if len(o.EnvFile)+len(o.Envs)+len(o.SecretFile)+len(o.Secrets) == 0 {
		return nil
	}
	envs, secrets := maps.Clone(t.Envs), maps.Clone(t.Secrets)
	if envs == nil {
		envs = map[string]string{}
	}
	if secrets == nil {
		secrets = map[string]Secret{}
	}
	for k, v := range o.EnvFile {
		if _, ok := secrets[k]; ok || t.declares("secrets", k) {
			secrets[k] = NewSecret(v)
		} else {
			envs[k] = v
		}
	}
	maps.Copy(envs, o.Envs)
	for _, layer := range []map[string]string{o.SecretFile, o.Secrets} {
		for k, v := range layer {
			secrets[k] = NewSecret(v)
		}
	}
	for k := range envs {
		if !envKey.MatchString(k) {
			return flagError("--env", "%q cannot name an environment variable: use letters, digits and _, not beginning with a digit", k)
		}
	}
	t.Envs, t.Secrets = envs, secrets
	if len(secrets) == 0 {
		t.Secrets = nil
	}
	return t.substitute()
}

// declares: the text has name under field, with or without a value.
func (t *Task) declares(field, name string) bool {
	return t.origin != nil && t.origin.doc.Kind == yaml11.Map && t.origin.doc.Get(field).Lookup(name) != nil
}

// substitute reads the fields with ${VAR} again from the text, with the
// variables of now.
func (t *Task) substitute() error {
	if t.origin == nil || !t.origin.hasVariables() {
		return nil
	}
	b := &builder{validator: validator{source: t.origin.source}}
	full := t.variables().replaceFields(t.origin.doc)
	for _, f := range substituted {
		if v := full.Get(f); v != nil {
			b.check(v, language().Key(f), f)
		}
	}
	if len(b.errs) == 0 {
		b.variableFields(t, full)
	}
	hide(b.errs, t.secretValues())
	return joined(b.errs)
}

func (o *origin) hasVariables() bool {
	if o.doc.Kind != yaml11.Map || o.doc.Get("_metadata").Get(substitutedMark) != nil {
		return false
	}
	return slices.ContainsFunc(substituted, func(f string) bool {
		v := o.doc.Get(f)
		return v != nil && mentionsVariable(v, nil)
	})
}
