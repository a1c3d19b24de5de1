package server

import (
	"cmp"
	"encoding/json"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/task"
)

// redactor hides secrets in texts that leave the installation: the values that
// it was told, wherever and however quoted they stand, and what looks like one.
type redactor struct {
	known  []string
	hidden *strings.Replacer // of known, the longest first; made by ready
}

// tooShort is the length of values that would hide half of every text.
const tooShort = 4

// learn adds values that must not be seen.
func (r *redactor) learn(values ...string) {
	for _, v := range values {
		for _, v := range append(strings.Split(v, "\n"), v) {
			if v = strings.TrimSpace(v); len(v) < tooShort {
				continue
			}
			quoted, _ := json.Marshal(v)
			inside := string(quoted[1 : len(quoted)-1])
			twice, _ := json.Marshal(inside)
			r.known = append(r.known, v, inside, string(twice[1:len(twice)-1]), url.QueryEscape(v), url.PathEscape(v))
		}
		// The password of a URL also stands alone in errors of drivers.
		if u, err := url.Parse(v); err == nil && u.User != nil {
			if password, ok := u.User.Password(); ok {
				r.learn(password)
			}
		}
	}
}

// ready must stand between the last learn and the first text.
func (r *redactor) ready() {
	slices.SortFunc(r.known, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	r.known = slices.Compact(r.known)
	pairs := make([]string, 0, 2*len(r.known))
	for _, v := range r.known {
		pairs = append(pairs, v, config.Redacted)
	}
	r.hidden = strings.NewReplacer(pairs...)
}

// learnEnvironment takes in the variables of this process whose name or value
// says that they are secret.
func (r *redactor) learnEnvironment() {
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		if secretKey.MatchString(name) || task.SecretName(name) || name == config.EnvDatabase || config.Mask(value) != value {
			r.learn(value)
		}
	}
}

// learnFrom takes in the secrets of a JSON or YAML text, and of texts inside of
// it: a task's sections secrets, and whatever a key calls a secret.
func (r *redactor) learnFrom(text []byte) {
	if v, err := config.DecodeYAML(text, "text"); err == nil {
		r.learnIn(v, false)
		return
	}
	// The list of tasks that travels is several documents.
	for _, doc := range strings.Split(string(text), "\n---") {
		if v, err := config.DecodeYAML([]byte(doc), "text"); err == nil {
			r.learnIn(v, false)
		}
	}
}

func (r *redactor) learnIn(v any, hidden bool) {
	switch v := v.(type) {
	case map[string]any:
		for key, below := range v {
			r.learnIn(below, hidden || secretKey.MatchString(key) || task.SecretName(key))
		}
	case []any:
		for _, below := range v {
			r.learnIn(below, hidden)
		}
	case string:
		if hidden {
			r.learn(v)
		} else if strings.Contains(v, ":") && strings.Contains(v, "\n") {
			r.learnFrom([]byte(v))
		}
	}
}

var (
	secretKey = lazyregexp.New(`(?i)secret|token|passw|api_?key|access_?key|private_?key|credential|signing|cookie|auth_?key|certs?$`)

	// looksSecret are things that are secrets by their form: private keys, tokens of
	// this server and of well-known services, signed tokens, logins in headers.
	looksSecret = lazyregexp.New(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)` +
		`|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+|\bsky_[\w.-]{16,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b` +
		`|\b(?:gh[pousr]_|github_pat_|hf_|sk-|xox[abps]-|glpat-)[\w-]{12,}|\$2[aby]\$[\d]+\$[\w./]+`)
	// saysSecret are values that stand behind a name which calls them a secret.
	saysSecret = lazyregexp.New(`(?i)((?:bearer|basic) +)[\w.~+/=-]{6,}` +
		`|((?:[\w-]*(?:secret|token|passw|api[_-]?key|access[_-]?key|private[_-]?key)[\w-]*)\\*["']?(?: *[:=] *| +)\\*["']?)[^\s"'\\,;&]{4,}`)
)

// text is s without secrets.
func (r *redactor) text(s string) string {
	s = looksSecret.ReplaceAllString(r.hidden.Replace(s), config.Redacted)
	return config.Mask(saysSecret.ReplaceAllString(s, "${1}${2}"+config.Redacted))
}

// json is v as indented text without secrets.
func (r *redactor) json(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return nil, err
	}
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err = enc.Encode(r.value(plain))
	return []byte(out.String()), err
}

func (r *redactor) value(v any) any {
	switch v := v.(type) {
	case string:
		return r.text(v)
	case []any:
		for i := range v {
			v[i] = r.value(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, below := range v {
			out[r.text(key)] = r.value(below)
		}
		return out
	}
	return v
}
