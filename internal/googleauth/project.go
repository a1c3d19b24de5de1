package googleauth

import (
	"bufio"
	"cmp"
	"os"
	"path/filepath"
	"strings"
)

// EnvironmentProject is the project that the environment names; "": none.
func EnvironmentProject() string {
	return cmp.Or(os.Getenv("GOOGLE_CLOUD_PROJECT"), os.Getenv("GCLOUD_PROJECT"), os.Getenv("CLOUDSDK_CORE_PROJECT"))
}

// Active is a value of the section [core] in gcloud's active configuration, such as
// "project" or "account"; "": it has none.
func Active(key string) string {
	dir := cmp.Or(os.Getenv("CLOUDSDK_CONFIG"), configDir())
	name := os.Getenv("CLOUDSDK_ACTIVE_CONFIG_NAME")
	if name == "" {
		name = "default"
		if text, err := os.ReadFile(filepath.Join(dir, "active_config")); err == nil {
			name = strings.TrimSpace(string(text))
		}
	}
	if strings.ContainsAny(name, `/\`) {
		return ""
	}
	f, err := os.Open(filepath.Join(dir, "configurations", "config_"+name))
	if err != nil {
		return ""
	}
	defer f.Close()
	section := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			section = line
			continue
		}
		if k, v, ok := strings.Cut(line, "="); ok && section == "[core]" && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
