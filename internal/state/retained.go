package state

import (
	"bytes"
	"encoding/json"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/task"
)

// What has ended needs no secrets any more: of a request's body stays what lists
// show and what a log that is read again is about, of a managed job's tasks
// everything but their secrets.

// redacted is what stands where a value was dropped. What is read of the body of a
// request that has ended must still be of its type: a text stays a text, and of
// anything else nothing is known.
func redacted(value json.RawMessage) json.RawMessage {
	if b := bytes.TrimSpace(value); len(b) > 0 && b[0] == '"' {
		return json.RawMessage(`"` + task.Redacted + `"`)
	}
	return json.RawMessage("null")
}

// retainedBelow are the maps of which a few keys stay: who asked, and where.
var retainedBelow = map[string][]string{
	"env_vars":                 {api.EnvUserID, api.EnvUser},
	"override_skypilot_config": {"active_workspace"},
}

// A name, an id, a pattern or a path; no text, no assignment, no address with a
// password.
var (
	plainWord = lazyregexp.New(`^[\pL\pN_.:/*?\[\]+~, -]{0,256}$`)
	// What a text may stand under: names of things.
	namingField = lazyregexp.New(`(?i)^(.*_)?(names?|clusters?|ids?|jobs?|pools?|users?|workspaces?|infra|component|target|suffix|region|cloud|kind|level)$`)
	secretField = lazyregexp.New(`(?i)secret|token|passw|api_?key|access_?key|private_?key|credential|cookie|auth|code|verifier`)
)

// hidden is a text, as it stands in JSON, without the secrets of a request's
// body: an error may say what a program was given.
func hidden(text, body []byte) []byte {
	var fields map[string]json.RawMessage
	if len(text) == 0 || json.Unmarshal(body, &fields) != nil {
		return text
	}
	for _, name := range []string{"task", "dag"} {
		var tasks string
		if json.Unmarshal(fields[name], &tasks) == nil {
			text = hiddenIn(text, []byte(tasks))
		}
	}
	return text
}

// hiddenIn is a text, as it stands in JSON, without the secrets of tasks.
func hiddenIn(text, tasks []byte) []byte {
	for _, secret := range task.SecretsIn(tasks) {
		quoted, _ := json.Marshal(secret)
		text = bytes.ReplaceAll(text, quoted[1:len(quoted)-1], []byte(task.Redacted))
	}
	return text
}

// retained is the body of a request that has ended: numbers and flags, and texts
// that look like names and stand where names of things do, all of them singly or
// in lists, and not under a name that sounds secret.
func retained(body []byte) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields == nil {
		return nil
	}
	for name, value := range fields {
		fields[name] = retainedField(name, value)
	}
	kept, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return kept
}

func retainedField(name string, value json.RawMessage) json.RawMessage {
	if keys, ok := retainedBelow[name]; ok {
		var below map[string]json.RawMessage
		if json.Unmarshal(value, &below) != nil {
			return redacted(value)
		}
		kept := map[string]json.RawMessage{}
		for _, key := range keys {
			if v, ok := below[key]; ok && retainable(v, true) {
				kept[key] = v
			}
		}
		b, _ := json.Marshal(kept)
		return b
	}
	if secretField.MatchString(name) && !retainableFlag(value) || !retainable(value, namingField.MatchString(name)) {
		return redacted(value)
	}
	return value
}

// retainable reports whether a value, or each of a list, may stay; names: it is
// where names of things are.
func retainable(value json.RawMessage, names bool) bool {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) == nil {
		for _, v := range list {
			if !retainableOne(v, names) {
				return false
			}
		}
		return true
	}
	return retainableOne(value, names)
}

func retainableOne(value json.RawMessage, names bool) bool {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text == "" || names && plainWord.MatchString(text)
	}
	return retainableFlag(value) || json.Unmarshal(value, new(float64)) == nil
}

// retainableFlag reports whether a value is null, true or false.
func retainableFlag(value json.RawMessage) bool {
	switch string(value) {
	case "null", "true", "false":
		return true
	}
	return false
}

// endedDag is the tasks of a managed job that has ended, without their secrets.
// Tasks that cannot be read any more go as a whole.
func endedDag(dag []byte) []byte {
	kept, err := task.WithoutSecrets(dag)
	if err != nil {
		return nil
	}
	return kept
}

// endedDags is endedDag that remembers the last text it was asked about.
func endedDags() func(dag []byte) []byte {
	var last, kept []byte
	return func(dag []byte) []byte {
		if last == nil || !bytes.Equal(last, dag) {
			last, kept = dag, endedDag(dag)
		}
		return kept
	}
}
