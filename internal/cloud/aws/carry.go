package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	profiles := []string{"default"}
	if name := p.o.Settings().Profile; name != "" && name != "default" {
		profiles = append(profiles, name)
	}
	var secrets, settings strings.Builder
	for _, name := range profiles {
		fmt.Fprintf(&secrets, "[%s]\naws_access_key_id = %s\naws_secret_access_key = %s\n", name, keys.AccessKeyID, keys.SecretAccessKey)
		section := "profile " + name
		if name == "default" {
			section = name
		}
		fmt.Fprintf(&settings, "[%s]\nregion = %s\n", section, c.Region)
	}
	return map[string][]byte{".aws/credentials": []byte(secrets.String()), ".aws/config": []byte(settings.String())}, nil
}
