package task

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/similar"
)

// Clouds are the names that "cloud:" and the first part of "infra:" take.
var Clouds = facts.Names((*facts.Cloud).Rents)

// CloudName resolves any spelling or alias of a cloud to its lower-case name;
// the error suggests a near name.
func CloudName(s string) (string, error) {
	name := strings.ToLower(s)
	for _, c := range facts.All() {
		if c.Rents() && (c.Name == name || slices.Contains(c.Aliases, name)) {
			return c.Name, nil
		}
	}
	if near := similar.Names(name, Clouds); len(near) > 0 {
		return "", fmt.Errorf("%q is not a cloud that sky knows; did you mean %q?", s, near[0])
	}
	return "", fmt.Errorf("%q is not a cloud that sky knows; it knows %s", s, strings.Join(Clouds, ", "))
}

// CloudDisplay is how a cloud writes its name: "aws" gives "AWS". An unknown
// name stays.
func CloudDisplay(name string) string { return facts.Of(name).Display }

// Infra is a place as users write it: cloud, region, zone; "" is any.
type Infra struct{ Cloud, Region, Zone string }

// written is the place as infra gives it, if that reads back as the same place.
func (in Infra) written() (string, bool) {
	text := in.String()
	if text == "" {
		return "", false
	}
	back, err := ParseInfra(text)
	return text, err == nil && back == in && checkInfra(text) == nil
}

// ParseInfra reads "cloud", "cloud/region" or "cloud/region/zone", with * for
// any. What follows kubernetes/ is a context and may hold slashes; the pool
// after ssh/ becomes the region "ssh-POOL".
func ParseInfra(s string) (Infra, error) {
	text := strings.Trim(strings.TrimSpace(s), "/")
	if strings.TrimSpace(text) == "" {
		return Infra{}, errors.New(`is empty; write "cloud", "cloud/region" or "cloud/region/zone"`)
	}
	parts := strings.Split(text, "/")
	for i, p := range parts {
		parts[i] = strings.TrimSpace(p)
	}
	if slices.Contains(parts, "") {
		return Infra{}, fmt.Errorf(`has an empty part: %q; write * for "any"`, s)
	}
	context := strings.Join(parts[1:], "/")
	for i, p := range parts {
		if p == "*" {
			parts[i] = ""
		}
	}
	var in Infra
	if parts[0] != "" {
		name, err := CloudName(parts[0])
		if err != nil {
			return Infra{}, fmt.Errorf("names no cloud: %w", err)
		}
		in.Cloud = name
	}
	rest := parts[1:]
	switch {
	case in.Cloud == facts.Kubernetes:
		if context != "*" {
			in.Region = context
		}
		return in, nil
	case len(rest) > 2:
		return Infra{}, fmt.Errorf(`has too many parts: %q; write "cloud", "cloud/region" or "cloud/region/zone"`, s)
	}
	if len(rest) > 0 {
		in.Region = rest[0]
	}
	if len(rest) > 1 {
		in.Zone = rest[1]
	}
	if in.Cloud == facts.SSH && in.Region != "" && !strings.HasPrefix(in.Region, facts.PoolPrefix) {
		in.Region = facts.PoolPrefix + in.Region
	}
	return in, nil
}

// PoolOf is a region as people write it: of own machines it is the name of their pool.
func PoolOf(cloud, region string) string { return facts.Of(cloud).RegionName(region) }

// String writes the place back: * for a gap, none at the end. ParseInfra
// reads it again.
func (in Infra) String() string {
	parts := []string{in.Cloud, facts.InPlace(in.Cloud, in.Region), in.Zone}
	for len(parts) > 0 && parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	for i, p := range parts {
		if p == "" {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, "/")
}

// checkInfra is the stricter rule for files.
func checkInfra(s string) error {
	if _, err := ParseInfra(s); err != nil {
		return err
	}
	if s != strings.TrimSpace(s) || strings.HasPrefix(s, "/") || strings.HasSuffix(s, "/") {
		return fmt.Errorf("should not begin or end with a slash or a space: %q", s)
	}
	if strings.EqualFold(strings.Split(s, "/")[0], "digitalocean") {
		return errors.New(`should name the cloud "do", not "digitalocean"`)
	}
	return nil
}
