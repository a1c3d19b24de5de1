package scoped

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/skypilot-go/sky/internal/storage"
)

// ofAWS reports whether an endpoint is AWS itself.
func ofAWS(endpoint string) bool {
	if endpoint == "" {
		return true
	}
	u, err := url.Parse(endpoint)
	return err == nil && (strings.HasSuffix(u.Hostname(), ".amazonaws.com") || strings.HasSuffix(u.Hostname(), ".amazonaws.com.cn"))
}

// federated makes keys of a user's keys, who has to have the permission
// sts:GetFederationToken, for what the policy and the user's own permissions allow. Keys of
// roles run out by themselves, and AWS makes no others of them.
func (m *Maker) federated(ctx context.Context, g storage.Grant, u Use) (storage.Grant, error) {
	o := sts.Options{Region: g.Region, Credentials: credentials.NewStaticCredentialsProvider(g.AccessKey, g.SecretKey, ""), HTTPClient: m.client(), RetryMaxAttempts: m.attempts}
	if at := cmp.Or(m.AWS, os.Getenv("AWS_ENDPOINT_URL_STS")); at != "" {
		o.BaseEndpoint = &at
	}
	out, err := sts.New(o).GetFederationToken(ctx, &sts.GetFederationTokenInput{
		Name: aws.String("sky-bucket"), Policy: aws.String(policy(g, u)), DurationSeconds: aws.Int32(int32(life.Seconds())),
	})
	if err != nil {
		said, ok := errors.AsType[*smithyhttp.ResponseError](err)
		api, known := errors.AsType[smithy.APIError](err)
		if ok && refuses(said.HTTPStatusCode()) && !(known && strings.Contains(api.ErrorCode(), "Throttl")) {
			err = errRefused
		}
		return storage.Grant{}, err
	}
	c := out.Credentials
	if c == nil || c.Expiration == nil {
		return storage.Grant{}, errors.New("the answer has no keys that run out")
	}
	n := without(g)
	n.AccessKey, n.SecretKey, n.SessionToken = aws.ToString(c.AccessKeyId), aws.ToString(c.SecretAccessKey), aws.ToString(c.SessionToken)
	n.Expires, n.Whose = *c.Expiration, whose(g, u)
	return n, nil
}

type statement struct {
	Effect    string
	Action    []string
	Resource  []string
	Condition any `json:",omitempty"`
}

// policy is what a use of a bucket needs.
func policy(g storage.Grant, u Use) string {
	partition := "aws"
	switch {
	case strings.HasPrefix(g.Region, "cn-"):
		partition = "aws-cn"
	case strings.HasPrefix(g.Region, "us-gov-"):
		partition = "aws-us-gov"
	}
	bucket := "arn:" + partition + ":s3:::" + g.Bucket
	about := []string{"s3:ListBucket", "s3:GetBucketLocation"}
	on := []string{"s3:GetObject", "s3:GetObjectVersion"}
	if !u.ReadOnly {
		about = append(about, "s3:ListBucketMultipartUploads")
		// A copy in the store takes tags along.
		on = append(on, "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts", "s3:GetObjectTagging", "s3:PutObjectTagging")
	}
	text, _ := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []statement{
		{Effect: "Allow", Action: about, Resource: []string{bucket}},
		{Effect: "Allow", Action: on, Resource: []string{bucket + "/" + u.Prefix + "*"}},
		// Objects may be encrypted with keys of the user's.
		{Effect: "Allow", Action: []string{"kms:Decrypt", "kms:GenerateDataKey"}, Resource: []string{"*"},
			Condition: map[string]map[string]string{"StringLike": {"kms:ViaService": "s3.*.amazonaws.com*"}}},
	}})
	return string(text)
}
