package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Lacking finds out which of the permissions that sky needs are missing,
// without changing anything: EC2 is asked to pretend, and IAM what its policies
// say. Only what AWS clearly refuses is listed.
func (p *Provider) Lacking(ctx context.Context) (cloud.Lack, error) {
	c, err := p.load(ctx)
	if err != nil {
		return cloud.Lack{}, err
	}
	client, err := p.sts(ctx)
	if err != nil {
		return cloud.Lack{}, err
	}
	me, err := client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return cloud.Lack{}, translate(ctx, cloud.Place{Cloud: Name}, err)
	}
	ec2, err := p.lackingEC2(ctx, c.Region)
	if err != nil {
		return cloud.Lack{}, err
	}
	missing := append(ec2, p.lackingIAM(ctx, sdk.ToString(me.Arn), sdk.ToString(me.Account))...)
	if len(missing) == 0 {
		return cloud.Lack{}, nil
	}
	slices.Sort(missing)
	text, err := json.Marshal(statement{Effect: "Allow", Action: missing, Resource: "*"})
	if err != nil {
		return cloud.Lack{}, err
	}
	return cloud.Lack{Permissions: missing, Fix: fmt.Sprintf("add to a policy of %s: %s", sdk.ToString(me.Arn), text)}, nil
}

// Things that do not exist, to pretend with.
const (
	noInstance = "i-00000000000000000"
	noGroup    = "sg-00000000000000000"
	noImage    = "ami-00000000000000000"
)

// pretend are the calls that sky makes of EC2, each asked for as a dry run.
func (p *Provider) pretend(ctx context.Context, region string) map[string]func(*ec2.Client) error {
	dry := sdk.Bool(true)
	s := p.o.Settings()
	img, ok := p.o.Image(ctx, defaultTag(cloud.Offer{InstanceType: cheapest}), region)
	if !ok {
		img = noImage
	}
	tags := map[string]string{tagName: "sky-check"}
	for k, v := range s.Labels { // policies may ask for tags
		tags[k] = v
	}
	one := []string{noInstance}
	calls := map[string]func(*ec2.Client) error{
		"DescribeInstances": func(c *ec2.Client) error {
			_, err := c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{DryRun: dry}, once)
			return err
		},
		"DescribeImages": func(c *ec2.Client) error {
			_, err := c.DescribeImages(ctx, &ec2.DescribeImagesInput{DryRun: dry, ImageIds: []string{img}}, once)
			return err
		},
		"DescribeVpcs": func(c *ec2.Client) error {
			_, err := c.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{DryRun: dry}, once)
			return err
		},
		"DescribeSubnets": func(c *ec2.Client) error {
			_, err := c.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{DryRun: dry}, once)
			return err
		},
		"DescribeRouteTables": func(c *ec2.Client) error {
			_, err := c.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{DryRun: dry}, once)
			return err
		},
		"DescribeSecurityGroups": func(c *ec2.Client) error {
			_, err := c.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{DryRun: dry}, once)
			return err
		},
		"CreateSecurityGroup": func(c *ec2.Client) error {
			_, err := c.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{DryRun: dry, GroupName: sdk.String("sky-check"), Description: sdk.String("Made by sky")}, once)
			return err
		},
		"AuthorizeSecurityGroupIngress": func(c *ec2.Client) error {
			_, err := c.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{DryRun: dry, GroupId: sdk.String(noGroup), IpPermissions: missingRules(noGroup, nil, nil)[:1]}, once)
			return err
		},
		"DeleteSecurityGroup": func(c *ec2.Client) error {
			_, err := c.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{DryRun: dry, GroupId: sdk.String(noGroup)}, once)
			return err
		},
		"RunInstances": func(c *ec2.Client) error {
			_, err := c.RunInstances(ctx, &ec2.RunInstancesInput{DryRun: dry, ImageId: sdk.String(img), InstanceType: cheapest, MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1),
				MetadataOptions:   &ec2types.InstanceMetadataOptionsRequest{HttpTokens: ec2types.HttpTokensStateRequired},
				TagSpecifications: specifications(tags)}, once)
			return err
		},
		"CreateTags": func(c *ec2.Client) error {
			_, err := c.CreateTags(ctx, &ec2.CreateTagsInput{DryRun: dry, Resources: one, Tags: toTags(tags)}, once)
			return err
		},
		"StartInstances": func(c *ec2.Client) error {
			_, err := c.StartInstances(ctx, &ec2.StartInstancesInput{DryRun: dry, InstanceIds: one}, once)
			return err
		},
		"StopInstances": func(c *ec2.Client) error {
			_, err := c.StopInstances(ctx, &ec2.StopInstancesInput{DryRun: dry, InstanceIds: one}, once)
			return err
		},
		"TerminateInstances": func(c *ec2.Client) error {
			_, err := c.TerminateInstances(ctx, &ec2.TerminateInstancesInput{DryRun: dry, InstanceIds: one}, once)
			return err
		},
		"ModifyInstanceAttribute": func(c *ec2.Client) error {
			_, err := c.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{DryRun: dry, InstanceId: sdk.String(noInstance),
				InstanceInitiatedShutdownBehavior: &ec2types.AttributeValue{Value: sdk.String("terminate")}}, once)
			return err
		},
	}
	if s.Prioritize || len(s.Reservations) > 0 {
		calls["DescribeCapacityReservations"] = func(c *ec2.Client) error {
			_, err := c.DescribeCapacityReservations(ctx, &ec2.DescribeCapacityReservationsInput{DryRun: dry}, once)
			return err
		}
	}
	return calls
}

