package gcs

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

const (
	fix   = "run: gcloud auth application-default login  (or set GOOGLE_APPLICATION_CREDENTIALS)"
	scope = "https://www.googleapis.com/auth/devstorage.full_control"
)

type found struct {
	token   func(context.Context) (rest.Token, error)
	project string
}

// find looks where users of Google Cloud have credentials: the variable, gcloud's file,
// the machine's service account.
func find(ctx context.Context, transport http.RoundTripper) (found, error) {
	// The source of tokens is used as long as the bucket is, and not only for this call.
	client := context.WithValue(context.WithoutCancel(ctx), oauth2.HTTPClient, &http.Client{Transport: transport})
	c, err := google.FindDefaultCredentials(client, scope)
	if err != nil {
		return found{}, &storage.CredentialsError{Store: storage.GCS, Err: errors.New("there are none on this machine"), Fix: fix}
	}
	source := c.TokenSource
	return found{project: c.ProjectID, token: func(context.Context) (rest.Token, error) {
		t, err := source.Token()
		if err != nil {
			return rest.Token{}, err
		}
		return rest.Token{Value: t.AccessToken, Expires: t.Expiry}, nil
	}}, nil
}

func environmentProject() string {
	return cmp.Or(os.Getenv("GOOGLE_CLOUD_PROJECT"), os.Getenv("GCLOUD_PROJECT"), os.Getenv("CLOUDSDK_CORE_PROJECT"))
}

// activeProject is the project of gcloud's active configuration.
func activeProject() (string, error) {
	dir := os.Getenv("CLOUDSDK_CONFIG")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".config", "gcloud")
	}
	name := "default"
	if text, err := os.ReadFile(filepath.Join(dir, "active_config")); err == nil {
		name = strings.TrimSpace(string(text))
	}
	if strings.ContainsAny(name, `/\`) {
		return "", nil
	}
	f, err := os.Open(filepath.Join(dir, "configurations", "config_"+name))
	if err != nil {
		return "", nil
	}
	defer f.Close()
	section := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			section = line
			continue
		}
		if k, v, ok := strings.Cut(line, "="); ok && section == "[core]" && strings.TrimSpace(k) == "project" {
			return strings.TrimSpace(v), nil
		}
	}
	return "", nil
}
