package aws

import (
	"fmt"
	"testing"

	"github.com/aws/smithy-go"
)

// TestRefusalsForWantOfSomethingNew: what sky has just made is waited for, what
// the user named is not.
func TestRefusalsForWantOfSomethingNew(t *testing.T) {
	for _, tt := range []struct {
		code, text, profile string
		want                bool
	}{
		{"InvalidGroup.NotFound", "The security group 'sg-1' does not exist", "", true},
		{"InvalidSecurityGroupID.NotFound", "The security group 'sg-1' does not exist", "", true},
		{"InvalidPlacementGroup.Unknown", "The placement group 'p' is unknown", "", true},
		{"InvalidParameterValue", "Value (skypilot-v1) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", roleName, true},
		{"InvalidParameterValue", `IAM Instance Profile "arn:aws:iam::1:instance-profile/skypilot-v1" has no associated IAM Roles`, roleName, true},
		{"InvalidParameterValue", "Value (mine) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", "mine", false},
		{"InvalidParameterValue", "Invalid value 'x' for InstanceType.", roleName, false},
	} {
		err := fmt.Errorf("operation: %w", &smithy.GenericAPIError{Code: tt.code, Message: tt.text})
		if got := newParts(tt.profile)(err); got != tt.want {
			t.Errorf("%s %q with the profile %q: %v", tt.code, tt.text, tt.profile, got)
		}
	}
}
