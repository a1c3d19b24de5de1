package aws

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/smithy-go"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var use1a = cloud.Place{Cloud: Name, Region: "us-east-1", Zone: "us-east-1a"}

func TestChoose(t *testing.T) {
	list := []subnet{
		{id: "s1", zone: "us-east-1a", zoneID: "use1-az1", public: true},
		{id: "s2", zone: "us-east-1b", zoneID: "use1-az2", public: true, name: "mine"},
		{id: "s3", zone: "us-east-1b", zoneID: "use1-az2", name: "private"},
		{id: "s4", zone: "us-east-1c", zoneID: "use1-az4", givesAddresses: true},
	}
	for _, tt := range []struct {
		zone     string
		names    []string
		internal bool
		want     string
	}{
		{"", nil, false, "[s2 s1]"},
		{"us-east-1a", nil, false, "[s1]"},
		{"use1-az2", nil, false, "[s2]"},
		{"us-east-1c", nil, false, "it has no such subnet in zone us-east-1c"},
		{"", []string{"mine"}, false, "[s2]"},
		{"", []string{"nobody's"}, false, "none of its subnets has the tag Name=nobody's (aws.subnet_names in the configuration)"},
		{"", nil, true, "[s3]"},
		{"", []string{"mine"}, true, "it has no private subnet, which aws.use_internal_ips wants"},
	} {
		got, err := choose(list, tt.zone, tt.names, tt.internal)
		var ids []string
		for _, s := range got {
			ids = append(ids, s.id)
		}
		have := fmt.Sprint(ids)
		if err != nil {
			have = err.Error()
		}
		if have != tt.want {
			t.Errorf("%q %v internal %v: %s, want %s", tt.zone, tt.names, tt.internal, have, tt.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	kind := func(err error) string { return fmt.Sprintf("%T", err) }
	for code, want := range map[string]string{
		"InsufficientInstanceCapacity": "*cloud.CapacityError", "SpotMaxPriceTooLow": "*cloud.CapacityError",
		"VcpuLimitExceeded": "*cloud.QuotaError", "MaxSpotInstanceCountExceeded": "*cloud.QuotaError", "SecurityGroupLimitExceeded": "*cloud.QuotaError",
		"ExpiredTokenException": "*cloud.AuthError", "ExpiredToken": "*cloud.AuthError", "RequestExpired": "*cloud.AuthError",
		"InvalidClientTokenId": "*cloud.AuthError", "InvalidClientToken": "*cloud.AuthError", "AuthFailure": "*cloud.AuthError",
		"UnauthorizedOperation": "*cloud.PermissionError", "AccessDenied": "*cloud.PermissionError", "OptInRequired": "*cloud.PermissionError",
		"Unsupported": "*cloud.InvalidError", "InvalidAMIID.NotFound": "*cloud.InvalidError", "InvalidParameterValue": "*cloud.InvalidError",
		"RequestLimitExceeded": "*cloud.ThrottledError", "Throttling": "*cloud.ThrottledError",
		"InternalError": "*cloud.UnreachableError", "Unavailable": "*cloud.UnreachableError", "ServerInternal": "*cloud.UnreachableError",
	} {
		err := translate(t.Context(), use1a, fmt.Errorf("operation: %w", &smithy.GenericAPIError{Code: code, Message: "no"}))
		if kind(err) != want {
			t.Errorf("%s: %s, want %s", code, kind(err), want)
		}
	}
	var quota *cloud.QuotaError
	errors.As(translate(t.Context(), use1a, &smithy.GenericAPIError{Code: "VcpuLimitExceeded"}), &quota)
	if quota == nil || quota.Place.Zone != "" || quota.Place.Region != "us-east-1" {
		t.Errorf("a quota closes the region: %v", quota)
	}
}

// AuthFailure is not always about the credentials.
func TestRefusalsThatLookLikeBadCredentials(t *testing.T) {
	refused := func(code, text string) error {
		return translate(t.Context(), use1a, &smithy.OperationError{ServiceID: "EC2", OperationName: "RunInstances", Err: &smithy.GenericAPIError{Code: code, Message: text}})
	}
	var invalid *cloud.InvalidError
	if err := refused("AuthFailure", "Not authorized for images: [ami-0123]"); !errors.As(err, &invalid) || invalid.Place.Region != "us-east-1" || invalid.Place.Zone != "" {
		t.Errorf("an image of somebody else's: %T %v", err, err)
	}
	var forbidden *cloud.PermissionError
	if err := refused("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances."); !errors.As(err, &forbidden) ||
		!strings.Contains(err.Error(), "iam:CreateServiceLinkedRole") || !strings.Contains(err.Error(), "--aws-service-name spot.amazonaws.com") {
		t.Errorf("the first spot machine: %T %v", err, err)
	}
	var auth *cloud.AuthError
	if err := refused("AuthFailure", "AWS was not able to validate the provided access credentials"); !errors.As(err, &auth) {
		t.Errorf("%T %v", err, err)
	}
}

// A policy of the organization may forbid one region: it says nothing of the others.
// An account without the right has it nowhere.
func TestAnExplicitDenyOfOneRegionClosesNoOther(t *testing.T) {
	for text, region := range map[string]string{
		"You are not authorized to perform this operation with an explicit deny in a service control policy": "us-east-1",
		"You are not authorized to perform this operation.":                                                  "",
	} {
		err := translate(t.Context(), use1a, &smithy.OperationError{ServiceID: "EC2", OperationName: "RunInstances", Err: &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: text}})
		var refused *cloud.PermissionError
		if !errors.As(err, &refused) || refused.Place.Cloud != Name || refused.Place.Region != region || refused.Place.Zone != "" {
			t.Errorf("%q: %T %v", text, err, err)
		}
	}
}

// TestDisksOfAnySize: no volume is asked for more than its size allows.
func TestDisksOfAnySize(t *testing.T) {
	for _, tt := range []struct {
		tier string
		gb   int
		want string
	}{
		{"", 0, "gp3 256 3500 218"}, {"medium", 10, "gp3 10 3500 218"}, {"medium", 6, "gp3 6 - 218"},
		{"high", 256, "gp3 256 7000 437"}, {"high", 10, "gp3 10 5000 437"}, {"high", 1, "gp3 1 - 437"},
		{"ultra", 40, "io2 40 20000 -"}, {"best", 8, "io2 8 4000 -"},
		{"low", 8, "standard 8 - -"},
	} {
		d := disk(cloud.LaunchSpec{MachineSpec: cloud.MachineSpec{DiskTier: tt.tier, DiskGB: tt.gb}}, Settings{}, image{})
		show := func(n *int32) string {
			if n == nil {
				return "-"
			}
			return fmt.Sprint(*n)
		}
		if got := fmt.Sprint(d.VolumeType, " ", *d.VolumeSize, " ", show(d.Iops), " ", show(d.Throughput)); got != tt.want {
			t.Errorf("%q of %d GB: %s, want %s", tt.tier, tt.gb, got, tt.want)
		}
	}
}

// Every code of the table becomes an error that says what it rules out.
func TestEveryCodeRulesSomethingOut(t *testing.T) {
	everywhere, region := cloud.Place{Cloud: Name}, cloud.Place{Cloud: Name, Region: "us-east-1"}
	for code, m := range meanings {
		err := translate(t.Context(), use1a, &smithy.OperationError{ServiceID: "EC2", OperationName: "RunInstances", Err: &smithy.GenericAPIError{Code: code, Message: "no"}})
		var at cloud.Place
		want := use1a
		switch e := err.(type) {
		case *cloud.AuthError:
			at, want = cloud.Place{Cloud: e.Cloud}, everywhere
			if m != vm.BadCredentials || e.Fix == "" {
				t.Errorf("%s: %v, mended by %q", code, err, e.Fix)
			}
		case *cloud.PermissionError:
			at, want = e.Place, region
			if m == vm.Forbidden {
				want = everywhere
				if !strings.Contains(err.Error(), "ec2:RunInstances is missing") {
					t.Errorf("%s: %v", code, err)
				}
			} else if m != vm.ForbiddenHere {
				t.Errorf("%s: %v", code, err)
			}
		case *cloud.CapacityError:
			at = e.Place
			if m != vm.Full {
				t.Errorf("%s: %v", code, err)
			}
		case *cloud.QuotaError:
			at, want = e.Place, region
			if m != vm.OverQuota {
				t.Errorf("%s: %v", code, err)
			}
		case *cloud.InvalidError:
			at = e.Place
			if m == vm.InvalidInRegion {
				want = region
			} else if m != vm.Invalid {
				t.Errorf("%s: %v", code, err)
			}
		case *cloud.ThrottledError:
			at = use1a // which it does not say: the zone that was asked for
			if m != vm.Throttled {
				t.Errorf("%s: %v", code, err)
			}
		case *cloud.UnreachableError:
			at = use1a
			if m != vm.NoAnswer {
				t.Errorf("%s: %v", code, err)
			}
		default:
			t.Errorf("%s is an error that nobody branches on: %v", code, err)
		}
		if at != want {
			t.Errorf("%s rules out %v, want %v", code, at, want)
		}
		if !strings.Contains(err.Error(), code) {
			t.Errorf("AWS's own words are lost: %v", err)
		}
	}
}

func TestDefaultImages(t *testing.T) {
	gpu := func(name string) map[string]float64 { return map[string]float64{name: 1} }
	for _, tt := range []struct {
		machine string
		gpus    map[string]float64
		want    string
	}{
		{"m6i.large", nil, "skypilot:custom-cpu-ubuntu"},
		{"t4g.small", nil, "skypilot:custom-cpu-ubuntu-arm64"},
		{"c7gn.xlarge", nil, "skypilot:custom-cpu-ubuntu-arm64"},
		{"a1.large", nil, "skypilot:custom-cpu-ubuntu-arm64"},
		{"g4dn.xlarge", gpu("T4"), "skypilot:custom-gpu-ubuntu-cuda13"},
		{"g5g.xlarge", gpu("T4g"), "skypilot:custom-gpu-ubuntu-arm64-cuda13"},
		{"p3.2xlarge", gpu("V100"), "skypilot:custom-gpu-ubuntu"},
		{"p2.xlarge", gpu("K80"), "skypilot:k80-ubuntu-2004"},
		{"trn1.2xlarge", gpu("Trainium"), "skypilot:neuron-ubuntu-2204"},
		{"p6-b200.48xlarge", gpu("B200"), "skypilot:custom-gpu-ubuntu-cuda13"},
		{"p6e-gb200.36xlarge", gpu("GB200"), "skypilot:custom-gpu-ubuntu-arm64-cuda13"},
	} {
		if got := defaultTag(cloud.Offer{InstanceType: tt.machine, Accelerators: tt.gpus}); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.machine, got, tt.want)
		}
	}
}

