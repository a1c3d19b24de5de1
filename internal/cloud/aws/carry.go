package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// CarryCredentials writes the access key in use as a credentials file, for the
// default profile and for the one that is configured. Keys that expire cannot be
// taken elsewhere: nobody would renew them there.
func (p *Provider) CarryCredentials(ctx context.Context) (map[string][]byte, error) {
	c, err := p.load(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := c.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	if keys.CanExpire || keys.SessionToken != "" {
		return nil, errors.New("the AWS credentials in use expire, and nobody would renew them there; use an access key that lasts")
	}
	return p.credentialFiles(keys, c.Region), nil
}

// credentialFiles are the files in which AWS's tools look for keys.
func (p *Provider) credentialFiles(keys sdk.Credentials, region string) map[string][]byte {
	profiles := []string{"default"}
	if name := p.o.Settings().Profile; name != "" && name != "default" {
		profiles = append(profiles, name)
	}
	var secrets, settings strings.Builder
	for _, name := range profiles {
		fmt.Fprintf(&secrets, "[%s]\naws_access_key_id = %s\naws_secret_access_key = %s\n", name, keys.AccessKeyID, keys.SecretAccessKey)
		if keys.SessionToken != "" {
			fmt.Fprintf(&secrets, "aws_session_token = %s\n", keys.SessionToken)
		}
		section := "profile " + name
		if name == "default" {
			section = name
		}
		fmt.Fprintf(&settings, "[%s]\nregion = %s\n", section, region)
	}
	return map[string][]byte{".aws/credentials": []byte(secrets.String()), ".aws/config": []byte(settings.String())}
}

// A loan is a session that was made of an access key.
type loan struct {
	mu   sync.Mutex
	of   string // the access key's id
	keys sdk.Credentials
}

// loanTime is how long a session lasts, which is the most that AWS grants to users.
const loanTime = 36 * time.Hour

// LendCredentials lends a session of AWS's, which may do what the access key may, except
// with IAM; or the credentials in use, if they expire by themselves or AWS makes no
// session of them. A session is replaced when half of its time is over.
func (p *Provider) LendCredentials(ctx context.Context) (files map[string][]byte, until time.Time, err error) {
	c, err := p.load(ctx)
	if err != nil {
		return nil, until, err
	}
	keys, err := c.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, until, err
	}
	if !keys.CanExpire && keys.SessionToken == "" {
		if s, err := p.session(ctx, keys); err == nil {
			keys = s
		} else if ctx.Err() != nil {
			return nil, until, context.Cause(ctx)
		}
	}
	if keys.CanExpire {
		until = keys.Expires
	}
	return p.credentialFiles(keys, c.Region), until, nil
}

// session is one of an access key, the same until half of its time is over.
func (p *Provider) session(ctx context.Context, of sdk.Credentials) (sdk.Credentials, error) {
	p.loan.mu.Lock()
	defer p.loan.mu.Unlock()
	if p.loan.of == of.AccessKeyID && time.Until(p.loan.keys.Expires) > loanTime/2 {
		return p.loan.keys, nil
	}
	client, err := p.sts(ctx)
	if err != nil {
		return sdk.Credentials{}, err
	}
	out, err := client.GetSessionToken(ctx, &sts.GetSessionTokenInput{DurationSeconds: sdk.Int32(int32(loanTime / time.Second))})
	if err != nil {
		return sdk.Credentials{}, err
	}
	if out.Credentials == nil {
		return sdk.Credentials{}, errors.New("its answer holds no credentials")
	}
	p.loan.of = of.AccessKeyID
	p.loan.keys = sdk.Credentials{
		AccessKeyID: sdk.ToString(out.Credentials.AccessKeyId), SecretAccessKey: sdk.ToString(out.Credentials.SecretAccessKey),
		SessionToken: sdk.ToString(out.Credentials.SessionToken), CanExpire: true, Expires: sdk.ToTime(out.Credentials.Expiration),
	}
	return p.loan.keys, nil
}
