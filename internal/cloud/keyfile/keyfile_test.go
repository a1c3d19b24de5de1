package keyfile

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestFilesOfKeys(t *testing.T) {
	for _, tt := range []struct {
		name  string
		file  File
		text  string
		want  map[string]string
		wrong string // part of the error
	}{
		{"lines", File{Names: []string{"api_key"}}, "# mine\n api_key = k \nx = y\n", map[string]string{"api_key": "k"}, ""},
		{"lines without it", File{Names: []string{"api_key"}}, "api_key =\n", nil, `no line "api_key = …"`},
		{"a section", File{Names: []string{"key"}, Section: "default"}, "[other]\nkey = \"no\"\n[default]\nkey = \"yes\"\n", map[string]string{"key": "yes"}, ""},
		{"a section that lacks it", File{Names: []string{"key"}, Section: "default"}, "[other]\nkey = no\n", nil, "no line"},
		{"JSON", File{Names: []string{"apiKey", "team?"}, Format: YAML}, `{"apiKey": "k", "x": 1}`, map[string]string{"apiKey": "k"}, ""},
		{"YAML, nested", File{Names: []string{"auth.key", "project?"}, Format: YAML}, "auth:\n  key: k\nproject: p\n", map[string]string{"auth.key": "k", "project": "p"}, ""},
		{"all of a map", File{Names: []string{"key?", "of.*?"}, OneOf: []string{"key", "of.*"}, Format: YAML}, "of:\n  b: 2\n  a: 1\n", map[string]string{"of.*": "1 2"}, ""},
		{"none of those", File{Names: []string{"key?", "of.*?"}, OneOf: []string{"key", "of.*"}, Format: YAML}, "of: {}\n", nil, `no "key"`},
		{"YAML without it", File{Names: []string{"auth.key"}, Format: YAML}, "auth: k\n", nil, `no "auth.key"`},
		{"no YAML", File{Names: []string{"key"}, Format: YAML}, "\t{", nil, "neither YAML nor JSON"},
		{"the profile in use", File{Names: []string{"key"}, Format: YAML, Profile: "current"}, "current: b\nprofiles:\n  a: {key: no}\n  b: {key: k, more: x}\n", map[string]string{"key": "k"}, ""},
		{"no profile", File{Names: []string{"key"}, Format: YAML, Profile: "current"}, "key: k\n", map[string]string{"key": "k"}, ""},
		{"a profile that lacks it", File{Names: []string{"key"}, Format: YAML, Profile: "current"}, "current: a\nprofiles:\n  a: {x: y}\n", nil, `no "key"`},
		{"a profile that is not there", File{Names: []string{"key"}, Format: YAML, Profile: "current"}, "current: a\nprofiles: {}\n", nil, `no profile "a"`},
		{"text", File{Names: []string{"key"}, Format: Text}, " k\n", map[string]string{"key": "k"}, ""},
		{"no text", File{Names: []string{"key"}, Format: Text}, "\n", nil, "nothing in it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.file.Cloud, tt.file.Path, tt.file.Home, tt.file.Fix = "test", ".test/keys", t.TempDir(), "make one"
			if _, err := tt.file.Read(); err == nil || tt.file.CredentialStamp() != "" {
				t.Errorf("without a file: %v", err)
			}
			write(t, tt.file.Home, tt.text)
			got, err := tt.file.Read()
			if tt.wrong != "" {
				var auth *cloud.AuthError
				if !errors.As(err, &auth) || auth.Fix == "" || !strings.Contains(err.Error(), tt.wrong) {
					t.Error(err)
				}
				return
			}
			if err != nil || !maps.Equal(got, tt.want) {
				t.Fatalf("%v, %v", got, err)
			}
			stamp := tt.file.CredentialStamp()
			carried, err := tt.file.CarryCredentials(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tt.file.Home = t.TempDir()
			write(t, tt.file.Home, string(carried[tt.file.Path]))
			if got, err := tt.file.Read(); err != nil || !maps.Equal(got, tt.want) || tt.file.CredentialStamp() != stamp {
				t.Errorf("carried elsewhere: %v, %v", got, err)
			}
		})
	}
}

func write(t *testing.T, home, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(home, ".test"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".test", "keys"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheEnvironmentReplacesTheFile(t *testing.T) {
	f := File{Cloud: "test", Path: ".test/keys", Names: []string{"a", "b"}, Env: map[string]string{"a": "TEST_KEY_A", "b": "TEST_KEY_B"}, Home: t.TempDir()}
	t.Setenv("TEST_KEY_A", "1")
	if _, err := f.Read(); err == nil || !strings.Contains(err.Error(), "TEST_KEY_A is set and TEST_KEY_B is not") {
		t.Error(err)
	}
	t.Setenv("TEST_KEY_B", "2")
	if got, err := f.Read(); err != nil || got["a"] != "1" || got["b"] != "2" {
		t.Errorf("%v, %v", got, err)
	}
}

// A tool keeps its file elsewhere on some systems, and where XDG_CONFIG_HOME says.
func TestOtherPlacesOfAFile(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	f := File{Cloud: "test", Path: ".config/test/keys", Others: []string{".test/keys"}, Names: []string{"key"}, XDG: true}
	write(t, home, "key = there\n")
	if got, err := f.Read(); err != nil || got["key"] != "there" {
		t.Errorf("%v, %v", got, err)
	}
	xdg := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", xdg)
	if err := os.Mkdir(filepath.Join(xdg, "test"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(xdg, "test", "keys"), []byte("key = here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Read(); err != nil || got["key"] != "here" {
		t.Errorf("%v, %v", got, err)
	}
}

// A variable says which profile is in use, and nothing of the others is carried.
func TestAProfileOfTheEnvironment(t *testing.T) {
	f := File{Cloud: "test", Path: ".test/keys", Home: t.TempDir(), Format: YAML, Names: []string{"key"}, Profile: "current", ProfileEnv: "SKY_TEST_PROFILE"}
	write(t, f.Home, "current: a\nprofiles:\n  a: {key: secret}\n  b: {key: k}\n")
	t.Setenv("SKY_TEST_PROFILE", "b")
	carried, err := f.CarryCredentials(t.Context())
	if err != nil || strings.Contains(string(carried[f.Path]), "secret") {
		t.Errorf("%s, %v", carried[f.Path], err)
	}
	t.Setenv("SKY_TEST_PROFILE", "")
	write(t, f.Home, string(carried[f.Path]))
	if got, err := f.Read(); err != nil || got["key"] != "k" {
		t.Errorf("%v, %v", got, err)
	}
}
