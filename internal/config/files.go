package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/yaml11"
)

func homeFolder() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return "."
	}
	return home
}

// expand replaces a leading "~" by the home folder.
func expand(path, home string) string {
	if path == "~" {
		return home
	}
	if strings.HasPrefix(path, "~/") || os.PathSeparator == '\\' && strings.HasPrefix(path, `~\`) {
		return filepath.Join(home, path[2:])
	}
	return path
}

// readFile reads a file of bounded size.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if info.IsDir() {
		return nil, fmt.Errorf("%s is a folder, not a file", path)
	}
	return io.ReadAll(io.LimitReader(f, yaml11.MaxBytes+1))
}

func missingFile(env, path string) error {
	return &api.Error{Type: api.ErrFileNotFound,
		Message: fmt.Sprintf("%s names the configuration file %q, which does not exist. Correct the path, or run: unset %s", env, path, env)}
}
