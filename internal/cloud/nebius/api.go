package nebius

import (
	"context"
	"crypto/rsa"
	"errors"
	"net/http"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/grpc"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// The services that are called, by the names that their addresses begin with.
const (
	compute  = "compute"
	network  = "vpc"
	iam      = "cpl.iam"
	tokens   = "tokens.iam"
	capacity = "capacity-advisor.billing-cpl"
)

// Messages of nebius.common.v1, and what requests have in common.
type (
	metadata struct {
		ID      string            `pb:"1"`
		Parent  string            `pb:"2"`
		Name    string            `pb:"3"`
		Created time.Time         `pb:"5"`
		Labels  map[string]string `pb:"7"`
	}
	operation struct {
		ID       string       `pb:"1"`
		Resource string       `pb:"7"`
		Status   *grpc.Status `pb:"10"` // once it has ended
	}
	byID struct {
		ID string `pb:"1"`
	}
	byName struct {
		Parent string `pb:"1"`
		Name   string `pb:"2"`
	}
	creation[S any] struct {
		Metadata metadata `pb:"1"`
		Spec     S        `pb:"2"`
	}
	pageOf struct {
		Parent string `pb:"1"`
		Size   int64  `pb:"2"`
		Token  string `pb:"3"`
	}
	page[T any] struct {
		Items []T    `pb:"1"`
		Next  string `pb:"2"`
	}
)

// list are all things of a kind below a parent.
func list[T any](ctx context.Context, c *rest.Client, service, parent string) ([]T, error) {
	return rest.All(ctx, func(ctx context.Context, token string) ([]T, string, error) {
		p, err := grpc.Call[page[T]](ctx, c, service+"/List", "", pageOf{parent, 100, token})
		return p.Items, p.Next, err
	})
}

// do calls what begins an operation, and waits until it ends.
func (d driver) do(ctx context.Context, c *rest.Client, method string, in any) (operation, error) {
	o, err := grpc.Call[operation](ctx, c, method, "", in)
	if err == nil && o.Status == nil {
		o, err = rest.Await(ctx, d.tuning.Poll, func(ctx context.Context) (operation, bool, error) {
			o, err := look(ctx, c, o.ID)
			return o, o.Status != nil, err
		})
	}
	if err == nil {
		err = failure(o)
	}
	return o, err
}

func look(ctx context.Context, c *rest.Client, id string) (operation, error) {
	return grpc.Call[operation](ctx, c, "nebius.common.v1.OperationService/Get", "", byID{id})
}

// failure is why an operation failed. That there is too little of something may have no
// details, and is no call too many here.
func failure(o operation) error {
	if o.Status == nil {
		return nil
	}
	e := o.Status.Refusal(detail)
	switch {
	case e == nil:
		return nil
	case e.Code == "RESOURCE_EXHAUSTED":
		e.Code = "NotEnoughResources"
		if overQuota(e.Message) {
			e.Code = "QuotaFailure"
		}
	}
	return e
}

// details are the kinds of nebius.common.v1.ServiceError by their fields, with the status
// that HTTP has for each.
var details = []struct {
	name   string
	status int
	is     func(serviceError) *struct{}
}{
	{"BadRequest", 400, func(e serviceError) *struct{} { return e.BadRequest }}, {"BadResourceState", 409, func(e serviceError) *struct{} { return e.BadState }},
	{"ResourceNotFound", 404, func(e serviceError) *struct{} { return e.NotFound }}, {"ResourceAlreadyExists", 409, func(e serviceError) *struct{} { return e.Exists }},
	{"OutOfRange", 400, func(e serviceError) *struct{} { return e.OutOfRange }}, {"PermissionDenied", 403, func(e serviceError) *struct{} { return e.Denied }},
	{"ResourceConflict", 409, func(e serviceError) *struct{} { return e.Conflict }}, {"OperationAborted", 409, func(e serviceError) *struct{} { return e.Aborted }},
	{"TooManyRequests", 429, func(e serviceError) *struct{} { return e.TooMany }}, {"QuotaFailure", 409, func(e serviceError) *struct{} { return e.Quota }},
	{"NotEnoughResources", 409, func(e serviceError) *struct{} { return e.NotEnough }}, {"InternalError", 500, func(e serviceError) *struct{} { return e.Internal }},
}

type serviceError struct {
	Code       string    `pb:"2"`
	BadRequest *struct{} `pb:"100"`
	BadState   *struct{} `pb:"110"`
	NotFound   *struct{} `pb:"111"`
	Exists     *struct{} `pb:"112"`
	OutOfRange *struct{} `pb:"113"`
	Denied     *struct{} `pb:"120"`
	Conflict   *struct{} `pb:"130"`
	Aborted    *struct{} `pb:"131"`
	TooMany    *struct{} `pb:"140"`
	Quota      *struct{} `pb:"141"`
	NotEnough  *struct{} `pb:"142"`
	Internal   *struct{} `pb:"999"`
}

// detail is what the details of a refusal say.
func detail(all []grpc.Any) (code string, status int) {
	for _, a := range all {
		var e serviceError
		if a.Type != "type.googleapis.com/nebius.common.v1.ServiceError" || grpc.Unmarshal(a.Value, &e) != nil {
			continue
		}
		for _, d := range details {
			if d.is(e) != nil {
				return d.name, d.status
			}
		}
		return e.Code, 0 // of no kind
	}
	return "", 0
}

// account is whose credentials are in use.
type account struct {
	tenant, stamp    string
	token            string // of a person, or
	key, keyID, user string // the private key of a service account
}

// read reads the credentials: a token if there is one, else the key of a service account.
func (p *Provider) read() (account, error) {
	token, err := p.token.Read()
	key := map[string]string{}
	if none := (*cloud.AuthError)(nil); errors.As(err, &none) && none.NotSetUp {
		key, err = p.key.Read()
	}
	if err != nil {
		return account{}, err
	}
	tenant, err := p.tenant.Read()
	if err != nil {
		return account{}, &cloud.AuthError{Cloud: Name, Fix: p.tenant.Fix, Err: errors.Unwrap(err)}
	}
	user := key["subject-credentials.sub"]
	if user == "" {
		user = key["subject-credentials.iss"]
	}
	return account{
		tenant: tenant["tenant"], stamp: p.tenant.Stamp(tenant) + p.token.Stamp(token) + p.key.Stamp(key),
		token: token["token"], key: key["subject-credentials.private-key"], keyID: key["subject-credentials.kid"], user: user,
	}, nil
}

// CredentialStamp changes when the credentials do; "" without any.
func (p *Provider) CredentialStamp() string {
	a, err := p.read()
	if err != nil {
		return ""
	}
	return a.stamp
}

// CarryCredentials are the files in use.
func (p *Provider) CarryCredentials(ctx context.Context) (map[string][]byte, error) {
	a, err := p.read()
	if err != nil {
		return nil, err
	}
	from := p.key
	if a.token != "" {
		from = p.token
	}
	files, err := from.CarryCredentials(ctx)
	if err == nil {
		files[p.tenant.Path] = []byte(a.tenant + "\n")
	}
	return files, err
}

// client calls a service.
func (p *Provider) client(service string) (*rest.Client, account, error) {
	a, err := p.read()
	if err != nil {
		return nil, a, err
	}
	o, err := p.options(service)
	if err != nil {
		return nil, a, err
	}
	o.Authorize = rest.Bearer(a.token)
	if a.token == "" {
		if o.Authorize, err = p.exchange(a); err != nil {
			return nil, a, &cloud.AuthError{Cloud: Name, Fix: p.key.Fix, Err: err}
		}
	}
	return p.clients.For(a.stamp+" "+service+" "+o.Endpoint, func() rest.Options { return o }), a, nil
}

func (p *Provider) options(service string) (rest.Options, error) {
	endpoint, err := vm.Endpoint(Name, "https://"+service+"."+p.tuning.Endpoint)
	return rest.Options{Cloud: displayName, Endpoint: endpoint, Transport: p.transport, Paces: p.tuning.Paces, Busy: p.tuning.Busy}, err
}

// exchange authorizes calls with tokens that the key of a service account is good for.
func (p *Provider) exchange(a account) (func(*http.Request) error, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tokensOf == a.stamp {
		return p.authorize, nil
	}
	key, err := rest.RSAKey("~/"+p.key.Path, []byte(a.key))
	if err != nil {
		return nil, err
	}
	o, err := p.options(tokens)
	if err != nil {
		return nil, err
	}
	c := rest.New(o)
	p.tokensOf, p.authorize = a.stamp, rest.Tokens(func(ctx context.Context) (string, time.Time, error) {
		signed, err := sign(a, key)
		if err != nil {
			return "", time.Time{}, err
		}
		began := time.Now()
		answer, err := grpc.Call[struct {
			Token string `pb:"1"`
			Life  int64  `pb:"4"` // seconds
		}](ctx, c, "nebius.iam.v1.TokenExchangeService/Exchange", "", struct {
			Grant  string `pb:"1"`
			Wanted string `pb:"2"`
			Token  string `pb:"3"`
			Kind   string `pb:"4"`
		}{"urn:ietf:params:oauth:grant-type:token-exchange", "urn:ietf:params:oauth:token-type:access_token", signed, "urn:ietf:params:oauth:token-type:jwt"})
		return answer.Token, began.Add(time.Duration(answer.Life) * time.Second), err
	})
	return p.authorize, nil
}

// sign says who asks for a token.
func sign(a account, key *rsa.PrivateKey) (string, error) {
	now := time.Now()
	t := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{Issuer: a.user, Subject: a.user, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(5 * time.Minute))})
	t.Header["kid"] = a.keyID
	return t.SignedString(key)
}
