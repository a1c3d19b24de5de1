// Package keyfile reads the files in which the tools of clouds keep their keys.
package keyfile

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Format is how a file is written.
type Format int

const (
	Lines Format = iota // name = value; what is in [sections] too
	YAML                // or JSON; a name with dots is one of nested maps, of which * is all values, with spaces between them
	Text                // the whole text is the value of the first name
)

// File is where the credentials of a cloud are. A provider embeds it and has
// CredentialStamp and CarryCredentials then.
type File struct {
	Cloud   string
	Path    string // below the home folder, with slashes
	Format  Format
	Section string            // of Lines: only what is in it; "": everywhere
	Names   []string          // of the values; all are needed, but those that end in "?"
	OneOf   []string          // of those, one that is needed
	Others  []string          // other places of the file, of tools on other systems; the first that is there is read
	Env     map[string]string // variables that replace the file, by name; all that are needed must be set
	Fix     string            // where to get credentials, for people
	XDG     bool              // XDG_CONFIG_HOME says where .config is
	// Profile is, for YAML, the name of the value that says which of the maps in "profiles"
	// has the others; ProfileEnv is a variable that says so instead. Without either the
	// values are at the top.
	Profile, ProfileEnv string
	Home                string // the folder; "": the user's home
}

// Read returns the values by their names. Its error is a [*cloud.AuthError].
func (f File) Read() (map[string]string, error) {
	values, _, err := f.read()
	if err != nil {
		_, none := errors.AsType[noFileError](err)
		return nil, &cloud.AuthError{Cloud: f.Cloud, Fix: f.Fix, Err: err, NotSetUp: none}
	}
	return values, nil
}

// noFileError is the path of a file that would have credentials.
type noFileError string

func (e noFileError) Error() string { return "~/" + string(e) + " is not there" }

// read also returns the text of the file; nil: the values are from the environment.
func (f File) read() (values map[string]string, text []byte, err error) {
	values = map[string]string{}
	for name, variable := range f.Env {
		if v := os.Getenv(variable); v != "" {
			values[name] = v
		}
	}
	if len(values) > 0 {
		if missing := f.missing(values); missing != "" {
			return nil, nil, fmt.Errorf("%s is set and %s is not", strings.Join(f.variables(values), ", "), f.Env[missing])
		}
		return values, nil, nil
	}
	home, err := f.home()
	if err != nil {
		return nil, nil, err
	}
	for _, path := range append([]string{f.Path}, f.Others...) {
		if text, err = os.ReadFile(f.at(home, path)); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, noFileError(f.Path)
	} else if err != nil {
		return nil, nil, err
	}
	if values, err = f.parse(text); err != nil {
		return nil, nil, fmt.Errorf("~/%s: %w", f.Path, err)
	}
	if missing := f.missing(values); missing != "" {
		what := fmt.Sprintf("no line %q", missing+" = …")
		if f.Format == Text {
			what = "nothing in it"
		} else if f.Format == YAML {
			what = fmt.Sprintf("no %q", missing)
		}
		return nil, nil, fmt.Errorf("~/%s has %s", f.Path, what)
	}
	return values, text, nil
}

func (f File) home() (string, error) {
	if f.Home != "" {
		return f.Home, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		err = errors.New("there is no home folder to look for credentials in")
	}
	return home, err
}

// at is a path below the home folder. What is in .config there is where XDG_CONFIG_HOME
// says for clouds that look there.
func (f File) at(home, path string) string {
	if xdg := os.Getenv("XDG_CONFIG_HOME"); f.XDG && f.Home == "" && filepath.IsAbs(xdg) {
		if rest, ok := strings.CutPrefix(path, ".config/"); ok {
			return filepath.Join(xdg, filepath.FromSlash(rest))
		}
	}
	return filepath.Join(home, filepath.FromSlash(path))
}

// ReadNamed reads another file, which the credentials name; "~/" is the home folder.
func (f File) ReadNamed(path string) ([]byte, error) {
	if below, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := f.home()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(home, filepath.FromSlash(below))
	}
	return os.ReadFile(path)
}

func (f File) variables(values map[string]string) (set []string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		set = append(set, f.Env[name])
	}
	return set
}

