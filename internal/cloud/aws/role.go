package aws

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// roleName is the role that machines have, and its instance profile. Both stay
// when clusters go: they are the account's.
const roleName = "skypilot-v1"

// rolePolicies are what the role may do.
var rolePolicies = []string{"AmazonEC2FullAccess", "AmazonS3FullAccess"}

// policy is the ARN of one of AWS's own policies, in the part of AWS that the
// account belongs to.
func (p *Provider) policy(ctx context.Context, name string) string {
	c, _ := p.load(ctx)
	return "arn:" + partition(c.Region) + ":iam::aws:policy/" + name
}

// partition is the part of AWS that a region belongs to.
func partition(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov"
	}
	return "aws"
}

// ec2Service is how EC2 is called in policies in the part of AWS that the account
// belongs to.
func (p *Provider) ec2Service(ctx context.Context) string {
	c, _ := p.load(ctx)
	if partition(c.Region) == "aws-cn" {
		return "ec2.amazonaws.com.cn"
	}
	return "ec2.amazonaws.com"
}

const passRolePolicy = "SkyPilotPassRolePolicy"

// profileSettles is how long EC2 may not know an instance profile that IAM has
// just made.
const profileSettles = 15 * time.Second

type statement struct {
	Effect    string            `json:"Effect"`
	Principal map[string]string `json:"Principal,omitempty"`
	Action    any               `json:"Action"`
	Resource  string            `json:"Resource,omitempty"`
}

func document(s ...statement) string {
	text, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": s})
	if err != nil {
		panic(err) // strings only
	}
	return string(text)
}

// profileOf names the instance profile of a cluster's machines, "" for none. It
// makes sky's own role if that is used and missing.
func (p *Provider) profileOf(ctx context.Context, s Settings, cluster string) (string, error) {
	if s.NoIdentity {
		return "", nil
	}
	if name := named(s.Profiles, cluster); name != "" {
		return name, nil
	}
	if err := p.ensureRole(ctx); err != nil || !s.UseSSM {
		return roleName, err
	}
	err := p.known(ctx, roleKnown, newEntity, func() error {
		return p.iam(ctx, "AttachRolePolicy", nil, "RoleName", roleName, "PolicyArn", p.policy(ctx, ssmPolicy))
	})
	return roleName, translate(ctx, cloud.Place{Cloud: Name}, err)
}

// ensureRole makes the role and its instance profile, whatever is missing.
func (p *Provider) ensureRole(ctx context.Context) error {
	fail := func(err error) error { return translate(ctx, cloud.Place{Cloud: Name}, err) }
	var profile profileAnswer
	err := p.iam(ctx, "GetInstanceProfile", &profile, "InstanceProfileName", roleName)
	if err == nil && len(profile.Roles) > 0 {
		return nil
	}
	if err != nil && codeOf(err) != "NoSuchEntity" {
		return fail(err)
	}
	if codeOf(err) == "NoSuchEntity" {
		err := p.iam(ctx, "CreateInstanceProfile", nil, "InstanceProfileName", roleName)
		if err != nil && codeOf(err) != "EntityAlreadyExists" {
			return fail(err)
		}
	}
	var role roleAnswer
	getRole := func() error { return p.iam(ctx, "GetRole", &role, "RoleName", roleName) }
	err = getRole()
	if codeOf(err) == "NoSuchEntity" {
		trust := document(statement{Effect: "Allow", Principal: map[string]string{"Service": p.ec2Service(ctx)}, Action: "sts:AssumeRole"})
		err = p.iam(ctx, "CreateRole", &role, "RoleName", roleName, "AssumeRolePolicyDocument", trust)
		if codeOf(err) == "EntityAlreadyExists" {
			err = p.known(ctx, roleKnown, newEntity, getRole)
		}
	}
	if err != nil {
		return fail(err)
	}
	for _, name := range rolePolicies {
		err := p.known(ctx, roleKnown, newEntity, func() error {
			return p.iam(ctx, "AttachRolePolicy", nil, "RoleName", roleName, "PolicyArn", p.policy(ctx, name))
		})
		if err != nil {
			return fail(err)
		}
	}
	err = p.known(ctx, roleKnown, newEntity, func() error {
		return p.iam(ctx, "PutRolePolicy", nil, "RoleName", roleName, "PolicyName", passRolePolicy, "PolicyDocument", passRole(cmp.Or(role.Got, role.Made)))
	})
	if err != nil {
		return fail(err)
	}
	err = p.known(ctx, roleKnown, newEntity, func() error {
		return p.iam(ctx, "AddRoleToInstanceProfile", nil, "InstanceProfileName", roleName, "RoleName", roleName)
	})
	if err != nil && codeOf(err) != "LimitExceeded" { // it holds one role: somebody was quicker
		return fail(err)
	}
	cloud.ReportWait(ctx, "EC2 to learn of the role "+roleName+", which is new")
	select {
	case <-time.After(min(profileSettles, 5*p.o.Poll)):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for EC2 to learn of the role %s: %w", roleName, context.Cause(ctx))
	}
}

// passRole lets a machine hand its own role on.
func passRole(arn string) string {
	return document(
		statement{Effect: "Allow", Action: []string{"iam:GetRole", "iam:PassRole"}, Resource: arn},
		statement{Effect: "Allow", Action: "iam:GetInstanceProfile", Resource: instanceProfileARN(arn)},
	)
}

// instanceProfileARN is the ARN of the profile with the name of a role.
func instanceProfileARN(role string) string {
	part := strings.Split(role, ":") // arn:aws:iam::123456789012:role/name
	if len(part) < 6 {
		return "*"
	}
	return strings.Join(part[:5], ":") + ":instance-profile/" + roleName
}
