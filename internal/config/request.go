package config

import (
	"fmt"
	"log/slog"
	"strings"
)

// ForRequest returns what a client sends along with a request: everything of
// its own, less what only concerns client or server. Nil means nothing.
func (c *Config) ForRequest() map[string]any {
	n := c.own
	for _, key := range []string{"api_server", "admin_policy"} {
		if n != nil {
			n = n.without(key)
		}
	}
	m, _ := n.plain().(map[string]any)
	return m
}

// Request returns the configuration under which a server answers a request:
// its own, with sent, the client's, laid over it. Keys that only the server
// decides are dropped from sent, with a warning where the client's value
// differs. The result's warnings are those of this request. The error is an
// [*Error].
func (c *Config) Request(sent map[string]any) (*Config, error) {
	over, dropped := c.dropServerOnly(fromPlain(sent, place{src: &source{LayerRequest, "your configuration"}}))
	out := *c
	out.warnings = nil
	if len(dropped) > 0 {
		out.warnings = append(out.warnings, Warning{slog.LevelWarn, fmt.Sprintf(
			"your configuration sets %s differently from the API server; the server's values hold, since only it decides them", strings.Join(dropped, ", "))})
	}
	out.root = overlay(c.root, over, Keys())
	if problems, _ := validate(out.root, Server); len(problems) > 0 {
		return nil, &Error{Head: "the API server cannot use your configuration:", Problems: problems}
	}
	if p := out.missingWorkspace(); p != nil {
		return nil, &Error{Problems: []Problem{*p}}
	}
	return &out, nil
}

// dropServerOnly removes what a client cannot decide and returns the paths
// where it tried to.
func (c *Config) dropServerOnly(sent *node) (*node, []string) {
	var differing []string
	var drop [][]string
	Keys().walk(nil, func(path []string, s *Spec) bool {
		n := sent.find(path...)
		if n == nil {
			return false
		}
		if !s.ServerOnly {
			return true
		}
		drop = append(drop, path)
		if own := c.root.find(path...); !s.Quiet && (own == nil || !same(own, n)) {
			differing = append(differing, dotted(path))
		}
		return false
	})
	for _, path := range drop {
		if sent != nil {
			sent = sent.without(path...)
		}
	}
	return sent, differing
}
