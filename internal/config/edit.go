package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
func replaceFile(file string, text []byte) (err error) {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	mode := os.FileMode(0o600)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".config-*.yaml")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
			err = fmt.Errorf("writing %s: %w", file, err)
		}
	}()
	if err = tmp.Chmod(mode); err != nil {
		return err
	}
	if _, err = tmp.Write(text); err != nil {
		return err
	}
	if err = tmp.Sync(); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
