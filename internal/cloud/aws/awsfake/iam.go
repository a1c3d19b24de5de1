package awsfake

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

func (c *Cloud) iam(action string, f url.Values) (any, *fault) {
	missing := func(what, name string) *fault {
		return refuse(http.StatusNotFound, "NoSuchEntity", "The %s with name %s cannot be found.", what, name)
	}
	exists := func(what, name string) *fault {
		return refuse(http.StatusConflict, "EntityAlreadyExists", "%s with name %s already exists.", what, name)
	}
	type role struct{ RoleName, Arn, Path, RoleId, CreateDate string }
	aRole := func(name string) role {
		return role{name, "arn:aws:iam::" + Account + ":role/" + name, "/", "AROAFAKE", "2026-01-01T00:00:00Z"}
	}
	type profile struct {
		InstanceProfileName, Arn, Path, InstanceProfileId, CreateDate string
		Roles                                                         struct {
			Member []role `xml:"member"`
		}
	}
	aProfile := func(name string) profile {
		p := profile{InstanceProfileName: name, Arn: "arn:aws:iam::" + Account + ":instance-profile/" + name, Path: "/", InstanceProfileId: "AIPAFAKE", CreateDate: "2026-01-01T00:00:00Z"}
		for _, r := range c.profiles[name] {
			p.Roles.Member = append(p.Roles.Member, aRole(r))
		}
		return p
	}
	name, roleName := f.Get("InstanceProfileName"), f.Get("RoleName")
	_, haveProfile := c.profiles[name]
	// What is made is not known everywhere at once.
	if !strings.HasPrefix(action, "Create") {
		if roleName != "" && c.roles[roleName] && c.tooYoung("role "+roleName) {
			return nil, missing("role", roleName)
		}
		if haveProfile && c.tooYoung("profile "+name) {
			return nil, missing("instance profile", name)
		}
	}
	switch action {
	case "GetInstanceProfile":
		if !haveProfile {
			return nil, missing("instance profile", name)
		}
		return struct{ InstanceProfile profile }{aProfile(name)}, nil
	case "CreateInstanceProfile":
		if haveProfile {
			return nil, exists("Instance Profile", name)
		}
		c.profiles[name] = nil
		c.young["profile "+name] = c.unsettled
		return struct{ InstanceProfile profile }{aProfile(name)}, nil
	case "AddRoleToInstanceProfile":
		switch {
		case !haveProfile:
			return nil, missing("instance profile", name)
		case !c.roles[roleName]:
			return nil, missing("role", roleName)
		case len(c.profiles[name]) > 0:
			return nil, refuse(http.StatusConflict, "LimitExceeded", "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
		}
		c.profiles[name] = []string{roleName}
		c.young["profile "+name] = c.unsettled // EC2 learns of it later, too
		return struct{}{}, nil
	case "GetRole":
		if !c.roles[roleName] {
			return nil, missing("role", roleName)
		}
		return struct{ Role role }{aRole(roleName)}, nil
	case "CreateRole":
		if c.roles[roleName] {
			return nil, exists("Role", roleName)
		}
		c.roles[roleName] = true
		c.young["role "+roleName] = c.unsettled
		return struct{ Role role }{aRole(roleName)}, nil
	case "AttachRolePolicy", "PutRolePolicy":
		if !c.roles[roleName] {
			return nil, missing("role", roleName)
		}
		var policy map[string]any
		if text := f.Get("PolicyDocument"); text != "" && json.Unmarshal([]byte(text), &policy) != nil {
			return nil, refuse(http.StatusBadRequest, "MalformedPolicyDocument", "Syntax errors in policy.")
		}
		if arn := f.Get("PolicyArn"); arn != "" && !slices.Contains(c.policies[roleName], arn) {
			c.policies[roleName] = append(c.policies[roleName], arn)
		}
		return struct{}{}, nil
	}
	return nil, refuse(http.StatusBadRequest, "InvalidAction", "Could not find operation %s", action)
}
