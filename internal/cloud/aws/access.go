package aws

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/skypilot-go/sky/internal/cloud"
)

// homeRegion is asked for what is the same in all regions when the user has
// chosen none.
const homeRegion = "us-east-1"

// access keeps what is needed to call AWS: the loaded credentials and a client
// for each region. Both are made again when the credentials change.
type access struct {
	mu      sync.Mutex
	stamp   string
	config  *sdk.Config
	clients map[string]*ec2.Client
	regions []string
	learnt  time.Time
	changed func() // is called when the credentials are others
}

// regionsKept is how long the list of the account's regions is believed.
const regionsKept = time.Hour

var errNoCredentials = errors.New("there are no credentials")

const fixCredentials = "aws configure  (or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), then: sky check aws"

// present reports whether there may be credentials, without asking anybody.
func present() bool {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	for _, f := range credentialFiles() {
		if _, err := os.Stat(f); err == nil {
			return true
		}
	}
	return onEC2()
}

// credentialFiles are the shared files that may hold credentials.
func credentialFiles() []string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	files := []string{filepath.Join(home, ".aws", "credentials"), filepath.Join(home, ".aws", "config")}
	for i, name := range []string{"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"} {
		if f := os.Getenv(name); f != "" {
			files[i] = f
		}
	}
	return files
}

// onEC2 reports whether this machine is an instance, which may have a role.
func onEC2() bool {
	if strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		return false
	}
	for _, f := range []string{"/sys/devices/virtual/dmi/id/sys_vendor", "/sys/devices/virtual/dmi/id/board_vendor"} {
		if text, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(text), "Amazon EC2") {
			return true
		}
	}
	return false
}

// CredentialStamp changes when the user's credentials do.
func (p *Provider) CredentialStamp() string {
	s := p.o.Settings()
	h := sha256.New()
	fmt.Fprintln(h, s.Profile)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_ENDPOINT_URL"} {
		fmt.Fprintf(h, "%s=%s\n", name, os.Getenv(name))
	}
	for _, f := range credentialFiles() {
		if info, err := os.Stat(f); err == nil {
			fmt.Fprintln(h, f, info.ModTime().UnixNano(), info.Size())
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// load gives the configuration of the SDK, made from the user's credentials.
func (p *Provider) load(ctx context.Context) (sdk.Config, error) {
	if !present() {
		return sdk.Config{}, &cloud.AuthError{Cloud: Name, Err: errNoCredentials, Fix: fixCredentials, NotSetUp: true}
	}
	stamp := p.CredentialStamp()
	a := &p.access
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.config != nil && a.stamp == stamp {
		return *a.config, nil
	}
	// The region counts for credentials, too: roles are taken on in one.
	options := []func(*config.LoadOptions) error{config.WithRetryer(p.retryer), config.WithDefaultRegion(homeRegion)}
	if profile := p.o.Settings().Profile; profile != "" {
		options = append(options, config.WithSharedConfigProfile(profile))
	}
	if elsewhere := os.Getenv("AWS_ENDPOINT_URL"); elsewhere != "" {
		options = append(options, config.WithAPIOptions([]func(*middleware.Stack) error{sendTo(elsewhere)}))
	}
	c, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		if ctx.Err() != nil {
			return sdk.Config{}, context.Cause(ctx)
		}
		var none config.SharedConfigProfileNotExistError
		if errors.As(err, &none) {
			return sdk.Config{}, &cloud.AuthError{Cloud: Name, Fix: "see which there are with: aws configure list-profiles  (it is chosen by AWS_PROFILE, or aws.profile in the configuration)",
				Err: &refusal{fmt.Sprintf("there is no profile %q in %s", none.Profile, strings.Join(credentialFiles(), " or ")), err}}
		}
		return sdk.Config{}, &cloud.AuthError{Cloud: Name, Err: err, Fix: fixCredentials}
	}
	if c.HTTPClient == nil {
		c.HTTPClient = awshttp.NewBuildableClient()
	}
	c.HTTPClient = bodyClient{c.HTTPClient}
	a.stamp, a.config, a.clients, a.regions = stamp, &c, map[string]*ec2.Client{}, nil
	a.changed()
	return c, nil
}

// sendTo sends calls to AWS to another endpoint. The SDK does that itself, but
// reads where to after it has prepared the calls that take on roles and sign on.
func sendTo(endpoint string) func(*middleware.Stack) error {
	to, err := url.Parse(endpoint)
	return func(s *middleware.Stack) error {
		if err != nil {
			return fmt.Errorf("AWS_ENDPOINT_URL: %w", err)
		}
		return s.Finalize.Insert(middleware.FinalizeMiddlewareFunc("skyEndpoint", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			if r, ok := in.Request.(*smithyhttp.Request); ok && strings.HasSuffix(r.URL.Hostname(), ".amazonaws.com") {
				r.URL.Scheme, r.URL.Host = to.Scheme, to.Host
			}
			return next.HandleFinalize(ctx, in)
		}), "ResolveEndpointV2", middleware.After)
	}
}

// retryer repeats what may be repeated, slower when AWS asks for that.
func (p *Provider) retryer() sdk.Retryer {
	return retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
		o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) {
			o.MaxAttempts = p.o.Retries
			o.MaxBackoff = p.o.Backoff
		})
	})
}

// once is for calls that make something: what to do when one fails is decided
// above.
func once(o *ec2.Options) { o.Retryer = sdk.NopRetryer{} }

// ec2 is the client of a region.
func (p *Provider) ec2(ctx context.Context, region string) (*ec2.Client, error) {
	c, err := p.load(ctx)
	if err != nil {
		return nil, err
	}
	p.access.mu.Lock()
	defer p.access.mu.Unlock()
	client := p.access.clients[region]
	if client == nil {
		client = ec2.NewFromConfig(c, func(o *ec2.Options) { o.Region = region })
		p.access.clients[region] = client
	}
	return client, nil
}

func (p *Provider) sts(ctx context.Context) (*sts.Client, error) {
	c, err := p.load(ctx)
	return sts.NewFromConfig(c), err
}

// allRegions lists the regions that the account uses.
func (p *Provider) allRegions(ctx context.Context) ([]string, error) {
	c, err := p.load(ctx)
	if err != nil {
		return nil, err
	}
	a := &p.access
	a.mu.Lock()
	known, fresh := a.regions, time.Since(a.learnt) < regionsKept
	a.mu.Unlock()
	if len(known) > 0 && fresh {
		return known, nil
	}
	client, err := p.ec2(ctx, c.Region)
	if err != nil {
		return nil, err
	}
	out, err := client.DescribeRegions(ctx, &ec2.DescribeRegionsInput{})
	if err != nil {
		err = translate(ctx, cloud.Place{Cloud: Name}, err)
		if refused := (*cloud.PermissionError)(nil); errors.As(err, &refused) {
			refused.Err = fmt.Errorf("the region %s, which is asked for the others, does not let these credentials in: %w; name one that does as your default (AWS_REGION, or region in ~/.aws/config)", c.Region, refused.Err)
		}
		return nil, err
	}
	var names []string
	for _, r := range out.Regions {
		names = append(names, sdk.ToString(r.RegionName))
	}
	a.mu.Lock()
	a.regions, a.learnt = names, time.Now()
	a.mu.Unlock()
	return names, nil
}
