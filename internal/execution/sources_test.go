package execution

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/task"
)

// What would make the server fetch something that a user names is refused before
// anything is rented.
func TestRefusedSources(t *testing.T) {
	for name, tk := range map[string]*task.Task{
		"a repository":        {Git: &task.GitWorkdir{URL: "https://169.254.169.254/x"}},
		"a helper of git":     {Git: &task.GitWorkdir{URL: "ext::sh -c touch% /tmp/x"}},
		"a web page":          {FileMounts: map[string]string{"/x": "http://169.254.169.254/latest/meta-data"}},
		"a page of the web":   {FileMounts: map[string]string{"/x": "https://169.254.169.254/latest/meta-data"}},
		"a file with a name":  {FileMounts: map[string]string{"/x": "file:///etc/shadow"}},
		"a secret of another": {SecretRefs: []string{"global.X"}},
	} {
		if err := new(Executor).runnable(tk); err == nil || !strings.Contains(err.Error(), "cannot") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, url := range []string{"ext::sh -c id", "file:///etc", "--upload-pack=touch /tmp/x", "/etc"} {
		if got, ok := task.ParseGitURL(url); ok {
			t.Errorf("%q is taken for a repository: %s", url, got)
		}
	}
}
