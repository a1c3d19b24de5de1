package sshconn

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Configured fills in what ~/.ssh/config says about a host: address, port,
// user, keys and the way there. What the target says already stays.
func Configured(t Target, home string) (Target, error) {
	c := &config{home: home, host: t.Host}
	c.read(filepath.Join(home, ".ssh", "config"), 0)
	if v := c.first("hostname"); v != "" {
		t.Host = strings.ReplaceAll(v, "%h", t.Host)
	}
	if n, err := strconv.Atoi(c.first("port")); err == nil && t.Port == 0 {
		t.Port = n
	}
	if t.User == "" {
		t.User = c.first("user")
	}
	if len(t.Identities) == 0 {
		t.Identities = c.values["identityfile"]
	}
	if t.ProxyCommand == "" && len(t.Jump) == 0 {
		t.ProxyCommand = c.first("proxycommand")
		jumps, err := ParseJump(c.first("proxyjump"), Target{OwnKeys: t.OwnKeys})
		if err != nil {
			return t, err
		}
		for _, j := range jumps {
			if j.Host == t.Host {
				continue
			}
			if j, err = Configured(j, home); err != nil {
				return t, err
			}
			t.Jump = append(append(t.Jump, j.Jump...), j)
			t.Jump[len(t.Jump)-1].Jump = nil
		}
	}
	return t, nil
}

// config collects what an ssh configuration says about one host. The first
// value of a key counts.
type config struct {
	home, host string
	values     map[string][]string
}

func (c *config) first(key string) string {
	if v := c.values[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// includeDepth is as deep as ssh itself follows Include.
const includeDepth = 16

func (c *config) read(file string, depth int) {
	b, err := os.ReadFile(file)
	if err != nil || depth > includeDepth {
		return
	}
	if c.values == nil {
		c.values = map[string][]string{}
	}
	applies := true
	for line := range strings.Lines(string(b)) {
		key, value := directive(line)
		switch key {
		case "":
		case "host":
			applies = matches(c.host, strings.Fields(value))
		case "match":
			applies = strings.EqualFold(value, "all")
		case "include":
			if applies {
				for _, pattern := range strings.Fields(value) {
					pattern = expand(strings.Trim(pattern, `"`), c.home)
					if !filepath.IsAbs(pattern) {
						pattern = filepath.Join(c.home, ".ssh", pattern)
					}
					files, _ := filepath.Glob(pattern)
					for _, f := range files {
						c.read(f, depth+1)
					}
				}
			}
		default:
			if applies {
				c.values[key] = append(c.values[key], strings.Trim(value, `"`))
			}
		}
	}
}

// directive splits "Key value" and "Key=value".
func directive(line string) (key, value string) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", ""
	}
	i := strings.IndexAny(line, " \t=")
	if i < 0 {
		return strings.ToLower(line), ""
	}
	return strings.ToLower(line[:i]), strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line[i:]), "="))
}

// matches reports whether a host is selected by the patterns of a Host line.
func matches(host string, patterns []string) bool {
	found := false
	for _, p := range patterns {
		p, negated := strings.CutPrefix(p, "!")
		if ok, err := path.Match(strings.ReplaceAll(p, "[", `\[`), host); err == nil && ok {
			if negated {
				return false
			}
			found = true
		}
	}
	return found
}
