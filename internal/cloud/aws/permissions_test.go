package aws_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestMissingPermissionsAreNamed(t *testing.T) {
	fake := start(t)
	p := provider()
	if lack, err := p.Lacking(t.Context()); err != nil || len(lack.Permissions) > 0 {
		t.Errorf("nothing is refused: %+v, %v", lack, err)
	}
	want := []string{"ec2:RunInstances", "ec2:TerminateInstances", "iam:CreateRole", "iam:PassRole"}
	fake.Deny(false, want...)
	lack, err := p.Lacking(t.Context())
	if err != nil || !slices.Equal(lack.Permissions, want) {
		t.Errorf("%+v, %v", lack, err)
	}
	statement := `{"Effect":"Allow","Action":["ec2:RunInstances","ec2:TerminateInstances","iam:CreateRole","iam:PassRole"],"Resource":"*"}`
	if !strings.Contains(lack.Fix, statement) || !strings.Contains(lack.Fix, ":user/u") {
		t.Error(lack.Fix)
	}
	// Who may not ask IAM still learns what EC2 refuses.
	fake.Deny(false, "iam:SimulatePrincipalPolicy")
	if lack, err = p.Lacking(t.Context()); err != nil || !slices.Equal(lack.Permissions, want[:2]) {
		t.Errorf("%+v, %v", lack, err)
	}
	if list := fake.Inventory(); len(list) > 0 {
		t.Errorf("asking made %v", list)
	}
}

func TestSealedRefusalsAreOpened(t *testing.T) {
	fake := start(t)
	p := provider()
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "c", Hash: "h"}, Offer: here, Nodes: 1, Token: "t"}
	fake.Deny(true, "ec2:RunInstances")
	_, err := p.Launch(t.Context(), spec)
	var refused *cloud.PermissionError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "the permission ec2:RunInstances on arn:aws:ec2:us-east-1:123456789012:instance/* is missing") {
		t.Errorf("%v", err)
	}
	fake.Deny(true, "sts:DecodeAuthorizationMessage")
	_, err = p.Launch(t.Context(), spec)
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "the permission ec2:RunInstances is missing") {
		t.Errorf("who may not open them: %v", err)
	}
}
