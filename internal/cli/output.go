package cli

import (
	"bytes"
	"encoding/json"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// emit prints a value as JSON or YAML when -o asks for that, and reports whether
// it did.
func (a *app) emit(v any) (bool, error) {
	switch a.output {
	case "json":
		text, err := jsonText(v)
		a.t.Print(text)
		return true, err
	case "yaml":
		text, err := jsonText(v)
		if err != nil {
			return true, err
		}
		n, err := yaml11.FromJSON([]byte(text))
		if err != nil {
			return true, err
		}
		var w yaml11.Writer
		w.Block(n)
		a.t.Print(w.String())
		return true, nil
	}
	return false, nil
}

// say tells people something that programs, who asked for -o json, do not want
// on standard output.
func (a *app) say(line string) {
	if a.output == "table" {
		a.t.Println(line)
	}
}

// jsonText is v with an indent of two, without HTML escapes.
func jsonText(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.String(), err
}
