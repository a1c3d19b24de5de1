package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Keys are credentials for a store of the family.
type Keys struct {
	AccessKey, SecretKey, SessionToken string
	Account                            string    // whose they are, for messages
	Expires                            time.Time // zero: never
}

// found is what this machine says about a store.
type found struct {
	keys             *renewed
	region, endpoint string
}

// find looks for keys, endpoint and region where users of the store have them.
func (m *member) find(ctx context.Context, region string, o Options) (found, error) {
	f := found{region: region, endpoint: o.Endpoint}
	var profile config.SharedConfig
	var err error
	switch {
	case m.store == storage.S3:
		err = m.findAWS(ctx, o, &f)
	case m.profile != "":
		profile, err = m.readProfile(ctx)
		if err == nil {
			f.fill(profile.Region, profile.BaseEndpoint)
			f.keys = newKeys(m, fixed(Keys{AccessKey: profile.Credentials.AccessKeyID, SecretKey: profile.Credentials.SecretAccessKey, SessionToken: profile.Credentials.SessionToken}))
		}
	default:
		var k Keys
		if k, err = readIBM(); err == nil {
			f.keys = newKeys(m, fixed(k))
		}
	}
	if o.Keys != nil {
		f.keys, err = newKeys(m, o.Keys), nil
	}
	if err != nil {
		return f, m.noKeys(err)
	}
	if f.region == "" {
		f.region = m.region
	}
	if f.endpoint == "" && m.store != storage.S3 {
		if f.endpoint, err = m.defaultEndpoint(f.region); err != nil {
			return f, m.noKeys(err)
		}
	}
	if f.region == "" {
		return f, m.noKeys(errors.New("no region is set"))
	}
	if f.endpoint != "" && !strings.HasPrefix(f.endpoint, "http://") && !strings.HasPrefix(f.endpoint, "https://") {
		return f, fmt.Errorf("the endpoint of %s is %q: it begins with https:// or http://", m.store, f.endpoint)
	}
	return f, nil
}

// fill takes what nobody has said before.
func (f *found) fill(region, endpoint string) {
	if f.region == "" {
		f.region = region
	}
	if f.endpoint == "" {
		f.endpoint = endpoint
	}
}

func (m *member) noKeys(err error) error {
	return &storage.CredentialsError{Store: m.store, Err: err, Fix: m.fix}
}

// findAWS asks the SDK's own chain: variables, files, single sign-on, roles.
func (m *member) findAWS(ctx context.Context, o Options, f *found) error {
	if o.Keys != nil {
		f.fill(os.Getenv("AWS_REGION"), awsEndpoint("", ""))
		return nil
	}
	var options []func(*config.LoadOptions) error
	if o.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(o.Profile))
	}
	c, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return err
	}
	f.keys = newKeys(m, func(ctx context.Context) (Keys, error) {
		k, err := c.Credentials.Retrieve(ctx)
		if err != nil {
			return Keys{}, err
		}
		out := Keys{AccessKey: k.AccessKeyID, SecretKey: k.SecretAccessKey, SessionToken: k.SessionToken, Account: k.AccountID}
		if k.CanExpire {
			out.Expires = k.Expires
		}
		return out, nil
	})
	f.keys.forget = func() {
		if cache, ok := c.Credentials.(*aws.CredentialsCache); ok {
			cache.Invalidate()
		}
	}
	service, general := "", ""
	for _, source := range c.ConfigSources {
		if shared, ok := source.(config.SharedConfig); ok {
			general = shared.BaseEndpoint
			if url, found, _ := shared.GetServiceBaseEndpoint(ctx, "S3"); found {
				service = url
			}
		}
	}
	f.fill(c.Region, awsEndpoint(service, general))
	return nil
}

// awsEndpoint is another server in place of AWS: of the variables, then of the
// profile, each first for S3 and then for all.
func awsEndpoint(service, general string) string {
	if strings.EqualFold(os.Getenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"), "true") {
		return ""
	}
	for _, url := range []string{os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), service, general} {
		if url != "" {
			return url
		}
	}
	return ""
}

