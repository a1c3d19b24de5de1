package aws

import (
	"context"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// What is made is not known everywhere in AWS at once: a call that names it may
// not find it for a while, and a list may lack it.

// settleTries is how often something new is looked for before it counts as
// missing, a poll apart.
const settleTries = 15

// known makes a call about something that sky has made, again while AWS says
// that it does not know the thing. what is waited for then, for people.
func (p *Provider) known(ctx context.Context, what string, young func(error) bool, call func() error) error {
	for try := 1; ; try++ {
		err := call()
		if err == nil || try == settleTries || !young(err) {
			return err
		}
		cloud.ReportWait(ctx, what)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(p.o.Poll):
		}
	}
}

// What is waited for with known.
const (
	groupKnown = "EC2 to know the security group " // and its id
	roleKnown  = "IAM to know the role " + roleName
)

func newGroup(err error) bool {
	code := codeOf(err)
	return code == "InvalidGroup.NotFound" || code == "InvalidGroupId.NotFound" || code == "InvalidSecurityGroupID.NotFound"
}

func newEntity(err error) bool { return codeOf(err) == "NoSuchEntity" }

// newParts reports that instances could not be had for want of something that sky
// itself makes.
func newParts(profile string) func(error) bool {
	return func(err error) bool {
		return newGroup(err) || codeOf(err) == "InvalidPlacementGroup.Unknown" ||
			profile == roleName && codeOf(err) == "InvalidParameterValue" &&
				(strings.Contains(err.Error(), "Invalid IAM Instance Profile") || strings.Contains(err.Error(), "has no associated IAM Roles"))
	}
}

// refused reports that AWS said no to a call, which therefore made nothing.
func refused(err error) bool {
	api, ok := apiError(err)
	if !ok {
		return false
	}
	m := meaningOf(api)
	return m != vm.NoAnswer && (m != vm.Unclear || status(err) < 500)
}
