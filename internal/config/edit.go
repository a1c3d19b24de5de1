package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/skypilot-go/sky/internal/wholefile"
)

// Set writes one value under a path of keys into a configuration file and
// leaves the rest of the text, comments included, as it is. A missing file is
// made, readable by its owner only. The file is replaced at once: a crash
// leaves either the old or the new text. A value that is not valid is an
// [*Error] and changes nothing.
func Set(file string, keys []string, value any) error {
	v := fromPlain(value, place{src: &source{}})
	if problems, _ := validate(nest(keys, v.at, v), Client); len(problems) > 0 {
		return &Error{Problems: problems}
	}
	return editFile(file, func(text []byte) ([]byte, error) { return setText(text, file, keys, v) })
}

// Unset removes the value under a path of keys, and sections that are empty
// without it. Removing what is not there is success.
func Unset(file string, keys []string) error {
	return editFile(file, func(text []byte) ([]byte, error) { return unsetText(text, file, keys) })
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
			return err
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

// replaceFile writes a file at once, through symbolic links, keeping its mode.
func replaceFile(file string, text []byte) error {
	if err := wholefile.Edit(file, text, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return nil
}