// readProfile reads the profile of a store in its own files.
func (m *member) readProfile(ctx context.Context) (config.SharedConfig, error) {
	files := func(name, variable string) []string {
		if name == "" {
			return []string{}
		}
		if other := os.Getenv(variable); other != "" && strings.HasPrefix(name, ".aws/") {
			return []string{other}
		}
		return []string{atHome(name)}
	}
	c, err := config.LoadSharedConfigProfile(ctx, m.profile, func(o *config.LoadSharedConfigOptions) {
		o.CredentialsFiles = files(m.credentials, "AWS_SHARED_CREDENTIALS_FILE")
		o.ConfigFiles = files(m.config, "AWS_CONFIG_FILE")
	})
	if err != nil {
		return c, err
	}
	if !c.Credentials.HasKeys() {
		return c, fmt.Errorf("profile %s of %s has no keys", m.profile, atHome(m.credentials))
	}
	return c, nil
}

// defaultEndpoint is the store's own endpoint.
func (m *member) defaultEndpoint(region string) (string, error) {
	if m.endpoint == "" {
		return "", fmt.Errorf("profile %s of %s has no endpoint_url", m.profile, atHome(m.config))
	}
	account := ""
	if m.accountFile != "" {
		text, err := os.ReadFile(atHome(m.accountFile))
		if err != nil {
			return "", err
		}
		if account = strings.TrimSpace(string(text)); account == "" || strings.ContainsAny(account, "/.:@ \n") {
			return "", fmt.Errorf("%s holds no account's id", atHome(m.accountFile))
		}
	}
	return strings.NewReplacer("{region}", region, "{account}", account).Replace(m.endpoint), nil
}

// readIBM reads the HMAC key of IBM's users.
func readIBM() (Keys, error) {
	file := atHome(".ibm/credentials.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return Keys{}, err
	}
	n, err := (&yaml11.Source{Text: string(text)}).ReadOne()
	if err != nil {
		return Keys{}, fmt.Errorf("%s is not valid YAML", file) // the error may quote a secret
	}
	k := Keys{AccessKey: n.TextAt("access_key_id"), SecretKey: n.TextAt("secret_access_key")}
	if k.AccessKey == "" || k.SecretKey == "" {
		return Keys{}, fmt.Errorf("%s has no access_key_id and secret_access_key", file)
	}
	return k, nil
}

func atHome(name string) string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	return filepath.Join(home, filepath.FromSlash(name))
}

func fixed(k Keys) func(context.Context) (Keys, error) {
	return func(context.Context) (Keys, error) { return k, nil }
}

// renewed keeps keys until they run out.
type renewed struct {
	member *member
	get    func(context.Context) (Keys, error)
	forget func() // makes get look again; may be nil

	mu   sync.Mutex
	keys Keys
	have bool
}

func newKeys(m *member, get func(context.Context) (Keys, error)) *renewed {
	return &renewed{member: m, get: get}
}

// early is how long before their end keys are renewed, as requests take time.
const early = time.Minute

// Retrieve implements [aws.CredentialsProvider].
func (r *renewed) Retrieve(ctx context.Context) (aws.Credentials, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.have || !r.keys.Expires.IsZero() && time.Until(r.keys.Expires) < early {
		k, err := r.get(ctx)
		if err == nil && (k.AccessKey == "" || k.SecretKey == "") {
			err = fs.ErrNotExist
		}
		if err != nil {
			if ctx.Err() != nil {
				return aws.Credentials{}, context.Cause(ctx)
			}
			return aws.Credentials{}, r.member.noKeys(fmt.Errorf("looking for credentials: %w", err))
		}
		r.keys, r.have = k, true
	}
	return aws.Credentials{AccessKeyID: r.keys.AccessKey, SecretAccessKey: r.keys.SecretKey, SessionToken: r.keys.SessionToken, AccountID: r.keys.Account}, nil
}

// renew forgets the keys with that session token, which the store does not take any more,
// unless others are here already. It is false if the keys are such as do not run out.
func (r *renewed) renew(used string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys.SessionToken == "" {
		return false
	}
	if r.keys.SessionToken == used {
		r.have = false
		if r.forget != nil {
			r.forget()
		}
	}
	return true
}

// lasting reports whether the keys are such as do not run out.
func (r *renewed) lasting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys.SessionToken == ""
}

// account is whose keys were used last, as far as it is known.
func (r *renewed) account() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.keys.Account != "":
		return "account " + r.keys.Account
	case r.keys.AccessKey != "":
		return "access key " + r.keys.AccessKey
	}
	return ""
}

// same reports whether two buckets are reached by the same keys.
func (r *renewed) same(other *renewed) bool {
	if r == other {
		return true
	}
	r.mu.Lock()
	mine, have := r.keys.AccessKey, r.have
	r.mu.Unlock()
	other.mu.Lock()
	defer other.mu.Unlock()
	return have && other.have && mine == other.keys.AccessKey
}
