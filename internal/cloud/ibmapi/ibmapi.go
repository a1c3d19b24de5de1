// Package ibmapi calls the API of IBM Cloud's virtual private clouds (VPC), for the provider
// and for price lists: one host a region, tokens of IAM, lists with pages.
//
// Source: IBM's references of the VPC API, version 2024-11-12, and of IAM's tokens.
package ibmapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write, DisplayName what they read.
const Name, DisplayName = "ibm", "IBM"

// Path is the file of the user's credentials, below the home folder.
const Path = ".ibm/credentials.yaml"

// First is the region that is asked which others there are.
const First = "us-south"

// version is that of the API which is spoken.
const version = "2024-11-12"

// Account is the user's, for machines and what belongs to them. The endpoint is IAM's.
func Account(o vm.Tuning) vm.Account {
	o = o.Or(vm.Tuning{Endpoint: "https://iam.cloud.ibm.com"})
	return vm.Account{
		File: keyfile.File{
			Cloud: Name, Path: Path, Format: keyfile.YAML, Home: o.Home, Names: []string{"iam_api_key", "resource_group_id"},
			Fix: "make a key at https://cloud.ibm.com/iam/apikeys, look up the resource group at https://cloud.ibm.com/account/resource-groups, and write into ~/.ibm/credentials.yaml:\n      iam_api_key: …\n      resource_group_id: …",
		},
		Tuning: o, REST: rest.Options{Cloud: DisplayName, Refusal: Refusal}, Authorize: func(keys map[string]string) func(*http.Request) error { return tokens(o, keys["iam_api_key"]) },
		Region: func(region string) string { return url.PathEscape(region) + ".iaas.cloud.ibm.com" }, Prefix: "/v1",
	}
}

// tokens authorizes calls with tokens of IAM, which a key is good for. All regions share them.
func tokens(o vm.Tuning, key string) func(*http.Request) error {
	endpoint, err := vm.Endpoint(Name, o.Endpoint)
	if err != nil {
		return func(*http.Request) error { return err }
	}
	c := rest.New(rest.Options{Cloud: DisplayName, Endpoint: endpoint, Host: strings.TrimPrefix(o.Endpoint, "https://"), Transport: o.Transport, Paces: o.Paces, Busy: o.Busy, Refusal: Refusal})
	return rest.Tokens(func(ctx context.Context) (string, time.Time, error) {
		began := time.Now()
		answer, err := rest.Do[struct {
			Token string `json:"access_token"`
			Life  int    `json:"expires_in"` // seconds
		}](ctx, c, "POST", "/identity/token", url.Values{"grant_type": {"urn:ibm:params:oauth:grant-type:apikey"}, "apikey": {key}})
		return answer.Token, began.Add(time.Duration(answer.Life) * time.Second), err
	})
}

// Refusal reads both how the VPC API and how IAM refuse.
func Refusal(status int, header http.Header, body []byte) error {
	var answer struct {
		Errors []struct{ Code, Message string }
		Code   string `json:"errorCode"` // IAM's, as BXNIM0415E
		Why    string `json:"errorMessage"`
	}
	if json.Unmarshal(body, &answer) == nil && status < 500 {
		if len(answer.Errors) > 0 {
			return &rest.Error{Status: status, Code: answer.Errors[0].Code, Message: answer.Errors[0].Message}
		} else if answer.Code != "" {
			return &rest.Error{Status: status, Code: answer.Code, Message: answer.Why}
		}
	}
	return rest.ReadError(status, header, body)
}

// Named is what most things have.
type Named struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Status  string    `json:"status"`
	Created time.Time `json:"created_at"`
}

// List is all things of a kind in a region. The answer has them under the last part of path.
func List[T any](ctx context.Context, c *rest.Client, path string, query url.Values) ([]T, error) {
	q := With(query)
	q.Set("limit", "100")
	return rest.FieldPages[T](ctx, c, "/"+path, path[strings.LastIndexByte(path, '/')+1:], "next.href", "start", q)
}

// Available are the names of the regions, or of the zones of one, that can be used.
func Available(ctx context.Context, c *rest.Client, path string) (names []string, err error) {
	all, err := List[Named](ctx, c, path, nil)
	for _, r := range all {
		if r.Status == "available" {
			names = append(names, r.Name)
		}
	}
	return names, err
}

// With is a query with what every call has.
func With(query url.Values) url.Values {
	q := url.Values{"version": {version}, "generation": {"2"}}
	for name, values := range query {
		q[name] = values
	}
	return q
}

// Do calls something about one thing.
func Do[T any](ctx context.Context, c *rest.Client, method, path string, body any) (T, error) {
	return rest.Send[T](ctx, c, rest.Call{Method: method, Path: path, Query: With(nil), Body: body})
}
