// Package nebiusapi is a client of the API of Nebius AI Cloud, as far as sky needs it: messages,
// operations, what errors say, and tokens.
//
// Source: the descriptions of the API in protobuf, github.com/nebius/api.
package nebiusapi

import (
	"context"
	"crypto/rsa"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/skypilot-go/sky/internal/cloud/grpc"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// The services that are called, by the names that their addresses begin with.
const (
	Compute  = "compute"
	Network  = "vpc"
	IAM      = "cpl.iam"
	Tokens   = "tokens.iam"
	Capacity = "capacity-advisor.billing-cpl"
	Prices   = "api.calculator.billing-data-plane"
)

// Messages of nebius.common.v1, and what requests have in common.
type (
	Metadata struct {
		ID      string            `pb:"1"`
		Parent  string            `pb:"2"`
		Name    string            `pb:"3"`
		Created time.Time         `pb:"5"`
		Labels  map[string]string `pb:"7"`
	}
	Operation struct {
		ID       string       `pb:"1"`
		Resource string       `pb:"7"`
		Status   *grpc.Status `pb:"10"` // once it has ended
	}
	ByID struct {
		ID string `pb:"1"`
	}
	byName struct {
		Parent string `pb:"1"`
		Name   string `pb:"2"`
	}
	creation struct {
		Metadata Metadata `pb:"1"`
		Spec     any      `pb:"2"`
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

// List are all things of a kind below a parent.
func List[T any](ctx context.Context, c *rest.Client, service, parent string) ([]T, error) {
	return rest.All(ctx, func(ctx context.Context, token string) ([]T, string, error) {
		p, err := grpc.Call[page[T]](ctx, c, service+"/List", "", pageOf{parent, 100, token})
		return p.Items, p.Next, err
	})
}

// Get is a thing by its id.
func Get[T any](ctx context.Context, c *rest.Client, service, id string) (T, error) {
	return grpc.Call[T](ctx, c, service+"/Get", "", ByID{id})
}

// Find is a thing by its name below a parent.
func Find[T any](ctx context.Context, c *rest.Client, service, parent, name string) (T, error) {
	return grpc.Call[T](ctx, c, service+"/GetByName", "", byName{parent, name})
}

// Create begins to make a thing.
func Create(ctx context.Context, c *rest.Client, service string, m Metadata, spec any) (Operation, error) {
	return begin(ctx, c, service+"/Create", creation{m, spec})
}

// Do begins something about a thing by its id, such as Delete.
func Do(ctx context.Context, c *rest.Client, service, method, id string) (Operation, error) {
	return begin(ctx, c, service+"/"+method, ByID{id})
}

// begin calls what begins an operation. One that has failed at once is an error.
func begin(ctx context.Context, c *rest.Client, method string, in any) (Operation, error) {
	o, err := grpc.Call[Operation](ctx, c, method, "", in)
	if err == nil {
		err = Failure(o)
	}
	return o, err
}

// Wait waits until an operation that was begun ends, with pauses of up to poll.
func Wait(ctx context.Context, c *rest.Client, poll time.Duration, begun Operation, err error) (Operation, error) {
	if err != nil || begun.Status != nil {
		return begun, err
	}
	o, err := rest.Await(ctx, poll, func(ctx context.Context) (Operation, bool, error) {
		o, err := GetOperation(ctx, c, begun.ID)
		return o, o.Status != nil, err
	})
	if err == nil {
		err = Failure(o)
	}
	return o, err
}

// GetOperation is an operation by its id. Operations are forgotten one day.
func GetOperation(ctx context.Context, c *rest.Client, id string) (Operation, error) {
	return Get[Operation](ctx, c, "nebius.common.v1.OperationService", id)
}

// Failure is why an operation failed. That there is too little of something may have no
// details, and is no call too many here.
func Failure(o Operation) error {
	if o.Status == nil {
		return nil
	}
	e := o.Status.Refusal(Detail)
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

// Detail is what the details of a refusal say.
func Detail(all []grpc.Any) (code string, status int) {
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

// overQuota tells a quota from other limits by the text.
func overQuota(message string) bool { return strings.Contains(strings.ToLower(message), "quota") }

// Exchange asks for a token that the key of a service account is good for.
func Exchange(ctx context.Context, c *rest.Client, user, keyID string, key *rsa.PrivateKey) (token string, until time.Time, err error) {
	now := time.Now()
	t := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{Issuer: user, Subject: user, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(5 * time.Minute))})
	t.Header["kid"] = keyID
	signed, err := t.SignedString(key)
	if err != nil {
		return "", now, err
	}
	answer, err := grpc.Call[struct {
		Token string `pb:"1"`
		Life  int64  `pb:"4"` // seconds
	}](ctx, c, "nebius.iam.v1.TokenExchangeService/Exchange", "", struct {
		Grant  string `pb:"1"`
		Wanted string `pb:"2"`
		Token  string `pb:"3"`
		Kind   string `pb:"4"`
	}{"urn:ietf:params:oauth:grant-type:token-exchange", "urn:ietf:params:oauth:token-type:access_token", signed, "urn:ietf:params:oauth:token-type:jwt"})
	return answer.Token, now.Add(time.Duration(answer.Life) * time.Second), err
}

// Transport carries the calls.
func Transport(t http.RoundTripper) http.RoundTripper { return grpc.NewTransport(t, Detail) }
