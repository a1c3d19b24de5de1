// Package yotta rents pods with GPUs on Yotta Labs.
//
// A pod's name tells its region, which Yotta does not tell, whose it is and which rank it
// has. Names are not unique and there are no idempotency tokens, so what was asked for
// without an answer is not asked for again before lists can be believed. The agent comes in
// by the command that a pod begins with.
//
// Source: the Yotta Platform API, version 2, and the check of keys that SkyPilot uses.
package yotta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Name is what users write after "infra:".
const Name = "yotta"

const displayName = "Yotta"

// names are those of pods, behind their region and a dot.
var names = vm.Names{Max: 255 - 64}

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on Yotta.
type Provider struct {
	vm.PortProvider
	vm.Base
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Endpoint: "https://api.yottalabs.ai", Poll: 10 * time.Second, Timeout: 30 * time.Minute})
	p := &Provider{Base: vm.Base{Label: displayName, Can: features(), Account: vm.Account{
		File: keyfile.File{
			Cloud: Name, Path: ".yotta/credentials", Names: []string{"orgId", "apikey"}, Home: o.Home,
			Fix: "make an API key at https://console.yottalabs.ai (Settings, Access Keys) and write the lines \"orgId=ORGANIZATION\" and \"apikey=KEY\" into ~/.yotta/credentials",
		},
		Tuning: o, REST: rest.Options{Cloud: displayName, Refusal: refusal, Timeout: time.Minute},
		Authorize: func(keys map[string]string) func(*http.Request) error {
			return rest.Header("X-API-KEY", keys["apikey"])
		},
	}}}
	p.Refusals, p.Who = refusals(p.Fix), p.who
	p.Provider = vm.New(driver{p, p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: valid, NoTokens: true, EndingHolds: true,
		Limits:     map[string]time.Duration{"INITIALIZE": o.Timeout * 9 / 10, "INITIALIZING": o.Timeout * 9 / 10},
		PortsLater: "a pod keeps the ports that it was launched with; launch it anew with them",
		Timeout:    o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// success is the code of every answer that is no refusal.
const success = 10000

// refusal reads Yotta's form of a refusal: {"code": 10001, "message": "…"}.
func refusal(status int, header http.Header, body []byte) error {
	var answer struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	if status >= http.StatusInternalServerError || json.Unmarshal(body, &answer) != nil || answer.Code == 0 {
		return rest.ReadError(status, header, body)
	}
	return &rest.Error{Status: status, Code: strconv.Itoa(answer.Code), Message: answer.Message}
}

// refusals are Yotta's codes, and the texts of what has no code of its own.
func refusals(fix string) vm.Refusals {
	const funds = "add funds at https://console.yottalabs.ai (Billing), then: sky check yotta"
	return vm.Refusals{
		Cloud: Name, DisplayName: displayName, Fix: fix, Fixes: map[string]string{"balance": funds, "402": funds},
		Codes: map[string]vm.Meaning{
			"10002": vm.NoAnswer, "10007": vm.NotThere, "11002": vm.Forbidden, "12001": vm.Moved, "13000": vm.NotThere, "40001": vm.BadCredentials, "44003": vm.NotThere,
		},
		Texts: []vm.Text{
			{Holds: "balance", Means: vm.BadCredentials}, {Holds: "quota", Means: vm.OverQuotaAll}, {Holds: "limit", Means: vm.OverQuotaAll},
			{Holds: "insufficient", Means: vm.Full}, {Holds: "no available", Means: vm.Full}, {Holds: "not available", Means: vm.Full}, {Holds: "out of stock", Means: vm.Full},
			{Holds: "not found", Means: vm.NotThere}, {Holds: "not exist", Means: vm.NotThere},
		},
		Statuses: map[int]vm.Meaning{http.StatusOK: vm.Invalid, http.StatusBadRequest: vm.Invalid, http.StatusPaymentRequired: vm.BadCredentials},
	}
}

// call makes a call and takes the answer out of its envelope. Some refusals have status 200.
func call[T any](ctx context.Context, c *rest.Client, r rest.Call) (T, error) {
	type envelope struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    T      `json:"data"`
	}
	answer, err := rest.Send[envelope](ctx, c, r)
	if err == nil && answer.Code != success {
		err = &rest.Error{Status: http.StatusOK, Code: strconv.Itoa(answer.Code), Message: answer.Message}
	}
	return answer.Data, err
}

// features says what Yotta, or this provider, cannot do.
func features() cloud.Features {
	const off = "pods of Yotta are given back, not stopped"
	return cloud.Features{
		MaxNameLength: names.MaxCluster(), Containers: true,
		Lacks: map[cloud.Feature]string{
			cloud.FeatureStop: off, cloud.FeatureAutostop: off,
			cloud.FeatureAutodown:  "a pod cannot give itself back",
			cloud.FeatureMultiNode: "pods of Yotta do not reach each other",
			cloud.FeatureSpot:      "Yotta has no spot pods",
			cloud.FeatureImage:     "a pod starts from a container image (image_id: docker:…)",
			cloud.FeatureDiskTier:  "Yotta has one kind of disk",
			cloud.FeatureNetTier:   "Yotta has one kind of network",
			cloud.FeatureLocalDisk: "Yotta has one kind of disk",
			cloud.FeatureStorage:   "buckets are copied into pods of Yotta (mode: COPY), and cannot be mounted",
			cloud.FeatureCloneDisk: "Yotta cannot copy disks",
		},
	}
}

// who asks whether the key is the organization's.
func (p *Provider) who(ctx context.Context, c *rest.Client, keys map[string]string) (cloud.Identity, error) {
	good, err := call[bool](ctx, c, rest.Call{Method: "GET", Path: "/openapi/key/check", Query: url.Values{"orgId": {keys["orgId"]}}})
	if err == nil && !good {
		err = &cloud.AuthError{Cloud: Name, Fix: p.Fix, Err: fmt.Errorf("the key is not one of the organization %s", keys["orgId"])}
	}
	return cloud.Identity{"the organization " + keys["orgId"]}, err
}

// typeForm is a type of a price list: so many GPUs, vCPUs and GiB of memory of a kind, such as
// 1x14v119g_NVIDIA_GeForce_RTX_5090_32G_SECURE.
var typeForm = lazyregexp.New(`^([1-9][0-9]*)x(?:([1-9][0-9]*)v([1-9][0-9]*)g)?_(.+?)_SECURE$`)

// compute is what a pod of a type is asked for.
func compute(instanceType string) (map[string]any, error) {
	part := typeForm.FindStringSubmatch(instanceType)
	if part == nil {
		return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("Yotta has no type %q; one is called as in 1x14v119g_NVIDIA_GeForce_RTX_5090_32G_SECURE", instanceType)}
	}
	code := strings.Replace(part[4], "_GeForce_", "_", 1)
	if !strings.HasPrefix(code, "NVIDIA_") { // of older price lists
		code = map[string]string{"A10": "NVIDIA_A10_24G", "L4": "NVIDIA_L4_24G"}[code]
	}
	if code == "" {
		return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("Yotta's code for the GPUs of %s is not known", instanceType)}
	}
	n, _ := strconv.Atoi(part[1])
	asked := map[string]any{"resourceType": "GPU", "gpuType": code, "gpuCount": n}
	for i, field := range map[int]string{2: "minSingleCardVcpu", 3: "minSingleCardRamInGb"} {
		if all, err := strconv.Atoi(part[i]); err == nil && all >= n {
			asked[field] = all / n
		}
	}
	return asked, nil
}

func valid(spec cloud.LaunchSpec) error {
	if spec.Nodes > 1 {
		return errors.New("a cluster on Yotta has one node")
	}
	if spec.Login != nil && !spec.Login.Complete() {
		return errors.New("Yotta keeps no logins to registries: the launch needs the password of the image's again")
	}
	if _, err := exposed(spec.Ports); err != nil {
		return err
	}
	return vm.Plain(displayName, names.MaxCluster(), spec)
}
