package aws

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
)

// service is an API of AWS of which one call is made. The SDK's client of such a
// service builds tables at each start of the program, 1.4 MB for Systems Manager,
// and adds megabytes to it.
type service struct {
	host   string // before the region
	target string // before the operation, in the header X-Amz-Target
}

var (
	systemsManager = service{"ssm", "AmazonSSM"}
	serviceQuotas  = service{"servicequotas", "ServiceQuotasV20190624"}
)

// jsonCall makes a call of the protocol awsJson1.1 in a region and decodes its
// answer. Refusals are a [smithy.APIError], as those of the SDK.
func (p *Provider) jsonCall(ctx context.Context, region string, of service, operation string, in, out any) error {
	c, err := p.load(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	domain := "amazonaws.com"
	if partition(region) == "aws-cn" {
		domain = "amazonaws.com.cn"
	}
	return p.signed(ctx, c, signedCall{
		service: of.host, operation: operation, region: region,
		endpoint: cmp.Or(sdk.ToString(c.BaseEndpoint), fmt.Sprintf("https://%s.%s.%s", of.host, region, domain)),
		header:   http.Header{"Content-Type": {"application/x-amz-json-1.1"}, "X-Amz-Target": {of.target + "." + operation}},
		body:     body,
		refusal:  jsonRefusal,
	}, func(answer []byte) error { return json.Unmarshal(answer, out) })
}

// jsonRefusal reads an answer that is not 200: {"__type": "namespace#Code",
// "message": "text"}.
func jsonRefusal(status int, answer []byte) error {
	var e struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
		Text    string `json:"Message"`
	}
	if json.Unmarshal(answer, &e) != nil {
		e.Type = ""
	}
	return refusalOf(status, e.Type[strings.LastIndexByte(e.Type, '#')+1:], cmp.Or(e.Message, e.Text), answer)
}
