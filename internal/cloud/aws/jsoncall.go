package aws

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"

	"github.com/skypilot-go/sky/internal/bounded"
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
	endpoint := cmp.Or(sdk.ToString(c.BaseEndpoint), fmt.Sprintf("https://%s.%s.%s", of.host, region, domain))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(endpoint, "/")+"/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", of.target+"."+operation)
	keys, err := c.Credentials.Retrieve(ctx)
	if err != nil {
		return err
	}
	if err := v4.NewSigner().SignHTTP(ctx, keys, req, fmt.Sprintf("%x", sha256.Sum256(body)), of.host, region, time.Now()); err != nil {
		return err
	}
	resp, err := c.HTTPClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := bounded.ReadAll(resp.Body, 1<<20, "an answer of AWS")
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return &smithy.OperationError{ServiceID: of.host, OperationName: operation, Err: jsonRefusal(resp.StatusCode, answer)}
	}
	return json.Unmarshal(answer, out)
}

// jsonRefusal reads an answer that is not 200: {"__type": "namespace#Code",
// "message": "text"}.
func jsonRefusal(status int, answer []byte) error {
	var e struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
		Text    string `json:"Message"`
	}
	if json.Unmarshal(answer, &e) != nil || e.Type == "" {
		e.Type, e.Message = fmt.Sprintf("Status%d", status), string(answer[:min(len(answer), 200)])
	}
	refusal := &smithy.GenericAPIError{Code: e.Type[strings.LastIndexByte(e.Type, '#')+1:], Message: cmp.Or(e.Message, e.Text), Fault: smithy.FaultClient}
	if status >= 500 {
		refusal.Fault = smithy.FaultServer
	}
	return refusal
}