func TestReadSettings(t *testing.T) {
	s := ReadSettings(map[string]any{
		"vpc_names": []any{"v1", "v2"}, "subnet_names": "one", "use_internal_ips": true, "disk_encrypted": true, "ssh_user": "ec2-user",
		"security_group_name": []any{map[string]any{"train-*": "sg-train"}, map[string]any{"*": "sg-rest"}},
		"ssh_proxy_command":   map[string]any{"us-east-1": "ssh -W %h:%p jump"},
		"labels":              map[string]any{"team": "vision"}, "remote_identity": "my-role",
	})
	if s.VPC != "v1" || len(s.Subnets) != 1 || !s.InternalIPs || !s.EncryptDisks || s.user() != "ec2-user" || s.Labels["team"] != "vision" {
		t.Errorf("%+v", s)
	}
	if g := named(s.SecurityGroups, "train-7"); g != "sg-train" {
		t.Error(g)
	}
	if g := named(s.SecurityGroups, "dev"); g != "sg-rest" {
		t.Error(g)
	}
	if s.ProxyCommand.In("us-east-1") == "" || s.ProxyCommand.In("us-west-2") != "" || named(s.Profiles, "x") != "my-role" {
		t.Errorf("%+v", s)
	}
	if s := ReadSettings(map[string]any{"remote_identity": "NO_UPLOAD"}); !s.NoIdentity {
		t.Error("NO_UPLOAD gives machines a role")
	}
	if s := ReadSettings(nil); s.user() != "ubuntu" || len(s.Profiles) > 0 || s.NoIdentity {
		t.Errorf("defaults: %+v", s)
	}
}

