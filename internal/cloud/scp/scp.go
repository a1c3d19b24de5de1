// Package scp rents virtual servers on Samsung Cloud Platform.
//
// Servers have short names, which need not be unique, and tags: what was asked for without an
// answer is not asked for again before lists can be believed. The world reaches a server
// through its security group and the firewall of its network, whose rules name addresses, so
// that they are made when the servers have theirs.
//
// Source: Samsung's clients of its Open API, version 1: the provider of Terraform, and Skyplane.
package scp

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = "scp"

const displayName = "SCP"

// names are those of servers. That of a cluster is in a tag.
var names = vm.ShortNames{Max: 28}

const mostName = 60

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on Samsung Cloud Platform.
type Provider struct {
	vm.StopProvider
	vm.Base
	memo vm.Memo
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Endpoint: "https://openapi.samsungsdscloud.com", Poll: 5 * time.Second, Timeout: 30 * time.Minute})
	p := &Provider{Base: vm.Base{Label: displayName, Can: features(), Account: vm.Account{
		File: keyfile.File{
			Cloud: Name, Path: ".scp/scp_credential", Names: []string{"access_key", "secret_key", "project_id"}, Home: o.Home,
			Fix: "make an access key at https://cloud.samsungsds.com and write into ~/.scp/scp_credential:\n      access_key = …\n      secret_key = …\n      project_id = …",
		},
		Tuning: o, REST: rest.Options{Cloud: displayName}, Authorize: authorize,
	}}}
	p.Refusals, p.Who = refusals(p.Fix), p.who
	p.StopProvider = vm.NewStopping(driver{p, p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: valid, NoTokens: true, EndingHolds: true,
		Limits:  vm.LimitEach(o.Timeout*3/4, "CREATING", "EDITING", "STARTING", "RESTARTING"),
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// authorize signs calls: the method, the URL, the time, and whose call it is.
func authorize(keys map[string]string) func(*http.Request) error {
	return rest.Sign(func(r *http.Request, _ []byte) error {
		at, client := strconv.FormatInt(time.Now().UnixMilli(), 10), "OpenApi"
		mac := hmac.New(sha256.New, []byte(keys["secret_key"]))
		mac.Write([]byte(r.Method + r.URL.String() + at + keys["access_key"] + keys["project_id"] + client))
		for name, value := range map[string]string{"AccessKey": keys["access_key"], "ClientType": client, "ProjectId": keys["project_id"], "Timestamp": at, "Signature": base64.StdEncoding.EncodeToString(mac.Sum(nil))} {
			r.Header.Set("X-Cmp-"+name, value)
		}
		return nil
	})
}

// refusals are Samsung's statuses. It has no codes: texts tell more.
func refusals(fix string) vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: displayName, Fix: fix,
		Texts: []vm.Text{
			{Holds: "not found any cluster by requested scale", Means: vm.Full}, {Holds: "quota", Means: vm.OverQuota}, {Holds: "ongoing request", Means: vm.InUse}, {Holds: "in use", Means: vm.InUse},
		},
		Statuses: map[int]vm.Meaning{http.StatusBadRequest: vm.Invalid, http.StatusPreconditionFailed: vm.InUse},
	}
}

// features says what Samsung, or this provider, cannot do.
func features() cloud.Features {
	lacks := facts.Of(Name).Reasons()
	lacks[cloud.FeatureAutostop] = "nothing says that Samsung ends the costs of a server that powers itself off"
	lacks[cloud.FeatureAutodown] = "servers of Samsung cannot delete themselves"
	lacks[cloud.FeatureCloneDisk] = "disks cannot be copied yet"
	return cloud.Features{MaxNameLength: mostName, Lacks: lacks}
}

// who asks for the zones of the project, and for the key pair that servers are made with.
func (p *Provider) who(ctx context.Context, c *rest.Client, keys map[string]string) (cloud.Identity, error) {
	p.memo.Forget("zones")
	_, err := p.zones(ctx, c, p.Stamp(keys))
	if err == nil {
		_, err = keyPair(ctx, c)
	}
	return cloud.Identity{"the project " + keys["project_id"]}, err
}

// list reads all pages of a list, which may be smaller than asked for; query is none, or begins
// with "&".
func list[T any](ctx context.Context, c *rest.Client, path, query string) ([]T, error) {
	n := -1 // of the page
	return rest.Counted(ctx, c, func(ctx context.Context, _ int) ([]T, *int, error) {
		n++
		answer, err := rest.Do[struct {
			Contents []T  `json:"contents"`
			Total    *int `json:"totalCount"`
		}](ctx, c, "GET", fmt.Sprintf("%s?page=%d&size=1000%s", path, n, query), nil)
		return answer.Contents, answer.Total, err
	})
}

// zone is a service zone: users write its name.
type zone struct {
	ID   string `json:"serviceZoneId"`
	Name string `json:"serviceZoneName"`
}

func (p *Provider) zones(ctx context.Context, c *rest.Client, stamp string) ([]zone, error) {
	return vm.Remember(&p.memo, stamp, "zones", func() ([]zone, error) {
		keys, err := p.Read()
		if err != nil {
			return nil, err
		}
		return list[zone](ctx, c, "/project/v3/projects/"+url.PathEscape(keys["project_id"])+"/zones", "")
	})
}

// keyPair is the first of the project's: a server is made with one. The key that sky uses is
// added by the server's first script.
func keyPair(ctx context.Context, c *rest.Client) (string, error) {
	type pair struct {
		ID string `json:"keyPairId"`
	}
	all, err := list[pair](ctx, c, "/key-pair/v1/key-pairs", "")
	if err == nil && len(all) == 0 {
		err = &cloud.AuthError{Cloud: Name, Fix: "make a key pair at https://cloud.samsungsds.com (Virtual Server), then: sky check scp", Err: errors.New("the project has no key pair, which servers are made with")}
	}
	return append(all, pair{})[0].ID, err
}

func valid(spec cloud.LaunchSpec) error { return vm.PlainLetter(displayName, mostName, spec) }

// image is what servers of an offer start from: the newest of Samsung's with Ubuntu.
func image(ctx context.Context, c *rest.Client, zone string, o cloud.Offer) (string, error) {
	type standard struct {
		ID    string `json:"imageId"`
		Name  string `json:"imageName"`
		OS    string `json:"osType"`
		State string `json:"imageState"`
		For   string `json:"servicedFor"`
	}
	kind := "Virtual Server"
	if len(o.Accelerators) > 0 {
		kind = "GPU Server"
	}
	all, err := list[standard](ctx, c, "/image/v2/standard-images", "&serviceZoneId="+url.QueryEscape(zone))
	all = slices.DeleteFunc(all, func(i standard) bool { return i.For != kind || i.State != "ACTIVE" || i.OS != "UBUNTU" })
	if err == nil && len(all) == 0 {
		err = &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("Samsung has no image of Ubuntu there for a %s", kind)}
	}
	slices.SortFunc(all, func(a, b standard) int { return strings.Compare(b.Name+b.ID, a.Name+a.ID) })
	return append(all, standard{})[0].ID, err
}