// missing is a name that is needed and has no value.
func (f File) missing(values map[string]string) string {
	for _, name := range f.Names {
		if !strings.HasSuffix(name, "?") && values[name] == "" {
			return name
		}
	}
	if len(f.OneOf) > 0 && !slices.ContainsFunc(f.OneOf, func(name string) bool { return values[name] != "" }) {
		return f.OneOf[0]
	}
	return ""
}

func (f File) parse(text []byte) (map[string]string, error) {
	values := map[string]string{}
	switch f.Format {
	case Text:
		values[f.Names[0]] = string(bytes.TrimSpace(text))
		return values, nil
	case YAML:
		tree, err := (&yaml11.Source{Text: string(text)}).ReadOne()
		if err != nil || tree != nil && tree.Kind != yaml11.Map {
			return nil, errors.New("it is neither YAML nor JSON") // an error may quote a secret
		}
		var in []string
		if f.Profile != "" {
			if profile := cmp.Or(os.Getenv(f.ProfileEnv), valueAt(tree, []string{f.Profile})); profile != "" {
				in = []string{"profiles", profile}
				if tree.Find(in...) == nil {
					return nil, fmt.Errorf("there is no profile %q", profile)
				}
			}
		}
		for _, name := range f.Names {
			name = strings.TrimSuffix(name, "?")
			if text := valueAt(tree, slices.Concat(in, strings.Split(name, "."))); text != "" {
				values[name] = text
			}
		}
		return values, nil
	}
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if inner, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSuffix(inner, "]")
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if ok && (f.Section == "" || f.Section == section) && (slices.Contains(f.Names, name) || slices.Contains(f.Names, name+"?")) {
			values[name] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return values, nil
}

// CredentialStamp changes when a value does; "" without credentials.
func (f File) CredentialStamp() string {
	values, _, err := f.read()
	if err != nil {
		return ""
	}
	return f.Stamp(values)
}

// Stamp is the stamp of credentials.
func (f File) Stamp(values map[string]string) string {
	text, _ := json.Marshal(values) // in the order of the names
	return fmt.Sprintf("%x", sha256.Sum256(text))[:12]
}

// CarryCredentials is a file with the values in use, and nothing else if it can be
// written anew. Where there are none, the error is a [*cloud.AuthError].
func (f File) CarryCredentials(context.Context) (map[string][]byte, error) {
	values, text, err := f.read()
	if _, none := errors.AsType[noFileError](err); none {
		return nil, &cloud.AuthError{Cloud: f.Cloud, Fix: f.Fix, Err: err, NotSetUp: true}
	}
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	switch {
	case f.Format == Text:
		out.WriteString(values[f.Names[0]] + "\n")
	case f.Format == YAML && f.Profile != "":
		return map[string][]byte{f.Path: f.profile(values)}, nil
	case f.Format == YAML && text != nil:
		out.Write(text)
	case f.Format == YAML:
		return nil, fmt.Errorf("credentials from %s cannot be taken elsewhere; write them into ~/%s", strings.Join(f.variables(values), ", "), f.Path)
	default:
		if f.Section != "" {
			fmt.Fprintf(&out, "[%s]\n", f.Section)
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if f.Section != "" { // as in TOML
				fmt.Fprintf(&out, "%s = %q\n", name, values[name])
			} else {
				fmt.Fprintf(&out, "%s = %s\n", name, values[name])
			}
		}
	}
	return map[string][]byte{f.Path: out.Bytes()}, nil
}

// profile is a file with one profile, which is in use.
func (f File) profile(values map[string]string) []byte {
	const name = "default"
	text, _ := json.MarshalIndent(map[string]any{f.Profile: name, "profiles": map[string]any{name: values}}, "", "  ")
	return append(text, '\n')
}

// valueAt is the text at a path as it is written: a key of digits is no number. A * at
// the end are all that are there, in the order of their names.
func valueAt(tree *yaml11.Node, path []string) string {
	last := len(path) - 1
	if path[last] != "*" {
		return tree.TextAt(path...)
	}
	parent := tree.Find(path[:last]...)
	if parent == nil || parent.Kind != yaml11.Map {
		return ""
	}
	var all []string
	for _, e := range slices.SortedFunc(slices.Values(parent.Entries), func(a, b yaml11.Entry) int { return strings.Compare(a.Key.Text, b.Key.Text) }) {
		if e.Value.IsScalar() && !e.Value.IsNull() {
			all = append(all, e.Value.Text)
		}
	}
	return strings.Join(all, " ")
}
