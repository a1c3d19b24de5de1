package aws

import (
	"cmp"
	"context"
	"encoding/xml"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
)

// IAM is called without the SDK's client of it, which builds tables at each start of
// the program and adds megabytes to it for the eight calls that are made here.

const iamVersion = "2010-05-08"

// The answers that are read, by their elements.
type (
	roleAnswer struct {
		Got  string `xml:"GetRoleResult>Role>Arn"`
		Made string `xml:"CreateRoleResult>Role>Arn"`
	}
	profileAnswer struct {
		Roles []string `xml:"GetInstanceProfileResult>InstanceProfile>Roles>member>RoleName"`
	}
	simulateAnswer struct {
		Results []struct {
			Action   string   `xml:"EvalActionName"`
			Decision string   `xml:"EvalDecision"`
			Missing  []string `xml:"MissingContextValues>member"`
		} `xml:"SimulatePrincipalPolicyResult>EvaluationResults>member"`
		More   bool   `xml:"SimulatePrincipalPolicyResult>IsTruncated"`
		Marker string `xml:"SimulatePrincipalPolicyResult>Marker"`
	}
)

// iam makes a call of IAM with parameters "name", "value", … and decodes its answer
// into out, if that is not nil. Like the SDK's client it repeats calls that may be
// repeated; refusals are a [smithy.APIError].
func (p *Provider) iam(ctx context.Context, action string, out any, parameters ...string) error {
	c, err := p.load(ctx)
	if err != nil {
		return err
	}
	form := url.Values{"Action": {action}, "Version": {iamVersion}}
	for i := 0; i+1 < len(parameters); i += 2 {
		form.Set(parameters[i], parameters[i+1])
	}
	endpoint, region := iamEndpoint(ctx, c)
	return p.signed(ctx, c, signedCall{
		service: "iam", operation: action, endpoint: endpoint, region: region,
		header:  http.Header{"Content-Type": {"application/x-www-form-urlencoded; charset=utf-8"}},
		body:    []byte(form.Encode()),
		refusal: xmlRefusal,
	}, func(answer []byte) error {
		if out == nil {
			return nil
		}
		return xml.Unmarshal(answer, out)
	})
}

// iamEndpoint is where IAM is called, and the region that its calls are signed for:
// there is one in each part of AWS.
func iamEndpoint(ctx context.Context, c sdk.Config) (endpoint, region string) {
	host := "iam.amazonaws.com"
	switch partition(c.Region) {
	case "aws-cn":
		host, region = "iam.cn-north-1.amazonaws.com.cn", "cn-north-1"
	case "aws-us-gov":
		host, region = "iam.us-gov.amazonaws.com", "us-gov-west-1"
	default:
		region = homeRegion
		if usesFIPS(ctx, c) {
			host = "iam-fips.amazonaws.com"
		}
	}
	return cmp.Or(os.Getenv("AWS_ENDPOINT_URL_IAM"), sdk.ToString(c.BaseEndpoint), "https://"+host), region
}

// usesFIPS reports whether the environment or the profile asks for endpoints with
// validated cryptography.
func usesFIPS(ctx context.Context, c sdk.Config) bool {
	for _, source := range c.ConfigSources {
		if s, ok := source.(interface {
			GetUseFIPSEndpoint(context.Context) (sdk.FIPSEndpointState, bool, error)
		}); ok {
			if state, found, err := s.GetUseFIPSEndpoint(ctx); found && err == nil {
				return state == sdk.FIPSEndpointStateEnabled
			}
		}
	}
	return false
}

// xmlRefusal reads an answer that is not 200 of the protocol that IAM speaks.
func xmlRefusal(status int, answer []byte) error {
	var e struct {
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
	}
	if xml.Unmarshal(answer, &e) != nil {
		e.Code = ""
	}
	return refusalOf(status, e.Code, e.Message, answer)
}

// members are the parameters of a list: NAME.member.1 and so on.
func members(name string, values []string) (parameters []string) {
	for i, v := range values {
		parameters = append(parameters, name+".member."+strconv.Itoa(i+1), v)
	}
	return parameters
}

// roleOfSession is the name of the role that a session has taken on; false if the ARN is
// no session's.
func roleOfSession(arn string) (string, bool) {
	_, session, ok := strings.Cut(arn, ":assumed-role/")
	name, _, _ := strings.Cut(session, "/")
	return name, ok
}
