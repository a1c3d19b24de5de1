package config

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// Overrides reads the values of --config: one file, or any number of
// "key.sub=value" whose values are YAML. It returns the values as maps, as
// they go into a task; what a task may set is checked by [Config.ForTask]. The
// error is an [*Error].
func Overrides(args []string, o Options) (map[string]any, error) {
	n, err := overrides(args, o.withDefaults())
	if err != nil || n == nil {
		return nil, err
	}
	return n.Any().(map[string]any), nil
}

func overrides(args []string, o Options) (*yaml11.Node, error) {
	if len(args) == 0 {
		return nil, nil
	}
	failed := func(problems []Problem) error {
		return &Error{Head: "--config takes one file, or settings of the form key.sub=value (repeat the flag for several):", Problems: problems}
	}
	path := expand(args[0], o.Home)
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		if len(args) > 1 {
			return nil, failed([]Problem{{Text: fmt.Sprintf("%s is a file, so it must be the only --config", args[0])}})
		}
		src := newSource(LayerCommandLine, args[0])
		text, err := readFile(path)
		if err != nil {
			return nil, failed([]Problem{{Text: err.Error()}})
		}
		n, err := parse(text, src)
		if err != nil {
			return nil, failed(asError(err).Problems)
		}
		if problems, _ := validate(n, o.Side); len(problems) > 0 {
			return nil, failed(problems)
		}
		return n, nil
	}
	var all *yaml11.Node
	var problems []Problem
	for _, arg := range args {
		n, problem := dotlist(arg)
		if problem != nil {
			problems = append(problems, *problem)
			continue
		}
		all = overlay(all, n, Keys())
	}
	if len(problems) == 0 {
		problems, _ = validate(all, o.Side)
	}
	if len(problems) > 0 {
		return nil, failed(problems)
	}
	return all, nil
}

// dotlist reads "a.b.c=VALUE".
func dotlist(arg string) (*yaml11.Node, *Problem) {
	key, value, found := strings.Cut(arg, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	switch {
	case !found:
		return nil, &Problem{Text: fmt.Sprintf("%q is neither a file that exists nor of the form key.sub=value", arg)}
	case key == "":
		return nil, &Problem{Text: fmt.Sprintf("there is no key before the = in %q", arg)}
	case value == "":
		return nil, &Problem{Text: fmt.Sprintf("there is no value after the = in %q; an empty text is written %s=''", arg, key)}
	}
	path := strings.Split(key, ".")
	if slices.Contains(path, "") {
		return nil, &Problem{Text: fmt.Sprintf("%q has an empty part between its dots", key)}
	}
	src := newSource(LayerCommandLine, "--config "+key)
	v, err := parse([]byte(value), src)
	if err != nil {
		return nil, &asError(err).Problems[0]
	}
	if v == nil {
		v = yaml11.NewScalar(nil)
	}
	v = v.At(yaml11.Place{Source: src}) // lines inside of a flag help nobody
	return yaml11.Nest(path, yaml11.Place{Source: src}, v), nil
}
