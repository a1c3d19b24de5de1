package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/skypilot-go/sky/internal/wholefile"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Set writes one value under a path of keys into a configuration file and
// leaves the rest of the text, comments included, as it is. A missing file is
// made, readable by its owner only. The file is replaced at once: a crash
// leaves either the old or the new text. A value that is not valid is an
// [*Error] and changes nothing.
func Set(file string, keys []string, value any) error {
	v := fromPlain(value, yaml11.Place{Source: newSource("", "")})
	root := yaml11.Nest(keys, v.Place, v)
	problems, _ := validate(root, Client)
	if problems = append(problems, unusable(root)...); len(problems) > 0 {
		return &Error{Problems: problems}
	}
	return editFile(file, func(text []byte) ([]byte, error) { return yaml11.Set(text, keys, v) })
}

// Unset removes the value under a path of keys, and sections that are empty
// without it. Removing what is not there is success.
func Unset(file string, keys []string) error {
	return editFile(file, func(text []byte) ([]byte, error) { return yaml11.Unset(text, keys) })
}

// Write replaces a whole configuration file. Comments in it are lost.
func Write(file string, values map[string]any) error {
	return replaceFile(file, EncodeYAML(values))
}

// editFile applies edit to a file's text; when somebody else changes the file
// meanwhile, it begins again.
func editFile(file string, edit func([]byte) ([]byte, error)) error {
	for range 10 {
		text, err := readFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		out, err := edit(text)
		if err != nil {
			return editError(file, err)
		}
		if bytes.Equal(out, text) {
			return nil
		}
		if now, err := readFile(file); err == nil && !bytes.Equal(now, text) {
			continue
		}
		return replaceFile(file, out)
	}
	return fmt.Errorf("%s keeps changing; try again", file)
}

// editError says why a file cannot be edited.
func editError(file string, err error) error {
	var unreadable yaml11.Errors
	switch {
	case errors.Is(err, yaml11.ErrByHand):
		return fmt.Errorf("%s is written in a way that cannot be edited automatically; edit it by hand", file)
	case errors.As(err, &unreadable):
		for _, e := range unreadable {
			e.Source = newSource(LayerUser, file)
		}
		return asError(unreadable)
	}
	return err
}

// replaceFile writes a file at once, through symbolic links, keeping its mode.
func replaceFile(file string, text []byte) error {
	if err := wholefile.Edit(file, text, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return nil
}
