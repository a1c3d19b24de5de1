package fluffyapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// Client speaks the API over HTTP.
type Client struct{ *rest.Client }

var _ API = (*Client)(nil)

// NewClient returns the client of an endpoint, such as "http://127.0.0.1:7070", among
// those that are kept. It does no I/O.
func NewClient(of *rest.Clients, endpoint, token string) *Client {
	return &Client{of.For(endpoint+" "+token, func() rest.Options {
		return rest.Options{Cloud: "FluffyCloud", Endpoint: endpoint, Authorize: rest.Bearer(token), Refusal: refusal, Busy: -1}
	})}
}

func (c *Client) Account(ctx context.Context) (Account, error) {
	return do[Account](ctx, c, http.MethodGet, "/v1/account", nil)
}

func (c *Client) Offers(ctx context.Context, q Query) (Page[Offer], error) {
	return do[Page[Offer]](ctx, c, http.MethodGet, "/v1/offers?"+q.Encode(), nil)
}

// Availability is the answer to how many more there could be.
type Availability struct {
	Available int `json:"available"`
}

func (c *Client) Available(ctx context.Context, zone, instanceType string, spot bool) (int, error) {
	q := url.Values{"zone": {zone}, "type": {instanceType}, "spot": {strconv.FormatBool(spot)}}
	a, err := do[Availability](ctx, c, http.MethodGet, "/v1/availability?"+q.Encode(), nil)
	return a.Available, err
}

func (c *Client) Quotas(ctx context.Context, region string) ([]Quota, error) {
	p, err := do[Page[Quota]](ctx, c, http.MethodGet, "/v1/quotas?region="+url.QueryEscape(region), nil)
	return p.Items, err
}

func (c *Client) Create(ctx context.Context, in Create) (Instance, error) {
	return do[Instance](ctx, c, http.MethodPost, "/v1/instances", in)
}

func (c *Client) Instance(ctx context.Context, id string) (Instance, error) {
	return do[Instance](ctx, c, http.MethodGet, instancePath(id), nil)
}

func (c *Client) Instances(ctx context.Context, q Query) (Page[Instance], error) {
	return do[Page[Instance]](ctx, c, http.MethodGet, "/v1/instances?"+q.Encode(), nil)
}

func (c *Client) Start(ctx context.Context, id string, s Start) (Instance, error) {
	return do[Instance](ctx, c, http.MethodPost, instancePath(id)+"/start", s)
}

func (c *Client) Stop(ctx context.Context, id string) (Instance, error) {
	return do[Instance](ctx, c, http.MethodPost, instancePath(id)+"/stop", struct{}{})
}

func (c *Client) Terminate(ctx context.Context, id string) (Instance, error) {
	return do[Instance](ctx, c, http.MethodDelete, instancePath(id), nil)
}

func (c *Client) SetWhenOff(ctx context.Context, id string, w WhenOff) (Instance, error) {
	return do[Instance](ctx, c, http.MethodPut, instancePath(id)+"/when-off", w)
}

func (c *Client) CreateImage(ctx context.Context, in CreateImage) (Image, error) {
	return do[Image](ctx, c, http.MethodPost, "/v1/images", in)
}

func (c *Client) Images(ctx context.Context, q Query) (Page[Image], error) {
	return do[Page[Image]](ctx, c, http.MethodGet, "/v1/images?"+q.Encode(), nil)
}

func (c *Client) DeleteImage(ctx context.Context, id string) error {
	_, err := do[struct{}](ctx, c, http.MethodDelete, "/v1/images/"+url.PathEscape(id), nil)
	return err
}

func (c *Client) PutFirewall(ctx context.Context, f Firewall) error {
	_, err := do[Firewall](ctx, c, http.MethodPut, "/v1/firewalls/"+url.PathEscape(f.Name), f)
	return err
}

func (c *Client) Firewalls(ctx context.Context, q Query) (Page[Firewall], error) {
	return do[Page[Firewall]](ctx, c, http.MethodGet, "/v1/firewalls?"+q.Encode(), nil)
}

func (c *Client) DeleteFirewall(ctx context.Context, name string) error {
	_, err := do[struct{}](ctx, c, http.MethodDelete, "/v1/firewalls/"+url.PathEscape(name), nil)
	return err
}

func instancePath(id string) string { return "/v1/instances/" + url.PathEscape(id) }

// Encode writes the query as URL parameters; a tag is "tag=key=value".
func (q Query) Encode() string {
	v := url.Values{}
	for key, value := range q.Tags {
		v.Add("tag", key+"="+value)
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Page != "" {
		v.Set("page", q.Page)
	}
	return v.Encode()
}

// DecodeQuery reads what Encode wrote. The key of a tag holds no "=".
func DecodeQuery(v url.Values) (Query, error) {
	q := Query{Page: v.Get("page")}
	if s := v.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return q, Errorf(Invalid, "limit %q is not a positive number", s)
		}
		q.Limit = n
	}
	for _, tag := range v["tag"] {
		key, value, ok := strings.Cut(tag, "=")
		if !ok {
			return q, Errorf(Invalid, "tag %q is not key=value", tag)
		}
		if q.Tags == nil {
			q.Tags = map[string]string{}
		}
		q.Tags[key] = value
	}
	return q, nil
}

func do[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	return rest.Do[T](ctx, c.Client, method, path, body)
}

// refusal reads an error answer. What is not FluffyCloud's own (a proxy's, say)
// and its own faults prove nothing about the effect.
func refusal(_ int, _ http.Header, data []byte) error {
	var e struct {
		Error *Error `json:"error"`
	}
	if json.Unmarshal(data, &e) != nil || e.Error == nil || e.Error.Code == "" || e.Error.Code == Internal {
		return nil
	}
	return e.Error
}