func TestMissingRules(t *testing.T) {
	if n := len(missingRules("sg-1", nil, []string{"22", "8000-8010"})); n != 3 {
		t.Errorf("%d rules for a new group, want those for itself, ssh and the ports", n)
	}
	have := missingRules("sg-1", nil, []string{"22", "8000-8010"})
	if left := missingRules("sg-1", have, []string{"8005", "22"}); len(left) != 0 {
		t.Errorf("what is open is opened again: %v", left)
	}
}

func TestLabels(t *testing.T) {
	for _, k := range []string{"", "aws:x", "AWS:x", "a b", string(make([]byte, 128))} {
		if validLabel(k, "v") == nil {
			t.Errorf("%q is a label", k)
		}
	}
	if validLabel("team", "a b") == nil || validLabel("team", "vision") != nil {
		t.Error("values are not checked")
	}
	if validLabel(strings.Repeat("ü", 127), strings.Repeat("日", 255)) != nil || validLabel(strings.Repeat("ü", 128), "") == nil || validLabel("k", strings.Repeat("日", 256)) == nil {
		t.Error("lengths do not count characters")
	}
}

// TestLiteral: what is asked for by name must not match other names.
func TestLiteral(t *testing.T) {
	if got := literal(`a*b?c\d`); got != `a\*b\?c\\d` {
		t.Error(got)
	}
}