// cheapest is a type that every account may rent.
const cheapest = "t3.micro"

func (p *Provider) lackingEC2(ctx context.Context, region string) ([]string, error) {
	client, err := p.ec2(ctx, region)
	if err != nil {
		return nil, err
	}
	calls := p.pretend(ctx, region)
	refused := make(chan string, len(calls))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for action, call := range calls {
		g.Go(func() error {
			if codeOf(call(client)) == "UnauthorizedOperation" {
				refused <- "ec2:" + action
			}
			return nil
		})
	}
	g.Wait()
	close(refused)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var out []string
	for action := range refused {
		out = append(out, action)
	}
	return out, nil
}

// lackingIAM asks IAM which of the actions around the machines' role its
// policies refuse. Who may not ask is told nothing.
func (p *Provider) lackingIAM(ctx context.Context, arn, account string) []string {
	s := p.o.Settings()
	if s.NoIdentity || len(s.Profiles) > 0 || strings.HasSuffix(arn, ":root") {
		return nil
	}
	if arn = p.principal(ctx, arn); arn == "" {
		return nil
	}
	part, _, _ := strings.Cut(strings.TrimPrefix(arn, "arn:"), ":")
	role := "arn:" + part + ":iam::" + account + ":role/" + roleName
	profile := instanceProfileARN(role)
	actions := map[string][]string{role: {"iam:PassRole"}, profile: {"iam:GetInstanceProfile"}}
	var have profileAnswer
	if err := p.iam(ctx, "GetInstanceProfile", &have, "InstanceProfileName", roleName); err != nil || len(have.Roles) == 0 { // it will have to be made
		actions[role] = append(actions[role], "iam:GetRole", "iam:CreateRole", "iam:AttachRolePolicy", "iam:PutRolePolicy")
		actions[profile] = append(actions[profile], "iam:CreateInstanceProfile", "iam:AddRoleToInstanceProfile")
	}
	var out []string
	for resource, names := range actions {
		question := append(members("ActionNames", names), "PolicySourceArn", arn, "ResourceArns.member.1", resource)
		for marker, more := []string(nil), true; more; {
			var page simulateAnswer
			if err := p.iam(ctx, "SimulatePrincipalPolicy", &page, append(marker, question...)...); err != nil {
				break
			}
			for _, r := range page.Results {
				if r.Decision != "allowed" && len(r.Missing) == 0 {
					out = append(out, r.Action)
				}
			}
			marker, more = []string{"Marker", page.Marker}, page.More
		}
	}
	return out
}

// principal is whose policies IAM can be asked about: a user, or the role that
// a session has taken on; "" if that is not known.
func (p *Provider) principal(ctx context.Context, arn string) string {
	name, session := roleOfSession(arn)
	if !session {
		return arn
	}
	var role roleAnswer
	if p.iam(ctx, "GetRole", &role, "RoleName", name) != nil {
		return ""
	}
	return role.Got
}

// explained is a refusal of EC2 whose reason it told in a sealed form only, with
// that opened.
func (p *Provider) explained(ctx context.Context, err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) || meaningOf(api) != vm.Forbidden || strings.Contains(api.ErrorMessage(), "perform: ") {
		return err
	}
	_, sealed, ok := strings.Cut(api.ErrorMessage(), "Encoded authorization failure message: ")
	if !ok {
		return err
	}
	client, cerr := p.sts(ctx)
	if cerr != nil {
		return err
	}
	sealed, _, _ = strings.Cut(sealed, " ")
	out, derr := client.DecodeAuthorizationMessage(ctx, &sts.DecodeAuthorizationMessageInput{EncodedMessage: sdk.String(strings.TrimSuffix(sealed, "."))})
	if derr != nil {
		return err
	}
	text := sdk.ToString(out.DecodedMessage)
	if plain, uerr := url.QueryUnescape(text); uerr == nil && !json.Valid([]byte(text)) {
		text = plain
	}
	var told struct {
		Context struct{ Action, Resource string }
	}
	if json.Unmarshal([]byte(text), &told) != nil || told.Context.Action == "" {
		return err
	}
	return &cloud.PermissionError{Place: cloud.Place{Cloud: Name},
		Err: fmt.Errorf("the permission %s on %s is missing: %w", told.Context.Action, told.Context.Resource, err)}
}
