package aws

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

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

func document(s ...statement) *string {
	text, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": s})
	if err != nil {
		panic(err) // strings only
	}
	return sdk.String(string(text))
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
	client, err := p.iam(ctx)
	if err != nil {
		return "", err
	}
	err = p.known(ctx, roleKnown, newEntity, func() error {
		_, err := client.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{RoleName: sdk.String(roleName), PolicyArn: sdk.String(p.policy(ctx, ssmPolicy))})
		return err
	})
	return roleName, translate(ctx, cloud.Place{Cloud: Name}, err)
}

// ensureRole makes the role and its instance profile, whatever is missing.
func (p *Provider) ensureRole(ctx context.Context) error {
	client, err := p.iam(ctx)
	if err != nil {
		return err
	}
	fail := func(err error) error { return translate(ctx, cloud.Place{Cloud: Name}, err) }
	profile, err := client.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: sdk.String(roleName)})
	if err == nil && profile.InstanceProfile != nil && len(profile.InstanceProfile.Roles) > 0 {
		return nil
	}
	if err != nil && codeOf(err) != "NoSuchEntity" {
		return fail(err)
	}
	if codeOf(err) == "NoSuchEntity" {
		_, err := client.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: sdk.String(roleName)})
		if err != nil && codeOf(err) != "EntityAlreadyExists" {
			return fail(err)
		}
	}
	role, err := client.GetRole(ctx, &iam.GetRoleInput{RoleName: sdk.String(roleName)})
	if codeOf(err) == "NoSuchEntity" {
		var made *iam.CreateRoleOutput
		made, err = client.CreateRole(ctx, &iam.CreateRoleInput{
			RoleName: sdk.String(roleName),
			AssumeRolePolicyDocument: document(statement{Effect: "Allow",
				Principal: map[string]string{"Service": p.ec2Service(ctx)}, Action: "sts:AssumeRole"}),
		})
		if err == nil {
			role = &iam.GetRoleOutput{Role: made.Role}
		} else if codeOf(err) == "EntityAlreadyExists" {
			err = p.known(ctx, roleKnown, newEntity, func() (err error) {
				role, err = client.GetRole(ctx, &iam.GetRoleInput{RoleName: sdk.String(roleName)})
				return err
			})
		}
	}
	if err != nil {
		return fail(err)
	}
	for _, name := range rolePolicies {
		err := p.known(ctx, roleKnown, newEntity, func() error {
			_, err := client.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{RoleName: sdk.String(roleName), PolicyArn: sdk.String(p.policy(ctx, name))})
			return err
		})
		if err != nil {
			return fail(err)
		}
	}
	err = p.known(ctx, roleKnown, newEntity, func() error {
		_, err := client.PutRolePolicy(ctx, &iam.PutRolePolicyInput{
			RoleName: sdk.String(roleName), PolicyName: sdk.String(passRolePolicy), PolicyDocument: passRole(role.Role),
		})
		return err
	})
	if err != nil {
		return fail(err)
	}
	err = p.known(ctx, roleKnown, newEntity, func() error {
		_, err := client.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: sdk.String(roleName), RoleName: sdk.String(roleName)})
		return err
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
func passRole(r *types.Role) *string {
	arn := ""
	if r != nil {
		arn = sdk.ToString(r.Arn)
	}
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
